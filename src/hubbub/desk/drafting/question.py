"""What only people know of their files, and the answers that they may type.

A wrong guess at whose a row is, or at what ends a time, makes a promise to the wrong unit or learns
the wrong thing, and nothing later tells. So nothing is drafted before it is answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Option:
    """One answer.

    Args:
        means: in words.
        options: what to type for it.
    """

    means: str
    options: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Question:
    """One thing to be answered by options of `hubbub init`.

    Args:
        columns: that it is about.
        asked: what was seen, and what has to be known.
        choices: the likeliest first.
    """

    columns: tuple[str, ...]
    asked: str
    choices: tuple[Option, ...]

    def to_dict(self) -> dict[str, object]:
        """The question as plain values."""
        choices = [
            {"means": choice.means, "options": list(choice.options)} for choice in self.choices
        ]
        return {"columns": list(self.columns), "asked": self.asked, "choices": choices}


def words_in(name: str) -> list[str]:
    """The words of a column's name, without digits.

    >>> words_in("OS_MONTHS"), words_in("d.time"), words_in("deathEvent30")
    (['os', 'months'], ['d', 'time'], ['death', 'event'])
    """
    apart = "".join(f" {c}" if c.isupper() and p.islower() else c for p, c in _pairs(name))
    spaced = "".join(c if c.isalpha() else " " for c in apart)
    return spaced.casefold().split()


def _pairs(name: str) -> Sequence[tuple[str, str]]:
    return list(zip(" " + name, name, strict=False))
