"""Coefficients from files to the page, and after whatever goes wrong on the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.learning.coefficients.made_up import LOGARITHM, STAGES, study_of, table_of, write_silos

import hubbub
from hubbub.core.errors import StudyError
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.study.study import Study
from hubbub.core.verification.replay.checking import verify
from hubbub.desk.cli.main import main
from hubbub.estimation.queries.sum_layout import SumLayout
from hubbub.learning.queries.coefficients.coefficients_query import (
    COEFFICIENT_SUMS,
    CoefficientsQuery,
)
from hubbub.learning.runs.run_study import resume, run

NAME = "model coefficients"
TOO_MANY = STAGES | {
    "classes": [str(place) for place in range(14)],
    "columns": {f"x{place}": {"low": 0, "high": 1} for place in range(5)},
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("silos")
    write_silos(folder)
    return folder


def rows_of(folder: Path) -> int:
    with Ledger(folder / "north.sqlite") as book:
        return sum(row.kind.purpose == "coefficients" for row in book.entries())


@pytest.mark.slow
def test_odds_ratios_are_told_with_intervals_and_made_again(files: Path, tmp_path: Path) -> None:
    result = run(study_of(files), tmp_path / "run")
    answer = result.statistics[NAME]
    told = {(row.column, row.level): row for row in answer.rows}
    age, sex = told["age", "per unit"], told["sex", "M against F"]
    assert age.quantity == "odds ratio"
    # By which they were made up: 1.3 / 13 a year, and 1.3 * .8.
    for row, wanted in ((age, 0.1), (sex, 1.04)):  # false alarms: 4e-9
        assert abs(np.log(row.value) - wanted) < 6 * row.standard_error
        assert row.low < row.value < row.high
    assert age.standard_error < 0.02
    assert abs(np.log(age.value) - 0.3) > 6 * age.standard_error
    assert result.epsilon <= 24.0
    kept = json.loads((tmp_path / "run" / "coefficients.json").read_text())
    assert kept["statistics"][NAME] == json.loads(json.dumps(answer.to_dict()))
    assert kept["epsilon"] <= 16.0
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Coefficients of the model" in page
    assert "M against F" in page
    assert (tmp_path / "run" / "tables" / "model-coefficients.csv").is_file()
    assert all(one.holds for one in verify(tmp_path / "run"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "quantity", "wanted", "sums"),
    [  # of a year, and of men: by which they were made up
        ("numeric", "slope", (12 / 13, 9.6), 2),
        ("time-to-event", "hazard ratio", (np.exp(0.6 / 13), np.exp(0.48)), 10),
    ],
)
def test_amounts_have_slopes_and_times_hazard_ratios(
    files: Path, tmp_path: Path, kind: str, quantity: str, wanted: tuple[float, float], sums: int
) -> None:
    much = {"privacy": {"epsilon": 44.0}, "coefficients": {"epsilon": 30.0}}  # rows may be withheld
    result = run(study_of(files, kind, **much), tmp_path / "run")
    answer = result.statistics[NAME]
    told = {(row.column, row.level): row for row in answer.rows}
    for key, value in zip((("age", "per unit"), ("sex", "M against F")), wanted, strict=True):
        row = told[key]
        assert row.quantity in (quantity, "difference")
        ratio = row.error_of == "logarithm"
        apart = np.log(row.value / value) if ratio else row.value - value
        assert abs(apart) < 6 * row.standard_error
        assert row.low < row.value < row.high
    assert result.plan.planned("coefficients").mechanism.steps == sums
    assert all(one.holds for one in verify(tmp_path / "run"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "changed", "quantity", "wanted"),
    [  # of a year, and of men: what statsmodels says of these files
        ("count", {}, "rate ratio", (0.03076, 0.3492)),
        ("classes", {"data": STAGES, "model": {"outputs": 3}}, "odds ratio", (0.1230, 1.187)),
        ("numeric", {"data": LOGARITHM}, "ratio of geometric means", (0.01974, 0.2085)),
    ],
)
def test_counts_several_classes_and_logarithms_have_ratios(
    files: Path,
    tmp_path: Path,
    kind: str,
    changed: dict[str, Any],
    quantity: str,
    wanted: tuple[float, float],
) -> None:
    result = run(study_of(files, kind, **changed), tmp_path / "run")
    answer = result.statistics[NAME]
    of = "III against I" if quantity == "odds ratio" else ""
    told = {(row.column, row.level): row for row in answer.rows if row.group == of}
    for key, effect in zip((("age", "per unit"), ("sex", "M against F")), wanted, strict=True):
        row = told[key]
        assert row.quantity == quantity
        assert row.low < row.value < row.high
        assert abs(np.log(row.value) - effect) < 6 * row.standard_error
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Coefficients of the model" in page
    assert of in page
    assert (tmp_path / "run" / "tables" / "model-coefficients.csv").read_text().count(quantity) > 3
    assert all(one.holds for one in verify(tmp_path / "run"))


@pytest.mark.slow
def test_they_stand_beside_a_validation_and_statistics(files: Path, tmp_path: Path) -> None:
    more: dict[str, Any] = {
        "validation": {"epsilon": 1.0},
        "statistics": {"epsilon": 1.0, "table": {"kind": "table", "columns": ["age", "sex"]}},
        "coefficients": {"epsilon": 12.0},
    }
    result = run(study_of(files, **more), tmp_path / "run")
    assert result.validation is not None
    assert set(result.statistics) == {"table", NAME}
    assert all(one.holds for one in verify(tmp_path / "run"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["coefficients.json", "coefficient-sums.json"])
def test_what_was_altered_is_found(files: Path, tmp_path: Path, name: str) -> None:
    run(study_of(files), tmp_path / "run")
    (tmp_path / "run" / "evidence.json").unlink()
    told = json.loads((tmp_path / "run" / name).read_text())
    if "kept" in told:
        told["kept"][-1] += 1.0
    else:
        told["statistics"][NAME]["rows"][0]["value"] = 0.99
    (tmp_path / "run" / name).write_text(json.dumps(told))
    wrong = [one for one in verify(tmp_path / "run") if not one.holds]
    assert any(name in one.claim for one in wrong)


@pytest.mark.slow
def test_a_run_that_stops_before_them_asks_for_them_once_when_it_goes_on(
    files: Path, tmp_path: Path
) -> None:
    def stop(step: int, _row: object) -> None:
        if step == 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(study_of(files), tmp_path / "run", ledgers=tmp_path / "ledgers", progress=stop)
    assert rows_of(tmp_path / "ledgers") == 0
    result = resume(tmp_path / "run")
    assert result.statistics[NAME].rows
    assert rows_of(tmp_path / "ledgers") == 8
    assert all(one.holds for one in verify(tmp_path / "run"))


@pytest.mark.slow
@pytest.mark.parametrize("sums", [1, 2])
def test_a_sum_whose_step_was_lost_is_taken_from_the_transcript_and_the_model_stays(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sums: int
) -> None:
    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SumLayout, "after", crash)
        with pytest.raises(KeyboardInterrupt):
            run(
                study_of(files, coefficients={"sums": sums}),
                tmp_path / "run",
                ledgers=tmp_path / "ledgers",
            )
    result = resume(tmp_path / "run")
    assert rows_of(tmp_path / "ledgers") == (1 if sums == 1 else 8)
    assert "lost" not in result.statistics[NAME].refusal
    assert result.model is not None


@pytest.mark.slow
def test_a_run_that_stops_between_two_sums_takes_the_second_where_the_first_one_led(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CoefficientsQuery.store

    def stop(query: CoefficientsQuery, folder: Path, state: Any) -> None:
        store(query, folder, state)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(CoefficientsQuery, "store", stop)
        with pytest.raises(KeyboardInterrupt):
            run(study_of(files, "count"), tmp_path / "run", ledgers=tmp_path / "ledgers")
    assert rows_of(tmp_path / "ledgers") == 1
    kept = json.loads((tmp_path / "run" / COEFFICIENT_SUMS).read_text())["kept"]
    result = resume(tmp_path / "run")
    assert rows_of(tmp_path / "ledgers") == 8
    both = json.loads((tmp_path / "run" / COEFFICIENT_SUMS).read_text())["kept"]
    numbers = result.plan.planned("coefficients").query.numbers
    assert (kept[0], both[0]) == (1, 8)
    first = slice(-8 * numbers, -7 * numbers)
    assert both[first] == kept[first]
    assert any(both[-numbers:])
    assert result.statistics[NAME].rows
    assert all(one.holds for one in verify(tmp_path / "run"))


@pytest.mark.slow
def test_patients_are_the_unit(tmp_path: Path) -> None:
    write_silos(tmp_path / "data", 400, most=3)
    patients = {"patient": "who", "most_per_patient": 3, "records": 700}
    result = run(study_of(tmp_path / "data", data=patients), tmp_path / "run")
    kept = json.loads((tmp_path / "run" / "coefficients.json").read_text())
    assert kept["unit"] == "patient"
    assert NAME in result.statistics
    assert all(one.holds for one in verify(tmp_path / "run"))


def test_a_plan_says_how_exact_they_will_be(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "study.toml"
    file.write_text(study_of(files).as_toml())
    monkeypatch.setattr("sys.argv", ["hubbub", "plan", str(file), "--json"])
    assert main() in (0, None)
    said = capsys.readouterr().out
    assert "standard error of the logarithm of an odds ratio" in said


@pytest.mark.parametrize(
    ("kind", "changed", "why"),
    [
        ("classes", {"model": {"kind": "mlp", "hidden": [4]}}, "one linear layer"),
        (
            "classes",
            {"data": TOO_MANY, "model": {"outputs": 14}},
            "more than 60 effects, of which there are 77",
        ),
        ("classes", {"coefficients": {"epsilon": 22.9}}, "coefficients.epsilon"),
        ("classes", {"coefficients": {"sums": 0}}, "sums"),
        ("classes", {"model": {"bias": False}}, "intercept"),
        ("classes", {"data": {"standardise": {"epsilon": 0.5}}}, "data.standardise"),
    ],
)
def test_coefficients_that_cannot_be_are_refused_in_words(
    files: Path, kind: str, changed: dict[str, Any], why: str
) -> None:
    with pytest.raises(StudyError, match=why):
        study_of(files, kind, **changed)


def test_a_study_without_them_keeps_its_id_and_one_with_them_is_written_back(files: Path) -> None:
    plain = table_of(files)
    del plain["coefficients"]
    assert b"coefficients" not in Study.from_table(plain).canonical
    study = study_of(files, coefficients={"sums": 3})
    assert Study.parse(study.as_toml()).id == study.id
    assert study.id != study_of(files).id
    assert hubbub.plan(study).planned("coefficients").mechanism.steps == 8


def test_coefficients_that_would_not_stand_out_are_refused_before_anything_is_spent(
    tmp_path: Path,
) -> None:
    """As statistics are: no epsilon is spent on answers of which the plan says that none comes."""
    write_silos(tmp_path)
    weak = study_of(tmp_path, coefficients={"epsilon": 0.01})
    with pytest.raises(StudyError, match=r"coefficients\.epsilon = 0\.01, where none would; raise"):
        run(weak, tmp_path / "run")
    assert [*tmp_path.rglob("*.sqlite")] == []
