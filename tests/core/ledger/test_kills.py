"""Killed at random moments, again and again: every row that was reported as written is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from ledger.book import verified

# One process that imports once; its children charge until they are killed, some time after they
# have reported so many rows over a pipe. It prints how many were reported, and how many it finds.
DRIVER = """
import json, os, random, signal, sys, time
from pathlib import Path
from hubbub.core.ledger.privacy_ledger import Entry, Ledger, LedgerMechanism

def charge_for_ever(path, pipe):
    with Ledger(path) as ledger:
        for round in range(10**6):
            ledger.charge(Entry(study=bytes(32), session=os.urandom(16), round=round, attempt=0,
                kind=LedgerMechanism(noise_multiplier=2.0, sample_rate=1.0, sampling="full-batch")))
            os.write(pipe, b"x")

def killed_after(rows, seconds, path):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            charge_for_ever(path, writing)
        finally:
            os._exit(1)
    os.close(writing)
    reported = b"".join(os.read(reading, 1) for _ in range(rows))
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL, status
    while more := os.read(reading, 65536):
        reported += more
    os.close(reading)
    return len(reported)

def found(path):
    with Ledger(path) as ledger:
        return len(ledger)  # the whole chain and its last signature

draw, home = random.Random(6), Path(sys.argv[1])
reported = 0
for kill in range(int(sys.argv[2])):
    reported += killed_after(draw.randrange(4), draw.uniform(0, 0.01), home / "ledger.sqlite")
    print(json.dumps(["old", reported, found(home / "ledger.sqlite")]))
for kill in range(int(sys.argv[3])):
    path = home / f"new-{kill}.sqlite"
    print(json.dumps(["new", killed_after(0, draw.uniform(0, 0.02), path), found(path)]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kills", "new"), [(20, 10), pytest.param(100, 40, marks=pytest.mark.slow)]
)
def test_p15_killed_at_random_moments_it_holds_every_row_it_reported(tmp_path, kills, new):
    output = subprocess.run(
        [sys.executable, "-c", DRIVER, str(tmp_path), str(kills), str(new)],
        check=True,
        capture_output=True,
        text=True,
        timeout=1800,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    ).stdout
    outcomes = [json.loads(line) for line in output.splitlines()]
    assert len(outcomes) == kills + new
    old = [(reported, rows) for which, reported, rows in outcomes if which == "old"]
    for kill, (reported, rows) in enumerate(old, 1):
        assert reported <= rows <= reported + kill  # each kill may over-count by one
    assert old[-1][0] >= kills  # it did get to charge
    assert verified(tmp_path / "ledger.sqlite") == old[-1][1]
    for _, reported, rows in outcomes[kills:]:  # killed while it was being made, or soon after
        assert reported <= rows <= reported + 1
