"""What noise alone will do to synthetic records, said before any record is touched.

It follows from the layout, the noise and the public number of records. The pairs that will be
chosen are not known: as many are taken as are usual, those with the targets and a chain of others.
What noise makes of a pair is drawn in towards independence later on, so it is rather less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hubbub.estimation.synthesis.components import Components, components_of
from hubbub.estimation.synthesis.design import Design, Key
from hubbub.estimation.synthesis.share_intervals import expected_variation

_FINE = 0.1  # total variation by noise from which a column's levels are too fine
_FINE_PAIR = 0.4  # and from which a pair with a target says little


@dataclass(frozen=True, kw_only=True)
class Foreseen:
    """What noise alone makes of synthetic records.

    Args:
        column: mean total variation of a column's shares.
        pair: the same of a pair that is measured level by level.
        too_fine: columns whose levels are too many for the noise.
    """

    column: float
    pair: float
    too_fine: tuple[str, ...]


def foreseen(design: Design, sigma: float, records: int) -> Foreseen:
    """What may be said with so many records and this noise in each number of a sum."""
    chosen = usual_pairs(design)
    sums = [np.zeros(design.size)] * design.rounds
    later = [design.later(chosen)] * (design.rounds - 1)
    components = components_of(design, sums, sigma, blocks=[design.first, *later])
    alone = {k: _variation(components, (k,), records) for k in range(len(design.columns))}
    pairs = {pair: _variation(components, pair, records) for pair in chosen}
    fine = {k for k, one in alone.items() if one > _FINE}
    for pair, one in pairs.items():
        if one > _FINE_PAIR and set(pair) & set(design.targets):
            fine |= set(pair) - set(design.targets)
    return Foreseen(
        column=float(np.mean(list(alone.values()))),
        pair=float(np.mean(list(pairs.values()))),
        too_fine=tuple(design.columns[k].name for k in sorted(fine)),
    )


def usual_pairs(design: Design) -> tuple[tuple[int, int], ...]:
    """Of each column with each target, and a chain of the others."""
    many = range(len(design.columns))
    others = [k for k in many if k not in design.targets]
    stars = [(min(t, k), max(t, k)) for t in design.targets for k in many if k != t]
    return tuple(sorted({*stars, *pairwise(others)}))


def _variation(components: Components, key: Key, records: int) -> float:
    """The total variation that noise is expected to make of a column's or a pair's shares."""
    contrasts: Sequence[np.ndarray] = [components.columns[k].contrasts for k in key]
    noise = components.by[key].variance
    if len(key) == 1:
        return expected_variation(contrasts[0] ** 2 @ noise, records)
    spread = contrasts[0] ** 2 @ noise @ (contrasts[1] ** 2).T
    for k, other in ((0, 1), (1, 0)):
        mine = contrasts[k] ** 2 @ components.by[(key[k],)].variance
        spread = spread + np.expand_dims(mine, other) / len(contrasts[other]) ** 2
    return expected_variation(spread, records)
