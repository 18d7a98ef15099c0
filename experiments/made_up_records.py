"""Records made from a study's columns and bounds alone, for `experiments.defaults`.

Each draw is another world: how numbers are spread, how common categories are, how many features
matter and how much, how rare the outcome is.
"""

from __future__ import annotations

from math import log

import numpy as np
from numpy.typing import NDArray

from hubbub.core.study.study import Study
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.target import COUNT, NUMERIC, Outcome

Array = NDArray[np.float64]
_FACTORS = 3  # hidden numbers of which columns have something in common
_RATES = (0.03, 0.5)  # of an outcome
_COUNTS = (0.02, 0.2)  # mean of a count, as a share of its bound


def made_up_records(study: Study, count: int, random: np.random.Generator) -> tuple[Array, Array]:
    """Features (count, features) and targets, as `Records` have them, of one made-up world."""
    shared = random.normal(size=(count, _FACTORS))
    inputs = np.column_stack([_features(column, shared, random) for column in study.data.columns])
    return inputs, _targets(study.data.outcome, _predictor(inputs, random), random)


def _features(column: Column, shared: Array, random: np.random.Generator) -> Array:
    """One column's features, as `column_features` makes them of numbers and of 3 categories."""
    if not column.categories:
        return _number(shared, random)[:, None]
    shares = random.dirichlet(np.full(len(column.categories), 1.5))
    return np.asarray(np.eye(len(shares))[random.choice(len(shares), len(shared), p=shares)])


def _number(shared: Array, random: np.random.Generator) -> Array:
    """A number within its bounds, here -1 and 1, symmetrical or with a tail to one side."""
    values = shared @ random.normal(0, 0.5, _FACTORS) + random.normal(size=len(shared))
    values = values / values.std() * random.uniform(0.25, 0.6)
    if random.random() < 1 / 3:
        values = np.exp(2.0 * values) / 3.0 - 1.0
    return np.asarray(np.clip(values, -1.0, 1.0))


def _predictor(inputs: Array, random: np.random.Generator) -> Array:
    """What the target follows from: mean 0, and as wide as the world says."""
    features = inputs.shape[1]
    matters = random.random(features) < random.choice([0.25, 0.5, 1.0])
    signal = inputs @ (random.normal(size=features) * matters)
    spread = signal.std()
    if spread:
        signal = (signal - signal.mean()) / spread * random.uniform(0.6, 1.8)
    return np.asarray(signal)


def _targets(outcome: Outcome | None, signal: Array, random: np.random.Generator) -> Array:
    """Two classes, amounts, counts or times."""
    count = len(signal)
    if outcome is None:
        rate = random.uniform(*_RATES)
        chance = 1.0 / (1.0 + np.exp(-(signal + log(rate / (1 - rate)))))
        return (random.random(count) < chance).astype(np.float64)
    if outcome.kind == NUMERIC:
        low, high = outcome.low, outcome.high
        values = signal + random.normal(size=count)
        middle = low + (high - low) * random.uniform(0.3, 0.6)
        values = middle + (high - low) / 8 * values / values.std() * random.uniform(0.7, 1.3)
        return np.asarray(np.clip(values, low, high))
    if outcome.kind == COUNT:
        mean = outcome.high * random.uniform(*_COUNTS)
        shape = random.choice([1.0, 3.0, 100.0])  # the smaller, the more of them are large
        rates = mean * np.exp(np.minimum(0.7 * signal, 3.0)) * random.gamma(shape, 1 / shape, count)
        return np.minimum(random.poisson(rates).astype(np.float64), outcome.high)
    last = outcome.grid[-1]
    times = random.exponential(last * random.uniform(0.5, 3.0) * np.exp(-signal))
    left = random.uniform(0.2, 1.2, count) * last
    return np.column_stack([np.minimum(times, left), times <= left]).astype(np.float64)
