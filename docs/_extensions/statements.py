"""The table of which code and which tests rest on each statement, from their own words.

A page holds the line `<!-- statements -->`; what stands there on the site is made anew each time. A
statement that no code or no test names is an error: nothing would show that it holds of what runs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MARK = "<!-- statements -->"
_TITLE = re.compile(r'(?m)^<a id="p\d+"></a>\n\n## (P\d+) (.+)$')
# P5; P3 to P7; a test's name such as test_p5_rounding.
_NAMED = re.compile(r"\bP(\d{1,2})(?: to P(\d{1,2}))?\b|\btest_p(\d{1,2})_")
_HEAD = "| statement | below `src/hubbub/` | below `tests/` |\n|---|---|---|\n"


def statements() -> dict[str, str]:
    """The title of each statement, in the order of their numbers."""
    pages = (ROOT / "docs" / "privacy").glob("*.md")
    titles = dict(found for page in pages for found in _TITLE.findall(page.read_text("utf-8")))
    return dict(sorted(titles.items(), key=lambda named: int(named[0][1:])))


def named_in(root: Path, paths: Iterable[Path]) -> dict[str, list[str]]:
    """By statement the files that name it, as they are below a folder."""
    files: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        for first, last, tested in _NAMED.findall(path.read_text(encoding="utf-8")):
            begin = int(first or tested)
            for number in range(begin, int(last or begin) + 1):
                files[f"P{number}"].add(str(path.relative_to(root)))
    return {name: sorted(those) for name, those in files.items()}


def written() -> str:
    """The table.

    Raises:
        ValueError: no code or no test names a statement.
    """
    source, tests = ROOT / "src" / "hubbub", ROOT / "tests"
    code = named_in(source, source.rglob("*.py"))
    tried = named_in(tests, tests.rglob("test_*.py"))
    return _HEAD + "".join(_row(name, title, code, tried) for name, title in statements().items())


def _row(
    name: str, title: str, code: Mapping[str, list[str]], tried: Mapping[str, list[str]]
) -> str:
    for what, named in (("code", code), ("test", tried)):
        if name not in named:
            raise ValueError(f"expected {what} that names {name}")
    cells = (", ".join(f"`{path}`" for path in named[name]) for named in (code, tried))
    return f"| [{name} {title}](../privacy.md#{name.lower()}) | {' | '.join(cells)} |\n"


def _read(app: Any, docname: str, source: list[str]) -> None:
    if MARK in source[0]:
        source[0] = source[0].replace(MARK, written())


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
