"""The tables of docs/study.md, from the keys as they are read: each stands where the page says."""

from __future__ import annotations

import re
from typing import Any

from hubbub.core.study.study_file import pages

_PART = re.compile(r"(?ms)^(##+ `\[([\w.]+)\]`$)(.*?)(?=^##|\Z)")
_HERE = "<!-- keys -->"


def written(text: str) -> str:
    """The page with each table of keys as the study has it."""
    tables = pages()
    return _PART.sub(
        lambda part: part[1] + part[3].replace(_HERE, tables[part[2]].rstrip("\n"), 1), text
    )


def _read(app: Any, docname: str, source: list[str]) -> None:
    if docname == "study":
        source[0] = written(source[0])


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
