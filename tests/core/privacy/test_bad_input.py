"""Bad arguments are refused with one sentence that names the argument, never answered."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import hubbub
from hubbub.core.errors import StudyError

NAN, INF = float("nan"), float("inf")
GOOD: dict[str, dict[str, Any]] = {
    "epsilon": {"noise_multiplier": 1.0, "sample_rate": 0.01, "steps": 100, "delta": 1e-5},
    "delta": {"noise_multiplier": 1.0, "sample_rate": 0.01, "steps": 100, "epsilon": 1.0},
    "noise_multiplier": {"epsilon": 1.0, "delta": 1e-5, "sample_rate": 0.01, "steps": 100},
    "malicious_epsilon": {
        "records": 1000, "batch": 50, "malicious": 10,
        "noise_multiplier": 4.0, "steps": 10, "delta": 1e-5,
    },
    "projection_bound": {"dimension": 100, "delta": 1e-6},
    "projected_epsilon": {
        "dimension": 100, "noise_multiplier": 1.5, "sample_rate": 0.01, "steps": 50, "delta": 1e-5,
    },
    "attack_power": {
        "false_positive_rate": 0.1, "noise_multiplier": 1.0, "sample_rate": 0.01, "steps": 100,
    },
}  # fmt: skip
BAD: dict[str, list[object]] = {
    "noise_multiplier": [-1.0, 0.0, NAN, INF, "1.0", True, None],
    "sample_rate": [-0.1, 0.0, 1.5, NAN, INF, "0.1", True, None],
    "steps": [0, -1, 1_000_000_000, 10_000_001, 1.5, NAN, "100", True, None],
    "delta": [0.0, -1e-5, 1.0, 2.0, 1e-16, NAN, INF, "1e-5", True, None],
    "epsilon": [-1.0, NAN, INF, "1", True, None],
    "relation": ["add", "", 1, None],
    "sampling": ["uniform", "", 1, None],
    "records": [0, -5, 1.5, "1000", True],
    "batch": [0, -1, 1001, 2.5, "50", True],
    "malicious": [-1, 1000, 2000, 0.5, "3", True],
    "dimension": [0, -1, 1.5, NAN, "100", True],
    "false_positive_rate": [-0.1, 1.1, NAN, INF, "0.1", True],
}
TAKES_KIND = ("epsilon", "delta", "noise_multiplier", "attack_power")


def refused(call: Callable[[], object], name: str) -> None:
    """Assert that the call is refused in one sentence that names `name`."""
    with pytest.raises(StudyError) as caught:
        call()
    text = str(caught.value)
    assert re.search(rf"\b{name}\b", text), text
    assert "\n" not in text
    assert 15 < len(text) < 300
    assert not re.search(r"[.!?]\s+[A-Z]", text), text


def arguments(function: str) -> list[str]:
    extra = ["relation", "sampling"] if function in TAKES_KIND else []
    return [*GOOD[function], *extra]


@pytest.mark.quick_cases("projection_bound", "attack_power", "malicious_epsilon", "epsilon")
@pytest.mark.parametrize("function", GOOD)
def test_good_arguments_are_accepted(function: str) -> None:
    assert getattr(hubbub, function)(**GOOD[function]) is not None


@pytest.mark.quick_cases(
    "epsilon-noise_multiplier--1.0",
    "epsilon-noise_multiplier-0.0",
    "epsilon-noise_multiplier-nan",
    "epsilon-noise_multiplier-inf",
)
@pytest.mark.parametrize(
    ("function", "name", "value"),
    [
        pytest.param(function, name, value, id=f"{function}-{name}-{value!r}")
        for function in GOOD
        for name in arguments(function)
        for value in BAD[name]
        # A projection's delta is divided among the steps: there 1e-16 is an ordinary value.
        if (function, value) != ("projection_bound", 1e-16)
    ],
)
def test_bad_argument_is_refused_by_name(function: str, name: str, value: object) -> None:
    refused(lambda: getattr(hubbub, function)(**{**GOOD[function], name: value}), name)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (name, value)
        for name in ("noise_multiplier", "sample_rate", "sampling")
        for value in BAD[name]
    ]
    + [("count", value) for value in BAD["steps"]],
)
def test_bad_step_is_refused_by_name(name: str, value: object) -> None:
    good: dict[str, Any] = {
        "noise_multiplier": 1.0, "sample_rate": 0.1, "sampling": "poisson", "count": 10,
    }  # fmt: skip
    refused(
        lambda: hubbub.composed_epsilon([hubbub.Step(**{**good, name: value})], delta=1e-5), name
    )


@pytest.mark.parametrize("steps", [[], "abc", [1.0], None, 5])
def test_list_of_steps_must_hold_steps(steps: Any) -> None:
    refused(lambda: hubbub.composed_epsilon(steps, delta=1e-5), "steps")


def test_counts_of_all_steps_together_are_limited() -> None:
    half = hubbub.Step(noise_multiplier=100.0, sample_rate=0.001, count=6_000_000)
    with pytest.raises(StudyError):
        hubbub.composed_epsilon([half, half], delta=1e-5)


@pytest.mark.parametrize("relation", BAD["relation"])
def test_unknown_relation_of_a_composition_is_refused(relation: Any) -> None:
    step = hubbub.Step(noise_multiplier=1.0, sample_rate=0.1, count=10)
    refused(lambda: hubbub.composed_epsilon([step], delta=1e-5, relation=relation), "relation")


def test_sample_rate_beside_no_sampling_is_refused() -> None:
    refused(
        lambda: hubbub.epsilon(
            noise_multiplier=10.0, sample_rate=0.1, steps=1, delta=1e-5, sampling="full-batch"
        ),
        "sample_rate",
    )


def test_epsilon_above_fifty_is_told() -> None:
    told = hubbub.epsilon(noise_multiplier=0.3, steps=100, delta=1e-5, sampling="full-batch")
    assert 690 < told.lower <= told.upper < 700


def test_bounds_that_are_far_apart_are_refused_and_not_told() -> None:
    """Losses past 600 are not looked at: from above there is no answer."""
    refused(
        lambda: hubbub.epsilon(noise_multiplier=0.03, sample_rate=0.5, steps=100, delta=1e-5),
        "epsilon",
    )


@pytest.mark.parametrize("sampling", ["full-batch", "poisson", "without-replacement"])
def test_epsilon_of_almost_nothing_is_zero_or_refused_as_too_small(sampling: str) -> None:
    # Delta 1e-5 alone covers this mechanism: the true epsilon is 0.
    try:
        bound = hubbub.epsilon(noise_multiplier=1e6, steps=1, delta=1e-5, sampling=sampling)
    except StudyError as error:
        assert "0.001" in str(error) or "1e-3" in str(error) or "1e-03" in str(error)  # noqa: PT017
    else:
        assert bound.lower == 0.0
        assert bound.upper <= 1e-3


@pytest.mark.parametrize("epsilon", [1e-4, 51.0])
def test_calibrating_to_an_unsupported_epsilon_is_refused(epsilon: float) -> None:
    refused(
        lambda: hubbub.noise_multiplier(epsilon=epsilon, delta=1e-5, sample_rate=0.01, steps=100),
        "epsilon",
    )


def test_bound_and_step_cannot_be_changed() -> None:
    bound = hubbub.epsilon(**GOOD["epsilon"])
    with pytest.raises(AttributeError):
        bound.upper = 0.0  # type: ignore[misc]
