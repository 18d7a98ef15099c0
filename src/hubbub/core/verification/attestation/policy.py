"""What evidence must show to be enough: small rules, and how they are put together.

A rule looks at claims that a verifier has made, and raises if they are not enough; it can say in
words what it asks for. `policy_of` makes the rules of one role of a study.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hubbub.core.errors import AttestationError
from hubbub.core.registered import loaded, registered
from hubbub.core.study.attested_roles import AttestedRole

# What verified evidence says, in the same words for all platforms.
#
# Nothing here is believed before a verifier has made it. What of it is enough is a policy's
# business.

UP_TO_DATE = "UpToDate"
REPORT_DATA_BYTES = 64


@dataclass(frozen=True, kw_only=True)
class AttestedClaims:
    """What the vendor of a platform vouches for.

    Args:
        platform: "sgx", "tdx", "snp", "nitro" or "software".
        report_data: what the attested program had signed with it: 64 bytes on all platforms but
            Nitro, where it may be any length.
        measurements: of the code, by the platform's names.
        tcb: security versions of the platform, by its names.
        debug: whether its owner can look inside.
        migratable: whether its memory, with all secrets, may be moved to another machine.
        status: the vendor's word for the platform's firmware, where it has one.
        advisories: security advisories that the vendor says apply.
        revocation: whether revocation lists were checked; None where the vendor has none.
        made: when it was made, seconds since 1970, where it says so; else None.
        until: when the collateral ends, seconds since 1970.
    """

    platform: str
    report_data: bytes = field(repr=False)
    measurements: Mapping[str, bytes]
    tcb: Mapping[str, int] = field(default_factory=dict)
    debug: bool
    migratable: bool = False
    status: str = UP_TO_DATE
    advisories: tuple[str, ...] = ()
    revocation: bool | None = None
    made: int | None = None
    until: int

    def to_dict(self) -> dict[str, object]:
        """It as JSON knows it."""
        return {
            "platform": self.platform,
            "report_data": self.report_data.hex(),
            "measurements": {name: value.hex() for name, value in self.measurements.items()},
            "tcb": dict(self.tcb),
            "debug": self.debug,
            "migratable": self.migratable,
            "status": self.status,
            "advisories": list(self.advisories),
            "revocation_checked": self.revocation,
            "made": self.made,
            "valid_until": self.until,
        }


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


# From evidence to claims: which verifier is whose, and how evidence travels.
#
# Evidence is a platform's name, a quote, and the collateral with which it is verified. Both are
# what the platform's verifier takes, and never believed before it has.

# Takes a quote, its collateral and the time of verification in seconds since 1970.
Verifier = Callable[[bytes, bytes, int], AttestedClaims]
PLATFORMS, ATTESTERS = "hubbub.platforms", "hubbub.attesters"  # entry points
MOST_QUOTE, MOST_COLLATERAL = 16_384, 131_072  # bytes
_HEAD = struct.Struct("<B16sII")
_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class PlatformEvidence:
    """What an attested party shows.

    Args:
        platform: by the name of its verifier.
        quote: what the platform has signed.
        collateral: the vendor's certificates and lists; empty where there are none.
    """

    platform: str
    quote: bytes = field(repr=False)
    collateral: bytes = field(default=b"", repr=False)

    def to_bytes(self) -> bytes:
        """It as bytes: a version, the platform, two lengths, the quote, the collateral."""
        name = self.platform.encode()
        head = _HEAD.pack(_VERSION, name, len(self.quote), len(self.collateral))
        return head + self.quote + self.collateral

    @classmethod
    def read(cls, data: bytes) -> PlatformEvidence:
        """What `to_bytes` wrote; AttestationError if it is another."""
        if not _HEAD.size <= len(data) <= _HEAD.size + MOST_QUOTE + MOST_COLLATERAL:
            raise AttestationError("size", "expected evidence, got too few bytes or too many")
        version, name, quote, collateral = _HEAD.unpack_from(data)
        known = {one.encode().ljust(16, b"\0"): one for one in registered(PLATFORMS)}
        whole = _HEAD.size + quote + collateral == len(data)
        if version != _VERSION or name not in known or not whole:
            raise AttestationError("size", "expected evidence of a known platform, got other bytes")
        body = data[_HEAD.size :]
        return cls(platform=known[name], quote=body[:quote], collateral=body[quote:])

    def verified(self, at: int) -> AttestedClaims:
        """What it says, if it held at a time in seconds since 1970.

        Raises:
            AttestationError: it does not hold.
            UserError: the extra "attest" is needed and not installed.
        """
        if self.platform not in registered(PLATFORMS):
            raise AttestationError("platform", "expected a known platform, got another")
        verifier: Verifier = loaded(registered(PLATFORMS)[self.platform])
        return verifier(self.quote, self.collateral, at)
