"""The folder of a run: which may be taken for a new one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hubbub.core.errors import UserError
from hubbub.core.runs import run_folder
from hubbub.core.runs.run_folder import RunFolder, refuse_used


def test_a_folder_in_which_a_killed_process_began_is_taken_anew(tmp_path: Path) -> None:
    """Else the study is stuck: it can neither be begun there nor gone on with."""
    for name in ("lock", "study.toml", "plan.json", "run.json.part"):
        (tmp_path / name).touch()
        refuse_used(tmp_path)
    (tmp_path / "lock").unlink()
    with pytest.raises(UserError, match="with files in it"):  # somebody's own study
        refuse_used(tmp_path)
    (tmp_path / "lock").touch()
    for name in ("run.json", "mine.txt"):
        (tmp_path / name).touch()
        with pytest.raises(UserError, match="with files in it"):
            refuse_used(tmp_path)
        (tmp_path / name).unlink()


def test_a_folder_that_another_process_used_meanwhile_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It began and ended between the look and the lock: what it has paid for is noted there."""

    @contextmanager
    def late(lock: Path) -> Iterator[None]:
        for name in ("lock", "run.json"):
            (lock.parent / name).write_text("another's")
        yield

    monkeypatch.setattr(run_folder, "locked", late)
    plan: Any = SimpleNamespace(study=SimpleNamespace(id=bytes(32), transcript="full"))
    with (
        pytest.raises(UserError, match="with files in it"),
        RunFolder.fresh(tmp_path, plan, baseline=None, ledgers=None),
    ):
        pass
    assert (tmp_path / "run.json").read_text() == "another's"
