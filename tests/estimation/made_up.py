"""Patients from a formula, so that other programs can be given the same, and noise to add."""

from __future__ import annotations

import numpy as np

from hubbub.core.tabular.column import Column

AGE = Column(name="age", low=20, high=90)
TIME = Column(name="time", low=0, high=24)
SEX = Column(name="sex", categories=("f", "m"))
STAGE = Column(name="stage", categories=("I", "II", "III"))
DIED = Column(name="died", categories=("no", "yes"))
MARKER = Column(name="marker", low=0, high=10)
PATIENTS = 1500


def patients() -> dict[str, np.ndarray]:
    """Cells of 1500 patients, without any generator of random numbers."""
    i = np.arange(PATIENTS)
    u, v, w = (np.mod(i * step, 1.0) for step in (0.6180339887, 0.7548776662, 0.5698402910))
    age = 20.0 + np.floor(70 * u)
    sex = np.mod(i, 2.0)
    stage = np.floor(3 * v)
    hazard = 0.03 * np.exp(0.4 * sex + 0.5 * stage + 0.02 * (age - 55))
    death = np.ceil(-np.log(1 - w * 0.999999) / hazard)
    left = np.ceil(6 + 30 * np.mod(i * 0.3819660113, 1.0))
    time = np.minimum(np.minimum(death, left), 24.0)
    marker = np.clip(2 + 0.05 * age + stage + 3 * (w - 0.5), 0, 10)
    return {
        "age": age,
        "sex": sex,
        "stage": stage,
        "time": time,
        "died": (death <= np.minimum(left, 24.0)).astype(np.float64),
        "marker": marker,
    }


def entries() -> np.ndarray:
    """Since when each was observed: a third from the start, others from a month up to the 12th."""
    i = np.arange(PATIENTS)
    return np.where(i % 3 == 0, 0.0, np.ceil(12 * np.mod(i * 0.7320508076, 1.0)))
