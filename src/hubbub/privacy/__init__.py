"""Privacy accounting: certified bounds on what the noise of a study promises.

Knows distributions and numbers only: nothing of silos, vectors or models. The way in is
`questions.py`; `mechanism.py` is the table of dominating pairs; `laws.py`, `discretise.py`,
`tilting.py` and `composition.py` are the numerics, in the order in which the data go through.
"""

from hubbub.privacy.accountant import Bound, Composition, calibrate
from hubbub.privacy.mechanism import (
    Release,
    Step,
    release,
    release_projected,
    release_with_malicious,
)
from hubbub.privacy.questions import (
    attack_power,
    composed_epsilon,
    delta,
    epsilon,
    malicious_epsilon,
    noise_multiplier,
    power_bound,
    projected_epsilon,
    projection_bound,
)

__all__ = [
    "Bound",
    "Composition",
    "Release",
    "Step",
    "attack_power",
    "calibrate",
    "composed_epsilon",
    "delta",
    "epsilon",
    "malicious_epsilon",
    "noise_multiplier",
    "power_bound",
    "projected_epsilon",
    "projection_bound",
    "release",
    "release_projected",
    "release_with_malicious",
]
