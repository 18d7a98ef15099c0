"""The folder of a run: which may be taken for a new one."""

from __future__ import annotations

from pathlib import Path

import pytest

from hubbub.core.errors import UserError
from hubbub.core.runs.run_folder import refuse_used


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
