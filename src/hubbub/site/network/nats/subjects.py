"""How parties are called at the relay: their transport keys as NATS writes them, and subjects.

NATS writes an Ed25519 key as base32 of one byte for its kind, the key, and CRC-16 (XMODEM).
"""

from __future__ import annotations

import binascii
from base64 import b32encode

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from hubbub.core.errors import StudyError
from hubbub.core.protocol.primitives.identity import Identity, Keys

_USER, _SEED = 20 << 3, 18 << 3


def nkey_of(party: Identity) -> str:
    """A party's transport key as text.

    Raises:
        StudyError: it has none.
    """
    if not party.transport:
        raise StudyError(
            f"expected a transport key of {party.name} in the roster, got none; have it make its "
            "keys with this version of hubbub keygen"
        )
    return _text(bytes((_USER,)) + party.transport)


def nkey_of_seed(seed: bytes) -> str:
    """The public half of 32 private bytes, as text."""
    public = Ed25519PrivateKey.from_private_bytes(seed).public_key()
    return _text(bytes((_USER,)) + public.public_bytes_raw())


def seed_of(keys: Keys) -> str:
    """The private half as text; it is a secret."""
    return text_of_seed(keys.secret_parts()["transport"])


def text_of_seed(seed: bytes) -> str:
    """32 private bytes as text."""
    return _text(bytes((_SEED | _USER >> 5, (_USER & 31) << 3)) + seed)


def asked_of(party: Identity) -> str:
    """Where a party is asked."""
    return f"hubbub.{nkey_of(party)}.asked"


def answers_of(party: Identity) -> str:
    """Where it answers."""
    return f"hubbub.{nkey_of(party)}.answers"


def _text(whole: bytes) -> str:
    check = binascii.crc_hqx(whole, 0).to_bytes(2, "little")
    return b32encode(whole + check).decode().rstrip("=")
