"""Losses of amounts, counts and times: closed forms, and what one record can do under each."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from scipy import optimize
from torch import nn
from torch.nn import functional

from hubbub.core.tabular.records import Records
from hubbub.learning import EvaluationTask, TrainingTask, build_model, checked_method, clipped_sum
from hubbub.learning.queries.beside_training import ScoreVector
from hubbub.learning.scoring import (
    amount_errors,
    followed,
    hazard_errors,
    hazards,
    log_odds,
    poisson,
)
from hubbub.learning.silo_tasks import ScoreMarks
from hubbub.learning.target_types import Amount, Count, TargetType, TimeToEvent

VECTOR = ScoreVector.of("add-remove")
GRID = (1.0, 2.5, 4.0)
GOALS = [
    Amount(low=-3.0, high=5.0),
    Amount(low=-3.0, high=5.0, is_huber=True),
    Amount(low=1.0, high=5.0, is_log=True, mean=2.0),
    Count(high=20.0),
    Count(high=20.0, unit=2.5, mean=2.5),
    Count(high=20.0, exposure_high=8.0, mean=0.5),
    TimeToEvent(grid=GRID),
    TimeToEvent(grid=GRID, step=0.5),
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
    if isinstance(target_type, Count) and target_type.exposure_high:
        counts, exposures = [0.0, 1.0, 20.0, 21.0, HUGE], [5e-324, 1e-3, 8.0, 9.0, HUGE]
        return np.array([[count, exposure] for count in counts for exposure in exposures])
    if isinstance(target_type, Count):
        return np.array([0.0, 1.0, 20.0, 21.0, 1e9, HUGE])
    return np.array([-3.0, 5.0, 5.0 + 1e-9, -1e9, HUGE, -HUGE])


# Closed forms ----------------------------------------------------------------------------------


def test_amounts_are_clipped_and_scaled_by_their_bounds() -> None:
    outputs, targets = torch.randn(9), torch.linspace(-4, 6, 9, dtype=torch.float64)
    scaled = ((targets.clamp(-3, 5) - 1) / 4).float()
    bounds = {"low": -3.0, "high": 5.0}
    expected = functional.mse_loss(outputs, scaled, reduction="none")
    torch.testing.assert_close(amount_errors(outputs, targets, **bounds), expected)
    expected = functional.huber_loss(outputs, scaled, reduction="none", delta=0.2)
    torch.testing.assert_close(amount_errors(outputs, targets, **bounds, is_huber=True), expected)


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


def by_hand(odds: np.ndarray, time: float, event: bool) -> float:
    """Minus the log-likelihood of a hazard that is a power of time in each interval."""
    hazards_by_end = np.log1p(np.exp(odds))
    ends, starts = np.array(GRID), np.array([0.0, *GRID[:-1]])
    rates, middles = np.log(hazards_by_end / (ends - starts)), np.log((starts + ends) / 2)
    growth = hazards_by_end[:2].sum() / hazards_by_end[0]
    powers = [
        math.log(growth) / math.log(GRID[1] / GRID[0]),
        1 + (rates[2] - rates[0]) / (middles[2] - middles[0]),
        1 + (rates[2] - rates[1]) / (middles[2] - middles[1]),
    ]
    lost = 0.0
    for hazard, start, end, power in zip(
        hazards_by_end, starts, ends, np.clip(powers, 0.2, 4.0), strict=True
    ):
        if event and time == end:  # of one visit, say, and of nothing known within it
            return lost - math.log(-math.expm1(-hazard))
        if time < end:
            part = (time**power - start**power) / (end**power - start**power)
            return lost + hazard * part - (math.log(hazard) if event else 0.0)
        lost += hazard
    return lost


def test_hazards_have_the_likelihood_of_a_records_own_intervals() -> None:
    outputs = 3.0 * torch.randn(14, 3, dtype=torch.float64)
    times = [0.0, 0.5, 1.0, 1.0 + 1e-9, 2.5, 4.0, 9.0]
    targets = torch.tensor([[time, event] for time in times for event in (0, 1)])
    rows = log_odds(outputs, 3).numpy()
    expected = [by_hand(row, *one) for row, one in zip(rows, targets.tolist(), strict=True)]
    found = hazards(outputs, targets, grid=GRID)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6, atol=1e-12)


def test_a_records_slope_in_a_hazards_log_odds_is_one_at_most_however_rare_the_event() -> None:
    times = [0.0, 1e-12, 0.5, 1.0, 1.7, 2.5, 3.9, 4.0, 9.0]
    for value in (-200.0, -30.0, -15.0, -3.0, 0.0, 4.0, 80.0):
        rows = torch.tensor([[time, event] for time in times for event in (0.0, 1.0)])
        outputs = torch.full((len(rows), 3), value, requires_grad=True)
        loss = hazards(outputs, rows.double(), grid=GRID)
        (slopes,) = torch.autograd.grad(loss.sum(), outputs)
        assert torch.isfinite(loss).all()
        assert slopes.abs().max() <= 1.0 + 1e-6


def kaplan_meier(times: np.ndarray, events: np.ndarray, at: tuple[float, ...]) -> np.ndarray:
    """The curve at some times, by its definition."""
    points = np.unique(times[events])
    there = np.array([(times >= point).sum() for point in points])
    died = np.array([(times[events] == point).sum() for point in points])
    return np.array([np.prod((1 - died / there)[points <= end]) for end in at])


def best_survival(
    x: np.ndarray, targets: np.ndarray, grid: tuple[float, ...], step: float = 0.0
) -> np.ndarray:
    """Mean survival that the model foretells whose loss has no slope."""
    goal = TimeToEvent(grid=grid, step=step)
    inputs, known = torch.from_numpy(x), torch.from_numpy(targets)

    def outputs(weights: torch.Tensor) -> torch.Tensor:
        return inputs[:, None] * weights[0] + weights[1:]

    def slope(numbers: np.ndarray) -> np.ndarray:
        weights = torch.tensor(numbers, requires_grad=True)
        goal.loss(len(grid), known.dtype)(outputs(weights), known).mean().backward()
        assert weights.grad is not None
        return weights.grad.numpy()

    solved = optimize.root(slope, np.zeros(1 + len(grid)))
    assert np.abs(solved.fun).max() < 1e-6
    return goal.predicted(outputs(torch.from_numpy(solved.x))).numpy().mean(0)


YEARS = (365.0, 730.0, 1095.0, 1460.0, 1825.0)
LOSSES = {
    "uniform": lambda draw, n: draw.uniform(0, 1950, n),
    "exponential": lambda draw, n: draw.exponential(1400, n),
    "administrative": lambda draw, n: np.full(n, 1825.0),
    "staggered": lambda draw, n: draw.uniform(1095, 1900, n),
    "before and at the end": lambda draw, n: np.minimum(draw.uniform(0, 3000, n), 1825.0),
}


@pytest.mark.quick_cases(
    "before and at the end-84.0", "uniform-84.0", "staggered-84.0", "exponential-84.0"
)
@pytest.mark.parametrize("visits", [0.0, 84.0])
@pytest.mark.parametrize("losses", LOSSES)
def test_survival_is_foretold_as_kaplan_and_meier_see_it_however_records_are_lost(
    losses: str, visits: float
) -> None:
    """By dates and by visits off the grid, which none of the times is; ten cohorts.

    Both are of the same records, so what parts them is how each reads who is lost: seen are .006
    at most. Without the part of an interval that such a record was seen it is .15 to .6.
    """
    draw, n = np.random.default_rng(3), 3000
    x = draw.uniform(-1, 1, n)
    died, lost = draw.exponential(2500 * np.exp(-0.8 * x)), LOSSES[losses](draw, n)
    if visits:
        died, lost = np.ceil(died / visits) * visits, np.floor(lost / visits) * visits
    times, events = np.round(np.minimum(died, lost)), died <= lost
    last = 4 if losses in ("uniform", "exponential") or visits else 5
    grid = YEARS[:last]
    truth = kaplan_meier(times, events, grid)
    found = best_survival(x, np.column_stack([times, events]).astype(float), grid, visits)
    np.testing.assert_allclose(found, truth, atol=0.015)


CHANGING = {
    "falling": lambda draw, n: 3000 * draw.weibull(0.5, n),
    "steeply falling": lambda draw, n: 1200 * draw.weibull(0.3, n),
    "rising": lambda draw, n: 1900 * draw.weibull(3.0, n),
}


@pytest.mark.slow
@pytest.mark.parametrize("law", CHANGING)
def test_survival_is_foretold_where_hazards_change_inside_intervals(
    law: str,
) -> None:
    """As by Kaplan and Meier: seen are .005 at most; with hazards that are even .023 to .088."""
    draw, n = np.random.default_rng(5), 12_000
    died, lost = CHANGING[law](draw, n), draw.uniform(0, 2500, n)
    times, events = np.minimum(died, lost).clip(min=1e-3), died <= lost
    grid = (365.0, 730.0, 1095.0, 1825.0)
    targets = np.column_stack([times, events]).astype(float)
    truth = kaplan_meier(times, events, grid)
    np.testing.assert_allclose(best_survival(np.zeros(n), targets, grid), truth, atol=0.012)


def test_discrete_times_on_the_grid_have_the_hazards_that_are_counted() -> None:
    draw, n = np.random.default_rng(1), 2000
    visit, left = draw.geometric(0.3, n), draw.integers(1, 5, n)
    times, events = np.minimum(visit, left).astype(float), visit <= left
    grid = (1.0, 2.0, 3.0, 4.0)
    targets = np.column_stack([times, events]).astype(float)
    found = best_survival(np.zeros(n), targets, grid)
    np.testing.assert_allclose(found, kaplan_meier(times, events, grid), atol=1e-4)


def test_outputs_of_zero_mean_that_half_have_the_event() -> None:
    free = TimeToEvent(grid=GRID).predicted(torch.zeros(1, 3, dtype=torch.float64))
    assert float(free[0, -1]) == pytest.approx(0.5)


def test_what_is_beyond_the_grid_is_not_seen() -> None:
    late = torch.tensor([[9.0, 1.0], [9.0, 0.0], [4.0, 0.0]], dtype=torch.float64)
    outputs = torch.randn(1, 3).expand(3, 3)
    assert len(set(hazards(outputs, late, grid=GRID).tolist())) == 1
    seen, inside, at_end = followed(late, GRID)
    assert (seen == 1).all()
    assert not (inside + at_end).any()


# What a record can do --------------------------------------------------------------------------


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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
    expected = [(hazard**2 + (1 - hazard) ** 2) / 2, 0.5 * hazard**2]
    np.testing.assert_allclose(found.numpy(), expected)


def test_a_loss_with_positional_arguments_is_not_taken_for_one_that_is_known() -> None:
    target_type = Amount(low=-3.0, high=5.0)
    strange = partial(amount_errors, torch.zeros(1))
    from hubbub.learning.clipped_sums import _is_row_loss

    assert _is_row_loss(target_type.loss(1, torch.float64))
    assert not _is_row_loss(strange)


@pytest.mark.parametrize("relation", ["add-remove", "substitute"])
def test_p16_a_records_marks_are_as_long_as_charged_whatever_its_score_and_loss(
    relation: str,
) -> None:
    values = torch.tensor([-math.inf, -1e300, -1.0, 0.5, 3.0, 1e300, math.inf, math.nan])
    scores, losses = map(torch.flatten, torch.meshgrid(values, values, indexing="ij"))

    class Claimed(Amount):
        def record_score(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            return outputs

    vector = ScoreVector.of(relation)
    asked = Claimed(low=-3.0, high=5.0)
    found = ScoreMarks(vector).columns(asked, scores, scores, losses).T.numpy()
    assert np.linalg.norm(found, axis=1).max() <= 1 + 1e-12
    assert np.ptp(found, axis=0).max() <= vector.scale + 1e-12
