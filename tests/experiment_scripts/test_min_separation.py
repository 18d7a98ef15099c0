"""The estimates by which docs/adr/0006 decides agree where an account is certified.

Five standard errors fail once in 1.7 million; noise off by a tenth is refused.
"""

from __future__ import annotations

import numpy as np
import pytest

from hubbub.core.planning.noise_correlation import best_column, least_noise
from hubbub.core.protocol.primitives.correlated_noise import UNIT

sampling = pytest.importorskip(
    "experiments.min_separation", reason="experiments/ is not part of this copy of hubbub"
)
STEPS, RATE, EPSILON, DELTA = 20, 0.1, 1.0, 0.02


@pytest.mark.slow
@pytest.mark.parametrize("off", [1.0, 0.9])
def test_a_separation_of_one_is_poisson_sampling(off: float) -> None:
    noise = least_noise(1, STEPS, RATE, EPSILON, DELTA, "add-remove")
    sampler = sampling.min_sep(np.ones(1), STEPS, RATE)
    value, error = sampling.estimate(sampler, off * noise, EPSILON, (0.15, 1.0), 40_000)
    assert (abs(value - DELTA) < 5 * error) == (off == 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("tilt", [0.0, 0.3])
def test_losses_of_any_sampling_have_the_mass_of_a_law(tilt: float) -> None:
    """E exp(-loss) = 1 under the record's presence, whatever the samples were drawn by."""
    column = np.array(best_column(3, 0.0, "constant", STEPS)) / UNIT
    for make in (sampling.min_sep, sampling.bins):
        loss, logs = make(column, STEPS, RATE)(2.0, tilt, 1.0, 20_000)
        mass = np.exp(logs - loss)
        assert abs(mass.mean() - 1) < 5 * mass.std() / np.sqrt(mass.size)
        assert np.exp(logs).mean() == pytest.approx(1.0, abs=0.02)
