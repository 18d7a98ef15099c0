"""A ledger is one run's at a time, holds nothing but rows, and is its owner's alone to read."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path

import pytest

from hubbub.core.errors import IntegrityError, UserError
from hubbub.core.ledger import hash_chain
from hubbub.core.ledger.hash_chain import Row
from hubbub.core.ledger.privacy_ledger import Ledger
from ledger.book import cap_for, entry

FOREIGN = {
    "a trigger that has no end": (
        "CREATE TRIGGER more AFTER INSERT ON rows BEGIN INSERT INTO rows WITH RECURSIVE t(n) AS "
        "(SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT n, 'x', NULL FROM t; END"
    ),
    "a trigger that takes rows back": (
        "CREATE TRIGGER less AFTER INSERT ON rows BEGIN DELETE FROM rows WHERE number = new.number;"
        " END"
    ),
    "a view": "CREATE VIEW other AS SELECT * FROM rows",
    "a table": "CREATE TABLE other (a)",
    "an index": "CREATE INDEX other ON rows (text)",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.charge(entry(1))
    return tmp_path / "ledger.sqlite"


def changed(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(statement)


@pytest.mark.parametrize("what", FOREIGN)
def test_p15_what_somebody_else_put_into_the_file_is_not_run(path: Path, what: str) -> None:
    changed(path, FOREIGN[what])
    with pytest.raises(IntegrityError, match="nothing else, found something") as refusal:
        Ledger(path)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("what", FOREIGN)
def test_p15_nor_is_what_was_put_in_while_it_was_open(path: Path, what: str) -> None:
    with Ledger(path) as ledger:
        changed(path, FOREIGN[what])
        for charge in (lambda: ledger.charge(entry(2)), lambda: ledger.set_cap(cap_for(9))):
            with pytest.raises(IntegrityError, match="nothing else, found something"):
                charge()
        assert ledger.rows == 2


def test_p15_a_ledger_is_held_by_one_run_at_a_time_and_read_by_anybody(path: Path) -> None:
    with Ledger(path) as first, Ledger(path) as second:
        with first.held():
            with pytest.raises(UserError, match=r"another run charges it; nothing was charged"):
                second.held().__enter__()
            assert second.rows == 2
            second.verify()
        with second.held():
            second.charge(entry(2))
        assert first.rows == 3


@pytest.mark.parametrize("umask", [0, 0o077])
def test_who_may_read_a_ledger_does_not_depend_on_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with Ledger(tmp_path / "ledger.sqlite") as ledger, ledger.held():
            ledger.charge(entry(1))
            modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert {"ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite.key"} <= set(modes)
    assert set(modes.values()) == {0o600}


def test_a_ledger_is_closed_only_when_no_thread_reads_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, reading, read_on = Ledger(path), threading.Event(), threading.Event()
    after = ledger._chain.after

    def slow(last: Row | None) -> list[Row]:
        reading.set()
        read_on.wait(300)
        return after(last)

    monkeypatch.setattr(ledger._chain, "after", slow)
    heads: list[bytes] = []
    reader = threading.Thread(target=lambda: heads.append(ledger.head))
    closer = threading.Thread(target=ledger.close)
    reader.start()
    assert reading.wait(300)
    closer.start()
    read_on.set()
    reader.join(300)
    closer.join(300)
    assert len(heads) == 1
    with pytest.raises(IntegrityError, match="readable ledger"):
        _ = ledger.rows


def test_who_is_interrupted_as_the_lock_comes_free_does_not_keep_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else this process could charge nothing any more, and no other one."""
    monkeypatch.setattr(hash_chain, "_LOCK_SECONDS", 0)
    with Ledger(path) as ledger:
        database = ledger._chain._database

        class Interrupted:
            in_transaction = property(lambda _: database.in_transaction)

            def execute(self, words: str, *more: object) -> object:
                done = database.execute(words, *more)
                if words.startswith("BEGIN"):
                    raise KeyboardInterrupt
                return done

        with monkeypatch.context() as patch:
            patch.setattr(ledger._chain, "_database", Interrupted())
            with pytest.raises(KeyboardInterrupt):
                ledger.charge(entry(1))
        ledger.charge(entry(2))
        with Ledger(path) as other:
            other.charge(entry(3))
            assert [one.round for one in other.entries()][-2:] == [2, 3]
