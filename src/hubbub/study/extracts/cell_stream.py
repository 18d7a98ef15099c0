"""Cells that come piece by piece: what every source gives that may be larger than memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan

Cells = Mapping[str, Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class CellStream:
    """One silo's cells, piece by piece.

    Args:
        origin: what sentences call it.
        pieces: reads them from the beginning: by column the texts of some rows, "" for a missing
            cell.
        ordered: whether rows come in an order that is theirs, as lines of a file do; a database
            gives them in any.
    """

    origin: str
    pieces: Callable[[], Iterator[Cells]] = field(repr=False)
    ordered: bool


def texts_of(values: Sequence[object]) -> list[str]:
    """The texts of a column's values, alike for all engines: truth values are 1 and 0."""
    try:
        known = {value: _text(value) for value in set(values)}
        return [known[value] for value in values]
    except TypeError:  # some have no hash
        return [_text(value) for value in values]


def _text(value: object) -> str:
    if value is None or (isinstance(value, float) and isnan(value)):
        return ""
    return str(int(value)) if isinstance(value, bool) else str(value).strip()
