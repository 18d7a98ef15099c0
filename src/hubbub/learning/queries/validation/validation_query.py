"""How good the trained model is on patients: one noisy sum of cells, asked at the end (P27)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.disk import json_value, read_bytes, write_text
from hubbub.core.errors import IntegrityError
from hubbub.core.planning.mechanism import Mechanism, mechanism_of_all
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import (
    Array,
    Parameters,
    Query,
    QueryState,
    QueryWarnings,
    SiloData,
    SteppedQuery,
    Stepper,
    Turn,
)
from hubbub.core.study.study import Study
from hubbub.core.tabular.records import Records
from hubbub.core.verification.evidence.evidence_file import (
    MALFORMED,
    RESTORE,
    Finding,
    difference,
    read_plain,
    wrong,
)
from hubbub.core.verification.replay.course import Course
from hubbub.estimation.queries.sums_query import promise_of
from hubbub.learning.queries.validation.layout import (
    DIAMETER,
    SiloTask,
    ValidationLayout,
    WhoseRecords,
    groups_of,
    layout_of,
    whose_records,
)
from hubbub.learning.queries.validation.validation_ask import Validation, ValidationAsk

if TYPE_CHECKING:
    from hubbub.core.protocol.round.aggregator import RevealedSum
    from hubbub.core.protocol.round.projected_sum import LocalTask


VALIDATION = "validation"
VALIDATION_SUMS, VALIDATED = ValidationAsk.files
_SUMS = "sums"
_MOST_BYTES = 2**30


@dataclass(frozen=True)
class ValidationQuery(SteppedQuery):
    """The cells of predictions and outcomes, after the training.

    Args:
        study: whose model it is.
        dimension: of the model that goes down; None if that is not public yet.
    """

    study: Study
    dimension: int | None

    @property
    def asked(self) -> Validation:
        """What is asked."""
        asked: Validation = self.study.validation
        return asked

    @cached_property
    def layout(self) -> ValidationLayout:
        """The tables as one vector."""
        return layout_of(self.study)

    @cached_property
    def whose(self) -> WhoseRecords:
        """Which records are compared with the model."""
        return whose_records(self.study)

    @cached_property
    def mechanism(self) -> Mechanism:
        """Sums of vectors whose length is 1 at most (P27)."""
        return mechanism_of_all(
            VALIDATION,
            self.study.data,
            self.study.privacy,
            sums=self.asked.sums,
            norm=1.0,
            distance=DIAMETER,
        )

    @property
    def numbers(self) -> int:
        """Cells of all tables."""
        return self.layout.size

    @property
    def broadcast_numbers(self) -> int | None:
        """The model's parameters."""
        return self.dimension

    @property
    def epsilon(self) -> float:
        """What it may cost."""
        return self.asked.epsilon

    @property
    def turn(self) -> Turn:
        """It is asked at the model that is released."""
        return Turn.LAST

    def warnings(self, study: Study) -> QueryWarnings:
        """Of the records that it is asked of, and of a sum that may be lost."""
        sentences = []
        whose = self.whose
        if not whose.held_back:
            by = (
                "by how much is not known"
                if whose.flatters is None
                else (f"its {whose.score.replace('_', ' ')} by up to about {whose.flatters:.2g}")
            )
            sentences.append(
                "[validation] is asked of the records of the training, because too few could be "
                f"held back or the study says so: it may flatter the model, {by}"
            )
        if not whose.is_telling:
            sentences.append(
                "[validation] will say next to nothing: its records are too few for its noise; "
                "raise validation.epsilon, take fewer bins (validation.bins = 6), or leave it out"
            )
        if self.asked.sums == 1 and study.parties.dropouts and not study.parties.compute_nodes:
            sentences.append(
                "dropouts without compute nodes: a silo that drops out of the validation's only "
                "sum loses it; ask for validation.sums = 2, which costs no accuracy, or use "
                "compute nodes"
            )
        return QueryWarnings(sums=tuple(sentences))

    def units(self, silo: SiloData) -> int:
        """Records that it is asked of, or patients."""
        records = self._records(silo)
        return 0 if records is None else records.units

    def max_units(self, silo: SiloData) -> int:
        """Of records, held back or not."""
        return silo.max_units

    def task(self, silo: SiloData) -> LocalTask:
        """A silo's records beside the model."""
        return self._task([silo])

    def pooled_task(self, silos: Sequence[SiloData]) -> LocalTask:
        """All silos' records."""
        return self._task(silos)

    def _task(self, silos: Sequence[SiloData]) -> LocalTask:
        from hubbub import learning

        places, learner = self.study.data.places, silos[0].learner
        held = [(silo, self._records(silo)) for silo in silos]
        known = [(one, records) for one, records in held if records is not None]
        evaluation = learning.EvaluationTask(
            learner.per_unit_model,
            Records.together([records for _, records in known]),
            method=learner.method,
            capacity=sum(silo.max_units for silo in silos),
            device=learner.device,
            target_type=learner.target_type,
            marks=learning.CellMarks(self.layout.kind),
        )
        groups = [groups_of(self.layout, records, one.centre, places) for one, records in known]
        return SiloTask(self.layout, evaluation, np.vstack(groups))

    def _records(self, silo: SiloData) -> Records | None:
        return silo.held_back if self.whose.held_back else silo.records

    def misfit(self, sent: Parameters, begin: Parameters | None, sums: int) -> str:
        """It is another model than that which all sums are taken at."""
        same = begin is None or sent.tobytes() == begin.tobytes()
        return "" if same else "it is another model than the RESULT"

    def stepper(self, planned: PlannedQuery[Query]) -> Stepper:
        """Keeps the noisy sums."""
        return _Kept(self.layout.size)

    def sums(self, state: QueryState) -> Array:
        """(made, numbers) the noisy sums that there are."""
        return sums_of(state.optimizer, self.layout.size)

    def restored(self, folder: Path, state: QueryState) -> QueryState:
        """With the sums that were made."""
        made = sums_in(folder, self.layout.size)
        return replace(state, step=len(made), optimizer={_SUMS: made}) if len(made) else state

    def store(self, folder: Path, state: QueryState) -> None:
        """The sums so far."""
        made = self.sums(state)
        write_text(folder / VALIDATION_SUMS, json.dumps({_SUMS: made.tolist()}))

    def replay_findings(
        self, folder: Path, plan: Plan, course: Course, shown: Set[bytes]
    ) -> Iterator[Finding]:
        """The scores are what the sums say, at the model that the training led to."""
        return validation_findings(folder, plan, self, course)


