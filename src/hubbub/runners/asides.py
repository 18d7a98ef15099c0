"""What a run asks of the silos besides gradients, through the same protocol (docs/privacy.md P16).

Before the training, perhaps, the sums that standardise features; in between, evaluations on records
that the silos hold back. Each kind has a session of its own, and rows of its own in the ledgers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import hubbub.learning as learning
from hubbub.errors import IntegrityError
from hubbub.plan import EVALUATION, STANDARDISATION, Plan, PlannedAside
from hubbub.round import LocalTask
from hubbub.runners.checkpoint import write_bytes
from hubbub.runners.setting import Parameters, Setting
from hubbub.runners.training import Look, Row
from hubbub.tabular import Records

Array = NDArray[np.float64]
# The noisy sum of a number's turn, or None if it was spent before and lost.
Ask = Callable[[int, Parameters], Array | None]
# Opens a session for one kind of aside, with everybody's task.
Opened = Callable[[PlannedAside, Sequence[LocalTask]], Ask]

_LEAST_DEVIATION = 1e-3  # of a feature, in units of its bound; smaller ones are noise


@dataclass(frozen=True, kw_only=True)
class Standardisation:
    """What is taken off every feature, and what it is divided by; public, (features,) each."""

    shift: NDArray[np.float32]
    scale: NDArray[np.float32]

    def of(self, records: Records) -> Records:
        """The records with standardised features."""
        return Records(
            inputs=((records.inputs - self.shift) / self.scale).astype(np.float32),
            targets=records.targets,
        )

    def __post_init__(self) -> None:
        for array in (self.shift, self.scale):
            if array.shape != self.shift.shape or not np.isfinite(array).all():
                raise ValueError("expected as many finite shifts as scales")
        if not (self.scale > 0).all():
            raise ValueError("expected scales above 0")

    def json(self) -> str:
        """It as text; `read` reads it back bit for bit."""
        return json.dumps({"shift": self.shift.tolist(), "scale": self.scale.tolist()})

    @classmethod
    def of_plain(cls, said: Mapping[str, Any]) -> Standardisation:
        """What `json` wrote; ValueError, KeyError or TypeError if it is none."""
        shift, scale = (np.array(said[key], dtype=np.float32) for key in ("shift", "scale"))
        return cls(shift=shift, scale=scale)

    @classmethod
    def read(cls, path: Path, features: int) -> Standardisation | None:
        """What was kept of so many features in a file, if there is one."""
        if not path.exists():
            return None
        try:
            found = cls.of_plain(json.loads(path.read_text(encoding="utf-8")))
            if found.shift.shape != (features,):
                raise ValueError("expected another number of features")
            return found
        except (ValueError, KeyError, TypeError, RecursionError):
            raise IntegrityError(
                f"expected {path} as this version writes it, found something else; restore it"
            ) from None


class FeatureSums:
    """A silo's records: their number, and the sums of each feature and of its square."""

    def __init__(self, records: Records, bound: float) -> None:
        self._inputs, self._bound = records.inputs, bound

    def __repr__(self) -> str:
        return "FeatureSums(<private>)"

    @property
    def count(self) -> int:
        """Number of records; never leaves the silo."""
        return len(self._inputs)

    def clipped_sum(self, parameters: Parameters, chosen: NDArray[np.intp]) -> Array:
        """(1 + 2 features,): each record's part has norm at most sqrt(1 + 2 features)."""
        features = np.clip(self._inputs[chosen].astype(np.float64) / self._bound, -1.0, 1.0)
        return np.concatenate(([len(chosen)], features.sum(0), (features**2).sum(0)))


def standardisation_from(sums: Array, bound: float) -> Standardisation:
    """Shift and scale from noisy sums; a feature that hardly varies is left as wide as it is."""
    features = (sums.size - 1) // 2
    count = max(float(sums[0]), 1.0)
    mean = np.clip(sums[1 : 1 + features] / count, -1.0, 1.0)
    spread = np.sqrt(np.clip(sums[1 + features :] / count - mean**2, 0.0, 1.0))
    scale = np.where(spread < _LEAST_DEVIATION, 1.0, spread)
    return Standardisation(
        shift=(bound * mean).astype(np.float32), scale=(bound * scale).astype(np.float32)
    )


