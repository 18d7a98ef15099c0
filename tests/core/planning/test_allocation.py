"""The account of random allocation that docs/adr/0003 decides by: both sides hold the truth."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

import hubbub

allocation = pytest.importorskip(
    "experiments.allocation", reason="experiments/ is not part of this copy of hubbub"
)


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "epsilon"), [(3.0, 2.0), (2.0, 4.0)])
def test_an_epoch_of_one_attempt_is_a_gaussian_step(noise, epsilon):
    exact = hubbub.delta(noise_multiplier=noise, steps=3, sampling="full-batch", epsilon=epsilon)
    lower, upper = (allocation.delta_of(noise, 1, 3, epsilon, above) for above in (False, True))
    assert lower <= exact.upper
    assert exact.lower <= upper <= 1.01 * lower


def test_an_epoch_of_two_attempts_by_quadrature():
    noise, epsilon = 1.5, 1.0
    x = np.linspace(-9.0, 10.0, 1001)
    mass, worth = norm.pdf(x) * (x[1] - x[0]), np.exp(x / noise - 1 / noise**2 / 2)
    value = (worth[:, None] + worth) / 2
    level = np.exp(epsilon)
    removal = mass @ np.maximum(value - level, 0) @ mass
    addition = mass @ np.maximum(1 - level * value, 0) @ mass
    lower, upper = (allocation.delta_of(noise, 2, 1, epsilon, above) for above in (False, True))
    # The quadrature's own error is below 1e-5 of the value.
    assert lower <= max(removal, addition) * (1 + 1e-4)
    assert max(removal, addition) * (1 - 1e-4) <= upper <= 1.02 * lower


@pytest.mark.slow
def test_the_small_variant_writes_its_table(tmp_path):
    pytest.importorskip("rich")
    path = allocation.main(["--small", "--out", str(tmp_path)])
    (row,) = path.read_text(encoding="utf-8").splitlines()[1:]
    assert row.startswith("2,2,2,")
