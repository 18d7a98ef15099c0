"""`hubbub init` and `check` from a query, as from files."""

# ruff: noqa: S608 (statements for databases of the tests' own)

from __future__ import annotations

import csv
import re
import sqlite3
from argparse import Namespace
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import duckdb
import numpy as np
import pytest

from hubbub import Study
from hubbub.core.planning.study_plan import plan
from hubbub.core.study.cell_stream import CellStream
from hubbub.desk.cli import drafting_commands
from hubbub.desk.cli.main import main
from hubbub.desk.drafting.asked_query import AskedQuery
from hubbub.desk.drafting.cell_text import meant_by_truth
from hubbub.desk.drafting.column_draft import column_draft
from hubbub.desk.drafting.raw_table import MOST_ROWS, Fault, raw_of
from hubbub.desk.drafting.study_draft import draft
from hubbub.desk.drafting.survey import Answers
from hubbub.desk.drafting.table_check import checked

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


@pytest.mark.slow
def test_a_study_is_drafted_from_a_query_and_its_check_finds_nothing(here: Path):
    assert main(["init", *ASKED, "--patient", "pid", "--target", "died"]) == 0
    study = Study.load("study.toml")
    assert study.parties.names == ("north", "south")
    assert study.data.request.query.strip() == QUERY
    assert (study.data.patient, study.data.most_per_patient) == ("pid", 1)
    assert [one.name for one in study.data.columns] == ["age", "sex", "n"]
    assert plan(study).study == study
    assert not [fault for fault in checked(study, ["north", "south"], here) if fault.refused]
    assert main(["check", "study.toml"]) == 0


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_next_step_after_messy_cells_is_one_that_works(
    here: Path, capsys: pytest.CaptureFixture[str]
):
    with closing(sqlite3.connect("south.sqlite")) as opened:
        opened.execute("UPDATE patients SET age = '61,5' WHERE pid = 'south-1'")
        opened.commit()
    assert main(["init", *ASKED, "--patient", "pid", "--target", "died"]) == 0
    said = capsys.readouterr().out
    assert "such cells count as missing, or their rows are left out" in said
    words = said.rstrip().splitlines()[-1].split()
    assert words[:5] == ["hubbub", "check", "study.toml", "--silo", "south"]
    assert main(words[1:]) == 0
    assert 'spellings = { "61,5" = "61.5" }' in Path("mapping.toml").read_text()
    assert main(["check", "study.toml"]) == 0
    assert main(["run", "study.toml", "--out", "run"]) == 0


HEADER = ("pid", "age", "sex", "crp", "seen", "note", "ward", "died", "gone")


def _messy(name: str) -> list[list[str]]:
    """Rows with what files have: commas, spellings, limits, dates, free text, gaps."""
    draw = np.random.default_rng(len(name))
    return [
        [
            f"{name[0]}{draw.integers(1, 60):03}",
            f"{draw.normal(60, 10):.1f}".replace(".", "," if k % 10 == 0 else "."),
            str(draw.choice(["F", "M", "f"])),
            str(draw.choice(["<0.5", "1.2", "3.4", "n/a", ""])),
            f"0{draw.integers(1, 10)}.02.2020",
            f"as told on day {k}",
            "A",
            str(draw.integers(2)),
            "2021-05-03" if draw.uniform() > 0.9 else "",
        ]
        for k in range(120)
    ]


