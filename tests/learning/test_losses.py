"""Losses of amounts, counts and times: closed forms, and what one record can do under each."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from hubbub.learning import EvaluationTask, TrainingTask, build_model, checked_method, clipped_sum
from hubbub.learning.losses import (
    hazard_errors,
    hazards,
    huber,
    intervals,
    log_odds,
    poisson,
    squared,
)
from hubbub.learning.target_types import Amount, Count, TargetType, TimeToEvent
from hubbub.study import ScoreVector
from hubbub.tabular import Records

VECTOR = ScoreVector.of("add-remove")
GRID = (1.0, 2.5, 4.0)
GOALS = [
    Amount(low=-3.0, high=5.0),
    Amount(low=-3.0, high=5.0, is_huber=True),
    Count(high=20.0),
    TimeToEvent(grid=GRID),
]
HUGE = 1e300  # float64, far beyond what a float32 holds


def model_for(target_type: TargetType, features: int = 4) -> nn.Module:
    grid = len(target_type.grid) if isinstance(target_type, TimeToEvent) else 0
    return build_model("logistic", inputs=(features,), outputs=1, seed=b"", intervals=grid)


def hostile(target_type: TargetType) -> np.ndarray:
    """Targets at and beyond every end."""
    if isinstance(target_type, TimeToEvent):
        times = [0.0, 1.0, 2.5, 4.0, 4.0 + 1e-12, 1e9, HUGE, 5e-324]
        return np.array([[time, event] for time in times for event in (0.0, 1.0)])
    if isinstance(target_type, Count):
        return np.array([0.0, 1.0, 20.0, 21.0, 1e9, HUGE])
    return np.array([-3.0, 5.0, 5.0 + 1e-9, -1e9, HUGE, -HUGE])


# Closed forms ----------------------------------------------------------------------------------


def test_amounts_are_clipped_and_scaled_by_their_bounds() -> None:
    outputs, targets = torch.randn(9), torch.linspace(-4, 6, 9, dtype=torch.float64)
    scaled = ((targets.clamp(-3, 5) - 1) / 4).float()
    bounds = {"low": -3.0, "high": 5.0}
    expected = functional.mse_loss(outputs, scaled, reduction="none")
    torch.testing.assert_close(squared(outputs, targets, **bounds), expected)
    expected = functional.huber_loss(outputs, scaled, reduction="none", delta=0.2)
    torch.testing.assert_close(huber(outputs, targets, **bounds), expected)


def test_counts_have_half_the_poisson_deviance() -> None:
    outputs = torch.randn(8, dtype=torch.float64)
    targets = torch.tensor([0.0, 0, 1, 2, 3, 7, 20, 30], dtype=torch.float64)
    known = targets.clamp(max=20)
    likelihood = functional.poisson_nll_loss(outputs, known, log_input=True, reduction="none")
    best = torch.where(known > 0, known - known * known.clamp(min=1).log(), 0.0)
    found = poisson(outputs, targets, high=20.0)
    torch.testing.assert_close(found, likelihood - best)
    assert (found >= 0).all()
    exact = torch.tensor([3.0], dtype=torch.float64)
    assert float(poisson(exact.log(), exact, high=20.0)) == pytest.approx(0, abs=1e-12)


def by_hand(row: np.ndarray, time: float, event: bool) -> float:
    """Minus the log of the chance of what a record shows, interval by interval."""
    chance, start = 1.0, -math.inf
    for hazard, end in zip(row, GRID, strict=True):
        if event and start < time <= end:
            return -math.log(chance * hazard)
        if time < end:  # censored within the interval, of which it says nothing
            return -math.log(chance)
        chance, start = chance * (1 - hazard), end
    return -math.log(chance)


def test_hazards_have_the_likelihood_of_a_records_own_intervals() -> None:
    outputs = torch.randn(14, 3, dtype=torch.float64)
    times = [0.0, 0.5, 1.0, 1.0 + 1e-9, 2.5, 4.0, 9.0]
    targets = torch.tensor([[time, event] for time in times for event in (0, 1)])
    rows = torch.sigmoid(log_odds(outputs, 3)).numpy()
    expected = [by_hand(row, *one) for row, one in zip(rows, targets.tolist(), strict=True)]
    found = hazards(outputs, targets, grid=GRID)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6, atol=1e-12)


def test_outputs_of_zero_mean_that_half_have_the_event() -> None:
    free = TimeToEvent(grid=GRID).predicted(torch.zeros(1, 3, dtype=torch.float64))
    assert float(free[0, -1]) == pytest.approx(0.5)


def test_what_is_beyond_the_grid_is_not_seen() -> None:
    late = torch.tensor([[9.0, 1.0], [9.0, 0.0], [4.0, 0.0]], dtype=torch.float64)
    outputs = torch.randn(1, 3).expand(3, 3)
    assert len(set(hazards(outputs, late, grid=GRID).tolist())) == 1
    without, with_it = intervals(late, GRID)
    assert without.all()
    assert not with_it.any()


# What a record can do --------------------------------------------------------------------------


@pytest.mark.parametrize("target_type", GOALS, ids=repr)
def test_every_method_gives_the_same_gradients(target_type: TargetType) -> None:
    model = model_for(target_type)
    nn.init.normal_(model[0].weight, generator=torch.Generator().manual_seed(1))
    targets = torch.from_numpy(target_type.some_targets(6))
    inputs = torch.randn(6, 4, generator=torch.Generator().manual_seed(2))
    outputs = model(inputs).shape[1] if isinstance(target_type, TimeToEvent) else 1
    loss = target_type.loss(outputs, targets.dtype)
    assert checked_method(model, loss, inputs, targets) == "chain"
    sums = [
        clipped_sum(model, loss, inputs, targets, 0.3, method=method).vector
        for method in ("chain", "vmap", "loop")
    ]
    torch.testing.assert_close(sums[0], sums[2], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(sums[1], sums[2], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("target_type", GOALS, ids=repr)
def test_a_records_part_is_at_most_the_clip_whatever_its_target(target_type: TargetType) -> None:
    targets = hostile(target_type)
    inputs = np.full((len(targets), 4), 1e6, dtype=np.float32)
    model = model_for(target_type)
    task = TrainingTask(
        model, Records(inputs=inputs, targets=targets), clip=0.5, margin=1e-5, method="auto",
        target_type=target_type,
    )  # fmt: skip
    random = np.random.default_rng(0)
    dimension = sum(p.numel() for p in model.parameters() if p.requires_grad)
    for scale in (0.0, 1e-3, 1e3):
        parameters = (scale * random.normal(size=dimension)).astype(np.float32)
        for row in range(len(targets)):
            part = task.clipped_sum(parameters, np.array([row, -1, -1]))
            assert np.linalg.norm(part) <= 0.5


@pytest.mark.parametrize("target_type", GOALS, ids=repr)
@pytest.mark.parametrize("value", [math.nan, -1.0, -HUGE, math.inf, -math.inf])
def test_targets_that_no_file_can_hold_add_at_most_the_clip_too(
    target_type: TargetType, value: float
) -> None:
    """`Records` refuses them; the sum does not rely on it."""
    model, some = model_for(target_type), target_type.some_targets(3)
    some[1] = value
    loss = target_type.loss(len(GRID) if isinstance(target_type, TimeToEvent) else 1, torch.float64)
    kept = torch.tensor([False, True, False])
    found = clipped_sum(
        model, loss, torch.ones(3, 4), torch.from_numpy(some), 0.5, method="chain", counted=kept
    )
    assert found.vector.isfinite().all()
    assert float(found.vector.double().norm()) <= 0.5


@pytest.mark.parametrize("target_type", GOALS, ids=repr)
def test_one_record_more_moves_an_evaluation_by_at_most_one(target_type: TargetType) -> None:
    targets = hostile(target_type)
    inputs = np.linspace(-1e6, 1e6, 4 * len(targets), dtype=np.float32).reshape(-1, 4)
    model = model_for(target_type)
    task = EvaluationTask(model, Records(inputs=inputs, targets=targets), target_type=target_type)
    dimension = sum(p.numel() for p in model.parameters() if p.requires_grad)
    for scale in (0.0, 1.0, 1e30):
        parameters = np.full(dimension, scale, dtype=np.float32)
        for row in range(len(targets)):
            part = task.clipped_sum(parameters, np.array([row, -1]))
            assert np.linalg.norm(part) <= 1 + 1e-12
            count, *scores = VECTOR.sums_of(part)
            assert count == pytest.approx(1)
            assert min(scores) >= -1e-12
            assert max(scores) <= 1 + 1e-12


def test_hazard_errors_are_a_mean_over_a_records_own_intervals() -> None:
    outputs = torch.zeros(2, 3, dtype=torch.float64)
    hazard = 1 - 0.5 ** (1 / 3)
    targets = torch.tensor([[2.0, 1.0], [0.5, 0.0]], dtype=torch.float64)
    found = hazard_errors(outputs, targets, grid=GRID)
    expected = [(hazard**2 + (1 - hazard) ** 2) / 2, 0.0]
    np.testing.assert_allclose(found.numpy(), expected)


def test_a_loss_with_positional_arguments_is_not_taken_for_one_that_is_known() -> None:
    target_type = Amount(low=-3.0, high=5.0)
    strange = partial(squared, torch.zeros(1))
    from hubbub.learning.linear_chain import _is_row_loss

    assert _is_row_loss(target_type.loss(1, torch.float64))
    assert not _is_row_loss(strange)
