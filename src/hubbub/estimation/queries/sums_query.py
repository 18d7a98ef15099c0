"""A query that keeps all of its noisy sums, and whose answers are made of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import DataError, IntegrityError
from hubbub.core.planning.mechanism import Mechanism
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import (
    Array,
    Parameters,
    Query,
    QueryState,
    SiloData,
    SteppedQuery,
    Stepper,
)
from hubbub.core.study.data import Data
from hubbub.core.study.privacy import Privacy
from hubbub.estimation.queries.kept_sums import sums_in, write_sums
from hubbub.estimation.queries.statistic_sums import SumLayout
from hubbub.estimation.queries.statistic_task import StatisticTask, pooled

if TYPE_CHECKING:
    from hubbub.core.planning.plan_values import Plan
    from hubbub.core.protocol.round.projected_sum import LocalTask
    from hubbub.core.protocol.round.revealed_sum import RevealedSum
    from hubbub.core.verification.evidence.finding import Finding
    from hubbub.core.verification.replay.course import Course


class SumsQuery(SteppedQuery):
    """A query of a silo's cells.

    Attributes:
        data, privacy: of the study.
    """

    data: Data
    privacy: Privacy

    @property
    @abstractmethod
    def purpose(self) -> str:
        """What its sums are for, as sessions and ledger rows name it."""

    @property
    @abstractmethod
    def layout(self) -> SumLayout:
        """The vector, its unit, and what is kept of sums."""

    @property
    @abstractmethod
    def kept_in(self) -> str:
        """The file of a run's folder that keeps the sums."""

    @property
    @abstractmethod
    def answered_in(self) -> str:
        """The file of a run's folder that says what they say, as JSON; the page reads it."""

    @property
    def most_units(self) -> int | None:
        """How many units of a silo its arithmetic is exact for; None: as many as there are."""
        return None

    @cached_property
    def mechanism(self) -> Mechanism:
        """Sums over all records, of vectors whose length is 1 at most: C is 1 (P23, P26, P32)."""
        return Mechanism(
            purpose=self.purpose,
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
    def takes_raw_records(self) -> bool:
        """It is asked of cells, which are not standardised."""
        return True

    def units(self, silo: SiloData) -> int:
        """Rows of the table, or patients."""
        return 0 if silo.cells is None else len(silo.cells)

    def max_units(self, silo: SiloData) -> int:
        """Of them."""
        return silo.max_cells

    def task(self, silo: SiloData) -> LocalTask:
        """A silo's cells.

        Raises:
            DataError: there are more units than sums are exact for.
        """
        assert silo.cells is not None, "such a query has cells"  # noqa: S101
        if self.most_units is not None and self.units(silo) > self.most_units:
            raise DataError(
                f"expected at most {self.most_units:,} units of a silo for the {self.purpose}, got "
                "more; divide them among several silos"
            )
        return StatisticTask(self.layout, silo.cells, silo.max_cells)

    def pooled_task(self, silos: Sequence[SiloData]) -> LocalTask:
        """All silos' cells."""
        cells = [silo.cells for silo in silos if silo.cells is not None]
        return StatisticTask(self.layout, pooled(cells), sum(silo.max_cells for silo in silos))

    def start(self, model: Parameters | None) -> Parameters:
        """What is kept before the first sum."""
        return self.layout.start

    def misfit(self, sent: Parameters, begin: Parameters | None, sums: int) -> str:
        """It carries sums that nobody has made, or begins elsewhere."""
        return self.layout.misfit(sent, begin, sums)

    def stepper(self, planned: PlannedQuery[Query]) -> Stepper:
        """Keeps every noisy sum, and finds where the next one is taken."""
        return _KeptSums(self.layout, planned.total_sigma)

    def restored(self, folder: Path, state: QueryState) -> QueryState:
        """With the sums that were made."""
        kept = sums_in(folder, self.layout, self.kept_in)
        made = self.layout.made(kept)
        return replace(state, step=made, parameters=kept) if made else state

    def store(self, folder: Path, state: QueryState) -> None:
        """The sums so far."""
        write_sums(folder, state.parameters, self.kept_in)

    def replay_findings(
        self, folder: Path, plan: Plan, course: Course, shown: Set[bytes]
    ) -> Iterator[Finding]:
        """The answers are what the sums say."""
        from hubbub.estimation.queries.released_check import released_findings

        return released_findings(folder, plan, self, course)

    def is_enough(self, parameters: Parameters) -> bool:
        """Whether enough sums were made."""
        return self.layout.is_enough(parameters)

    def check_complete(self, state: QueryState) -> None:
        """Refuse to go on with fewer sums than answers need."""
        layout, kept = self.layout, state.parameters
        if not layout.is_enough(kept):
            least, made = layout.stacked.least_rounds, layout.made(kept)
            raise IntegrityError(
                f"expected {least} sums of the {self.purpose}, {made} are here and the others "
                "were charged and lost in an interruption; approve the study under another name "
                f"and run that, with one more of {self.purpose}.sums if it may happen again"
            )


class _KeptSums:
    """Writes each noisy sum into its place in what is kept, which is all that it remembers."""

    def __init__(self, layout: SumLayout, sigma: float) -> None:
        self._layout, self._sigma = layout, sigma

    def step(
        self, parameters: Parameters, total: Array | RevealedSum, divisor: float
    ) -> Parameters:
        """What is kept after one more noisy sum, from what was kept before."""
        return self._layout.after(parameters, np.asarray(total) / divisor, self._sigma)

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
