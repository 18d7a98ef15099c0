"""A study whose unit is the patient: what it may say, what it plans, and what is read of files."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hubbub
from hubbub import Study, plan
from hubbub.core.errors import DataError, StudyError
from hubbub.core.study import silo_records
from hubbub.core.tabular.cells import cells_of, read_cells
from hubbub.core.tabular.column import columns_from
from hubbub.core.tabular.records import Records, patient_key, patient_numbers
from hubbub.core.verification.replay.checking import verify
from hubbub.desk.cli import terminal
from hubbub.desk.cli.main import main
from hubbub.desk.drafting.table_check import checked
from hubbub.learning import TrainingTask
from hubbub.learning.runs.array_inputs import tables_of, with_patients
from hubbub.learning.runs.preparing import prepare

SILOS = ("north", "south", "west")


def study(**changes: dict[str, Any]) -> Study:
    made: dict[str, Any] = {
        "study": {"name": "patients"},
        "parties": {"names": list(SILOS), "colluders": 0},
        "data": {
            "files": "{name}.csv",
            "target": "ill",
            "records": 60,
            "patient": "pid",
            "most_per_patient": 3,
            "columns": {"dose": {"low": 0, "high": 1}},
        },
        "model": {"kind": "logistic"},
        "training": {"steps": 3, "sample_rate": 0.3},
        "privacy": {"epsilon": 4.0, "delta": 1e-5},
    }
    for key, values in changes.items():
        made[key] |= values
    made["data"] = {key: value for key, value in made["data"].items() if value is not None}
    return Study.from_table(made)


def table(rows: list[tuple[str, float, int]]) -> str:
    return "\n".join(["pid,dose,ill", *(f"{who},{dose},{ill}" for who, dose, ill in rows)]) + "\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Twenty patients of each silo with one to four rows, which are not beside each other."""
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(SILOS):
        rng = np.random.default_rng(number)
        rows = [
            (f"P{p}", round(rng.uniform(), 3), p % 2) for p in range(20) for _ in range(1 + p % 4)
        ]
        Path(f"{name}.csv").write_text(table([rows[i] for i in rng.permutation(len(rows))]))
    return tmp_path


# What a study may say -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"most_per_patient": None}, "the key data.most_per_patient, a whole number, got nothing"),
        ({"most_per_patient": 0}, "data.most_per_patient to be a whole number from 1 to 1000"),
        ({"most_per_patient": 1001}, "data.most_per_patient to be a whole number from 1 to 1000"),
        ({"patient": "ill"}, "data.patient to be a column that is neither the target nor"),
        ({"patient": "dose"}, "data.patient to be a column that is neither the target nor"),
        ({"patient": ""}, "data.patient to be a column that is neither the target nor"),
        ({"columns": None}, "data.patient to be beside data.columns"),
        (
            {"files": None, "columns": None, "source": "hubbub.datasets:heart"},
            "data.patient to be absent for a built-in source",
        ),
    ],
)
def test_a_patient_is_a_column_of_its_own_with_a_public_cap(
    data: dict[str, Any], says: str
) -> None:
    with pytest.raises(StudyError, match=says):
        study(data=data)


def test_patients_are_part_of_the_id_and_of_the_text() -> None:
    plain = study(data={"patient": None, "most_per_patient": None})
    whole, alone = study(), study(data={"patient": None})
    assert len({plain.id, whole.id, alone.id, study(data={"most_per_patient": 4}).id}) == 4
    for one in (whole, alone):
        assert Study.parse(one.as_toml()).id == one.id


# What it plans ------------------------------------------------------------------------------------


def test_the_promise_to_a_patient_is_the_studys_own() -> None:
    made = plan(study())
    assert made.patient is not None
    assert made.noise_multiplier == plan(study(data={"patient": None})).noise_multiplier
    assert made.patient.epsilon == made.stated.epsilon
    assert made.patient.who == "a patient with up to 3 records"
    assert replace(made.patient, records=1).who == "a patient with up to 1 record"
    twice = made.patient.in_two_silos
    assert twice is not None
    assert made.stated.epsilon < twice < 50
    step = {"noise_multiplier": made.noise_multiplier, "sample_rate": 0.3, "steps": 3}
    exact = hubbub.epsilon(delta=1e-5, records_per_unit=2, **step)
    assert exact.lower <= twice <= exact.upper * 1.001  # what finite precision adds
    assert any("a patient of two silos is two units" in one for one in made.warnings)
    assert made.to_dict()["unit"] == "patient"


