"""A loss law on a grid, from above and from below.

Theory of operation. Let the loss axis be divided into cells centred on multiples of a step h, the
cuts; cells may be wider in the tails. Both discretisations keep P-masses only; a law on the grid
then means H_a = sum of p_k (1 - a exp(-l_k))_+ plus the mass at +inf.

From above (docs/privacy.md P11, "connect the dots"): the P- and Q-mass of the interval between two
neighbouring cuts is moved to the two cuts so that both totals are kept. The result dominates.

From below (P12): outcomes are merged, from the largest loss downwards, until the loss of the merged
outcome is exactly on the next cut; the last outcome of a group is divided between two groups.
Merging and dividing are post-processing, so the result is dominated. The error is O(h^2) like that
of the upper law, where rounding every loss down would cost O(h).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import exp, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hubbub.core.privacy import laws, transform

Array = NDArray[np.float64]
Cuts = NDArray[np.int64]

_UNIT = 2.0**-53
_LARGE = 0.01  # a last group so large is placed in every way that there is
_MOVES = 3  # of the cuts towards such a group
_NEARLY = 0.999  # of a group's height: past its cut it would fall to the next


@dataclass(frozen=True, kw_only=True)
class GridLaw:
    """Masses `mass[k]` at the losses `offset + step * cuts[k]`, and `infinite` at +inf.

    `doubt` bounds the relative error of the P- and Q-masses of the bins they were made of.
    """

    step: float
    offset: float
    cuts: Cuts
    mass: Array
    infinite: float
    doubt: float

    @property
    def losses(self) -> Array:
        """The loss of every cut."""
        return np.asarray(self.offset + self.step * self.cuts, dtype=np.float64)

    def log_moment(self, order: float) -> float:
        """log of the sum of mass * exp(order * loss) over the finite losses."""
        with np.errstate(divide="ignore"):
            terms = np.log(self.mass) + order * self.losses
        top = float(terms.max())
        return top + float(np.log(np.exp(terms - top).sum()))


class Rest(NamedTuple):
    """Outcomes that did not reach the cut below them."""

    cut: int
    p: float
    q: float


def bracket(law: laws.Law, grid: transform.Grid, order: float) -> tuple[GridLaw, GridLaw]:
    """The law on the grid from below and from above, from one evaluation of its masses."""
    if isinstance(law, laws.Enclosed):
        return bracket(law.below, grid, order)[0], above(law.above, grid)
    losses, p, q = _bins(law, grid)
    merged, shift = _merged(losses, p, q, law.atom, order)
    below = replace(_on_grid(grid, p, q, merged, 0.0), offset=grid.offset + shift)
    return below, _above(law, grid, losses, p, q)


def above(law: laws.Law, grid: transform.Grid) -> GridLaw:
    """The law on the grid from above alone."""
    return _above(law, grid, *_bins(law, grid))


def _bins(law: laws.Law, grid: transform.Grid) -> tuple[Array, Array, Array]:
    """The losses of the cuts, and the masses between cuts and middles of cells."""
    # P12: merging is sharper for halves of what lies between two cuts; P11 joins them again.
    edges = np.empty(2 * grid.cuts.size - 1)
    edges[0::2], edges[1::2] = grid.cuts, (grid.cuts + grid.widths / 2)[:-1]
    edges = grid.offset + grid.step * edges
    return edges[0::2], *law.masses(np.concatenate([[-np.inf], edges, [np.inf]]))


def _above(law: laws.Law, grid: transform.Grid, losses: Array, p: Array, q: Array) -> GridLaw:
    """From above, with the mass that the law leaves out."""
    # P11: what the law leaves out, such as a slack, is a loss of +inf in every step.
    mass, infinite = _connected(losses, p, q, law.atom)
    return _on_grid(grid, p, q, mass, infinite + law.missing)


def _on_grid(grid: transform.Grid, p: Array, q: Array, mass: Array, infinite: float) -> GridLaw:
    """Masses at the cuts of a grid."""
    return GridLaw(
        step=grid.step,
        offset=grid.offset,
        cuts=grid.cuts,
        mass=mass,
        infinite=infinite,
        doubt=_doubt(p, q),
    )


def _doubt(p: Array, q: Array) -> float:
    """P13 (4): a mass is a few positive terms exp(-x), which err by about u (1 + x), relatively."""
    seen = np.concatenate([p[p > 0], q[q > 0]])
    exponent = -float(np.log(seen.min())) if seen.size else 0.0
    return 8 * _UNIT * (16 + exponent)


def _connected(losses: Array, p: Array, q: Array, atom: float) -> tuple[Array, float]:
    """P11: u + v = p and u exp(-l) + v exp(-l') = q on every interval [l, l'] between cuts."""
    inside_p = p[1:-1:2] + p[2:-1:2]
    inside_q = (q[1:-1:2] + q[2:-1:2]) * np.exp(losses[:-1])
    # Both parts are 0 at least (P11); only round-off could make one negative.
    right = np.clip((inside_p - inside_q) / -np.expm1(-np.diff(losses)), 0.0, inside_p)
    mass = np.zeros(losses.size)
    mass[1:] += right
    mass[:-1] += inside_p - right
    # P11: smaller losses count as this one, which is dearer.
    mass[0] += p[0]
    # P11: losses past the last cut go to it and to +inf, by the same rule.
    at_last = min(float(p[-1]), float(q[-1] * np.exp(losses[-1])))
    mass[-1] += at_last
    if atom > 0:
        mass[_zero(losses)] += atom
    return mass, float(p[-1]) - at_last


def _merged(losses: Array, p: Array, q: Array, atom: float, order: float) -> tuple[Array, float]:
    """P12: outcomes in order of falling loss, merged until their joint loss is exactly on a cut.

    Also by how much the cuts are moved.
    """
    # P12: what is below the first cut is left out.
    p, q = p[1:], q[1:]
    if atom > 0:
        place = 2 * _zero(losses)
        p, q = np.insert(p, place, atom), np.insert(q, place, atom)
    seen = (p > 0) & (q > 0)
    p, q = p[seen], q[seen]
    ratios = np.exp(losses)
    # P12 holds for any of these: ways to place the last group, merging from the other end, cuts
    # that are moved by as much as this group is above its own. The one that leaves most under the
    # tilt is best.
    falling, rest = _on_cuts(p, q, ratios)
    choices = [(_rounded_down(falling, rest), 0.0), (_lifted(falling, rest, ratios), 0.0)]
    if rest.p > _LARGE:
        mirrored, _ = _on_cuts(q[::-1], p[::-1], 1 / ratios[::-1])
        choices.append((mirrored[::-1] * ratios, 0.0))
        choices += _moved(losses, p, q, rest) if atom == 0 else []
    weight = np.exp(np.minimum(order * (losses - losses[-1]), 0.0))
    return max(choices, key=lambda one: float(one[0] @ weight) * exp(order * one[1]))


def _moved(losses: Array, p: Array, q: Array, rest: Rest) -> Iterator[tuple[Array, float]]:
    """Masses on cuts that are moved up towards a large last group, and by how much they are."""
    # Rounding it down costs every step as much as it is above its cut; of 10,000 steps with rare
    # large losses that is more than all else.
    shift = ratio = height = 0.0
    for _ in range(_MOVES):
        if rest.p <= _LARGE or rest.q <= 0:  # beyond what a float holds, no move reaches it
            return
        before, height = height, log(rest.p / rest.q) - float(losses[max(rest.cut, 0)]) - shift
        ratio = min(height / before, 0.5) if before > 0 else 0.0  # it falls as a geometric series
        shift += _NEARLY * height / (1 - ratio)
        mass, rest = _on_cuts(p, q, np.exp(losses + shift))
        yield _rounded_down(mass, rest), shift


def _on_cuts(p_masses: Array, q_masses: Array, targets: Array) -> tuple[Array, Rest]:
    """P-masses merged onto each ratio P/Q of `targets`; both sides in rising order of loss.

    Also what is left over: the P- and Q-mass of a last group whose loss is still above its cut.
    """
    # Not lists: they would take four times the memory. Not NumPy's: they are slow one by one.
    p, q, ratios = (array("d", one.tobytes()) for one in (p_masses, q_masses, targets))
    mass = array("d", bytes(8 * len(ratios)))
    cut = len(ratios) - 1
    surplus = gathered = 0.0  # P - ratio Q of the open group, and its P-mass
    while p and cut >= 0:
        one_p, one_q = p[-1], q[-1]
        difference = one_p - ratios[cut] * one_q
        if surplus + difference > 0:
            surplus, gathered = surplus + difference, gathered + one_p
            p.pop(), q.pop()
            continue
        # P12: as much of the next outcome as puts the group's log(P / Q) on the cut; the rest goes
        # on.
        share = -surplus / difference if difference else 1.0
        mass[cut] = gathered + share * one_p
        p[-1], q[-1] = (1 - share) * one_p, (1 - share) * one_q
        surplus = gathered = 0.0
        cut -= 1
    below = ratios[max(cut, 0)]
    return np.frombuffer(mass), Rest(cut=cut, p=gathered, q=(gathered - surplus) / below)


def _rounded_down(mass: Array, rest: Rest) -> Array:
    """The leftover at the cut below it."""
    if rest.cut < 0:
        return mass
    # P12: a smaller loss lowers the law at every threshold.
    return np.asarray(mass + rest.p * (np.arange(mass.size) == rest.cut))


def _lifted(mass: Array, rest: Rest, ratios: Array) -> Array:
    """The leftover at the cut above it: merged with as much from higher cuts as that takes."""
    # Where most outcomes lie within one cell, this is far better than rounding them down.
    target = rest.cut + 1
    if rest.cut < 0 or target >= mass.size:
        return mass
    above = mass[target + 1 :]
    # P12: how much P each higher cut has beyond what the target's ratio asks of its Q.
    worth = above * (1 - ratios[target] / ratios[target + 1 :])
    missing = ratios[target] * rest.q - rest.p
    before = np.concatenate([[0.0], np.cumsum(worth)])
    if before[-1] <= missing:
        return mass
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        share = np.where(worth > 0, np.clip((missing - before[:-1]) / worth, 0.0, 1.0), 0.0)
    moved = above * share
    lifted = mass.copy()
    lifted[target + 1 :] -= moved
    lifted[target] += rest.p + float(moved.sum())
    return lifted


def _zero(losses: Array) -> int:
    """The cut at loss zero, which a law with an atom is sure to have."""
    return int(np.flatnonzero(losses == 0)[0])
