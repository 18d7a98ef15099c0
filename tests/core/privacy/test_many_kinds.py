"""Many kinds of steps: few frequencies are looked at, and what is left out is counted (P13)."""

from __future__ import annotations

from unittest.mock import patch

import mpmath
import numpy as np
import pytest

import hubbub
from hubbub import Step
from hubbub.core.privacy import composition, transform
from privacy import oracle

SIZE = 3000


def masses(spread: float, reach: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Cuts, some of them far out, and masses that sum to one."""
    rng = np.random.default_rng(seed)
    cuts = np.unique(np.concatenate([np.arange(-reach, reach), rng.integers(-900, 900, 40)]))
    mass = np.exp(-((cuts / spread) ** 2) / 2) + 1e-9 * rng.random(cuts.size)
    return cuts, mass / mass.sum()


def test_p13_sums_at_a_frequency_err_by_less_than_is_said() -> None:
    cuts, mass = masses(7.0, 60, 1)
    frequencies = np.array([0, 1, 2, 17, 500, 1499, 1500])
    values, errors = transform._summed(cuts, mass, frequencies, SIZE)
    with mpmath.workdps(40):
        for frequency, value, error in zip(frequencies.tolist(), values, errors, strict=True):
            turn = [mpmath.mpf(frequency * k) / SIZE for k in cuts.tolist()]
            exact = mpmath.fsum(
                mpmath.mpf(p) * (mpmath.expjpi(-2 * t) - 1)
                for p, t in zip(mass.tolist(), turn, strict=True)
            )
            assert abs(exact - mpmath.mpc(complex(value))) <= error
    assert errors[1] < 2e-2 * errors[-1]  # relative to how far powers turn, not to one


@pytest.mark.parametrize("counts", [(400, 70, 3), (70, 3, 400), (65, 64, 63)])
def test_what_is_left_out_of_a_product_is_no_larger_than_is_said(counts, monkeypatch) -> None:
    laws = [masses(4.0 + 3 * k, 40, k) for k in range(3)]
    monkeypatch.setattr(transform, "_FEWER", 4)
    whole, few = transform.PowerProduct(SIZE), transform.PowerProduct(SIZE)
    for (cuts, mass), count in zip(laws, counts, strict=True):
        whole.multiply(cuts, mass, count)
        few.multiply(cuts, mass, count)
        few.leave()
    assert 0 < few._kept.size < SIZE // 8
    (all_of_them, error), (left, other) = whole.result(), few.result()
    assert whole.shift == few.shift
    assert (np.abs(all_of_them - left) <= error + other).all()
    assert np.abs(other).max() < 1e-11


def kinds(number: int, seed: int) -> list[Step]:
    rng = np.random.default_rng(seed)
    return [
        Step(
            noise_multiplier=float(10 ** rng.uniform(-0.1, 0.8)),
            sample_rate=float(10 ** rng.uniform(-3, -1)),
            count=int(10 ** rng.uniform(1, 3)),
        )
        for _ in range(number)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "delta"), [(9, 1e-5), (14, 1e-9)])
def test_the_bracket_of_many_kinds_holds_the_inversions_value(number: int, delta: float) -> None:
    events = kinds(number, number)
    laws = [
        (oracle.rem(step.sample_rate, 1 / step.noise_multiplier), step.count) for step in events
    ]
    truth = oracle.epsilon(laws, delta).value
    epsilon = hubbub.epsilon(events=events, delta=delta)
    assert epsilon.lower - 1e-6 <= truth <= epsilon.upper + 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["add-remove", "substitute"])
def test_few_frequencies_say_what_all_of_them_say(relation: str) -> None:
    events = [*kinds(20, 3), Step(noise_multiplier=0.5, sample_rate=1e-5, count=10_000)]
    few = hubbub.epsilon(events=events, delta=1e-6, relation=relation)
    with patch.object(composition, "_MANY", 100):
        every = hubbub.epsilon(events=[*events[1:], events[0]], delta=1e-6, relation=relation)
    assert few.upper == pytest.approx(every.upper, rel=1e-6)
    assert few.lower == pytest.approx(every.lower, rel=1e-6)
