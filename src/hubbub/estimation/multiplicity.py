"""P-values of several questions taken as one family, after Holm (1979).

With m p-values in rising order, the k-th is multiplied by m - k + 1, and none is smaller than one
before it. The chance that any true null hypothesis is rejected is then at most the level, however
the tests depend on one another: sums that share their noise do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from hubbub.estimation.statistic import Answer


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values, as many.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    risen = np.asarray(p_values)[order] * np.arange(len(order), 0, -1)
    found = np.empty(len(order))
    found[order] = np.minimum(np.maximum.accumulate(risen), 1.0)
    return [float(one) for one in found]


def adjusted(answers: Mapping[str, Answer], family: Sequence[str]) -> dict[str, Answer]:
    """The answers, all p-values of those that are named adjusted as one family."""
    told = [
        p_value
        for name in family
        for p_value in (
            *(row.p_value for row in answers[name].rows),
            *(test.p_value for test in answers[name].tests),
        )
        if p_value is not None
    ]
    left = iter(holm(told))
    answers_adjusted = dict(answers)
    for name in family:
        answer = answers[name]
        rows = tuple(
            row if row.p_value is None else replace(row, p_adjusted=next(left))
            for row in answer.rows
        )
        tests = tuple(replace(test, p_adjusted=next(left)) for test in answer.tests)
        answers_adjusted[name] = replace(answer, rows=rows, tests=tests)
    return answers_adjusted
