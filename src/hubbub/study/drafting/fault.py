"""One thing that is wrong with a file of records, in words for whoever has the file.

It may quote a cell, so it is printed where the file lies and goes nowhere else: no exception, event
log or message to another party is made from it but by `in_public`, which quotes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that is wrong, or worth a look, in a file of records.

    Args:
        file: its name.
        what: what was found; it may quote a cell.
        remedy: what to do.
        column: in which column; empty: in no single one.
        row: the first row, counted from 1 after the header; None: in no single one.
        count: how many rows have it.
        refused: whether a run refuses the file for it; otherwise it is only worth a look.
    """

    file: str
    what: str
    remedy: str
    column: str = ""
    row: int | None = None
    count: int = 1
    refused: bool = True

    @property
    def where(self) -> str:
        """The file, the column and the row; nothing of a cell."""
        column = f", column {self.column!r}" if self.column else ""
        row = "" if self.row is None else f", row {self.row} after the header"
        more = f" (and {self.count - 1} more)" if self.count > 1 else ""
        return f"{self.file}{column}{row}{more}"

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.remedy}"

    def to_dict(self) -> dict[str, Any]:
        """The fault as plain values."""
        return {
            "file": self.file,
            "column": self.column or None,
            "row": self.row,
            "rows": self.count,
            "found": self.what,
            "remedy": self.remedy,
            "refused": self.refused,
        }
