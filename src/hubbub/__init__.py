"""hubbub: one model from many silos, with differential privacy that nobody has to be trusted for.

The accountant, the study and the plan need numpy, scipy and cryptography only. What trains
(`hubbub.run`, `hubbub.learning`) is loaded when it is first used and needs the extra `learn`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from hubbub.planning import Plan, plan
from hubbub.privacy import (
    Bound,
    Step,
    TradeOff,
    attack_power,
    composed_epsilon,
    delta,
    epsilon,
    malicious_epsilon,
    noise_multiplier,
    projected_epsilon,
    projection_bound,
    trade_off,
)
from hubbub.study import Column, Records, Study
from hubbub.version import VERSION

if TYPE_CHECKING:
    from hubbub import learning as learning
    from hubbub.assurance.audit import Audit, audit
    from hubbub.session import PrivateSum, private_sum, secure_sum
    from hubbub.training import Result, TrainedModel, fit, load, rehearse, resume, run

__version__ = VERSION

__all__ = [
    "Audit",
    "Bound",
    "Column",
    "Plan",
    "PrivateSum",
    "Records",
    "Result",
    "Step",
    "Study",
    "TradeOff",
    "TrainedModel",
    "attack_power",
    "audit",
    "composed_epsilon",
    "delta",
    "epsilon",
    "fit",
    "learning",
    "load",
    "malicious_epsilon",
    "noise_multiplier",
    "plan",
    "private_sum",
    "projected_epsilon",
    "projection_bound",
    "rehearse",
    "resume",
    "run",
    "secure_sum",
    "trade_off",
]

_LATER = {
    "Audit": "hubbub.assurance.audit",
    "PrivateSum": "hubbub.session.sums",
    "Result": "hubbub.training",
    "TrainedModel": "hubbub.training",
    "audit": "hubbub.assurance.audit",
    "fit": "hubbub.training",
    "load": "hubbub.training",
    "private_sum": "hubbub.session.sums",
    "rehearse": "hubbub.training",
    "resume": "hubbub.training",
    "run": "hubbub.training",
    "secure_sum": "hubbub.session.sums",
}


def __getattr__(name: str) -> Any:
    """Load what is needed later on first use."""
    if name == "learning":
        return importlib.import_module("hubbub.learning")
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    raise AttributeError(f"module 'hubbub' has no attribute {name!r}")
