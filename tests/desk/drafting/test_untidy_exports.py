"""Tables as programs and people export them: footers, codes, other units, rows in parts."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from hubbub import Study
from hubbub.core.tabular.cells import CellFault
from hubbub.core.tabular.column import Column
from hubbub.desk.cli import drafting_commands
from hubbub.desk.cli.main import main
from hubbub.desk.drafting.cell_text import flaw_of, is_limit, is_missing, measured
from hubbub.desk.drafting.column_draft import column_draft
from hubbub.desk.drafting.column_meaning import Unit, apart, cannot_be
from hubbub.desk.drafting.draft_files import draft_text, mapping_draft, write_tidy
from hubbub.desk.drafting.raw_table import read_raw
from hubbub.desk.drafting.study_draft import Draft, draft
from hubbub.desk.drafting.survey import Answers, joined, open_questions, scattered, surveyed
from hubbub.desk.drafting.table_check import all_faults, checked

HEAD = "age,sex,crp,relapse"
ROWS = 60


def body(seed: int = 1, rows: int = ROWS) -> list[str]:
    draw = random.Random(seed)
    return [
        f"{draw.randint(20, 90)},{draw.choice('fm')},{draw.lognormvariate(1, 0.5):.1f},{k % 2}"
        for k in range(rows)
    ]


def numbered() -> list[str]:
    """Rows that begin with a key."""
    return [f"{k},{row.partition(',')[2]}" for k, row in enumerate(body())]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def file_of(lines: list[str], name: str = "elm.csv") -> Path:
    Path(name).write_text("\n".join(lines) + "\n")
    return Path(name)


def drafted(*lines: list[str], **answers: object) -> Draft:
    paths = [file_of(own, f"{name}.csv") for name, own in zip("abcd", lines, strict=False)]
    return draft(surveyed(paths), Answers(**{"target": "relapse", **answers}))


def note_of(made: Draft, name: str) -> str:
    return next(column.why for column in made.columns if column.name == name)


@pytest.mark.parametrize(
    ("lines", "what", "lost"),
    [
        ([HEAD, *body(), ",,Mean,0.353", f",,n,{ROWS}"], "a row of totals: Mean", 2),
        ([HEAD, *body(), ",,Average rate:,0.336"], "a row of totals: Average", 1),
        ([HEAD, *body()[:30], "Subtotal,,,33", *body()[30:]], "a row of totals: Subtotal", 1),
        ([HEAD, *body(), ",,,0.336", f",,,{ROWS}"], "nearly empty", 2),
        ([HEAD, *body(), "Page 1 of 1"], "nearly empty", 1),
        ([HEAD, *body(), "---,---,---,---", "55.2,,3.1,0.33"], "nearly empty", 2),
        ([HEAD, *body()[:30], "Age, Sex,CRP ,Relapse", *body()[30:]], "names of the columns", 1),
        ([HEAD, "years,,mg/L,0/1", *body()], "units or labels", 1),
        ([HEAD, *numbered(), "Mean,f,4.2,0.5", "Total,f,250.1,30"], "a row of totals: Mean", 2),
        (["# exported by me, on Monday, at noon, twice", HEAD, *body()], "above the names", 0),
        (["Who,,Blood,Outcome", HEAD, *body()], "'Who Blood Outcome' above the names", 0),
    ],
)
def test_lines_that_are_no_records_are_named_and_in_no_draft(lines, what, lost):
    table = read_raw(file_of(lines))
    assert any(what in fault.what for fault in table.faults if fault.refused)
    assert len(table.rows) == ROWS
    assert table.header == tuple(HEAD.split(","))
    assert max(table.numbers) - ROWS in (lost, 0)
    made = drafted(lines)
    assert made.target.positive == ("1",)


def test_a_last_record_with_gaps_is_a_record():
    table = read_raw(file_of([HEAD, *body(), "44,,,"]))
    assert len(table.rows) == ROWS + 1


@pytest.mark.parametrize(
    "lines",
    [
        ["age,smoker,note,relapse", *(f"{20 + k},{'yn'[k // 2 % 2]},,{k % 2}" for k in range(60))],
        ["smoker,age,note,relapse", *(f"{'yn'[k // 2 % 2]},{20 + k},,{k % 2}" for k in range(60))],
        ["dose,age,relapse", *(f"{'max' if k % 9 else 'min'},{k},{k % 2}" for k in range(60))],
        [HEAD, *body()[:10], "91,,,0", "92,,,1"],
    ],
    ids=["no", "no at first", "full", "few"],
)
def test_records_with_gaps_and_such_words_are_records(lines):
    assert len(read_raw(file_of(lines)).rows) == len(lines) - 1


def test_an_empty_file_is_called_empty():
    Path("elm.csv").write_bytes(b"")
    first, *_ = read_raw(Path("elm.csv")).faults
    assert first.what == "the file is empty"


def test_a_spelling_that_next_to_no_row_has_is_no_class_and_is_left_out_of_copies():
    lines = [HEAD, *(body(1, 300)), "50,f,1.0,0.353"]
    made = drafted(lines)
    assert (made.target.positive, made.target.classes) == (("1",), ())
    assert "'0.353'" in made.target.seen[-1]
    assert "0.353" not in draft_text(made)
    assert write_tidy(made, Path("tidy")) == {"a": 1}


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        ("90+", "90"),
        ("90 +", "90"),
        (">= 90", "90"),
        ("≥90", "90"),
        ("90 and over", "90"),
        ("over 89", "89"),
        ("under 1", "1"),
        ("1,5", "1.5"),
        ("over there", None),
        ("A+", None),
    ],
)
def test_limits_are_read_however_they_are_written(cell, number):
    assert measured(cell) == number


@pytest.mark.parametrize(("separator", "sign"), [(";", "."), ("\t", ",")])
def test_a_number_that_begins_with_0_has_no_thousands(separator, sign):
    cells = [f"{k % 2}{sign}{405 + k}" for k in range(20)]
    table = read_raw(file_of([f"id{separator}crp", *(f"x{separator}{cell}" for cell in cells)]))
    assert table.plain("crp") == [cell.replace(",", ".") for cell in cells]


def test_stata_s_missing_values_are_missing_and_shown_spellings_keep_a_column_a_number():
    assert is_missing(".a")
    assert not is_missing(".a", number=False)
    cells = [f"{k / 7:.2f}" for k in range(200)]
    made = column_draft("x", [[*cells, *(["pending"] * 60)]])
    assert made.column is not None
    assert made.column.missing == ("pending",)
    assert "pending (60 of 260 cells)" in made.why
    many = column_draft("x", [[*cells, *(f"about {k}" for k in range(40))]])
    assert many.column is None
    assert many.seen.startswith("'about 0'")


def test_a_remark_among_numbers_is_in_no_study_and_named_by_check():
    remark = "fainted on the scale; call Mrs Miller"
    cells = ["refused", remark, *(row.split(",")[2] for row in body())]
    column = column_draft("crp", [cells]).column
    assert column.missing == ("refused",)
    assert isinstance(column.rule(remark), CellFault)
    assert remark in column_draft("crp", [[*cells, remark, remark]]).column.missing


def test_cells_of_a_column_that_is_left_out_are_in_no_study():
    odd = (f"{row},{'ask Mrs M' + chr(97 + k) if k < 7 else k}" for k, row in enumerate(body()))
    made = drafted([f"{HEAD},pulse", *odd])
    (pulse,) = (one for one in made.columns if one.name == "pulse")
    assert "Mrs M" in pulse.note
    assert "pulse is left out: numbers" in draft_text(made)
    assert "Mrs M" not in draft_text(made)


def test_grades_with_a_plus_are_categories():
    made = column_draft("her2", [["0", "1+", "2+", "3+"] * 30])
    assert made.column is not None
    assert made.column.categories == ("0", "1+", "2+", "3+")


def test_what_a_spreadsheet_wraps_is_unwrapped_and_what_nobody_sees_is_taken_off():
    lines = [HEAD, *(f'="{row.split(",")[0]}",{row.partition(",")[2]}' for row in body())]
    for number in (3, 4, 5):
        lines[number] = lines[number].replace(",f", ",f\u200b").replace('",', '\u200b",')
    made = drafted(lines)
    columns = {one.name: one for one in made.used}
    assert columns["age"].step == 1
    assert columns["sex"].categories == ("f", "m")
    write_tidy(made, Path("tidy"))
    assert read_raw(Path("tidy/a.csv")).column("age") == [row.split(",")[0] for row in body()]
    assert set(read_raw(Path("tidy/a.csv")).column("sex")) == {"f", "m"}


def test_few_whole_numbers_are_asked_about_unless_their_name_says_what_they_are():
    draw = random.Random(2)
    extra = [
        f",{draw.randint(1, 6)},{draw.randint(0, 10)},{draw.choice('123459')}" for _ in range(ROWS)
    ]
    lines = [f"{HEAD},ward,pain,kin", *(a + b for a, b in zip(body(), extra, strict=True))]
    survey = surveyed([file_of(lines)])
    (question,) = open_questions(survey, Answers(target="relapse"))
    assert question.columns == ("kin",)
    assert "1 to 5, 9" in question.asked
    assert not open_questions(survey, Answers(target="relapse", amounts=("kin",)))
    made = {one.name: one.column for one in drafted(lines, codes=("kin",)).columns}
    assert made["ward"].categories == tuple("123456")
    assert made["pain"].categories == ()
    assert made["kin"].categories == tuple("123459")
    amount = drafted(lines, amounts=("kin", "ward"))
    assert "9 lies apart" in note_of(amount, "kin")
    assert next(one for one in amount.columns if one.name == "ward").column.high == 6


def in_units(factor: float, offset: float = 0.0) -> list[str]:
    draw = random.Random(int(factor))
    heights = [draw.gauss(170, 9) * factor + offset for _ in range(ROWS)]
    rows = zip(body(), heights, strict=True)
    return [f"{HEAD},height", *(f"{row},{height:.1f}" for row, height in rows)]


def test_a_file_in_another_unit_is_named_and_nothing_is_converted():
    made = drafted(in_units(1), in_units(1.0001), in_units(1 / 2.54))
    height = next(one.column for one in made.columns if one.name == "height")
    assert height.low < 80
    assert height.high > 180
    from hubbub.desk.drafting.draft_files import draft_text

    study = Study.parse(draft_text(made))
    found = [fault for fault in checked(study, "abc", Path()) if "another unit" in fault.remedy]
    assert [(fault.file, fault.column) for fault in found] == [("c.csv", "height")]
    Path("mapping.toml").write_text("[c.height]\nfactor = 2.54\n")
    assert not [fault for fault in checked(study, "abc", Path()) if fault.column == "height"]


def test_a_nameless_column_of_row_numbers_is_no_merged_cell(tmp_path: Path) -> None:
    """Its units had been read as the names, and the names as a title."""
    file = tmp_path / "a.csv"
    rows = [f"{k},{40 + k},{200 + k}.5" for k in range(30)]
    file.write_text("\n".join([",age,chol", "unit,years,mg/dl", *rows]))
    read = read_raw(file)
    assert read.header[1:] == ("age", "chol")
    assert any("units or labels" in fault.what for fault in read.faults)


def test_numbers_with_thousands_marks_are_in_no_other_unit():
    """Those below 1,000 alone had been read, so that other files seemed to lie apart."""
    draw = random.Random(1)
    costs = [[draw.lognormvariate(8, 1) for _ in range(200)] for _ in range(3)]
    marked = [f'"{cost:,.2f}"' for cost in costs[0]]
    plain = [[f"{cost:.2f}" for cost in own] for own in costs[1:]]
    files = [
        [f"{HEAD},cost", *(f"{row},{cost}" for row, cost in zip(body(rows=200), own, strict=True))]
        for own in (marked, *plain)
    ]
    made = drafted(*files)
    faults = all_faults(made.tables, Study.parse(draft_text(made)).data, made.tables)
    assert any("thousands" in fault.what for fault in faults)
    assert not any(fault.between_sites for fault in faults)


def test_numbers_with_units_in_their_cells_are_not_called_free_text():
    ages = [f"{20 + k} yrs" for k in range(60)]
    assert "write the numbers alone" in column_draft("age", [ages]).why
    words = [f"{k} see the letter of {k}" for k in range(60)]
    assert "free text" in column_draft("note", [words]).why
    assert column_draft("stage", [["1a", "2b", "3c"] * 20]).column is not None


def test_a_key_is_one_where_a_program_has_made_it_a_float():
    keys = [f"{key}.0" for key in range(4000, 4000 + ROWS)]
    lines = [f"pid,{HEAD}", *(f"{key},{row}" for key, row in zip(keys, body(), strict=True))]
    assert "an identifier" in note_of(drafted(lines), "pid")


@pytest.mark.parametrize(("cell", "cures"), [("M", True), ("\u200bm", False), ("m  x", False)])
def test_the_cure_for_a_spelling_is_one_that_cures_it(cell, cures):
    """Whoever ignored the case kept a letter that nobody sees."""
    spelling = "m x" if " " in cell else "m"
    column = Column(name="sex", categories=("f", spelling))
    fault = column.rule(cell)
    flaw = flaw_of(cell, fault, column.categories, "set ignore_case = true")
    assert ("ignore_case" in flaw.remedy) == cures
    assert repr(spelling) in flaw.remedy
    assert (replace(column, ignore_case=True).rule(cell) == 1.0) == cures


def test_children_beside_adults_are_within_the_bounds():
    """Six years times ten had counted as sixty, another unit, and the draft left them outside."""
    draw = random.Random(1)
    adults = [[f"{draw.gauss(60, 10):.1f}" for _ in range(50)] for _ in range(2)]
    children = [f"{draw.gauss(6, 2):.1f}" for _ in range(50)]
    assert set(apart([[*map(float, own)] for own in (*adults, children)])) == {2}
    column = column_draft("age", [*adults, children]).column
    assert column.low <= 5
    assert column.high >= 75


def test_files_that_overlap_lie_not_apart():
    draw = random.Random(1)
    adults = [[draw.gauss(60, 10) for _ in range(50)] for _ in range(2)]
    assert not apart([*adults, [draw.gauss(66, 10) for _ in range(50)]])


def test_values_that_cannot_be_are_named_and_are_no_bounds():
    ages = [float(k % 60 + 20) for k in range(200)]
    assert cannot_be("age", [*ages, 300.0]) == [300.0]
    assert cannot_be("gestational_age_days", [*ages, 300.0]) == []
    made = column_draft("age", [[f"{age:g}" for age in ages] + ["300"] * 20])
    assert made.column.high <= 90
    assert "20 values are impossible, such as 300" in made.why
    glucose = column_draft("glucose", [["0"] * 9 + [f"{70 + k % 50}" for k in range(200)]])
    assert glucose.column.missing == ("0",)


TIMES = """
study.name = "x"
parties = {names = ["a", "b", "c"], colluders = 1}
data.files = "{name}.csv"
data.records = 180
data.columns.t = {low = 0, high = 36}
data.columns.y = {categories = ["no", "yes"]}
statistics.s = {kind = "survival", time = "t", event = "y", bins = 12}
privacy = {epsilon = 1, delta = 1e-5}
"""


def test_a_negative_time_is_refused_by_check_and_where_records_are_read():
    from hubbub.core.errors import DataError
    from hubbub.core.study import silo_records

    for name in "abc":
        rows = [f"{k % 36},{'no' if k % 3 else 'yes'}" for k in range(ROWS)]
        file_of(["t,y", *rows[:-1], "-3,no" if name == "b" else rows[-1]], f"{name}.csv")
    study = Study.parse(TIMES)
    (fault,) = [one for one in checked(study, "abc", Path()) if one.refused]
    assert (fault.file, fault.row) == ("b.csv", ROWS)
    assert len(silo_records.statistic_cells(study, "a", folder=Path())) == ROWS
    with pytest.raises(DataError, match=r"a time from 0 in b\.csv, column 't', row 60"):
        silo_records.statistic_cells(study, "b", folder=Path())
    mean = Study.parse(
        TIMES.replace('"survival", time = "t", event = "y", bins = 12', '"quantiles", column = "t"')
    )
    assert len(silo_records.statistic_cells(mean, "b", folder=Path())) == ROWS


def test_a_negative_time_in_memory_is_refused_once_it_is_asked_of():
    import hubbub
    from hubbub.core.errors import DataError

    tables = {
        who: {"t": [5.0, 7.0, -1.0 if who == "b" else 2.0] * 40, "y": ["no", "yes", "no"] * 40}
        for who in "abc"
    }
    columns = {"t": {"low": 0, "high": 36}, "y": {"categories": ["no", "yes"]}}
    asked = hubbub.statistics(tables, columns=columns, epsilon=2)
    question = [{"kind": "survival", "time": "t", "event": "y", "bins": 6}]
    with pytest.raises(DataError, match="a time from 0 in b, column 't'"):
        asked.query(question, epsilon=1).release()


def in_parts(seed: int) -> list[str]:
    """A row with a patient's age, rows of visits, and one with the outcome."""
    draw, lines = random.Random(seed), ["record,event,age,sex,crp,relapse"]
    for k in range(40):
        lines.append(f"{k},baseline,{draw.randint(20, 80)},{draw.choice('fm')},,")
        lines += [f"{k},visit,,,{draw.random():.2f}," for _ in range(draw.randint(1, 3))]
        lines.append(f"{k},end,,,,{draw.randint(0, 1)}")
    return lines


