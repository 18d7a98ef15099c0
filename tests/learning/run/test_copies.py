"""Two runs on the same ledgers: never at once, and what the one has spent the other tells."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import hubbub
from hubbub.core.errors import IntegrityError, UserError
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.desk.cli.main import main
from run.finished import a_study

STEPS = 4


def interrupted(home: Path, name: str = "run") -> Path:
    """The folder of a run that was stopped after two steps."""

    def stop(step: int, _: Mapping[str, float]) -> None:
        if step == 2:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        hubbub.run(a_study(steps=STEPS), home / name, progress=stop)
    return home / name


def rows(home: Path) -> int:
    with Ledger(home / "ledgers" / "hungary.sqlite") as ledger:
        return ledger.rows


@pytest.mark.slow
@pytest.mark.parametrize("kept", [True, False], ids=["checkpoint", "no checkpoint"])
def test_a_ledger_that_is_gone_is_missed_and_no_new_one_takes_its_place(
    tmp_path: Path, kept: bool
) -> None:
    run = interrupted(tmp_path)
    if not kept:
        shutil.rmtree(run / "checkpoints")
    for path in (tmp_path / "ledgers").glob("hungary*"):
        path.unlink()
    with pytest.raises(IntegrityError, match="found none of hungary; put them back"):
        hubbub.resume(run)
    assert not (tmp_path / "ledgers" / "hungary.sqlite").exists()


@pytest.mark.slow
def test_a_second_run_on_the_same_ledgers_is_refused_before_it_charges(tmp_path: Path) -> None:
    study, refusals = a_study(steps=2), []

    def beside(step: int, _: Mapping[str, float]) -> None:
        before = rows(tmp_path)  # reading is free
        with pytest.raises(UserError, match="another run charges it; nothing was charged") as one:
            hubbub.run(study, tmp_path / "second")
        refusals.append(str(one.value))
        assert rows(tmp_path) == before

    hubbub.run(study, tmp_path / "first", progress=beside)
    assert len(refusals) == 2
    assert not any("\n" in one for one in refusals)
    assert not (tmp_path / "second").exists()  # and may be begun afterwards
    assert hubbub.run(study, tmp_path / "second").steps == 2
    assert rows(tmp_path) == 1 + 2 * 2


@pytest.mark.slow
def test_a_copy_that_is_resumed_beside_the_run_is_refused(tmp_path: Path) -> None:
    folder = interrupted(tmp_path)
    shutil.copytree(folder, tmp_path / "copy")

    def beside(step: int, _: Mapping[str, float]) -> None:
        with pytest.raises(UserError, match="another run charges it"):
            hubbub.resume(tmp_path / "copy")

    assert hubbub.resume(folder, progress=beside).steps == STEPS
    assert rows(tmp_path) == 1 + STEPS


@pytest.mark.slow
def test_a_copy_that_is_resumed_second_says_what_it_made_and_its_evidence_is_true(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, copy = interrupted(tmp_path), tmp_path / "copy"
    shutil.copytree(folder, copy)
    assert main(["run", "--resume", str(folder), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["steps"], said["is_copied"]) == (STEPS, False)
    assert main(["run", "--resume", str(copy)]) == 1
    shown = capsys.readouterr().out.replace("\n", " ")
    assert f"2 of {STEPS} steps in" in shown
    assert "another copy of this folder" in shown
    evidence = json.loads((copy / "evidence.json").read_text())
    assert evidence["epsilon"]["attempts"] == STEPS
    assert {part["attempts"] for part in evidence["silos"]} == {STEPS}
    assert rows(tmp_path) == 1 + STEPS
    assert main(["verify", str(copy), "--json"]) == 0
    assert hubbub.resume(shutil.copytree(copy, tmp_path / "more", ignore=_evidence)).is_copied


def _evidence(_: str, names: list[str]) -> list[str]:
    return [name for name in names if name == "evidence.json"]


@pytest.fixture(params=[0, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.slow
def test_who_may_read_a_run_does_not_depend_on_the_umask(tmp_path: Path, umask: int) -> None:
    hubbub.run(a_study(steps=1), tmp_path / "run")
    files = [one for one in (tmp_path / "run").rglob("*") if one.is_file()]
    modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in files}
    assert {"evidence.json", "model.safetensors", "metrics.jsonl", "report.html"} < set(modes)
    assert {mode for name, mode in modes.items() if name != "lock"} == {0o644}
    ledgers = [stat.S_IMODE(one.stat().st_mode) for one in (tmp_path / "ledgers").iterdir()]
    assert set(ledgers) == {0o600}
