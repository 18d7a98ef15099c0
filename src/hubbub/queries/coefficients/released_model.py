"""A linear model on encoded columns as effects of these columns, which say the same of each record.

The model sees two classes as -1 and +1 and more as a number of 0 or 1 each, all but a reference, so
that there is more than one way to say the same; effects compare each class with the first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hubbub.planning import Parameters
from hubbub.tabular import Column, Levels


def covariates_of(columns: Sequence[Column]) -> tuple[Levels | Column, ...]:
    """The columns that a model sees, as covariates of a regression."""
    return tuple(Levels(column=column) if column.categories else column for column in columns)


def effects_of(columns: Sequence[Column], model: Parameters) -> Parameters:
    """The intercept and effects of a model with these weights, of records that lack no cell.

    Args:
        columns: that it sees, in order.
        model: (features + 1,) weights, and the bias at the end.

    Returns:
        (1 + effects,) in the order of `Covariates`: of numbers per half of their range, of classes
        against the first.
    """
    weights = model.astype(np.float64).tolist()
    constant, effects, begin = [weights[-1]], [], 0
    for column in columns:
        own = weights[begin : begin + column.width - column.indicator]
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
    return np.array([math.fsum(constant), *effects], dtype=np.float32)
