"""`hubbub check`: all that a run would refuse, at once; and that a run and a silo do refuse it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hubbub
from drafting.messy import CASES, clean, column, lay, mixed_case, text, without
from hubbub import Study
from hubbub.core.errors import DataError
from hubbub.core.study import silo_records
from hubbub.core.tabular.records import patient_numbers
from hubbub.desk.cli import drafting_commands
from hubbub.desk.cli.main import main
from hubbub.desk.drafting.table_check import checked

STUDY = """
[study]
name = "who died"
[parties]
names = ["north", "south", "west"]
colluders = 1
[data]
files = "{name}.csv"
target = "died"
positive = ["yes"]
negative = ["no"]
records = 120
capacity = 50
[data.columns]
age = { low = 30, high = 90, default = 60, missing = ["NA"] }
sex = { categories = ["F", "M"] }
pressure = { low = 80, high = 200 }
smoker = { categories = ["never", "smoker"], default = "never" }
[model]
kind = "logistic"
inputs = [4]
[training]
steps = 2
sampling = "full-batch"
[privacy]
epsilon = 1.0
delta = 1e-5
"""
SILOS = ("north", "south", "west")


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """A folder with the study and clean files, in which one is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(STUDY)
    lay("clean", tmp_path)
    return tmp_path


@pytest.fixture
def check(capsys):
    """Runs `hubbub check` for people: the exit code, and what is printed on one line."""

    def run(*arguments: object) -> tuple[int, str]:
        capsys.readouterr()
        code = main(["check", "study.toml", *map(str, arguments)])
        said = capsys.readouterr()
        assert said.err == ""
        return code, said.out

    return run


def spoil(home: Path, change, name: str = "north") -> None:
    """Change one silo's file."""
    rows = clean()[name]
    change(rows)
    (home / f"{name}.csv").write_text(text(rows))


def test_clean_files_are_no_trouble(home, check):
    assert check() == (0, "a run can read the files of north, south, west\n")


def test_who_has_large_files_is_told_before_they_are_read(home, capsys, monkeypatch):
    """A million rows had been looked at for minutes without a word."""
    monkeypatch.setattr(drafting_commands, "_LARGE", 1000)
    assert main(["check", "study.toml"]) == 0
    assert main(["init", *(f"{name}.csv" for name in SILOS), "--replace"]) == 0
    assert capsys.readouterr().err.count("kB of records: every cell is looked at") == 2


@pytest.mark.quick_cases("tabs", "latin-1 bytes", "UTF-16 without a mark", "mixed case labels")
@pytest.mark.parametrize("case", CASES)
def test_what_the_check_calls_wrong_is_what_a_run_refuses(case, home):
    for name in SILOS:
        (home / f"{name}.csv").unlink()
    lay(case, home)
    study = Study.parse(STUDY)
    for name in SILOS:
        faults = [one for one in checked(study, [name], home) if one.refused]
        faults = [one for one in faults if "only one class" not in one.what]
        try:
            silo_records.records(study, name)
        except DataError:
            assert faults, name
        else:
            assert not faults, (name, faults)


def test_all_is_said_at_once_with_file_column_and_row(home, check):
    spoil(home, mixed_case)
    spoil(home, lambda rows: column(rows, "pressure", lambda k, c: "1,5" if k == 4 else c), "south")
    spoil(home, without("age"), "west")
    code, out = check()
    assert code == 2
    assert "north.csv, column 'died', row 2 after the header (and " in out
    assert "differs from 'no' only in case or spaces; write 'no'" in out
    assert "south.csv, column 'pressure', row 5 after the header: '1,5' has a decimal comma" in out
    assert "west.csv, column 'age': the header has no column of this name" in out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: column(rows, "age", lambda k, c: "n/a" if k else c), "a missing value"),
        (lambda rows: column(rows, "sex", lambda k, c: "m" if k else c), "only in case or spaces"),
        (
            lambda rows: column(rows, "sex", lambda k, c: "x" if k else c),
            "not one of the 2 declared categories",
        ),
        (lambda rows: column(rows, "pressure", lambda *_: "12 %"), "write 12"),
        (lambda rows: column(rows, "pressure", lambda *_: "1.2.2021"), "is a date"),
        (lambda rows: column(rows, "pressure", lambda *_: ""), "give the column a public default"),
        (
            lambda rows: column(rows, "died", lambda k, c: "" if k == 1 else c),
            "expected a target, found an empty cell",
        ),
        (lambda rows: column(rows, "died", lambda k, c: "dead" if k else c), "data.negative"),
        (
            lambda rows: rows.__setitem__(0, [k.upper() for k in rows[0]]),
            "the header has 'AGE'",
        ),
    ],
)
def test_every_kind_of_fault_has_its_remedy(home, check, change, words):
    spoil(home, change)
    code, out = check()
    assert (code, words in out) == (2, True), out


