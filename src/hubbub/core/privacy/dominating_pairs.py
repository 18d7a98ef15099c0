"""What a step of a study is, and which dominating pairs it has.

This is the one table that turns (sampling, relation) into the laws of docs/privacy.md P1. A
`Release` is a step as the accountant sees it: a law for each direction of the relation, and how
often it happens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, sqrt

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import StudyError
from hubbub.core.privacy import arguments
from hubbub.core.privacy.arguments import spend
from hubbub.core.privacy.laws import (
    Enclosed,
    ExchangedRecord,
    Law,
    Mixture,
    Nothing,
    Removal,
    ReplacedInBatch,
    Reversed,
    UnitRemoval,
    with_missing,
)

_MOST_OF_A_UNIT = 1000
_HYPERGEOMETRIC_TAIL = 1e-26
_MANY_MEMBERS, _CELLS = 256, 64  # numbers of honest members in a batch that are likely
# Losses of a sampled step grow with the square of 2 / z, and e^loss must be a float.
LEAST_SAMPLED_NOISE = 0.03

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Step:
    """A kind of step, and how many times it happens.

    Args:
        noise_multiplier: sigma / C: standard deviation of the noise that counts against the
            adversary on the sum, over the clipping norm of one record (for both relations); no
            unit, from 0.001 to 1,000,000.
        sample_rate: probability with which a record is in the batch, from 1e-9 to 1; batch / n
            without replacement.
        sampling: "poisson", "without-replacement" or "full-batch".
        count: number of such steps, 1 to 10,000,000.
        records_per_unit: the most records of one protected unit, a patient say, from 1 to 1000;
            C is the norm of one *record*. Above 1 for "add-remove" alone (or without sampling):
            the unit is there or not. "without-replacement" has no account of it.

    Raises:
        StudyError: a value is out of its range.

    >>> Step(noise_multiplier=2.0, sample_rate=0.1, count=100).sampling
    'poisson'
    """

    noise_multiplier: float
    sample_rate: float = 1.0
    sampling: str = "poisson"
    count: int = 1
    records_per_unit: int = 1

    def __post_init__(self) -> None:
        # As Python's own numbers: others wrap around, or round what is certified.
        numbers = {
            "noise_multiplier": arguments.noise(self.noise_multiplier),
            "sample_rate": arguments.rate(self.sample_rate),
            "count": arguments.whole("count", self.count, least=1, most=arguments.MOST_STEPS),
        }
        for name, number in numbers.items():
            object.__setattr__(self, name, number)
        object.__setattr__(self, "sampling", arguments.sampling(self.sampling))
        each = arguments.whole(
            "records_per_unit", self.records_per_unit, least=1, most=_MOST_OF_A_UNIT
        )
        object.__setattr__(self, "records_per_unit", each)
        if self.sampling == "full-batch" and self.sample_rate != 1:
            raise StudyError(
                f"expected sample_rate = 1 with sampling = 'full-batch', got {self.sample_rate:g}; "
                "leave sample_rate out or choose sampling = 'poisson'"
            )


@dataclass(frozen=True, kw_only=True)
class Release:
    """A step as the accountant composes it.

    `laws` has one law per direction that must be composed on its own (P2). `gaussian` is the shift
    of the plain Gaussian mechanism that the step is, or None: those compose in closed form.
    """

    laws: tuple[Law, ...]
    count: int
    gaussian: float | None = None


def release(step: Step, relation: str) -> Release:
    """The dominating pairs of a step, by the table of P1; of units with several records, by P20.

    Raises:
        StudyError: units of several records have no account with this sampling and relation.
    """
    arguments.choice("relation", relation, arguments.RELATIONS)
    if step.records_per_unit > 1:
        return _of_units(step, relation)
    return moved(step, relation, 1 / step.noise_multiplier)


def _of_units(step: Step, relation: str) -> Release:
    """P20: the mixture over how many of a unit's records are in the batch."""
    many, shift = step.records_per_unit, 1 / step.noise_multiplier
    if step.sampling == "full-batch" or (step.sampling == "poisson" and step.sample_rate == 1):
        # All of a unit's records are in every sum.
        return moved(step, relation, many * shift)
    if step.sampling != "poisson" or relation != "add-remove":
        raise StudyError(
            "expected sampling = 'poisson' and relation = 'add-remove' with records_per_unit = "
            f"{many}, got {step.sampling!r} and {relation!r}; others have no account for units of "
            "several records: choose these, or let each unit have one record"
        )
    # P20: the pair for removal, and for addition its reverse, each composed on its own.
    law = UnitRemoval(rate=step.sample_rate, shift=shift, records=many)
    return Release(laws=(law, Reversed(law=law)), count=step.count)


