"""One PDF of the statements, their proofs, the protocol and the threat model: `make pdf`.

The sources are the pages of the site. Pandoc reads them and typst sets them; links between these
pages lead to places in the document, links to others are left as words.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pypandoc
import typst

from hubbub import VERSION

DOCS = Path(__file__).resolve().parents[1]
LAYOUT = Path(__file__).with_name("layout.typ")
THEMES = (
    *("accounting", "noise_shares", "sessions", "sampling"),
    *("clipping_and_units", "statistics", "ledger", "audits"),
)
PAGES = (
    DOCS / "privacy.md",
    *(DOCS / "privacy" / f"{theme}.md" for theme in THEMES),
    DOCS / "protocol.md",
    DOCS / "threat_model.md",
)
READER = "markdown-auto_identifiers-citations-smart"
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_HEADING = re.compile(r'(?m)(?:^<a id="([\w-]+)"></a>\n+)?^(#+) (.+)$')
OTHERWISE = {
    "times.circle": "times.o",  # pandoc has typst's former words
    "plus.circle": "plus.o",
    "align(center)[#table(": "align(left)[#table(",
}
_TABLE = re.compile(r"(?m)^\|.*\|\n\|(?:[ :-]+\|)+\n(?:\|.*\|\n)+")
_CODE = re.compile(r"(?s)(```.*?```|`[^`\n]*`)")


def document() -> str:
    """All pages as one text for pandoc."""
    anchors = {name for page in PAGES for name in _anchors(page.read_text(encoding="utf-8"))}
    return "\n\n".join(_page(page, anchors) for page in PAGES)


def pdf(text: str) -> bytes:
    """The document; the same text gives the same bytes."""
    body = pypandoc.convert_text(text, "typst", format=READER, extra_args=["--wrap=preserve"])
    for written, wanted in OTHERWISE.items():
        body = body.replace(written, wanted)
    with tempfile.NamedTemporaryFile("w", suffix=".typ", dir=DOCS, encoding="utf-8") as source:
        source.write(LAYOUT.read_text(encoding="utf-8").replace("VERSION", VERSION) + body)
        source.flush()
        return bytes(typst.compile(source.name, root=str(DOCS)))


def _anchors(text: str) -> list[str]:
    return re.findall(r'(?m)^<a id="([\w-]+)"></a>$', text)


def _page(page: Path, anchors: set[str]) -> str:
    text = re.sub(r"(?s)```\{toctree\}.*?```\n?", "", page.read_text(encoding="utf-8"))
    text = re.sub(r'<a id="[\w-]+"></a>(?=\[)', "", text)  # the table's own targets
    text = _HEADING.sub(lambda found: _heading(found, page), text)
    parts = _CODE.split(text)
    parts[::2] = [_LINK.sub(lambda found: _link(found, page, anchors), part) for part in parts[::2]]
    return _TABLE.sub(lambda found: _table(found[0]), "".join(parts))


def _table(text: str) -> str:
    """A table whose rule tells pandoc how wide each column is: as its cells ask for, up to 60."""
    head, rule, *rows = text.splitlines()
    cells = [re.split(r"(?<!\\)\|", row)[1:-1] for row in (head, *rows)]
    wide = [min(60, max(map(len, column))) for column in zip(*cells, strict=False)]
    rules = [mark.strip() for mark in rule.split("|")[1:-1]]
    marks = [
        (":" if mark[0] == ":" else "-") + "-" * size + (":" if mark[-1] == ":" else "-")
        for mark, size in zip(rules, wide, strict=False)
    ]
    return "\n".join([head, "|" + "|".join(marks) + "|", *rows]) + "\n"


def _heading(found: re.Match[str], page: Path) -> str:
    own, marks, words = found.groups()
    place = own or _place(page, "" if marks == "#" else _slug(words))
    return f"{marks} {words} {{#{place}}}"


def _link(found: re.Match[str], page: Path, anchors: set[str]) -> str:
    picture, words, target = found.groups()
    if picture:
        return f"![{words}]({(page.parent / target).resolve().relative_to(DOCS)})"
    if ":" in target:
        return found[0]
    name, _, anchor = target.partition("#")
    where = (page.parent / name).resolve() if name else page
    if anchor in anchors:
        return f"[{words}](#{anchor})"
    return f"[{words}](#{_place(where, anchor)})" if where in PAGES else words


def _place(page: Path, anchor: str) -> str:
    name = str(page.relative_to(DOCS).with_suffix("")).replace("/", "-")
    return f"{name}--{anchor}" if anchor else name


def _slug(words: str) -> str:
    """The anchor that the site gives a heading."""
    plain = re.sub(r"[^\w\s-]", "", words.lower())
    return re.sub(r"\s", "-", plain)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the document."""
    parser = argparse.ArgumentParser(description="statements and proofs as one PDF")
    parser.add_argument("--out", type=Path, default=DOCS / "_build" / "hubbub-statements.pdf")
    out = parser.parse_args(arguments).out
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(pdf(document()))


if __name__ == "__main__":
    main()
