"""Records made from what a study says in public: its columns, bounds, categories and target's kind.

Each draw is another world: how numbers are spread, how common categories are, how many features
matter and how much, how rare the outcome is. Settings that do well in most of them are what is
wanted; which of them is true is private.
"""

from __future__ import annotations

from math import log, prod

import numpy as np
from numpy.typing import NDArray

from hubbub.core.study.study import Study
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.outcome import COUNT, NUMERIC, Outcome
from hubbub.learning.study.training import learning_of

Array = NDArray[np.float64]
_FACTORS = 3  # hidden numbers of which columns have something in common
_GONE = 0.1  # of the cells of a column with an indicator
_RATES = (0.03, 0.5)  # of an outcome
_AROUND = 0.5  # of log-odds that a study states
_COUNTS = (0.02, 0.2)  # mean of a count, as a share of its bound


def made_up_records(
    study: Study, count: int, random: np.random.Generator
) -> tuple[Array, NDArray[np.generic]]:
    """Features (count, features) and targets, as `Records` have them, of one made-up world."""
    model, _ = learning_of(study)
    columns = [column for column in study.data.columns if column.feature]
    shared = random.normal(size=(count, _FACTORS))
    if columns:
        inputs = np.column_stack([_features(column, shared, random) for column in columns])
    else:
        inputs = np.column_stack([_number(shared, random) for _ in range(prod(model.inputs))])
    if study.data.standardise is not None:
        inputs = (inputs - inputs.mean(0)) / np.maximum(inputs.std(0), 0.05)
    return inputs, _targets(study, _predictor(inputs, random), random)


def _features(column: Column, shared: Array, random: np.random.Generator) -> Array:
    """One column's features, as `column_features` makes them."""
    count = len(shared)
    if column.categories:
        shares = random.dirichlet(np.full(len(column.categories), 1.5))
        if column.reference:
            shares *= random.uniform(0.02, 0.2) / (1.0 - shares[column.reference_place])
            shares[column.reference_place] += 1.0 - shares.sum()
        places = random.choice(len(shares), count, p=shares)
        features = np.eye(len(shares))[places] if len(shares) > 2 else (2.0 * places - 1.0)[:, None]
        if column.reference:
            features = np.delete(np.eye(len(shares))[places], column.reference_place, 1)
    else:
        features = _number(shared, random)[:, None]
    if column.indicator:
        features = np.column_stack([features, random.random(count) < _GONE])
    return np.asarray(features, dtype=np.float64)


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
    weights = random.normal(size=features) * matters
    signal = inputs @ weights
    spread = signal.std()
    if spread:
        signal = (signal - signal.mean()) / spread * random.uniform(0.6, 1.8)
    return np.asarray(signal)


def _targets(study: Study, signal: Array, random: np.random.Generator) -> NDArray[np.generic]:
    """Targets of the study's kind."""
    outcome, (model, _) = study.data.outcome, learning_of(study)
    if outcome is not None:
        return _outcomes(outcome, signal, random)
    if model.outputs == 1:
        rate = random.uniform(*_RATES)
        odds = log(rate / (1 - rate))
        if model.intercept:
            odds = model.intercept + random.uniform(-_AROUND, _AROUND)
        chance = 1.0 / (1.0 + np.exp(-(signal + odds)))
        return (random.random(len(signal)) < chance).astype(np.float64)
    turns = random.normal(size=(1, model.outputs))
    scores = signal[:, None] * turns + random.normal(size=(1, model.outputs))
    return np.asarray((scores + random.gumbel(size=scores.shape)).argmax(1), dtype=np.int64)


def _outcomes(outcome: Outcome, signal: Array, random: np.random.Generator) -> Array:
    count = len(signal)
    if outcome.is_log_link:
        mean = outcome.unit * random.uniform(0.5, 1.5)
        spread = random.uniform(0.6, 1.3)  # of logarithms; the wider, the longer the tail
        values = mean * np.exp(0.5 * signal + spread * random.normal(size=count))
        values *= random.random(count) > random.uniform(0.0, 0.5)
        return np.clip(values * mean / max(float(values.mean()), 1e-12), 0.0, outcome.high)
    if outcome.kind == NUMERIC:
        low, high = (outcome.low, outcome.high)
        ends = (log(low), log(high)) if outcome.is_log else (low, high)
        values = signal + random.normal(size=count)
        middle = ends[0] + (ends[1] - ends[0]) * random.uniform(0.3, 0.6)
        values = middle + (ends[1] - ends[0]) / 8 * values / values.std() * random.uniform(0.7, 1.3)
        return np.asarray(np.clip(np.exp(values) if outcome.is_log else values, low, high))
    if outcome.kind == COUNT:
        mean = outcome.high * random.uniform(*_COUNTS)
        longest = outcome.exposure_high
        parts = random.uniform(0.05, 1.0, count) if longest else np.ones(count)
        if outcome.mean is not None:
            mean = outcome.mean * (longest or 1.0) * random.uniform(0.6, 1.6)
        shape = random.choice([1.0, 3.0, 100.0])  # the smaller, the more of them are large
        rates = mean * np.exp(np.minimum(0.7 * signal, 3.0)) * random.gamma(shape, 1 / shape, count)
        counts = np.minimum(random.poisson(rates * parts).astype(np.float64), outcome.high)
        return np.column_stack([counts, longest * parts]) if longest else counts
    last = outcome.grid[-1]
    times = random.exponential(last * random.uniform(0.5, 3.0) * np.exp(-signal))
    left = random.uniform(0.2, 1.2, count) * last
    return np.column_stack([np.minimum(times, left), times <= left]).astype(np.float64)
