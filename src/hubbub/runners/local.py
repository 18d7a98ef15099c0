"""Training a study in one process: every party, the real protocol, and the baselines beside it.

`run` reads like the paper: plan, set up, and then for every step sum, record, and move the model.
What differs between hubbub and its baselines is only where the noise is added and who sees what, so
they share everything but the function that turns a model into a noisy sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hubbub.learning as learning
from hubbub import sources
from hubbub.errors import BudgetError, DataError, StudyError
from hubbub.noise import standard_normal
from hubbub.plan import CLIP_MARGIN, Plan, record_shape
from hubbub.plan import plan as plan_study
from hubbub.randomness import SecureSource
from hubbub.round import Charge, LocalTask
from hubbub.runners import store
from hubbub.runners.federation import federate, layout_of, terms_of
from hubbub.runners.ledger import Entry, Ledger
from hubbub.study import Study
from hubbub.tabular import Records

Array = NDArray[np.float64]
Parameters = NDArray[np.float32]
Summation = Callable[[int, Parameters], Array]
Progress = Callable[[int, Mapping[str, float]], None]

BASELINES = ("trusted", "local-dp", "alone", "non-private")
_EVALUATIONS = 20


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a run gives back.

    Args:
        model: the trained torch module.
        metrics: one row per evaluation: step, epsilon so far, and the metrics of the public test
            set (averaged over the silos for the baseline "alone").
        epsilon: certified epsilon against the stated adversary; inf for "non-private".
        plan: the plan that was carried out.
        folder: where the run was written, if anywhere.
    """

    model: Any = field(repr=False)
    metrics: tuple[Mapping[str, float], ...]
    epsilon: float
    plan: Plan = field(repr=False)
    folder: Path | None = None

    @property
    def final(self) -> Mapping[str, float]:
        """The last row of the metrics."""
        return self.metrics[-1]


def run(
    study: Study,
    out: str | Path | None = None,
    *,
    baseline: str | None = None,
    ledgers: str | Path | None = None,
    progress: Progress | None = None,
    plan: Plan | None = None,
) -> Result:
    """Train a study with all parties in this process.

    Guarantees:
        1. The published models are (epsilon, delta)-DP against every adversary of the plan, as
           the plan says, for hubbub and the baseline "local-dp"; "trusted" and "alone" promise it
           against those who see models only.
        2. Every silo's ledger holds a step before the silo's answer to it exists.

    Args:
        study: what to train.
        out: folder for the results; must not hold a run already. None: write nothing.
        baseline: None for hubbub, or "trusted", "local-dp", "alone", "non-private".
        ledgers: folder of the silos' ledgers; `ledgers` beside `out` if None.
        progress: called after every step with its number and the newest metrics.
        plan: a plan made for this study, or for one that differs in the data's options only.

    Raises:
        StudyError: the study cannot be run.
        DataError: a silo's records do not fit it.
        BudgetError: a silo's cap refuses a step.
    """
    if baseline is not None and baseline not in BASELINES:
        raise StudyError(
            f"expected baseline to be one of {', '.join(BASELINES)}, got {baseline!r}; choose one"
        )
    _refuse_unavailable(study)
    setting = Setting.of(study, plan)
    folder = store.fresh_folder(Path(out), setting.plan) if out is not None else None
    keep = progress or (_ignore)
    if baseline == "alone":
        rows, parameters = _alone(setting, keep)
    elif baseline is not None:
        rows, parameters = _train(
            setting, _central(setting, baseline), keep, divisor=setting.plan.divisor
        )
    else:
        home = _ledger_folder(ledgers, folder)
        rows, parameters = _train(
            setting, _federated(setting, home), keep, divisor=setting.plan.divisor
        )
    result = Result(
        model=setting.trained(parameters),
        metrics=tuple(rows),
        epsilon=inf if baseline == "non-private" else setting.plan.stated.epsilon,
        plan=setting.plan,
        folder=folder,
    )
    if folder is not None:
        store.write(folder, setting.plan, result.model, result.metrics, baseline)
    return result


