"""How good the trained model is on patients: one noisy sum of cells, asked at the end (P27).

What a run says of it is in its folder:

    validation-sums.json    the noisy sums
    validation.json         the answer, which follows from the sums and the study alone
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

import hubbub.learning as learning
from hubbub.core.disk import write_text
from hubbub.core.errors import IntegrityError
from hubbub.core.planning.mechanism import Mechanism, mechanism_of_all
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import (
    Array,
    Parameters,
    Query,
    QueryState,
    QueryWarnings,
    Released,
    SiloData,
    Stepper,
    Turn,
)
from hubbub.core.study.study import Study
from hubbub.core.tabular.records import Records
from hubbub.estimation.queries.sums_query import KeptQuery, kept_numbers, kept_text, promise_of
from hubbub.learning.metric_words import name_of
from hubbub.learning.queries.beside_training import AtModel, Folded, State, evaluation_of
from hubbub.learning.queries.validation.layout import (
    DIAMETER,
    SiloTask,
    ValidationLayout,
    WhoseRecords,
    groups_of,
    layout_of,
    whose_records,
)
from hubbub.learning.queries.validation.validation_ask import (
    HELD_BACK,
    TRAINING,
    Validation,
    ValidationAsk,
)

if TYPE_CHECKING:
    from hubbub.core.planning.plan import Plan
    from hubbub.core.protocol.round.local_task import LocalTask

VALIDATION = "validation"
VALIDATION_SUMS, VALIDATED = ValidationAsk.files
_SUMS = "sums"
_LOST = (
    "its sum was charged, and lost in an interruption; with validation.sums = 2, another "
    "would be left"
)
_NOISE = "too few records for this noise: give it more epsilon, or records"


@dataclass(frozen=True)
class ValidationQuery(AtModel, KeptQuery):
    """The cells of predictions and outcomes, after the training."""

    study: Study
    dimension: int | None

    kept_in, answered_in = VALIDATION_SUMS, VALIDATED
    turn, taken_at = Turn.LAST, ", at the model of the last step"

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
    def epsilon(self) -> float:
        """What it may cost."""
        return self.asked.epsilon

    def warnings(self, study: Study) -> QueryWarnings:
        """Of the records that it is asked of, and of a sum that may be lost."""
        sentences, whose = [], self.whose
        if not whose.held_back:
            by = "by an unknown amount"
            if whose.flatters is not None:
                by = f"its {name_of(whose.score)} by up to about {whose.flatters:.2g}"
            sentences.append(
                f"[validation] uses the training records, {whose.why_not}: it may flatter the "
                f"model, {by}"
            )
        if not whose.is_telling:
            sentences.append(
                "[validation] will show almost nothing: its records are too few for its noise; "
                "raise validation.epsilon, use fewer bins (validation.bins = 6), or leave it out"
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
        return 0 if (records := self._records(silo)) is None else records.units

    def pooled_task(self, silos: Sequence[SiloData]) -> LocalTask:
        """All silos' records."""
        parts = [(silo.centre, self._records(silo)) for silo in silos]
        held = [(centre, records) for centre, records in parts if records is not None]
        marks = learning.CellMarks(self.layout.kind)
        evaluation = evaluation_of(silos, [records for _, records in held], marks)
        places = self.study.data.places
        groups = [groups_of(self.layout, records, centre, places) for centre, records in held]
        return SiloTask(self.layout, evaluation, np.vstack(groups))

    def _records(self, silo: SiloData) -> Records | None:
        return silo.held_back if self.whose.held_back else silo.records

    def misfit(self, sent: Parameters, begin: Parameters | None, sums: int) -> str:
        """It is another model than that which all sums are taken at."""
        same = begin is None or sent.tobytes() == begin.tobytes()
        return "" if same else "it is another model than the RESULT"

    def stepper(self, planned: PlannedQuery[Query]) -> Stepper:
        """Keeps the noisy sums."""

        def fold(state: State, total: Array | None) -> State:
            sums = _sums_of(state, self.layout.size)
            return {_SUMS: sums if total is None else np.vstack([sums, total])}

        return Folded(fold)

    def sums(self, state: QueryState) -> Array:
        """(made, numbers) the noisy sums that there are."""
        return _sums_of(state.optimizer, self.layout.size)

    def kept(self, state: QueryState) -> bytes:
        """The noisy sums."""
        return self.sums(state).tobytes()

    def restored(self, folder: Path, state: QueryState) -> QueryState:
        """With the sums that were made."""
        path = folder / VALIDATION_SUMS
        if not path.exists():
            return state
        sums = kept_numbers(path, _SUMS, (-1, self.layout.size), np.float64)
        return replace(state, step=len(sums), optimizer={_SUMS: sums}) if len(sums) else state

    def store(self, folder: Path, state: QueryState) -> None:
        """The sums so far."""
        write_text(folder / VALIDATION_SUMS, kept_text(_SUMS, self.sums(state)))

    def released(self, plan: Plan, state: QueryState) -> Released:
        """What the noisy sums say, as plain values.

        "records" are those that were asked, "flatters" by how much the telling score may be too
        good, "all" the scores of all records, "groups" those of each group, "refusal" why there are
        none, in words, or empty.
        """
        planned, whose = plan.planned(VALIDATION), self.whose
        assert planned is not None, "a plan of this query"  # noqa: S101
        # Sums of the same cells: their mean has less noise by the root of their number.
        sums, tables = self.sums(state), list[dict[str, Any]]()
        if len(sums):
            sigma = planned.total_sigma / sqrt(len(sums))
            tables = [
                {
                    "by": block.by,
                    "group": group,
                    "count": table.records,
                    "count_error": float(table.range_errors(0, len(table.counts))),
                    **self.layout.kind.scored(table).to_dict(),
                }
                for block, group, table in self.layout.tables(sums.mean(axis=0), sigma)
            ]
        first = tables[0] if tables else None
        refusal = _LOST if first is None else "" if first["scores"] else _NOISE
        answer = {
            **promise_of(plan, planned),
            "records": HELD_BACK if whose.held_back else TRAINING,
            "flatters": None if whose.held_back else whose.flatters,
            "telling": whose.score,
            "all": first,
            "groups": tables[1:],
            "refusal": refusal,
        }
        text = json.dumps(answer, indent=1)
        return Released(files={VALIDATED: text}, values={VALIDATION: json.loads(text)})


