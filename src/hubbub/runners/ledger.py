"""The privacy ledger of one data set: durable, append-only, chained, signed, and able to refuse.

A row is written and synced to disk before the answer that it pays for leaves the silo; a crash in
between over-counts. Before each row the epsilon after it is computed from the rows alone, over
every study that ever touched the data set (docs/privacy.md P15); past the owner's cap the row is
refused. SQLite in WAL mode with synchronous=FULL does the storage. What a local file cannot prove:
that it is not an older copy of itself. Whoever controls the disk can put back a backup.
"""

from __future__ import annotations

import hashlib
import sqlite3
import struct
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from hubbub.errors import BudgetError, IntegrityError, StudyError
from hubbub.identity import Keys
from hubbub.privacy import Composition, Step, parameters, release

_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
    number INTEGER PRIMARY KEY,
    study BLOB NOT NULL, session BLOB NOT NULL,
    round INTEGER NOT NULL, attempt INTEGER NOT NULL,
    noise_multiplier REAL NOT NULL, sample_rate REAL NOT NULL, sampling TEXT NOT NULL,
    signer BLOB NOT NULL, digest BLOB NOT NULL, signature BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS cap (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    epsilon REAL NOT NULL, delta REAL NOT NULL, relation TEXT NOT NULL
);
"""
_COLUMNS: dict[str, type] = {
    "number": int,
    "study": bytes,
    "session": bytes,
    "round": int,
    "attempt": int,
    "noise_multiplier": float,
    "sample_rate": float,
    "sampling": str,
    "signer": bytes,
    "digest": bytes,
    "signature": bytes,
}
_GENESIS = hashlib.sha256(b"hubbub ledger v1").digest()
_GROWTH = 1.25  # a check that passes for 25 % more steps need not be repeated at each one


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One attempt at one round, and the mechanism that it ran.

    `noise_multiplier` is that of the plan: what is left against the stated adversary (P3).
    """

    study: bytes
    session: bytes
    round: int
    attempt: int
    noise_multiplier: float
    sample_rate: float
    sampling: str

    def __post_init__(self) -> None:
        parameters.whole("round", self.round, least=0, most=2**63 - 1)
        parameters.whole("attempt", self.attempt, least=0, most=2**63 - 1)
        # Refused here, what cannot be composed is never written.
        Step(
            noise_multiplier=self.noise_multiplier,
            sample_rate=self.sample_rate,
            sampling=self.sampling,
        )

    def content(self, number: int, signer: bytes, previous: bytes) -> bytes:
        """What the chain's digest covers."""
        numbers = struct.pack(
            "<QQQdd",
            number,
            self.round,
            self.attempt,
            self.noise_multiplier,
            self.sample_rate,
        )
        parts = (previous, self.study, self.session, signer, self.sampling.encode(), numbers)
        return b"".join(len(part).to_bytes(4, "little") + part for part in parts)


@dataclass(frozen=True, kw_only=True)
class Cap:
    """The most that the owner of a data set allows all studies together."""

    epsilon: float
    delta: float
    relation: str

    def __post_init__(self) -> None:
        parameters.epsilon(self.epsilon)
        parameters.delta(self.delta)
        parameters.choice("relation", self.relation, parameters.RELATIONS)


