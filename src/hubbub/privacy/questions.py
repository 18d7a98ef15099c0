"""The accountant's public questions, one function each, in the units that people use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import ArrayLike

from hubbub.errors import StudyError
from hubbub.privacy import accountant, arguments, calibration, dominating_pairs, tradeoff
from hubbub.privacy.bound import Bound, told


def epsilon(
    *,
    noise_multiplier: float,
    sample_rate: float = 1.0,
    steps: int,
    delta: float,
    relation: str = "add-remove",
    sampling: str = "poisson",
    records_per_unit: int = 1,
) -> Bound:
    """Epsilon of DP-SGD, certified from both sides.

    Guarantees:
        1. Every mechanism that adds N(0, (noise_multiplier C)^2) to the sum of a sampled batch of
           vectors of norm at most C, `steps` times adaptively, is (upper, delta)-DP.
        2. `lower` is below the epsilon of the same dominating pairs. Those are tight for
           "full-batch" and "poisson", and for "without-replacement" with "add-remove";
           "without-replacement" with "substitute" is a proven upper bound, whose tightness is not
           known.

    Args:
        noise_multiplier: sigma / C, for both relations; no unit, from 0.001 to 1,000,000, and from
            0.03 where batches are sampled.
        sample_rate: probability that a record is in a batch, from 1e-9 to 1.
        steps: number of steps, 1 to 10,000,000.
        delta: probability, in [1e-15, 1).
        relation: "add-remove" or "substitute".
        sampling: "poisson", "without-replacement" or "full-batch".
        records_per_unit: the most records of one protected unit, such as a patient, 1 to 1000; see
            `hubbub.Step`. C is the norm of one record.

    Returns:
        `Bound(lower, upper)`, within 0.001 of each other (0.1 % above epsilon 1).

    Raises:
        StudyError: an argument is out of range, or the bounds that were found are further apart.

    Source: docs/privacy.md P1, P2, P11-P13, P20.

    >>> training = dict(noise_multiplier=1.0, sample_rate=0.008, steps=1250, delta=1e-5)
    >>> epsilon(**training).upper < 1.6
    True
    >>> round(epsilon(**training, records_per_unit=2).upper, 2)
    3.47
    """
    step = _step(noise_multiplier, sample_rate, steps, sampling, records_per_unit)
    return told(accountant.Composition([_certifiable(step, relation)]).epsilon(delta))


def delta(
    *,
    noise_multiplier: float,
    sample_rate: float = 1.0,
    steps: int,
    epsilon: float,
    relation: str = "add-remove",
    sampling: str = "poisson",
) -> Bound:
    """Delta of DP-SGD at a given epsilon, certified from both sides.

    Guarantees: those of `hubbub.epsilon`, read the other way round: the mechanism is
    (epsilon, upper)-DP.

    Args:
        noise_multiplier, sample_rate, steps, relation, sampling: as for `hubbub.epsilon`.
        epsilon: at which delta is asked for, in [0, 500]; no unit.

    Returns:
        `Bound(lower, upper)`, two probabilities.

    Raises:
        StudyError: an argument is out of range.

    Source: docs/privacy.md P1, P2, P11-P13.

    >>> bound = delta(noise_multiplier=1.0, steps=1, epsilon=1.0, sampling="full-batch")
    >>> round(bound.upper, 9)
    0.126936738
    """
    return _composition(noise_multiplier, sample_rate, steps, relation, sampling).delta(epsilon)


def noise_multiplier(
    *,
    epsilon: float,
    delta: float,
    sample_rate: float = 1.0,
    steps: int,
    relation: str = "add-remove",
    sampling: str = "poisson",
) -> float:
    """The least noise, sigma / C, with which DP-SGD stays within (epsilon, delta).

    Guarantees: never overspends: the certified upper epsilon at the result is at most `epsilon`.

    Args:
        epsilon: to stay within, in [0.001, 50]; no unit.
        delta: to stay within, a probability in [1e-15, 1).
        sample_rate, steps, relation, sampling: as for `hubbub.epsilon`.

    Returns:
        sigma / C, without unit; at least 0.03 where batches are sampled.

    Raises:
        StudyError: an argument is out of range, or no noise reaches the target.

    Source: docs/privacy.md P1, P2.

    >>> found = noise_multiplier(epsilon=1.0, delta=1e-5, steps=100, sampling="full-batch")
    >>> round(found, 2)
    37.31
    >>> epsilon(noise_multiplier=found, delta=1e-5, steps=100, sampling="full-batch").upper <= 1.0
    True
    """
    arguments.delta(delta)
    sampling = _step(1.0, sample_rate, steps, sampling).sampling
    arguments.choice("relation", relation, arguments.RELATIONS)
    sampled = sampling != "full-batch" and sample_rate < 1
    least = dominating_pairs.LEAST_SAMPLED_NOISE if sampled else 0.0
    found = calibration.calibrate(
        lambda noise: [
            dominating_pairs.release(
                _step(max(noise, least), sample_rate, steps, sampling), relation
            )
        ],
        epsilon,
        delta,
    )
    return max(found, least)


def composed_epsilon(
    steps: Sequence[dominating_pairs.Step], *, delta: float, relation: str = "add-remove"
) -> Bound:
    """Epsilon of different kinds of steps on the same data, certified from both sides.

    Guarantees: those of `hubbub.epsilon`, for all steps together. What is summed may be chosen in
    view of what came before; which steps there are may not (P15; `hubbub budget set` for that).

    Args:
        steps: kinds of steps and their counts, in any order; at most 10,000,000 steps in all.
        delta: probability, in [1e-15, 1).
        relation: "add-remove" or "substitute", for all of them.

    Returns:
        `Bound(lower, upper)`, without unit.

    Raises:
        StudyError: no step, a wrong type, an argument is out of range, or the bounds are too far
            apart.

    Source: docs/privacy.md P1, P2, P11-P13.

    >>> from hubbub import Step
    >>> training = Step(noise_multiplier=20.0, count=100, sampling="full-batch")
    >>> evaluation = Step(noise_multiplier=10.0, count=1, sampling="full-batch")
    >>> round(composed_epsilon([training, evaluation], delta=1e-5).upper, 3)
    2.037
    """
    listed: object = steps
    if not isinstance(listed, list | tuple) or not all(
        isinstance(s, dominating_pairs.Step) for s in listed
    ):
        raise StudyError(
            "expected steps to be a list of hubbub.Step, got something else; wrap each kind in one"
        )
    arguments.choice("relation", relation, arguments.RELATIONS)
    whole = accountant.Composition([_certifiable(step, relation) for step in steps])
    return told(whole.epsilon(delta))


def malicious_epsilon(
    *,
    n: int,
    batch: int,
    malicious: int,
    noise_multiplier: float,
    steps: int,
    delta: float,
    slack: float = 0.0,
) -> Bound:
    """Epsilon without replacement, under substitution, when the adversary owns `malicious` records.

    Who owns records knows whether they are in the batch and so how many honest ones are. Exact for
    the mixture over that number, unless `slack` asks for the paper's way: the quantile that the
    number exceeds with that probability, which is paid out of delta in every step. It is never
    better than the mixture.

    Args:
        n: number of records of all silos together, from 1 to 2^40.
        batch: number of records in a batch, from 1 to `n`.
        malicious: number of records that the adversary owns, from 0 to `n` - 1.
        noise_multiplier: sigma / C, with C the norm to which one record is clipped; no unit.
        steps: number of steps, 1 to 10,000,000.
        delta: probability, in [1e-15, 1).
        slack: probability, from 0 to below delta / steps; 0 for the exact mixture.

    Returns:
        `Bound(lower, upper)`, without unit; with a slack as far apart as it costs.

    Raises:
        StudyError: an argument is out of range, slack * steps leaves nothing of delta, or the
            bounds are too far apart.

    Source: docs/privacy.md P10.

    >>> joint = dict(n=100, batch=10, noise_multiplier=4.0, steps=2, delta=1e-5)
    >>> round(malicious_epsilon(malicious=0, **joint).upper, 2)
    0.45
    >>> round(malicious_epsilon(malicious=50, **joint).upper, 2)
    0.52
    """
    n = arguments.whole("n", n, least=1, most=2**40)
    malicious = arguments.whole("malicious", malicious, least=0, most=n - 1)
    batch = arguments.whole("batch", batch, least=1, most=n)
    steps = arguments.whole("steps", steps, least=1, most=arguments.MOST_STEPS)
    noise_multiplier, delta = arguments.noise(noise_multiplier), arguments.delta(delta)
    slack = arguments.real("slack", slack)
    if not 0 <= slack < delta / steps:
        raise StudyError(
            f"expected slack from 0 to below delta / steps = {delta / steps:.3g}, got {slack:g}; "
            "it is paid in every step, so lower it"
        )
    who: dict[str, Any] = {"records": n, "batch": batch, "malicious": malicious}
    who |= {"noise_multiplier": noise_multiplier, "count": steps}
    if slack:  # counted above and left out below: the bounds are as far apart as it costs
        quantile = dominating_pairs.release_at_quantile(**who, slack=slack)
        return accountant.Composition([quantile]).epsilon(delta)
    return told(
        accountant.Composition([dominating_pairs.release_with_malicious(**who)]).epsilon(delta)
    )


def attack_power(
    *,
    false_positive_rate: float,
    noise_multiplier: float,
    sample_rate: float = 1.0,
    steps: int,
    relation: str = "add-remove",
    sampling: str = "poisson",
) -> float:
    """The largest true-positive rate that any membership attack can have.

    Guarantees: no test with that false-positive rate, whatever its computing power and what it
    knows besides one record, is right about the record more often.

    Args:
        false_positive_rate: the share of non-members that the attack accuses, in [0, 1].
        noise_multiplier, sample_rate, steps, relation, sampling: as for `hubbub.epsilon`.

    Returns:
        A true-positive rate in [0, 1]: the share of members that the attack finds, at most.

    Raises:
        StudyError: an argument is out of range.

    Source: docs/privacy.md P2; TPR <= min over epsilon of e^epsilon FPR + delta(epsilon), in both
    directions (Wasserman and Zhou 2010; Dong, Roth, Su 2022).

    >>> power = attack_power(
    ...     false_positive_rate=0.01, noise_multiplier=10.0, steps=10, sampling="full-batch"
    ... )
    >>> round(power, 3)
    0.022
    """
    rate = arguments.real("false_positive_rate", false_positive_rate)
    whole = _composition(noise_multiplier, sample_rate, steps, relation, sampling)
    return tradeoff.power_bound(whole, rate)


def trade_off(
    *,
    noise_multiplier: float,
    sample_rate: float = 1.0,
    steps: int,
    relation: str = "add-remove",
    sampling: str = "poisson",
    epsilons: ArrayLike | None = None,
) -> tradeoff.TradeOff:
    """Delta as a function of epsilon, from one composition; and through it, every attack's limits.

    Guarantees:
        1. No delta is below the exact one of the dominating pairs, and no `lower` above it; above
           1e-12 they are usually within 3 % of it.
        2. `true_positive_rate` of the result bounds every membership attack.

    Args:
        noise_multiplier, sample_rate, steps, relation, sampling: as for `hubbub.epsilon`.
        epsilons: where to look, between 0 and 50; by default 200 points, from 0 to where delta is
            about 1e-12.

    Returns:
        `TradeOff(epsilon=(m,), delta=(m,), lower=(m,))`, by increasing epsilon.

    Raises:
        StudyError: an argument is out of range.

    Source: docs/privacy.md P1, P2, P11-P13.

    >>> curve = trade_off(noise_multiplier=1.0, sample_rate=0.008, steps=1250, epsilons=[0.5, 1.6])
    >>> bool(0.98e-5 < curve.lower[1] < curve.delta[1] < 1e-5)
    True
    >>> float(curve.true_positive_rate(0.01)) < 0.05
    True
    """
    whole = _composition(noise_multiplier, sample_rate, steps, relation, sampling)
    return tradeoff.trade_off_of(whole, epsilons)


def _step(
    noise: float, rate: float, steps: int, sampling: str, records_per_unit: int = 1
) -> dominating_pairs.Step:
    """A step, with its count checked under the name that the caller used."""
    count = arguments.whole("steps", steps, least=1, most=arguments.MOST_STEPS)
    return dominating_pairs.Step(
        noise_multiplier=noise,
        sample_rate=rate,
        sampling=sampling,
        count=count,
        records_per_unit=records_per_unit,
    )


def _composition(
    noise: float, rate: float, steps: int, relation: str, sampling: str
) -> accountant.Composition:
    """Equal steps, composed."""
    return accountant.Composition([_certifiable(_step(noise, rate, steps, sampling), relation)])


def _certifiable(step: dominating_pairs.Step, relation: str) -> dominating_pairs.Release:
    """A step's release; refused where its losses would leave the range of floats."""
    sampled = step.sampling != "full-batch" and step.sample_rate < 1
    if sampled and step.noise_multiplier < dominating_pairs.LEAST_SAMPLED_NOISE:
        raise StudyError(
            f"expected noise_multiplier of at least {dominating_pairs.LEAST_SAMPLED_NOISE:g} where "
            f"batches are sampled, got {step.noise_multiplier:g}; add noise: so little hides "
            "nothing"
        )
    return dominating_pairs.release(step, relation)
