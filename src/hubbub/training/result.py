"""What a run gives back, and what its folder holds in the end: model, evidence, report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hubbub.planning import Plan
from hubbub.study import Standardisation
from hubbub.training import loop, prepared_study, report_of_run, run_folder


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a run gives back.

    Args:
        model: the trained torch module.
        metrics: one row per evaluation, some twenty in all: "step" (a count), "epsilon" so far (no
            unit; absent for "non-private"), and of the public test set "loss" (nats per record),
            "accuracy" (a share in [0, 1]) and, for two classes, "auc" (a probability); averaged
            over the silos for the baseline "alone". Where the study asks for an evaluation on
            records that are held back, also "held_back_accuracy" and "held_back_loss", with noise.
        epsilon: certified epsilon against the stated adversary at the study's delta; no unit, inf
            for "non-private".
        plan: the plan that was carried out.
        folder: where the run was written; None if nowhere.
        standardisation: what was done to the features before the model saw them; None if nothing.
        is_copied: another copy of the run's folder has made attempts of the study, which count as
            this run's and leave fewer steps to it.

    >>> from hubbub import Study, run
    >>> study = Study.parse('''
    ... study.name = "example"
    ... parties = {silos = 4, colluders = 1}
    ... data = {source = "hubbub.datasets:heart", records = 740}
    ... model = {kind = "logistic", inputs = [26]}
    ... training = {steps = 2, sampling = "none"}
    ... privacy = {epsilon = 1.0, delta = 1e-5}
    ... ''')
    >>> result = run(study)
    >>> sorted(result.final)
    ['accuracy', 'auc', 'epsilon', 'loss', 'step']
    """

    model: Any = field(repr=False)
    metrics: tuple[Mapping[str, float], ...]
    epsilon: float
    plan: Plan = field(repr=False)
    folder: Path | None = None
    standardisation: Standardisation | None = None
    is_copied: bool = False

    @property
    def steps(self) -> int:
        """How many steps the model has taken."""
        return int(self.final["step"])

    @property
    def final(self) -> Mapping[str, float]:
        """The last row of `metrics`: those of the model that is returned."""
        return self.metrics[-1]


def conclude(
    setting: prepared_study.PreparedStudy,
    trained: loop.State,
    folder: run_folder.RunFolder | None,
    *,
    epsilon: float,
    evidence: Callable[[], str] | None,
    began: float,
    is_copied: bool = False,
) -> Result:
    """The result of a run, and what its folder holds in the end: model, evidence, report."""
    result = Result(
        model=setting.trained(trained.parameters),
        metrics=trained.rows,
        epsilon=epsilon,
        plan=setting.plan,
        folder=folder.path if folder else None,
        standardisation=setting.standardisation,
        is_copied=is_copied,
    )
    if folder is not None:
        run_folder.write_model(folder.path, setting.plan, result.model)
        if evidence is not None:
            run_folder.write_evidence(folder.path, evidence())
        report_of_run.write_report(folder.path, seconds=time.perf_counter() - began, thorough=True)
    return result
