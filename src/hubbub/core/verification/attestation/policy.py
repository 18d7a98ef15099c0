"""What evidence must show to be enough: small rules, one after the other.

A rule looks at claims that a verifier has made, and says why they are not enough, and in words what
it asks for. `policy_of` makes the rules of one role of a study.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hubbub.core.errors import AttestationError
from hubbub.core.registered import loaded, registered
from hubbub.core.study.attested_roles import PLATFORMS as PINNABLE
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


class EvidenceRule(NamedTuple):
    """One thing that claims must show.

    Args:
        name: of the rule that it is, one of `RULES`.
        words: what is asked for.
        fault: of claims that do not show it, what was expected and found; of others nothing.
    """

    name: str
    words: str
    fault: Callable[[AttestedClaims], str | None]


Policy = Sequence[EvidenceRule]


def check_claims(claims: AttestedClaims, policy: Policy) -> None:
    """Raise an AttestationError by the first rule that does not hold."""
    for rule in policy:
        if (fault := rule.fault(claims)) is not None:
            raise AttestationError(rule.name, fault)


def in_words(policy: Policy) -> str:
    """All that is asked for, in order."""
    return "; ".join(rule.words for rule in policy)


def policy_of(role: AttestedRole) -> list[EvidenceRule]:
    """The rules of one role of a study, or of a policy file."""
    rules = [
        EvidenceRule(
            "platform",
            f"platform {role.platform}",
            lambda claims: _unless(
                claims.platform == role.platform,
                f"expected evidence of {role.platform}, got that of {claims.platform}",
            ),
        ),
        EvidenceRule(
            "debug",
            "no debug mode",
            lambda claims: _unless(
                not claims.debug, "expected no debug mode, in which its owner sees all, got it"
            ),
        ),
        EvidenceRule(
            "migration",
            "no migration",
            lambda claims: _unless(
                not claims.migratable,
                "expected no migration, which hands its memory and keys to a program of its "
                "owner's choice, got a machine that allows it; start it with migration forbidden",
            ),
        ),
        EvidenceRule(
            "measurement",
            " or ".join("; ".join(map(" = ".join, build)) for build in role.measurements),
            lambda claims: _other_build(claims, role.measurements),
        ),
        *(_minimum_tcb(name, least) for name, least in role.minimum_tcb),
    ]
    if PINNABLE[role.platform].graded:
        status, advisories = " or ".join(role.statuses), ", ".join(role.advisories)
        rules += [
            EvidenceRule(
                "status",
                f"firmware {status}",
                lambda claims: _unless(
                    claims.status in role.statuses,
                    f"expected firmware that is {status}, got {claims.status}",
                ),
            ),
            EvidenceRule(
                "advisory",
                f"no advisory but {advisories}" if advisories else "no advisory",
                lambda claims: _unless(
                    not (odd := sorted(set(claims.advisories) - set(role.advisories))),
                    "expected no security advisory that is not accepted, got " + ", ".join(odd[:1]),
                ),
            ),
        ]
    if PINNABLE[role.platform].revocable and role.revocation:
        rules.append(
            EvidenceRule(
                "revocation",
                "revocation checked",
                lambda claims: _unless(
                    claims.revocation is not False,
                    "expected the vendor's revocation list in the collateral, got none",
                ),
            )
        )
    return rules


def report_data_is(value: bytes) -> EvidenceRule:
    """It was made for this purpose: these bytes were signed with it."""
    return EvidenceRule(
        "report-data",
        f"report data {value.hex()}",
        lambda claims: _unless(
            claims.report_data == value,
            "expected evidence for this study, session, party, keys and nonces, got evidence "
            "that was made for something else",
        ),
    )


def made_near(at: int, most: int = MOST_AGE) -> EvidenceRule:
    """If it says when it was made, that is not long ago, nor to come."""

    def fault(claims: AttestedClaims) -> str | None:
        apart = 0 if claims.made is None else abs(claims.made - at)
        return _unless(
            apart <= most,
            f"expected evidence made within {most} s of its verification, got {apart} s",
        )

    return EvidenceRule("freshness", f"made within {most} s", fault)


def _minimum_tcb(name: str, least: int) -> EvidenceRule:
    """Its firmware is no older."""

    def fault(claims: AttestedClaims) -> str | None:
        measured = claims.tcb.get(name)
        return _unless(
            measured is not None and measured >= least,
            f"expected {name} of at least {least}, got {measured}; update it",
        )

    return EvidenceRule("tcb", f"{name} >= {least}", fault)


def _other_build(claims: AttestedClaims, builds: Sequence[Sequence[tuple[str, str]]]) -> str | None:
    """It runs none of these builds; what differs from the last of them."""
    fault = None
    for build in builds:
        measured = {name: claims.measurements.get(name) for name, _ in build}
        other = [(name, value) for name, value in build if measured[name] != bytes.fromhex(value)]
        if not other:
            return None
        name, value = other[0]
        got = measured[name]
        shown = "none" if got is None else f"{got.hex()[:16]}…"
        fault = f"expected {name} {value[:16]}…, got {shown}: it runs another build"
    return fault


def _unless(holds: bool, fault: str) -> str | None:
    return None if holds else fault


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
