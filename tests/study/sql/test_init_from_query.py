"""`hubbub init` and `check` from a query, as from files."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from hubbub import Study
from hubbub.cli import main
from hubbub.queries import plan
from hubbub.study.drafting import checked
from hubbub.study.drafting.raw_stream import MOST_ROWS, raw_of
from hubbub.study.extracts.cell_stream import CellStream

QUERY = """SELECT p.pid, p.age, p.sex, p.died, v.n FROM patients p
LEFT JOIN (SELECT pid, COUNT(*) AS n FROM visits GROUP BY pid) v ON v.pid = p.pid"""
ASKED = ("--query", "query.sql", "--person", "patients=pid", "--person", "visits=pid")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two silos' databases, and a query."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(4)
    lines = []
    for name in ("north", "south"):
        with closing(sqlite3.connect(f"{name}.sqlite")) as opened:
            opened.execute("CREATE TABLE patients (pid, age, sex, died)")
            opened.execute("CREATE TABLE visits (pid, day)")
            for pid in range(300):
                age, sex = round(float(draw.normal(60, 9)), 1), "FM"[pid % 2]
                row = (f"{name}-{pid}", age, sex, int(draw.integers(2)))
                opened.execute("INSERT INTO patients VALUES (?, ?, ?, ?)", row)
                visits = [(f"{name}-{pid}", day) for day in range(pid % 4)]
                opened.executemany("INSERT INTO visits VALUES (?, ?)", visits)
            opened.commit()
        lines += [f"[{name}]", f'url = "sqlite:///{name}.sqlite"']
    Path("sources.toml").write_text("\n".join(lines))
    Path("sources.toml").chmod(0o600)
    Path("query.sql").write_text(QUERY)
    return tmp_path


def test_a_study_is_drafted_from_a_query_and_its_check_finds_nothing(here: Path):
    assert main(["init", *ASKED, "--patient", "pid", "--target", "died"]) == 0
    study = Study.load("study.toml")
    assert study.parties.names == ("north", "south")
    assert study.data.query.strip() == QUERY
    assert (study.data.patient, study.data.most_per_patient) == ("pid", 1)
    assert [one.name for one in study.data.columns] == ["age", "sex", "n"]
    assert plan(study).study == study
    assert not [fault for fault in checked(study, ["north", "south"], here) if fault.refused]
    assert main(["check", "study.toml"]) == 0


def test_a_check_lists_all_that_is_wrong_in_a_database(here: Path):
    assert main(["init", *ASKED, "--patient", "pid", "--target", "died"]) == 0
    with closing(sqlite3.connect("south.sqlite")) as opened:
        opened.execute("UPDATE patients SET sex = 'f' WHERE pid = 'south-0'")
        opened.execute("UPDATE patients SET age = '61,5' WHERE pid = 'south-1'")
        opened.commit()
    faults = checked(Study.load("study.toml"), ["north", "south"], here)
    wrong = {(one.file, one.column) for one in faults if one.refused}
    assert wrong == {("the database of south", "sex"), ("the database of south", "age")}
    assert main(["check", "study.toml", "--silo", "south"]) == 2
    assert main(["check", "study.toml", "--silo", "north"]) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ASKED,
        ("--query", "query.sql", "--patient", "pid"),
        ("--query", "none.sql", "--person", "patients=pid", "--patient", "pid"),
        ("--query", "query.sql", "--person", "patients=pid", "--patient", "pid"),
        (*ASKED, "--patient", "pid", "north.csv"),
        (*ASKED, "--patient", "pid", "--data", "sources.toml"),
        (),
    ],
)
def test_what_is_missing_beside_a_query_is_said(
    here: Path, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
):
    assert main(["init", *arguments, "--target", "died"]) != 0
    assert "expected" in capsys.readouterr().err
    assert not Path("study.toml").exists()


def test_of_very_many_rows_the_first_are_looked_at():
    piece = {"a": ["1"] * (MOST_ROWS // 2 + 1)}
    stream = CellStream(origin="a source", pieces=lambda: iter([piece] * 9), ordered=True)
    table = raw_of(stream)
    assert len(table.rows) == MOST_ROWS
    assert [fault.refused for fault in table.faults] == [False]