class _Kept:
    """Keeps every noisy sum; what goes down, the model, stays as it is."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._sums = np.zeros((0, size))

    def step(
        self, parameters: Parameters, total: Array | RevealedSum, divisor: float
    ) -> Parameters:
        """The same parameters as before."""
        self._sums = np.vstack([self._sums, np.asarray(total) / divisor])
        return parameters

    def state(self) -> dict[str, NDArray[Any]]:
        """All sums."""
        return {_SUMS: self._sums}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from there; IntegrityError if they are of something else."""
        self._sums = sums_of(state, self._size)


def sums_of(kept: Mapping[str, NDArray[Any]], size: int) -> Array:
    """The noisy sums in what a stepper remembers; IntegrityError if they are of something else."""
    sums = np.asarray(kept.get(_SUMS, np.zeros((0, size))), dtype=np.float64)
    if sums.ndim != 2 or sums.shape[1] != size or not np.isfinite(sums).all():
        raise IntegrityError(
            f"expected sums of a validation of {size} numbers, found others; restore the run"
        )
    return sums


def sums_in(folder: Path, size: int) -> Array:
    """The noisy sums that a folder keeps; none if there is no such file.

    Raises:
        IntegrityError: the file is not as it was written.
    """
    path = folder / VALIDATION_SUMS
    if not path.exists():
        return np.zeros((0, size))
    try:
        said = json_value(read_bytes(path, most=_MOST_BYTES))
        sums = np.array(said[_SUMS], dtype=np.float64)
        if set(said) != {_SUMS}:
            raise ValueError("expected sums alone")
    except (OSError, ValueError, KeyError, TypeError, RecursionError, OverflowError):
        raise IntegrityError(
            f"expected {path} as this version writes it, found something else; restore it"
        ) from None
    return sums_of({_SUMS: sums.reshape(len(sums), -1)}, size) if sums.size else np.zeros((0, size))


# What a plan's validation will say before it is asked, and what its sums say afterwards.
#
# Both know the plan's noise, the most that a round may have whoever is missing from it. The answer
# of
# a run is in its folder:
#
#     validation-sums.json    the noisy sums
#     validation.json         the answer, which follows from the sums and the study alone

_LOST = (
    "its sum was charged, and lost in an interruption; with validation.sums = 2 another would be "
    "left"
)
_NOISE = "too few records for the noise: give it more of epsilon, or records"


