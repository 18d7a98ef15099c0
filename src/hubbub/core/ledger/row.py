"""A row of a chain: its text, its place, and the digest by which it stands for all before it.

This file does not know where rows are kept, nor what the texts mean.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

NOTHING = bytes(32)  # the digest before the first row


class Head(NamedTuple):
    """The number and the digest of a row."""

    number: int
    digest: bytes


class Row(NamedTuple):
    """A verified row."""

    number: int
    text: str
    signature: bytes
    digest: bytes

    @property
    def head(self) -> Head:
        """What stands for it and all rows before it."""
        return Head(self.number, self.digest)


def signed_row(key: Ed25519PrivateKey, number: int, text: str, previous: bytes) -> Row:
    """A new row after the one with the digest `previous`."""
    digest = digest_of(number, text, previous)
    return Row(number, text, key.sign(digest), digest)


def digest_of(number: int, text: str, previous: bytes) -> bytes:
    """SHA-256 over a row and, through the digest before it, all earlier ones."""
    return hashlib.sha256(previous + number.to_bytes(8, "big") + text.encode()).digest()


def is_signed(key: Ed25519PublicKey, row: Row) -> bool:
    """Whether the owner of a key signed the row's digest."""
    try:
        key.verify(row.signature, row.digest)
    except InvalidSignature:
        return False
    return True
