"""One row of what an option of a study says of itself in a plan, for the terminal and the page."""

from __future__ import annotations

from typing import NamedTuple


class PlanRow(NamedTuple):
    """A quantity with what it is.

    Args:
        name: in the field's words.
        value: a number or a text; None if it is not known, or past what is claimed.
        words: what it is, after the name.
        upper: whether it is an epsilon: it is rounded up, and None is past 50.
    """

    name: str
    value: float | str | None
    words: str
    upper: bool = False
