"""A query that keeps all of its noisy sums, and whose answers are made of them.

The sums are in a file of the run's folder. Answers are made of them again when a run is verified,
and go into the folder as JSON under the promise that they were made with, and as CSV tables.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hubbub.core.disk import file_name, json_value, read_bytes, write_text
from hubbub.core.errors import DataError, IntegrityError
from hubbub.core.planning.mechanism import Mechanism
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import (
    Array,
    Parameters,
    Query,
    QueryState,
    Released,
    SiloData,
    SteppedQuery,
    Stepper,
)
from hubbub.core.study.data import Data
from hubbub.core.study.parties import Privacy
from hubbub.core.tabular.cells import csv_text
from hubbub.core.verification.evidence.evidence_file import (
    MALFORMED,
    RESTORE,
    Finding,
    difference,
    not_verifiable,
    read_whole,
)
from hubbub.estimation.queries.sum_layout import StatisticTask, SumLayout, pooled
from hubbub.estimation.statistic import Curve

if TYPE_CHECKING:
    from hubbub.core.protocol.round.aggregator import RevealedSum
    from hubbub.core.protocol.round.local_task import LocalTask
    from hubbub.core.verification.replay.course import Course


_MOST_BYTES = 2**30  # of the file that keeps sums: a hundred of a million numbers
TABLES = "tables"
_KINDS = ("", "-curves", "-tests")  # of tables of an answer, at the end of their files' names
# As a float is written; a whole number may be a code, which has no last digits.
_NUMBER = re.compile(r"((?<![^,\n])-?\d+(?:\.\d+(?:e[-+]\d+)?|e[-+]\d+)(?![^,\n]))")
_OTHER_BYTES = "other bytes than those made here, as of another version of what writes them"


def write_sums(folder: Path, kept: Parameters, name: str) -> None:
    """Keep what sums have given so far."""
    write_text(folder / name, kept_text("kept", kept))


def sums_in(folder: Path, layout: SumLayout, name: str) -> Parameters:
    """What a folder keeps of sums, see `SumLayout`; what stands before the first if there is none.

    Raises:
        IntegrityError: the file is not as it was written.
    """
    path, start = folder / name, layout.start
    return kept_numbers(path, "kept", start.shape, np.float32) if path.exists() else start


def kept_text(name: str, numbers: NDArray[Any]) -> str:
    """Numbers under a name, as a run's folder keeps them."""
    return json.dumps({name: numbers.tolist()})


def kept_numbers(
    path: Path, name: str, shape: tuple[int, ...], kind: type[np.floating[Any]]
) -> NDArray[Any]:
    """The numbers in a file that `kept_text` wrote.

    Args:
        path, name: the file, and what the numbers are called in it.
        shape: theirs; a first length of -1 may be any.
        kind: of floats that they are.

    Raises:
        IntegrityError: the file is not, to the last letter, as it was written.
    """
    try:
        text = read_bytes(path, most=_MOST_BYTES)
        with np.errstate(over="ignore"):  # what is too large is infinite, and so another text
            kept = np.array(json_value(text)[name], dtype=kind)
        kept = kept.reshape(shape)
        if text != kept_text(name, kept).encode():
            raise ValueError("expected other numbers")
    except (OSError, ValueError, KeyError, TypeError, RecursionError, OverflowError):
        raise IntegrityError(
            f"expected {path} as this version writes it, found something else; restore it"
        ) from None
    return kept


class KeptQuery(SteppedQuery):
    """A query whose noisy sums a run's folder keeps, and whose answers follow from them alone.

    Attributes:
        taken_at: of whom its sums are beside the study's, as a clause; verification says it.
    """

    taken_at: ClassVar[str] = ""

    @property
    @abstractmethod
    def kept_in(self) -> str:
        """The file of a run's folder that keeps the sums."""

    @property
    @abstractmethod
    def answered_in(self) -> str:
        """The file of a run's folder that says what they say, as JSON; the page reads it."""

    @abstractmethod
    def kept(self, state: QueryState) -> bytes:
        """What is kept of the sums that have led here; empty if there were none."""

    def has_enough(self, state: QueryState) -> bool:
        """Whether there are answers."""
        return True

    def kept_in_folder(self, folder: Path) -> QueryState:
        """Where the sums in a run's folder have led; IntegrityError if they were altered."""
        begin = self.start(None)
        return self.restored(
            folder, QueryState(parameters=np.zeros(0, np.float32) if begin is None else begin)
        )

    def replay_findings(
        self, folder: Path, plan: Plan, course: Course, shown: Set[bytes]
    ) -> Iterator[Finding]:
        """Whether the sums that were kept are the transcripts', and answers what they say."""
        if not (folder / self.answered_in).exists():
            yield not_verifiable(f"what the sums say: there is no {self.answered_in}")
            return
        claim = f"{folder / self.kept_in} follows from the sums{self.taken_at}"
        released, why = Released(), ""
        try:
            state = self.kept_in_folder(folder)
            if not self.has_enough(state):
                why = f"it has too few for an answer; {RESTORE}"
            elif course.led is not None and self.kept(state) != self.kept(course.led):
                why = f"it differs; {RESTORE}"
            else:
                released = self.released(plan, state)
        except MALFORMED as error:
            why = f"{error}; {RESTORE}"
        yield course.judged(claim, why).covering("replay.answers").on(self.kept_in)
        if why:
            return  # whatever these sums say
        for name, text in released.files.items():
            yield _answered(folder / name, text, course).covering("replay.answers").on(name)
        for name, copied in released.copies.items():
            if (folder / name).exists():
                yield _answered(folder / name, copied, course).on(name)


