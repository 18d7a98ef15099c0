"""Training a study in one process: every party, the real protocol, and the baselines beside it.

`run` reads like the paper: plan, set up, and then for every step sum, record, and move the model.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

import hubbub.learning as learning
from hubbub.errors import BudgetError, StudyError
from hubbub.plan import Plan
from hubbub.round import Charge
from hubbub.runners import store
from hubbub.runners.baselines import BASELINES, alone, central
from hubbub.runners.federation import federate, layout_of, terms_of
from hubbub.runners.ledger import Entry, Ledger
from hubbub.runners.setting import Parameters, Setting
from hubbub.runners.training import Progress, Row, Summation, Summed, Trained, train
from hubbub.study import Study

# Coordinates from which a silo's step is long enough to be worth a thread of its own.
_WORTH_THREADS = 20_000


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
    setting = Setting.of(study, plan)
    folder = store.fresh_folder(Path(out), setting.plan) if out is not None else None

    def keep(row: Row) -> None:
        if folder is not None:
            store.append_metrics(folder, row)

    with learning.threads_for(setting.initial.size):
        trained = _trained(setting, baseline, progress or _ignore, keep, _home(ledgers, folder))
    result = Result(
        model=setting.trained(trained.parameters),
        metrics=trained.rows,
        epsilon=inf if baseline == "non-private" else setting.plan.epsilon_after(trained.attempts),
        plan=setting.plan,
        folder=folder,
    )
    if folder is not None:
        store.write(folder, setting.plan, result.model, result.metrics, baseline)
    return result


def _trained(
    setting: Setting,
    baseline: str | None,
    progress: Progress,
    keep: Callable[[Row], None],
    home: Path | None,
) -> Trained:
    """Train by hubbub or by a baseline."""
    if baseline == "alone":
        trained = alone(setting, progress)
        for row in trained.rows:
            keep(row)
        return trained
    with ExitStack() as open_ledgers:
        if baseline is None:
            summation = _federated(setting, _ledgers(home, setting.study, open_ledgers))
        else:
            summation = central(setting, baseline)
        private = baseline != "non-private"
        divisor = setting.plan.divisor
        return train(setting, summation, progress, divisor=divisor, keep=keep, private=private)


def _federated(setting: Setting, ledgers: Mapping[int, Ledger]) -> Summation:
    """The protocol: every silo adds its share of the noise, and only the sum is seen."""
    plan, study = setting.plan, setting.study
    terms = terms_of(plan, setting.initial.size)
    threads = (os.cpu_count() or 1) if terms.dimension >= _WORTH_THREADS else 1
    parties = federate(layout_of(plan), terms, setting.tasks, study=study.id, threads=threads)

    def record(index: int, charge: Charge) -> None:
        entry = Entry(
            study=study.id,
            session=parties.sessions[index].id,
            round=charge.round,
            attempt=charge.attempt,
            noise_multiplier=plan.noise_multiplier,
            sample_rate=study.training.sample_rate,
            sampling=study.training.sampling,
            certificate=plan.certificate,
        )
        try:
            ledgers[index].charge(entry)
        except BudgetError as error:
            raise BudgetError(f"{study.parties.names[index - 1]}: {error}") from None

    def summation(step: int, parameters: Parameters, left: int) -> Summed:
        total, made = parties.round(
            step, parameters, attempts=left, record=record if ledgers else None
        )
        if total is None:
            return Summed(gradient=None, attempts=made)
        gradient = np.multiply(total, terms.grid_step, dtype=np.float64)
        return Summed(gradient=gradient, attempts=made)

    return summation


def _home(ledgers: str | Path | None, folder: Path | None) -> Path | None:
    """Where the silos' ledgers are: as said, or beside the run's folder; None: nowhere."""
    if ledgers is not None:
        return Path(ledgers)
    return folder.parent / "ledgers" if folder is not None else None


def _ledgers(home: Path | None, study: Study, open_ledgers: ExitStack) -> dict[int, Ledger]:
    """Every silo's ledger by roster index; none without a folder for them."""
    if home is None:
        return {}
    return {
        index: open_ledgers.enter_context(Ledger(home / f"{name}.sqlite"))
        for index, name in enumerate(study.parties.names, 1)
    }


def _ignore(_step: int, _row: Mapping[str, float]) -> None:
    """No progress to show."""
