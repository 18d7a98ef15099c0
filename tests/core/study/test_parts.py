"""Folders of Parquet and Arrow files: the same records as of one file, part by part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hubbub import Study
from hubbub.core.errors import DataError, StudyError
from hubbub.core.study import silo_records
from hubbub.core.study.cell_stream import CellStream
from hubbub.core.study.extract import gather
from hubbub.core.study.sealed_arrays import Seal
from hubbub.desk.cli.main import main

pyarrow = pytest.importorskip("pyarrow")
STUDY: dict[str, Any] = {
    "study": {"name": "parts"},
    "parties": {"names": ["north", "south"], "colluders": 0},
    "data": {
        "files": "{name}/",
        "target": "died",
        "records": 800,
        "columns": {
            "age": {"low": 0, "high": 100},
            "smokes": {"categories": ["True", "False"], "default": "False", "indicator": True},
        },
    },
    "model": {"kind": "logistic"},
    "training": {"steps": 2, "sample_rate": 0.1},
    "privacy": {"epsilon": 1.0, "delta": 1e-5},
    "statistics": {"epsilon": 0.3, "who": {"kind": "table"}},
}
PATIENTS = {"patient": "pid", "most_per_patient": 2}


def study(**data: Any) -> Study:
    return Study.from_table({**STUDY, "data": STUDY["data"] | data})


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder of parts for each silo, and one file with the same rows."""
    import pyarrow.ipc as ipc
    import pyarrow.parquet as parquet

    draw = np.random.default_rng(3)
    for name in ("north", "south"):
        (tmp_path / name).mkdir()
        table = pyarrow.table(
            {
                "pid": [f"p{k % 40}" for k in draw.integers(0, 60, 300)],
                "age": draw.normal(50, 20, 300),
                "smokes": [None if one > 1 else bool(one) for one in draw.integers(0, 3, 300)],
                "died": draw.integers(0, 2, 300),
            }
        )
        parquet.write_table(table, tmp_path / f"{name}.parquet")
        parquet.write_table(table.slice(0, 100), tmp_path / name / "a.parquet", row_group_size=7)
        with ipc.new_file(str(tmp_path / name / "b.arrow"), table.schema) as file:
            file.write_table(table.slice(100, 150), max_chunksize=33)
        parquet.write_table(table.slice(250), tmp_path / name / "c.parquet")
        (tmp_path / name / "README.txt").write_text("no part")
    return tmp_path


@pytest.mark.parametrize("whose", [{}, PATIENTS], ids=["records", "patients"])
def test_parts_give_the_records_and_cells_of_one_file(here: Path, whose: dict[str, Any]):
    apart, whole = study(**whose), study(**whose, files="{name}.parquet")
    found = [silo_records.records(one, "north", folder=here) for one in (apart, whole)]
    for name in ("inputs", "targets", "patients"):
        parts = [getattr(one, name) for one in found]
        assert (parts[0] is None) == (parts[1] is None) == (name == "patients" and not whose)
        assert parts[0] is None or parts[0].tobytes() == parts[1].tobytes()
    cells = [silo_records.statistic_cells(one, "north", folder=here) for one in (apart, whole)]
    rows = [one.unit_rows for one in cells]
    for name, column in cells[1].columns.items():
        means = [
            unit.means(np.nan_to_num(one.columns[name]))
            for one, unit in zip(cells, rows, strict=True)
        ]
        assert means[0].tobytes() == means[1].tobytes()
        assert len(column) >= len(cells[0].columns[name])


@pytest.mark.slow
def test_a_run_reads_parts_and_keeps_them(here: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(here)
    Path("study.toml").write_text(study().as_toml())
    assert main(["check", "study.toml"]) == 0
    assert main(["run", "study.toml", "--out", "run"]) == 0
    assert len(list((here / "extracts").iterdir())) == 2


@pytest.mark.slow
def test_a_study_is_drafted_from_folders_of_parts(here: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(here)
    assert main(["init", "north", "south", "--target", "died", "--patient", "pid"]) == 0
    made = Study.load("study.toml")
    assert made.data.files == "{name}/"
    assert made.parties.names == ("north", "south")
    assert len(silo_records.records(made, "south", folder=here)) > 0


def test_parts_that_are_none_are_refused(here: Path):
    (here / "north" / "d.parquet").write_bytes(b"PAR1 nothing of the kind PAR1")
    with pytest.raises(DataError, match=r"a readable part d\.parquet"):
        silo_records.records(study(), "north", folder=here)
    (here / "north" / "d.parquet").unlink()
    import pyarrow.parquet as parquet

    parquet.write_table(pyarrow.table({"age": [1]}), here / "north" / "d.parquet")
    with pytest.raises(DataError, match="the same columns in all parts"):
        silo_records.records(study(), "north", folder=here)
    (here / "empty").mkdir()
    with pytest.raises(DataError, match="found none"):
        silo_records.records(study(files="empty/{name}/"), "north", folder=here)
    (here / "empty" / "north").mkdir()
    with pytest.raises(DataError, match="found none"):
        silo_records.records(study(files="empty/{name}/"), "north", folder=here)
    with pytest.raises(DataError, match="found no such"):
        silo_records.check_file(study(files="absent/{name}/"), "north", here)
    with pytest.raises(StudyError, match="a folder of parts"):
        study(files="{name}")


@pytest.mark.parametrize(("key", "found"), [("1e+16", r"past 2\*\*53"), ("NA", "found none")])
def test_p21_in_parts_too_a_key_of_several_people_is_refused_as_what_it_is(
    key: str, found: str, tmp_path: Path
):
    cells = {"pid": ["7", key], "age": ["1", "2"], "smokes": ["True"] * 2, "died": ["0", "1"]}
    stream = CellStream(origin="parts", pieces=lambda: iter([cells]), ordered=True)
    with pytest.raises(DataError, match=f"{found}.* in parts, column 'pid'") as error:
        gather(study(**PATIENTS), stream, tmp_path, Seal(bytes(32), b""))
    assert "row" not in str(error.value)
