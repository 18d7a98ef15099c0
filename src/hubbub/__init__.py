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
    from hubbub.assurance.audit import Audit as Audit
    from hubbub.assurance.audit import audit as audit
    from hubbub.planning import Plan as Plan
    from hubbub.planning import plan as plan
    from hubbub.privacy import Bound as Bound
    from hubbub.privacy import Step as Step
    from hubbub.privacy import TradeOff as TradeOff
    from hubbub.privacy import attack_power as attack_power
    from hubbub.privacy import composed_epsilon as composed_epsilon
    from hubbub.privacy import delta as delta
    from hubbub.privacy import epsilon as epsilon
    from hubbub.privacy import malicious_epsilon as malicious_epsilon
    from hubbub.privacy import noise_multiplier as noise_multiplier
    from hubbub.privacy import projected_epsilon as projected_epsilon
    from hubbub.privacy import projection_bound as projection_bound
    from hubbub.privacy import trade_off as trade_off
    from hubbub.session import PrivateSum as PrivateSum
    from hubbub.session import private_sum as private_sum
    from hubbub.session import secure_sum as secure_sum
    from hubbub.study import Column as Column
    from hubbub.study import Records as Records
    from hubbub.study import Study as Study
    from hubbub.training import Result as Result
    from hubbub.training import TrainedModel as TrainedModel
    from hubbub.training import fit as fit
    from hubbub.training import load as load
    from hubbub.training import rehearse as rehearse
    from hubbub.training import resume as resume
    from hubbub.training import run as run
    from hubbub.training import statistics as statistics

__version__ = VERSION

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
_ROOM_OF["learning"] = "hubbub.learning"  # itself
__all__ = list(_ROOM_OF)


def __getattr__(name: str) -> Any:
    """Load what is first used."""
    if name not in _ROOM_OF:
        raise AttributeError(f"module 'hubbub' has no attribute {name!r}")
    room = importlib.import_module(_ROOM_OF[name])
    return room if name == "learning" else getattr(room, name)


def __dir__() -> list[str]:
    """What there is, loaded or not."""
    return sorted({*globals(), *__all__})
