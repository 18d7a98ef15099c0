"""Full disks, read-only folders, second processes, altered files: one sentence, nothing lost."""

from __future__ import annotations

import json
import os
import random
import shutil
import stat
import subprocess
import sys
import time
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

import hubbub
from hubbub.core.errors import BudgetError, HubbubError, IntegrityError, UserError
from hubbub.core.ledger.privacy_ledger import Cap, Ledger
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.query import QueryState
from hubbub.core.runs.checkpoint import Checkpoint, newest_checkpoint, write_checkpoint
from hubbub.core.runs.run_folder import RunFolder
from hubbub.desk.report.report_of_run import write_report
from hubbub.learning.runs.run_study import resume, run

STEPS = 8
HEART = (resources.files("hubbub.learning.datasets") / "heart.toml").read_text(encoding="utf-8")
STUDY = hubbub.Study.parse(
    HEART.replace("steps = 60", f"steps = {STEPS}").replace("epsilon = 0.5", "epsilon = 8.0")
)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return hubbub.plan(STUDY)


def stopped_run(folder: Path, plan: Plan, *, at: int = 4) -> Path:
    """A run that was interrupted after a step."""

    def stop(step: int, _row: object) -> None:
        if step == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(STUDY, folder / "run", plan=plan, progress=stop)
    return folder / "run"


def one_sentence(error: HubbubError) -> str:
    """The error's text, which is one sentence that says what to do."""
    text = str(error)
    assert "\n" not in text
    assert ";" in text or ":" in text
    return text


def charges(folder: Path) -> int:
    with Ledger(folder / "ledgers" / "hungary.sqlite") as book:
        book.verify()
        return len(book)


# Checkpoints ------------------------------------------------------------------------------------


def state(step: int) -> QueryState:
    random = np.random.default_rng(step)
    return QueryState(
        step=step,
        attempts=step + 1,
        parameters=random.normal(size=7).astype(np.float32),
        optimizer={"step": np.zeros((), np.int64) + step, "first": random.normal(size=7)},
        rows=({"step": step, "epsilon": 0.25},),
    )


def test_a_checkpoint_gives_back_what_was_put_in(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, Checkpoint(state=state(3), heads={"a": bytes(32)}))
    found = newest_checkpoint(tmp_path)
    assert found is not None
    assert (found.state.step, found.state.attempts, found.state.rows) == (3, 4, state(3).rows)
    assert found.state.parameters.tobytes() == state(3).parameters.tobytes()
    assert found.heads == {"a": bytes(32)}
    for name, value in state(3).optimizer.items():
        assert found.state.optimizer[name].tobytes() == value.tobytes()
        assert found.state.optimizer[name].shape == value.shape


def test_the_newest_two_checkpoints_are_kept(tmp_path: Path) -> None:
    for step in range(1, 6):
        write_checkpoint(tmp_path, Checkpoint(state=state(step)))
    assert sorted(path.name[:13] for path in tmp_path.iterdir()) == [
        "step-00000004",
        "step-00000005",
    ]
    (tmp_path / "step-00000009-half.part").write_bytes(b"half")
    assert newest_checkpoint(tmp_path).state.step == 5


def test_every_flipped_bit_of_a_checkpoint_is_noticed(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, Checkpoint(state=state(3)))
    whole, chance = path.read_bytes(), random.Random(1)
    for _ in range(2000):
        place = chance.randrange(len(whole))
        path.write_bytes(
            whole[:place] + bytes([whole[place] ^ 1 << chance.randrange(8)]) + whole[place + 1 :]
        )
        with pytest.raises(IntegrityError, match=path.name):
            newest_checkpoint(tmp_path)
    path.write_bytes(whole[:-1])
    with pytest.raises(IntegrityError, match="delete it"):
        newest_checkpoint(tmp_path)


@pytest.mark.slow
def test_without_its_newest_checkpoint_a_run_takes_the_step_from_its_transcript(tmp_path, plan):
    folder = stopped_run(tmp_path, plan)
    newest = max((folder / "checkpoints").iterdir())
    newest.write_bytes(b"")
    with pytest.raises(IntegrityError, match="delete it") as caught:
        resume(folder)
    assert newest.name in one_sentence(caught.value)
    newest.unlink()
    result = resume(folder)
    assert result.final["step"] == STEPS  # step 4 was charged, and its sum is kept
    assert result.epsilon == plan.stated.epsilon
    assert charges(tmp_path) == STEPS


# Other files ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run.json", "study.toml"])
def test_a_run_whose_notes_were_altered_is_not_resumed(tmp_path, plan, name):
    folder = stopped_run(tmp_path, plan)
    text = (folder / name).read_text()
    (folder / name).write_text(
        text.replace("epsilon = 8.0", "epsilon = 9.0").replace('"format": 1', '"format": 2')
    )
    with pytest.raises(IntegrityError, match=name) as caught:
        resume(folder)
    one_sentence(caught.value)
    assert charges(tmp_path) == 4


