"""What a record is in the sum of a validation: in a cell of each table (docs/privacy.md P27).

It is a 1 there, or a column of a code where bins are many and in order.

There is a table of all records and, where a study asks for them, one for each centre and for each
class of a column. All tables of one column share a part of the budget: a record is in one of them.

Which records are asked, and in how many bins, follows from public numbers alone, and before any
noise is calibrated: all parties find the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import hypot, inf, log, prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import StudyError
from hubbub.core.protocol.round.batches import EMPTY
from hubbub.core.study.study import Study
from hubbub.core.tabular.records import Records, unit_rows
from hubbub.core.tabular.target import COUNT, TIME_TO_EVENT
from hubbub.learning.queries.validation import kinds, noisy_table
from hubbub.learning.queries.validation.noisy_table import (
    Array,
    ExactTable,
    NoisyTable,
    ValidationScore,
)
from hubbub.learning.queries.validation.validation_ask import AUTO, HELD_BACK, Validation
from hubbub.learning.study.model import model_dimension
from hubbub.learning.study.training import learning_of

DIAMETER = sqrt(2)  # of two records in other cells of every table
CENTRE = "centre"
_FINE_RISKS, _FINE_TIMES = 512, 128  # narrow bins, of which no study needs others
_OTHERS, _INTERVALS = 10, 8  # bins of amounts by default, and most intervals of time
_MOST_CLASSES, _MOST_NUMBERS = 100, 2**20
_WIDTH = 3.92  # of an interval, in standard errors
_VERY_MANY = 1e6  # records
_ALL_OF_IT = 0.5  # of the budget for the table of all records, where there are others
_GOOD_ENOUGH = 0.03  # standard error of a held-back AUC, c-index or accuracy
_RANKS = 0.17  # of sqrt(parameters / records): what was seen of AUC at most
_NOTHING = 0.1  # standard error of a score, from which on a good model is not told from a bad one
_NUMBERS = (5, 6, 8, 10, 16)  # of bins that are tried
_FINE = 50  # bins, of which a score is as good as not rounded


@dataclass(frozen=True, kw_only=True)
class ValidationBlock:
    """Tables of which a record is in one at most."""

    by: str  # a column or "centre"; empty for the table of all
    groups: tuple[str, ...]  # the tables' names
    part: float  # of the budget; all parts add up to 1

    @property
    def scale(self) -> float:
        """What a record adds to its cell."""
        return sqrt(self.part)


@dataclass(frozen=True, kw_only=True)
class ValidationLayout:
    """All tables of a validation as one vector."""

    kind: kinds.Kind  # of the target
    blocks: tuple[ValidationBlock, ...]  # of all records, of centres, of each column

    @property
    def cells(self) -> int:
        """Of a table."""
        return prod(self.kind.shape)

    @cached_property
    def size(self) -> int:
        """Of the vector."""
        return self.cells * sum(len(block.groups) for block in self.blocks)

    def tables(
        self, total: Array, sigma: float
    ) -> Iterator[tuple[ValidationBlock, str, NoisyTable]]:
        """The tables of a noisy sum, each number of which has noise of this standard deviation."""
        begin = 0
        for block in self.blocks:
            for group in block.groups:
                sent = total[begin : begin + self.cells].reshape(self.kind.shape) / block.scale
                yield block, group, self._decoded(sent, sigma / block.scale)
                begin += self.cells

    def encoded(self, counts: Array) -> Array:
        """What is sent of the counts of a table's cells: of one record no longer than 1 (P27)."""
        code = self.kind.code
        if code is None:
            return counts
        return np.asarray(code.matrix @ counts.reshape(self.kind.shape) / code.sensitivity).ravel()

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

    def foreseen(self, records: float, sigma: float) -> float:
        """The standard error of the telling score of so many records, with this noise."""
        counts, noise = self.kind.guess(records), sigma / self.blocks[0].scale
        noisy = self._decoded(self.encoded(counts).reshape(counts.shape), noise)
        scores = self.kind.scored(noisy).scores
        widths = (score.high - score.low for score in scores if score.name == self.usual.name)
        return next(widths, inf) / _WIDTH


