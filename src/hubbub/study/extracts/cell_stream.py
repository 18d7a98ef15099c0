"""Cells that come piece by piece: what every source gives that may be larger than memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
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
    """The texts of a column's values, alike for all engines: truth values are 1 and 0.

    Each from its own value alone: values that Python holds equal, such as 0.0 and -0.0, may be
    several people's.
    """
    return list(map(_text, values))


def _text(value: object) -> str:
    """One value's; numbers that are equal have one text, whatever their sign of zero and scale."""
    if value is None or (isinstance(value, float) and isnan(value)):
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return str(value + 0.0)  # -0.0 is 0.0
    if isinstance(value, Decimal) and value.is_finite():
        return f"{value.normalize() + 0:f}"
    return str(value).strip()
