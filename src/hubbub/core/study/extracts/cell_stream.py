"""Cells that come piece by piece: what every source gives that may be larger than memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hubbub.core.tabular.cells import text_of

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
    return [str(int(one)) if isinstance(one, bool) else text_of(one) for one in values]
