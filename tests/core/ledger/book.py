"""What goes into the tests' ledgers, and how they are changed behind their back.

Alterations are made with nothing but SQLite, so that the file stays well-formed.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import fields as fields_of
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import hubbub
from hubbub.core.errors import IntegrityError
from hubbub.core.ledger.hash_chain import digest_of
from hubbub.core.ledger.privacy_ledger import Cap, Entry, Ledger, LedgerMechanism
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import Query

STUDY, OTHER = b"s" * 32, b"o" * 32
DELTA, RELATION = 1e-5, "add-remove"
ROWS = 4  # entries of a written ledger, which are its rows 1 to 4
FULL_BATCH = {"noise_multiplier": 2.0, "sample_rate": 1.0, "sampling": "full-batch"}


KIND = {field.name for field in fields_of(LedgerMechanism)}


def entry(round: int = 1, **changed: Any) -> Entry:
    """One full-batch Gaussian step of noise multiplier 2."""
    fields: dict[str, Any] = {
        "study": STUDY,
        "session": b"e" * 16,
        "round": round,
        "attempt": 0,
        **FULL_BATCH,
        **changed,
    }
    kind = {name: fields.pop(name) for name in list(fields) if name in KIND}
    return Entry(**fields, kind=LedgerMechanism(**kind))


@cache
def simplest(**privacy: str) -> PlannedQuery[Query]:
    """A query that is planned in no time, whose mechanism a test replaces."""
    table = {
        "study": {"name": "p"},
        "parties": {"silos": 3, "colluders": 0},
        "data": {"source": "in-memory", "records": 90},
        "model": {"kind": "logistic", "inputs": [3]},
        "training": {"steps": 3, "sample_rate": 0.2},
        "privacy": {"epsilon": 2.0, "delta": 1e-5, **privacy},
    }
    return hubbub.plan(hubbub.Study.from_table(table)).main


def epsilon_of(count: int) -> float:
    """What so many of these steps cost, from the accountant."""
    return hubbub.epsilon(steps=count, delta=DELTA, relation=RELATION, **FULL_BATCH).upper


def cap_for(count: int) -> Cap:
    """A cap that lets exactly so many of these steps pass."""
    between = (epsilon_of(count) + epsilon_of(count + 1)) / 2
    return Cap(epsilon=between, delta=DELTA, relation=RELATION)


def key_of(path: Path) -> Path:
    """Where a ledger's key is."""
    return path.with_name(path.name + ".key")


def note_of(path: Path) -> Path:
    """Where a ledger's newest head is noted."""
    return path.with_name(path.name + ".head")


def behind_its_back(path: Path, statement: str, *values: object) -> None:
    """Change the file with nothing but SQLite."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(statement, values)


def put(path: Path, column: str, value: object, number: int = 2) -> None:
    """Change one stored value."""
    behind_its_back(path, f"UPDATE rows SET {column} = ? WHERE number = ?", value, number)  # noqa: S608 (a column's name cannot be a parameter)


def insert(path: Path, *row: object) -> None:
    """Add a row."""
    behind_its_back(path, "INSERT INTO rows VALUES (?, ?, ?)", *row)


def stored(path: Path) -> list[tuple[Any, ...]]:
    """All rows as they are on disk: number, text, signature."""
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT * FROM rows ORDER BY number").fetchall()


def charges(path: Path) -> int:
    """How many entries another process would find on disk."""
    return sum(text.startswith('{"charge"') for _, text, _ in stored(path))


def digests(path: Path) -> list[bytes]:
    """The digest of every stored row."""
    found = [bytes(32)]
    for number, text, _ in stored(path):
        found.append(digest_of(number, text, found[-1]))
    return found[1:]


def signed_by(key: Ed25519PrivateKey, path: Path, number: int, text: str) -> bytes:
    """A signature that fits the chain at a row, by any key."""
    return key.sign(digest_of(number, text, digests(path)[number - 1]))


def verified(path: Path) -> int:
    """The number of entries that a fresh look finds intact."""
    with Ledger(path) as ledger:
        return ledger.verify()


def assert_one_sentence(message: str) -> None:
    """What was expected, what was found, what to do."""
    assert message.startswith("expected ")
    assert "\n" not in message
    assert ". " not in message
    assert ";" in message


def assert_noticed(path: Path) -> None:
    """The alteration is noticed, and the message names the file and what to do."""
    with pytest.raises(IntegrityError) as error:
        verified(path)
    assert str(path) in str(error.value)
    assert "restore" in str(error.value)
    assert_one_sentence(str(error.value))