class Ledger:
    """The ledger in one file.

    Args:
        path: the file; made if absent. Keep it outside the run's folder.

    Raises:
        IntegrityError: the file is not a ledger or cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._verified: tuple[int, bytes] = (0, _GENESIS)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(path, isolation_level=None, timeout=30)
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=FULL")
            self._database.executescript(_SCHEMA)
        except (sqlite3.Error, OSError) as error:
            raise IntegrityError(
                f"expected a usable ledger at {path}, got: {error}; nothing was sent. "
                "Check the disk, or restore the file from a backup"
            ) from None

    def charge(self, entry: Entry, keys: Keys) -> None:
        """Write an entry durably, or refuse it.

        Raises:
            BudgetError: it would carry the data set past its cap; nothing is written.
            IntegrityError: the disk does not take it, or the ledger was altered; nothing must be
                sent.
        """
        with self._transaction():
            self._verify_new()
            self._check_cap(entry)
            number, previous = self._head()
            signer = keys.identity.verifying
            content = entry.content(number + 1, signer, previous)
            digest = hashlib.sha256(content).digest()
            self._database.execute(
                "INSERT INTO entries VALUES (?,?,?,?,?,?,?,?,?,?,?)",
                (
                    number + 1,
                    entry.study,
                    entry.session,
                    entry.round,
                    entry.attempt,
                    entry.noise_multiplier,
                    entry.sample_rate,
                    entry.sampling,
                    signer,
                    digest,
                    keys.sign(digest),
                ),
            )

    def set_cap(self, cap: Cap) -> None:
        """Set the most that all studies together may spend."""
        with self._transaction():
            self._database.execute(
                "INSERT OR REPLACE INTO cap VALUES (1, ?, ?, ?)",
                (cap.epsilon, cap.delta, cap.relation),
            )

    @property
    def cap(self) -> Cap | None:
        """The cap, if one was set."""
        rows = self._read("SELECT epsilon, delta, relation FROM cap")
        return Cap(epsilon=rows[0][0], delta=rows[0][1], relation=rows[0][2]) if rows else None

    def epsilon(self, *, delta: float, relation: str) -> float:
        """Certified upper epsilon of everything in the ledger."""
        self._verify_new()
        kinds = self._kinds()
        return _epsilon(kinds, delta, relation) if kinds else 0.0

    def entries(self) -> Iterator[Entry]:
        """All entries, oldest first."""
        for row in self._rows():
            yield _entry(row)

    def __len__(self) -> int:
        return self._head()[0]

    @property
    def head(self) -> bytes:
        """The digest of the last entry."""
        return self._head()[1]

    def verify(self, *, signers: Collection[bytes] | None = None, head: bytes | None = None) -> int:
        """Recompute the chain and check every signature; the number of entries.

        Args:
            signers: Ed25519 keys that may have signed; None: any, which proves the chain only.
            head: a `head` noted earlier outside this disk; None: an older copy is not noticed.

        Raises:
            IntegrityError: naming the first entry that does not fit, or an older copy.
        """
        self._verified = (0, _GENESIS)
        found = head is None or head == _GENESIS
        for row in self._verify_new():
            found = found or row[9] == head
            if signers is not None and row[8] not in signers:
                raise IntegrityError(
                    f"expected entry {row[0]} of {self._path} to be signed by a known key, it was "
                    "not; restore the ledger from a backup"
                )
        if not found:
            raise IntegrityError(
                f"expected {self._path} to hold the entry that was noted before, it does not: it "
                "is an older copy; restore the newest ledger"
            )
        return self._verified[0]

    def _verify_new(self) -> list[tuple[Any, ...]]:
        """The entries that this object has not verified yet, after verifying them."""
        count, previous = self._verified
        rows = list(self._rows(after=count))
        for row in rows:
            count += 1
            if not _fits(row, count, previous):
                raise IntegrityError(
                    f"expected entry {count} of {self._path} to fit the chain, it was altered; "
                    "restore the ledger from a backup and do not take part in studies until then"
                )
            previous = row[9]
        self._verified = (count, previous)
        return rows

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _check_cap(self, entry: Entry) -> None:
        """P15: the epsilon after this entry, over all studies."""
        cap = self.cap
        if cap is None:
            return
        counts = dict(self._kinds())
        kind = (entry.noise_multiplier, entry.sample_rate, entry.sampling)
        counts[kind] = counts.get(kind, 0) + 1
        ahead = {k: _rounded_up(c) for k, c in counts.items()}
        if _epsilon(tuple(sorted(ahead.items())), cap.delta, cap.relation) <= cap.epsilon:
            return
        after = _epsilon(tuple(sorted(counts.items())), cap.delta, cap.relation)
        if after > cap.epsilon:
            raise BudgetError(
                f"expected at most epsilon {cap.epsilon:g} at delta {cap.delta:g} on this data "
                f"set, the next step would make it {after:.4g}; raise the cap with "
                "`hubbub budget set`, or stop"
            )

    def _kinds(self) -> tuple[tuple[tuple[float, float, str], int], ...]:
        """How often each mechanism ran."""
        rows = self._read(
            "SELECT noise_multiplier, sample_rate, sampling, COUNT(*) FROM entries "
            "GROUP BY noise_multiplier, sample_rate, sampling"
        )
        return tuple(sorted(((row[0], row[1], row[2]), row[3]) for row in rows))

    def _rows(self, after: int = 0) -> list[tuple[Any, ...]]:
        """All entries past a number, as they are stored."""
        return self._read(
            f"SELECT {', '.join(_COLUMNS)} FROM entries WHERE number > {after:d} OR number < 1 "  # noqa: S608 (names of our own)
            "ORDER BY number"
        )

    def _read(self, query: str) -> list[tuple[Any, ...]]:
        """The answer to a query."""
        try:
            return self._database.execute(query).fetchall()
        except sqlite3.Error as error:
            raise IntegrityError(
                f"expected a readable ledger at {self._path}, got: {error}; restore a backup"
            ) from None

    def _head(self) -> tuple[int, bytes]:
        rows = self._read("SELECT number, digest FROM entries ORDER BY number DESC LIMIT 1")
        return (rows[0][0], rows[0][1]) if rows else (0, _GENESIS)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing, alone on the file, on disk when it returns."""
        try:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                if self._database.in_transaction:  # SQLite has rolled back a full disk itself
                    self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")
        except sqlite3.Error as error:
            raise IntegrityError(
                f"expected {self._path} to take an entry, got: {error}; nothing was sent. "
                "Free the disk or the lock, then resume"
            ) from None


@lru_cache(maxsize=4096)
def _epsilon(
    kinds: tuple[tuple[tuple[float, float, str], int], ...], delta: float, relation: str
) -> float:
    """Upper epsilon of kinds of steps; inf past what is certified."""
    steps = [
        Step(noise_multiplier=noise, sample_rate=rate, sampling=sampling, count=count)
        for (noise, rate, sampling), count in kinds
    ]
    try:
        return Composition([release(s, relation) for s in steps]).epsilon(delta).upper
    except StudyError:
        return float("inf")


def _rounded_up(count: int) -> int:
    """The next number on a geometric grid."""
    level = 1
    while level < count:
        level = max(level + 1, int(level * _GROWTH))
    return level


def _fits(row: tuple[Any, ...], count: int, previous: bytes) -> bool:
    """Whether a stored row is entry `count` of the chain."""
    if [type(value) for value in row] != list(_COLUMNS.values()):
        return False
    try:
        content = _entry(row).content(count, row[8], previous)
    except StudyError:
        return False
    digest = hashlib.sha256(content).digest()
    return bool(row[0] == count and row[9] == digest and _signed(row[8], row[10], digest))


def _entry(row: tuple[Any, ...]) -> Entry:
    return Entry(
        study=row[1],
        session=row[2],
        round=row[3],
        attempt=row[4],
        noise_multiplier=row[5],
        sample_rate=row[6],
        sampling=row[7],
    )


def _signed(signer: bytes, signature: bytes, digest: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(signer).verify(signature, digest)
    except (InvalidSignature, ValueError):
        return False
    return True
