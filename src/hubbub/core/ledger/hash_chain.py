"""Signed, append-only rows in one file, which a ledger is kept in.

Theory of operation. Row 0, the genesis, names the public half of an Ed25519 key; the private half
lies in `<file>.key` beside it. A row's digest covers its text, its number and the digest before it,
and the key signs every digest: one good signature vouches for all rows before it, and a row that
was altered, inserted, moved, taken out from between others, or written by anybody else is noticed.
SQLite (WAL, synchronous=FULL) makes rows durable. The key that is left alone tells a ledger that
was emptied from one that is new, and the newest digest, in `<file>.head`, a damaged or missing end.

What local files cannot prove: that they are the newest. Whoever writes the folder can put back an
older copy of everything, or remove it and begin anew, and whoever reads the key can write any
history. Against these helps only a head that somebody else keeps (`head_statement.py`).
"""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from hubbub.core.disk import (
    PRIVATE,
    fresh,
    locked,
    make_private,
    read_bytes,
    read_text,
    why_of,
    write_all,
)
from hubbub.core.errors import HubbubError, IntegrityError, UserError

# A row of a chain: its text, its place, and the digest by which it stands for all before it.

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


def is_signed(key: bytes, signature: bytes, content: bytes) -> bool:
    """Whether the owner of a public key signed a content."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, content)
    except (InvalidSignature, ValueError):
        return False
    return True


# The private key of a chain in a file of its own, which only its owner reads.
#
# Theory of operation. A key without a chain means that the chain was lost, so the key must not be
# there before the chain is; and a chain without its key cannot go on, so the key must be on disk
# first. Hence two names: the key is written under the first, and gets its own when the chain is on
# disk. If a crash comes between, the next who opens the chain finishes it. The file holds 64
# hexadecimal digits, so that it can be copied by hand.

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

    IntegrityError: the file holds no key, or not that of the chain, which names `public`.
    """
    first = _first_name(path)
    begun = None if path.exists() else _read(first)
    if begun is not None and begun.public_key().public_bytes_raw() == public:
        with suppress(FileNotFoundError, PermissionError):  # another process was faster
            first.rename(path)
    key = _read(path)
    if key is not None and key.public_key().public_bytes_raw() != public:
        raise IntegrityError(
            f"expected {chain} to be signed by {path}, another key signed it; restore both from a "
            "backup"
        )
    return key


def _first_name(path: Path) -> Path:
    return path.parent / f"{path.name}.new"


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


# The head of a chain as it was noted last, in a small file beside it.
#
# SQLite takes a log with a damaged end for one that ends earlier: after a crash a single flipped
# bit, or a `-wal` file that was thrown away, would shorten the chain, and what is left is a chain.
# So the newest row is noted here, once it is on disk. The note itself is not synced: it survives a
# killed process, and never says more than the chain holds.

_LINE = re.compile(rb"(\d{20}) ([0-9a-f]{64})\n")


