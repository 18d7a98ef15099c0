"""The accountant's public questions, one function each, in the units that people use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf

from numpy.typing import ArrayLike

from hubbub.core.errors import StudyError
from hubbub.core.privacy import accountant, arguments, dominating_pairs, tradeoff
from hubbub.core.privacy.accountant import calibrate
from hubbub.core.privacy.composition import Bound, told
from hubbub.core.privacy.events import (
    Event,
    JointBatches,
    asked,
    equal_steps,
    releases_of,
)

# Noise multipliers of which events are asked: theirs may be ten times as many.
_ASKED_OF_EVENTS = (dominating_pairs.LEAST_SAMPLED_NOISE, 1e5)


def epsilon(
    *,
    noise_multiplier: float | None = None,
    sample_rate: float = 1.0,
    steps: int | None = None,
    delta: float,
    relation: str = "add-remove",
    sampling: str = "poisson",
    records_per_unit: int = 1,
    events: Sequence[Event] | None = None,
) -> Bound:
    """Epsilon of DP-SGD, or of any events on the same data, certified from both sides.

    Events may be chosen in view of what came before as to what is summed, but not as to which there
    are (P15; `hubbub budget set` for that).

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
        events: in the place of noise_multiplier, sample_rate, steps, sampling and records_per_unit:
            a list of `hubbub.Step`, `JointBatches` (relation "substitute") and `ProjectedStep`
            (relation "add-remove"), in any order; at most 10,000,000 steps in all.

    Returns:
        `Bound(lower, upper)`, within 0.001 of each other (0.1 % above epsilon 1).

    Raises:
        StudyError: an argument is out of range, or the bounds that were found are further apart.

    Source: docs/privacy.md P1, P2, P8, P10-P13, P20.

    >>> training = dict(noise_multiplier=1.0, sample_rate=0.008, steps=1250, delta=1e-5)
    >>> epsilon(**training).upper < 1.6
    True
    >>> round(epsilon(**training, records_per_unit=2).upper, 2)
    3.47
    >>> from hubbub import JointBatches, Step
    >>> training = Step(noise_multiplier=20.0, count=100, sampling="full-batch")
    >>> evaluation = Step(noise_multiplier=10.0, sampling="full-batch")
    >>> round(epsilon(events=[training, evaluation], delta=1e-5).upper, 3)
    2.037
    >>> joint = JointBatches(records=100, batch=10, malicious=50, noise_multiplier=4.0, count=2)
    >>> round(epsilon(events=[joint], delta=1e-5, relation="substitute").upper, 2)
    0.52
    """
    whole = asked(
        events,
        noise_multiplier,
        steps,
        relation,
        sample_rate=sample_rate,
        sampling=sampling,
        records_per_unit=records_per_unit,
    )
    return told(whole.epsilon(delta))


def delta(
    *,
    noise_multiplier: float | None = None,
    sample_rate: float = 1.0,
    steps: int | None = None,
    epsilon: float,
    relation: str = "add-remove",
    sampling: str = "poisson",
    events: Sequence[Event] | None = None,
) -> Bound:
    """Delta of DP-SGD at a given epsilon, certified from both sides.

    Guarantees: those of `hubbub.epsilon`, read the other way round: the mechanism is
    (epsilon, upper)-DP.

    Args:
        noise_multiplier, sample_rate, steps, relation, sampling, events: as for `hubbub.epsilon`.
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
    steps_alike = {"sample_rate": sample_rate, "sampling": sampling}
    return asked(events, noise_multiplier, steps, relation, **steps_alike).delta(epsilon)


def noise_multiplier(
    *,
    epsilon: float,
    delta: float,
    sample_rate: float = 1.0,
    steps: int | None = None,
    relation: str = "add-remove",
    sampling: str = "poisson",
    events: Callable[[float], Sequence[Event]] | None = None,
) -> float:
    """The smallest noise, sigma / C, that keeps DP-SGD, or any events, within (epsilon, delta).

    Guarantees: never overspends: the certified upper epsilon at the result is at most `epsilon`.

    Args:
        epsilon: to stay within, in [0.001, 50]; no unit.
        delta: to stay within, a probability in [1e-15, 1).
        sample_rate, steps, relation, sampling: as for `hubbub.epsilon`.
        events: in the place of sample_rate, steps and sampling: what gives the events of a noise
            multiplier between 0.03 and 100,000, a list as for `hubbub.epsilon`. More noise must
            mean more in each of them, or as much.

    Returns:
        sigma / C, without unit; at least 0.03 where batches are sampled, or events are given.

    Raises:
        StudyError: an argument is out of range, or no noise reaches the target.

    Source: docs/privacy.md P1, P2.

    >>> found = noise_multiplier(epsilon=1.0, delta=1e-5, steps=100, sampling="full-batch")
    >>> round(found, 2)
    37.31
    >>> epsilon(noise_multiplier=found, delta=1e-5, steps=100, sampling="full-batch").upper <= 1.0
    True
    >>> from hubbub import Step
    >>> evaluation = Step(noise_multiplier=8.0, sampling="full-batch")
    >>> def both(noise):
    ...     return [Step(noise_multiplier=noise, count=100, sampling="full-batch"), evaluation]
    >>> round(noise_multiplier(epsilon=1.0, delta=1e-5, events=both), 2)
    42.18
    """
    arguments.delta(delta)
    arguments.choice("relation", relation, arguments.RELATIONS)
    least, most = _ASKED_OF_EVENTS
    if events is None:
        if steps is None:
            raise StudyError("expected steps, or events, got none of them; state what happens")
        events = partial(equal_steps, steps=steps, sample_rate=sample_rate, sampling=sampling)
        (first,) = equal_steps(1.0, steps, sample_rate=sample_rate, sampling=sampling)
        is_sampled = first.sampling != "full-batch" and first.sample_rate < 1
        least, most = least if is_sampled else 0.0, inf
    elif steps is not None or sample_rate != 1 or sampling != "poisson":
        raise StudyError(
            "expected events alone, got them beside steps, sample_rate or sampling; state each "
            "kind of steps as one event"
        )
    of_noise = events
    root = calibrate(
        lambda noise: releases_of(of_noise(min(max(noise, least), most)), relation), epsilon, delta
    )
    return max(root, least)