def test_p20_a_patient_of_two_silos_is_two_units_in_every_query() -> None:
    made = plan(study(training={"evaluate": {"every": 1, "epsilon": 1.0}}))
    assert made.patient is not None
    (scores,) = made.beside
    whole = [
        hubbub.Step(
            noise_multiplier=made.noise_multiplier, sample_rate=0.3, count=3, records_per_unit=2
        ),
        hubbub.Step(
            noise_multiplier=scores.noise_multiplier,
            sampling="full-batch",
            count=3,
            records_per_unit=2,
        ),
    ]
    exact = hubbub.composed_epsilon(whole, delta=1e-5)
    assert exact.lower <= made.patient.in_two_silos <= exact.upper * 1.001


def test_the_cap_alone_shows_what_a_patient_is_promised() -> None:
    """Each record is a unit: the patient's row is that of P20."""
    made = plan(study(data={"patient": None}))
    assert made.patient is not None
    step = {"noise_multiplier": made.noise_multiplier, "sample_rate": 0.3, "steps": 3}
    exact = hubbub.epsilon(delta=1e-5, records_per_unit=3, **step)
    assert made.patient.epsilon is not None
    assert exact.lower <= made.patient.epsilon <= exact.upper * 1.001
    assert made.to_dict()["unit"] == "record"
    assert any("in data.patient to protect patients" in one for one in made.warnings)
    one = plan(study(data={"patient": None, "most_per_patient": 1}))
    assert one.patient is not None
    assert one.patient.epsilon == one.stated.epsilon


def test_evaluation_and_standardisation_are_in_a_patients_row() -> None:
    asked = {"training": {"evaluate": {"every": 1, "epsilon": 1.0}}}
    found = []
    for changes in ({}, asked):
        made = plan(study(**changes, data={"patient": None}))
        assert made.patient is not None
        assert made.patient.epsilon is not None
        found.append(made.patient.epsilon / made.stated.epsilon)
    assert found[1] > 1.5


@pytest.mark.parametrize(
    "training",
    [
        pytest.param(
            {"sampling": "without-replacement", "sample_rate": 0.3}, marks=pytest.mark.slow
        ),
        {"sample_rate": 0.3},
    ],
)
def test_a_patients_row_without_an_account_is_left_open(training: dict[str, Any]) -> None:
    changes = {"training": training, "privacy": {"relation": "substitute"}}
    alone = plan(study(data={"patient": None}, **changes)).patient
    whole = plan(study(**changes))
    assert alone is not None
    assert alone.epsilon is None
    assert whole.patient is not None
    assert whole.patient.epsilon == whole.stated.epsilon  # one unit has the study's account
    assert whole.patient.in_two_silos is None
    # By group privacy: twice epsilon, at 1 + e^epsilon times delta.
    epsilon = whole.stated.epsilon
    both = f"together is at most {2 * epsilon:.4g}, at delta {(1 + exp(epsilon)) * 1e-5:.2g}"
    assert any(both in one for one in whole.warnings)


