"""Every certified interval holds the oracle's value and is narrow: 1e-3, or 1e-3 * epsilon above 1.

The settings and the oracle's values are in `oracle_values`.
"""

from __future__ import annotations

from typing import Any

import pytest

import hubbub
from hubbub.core.privacy.accountant import GAP, Composition
from hubbub.core.privacy.dominating_pairs import Step, release
from privacy import oracle, oracle_values
from privacy.oracle_values import (
    DELTAS,
    EPSILONS,
    MALICIOUS,
    PARTS,
    POWERS,
    PROJECTED,
    QUESTIONS,
    UNLIKE,
    Question,
    compute,
    named,
    truth,
)

WIDEST = 1e-3
DEAR = ("projected", "signs")  # seconds each; the others take a second together


def every(questions: list[Question]) -> Any:
    return pytest.mark.parametrize("question", questions, ids=named)


def said(question: Question) -> dict[str, Any]:
    """The question's arguments as the accountant takes them."""
    return {name: value for name, value in question.items() if name != "kind"}


def holds(bound: hubbub.Bound, truth: oracle.Estimate) -> None:
    """Assert that the interval contains the estimate and is narrow."""
    assert truth.error < 1e-9 * max(1.0, truth.value)
    assert bound.lower - truth.error <= truth.value <= bound.upper + truth.error
    assert bound.upper - bound.lower <= WIDEST * max(1.0, truth.value)


# The committed values --------------------------------------------------------------------------


@pytest.mark.quick_cases(
    "epsilon-add-remove-poisson-10.0-0.99-50-1e-06",
    "epsilon-substitute-full-batch-5.0-1.0-10-1e-05",
    "delta-substitute-without-replacement-2.0-0.008-1250-1.9",
    "delta-substitute-full-batch-10.0-1.0-10-1.0",
)
@pytest.mark.slow_cases(
    "power-substitute-0.01",
    "power-substitute-0.3",
    "power-add-remove-0.0001",
    "power-add-remove-0.3",
)
@pytest.mark.parametrize(
    "question",
    [
        pytest.param(one, id=named(one), marks=[pytest.mark.slow] * (one["kind"] in DEAR))
        for one in QUESTIONS
    ],
)
def test_the_committed_value_is_what_the_oracle_says(question: Question) -> None:
    found, committed = compute(question), truth(question)
    # Machines differ in the last bits of a sum over the contour, and the search in where it ends.
    assert found.value == pytest.approx(committed.value, rel=1e-9, abs=1e-15)


def test_a_question_without_a_committed_value_is_noticed() -> None:
    assert len(oracle_values._committed()) == len(QUESTIONS)  # none is left over, none is missing
    with pytest.raises(KeyError):
        truth({**EPSILONS[0], "steps": 1251})


# Against them ----------------------------------------------------------------------------------


@pytest.mark.quick_cases(
    "epsilon-add-remove-without-replacement-2.0-0.008-1250-1e-05",
    "epsilon-add-remove-full-batch-1.0-1.0-1-1e-05",
    "epsilon-add-remove-full-batch-1000.0-1.0-1000000-1e-12",
    "epsilon-substitute-poisson-4.0-0.008-1250-1e-11",
)
@every(EPSILONS)
def test_epsilon_interval_holds_the_truth_and_is_narrow(question: Question) -> None:
    holds(hubbub.epsilon(**said(question)), truth(question))


@pytest.mark.quick_cases(
    "delta-substitute-full-batch-10.0-1.0-10-1.0",
    "delta-substitute-poisson-4.0-0.05-1250-2.0",
    "delta-substitute-without-replacement-2.0-0.008-1250-1.9",
    "delta-add-remove-without-replacement-4.0-0.01-10000-2.0",
)
@every(DELTAS)
def test_delta_interval_holds_the_truth_and_is_narrow(question: Question) -> None:
    exact, bound = truth(question), hubbub.delta(**said(question))
    assert bound.lower * (1 - 1e-9) <= exact.value <= bound.upper * (1 + 1e-9)
    assert bound.upper / bound.lower < 1.03  # an epsilon gap of 1e-3 times the tilt of about 15


@every(UNLIKE)
def test_unlike_steps_together_hold_the_truth(question: Question) -> None:
    steps = [
        hubbub.Step(noise_multiplier=z, sample_rate=q, sampling=sampling, count=count)
        for z, q, sampling, count in PARTS
    ]
    holds(hubbub.composed_epsilon(steps, delta=1e-6, **said(question)), truth(question))


@pytest.mark.quick_cases("malicious-0", "malicious-500")
@every(MALICIOUS)
def test_malicious_interval_holds_the_exact_mixture(question: Question) -> None:
    bound = hubbub.malicious_epsilon(
        records=50_000, batch=500, noise_multiplier=2.0, steps=1250, delta=1e-5, **said(question)
    )
    holds(bound, truth(question))


@pytest.mark.quick_cases("projected-1000-1.133", "projected-100-1.3633")
@every(PROJECTED)
def test_projected_interval_holds_the_exact_mixture(question: Question) -> None:
    bound = hubbub.projected_epsilon(sample_rate=0.008, steps=1250, delta=1e-5, **said(question))
    holds(bound, truth(question))


@every(POWERS)
def test_attack_power_bounds_the_best_test(question: Question) -> None:
    best = truth(question).value
    power = hubbub.attack_power(
        noise_multiplier=1.0, sample_rate=0.008, steps=1250, sampling="poisson", **said(question)
    )
    assert power >= best * (1 - 1e-9)
    assert power <= min(1.0, best * 1.01 + 1e-4)


@pytest.mark.parametrize("noise", [0.8, 2.0, 11.0])
@pytest.mark.parametrize("rate", [0.01, 0.2])
def test_a_direction_that_is_not_composed_would_have_changed_nothing(noise, rate):
    step = Step(noise_multiplier=noise, sample_rate=rate, sampling="poisson", count=60)
    composed = Composition([release(step, "add-remove")])
    both = [way.epsilon(1e-5, GAP) for way in composed._ways]
    least, most = max(one.lower for one in both), max(one.upper for one in both)
    assert composed.epsilon(1e-5) == hubbub.Bound(lower=least, upper=most)
