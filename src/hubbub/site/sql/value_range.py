"""What a value of a query may be: its type, and between which sizes a number of it lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlglot import exp

REAL, WHOLE = exp.DataType.Type.DOUBLE, exp.DataType.Type.BIGINT
DAY, TEXT = exp.DataType.Type.DATE, exp.DataType.Type.TEXT
WHOLES = (exp.DataType.Type.INT, WHOLE)


@dataclass(frozen=True)
class ValueRange:
    """What a value may be.

    Args:
        kind: sqlglot's type, where the query says it; None: a column as it was read.
        least: of a number that is not 0, its least size.
        most: of a number, its largest size.
    """

    kind: Any = None
    least: float = 1.0
    most: float = 0.0

    @property
    def is_number(self) -> bool:
        """Whether it is one, as the query says it."""
        return self.kind is REAL or self.kind in WHOLES