def planned_validation(plan: Plan) -> PlannedQuery[ValidationQuery] | None:
    """The validation among what a plan asks; None if it asks for none."""
    for planned in plan.queries:
        if isinstance(planned.query, ValidationQuery):
            return planned  # type: ignore[return-value]  # narrowed by its query
    return None


def validation_of(plan: Plan, sums: Array) -> dict[str, Any]:
    """What the noisy sums of a plan's validation say, as plain values.

    Args:
        plan: that asks for one.
        sums: (made, numbers).

    Returns:
        "records" ("held-back" or "training") and how many there were with noise; "flatters", by how
        much the telling score may be too good; "all", the scores of all records; "groups", those of
        each group; "refusal", why there are none, in words, or empty.
    """
    planned = planned_validation(plan)
    assert planned is not None, "a validation is asked for"  # noqa: S101
    whose, told = planned.query.whose, _tables(planned, sums) if len(sums) else []
    first = told[0] if told else None
    refusal = _LOST if first is None else "" if first["scores"] else _NOISE
    whole = {
        **promise_of(plan, planned),
        "records": "held-back" if whose.held_back else "training",
        "flatters": None if whose.held_back else whose.flatters,
        "telling": whose.score,
        "all": first,
        "groups": told[1:],
        "refusal": refusal,
    }
    plain: dict[str, Any] = json.loads(json.dumps(whole))
    return plain


def _tables(planned: PlannedQuery[ValidationQuery], sums: Array) -> list[dict[str, Any]]:
    """What each table says, that of all records first."""
    layout, sigma = planned.query.layout, planned.total_sigma / sqrt(len(sums))
    return [
        {
            "by": block.by,
            "group": group,
            "count": table.records,
            "count_error": table.records_error,
            **layout.kind.scored(table).to_dict(),
        }
        for block, group, table in layout.tables(sums.mean(axis=0), sigma)
    ]


def foreseen_validation(plan: Plan) -> dict[str, Any] | None:
    """What a plan says of its validation, as plain values; None if it asks for none.

    Returns:
        "records", that are compared with the model; "score", the telling one; its "errors" to
        expect on held-back records and on those of the training, and by how much the latter may
        "flatter". Errors are None where the number of records is not public. "rate", the share of
        the second class that they are for; None of other targets.
    """
    planned = planned_validation(plan)
    if planned is None:
        return None
    query, records = planned.query, plan.study.data.records
    whose, layout = query.whose, query.layout
    sigma = planned.total_sigma / sqrt(query.asked.sums)
    shares = {"held-back": query.asked.holdout, "training": 1.0}
    errors = {
        name: layout.foreseen(share * records, sigma)[1] if records else None
        for name, share in shares.items()
    }
    return {
        "records": "held-back" if whose.held_back else "training",
        "score": whose.score,
        "errors": {k: v if v is None or v < 1.0 else None for k, v in errors.items()},
        "flatters": whose.flatters,
        "rate": getattr(layout.kind, "rate", None),
        "epsilon_alone": planned.epsilon,
    }


def write_validation(folder: Path, answer: dict[str, Any]) -> None:
    """Put what a validation says into a folder."""
    write_text(folder / VALIDATED, json.dumps(answer, indent=1))


# The validation of a run made again: from the transcript's sums, or from those that were kept.
#
# This file knows a plan and what was kept of sums, and no session.


def validation_findings(
    folder: Path, plan: Plan, query: ValidationQuery, course: Course
) -> Iterator[Finding]:
    """Whether the validation of a run says what its sums say.

    Args:
        folder: of the run.
        plan: its plan.
        query: the validation.
        course: of its sums in the transcripts.
    """
    if not (folder / VALIDATED).exists():
        return
    claim, kept_in = f"{folder / VALIDATED} says what the sums say", folder / VALIDATION_SUMS
    try:
        kept = sums_in(folder, query.layout.size)
        same = course.led is None or (kept.tobytes() == query.sums(course.led).tobytes())
        follows = f"{kept_in} follows from the sums, at the model that the last step gave"
        told = course.judged(follows, "" if same else f"it differs; {RESTORE}")
        yield told.covering("replay.answers")
        if not told.holds:
            return  # whatever these sums say
        why = difference(read_plain(folder / VALIDATED), validation_of(plan, kept))
    except MALFORMED as error:
        yield wrong(claim, f"{error}; {RESTORE}")
        return
    yield course.judged(claim, f"{why}; {RESTORE}" if why else "").covering("replay.answers")
