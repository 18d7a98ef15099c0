"""A query: one thing that a study asks of its silos, from records to an answer.

Records become bounded vectors (`task`), silos send one noisy sum of them, a state follows from it
(`stepper`), and the state is what is sent down for the next sum. A query says by which mechanism
its sums are made and how many numbers they have; the plan gives it noise; a run asks for its sums.
Its kinds stand in other rooms, one file each: a new one is such a file, and the `Ask` that gives it
(`hubbub.core.study.ask`). This file knows none of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hubbub.core.planning.mechanism import Mechanism
from hubbub.core.planning.plan_rows import PlanRow
from hubbub.core.tabular.records import Records
from hubbub.core.tabular.table import CodedCells

if TYPE_CHECKING:
    from hubbub.core.planning.plan import Plan
    from hubbub.core.planning.planned_query import PlannedQuery
    from hubbub.core.protocol.round.aggregator import RevealedSum
    from hubbub.core.protocol.round.draw import Lift
    from hubbub.core.protocol.round.local_task import LocalTask
    from hubbub.core.protocol.round.round_parameters import RoundParameters
    from hubbub.core.study.study import Study
    from hubbub.core.verification.evidence.evidence_file import Finding
    from hubbub.core.verification.replay.course import Course


Array = NDArray[np.float64]
Parameters = NDArray[np.float32]
Scores = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class SiloData:
    """What one silo has at hand for a study: its own records, never sent.

    Args:
        centre: the silo's place among all, from 0; public.
        records: that a model is trained on; None where there is none.
        held_back: those that are kept from the training, to evaluate it.
        max_units: the most units that the silo may hold of `records`; public (P19).
        cells: the columns that statistics are about; None where none are asked for.
        max_cells: the most units that the silo may hold of `cells`; public.
        learner: the study's model as this machine makes gradients of it; None where there is none.
        vector: a sum that was made elsewhere; None where sums are made of records.
    """

    centre: int = 0
    records: Records | None = field(default=None, repr=False)
    held_back: Records | None = field(default=None, repr=False)
    max_units: int = 0
    cells: CodedCells | None = field(default=None, repr=False)
    max_cells: int = 0
    learner: Any = field(default=None, repr=False)
    vector: Array | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class QueryState:
    """Where a query stands: everything that its next sum depends on.

    Args:
        step: the last sum that was taken in; 0 before the first.
        attempts: how many attempts have been charged so far.
        parameters: what goes down to the silos next.
        optimizer: what else the stepper remembers.
        rows: the metrics so far.
        row_due: attempts at which a row of this step is still to be made, as it is made beside the
            next one; 0 if none is.
    """

    step: int = 0
    attempts: int = 0
    parameters: Parameters = field(repr=False)
    optimizer: Mapping[str, NDArray[Any]] = field(default_factory=dict, repr=False)
    rows: tuple[dict[str, float], ...] = ()
    row_due: int = 0


class Stepper(Protocol):
    """What takes noisy sums in; whoever verifies a run takes the same steps."""

    def step(
        self, parameters: Parameters, total: Array | RevealedSum, divisor: float
    ) -> Parameters:
        """What goes down next, after one more noisy sum and the constant that divides it (P14)."""

    def state(self) -> dict[str, NDArray[Any]]:
        """What it remembers besides, in arrays that the next step may write over."""

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on; IntegrityError if this is the state of something else."""


@dataclass(frozen=True, kw_only=True)
class QueryWarnings:
    """What a query's reader should know before approving the study.

    Args:
        records_unknown: what it means that the number of records is not public.
        size: of how many numbers there are, beside the noise.
        sums: of how they are made.
        noise: of how that of one step goes with that of others.
        code: of what rests on the author of code that is not part of hubbub.
    """

    records_unknown: tuple[str, ...] = ()
    size: tuple[str, ...] = ()
    sums: tuple[str, ...] = ()
    noise: tuple[str, ...] = ()
    code: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Released:
    """What a query gives those who asked, all of it made of its noisy sums and the study.

    Args:
        answers: by name, as the page and the terminal show them.
        values: by name, what is no answer to a question, as plain values.
        files: for a run's folder, by name; verification makes them again.
        copies: further files that say the same, such as tables for spreadsheets.
    """

    answers: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    copies: Mapping[str, str | bytes] = field(default_factory=dict)


