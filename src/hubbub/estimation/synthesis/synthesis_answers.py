"""What synthetic records say beside the noisy sums that they are made of, for people."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hubbub.estimation.statistic import Answer, Estimate
from hubbub.estimation.synthesis import share_intervals
from hubbub.estimation.synthesis.release import SyntheticData

KIND, TWO_WAY = "synthetic", "two-way"
_MOST_TABLES = 8  # two-way tables that are shown
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
        "synthetic tables": _two_way(data, confidence),
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
    chosen, rows = _chosen(data), []
    others = [pair for pair in data.choice.scores if pair not in chosen]
    for pair in (*chosen, *others):
        apart, noise = _variation(data, pair)
        how = "whole" if pair in chosen else "in groups of levels"
        score = data.choice.scores[pair]
        level = f"{how}, dependency {score:.1f} standard deviations over noise"
        rows += [
            _plain("share", _pair_name(data, pair), level, "apart", apart),
            _plain("share", _pair_name(data, pair), level, "noise alone", noise),
        ]
    return Answer(
        kind=KIND,
        title="Pairs of columns: total variation between synthetic records and the noisy sums",
        confidence=confidence,
        rows=tuple(rows),
        notes=(
            f"{len(chosen)} of {len(data.design.pairs)} pairs were measured level by level: each "
            "column with the targets, and with those on which the first noisy sum says it depends "
            "most",
            "model-dependent is what rests on another pair, or on three columns or more",
        ),
    )


def _two_way(data: SyntheticData, confidence: float) -> Answer:
    """Tables of pairs that were measured: each cell by the sums, and in the model."""
    shown, inside = _chosen(data)[:_MOST_TABLES], 0
    rows: list[Estimate] = []
    for pair in shown:
        found = share_intervals.two_way(
            data.components, pair, confidence, models=data.model.pairs[pair][None]
        )
        a, b = (data.design.columns[k] for k in pair)
        for i, one in enumerate(a.names):
            for j, other in enumerate(b.names):
                share, drawn = found[i][j], float(data.model.pairs[pair][i, j])
                inside += share.low <= drawn <= share.high
                down, across = (one, other) if a.size >= b.size else (other, one)
                rows += _cell(_pair_name(data, pair), (down, across), share, drawn)
    cells = len(rows) // 2
    return Answer(
        kind=TWO_WAY,
        title="Two-way tables: shares by the noisy sums; in synthetic records",
        confidence=confidence,
        rows=tuple(rows),
        notes=(
            f"of {cells} cells the synthetic share is inside the interval of the sums in {inside}",
            f"these are {len(shown)} of {len(_chosen(data))} pairs that were measured level by "
            "level, those with a target first, then those that depend most; pair_shares has all",
        ),
    )


def _cell(
    name: str, levels: tuple[str, str], share: share_intervals.Share, drawn: float
) -> tuple[Estimate, Estimate]:
    """A cell by the sums, and in the model; levels down and across."""
    measured = Estimate(
        quantity="share",
        column=name,
        level=levels[1],
        group=levels[0],
        value=share.value,
        standard_error=share.standard_error,
        low=share.low,
        high=share.high,
    )
    return measured, _plain("share", name, levels[1], levels[0], drawn)


def _chosen(data: SyntheticData) -> list[tuple[int, int]]:
    """Pairs that were measured level by level, those with a target first, by their dependency."""
    targets, scores = set(data.design.targets), data.choice.scores
    return sorted(data.choice.pairs, key=lambda one: (not targets & set(one), -scores[one]))


def _pair_name(data: SyntheticData, pair: tuple[int, int]) -> str:
    """What a pair is called: the column with more levels first, as tables have it down."""
    a, b = (data.design.columns[k] for k in pair)
    return f"{a.name} and {b.name}" if a.size >= b.size else f"{b.name} and {a.name}"


def _order(data: SyntheticData) -> list[tuple[str, list[str]]]:
    names = [column.name for column in data.design.columns]
    return [(names[step.column], [names[k] for k in step.parents]) for step in data.choice.steps]


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
