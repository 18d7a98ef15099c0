"""From evidence to claims: which verifier is whose, and how evidence travels.

Evidence is a platform's name, a quote, and the collateral with which it is verified. Both are what
the platform's verifier takes, and never believed before it has.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from hubbub.core.errors import AttestationError
from hubbub.core.registered import loaded, registered
from hubbub.core.verification.attestation import attested_claims

# Takes a quote, its collateral and the time of verification in seconds since 1970.
Verifier = Callable[[bytes, bytes, int], attested_claims.AttestedClaims]
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

    def verified(self, at: int) -> attested_claims.AttestedClaims:
        """What it says, if it held at a time in seconds since 1970.

        Raises:
            AttestationError: it does not hold.
            UserError: the extra "attest" is needed and not installed.
        """
        if self.platform not in registered(PLATFORMS):
            raise AttestationError("platform", "expected a known platform, got another")
        verifier: Verifier = loaded(registered(PLATFORMS)[self.platform])
        return verifier(self.quote, self.collateral, at)
