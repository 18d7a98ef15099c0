"""Killed processes, several processes, and clocks: the ledger may over-count, never under-count."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hubbub.core.errors import BudgetError, HubbubError
from hubbub.core.ledger.privacy_ledger import Ledger
from ledger.book import ROWS, cap_for, entry, verified

CHARGE_FOR_EVER = """
import os, sys
from pathlib import Path
from hubbub.core.errors import BudgetError
from hubbub.core.ledger.privacy_ledger import Entry, Ledger, LedgerMechanism
ledger = Ledger(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for round in range(1, 10_000):
    try:
        ledger.charge(Entry(study=bytes(32), session=bytes(16), round=round, attempt=0,
            kind=LedgerMechanism(noise_multiplier=2.0, sample_rate=1.0, sampling="full-batch")),
            attempts=int(sys.argv[3]) or None)
    except BudgetError:
        print("refused", flush=True)
        break
    print(round, flush=True)
    if round == int(sys.argv[2]):
        os.kill(os.getpid(), 9)
"""


def charging(path: Path, suicide_after: int = 0, attempts: int = 0) -> subprocess.Popen[str]:
    """A process that charges from when it reads a line until it is refused or killed."""
    return subprocess.Popen(
        [sys.executable, "-c", CHARGE_FOR_EVER, str(path), str(suicide_after), str(attempts)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def start(process: subprocess.Popen[str]) -> None:
    """Let it charge."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def ready(process: subprocess.Popen[str]) -> None:
    """Wait until it could charge."""
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that do not outlive the test."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def test_p15_what_was_charged_is_there_after_kill_9(tmp_path, processes):
    place = tmp_path / "ledger.sqlite"
    processes.append(charging(place, suicide_after=3))
    ready(processes[0])
    start(processes[0])
    assert processes[0].wait(timeout=600) == -signal.SIGKILL
    assert verified(place) == 3
    with Ledger(place) as ledger:
        ledger.charge(entry(4))
        assert ledger.verify() == 4


@pytest.mark.slow
def test_p15_killed_at_any_moment_it_holds_at_least_what_was_announced(tmp_path, processes):
    place = tmp_path / "ledger.sqlite"
    processes.append(charging(place))
    ready(processes[0])
    start(processes[0])
    lines = [processes[0].stdout.readline() for _ in range(25)]
    processes[0].send_signal(signal.SIGKILL)
    announced = len(lines) + len(processes[0].stdout.read().split())  # communicate skips its buffer
    assert lines[-1] == "25\n"
    assert announced <= verified(place) <= announced + 1


def test_p15_rows_are_synced_to_the_disk_and_not_only_handed_to_it(path):
    with Ledger(path) as ledger:
        assert ledger._chain._database.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
        assert ledger._chain._database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.slow
@pytest.mark.parametrize("limit", ["the cap", "the study's attempts"])
def test_p15_two_processes_cannot_overspend_together(tmp_path, processes, limit):
    place, allowed = tmp_path / "ledger.sqlite", 12
    with Ledger(place) as ledger:
        ledger.set_cap(cap_for(allowed if limit == "the cap" else 90))
    attempts = 0 if limit == "the cap" else allowed
    processes += [charging(place, attempts=attempts), charging(place, attempts=attempts)]
    for process in processes:
        ready(process)
    for process in processes:
        start(process)
    printed = [process.communicate(timeout=600)[0].split() for process in processes]
    assert all(lines[-1] == "refused" for lines in printed)
    assert sum(len(lines) - 1 for lines in printed) == verified(place) == allowed


def test_threads_that_make_one_ledger_at_the_same_moment_all_get_it(tmp_path):
    place, at_once = tmp_path / "ledger.sqlite", threading.Barrier(4)
    failures: list[Exception] = []

    def make() -> None:
        at_once.wait()
        try:
            with Ledger(place) as ledger:
                ledger.charge(entry(1))
        except HubbubError as error:
            failures.append(error)

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert verified(place) == 4


@pytest.mark.slow
def test_a_ledger_that_one_thread_reads_while_others_charge_counts_every_entry_once(path):
    failures: list[Exception] = []

    def at_it(work) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 (whatever it is, the ledger must not raise it)
            failures.append(error)

    with Ledger(path) as ledger:
        charges = [
            lambda first=first: [ledger.charge(entry(first + n)) for n in range(30)]
            for first in (100, 200)
        ]
        reads = [lambda: [(len(ledger), len(list(ledger.entries()))) for _ in range(100)]] * 2
        threads = [threading.Thread(target=at_it, args=(work,)) for work in charges + reads]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(ledger) == len(list(ledger.entries())) == ROWS + 60


def test_p15_a_clock_that_runs_backwards_changes_nothing(path, monkeypatch):
    hours = iter(range(10**6, 0, -1))
    for clock in ("time", "time_ns", "monotonic", "monotonic_ns"):
        monkeypatch.setattr(time, clock, lambda: next(hours) * 3600)
    with Ledger(path) as ledger:
        ledger.set_cap(cap_for(ROWS + 2))
        ledger.charge(entry(5))
        ledger.charge(entry(1))  # an older round, again: counted, not refused
        with pytest.raises(BudgetError):
            ledger.charge(entry(7))
        assert ledger.verify() == ROWS + 2