@pytest.mark.slow
def test_an_older_copy_of_a_ledger_stops_the_run(tmp_path, plan):
    folder = stopped_run(tmp_path, plan, at=2)
    shutil.copytree(tmp_path / "ledgers", tmp_path / "older")
    with pytest.raises(KeyboardInterrupt):
        resume(folder, progress=interrupted)
    shutil.rmtree(tmp_path / "ledgers")
    (tmp_path / "older").rename(tmp_path / "ledgers")
    with pytest.raises(IntegrityError, match="older copy") as caught:
        resume(folder)
    one_sentence(caught.value)


def interrupted(_step: int, _row: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.slow
def test_a_finished_run_is_not_resumed(tmp_path, plan):
    run(STUDY, tmp_path / "run", plan=plan)
    with pytest.raises(UserError, match="finished"):
        resume(tmp_path / "run")
    assert charges(tmp_path) == STEPS


@pytest.mark.slow
def test_a_report_on_an_interrupted_run_does_not_end_it(tmp_path, plan):
    folder = stopped_run(tmp_path, plan)
    write_report(folder)
    assert resume(folder).final["step"] == STEPS


@pytest.mark.slow
def test_a_copy_of_a_run_that_is_resumed_too_makes_no_attempt_beyond_the_plan(tmp_path, plan):
    folder = stopped_run(tmp_path, plan)
    shutil.copytree(folder, tmp_path / "copy")
    resume(folder)
    assert resume(tmp_path / "copy").epsilon >= plan.stated.epsilon - 1e-12
    assert charges(tmp_path) == STEPS


@pytest.mark.slow
def test_two_processes_that_share_a_run_make_no_attempt_beyond_the_plan(
    tmp_path, plan, monkeypatch
):
    """Also where the ledgers' locks do nothing, as on some network drives."""
    monkeypatch.setattr("fcntl.flock", lambda *_: None)

    def second(step: int, _row: object) -> None:
        if step == 4:
            shutil.copytree(tmp_path / "run", tmp_path / "copy")
            resume(tmp_path / "copy")

    with pytest.raises(BudgetError, match="at most 8 attempts"):
        run(STUDY, tmp_path / "run", plan=plan, progress=second)
    assert charges(tmp_path) == STEPS


@pytest.mark.slow
@pytest.mark.parametrize("change", [{"sessions": {}}, {"sessions": {"training": ["00" * 16]}}])
def test_sessions_that_were_taken_out_of_the_notes_are_counted(tmp_path, plan, change):
    folder = stopped_run(tmp_path, plan)
    for path in (folder / "checkpoints").iterdir():
        path.unlink()
    said = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(said | change))
    resume(folder)
    assert charges(tmp_path) == STEPS


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"ledgers": 5},
        {"heads": {}},
        {"heads": {"hungary": "ab"}},
        {"sessions": {"training": "ab"}},
        {"sessions": {"training": [5]}},
        {"sessions": 5},
    ],
)
def test_notes_of_another_kind_are_refused(tmp_path, plan, change):
    folder = stopped_run(tmp_path, plan)
    said = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(said | change))
    with pytest.raises(IntegrityError, match="as this version writes it"):
        resume(folder)


