"""The best attack on one record's batches: what it sees of every step, and its likelihood ratio.

Theory of operation. Somebody asks whether one record is x or x', and knows all other records, the
model's whole course and both candidates: gradients of norm C in opposite directions. A step reveals
a noisy sum; less what is known and divided by the noise, that is one number, N(shift, 1).

- Joint batches: all others equal x', so the sum is shifted by 2 mu (mu = 1 / noise multiplier)
  where x took part, and never by x'. The schedule is public. With a kept list the record is behind
  one of n tokens, and the attack is the mean of n likelihood ratios, a whole schedule each. With
  fresh lists it is a product over steps.
- Poisson: all others are zero, which is the worst case there; the shift is mu or -mu where the
  record took part, and nobody knows where. The attack is a product over steps.

Each score is the exact likelihood ratio, so no attack on such a record does better. Batches come
from the schemes and draws that hubbub uses, noise from its sampler. Lists are ideal (what the
mixnet promises), and sums carry no masks: these cancel, so the numbers that are revealed are the
same. This file knows views and scores; it must not know what an account says of them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from math import ceil, log

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from experiments.command import Shown
from hubbub.core.protocol.primitives.noise import standard_normal
from hubbub.core.protocol.primitives.randomness import KEY_BYTES, SecureSource
from hubbub.core.protocol.token_lists.joint_batch import Scheme, partition, without_replacement

NOISE = 2.0  # noise multiplier: the noise of a sum divided by C
KEPT, PARTS, FRESH, POISSON = "kept list", "kept list in parts", "fresh lists", "poisson"
SCHEMES: dict[str, Scheme] = {
    KEPT: without_replacement,
    PARTS: partition,
    FRESH: without_replacement,
}
_TOGETHER = 2_000  # trials of one schedule, which are made at once

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class PreparedStudy:
    """The size of everything, the same for all schemes.

    Args:
        records: n.
        batch: b, on average for Poisson batches.
        steps: S.
        trials: how often each of the two records is attacked.
    """

    records: int
    batch: int
    steps: int
    trials: int

    @property
    def rate(self) -> float:
        """Sampling rate q."""
        return self.batch / self.records


@dataclass(frozen=True, kw_only=True)
class Attack:
    """Scores of one scheme: high ones speak for x.

    Args:
        given_x: scores where the record was x, shape (trials,).
        given_other: where it was x'.
        most_uses: steps of the most used token; 0 if no token is kept.
    """

    given_x: Array
    given_other: Array
    most_uses: int


def schedule(scheme: Scheme, setting: PreparedStudy, seed: bytes) -> Flags:
    """Which places are in the batch of each step, shape (steps, records)."""
    chosen = np.zeros((setting.steps, setting.records), dtype=bool)
    for step in range(setting.steps):
        chosen[step, scheme(seed, setting.records, setting.batch, step + 1)] = True
    return chosen


def kept_parts(chosen: Flags, trials: int, source: SecureSource) -> Flags:
    """Where the record takes part if its token keeps one place, shape (trials, steps)."""
    return chosen.T[places(source, trials, chosen.shape[1])]


def fresh_parts(chosen: Flags, trials: int, source: SecureSource) -> Flags:
    """Where it takes part if every step's list puts its token into a new place."""
    steps, records = chosen.shape
    drawn = places(source, trials * steps, records).reshape(trials, steps)
    return chosen[np.arange(steps), drawn]


def poisson_parts(setting: PreparedStudy, trials: int, source: SecureSource) -> Flags:
    """Where it takes part if a coin decides."""
    taken = np.zeros(trials * setting.steps, dtype=bool)
    taken[source.chosen(taken.size, setting.rate)] = True
    return taken.reshape(trials, setting.steps)


def places(source: SecureSource, count: int, records: int) -> NDArray[np.intp]:
    """Uniform places of a list (the remainder of 64 bits is uniform but for 1e-16)."""
    return (source.words(count) % np.uint64(records)).astype(np.intp)


def noise(trials: int, steps: int, source: SecureSource) -> Array:
    """Standard Gaussian noise of every sum, shape (trials, steps)."""
    drawn = np.empty(trials * steps)
    standard_normal(source, drawn)
    return drawn.reshape(trials, steps)


def kept_score(sums: Array, chosen: Flags) -> Array:
    """Log-likelihood ratio, x against x', of a kept list: the mean over all tokens, (trials,)."""
    shift = 2 / NOISE
    ratios = shift * (sums @ chosen.astype(np.float64)) - shift**2 / 2 * chosen.sum(axis=0)
    return np.asarray(logsumexp(ratios, axis=1) - log(chosen.shape[1]))


def fresh_score(sums: Array, rate: float) -> Array:
    """The same of fresh lists: a product over steps."""
    return taken_or_not(sums, 2 / NOISE, rate).sum(axis=1)


def poisson_score(sums: Array, rate: float) -> Array:
    """The same of Poisson batches."""
    shift = 1 / NOISE
    return (taken_or_not(sums, shift, rate) - taken_or_not(sums, -shift, rate)).sum(axis=1)


def taken_or_not(sums: Array, shift: float, rate: float) -> Array:
    """Log-likelihood ratio of each sum: shifted with probability `rate`, against never."""
    return np.log1p(rate * np.expm1(shift * sums - shift**2 / 2))


def attacked(name: str, setting: PreparedStudy, shown: Shown) -> Attack:
    """Play all trials of one scheme, a new schedule for each `_TOGETHER` of them."""
    found: dict[bool, list[Array]] = {True: [], False: []}
    most = 0
    rounds = ceil(setting.trials / _TOGETHER)
    for number in range(rounds):
        shown(number / rounds)
        seed = hashlib.sha256(f"{name} {setting.steps} {number}".encode()).digest()
        source = SecureSource(seed[:KEY_BYTES])
        chosen = schedule(SCHEMES[name], setting, seed) if name in SCHEMES else None
        if name in (KEPT, PARTS) and chosen is not None:
            most = max(most, int(chosen.sum(axis=0).max()))
        for is_x in (True, False):
            found[is_x].append(scored(name, setting, chosen, source, is_x=is_x))
    return Attack(
        given_x=np.concatenate(found[True]),
        given_other=np.concatenate(found[False]),
        most_uses=most,
    )


def scored(
    name: str, setting: PreparedStudy, chosen: Flags | None, source: SecureSource, *, is_x: bool
) -> Array:
    """Scores of some trials with one of the two records."""
    trials = min(_TOGETHER, setting.trials)
    sums = noise(trials, setting.steps, source)
    if chosen is None:
        taken = poisson_parts(setting, trials, source)
        return poisson_score(sums + (1 if is_x else -1) / NOISE * taken, setting.rate)
    taken_by = fresh_parts if name == FRESH else kept_parts
    if is_x:
        sums += 2 / NOISE * taken_by(chosen, trials, source)
    return fresh_score(sums, setting.rate) if name == FRESH else kept_score(sums, chosen)