@pytest.mark.slow
def test_the_plan_and_the_report_speak_of_patients(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("study.toml").write_text(study().as_toml())
    monkeypatch.setattr(terminal._out, "width", 300)
    assert main(["plan", "study.toml"]) == 0
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "about one patient" in said
    assert "about a patient" not in said  # as each row is
    assert "with up to 3 records" in said
    result = hubbub.run(study(), out=home / "run")
    page = result.report().read_text()
    assert "a patient with up to 3 records" in page
    assert "any single patient" in page
    alone = hubbub.run(study(data={"patient": None}), out=home / "alone")
    assert "weaker: the guarantee is for one record" in alone.report().read_text()


# What is read -------------------------------------------------------------------------------------


def test_rows_of_a_patient_are_one_unit_and_no_more_than_the_cap(home: Path) -> None:
    found = silo_records.records(study(), "north")
    assert found.units == 20
    assert found.patients is not None
    assert np.bincount(found.patients).max() == 3
    assert len(found) == 5 * (1 + 2 + 3 + 3)
    whole = prepare(study())
    assert [task.count for task in whole.tasks] == [20, 20, 20]
    assert "patients" not in repr(found)
    with pytest.raises(DataError, match=r"state data\.capacity as large as it is"):
        prepare(study(data={"capacity": 19}))
    prepare(study(data={"capacity": 20}))  # of patients, not of rows


def test_a_spelling_is_a_patient_and_a_gap_is_nobody(home: Path) -> None:
    Path("north.csv").write_text(table([("7", 0.1, 0), ("7.0", 0.2, 1), ("07", 0.3, 1)]))
    assert silo_records.records(study(), "north").units == 2
    Path("north.csv").write_text(table([("7", 0.1, 0), ("", 0.2, 1)]))
    with pytest.raises(DataError, match=r"none in north\.csv, column 'pid', row 2"):
        silo_records.records(study(), "north")
    Path("north.csv").write_text("dose,ill\n0.1,1\n")
    with pytest.raises(DataError, match="expected a column 'pid'"):
        silo_records.records(study(), "north")


def test_a_key_too_long_to_compose_is_nobodys():
    assert patient_key("a" + "\u0301\u0316" * 500_000) == patient_key("7" * 1001) == ""
    assert patient_key("7" * 1000) == "7" * 1000


@pytest.mark.parametrize("key", ["1.1010519491231233e+17", "110105194912312330.0", "1e+17"])
def test_a_key_that_a_program_has_rounded_is_several_patients(home: Path, key: str) -> None:
    """Of 18 digits, as read by a program that makes floats of them: several people have it."""
    Path("north.csv").write_text(table([("P1", 0.1, 0), (key, 0.2, 1)]))
    with pytest.raises(DataError, match="several of them share"):
        silo_records.records(study(), "north")
    assert patient_key(key) == ""
    assert [*map(patient_key, ("12E45", "110105194912312330", "1e3", "7.5"))] == [
        *("12E45", "110105194912312330", "1e3", "7.5")
    ]


@pytest.mark.parametrize("key", ["1.23E+11", "1,23E+11", "1E+12", "1.23457E+14"])
def test_a_key_that_a_spreadsheet_has_shown_in_powers_of_ten_is_several_patients(
    home: Path, key: str
) -> None:
    Path("north.csv").write_text(table([("P1", 0.1, 0), (f'"{key}"', 0.2, 1)]))
    with pytest.raises(DataError, match=r"number in powers of ten .*row 2.*several of them share"):
        silo_records.records(study(), "north")
    assert patient_key(key) == ""
    assert f"'{key}' is a number whose digits a program has rounded" in checked_words()
    kept = ("1.23E11", "1.0E7", "1.23e+11", "123000000000.0")  # of programs that lose no digit
    assert len({*map(patient_key, kept), ""}) == 5


@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_a_key_of_a_short_type_is_told_from_its_column_in_files_and_frames(
    home: Path, kind: str
) -> None:
    """Parquet, Arrow and pandas hand on its values as floats of 53 bits, which hold it exactly."""
    pa = pytest.importorskip("pyarrow")
    first = 2 ** (24 if kind == "float32" else 11)
    for keys, fits in (([first, first + 1], False), ([first - 1, 7], True)):
        rows = {"pid": np.array(keys).astype(kind), "dose": [0.1, 0.2], "ill": [0, 1]}
        frame = pa.table(rows)
        if kind == "float32":  # Parquet has no shorter ones
            pytest.importorskip("pyarrow.parquet").write_table(frame, "north.parquet")
            frame = read_cells(Path("north.parquet"))
        cells = cells_of(frame)
        if fits:
            assert patient_numbers(cells["pid"]).tolist() == [0, 1]
            continue
        with pytest.raises(DataError, match="number in powers of ten at 0"):
            patient_numbers(cells["pid"])
        assert [*map(float, cells["pid"])] == [first, first]  # a number of a column as before


@pytest.mark.parametrize(("kind", "bits"), [(np.float32, 24), (np.float16, 11)])
def test_a_number_of_a_short_type_that_several_whole_ones_share_is_nobodys_key(
    kind: type, bits: int
) -> None:
    """2**24 + 1 is 2**24 in float32: two people would be one unit."""
    keys = np.array([2**bits, 2**bits + 1]).astype(kind)
    assert keys[0] == keys[1]
    columns = columns_from({"age": {"low": 0, "high": 9}})
    for given in (keys, [*keys], torch.from_numpy(keys)):
        with pytest.raises(DataError, match=rf"past 2\*\*{bits} of north, at 0"):
            with_patients("north", owned(None, 2), {"north": given})
        with pytest.raises(DataError, match=rf"past 2\*\*{bits} of north, at 0"):
            tables_of({"north": {"age": [1, 2]}}, columns, {"north": given}, 2)
    with pytest.raises(DataError, match=rf"past 2\*\*{bits} of north, at 0"):
        tables_of({"north": {"age": [1, 2], "id": keys}}, columns, "id", 2)
    exact = {"north": np.array([2**bits - 1, 7, 7]).astype(kind)}
    assert with_patients("north", owned(None, 3), exact).units == 2


ONE_PATIENT = [
    (["7", " 7", "7.0", "7\t"], 1),
    (["Zoe\u0308", "Zo\u00eb"], 1),  # two dots of their own, and in the letter
    (["01", "1"], 2),
    (["a1", "A1"], 2),
    (["a 1", "a1"], 2),
]


@pytest.mark.parametrize(("keys", "many"), ONE_PATIENT)
def test_a_key_is_read_alike_from_files_functions_arrays_and_by_check(
    home: Path, keys: list[str], many: int
) -> None:
    """One rule: what is one patient in a file is one everywhere else."""
    Path("north.csv").write_text(table([(key, 0.1, 0) for key in keys]))
    found = [
        silo_records.records(study(), "north").units,
        owned(np.array(keys)).units,
        with_patients("north", owned(None, len(keys)), {"north": keys}).units,
        len({patient_key(key) for key in keys}),
    ]
    assert found == [many] * 4
    if many == 1:
        assert "look alike" not in checked_words()


def test_missing_values_of_arrays_and_frames_are_nobodys() -> None:
    for gap in (None, float("nan"), np.float32("nan"), np.datetime64("NaT")):
        for keys in ([7, gap], np.array([7, gap], dtype=object)):
            with pytest.raises(DataError, match="none of north, at 1"):
                with_patients("north", owned(None, 2), {"north": keys})
    assert with_patients("north", owned(None, 2), {"north": np.array([[7], [7.0]])}).units == 1
    assert with_patients("north", owned(None, 2), {"north": [7, "7"]}).units == 1


@pytest.mark.parametrize("keys", [[Decimal("3.50"), Decimal("3.5")], [b"7", 7], [0.0, "-0.0"]])
def test_equal_keys_of_any_type_are_one_patient_beside_a_table_and_in_it(keys: list[Any]) -> None:
    columns, table = columns_from({"age": {"low": 0, "high": 9}}), {"age": [1, 2], "id": keys}
    assert with_patients("north", owned(None, 2), {"north": keys}).units == 1
    for whose in ("id", {"north": keys}):
        held = tables_of({"north": table}, columns, whose, 2).cells["north"].units
        assert held is not None
        assert len(held.rows) == 1


@pytest.mark.parametrize(
    "key", ["", "  ", "\u00a0", "nan", "NaN", "None", "<NA>", "NaT", "NA", "NULL"]
)
def test_a_missing_key_is_refused_everywhere_and_never_one_patient(home: Path, key: str) -> None:
    Path("north.csv").write_text(table([("P1", 0.1, 0), (key, 0.2, 1)]))
    with pytest.raises(DataError, match="a patient for every record, found none in north"):
        silo_records.records(study(), "north")
    with pytest.raises(DataError, match="a patient for every record, found none at 1"):
        owned(np.array(["P1", key]))
    with pytest.raises(DataError, match="a patient for every record, found none of north, at 1"):
        with_patients("north", owned(None, 2), {"north": ["P1", key]})
    assert "belongs to nobody" in checked_words()


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (("01", "1"), "'01' and '1'"),
        (("P-007", "p7"), "'P-007' and 'p7'"),
        (("Ärmel", "Armel"), "'Ärmel' and 'Armel'"),
        (("A\u200b1", "A1"), "look alike"),
        (("\uff11\uff12", "12"), "look alike"),
        (("unknown", "P1"), "'unknown' looks like a missing value"),
        (("\u200b", "P1"), "looks like a missing value"),
    ],
)
def test_a_check_shows_keys_that_may_be_one_patients(
    home: Path, keys: tuple[str, str], words: str
) -> None:
    Path("north.csv").write_text(table([(key, 0.1, 0) for key in (*keys, "B2")]))
    assert words in checked_words()
    Path("north.csv").write_text(table([("1-12", 0.1, 0), ("11-2", 0.2, 1), ("B2", 0.1, 0)]))
    assert "look" not in checked_words()


