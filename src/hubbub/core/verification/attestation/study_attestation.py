"""A study's evidence at one party: how it is made here, and how everybody's is judged.

This is what a session asks (`session/attestation_exchange.py`); platforms and rules are behind it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from operator import call

from hubbub.core.errors import AttestationError, UserError
from hubbub.core.registered import loaded, registered
from hubbub.core.study.attested_roles import Attestation, AttestedRole
from hubbub.core.verification.attestation import policy
from hubbub.core.verification.attestation.policy import ATTESTERS, AttestedClaims, PlatformEvidence

# Makes this machine's evidence: for a platform, over 64 bytes, at a time in seconds since 1970.
Attester = Callable[[str, bytes, int], PlatformEvidence]


def machine_evidence(platform: str, report_data: bytes, at: int) -> PlatformEvidence:
    """This machine's evidence, by the installed package that knows its devices; see `Attester`.

    Raises:
        UserError: none is installed.
    """
    for point in registered(ATTESTERS).values():
        attester: Attester = loaded(point, call)
        return attester(platform, report_data, at)
    raise UserError(
        f"expected a package that registers {ATTESTERS}, found none; install hubbub whole"
    )


def clock() -> int:
    """This machine's clock, seconds since 1970."""
    return int(time.time())


@dataclass(frozen=True, kw_only=True)
class StudyAttestation:
    """Evidence as a study asks for it.

    Args:
        asked: of whom.
        attester: makes this machine's evidence; see `Attester`.
        now: this machine's clock.
    """

    asked: Attestation
    attester: Attester = field(default=machine_evidence, repr=False)
    now: Callable[[], int] = clock

    @property
    def policy(self) -> bytes:
        """SHA-256 of what the study asks for."""
        text = json.dumps(self.asked.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(b"hubbub policy v1" + text.encode()).digest()

    def asks(self, role: str) -> bool:
        """Whether parties with a role must show evidence."""
        return self.asked.of(role) is not None

    def make(self, role: str, report_data: bytes, at: int) -> bytes:
        """This machine's evidence over 64 bytes."""
        return self.attester(self._role(role).platform, report_data, at).to_bytes()

    def check(self, role: str, evidence: bytes, report_data: bytes, at: int) -> tuple[bytes, bytes]:
        """Refuse what is not enough; SHA-256 of quote and collateral.

        Raises:
            AttestationError: by the rule that does not hold.
        """
        return _judged(evidence, self._role(role), report_data, at)

    def _role(self, role: str) -> AttestedRole:
        asked_role = self.asked.of(role)
        assert asked_role is not None, "who calls has looked"  # noqa: S101
        return asked_role


# In one process every party judges the same evidence: once is enough, the answer is the same.
@lru_cache(maxsize=1 << 11)
def _judged(
    evidence: bytes, role: AttestedRole, report_data: bytes, at: int
) -> tuple[bytes, bytes]:
    """SHA-256 of quote and collateral of evidence that is enough."""
    shown = PlatformEvidence.read(evidence)
    judge(shown, role, report_data, at)
    return hashlib.sha256(shown.quote).digest(), hashlib.sha256(shown.collateral).digest()


def judge(
    shown: PlatformEvidence, role: AttestedRole, report_data: bytes, at: int
) -> AttestedClaims:
    """Verify evidence, and hold it against the rules of a role.

    Args:
        shown: by a party.
        role: what the study asks for.
        report_data: what it must be bound to, 64 bytes.
        at: the time of verification, seconds since 1970.

    Returns:
        What it says, which is enough.

    Raises:
        AttestationError: by the rule that does not hold.
    """
    if shown.platform != role.platform:  # before anything of another platform is verified
        raise AttestationError(
            "platform", f"expected evidence of {role.platform}, got that of {shown.platform}"
        )
    claims = shown.verified(at)
    bound = [policy.report_data_is(report_data), policy.made_near(at)]
    policy.check_claims(claims, [*policy.policy_of(role), *bound])
    return claims