def _sums_of(kept: Mapping[str, NDArray[Any]], size: int) -> Array:
    """The noisy sums in what a stepper remembers; IntegrityError if they are of something else."""
    sums = np.asarray(kept.get(_SUMS, np.zeros((0, size))), dtype=np.float64)
    if sums.ndim != 2 or sums.shape[1] != size or not np.isfinite(sums).all():
        raise IntegrityError(
            f"expected sums of a validation of {size} numbers, found others; restore the run"
        )
    return sums


def foreseen_validation(plan: Plan) -> dict[str, Any]:
    """What a plan says of its validation, as plain values.

    Its noise is the most that a round may have, whoever is missing from it. "errors" are those of
    the telling "score" on held-back records and on those of the training, None where the number of
    records is not public; "rate" is the share of the second class that they are for, if any.
    """
    planned, records = plan.planned(VALIDATION), plan.study.data.records
    assert planned is not None, "a plan of this query"  # noqa: S101
    query = cast("ValidationQuery", planned.query)
    whose, layout, asked = query.whose, query.layout, query.asked
    errors: dict[str, float | None] = {HELD_BACK: None, TRAINING: None}
    if records:
        sigma = planned.total_sigma / sqrt(asked.sums)
        for name, share in ((HELD_BACK, asked.holdout), (TRAINING, 1.0)):
            error = layout.foreseen(share * records, sigma)
            errors[name] = error if error < 1.0 else None
    return {
        "records": HELD_BACK if whose.held_back else TRAINING,
        "score": whose.score,
        "errors": errors,
        "flatters": whose.flatters,
        "rate": getattr(layout.kind, "rate", None),
        "epsilon_alone": planned.epsilon,
    }
