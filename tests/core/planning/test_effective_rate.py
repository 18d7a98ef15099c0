"""The effective sampling rate with malicious records: the paper's quantile, and the mixture's."""

from __future__ import annotations

from itertools import pairwise

import pytest

import hubbub

effective_rate = pytest.importorskip(
    "experiments.effective_rate", reason="experiments/ is not part of this copy of hubbub"
)

# docs/privacy.md P10: malicious records to the effective rates at slack 1e-15, 1e-10 and 1e-5.
PAPER = {
    500: {
        500: (0.01010, 0.01010, 0.01010),
        5_000: (0.01096, 0.01080, 0.01058),
        12_500: (0.01187, 0.01155, 0.01107),
        25_000: (0.01348, 0.01280, 0.01188),
    },
    2500: {
        500: (0.05051, 0.05048, 0.05036),
        5_000: (0.05240, 0.05196, 0.05133),
        12_500: (0.05435, 0.05349, 0.05237),
        25_000: (0.05772, 0.05620, 0.05416),
    },
}
STEPS = 30


@pytest.mark.parametrize("batch", PAPER)
def test_the_papers_rates_are_those_of_the_statement(batch: int) -> None:
    for malicious, rates in PAPER[batch].items():
        for slack, rate in zip((1e-15, 1e-10, 1e-5), rates, strict=True):
            found = effective_rate.quantile_rate(50_000, batch, malicious, slack)
            assert round(found, 5) == rate


@pytest.mark.parametrize("malicious", [0, 1, 500, 25_000, 49_600, 49_999])
def test_without_slack_the_whole_batch_counts_as_honest(malicious: int) -> None:
    honest = 50_000 - malicious
    found = effective_rate.quantile_rate(50_000, 500, malicious, 0.0)
    assert found == min(500, honest) / honest


def test_more_slack_and_fewer_malicious_records_never_raise_the_rate() -> None:
    owned = range(0, 201, 4)
    rates = [
        [effective_rate.quantile_rate(400, 20, malicious, slack) for malicious in owned]
        for slack in (0.0, 1e-15, 1e-10, 1e-5)
    ]
    for less, more in pairwise(rates):
        assert all(a >= b for a, b in zip(less, more, strict=True))
    assert all(a <= b for a, b in pairwise(rates[0]))


def alone(rate: float) -> float:
    """Epsilon at a sampling rate, with nobody malicious."""
    return hubbub.epsilon(
        noise_multiplier=effective_rate.NOISE,
        sample_rate=rate,
        steps=STEPS,
        delta=effective_rate.DELTA,
        relation="substitute",
        sampling="without-replacement",
    ).upper


@pytest.mark.parametrize("malicious", [40, 200])
def test_the_mixtures_rate_costs_what_the_mixture_costs(malicious: int) -> None:
    exact = hubbub.malicious_epsilon(
        records=400, batch=20, malicious=malicious, noise_multiplier=effective_rate.NOISE,
        steps=STEPS, delta=effective_rate.DELTA,
    ).upper  # fmt: skip
    worst = effective_rate.quantile_rate(400, 20, malicious, 0.0)
    rate = effective_rate.equal_rate(exact, 0.05, worst, steps=STEPS)
    assert alone(rate) == pytest.approx(exact, rel=2e-4)
    slack = effective_rate.quantile_rate(400, 20, malicious, 1e-5)
    assert 0.05 < rate < slack  # never above the paper's way, at any slack


def test_an_epsilon_out_of_reach_has_the_nearest_rate() -> None:
    assert effective_rate.equal_rate(0.0, 0.05, 0.1, steps=STEPS) == 0.05
    assert effective_rate.equal_rate(alone(0.1), 0.05, 0.08, steps=STEPS) == 0.08
