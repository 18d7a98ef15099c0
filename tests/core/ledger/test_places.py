"""Places that are no ledger, are one no more, or take no more."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from hubbub.core.errors import IntegrityError
from hubbub.core.ledger.privacy_ledger import Ledger
from ledger.book import (
    ROWS,
    assert_noticed,
    assert_one_sentence,
    behind_its_back,
    charges,
    entry,
    key_of,
    note_of,
    verified,
)


def test_a_missing_folder_is_made(tmp_path):
    with Ledger(tmp_path / "not" / "yet" / "there.sqlite") as ledger:
        ledger.charge(entry())
    assert verified(tmp_path / "not" / "yet" / "there.sqlite") == 1


def _below_a_file(folder: Path) -> Path:
    (folder / "file").write_text("not a folder")
    return folder / "file" / "ledger.sqlite"


def _a_folder(folder: Path) -> Path:
    (folder / "ledger.sqlite").mkdir()
    return folder / "ledger.sqlite"


def _noise(folder: Path) -> Path:
    (folder / "ledger.sqlite").write_bytes(np.random.default_rng(1).bytes(5000))
    return folder / "ledger.sqlite"


def _half(folder: Path) -> Path:
    with Ledger(folder / "whole.sqlite") as ledger:
        ledger.charge(entry())
    whole = (folder / "whole.sqlite").read_bytes()
    (folder / "ledger.sqlite").write_bytes(whole[: len(whole) // 2])
    return folder / "ledger.sqlite"


def _read_only(folder: Path) -> Path:
    # The mode would not stop root; nobody can make a file here.
    return Path("/proc/self/ledger.sqlite")


@pytest.mark.parametrize("place", [_below_a_file, _a_folder, _noise, _half, _read_only])
def test_a_place_that_cannot_hold_a_ledger_is_named_with_what_to_do(tmp_path, place):
    path = place(tmp_path)
    with pytest.raises(IntegrityError) as error:
        Ledger(path)
    message = str(error.value)
    assert message.startswith(f"expected a usable ledger at {path}, got: ")
    assert "check the disk" in message
    assert ("backup" in message) == (place in (_noise, _half)), "an older copy counts too little"
    assert_one_sentence(message)


def refused(path: Path) -> str:
    """Why a file is refused, which is left as it was, with no key made for it."""
    before = sorted((one.name, one.read_bytes()) for one in path.parent.iterdir())
    with pytest.raises(IntegrityError) as error:
        Ledger(path)
    assert sorted((one.name, one.read_bytes()) for one in path.parent.iterdir()) == before
    assert_one_sentence(str(error.value))
    assert str(path) in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("table", ["rows", "entries", "photos"])
@pytest.mark.parametrize("application", [0, 1234])
def test_a_database_of_something_else_is_refused_and_left_alone(tmp_path, table, application):
    place = tmp_path / "photos.sqlite"
    with closing(sqlite3.connect(place)) as database, database:
        database.execute(f"CREATE TABLE {table} (photo TEXT)")
        database.execute(f"PRAGMA application_id = {application}")
    assert "another database" in refused(place)


def test_a_ledger_of_another_format_is_refused_and_left_alone(path):
    behind_its_back(path, "PRAGMA user_version = 2")
    assert "ledger of format 1" in refused(path)


# What was emptied must not begin anew ------------------------------------------------------------


def test_p15_a_ledger_whose_rows_were_dropped_is_refused_and_not_begun_anew(path):
    behind_its_back(path, "DROP TABLE rows")
    assert "restore the ledger" in refused(path)


def test_p15_a_ledger_whose_table_was_emptied_is_refused(path):
    behind_its_back(path, "DELETE FROM rows")
    assert_noticed(path)


def test_p15_a_ledger_emptied_of_everything_is_refused_and_not_begun_anew(path):
    behind_its_back(path, "DROP TABLE rows")
    for name in ("application_id", "user_version"):
        behind_its_back(path, f"PRAGMA {name} = 0")
    assert "found none" in refused(path)


def test_p15_a_ledger_cut_to_no_bytes_is_refused_and_not_begun_anew(path):
    path.write_bytes(b"")
    assert "found none" in refused(path)


def test_p15_a_ledger_that_was_deleted_is_not_begun_anew_while_its_key_is_there(path):
    path.unlink()
    for left in (key_of(path), note_of(path)):
        with pytest.raises(IntegrityError, match="restore the ledger"):
            Ledger(path)
        left.unlink()
    assert verified(path) == 0


def test_an_empty_file_that_never_was_a_ledger_becomes_one(tmp_path):
    (tmp_path / "ledger.sqlite").touch()
    assert verified(tmp_path / "ledger.sqlite") == 0


# A ledger whose making was cut short -----------------------------------------------------------


def first_name(path: Path) -> Path:
    """Where a key is until the ledger that it signs is on disk."""
    return path.with_name(path.name + ".key.new")


@pytest.mark.parametrize("content", ["", "ab" * 20, "ab" * 32])
def test_a_key_whose_ledger_was_never_written_is_made_anew(tmp_path, content):
    place = tmp_path / "ledger.sqlite"
    first_name(place).write_text(content)
    with Ledger(place) as ledger:
        ledger.charge(entry())
    assert verified(place) == 1
    assert key_of(place).read_text() != content
    assert not first_name(place).exists()


def test_a_key_that_had_no_time_to_get_its_own_name_gets_it(path):
    key_of(path).rename(first_name(path))
    with Ledger(path) as ledger:
        ledger.charge(entry(5))
    assert verified(path) == ROWS + 1
    assert key_of(path).exists()
    assert not first_name(path).exists()


def test_p15_a_key_of_another_ledger_under_its_first_name_is_left_alone(path, tmp_path):
    Ledger(tmp_path / "other.sqlite").close()
    key_of(path).unlink()
    key_of(tmp_path / "other.sqlite").rename(first_name(path))
    with Ledger(path) as ledger, pytest.raises(IntegrityError, match="restore the key"):
        ledger.charge(entry(5))
    assert not key_of(path).exists()


# A full disk -------------------------------------------------------------------------------------


def test_a_disk_that_takes_no_more_stops_the_answer(path):
    with Ledger(path) as ledger:
        refusal = fill(ledger)
        written = charges(path)
    assert "full" in refusal
    assert "nothing was sent" in refusal
    assert "free the disk" in refusal
    assert_one_sentence(refusal)
    assert verified(path) == written >= ROWS


def test_a_ledger_goes_on_when_the_disk_has_room_again(path):
    with Ledger(path) as ledger:
        fill(ledger)
        written = len(ledger)
        ledger._chain._database.execute("PRAGMA max_page_count = 1000000")
        ledger.charge(entry(99))
        assert ledger.verify() == written + 1


def fill(ledger: Ledger) -> str:
    """Charge until the file may not grow any more; the refusal."""
    database = ledger._chain._database
    pages = database.execute("PRAGMA page_count").fetchone()[0]
    database.execute(f"PRAGMA max_page_count = {pages}")
    try:
        for number in range(100):
            ledger.charge(entry(number + 5))
    except IntegrityError as error:
        return str(error)
    raise AssertionError("a hundred entries found room")
