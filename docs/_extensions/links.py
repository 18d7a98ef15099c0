"""Pages that are read in the source folder too, on the site.

The pages link as files do. On the site, what lies outside of `docs/` is a page of its own (files
at the root), a file to be fetched, or a folder or another text, of which the name is left. A page
with the line `<!-- file ../NAME -->` is that file. A link to a statement in the table of all leads
to where it is proven.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
PAGES = {
    ROOT / "README.md": DOCS / "index.md",
    ROOT / "SECURITY.md": DOCS / "project" / "security.md",
    ROOT / "CONTRIBUTING.md": DOCS / "project" / "contributing.md",
    ROOT / "GOVERNANCE.md": DOCS / "project" / "governance.md",
    ROOT / "CODE_OF_CONDUCT.md": DOCS / "project" / "conduct.md",
    ROOT / "CHANGELOG.md": DOCS / "project" / "changelog.md",
    ROOT / "tests/core/protocol/vectors" / "frames.md": DOCS / "reference" / "frames.md",
}
_LINK = re.compile(r"\[([^\[\]]*)\]\(([^()\s]+)\)")
_FILE = re.compile(r"(?m)^<!-- file (\S+) -->$")
_ANCHOR = re.compile(r'(?m)^<a id="([\w-]+)"></a>$')
STATEMENTS = {
    (DOCS / "privacy.md", anchor): page
    for page in sorted((DOCS / "privacy").glob("*.md"))
    for anchor in _ANCHOR.findall(page.read_text(encoding="utf-8"))
}


def on_the_site(text: str, read: Path, page: Path) -> str:
    """A text from the file `read`, its links as they must be in `page`."""

    def changed(found: re.Match[str]) -> str:
        words, (target, hash_sign, anchor) = found[1], found[2].partition("#")
        if not target or ":" in target:
            return found[0]
        where = (read.parent / target).resolve()
        where = STATEMENTS.get((where, anchor), PAGES.get(where, where))
        if where.is_dir() or (where.suffix == ".md" and DOCS not in where.parents):
            return words if words.startswith("`") else f"{words} (`{where.relative_to(ROOT)}`)"
        return f"[{words}]({os.path.relpath(where, page.parent)}{hash_sign}{anchor})"

    return _ANCHOR.sub(r"(\1)=", _LINK.sub(changed, text))


def _read(app: Any, docname: str, source: list[str]) -> None:
    page = DOCS / f"{docname}.md"

    def whole(found: re.Match[str]) -> str:
        path = (page.parent / found[1]).resolve()
        app.env.note_dependency(str(path))
        return on_the_site(path.read_text(encoding="utf-8"), path, page)

    source[0] = _FILE.sub(whole, on_the_site(source[0], page, page))


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
