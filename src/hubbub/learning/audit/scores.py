"""What the sums of a training tell of each canary: scores, larger where its coin is likelier True.

A score is the logarithm of a ratio of two probabilities of all that was seen of a canary. The first
kind takes a study at its word: a coin of its own for each record and attempt. The others believe
that coins are tossed less often than is promised; of a sound study they tell less, and of one that
draws the same batch twice, or has one batch for ever, they tell more than they may.

Where noise is correlated (P25), what was seen is multiplied by C first: then noise is independent,
and a canary has added a multiple of C's column where its group had its turn. The account does
without the groups' secret, so the first kind knows them; the others do not, and see turns that
groups take out of order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

Array = NDArray[np.float64]
Groups = NDArray[np.intp]

# So many steps in a row have one coin; 0: all of them.
KINDS = (1, 2, 0)
_INDEPENDENT = np.ones(1)


def scores_of(
    seen: Array,
    noise: float,
    rate: float,
    *,
    exchanged: bool,
    same: int = 1,
    column: Array = _INDEPENDENT,
    groups: Groups | None = None,
) -> Array:
    """The scores of canaries.

    Args:
        seen: (steps, canaries) sums in units of C.
        noise: sigma / C that the adversary does not know.
        rate: with which chance a record is in a batch.
        exchanged: whether a canary is C against -C, or C against nothing.
        same: for how many steps a coin is believed to hold; 0 for all.
        column: first one of the matrix by which noise goes on over the steps (P25).
        groups: (canaries,) in which group each is, if that is known.
    """

    def likelihood(of: Array) -> Array:
        each = _of_groups(of, noise, rate, same, column)
        if groups is None:
            return np.asarray(logsumexp(each, axis=0) - np.log(len(each)))
        return np.asarray(np.take_along_axis(each, groups[None], axis=0)[0])

    return np.asarray(likelihood(seen) - (likelihood(-seen) if exchanged else 0.0))


def _of_groups(seen: Array, noise: float, rate: float, same: int, column: Array) -> Array:
    """log of how likely the sums are with a canary of each group, relative to without one."""
    turns = len(column)
    shifted, each = _shifted(seen, noise, column), min(1.0, turns * rate)
    return np.array([_with_coins(shifted[first::turns], each, same) for first in range(turns)])


def _with_coins(shifted: Array, rate: float, same: int) -> Array:
    """The sum over steps, a coin for so many of them deciding whether the canary is in."""
    if same != 1:
        starts = range(0, len(shifted), same) if same else [0]
        shifted = np.add.reduceat(shifted, list(starts), axis=0) if len(shifted) else shifted
    if rate < 1:
        shifted = np.logaddexp(np.log1p(-rate), np.log(rate) + shifted)
    return np.asarray(shifted.sum(axis=0))


def _shifted(seen: Array, noise: float, column: Array) -> Array:
    """log of the density of N(c, z^2) over that of N(0, z^2), c what a canary adds in each step."""
    steps, whole = len(seen), np.zeros_like(seen)
    for lag, one in enumerate(column[:steps]):
        whole[lag:] += one * seen[: steps - lag]
    shifted = np.zeros_like(seen)
    for lag, one in enumerate(column[:steps]):
        shifted[: steps - lag] += one * whole[lag:]
    squares = np.cumsum(column[:steps] ** 2)
    lengths = squares[np.minimum(np.arange(steps)[::-1], len(squares) - 1)]
    return np.asarray((2 * shifted - lengths[:, None]) / (2 * noise**2))


def kinds_of(steps: int) -> Sequence[int]:
    """The kinds of scores that differ in so many steps."""
    return KINDS[: min(steps, len(KINDS))]
