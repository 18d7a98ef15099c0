"""A linear model on encoded columns as effects of these columns, which say the same of each record.

The model sees two classes as -1 and +1 and more as a number of 0 or 1 each, all but a reference, so
that there is more than one way to say the same; effects compare each class with the first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hubbub.core.planning.query import Parameters
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Levels


def covariates_of(columns: Sequence[Column]) -> tuple[Levels | Column, ...]:
    """The columns that a model sees, as covariates of a regression."""
    return tuple(Levels(column=column) if column.categories else column for column in columns)


def effects_of(columns: Sequence[Column], model: Parameters) -> Parameters:
    """The intercept and effects of a model with these weights, of records that lack no cell.

    Args:
        columns: that it sees, in order.
        model: (features + 1,) weights, and the bias at the end; of several classes (classes,
            features) weights and (classes,) biases, one after the other.

    Returns:
        (1 + effects,) in the order of `Covariates`: of numbers per half of their range, of classes
        against the first. Of several classes each with the effects on all of them but the first,
        over that one, side by side.
    """
    features = sum(column.width for column in columns)
    outputs = len(model) // (features + 1)
    weights, biases = np.split(model.astype(np.float64), [features * outputs])
    told = np.array(
        [
            _of_output(columns, [*own, bias])
            for own, bias in zip(
                weights.reshape(outputs, -1).tolist(), biases.tolist(), strict=True
            )
        ]
    )
    against = told if outputs == 1 else told[1:] - told[0]
    return against.T.ravel().astype(np.float32)


def _of_output(columns: Sequence[Column], weights: Sequence[float]) -> list[float]:
    """The same of one output's weights and bias."""
    constant, effects, begin = [weights[-1]], list[float](), 0
    for column in columns:
        own = list(weights[begin : begin + column.width - column.indicator])
        begin += column.width
        if column.reference:
            own.insert(column.reference_place, 0.0)
        if len(column.categories) == 2 and not column.reference:
            constant.append(-own[0])
            effects.append(2.0 * own[0])
        elif column.categories:
            constant.append(own[0])
            effects += [one - own[0] for one in own[1:]]
        else:
            effects += own
    return [math.fsum(constant), *effects]
