"""A private validation from files to the page, and after whatever goes wrong on the way."""

from __future__ import annotations

import csv
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.learning.validation.made_up import BY, SILOS, TARGETS, study_of, table_of, write_silos

import hubbub
from hubbub.core.errors import StudyError
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.planning.query import Array
from hubbub.core.study import silo_records
from hubbub.core.study.study import Study
from hubbub.core.verification.replay.checking import verify
from hubbub.desk.cli.main import main
from hubbub.learning import held_back
from hubbub.learning.queries.beside_training import Folded, State
from hubbub.learning.queries.validation import validation_query
from hubbub.learning.queries.validation.layout import whose_records
from hubbub.learning.runs.preparing import prepare
from hubbub.learning.runs.run_study import resume, run


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("silos")
    write_silos(folder)
    return folder


def told_in(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "validation.json").read_text())


TELLING = {
    "classes": "auc",
    "numeric": "c_index",
    "count": "c_index",
    "time-to-event": "c_index",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(TARGETS))
def test_every_kind_of_target_is_scored_on_records_that_no_silo_trained_on(
    files: Path, tmp_path: Path, kind: str
) -> None:
    result = run(study_of(files, kind), tmp_path / "run")
    told = told_in(tmp_path / "run")
    assert told == result.validation
    first, score = next(iter(told["all"]["scores"].items()))
    assert first == TELLING[kind] == told["telling"]
    assert score["low"] <= score["value"] <= score["high"]
    assert told["records"] == "held-back"
    assert told["flatters"] is None
    # Each record decides by itself, and equal ones alike: 29 is the deviation of who is held back.
    assert abs(told["all"]["count"] - 600) < 6 * told["all"]["count_error"] + 6 * 29
    assert told["all"]["calibration"] is not None
    assert result.epsilon <= 8.0
    page = (tmp_path / "run" / "report.html").read_text()
    assert "The model on about" in page
    assert "Calibration" in page
    assert all(one.holds for one in verify(tmp_path / "run"))


@pytest.mark.slow
def test_groups_and_centres_have_scores_of_their_own(files: Path, tmp_path: Path) -> None:
    asked = {"by": {**BY, "ward": "categories"}, "centres": True}
    result = run(study_of(files, validation=asked), tmp_path / "run")
    groups = [(one["by"], one["group"]) for one in result.validation["groups"]]
    frame = result.validation_frame()
    assert frame.loc[0, ["by", "score"]].tolist() == ["", "auc"]
    assert {"value", "low", "high", "null", "count"} <= {*frame.columns}
    assert set(frame["group"]) >= {"", "F", "M"}
    assert "The model by subgroup and centre" in result._repr_html_()
    assert groups[:4] == [("centre", name) for name in SILOS]
    assert [by for by, _ in groups[4:]] == ["sex", "sex", "age", "age", "ward", "ward", "ward"]
    counts = {
        group: one["count"] for group, one in zip(groups, result.validation["groups"], strict=True)
    }
    noise = 6 * result.validation["groups"][0]["count_error"]
    assert counts["centre", "north"] == pytest.approx(150, abs=noise + 66)  # six errors of each
    assert sum(counts["ward", name] for name in "abc") == pytest.approx(450, abs=2 * noise + 114)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "ward: a" in page
    assert "Decision curve" in page
    assert all(one.holds for one in verify(tmp_path / "run"))


def exactly(study: Study) -> dict[tuple[str, str], float]:
    """By table the records that are counted without noise, at the first model."""
    prepared = prepare(study)
    query = prepared.plan.planned("validation").query
    sent = sum(
        task.clipped_sum(prepared.initial, np.arange(task.count))
        for task in prepared.tasks_of(query)
    )
    tables = query.layout.tables(sent, 0.0)
    return {(block.by, group): table.counts.sum() for block, group, table in tables}


@pytest.mark.slow
def test_exactly_the_records_that_are_held_back_are_counted(files: Path) -> None:
    study = study_of(files, validation={"by": BY, "centres": True})
    tables = exactly(study)
    held = [silo.held_back for silo in prepare(study).silos]
    assert tables["", ""] == pytest.approx(sum(map(len, held)))
    for name, one in zip(SILOS, held, strict=True):
        assert tables["centre", name] == pytest.approx(len(one))
    female = sum(int((one.groups[:, 0] == 0).sum()) for one in held)
    assert tables["sex", "F"] == pytest.approx(female)
    everybody = study_of(files, validation={"records": "training"})
    assert exactly(everybody)["", ""] == pytest.approx(2000)


def test_records_are_held_back_by_the_study_id_alone(files: Path) -> None:
    study = study_of(files)
    prepared = prepare(study)
    for silo in prepared.silos:
        assert held_back(silo.held_back, 0.3, study.id).all()
        assert not held_back(silo.records, 0.3, study.id).any()