def test_rows_that_hold_a_patient_s_values_apart_are_asked_about_and_joined():
    paths = [file_of(in_parts(k), f"{name}.csv") for k, name in enumerate("abc")]
    survey = surveyed(paths)
    assert scattered(survey.full, "record") == ("age", "crp")
    for answers in (Answers(target="relapse"), Answers(target="relapse", patient="record")):
        first = open_questions(survey, answers)[0]
        assert first.choices[0].options == ("--join", "record", "--tidy", "tidy")
    made = draft(survey.joined("record"), Answers(target="relapse"))
    assert {one.name for one in made.used} == {"age", "sex", "crp"}
    assert made.records == 120
    table = joined(read_raw(paths[0]), "record")
    assert table.rows[0][:3] == ("0", "baseline", in_parts(0)[1].split(",")[2])
    stated = [",".join(cell or "NA" for cell in row.split(",")) for row in in_parts(0)]
    assert joined(read_raw(file_of(stated)), "record").rows == table.rows


def test_columns_without_a_value_beside_the_target_are_left_out_and_said():
    survey = surveyed([file_of(in_parts(k), f"{name}.csv") for k, name in enumerate("abc")])
    made = draft(survey, Answers(target="relapse", records_are_units=True))
    assert note_of(made, "age") == "it is empty in every row that has 'relapse'"


