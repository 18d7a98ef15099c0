"""Amounts whose logarithm is learned: losses, predictions and scores in their own unit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import hubbub
from hubbub.errors import StudyError
from hubbub.learning.null_model import beside_null
from hubbub.learning.target_types import Amount

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