def moved(step: Step, relation: str, shift: float) -> Release:
    """The release of a step in which a record moves the sum by at most `shift`."""
    substitute = relation == "substitute"
    if step.sampling == "full-batch" or step.sample_rate == 1:
        # P1: without replacement a record that is there has taken another's place.
        moved = 2 * shift if substitute or step.sampling == "without-replacement" else shift
        pair = Removal(rate=1.0, shift=moved)
        # Under substitution the Gaussian pair is its own reverse.
        laws: tuple[Law, ...] = (pair,) if substitute else (pair, Reversed(law=pair))
        return Release(laws=laws, count=step.count, gaussian=moved)
    # P1: the fifth row, or the third for Poisson; either is its own reverse.
    if substitute:
        law: Law = ReplacedInBatch(rate=step.sample_rate, shift=2 * shift)
        if step.sampling == "poisson":
            law = ExchangedRecord(rate=step.sample_rate, shift=shift)
        return Release(laws=(law,), count=step.count)
    # P1: the second row, or the fourth without replacement.
    moved = shift if step.sampling == "poisson" else 2 * shift
    removal = Removal(rate=step.sample_rate, shift=moved)
    return Release(laws=(removal, Reversed(law=removal)), count=step.count)


def release_with_malicious(
    *, records: int, batch: int, malicious: int, noise_multiplier: float, count: int, cells: int = 0
) -> Release:
    """Sampling without replacement where the adversary knows which `malicious` records are drawn.

    The number b' of honest members is hypergeometric and independent of the honest data, so the
    step's law is the mixture of the laws with rate b' / (records - malicious) (P10). With `cells`,
    each b' is split onto the ends of its cell so that its mean is kept: H_a is convex in the rate,
    so the mixture over the ends costs slightly more epsilon and less time. Upper bounds remain
    upper bounds; lower ones are those of that mixture. Without, the law of very many b' is known
    from both sides: from above by the ends of many cells, from below by the means within them.
    """
    honest = records - malicious
    counted, weights = _honest_members(records, batch, malicious)
    kept = weights > _HYPERGEOMETRIC_TAIL
    # P10: counted as loss +inf (`missing`), dearer than any rate.
    dropped = float(weights[~kept].sum())
    members, weights = counted[kept].astype(np.float64), weights[kept]

    def mixture(drawn: Array, chances: Array) -> Mixture:
        """Of these numbers of honest members."""
        shift = 2 / noise_multiplier
        laws: list[Law] = [
            # Without an honest member the batch tells nothing of honest records.
            ReplacedInBatch(rate=b / honest, shift=shift) if b else Nothing()
            for b in drawn.tolist()
        ]
        return Mixture(weights=tuple(chances.tolist()), laws=tuple(laws), missing=dropped)

    if not cells and members.size > _MANY_MEMBERS:
        above = mixture(*_on_ends(members, weights, _CELLS))
        under = mixture(*_at_means(members, weights, _CELLS))
        return Release(laws=(Enclosed(above=above, below=under),), count=count)
    if 0 < cells < members.size - 1:
        members, weights = _on_ends(members, weights, cells)
    return Release(laws=(mixture(members, weights),), count=count)


