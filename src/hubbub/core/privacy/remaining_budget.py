"""What a budget still allows after a study, whatever is chosen next (docs/privacy.md P24).

A `RemainingBudget` says that later studies together may cost as much as one Gaussian step of its
shift, and its delta beside. A study is let in if it and a smaller one come to no more than the one
before it, at every threshold and in both directions. This file knows no ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp, inf, sqrt
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import StudyError
from hubbub.core.privacy import accountant, arguments, certificate, dominating_pairs
from hubbub.core.privacy.dominating_pairs import Release, Step
from hubbub.core.privacy.laws import ExchangedRecord, Law, Removal, Reversed

Array = NDArray[np.float64]

_KEPT = 0.2  # of the cap's delta, for the rare large losses of later studies
_SHARE = 0.25  # of what is left of that, for one study
_FINEST = 1e-5  # of the cap's delta: rarer losses are counted as certain
_EVEN, _FINE = 100, 40  # losses at which a study's law is known
_LOOKS = 120  # thresholds at which two curves are compared
_SOME = 8  # of these one in so many is looked at first, which refuses quickly
_HALVINGS = 13  # of the square of a shift
_CERTIFIED = (1e-3, 1e-2)  # of epsilon and of delta: kept for certificates (P4 to P6)
_CAREFUL = 1 + 1e-9  # for round-off in sums of about 500 positive terms


@dataclass(frozen=True, kw_only=True)
class RemainingBudget:
    """What later studies may cost: a Gaussian step of `shift`, and `delta` beside it.

    Args:
        shift: of the mean, in standard deviations; 0 or more.
        delta: probability that is left for losses which that step does not have.
        steps: of the cap's reference law that no study has taken; 0 without one.
    """

    shift: float
    delta: float
    steps: int = 0

    def __post_init__(self) -> None:
        arguments.within("shift", self.shift, least=0.0, most=1e6)
        arguments.within("delta", self.delta, least=0.0, most=1.0)
        arguments.whole("steps", self.steps, least=0, most=arguments.MOST_STEPS)

    def after(self, study: StudyLaw, taken: int = 0) -> RemainingBudget | None:
        """What is left once a study is let in; None if there is no room for it (P24).

        Args:
            study: what of it the reference law does not dominate.
            taken: how many steps of that law the rest takes.
        """
        of_law = self.steps - taken
        if study.is_gaussian:
            # P24: squares of Gaussian shifts add up exactly, whenever they were chosen.
            square = self.shift**2 - study.shift**2
            if square < 0:
                return None
            return RemainingBudget(shift=sqrt(square), delta=self.delta, steps=of_law)
        # P24: d - d', which pays for losses of the study beyond all that a Gaussian step has.
        share = _SHARE * self.delta
        # P24 (2) holds past these: the left side is below d - d' there, the right side never.
        levels = study.levels(self.shift, share)
        if levels is None:
            return None
        # P24 (2): what the study and the rest may come to, at every threshold.
        room = _Convex(share + gaussian_deltas(self.shift, levels), _slopes(self.shift, levels))
        steps = np.diff(np.exp(levels))

        def fits(shift: float) -> bool:
            some = study.deltas(shift, levels[::_SOME])
            return bool(np.all(some <= room.values[::_SOME])) and room.is_above(
                study.deltas(shift, levels), steps
            )

        # From budget to budget a study takes nearly the same square: the search begins there.
        near = self.shift**2 - _TAKEN.get(study, self.shift**2 / 2)
        left = _largest(fits, self.shift, _HALVINGS, near)
        if left is None:
            return None
        _TAKEN[study] = self.shift**2 - left**2
        return RemainingBudget(shift=left, delta=self.delta - share, steps=of_law)


def kept_for_certificates(epsilon: float, delta: float) -> certificate.Certificate:
    """The most that certificates may add to (epsilon, delta), over all studies."""
    part, share = _CERTIFIED[0] * epsilon, _CERTIFIED[1] * delta
    return certificate.Certificate(epsilon=part, failure=share, delta_factor=exp(part))


def first_remaining_budget(study: StudyLaw, epsilon: float, delta: float) -> RemainingBudget | None:
    """What is left of (epsilon, delta) after what was fixed before any output; None if nothing is.

    Only this one point of the curve has to be kept: nothing was chosen because of outputs.
    """
    certified = kept_for_certificates(epsilon, delta)
    ideal = certified.ideal_delta(delta, epsilon)
    # P24 (1): at this threshold alone, as nothing was seen before.
    at = np.array([epsilon - certified.epsilon])
    over = ideal - float(study.deltas(0.0, at)[0])
    if over < 0:
        return None
    # P24: d, or what (1) leaves room for.
    kept = min(_KEPT * ideal, over)

    def fits(shift: float) -> bool:
        return float(study.deltas(shift, at)[0]) + kept <= ideal

    most = 1.0
    while fits(most):
        most *= 2
    return RemainingBudget(shift=_largest(fits, most, 40, most**2 / 2) or 0.0, delta=kept)


@dataclass(frozen=True, kw_only=True, eq=False)
class StudyLaw:
    """A law that dominates a study: losses and masses in each direction, and a Gaussian step.

    Args:
        shift: of all of its steps that are not sampled, together.
        ways: for removal and for addition, losses, P-masses and the mass at +inf.
    """

    shift: float
    ways: tuple[tuple[Array, Array, float], ...]

    @classmethod
    def of(cls, releases: Iterable[dominating_pairs.Release], delta: float) -> StudyLaw:
        """The law of releases, as far out as a budget of this delta needs it."""
        return _law_of(tuple(releases), _FINEST * delta)

    @property
    def is_gaussian(self) -> bool:
        """Whether there are no other steps.

        One loss is all that steps past `MOST_LOSS` have, too: there it is infinite.
        """
        return all(
            losses.tolist() == [0.0] and masses.tolist() == [1.0] and at_once == 0.0
            for losses, masses, at_once in self.ways
        )

    def deltas(self, shift: float, levels: Array) -> Array:
        """Upper deltas of it and a Gaussian step of `shift`, in the worse direction."""
        whole = sqrt(shift**2 + self.shift**2)
        curves = [
            at_once + gaussian_deltas(whole, levels[:, None] - losses) @ masses
            for losses, masses, at_once in self.ways
        ]
        return np.asarray(np.max(curves, axis=0) * _CAREFUL)

    def levels(self, shift: float, share: float) -> Array | None:
        """From 0 to where it and a Gaussian step of `shift` have a delta of a share; or None."""
        low, high = 0.0, max(float(losses[-1]) for losses, _, _ in self.ways) + 1.0
        while self.deltas(shift, np.array([high]))[0] > share:
            low, high = high, 2 * high
            if high > 2 * arguments.MOST_LOSS:
                return None
        for _ in range(8):
            middle = (low + high) / 2
            enough = self.deltas(shift, np.array([middle]))[0] <= share
            low, high = (low, middle) if enough else (middle, high)
        return np.linspace(0.0, high, _LOOKS)


_TAKEN: WeakKeyDictionary[StudyLaw, float] = WeakKeyDictionary()  # of a budget's square, last


@lru_cache(maxsize=256)
def _law_of(releases: tuple[dominating_pairs.Release, ...], finest: float) -> StudyLaw:
    """See `StudyLaw.of`."""
    square = sum(
        release.count * release.gaussian**2 for release in releases if release.gaussian is not None
    )
    sampled = [release for release in releases if release.gaussian is None]
    nothing = (np.zeros(1), np.ones(1), 0.0)
    ways: tuple[tuple[Array, Array, float], ...] = (nothing, nothing)
    if sampled:
        whole = accountant.Composition(sampled)
        levels = _losses(min(whole.estimate(finest), arguments.MOST_LOSS))
        # P24: two upper curves, one sharp far out, one where delta is large: the lower counts.
        near = np.minimum(whole.profiles(levels, near=finest), whole.profiles(levels, near=0.01))
        ways = (_connected(levels, near[0], near[-1]), _connected(levels, near[-1], near[0]))
    return StudyLaw(shift=sqrt(square), ways=ways)


def _losses(most: float) -> Array:
    """Losses from 0 to where hardly any are beyond: even ones, and fine ones near 0."""
    fine = np.geomspace(1e-4 * most, most, _FINE)
    return np.unique(np.concatenate([np.linspace(0.0, most, _EVEN), fine]))


def _connected(levels: Array, forth: Array, back: Array) -> tuple[Array, Array, float]:
    """The law whose curve joins upper deltas at the levels by straight lines in e^epsilon (P11)."""
    # T1: below e^0 the curve is the reversal of the other direction's.
    inverse = np.exp(-levels[:0:-1])
    below = 1 - inverse + inverse * back[:0:-1]
    thresholds = np.concatenate([[0.0], inverse, np.exp(levels)])
    deltas = np.concatenate([[1.0], below, forth])
    # T1: at e^0 both directions have one delta, so the smaller bound holds for both.
    deltas[inverse.size + 1] = min(forth[0], back[0])
    # P24: the true curve is convex and below all points, so it is below their lower hull.
    kept = _lower_hull(thresholds, np.minimum(deltas, 1.0))
    thresholds, deltas = thresholds[kept], deltas[kept]
    slopes = np.append(np.diff(deltas) / np.diff(thresholds), 0.0)
    masses = np.maximum(np.diff(slopes), 0.0) * thresholds[1:]
    return np.log(thresholds[1:]), masses, float(deltas[-1])


def _lower_hull(across: Array, up: Array) -> list[int]:
    """Which points are on the greatest convex curve that is nowhere above them."""
    kept: list[int] = []
    for index in range(across.size):
        while len(kept) > 1 and not _turns(across, up, kept[-2], kept[-1], index):
            kept.pop()
        kept.append(index)
    return kept


def _turns(across: Array, up: Array, first: int, second: int, third: int) -> bool:
    """Whether the way from the first point to the third passes above the second."""
    rise = (up[second] - up[first]) * (across[third] - across[first])
    return bool(rise < (up[third] - up[first]) * (across[second] - across[first]))


def gaussian_deltas(shift: float, levels: Array) -> Array:
    """delta at many epsilons, also below 0, of N(shift) against N(0); `shift` may be 0."""
    from scipy.special import log_ndtr, ndtr  # which takes long to import

    if shift == 0:
        return np.asarray(-np.expm1(np.minimum(levels, 0.0)))
    far = levels / shift + shift / 2
    return np.asarray(
        np.maximum(ndtr(shift - far) - np.exp(np.minimum(levels + log_ndtr(-far), 0.0)), 0.0)
    )


def _slopes(shift: float, levels: Array) -> Array:
    """Derivatives of `gaussian_deltas` in e^epsilon."""
    from scipy.special import ndtr

    if shift == 0:
        return np.zeros_like(levels)
    return np.asarray(-ndtr(-levels / shift - shift / 2))


@dataclass(frozen=True, eq=False)
class _Convex:
    """A convex curve, by its values and slopes at thresholds."""

    values: Array
    slopes: Array

    def is_above(self, other: Array, steps: Array) -> bool:
        """Whether it is nowhere below another convex curve, and there no longer grows."""
        # Between two thresholds the other one is at most its chord, and this one at least its
        # tangents, which are nearest to the chord where they meet.
        left, right = self.values[:-1], self.values[1:]
        falls, rises = self.slopes[:-1], self.slopes[1:]
        turn = rises - falls
        with np.errstate(divide="ignore", invalid="ignore"):
            meet = np.where(turn > 0, (left - right + rises * steps) / turn, 0.0)
        meet = np.clip(meet, 0.0, steps)
        chord = other[:-1] + np.diff(other) * (meet / steps)
        tangent = np.maximum(left + falls * meet, right - rises * (steps - meet))
        return bool(np.all(other <= self.values) and np.all(chord <= tangent))


def _largest(
    fits: Callable[[float], bool], most: float, halvings: int, near: float
) -> float | None:
    """The largest shift up to `most` that fits, from below; None if 0 does not.

    Args:
        fits: holds up to some shift, and for none above.
        halvings: of the square of `most`.
        near: a guess at the square of the shift; where it is good, few shifts are tried.
    """
    cells = 2**halvings

    def holds(place: int) -> bool:
        return place < 0 or (place < cells and fits(most * sqrt(place / cells)))

    low = high = min(max(int(near / most**2 * cells), 0), cells) if most else 0
    width = 1
    if holds(low):
        while holds(high := low + width):
            low, width = high, 2 * width
    else:
        while not holds(low := max(high - width, 0 if high else -1)):
            high, width = low, 2 * width
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return None if low < 0 else most * sqrt(low / cells)


def remaining(laws: Sequence[StudyLaw], epsilon: float, delta: float) -> RemainingBudget | None:
    """What a budget leaves after these studies, one after the other; None if it has no room."""
    left = first_remaining_budget(laws[0], epsilon, delta)
    for law in laws[1:]:
        left = None if left is None else left.after(law)
    return left


@lru_cache(maxsize=256)  # ledgers of one process often hold the same
def least_epsilon(laws: tuple[StudyLaw, ...], delta: float, *, least: float) -> float:
    """The least epsilon from `least` on, to about 0.2 %, that has room for all of these studies.

    inf past what may be asked for.
    """
    low = high = max(least, 1e-3)
    while remaining(laws, high, delta) is None:
        if high >= arguments.MOST_EPSILON:
            return inf
        low, high = high, min(1.25 * high, arguments.MOST_EPSILON)
    while high > 1.002 * low:
        middle = sqrt(low * high)
        fits = remaining(laws, middle, delta) is not None
        low, high = (low, middle) if fits else (middle, high)
    return high


# A law that a cap keeps room for, so that studies it dominates cost nothing for being chosen late.
#
# The rule and its proof are docs/privacy.md P24.

_ROOM = 1e-5  # of its noise: what ends a calibration on other digits is still covered


@dataclass(frozen=True, kw_only=True)
class ReferenceLaw:
    """So many Poisson steps: what later studies are expected to be, at their dearest.

    Args:
        noise_multiplier: sigma / C, the least that such a study leaves; no unit, from 0.03.
        sample_rate: the largest of such a study; a probability below 1.
        steps: of all such studies together, 1 to 10,000,000.

    Raises:
        StudyError: a value is out of its range.
    """

    noise_multiplier: float
    sample_rate: float
    steps: int

    def __post_init__(self) -> None:
        least = dominating_pairs.LEAST_SAMPLED_NOISE
        noise = arguments.within(
            "noise_multiplier", self.noise_multiplier, least=1.01 * least, most=1e6
        )
        rate = arguments.rate(self.sample_rate)
        if rate == 1:
            raise StudyError(
                "expected a reference law with sample_rate below 1, got 1; studies that are not "
                "sampled cost nothing for being chosen late without one"
            )
        steps = arguments.whole("steps", self.steps, least=1, most=arguments.MOST_STEPS)
        for name, value in {"noise_multiplier": noise, "sample_rate": rate, "steps": steps}.items():
            object.__setattr__(self, name, value)

    def release(self, relation: str) -> Release:
        """All of its steps."""
        return dominating_pairs.release(
            Step(
                noise_multiplier=self.noise_multiplier * (1 - _ROOM),
                sample_rate=self.sample_rate,
                count=self.steps,
            ),
            relation,
        )

    def split(
        self, releases: Iterable[Release], relation: str, left: int
    ) -> tuple[list[Release], int]:
        """What of a study it does not dominate, and how many of its steps the rest takes.

        No more than `left` of them are left.
        """
        laws, rest, before = self.release(relation).laws, [], left
        for one in releases:
            # P24: of equal steps as many as the law has left; the others follow the rule.
            covered = min(one.count, left) if _dominates(laws, one) else 0
            left -= covered
            if one.count > covered:
                rest.append(replace(one, count=one.count - covered))
        return rest, before - left


def _dominates(laws: tuple[Law, ...], one: Release) -> bool:
    """Whether one step is sampled and dominated in every direction (P24, the order of laws)."""
    # P24: steps that are not sampled take none of the law's.
    if one.gaussian is not None or len(one.laws) != len(laws):
        return False
    return all(_is_below(mine, its) for mine, its in zip(laws, one.laws, strict=True))


def _is_below(mine: Law, its: Law) -> bool:
    """Whether a Poisson law has a rate and a shift no larger than those of another such."""
    if isinstance(mine, Reversed) and isinstance(its, Reversed):
        return _is_below(mine.law, its.law)
    for kind in (Removal, ExchangedRecord):
        if isinstance(mine, kind) and isinstance(its, kind):
            # P24: a step that pays a slack of its own is not below the law.
            exact = its.atom == 0 and its.missing == 0
            return exact and its.rate <= mine.rate and its.shift <= mine.shift
    return False
