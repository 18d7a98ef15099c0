"""What dp-accounting claims: its two accountants of Poisson sampling."""

from __future__ import annotations

from collections.abc import Iterator

import dp_accounting
from dp_accounting import pld, rdp

import hubbub
from benchmarks.conformance.claim import Claim

DELTA = 1e-5
_SETTINGS = ((1.0, 0.01, 1000), (0.6, 0.001, 300), (4.0, 0.2, 60))


def claims(library: str) -> Iterator[Claim]:
    """All of them."""
    for noise, rate, steps in _SETTINGS:
        event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
        certified = hubbub.epsilon(
            noise_multiplier=noise, sample_rate=rate, steps=steps, delta=DELTA
        )
        for name, accountant in (("rdp", rdp.RdpAccountant()), ("pld", pld.PLDAccountant())):
            accountant.compose(event, steps)
            yield Claim(
                library=library,
                case=f"{name}: Poisson, z {noise:g}, q {rate:g}, {steps} steps, 1e-5",
                claimed=float(accountant.get_epsilon(DELTA)),
                certified=certified,
            )