def _ignore(_step: int, _row: Mapping[str, float]) -> None:
    """No progress to show."""


def _ledger_folder(ledgers: str | Path | None, folder: Path | None) -> Path | None:
    """Where the silos' ledgers are: as said, or beside the run's folder; None: nowhere."""
    if ledgers is not None:
        return Path(ledgers)
    return folder.parent / "ledgers" if folder is not None else None


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A study made ready to run: its plan, its model, and everybody's records."""

    plan: Plan
    model: Any = field(repr=False)
    initial: Parameters = field(repr=False)
    method: str
    records: tuple[Records, ...] = field(repr=False)
    test: Records | None = field(repr=False)

    @classmethod
    def of(cls, study: Study, made: Plan | None = None) -> Setting:
        """Load the records, build the model, make the plan unless one is given."""
        records = tuple(sources.records(study, name) for name in study.parties.names)
        test = sources.records(study, sources.TEST) if sources.has_test_set(study) else None
        shape = record_shape(study) or tuple(records[0].inputs.shape[1:])
        for name, one in zip((*study.parties.names, "test"), (*records, test), strict=True):
            _check_shape(name, one, shape)
        model = learning.build_model(
            study.model.kind,
            inputs=shape,
            outputs=study.model.outputs,
            hidden=study.model.hidden,
            bias=study.model.bias,
            seed=study.id,
        )
        initial = learning.parameters_vector(model)
        return cls(
            plan=replace(made, study=study) if made else plan_study(study, dimension=initial.size),
            model=model,
            initial=initial,
            method=learning.method_for(model, shape, records[0].targets),
            records=records,
            test=test,
        )

    @property
    def study(self) -> Study:
        """The study."""
        return self.plan.study

    @property
    def tasks(self) -> list[LocalTask]:
        """Every silo's records, ready for clipped sums."""
        return [
            learning.TrainingTask(
                self.model,
                records,
                clip=self.plan.record_clip,
                margin=CLIP_MARGIN,
                method=self.method,
            )
            for records in self.records
        ]

    def optimizer(self) -> learning.Optimizer:
        """A fresh optimizer."""
        options: dict[str, Any] = dict(self.study.training.optimizer)
        kind = str(options.pop("name"))
        return learning.Optimizer(kind, steps=self.study.training.steps, **options)

    def trained(self, parameters: Parameters) -> Any:
        """The model with these parameters."""
        learning.load_parameters(self.model, parameters)
        return self.model

    def evaluate(self, parameters: Parameters) -> dict[str, float]:
        """Metrics on the public test set, if there is one."""
        if self.test is None:
            return {}
        return learning.evaluate_records(self.trained(parameters), self.test)


def _train(
    setting: Setting, summation: Summation, keep: Progress, *, divisor: float
) -> tuple[list[dict[str, float]], Parameters]:
    """DP-SGD: sum, divide by a public constant, step (docs/privacy.md P14)."""
    steps = setting.study.training.steps
    due = _evaluated(steps)
    optimizer, parameters = setting.optimizer(), setting.initial
    rows: list[dict[str, float]] = []
    for step in range(1, steps + 1):
        gradient = summation(step, parameters) / divisor
        parameters = optimizer.step(parameters, gradient).astype(np.float32)
        if step in due:
            row = {"step": step, "epsilon": setting.plan.epsilon_after(step)}
            rows.append(row | setting.evaluate(parameters))
        keep(step, rows[-1] if rows else {})
    return rows, parameters


def _federated(setting: Setting, home: Path | None) -> Summation:
    """The protocol: every silo adds its share of the noise, and only the sum is seen."""
    plan, study = setting.plan, setting.study
    terms = terms_of(plan, setting.initial.size)
    parties = federate(layout_of(plan), terms, setting.tasks, study=study.id)
    ledgers = _ledgers(home, study.parties.names)

    def record(index: int, charge: Charge) -> None:
        entry = Entry(
            study=study.id,
            session=parties.sessions[index].id,
            round=charge.round,
            attempt=charge.attempt,
            noise_multiplier=plan.noise_multiplier,
            sample_rate=study.training.sample_rate,
            sampling=study.training.sampling,
        )
        try:
            ledgers[index].charge(entry, parties.keys[index])
        except BudgetError as error:
            raise BudgetError(f"{study.parties.names[index - 1]}: {error}") from None

    def summation(step: int, parameters: Parameters) -> Array:
        total = parties.sum(step, parameters, record=record if ledgers else None)
        return np.multiply(total, terms.grid_step, dtype=np.float64)

    return summation


