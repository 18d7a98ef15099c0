"""What a ledger's rows say: an attempt charged, a cap set, a study let in, a study closed.

All are checked when they are made, here or from a stored row, so that what cannot be composed is
never written. This file does not know where rows are kept, nor what they add up to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isclose
from typing import Any

from hubbub.core.errors import StudyError
from hubbub.core.privacy import arguments
from hubbub.core.privacy.certificate import Certificate
from hubbub.core.privacy.dominating_pairs import Step
from hubbub.core.privacy.remaining_budget import ReferenceLaw, RemainingBudget

UNITS = (RECORD, PATIENT) = ("record", "patient")
_PROJECTIONS = ("gaussian", "sign", "layers")
_ATTESTED = ("quotes", "collateral", "policy")
_STUDIES = ("adaptive", "fixed")
_PURPOSE = re.compile(r"[a-z-]{0,40}")
_LAST_DIGITS = 1e-6  # what two calibrations of one study may differ by, relative


@dataclass(frozen=True, kw_only=True, order=True)
class LedgerMechanism:
    """A mechanism and what it is for: entries of one kind differ in nothing that costs privacy.

    Sums for two purposes are counted apart even where their noise is the same: what one may still
    ask has nothing to do with what the other has asked.
    """

    noise_multiplier: float  # what is left against the stated adversary (P3)
    sample_rate: float
    sampling: str
    records: int = 0  # of all silos, where batches are joint (P10)
    known_records: int = 0  # those of them that the stated adversary owns
    projection: str = ""  # its kind, if there is one (P8)
    dimension: int = 0  # numbers that are sent, where there is a projection
    factor: float = 1.0  # C~ / C, where the projection is charged by a bound
    slack: float = 0.0  # delta that each attempt spends on longer projections then
    unit: str = "record"  # what is clipped: a record, or a patient's records as one (P21)
    most_per_patient: int = 0  # records that a patient has at most; 0: not stated
    diameter: float = 2.0  # of two records' parts, in units of C (P23)
    purpose: str = ""  # what the sums are for

    def __post_init__(self) -> None:
        """Refused here, what cannot be composed is never written."""
        self.step()
        arguments.whole("records", self.records, least=0, most=10**12)
        arguments.whole("known_records", self.known_records, least=0, most=10**12)
        arguments.choice("projection", self.projection, ("", *_PROJECTIONS))
        arguments.whole("dimension", self.dimension, least=2 * bool(self.projection), most=10**7)
        arguments.within("factor", self.factor, least=1.0, most=1e6)
        arguments.within("slack", self.slack, least=0.0, most=1.0)
        arguments.choice("unit", self.unit, UNITS)
        arguments.whole("most_per_patient", self.most_per_patient, least=0, most=1000)
        arguments.within("diameter", self.diameter, least=1e-3, most=2.0)
        if not _PURPOSE.fullmatch(self.purpose):
            raise ValueError("no purpose of sums")

    def to_dict(self) -> dict[str, Any]:
        """As rows hold it; patients and diameters only where they are spoken of."""
        of_patients = self.unit == PATIENT or self.most_per_patient
        silent = {
            *(() if of_patients else ("unit", "most_per_patient")),
            *(() if self.diameter != LedgerMechanism.diameter else ("diameter",)),
        }
        return {name: value for name, value in vars(self).items() if name not in silent}

    def like(self, other: LedgerMechanism, *, times: float = 1.0) -> bool:
        """Whether it is the same mechanism but for the last digits of what was calibrated.

        Another version of a library may end a calibration on another digit; the study is the same.
        Two kinds that are both like a third may be twice as far apart: `times` 2 finds all of
        these.
        """
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        apart = times * _LAST_DIGITS
        return all(
            isclose(a, b, rel_tol=apart) if isinstance(a, float) else a == b for a, b in pairs
        )

    def dearer(self) -> LedgerMechanism:
        """With so little less noise that it covers every kind that is like it."""
        return replace(self, noise_multiplier=self.noise_multiplier * (1 - 2 * _LAST_DIGITS))

    def covers(self, other: LedgerMechanism) -> bool:
        """Whether the other kind is this one computed anew, and `dearer` costs no less."""
        # Its noise is within 1e-6 of this one's, and `dearer` has 2e-6 less.
        same = replace(other, noise_multiplier=self.noise_multiplier)
        return self == same and self.like(other)

    def step(self, count: int = 1) -> Step:
        """So many attempts, without what is particular to joint batches and projections."""
        return Step(
            noise_multiplier=self.noise_multiplier,
            sample_rate=self.sample_rate,
            sampling=self.sampling,
            count=count,
        )


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One attempt at one round, and the mechanism that it ran.

    The certificate is the plan's, for the whole session, and is counted once. Where parties showed
    evidence, hashes of their quotes, collateral and the study's policy are here.
    """

    study: bytes
    session: bytes
    round: int
    attempt: int
    kind: LedgerMechanism
    certificate: Certificate = field(default_factory=Certificate)
    attested: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        if [*map(len, self.attested)] not in ([], [32] * len(_ATTESTED)):
            raise ValueError("no hashes of evidence")
        arguments.epsilon(self.certificate.epsilon)
        arguments.within("slack", self.certificate.slack, least=0.0, most=1.0)
        arguments.within("failure", self.certificate.failure, least=0.0, most=1.0)
        arguments.within("delta_factor", self.certificate.delta_factor, least=1.0, most=2.0)
        arguments.whole("round", self.round, least=0, most=2**63 - 1)
        arguments.whole("attempt", self.attempt, least=0, most=2**63 - 1)

    def to_dict(self) -> dict[str, Any]:
        """The entry as JSON knows it."""
        attested = {
            name: digest.hex() for name, digest in zip(_ATTESTED, self.attested, strict=False)
        }
        return {
            "study": self.study.hex(),
            "session": self.session.hex(),
            "round": int(self.round),
            "attempt": int(self.attempt),
            **self.kind.to_dict(),
            "certificate": dict(vars(self.certificate)),
            **({"attested": attested} if attested else {}),
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Entry:
        """The entry that `plain` gave."""
        left = dict(plain)
        attested = left.pop("attested", {})
        if set(attested) - set(_ATTESTED):
            raise ValueError("no hashes of evidence")
        return cls(
            attested=tuple(bytes.fromhex(attested[name]) for name in _ATTESTED if attested),
            study=bytes.fromhex(left.pop("study")),
            session=bytes.fromhex(left.pop("session")),
            round=left.pop("round"),
            attempt=left.pop("attempt"),
            certificate=Certificate(**left.pop("certificate")),
            kind=LedgerMechanism(**left),
        )


@dataclass(frozen=True, kw_only=True)
class Cap:
    """The most that the owner of a data set allows all studies together.

    `studies` says which promise that is: "adaptive", whatever later studies are chosen in view of
    earlier outputs (P24), or "fixed", if all of them were fixed beforehand (P15). A `law` is what
    adaptive studies are expected to be: room is kept for all of its steps, which then cost nothing
    for being chosen late.
    """

    epsilon: float
    delta: float
    relation: str
    studies: str = "fixed"
    law: ReferenceLaw | None = None

    def __post_init__(self) -> None:
        arguments.epsilon(self.epsilon)
        arguments.delta(self.delta)
        arguments.choice("relation", self.relation, arguments.RELATIONS)
        arguments.choice("studies", self.studies, _STUDIES)
        if self.law is not None and self.studies != "adaptive":
            raise StudyError(
                "expected a reference law with adaptive studies alone, got it with fixed ones, "
                "which cost nothing for being chosen late; leave one of the two out"
            )

    def to_dict(self) -> dict[str, Any]:
        """The cap as JSON knows it."""
        return {
            "epsilon": float(self.epsilon),
            "delta": float(self.delta),
            "relation": self.relation,
            "studies": self.studies,
            **({} if self.law is None else {"law": dict(vars(self.law))}),
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Cap:
        """The cap that `plain` gave."""
        law = plain.get("law")
        return cls(**{**plain, "law": None if law is None else ReferenceLaw(**law)})


@dataclass(frozen=True, kw_only=True)
class Admission:
    """A study that an adaptive cap has let in, or more attempts of one, before they are made."""

    study: bytes  # its id
    counts: tuple[tuple[LedgerMechanism, int], ...]  # so many attempts of each kind
    left: RemainingBudget | None  # to studies that come later; None: nothing

    def __post_init__(self) -> None:
        for _, count in self.counts:
            arguments.whole("count", count, least=1, most=arguments.MOST_STEPS)

    def to_dict(self) -> dict[str, Any]:
        """The admission as JSON knows it."""
        return {
            "study": self.study.hex(),
            "counts": [kind.to_dict() | {"count": count} for kind, count in self.counts],
            # Steps of a law only where there are some.
            "left": self.left and {k: v for k, v in vars(self.left).items() if k != "steps" or v},
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Admission:
        """The admission that `plain` gave."""
        left = plain["left"]
        return cls(
            study=bytes.fromhex(plain["study"]),
            counts=tuple(_counted(**count) for count in plain["counts"]),
            left=None if left is None else RemainingBudget(**left),
        )


@dataclass(frozen=True, kw_only=True)
class Closing:
    """A study that is over on this data set: no attempt of it is charged after this row (P15)."""

    study: bytes  # its id

    def __post_init__(self) -> None:
        if len(self.study) != 32:
            raise ValueError("no study id")

    def to_dict(self) -> dict[str, Any]:
        """The closing as JSON knows it."""
        return {"study": self.study.hex()}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Closing:
        """The closing that `plain` gave."""
        return cls(**{name: bytes.fromhex(text) for name, text in plain.items()})


def _counted(*, count: int, **kind: Any) -> tuple[LedgerMechanism, int]:
    """So many of a kind."""
    return LedgerMechanism(**kind), count
