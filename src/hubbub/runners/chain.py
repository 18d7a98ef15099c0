"""Signed, append-only rows in one file: the paper that a ledger is written on.

Theory of operation. Row 0, the genesis, names the public half of an Ed25519 key; the private half
lies in `<file>.key` beside it, readable by its owner only and made together with the file. A row's
digest covers its text, its number and the digest before it, and the key signs every digest. So one
good signature vouches for all rows before it, and a row that was altered, inserted, moved, taken
out from between others, or written by a stranger is noticed. SQLite (WAL, synchronous=FULL) makes
rows durable; its application id tells a ledger from other databases, and the key that is left alone
tells a ledger that was emptied from one that is new.

What a local file cannot prove: that it is the newest. The first rows of a chain are a chain, so
whoever writes the folder can put back an older copy, or remove file and key and begin anew, and
whoever reads the key can write any history. Against these helps only a digest noted elsewhere.
This file does not know what the texts mean.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from hubbub.errors import IntegrityError

_APPLICATION = int.from_bytes(b"hubb", "big")
_FORMAT = 1
_SCHEMA = "CREATE TABLE rows (number INTEGER PRIMARY KEY, text TEXT NOT NULL, signature BLOB)"
_GENESIS = "hubbub ledger, signed by "
_NOTHING = bytes(32)  # the digest before the genesis
_LOCK_SECONDS = 30


class Row(NamedTuple):
    """A verified row."""

    number: int
    text: str
    signature: bytes
    digest: bytes


class Chain:
    """The rows in one file; made, with its key, if there is neither.

    Args:
        path: the file. Its key is `path` with ".key" appended.

    Raises:
        IntegrityError: the file is no ledger, was emptied, or cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._key_path = path.with_name(f"{path.name}.key")
        with self._reported(f"a usable ledger at {path}", "check the disk, or restore a backup"):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(path, isolation_level=None, timeout=_LOCK_SECONDS)
            self._database.text_factory = _decoded
            try:
                self._open()
                self._key = _read_key(self._key_path)
                self._public = self._named_key()
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def after(self, last: Row | None, *, every_signature: bool = False) -> list[Row]:
        """The rows that follow one verified before, or all of them; verified.

        Args:
            last: a row that this method returned; that it is still there is checked as well.
            every_signature: check all signatures, not only the last, which vouches for the rest.

        Raises:
            IntegrityError: naming the first row that does not fit.
        """
        stored = self._read(0 if last is None else last.number)
        if last is not None:
            if stored[:1] != [last[:3]]:
                raise self._altered(last.number)
            stored = stored[1:]
        rows: list[Row] = []
        for one in stored:
            last = self._fitted(last, *one)
            rows.append(last)
        if last is None:
            raise self._altered(0)
        self._check_signatures(rows, every_signature)
        return rows

    def append(self, text: str, last: Row) -> Row:
        """Write the row that follows the last one, and see it there; inside `writing` only."""
        if self._key is None:
            raise IntegrityError(
                f"expected the key of {self._path} at {self._key_path}, found none that can be "
                "read; nothing was sent: restore the key from a backup"
            )
        self._insert(self._key, last.number + 1, text, last.digest)
        found = self.after(last)
        if [row.text for row in found] != [text]:
            raise self._altered(last.number + 1)
        return found[0]

    @contextmanager
    def writing(self) -> Iterator[None]:
        """All or nothing, alone on the file, on disk when it is left."""
        remedy = "nothing was sent: free the disk or the lock, then resume"
        with self._reported(f"{self._path} to take a row", remedy), self._transaction("IMMEDIATE"):
            yield

    def _open(self) -> None:
        """Recognise the file, or write the genesis into an empty one."""
        self._database.execute("PRAGMA synchronous=FULL")
        with self._transaction("DEFERRED"):  # one look at everything
            blank = self._is_blank()
        if blank:
            with self.writing():
                if self._is_blank():  # nobody was faster
                    self._begin()
        self._use_wal()

    def _use_wal(self) -> None:
        """Appending is faster so; the file stays as it is while somebody else opens it too."""
        try:
            self._database.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise

    def _is_blank(self) -> bool:
        """Whether there is nothing in the file yet; a file of something else is refused."""
        tables = [name for (name,) in self._database.execute("SELECT name FROM sqlite_master")]
        found = self._pragma("application_id"), self._pragma("user_version")
        if not tables and found == (0, 0):
            return True
        if found != (_APPLICATION, _FORMAT):
            raise IntegrityError(
                f"expected a ledger of format {_FORMAT} at {self._path}, found another database; "
                "check the path, or use the version of hubbub that wrote it"
            )
        if "rows" not in tables:
            raise self._emptied()
        return False

    def _begin(self) -> None:
        """The key first: what happens without it must not look like a new ledger."""
        if self._key_path.exists():
            raise self._emptied()
        key = Ed25519PrivateKey.generate()
        _write_key(self._key_path, key)
        self._database.execute(_SCHEMA)
        self._database.execute(f"PRAGMA application_id = {_APPLICATION}")
        self._database.execute(f"PRAGMA user_version = {_FORMAT}")
        self._insert(key, 0, _GENESIS + key.public_key().public_bytes_raw().hex(), _NOTHING)

    def _insert(self, key: Ed25519PrivateKey, number: int, text: str, previous: bytes) -> None:
        signature = key.sign(_digest(number, text, previous))
        self._database.execute("INSERT INTO rows VALUES (?, ?, ?)", (number, text, signature))

    def _fitted(self, previous: Row | None, number: Any, text: Any, signature: Any) -> Row:
        """A stored row as the one that follows `previous`; its signature is not looked at."""
        expected = 0 if previous is None else previous.number + 1
        if number != expected or not isinstance(text, str) or not isinstance(signature, bytes):
            raise self._altered(expected)
        before = _NOTHING if previous is None else previous.digest
        return Row(number, text, signature, _digest(number, text, before))

    def _check_signatures(self, rows: list[Row], every: bool) -> None:
        """The last signature; all of them if asked for, or to find the first that is wrong."""
        if every or not all(_signed(self._public, row) for row in rows[-1:]):
            for row in rows:
                if not _signed(self._public, row):
                    raise self._altered(row.number)

    def _named_key(self) -> Ed25519PublicKey:
        """The key that the genesis names, which is the one beside the file if there is one."""
        genesis = self._read(0)[:1]
        try:
            named = bytes.fromhex(str(genesis[0][1]).removeprefix(_GENESIS))
            key = Ed25519PublicKey.from_public_bytes(named)
        except (IndexError, ValueError):
            raise self._altered(0) from None
        if self._key is not None and named != self._key.public_key().public_bytes_raw():
            raise IntegrityError(
                f"expected {self._path} to be signed by {self._key_path}, another key signed it; "
                "restore both from a backup"
            )
        return key

    def _read(self, first: int) -> list[tuple[Any, ...]]:
        """What is stored from a number on, and below zero, where nothing belongs."""
        query = "SELECT * FROM rows WHERE number >= ? OR number < 0 ORDER BY number"
        with self._reported(f"a readable ledger at {self._path}", "restore a backup"):
            return self._database.execute(query, (first,)).fetchall()

    def _pragma(self, name: str) -> int:
        return int(self._database.execute(f"PRAGMA {name}").fetchone()[0])

    @contextmanager
    def _transaction(self, kind: str) -> Iterator[None]:
        self._database.execute(f"BEGIN {kind}")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:  # SQLite has rolled back a full disk itself
                self._database.execute("ROLLBACK")
            raise

    @contextmanager
    def _reported(self, expected: str, remedy: str) -> Iterator[None]:
        """The disk's errors as ours."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise IntegrityError(f"expected {expected}, got: {error}; {remedy}") from None

    def _altered(self, number: int) -> IntegrityError:
        return IntegrityError(
            f"expected row {number} of {self._path} to fit the chain, it was altered; restore the "
            "ledger from a backup and take part in no study until then"
        )

    def _emptied(self) -> IntegrityError:
        return IntegrityError(
            f"expected the rows that {self._key_path} signed in {self._path}, found none; restore "
            "the ledger from a backup, or remove both files if it never held any"
        )


def _decoded(stored: bytes) -> str | bytes:
    """A stored text; if it is none, the bytes, which fit no chain (SQLite's error quotes them)."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored


def _digest(number: int, text: str, previous: bytes) -> bytes:
    """SHA-256 over a row and, through the digest before it, all earlier ones."""
    return hashlib.sha256(previous + number.to_bytes(8, "big") + text.encode()).digest()


def _signed(key: Ed25519PublicKey, row: Row) -> bool:
    try:
        key.verify(row.signature, row.digest)
    except InvalidSignature:
        return False
    return True


def _read_key(path: Path) -> Ed25519PrivateKey | None:
    """The private key in a file; None if there is none, or it is not for us to read."""
    try:
        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(path.read_text()))
    except (FileNotFoundError, PermissionError):
        return None
    except ValueError:
        raise IntegrityError(
            f"expected an Ed25519 key of 64 hexadecimal digits in {path}, found something else; "
            "restore it from a backup"
        ) from None


def _write_key(path: Path, key: Ed25519PrivateKey) -> None:
    """A new file that only its owner reads, on disk when this returns."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(key.private_bytes_raw().hex())
        file.flush()
        os.fsync(file.fileno())
