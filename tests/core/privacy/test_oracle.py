"""The oracle itself, against closed forms, direct integrals and 50-digit arithmetic.

A wrong oracle would let a wrong accountant pass; nothing here touches hubbub.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log, sqrt

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import hypergeom

from privacy import oracle

Loss = Callable[[mpmath.mpf], mpmath.mpf]


def one_step_rem(rate: float, shift: float, eps: float) -> float:
    """P(L > eps) - e^eps Q(L > eps) for rem, at any real eps."""
    if exp(eps) <= 1 - rate:
        return 1 - exp(eps)
    at = log((exp(eps) - 1 + rate) / rate) / shift + shift / 2
    p = (1 - rate) * ndtr(-at) + rate * ndtr(shift - at)
    return float(p - exp(eps) * ndtr(-at))


def two_step_rem(rate: float, shift: float, eps: float) -> float:
    """The second step's closed form averaged over the first step's loss."""

    def integrand(x: float) -> float:
        loss = log(1 - rate + rate * exp(shift * x - shift**2 / 2))
        density = exp(-(x**2) / 2 + loss) / sqrt(2 * np.pi)
        return density * one_step_rem(rate, shift, eps - loss)

    parts = [quad(integrand, a, a + 2, epsabs=0, epsrel=1e-12)[0] for a in range(-12, 16, 2)]
    return float(sum(parts))


def mp_delta(kind: str, rate: str, shift: str, steps: int, eps: str, digits: int) -> mpmath.mpf:
    """The Laplace inversion written out in mpmath: two plain trapezoid sums, no shared code."""
    with mpmath.workdps(digits):
        q, m, e = mpmath.mpf(rate), mpmath.mpf(shift), mpmath.mpf(eps)

        def mix(x: mpmath.mpf) -> mpmath.mpf:
            return 1 - q + q * mpmath.exp(m * x - m * m / 2)

        h = mpmath.mpf(1) / 4
        points = [h * i for i in range(-48, 105)]
        base = [h * mpmath.npdf(x) for x in points]
        one = [mix(x) for x in points]
        mass = [b * r for b, r in zip(base, one, strict=True)] if kind != "add" else base
        loss = [mpmath.log(r) for r in one]
        if kind == "add":
            loss = [-v for v in loss]
        if kind == "plus-minus":
            loss = [v - mpmath.log(mix(-x)) for v, x in zip(loss, points, strict=True)]
        c, spacing, total = mpmath.mpf(3), mpmath.mpf("0.2"), mpmath.mpf(0)
        for k in range(120):
            s = mpmath.mpc(c, spacing * k)
            moment = mpmath.fsum(p * mpmath.exp(s * v) for p, v in zip(mass, loss, strict=True))
            term = (moment**steps * mpmath.exp(-s * e) / (s * (s + 1))).real
            total += term / 2 if k == 0 else term
        return total * spacing / mpmath.pi


@pytest.mark.parametrize("relation", ["add-remove", "substitute"])
@pytest.mark.parametrize(
    ("noise", "steps", "delta"),
    [(1.0, 1, 1e-5), (5.0, 10, 1e-12), (1000.0, 1_000_000, 1e-5), (0.5, 3, 0.2), (40.0, 100, 1e-8)],
)
def test_unsampled_gaussian_has_its_closed_form(
    relation: str, noise: float, steps: int, delta: float
) -> None:
    shift = (2 if relation == "substitute" else 1) * sqrt(steps) / noise
    laws = oracle.directions(noise_multiplier=noise, relation=relation, sampling="full-batch")
    found = oracle.worst_epsilon(laws, steps, delta)
    assert found.value == pytest.approx(oracle.gaussian_epsilon(shift, delta), rel=1e-10)
    assert found.error < 1e-10


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "shift"), [(0.5, 1.0), (0.9, 0.5), (0.8, 1.5)])
def test_two_sampled_steps_equal_the_direct_integral(rate: float, shift: float) -> None:
    for eps in (0.3, 1.0):
        expected = two_step_rem(rate, shift, eps)
        found = oracle.delta([(oracle.rem(rate, shift), 2)], eps)
        assert found.value == pytest.approx(expected, rel=1e-8)


@pytest.mark.quick_cases("rem")
@pytest.mark.parametrize("kind", ["rem", "add", "plus-minus"])
def test_fifty_digits_agree(kind: str) -> None:
    law = {"rem": oracle.rem, "add": oracle.add, "plus-minus": oracle.plus_minus}[kind](0.25, 0.5)
    expected = float(mp_delta(kind, "0.25", "0.5", 40, "2.5", 50))
    assert oracle.delta([(law, 40)], 2.5).value == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("c", [0.5, 3.0, 20.0])
@pytest.mark.parametrize("turn", [0.0, 50.0])
def test_nodes_carry_two_probability_laws(c: float, turn: float) -> None:
    laws = [
        law
        for relation in ("add-remove", "substitute")
        for sampling in ("poisson", "without-replacement", "full-batch")
        for law in oracle.directions(
            noise_multiplier=1.3, sample_rate=0.02, relation=relation, sampling=sampling
        )
    ]
    for law in laws:
        mass, loss = law.nodes(c, turn)
        assert np.exp(mass).sum() == pytest.approx(1, abs=1e-13)
        assert np.exp(mass - loss).sum() == pytest.approx(1, abs=1e-13)


@pytest.mark.slow
def test_twelve_gauss_nodes_replace_the_whole_hypergeometric_sum() -> None:
    members = np.arange(0, 61)
    weights = hypergeom(600, 300, 60).pmf(members)
    keep = (weights > 1e-18) & (members > 0)
    laws = [oracle.swapped_record(b / 300, 1.0) for b in members[keep]]
    full = oracle.mixture(weights[keep] / weights[keep].sum(), laws)
    short = oracle.malicious(n=600, batch=60, malicious=300, noise_multiplier=2.0)
    a, b = (oracle.delta([(law, 30)], 4.0).value for law in (full, short))
    assert a == pytest.approx(b, rel=1e-8)


def test_oracle_tells_one_per_cent_of_noise_apart() -> None:
    one, other = (
        oracle.worst_epsilon(
            oracle.directions(
                noise_multiplier=z, sample_rate=0.01, relation="add-remove", sampling="poisson"
            ),
            1000,
            1e-6,
        ).value
        for z in (1.0, 1.01)
    )
    assert one > other * 1.005


def test_oracle_says_so_where_it_cannot_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle, "MOST_ELEMENTS", 10_000_000)  # it gives up sooner, not elsewhere
    with pytest.raises(oracle.NoConvergenceError):
        oracle.delta([(oracle.rem(1e-4, 1.0), 1)], 0.5)
