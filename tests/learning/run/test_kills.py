"""A run that is killed at any moment goes on: nothing is reused, and nothing is under-counted.

Children are forked and killed with SIGKILL, at random moments and at named points of the code; a
log that every frame is written to before it leaves plays the network. Then the run is resumed,
killed again perhaps, and in the end ledgers, wire and result are laid beside each other.

    HUBBUB_KILLS=300 python -m pytest tests/learning/run/test_kills.py

kills that many times at random moments instead of the 16 of `make test-all`, which also kills
before and after every named point; `make test` kills at every other one, before or after it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from functools import lru_cache
from importlib import resources
from pathlib import Path

import pytest
import torch

import hubbub
from hubbub.core.errors import HubbubError
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.planning.plan import Plan
from hubbub.core.protocol.primitives.wire import HEADER, HEADER_BYTES, Frame, Tag
from hubbub.core.protocol.round.aggregator import Aggregator
from hubbub.core.protocol.round.attempt_sum import AttemptSum
from hubbub.core.protocol.round.silo import Silo
from hubbub.core.runs import checkpoint, loop, run_folder
from hubbub.core.runs.local_backend import LocalBackend
from hubbub.core.runs.run_folder import RunFolder
from hubbub.core.verification.transcript.writer import Transcript
from hubbub.desk.report import report_of_run
from hubbub.learning.runs import result as results
from hubbub.learning.runs.run_study import resume, run

STEPS = 10
KILLS = int(os.environ.get("HUBBUB_KILLS", "16"))
HOSPITALS = ("cleveland", "hungary", "switzerland", "va-long-beach")
HEART = (resources.files("hubbub.learning.datasets") / "heart.toml").read_text(encoding="utf-8")
STUDY = hubbub.Study.parse(
    HEART.replace("steps = 60", f"steps = {STEPS}").replace("epsilon = 0.5", "epsilon = 8.0")
)


@lru_cache(maxsize=1)
def planned() -> Plan:
    """The plan, and all that planning remembers, made once before the first fork."""
    made = hubbub.plan(STUDY)
    for steps in range(1, STEPS + 1):
        made.epsilon_after(steps)
    return made


def logging_frames(log: Path) -> None:
    """From now on every frame of this process is in the log before anybody else has it."""
    original, file = Frame.sealed, os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def sealed(self: Frame, keys: object) -> bytes:
        frame = original(self, keys)
        os.write(file, len(frame).to_bytes(8, "little") + frame)
        return frame

    Frame.sealed = sealed


def child(work: Callable[[], object], folder: Path, prepare: Callable[[], None]) -> int:
    """Do something in a process of its own; the process."""
    planned()
    process = os.fork()
    if process:
        return process
    try:
        torch.set_num_threads(1)  # its other threads were not forked
        logging_frames(folder / "wire")
        prepare()
        work()
        os._exit(0)
    except HubbubError as error:
        (folder / "error").write_text(str(error))
        os._exit(1)
    except BaseException as error:  # noqa: BLE001  # whatever it is, the parent must hear of it
        (folder / "error").write_text(repr(error))
        os._exit(2)


def step(folder: Path) -> None:
    """Begin the run, or go on with it, whichever is due."""
    if (folder / "run" / "run.json").exists():
        resume(folder / "run")
    else:
        for left in (folder / "run").glob("*"):  # killed before it was a run
            left.unlink()
        run(STUDY, folder / "run", ledgers=folder / "ledgers", plan=planned())


def outcome(process: int) -> int:
    """How a child ended: its exit code, or minus the signal."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def frames(folder: Path) -> list[tuple[bytes, ...]]:
    """(tag, session, round, attempt, sender, payload) of every whole frame in the log."""
    content, found = (folder / "wire").read_bytes(), []
    while content:
        size = int.from_bytes(content[:8], "little")
        if len(content) < 8 + size:
            break
        frame, content = content[8 : 8 + size], content[8 + size :]
        _, tag, _, session, number, attempt, sender, _, _ = HEADER.unpack(frame[:HEADER_BYTES])
        found.append((Tag(tag), session, number, attempt, sender, frame[HEADER_BYTES:-64]))
    return found


