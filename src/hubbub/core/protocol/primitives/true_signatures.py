"""Signatures that are known to be true, so that a process with many parties verifies each once."""

from __future__ import annotations

import hashlib

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

_MOST_KNOWN = 1 << 17
_LONG = 512  # bytes of content, beyond which nothing is remembered


class TrueSignatures:
    """Signatures that this process has made or verified: key, signature and content together.

    Where all parties are in one process each of them looks at the same frames. Whether a signature
    is true depends on these three alone, so it is found out once; one that is not true, or that
    differs in a bit from what is here, is verified each time. Of the three a hash is kept.
    """

    def __init__(self) -> None:
        self._known: set[bytes] = set()

    def add(self, verifying: bytes, signature: bytes, content: bytes) -> None:
        """Remember one; where there are many, all are forgotten first."""
        if len(content) > _LONG:  # which `has` does not look for
            return
        if len(self._known) >= _MOST_KNOWN:
            self.forget()
        self._known.add(_hash_of(verifying, signature, content))

    def forget(self) -> None:
        """Know nothing."""
        self._known = set()

    def has(self, verifying: bytes, signature: bytes, content: bytes) -> bool:
        """Whether the owner of a key signed the content."""
        if len(content) <= _LONG and _hash_of(verifying, signature, content) in self._known:
            return True
        try:
            Ed25519PublicKey.from_public_bytes(verifying).verify(signature, content)
        except InvalidSignature:
            return False
        self.add(verifying, signature, content)
        return True


def _hash_of(verifying: bytes, signature: bytes, content: bytes) -> bytes:
    """SHA-256 of the three, and of where one ends and the next begins."""
    lengths = len(verifying).to_bytes(4, "little") + len(signature).to_bytes(4, "little")
    return hashlib.sha256(lengths + verifying + signature + content).digest()


TRUE_SIGNATURES = TrueSignatures()  # of this process
