"""The table `[statistics]`: tables, curves, tests and regressions that a study asks for.

What may be asked of which columns, each kind of statistic says itself (`hubbub.estimation`). This
file knows that there are several, in so many sums, at a part of epsilon.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hubbub import estimation
from hubbub.errors import StudyError
from hubbub.section import Section
from hubbub.tabular import Column

_MOST_STATISTICS = 100
Named = tuple[str, "estimation.OneSum | estimation.Iterated"]


@dataclass(frozen=True, kw_only=True)
class AskedStatistics:
    """All statistics of a study: one release together.

    Args:
        named: each with its name, in the order of the file.
        epsilon: what they may cost beside a training, as a part of the study's; 0: all of it.
        sums: in how many they are asked where one would do, so that one may be lost.
    """

    named: tuple[Named, ...]
    epsilon: float = 0.0
    sums: int = 1

    @property
    def rounds(self) -> int:
        """How many sums over all records they take."""
        return max(self.sums, *(one.rounds for _, one in self.named))

    def to_table(self) -> dict[str, Any]:
        """The table that it is read from."""
        part: dict[str, Any] = {"epsilon": self.epsilon} if self.epsilon else {}
        part |= {"sums": self.sums} if self.sums > 1 else {}
        return part | {name: one.to_table() for name, one in self.named}

    def canonical(self) -> dict[str, Any]:
        """What all parties agree on: every setting written out, in the order of the vector."""
        return {
            "epsilon": self.epsilon,
            "sums": self.sums,
            "statistics": [{"name": name, **one.to_table()} for name, one in self.named],
        }


def statistics_from(
    table: Mapping[str, Any], columns: Mapping[str, Column], *, trains: bool
) -> AskedStatistics:
    """The statistics that the table `[statistics]` states, of these columns.

    Raises:
        StudyError: what is asked for is none, or not of these columns.
    """
    named = {name: one for name, one in table.items() if isinstance(one, dict)}
    plain = {key: value for key, value in table.items() if key not in named}
    section = Section("statistics", plain, ("epsilon", "sums"))
    if not trains:
        section.absent("epsilon", "where no model is trained: statistics have all of the study's")
    if not 0 < len(named) <= _MOST_STATISTICS:
        raise StudyError(
            f"expected 1 to {_MOST_STATISTICS} tables [statistics.NAME], got {len(named)}; add one "
            'such as [statistics.baseline] with kind = "table"'
        )
    part = section.number("epsilon", None, least=1e-3, most=50) if trains else 0.0
    asked = tuple(
        (name, estimation.statistic_from(name, one, columns)) for name, one in named.items()
    )
    sums = section.whole("sums", AskedStatistics.sums, least=1, most=16)
    if sums > 1 and any(one.rounds > 1 for _, one in asked):
        raise section.refusal(
            "sums", "1 beside a regression on numbers, which takes a few", "leave it out"
        )
    return AskedStatistics(named=asked, epsilon=part, sums=sums)
