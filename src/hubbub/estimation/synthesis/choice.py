"""Which pairs are measured level by level, and in which order columns are drawn.

All of it follows from the noisy first sum, so it costs nothing. Columns are put in one by one, each
with its parents, on which it is drawn: the targets, and of the columns that are in already those on
which it depends most. Parents are all neighbours of each other, so a column and its parents are a
clique of a junction tree (a k-tree), whose tables stay small.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from hubbub.estimation.synthesis.components import Components
from hubbub.estimation.synthesis.design import Design

# Each pair makes all others noisier. With half of these, on splits that they were not chosen by,
# AUC at epsilon .5 was .000 to .014 less on five tables (docs/experiments.md).
_STANDS_OUT = 4.0  # standard deviations of the noise, for a dependency that a column is hung on
_SECOND = 10.0  # for a further parent
_MOST_CELLS = 2**14  # of a clique


@dataclass(frozen=True, kw_only=True)
class SpanningStep:
    """A column and those that it is drawn on."""

    column: int
    parents: tuple[int, ...]

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Of the column with each of its parents."""
        return tuple(
            (min(self.column, parent), max(self.column, parent)) for parent in self.parents
        )


@dataclass(frozen=True, kw_only=True)
class PairChoice:
    """In which order columns are drawn, each on its parents.

    Args:
        steps: the first column has no parents.
        scores: by how many standard deviations each pair's dependency stands out of the noise.
    """

    steps: tuple[SpanningStep, ...]
    scores: dict[tuple[int, int], float]

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """All that are measured level by level."""
        return tuple(sorted(pair for step in self.steps for pair in step.pairs))


def choose(design: Design, components: Components) -> PairChoice:
    """What follows from the components of the first sum."""
    excess, scores = _dependencies(components)
    many, steps = len(design.columns), []
    first = design.targets or (_most_dependent(many, excess),)
    for k, target in enumerate(first):
        steps.append(SpanningStep(column=target, parents=_fitting(design, target, first[:k])))
    inside, outside = list(first), [k for k in range(many) if k not in first]
    always = design.targets
    while outside:
        column, parent = _strongest(inside, outside, always, excess, scores)
        wanted = [*always] + ([parent] if parent is not None else [])
        if parent is not None:
            wanted += _further(column, parent, steps, always, excess, scores)
        steps.append(SpanningStep(column=column, parents=_fitting(design, column, wanted)))
        inside.append(column)
        outside.remove(column)
    return PairChoice(steps=tuple(steps), scores=scores)


def _dependencies(
    components: Components,
) -> tuple[dict[tuple[int, int], float], dict[tuple[int, int], float]]:
    """What each pair has beyond independence, squared and less its noise; and how it stands out."""
    excess, scores = {}, {}
    for pair in combinations(range(len(components.columns)), 2):
        effect = components.effect(pair)
        known = effect.known
        apart = (effect.value - components.expected(pair))[known]
        variance = effect.variance[known]
        excess[pair] = float(np.sum(apart**2 - variance))
        scores[pair] = excess[pair] / float(np.sqrt(2 * np.sum(variance**2)))
    return excess, scores


def _most_dependent(many: int, excess: dict[tuple[int, int], float]) -> int:
    """The column that depends most on the others."""
    total = np.zeros(many)
    for (a, b), one in excess.items():
        total[a] += max(one, 0.0)
        total[b] += max(one, 0.0)
    return int(np.argmax(total))


def _strongest(
    inside: list[int],
    outside: list[int],
    always: tuple[int, ...],
    excess: dict[tuple[int, int], float],
    scores: dict[tuple[int, int], float],
) -> tuple[int, int | None]:
    """The column that comes next, and on which it hangs; None where none stands out."""
    links = [(min(a, b), max(a, b), a, b) for a in inside if a not in always for b in outside]
    links = [link for link in links if scores[link[:2]] > _STANDS_OUT]
    if not links:
        return outside[0], None
    _, _, parent, column = max(links, key=lambda one: (excess[one[:2]], -one[0], -one[1]))
    return column, parent


def _further(
    column: int,
    parent: int,
    steps: list[SpanningStep],
    always: tuple[int, ...],
    excess: dict[tuple[int, int], float],
    scores: dict[tuple[int, int], float],
) -> list[int]:
    """One more of the parent's own parents, or none."""
    (step,) = (one for one in steps if one.column == parent)
    links = [(min(one, column), max(one, column)) for one in step.parents if one not in always]
    links = [link for link in links if scores[link] > _SECOND]
    best = max(links, key=lambda one: excess[one], default=None)
    return [] if best is None else [best[0] if best[1] == column else best[1]]


def _fitting(design: Design, column: int, wanted: list[int] | tuple[int, ...]) -> tuple[int, ...]:
    """As many of the wanted parents as a clique has room for, the first ones first."""
    cells, kept = design.columns[column].size, []
    for one in wanted:
        cells *= design.columns[one].size
        if cells > _MOST_CELLS:
            break
        kept.append(one)
    return tuple(kept)


def without_room(design: Design) -> tuple[str, ...]:
    """Columns that cannot be drawn on all targets, whose levels are too many together."""
    targets = design.targets
    return tuple(
        column.name
        for k, column in enumerate(design.columns)
        if len(others := [one for one in targets if one != k]) > len(_fitting(design, k, others))
    )
