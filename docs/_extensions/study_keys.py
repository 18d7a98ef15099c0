"""The tables of docs/study.md, from the keys as they are read; run it to write them anew."""

from __future__ import annotations

import re
from pathlib import Path

from hubbub.core.study.study_keys import pages

PAGE = Path(__file__).parents[1] / "study.md"
_TABLE = re.compile(r"(?m)^\| key \|.*\n(?:\|.*\n)*")
_PART = re.compile(r"(?ms)^(##+ `\[([\w.]+)\]`$)(.*?)(?=^##|\Z)")


def written(text: str) -> str:
    """The page with each table of keys as the study has it."""
    tables = pages()

    def part(found: re.Match[str]) -> str:
        table = tables[found[2]] + "\n"
        return found[1] + _TABLE.sub(lambda _: table, found[3], count=1)

    return _PART.sub(part, text)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
