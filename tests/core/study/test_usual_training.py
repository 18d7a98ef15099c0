"""The rule by which a model is trained where nobody says otherwise."""

from __future__ import annotations

from math import sqrt

import pytest

from hubbub.core.study.study import Study
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.target import Outcome
from hubbub.learning.study.training import squared_length, usual_for, usual_training

TEXT = """
[study]
name = "hearts"
[parties]
silos = 4
colluders = 1
[data]
source = "hubbub.datasets:heart"
records = 736
[model]
kind = "logistic"
inputs = [26]
[training]
steps = 150
sample_rate = 0.2
[privacy]
epsilon = 0.5
delta = 1e-5
"""


def rule(outcome: Outcome | None = None, **changes: object) -> tuple[float, float]:
    given = {"records": 4000, "epsilon": 1.0, "silos": 5, "colluders": 1, "square": 16.0} | changes
    made = usual_training(outcome, **given)  # type: ignore[arg-type]
    return made.clip_norm, made.lr


def test_clip_and_rate_fall_with_the_signal_by_one_formula() -> None:
    found = [rule(records=n) for n in (250, 1000, 4000, 16_000, 64_000)]
    assert found == sorted(found)
    clips, rates = zip(*found, strict=True)
    assert clips[-1] / clips[0] == pytest.approx(256 ** (1 / 6), rel=0.06)
    assert rates[-1] / rates[0] == pytest.approx(256 ** (1 / 3), rel=0.06)
    assert rule(records=1000, epsilon=4.0) == rule()


def test_silos_that_may_collude_count_as_noise_that_is_known() -> None:
    assert rule(silos=5, colluders=3, epsilon=1.0) == rule(epsilon=sqrt(1 / 3))
    assert rule(silos=2, colluders=1)[0] > 0


def test_longer_features_ask_for_a_larger_clip_and_a_smaller_rate() -> None:
    assert rule(square=64.0) == pytest.approx((2 * rule()[0], rule()[1] / 2), rel=0.06)


def test_each_kind_of_target_has_its_own_factors_and_counts_their_bound() -> None:
    amount = rule(Outcome(kind="numeric", low=0.0, high=9.0))
    few, many = (rule(Outcome(kind="count", high=high)) for high in (9.0, 900.0))
    assert amount[0] < rule()[0]
    assert amount[1] < rule()[1]
    assert many[0] == pytest.approx(10 * few[0], rel=0.06)
    assert few[1] == rule()[1]


def test_a_studys_rule_is_that_of_its_public_numbers() -> None:
    study = Study.parse(TEXT)
    made = usual_for(study)
    square = 1 + 26 / 3
    again = usual_training(None, records=736, epsilon=0.5, silos=4, colluders=1, square=square)
    assert made == again
    network = Study.parse(TEXT.replace('"logistic"', '"mlp"\nhidden = [8]'))
    assert usual_for(network).lr < made.lr
    held = Study.parse(
        TEXT.replace("[privacy]", "evaluate = {every = 150, epsilon = 0.1}\n[privacy]")
    )
    assert usual_for(held).lr <= made.lr


def test_a_category_is_as_long_as_three_numbers() -> None:
    columns = [Column(name="age", low=0.0, high=9.0), Column(name="sex", categories=("f", "m"))]
    assert squared_length(columns) == pytest.approx(1 + 1 / 3 + 1)
    assert squared_length([*columns, Column(name="id", low=0.0, high=1.0, feature=False)]) < 2.4