def visits_table() -> list[str]:
    rows = [f"{k // 3},{row}" for k, row in enumerate(body())]
    return [f"record,{HEAD}", *rows]


def test_visits_with_a_target_in_every_row_are_not_scattered():
    assert scattered([read_raw(file_of(visits_table()))], "record") is None


def test_a_terminal_is_asked_and_elsewhere_options_are_printed(monkeypatch, capsys):
    lines = [f"{HEAD},kin", *(f"{row},{k % 5 + 1}" for k, row in enumerate(body()))]
    words = ["init", str(file_of(lines)), "--target", "relapse"]
    assert main([*words, "--replace"]) == 1
    assert "--target relapse --replace --codes kin" in capsys.readouterr().out
    assert not Path("study.toml").exists()
    typed = iter(["7", "²", "--kind 'x", "2"])
    monkeypatch.setattr(drafting_commands.sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("builtins.input", Mock(side_effect=EOFError))
    assert main(words) == 1
    assert "No study was written" in capsys.readouterr().out
    monkeypatch.setattr("builtins.input", lambda _: next(typed))
    assert main(words) == 0
    assert capsys.readouterr().out.count("expected a number from 1 to 2, or options") == 3
    kin = next(one for one in Study.load("study.toml").data.columns if one.name == "kin")
    assert kin.categories == ()


@pytest.mark.slow
def test_whatever_is_typed_at_a_terminal_counts_as_if_it_had_been_typed_at_once(
    monkeypatch, capsys
):
    lines = [f"{HEAD},kin,cost", *(f"{row},{k % 5 + 1},{k}.5" for k, row in enumerate(body()))]
    typed = iter(["--kined count", "--kind what", "--kind numeric --target cost --amounts kin"])
    monkeypatch.setattr(drafting_commands.sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda _: next(typed))
    assert main(["init", str(file_of(lines)), "--target", "relapse"]) == 0
    told = capsys.readouterr().out
    assert "unrecognized arguments: --kined" in told
    assert "invalid choice: 'what'" in told
    study = Study.load("study.toml")
    assert (study.data.target, study.data.outcome.kind) == ("cost", "numeric")


def test_a_limit_with_letters_that_nobody_sees_is_a_limit():
    assert is_limit("\u200b<0.5")
    assert is_limit("\ufeff90+")


def test_of_two_long_files_the_second_lies_apart_wherever_it_stands():
    draw = random.Random(1)
    adults, children = ([draw.gauss(middle, 2) for _ in range(50)] for middle in (60, 8))
    assert set(apart([[1.0], adults, children])) == {2}
    assert set(apart([adults, children])) == {1}


def test_a_unit_is_written_in_one_way():
    values = [str(round(value, 2)) for value in (110 / 38.67, 130 / 38.67, 150 / 38.67)] * 20
    made = drafted([f"{HEAD},ldl", *(f"{row},{k * 7 % 60 + 100}" for k, row in enumerate(body()))])
    data = Study.parse(draft_text(made)).data
    rows = [f"{row},{value}" for row, value in zip(body(), values, strict=True)]
    mapping = mapping_draft(read_raw(file_of([f"{HEAD},ldl", *rows])), "a", data)
    assert f"# {Unit(38.67)}   # cholesterol, mmol/l to mg/dl\n" in mapping
    assert str(Unit(0.5556, -17.7778)) == "factor = 0.5556, offset = -17.7778"


def test_rows_at_a_file_s_end_that_are_no_records_are_counted_as_left_out():
    rows = [HEAD, *body(), "mean,,,", ",,,"]
    copied = write_tidy(drafted(rows), Path("tidy"))
    assert copied == {"a": 2}


def test_a_target_of_times_below_0_is_said_and_its_rows_are_left_out_of_copies():
    rows = [f"{k % 60 + 20},{k * 7 % 90 + 1},{'dead' if k % 3 else 'alive'}" for k in range(ROWS)]
    path = file_of(["age,followup_days,status", *rows, "50,-12,alive"])
    survey = surveyed([path])
    assert open_questions(survey, Answers())[0].columns == ("followup_days", "status")
    made = draft(survey, Answers(target="followup_days", event="status"))
    assert "1 times are below 0, such as -12" in made.target.seen[0]
    assert min(made.target.outcome.grid) > 0
    assert write_tidy(made, Path("tidy")) == {"elm": 1}


def test_an_empty_line_of_one_column_is_a_row_as_a_run_reads_it():
    table = read_raw(file_of(["crp", "1", "", "2", ""]))
    assert (table.column("crp"), table.numbers, table.faults) == (
        ["1", "", "2", ""],
        (1, 2, 3, 4),
        (),
    )


def test_an_empty_line_at_the_end_alone_is_named_as_a_run_refuses_it():
    for spare in ([""], ["", ""]):
        table = read_raw(file_of(["crp", "1", "2", *spare]))
        assert table.column("crp") == ["1", "2"]
        assert [fault.what for fault in table.faults] == ["an empty line is its last"]