def _answered(path: Path, made: str | bytes, course: Course) -> Finding:
    """How a file of answers stands; whichever version wrote a Parquet file chose its bytes."""
    claim = f"{path} says what the sums say"
    try:
        written, why = read_whole(path), ""
        if written != (made if isinstance(made, bytes) else made.encode()):
            if isinstance(made, bytes):
                return not_verifiable(f"that {claim}: {_OTHER_BYTES}")
            parted = json_value if path.suffix == ".json" else _parted
            why = difference(parted(written.decode()), parted(made))  # last digits may differ
    except MALFORMED as error:
        why = str(error)
    return course.judged(claim, f"{why}; {RESTORE}" if why else "")


def _parted(text: str) -> list[str | float]:
    """CSV as cells that are numbers, whose last digits may differ, and what is between them."""
    return [float(one) if _NUMBER.fullmatch(one) else one for one in _NUMBER.split(text)]


class SumsQuery(KeptQuery):
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
    def most_units(self) -> int:
        """How many units of a silo its arithmetic is exact for."""
        return 2**26  # P23: of 2^27 the whole numbers may leave int64

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
        return self.layout.numbers

    @property
    def broadcast_numbers(self) -> int:
        return self.layout.start.size

    @property
    def takes_raw_records(self) -> bool:
        return True

    def units(self, silo: SiloData) -> int:
        """Rows of the table, or patients."""
        return 0 if silo.cells is None else len(silo.cells)

    def max_units(self, silo: SiloData) -> int:
        return silo.max_cells

    def task(self, silo: SiloData) -> LocalTask:
        """A silo's cells.

        Raises:
            DataError: there are more units than sums are exact for.
        """
        assert silo.cells is not None, "such a query has cells"  # noqa: S101
        if self.units(silo) > self.most_units:
            raise DataError(
                f"expected at most {self.most_units:,} units of a silo for the "
                f"{self.purpose}, got more; divide them among several silos"
            )
        return StatisticTask(self.layout, silo.cells, silo.max_cells)

    def pooled_task(self, silos: Sequence[SiloData]) -> LocalTask:
        cells = [silo.cells for silo in silos if silo.cells is not None]
        return StatisticTask(self.layout, pooled(cells), sum(silo.max_cells for silo in silos))

    def start(self, model: Parameters | None) -> Parameters:
        return self.layout.start

    def misfit(self, sent: Parameters, begin: Parameters | None, sums: int) -> str:
        return self.layout.misfit(sent, begin, sums)

    def stepper(self, planned: PlannedQuery[Query]) -> Stepper:
        """Keeps every noisy sum, and finds where the next one is taken."""
        return _KeptSums(self.layout, planned.total_sigma)

    def restored(self, folder: Path, state: QueryState) -> QueryState:
        kept = sums_in(folder, self.layout, self.kept_in)
        made = self.layout.made(kept)
        return replace(state, step=made, parameters=kept) if made else state

    def store(self, folder: Path, state: QueryState) -> None:
        write_sums(folder, state.parameters, self.kept_in)

    def kept(self, state: QueryState) -> bytes:
        """How many sums, where the next one is taken, and they themselves."""
        parameters = state.parameters
        return parameters.tobytes() if self.layout.made(parameters) else b""

    def has_enough(self, state: QueryState) -> bool:
        return self.layout.is_enough(state.parameters)

    def check_complete(self, state: QueryState) -> None:
        """Refuse to go on with fewer sums than answers need."""
        if not self.has_enough(state):
            least, made = self.layout.stacked.least_rounds, self.layout.made(state.parameters)
            raise IntegrityError(
                f"expected {least} sums of the {self.purpose}, {made} are here, and the others "
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


def promise_of(plan: Plan, planned: PlannedQuery[Query]) -> dict[str, Any]:
    """Under which promise a query's answers were made: the head of every file that holds some.

    Args:
        planned: the query, one of its queries.

    Returns:
        The study and its id, the query's own epsilon, and delta, relation, adversary and unit of
        the plan.
    """
    asked = plan.study.privacy
    return {
        "study": plan.study.name,
        "study_id": plan.study.id.hex(),
        "epsilon": planned.epsilon,
        "delta": asked.delta,
        "relation": asked.relation,
        "adversary": plan.stated.adversary,
        "unit": plan.study.data.unit,
    }


def tables_of(answers: Mapping[str, Any]) -> dict[str, str]:
    """Every table, curve and test of some answers as CSV, by the name of its file.

    Args:
        answers: by name, as plain values.
    """
    taken: set[str] = set()
    files: dict[str, str] = {}
    for name, answer in answers.items():
        # As no other answer's files are called, on disks that do not tell capitals apart either.
        own = file_name(name, lambda own: not taken & {own + kind for kind in _KINDS})
        taken.update(own.casefold() + kind for kind in _KINDS)
        points = [point for curve in answer["curves"] for point in Curve(**curve).points()]
        points = [{key: one for key, one in point.items() if key != "column"} for point in points]
        for kind, rows in zip(_KINDS, (answer["rows"], points, answer["tests"]), strict=True):
            if rows:
                cells = ([row.get(column) for column in rows[0]] for row in rows)
                files[f"{TABLES}/{own}{kind}.csv"] = csv_text([list(rows[0]), *cells])
    return files
