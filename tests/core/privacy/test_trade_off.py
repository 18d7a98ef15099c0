"""The curve delta(epsilon) is never below the exact values; nor is what it leaves to attacks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

import hubbub
from hubbub.core.errors import StudyError
from hubbub.core.privacy.certificate import Certificate
from hubbub.core.privacy.tradeoff import TradeOff

SETTINGS: list[dict[str, Any]] = [
    {"noise_multiplier": 1.0, "sample_rate": 0.008, "steps": 1250},
    {"noise_multiplier": 4.0, "sample_rate": 0.01, "steps": 10_000},
    {"noise_multiplier": 1.5, "sample_rate": 0.2, "steps": 5, "relation": "substitute"},
    {
        "noise_multiplier": 2.0,
        "sample_rate": 0.008,
        "steps": 1250,
        "relation": "substitute",
        "sampling": "without-replacement",
    },
    {"noise_multiplier": 3.0, "steps": 7, "sampling": "full-batch"},
]


@pytest.mark.quick_cases("setting4", "setting2")
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_curve_is_never_below_the_exact_values_and_close_to_them(
    setting: dict[str, Any],
) -> None:
    curve = hubbub.trade_off(**setting)
    assert curve.epsilon.shape == curve.delta.shape == (200,)
    assert curve.epsilon[0] == 0
    assert np.all(np.diff(curve.epsilon) > 0)
    assert np.all(np.diff(curve.delta) <= 0)
    assert curve.delta[-1] < 2e-12
    for at in (0, 20, 75, 150, 180):
        exact = hubbub.delta(epsilon=float(curve.epsilon[at]), **setting)
        assert curve.delta[at] >= exact.lower
        assert curve.delta[at] <= 1.03 * exact.upper
        assert curve.lower[at] <= exact.upper
        assert curve.lower[at] >= 0.97 * exact.lower
    assert np.all(curve.lower <= curve.delta)
    assert np.all(np.diff(curve.lower) <= 0)


def test_the_curve_agrees_with_epsilon_at_a_delta() -> None:
    setting = SETTINGS[0]
    curve = hubbub.trade_off(**setting, epsilons=[2.0, 1.599, 0.1])
    assert curve.epsilon.tolist() == [0.1, 1.599, 2.0]
    assert 1e-5 * 0.999 < curve.delta[1] < 1.02e-5


def test_true_positive_rates_of_the_gaussian_mechanism_are_the_best_tests() -> None:
    # Neyman and Pearson: TPR = Phi(Phi^-1(FPR) + mu), mu = sqrt(7) / 3.
    curve = hubbub.trade_off(**SETTINGS[-1], epsilons=np.linspace(0, 12, 4000))
    rates = np.array([[1e-4, 0.01], [0.2, 0.9]])
    best = ndtr(ndtri(rates) + 7**0.5 / 3)
    found = curve.true_positive_rate(rates)
    assert found.shape == (2, 2)
    assert np.all(found >= best * (1 - 1e-9))
    assert np.all(found <= best * 1.001)


def test_p6_the_curve_of_what_is_sent_is_above_the_ideal_one_by_the_whole_certificate() -> None:
    ideal = TradeOff(epsilon=np.array([0.0, 1.0, 2.0]), delta=np.array([0.2, 0.05, 0.01]))
    certificate = Certificate(epsilon=0.1, slack=1e-3, failure=2e-3, delta_factor=1.5)
    sent = ideal.under(certificate)
    assert sent.epsilon.tolist() == [0.1, 1.1, 2.1]
    for at, epsilon, delta in zip(range(3), sent.epsilon, ideal.delta, strict=True):
        wanted = 1.5 * delta + (1 + np.exp(epsilon)) * 1e-3 + 2e-3
        assert sent.delta[at] == pytest.approx(wanted)
        assert certificate.ideal_delta(sent.delta[at], epsilon) == pytest.approx(delta)
    assert (sent.true_positive_rate([0.01, 0.5]) > ideal.true_positive_rate([0.01, 0.5])).all()


def test_true_positive_rates_agree_with_attack_power_and_grow() -> None:
    curve = hubbub.trade_off(**SETTINGS[0])
    rates = np.linspace(0, 1, 51)
    found = curve.true_positive_rate(rates)
    assert np.all(np.diff(found) >= 0)
    assert np.all(found >= rates)
    assert found[-1] == 1
    single = hubbub.attack_power(false_positive_rate=0.02, **SETTINGS[0])
    assert found[1] == pytest.approx(single, rel=0.01)


@pytest.mark.parametrize(
    "setting",
    [
        {"noise_multiplier": 1e-3, "sample_rate": 1.0, "steps": 10**5},
        {"noise_multiplier": 0.1, "sample_rate": 0.5, "steps": 1000},
    ],
)
def test_where_everything_is_lost_the_curve_says_so(setting: dict[str, Any]) -> None:
    assert hubbub.trade_off(**setting).delta == pytest.approx(np.ones(200))


def test_where_hardly_anything_is_lost_the_curve_stays_a_bound() -> None:
    setting: dict[str, Any] = {"noise_multiplier": 1e6, "sample_rate": 1e-9, "steps": 1}
    curve = hubbub.trade_off(**setting)
    assert curve.delta[0] < 1e-9
    for at in (0, 100):
        exact = hubbub.delta(epsilon=float(curve.epsilon[at]), **setting)
        assert curve.delta[at] >= exact.lower


@pytest.mark.parametrize("epsilons", [[], [-1.0], [51.0], [float("nan")], [[1.0]], ["one"], [None]])
def test_a_list_that_is_no_list_of_epsilons_is_refused(epsilons: Any) -> None:
    with pytest.raises(StudyError, match="expected epsilons"):
        hubbub.trade_off(**SETTINGS[0], epsilons=epsilons)


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan"), "x"])
def test_a_rate_that_is_no_probability_is_refused(rate: Any) -> None:
    curve = hubbub.trade_off(**SETTINGS[-1], epsilons=[1.0])
    with pytest.raises(StudyError, match="expected false_positive_rate"):
        curve.true_positive_rate(rate)


@pytest.mark.parametrize(
    "ask", [hubbub.trade_off, lambda **s: hubbub.epsilon(delta=1e-5, **s)]
)  # fmt: skip
def test_sampling_with_hardly_any_noise_is_refused_in_a_sentence(ask: Any) -> None:
    with pytest.raises(StudyError, match=r"noise_multiplier of at least 0\.03.*got 0\.01"):
        ask(noise_multiplier=0.01, sample_rate=0.5, steps=10)


def test_calibration_where_hardly_any_noise_is_needed_never_overspends() -> None:
    setting: dict[str, Any] = {"sample_rate": 0.001, "steps": 1, "delta": 1e-5}
    found = hubbub.noise_multiplier(epsilon=50.0, **setting)
    assert found >= 0.08
    assert hubbub.epsilon(noise_multiplier=found, **setting).upper <= 50.0