def _lay(kind: str, name: str) -> list[str]:
    """A silo's records, and the words for `init`."""
    rows = _messy(name)
    if kind == "csv":
        with Path(f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([HEADER, *rows])
        return [f"{name}.csv"]
    if kind == "parts":
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        Path(name).mkdir()
        cells = {one: [row[k] or None for row in rows] for k, one in enumerate(HEADER)}
        for part, start in (("a", 0), ("b", 70)):
            table = arrow.table(cells).slice(start, 70)
            parquet.write_table(table, f"{name}/{part}.parquet")
        return [name]
    opened = duckdb.connect(f"{name}.db") if kind == "duckdb" else sqlite3.connect(f"{name}.db")
    with closing(opened):
        opened.execute(f"CREATE TABLE p ({', '.join(f'{one} VARCHAR' for one in HEADER)})")
        marks = ", ".join("?" * len(HEADER))
        opened.executemany(
            f"INSERT INTO p VALUES ({marks})", [[one or None for one in row] for row in rows]
        )
        opened.commit()
    return []


def test_rows_of_a_query_are_never_offered_to_be_joined_in_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    with closing(sqlite3.connect("north.sqlite")) as opened:
        opened.execute("CREATE TABLE visits (pid, age, died)")
        for pid in range(60):
            rows = ((pid, str(pid % 50 + 20), None), (pid, None, ("yes", "no")[pid % 2]))
            opened.executemany("INSERT INTO visits VALUES (?, ?, ?)", rows)
        opened.commit()
    Path("sources.toml").write_text('[north]\nurl = "sqlite:///north.sqlite"\n')
    Path("sources.toml").chmod(0o600)
    Path("query.sql").write_text("SELECT pid, age, died FROM visits")
    asked = ("--query", "query.sql", "--person", "visits=pid", "--patient", "pid")
    main(["init", *asked, "--target", "died"])
    told = capsys.readouterr()
    assert "--join" not in told.out + told.err


@pytest.mark.slow
def test_a_draft_says_of_a_database_and_of_parts_what_it_says_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    said = {}
    for kind in ("csv", "parts", "duckdb", "sqlite"):
        (tmp_path / kind).mkdir()
        monkeypatch.chdir(tmp_path / kind)
        words = [word for name in ("north", "south") for word in _lay(kind, name)]
        if not words:
            lines = [f'[{one}]\nurl = "{kind}:///{one}.db"\n' for one in ("north", "south")]
            Path("sources.toml").write_text("".join(lines))
            Path("sources.toml").chmod(0o600)
            Path("q.sql").write_text(f"SELECT {', '.join(HEADER)} FROM p")
            words = ["--query", "q.sql", "--person", "p=pid"]
        # Files that a run cannot read yet are no done draft; a database's cells may be mapped.
        code = 0 if "--query" in words else 1
        assert main(["init", *words, "--patient", "pid", "--target", "died"]) == code
        told, _, _ = capsys.readouterr().out.partition("nothing was sent")
        told = re.sub(r"the database of (\w+)|(north|south)\.csv", r"\1\2", told)
        drafted = Path("study.toml").read_text()
        said[kind] = told, drafted[drafted.index("[data.columns]") :]
    assert len(re.findall("wrong: ", said["csv"][0])) == 4
    for kind in ("parts", "duckdb", "sqlite"):
        assert said[kind] == said["csv"], kind


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


def test_a_silo_whose_name_no_study_can_have_is_named_before_anything_is_asked(
    here: Path, capsys: pytest.CaptureFixture[str]
):
    text = Path("sources.toml").read_text()
    Path("sources.toml").write_text(text.replace("[north]", '["North Clinic"]'))
    assert main(["init", *ASKED, "--patient", "pid", "--target", "died"]) == 2
    assert "sources.toml that a study can have" in (said := capsys.readouterr().err)
    assert "got North Clinic; rename" in said


def test_silos_are_called_as_sources_toml_has_them_whatever_their_names_share(here: Path):
    text = Path("sources.toml").read_text()
    Path("sources.toml").write_text(text.replace("[", "[site-"))
    asked = AskedQuery.of(Path("query.sql"), ["patients=pid", "visits=pid"], "pid")
    drafted = draft(asked.surveyed(here), Answers(target="died", patient="pid", can_join=False))
    assert drafted.parties == ("site-north", "site-south")


def test_the_next_step_is_at_the_silo_whose_database_is_at_fault_not_at_one_of_its_letters():
    options = Namespace(out="study.toml", tidy=None, query="query.sql", data=Path())
    tables = [SimpleNamespace(origin=f"the database of {name}") for name in "ab"]
    made, fault = SimpleNamespace(parties=("a", "b"), tables=tables), "the database of b"
    faults = [Fault(file=fault, what="it is odd", remedy="mend it")]
    _, command = drafting_commands._next(options, made, faults, is_ready=False)
    assert command[2:4] == ["--silo", "b"]


def test_of_very_many_rows_the_first_are_looked_at():
    piece = {"a": ["1"] * (MOST_ROWS // 2 + 1)}
    stream = CellStream(origin="a source", pieces=lambda: iter([piece] * 9), ordered=True)
    table = raw_of(stream)
    assert len(table.rows) == MOST_ROWS
    assert [fault.refused for fault in table.faults] == [False]


@pytest.mark.slow
def test_what_duckdb_read_as_truth_values_is_told_and_mapped(
    here: Path, capsys: pytest.CaptureFixture[str]
):
    """Of a study that another site's text of yes and no was drafted from."""
    Path("people.csv").write_text("pid,age,died\n" + "p0,50,no\np1,60,yes\np2,70,yes\n" * 30)
    with duckdb.connect("north.duckdb") as opened:
        opened.execute("CREATE TABLE patients AS FROM read_csv('people.csv')")
        opened.execute("CREATE TABLE visits (pid VARCHAR)")
        opened.execute("UPDATE patients SET pid = concat(pid, rowid)")
    Path("sources.toml").write_text(
        Path("sources.toml").read_text().replace("sqlite:///north.sqlite", "duckdb:///north.duckdb")
    )
    Path("query.sql").write_text(QUERY.replace(" p.sex,", ""))
    assert main(["init", *ASKED, "--patient", "pid", "--target", "died"]) == 0
    study = Path("study.toml")
    study.write_text(study.read_text().replace('["1"]', '["Yes"]').replace('["0"]', '["No"]'))
    capsys.readouterr()
    assert main(["check", "study.toml", "--silo", "north"]) == 2
    said = " ".join(capsys.readouterr().out.split())
    assert "'1' is a truth value, and 'Yes' was read as one" in said
    assert "(and 59 more)" in said
    assert main(["check", "study.toml", "--silo", "north", "--mapping", "mapping.toml"]) == 0
    assert 'spellings = { "0" = "No", "1" = "Yes" }' in Path("mapping.toml").read_text()
    assert main(["check", "study.toml", "--silo", "north"]) == 0


@pytest.mark.parametrize(
    ("cell", "known", "meant"),
    [
        ("1", ("no", "yes"), "yes"),
        ("false", ("Yes", "No"), "No"),
        ("True", ("N", "y", "Y"), "y"),
        ("0", ("F", "T"), "F"),
        ("1", ("F", "M"), None),
        ("1", ("no", "yes", "perhaps"), None),
        ("2", ("no", "yes"), None),
        ("t", ("no", "yes"), None),
    ],
)
def test_truth_values_are_taken_for_a_pair_of_yes_and_no_alone(
    cell: str, known: tuple[str, ...], meant: str | None
):
    assert meant_by_truth(cell, known) == meant


def test_a_draft_says_where_one_file_has_truth_values() -> None:
    drafted = column_draft("smoker", [["no", "yes"] * 9, ["0", "1"] * 9])
    assert "0 and 1 seem to mean no or yes" in drafted.why
    assert "truth" not in column_draft("sex", [["F", "M"] * 9, ["0", "1"] * 9]).why
