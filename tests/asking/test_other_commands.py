"""What else may be done with a study that only asks for statistics, and what may not."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.asking.made_up import COLUMNS, KINDS, SILOS, patients, study, table_of_study, write_silos

import hubbub
from hubbub.cli.main import main
from hubbub.errors import BudgetError, DataError, StudyError, UncountedWarning, UserError
from hubbub.training import uncounted
from hubbub.training.comparison import compare
from hubbub.verification.audit import audit


def _compare(told: hubbub.Study, _: Path) -> object:
    return compare(told, repeats=2)


def _audit(told: hubbub.Study, _: Path) -> object:
    return audit(told, runs=2, canaries=50)


def _load(_: hubbub.Study, run: Path) -> object:
    return hubbub.load(run)


@pytest.mark.parametrize("do", [_compare, _audit, _load])
def test_what_needs_a_model_is_refused_in_one_sentence(
    tmp_path: Path, do: Callable[[hubbub.Study, Path], object]
) -> None:
    write_silos(tmp_path)
    told = study(tmp_path)
    hubbub.run(told, tmp_path / "run")
    with pytest.raises(UserError, match="statistics alone"):
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


def asked(epsilon: float = 8.0, **more: Any) -> Any:
    """Three silos of a notebook."""
    return hubbub.statistics(
        {name: patients(seed) for seed, name in enumerate(SILOS)},
        columns=COLUMNS,
        epsilon=epsilon,
        **more,
    )


def test_a_notebooks_queries_spend_one_epsilon() -> None:
    context = asked(questions=[KINDS["table"], KINDS["histogram"], KINDS["histogram"]])
    query = context.query(epsilon=6.0)
    assert list(query.expected) == ["table", "histogram", "histogram 2"]
    found = query.release()
    assert (context.remaining(), found.epsilon <= 6.0) == (2.0, True)
    assert all(one.refusal == "" for one in found.statistics.values())
    with pytest.raises(BudgetError, match="2 is"):
        query.release()
    with pytest.raises(StudyError, match="up to 2"):
        context.query([KINDS["table"]], epsilon=3.0)
    with pytest.raises(StudyError, match="stand out"):
        context.query([KINDS["cox on numbers"]], epsilon=0.1).release()
    named = context.query({"ages": KINDS["histogram"]})
    assert named.release().statistics["ages"].rows
    assert context.remaining() == 0.0
    with pytest.raises(StudyError, match="what is left"):
        context.query([KINDS["histogram"]])


def test_parts_of_delta_add_up_to_no_more_than_all() -> None:
    context = asked()
    parts = [context.query([KINDS["histogram"]], epsilon=e).study.privacy.delta for e in (3, 5)]
    assert sum(parts) == pytest.approx(1e-5, rel=1e-12)


def test_what_is_below_the_noise_costs_a_notebook_nothing() -> None:
    context = asked(epsilon=0.005)
    with pytest.raises(StudyError, match="stand out"):
        context.query([KINDS["table"]]).release()
    assert context.remaining() == 0.005


def test_a_notebooks_answers_say_what_was_read_off_and_a_second_budget_warns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(uncounted, "_ledgers_of", {})  # as in a program that begins
    with warnings.catch_warnings():
        warnings.simplefilter("error", UncountedWarning)
        context = asked(questions=[KINDS["table"]])
        found = [context.query(epsilon=4.0).release() for _ in range(2)]  # of one budget
    assert "not stated: the number of records (1200)" in repr(found[1])
    with pytest.warns(UncountedWarning, match="no ledger counts"):
        again = asked(questions=[KINDS["table"]], records=1200).query().release()
    assert again.made_public == ()


def test_a_notebook_refuses_tables_and_questions_that_are_none() -> None:
    with pytest.raises(DataError, match="at least two silos"):
        hubbub.statistics({"north": patients(0)}, columns=COLUMNS, epsilon=1.0)
    with pytest.raises(DataError, match="something else") as refused:
        hubbub.statistics(
            {"north": patients(0), "south": patients(1) | {"sex": ["<b>"] * 400}},
            columns=COLUMNS,
            epsilon=1.0,
        )
    assert "<b>" not in str(refused.value)
    with pytest.raises(StudyError, match="one of the columns"):
        asked(questions=[{"kind": "quantiles", "column": "bmi"}])
    with pytest.raises(StudyError, match="questions such as"):
        asked(questions=["table"])
