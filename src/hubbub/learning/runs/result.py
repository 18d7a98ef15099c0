"""What a run gives back; and model, answers, evidence and report in its folder."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hubbub.learning as learning
from hubbub.core.disk import inside, write_bytes, write_text
from hubbub.core.errors import StudyError
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.plan_rows import promised_against, spoken
from hubbub.core.planning.query import QueryState, Released
from hubbub.core.runs import prepared_study, run_folder
from hubbub.core.runs.renderers import render
from hubbub.core.runs.run_folder import REPORT
from hubbub.core.runs.spending import Spending
from hubbub.core.tabular.records import STANDARDISED, Standardisation
from hubbub.core.verification.evidence.collecting import FILE
from hubbub.core.verification.evidence.evidence_file import MODEL, SPENDING
from hubbub.estimation.data_frame import data_frame
from hubbub.estimation.queries.sums_query import KeptQuery
from hubbub.estimation.statistic import Answer
from hubbub.learning.queries.training_ask import SCORES
from hubbub.learning.runs import baselines, trained_model
from hubbub.learning.study.training import model_header

_MOST_SHOWN = 10  # classes


@dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """The result of a run: the model, its scores, and epsilon.

    Args:
        model: the trained torch module; where only statistics are asked for, one that holds what is
            kept of their sums.
        metrics: one row per evaluation, some twenty in all: "step" (a count), "epsilon" so far (no
            unit; absent for "non-private"), and of the public test set "loss" (nats per record)
            and what docs/data.md lists for the target's kind: "accuracy" (a share in [0, 1]) and,
            for two classes, "auc" (a probability), "brier" and "calibration_slope"; averaged
            over the silos for the baseline "alone". Where the study asks for an evaluation on
            records that are held back, also "held_back_accuracy", or what the target's kind has
            instead, and "held_back_loss", with noise.
        epsilon: certified epsilon against the stated adversary at the study's delta; no unit, inf
            for "non-private".
        plan: the plan that was carried out.
        folder: where the run was written; None if nowhere.
        standardisation: what was done to the features before the model saw them; None if nothing.
        is_copied: another copy of the run's folder has made attempts of the study, which count as
            this run's and leave fewer steps to it.
        baseline: which one was run, or "rehearsal"; None for hubbub.
        shape: of one record's features.
        statistics: the answers to the study's statistics, by name.
        scores: of the trained model on the public test set, by metric, each with an interval and
            beside that of a model that knows nothing; see `hubbub.learning.evaluation`. Empty where
            there is no test set.
        values: what queries say that is no answer to a question, by name, as plain values.
        spending: what the silos' records have spent in all, this run included; None where no ledger
            of this process says.
        made_public: what was read off the records because nobody had stated it, in words; the
            promise does not cover it.
        states: where every query came to, by purpose.
        library: whose data frames its frames are; "": of the first that is installed.
        column_names: see `TrainedModel`.

    >>> import hubbub
    >>> rng = np.random.default_rng(0)
    >>> def table():
    ...     return rng.uniform(-1, 1, (50, 2)), np.arange(50) % 2
    >>> silos = {"north": table(), "south": table(), "east": table()}
    >>> result = hubbub.fit(silos, test=table(), epsilon=1, steps=2)
    >>> sorted(result.final)
    ['accuracy', 'auc', 'brier', 'calibration_slope', 'epsilon', 'loss', 'step']
    >>> print(result)  # doctest: +ELLIPSIS
    fit: 2 of 2 steps
    epsilon ... at delta 1e-05 against the aggregator together with 1 silo
    made public because the study did not state it: the number of records (150); ...
    loss ..., accuracy ..., auc ...
    test AUC ...
    """

    model: Any = field(repr=False)
    metrics: tuple[Mapping[str, float], ...]
    epsilon: float
    plan: Plan = field(repr=False)
    folder: Path | None = None
    standardisation: Standardisation | None = None
    is_copied: bool = False
    baseline: str | None = None
    shape: tuple[int, ...] = ()
    statistics: Mapping[str, Answer] = field(default_factory=dict, repr=False)
    scores: Mapping[str, learning.Score] = field(default_factory=dict, repr=False)
    values: Mapping[str, Any] = field(default_factory=dict, repr=False)
    spending: Spending | None = None
    made_public: tuple[str, ...] = ()
    states: Mapping[str, QueryState] = field(default_factory=dict, repr=False)
    library: str = ""
    column_names: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return str(render("text", self))

    def _repr_html_(self) -> str:
        return str(render("notebook", self))

    @property
    def adversary(self) -> str:
        """Against whom `epsilon` holds; "nobody" for "non-private"."""
        if self.baseline == baselines.REHEARSAL:
            return "nobody: a rehearsal shows what a run would give"
        against = promised_against(self.plan.stated.adversary, self.baseline)
        return "nobody" if against is None else spoken(against)

    @property
    def trained(self) -> trained_model.TrainedModel:
        """The model with what turns tables into its features."""
        return trained_model.TrainedModel(
            study=self.plan.study,
            module=self.model.eval(),
            shape=self.shape,
            standardisation=self.standardisation,
            column_names=self.column_names,
        )

    def predict(self, table: Any) -> NDArray[np.float32]:
        """Predictions for new records, which stay where they are; see `TrainedModel.predict`.

        Args:
            table: a file, a data frame or an array.

        Returns:
            (n,) the probability of the second class, or what other targets have.
        """
        return self.trained.predict(table)

    def predict_frame(self, table: Any) -> Any:
        """Predictions for new records as a data frame, of the library that the table is of.

        Args:
            table: a file, a data frame or an array; see `TrainedModel.predict`.

        Returns:
            A row for each record; see `TrainedModel.predict_frame`.
        """
        return self.trained.predict_frame(table)

    def with_library(self, library: str) -> Result:
        """The same, whose data frames are of another library.

        Args:
            library: "pandas", "polars" or "pyarrow"; "": the first of them that is installed.

        Returns:
            A result like this one.
        """
        answers = {
            name: replace(answer, library=library) for name, answer in self.statistics.items()
        }
        return replace(self, statistics=answers, library=library)

    def report(self, path: str | Path | None = None) -> Path:
        """Write the report of the run: one HTML file that loads nothing.

        Args:
            path: of the file; `report.html` in the run's folder if None, or here if it has none.

        Returns:
            The file's path.

        Raises:
            OSError: the file cannot be written.
        """
        return Path(render("page", self, None if path is None else Path(path)))

    @property
    def validation(self) -> Mapping[str, Any] | None:
        """What the study's private validation says of the trained model, as plain values.

        See docs/validation.md; None where the study asks for none.
        """
        return self.values.get("validation")

    def validation_frame(self, *, library: str = "") -> Any:
        """The private validation as a data frame, a row for each score of each group.

        Args:
            library: "pandas", "polars" or "pyarrow"; "": that of the silos' tables.

        Returns:
            "by" and "group" (empty for all records), "count" of records with noise, "score", and
            what `validation.json` says of each.

        Raises:
            StudyError, UserError: the study asks for none, or the library is not installed.
        """
        if self.validation is None:
            raise StudyError("expected a study with [validation], got one without; ask for it")
        tables = [self.validation["all"], *self.validation["groups"]]
        rows = [
            {**{key: table[key] for key in ("by", "group", "count")}, "score": name, **score}
            for table in tables
            if table is not None
            for name, score in table["scores"].items()
        ]
        return data_frame(rows, library or self.library)

    @property
    def synthetic(self) -> Any:
        """The synthetic records that the study asks for.

        Raises:
            StudyError: it asks for none.
        """
        planned = self.plan.planned("synthetic")
        if planned is None:
            raise StudyError("expected a study with [synthetic], got one without; add it")
        query: Any = planned.query
        records = query.synthetic(self.plan, self.states[planned.purpose].parameters)
        return replace(records, library=self.library)

    @property
    def steps(self) -> int:
        """How many steps the model has taken."""
        return int(self.final["step"])

    @property
    def final(self) -> Mapping[str, float]:
        """The last row of `metrics`: those of the model that is returned."""
        return self.metrics[-1]


def scores_to_dict(scores: Mapping[str, learning.Score]) -> dict[str, dict[str, Any]]:
    """Scores as plain values."""
    return {name: score.to_dict() for name, score in scores.items()}


def classes_in_words(classes: Sequence[object]) -> str:
    """Classes that were read off records, as a summary names them."""
    shown = ", ".join(map(str, classes[:_MOST_SHOWN]))
    return f"which classes there are ({shown}{', …' if len(classes) > _MOST_SHOWN else ''})"


def conclude(
    prepared: prepared_study.PreparedStudy,
    trained: QueryState,
    folder: run_folder.RunFolder | None,
    *,
    epsilon: float,
    evidence: Callable[[], str] | None,
    began: float,
    is_copied: bool = False,
    baseline: str | None = None,
    spending: Spending | None = None,
) -> Result:
    """The result of a run, and what its folder holds in the end: model, evidence, report.

    Raises:
        IntegrityError: sums were charged and lost in an interruption, and an answer needs them.
    """
    plan = prepared.plan
    plan.main.query.check_complete(trained)
    # Where every query came to, and what people are given of it.
    states = {**prepared.states, plan.main.purpose: trained}
    released = _released(plan, states)
    result = Result(
        model=copy.deepcopy(prepared.trained(trained.parameters)),
        metrics=trained.rows,
        epsilon=epsilon,
        plan=plan,
        folder=folder.path if folder else None,
        standardisation=prepared.standardisation,
        is_copied=is_copied,
        baseline=baseline,
        spending=spending,
        scores=prepared.beside_null(trained.parameters) if baseline is None else {},
        shape=prepared.learner.shape if prepared.learner else (),
        column_names=prepared.learner.column_names if prepared.learner else (),
        statistics={name: answer for part in released for name, answer in part.answers.items()},
        values={name: value for part in released for name, value in part.values.items()},
        states=states,
    )
    if folder is None:
        return result
    # Sums before answers, answers before evidence: what a crash leaves out can be made again.
    plan.main.query.store(folder.path, trained)
    _write_released(folder.path, released)
    if result.model is not None:
        write_model(folder.path, plan, result.model, result.shape, result.column_names)
    if result.scores:
        write_text(folder.path / SCORES, json.dumps(scores_to_dict(result.scores), indent=2))
    if spending is not None:
        write_text(folder.path / SPENDING, json.dumps(spending.to_dict(), indent=2))
    if evidence is not None:
        run_folder.write_evidence(folder.path, evidence())
    render("folder", folder.path, seconds=time.perf_counter() - began, thorough=True)
    return result


def answered_in(folder: Path, plan: Plan) -> Result | None:
    """What a folder holds of a study that asks for statistics alone; None if it is not finished."""
    query = plan.main.query
    finished = all((folder / name).is_file() for name in (FILE, REPORT))
    if not finished or not isinstance(query, KeptQuery):
        return None
    # Answers are made again of the sums, not read.
    state = query.kept_in_folder(folder)
    query.check_complete(state)
    epsilon = plan.epsilon()
    return Result(
        model=None,
        metrics=({"step": state.step, "epsilon": epsilon},),
        epsilon=epsilon,
        plan=plan,
        folder=folder,
        statistics=query.released(plan, state).answers,
        states={plan.main.purpose: state},
    )


def write_result(
    folder: Path,
    prepared: prepared_study.PreparedStudy,
    parameters: NDArray[np.float32],
    standardisation: Standardisation | None,
) -> None:
    """Put into a silo's own folder what its study has given: the model, or the statistics."""
    plan = prepared.plan
    run_folder.write_study(folder, plan.study)
    if prepared.learner is not None:
        write_model(folder, plan, prepared.trained(parameters), prepared.learner.shape)
    if standardisation is not None:
        write_text(folder / STANDARDISED, standardisation.to_json())
    state = QueryState(parameters=parameters)
    if released := _released(plan, {plan.main.purpose: state}):
        plan.main.query.store(folder, state)
        _write_released(folder, released)


def _released(plan: Plan, states: Mapping[str, QueryState]) -> list[Released]:
    """What queries give people, where they have come so far."""
    released = (
        planned.query.released(plan, states[planned.purpose])
        for planned in plan.stepped
        if planned.purpose in states
    )
    return [part for part in released if part.files]


def _write_released(folder: Path, released: Sequence[Released]) -> None:
    """Put it into a folder, on disk before the evidence states digests of it."""
    for part in released:
        for name, text in part.files.items():
            write_text(inside(folder, name), text)
        for name, copied in part.copies.items():
            path = inside(folder, name)
            path.parent.mkdir(exist_ok=True)
            content = copied.encode() if isinstance(copied, str) else copied
            write_bytes(path, content)


def write_model(
    folder: Path, plan: Plan, model: Any, shape: tuple[int, ...], column_names: Sequence[str] = ()
) -> None:
    """Put the trained model into a run's folder, with the shape of one record's features."""
    header = model_header(plan.study, shape)
    if column_names:
        header["columns"] = json.dumps(column_names)
    learning.save_model(folder / MODEL, model, header)
