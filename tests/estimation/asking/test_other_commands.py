"""What else may be done with a study that only asks for statistics, and what may not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.estimation.asking.made_up import study, table_of_study, write_silos

import hubbub
from hubbub.core.errors import UserError
from hubbub.desk.cli.main import main
from hubbub.desk.report.comparison import compare
from hubbub.learning.audit.audit import audit


def _compare(told: hubbub.Study, _: Path) -> object:
    return compare(told, repeats=2)


def _audit(told: hubbub.Study, _: Path) -> object:
    return audit(told, runs=2, canaries=50)


def _load(_: hubbub.Study, run: Path) -> object:
    return hubbub.load(run)


@pytest.mark.slow_cases("_compare", "_load")
@pytest.mark.parametrize("do", [_compare, _audit, _load])
def test_what_needs_a_model_is_refused_in_one_sentence(
    tmp_path: Path, do: Callable[[hubbub.Study, Path], object]
) -> None:
    write_silos(tmp_path)
    told = study(tmp_path)
    hubbub.run(told, tmp_path / "run")
    with pytest.raises(UserError, match="statistics only"):
        do(told, tmp_path / "run")


def test_check_takes_missing_cells_where_no_model_sees_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_silos(tmp_path)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "north.csv"
    rows = path.read_text().splitlines()
    path.write_text("\n".join([rows[0], "," + rows[1].partition(",")[2], *rows[2:]]))
    Path("study.toml").write_text(hubbub.Study.from_table(table_of_study(Path())).as_toml())
    assert main(["check", "study.toml"]) == 0
    assert "can read the files" in capsys.readouterr().out