class Turn(IntEnum):
    """When a query beside the main one is asked: before it, between its steps, or at its end."""

    BEFORE = 0
    BETWEEN = 1
    LAST = 2


class Query(ABC):
    """One thing that a study asks of its silos."""

    @property
    @abstractmethod
    def mechanism(self) -> Mechanism:
        """How its sums are made, without the noise."""

    @property
    @abstractmethod
    def numbers(self) -> int | None:
        """How many numbers a sum has before any projection; None if that is not public yet."""

    @property
    @abstractmethod
    def broadcast_numbers(self) -> int | None:
        """How many numbers go down to the silos for a sum; None if that is not public yet."""

    @property
    def short_broadcast(self) -> bool:
        """Whether they go down as bfloat16."""
        return False

    @property
    def epsilon(self) -> float | None:
        """Its own part of the study's epsilon; None: what the others leave of it."""
        return None

    @property
    def takes_raw_records(self) -> bool:
        """Whether it is asked of records as they are, before features are standardised."""
        return False

    @property
    def turn(self) -> Turn:
        """When it is asked."""
        return Turn.BEFORE

    @property
    def is_asked_last(self) -> bool:
        """Whether it is asked after the main query, at what that has led to."""
        return self.turn is Turn.LAST

    def warnings(self, study: Study) -> QueryWarnings:
        """What a reader should know."""
        return QueryWarnings()

    def plan_rows(self, planned: PlannedQuery[Query], records: int) -> list[PlanRow]:
        """What a plan says of it besides, for people.

        Args:
            records: the public number of units in all; 0: not public.
        """
        return []

    def check_expected(self, plan: Plan) -> None:  # noqa: B027 (most always tell something)
        """Refuse, before anything is spent, what would not stand out from the plan's noise.

        Raises:
            StudyError: it would not, whatever the records are.
        """

    def scores_of(self, total: Array, study: Study, sigma: float) -> Scores:
        """Metrics that one noisy sum gives, of a query that is asked between the main one's steps.

        Args:
            sigma: standard deviation of the noise in each of its numbers, at most.
        """
        return {}

    def replayed_lift(
        self, round_parameters: RoundParameters, plan: Plan
    ) -> tuple[Lift | None, bool]:
        """From projected sums back to whole ones, for who replays a run, and whether that can be.

        Nothing that the study names is called or opened for it.
        """
        return None, True

    @abstractmethod
    def units(self, silo: SiloData) -> int:
        """How many units a silo has for it; never leaves the silo."""

    @abstractmethod
    def max_units(self, silo: SiloData) -> int:
        """How many units a silo may have for it at most; public (P19)."""

    @abstractmethod
    def task(self, silo: SiloData) -> LocalTask:
        """A silo's records, ready for sums."""

    @abstractmethod
    def pooled_task(self, silos: Sequence[SiloData]) -> LocalTask:
        """All silos' records, one silo's after the other's, for who may see them all."""


