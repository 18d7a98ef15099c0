"""From the statistics of a study to one vector, its unit and its noise; and from sums to answers.

A record's part in a sum is its stacked vector over the length of the longest, so that C is 1 and
nothing is clipped (docs/privacy.md P23). What has been summed so far, and the parameters at which
the next sum is taken, stand in one vector of numbers, which goes down to the silos where otherwise
a model does. This file knows noise and no records.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import hypot

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import StudyError
from hubbub.estimation import Answer, Expectation, Stacked, stack
from hubbub.planning.asked_kinds import kind_of_question
from hubbub.study import AskedStatistics, Column, Study, columns_of

Array = NDArray[np.float64]
Parameters = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class SumLayout:
    """How a study's statistics are summed: the vector, its unit, and what is kept of sums.

    Args:
        stacked: all questions as one vector.
        unit: the largest L2 norm of a record's vector, by which sums are divided.
    """

    stacked: Stacked
    unit: float

    @property
    def numbers(self) -> int:
        """How many numbers a sum has."""
        return self.stacked.size

    @property
    def rounds(self) -> int:
        """How many sums there are."""
        return self.stacked.rounds

    @property
    def diameter(self) -> float:
        """The largest L2 distance of two records' parts in a sum, where one is exchanged."""
        return min(2.0, 1.0 / self.unit)  # the stack's is 1 then

    @property
    def start(self) -> Parameters:
        """What is kept before the first sum."""
        sums = np.zeros(self.rounds * self.numbers, np.float32)
        return np.concatenate((self.stacked.start, sums))

    def parameters(self, kept: Parameters) -> Parameters:
        """At which the next sum is taken."""
        return kept[: len(self.stacked.start)]

    def sums(self, kept: Parameters) -> list[Array]:
        """All sums, in units of the stack; zeros where one was not made yet."""
        whole = kept[len(self.stacked.start) :].astype(np.float64) * self.unit
        return list(whole.reshape(self.rounds, self.numbers))

    def after(self, kept: Parameters, made: int, total: Array, sigma: float) -> Parameters:
        """What is kept after one more sum.

        Args:
            kept: after so many sums as `made`.
            made: sums before this one.
            total: the noisy sum.
            sigma: standard deviation of all its noise, in its own unit.
        """
        held, begin = kept.copy(), len(self.stacked.start)
        held[begin + made * self.numbers : begin + (made + 1) * self.numbers] = total
        if made + 1 < self.rounds:
            noisy = self.sums(held)[made]  # as whoever goes on from what is kept reads it
            before = self.parameters(kept)
            held[:begin] = self.stacked.update(noisy, sigma * self.unit, before)
        return held

    def answers(self, kept: Parameters, sigma: float) -> dict[str, Answer]:
        """What all sums say, by the names of the questions."""
        return self.stacked.answers(self.sums(kept), sigma * self.unit, self.parameters(kept))

    def expected(self, records: float, sigma: float) -> dict[str, Expectation]:
        """What may be said of each question, before any record is touched."""
        return self.stacked.expected(records, sigma * self.unit)


def layout_of_sums(study: Study) -> SumLayout:
    """How the statistics of a study are summed.

    Raises:
        StudyError: it asks for none.
    """
    if study.statistics is None:
        raise StudyError("expected a study with [statistics], got one without; ask for some")
    columns = tuple(columns_of(study.data).values())
    return _layout(study.statistics, columns, study.privacy.relation)


def kept_numbers(study: Study) -> int | None:
    """How many numbers go down where statistics alone are asked for; None where a model does."""
    return None if study.trains else layout_of_sums(study).start.size


@lru_cache(maxsize=16)
def _layout(asked: AskedStatistics, columns: tuple[Column, ...], relation: str) -> SumLayout:
    by_name = {column.name: column for column in columns}
    kinds = {one.name: kind_of_question(one, by_name) for one in asked.questions}
    stacked = stack(kinds, relation)
    norms = (
        one.sensitivity * scale for one, scale in zip(kinds.values(), stacked.scales, strict=True)
    )
    unit = 1.0 if relation == "add-remove" else hypot(*norms)
    return SumLayout(stacked=stacked, unit=unit)
