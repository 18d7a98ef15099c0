"""What a record is in the sum of a validation: in a cell of each table (docs/privacy.md P27).

It is a 1 there, or a column of a code where bins are many and in order.

There is a table of all records and, where a study asks for them, one for each centre and for each
class of a column. All tables of one column share a part of the budget: a record is in one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import inf, sqrt
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import StudyError
from hubbub.core.study.study import Study
from hubbub.core.tabular.outcome import COUNT, TIME_TO_EVENT
from hubbub.estimation.prefix_coding import PrefixCode
from hubbub.learning.queries.validation import bins
from hubbub.learning.queries.validation.amounts import Amounts
from hubbub.learning.queries.validation.classes import ClassValidation
from hubbub.learning.queries.validation.noisy_table import ExactTable, NoisyTable
from hubbub.learning.queries.validation.risks import RATE, Risks
from hubbub.learning.queries.validation.times import Times
from hubbub.learning.queries.validation.validation_scores import ValidationScore, ValidationScores
from hubbub.learning.study.training import learning_of
from hubbub.learning.study.validation import Validation

Array = NDArray[np.float64]
DIAMETER = sqrt(2)  # of two records in other cells of every table
CENTRE = "centre"
_FINE_RISKS, _FINE_TIMES = 512, 128  # narrow bins, of which no study needs others
_OTHERS, _INTERVALS = 10, 8  # bins of amounts by default, and most intervals of time
_MOST_CLASSES, _MOST_NUMBERS = 100, 2**20
_WIDTH = 3.92  # of an interval, in standard errors
_VERY_MANY = 1e6  # records
_ALL_OF_IT = 0.5  # of the budget for the table of all records, where there are others


class Kind(Protocol):
    """A kind of target: which cells there are, and what a table of them says."""

    @property
    def predictions(self) -> int:
        """Rows of a table."""

    @property
    def outcomes(self) -> int:
        """Columns of a table."""

    @property
    def code(self) -> PrefixCode | None:
        """By which the counts of each outcome are sent; None: as they are."""

    def places(self, predicted: Array, targets: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """(n,) the row and the column of each record."""

    def scored(self, table: NoisyTable) -> ValidationScores:
        """What a table says."""

    def guess(self, records: float) -> Array:
        """The table of so many usual records, without noise."""


@dataclass(frozen=True, kw_only=True)
class ValidationBlock:
    """Tables of which a record is in one at most.

    Args:
        by: what they are by, a column or "centre"; empty for the table of all.
        groups: of each table, its name.
        part: of the budget; all parts add up to 1.
    """

    by: str
    groups: tuple[str, ...]
    part: float

    @property
    def scale(self) -> float:
        """What a record adds to its cell."""
        return sqrt(self.part)


@dataclass(frozen=True, kw_only=True)
class ValidationLayout:
    """All tables of a validation as one vector.

    Args:
        kind: of the target.
        blocks: one for all records, one for centres, one for each column.
    """

    kind: Kind
    blocks: tuple[ValidationBlock, ...]

    @property
    def cells(self) -> int:
        """Of a table."""
        return self.kind.predictions * self.kind.outcomes

    @cached_property
    def size(self) -> int:
        """Of the vector."""
        return self.cells * sum(len(block.groups) for block in self.blocks)

    def tables(
        self, total: Array, sigma: float
    ) -> Iterator[tuple[ValidationBlock, str, NoisyTable]]:
        """The tables of a noisy sum, each number of which has noise of this standard deviation."""
        shape, begin = (self.kind.predictions, self.kind.outcomes), 0
        for block in self.blocks:
            for group in block.groups:
                sent = total[begin : begin + self.cells].reshape(shape) / block.scale
                yield block, group, self._decoded(sent, sigma / block.scale)
                begin += self.cells

    def encoded(self, counts: Array) -> Array:
        """What is sent of the counts of a table's cells: of one record no longer than 1 (P27)."""
        code = self.kind.code
        if code is None:
            return counts
        shape = (self.kind.predictions, self.kind.outcomes)
        return np.asarray(code.matrix @ counts.reshape(shape) / code.sensitivity).ravel()

    def _decoded(self, sent: Array, sigma: float) -> NoisyTable:
        """The table that was sent, (bins, outcomes)."""
        code = self.kind.code
        if code is None:
            return NoisyTable(counts=sent, sigma=sigma)
        back = code.counts * code.sensitivity
        return NoisyTable(counts=back @ sent, sigma=sigma, decoded=back)

    @cached_property
    def usual(self) -> ValidationScore:
        """The telling score of a usual model on very many records, without noise."""
        exact = ExactTable(counts=self.kind.guess(_VERY_MANY), sigma=0.0)
        return self.kind.scored(exact).scores[0]

    def foreseen(self, records: float, sigma: float) -> tuple[str, float]:
        """The telling score of all records, and the standard error to expect of it.

        Args:
            records: that it is asked of.
            sigma: of the noise in each number of the vector.
        """
        counts, noise = self.kind.guess(records), sigma / self.blocks[0].scale
        first = self.usual
        exact = self.encoded(counts).reshape(counts.shape)
        noisy = self.kind.scored(self._decoded(exact, noise)).scores
        widths = [one.high - one.low for one in noisy if one.name == first.name]
        return first.name, widths[0] / _WIDTH if widths else inf


@lru_cache(maxsize=16)
def layout_of(study: Study) -> ValidationLayout:
    """The tables that a study asks for.

    Raises:
        StudyError: they are too many.
    """
    asked = study.validation
    assert asked is not None, "a validation is asked for"  # noqa: S101
    named = [(CENTRE, study.parties.names)] if asked.centres else []
    named += [(one.column.name, one.names) for one in asked.by]
    whole = _ALL_OF_IT if named else 1.0
    others = tuple(
        ValidationBlock(by=by, groups=groups, part=(1.0 - whole) / len(named))
        for by, groups in named
    )
    layout = ValidationLayout(
        kind=_kind(study, asked), blocks=(ValidationBlock(by="", groups=("",), part=whole), *others)
    )
    if layout.size > _MOST_NUMBERS:
        raise StudyError(
            f"expected a validation of at most {_MOST_NUMBERS} numbers, got {layout.size}; take "
            "fewer bins or groups"
        )
    return layout


def _kind(study: Study, asked: Validation) -> Kind:
    """The cells of a study's target."""
    outcome, (model, _) = study.data.outcome, learning_of(study)
    if outcome is None:
        many = 2 if study.data.positive else max(len(study.data.classes), model.outputs, 2)
        if many > _MOST_CLASSES:
            raise StudyError(
                f"expected a target of at most {_MOST_CLASSES} classes with [validation], got "
                f"{many}; leave it out, and use training.evaluate"
            )
        if many > 2:
            return ClassValidation(many=many)
        return Risks(bins=bins.of_risks(_FINE_RISKS), rate=asked.rate or RATE)
    number = asked.bins or _OTHERS
    if outcome.kind == TIME_TO_EVENT:
        ends = bins.coarser(outcome.grid, _INTERVALS)
        return Times(bins=bins.of_risks(_FINE_TIMES), ends=ends)
    if outcome.kind == COUNT:
        rates, seen = bins.of_rates(outcome.high, number), bins.of_counts(outcome.high, number)
        return Amounts(bins=rates, seen=seen, counts=True)
    if outcome.is_log_link:
        uneven = bins.of_rates(outcome.high, number)
        return Amounts(bins=uneven, seen=uneven)
    even = bins.of_amounts(outcome.low, outcome.high, number)
    return Amounts(bins=even, seen=even)
