"""Arrays in a folder, sealed piece by piece, so that a disk, a copy or a snapshot shows none of it.

Each piece is sealed by AES-256-GCM under the key of the party's folder, with a nonce of its own;
what it belongs to (study, silo, array, its place in it) is authenticated with it, and so is how
many pieces there are. A copy of `extracts/` alone says nothing; keep `extracts.key` out of backups.
"""

from __future__ import annotations

import json
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.disk import (
    PRIVATE,
    appending,
    fresh,
    json_value,
    read_bytes,
    write_all,
    write_bytes,
)

Array = NDArray[Any]
Arrays = dict[str, Array]
KEY = "extracts.key"
HEAD = "extract.sealed"
_KEY_BYTES, _NONCE_BYTES = 32, 12
_ADDED = _NONCE_BYTES + 16  # bytes of a sealed piece beside its content: nonce and tag
_PIECE = 1 << 22  # bytes that are sealed at once


def key_in(home: Path) -> bytes:
    """The key of a party's folder, made where there is none.

    OSError, ValueError: it cannot be read or written, or is none.
    """
    path = home / KEY
    if not path.is_file():
        fresh_key = path.with_name(f".{KEY}-{secrets.token_hex(8)}")
        write_bytes(fresh_key, secrets.token_bytes(_KEY_BYTES), mode=PRIVATE)
        with suppress(FileExistsError):  # another process was first: its key is the folder's
            os.link(fresh_key, path)
        fresh_key.unlink()
    key = read_bytes(path, most=_KEY_BYTES)
    if len(key) != _KEY_BYTES:
        raise ValueError("a key of another length")
    return key


@dataclass(frozen=True)
class Seal:
    """Seals pieces that belong together."""

    key: bytes = field(repr=False)  # of the party's folder
    about: str  # the study and the silo

    def sealed(self, content: bytes | memoryview, name: str, place: int) -> bytes:
        """One piece: nonce and ciphertext."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # where data are sealed only

        # GCM says nothing under a nonce that is used twice: 96 random bits a piece, and few pieces.
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + AESGCM(self.key).encrypt(nonce, content, self._said(name, place))

    def opened(self, piece: bytes, name: str, place: int) -> bytes:
        """What a piece holds; ValueError if it was altered, or is another's."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce, rest = piece[:_NONCE_BYTES], piece[_NONCE_BYTES:]
        try:
            return AESGCM(self.key).decrypt(nonce, rest, self._said(name, place))
        except InvalidTag:
            raise ValueError("a piece that was altered") from None

    def _said(self, name: str, place: int) -> bytes:
        return f"hubbub extract {self.about} {name} {place}".encode()


class SealedFile:
    """Rows of one array, each of a type and a shape, written piece by piece into a new file."""

    def __init__(
        self, path: Path, seal: Seal, name: str, kind: np.dtype[Any], shape: tuple[int, ...]
    ) -> None:
        self._path, self._seal, self._name = path, seal, name
        self.kind, self.shape = kind, shape
        self.row_bytes = _row_bytes(kind, shape)
        fresh(path, mode=PRIVATE).close()
        self.rows: list[int] = []  # of each piece

    def add(self, rows: Array) -> None:
        """More rows, in pieces of bounded size."""
        step = max(1, _PIECE // max(self.row_bytes, 1))
        with appending(self._path, mode=PRIVATE) as file:
            for start in range(0, len(rows), step):
                part = np.ascontiguousarray(rows[start : start + step])
                write_all(file, self._seal.sealed(part.tobytes(), self._name, len(self.rows)))
                self.rows.append(len(part))

    def opened(self, place: int, first: int) -> Array:
        """The rows of one piece, the first of which has this number."""
        with self._path.open("rb") as file:
            file.seek(place * _ADDED + first * self.row_bytes)
            piece = file.read(_ADDED + self.rows[place] * self.row_bytes)
        content = self._seal.opened(piece, self._name, place)
        return np.frombuffer(content, dtype=self.kind).reshape(-1, *self.shape)

    def said(self) -> dict[str, Any]:
        """What the head says of it."""
        return {"kind": self.kind.str, "shape": list(self.shape), "rows": self.rows}


def _row_bytes(kind: np.dtype[Any], shape: tuple[int, ...]) -> int:
    return int(kind.itemsize * np.prod(shape, dtype=np.int64))


def write_head(folder: Path, seal: Seal, arrays: dict[str, dict[str, Any]]) -> None:
    """Say which arrays there are, sealed as they are; the extract is whole from then on."""
    write_bytes(folder / HEAD, seal.sealed(json.dumps(arrays).encode(), "head", 0), mode=PRIVATE)


def read_arrays(folder: Path, seal: Seal, names: tuple[str, ...]) -> Arrays:
    """Those of some arrays that there are, in memory.

    OSError, ValueError, KeyError, TypeError: they are not as they were written.
    """
    head = json_value(seal.opened(read_bytes(folder / HEAD), "head", 0))
    return {name: _read(folder, seal, name, head[name]) for name in names if name in head}


def _read(folder: Path, seal: Seal, name: str, head: dict[str, Any]) -> Array:
    kind, shape, rows = np.dtype(head["kind"]), tuple(head["shape"]), head["rows"]
    array = np.empty((sum(rows), *shape), dtype=kind)
    flat = array.reshape(-1).view(np.uint8)
    done = 0
    with (folder / f"{name}.sealed").open("rb") as file:
        for place, count in enumerate(rows):
            size = count * _row_bytes(kind, shape)
            content = seal.opened(file.read(_ADDED + size), name, place)
            flat[done : done + size] = np.frombuffer(content, dtype=np.uint8)
            done += size
        if file.read(1):
            raise ValueError("more than was written")
    return array
