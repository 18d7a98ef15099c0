"""Scores beside a model that knows nothing, with intervals that know how few records there are."""

from __future__ import annotations

import numpy as np
import pytest

from hubbub.desk.report.scores import in_a_sentence, score_table, what_next
from hubbub.learning.evaluation import beside_null
from hubbub.learning.target_types import Amount, Classes, Count, TimeToEvent

CLASSES = Classes()


def classes(draw, n, share, signal):
    """Records of two classes, and logits that know something of them."""
    targets = (draw.random(n) < share).astype(np.float32)
    return draw.normal(size=n) + signal * targets - 1.0, targets


def test_a_perfect_score_of_a_few_deaths_is_no_certainty():
    """Three deaths, all ranked first: the lower end is that at which it were no surprise."""
    targets = np.array([1.0] * 3 + [0.0] * 200, dtype=np.float32)
    one = beside_null(CLASSES, np.linspace(3, -3, 203), targets)["auc"]
    assert (one.value, one.high) == (1.0, 1.0)
    assert 0.4 < one.low < 0.8
    more = beside_null(CLASSES, np.linspace(3, -3, 406), np.repeat(targets, 2))["auc"]
    assert more.low > one.low


def test_who_always_says_the_commoner_class_is_no_better_however_accurate():
    targets = np.array([1.0] * 7 + [0.0] * 493, dtype=np.float32)
    draw = np.random.default_rng(1)
    found = beside_null(CLASSES, draw.normal(size=500) - 5, targets)
    assert found["accuracy"].value == found["accuracy"].null == pytest.approx(0.986)
    assert found["accuracy"].is_better is None
    plain = {name: one.to_dict() for name, one in found.items()}
    words = in_a_sentence(plain, {})
    assert words.startswith("test AUC")
    assert "cannot be told from guessing (0.500)" in words
    assert "the outcome is rare" in words
    assert "do not use this model" in what_next(plain, {})
    assert "does not show whether" in what_next({"auc": plain["auc"]}, {})
    assert [row[3] for row in score_table(plain, "").rows] == [
        "cannot tell",
        "worse",
        "cannot tell",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("signal", [0.0, 0.5, 1.5])
def test_intervals_of_auc_hold_the_true_one_as_often_as_they_say(signal):
    """400 draws of 95 %: 361 to 394 hold it, but for 1 in 1000; conservative ends are allowed."""
    from scipy.stats import norm

    draw, true = np.random.default_rng(2), norm.cdf(signal / np.sqrt(2))
    held = 0
    for _ in range(400):
        found = beside_null(CLASSES, *classes(draw, 120, 0.3, signal))["auc"]
        held += found.low <= true <= found.high
    assert held >= 361


@pytest.mark.slow
def test_a_model_of_noise_is_called_better_about_as_often_as_chance_allows():
    """2.5 % on each side: 400 draws call at most 22 better, but for 1 in 1000."""
    draw = np.random.default_rng(3)
    better = [
        beside_null(CLASSES, *classes(draw, 150, 0.2, 0.0))["auc"].is_better for _ in range(400)
    ]
    assert sum(one is True for one in better) <= 22
    signal = [
        beside_null(CLASSES, *classes(draw, 150, 0.2, 1.5))["auc"].is_better for _ in range(20)
    ]
    assert all(signal)


def test_amounts_and_counts_stand_beside_everybodys_mean():
    draw = np.random.default_rng(4)
    x = draw.normal(size=400)
    amount = Amount(low=-5.0, high=5.0)
    found = beside_null(amount, x / 5, x + draw.normal(size=400))
    assert found["rmse"].null == pytest.approx(np.sqrt(2), rel=0.1)
    assert found["rmse"].value == pytest.approx(1.0, rel=0.1)
    assert found["rmse"].low < found["rmse"].value < found["rmse"].high
    assert found["rmse"].is_better
    assert beside_null(amount, np.full(400, 0.5), x)["rmse"].is_better is False
    rates = np.exp(0.4 * x)
    counted = beside_null(Count(high=30.0), 0.4 * x, draw.poisson(rates).astype(float))
    assert next(iter(counted)) == "poisson_deviance"
    assert counted["poisson_deviance"].is_better
    # An exposure beyond its bound is its own in a test score, as in a prediction.
    exposed = Count(high=30.0, exposure_high=2.0)
    years = np.column_stack([[8.0, 2.0], [4.0, 1.0]])
    rated = beside_null(exposed, np.full(2, np.log(4.0)), years)
    assert [rated["rmse"].value, rated["mae"].value, rated["rmse"].null] == pytest.approx([0, 0, 0])
    assert exposed.scored(np.full(2, np.log(4.0)), years)["mae"] == pytest.approx(0)
    same = beside_null(Count(high=30.0), np.zeros(400), draw.poisson(1.0, 400).astype(float))
    assert same["poisson_deviance"].is_better is not True


def test_times_are_ranked_beside_guessing():
    draw = np.random.default_rng(5)
    risk = draw.normal(size=300)
    times = draw.exponential(1.0, 300) * np.exp(-risk)
    seen = draw.uniform(0.2, 3.0, 300)
    targets = np.column_stack([np.minimum(times, seen), times <= seen]).astype(float)
    goal = TimeToEvent(grid=(1.0, 2.0, 3.0))
    told = beside_null(goal, np.column_stack([risk] * 3), targets)["c_index"]
    assert told.is_better
    assert told.low > 0.5
    assert told.records == 300
    blind = beside_null(goal, draw.normal(size=(300, 1)).repeat(3, 1), targets)["c_index"]
    assert blind.low < 0.5 < blind.high


def test_what_is_said_next_follows_from_the_scores():
    draw = np.random.default_rng(6)
    outputs, targets = classes(draw, 400, 0.3, 2.0)
    told = {name: one.to_dict() for name, one in beside_null(CLASSES, outputs, targets).items()}
    assert "use the model with hubbub predict" in what_next(told, {})
    outputs, targets = classes(draw, 400, 0.3, 0.8)
    found = beside_null(CLASSES, 9 * outputs, targets)
    sure = {name: one.to_dict() for name, one in found.items()}
    assert "use the ranking only" in what_next(sure, {})
    assert "public records" in what_next({}, {"held_back_accuracy": 0.9})
    assert "[validation]" in what_next({}, {})


def test_what_is_not_defined_is_left_out():
    assert set(beside_null(CLASSES, np.ones(20), np.zeros(20))) == {"accuracy"}
    assert beside_null(CLASSES, np.full(20, np.nan), np.zeros(20)) == {}
    several = beside_null(CLASSES, np.eye(3)[[0, 1, 2, 0]], np.array([0, 1, 2, 1]))
    assert several["accuracy"].null == 0.5


def test_an_absolute_error_stands_beside_that_of_everybodys_rate():
    """Whoever was followed for longer has more: one number for all is no fair null model."""
    years = np.array([0.5, 0.5, 1.0, 2.0, 2.0])
    counts = np.array([2.0, 2.0, 4.0, 8.0, 10.0])
    exposed = Count(high=30.0, exposure_high=2.0)
    found = beside_null(exposed, np.zeros(5), np.column_stack([counts, years]))["mae"]
    assert found.null == pytest.approx(2.0 / 5)  # a rate of 4: of 6 years 4 have no more
    alone = beside_null(Count(high=30.0), np.zeros(4), np.array([1.0, 2.0, 4.0, 9.0]))["mae"]
    assert alone.null == pytest.approx((2.0 + 1.0 + 1.0 + 6.0) / 4)
