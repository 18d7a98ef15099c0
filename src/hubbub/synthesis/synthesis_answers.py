"""What synthetic records say beside the noisy sums that they are made of, for people."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hubbub.estimation import Answer, Estimate
from hubbub.synthesis import share_intervals
from hubbub.synthesis.release import SyntheticData

KIND = "synthetic"
# The sentence that stands wherever records are handed out.
CAUTION = (
    "these records are made up from noisy sums: intervals that an analysis of one such table "
    "prints leave the noise out and are too narrow (a 95 % interval held the truth in 40 to 84 of "
    "100 cases); use the shares with intervals, or combine the same analysis of twenty tables"
)
_NOT_FOR = (
    "not for decisions about single people, nor for how three or more columns depend on each "
    "other, which was not measured: such results depend on the model"
)


def answers_of(data: SyntheticData, confidence: float = 0.95) -> dict[str, Answer]:
    """One-way comparisons with the noisy sums, and which pairs were measured and how well."""
    return {
        "synthetic records": _one_way(data, confidence),
        "synthetic pairs": _pairs(data, confidence),
    }


def _one_way(data: SyntheticData, confidence: float) -> Answer:
    """Every level's share by the sums, and in the model that records are drawn from."""
    rows = []
    for k, column in enumerate(data.design.columns):
        (clique,) = (one for one in data.model.cliques if one.step.column == k)
        drawn = clique.marginal((k,))
        measured = share_intervals.one_way(data.components, k, confidence)
        for level, share, value in zip(column.names, measured, drawn, strict=True):
            rows += [
                Estimate(
                    quantity="share",
                    column=column.name,
                    level=level,
                    group="measured",
                    value=share.value,
                    standard_error=share.standard_error,
                    low=share.low,
                    high=share.high,
                ),
                _plain("share", column.name, level, "synthetic", float(value)),
            ]
    order = ", ".join(
        name if not given else f"{name} given {' and '.join(given)}" for name, given in _order(data)
    )
    return Answer(
        kind=KIND,
        title="Synthetic records beside the noisy sums",
        confidence=confidence,
        rows=tuple(rows),
        notes=(CAUTION, _NOT_FOR, f"columns are drawn in this order: {order}"),
    )


def _pairs(data: SyntheticData, confidence: float) -> Answer:
    """How far synthetic pairs are from the noisy sums, and how far noise alone would bring them."""
    names = [one.name for one in data.design.columns]
    chosen, rows = set(data.choice.pairs), []
    for (a, b), score in data.choice.scores.items():
        apart, noise = _variation(data, (a, b))
        what = f"{names[a]} and {names[b]}"
        how = "whole" if (a, b) in chosen else "in groups of levels"
        level = f"{how}, dependency {score:.1f} standard deviations over noise"
        rows += [
            _plain("share", what, level, "apart", apart),
            _plain("share", what, level, "noise alone", noise),
        ]
    whole = len(chosen)
    return Answer(
        kind=KIND,
        title="Pairs of columns: total variation between synthetic records and the noisy sums",
        confidence=confidence,
        rows=tuple(rows),
        notes=(
            f"{whole} of {len(data.design.pairs)} pairs were measured level by level: each column "
            "with the targets, and with those on which the first noisy sum says it depends most",
        ),
    )


def _order(data: SyntheticData) -> list[tuple[str, list[str]]]:
    names = [one.name for one in data.design.columns]
    return [(names[one.column], [names[k] for k in one.parents]) for one in data.choice.steps]


def _variation(data: SyntheticData, pair: tuple[int, int]) -> tuple[float, float]:
    """Between model and sums, at what was measured of a pair, and what noise explains of it."""
    components, (first, second) = (
        data.components,
        (data.design.columns[k].contrasts for k in pair),
    )
    effect, many = components.effect(pair), components.records
    modelled = first.T @ data.model.pairs[pair] @ second
    apart = np.where(effect.known, effect.value / many - modelled, 0.0)
    noise = np.where(effect.known, effect.variance, 0.0)
    cells: NDArray[np.float64] = first @ apart @ second.T
    spread = first**2 @ noise @ (second**2).T
    return (
        0.5 * float(np.abs(cells).sum()),
        share_intervals.expected_variation(spread, many),
    )


def _plain(quantity: str, column: str, level: str, group: str, value: float) -> Estimate:
    """A number without an interval."""
    return Estimate(
        quantity=quantity,
        column=column,
        level=level,
        group=group,
        value=value,
        standard_error=0.0,
        low=value,
        high=value,
    )
