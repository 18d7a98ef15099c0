"""The private key of a chain in a file of its own, which only its owner reads.

Theory of operation. A key without a chain means that the chain was lost, so the key must not be
there before the chain is; and a chain without its key cannot go on, so the key must be on disk
first. Hence two names: the key is written under the first, and gets its own when the chain is on
disk. If a crash comes between, the next who opens the chain finishes it. The file holds 64
hexadecimal digits, so that it can be copied by hand. This file does not know what is signed.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from hubbub.core.disk import PRIVATE, fresh, read_text, write_all
from hubbub.core.errors import IntegrityError

_MOST_BYTES = 1024


def new_key(path: Path) -> Ed25519PrivateKey:
    """A key that is on disk under its first name when this returns; only its owner reads it."""
    key, first = Ed25519PrivateKey.generate(), _first_name(path)  # whatever of it was there is old
    with fresh(first, mode=PRIVATE) as file:
        write_all(file, key.private_bytes_raw().hex().encode())
        os.fsync(file.fileno())
    return key


def own_key(path: Path, chain: Path, public: bytes) -> Ed25519PrivateKey | None:
    """The key that signs a chain; None if there is none, or it is not for us to read.

    Raises:
        IntegrityError: the file holds no key, or not that of the chain, which names `public`.
    """
    first = _first_name(path)
    if not path.exists() and _public(_read(first)) == public:
        with suppress(FileNotFoundError, PermissionError):  # another process was faster
            first.rename(path)
    key = _read(path)
    if key is not None and _public(key) != public:
        raise IntegrityError(
            f"expected {chain} to be signed by {path}, another key signed it; restore both from a "
            "backup"
        )
    return key


def _first_name(path: Path) -> Path:
    return path.parent / f"{path.name}.new"


def _public(key: Ed25519PrivateKey | None) -> bytes | None:
    return None if key is None else key.public_key().public_bytes_raw()


def _read(path: Path) -> Ed25519PrivateKey | None:
    try:
        return Ed25519PrivateKey.from_private_bytes(
            bytes.fromhex(read_text(path, most=_MOST_BYTES))
        )
    except (FileNotFoundError, PermissionError):
        return None
    except (ValueError, OSError):
        raise IntegrityError(
            f"expected an Ed25519 key of 64 hexadecimal digits in {path}, found something else; "
            "restore it from a backup"
        ) from None
