"""hubbub: one model from many silos, with differential privacy that nobody has to be trusted for."""

from hubbub.privacy import (
    Bound,
    Step,
    attack_power,
    composed_epsilon,
    delta,
    epsilon,
    malicious_epsilon,
    noise_multiplier,
    projected_epsilon,
    projection_bound,
)

__version__ = "0.1.0"

__all__ = [
    "Bound",
    "Step",
    "attack_power",
    "composed_epsilon",
    "delta",
    "epsilon",
    "malicious_epsilon",
    "noise_multiplier",
    "projected_epsilon",
    "projection_bound",
]
