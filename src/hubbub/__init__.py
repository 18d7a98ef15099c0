"""hubbub: one model from many silos, with differential privacy that nobody has to be trusted for.

Every name is loaded when it is first used. The accountant, the study and the plan need numpy, scipy
and cryptography only; what trains (`hubbub.run`, `hubbub.learning`) needs the extra `learn`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

VERSION = "0.1.0"  # for everybody who writes it down

if TYPE_CHECKING:
    from hubbub import learning as learning
    from hubbub.assurance.audit import Audit, audit
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
    from hubbub.session import PrivateSum, private_sum, secure_sum
    from hubbub.study import Column, Records, Study
    from hubbub.training import (
        Result,
        TrainedModel,
        fit,
        load,
        rehearse,
        resume,
        run,
        statistics,
    )

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
    "statistics",
    "trade_off",
]

# Which room hands out which names.
_ROOMS = {
    "assurance.audit": ("Audit", "audit"),
    "planning": ("Plan", "plan"),
    "privacy": (
        "Bound",
        "Step",
        "TradeOff",
        "attack_power",
        "composed_epsilon",
        "delta",
        "epsilon",
        "malicious_epsilon",
        "noise_multiplier",
        "projected_epsilon",
        "projection_bound",
        "trade_off",
    ),
    "session": ("PrivateSum", "private_sum", "secure_sum"),
    "study": ("Column", "Records", "Study"),
    "training": (
        *("Result", "TrainedModel", "fit", "load", "rehearse", "resume", "run"),
        "statistics",
    ),
}
_ROOM_OF = {name: f"hubbub.{room}" for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load what is first used."""
    if name == "learning":
        return importlib.import_module("hubbub.learning")
    if name in _ROOM_OF:
        return getattr(importlib.import_module(_ROOM_OF[name]), name)
    raise AttributeError(f"module 'hubbub' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What there is, loaded or not."""
    return sorted({*globals(), *__all__})
