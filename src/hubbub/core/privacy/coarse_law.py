"""A coarse sketch of a step's law: some 1500 atoms, for which cumulants are cheap.

Where to look is read off it (`fft_window.py`); nothing that is certified rests on it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import floor, log10, nan

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import StudyError
from hubbub.core.privacy.effort import spend
from hubbub.core.privacy.laws import Law, work_of

Array = NDArray[np.float64]

ORDERS = np.geomspace(1e-4, 1e8, 361)  # among which frames are chosen
FEW = 8  # of them that are worked on together: what they need is in a cache
_ATOMS = 1500
_FEWEST_ATOMS = 150
_DEAR = 30.0  # see `work_of`
_TAIL = 1e-26  # P-mass outside the sketch; the range of the grid is the same
_CUT = 1e-4  # share of delta that all steps may leave outside their coarse_laws
_LOG_NOTHING = 60.0
_LOG_ZERO = -746.0  # exp() of less is zero
_LARGEST_LOSS = 600.0  # of a grid: exp() of it is finite; what is beyond goes to the ends or +inf


@dataclass(frozen=True, kw_only=True)
class CoarseLaw:
    """A step's law as few atoms, how often it happens, and the edges it was drawn from."""

    count: int
    loss: Array
    mass: Array
    low: float
    high: float
    atom: bool
    once: Array  # of one step, at the orders among which frames are chosen; NaN until asked for

    def cumulants(self, orders: Array) -> Array:
        """log E exp(order * L) for every order, times the count."""
        return np.asarray(self.count * _cumulants_of(self.loss, self.mass, orders))

    def at(self, some: slice) -> Array:
        """`cumulants` at some of the orders among which frames are chosen; they are kept."""
        kept = self.once[some]
        if (new := np.isnan(kept)).any():
            kept[new] = _cumulants_of(self.loss, self.mass, ORDERS[some][new])
        return np.asarray(self.count * kept)

    def lowest(self, order: float) -> float:
        """The least loss for which a grid has a cell: under the tilt nothing lies below it.

        What does counts as this loss above, and not at all below; either way it is e^-60 of the
        tilted mass.
        """
        if order <= 0:
            return self.low
        moment = float(self.cumulants(np.array([order]))[0]) / self.count
        return max(self.low, min((moment - _LOG_NOTHING) / order, self.high))

    def tilted(self, order: float) -> Array:
        """Masses under the tilt, summing to one."""
        exponent = order * self.loss + np.log(self.mass)
        weight = np.exp(exponent - exponent.max())
        return np.asarray(weight / weight.sum())


def coarse_law_of(law: Law, count: int, tail: float = _TAIL, atoms: int = _ATOMS) -> CoarseLaw:
    """A law's coarse atoms, for so many steps, without losses of less probability than `tail`."""
    return replace(_coarse(law, tail, atoms), count=count)


def atoms_for(laws: int) -> int:
    """Of each sketch, where there are so many."""
    return max(_FEWEST_ATOMS, min(_ATOMS, 20 * _ATOMS // laws))


def tail_for(delta: float, count: int) -> float:
    """The probability of losses of one step, among so many, that are nothing beside delta."""
    level = floor(log10(_CUT * delta / count))  # few values: coarse_laws are kept
    return 10.0 ** max(level, -40)


@lru_cache(maxsize=32)  # a run asks for the same law after every number of its steps
def _coarse(law: Law, tail: float, atoms: int) -> CoarseLaw:
    """The atoms of one step; a third as many of a law that is dear."""
    if work_of(law) > _DEAR:
        atoms = max(_FEWEST_ATOMS, atoms // 3)
    spend(ORDERS.size * atoms / 50 + atoms * work_of(law))
    edges = law.quantiles(tail, atoms)
    p, q = law.masses(np.concatenate([[-np.inf], edges, [np.inf]]))
    seen = (p > 1e-300) & (q > 1e-300)
    loss, mass = np.log(p[seen] / q[seen]), p[seen]
    if law.atom > 0:
        loss, mass = np.append(loss, 0.0), np.append(mass, law.atom)
    if not loss.size:
        raise StudyError(
            "expected losses that a float can hold, got larger ones in every outcome; add noise: "
            "so little hides nothing"
        )
    rank = np.argsort(loss)
    return CoarseLaw(
        count=1,
        loss=loss[rank],
        mass=mass[rank],
        once=np.full(ORDERS.size, nan),
        low=max(float(edges[0]), -_LARGEST_LOSS),
        high=min(float(edges[-1]), _LARGEST_LOSS),
        atom=law.atom > 0,
    )


def _cumulants_of(loss: Array, mass: Array, orders: Array) -> Array:
    """log E exp(order * L) of one step, for every order; few at a time, which a cache holds."""
    few = (orders[first : first + FEW] for first in range(0, orders.size, FEW))
    return np.concatenate([_log_moments(loss, np.log(mass), some) for some in few])


def _log_moments(loss: Array, log_mass: Array, orders: Array) -> Array:
    """The same; exp() is not asked for what it would make zero of, which takes it longest."""
    exponent = np.outer(orders, loss)
    exponent += log_mass
    top = exponent.max(axis=1)
    exponent -= top[:, None]
    terms = np.exp(exponent, where=exponent > _LOG_ZERO, out=np.zeros_like(exponent))
    return np.asarray(top + np.log(terms.sum(axis=1)))