def test_the_byte_that_is_no_utf_8_is_named(home, check):
    raw = text(clean()["north"]).encode()
    raw = raw.replace(b"never", b"ni\xe9", 1)
    (home / "north.csv").write_bytes(raw)
    code, out = check("--silo", "north")
    place = raw.index(b"\xe9")
    line = raw[:place].count(b"\n") + 1
    assert code == 2
    assert f"byte {place} of the file, in line {line}, is 0xe9" in out
    assert "CSV UTF-8" in out


def test_values_outside_the_bounds_are_counted_and_taken(home, check):
    spoil(home, lambda rows: column(rows, "age", lambda k, c: "110" if k < 3 else c))
    code, out = check()
    assert code == 0
    assert "note: north.csv, column 'age': 3 of 40 values lie outside 30 to 90" in out


def test_one_value_far_outside_is_noted_in_a_long_file_and_one_just_outside_is_not(home, check):
    def longer(cell: str, name: str = "age"):
        def change(rows):
            rows += [list(row) for row in rows[1:] * 4]
            column(rows, name, lambda k, c: cell if k == 9 else c)

        return change

    spoil(home, longer("430", "pressure"))
    code, out = check()
    assert code == 0
    assert "note: north.csv, column 'pressure', row 10 after the header: 430 lies far" in out
    for age in ("430", "-40"):
        spoil(home, longer(age))
        assert f"row 10 after the header: {age} cannot be" in check()[1]
    spoil(home, longer("95"))
    assert "outside" not in check()[1]


def test_cells_that_are_no_values_of_a_step_are_counted_and_taken(home, check):
    study = STUDY.replace("high = 90,", "high = 90, step = 1,")
    (home / "study.toml").write_text(study)
    assert check() == (0, "a run can read the files of north, south, west\n")
    spoil(home, lambda rows: column(rows, "age", lambda k, c: "40.5" if k in (2, 7) else c))
    code, out = check()
    assert code == 0
    said = "note: north.csv, column 'age', row 3 after the header (and 1 more): 40.5 is not 30 plus"
    assert said in out


@pytest.mark.parametrize(("step", "said"), [("", True), (", step = 84", False)])
def test_times_of_few_values_are_told_where_the_study_has_no_step(home, check, step, said):
    asked = 'kind = "survival"\ntime = "days"\nevent = "died"\nbins = 12'
    study = STUDY[: STUDY.index("[model]")] + f"[statistics.os]\n{asked}\n"
    study = study[: study.index("target")] + "records = 120\n" + study[study.index("[data.col") :]
    columns = f'died = {{ categories = ["no", "yes"] }}\ndays = {{ low = 0, high = 1008{step} }}\n'
    study = study.replace("[data.columns]\n", f"[data.columns]\n{columns}")
    (home / "study.toml").write_text(study + STUDY[STUDY.index("[privacy]") :])
    for name in SILOS:
        head, *rest = clean()[name]
        rows = [head, *(list(row) for row in rest * 3)]
        for k, row in enumerate(rows):
            row.append(str(84 * (1 + k % 12)) if k else "days")
        (home / f"{name}.csv").write_text(text(rows))
    code, out = check()
    assert code == 0, out
    assert ("column 'days': 12 different values make up all 120; declare step = 84" in out) == said


def test_one_class_in_one_silo_is_a_note_and_in_all_is_wrong(home, check):
    spoil(home, lambda rows: column(rows, "died", lambda *_: "no"))
    code, out = check()
    assert (code, "note: north.csv, column 'died': only one class occurs" in out) == (0, True)
    code, out = check("--silo", "north")
    assert (code, "wrong: north.csv, column 'died': only one class" in out) == (2, True)