def _ledgers(home: Path | None, names: Sequence[str]) -> dict[int, Ledger]:
    """Every silo's ledger by roster index; none without a folder for them."""
    if home is None:
        return {}
    return {index: Ledger(home / f"{name}.sqlite") for index, name in enumerate(names, 1)}


def _central(setting: Setting, baseline: str) -> Summation:
    """Somebody who sees every silo's sum adds them; the noise depends on who that is (P17)."""
    plan, source, tasks = setting.plan, SecureSource(), setting.tasks
    sigma = plan.noise_multiplier * plan.clip
    each = sigma if baseline == "local-dp" else 0.0
    total_noise = sigma if baseline == "trusted" else 0.0

    def summation(_step: int, parameters: Parameters) -> Array:
        total = np.zeros(parameters.size)
        for task in tasks:
            total += _noisy_sum(task, parameters, plan, source, each)
        return total + _normal(source, total.size, total_noise)

    return summation


def _alone(setting: Setting, keep: Progress) -> tuple[list[dict[str, float]], Parameters]:
    """Every silo trains its own model at the same epsilon; metrics are averaged over the silos."""
    plan, source = setting.plan, SecureSource()
    runs = []
    for task in setting.tasks:

        def summation(_step: int, parameters: Parameters, task: LocalTask = task) -> Array:
            sigma = plan.noise_multiplier * plan.clip
            return _noisy_sum(task, parameters, plan, source, sigma)

        share = plan.divisor / len(setting.records)
        runs.append(_train(setting, summation, keep, divisor=share if share > 1 else 1.0))
    rows = [
        {key: float(np.mean([row[key] for row in at_once])) for key in at_once[0]}
        for at_once in zip(*(rows for rows, _ in runs), strict=True)
    ]
    return rows, runs[0][1]


def _noisy_sum(
    task: LocalTask, parameters: Parameters, plan: Plan, source: SecureSource, sigma: float
) -> Array:
    """A fresh batch's clipped sum with Gaussian noise."""
    chosen = source.chosen(task.count, plan.study.training.sample_rate)
    total = task.clipped_sum(parameters, chosen)
    return total + _normal(source, total.size, sigma)


def _normal(source: SecureSource, size: int, sigma: float) -> Array:
    noise = np.zeros(size)
    if sigma > 0:
        standard_normal(source, noise)
    return noise * sigma


def _evaluated(steps: int) -> set[int]:
    """After which steps the model is evaluated: some twenty times, and at the end."""
    every = max(1, steps // _EVALUATIONS)
    return {*range(every, steps + 1, every), steps}


def _check_shape(name: str, records: Records | None, shape: Sequence[int]) -> None:
    """All parties' records have the shape that the model takes."""
    if records is not None and tuple(records.inputs.shape[1:]) != tuple(shape):
        raise DataError(
            f"expected records of shape {tuple(shape)} for {name}, "
            f"got {tuple(records.inputs.shape[1:])}; mend the data or model.inputs"
        )


def _refuse_unavailable(study: Study) -> None:
    """What the study format knows and this version cannot run."""
    training, parties = study.training, study.parties
    for key, value, usable in (
        ("training.sampling", training.sampling, training.sampling != "without-replacement"),
        ("training.projection", training.projection, training.projection == 0),
        ("parties.trust", parties.trust, parties.trust == "none"),
        ("parties.shares", parties.shares, parties.shares == "compressed"),
    ):
        if not usable:
            raise StudyError(
                f"expected {key} to be one that this version can run, got {value!r}; "
                "it can be planned but not trained yet: use the default"
            )