@lru_cache(maxsize=16)
def layout_of(study: Study) -> ValidationLayout:
    """The tables that a study asks for; StudyError if they are too many."""
    asked = study.validation
    # A record is in one table of each block, so the blocks share the budget and not the tables.
    named = [(CENTRE, study.parties.names)] if asked.centres else []
    named += [(levels.column.name, levels.names) for levels in asked.by]
    first = _ALL_OF_IT if named else 1.0
    others = (
        ValidationBlock(by=by, groups=groups, part=(1.0 - first) / len(named))
        for by, groups in named
    )
    blocks = (ValidationBlock(by="", groups=("",), part=first), *others)
    layout = ValidationLayout(kind=_kind(study, asked), blocks=blocks)
    if layout.size > _MOST_NUMBERS:
        raise StudyError(
            f"expected a validation of at most {_MOST_NUMBERS} numbers, got {layout.size}; take "
            "fewer bins or groups"
        )
    return layout


def _kind(study: Study, asked: Validation) -> kinds.Kind:
    outcome, (model, _) = study.data.outcome, learning_of(study)
    if outcome is None:
        many = 2 if study.data.positive else max(len(study.data.classes), model.outputs, 2)
        if many > _MOST_CLASSES:
            raise StudyError(
                f"expected a target of at most {_MOST_CLASSES} classes with [validation], got "
                f"{many}; leave it out, and use training.evaluate"
            )
        if many > 2:
            return kinds.ClassValidation(many=many)
        return kinds.Risks(bins=noisy_table.of_risks(_FINE_RISKS), rate=asked.rate or kinds.RATE)
    number = asked.bins or _OTHERS
    if outcome.kind == TIME_TO_EVENT:
        ends = noisy_table.coarser(outcome.grid, _INTERVALS)
        return kinds.Times(bins=noisy_table.of_risks(_FINE_TIMES), ends=ends)
    if outcome.kind == COUNT:
        bins = noisy_table.of_rates(outcome.high, number)
        seen = noisy_table.of_counts(outcome.high, number)
        return kinds.Amounts(bins=bins, seen=seen, counts=True)
    if outcome.is_log:
        bins = noisy_table.of_ratios(outcome.low, outcome.high, number)
    elif outcome.is_log_link:
        bins = noisy_table.of_rates(outcome.high, number)
    else:
        bins = noisy_table.of_amounts(outcome.low, outcome.high, number)
    return kinds.Amounts(bins=bins, seen=bins)


class SiloTask:
    """One silo's records beside the trained model, ready for the sum.

    A unit's part depends on that unit and on public numbers alone, and is no longer than 1
    (docs/privacy.md P27): a patient's is the mean of the records'. The model sees batches of one
    public shape, whatever the silo holds (P19): who is of another group is an empty row. `groups`
    are (units, blocks) places; -1: in none.
    """

    def __init__(self, layout: ValidationLayout, evaluation: Any, groups: NDArray[np.intp]) -> None:
        self._layout, self._evaluation = layout, evaluation
        # An empty row is -1 and finds what is last: a unit of no group.
        self._groups = np.vstack([groups, np.full((1, groups.shape[1]), -1)])

    def __repr__(self) -> str:
        return "SiloTask(<private>)"

    @property
    def count(self) -> int:
        """Number of units; never leaves the silo."""
        return int(self._evaluation.count)

    @property
    def capacity(self) -> int:
        """The most units that the silo may hold; public."""
        return int(self._evaluation.capacity)

    def clipped_sum(self, parameters: NDArray[np.float32], rows: NDArray[np.intp]) -> Array:
        """The rows' units added up, (numbers,), at these parameters of the model."""
        parts = []
        for number, block in enumerate(self._layout.blocks):
            mine = self._groups[rows, number]
            for place in range(len(block.groups)):
                kept = np.where(mine == place, rows, EMPTY)
                counts = self._evaluation.clipped_sum(parameters, kept)
                parts.append(block.scale * self._layout.encoded(counts))
        return np.concatenate(parts)


