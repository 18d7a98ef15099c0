"""Amounts whose logarithm is learned: losses, predictions and scores in their own unit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import hubbub
from hubbub.core.errors import DataError, StudyError
from hubbub.learning.evaluation import beside_null
from hubbub.learning.target_types import Amount, Count

COSTS = Amount(low=10.0, high=1000.0, is_log=True)


def test_bounds_and_their_geometric_mean_are_the_ends_and_the_middle() -> None:
    targets = torch.tensor([10.0, 100.0, 1000.0], dtype=torch.float64)
    ends = COSTS.clip_targets(targets)
    assert ends.tolist() == pytest.approx([-1.0, 0.0, 1.0])
    assert COSTS.predicted(ends).tolist() == pytest.approx(targets.tolist())
    beyond = torch.tensor([0.0, -5.0, 1e6], dtype=torch.float64)
    assert COSTS.clip_targets(beyond).tolist() == pytest.approx([-1.0, -1.0, 1.0])


def test_scores_are_of_raw_values_and_of_logarithms() -> None:
    targets = np.array([100.0, 5000.0])
    found = COSTS.scored(np.zeros(2, np.float32), targets)
    assert found["mae"] == pytest.approx((0 + 4900) / 2)
    assert found["rmsle"] == pytest.approx(np.sqrt(np.log(50.0) ** 2 / 2))
    plain = Amount(low=0.0, high=200.0).scored(np.zeros(2, np.float32), targets)
    assert plain["mae"] == pytest.approx((0 + 4900) / 2)
    assert next(iter(beside_null(COSTS, np.zeros(2, np.float32), targets))) == "rmsle"


def test_a_held_back_score_is_named_after_logarithms() -> None:
    name, value = COSTS.metric(0.25)
    assert name == "held_back_rmsle"
    assert value == pytest.approx(0.5 * np.log(100.0))


@pytest.mark.slow
def test_a_long_tail_is_learned_better_by_its_logarithm() -> None:
    random = np.random.default_rng(0)
    inputs = random.uniform(-1, 1, (3000, 3))
    costs = np.exp(5 + inputs @ [1.0, -1.0, 0.5] + random.normal(0, 0.3, 3000))
    silos = {name: (inputs[k::3], costs[k::3]) for k, name in enumerate("abc")}
    target = {"kind": "numeric", "low": 5, "high": 5000, "scale": "log"}
    made = hubbub.fit(
        silos, epsilon=8, target=target, baseline="trusted", progress=False, test=(inputs, costs)
    )
    assert made.final["rmsle"] < 0.6
    assert made.predict(inputs[:2]).min() >= 0
    with pytest.raises(StudyError, match=r"data\.target\.low"):
        hubbub.fit(silos, epsilon=8, target=target | {"low": 0}, progress=False)


# Means, and rates -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("zeros", [0.0, 0.3, 0.8])
def test_amounts_with_zeros_are_foretold_by_their_mean(zeros: float) -> None:
    """Without noise, within 4 % of the mean whatever part is 0; a median is .5 of it, or 0."""
    random = np.random.default_rng(0)
    inputs = random.uniform(-1, 1, (6000, 2))
    costs = np.exp(7 + 0.5 * inputs @ [1.0, -1.0] + random.normal(0, 1.0, 6000))
    costs *= random.random(6000) >= zeros
    mean = float(costs.mean())
    silos = {name: (inputs[k::3], costs[k::3]) for k, name in enumerate("abc")}
    target = {"kind": "numeric", "low": 0, "high": 60_000, "scale": "log-link"}
    made = hubbub.fit(
        silos,
        epsilon=4,
        target=target | {"mean": float(f"{mean:.1g}")},
        sample_rate=1.0,
        baseline="non-private",
        progress=False,
        test=(inputs, costs),
    )
    assert made.predict(inputs).mean() == pytest.approx(mean, rel=0.04)
    assert np.median(costs) < 0.7 * mean
    assert {"rmse", "mae"} <= {*made.final}


def test_a_model_begins_at_the_declared_mean_whatever_the_scale() -> None:
    still = torch.zeros(2)
    exposed = Count(high=20.0, exposure_high=8.0, mean=0.25)
    assert exposed.predicted(still).tolist() == pytest.approx([0.25] * 2)
    assert Count(high=20.0, mean=3.0).predicted(still).tolist() == pytest.approx([3.0] * 2)
    amount = Amount(low=-10.0, high=1000.0, mean=30.0)
    assert amount.predicted(still).tolist() == pytest.approx([30.0] * 2, rel=1e-5)
    logarithm = Amount(low=10.0, high=1000.0, mean=30.0, is_log=True)
    assert logarithm.predicted(still).tolist() == pytest.approx([30.0] * 2, rel=1e-5)
    assert Amount(low=0.0, high=10.0).predicted(still).tolist() == [5.0, 5.0]


@pytest.mark.slow
def test_rates_are_learned_from_exposures_of_three_orders_of_magnitude() -> None:
    random = np.random.default_rng(0)
    inputs = random.uniform(-1, 1, (3000, 2)).astype(np.float32)
    exposures = np.exp(random.uniform(np.log(0.01), np.log(10), 3000))
    rates = 0.8 * np.exp(0.6 * inputs[:, 0])
    targets = np.column_stack([random.poisson(rates * exposures), exposures])
    silos = {name: (inputs[k::3], targets[k::3]) for k, name in enumerate("abc")}
    target = {"kind": "count", "high": 60, "exposure_high": 10, "mean": 0.5}
    made = hubbub.fit(silos, epsilon=4, target=target, baseline="non-private", progress=False)
    found = made.predict(inputs)
    assert (found * exposures).sum() == pytest.approx(targets[:, 0].sum(), rel=0.05)
    assert np.corrcoef(found, rates)[0, 1] > 0.98
    goal = Count(high=60.0, exposure_high=10.0)
    score = beside_null(goal, np.log(10.0 * found), targets)["poisson_deviance"]
    assert score.is_better
    # One rate for all, not one count: what is left is what the feature tells, half of a tenth.
    assert score.value < score.null < 1.4 * score.value
    for wrong in ([1.0, 0.0], [1.0, -2.0], [0.5, 1.0]):
        bad = {**silos, "a": (inputs[:1], np.array([wrong]))}
        with pytest.raises(DataError, match=r"exposures|from 0"):
            hubbub.fit(bad, epsilon=4, target=target, progress=False)
