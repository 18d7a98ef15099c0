"""What JAX Privacy claims: its accountant of DP-SGD."""

from __future__ import annotations

from collections.abc import Iterator

from jax_privacy.accounting import accountants, analysis

import hubbub
from benchmarks.conformance.claim import Claim

DELTA, RECORDS = 1e-5, 10_000
_KINDS = {"rdp": accountants.RdpAccountantConfig, "pld": accountants.PldAccountantConfig}


def claims(library: str) -> Iterator[Claim]:
    """All of them."""
    for name, config in _KINDS.items():
        accountant = analysis.DpsgdTrainingAccountant(config())
        for noise, batch, steps in ((1.0, 100, 1000), (0.6, 10, 300), (4.0, 2000, 60)):
            params = analysis.DpParams(
                noise_multipliers=noise, num_samples=RECORDS, delta=DELTA, batch_size=batch
            )
            yield Claim(
                library=library,
                case=f"{name}: Poisson, {batch} of {RECORDS}, z {noise:g}, {steps} steps, 1e-5",
                claimed=float(accountant.compute_epsilon(steps, params)),
                certified=hubbub.epsilon(
                    noise_multiplier=noise, sample_rate=batch / RECORDS, steps=steps, delta=DELTA
                ),
            )