def groups_of(
    layout: ValidationLayout, records: Records, centre: int, places: int
) -> NDArray[np.intp]:
    """(units, blocks) in which table of each block a silo's units are.

    `centre` is its place among all, `places` the most records of a patient, or 0.
    """
    first = np.arange(len(records))
    if records.patients is not None:
        first = unit_rows(records.patients, places).rows[:, 0]
    columns, noted = [np.zeros(len(first), np.intp)], 0
    for block in layout.blocks[1:]:
        if block.by == CENTRE:
            columns.append(np.full(len(first), centre, np.intp))
            continue
        assert records.groups is not None, "records have the groups that are asked for"  # noqa: S101
        columns.append(records.groups[first, noted].astype(np.intp))
        noted += 1
    return np.column_stack(columns)


@dataclass(frozen=True, kw_only=True)
class WhoseRecords:
    """Which records a model is compared with: those held back from its training, or those of it.

    Held-back records tell the truth; records of the training may flatter the model, and are more.
    The measure of flattery is an upper end of what was seen (docs/validation.md).
    """

    held_back: bool  # whether they are kept from the training
    why_not: str  # if they are not
    share: float  # of each silo's records that is kept from it; 0 if none is
    score: str  # the telling one, "auc" for example
    # Its standard errors on held-back records and on those of the training; None where the number
    # of records is not public.
    errors: tuple[float, float] | None
    # By how much it may be too good on the latter; None where the model's size is not public.
    flatters: float | None

    @property
    def error(self) -> float | None:
        """The standard error to expect on the records that are taken; None if it is not known."""
        return None if self.errors is None else self.errors[not self.held_back]

    @property
    def is_telling(self) -> bool:
        """Whether the score will stand out from the noise, as far as is known."""
        return self.error is None or self.error <= _NOTHING


@lru_cache(maxsize=16)
def whose_records(study: Study) -> WhoseRecords:
    """Which records a study's validation is of."""
    asked, layout, records = study.validation, layout_of(study), study.data.records
    errors = flatters = None
    if records:
        # About the noise in a number of the sum: the classical Gaussian mechanism's, in shares.
        parties, privacy = study.parties, study.privacy
        alone = sqrt(2 * log(1.25 / privacy.delta)) / asked.epsilon
        sigma = alone * sqrt(parties.silos / max(parties.silos - parties.colluders - 1, 1))
        errors = (
            layout.foreseen(asked.holdout * records, sigma),
            layout.foreseen(1.0 * records, sigma),
        )
        if (parameters := model_dimension(study)) is not None:
            flatters = min(0.5, _RANKS * sqrt(parameters / records))
    held_back, why_not = asked.records == HELD_BACK, "as validation.records says"
    if asked.records == AUTO and study.shows_counts:
        why_not = "because joint batches are drawn from all of a silo's records"
    elif asked.records == AUTO:
        why_not = "because too few could be held back"
        # Where nobody says: those that are kept anyway or are enough, or else what is nearer to the
        # truth, noise and flattery taken together.
        if learning_of(study)[1].evaluate is not None or errors is None or flatters is None:
            held_back = True
        else:
            held, every = errors
            held_back = held <= _GOOD_ENOUGH or held < hypot(every, flatters)
    return WhoseRecords(
        held_back=held_back,
        why_not=why_not,
        share=asked.holdout if held_back else 0.0,
        score=layout.usual.name,
        errors=errors,
        flatters=flatters,
    )


def usual_bins(study: Study) -> int:
    """The number of bins by which a study's telling score is told best; 0 where it has none.

    Each cell of the table has noise of its own, so fewer bins tell more of a score; and a
    prediction counts as its bin's middle, so fewer bins tell another score. What is taken has the
    least of both together, of the usual table by which a plan foresees.
    """
    asked = study.validation

    def with_bins(number: int) -> Study:
        return study.changed(validation=replace(asked, bins=number))

    fine = layout_of(with_bins(_FINE))
    if fine.cells == layout_of(with_bins(_NUMBERS[-1])).cells:
        return 0  # classes have none, and risks the same for all

    def error(number: int) -> float:
        binned = with_bins(number)
        expected = whose_records(binned).error
        rounding = layout_of(binned).usual.value - fine.usual.value
        return hypot(inf if expected is None else expected, rounding)

    return min(_NUMBERS, key=error)
