"""Bytes that change and files that end early: noticed, or of no consequence."""

from __future__ import annotations

import random
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hubbub.core.errors import IntegrityError
from hubbub.core.ledger.privacy_ledger import Cap, Entry, Ledger
from ledger.book import ROWS, assert_one_sentence, cap_for, charges, entry, key_of

FLIPS = 250
ENDINGS = ("", "-wal", ".key", ".head")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory, where syncing costs nothing."""
    memory = Path("/dev/shm")  # noqa: S108 (the folder in it is made with a fresh name)
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        yield Path(name)


@pytest.fixture
def killed(folder: Path) -> dict[str, bytes]:
    """The files of a killed process: rows in the file, and later rows in its log only."""
    place = folder / "ledger.sqlite"
    with Ledger(place) as ledger:
        for number in range(1, ROWS):
            ledger.charge(entry(number))
    with Ledger(place) as ledger:
        ledger.set_cap(cap_for(90))
        ledger.charge(entry(ROWS))
        files = {ending: Path(f"{place}{ending}").read_bytes() for ending in ENDINGS}
    assert len(files["-wal"]) > 8192
    return files


@pytest.fixture
def closed(folder: Path, killed: dict[str, bytes]) -> dict[str, bytes]:
    """The same rows, all in the file."""
    place = laid_out(folder, killed)
    with Ledger(place) as ledger:
        assert len(ledger) == ROWS
    return {ending: Path(f"{place}{ending}").read_bytes() for ending in ("", ".key", ".head")}


def laid_out(folder: Path, files: dict[str, bytes]) -> Path:
    """A ledger with exactly these files."""
    for old in folder.iterdir():
        old.unlink()
    for ending, content in files.items():
        (folder / f"ledger.sqlite{ending}").write_bytes(content)
    return folder / "ledger.sqlite"


def read(path: Path) -> tuple[list[Entry], Cap | None]:
    """All that a ledger says."""
    with Ledger(path) as ledger:
        ledger.verify()
        return list(ledger.entries()), ledger.cap


def is_noticed(path: Path) -> bool:
    """Whether the damage is reported, in a sentence that names the file; else nothing changed."""
    try:
        found = read(path)
    except IntegrityError as error:
        assert_helpful(str(error), path)
        return True
    assert found == ([entry(number) for number in range(1, ROWS + 1)], cap_for(90))
    return False


def assert_helpful(message: str, path: Path) -> None:
    assert_one_sentence(message)
    assert str(path) in message
    assert any(remedy in message for remedy in ("restore", "check the path"))


def test_p15_what_a_killed_process_left_is_whole(folder, killed):
    assert not is_noticed(laid_out(folder, killed))


def flips_noticed(folder: Path, files: dict[str, bytes], ending: str) -> int:
    """How many of some random flips in one of the files are noticed."""
    draw = random.Random(f"hubbub {ending}")
    noticed = 0
    for _ in range(FLIPS):
        content = bytearray(files[ending])
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        noticed += is_noticed(laid_out(folder, {**files, ending: bytes(content)}))
    return noticed


# Bytes that SQLite does not use are of no consequence; every byte of key and note counts, but for
# the case of a key's digits.
@pytest.mark.slow_cases("-wal-0.6", ".head-1.0")
@pytest.mark.parametrize(("ending", "least"), [("-wal", 0.6), (".key", 0.8), (".head", 1.0)])
def test_p15_after_a_kill_a_flip_of_a_random_bit_is_noticed_or_changes_nothing(
    folder, killed, ending, least
):
    assert flips_noticed(folder, killed, ending) >= least * FLIPS


@pytest.mark.slow
def test_p15_in_a_closed_ledger_a_flip_of_a_random_bit_is_noticed_or_changes_nothing(
    folder, closed
):
    assert flips_noticed(folder, closed, "") >= 0.15 * FLIPS


def test_p15_a_log_that_was_thrown_away_or_cut_at_any_place_is_noticed_or_whole(folder, killed):
    whole = killed["-wal"]
    places = sorted({0, 31, 32, 33, len(whole) - 1, *range(32, len(whole), 97)})
    for length in places:
        path = laid_out(folder, {**killed, "-wal": whole[:length]})
        assert is_noticed(path)
    without = {ending: content for ending, content in killed.items() if ending != "-wal"}
    assert is_noticed(laid_out(folder, without))


def test_a_cut_log_without_the_note_beside_it_is_a_shorter_chain(folder, killed):
    # What the note is there for: SQLite itself takes the cut for the end.
    files = {**killed, "-wal": killed["-wal"][:-1]}
    del files[".head"]
    with Ledger(laid_out(folder, files)) as ledger:
        assert ledger.verify() == ROWS - 1


def test_p15_a_file_cut_at_any_place_is_noticed(folder, closed):
    whole = closed[""]
    for length in {0, 1, 99, 100, 4095, 4096, 8191, *range(0, len(whole), 311)}:
        # SQLite reads zeros past the end of the last page: a cut of nothing else changes nothing.
        noticed = is_noticed(laid_out(folder, {**closed, "": whole[:length]}))
        assert noticed or (len(whole) - length < 4096 and not any(whole[length:]))


def test_p15_a_key_cut_at_any_place_is_noticed(folder, killed):
    for length in range(len(killed[".key"])):
        assert is_noticed(laid_out(folder, {**killed, ".key": killed[".key"][:length]}))


@pytest.mark.slow
def test_p15_a_ledger_that_goes_on_after_harmless_damage_is_still_whole(folder, closed):
    draw = random.Random("hubbub goes on")
    went_on = 0
    for _ in range(150):
        content = bytearray(closed[""])
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        path = laid_out(folder, {**closed, "": bytes(content)})
        try:
            with Ledger(path) as ledger:
                ledger.charge(entry(9))
                assert ledger.verify() == ROWS + 1
        except IntegrityError:
            continue
        went_on += 1
        assert charges(path) == ROWS + 1
        assert read(path)[0][-1] == entry(9)
    assert went_on > 20


def test_damage_that_sqlite_quotes_is_reported_in_a_sentence(folder, closed):
    where = closed[""].index(b"CREATE TABLE rows")
    for garbage in (b"\xc1\xff", b"\n\x00", b"\x1b["):
        content = bytearray(closed[""])
        content[where : where + len(garbage)] = garbage
        assert is_noticed(laid_out(folder, {**closed, "": bytes(content)}))


ENDLESS = (
    "ALTER TABLE rows RENAME TO held",
    "CREATE VIEW rows AS WITH RECURSIVE more(number, text, signature) AS (SELECT * FROM held "
    "UNION ALL SELECT number + 1, text, signature FROM more) SELECT * FROM more",
)


def test_p15_a_view_without_end_in_the_place_of_rows_is_refused(folder, closed):
    path = laid_out(folder, closed)
    with closing(sqlite3.connect(path)) as database:
        for change in ENDLESS:
            database.execute(change)
        database.commit()
    with pytest.raises(IntegrityError, match="something beside it or in its place"):
        Ledger(path)


def test_copies_are_whole_only_with_all_their_files(folder, killed):
    path = laid_out(folder, killed)
    copy = folder / "copy.sqlite"
    shutil.copy(path, copy)
    shutil.copy(key_of(path), key_of(copy))
    shutil.copy(f"{path}.head", f"{copy}.head")
    with pytest.raises(IntegrityError, match="belong together"):
        read(copy)