@pytest.mark.slow
def test_all_records_of_a_patient_are_on_one_side(tmp_path: Path) -> None:
    write_silos(tmp_path / "data", 400, most=3)
    patients = {"patient": "who", "most_per_patient": 3, "records": 700}
    study = study_of(tmp_path / "data", data=patients, validation={"by": BY})
    result = run(study, tmp_path / "run")
    assert result.validation["unit"] == "patient"
    assert exactly(study)["", ""] == pytest.approx(
        sum(silo.held_back.units for silo in prepare(study).silos)
    )
    assert all(one.holds for one in verify(tmp_path / "run"))


@pytest.mark.slow
def test_a_validation_that_was_altered_is_found(files: Path, tmp_path: Path) -> None:
    run(study_of(files), tmp_path / "run")
    (tmp_path / "run" / "evidence.json").unlink()
    told = told_in(tmp_path / "run")
    told["all"]["scores"]["auc"]["value"] = 0.99
    (tmp_path / "run" / "validation.json").write_text(json.dumps(told))
    wrong = [one for one in verify(tmp_path / "run") if not one.holds]
    assert any("validation.json" in one.claim for one in wrong)


@pytest.mark.slow
def test_sums_that_no_transcript_makes_are_found(files: Path, tmp_path: Path) -> None:
    run(study_of(files), tmp_path / "run")
    (tmp_path / "run" / "evidence.json").unlink()
    kept = json.loads((tmp_path / "run" / "validation-sums.json").read_text())
    kept["sums"][0][0] += 1.0
    (tmp_path / "run" / "validation-sums.json").write_text(json.dumps(kept))
    wrong = [one for one in verify(tmp_path / "run") if not one.holds]
    assert any("validation-sums.json" in one.claim for one in wrong)


def rows_of(folder: Path) -> int:
    with Ledger(folder / "north.sqlite") as book:
        return sum(row.kind.purpose == "validation" for row in book.entries())


@pytest.mark.slow
def test_a_run_that_stops_before_the_validation_asks_it_once_when_it_goes_on(
    files: Path, tmp_path: Path
) -> None:
    def stop(step: int, _row: object) -> None:
        if step == 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(study_of(files), tmp_path / "run", ledgers=tmp_path / "ledgers", progress=stop)
    assert rows_of(tmp_path / "ledgers") == 0
    result = resume(tmp_path / "run")
    assert result.validation["refusal"] == ""
    assert rows_of(tmp_path / "ledgers") == 1
    assert all(one.holds for one in verify(tmp_path / "run"))


@pytest.mark.slow
def test_a_validation_that_was_made_is_not_asked_again(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(validation_query.ValidationQuery, "released", crash)
        with pytest.raises(KeyboardInterrupt):
            run(study_of(files), tmp_path / "run", ledgers=tmp_path / "ledgers")
    kept = (tmp_path / "run" / "validation-sums.json").read_text()
    result = resume(tmp_path / "run")
    assert (tmp_path / "run" / "validation-sums.json").read_text() == kept
    assert result.validation["refusal"] == ""
    assert rows_of(tmp_path / "ledgers") == 1
    assert all(one.holds for one in verify(tmp_path / "run"))


@pytest.mark.slow_cases("1")
@pytest.mark.parametrize("sums", [1, 2])
def test_a_sum_whose_step_was_lost_is_taken_from_the_transcript(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sums: int
) -> None:
    def crash(_: State, total: Array | None) -> State:
        if total is None:
            return {}
        raise KeyboardInterrupt

    study = study_of(files, validation={"sums": sums}, training={"steps": 3})
    with monkeypatch.context() as patch:
        patch.setattr(validation_query.ValidationQuery, "stepper", lambda *_: Folded(crash))
        with pytest.raises(KeyboardInterrupt):
            run(study, tmp_path / "run", ledgers=tmp_path / "ledgers")
    result = resume(tmp_path / "run")
    assert rows_of(tmp_path / "ledgers") == sums
    assert result.validation["refusal"] == ""
    assert result.model is not None
    assert "private validation" in str(result)


@pytest.mark.slow
def test_two_sums_say_as_much_as_one(files: Path) -> None:
    errors = [
        hubbub.plan(study_of(files, validation={"sums": sums})).planned("validation")
        for sums in (1, 2)
    ]
    once, twice = (one.total_sigma / np.sqrt(one.mechanism.steps) for one in errors)
    assert twice == pytest.approx(once, rel=0.01)


@pytest.mark.slow
def test_a_rehearsal_says_it_too(files: Path) -> None:
    (result,) = hubbub.rehearse(study_of(files))
    assert result.validation["all"]["scores"]["auc"]["value"] > 0.6


# Which records -----------------------------------------------------------------------------------


@pytest.mark.slow_cases("100000-4.0-held-back")
@pytest.mark.parametrize(
    ("records", "epsilon", "taken"), [(100_000, 4.0, "held-back"), (600, 0.5, "training")]
)
def test_the_plan_takes_held_back_records_where_they_are_enough(
    files: Path, records: int, epsilon: float, taken: str
) -> None:
    asked = {"records": "auto", "epsilon": epsilon}
    study = study_of(files, data={"records": records}, validation=asked)
    whose = whose_records(study)
    assert whose.held_back == (taken == "held-back")
    warned = [one for one in hubbub.plan(study).warnings if "may flatter" in one]
    assert len(warned) == (taken == "training")
    for words in warned:
        assert "too few could be held back" in words
        assert "its AUC by up to" in words
    training = hubbub.plan(study).main.query
    assert training.held_back == (0.3 if taken == "held-back" else 0.0)


@pytest.mark.slow
def test_a_plan_says_what_to_expect_and_which_records_are_taken(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "study.toml"
    file.write_text(study_of(files).as_toml())
    monkeypatch.setattr("sys.argv", ["hubbub", "plan", str(file), "--json"])
    assert main() in (0, None)
    said = json.loads(capsys.readouterr().out)["validation"]
    assert said["records"] == "held-back"
    assert said["errors"]["training"] < said["errors"]["held-back"]
    assert said["flatters"] > 0


# What is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"validation": {"epsilon": 7.9}}, "validation.epsilon"),
        ({"validation": {"bins": 3}}, "bins"),
        ({"validation": {"by": {"race": "categories"}}}, "race"),
        ({"validation": {"by": {"age": "categories"}}}, "break points"),
        ({"validation": {"by": {"age": [95]}}}, "break points"),
        ({"validation": {"records": "some"}}, "records"),
        ({"training": {"evaluate": {"every": 5, "epsilon": 0.5}}}, "validation.holdout"),
    ],
)
def test_a_validation_that_cannot_be_is_refused_by_name(
    files: Path, changed: dict[str, Any], why: str
) -> None:
    with pytest.raises(StudyError, match=why):
        study_of(files, **changed)