def test_a_check_for_machines_is_one_object(home, capsys):
    (home / "west.csv").unlink()
    assert main(["check", "study.toml", "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    (fault,) = found["faults"]
    assert (fault["file"], fault["refused"], found["refused"]) == ("west", True, 1)


def test_a_silo_is_checked_where_its_file_lies(home, check, capsys):
    (home / "records").mkdir()
    (home / "north.csv").rename(home / "records" / "north.csv")
    assert check("--silo", "north", "--data", "records")[0] == 0
    assert main(["check", "study.toml", "--silo", "nowhere"]) == 2
    assert "north, south, west" in capsys.readouterr().err


def test_own_code_is_not_called_by_a_check(home, check):
    lines = [line for line in STUDY.splitlines() if " = { " not in line]
    for key in ("files", "target", "positive", "negative"):
        lines = [line for line in lines if not line.startswith(key)]
    body = "\n".join(lines).replace("[data]", '[data]\nsource = "python:no_such:f"')
    (home / "study.toml").write_text(body.replace("[data.columns]", ""))
    assert check() == (
        0,
        "the records come from python:no_such:f, which is called only during a run: "
        "there is no file to check\n",
    )


def test_a_check_says_what_nobody_knows_of_a_model_before_it_runs(home, check, capsys):
    text = STUDY.replace('"logistic"', '"python:no_such:model"')
    (home / "study.toml").write_text(text)
    code, said = check()
    assert code == 0
    assert "note: python:no_such:model: your code must keep nothing about a record" in said
    assert "note: python:no_such:model: before the code has run, nobody knows" in said
    assert main(["check", "study.toml", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["notes"]) == 2


def test_a_label_in_neither_list_is_refused_by_a_run_before_the_first_charge(home):
    secret = "s3cr3t-label"
    spoil(home, lambda rows: column(rows, "died", lambda k, c: secret if k == 5 else c))
    with pytest.raises(DataError, match=r"row 6 after the header.*hubbub check") as caught:
        hubbub.run(Study.load("study.toml"), home / "run")
    assert secret not in str(caught.value)
    assert not (home / "run").exists()
    assert not (home / "ledgers").exists()


@pytest.mark.slow
def test_one_class_among_all_silos_is_said_by_a_check_and_told_by_no_run(home):
    """A refusal would tell whether anybody died, and nothing would have been paid for it."""
    for name in SILOS:
        spoil(home, lambda rows: column(rows, "died", lambda *_: "no"), name)
    study = Study.load("study.toml")
    assert any("only one class occurs" in one.what for one in checked(study, SILOS, home))
    assert hubbub.run(study, home / "run").final["step"] == 2


@pytest.mark.parametrize("cell", ["", "NA", "1,5", "2 %", "1.2.2021", "word", "1e400", "3"])
def test_without_declared_columns_every_other_one_must_be_a_number(home, cell):
    lines = [line for line in STUDY.splitlines() if " = { " not in line]
    study = Study.parse("\n".join(lines).replace("[data.columns]", "").replace("[4]", "[1]"))
    rows = [["died", "age"], *([one, str(k)] for k, one in enumerate(["yes", "no"] * 15))]
    rows[4][1] = cell
    (home / "north.csv").write_text(text(rows))
    faults = [one for one in checked(study, ["north"], home) if one.refused]
    assert [one.row for one in faults] == ([] if cell == "3" else [4])
    if faults:
        with pytest.raises(DataError, match="row 4 after the header"):
            silo_records.records(study, "north")
    else:
        silo_records.records(study, "north")


def noted(folder: Path, rows: list[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What `hubbub init` notes of a file with a key, a measurement, and whether somebody died."""
    (folder / "one.csv").write_text("\n".join(["number,pressure,age,died", *rows]) + "\n")
    options = ["--target", "died", "--records-are-units", "--replace", "--json"]
    main(["init", "one.csv", *options])
    return [fault["found"] for fault in json.loads(capsys.readouterr().out)["faults"]]


def people(count: int) -> list[str]:
    """Rows of as many people, no two alike."""
    return [f"{i * 7919},{80 + i * 37 % 997 / 10},{30 + i % 60},{i % 2}" for i in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("but", ["", "number"])
def test_rows_that_stand_twice_are_noted_and_those_that_chance_repeats_are_not(
    home: Path, capsys: pytest.CaptureFixture[str], but: str
) -> None:
    once = people(300)
    again = [f"{-k}{row[row.index(',') :]}" if but else row for k, row in enumerate(once[:30], 1)]
    (said,) = [one for one in noted(home, once + again, capsys) if "copies" in one]
    assert "30 of 330 rows" in said
    assert ("but 'number'" in said) == bool(but)
    assert not any("copies" in one for one in noted(home, once, capsys))
    coarse = [f"{i % 3},{i % 2},{i % 5},{i % 2}" for i in range(300)]
    assert not any("copies" in one for one in noted(home, coarse, capsys))


@pytest.mark.slow
def test_numbers_that_a_spreadsheet_has_cut_are_noted(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = [f"4.{i % 9:05d}E+14,{80 + i / 3:.2f},{30 + i % 60},{i % 2}" for i in range(300)]
    (said,) = [one for one in noted(home, cut, capsys) if "rounded" in one]
    assert "300 cells" in said
    assert "only 9 different ones" in said
    assert not any("rounded" in one for one in noted(home, people(300), capsys))


def test_keys_that_floats_have_cut_are_refused_in_python() -> None:
    keys = [1234567890123456000.0 + i for i in range(3)]
    with pytest.raises(DataError, match="which several of them share"):
        patient_numbers(keys)
    assert patient_numbers([1234567890123456000 + i for i in range(3)]).tolist() == [0, 1, 2]
    assert patient_numbers([7.0, 8.0, 7.0]).tolist() == [0, 1, 0]