def assert_nothing_lost(folder: Path) -> None:
    """Ledgers hold all that left, no time was used twice, and epsilon covers every message."""
    sent = [frame for frame in frames(folder) if frame[0] is Tag.MASKED]
    times = [frame[1:5] for frame in sent]
    assert len(set(times)) == len(times)
    assert len({frame[5] for frame in sent}) == len(sent)
    for index, name in enumerate(HOSPITALS, 1):
        with Ledger(folder / "ledgers" / f"{name}.sqlite") as book:
            book.verify()
            charged = {(e.session, e.round, e.attempt) for e in book.entries()}
            spent = book.epsilon(delta=1e-5, relation="add-remove")
        left = {time[:3] for time in times if time[3] == index}
        assert left <= charged
        assert len(charged) <= STEPS
        assert spent <= 8.0
    attempts = len({time[:3] for time in times})
    said = hubbub.Study.load(folder / "run" / "study.toml")
    assert said.id == STUDY.id
    rows = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(rows[-1])["epsilon"] >= planned().epsilon_after(attempts) - 1e-12
    steps = [json.loads(row)["step"] for row in rows]
    assert steps == sorted(steps)
    assert (folder / "run" / "report.html").exists()


def finished(folder: Path) -> None:
    """Go on until the run is done."""
    process = child(lambda: step(folder), folder, lambda: None)
    code = outcome(process)
    said = (folder / "error").read_text() if (folder / "error").exists() else ""
    assert code == 0 or "it is finished" in said, said


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path: Path) -> None:
    chance = random.Random(20261121)
    started = time.monotonic()
    assert outcome(child(lambda: step(tmp_path), tmp_path, lambda: None)) == 0
    whole = time.monotonic() - started
    kills = 0
    for number in range(10 * KILLS):
        if kills >= KILLS:
            break
        folder = tmp_path / str(number)
        folder.mkdir()
        for _ in range(chance.randint(1, 4)):
            process = child(lambda folder=folder: step(folder), folder, lambda: None)
            time.sleep(chance.uniform(0.0, 1.1 * whole))
            os.kill(process, signal.SIGKILL)
            if outcome(process) != -signal.SIGKILL:
                break
            kills += 1
        finished(folder)
        assert_nothing_lost(folder)
    assert kills >= KILLS


POINTS = [
    (Ledger, "charge", 14),
    (Silo, "accept", 10),
    (Silo, "contribute", 13),
    (Aggregator, "receive", 9),
    (AttemptSum, "integers", 4),
    (Transcript, "keep", 22),
    (Transcript, "seal", 3),
    (RunFolder, "new_transcript", 1),
    (RunFolder, "append_rows", 5),
    (RunFolder, "keep", 2),
    (checkpoint, "write_checkpoint", 4),
    (checkpoint, "write_bytes", 3),
    (loop, "train", 1),
    (run_folder, "write_text", 2),
    (results, "write_model", 1),
    (LocalBackend, "evidence", 1),
    (report_of_run, "write_report", 1),
]


MOMENTS = [
    pytest.param(
        one,
        after,
        id=f"{one[0].__name__.split('.')[-1]}-{one[1]}-{'after' if after else 'before'}",
    )
    for one in POINTS
    for after in (False, True)
]


@pytest.mark.slow
@pytest.mark.parametrize(("place", "after"), MOMENTS)
def test_killed_at_a_named_point(tmp_path: Path, place, after) -> None:
    owner, name, turn = place

    def prepare() -> None:
        original, calls = getattr(owner, name), [0]

        def deadly(*arguments: object, **options: object) -> object:
            calls[0] += 1
            if calls[0] == turn and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            found = original(*arguments, **options)
            if calls[0] == turn:
                os.kill(os.getpid(), signal.SIGKILL)
            return found

        setattr(owner, name, deadly)

    process = child(lambda: step(tmp_path), tmp_path, prepare)
    assert outcome(process) == -signal.SIGKILL, (tmp_path / "error").read_text()
    finished(tmp_path)
    assert_nothing_lost(tmp_path)


@pytest.mark.slow
def test_a_reused_time_would_be_noticed(tmp_path: Path) -> None:
    assert outcome(child(lambda: step(tmp_path), tmp_path, lambda: None)) == 0
    assert_nothing_lost(tmp_path)
    content = (tmp_path / "wire").read_bytes()
    (tmp_path / "wire").write_bytes(content + content)
    with pytest.raises(AssertionError):
        assert_nothing_lost(tmp_path)


@pytest.mark.slow
def test_a_lost_row_would_be_noticed(tmp_path: Path) -> None:
    def forget() -> None:
        Ledger.charge = lambda *_arguments, **_options: None

    assert outcome(child(lambda: step(tmp_path), tmp_path, forget)) == 0
    with pytest.raises(AssertionError):
        assert_nothing_lost(tmp_path)
