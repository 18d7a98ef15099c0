"""Runs with correlated noise that are killed go on: no row twice, no charge lost or made twice.

As in `test_kills.py` children are forked and killed with SIGKILL, here as a chosen frame is made,
so that a seed says all of it. A log of all frames plays the network.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import groupby
from math import ceil
from pathlib import Path

import pytest

import hubbub
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.protocol.primitives.wire import Frame, Tag
from run.finished import planned
from run.test_correlated_runs import BANDS, falsehoods, study
from run.test_kills import HOSPITALS, child, frames, outcome

STEPS = 4 * BANDS
STUDY = study(STEPS)
_MODEL_ROW = slice(1, 5)  # after the set of four silos


def go_on(folder: Path) -> None:
    """Begin the run, or go on with it."""
    if (folder / "run" / "run.json").exists():
        hubbub.resume(folder / "run")
        return
    for left in (folder / "run").glob("*"):  # killed before it was a run
        left.unlink()
    hubbub.run(STUDY, folder / "run", ledgers=folder / "ledgers", plan=planned(STUDY, dimension=27))


def killing(number: int, *, after: bool) -> Callable[[], None]:
    """Has a process killed before or after so many frames have left it."""

    def prepare() -> None:
        original, made = Frame.sealed, [0]

        def sealed(self: Frame, keys: object) -> bytes:
            made[0] += 1
            if made[0] == number and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            frame = original(self, keys)
            if made[0] == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return frame

        Frame.sealed = sealed

    return prepare


def assert_each_row_once(folder: Path) -> None:
    """What left the silos, laid beside what they were shown and what they have paid for."""
    sent, rows = frames(folder), {}
    shown: Counter[bytes] = Counter()
    for tag, session, number, attempt, _, payload in sent:
        if tag is Tag.MODEL:
            rows[session, number, attempt] = int.from_bytes(payload[_MODEL_ROW], "big")
            shown[session] = max(shown[session], rows[session, number, attempt])
    masked = [one for one in sent if one[0] is Tag.MASKED]
    answers = Counter((one[1], rows[one[1:4]], one[4]) for one in masked)
    assert set(answers.values()) == {1}
    assert len({one[5] for one in masked}) == len(masked)
    # The window goes with its session: who has begun another one never answers in the last.
    sessions = [session for session, _ in groupby(one[1] for one in masked)]
    assert len(set(sessions)) == len(sessions)
    for index, name in enumerate(HOSPITALS, 1):
        answered: dict[bytes, int] = defaultdict(int)
        for session, row, sender in answers:
            if sender == index:
                answered[session] = max(answered[session], row)
        with Ledger(folder / "ledgers" / f"{name}.sqlite") as ledger:
            entries = list(ledger.entries())
        assert len({(one.session, one.round, one.attempt) for one in entries}) == len(entries)
        paid = Counter(one.session for one in entries)
        assert paid.keys() >= answered.keys()
        for session, charged in paid.items():
            assert ceil(answered[session] / BANDS) <= charged <= ceil(shown[session] / BANDS)
        assert len(entries) <= STEPS // BANDS


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_p25_killed_at_random_moments_no_row_is_used_twice(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(chance.randint(1, 3)):
        prepare = killing(chance.randint(10, 90), after=chance.random() < 0.5)
        ended = outcome(child(lambda: go_on(tmp_path), tmp_path, prepare))
        assert ended in (0, -signal.SIGKILL), (tmp_path / "error").read_text()
        if ended == 0:
            break
    else:
        said = tmp_path / "error"
        ended = outcome(child(lambda: go_on(tmp_path), tmp_path, lambda: None))
        assert ended == 0 or "it is finished" in said.read_text(), said.read_text()
    assert_each_row_once(tmp_path)
    assert falsehoods(tmp_path / "run") == []
