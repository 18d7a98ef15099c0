"""Every piece of docs/cookbook.md is planned, run or understood as it stands there."""

from __future__ import annotations

import importlib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import hubbub

PAGE = (Path(__file__).parents[2] / "docs" / "cookbook.md").read_text(encoding="utf-8")
BASE, *PIECES = [tomllib.loads(text) for text in re.findall(r"(?ms)^```toml\n(.*?)^```", PAGE)]
PROGRAMS = re.findall(r"(?ms)^```python\n(.*?)^```", PAGE)
GONE = {  # by the keys that come
    ("target",): ("positive", "negative"),
    ("most_per_patient", "patient", "query", "source", "tables"): ("files",),
}


def added(to: Mapping[str, Any], piece: Mapping[str, Any]) -> dict[str, Any]:
    """A study with a piece in it, table by table, less what the page says goes."""
    made = dict(to)
    for key, value in piece.items():
        is_table = isinstance(value, dict) and key not in {"target", "optimizer"}
        made[key] = added(made.get(key, {}), value) if is_table else value
    return {key: made[key] for key in made if key not in GONE.get(tuple(sorted(piece)), ())}


@pytest.mark.slow
@pytest.mark.parametrize("piece", [{}, *PIECES], ids=str)
def test_a_piece_of_a_study_is_planned(piece: dict[str, Any]) -> None:
    study = hubbub.Study.from_table(added(BASE, piece))
    promised = {row.epsilon for row in hubbub.plan(study).exposures}
    assert any(1.98 < epsilon <= 2 for epsilon in promised)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_programs_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    importlib.import_module("torch")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for program in PROGRAMS:
        exec(program, names)  # noqa: S102 - our own page
    assert len(PROGRAMS) == 6
