"""Secrets that two parties share, and the one-time mask keys that are derived from them.

A pair's secret comes from a fresh contribution of each side (HKDF-SHA256 over both), bound to the
study, the session and the pair. A key is derived from it for one round, one attempt and one MODEL,
by its digest, which covers the set of active silos too, and used for one vector. Silos that were
shown different MODELs derive different keys: their masks do not cancel, and what the adversary gets
is uniform (docs/privacy.md P4).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from hubbub.core.protocol.primitives.randomness import KEY_BYTES

CONTRIBUTION_BYTES = 32
SEALED_BYTES = 1088 + 32 + CONTRIBUTION_BYTES + 16  # as one travels (docs/protocol.md)
CHECK_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class PairSecret:
    """What two parties, low < high in the roster, share in one session."""

    low: int
    high: int
    _value: bytes = field(repr=False)

    @classmethod
    def agree(
        cls, *, low: int, high: int, from_low: bytes, from_high: bytes, study: bytes, session: bytes
    ) -> PairSecret:
        """The secret of both contributions; either being random makes it so."""
        place = _number(low) + _number(high)
        derive = HKDF(
            algorithm=SHA256(),
            length=32,
            salt=study + session,
            info=b"hubbub pair v1" + place,
        )
        return cls(low=low, high=high, _value=derive.derive(from_low + from_high))

    def mask_key(self, *, transcript: bytes, round: int, attempt: int, model: bytes) -> bytes:
        """The AES-128 key of the pair's mask in an attempt at a round, for the MODEL shown there.

        Args:
            transcript: of the set-up.
            round, attempt: when.
            model: digest of the MODEL.
        """
        use = _number(round) + _number(attempt) + model
        return self._expand(b"hubbub mask v2" + transcript + use, KEY_BYTES)

    def share_key(
        self, *, transcript: bytes, round: int, attempt: int, model: bytes, sender: int
    ) -> bytes:
        """The AES-128-GCM key under which one full share travels, used once; as `mask_key`."""
        use = _number(round) + _number(attempt) + model + _number(sender)
        return self._expand(b"hubbub share v2" + transcript + use, KEY_BYTES)

    def check(self, *, transcript: bytes, sender: int) -> bytes:
        """Proof that the sender has this secret and saw this transcript; tells nothing else."""
        return self._expand(b"hubbub check v1" + transcript + _number(sender), CHECK_BYTES)

    def _expand(self, info: bytes, length: int) -> bytes:
        return HKDFExpand(algorithm=SHA256(), length=length, info=info).derive(self._value)


def _number(value: int) -> bytes:
    return value.to_bytes(4, "little")
