"""How large an audit is if nobody says so, by what a sound study's canaries will show.

A score is the logarithm of a likelihood ratio, so a rule with threshold t has the rates at which
the trade-off curve of a canary's own pair of laws has the slope e^t (Neyman, Pearson). That pair is
the account's, but where the account charges more than a canary does (docs/privacy.md P18): for
longer projections, and for batches in which all others are alike. So the best rule for a number of
canaries is known before anything was seen, and so is how many are needed.

There are runs enough for most of what endless ones would show, within what they cost: the smaller
epsilon is, the more. Where sums are projected, what all others add to a canary's score is kept to a
small part of the noise. Where batches are joint, tokens of canaries are dear.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from hubbub.core.errors import StudyError
from hubbub.core.planning.accounts import account_of, releases
from hubbub.core.planning.mechanism import Mechanism
from hubbub.core.planning.plan import Plan
from hubbub.core.privacy.accountant import Composition
from hubbub.core.privacy.arguments import MOST_EPSILON
from hubbub.core.privacy.canary_guesses import Rates
from hubbub.core.privacy.dominating_pairs import Release
from hubbub.core.verification.evidence.audit_result import (
    MOST_CANARIES,
    check_auditable,
    check_size,
    choosing_runs,
)
from hubbub.learning.audit.rules import Choice, Rule

_LEVELS = np.concatenate([[0.0], np.geomspace(1e-3, MOST_EPSILON, 48)])  # rules lie between them
_NEAR = 1e-3  # delta at which curves are sharpest
_ENDLESS = 10**12  # canaries
_MOST = 3_000  # canaries in a run, where they are fewer
_OTHERS = 0.1  # of the variance of the noise, from other canaries
_ENOUGH = 0.9  # of what endless runs show, as a ratio of noise
_TRIALS = 30_000  # in all runs at least, if that is affordable
_LEAST_RUNS = {True: 4, False: 3}
_PARTS = 7  # of all records of joint batches that can be afforded, in a run
_STEPS = 2_500  # of all runs, each about .08 processor seconds
_OPERATIONS = 900_000  # of HPKE, of all runs, each about .17 ms
_GAUSSIAN = 2.5, 1.5e-6  # steps that one with Gaussian matrices costs, and an entry of them


@dataclass(frozen=True, kw_only=True)
class ForeseenRule:
    """A rule about the first kind of scores, and its true and false positive rates."""

    rule: Rule
    true: float
    false: float

    def rates(self, judged: int) -> Rates:
        """What it counts of so many canaries, half of them on each side."""
        half = judged // 2
        true, false = round(self.true * half), round(self.false * half)
        return Rates(true=true, positives=half, false=false, negatives=half)


class ExpectedPower:
    """What so many canaries a run are expected to show of a study as it is planned."""

    def __init__(self, plan: Plan, canaries: int, confidence: float) -> None:
        self.choice = Choice(plan.study, plan.stated.noise_multiplier, confidence)
        self._rules = _rules_of(tuple(_released(plan, canaries)))

    def best(self, judged: int) -> ForeseenRule:
        """The one that shows most if so many canaries judge it."""
        return max(self._rules, key=lambda one: self._value(one, judged))

    def share(self, judged: int) -> float:
        """How much of what it shows of endless canaries it shows of so many, as ratio of noise."""
        best = self.best(judged)
        return self.choice.ratio(self._value(best, judged) - self._value(best, _ENDLESS))

    def _value(self, one: ForeseenRule, judged: int) -> float:
        return self.choice.value(one.rates(judged))


@lru_cache(maxsize=4)  # an audit asks for its size, once or twice, and then for a rule
def _rules_of(releases: tuple[Release, ...]) -> Sequence[ForeseenRule]:
    """Rules all along the curve of each direction."""
    levels, rules = _LEVELS, []
    profiles = Composition(releases).profiles(levels, near=_NEAR)
    for says, deltas in zip((True, False), profiles, strict=False):
        false = np.maximum(-np.diff(deltas) / np.diff(np.exp(levels)), 0.0)
        true = np.minimum(deltas[:-1] + np.exp(levels[:-1]) * false, 1.0)
        middle = (levels[1:] + levels[:-1]) / 2
        rules += [
            ForeseenRule(rule=Rule(threshold=t if says else -t, says=says), true=p, false=f)
            for t, p, f in zip(middle.tolist(), true.tolist(), false.tolist(), strict=True)
            if p > 0
        ]
    return rules


def share_of_others(plan: Plan, canaries: int) -> float:
    """The variance that all canaries together add to the score of one, in units of C^2 (P18)."""
    mechanism = plan.mechanism
    if mechanism.projection is None:
        return 0.0
    there = 1.0 if mechanism.relation == "substitute" else 0.5
    return (canaries - 1) * there * mechanism.sample_rate / mechanism.projection.dimension


def _released(plan: Plan, canaries: int) -> list[Release]:
    """What a training tells of one canary, if nothing else is known of who is in a batch."""
    how = replace(account_of(plan.mechanism), projected=None)
    if how.sampling == "without-replacement":
        how = replace(how, sampling="poisson")
    noise = sqrt(plan.stated.noise_multiplier**2 + share_of_others(plan, canaries))
    return releases(how, noise, plan.mechanism.steps)


def size_of(
    plan: Plan, runs: int | None, canaries: int | None, confidence: float
) -> tuple[int, int]:
    """Runs, and canaries in each of them, by the study where nothing is asked; or StudyError."""
    check_size(2 if runs is None else runs, 1 if canaries is None else canaries, confidence)
    check_auditable(plan.study)
    canaries = _canaries(plan, canaries)
    return (_runs(plan, canaries, confidence) if runs is None else runs), canaries


def _canaries(plan: Plan, asked: int | None) -> int:
    mechanism, each = plan.mechanism, share_of_others(plan, 2)
    if not mechanism.needs_joint_seed:
        return MOST_CANARIES if asked is None else asked
    # As many as are hardly in each other's way.
    room = _OTHERS * plan.stated.noise_multiplier**2
    apart = max(1, int(room / each)) if each else MOST_CANARIES
    fewer = max(min(apart, _wrapped(plan) // _PARTS, _MOST), _least(mechanism))
    return _fitting(mechanism, fewer if asked is None else asked)


def _runs(plan: Plan, canaries: int, confidence: float) -> int:
    """Enough of them, or as many as the time allows."""
    mechanism, few = plan.mechanism, plan.mechanism.needs_joint_seed
    affordable = min(_wrapped(plan) // canaries, int(_STEPS / _cost(mechanism, canaries)))
    least = max(_LEAST_RUNS[few], min(ceil(_TRIALS / canaries), affordable))
    foreseen = ExpectedPower(plan, canaries, confidence)

    def enough(runs: int) -> bool:
        return foreseen.share((runs - choosing_runs(runs)) * canaries) >= _ENOUGH

    return least + bisect_left(range(least, max(least, affordable)), True, key=enough)


def _cost(mechanism: Mechanism, canaries: int) -> float:
    """How many steps a run costs, one that makes Gaussian matrices being several."""
    projection = mechanism.projection
    if projection is None or projection.kind != "gaussian":
        return mechanism.steps
    each, entry = _GAUSSIAN
    return mechanism.steps * (each + entry * canaries * projection.dimension)


def joint_part(mechanism: Mechanism, records: int) -> int:
    """Of so many records, how many are in a joint batch: no larger a part than the study's."""
    if not mechanism.has_joint_batches:
        return 0
    return records * mechanism.batch // mechanism.records


