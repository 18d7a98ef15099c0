"""Where the making of a list is kept between steps, so that a crash costs one step and no more.

Files appear whole or not at all and only their owner may read them: they hold the keys of a list in
the making, and are removed once it is made. This file knows names and bytes, not what they mean.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Protocol

from hubbub.errors import IntegrityError, UserError

_HASH_BYTES = 32


class Store(Protocol):
    """Somewhere to keep a few named byte strings; `Folder` is one."""

    def load(self, name: str) -> bytes | None:
        """What was saved last under a name, if anything."""

    def save(self, name: str, content: bytes) -> None:
        """Keep something, durably, in the place of what was there."""

    def clear(self) -> None:
        """Forget everything."""


class Folder:
    """A `Store` on the disk.

    Args:
        path: a folder of its own; it is made if need be.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise UserError(
                f"expected a folder that can be made, got {path}: {error.strerror}; choose another"
            ) from None

    def load(self, name: str) -> bytes | None:
        """The content of a file, if it is there.

        Raises:
            IntegrityError: it was altered.
        """
        path = self._place(name)
        if not path.exists():
            return None
        data = path.read_bytes()
        content = data[_HASH_BYTES:]
        if hashlib.sha256(content).digest() != data[:_HASH_BYTES]:
            raise IntegrityError(
                f"expected {path} as it was written, got another content; remove the folder and "
                "start again"
            )
        return content

    def save(self, name: str, content: bytes) -> None:
        """Write a file beside the old one, and put it into its place once it is on the disk."""
        part = self._place(name).with_suffix(".part")
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(content).digest())
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._place(name))

    def clear(self) -> None:
        """Remove all files of a list."""
        for path in (*self._path.glob("*.mix"), *self._path.glob("*.part")):
            path.unlink()

    def _place(self, name: str) -> Path:
        return self._path / f"{name}.mix"
