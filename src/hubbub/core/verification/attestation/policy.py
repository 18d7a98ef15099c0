"""What evidence must show to be enough: small rules, and how they are put together.

A rule looks at claims that a verifier has made, and raises if they are not enough; it can say in
words what it asks for. `policy_of` makes the rules of one role of a study.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from hubbub.core.errors import AttestationError
from hubbub.core.study.attested_roles import AttestedRole
from hubbub.core.verification.attestation.attested_claims import AttestedClaims

MOST_AGE = 600  # seconds between a document that says when it was made and its verification


class EvidenceRule(ABC):
    """One thing that claims must show."""

    @abstractmethod
    def check(self, claims: AttestedClaims) -> None:
        """Raise an AttestationError unless the claims are enough."""

    @abstractmethod
    def words(self) -> str:
        """What is asked for."""


@dataclass(frozen=True)
class AllOf(EvidenceRule):
    """Every one of some rules."""

    rules: Sequence[EvidenceRule]

    def check(self, claims: AttestedClaims) -> None:
        """As the first that does not hold."""
        for rule in self.rules:
            rule.check(claims)

    def words(self) -> str:
        """All of them, in order."""
        return "; ".join(rule.words() for rule in self.rules)


@dataclass(frozen=True)
class AnyOf(EvidenceRule):
    """One of some rules, of which there is at least one."""

    rules: Sequence[EvidenceRule]

    def check(self, claims: AttestedClaims) -> None:
        """As the last, where none holds."""
        for rule in self.rules[:-1]:
            try:
                return rule.check(claims)
            except AttestationError:
                continue
        return self.rules[-1].check(claims)

    def words(self) -> str:
        """All of them, with "or" between them."""
        return " or ".join(rule.words() for rule in self.rules)


@dataclass(frozen=True)
class OnPlatform(EvidenceRule):
    """It runs on this platform."""

    platform: str

    def check(self, claims: AttestedClaims) -> None:
        """By the rule "platform"."""
        if claims.platform != self.platform:
            raise AttestationError(
                "platform", f"expected evidence of {self.platform}, got that of {claims.platform}"
            )

    def words(self) -> str:
        """Its name."""
        return f"platform {self.platform}"


@dataclass(frozen=True)
class Measured(EvidenceRule):
    """It runs this code."""

    name: str
    value: bytes

    def check(self, claims: AttestedClaims) -> None:
        """By the rule "measurement"."""
        measured = claims.measurements.get(self.name)
        if measured != self.value:
            got = "none" if measured is None else measured.hex()[:16] + "…"
            raise AttestationError(
                "measurement",
                f"expected {self.name} {self.value.hex()[:16]}…, got {got}: it runs another build",
            )

    def words(self) -> str:
        """The measurement and what it must be."""
        return f"{self.name} = {self.value.hex()}"


@dataclass(frozen=True)
class MinimumTcb(EvidenceRule):
    """Its firmware is no older."""

    name: str
    least: int

    def check(self, claims: AttestedClaims) -> None:
        """By the rule "tcb"."""
        measured = claims.tcb.get(self.name)
        if measured is None or measured < self.least:
            raise AttestationError(
                "tcb", f"expected {self.name} of at least {self.least}, got {measured}; update it"
            )

    def words(self) -> str:
        """The least version."""
        return f"{self.name} >= {self.least}"


@dataclass(frozen=True)
class StatusIn(EvidenceRule):
    """The vendor's word for its firmware is one of these."""

    accepted: tuple[str, ...]

    def check(self, claims: AttestedClaims) -> None:
        """By the rule "status"."""
        if claims.status not in self.accepted:
            raise AttestationError(
                "status",
                f"expected firmware that is {' or '.join(self.accepted)}, got {claims.status}",
            )

    def words(self) -> str:
        """The accepted words."""
        return f"firmware {' or '.join(self.accepted)}"


@dataclass(frozen=True)
class AdvisoriesIn(EvidenceRule):
    """No security advisory applies but these."""

    accepted: tuple[str, ...]

    def check(self, claims: AttestedClaims) -> None:
        """By the rule "advisory"."""
        if odd := sorted(set(claims.advisories) - set(self.accepted)):
            raise AttestationError(
                "advisory", f"expected no security advisory that is not accepted, got {odd[0]}"
            )

    def words(self) -> str:
        """The accepted ones."""
        return f"no advisory but {', '.join(self.accepted)}" if self.accepted else "no advisory"


@dataclass(frozen=True)
class NotDebug(EvidenceRule):
    """Its owner cannot look inside."""

    def check(self, claims: AttestedClaims) -> None:
        """By the rule "debug"."""
        if claims.debug:
            raise AttestationError(
                "debug", "expected no debug mode, in which its owner sees all, got it"
            )

    def words(self) -> str:
        """That there is none."""
        return "no debug mode"


@dataclass(frozen=True)
class NotMigratable(EvidenceRule):
    """Nobody may move its memory to another machine."""

    def check(self, claims: AttestedClaims) -> None:
        """By the rule "migration"."""
        if claims.migratable:
            raise AttestationError(
                "migration",
                "expected no migration, which hands its memory and keys to a program of its "
                "owner's choice, got a machine that allows it; start it with migration forbidden",
            )

    def words(self) -> str:
        """That there is none."""
        return "no migration"


@dataclass(frozen=True)
class RevocationChecked(EvidenceRule):
    """The vendor's revocation list came with the evidence, where there is one."""

    def check(self, claims: AttestedClaims) -> None:
        """By the rule "revocation"."""
        if claims.revocation is False:
            raise AttestationError(
                "revocation", "expected the vendor's revocation list in the collateral, got none"
            )

    def words(self) -> str:
        """That it was checked."""
        return "revocation checked"


@dataclass(frozen=True)
class ReportDataIs(EvidenceRule):
    """It was made for this purpose: these bytes were signed with it."""

    value: bytes = field(repr=False)

    def check(self, claims: AttestedClaims) -> None:
        """By the rule "report-data"."""
        if claims.report_data != self.value:
            raise AttestationError(
                "report-data",
                "expected evidence for this study, session, party, keys and nonces, got evidence "
                "that was made for something else",
            )

    def words(self) -> str:
        """What they are."""
        return f"report data {self.value.hex()}"


@dataclass(frozen=True)
class MadeNear(EvidenceRule):
    """If it says when it was made, that is not long ago, nor to come."""

    at: int
    most: int = MOST_AGE

    def check(self, claims: AttestedClaims) -> None:
        """By the rule "freshness"."""
        if claims.made is not None and abs(claims.made - self.at) > self.most:
            raise AttestationError(
                "freshness",
                f"expected evidence made within {self.most} s of its verification, got "
                f"{abs(claims.made - self.at)} s",
            )

    def words(self) -> str:
        """How long ago."""
        return f"made within {self.most} s"


def policy_of(role: AttestedRole) -> AllOf:
    """The rules of one role of a study, or of a policy file."""
    builds = [
        AllOf([Measured(name, bytes.fromhex(value)) for name, value in build])
        for build in role.measurements
    ]
    rules: list[EvidenceRule] = [
        OnPlatform(role.platform),
        NotDebug(),
        NotMigratable(),
        AnyOf(builds),
        *(MinimumTcb(name, least) for name, least in role.minimum_tcb),
    ]
    if role.platform in ("sgx", "tdx"):
        rules += [StatusIn(role.statuses), AdvisoriesIn(role.advisories)]
    if role.platform == "snp" and role.revocation:
        rules.append(RevocationChecked())
    return AllOf(rules)