class SteppedQuery(Query):
    """A query whose noisy sums lead from state to state, each asked at what the last one gave."""

    def start(self, model: Parameters | None) -> Parameters | None:
        """What goes down for the first sum: the model's first weights, or what is the query's own.

        Args:
            model: those weights; None if there is no model, or it cannot be made here.
        """
        return model

    @abstractmethod
    def stepper(self, planned: PlannedQuery[Query]) -> Stepper:
        """A fresh one."""

    def result(self, state: QueryState) -> Parameters:
        """What its sums have led to once no more are asked, however many there were.

        Args:
            state: where the last of them has led.
        """
        return state.parameters

    def effect(self, prepared: Any, state: QueryState) -> Any:
        """A prepared study, as it is once this is answered: as before, unless said here."""
        return prepared

    def misfit(self, sent: Parameters, begin: Parameters | None, sums: int) -> str:
        """Why what goes down cannot follow from so many sums at most, as a clause; "" if it can.

        Whoever has not seen these sums can say no more of it: who sums, before it does, and who
        verifies a run whose sums were not kept.

        Args:
            begin: what does for the first sum; None if that is not known here.
            sums: the most that may have been made before.
        """
        return ""

    def lift(self, round_parameters: RoundParameters, learner: Any) -> Lift | None:
        """From projected sums back to whole ones; None where nothing is projected."""
        return None

    def scores(self, learner: Any, test: Records | None, parameters: Parameters) -> Scores:
        """Metrics, on public records, of what its sums have given so far."""
        return {}

    def restored(self, folder: Path, state: QueryState) -> QueryState:
        """Where an interrupted run stood, by what `store` has put into its folder.

        Raises:
            IntegrityError: it was altered.
        """
        return state

    def store(self, folder: Path, state: QueryState) -> None:
        """Put into a run's folder what its sums have given so far."""

    def session_findings(self, folder: Path, purpose: str, course: Course) -> Iterator[Finding]:
        """What a replay of one of its sessions says of files that are neither model nor answers."""
        return iter(())

    def initial(self, plan: Plan) -> Parameters | None:
        """The model's first weights, made of the study alone, for who replays a run.

        None if there is no model, or only code that the study names can make it.
        """
        return None

    @abstractmethod
    def replay_findings(
        self, folder: Path, plan: Plan, course: Course, shown: Set[bytes]
    ) -> Iterator[Finding]:
        """Whether what a run has given people is what its sums led to (docs/evidence.md).

        A finding names its files (`Finding.on`); one that none names is told as not computed.

        Args:
            shown: the RESULTs of all sessions.
        """

    def initial_findings(self, study: Study, initial: Parameters | None) -> Iterator[Finding]:
        """Whether the weights before round 1, which are those that were sent, were made again."""
        return iter(())

    def released(self, plan: Plan, state: QueryState) -> Released:
        """What its sums give people; nothing where it is a model, or what a training needs."""
        return Released()

    def check_complete(self, state: QueryState) -> None:
        """Refuse to go on with fewer sums than an answer needs.

        Raises:
            IntegrityError: they were charged, and lost in an interruption.
        """


# A noisy sum of vectors that silos bring along: whoever made them promises how long parts are.

VECTOR = "vector"


@dataclass(frozen=True)
class VectorQuery(Query):
    """One sum of vectors of so many numbers.

    Args:
        asked: how long a unit's part is, and what it costs.
        length: how many numbers a vector has.
    """

    asked: Mechanism
    length: int

    @property
    def mechanism(self) -> Mechanism:
        """One sum of everybody's."""
        return self.asked

    @property
    def numbers(self) -> int:
        """Of a vector."""
        return self.length

    @property
    def broadcast_numbers(self) -> int:
        """Nothing goes down."""
        return 0

    def units(self, silo: SiloData) -> int:
        """Nobody knows of how many units a vector is."""
        return 0

    def max_units(self, silo: SiloData) -> int:
        """As `units`."""
        return 0

    def task(self, silo: SiloData) -> LocalTask:
        """A silo's vector."""
        assert silo.vector is not None, "such a sum has vectors"  # noqa: S101
        return GivenSum(silo.vector)

    def pooled_task(self, silos: Sequence[SiloData]) -> LocalTask:
        """The exact sum of all vectors."""
        vectors = [silo.vector for silo in silos if silo.vector is not None]
        return GivenSum(np.sum(vectors, axis=0))


class GivenSum:
    """A silo whose sum is given: real numbers, or whole ones for a sum without noise."""

    count = capacity = 0

    def __init__(self, vector: NDArray[Any]) -> None:
        self._vector = vector

    def clipped_sum(self, parameters: Parameters, rows: NDArray[np.intp]) -> NDArray[Any]:
        """The given vector."""
        return self._vector.copy()
