"""Full disks, places that may not be written, and locks that others hold."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hubbub.core.errors import IntegrityError
from hubbub.core.ledger import hash_chain
from hubbub.core.ledger.privacy_ledger import Ledger
from ledger.book import DELTA, RELATION, ROWS, assert_one_sentence, entry, verified

NOBODY = 65534

FILL = """
import resource, sys
from pathlib import Path
from hubbub.core.errors import IntegrityError
from hubbub.core.ledger.privacy_ledger import Entry, Ledger, LedgerMechanism
most = int(sys.argv[2])
charged = 0
try:
    if sys.argv[3] == "new":
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    with Ledger(Path(sys.argv[1])) as ledger:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        for round in range(10_000):
            ledger.charge(Entry(study=bytes(32), session=bytes(16), round=round, attempt=0,
                kind=LedgerMechanism(noise_multiplier=2.0, sample_rate=1.0, sampling="full-batch")))
            charged += 1
except IntegrityError as error:
    print(charged, error)
"""

HOLD = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
"""


def filled(path: Path, most: int, state: str = "old") -> tuple[int, str]:
    """Charge while no file may grow past `most` bytes: rows reported, and the refusal."""
    done = subprocess.run(
        [sys.executable, "-c", FILL, str(path), str(most), state],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    charged, refusal = done.stdout.strip().split(" ", 1)
    return int(charged), refusal


@pytest.mark.slow
@pytest.mark.parametrize("most", [60_000, 61_111, 100_001])
def test_p15_a_disk_that_fills_up_stops_the_answer_and_loses_no_row(tmp_path, most):
    place = tmp_path / "ledger.sqlite"
    charged, refusal = filled(place, most)
    assert charged > 5
    assert_one_sentence(refusal)
    assert all(part in refusal for part in (str(place), "nothing was sent", "free the disk"))
    assert charged <= verified(place) <= charged + 1
    with Ledger(place) as ledger:  # with room again it goes on
        ledger.charge(entry(1))
        assert ledger.verify() >= charged + 1


@pytest.mark.quick_cases("0", "4096")
@pytest.mark.parametrize("most", [0, 63, 100, 4096, 5000])
def test_a_disk_that_is_full_from_the_start_says_so(tmp_path, most):
    place = tmp_path / "ledger.sqlite"
    charged, refusal = filled(place, most, "new")
    assert charged == 0
    assert_one_sentence(refusal)
    assert str(place) in refusal
    assert verified(place) == 0  # with room it is made after all


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without the rights that root has over every mode."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def place() -> Iterator[Path]:
    """A written ledger in a folder that belongs to who will not be allowed to write it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        with as_nobody():
            with Ledger(folder / "ledger.sqlite") as ledger:
                for number in range(1, ROWS + 1):
                    ledger.charge(entry(number))
            yield folder / "ledger.sqlite"
        folder.chmod(0o700)


def refused(path: Path) -> str:
    """What a charge says."""
    with pytest.raises(IntegrityError) as error, Ledger(path) as ledger:
        ledger.charge(entry(5))
    assert_one_sentence(str(error.value))
    assert str(path) in str(error.value)
    return str(error.value)


def test_a_ledger_that_may_only_be_read_refuses_to_be_charged_and_can_be_read(place):
    place.chmod(0o400)
    assert "check" in refused(place) or "free the disk" in refused(place)
    with Ledger(place) as ledger:
        assert ledger.verify() == ROWS
        assert ledger.epsilon(delta=DELTA, relation=RELATION) > 0


def test_a_ledger_in_a_folder_that_may_only_be_read_refuses_to_be_charged(place):
    place.parent.chmod(0o500)
    assert "nothing was sent" in refused(place) or "check the disk" in refused(place)
    place.parent.chmod(0o700)
    assert verified(place) == ROWS


def test_a_new_ledger_in_a_folder_that_may_only_be_read_says_so_and_leaves_nothing(place):
    folder = place.parent / "closed"
    folder.mkdir(0o500)
    message = refused(folder / "new.sqlite")
    assert "check the disk" in message
    assert not list(folder.iterdir())


def test_a_lock_that_another_process_holds_is_waited_for_and_then_named(path, monkeypatch):
    monkeypatch.setattr(hash_chain, "_LOCK_SECONDS", 0.3)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with Ledger(path) as ledger:
        start = time.monotonic()
        with pytest.raises(IntegrityError, match="locked; nothing was sent: free") as error:
            ledger.charge(entry(5))
        waited = time.monotonic() - start
        assert len(ledger) == ledger.verify() == ROWS  # reading needs no lock
        holder.communicate("\n")
        ledger.charge(entry(5))
        assert ledger.verify() == ROWS + 1
    assert_one_sentence(str(error.value))
    assert str(path) in str(error.value)
    assert waited > 0.2
