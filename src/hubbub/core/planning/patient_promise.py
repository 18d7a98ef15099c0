"""What a study promises a patient, as a whole and not record by record (docs/privacy.md P20, P21).

Where the study says whose records they are, a patient of a silo is the unit, and the study's
epsilon is the patient's; who is a patient of two silos is two units. Where it only says how many
records a patient may have, each is a unit of its own, and the patient's epsilon is larger.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import exp, inf
from typing import Any

from hubbub.core.errors import StudyError
from hubbub.core.planning import accounts, exposure


@dataclass(frozen=True, kw_only=True)
class PatientPromise:
    """Epsilon of a patient, against the stated adversary at the study's delta.

    Args:
        records: the most that a patient has, public; in one silo where the patient is the unit.
        is_unit: whether all of a patient's records in a silo are one unit.
        epsilon: of a patient; inf past 50, None where there is no account.
        in_two_silos: of one who has records in two silos, which are two units; the same.
    """

    records: int
    is_unit: bool
    epsilon: float | None
    in_two_silos: float | None

    @property
    def who(self) -> str:
        """Whose epsilon it is."""
        return f"a patient with up to {self.records} records"

    def warning(self, stated: float, delta: float) -> str:
        """What a reader should know who expects that much of epsilon at that delta."""
        if self.is_unit:
            both = f"epsilon of both is {_told(self.in_two_silos)}"
            if self.in_two_silos is None:
                larger = min(1.0, (1 + exp(stated)) * delta)
                both = f"epsilon of both is at most {2 * stated:.4g}, at delta {larger:.2g}"
            return (
                f"the unit is a patient, with up to {self.records} records in a silo; who is a "
                f"patient of two silos is two units: {both}"
            )
        return (
            f"each record is a unit: epsilon of {self.who} is {_told(self.epsilon)}, that of a "
            f"record {stated:.4g}; data.patient makes the patient the unit"
        )

    def to_dict(self) -> dict[str, Any]:
        """As plain values; past 50 it is None."""
        plain = asdict(self)
        return {k: None if v == inf else v for k, v in plain.items()} | {"who": self.who}


def patient_promise(threat: exposure.Threat, stated: exposure.Exposure) -> PatientPromise | None:
    """What a patient is promised; None if the study says nothing of patients."""
    most = threat.mechanism.most_per_patient
    if not most:
        return None
    is_unit = threat.mechanism.unit == "patient"
    many = 2 if is_unit else most
    epsilon = stated.epsilon if many == 1 else _of_many(threat, stated, many)
    return PatientPromise(
        records=most,
        is_unit=is_unit,
        epsilon=stated.epsilon if is_unit else epsilon,
        in_two_silos=epsilon if is_unit else None,
    )


def _of_many(threat: exposure.Threat, stated: exposure.Exposure, many: int) -> float | None:
    """Epsilon of a unit with so many parts in every sum (P20); None if it has no account."""
    mechanism = threat.mechanism
    account, steps = accounts.account_of(mechanism), mechanism.steps
    try:
        whole = accounts.releases_of_units(account, stated.noise_multiplier, steps, many)
        whole += accounts.released(threat.beside, steps, 1.0, many)
    except StudyError:
        return None

    def ideal(delta: float) -> float:
        bound = accounts.epsilon_of(whole, delta)
        return bound.upper if bound else inf

    certified = stated.certified(threat.certificate)
    return certified.claim(ideal, threat.privacy.delta, near=stated.epsilon)


def _told(epsilon: float | None) -> str:
    if epsilon is None:
        return "not known (there is no account of it)"
    return "more than 50" if epsilon == inf else f"{epsilon:.4g}"