class NotedHead:
    """The note in one file, which is made when there is something to note."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def writer(self) -> Iterator[Callable[[Head], None]]:
        """What notes a head that is on disk."""
        # Opened before the row is written: if the note cannot be, nothing was charged yet.
        before = os.open(self.path, os.O_WRONLY) if self.path.exists() else None
        with ExitStack() as stack:
            if before is not None:
                stack.callback(os.close, before)

            def write(head: Head) -> None:
                note = before
                if note is None:
                    note = os.open(self.path, os.O_WRONLY | os.O_CREAT, PRIVATE)
                    stack.callback(os.close, note)
                line = f"{head.number:020d} {head.digest.hex()}\n".encode()
                os.pwrite(note, line, 0)  # of one length always, so that nothing is cut off

            yield write

    def read(self) -> Head | None:
        """What was noted; None if nothing was, or a power cut took it."""
        try:
            before, stored = None, read_bytes(self.path, most=_MOST_BYTES)
            while stored != before:  # another process may be writing it
                before, stored = stored, read_bytes(self.path, most=_MOST_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise IntegrityError(
                f"expected to read {self.path}, got: {why_of(error)}; see to the disk and who "
                "may read it, or restore it from a backup"
            ) from None
        if not stored:
            return None
        match = _LINE.fullmatch(stored)
        if match is None:
            raise IntegrityError(
                f"expected the number and the digest of a row in {self.path}, found something "
                "else; restore it from a backup, or remove it once the ledger beside it was "
                "verified against a head noted elsewhere"
            )
        return Head(int(match[1]), bytes.fromhex(match[2].decode()))


Content = TypeVar("Content")
Progress = Callable[[int, int], None]

_APPLICATION = int.from_bytes(b"hubb", "big")
_FORMAT = 1
_SCHEMA = "CREATE TABLE rows (number INTEGER PRIMARY KEY, text TEXT NOT NULL, signature BLOB)"
_DISTRUST = ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0")
_GENESIS = "hubbub {kind}, signed by "
_LEAST = -(2**63)  # the smallest number that SQLite gives a row
_LOCK_SECONDS = 30
_RESTORE = "check the disk and the path, or restore a backup"
# When the log is taken over into the file. One round in about 180 pays for that, and the others pay
# less: to write over a log costs half of what it costs to make it longer.
_LOG_PAGES = 200


class Chain:
    """The rows in one file; made, with its key, if there is neither.

    The key is beside it under its name with ".key", the noted head with ".head". What the rows are
    is their `kind`. IntegrityError: the file is of another kind, was emptied, or cannot be used.
    """

    def __init__(self, path: Path, kind: str = "ledger") -> None:
        self._path, self._kind = path, kind
        self._key_path = self._beside(".key")
        self._noted = NotedHead(self._beside(".head"))
        self._written: list[Row] = []
        self._files: dict[str, tuple[int, int]] = {}  # device and inode of those that are open
        with self._reported(f"a usable {kind} at {path}", _RESTORE):
            path.parent.mkdir(parents=True, exist_ok=True)
            make_private(path)  # and so are the files that SQLite makes beside it
            self._database = sqlite3.connect(
                path,
                isolation_level=None,
                timeout=_LOCK_SECONDS,
                check_same_thread=False,  # a networked silo is asked on threads, one at a time
            )
            self._database.text_factory = _decoded
            try:
                self._check_files(("",))  # the others come and go with connections
                self._open()
                self._check_files()
                self.public = self._named_key()  # that the genesis names, 32 bytes
                self._key = own_key(self._key_path, path, self.public)
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _beside(self, end: str) -> Path:
        return self._path.parent / f"{self._path.name}{end}"

    def sign(self, content: bytes) -> bytes:
        """Sign something else than a row; it must not be as short as a row's digest."""
        # Whoever could have 32 bytes signed could have the digest of a made-up row signed.
        if len(content) <= len(NOTHING):
            raise ValueError("expected more bytes than a digest has; put the purpose before them")
        return self._own_key().sign(content)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep others who would hold it from the file until this ends; readers may read on.

        UserError: somebody holds it.
        """
        with ExitStack() as stack:
            with self._reported(f"a usable {self._kind} at {self._path}", "check the disk"):
                try:
                    stack.enter_context(locked(self._beside(".lock")))
                except BlockingIOError:
                    raise UserError(
                        f"expected to be alone on {self._path}, another run charges it; nothing "
                        "was charged: wait for that run, or stop it"
                    ) from None
            yield

    def after(self, last: Row | None) -> list[Row]:
        """The rows that follow one which this method returned, or all of them; verified.

        That it is still there is checked too. Only the last signature is looked at, which vouches
        for the rest. IntegrityError names the first row that does not fit.
        """
        if last is None:
            return self._whole()
        # P15: a ledger that was set back under a running process would let it spend twice.
        stored = self._read(last.number)
        if stored[:1] != [last[:3]]:
            raise self._altered(last.number)
        return self._verified(last, stored[1:])

    def check_signatures(self, rows: Sequence[Row], progress: Progress | None = None) -> None:
        """Look at every signature; IntegrityError names the first row whose one is false.

        `progress` is called with how many of how many are done.
        """
        for done, row in enumerate(rows, 1):
            if not is_signed(self.public, row.signature, row.digest):
                raise self._altered(row.number)
            if progress is not None:
                progress(done, len(rows))

    def parsed(self, row: Row, parse: Callable[[str], Content], what: str) -> Content:
        """The content of a verified row; IntegrityError if this version does not know it."""
        try:
            return parse(row.text)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, HubbubError):
            raise IntegrityError(
                f"expected row {row.number} of {self._path} to be {what}, found something else; "
                "use the version of hubbub that wrote it"
            ) from None

    def append(self, text: str, last: Row) -> Row:
        """Write the row that follows the last one, and see it there; inside `writing` only."""
        row = signed_row(self._own_key(), last.number + 1, text, last.digest)
        self._insert(row)
        # P15: read back within the transaction: what is sent rests on what others will read.
        if self._read(last.number) != [last[:3], row[:3]]:
            raise self._altered(row.number)
        self._written.append(row)
        return row

    @contextmanager
    def writing(self) -> Iterator[None]:
        """All or nothing, alone on the file, on disk when it is left."""
        remedy = "nothing was sent: free the disk or the lock, then resume"
        self._written.clear()
        with self._reported(f"{self._path} to take a row", remedy), self._noted.writer() as note:
            with self._transaction("IMMEDIATE"):
                self._check_files()
                self._is_blank()  # others may have written into the file since it was opened
                yield
            self._check_files()  # P15: a row that went elsewhere pays for nothing
            for row in self._written[-1:]:
                note(row.head)

    def rehearse(self) -> None:
        """Within `writing`: have the disk take what stands in the file anyway, like a row."""
        self._database.execute(f"PRAGMA user_version = {_FORMAT}")

    def _open(self) -> None:
        """Recognise the file, or write the genesis into an empty one."""
        for pragma in _DISTRUST:  # nothing that stands in the file is run
            self._database.execute(f"PRAGMA {pragma}")
        if sys.version_info >= (3, 12):
            self._database.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
            self._database.setconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_TRIGGER, False)
            self._database.setconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_VIEW, False)
        self._database.execute("PRAGMA synchronous=FULL")
        self._database.execute(f"PRAGMA wal_autocheckpoint={_LOG_PAGES}")
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
        query = "SELECT type, name, tbl_name, sql FROM sqlite_master LIMIT 2"
        schema = self._database.execute(query).fetchall()
        pragmas = ("PRAGMA application_id", "PRAGMA user_version")
        numbers = tuple(self._database.execute(pragma).fetchone()[0] for pragma in pragmas)
        if not schema and numbers == (0, 0):
            return True
        if numbers != (_APPLICATION, _FORMAT):
            raise IntegrityError(
                f"expected a {self._kind} of format {_FORMAT} at {self._path}, found another "
                "database; check the path, or use the version of hubbub that wrote it"
            )
        if not schema:
            raise self._emptied()
        if schema != [("table", "rows", "rows", _SCHEMA)]:  # a trigger or a view need have no end
            raise IntegrityError(
                f"expected the table of rows in {self._path} and nothing else, found something "
                "beside it or in its place; restore a backup, and use the file for nothing"
            )
        return False

    def _check_files(self, ends: Sequence[str] = ("", "-wal", "-shm")) -> None:
        """The database's files are those that stand under their names; OSError if one is gone."""
        path = self._path.resolve()
        for end in ends:
            one = path.with_name(path.name + end)
            if end and end not in self._files and not one.exists():
                continue  # without a log SQLite has none of the two
            status = one.stat()
            place = (status.st_dev, status.st_ino)
            if self._files.setdefault(end, place) != place:
                raise IntegrityError(
                    f"expected {one} to be the file that was opened, found another in its place: "
                    "it was restored, or copied over; nothing was sent: end what uses it, put the "
                    "newest files back together, and start again"
                )

    def _begin(self) -> None:
        """The key first: what happens without it must not look like a new ledger."""
        # A key or a note without rows: what was spent here must not be begun anew from nothing.
        if self._key_path.exists() or self._noted.path.exists():
            raise self._emptied()
        key = new_key(self._key_path)
        self._database.execute(_SCHEMA)
        self._database.execute(f"PRAGMA application_id = {_APPLICATION}")
        self._database.execute(f"PRAGMA user_version = {_FORMAT}")
        names = _GENESIS.format(kind=self._kind) + key.public_key().public_bytes_raw().hex()
        self._insert(signed_row(key, 0, names, NOTHING))

    def _insert(self, row: Row) -> None:
        self._database.execute("INSERT INTO rows VALUES (?, ?, ?)", row[:3])

    def _own_key(self) -> Ed25519PrivateKey:
        if self._key is None:
            raise IntegrityError(
                f"expected the key of {self._path} at {self._key_path}, found none that can be "
                "read; nothing was sent: restore the key from a backup"
            )
        return self._key

    def _whole(self) -> list[Row]:
        """All rows, verified, and up to the head that was noted."""
        noted = self._noted.read()  # before the rows, which only become more
        rows = self._verified(None, self._read(_LEAST))
        if not rows:
            raise self._altered(0)
        if noted is not None and noted not in [row.head for row in rows[noted.number :][:1]]:
            raise IntegrityError(
                f"expected row {noted.number} of {self._path} to be the one that "
                f"{self._noted.path} notes, found {len(rows)} rows without it: the end was lost, "
                "or an older copy put back; restore the newest files that belong together"
            )
        return rows

    def _verified(self, last: Row | None, stored: list[tuple[Any, ...]]) -> list[Row]:
        """Stored rows as those that follow the last one."""
        rows: list[Row] = []
        for one in stored:
            last = self._fitted(last, *one)
            rows.append(last)
        # A digest covers all rows before it, so one signature vouches for all of them.
        if rows and not is_signed(self.public, rows[-1].signature, rows[-1].digest):
            self.check_signatures(rows)  # which of them is the first
        return rows

    def _fitted(self, previous: Row | None, number: Any, text: Any, signature: Any) -> Row:
        """A stored row as the one that follows `previous`; its signature is not looked at."""
        expected = 0 if previous is None else previous.number + 1
        if number != expected or not isinstance(text, str) or not isinstance(signature, bytes):
            raise self._altered(expected)
        before = NOTHING if previous is None else previous.digest
        return Row(number, text, signature, digest_of(number, text, before))

    def _named_key(self) -> bytes:
        """The key that the genesis names."""
        begins = _GENESIS.format(kind=self._kind)
        text = "".join(str(row[1]) for row in self._read(0, 1))
        if text.startswith("hubbub ") and not text.startswith(begins):
            raise IntegrityError(
                f"expected a {self._kind} at {self._path}, found something else; check the path, "
                "or restore a backup"
            )
        try:
            named = bytes.fromhex(text.removeprefix(begins))
            return Ed25519PublicKey.from_public_bytes(named).public_bytes_raw()
        except ValueError:
            raise self._altered(0) from None

    def _read(self, first: int, most: int = -1) -> list[tuple[Any, ...]]:
        """What is stored from a number on; at most so many rows, or all."""
        query = "SELECT * FROM rows WHERE number >= ? ORDER BY number LIMIT ?"
        with self._reported(f"a readable {self._kind} at {self._path}", _RESTORE):
            return self._database.execute(query, (first, most)).fetchall()

    @contextmanager
    def _transaction(self, kind: str) -> Iterator[None]:
        try:  # who waits for the lock may be interrupted as it gets it
            self._database.execute(f"BEGIN {kind}")
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
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            # An older copy counts too little: none is asked for where the file may be whole.
            if remedy == _RESTORE and isinstance(error, sqlite3.OperationalError | OSError):
                remedy = "check the disk, which may be full, the path, and who may write there"
            shown = str(error) if str(error).isprintable() else ascii(str(error))
            raise IntegrityError(f"expected {expected}, got: {shown}; {remedy}") from None

    def _altered(self, number: int) -> IntegrityError:
        return IntegrityError(
            f"expected row {number} of {self._path} to fit the chain, it was altered; restore the "
            f"{self._kind} from a backup and use it for nothing until then"
        )

    def _emptied(self) -> IntegrityError:
        return IntegrityError(
            f"expected the rows that {self._key_path} signed in {self._path}, found none; restore "
            f"the {self._kind} from a backup, or remove {self._path.name}* if it never held any"
        )


def _decoded(stored: bytes) -> str | bytes:
    """A stored text; if it is none, the bytes, which fit no chain (SQLite's error quotes them)."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored
