"""What correlated noise costs and gains (P25): the account, the coefficients, the best bands."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, exp, pi, sqrt
from typing import Any

import numpy as np
import pytest

import hubbub
from hubbub.core.errors import StudyError, UserError
from hubbub.core.planning import noise_correlation
from hubbub.core.planning.accounts import account_of, releases, releases_of_units
from hubbub.core.planning.mechanism import INDEPENDENT, OPTIONS
from hubbub.core.planning.noise_correlation import (
    Correlation,
    best_column,
    column_of,
    error_of,
    inverse_of,
    workload,
)
from hubbub.core.planning.planned_query import _outcome_error, certificate_for, grid_for
from hubbub.core.protocol.primitives.correlated_noise import UNIT
from hubbub.core.registered import standing_in
from hubbub.core.study.study import Study
from hubbub.learning.queries.training_query import training_of
from privacy import oracle

STEPS, RATE, DELTA = 1000, 0.01, 1e-5


def study(steps: int = 40, **training: Any) -> Study:
    made: dict[str, Any] = {
        "steps": steps,
        "sample_rate": 0.1,
        "noise": "correlated",
        "optimizer": {"name": "sgd", "lr": 0.5},
    }
    return Study(
        name="correlated",
        parties={"silos": 6, "colluders": 1, "dropouts": 1},
        data={"source": "hubbub.datasets:heart", "records": 740},
        model={"kind": "logistic", "inputs": [26]},
        training=made | training,
        privacy={"epsilon": 4.0, "delta": DELTA},
    )


@pytest.mark.parametrize(
    "column",
    [
        [float("nan")] * 3,
        [float("inf"), 0, 0],
        None,
        [UNIT],
        [UNIT, 1, 0],
        [0, UNIT, 0],
        [0.9, 0.1, 0.1],
        [1, UNIT - 1, 0],
        [-UNIT, 0, 0],
    ],
    ids=str,
)
def test_p25_a_column_from_outside_that_lies_is_refused_in_a_sentence(column: Any) -> None:
    """Its norm is computed here, and noise that would grow without end fits no grid."""
    with (
        standing_in(OPTIONS, "from outside", lambda *_: column),
        pytest.raises(UserError, match="bring the package"),
    ):
        column_of("from outside", 3, 0.0, "constant", 40)


def test_p25_a_column_that_changes_from_call_to_call_is_asked_for_once() -> None:
    columns = iter([(UNIT, 0), (UNIT - 1, 0)])
    with standing_in(OPTIONS, "from outside", lambda *_: next(columns)):
        asked = [column_of("from outside", 2, 0.0, "constant", 40) for _ in range(2)]
    assert asked == [(UNIT, 0)] * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "bands", "mean", "largest"),
    [
        (1.0, 4, 0.925, 0.918),
        (2.0, 8, 0.793, 0.780),
        (4.0, 16, 0.635, 0.613),
        (8.0, 32, 0.506, 0.475),
    ],
)
def test_p25_the_errors_of_prefix_sums_are_those_of_the_page(
    epsilon: float, bands: int, mean: float, largest: float
) -> None:
    column = np.array(column_of("correlated", bands, 0.0, "constant", STEPS)) / UNIT
    noise = [
        noise_correlation.least_noise(many, STEPS, RATE, epsilon, DELTA, "add-remove")
        for many in (bands, 1)
    ]
    sums = np.cumsum(inverse_of(column, STEPS))
    squares = np.cumsum(sums**2)  # of what each of the sums is made of
    ratio = noise[0] / noise[1]
    assert ratio * sqrt(squares.mean() / np.arange(1, STEPS + 1).mean()) == pytest.approx(
        mean, abs=6e-4
    )
    assert ratio * sqrt(squares[-1] / STEPS) == pytest.approx(largest, abs=6e-4)


def test_p25_no_column_is_longer_than_1_in_whole_numbers() -> None:
    for bands in (2, 5, 16, 128):
        for momentum, schedule in ((0.0, "constant"), (0.9, "cosine"), (0.99, "linear")):
            column = best_column(bands, momentum, schedule, 300)
            assert all(type(one) is int for one in column)
            assert 0.999 * UNIT**2 < sum(one * one for one in column) <= UNIT**2
            assert len(column) == bands


@pytest.mark.parametrize("steps", [16, 20, 32])
def test_a_training_may_be_as_short_as_its_bands_are_many(steps: int) -> None:
    form, plain = noise_correlation._form(0.9, "constant", steps), np.array([1.0])
    column = np.array(best_column(16, 0.9, "constant", steps)) / UNIT
    assert len(column) == 16
    assert error_of(column, form) < error_of(plain, form)


def test_the_form_is_the_error_of_the_optimizer() -> None:
    """A C^-1 played as the optimizer plays it: momentum, a schedule, one step after another."""
    steps, column = 30, np.array(best_column(4, 0.9, "linear", 30)) / UNIT
    inverse = np.array(
        [np.concatenate([np.zeros(s), inverse_of(column, steps - s)]) for s in range(steps)]
    ).T
    moved, velocity, rows = np.zeros(steps), np.zeros(steps), []
    for step in range(steps):
        velocity = 0.9 * velocity + inverse[step]
        moved = moved + (1 - step / steps) * velocity
        rows.append(moved)
    squares = float(np.square(rows).sum() / steps)
    form = noise_correlation._form(0.9, "linear", steps)
    assert error_of(column, form) ** 2 == pytest.approx(squares, rel=1e-9)
    assert np.allclose(workload(0.9, "linear", steps) @ inverse, rows)


def test_no_small_change_of_a_column_has_less_error() -> None:
    steps, form = 200, noise_correlation._form(0.5, "cosine", 200)
    best = np.array(best_column(6, 0.5, "cosine", steps)) / UNIT
    draw = np.random.default_rng(1)
    for _ in range(100):
        other = best + draw.normal(size=6) * 0.01
        other /= np.linalg.norm(other)
        assert error_of(other, form) > error_of(best, form) * (1 - 1e-4)


def test_p25_a_study_is_charged_one_step_of_the_group_rate_for_each_part() -> None:
    made = hubbub.plan(study(steps=42, bands=4))
    mechanism = account_of(made.mechanism)
    assert (mechanism.epoch, mechanism.sample_rate) == (4, 0.4)
    (one,) = releases(mechanism, made.noise_multiplier, 42)
    assert one == releases(replace(mechanism, epoch=1), made.noise_multiplier, ceil(42 / 4))[0]
    known = hubbub.epsilon(
        noise_multiplier=made.noise_multiplier, sample_rate=0.4, steps=11, delta=DELTA
    )
    assert made.epsilon() == pytest.approx(known.upper, abs=1e-4)
    assert made.epsilon() <= 4.0
    assert made.epsilon_after(5) == made.epsilon_after(8) > made.epsilon_after(4)


def test_p25_several_records_of_one_person_have_no_account() -> None:
    """Their groups take turns that are closer than the matrix has bands."""
    made = hubbub.plan(study(bands=4))
    with pytest.raises(StudyError, match="units of several records"):
        releases_of_units(account_of(made.mechanism), made.noise_multiplier, 40, 2)


def test_p25_its_epsilon_is_that_of_an_independent_calculation() -> None:
    made = hubbub.plan(study(bands=4))
    asked = 1 / made.noise_multiplier
    found = oracle.worst_epsilon((oracle.rem(0.4, asked), oracle.add(0.4, asked)), 10, DELTA)
    assert made.epsilon() == pytest.approx(found.value, abs=2e-3)


def test_p25_bands_that_take_everybody_are_charged_without_sampling() -> None:
    made = hubbub.plan(study(bands=10))
    known = hubbub.epsilon(
        noise_multiplier=made.noise_multiplier, sample_rate=1.0, steps=4, delta=DELTA
    )
    assert account_of(made.mechanism).sample_rate == 1.0
    assert made.epsilon() == pytest.approx(known.upper, abs=1e-4)


def test_p25_the_certificate_covers_rounding_and_the_window() -> None:
    """K of P25, with its own formula; what the sampler adds grows with the window."""
    one = study(steps=1000, bands=8)
    alone = replace(one, training=replace(one.training, noise="independent", bands=0))
    numbers, silos, tau = 10**6, 6, 2 * exp(-((4 * pi) ** 2))
    most = numbers * (silos - 1) * ((1 + tau) ** 1000 - 1) * 1.001
    assert 2 * 1000.0 * numbers * silos * exp(-((4 * pi) ** 2)) > most
    found, other = (
        certificate_for(training_of(each).mechanism, each.parties, numbers) for each in (one, alone)
    )
    assert other.epsilon < found.epsilon < 0.01
    how, s, beta = training_of(one).mechanism.noise, 16.0, (9 * 16.0 + 1) / 16.0**2
    assert how is not None
    length = float(np.abs(how.column).sum())
    window = 15 * (8 + 6) * length * s * how.growth
    delta = 2.0**-53 * (5 * s * 9 + 1 + window) / float(how.column[0])
    eta = 2 * delta * (1 + beta * length) * exp(beta * length * delta)
    assert _outcome_error(s, how) == pytest.approx(eta, rel=1e-12, abs=0)


def test_p25_words_have_room_for_noise_that_grows() -> None:
    one = hubbub.plan(study(bands=4))
    assert isinstance(one.mechanism.noise, Correlation)
    assert one.mechanism.noise.growth > 1.5
    alone = replace(one.study, training=replace(one.study.training, noise="independent", bands=0))
    noise, shares = one.noise_multiplier, one.main.division
    parties, plain = one.study.parties, training_of(alone).mechanism
    assert (
        grid_for(one.mechanism, parties, noise, shares)[2]
        < grid_for(plain, parties, noise, shares)[2]
    )
    deviation = one.mechanism.noise.growth * one.main.share_sigma_grid * sqrt(6)
    held = 12 * deviation + one.main.sum_limit * one.mechanism.clip / one.main.grid_step
    assert held <= 2.0 ** (one.word_bits - 1)
    assert one.to_dict()["correlated_noise"]["window_bytes"] == 8 * 3 * 27


@pytest.mark.slow
def test_auto_takes_the_bands_of_least_error_and_says_by_how_much() -> None:
    made = hubbub.plan(study())
    assert isinstance(made.mechanism.noise, Correlation)
    errors = {
        bands: hubbub.plan(study(bands=bands)).mechanism.noise.error  # type: ignore[union-attr]
        for bands in (2, 4, 8)
    }
    assert made.mechanism.noise.error == min(errors.values()) < 1
    assert made.to_dict()["correlated_noise"]["bands"] == min(errors, key=lambda b: errors[b])


@pytest.mark.slow
def test_auto_leaves_noise_independent_with_adam_and_where_nothing_is_gained() -> None:
    adam = hubbub.plan(study(optimizer={"name": "adam", "lr": 0.1}))
    assert adam.mechanism.noise == INDEPENDENT
    assert any("with the optimizer adam it loses" in one for one in adam.warnings)
    forced = hubbub.plan(study(optimizer={"name": "adam", "lr": 0.1}, bands=4))
    assert any("expect less" in one for one in forced.warnings)
    never = hubbub.plan(study(sample_rate=0.9))
    assert never.mechanism.noise == INDEPENDENT
    assert any("no number of bands helps" in one for one in never.warnings)
    assert "correlated_noise" not in never.to_dict()


def test_a_rate_next_to_nothing_is_refused_in_a_sentence() -> None:
    with pytest.raises(StudyError, match="expected"):
        hubbub.plan(study(sample_rate=1e-320))


def test_what_is_not_proven_is_refused_in_a_sentence() -> None:
    for changes, says in (
        ({"sampling": "full-batch", "sample_rate": 1.0}, 'sampling = "poisson"'),
        ({"projection": 5}, "no training.projection"),
        ({"bands": 11}, "bands of at most 10"),
        ({"bands": 1}, "training.bands"),
        ({"bands": 500}, "training.bands"),
        ({"noise": "independent", "bands": 4}, "absent"),
        ({"noise": "pink"}, "training.noise"),
    ):
        with pytest.raises(StudyError, match=says):
            study(**changes)
    tee = {"silos": 6, "colluders": 1, "trust": "tee"}
    with pytest.raises(StudyError, match='trust = "none"'):
        Study(
            **{
                **vars(study()),
                "parties": tee,
                "training": {"steps": 4, "sample_rate": 0.1, "noise": "correlated"},
                "data": {"source": "hubbub.datasets:heart", "records": 740},
                "model": {"kind": "logistic"},
                "privacy": {"epsilon": 1.0, "delta": DELTA},
            }
        )


def test_correlated_noise_is_part_of_the_id_and_of_the_text() -> None:
    plain = study(noise="independent")
    for one in (study(), study(bands=4)):
        assert Study.parse(one.as_toml()).id == one.id != plain.id


def test_p7_the_largest_noise_of_a_step_is_that_of_all_the_shares_that_are_in_it() -> None:
    """C = 1 - B / 2, of which the inverse is 1 + B / 2 + B^2 / 4: the last step has all of them."""
    how = Correlation(coefficients=(UNIT, -UNIT // 2), steps=3, error=1.0)
    scale = float(how.column[0])
    assert how.growth == pytest.approx(sqrt(1 + 1 / 4 + 1 / 16) / scale)
