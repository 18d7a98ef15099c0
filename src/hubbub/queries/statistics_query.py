"""Statistics: tables, curves, tests and regressions, read off a few sums over all records (P23)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from hubbub.errors import IntegrityError
from hubbub.planning import (
    Array,
    Mechanism,
    Parameters,
    PlannedQuery,
    Query,
    QueryState,
    QueryWarnings,
    SiloData,
    SteppedQuery,
    Stepper,
)
from hubbub.queries.kept_sums import sums_in, write_sums
from hubbub.queries.statistic_sums import SumLayout, layout_of
from hubbub.queries.statistic_task import StatisticTask, pooled
from hubbub.study import AskedStatistics, Data, Parties, Privacy

if TYPE_CHECKING:
    from hubbub.protocol import LocalTask

STATISTICS = "statistics"


@dataclass(frozen=True)
class StatisticsQuery(SteppedQuery):
    """All statistics of a study: one release together.

    Args:
        asked: the questions.
        data, privacy: of the study.
    """

    asked: AskedStatistics
    data: Data
    privacy: Privacy

    @cached_property
    def layout(self) -> SumLayout:
        """All questions as one vector."""
        return layout_of(self.asked, self.privacy.relation)

    @cached_property
    def mechanism(self) -> Mechanism:
        """Sums over all records, of vectors whose length is 1 at most: C is 1."""
        return Mechanism(
            purpose=STATISTICS,
            relation=self.privacy.relation,
            delta=self.privacy.delta,
            steps=self.layout.rounds,
            unit=self.data.unit,
            most_per_patient=self.data.most_per_patient,
            records=self.data.records,
            diameter=self.layout.diameter,
        )

    @property
    def numbers(self) -> int:
        """Of the stacked vector."""
        return self.layout.numbers

    @property
    def broadcast_numbers(self) -> int:
        """Of what is kept of sums."""
        return self.layout.start.size

    @property
    def epsilon(self) -> float | None:
        """Its part beside a training; None where nothing else is asked."""
        return self.asked.epsilon or None

    @property
    def takes_raw_records(self) -> bool:
        """It is asked of cells, which are not standardised."""
        return True

    def warnings(self, parties: Parties) -> QueryWarnings:
        """Of sums that cannot be foreseen, or lost."""
        lost = self.asked.rounds == 1 and parties.dropouts and not parties.compute_nodes
        return QueryWarnings(
            records_unknown=(
                "data.records is not stated: what the statistics will say cannot be foreseen",
            ),
            sums=(
                "dropouts without compute nodes: a silo that drops out of the statistics' only sum "
                "loses it; ask for statistics.sums = 2, which costs no accuracy, or use compute "
                "nodes",
            )
            if lost
            else (),
        )

    def units(self, silo: SiloData) -> int:
        """Rows of the table, or patients."""
        return 0 if silo.cells is None else len(silo.cells)

    def max_units(self, silo: SiloData) -> int:
        """Of them."""
        return silo.max_cells

    def task(self, silo: SiloData) -> LocalTask:
        """A silo's cells."""
        assert silo.cells is not None, "statistics have cells"  # noqa: S101
        return StatisticTask(self.layout, silo.cells, silo.max_cells)

    def pooled_task(self, silos: Sequence[SiloData]) -> LocalTask:
        """All silos' cells."""
        cells = [one.cells for one in silos if one.cells is not None]
        return StatisticTask(self.layout, pooled(cells), sum(one.max_cells for one in silos))

    def start(self, model: Parameters | None) -> Parameters:
        """What is kept before the first sum."""
        return self.layout.start

    def stepper(self, planned: PlannedQuery[Query]) -> Stepper:
        """Keeps every noisy sum, and finds where the next one is taken."""
        return _KeptSums(self.layout, planned.total_sigma)

    def restored(self, folder: Path, state: QueryState) -> QueryState:
        """With the sums that were made."""
        kept = sums_in(folder, self.layout)
        return replace(state, step=self.layout.made(kept), parameters=kept)

    def store(self, folder: Path, state: QueryState) -> None:
        """The sums so far."""
        write_sums(folder, state.parameters)

    def check_complete(self, state: QueryState) -> None:
        """Refuse to go on with fewer sums than answers need."""
        layout, kept = self.layout, state.parameters
        if not layout.is_enough(kept):
            least, made = layout.stacked.least_rounds, layout.made(kept)
            raise IntegrityError(
                f"expected {least} sums of the statistics, {made} are here and the others "
                "were charged and lost in an interruption; approve the study under another name "
                "and run that, with statistics.sums = 2 if it may happen again"
            )


class _KeptSums:
    """Writes each noisy sum into its place in what is kept, which is all that it remembers."""

    def __init__(self, layout: SumLayout, sigma: float) -> None:
        self._layout, self._sigma = layout, sigma

    def step(self, parameters: Parameters, total: Array) -> Parameters:
        """What is kept after one more noisy sum, from what was kept before."""
        return self._layout.after(parameters, total, self._sigma)

    def state(self) -> dict[str, NDArray[Any]]:
        """Nothing: what is kept says all."""
        return {}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on; IntegrityError if this is the state of something else."""
        if state:
            raise IntegrityError(
                f"expected no state beside what is kept of sums, found {sorted(state)}; restore "
                "the checkpoint"
            )