def standardised(setting: Setting, found: Standardisation) -> Setting:
    """The study with everybody's features standardised."""
    return replace(
        setting,
        records=tuple(found.of(one) for one in setting.records),
        held_back=tuple(found.of(one) for one in setting.held_back),
        test=found.of(setting.test) if setting.test is not None else None,
        standardisation=found,
    )


def standardise(setting: Setting, opened: Opened, kept: Path | None) -> Setting:
    """Standardise the features, if the study asks for it, with what was kept or with a new sum."""
    asked, planned = setting.study.data.standardise, setting.plan.aside(STANDARDISATION)
    if asked is None or planned is None:
        return setting
    features = planned.aside.numbers // 2  # 1 + 2 features are summed
    found = Standardisation.read(kept, features) if kept else None
    if found is None:
        tasks = [FeatureSums(one, asked.bound) for one in setting.everything]
        total = opened(planned, tasks)(1, setting.initial)
        if total is None:
            raise IntegrityError(
                "expected the sums that standardise the features, they were charged and lost in "
                "an interruption; approve the study under another name and run that"
            )
        found = standardisation_from(total, asked.bound)
        if kept is not None:
            write_bytes(kept, found.json().encode())
    return standardised(setting, found)


def evaluation(setting: Setting, opened: Opened) -> Look | None:
    """Evaluations on held-back records, if the study asks for them."""
    planned = setting.plan.aside(EVALUATION)
    if planned is None:
        return None
    every, steps = planned.aside.every, setting.study.training.steps
    ask = opened(planned, setting.evaluation_tasks)

    def at(step: int, parameters: Parameters) -> Row:
        total = ask(step // every, parameters)
        return {} if total is None else _told(total)

    return Look(after=frozenset(range(every, steps + 1, every)), at=at)


def _told(total: Array) -> Row:
    """Accuracy and mean loss from noisy sums."""
    count = max(float(total[0]), 1.0)
    return {
        "held_back_accuracy": float(np.clip(total[1] / count, 0.0, 1.0)),
        "held_back_loss": float(np.clip(total[2] / count, 0.0, 1.0)) * learning.MOST_LOSS,
    }


class Sums(Protocol):
    """A session for sums of one kind."""

    def round(self, number: int, parameters: Parameters, attempts: int) -> tuple[Array | None, int]:
        """A noisy sum, None if every attempt failed, and the attempts made."""


class Venue(Protocol):
    """Where sessions are opened: in this process, or among machines."""

    def open(self, purpose: str, plan: Plan, tasks: Sequence[LocalTask], numbers: int) -> Sums:
        """Set a session up."""

    def charged(self, purpose: str) -> int:
        """Attempts that were paid for in this run for a purpose."""


def through(stage: Venue) -> Opened:
    """Asides through the protocol, by the run's ledgers."""

    def opened(planned: PlannedAside, tasks: Sequence[LocalTask]) -> Ask:
        purpose = planned.aside.purpose
        series = stage.open(purpose, planned.plan, tasks, planned.aside.numbers)
        made = stage.charged(purpose)

        def ask(number: int, parameters: Parameters) -> Array | None:
            nonlocal made
            if made >= number:  # what a crash has charged and lost is not asked for again
                return None
            total, attempts = series.round(number, parameters, number - made)
            made += attempts
            return total

        return ask

    return opened


def exactly(_planned: PlannedAside, tasks: Sequence[LocalTask]) -> Ask:
    """Asides without noise or protocol, for the baseline that keeps no privacy."""

    def ask(_number: int, parameters: Parameters) -> Array:
        sums = [task.clipped_sum(parameters, np.arange(task.count)) for task in tasks]
        return np.sum(sums, axis=0)  # type: ignore[no-any-return]

    return ask