def attack_power(
    *,
    false_positive_rate: float,
    noise_multiplier: float | None = None,
    sample_rate: float = 1.0,
    steps: int | None = None,
    relation: str = "add-remove",
    sampling: str = "poisson",
    events: Sequence[Event] | None = None,
) -> float:
    """The largest true-positive rate that any membership attack can have.

    Guarantees: no test with that false-positive rate, whatever its computing power and what it
    knows besides one record, is right about the record more often.

    Args:
        false_positive_rate: the share of non-members that the attack accuses, in [0, 1].
        noise_multiplier, sample_rate, steps, relation, sampling, events: as for `hubbub.epsilon`.

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
    steps_alike = {"sample_rate": sample_rate, "sampling": sampling}
    whole = asked(events, noise_multiplier, steps, relation, **steps_alike)
    return tradeoff.power_bound(whole, rate)


def trade_off(
    *,
    noise_multiplier: float | None = None,
    sample_rate: float = 1.0,
    steps: int | None = None,
    relation: str = "add-remove",
    sampling: str = "poisson",
    epsilons: ArrayLike | None = None,
    events: Sequence[Event] | None = None,
) -> tradeoff.TradeOff:
    """Delta as a function of epsilon, from one composition; and through it, every attack's limits.

    Guarantees:
        1. No delta is below the exact one of the dominating pairs, and no `lower` above it; above
           1e-12 they are usually within 3 % of it.
        2. `true_positive_rate` of the result bounds every membership attack.

    Args:
        noise_multiplier, sample_rate, steps, relation, sampling, events: as for `hubbub.epsilon`.
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
    steps_alike = {"sample_rate": sample_rate, "sampling": sampling}
    whole = asked(events, noise_multiplier, steps, relation, **steps_alike)
    return tradeoff.trade_off_of(whole, epsilons)


# Questions of one kind of event that `hubbub.epsilon` answers, each with arguments of its own.


def composed_epsilon(
    steps: Sequence[Event], *, delta: float, relation: str = "add-remove"
) -> Bound:
    """Short for `hubbub.epsilon(events=steps, ...)`.

    Args:
        steps: the events, in any order.
        delta: probability, in [1e-15, 1).
        relation: "add-remove" or "substitute", for all of them.

    Returns:
        `Bound(lower, upper)`, without unit.

    Raises:
        StudyError: as `hubbub.epsilon`.

    Source: docs/privacy.md P1, P2, P11-P13.

    >>> from hubbub import Step
    >>> training = Step(noise_multiplier=20.0, count=100, sampling="full-batch")
    >>> evaluation = Step(noise_multiplier=10.0, sampling="full-batch")
    >>> round(composed_epsilon([training, evaluation], delta=1e-5).upper, 3)
    2.037
    """
    return epsilon(events=steps, delta=delta, relation=relation)


def malicious_epsilon(
    *,
    records: int,
    batch: int,
    malicious: int,
    noise_multiplier: float,
    steps: int,
    delta: float,
    slack: float = 0.0,
) -> Bound:
    """Short for `hubbub.epsilon(events=[JointBatches(...)], ...)`.

    With a `slack` it is the paper's way: the quantile that the number of honest records exceeds
    with that probability, which is paid out of delta in every step. It is never better.

    Args:
        records, batch, malicious, noise_multiplier: as in `hubbub.JointBatches`.
        steps: number of steps, 1 to 10,000,000.
        delta: probability, in [1e-15, 1).
        slack: probability, from 0 to below delta / steps; 0 for the exact mixture.

    Returns:
        `Bound(lower, upper)`, without unit; with a slack as far apart as it costs.

    Raises:
        StudyError: an argument is out of range, slack * steps leaves nothing of delta, or the
            bounds are too far apart.

    Source: docs/privacy.md P10.

    >>> joint = dict(records=100, batch=10, noise_multiplier=4.0, steps=2, delta=1e-5)
    >>> round(malicious_epsilon(malicious=50, **joint).upper, 2)
    0.52
    """
    event = JointBatches(
        records=records,
        batch=batch,
        malicious=malicious,
        noise_multiplier=noise_multiplier,
        count=arguments.whole("steps", steps, least=1, most=arguments.MOST_STEPS),
    )
    delta, slack = arguments.delta(delta), arguments.real("slack", slack)
    if not 0 <= slack < delta / steps:
        raise StudyError(
            f"expected slack from 0 to below delta / steps = {delta / steps:.3g}, got {slack:g}; "
            "it is paid in every step, so lower it"
        )
    if not slack:
        return epsilon(events=[event], delta=delta, relation="substitute")
    # Counted above and left out below: the bounds are as far apart as it costs.
    quantile = dominating_pairs.release_at_quantile(
        records=event.records,
        batch=event.batch,
        malicious=event.malicious,
        noise_multiplier=event.noise_multiplier,
        count=event.count,
        slack=slack,
    )
    return accountant.Composition([quantile]).epsilon(delta)
