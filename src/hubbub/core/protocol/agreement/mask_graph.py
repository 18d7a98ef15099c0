"""Who shares a mask with whom: the complete graph, or a random regular graph when silos are many.

Guarantees: with probability at least 1 - 2^-50 over the seed, the silos that neither collude nor
are missing stay connected, so that the smallest sum that can be isolated is theirs as a whole, if
those that collude were fixed before. The graph is a circulant on a random order of the silos; the
proof, and what holds against silos that are corrupted later, is in docs/privacy.md P4. It is drawn
from joint randomness after all keys are fixed.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from functools import lru_cache
from math import exp, inf, lgamma, log, sqrt

from hubbub.core.protocol.primitives.randomness import KEY_BYTES, SecureSource

FAILURE_BITS = 50
# May be drawn for a study: whoever sets sessions up again and again has the choice of one (P4).
MOST_GRAPHS = 1024
# Up to this many silos the least graph is the complete one; `planning` may ask for more neighbours.
_COMPLETE_UP_TO = 16
_LOG_NOTHING = 80.0  # of a sum of at most a million terms, what is left out beside the largest


@lru_cache(maxsize=64)  # a plan asks for it with every adversary
def degree(silos: int, colluders: int, dropouts: int) -> int:
    """Neighbours of each silo: silos - 1, or the least even number that keeps P4's promise."""
    if silos <= _COMPLETE_UP_TO:
        return silos - 1

    def promised(each: int) -> bool:  # the more neighbours, the likelier
        return failure_bits(silos, colluders, dropouts, each) >= FAILURE_BITS

    choices = range(2, silos - 1, 2)
    least = bisect_left(choices, True, key=promised)
    return choices[least] if least < len(choices) else silos - 1


def neighbours_of(one: int, silos: int, each: int, seed: bytes) -> list[int]:
    """The neighbours of one silo, sorted, on the graph of a public seed."""
    if each >= silos - 1:
        return [other for other in range(silos) if other != one]
    order = _circle(silos, seed)
    place = order.index(one)
    offsets = [step for half in range(1, each // 2 + 1) for step in (half, -half)]
    return sorted({order[(place + step) % silos] for step in offsets})


@lru_cache(maxsize=8)
def _circle(silos: int, seed: bytes) -> tuple[int, ...]:
    """The silos in the random order of a public seed."""
    key = hashlib.sha256(b"hubbub mask graph v1" + seed).digest()[:KEY_BYTES]
    return tuple(SecureSource(key).permutation(silos).tolist())


def failure_bits(silos: int, colluders: int, dropouts: int, each: int) -> float:
    """-log2 of C(N, 2) Pr[Hypergeometric(N, T, k) >= k - D], the bound of P4 for degree `each`."""
    least = each - dropouts
    if least <= 0:
        return 0.0
    # Below the mean by 10 sqrt(each) lies less than e^-200 (Hoeffding): nothing is looked at there.
    usual = int(each * colluders / silos - 10 * sqrt(each))
    first = max(least, each - silos + colluders, usual)
    round_parameters: list[float] = []
    top = -inf
    for bad in range(first, min(each, colluders) + 1):
        term = (
            _log_choose(colluders, bad)
            + _log_choose(silos - colluders, each - bad)
            - _log_choose(silos, each)
        )
        top = max(top, term)
        if term < top - _LOG_NOTHING:  # past the largest, terms fall faster and faster
            break
        round_parameters.append(term)
    if not round_parameters:
        return inf
    tail = top + log(sum(exp(term - top) for term in round_parameters))
    return -(log(silos * (silos - 1) / 2) + tail) / log(2)


def _log_choose(total: int, part: int) -> float:
    """log of the binomial coefficient."""
    return lgamma(total + 1) - lgamma(part + 1) - lgamma(total - part + 1)