def _wrapped(plan: Plan) -> int:
    """How many tokens can be wrapped and unwrapped in all lists of a training, over all runs."""
    every = plan.mechanism.attempts_per_list
    lists = ceil(plan.mechanism.steps / every) if every else 0
    return _OPERATIONS // (lists * 2 * plan.study.parties.silos) if lists else _OPERATIONS


def _least(mechanism: Mechanism) -> int:
    """The fewest canaries of whom one is in a joint batch."""
    return ceil(mechanism.records / mechanism.batch) if mechanism.has_joint_batches else 1


def _fitting(mechanism: Mechanism, canaries: int) -> int:
    """The most canaries up to so many whose joint batch is nearly the study's part of them."""
    part = joint_part(mechanism, canaries)
    if not mechanism.has_joint_batches:
        return canaries
    if not part or _least(mechanism) > MOST_CANARIES:
        raise StudyError(
            f"expected at least {_least(mechanism)} canaries, of whom one is in a joint batch, and "
            f"at most {MOST_CANARIES}, got {canaries}; raise --canaries, or audit a larger batch"
        )
    return ceil(part * mechanism.records / mechanism.batch)


# What the sums of a training tell of each canary: scores, larger where its coin is likelier True.
#
# The first kind takes a study at its word: a coin for each record and attempt. The others
# believe that coins are tossed less often than is promised; of a sound study they tell less, and
# of one that draws the same batch twice, or has one batch for ever, they tell more than they may.
#
# Where noise is correlated (P25), what was seen is multiplied by C first: then noise is
# independent, and a canary has added a multiple of C's column where its group had its turn. The
# account does without the groups' secret, so the first kind knows them; the others do not, and
# see turns that groups take out of order.

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
    """The scores of canaries, which are C against -C if `exchanged`, or C against nothing.

    Args:
        seen, noise: (steps, canaries) sums, and the noise that is not known, in units of C.
        rate: with which chance a record is in a batch.
        same: for how many steps a coin is believed to hold; 0 for all.
        column: first one of the matrix by which noise goes on over the steps (P25).
        groups: (canaries,) in which group each is, if that is known.
    """
    turns = len(column)

    def likelihood(of: Array) -> Array:
        # log of how likely the sums are with a canary of each group, relative to without one.
        shifted, share = _shifted(of, noise, column), min(1.0, turns * rate)
        parts = [_with_coins(shifted[first::turns], share, same) for first in range(turns)]
        each = np.array(parts)
        if groups is None:
            return np.asarray(logsumexp(each, axis=0) - np.log(len(each)))
        return np.asarray(np.take_along_axis(each, groups[None], axis=0)[0])

    return np.asarray(likelihood(seen) - (likelihood(-seen) if exchanged else 0.0))


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
    steps, whitened, shifted = len(seen), np.zeros_like(seen), np.zeros_like(seen)
    for lag, entry in enumerate(column[:steps]):
        whitened[lag:] += entry * seen[: steps - lag]
    for lag, entry in enumerate(column[:steps]):
        shifted[: steps - lag] += entry * whitened[lag:]
    squares = np.cumsum(column[:steps] ** 2)
    lengths = squares[np.minimum(np.arange(steps)[::-1], len(squares) - 1)]
    return np.asarray((2 * shifted - lengths[:, None]) / (2 * noise**2))


def kinds_of(steps: int) -> Sequence[int]:
    """The kinds of scores that differ in so many steps."""
    return KINDS[: min(steps, len(KINDS))]