@pytest.mark.slow
def test_a_tidy_copy_does_not_hide_keys_that_look_alike(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Patients are numbered anew in it: a check of the copy cannot see them."""
    text = Path("north.csv").read_text().splitlines()
    Path("north.csv").write_text("\n".join([*text, "p01,0.5,1", "P-1,0.5,1"]) + "\n")
    options = ["--target", "ill", "--patient", "pid", "--tidy", "tidy", "--json"]
    assert main(["init", *(f"{name}.csv" for name in SILOS), *options]) == 0
    said = json.loads(capsys.readouterr().out)
    (fault,) = [one for one in said["faults"] if "look alike" in one["found"]]
    assert fault["file"] == "north.csv"


def owned(patients: Any, rows: int = 0) -> Records:
    """Records that differ in nothing but whose they are."""
    rows = rows if patients is None else len(patients)
    targets = np.zeros(rows, np.float32)
    return Records(inputs=np.ones((rows, 1), np.float32), targets=targets, patients=patients)


def checked_words() -> str:
    """What a check says of the patients of north."""
    faults = checked(study(), ["north"], Path())
    return " ".join(fault.what for fault in faults if fault.column == "pid")


def test_a_functions_records_say_whose_they_are_where_the_study_does() -> None:
    plain = Records(inputs=np.ones((2, 1), np.float32), targets=np.zeros(2, np.float32))
    whose = Records(inputs=plain.inputs, targets=plain.targets, patients=np.array([1, 1]))
    with_patients, without = study().data, study(data={"patient": None}).data
    assert silo_records.units_of(with_patients, "north", whose).units == 1
    assert silo_records.units_of(with_patients, "test", whose).patients is None
    for data, records in ((with_patients, plain), (without, whose)):
        with pytest.raises(DataError, match=r"as data\.patient says"):
            silo_records.units_of(data, "north", records)


# Whole runs ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_everything_that_trains_knows_patients(home: Path) -> None:
    changes = {
        "data": {"standardise": {"epsilon": 0.5}},
        "training": {"evaluate": {"every": 1, "epsilon": 0.5}},
    }
    one = study(**changes)
    assert hubbub.run(one).final["step"] == 3
    for baseline in ("trusted", "local-dp", "alone", "non-private"):
        assert hubbub.run(one, baseline=baseline).final["step"] == 3
    assert hubbub.rehearse(one)[0].final["step"] == 3
    assert hubbub.audit(one, runs=2, canaries=50).canaries == 50  # each is a unit


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"training": {"projection": 2, "projection_kind": "layers"}},
        {
            "training": {"sampling": "without-replacement", "sample_rate": 0.2},
            "privacy": {"relation": "substitute"},
        },
    ],
)
def test_patients_are_projected_and_drawn_jointly(home: Path, changes: dict[str, Any]) -> None:
    assert hubbub.run(study(**changes)).final["step"] == 3


@pytest.fixture
def sums(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[set[int]]]:
    """By each silo's task, which units were in each of its sums; no sum is longer than they are."""
    seen: dict[int, list[set[int]]] = {}
    plain = TrainingTask.clipped_sum

    def clipped_sum(task: TrainingTask, parameters: Any, rows: Any) -> Any:
        found, units = plain(task, parameters, rows), rows[rows >= 0].tolist()
        assert np.linalg.norm(found) <= len(units) * 0.5
        assert len(set(units)) == len(units)
        seen.setdefault(id(task), []).append(set(units))
        return found

    monkeypatch.setattr(TrainingTask, "clipped_sum", clipped_sum)
    return seen


@pytest.mark.slow
def test_a_patient_is_in_at_most_one_of_so_many_correlated_steps(
    home: Path, sums: dict[int, list[set[int]]]
) -> None:
    """The turns are those of patients (P25), however many rows they have."""
    asked = {"noise": "correlated", "bands": 3, "steps": 6, "sample_rate": 0.3, "clip_norm": 0.5}
    asked |= {"optimizer": {"name": "sgd", "lr": 0.5}}
    result = hubbub.run(study(training=asked), out=home / "run")
    assert result.final["step"] == 6
    assert len(sums) == 3
    for steps in sums.values():
        assert all(one <= set(range(20)) for one in steps)
        for turn in range(3):
            mine = set().union(*steps[turn::3])
            others = set().union(*(one for at, one in enumerate(steps) if at % 3 != turn))
            assert not mine & others
        assert len(set().union(*steps)) > 3  # of 20, each of whom is left out with a chance of .1^2
    assert all(one.holds for one in verify(home / "run"))


@pytest.mark.slow
def test_fit_takes_patients_beside_the_records() -> None:
    rng = np.random.default_rng(0)
    inputs = rng.uniform(-1, 1, (30, 2))
    silos = {name: (inputs, (inputs[:, 0] > 0).astype(int)) for name in SILOS}
    whose = dict.fromkeys(SILOS, np.repeat([f"p{k}" for k in range(10)], 3))
    result = hubbub.fit(silos, epsilon=8, steps=2, patients=whose, most_per_patient=3)
    assert result.plan.study.data.records == 30
    assert result.plan.study.data.unit == "patient"
    with pytest.raises(StudyError, match=r"data\.most_per_patient"):
        hubbub.fit(silos, epsilon=8, patients=whose)
    lacking, gaps = {name: whose[name] for name in SILOS[:2]}, whose | {"north": [None] * 30}
    with pytest.raises(DataError, match="expected the patients of west"):
        hubbub.fit(silos, epsilon=8, patients=lacking, most_per_patient=3)
    with pytest.raises(DataError, match="for every record, found none of north, at 0"):
        hubbub.fit(silos, epsilon=8, patients=gaps, most_per_patient=3)


# Drafts and checks --------------------------------------------------------------------------------


def test_a_draft_of_patients_is_ready_and_its_tidy_copies_name_nobody(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [f"{name}.csv" for name in SILOS]
    options = ["--target", "ill", "--patient", "pid", "--tidy", "tidy"]
    assert main(["init", *files, *options, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ready"]
    assert "data.most_per_patient" in found["private"]
    drafted = Study.load("study.toml")
    assert drafted.data.patient == "pid"
    assert drafted.data.most_per_patient == 5  # four, rounded up
    assert drafted.data.records == 60
    assert drafted.data.capacity == (30,)
    assert "P1" not in Path("tidy/north.csv").read_text()
    assert silo_records.records(drafted, "north").units == 20
    assert main(["init", *files, "--patient", "who", "--out", "other.toml"]) == 2
    assert "expected --patient to name a column" in capsys.readouterr().err


def test_a_check_says_what_is_wrong_with_patients(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("study.toml").write_text(study(data={"test": "test.csv"}).as_toml())
    Path("test.csv").write_text("dose,ill\n" + "0.5,1\n0.1,0\n" * 10)  # needs no patients
    assert main(["check", "study.toml"]) == 0
    assert "records past the 3 that count for each patient" in capsys.readouterr().out
    Path("west.csv").write_text(table([("", 0.1, 0), ("P1", 0.2, 1)]))
    Path("south.csv").write_text("dose,ill\n0.1,1\n")
    assert main(["check", "study.toml"]) == 2
    said = capsys.readouterr().out
    assert "belongs to nobody" in said
    assert "south.csv" in said