def release_at_quantile(
    *, records: int, batch: int, malicious: int, noise_multiplier: float, count: int, slack: float
) -> Release:
    """The paper's way with malicious records: the rate that b' exceeds with probability `slack`.

    The slack is charged in every step (P10).
    """
    rate = honest_rate(records=records, batch=batch, malicious=malicious, slack=slack)
    # P10: H_a grows with the rate, so all smaller b' are below the quantile's law.
    law = ReplacedInBatch(rate=rate, shift=2 / noise_multiplier)
    return with_slack(Release(laws=(law,), count=count), slack)


def honest_rate(*, records: int, batch: int, malicious: int, slack: float) -> float:
    """The least b* / n_honest with Pr[b' > b*] <= slack (P10)."""
    honest = records - malicious
    if slack <= 0:  # the least weights are below the smallest float
        return min(batch, honest) / honest
    members, weights = _honest_members(records, batch, malicious)
    # P10: Pr[b' > b] for each b, added up from the far tail.
    beyond = np.append(np.cumsum(weights[::-1])[::-1][1:], 0.0)
    quantile = int(members[np.argmax(beyond <= slack)])
    return quantile / honest


def from_above(releases: Sequence[Release]) -> list[Release]:
    """What dominates the releases, where a law is known from two sides: enough for a promise."""
    return [
        replace(one, laws=tuple(getattr(law, "above", law) for law in one.laws)) for one in releases
    ]


def with_slack(one: Release, slack: float) -> Release:
    """The release if its laws hold except with probability `slack` in each step (P8, P10)."""
    return Release(laws=tuple(with_missing(law, slack) for law in one.laws), count=one.count)


def _honest_members(records: int, batch: int, malicious: int) -> tuple[NDArray[np.int64], Array]:
    """Every likely number of honest members of a batch, and its probability."""
    honest = records - malicious
    mean = batch * honest / records
    spread = sqrt(mean * (malicious / records) * (records - batch) / max(records - 1, 1))
    # P10: what is left out has less than 1e-27.
    least = max(0, batch - malicious, floor(mean - 14 * spread - 60))
    most = min(batch, honest, ceil(mean + 14 * spread + 60))
    spend((most - least) / 5)
    member = np.arange(least, most, dtype=np.float64)
    # Ratios of neighbouring probabilities are multiplied up from the mode: binomial coefficients of
    # large numbers would lose all digits.
    odds = (honest - member) / (member + 1) * ((batch - member) / (malicious - batch + member + 1))
    steps = np.log(odds)
    mode = int(np.argmax(np.append(0.0, np.cumsum(steps))))
    below = -np.cumsum(steps[:mode][::-1])[::-1]
    weights = np.exp(np.concatenate([below, [0.0], np.cumsum(steps[mode:])]))
    return np.arange(least, most + 1), np.asarray(weights / weights.sum(), dtype=np.float64)


def _on_ends(members: Array, weights: Array, cells: int) -> tuple[Array, Array]:
    """The weights moved onto the ends of equal cells, with every member's mean kept."""
    # P10: H_a is convex in the rate, so the mixture over the ends lies above.
    ends, cell = _cells_of(members, cells)
    up = (members - ends[cell]) / (ends[cell + 1] - ends[cell])
    low = np.bincount(cell, weights * (1 - up), ends.size)
    high = np.bincount(cell + 1, weights * up, ends.size)
    return ends, np.asarray(low + high, dtype=np.float64)


def _at_means(members: Array, weights: Array, cells: int) -> tuple[Array, Array]:
    """The weights of each of the same cells at the mean within it."""
    # P10: by the same convexity the mixture over the means lies below.
    ends, cell = _cells_of(members, cells)
    inside = np.bincount(cell, weights, ends.size - 1)
    kept = inside > 0
    means = np.bincount(cell, weights * members, ends.size - 1)[kept] / inside[kept]
    return means, np.asarray(inside[kept])


def _cells_of(members: Array, cells: int) -> tuple[Array, NDArray[np.intp]]:
    """The whole ends of equal cells, and in which of them each member is."""
    ends = np.unique(np.floor(np.linspace(members[0], members[-1], cells + 1)))
    return ends, np.minimum(np.searchsorted(ends, members, side="right") - 1, ends.size - 2)