@pytest.mark.slow
def test_ledgers_that_vanished_before_the_first_checkpoint_stop_the_run(
    tmp_path, plan, monkeypatch
):
    def full(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "keep", full)
        with pytest.raises(KeyboardInterrupt):
            run(STUDY, tmp_path / "run", plan=plan)
    shutil.rmtree(tmp_path / "ledgers")
    with pytest.raises(IntegrityError, match="older copy or another ledger"):
        resume(tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("text", ["{", "[" * 100_000, '{"noise_multiplier": 9.0}'])
def test_a_plan_that_was_altered_stops_the_run(tmp_path, plan, text):
    folder = stopped_run(tmp_path, plan)
    (folder / "plan.json").write_text(text)
    with pytest.raises(IntegrityError, match="plan"):
        resume(folder)
    assert charges(tmp_path) == 4


def test_a_folder_without_a_run_is_not_resumed(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UserError, match=r"no run\.json"):
            resume(folder)


@pytest.mark.slow
def test_a_baseline_is_not_resumed(tmp_path, plan):
    with pytest.raises(KeyboardInterrupt):
        run(STUDY, tmp_path / "run", plan=plan, baseline="trusted", progress=interrupted)
    with pytest.raises(UserError, match="run it again from the start"):
        resume(tmp_path / "run")


# Disks, locks, clocks ---------------------------------------------------------------------------


@pytest.mark.slow
def test_a_second_process_on_the_same_run_is_refused(tmp_path, plan):
    folder = stopped_run(tmp_path, plan)
    with RunFolder.again(folder):
        with pytest.raises(UserError, match="another process") as caught:
            resume(folder)
        one_sentence(caught.value)
    assert resume(folder).final["step"] == STEPS


LIMITED = """
import resource, signal, sys
from pathlib import Path
import hubbub
from hubbub.core.errors import HubbubError
study, folder, size = hubbub.Study.load(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
try:
    hubbub.run(study, folder)
except HubbubError as error:
    print(f"{type(error).__name__}: {error}")
"""


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 700, 3000, 20_000])
def test_a_disk_that_is_full_stops_the_run_and_loses_nothing(tmp_path, plan, size):
    (tmp_path / "study.toml").write_text(STUDY.as_toml())
    work = tmp_path / "work"
    work.mkdir()
    # A process of its own, which may write no file beyond a size.
    ended = subprocess.run(
        [sys.executable, "-c", LIMITED, tmp_path / "study.toml", work / "run", str(size)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(("UserError", "IntegrityError")), ended.stdout
    assert ended.stdout.count("\n") == 1
    if (work / "run" / "run.json").exists():
        resume(work / "run")
    else:
        shutil.rmtree(work)
        run(STUDY, work / "run", plan=plan)
    assert charges(work) <= STEPS
    rows = (work / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(rows[-1])["epsilon"] <= plan.stated.epsilon


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder_is_refused(tmp_path, plan):
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(UserError, match="--out"):
        run(STUDY, tmp_path / "run", plan=plan)


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path, plan):
    (tmp_path / "run").write_text("a file")
    with pytest.raises(UserError, match="choose another --out") as caught:
        run(STUDY, tmp_path / "run", plan=plan)
    one_sentence(caught.value)


@pytest.mark.slow
def test_nothing_depends_on_the_clock(tmp_path, plan, monkeypatch):
    folder = stopped_run(tmp_path, plan)
    for name in ("time", "monotonic", "time_ns"):
        monkeypatch.setattr(time, name, lambda: 0)
    for path in folder.rglob("*"):
        os.utime(path, (0, 0))
    assert resume(folder).final["step"] == STEPS


@pytest.mark.slow
def test_a_cap_that_is_raised_lets_the_run_go_on(tmp_path, plan):
    (tmp_path / "ledgers").mkdir()
    with Ledger(tmp_path / "ledgers" / "hungary.sqlite") as book:
        book.set_cap(Cap(epsilon=5.0, delta=1e-5, relation="add-remove"))
    with pytest.raises(BudgetError, match="hungary"):
        run(STUDY, tmp_path / "run", plan=plan)
    with Ledger(tmp_path / "ledgers" / "hungary.sqlite") as book:
        book.set_cap(Cap(epsilon=9.0, delta=1e-5, relation="add-remove"))
    result = resume(tmp_path / "run")
    assert result.final["step"] == STEPS - 1  # the attempt that was refused had been charged
    assert result.epsilon == plan.stated.epsilon


@pytest.mark.parametrize(
    ("ledgers", "advice", "never"),
    [(None, "continue with hubbub serve", "--resume"), (Path("books"), "--resume", "serve")],
    ids=["apart", "in one process"],
)
def test_a_full_disk_advises_the_command_that_goes_on(
    tmp_path, plan, monkeypatch, ledgers, advice, never
):
    """An aggregator has no `hubbub run` to go on with."""

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with RunFolder.fresh(tmp_path / "run", plan, baseline=None, ledgers=ledgers) as folder:
        monkeypatch.setattr("hubbub.core.runs.run_folder.write_text", full)
        with pytest.raises(UserError) as refused:
            folder.begin({"ann": bytes(32)})
    monkeypatch.undo()
    assert "No space left on device" in str(refused.value)
    assert advice in str(refused.value)
    assert never not in str(refused.value)
    with (
        pytest.raises(UserError, match="with files in it") as there,
        RunFolder.fresh(tmp_path / "run", plan, baseline=None, ledgers=ledgers),
    ):
        pass
    assert never not in str(there.value)


def test_ledgers_at_a_path_that_is_no_text_are_refused_before_anything_is_charged(
    plan: Plan, tmp_path: Path
) -> None:
    """`run.json` could not be read again, by a run that has been paid for."""
    ledgers = tmp_path / os.fsdecode(b"\xfcber")
    with (
        pytest.raises(UserError, match=r"in UTF-8, got '.*udcfcber'; choose another --out"),
        RunFolder.fresh(tmp_path / "run", plan, baseline=None, ledgers=ledgers),
    ):
        pass
    assert not (tmp_path / "run").exists()
