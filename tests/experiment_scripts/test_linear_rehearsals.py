"""Linear models that are rehearsed all at once are those of `fit`: step by step, and in law."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from experiments.linear_heads import ClassHead, Hazards, LinearHead, Number, Rate, TwoClasses
from experiments.linear_rehearsals import RehearsalLaw, Settings, rehearsed, with_bias

import hubbub
from hubbub.core.tabular.target import Outcome
from hubbub.learning import scoring

SETTINGS = [Settings(clip_norm=0.4, steps=4, lr=0.03), Settings(clip_norm=5.0, steps=4, lr=0.05)]
# Adam divides a gradient by its own size, so after many steps float32's rounding of a small one
# shows.
CLOSE = 1e-3
RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.uniform(-1, 1, (240, 4)).astype(np.float32)
SIGNAL = INPUTS @ np.array([1.0, -2.0, 0.5, 0.0])
TIMES = RANDOM.exponential(10 * np.exp(-SIGNAL))
AMOUNT: dict[str, Any] = {"kind": "numeric", "low": 1.0, "high": 9.0}
CASES: dict[str, tuple[LinearHead, Any, dict[str, Any]]] = {
    "two classes": (TwoClasses(), (SIGNAL > 0.4).astype(int), {"classes": [0, 1]}),
    "classes": (ClassHead(outputs=3), np.digitize(SIGNAL, [-0.3, 0.8]), {"classes": [0, 1, 2]}),
    "amount": (Number(outcome=Outcome(**AMOUNT)), 5 + 2 * SIGNAL, {"target": AMOUNT}),
    "logarithm": (
        Number(outcome=Outcome(**AMOUNT, scale="log")),
        np.exp(SIGNAL) + 1,
        {"target": AMOUNT | {"scale": "log"}},
    ),
    "count": (
        Rate(outcome=Outcome(kind="count", high=6.0)),
        RANDOM.poisson(np.exp(SIGNAL)).astype(float),
        {"target": {"kind": "count", "high": 6}},
    ),
    "count of an exposure": (
        Rate(outcome=Outcome(kind="count", high=6.0, exposure_high=4.0, mean=0.3)),
        np.column_stack([RANDOM.poisson(np.exp(SIGNAL)), RANDOM.uniform(0.01, 5.0, len(SIGNAL))]),
        {"target": {"kind": "count", "high": 6, "exposure_high": 4, "mean": 0.3}},
    ),
    "amount with a log link": (
        Rate(outcome=Outcome(kind="numeric", high=9.0, scale="log-link", mean=0.8)),
        np.maximum(np.exp(SIGNAL) - 0.7, 0.0),
        {"target": AMOUNT | {"low": 0, "scale": "log-link", "mean": 0.8}},
    ),
    "amount from its mean": (
        Number(outcome=Outcome(**AMOUNT, scale="log", mean=2.0)),
        np.exp(SIGNAL) + 1,
        {"target": AMOUNT | {"scale": "log", "mean": 2.0}},
    ),
    "times on visits": (
        Hazards(grid=(5.0, 10.0, 20.0), step=2.0),
        np.column_stack([2.0 * np.ceil(np.minimum(TIMES, 15.0) / 2), TIMES <= 15.0]),
        {"target": {"kind": "time-to-event", "grid": [5, 10, 20], "step": 2}},
    ),
    "times": (
        Hazards(grid=(5.0, 10.0, 20.0)),
        np.column_stack([np.minimum(TIMES, 15.0), TIMES <= 15.0]),
        {"target": {"kind": "time-to-event", "grid": [5, 10, 20]}},
    ),
}


def fitted(targets: Any, settings: Settings, rate: float, baseline: str, **what: Any) -> Any:
    silos = {name: (INPUTS[k::3], targets[k::3]) for k, name in enumerate("abc")}
    return hubbub.fit(
        silos,
        epsilon=8.0,
        steps=settings.steps,
        sample_rate=rate,
        clip_norm=settings.clip_norm,
        optimizer=settings.optimizer,
        baseline=baseline,
        progress=False,
        records=len(INPUTS),
        capacity=len(INPUTS),
        **what,
    )


@pytest.mark.parametrize("grid", [(5.0,), (5.0, 10.0, 20.0)])
def test_hazards_have_the_loss_and_the_slopes_that_a_model_learns_by(
    grid: tuple[float, ...],
) -> None:
    head = Hazards(grid=grid)
    targets = np.column_stack([np.minimum(TIMES, 15.0), TIMES <= 15.0])
    odds = np.random.default_rng(2).normal(size=(len(targets), len(grid)))
    outputs = torch.tensor(odds, requires_grad=True)
    losses = scoring.hazards(outputs, torch.tensor(targets), grid=grid)
    losses.sum().backward()
    known = head.known(targets)
    np.testing.assert_allclose(head.losses(odds[:, None], known)[:, 0], losses.detach(), rtol=1e-9)
    np.testing.assert_allclose(head.slopes(odds[:, None], known)[:, 0], outputs.grad, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_without_noise_and_coins_every_step_is_that_of_fit(case: str) -> None:
    head, targets, what = CASES[case]
    law = RehearsalLaw(noise_multiplier=0.0, sample_rate=1.1, divisor=float(len(INPUTS)))
    found = rehearsed(head, INPUTS, targets, SETTINGS, law, np.random.default_rng(1))
    outputs = found.outputs(with_bias(INPUTS))
    for k, settings in enumerate(SETTINGS):
        model = fitted(targets, settings, 1.0, "non-private", **what).model
        weights = [one.detach().numpy() for one in model.parameters()]
        assert pytest.approx(weights[0], abs=CLOSE) == found.weights[:-1, k].T
        assert found.weights[-1, k] == pytest.approx(weights[1], abs=CLOSE)
        assert np.isfinite(outputs[:, k]).all()
        if head.intercepts:
            assert found.intercepts[k] == pytest.approx(weights[-1], abs=CLOSE)


@pytest.mark.slow
def test_with_noise_and_coins_losses_have_the_mean_of_fits_and_another_noise_has_not() -> None:
    """Means of 25 fits and 400 rehearsals: 4 standard errors apart in 1 of 10,000 cases."""
    head, targets, what = CASES["two classes"]
    settings = Settings(clip_norm=1.0, steps=25, lr=0.3)
    known = with_bias(INPUTS)
    losses = []
    plan = fitted(targets, settings, 0.3, "trusted", **what).plan
    for _ in range(25):
        made = fitted(targets, settings, 0.3, "trusted", **what)
        weights = [one.detach().numpy().ravel() for one in made.model.parameters()]
        outputs = (known @ np.concatenate(weights))[:, None, None]
        losses.append(float(head.losses(outputs, head.known(targets)).mean()))
    apart = {}
    for factor in (1.0, 3.0):
        law = RehearsalLaw(
            noise_multiplier=factor * plan.noise_multiplier,
            sample_rate=0.3,
            divisor=plan.mechanism.divisor,
        )
        again = [
            rehearsed(head, INPUTS, targets, [settings], law, np.random.default_rng(seed))
            for seed in range(400)
        ]
        found = np.array([one.losses(INPUTS, targets)[0] for one in again])
        error = np.sqrt(np.var(losses) / 25 + np.var(found) / 400)
        apart[factor] = abs(found.mean() - np.mean(losses)) / error
    assert apart[1.0] < 4
    assert apart[3.0] > 4


def test_knowing_nothing_is_the_best_output_for_all() -> None:
    assert TwoClasses().null_loss(np.array([1, 0, 0, 0]), np.array([1, 0, 0, 0])) == pytest.approx(
        -(0.25 * np.log(0.25) + 0.75 * np.log(0.75))
    )
    for head, targets, _ in CASES.values():
        null = head.null_loss(targets, targets)
        width = head.intercepts or head.outputs
        for moved in (-0.1, 0.1):
            others = np.full((len(targets), 1, width), moved)
            assert null <= head.losses(others, head.known(targets)).mean() + 1e-9