@pytest.mark.parametrize("where", ["validation", "statistics"])
def test_zero_is_one_break_point_whatever_its_sign(files: Path, where: str) -> None:
    """A study of -0.0 is the study of 0, and its class is not called "-0"."""
    made = []
    for zero in (0, -0.0):
        by: dict[str, Any] = {"by": {"age": [zero]}}
        asked = {"epsilon": 1.0, "t": {"kind": "table", "columns": ["sex"], **by}}
        table = table_of(files, **{where: asked if where == "statistics" else by})
        table["data"]["columns"] = {**table["data"]["columns"], "age": {"low": -9, "high": 90}}
        made.append(Study.from_table(table))
    assert made[0].id == made[1].id
    assert "-0.0" not in made[1].as_toml()


def test_a_study_without_one_keeps_its_id_and_one_with_it_is_written_back(files: Path) -> None:
    plain = table_of(files)
    del plain["validation"]
    assert b"validation" not in Study.from_table(plain).canonical
    study = study_of(files, validation={"by": BY, "centres": True, "sums": 2})
    assert Study.parse(study.as_toml()).id == study.id
    assert study.id != study_of(files).id


def databases(files: Path, home: Path) -> None:
    """A database for each silo with the rows of its file, each a patient of its own."""
    home.mkdir()
    lines = []
    for name in SILOS:
        with (files / f"{name}.csv").open() as file:
            head, *rows = list(csv.reader(file))
        with closing(sqlite3.connect(home / f"{name}.db")) as opened:
            opened.execute(f"CREATE TABLE stays ({', '.join(('pid', *head))})")
            marks = ", ".join("?" * (1 + len(head)))
            numbered = [(f"p{k}", *row) for k, row in enumerate(rows)]
            opened.executemany(f"INSERT INTO stays VALUES ({marks})", numbered)  # noqa: S608
            opened.commit()
        lines += [f"[{name}]", f'url = "sqlite:///{name}.db"']
    (home / "sources.toml").write_text("\n".join(lines))
    (home / "sources.toml").chmod(0o600)


@pytest.mark.slow
def test_groups_are_read_from_a_database_as_from_files(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break points of a column of a query: the same groups, and a run that verifies."""
    databases(files, tmp_path / "hubbub-home")
    monkeypatch.chdir(tmp_path)
    ages = {"kind": "table", "columns": ["sex"], "by": {"age": [60]}}
    asked = table_of(files, validation={"by": BY}, statistics={"epsilon": 0.5, "ages": ages})
    plain = Study.from_table(asked)
    queried = {key: one for key, one in asked["data"].items() if key != "files"} | {
        "source": "sql",
        "query": "SELECT pid, age, sex, ward, died FROM stays",
        "tables": {"stays": "pid"},
        "patient": "pid",
        "most_per_patient": 1,
    }
    made = Study.from_table(asked | {"data": queried})
    for name in SILOS:
        here, there = (silo_records.records(one, name, folder=tmp_path) for one in (plain, made))
        assert sorted(map(tuple, here.groups)) == sorted(map(tuple, there.groups))
    result = run(made, tmp_path / "run")
    groups = [one["by"] for one in result.validation["groups"]]
    assert groups == ["sex", "sex", "age", "age"]
    assert result.statistics["ages"].refusal == ""
    assert all(one.holds for one in verify(tmp_path / "run"))
