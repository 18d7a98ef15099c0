"""The numbers that the literature prints or that follow from the paper's own settings.

Every figure is given to the digits printed; the interval must meet the printed value's rounding.
`z` is noise_multiplier = sigma / C; the paper's code adds 2 C sigma under substitution.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import pytest

import hubbub

LENGTH: dict[str, Any] = {"steps": 1250, "delta": 1e-5}
CIFAR: dict[str, Any] = {"sample_rate": 0.008, **LENGTH}


def meets(bound: hubbub.Bound, printed: str) -> bool:
    """Whether the interval touches the half-unit band around a printed decimal."""
    half = 0.5 * 10.0 ** -len(printed.partition(".")[2])
    return bound.lower <= float(printed) + half and bound.upper >= float(printed) - half


@pytest.mark.parametrize(
    ("rate", "noise", "poisson", "exchange", "one_sided", "printed"),
    [
        (0.008, 1.0, "2.507", "13.536", "12.209", 13.81),
        (0.008, 2.0, "1.066", "1.939", "1.606", 2.51),
        (0.008, 4.0, "0.497", "0.636", "0.550", 1.07),
        (0.049, 2.68, "5.90", "8.82", "7.29", 13.91),
        (0.049, 11.0, "1.194", "1.293", "1.216", 2.58),
        (0.049, 24.0, "0.508", "0.526", "0.511", 1.08),
    ],
)
def test_substitution_at_the_papers_noise(
    rate: float, noise: float, poisson: str, exchange: str, one_sided: str, printed: float
) -> None:
    base: dict[str, Any] = {
        "noise_multiplier": noise,
        "sample_rate": rate,
        "steps": 1250,
        "delta": 1e-5,
    }
    provable = hubbub.epsilon(**base, relation="substitute", sampling="without-replacement")
    assert meets(hubbub.epsilon(**base, relation="substitute", sampling="poisson"), poisson)
    assert meets(provable, exchange)
    # A real attack plays one record against silence: it can be no stronger than the provable row.
    assert float(one_sided) < provable.upper
    assert provable.upper < printed  # the printed value is a bound, though not a tight one


def test_poisson_add_remove_at_the_papers_noise() -> None:
    bound = hubbub.epsilon(noise_multiplier=1.0, **CIFAR)
    assert meets(bound, "1.5990")
    assert bound.upper < 1.6


def test_common_comparison_of_accountants() -> None:
    bound = hubbub.epsilon(noise_multiplier=4.0, sample_rate=0.01, steps=10_000, delta=1e-5)
    assert bound.lower <= 0.946867 <= bound.upper


@pytest.mark.parametrize(
    ("colluding", "printed"), [(1, "1.22"), (3, "1.60"), (4, "1.96"), (5, "2.61"), (8, "24.1")]
)
def test_ten_silos_of_which_some_collude(colluding: int, printed: str) -> None:
    # Shares are sigma^2 / (10 - 3 - 1); the observer is a silo too, so 10 - t - 1 shares remain.
    noise = sqrt((10 - colluding - 1) / 6)
    assert meets(hubbub.epsilon(noise_multiplier=noise, **CIFAR), printed)


def test_malicious_silos_cost_almost_nothing() -> None:
    def at(malicious: int) -> hubbub.Bound:
        return hubbub.malicious_epsilon(
            n=50_000, batch=500, malicious=malicious, noise_multiplier=2.0, steps=1250, delta=1e-5
        )

    assert abs(at(0).upper - 2.4765) < 0.002
    # The exact mixture is 2.4795; a coarsely discretised mixture may print up to 2.491.
    assert at(0).upper < at(25_000).upper < 2.491


@pytest.mark.parametrize(
    ("rate", "delta", "printed"),
    [
        # 1250 * P(more than 318 honest members) = 3.62e-7 of delta pays for larger batches.
        (318 / 25_000, 1e-5 - 3.62e-7, "3.24"),
        # The worst case: all 500 members honest, among 25,000.
        (0.02, 1e-5, "5.35"),
    ],
)
def test_quantile_of_the_honest_batch_costs_much_more(
    rate: float, delta: float, printed: str
) -> None:
    bound = hubbub.epsilon(
        noise_multiplier=2.0,
        sample_rate=rate,
        steps=1250,
        delta=delta,
        relation="substitute",
        sampling="without-replacement",
    )
    assert meets(bound, printed)


@pytest.mark.parametrize(
    ("dimension", "factors"),
    [
        (10, ("2.073", "2.445", "2.801")),
        (100, ("1.324", "1.429", "1.529")),
        (1000, ("1.100", "1.131", "1.161")),
        (10_000, ("1.031", "1.041", "1.050")),
    ],
)
def test_projection_bound(dimension: int, factors: tuple[str, ...]) -> None:
    for delta, printed in zip((5e-6, 4e-9, 1e-12), factors, strict=True):
        found = hubbub.projection_bound(dimension=dimension, delta=delta)
        assert abs(found - float(printed)) < 6e-4


@pytest.mark.parametrize(
    ("dimension", "factor", "clipped", "coarse", "union"),
    [
        (10, 2.073, "0.505", 0.528, 2.30),
        (100, 1.324, "0.930", 0.943, 1.83),
        (1000, 1.100, "1.259", 1.263, 1.62),
    ],
)
def test_projection_at_the_papers_noise(
    dimension: int, factor: float, clipped: str, coarse: float, union: float
) -> None:
    noise = 1.0297 * factor
    again = hubbub.epsilon(noise_multiplier=noise, **CIFAR)
    mixed = hubbub.projected_epsilon(dimension=dimension, noise_multiplier=noise, **CIFAR)
    assert abs(again.upper - float(clipped)) < 2e-3
    # Random length only spreads the shift: dearer than clipping again, and below the coarser sum.
    assert again.lower < mixed.upper < coarse
    assert mixed.upper < union
