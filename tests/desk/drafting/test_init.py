"""`hubbub init`: from messy files to a study that plans, and tidy copies that train."""

from __future__ import annotations

import json
import random
import shlex
import socket
import stat
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from drafting.cohorts import SILOS as COHORT_SILOS
from drafting.cohorts import lay as lay_cohort
from drafting.messy import CASES, HEADER, added, clean, column, lay, text
from hubbub import Study
from hubbub.core.errors import DataError
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.study_plan import plan
from hubbub.core.study import silo_records
from hubbub.desk.cli import drafting_commands
from hubbub.desk.cli.main import main
from hubbub.desk.drafting.draft_files import draft_text, write_tidy
from hubbub.desk.drafting.raw_table import read_raw
from hubbub.desk.drafting.study_draft import draft
from hubbub.desk.drafting.survey import Answers, open_questions, surveyed
from hubbub.learning.queries.validation.layout import whose_records
from hubbub.learning.study.training import usual_for

GUESSED = {"no header": "column-6"}
COHORT = [f"{name}.csv" for name in COHORT_SILOS]
NEVER_READY = {"one class only", "an empty file", "a header alone"}


@cache
def planned(study: Study) -> Plan:
    return plan(study)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Small studies that differ in what they make of records are planned once."""

    def made(study: Study) -> Plan:
        if study.data.records > 1000:
            return plan(study)
        data = replace(study.data, positive=(), negative=(), classes=("0", "1"), columns=())
        data = replace(data, records=120, capacity=())
        parties = replace(study.parties, names=tuple(map(str, range(study.parties.silos))))
        return planned(replace(study, name="", toml="", parties=parties, data=data))

    monkeypatch.setattr(drafting_commands, "plan", made)


@pytest.fixture
def command(capsys, tmp_path, monkeypatch):
    """Runs a command in a folder of its own: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([*map(str, arguments)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def ask(command):
    """Runs a command with --json and returns its object; by default 1 says that no run can read."""

    def run(*arguments: object, code: int | None = None) -> dict[str, Any]:
        done = command(*arguments, "--json")
        found = json.loads(done[1])
        usual = 0 if found.get("ready", True) else 1
        assert (done[0], done[2]) == (usual if code is None else code, "")
        return found

    return run


def files(case: str) -> list[str]:
    """The case's files in the current folder, as one would type them."""
    return [path.name for path in lay(case, Path.cwd())]


def write(made: dict[str, list[list[str]]]) -> list[str]:
    for name, rows in made.items():
        Path(f"{name}.csv").write_text(text(rows))
    return [f"{name}.csv" for name in made]


@pytest.mark.parametrize("harm", ["one cell", "another unit"])
def test_sites_are_to_agree_on_units_where_one_measures_in_another(command, harm):
    rng = random.Random(1)
    made = {
        f"silo-{name}": [["score", "sex", "died"]]
        + [[f"{rng.gauss(60, 10):.1f}", rng.choice("fm"), str(place % 2)] for place in range(60)]
        for name in ("north", "south", "west")
    }
    north = made["silo-north"]
    if harm == "one cell":
        north[9][0] = "99950.5"
    else:
        made["silo-north"] = [
            north[0],
            *([f"{float(a) * 10:.1f}", *more] for a, *more in north[1:]),
        ]
    _, out, err = command("init", *write(made), "--target", "died")
    said = out + err
    assert ("agree on units with the sites" in said) == (harm == "another unit"), said


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_draft_of_messy_files_is_planned_and_its_tidy_copies_are_read(ask, case):
    found = ask("init", *files(case))
    assert found["target"] == GUESSED.get(case, "died")
    if not found["ready"]:  # then what is printed says how
        found = ask(*shlex.split(found["next"])[1:])
    assert found["ready"] == (case not in NEVER_READY), found["faults"]
    if found["ready"]:
        assert found["next"] == "hubbub run study.toml"
        study = Study.load("study.toml")
        for name in study.parties.names:
            read = silo_records.records(study, name)
            width = sum(column.width for column in study.data.columns)
            assert read.inputs.shape[1:] == (width,)
            assert len(read)


@pytest.mark.quick_cases("a title over semicolons")
@pytest.mark.parametrize("case", [one for one in CASES if "no records" in one or "title" in one])
def test_lines_that_are_no_records_are_told_and_are_in_no_draft(ask, case):
    found = ask("init", *files(case))
    assert {one["file"] for one in found["faults"] if one["refused"]} >= {"north.csv", "west.csv"}
    ask(*shlex.split(found["next"])[1:])
    data = Study.load("study.toml").data
    assert {*data.positive, *data.negative} == {"yes", "no"}
    assert {column.name for column in data.columns} == {"age", "sex", "pressure", "smoker"}
    assert next(one for one in data.columns if one.name == "sex").categories == ("F", "M")
    assert len(read_raw(Path("tidy/north.csv")).rows) == 40


def test_a_word_of_totals_that_records_have_too_is_a_record(ask):
    names = files("clean")
    for name in names:
        with Path(name).open("a") as file:
            file.write("x1,50,f,120,Total,yes\nx2,,f,120,Total,no\n")
    assert not [one for one in ask("init", *names)["faults"] if "a row of totals" in one["found"]]


@pytest.mark.slow
def test_clean_files_are_used_where_they_are_and_nothing_is_copied(ask):
    before = set(files("clean"))
    found = ask("init", *sorted(before))
    assert found["ready"]
    assert {path.name for path in Path().iterdir()} == {*before, "study.toml"}
    study = Study.load("study.toml")
    assert plan(study).dimension == 5
    assert study.data.files == "{name}.csv"
    assert study.parties.names == ("north", "south", "west")
    assert (study.data.positive, study.data.negative) == (("yes",), ("no",))
    assert [one.name for one in study.data.columns] == ["age", "sex", "pressure", "smoker"]
    assert "identifier" in found["left_out"]["patient"]


def test_bounds_are_rounded_outward(ask):
    ask("init", *files("clean"))
    age, _, pressure, _ = Study.load("study.toml").data.columns
    cells = [row[1] for rows in clean().values() for row in rows[1:]]
    low, high = age.bounds
    assert low <= min(map(int, cells))
    assert max(map(int, cells)) <= high
    assert {low % 5, high % 5} == {0}
    assert {bound % 5 for bound in pressure.bounds} == {0}


@pytest.mark.parametrize(
    ("values", "step", "bounds"),
    [
        ([0, 1, 2, 3, 5, 10], 1.0, (0.0, 10.0)),
        ([120, 122, 130, 144, 148], 2.0, (120.0, 150.0)),
        ([84, 168, 336, 420], 84.0, (84.0, 420.0)),
        ([1.5, 4.5, 10.5, 37.5], 3.0, (1.5, 40.5)),
        ([0.1, 0.2, 0.5, 0.9], 0.1, (0.1, 0.9)),
        ([0.113, 0.25991, 0.52313, 0.912], None, (0.1, 1.0)),
        ([0, 5e-324, 1e-323, 2e-323], None, (-1e-306, 1e-306)),
    ],
)
def test_a_step_is_drafted_where_all_cells_of_a_file_are_on_it(values, step, bounds):
    from hubbub.desk.drafting.column_draft import column_draft

    made = column_draft("x", [[f"{one:g}" for one in values * 10]])
    assert made.column is not None
    assert made.column.step == step
    assert step is None or set(values) <= set(map(made.column.nearest, values))
    assert made.column.low is not None
    assert made.column.low <= min(values)


def test_all_spellings_of_a_target_are_listed_and_a_column_ignores_case(ask):
    ask("init", *files("mixed case labels"))
    study = Study.load("study.toml")
    assert set(study.data.positive) == {"yes", "Yes", "YES"}
    assert set(study.data.negative) == {"no", "No", "NO"}
    sex = next(one for one in study.data.columns if one.name == "sex")
    assert (set(map(str.upper, sex.categories)), sex.ignore_case) == ({"F", "M"}, True)


def test_two_silos_spell_the_target_in_two_ways(ask):
    ask("init", *files("target 0 and 1 in one"))
    data = Study.load("study.toml").data
    assert (set(data.positive), set(data.negative)) == ({"yes", "1"}, {"no", "0"})
    rows = clean()["north"]
    ones = [row[-1] == "yes" for row in rows[1:]]
    assert silo_records.records(Study.load("study.toml"), "north").targets.tolist() == ones


@pytest.mark.slow
def test_spellings_of_missing_are_found_and_sentinels_are_no_bounds(ask):
    ask("init", *files("missing spellings"))
    age = next(c for c in Study.load("study.toml").data.columns if c.name == "age")
    assert set(age.missing) == {"NA", "?", ".", "-9", "null", "n/a", "N/A", "NaN", "-999"}
    assert age.bounds[0] > 0
    assert age.indicator


@pytest.mark.slow
def test_an_outlier_does_not_widen_the_bounds(ask):
    ask("init", *files("an outlier"))
    pressure = next(c for c in Study.load("study.toml").data.columns if c.name == "pressure")
    assert pressure.bounds[1] < 300


@pytest.mark.quick_cases(
    "dates-admitted", "constant column-country", "dates-born", "free text-remarks"
)
@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("constant column", "country"),
        ("dates", "admitted"),
        ("dates", "born"),
        ("free text", "remarks"),
        ("all-missing column", "ward"),
        ("a column missing in one", "smoker"),
    ],
)
def test_what_cannot_be_a_feature_is_left_out_and_said_why(ask, case, name):
    found = ask("init", *files(case))
    assert found["left_out"][name]
    assert f"# {name} is left out: " in Path("study.toml").read_text()


def test_numbers_of_other_countries_mean_the_same_in_a_tidy_copy(ask):
    paths = files("semicolons with decimal commas")
    ask("init", *paths, "--tidy", "tidy")
    cells = read_raw(Path("tidy/north.csv")).column("pressure")
    assert cells == [row[3] for row in clean()["north"][1:]]


@pytest.mark.slow
def test_a_decimal_sign_is_each_files_own(ask):
    """15,423 is fifteen where commas are decimal, and thousands where they are not."""
    for name, separator, mark in (("north", ";", ","), ("south", ",", "."), ("west", "\t", ",")):
        rows = clean()[name]
        column(
            rows, "pressure", lambda k, cell, mark=mark: f"{k % 60 + 100}{mark}{37 * k % 100:03d}"
        )
        column(rows, "age", lambda k, cell, mark=mark: f"{30 + k}{mark}5")
        Path(f"{name}.csv").write_text(text(rows, separator))
    found = ask("init", "north.csv", "south.csv", "west.csv", "--tidy", "tidy")
    (pressure,) = (one for one in Study.load("study.toml").data.columns if one.name == "pressure")
    assert pressure.bounds == (100, 140)
    copies = [
        read_raw(Path(f"tidy/{name}.csv")).column("pressure") for name in ("north", "south", "west")
    ]
    assert copies[0] == copies[1] == copies[2]
    assert found["ready"]


def test_one_large_cost_does_not_make_all_others_alike(ask):
    """Costs of which a fifth are none have bounds that most of them fill, and a log link."""
    for number, name in enumerate(("north", "south", "west")):
        header, *body = clean()[name]
        rows = [header, *([*row] for _ in range(3) for row in body)]
        draw = random.Random(number)
        cost = {k: 0.0 if k % 5 == 0 else draw.lognormvariate(4, 1) for k in range(len(rows))}
        added(rows, "cost", lambda k, cost=cost: f"{90_000 if k == 7 else cost[k]:.2f}")
        Path(f"{name}.csv").write_text(text(rows))
    ask("init", "north.csv", "south.csv", "west.csv", "--target", "cost", "--records-are-units")
    outcome = Study.load("study.toml").data.outcome
    assert (outcome.kind, outcome.scale, outcome.low) == ("numeric", "log-link", 0)
    assert outcome.high < 5000
    assert 50 <= outcome.mean <= 100  # .8 e^4.5 = 72
    assert "lie above" in Path("study.toml").read_text()


@pytest.mark.slow
def test_a_model_of_a_rare_outcome_begins_at_its_log_odds_in_halves(ask):
    lay_cohort("rare", Path(), 400)
    found = ask("init", *COHORT, "--target", "died_30d")
    study = Study.load("study.toml")
    assert -5 <= study.model.intercept <= -2.5
    assert study.model.intercept % 0.5 == 0
    assert "model.intercept" in found["private"]


@pytest.mark.slow
def test_faults_of_one_kind_are_said_once_for_a_file(command):
    paths = files("semicolons with decimal commas")
    for path in paths:
        rows = [line.split(";") for line in Path(path).read_text().splitlines()]
        for k in range(9):
            added(rows, f"lab{k}", lambda number: f"{number},5")
        Path(path).write_text(text(rows, ";"))
    _, out, _ = command("init", *paths)
    assert out.count("has a decimal comma") == 2 * len(paths)
    assert "north.csv: the same in columns" in out


def test_a_tidy_copy_is_its_owners_alone_and_has_no_columns_that_are_not_used(ask):
    ask("init", *files("semicolons"), "--tidy", "tidy")
    copy = Path("tidy/south.csv")
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert read_raw(copy).header == ("died", "age", "sex", "pressure", "smoker")


def test_rows_without_a_target_are_left_out_of_a_copy_and_counted(ask):
    found = ask("init", *files("no target in some rows"), "--tidy", "tidy")
    assert found["rows_left_out"] == {"north": 5, "south": 0, "west": 0}
    assert len(read_raw(Path("tidy/north.csv")).rows) == 35


def test_a_draft_says_which_values_came_from_records(command):
    code, out, _ = command("init", *files("clean"))
    said = " ".join(out.split())
    assert code == 0
    for key in ("data.positive", "data.records", "data.capacity", "bounds", "age", "categories"):
        assert key in said
    assert "nothing was sent" in said
    assert Path("study.toml").read_text().count("from records") >= 4


def test_nothing_is_sent(command, monkeypatch):
    def refuse(*arguments: object, **named: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    assert command("init", *files("clean"))[0] == 0
    assert command("check", "study.toml")[0] == 0


def test_a_file_is_not_written_over(command):
    paths = files("clean")
    Path("study.toml").write_text("mine")
    code, _, err = command("init", *paths)
    assert code == 2
    assert "--replace" in err
    assert Path("study.toml").read_text() == "mine"
    assert command("init", *paths, "--replace", "--tidy", "tidy")[0] == 0
    code, _, err = command("init", *paths, "--out", "other.toml", "--tidy", "tidy")
    assert code == 2
    assert "--tidy" in err


def test_one_silo_drafts_alone_and_the_others_are_stand_ins(ask):
    made = {"north": clean()["north"]}
    found = ask("init", *write(made))
    assert found["parties"][0] == "north"
    assert len(found["parties"]) == 3
    assert found["next"] == "hubbub plan study.toml"


@pytest.mark.parametrize(
    ("names", "wanted", "pattern"),
    [
        (
            ("data/silo-north.csv", "data/silo-nairobi.csv"),
            ("north", "nairobi"),
            "data/silo-{name}.csv",
        ),
        (("north/data.csv", "south/data.csv"), ("north", "south"), "{name}/data.csv"),
        (("site1.csv", "site2.csv"), ("site1", "site2"), "{name}.csv"),
        (("test.csv", "a.csv"), ("silo-1", "a"), ""),
    ],
)
def test_parties_are_called_after_their_files(names, wanted, pattern):
    from hubbub.desk.drafting.study_draft import party_names

    assert party_names([Path(name) for name in names]) == (wanted, pattern)


@pytest.mark.slow
def test_many_records_have_a_validation_and_the_plan_takes_it(ask):
    made = clean()
    made["north"] = [made["north"][0], *made["north"][1:] * 200]
    ask("init", *write(made), "--target", "died")
    study = Study.load("study.toml")
    assert study.validation is not None
    assert study.validation.epsilon < 0.5
    assert whose_records(study).is_telling
    assert (study.training.sample_rate, study.training.steps) == (0.2, 150)
    usual = usual_for(study)
    assert study.training.clip_norm == usual.clip_norm
    assert dict(study.training.optimizer)["lr"] == usual.lr


def test_a_validation_that_its_plan_calls_worthless_is_not_drafted_and_it_is_said_why(command):
    code, out, _ = command("init", *write(clean()), "--target", "died")
    assert code == 0
    assert "no [validation] was drafted: with so few records" in out
    assert Study.load("study.toml").validation is None
    assert "the noise would hide it" in Path("study.toml").read_text()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda made: ["absent.csv"], "absent.csv"),
        (lambda made: [*write(made), "--target", "nosuch"], "'nosuch'"),
        (lambda made: [*write(made), "--target", "sex", "--kind", "numeric"], "number"),
        (lambda made: [*write(made), "north.csv"], "once"),
        (lambda made: ["/dev/zero"], "ordinary"),
        (lambda made: write({"north": [[*HEADER]]}), "found none; check the files"),
        (lambda made: write({"north": [[*HEADER], ["1"]]}), "separators and quotes"),
    ],
)
def test_what_cannot_be_drafted_is_one_sentence(command, change, words):
    code, out, err = command("init", *change(clean()))
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
    assert not Path("study.toml").exists()


def test_a_strange_word_among_numbers_is_listed_as_missing(ask):
    made = clean()
    column(made["west"], "pressure", lambda k, cell: "err" if k == 3 else cell)
    found = ask("init", *write(made))
    pressure = next(c for c in Study.load("study.toml").data.columns if c.name == "pressure")
    assert pressure.missing == ("err",)
    assert found["ready"]


@pytest.mark.slow
def test_a_limit_of_what_was_measured_is_its_number_in_a_tidy_copy(ask):
    made = clean()
    column(made["west"], "pressure", lambda k, cell: ("<60", ">= 180", cell, cell)[k % 4])
    found = ask("init", *write(made))
    assert not found["ready"]
    assert "a limit of measurement" in str(found["faults"])
    ask(*shlex.split(found["next"])[1:])
    cells = read_raw(Path("tidy/west.csv")).column("pressure")
    assert cells[:2] == ["60", "180"]
    pressure = next(c for c in Study.load("study.toml").data.columns if c.name == "pressure")
    assert (pressure.missing, pressure.bounds[0] <= 60) == ((), True)


@pytest.mark.slow
def test_nines_far_from_all_other_numbers_are_missing_and_said(ask):
    made = clean()
    for rows in made.values():
        column(rows, "age", lambda k, cell: "999" if k % 9 == 0 else cell)
        added(rows, "weight", lambda k: str(60 + k), 2)  # 99 is a weight like others
    ask("init", *write(made))
    columns = {c.name: c for c in Study.load("study.toml").data.columns}
    assert (columns["age"].missing, columns["age"].bounds[1]) == (("999",), 90.0)
    assert columns["weight"].missing == ()


@pytest.mark.slow
def test_days_without_signs_between_are_dates_and_any_minus_is_one(ask):
    made = clean()
    for rows in made.values():
        added(rows, "visit", lambda k: f"2021{1 + k % 12:02d}{1 + k % 28:02d}", 2)
        added(rows, "score", lambda k: f"\u2212{k}.5" if k % 2 else f"{k}.5", 2)
    left_out = ask("init", *write(made))["left_out"]
    assert "dates" in left_out["visit"]
    assert "score" not in left_out


@pytest.mark.slow
def test_the_errors_of_a_spreadsheet_are_missing_values(ask):
    made = clean()
    column(made["west"], "pressure", lambda k, cell: "#DIV/0!" if k % 2 else cell)
    ask("init", *write(made))
    pressure = next(c for c in Study.load("study.toml").data.columns if c.name == "pressure")
    assert pressure.missing == ("#DIV/0!",)


@pytest.mark.slow
def test_digits_that_begin_with_a_zero_are_no_numbers(ask):
    made = clean()
    for rows in made.values():
        added(rows, "postcode", lambda k: f"{k * 2411 % 99999:05d}", 2)
        added(rows, "ward", lambda k: f"0{k % 3}", 2)
    found = ask("init", *write(made))
    assert "postcode" in found["left_out"]
    ward = next(c for c in Study.load("study.toml").data.columns if c.name == "ward")
    assert ward.categories == ("00", "01", "02")


@pytest.mark.slow
def test_row_numbers_are_left_out_where_one_file_is_short_or_has_rows_twice(ask):
    made = clean()
    made["south"] = made["south"][:3]
    for rows in made.values():
        added(rows, "", lambda k: str(k + 1), 0)
        added(rows, "Fallnr", lambda k: str(70000 - 17 * k), 1)
    made["north"] += made["north"][-2:]
    found = ask("init", *write(made))
    assert "identifier" in found["left_out"]["Fallnr"]
    del made["north"][-2:]
    found = ask("init", *write(made), "--replace")
    assert "identifier" in found["left_out"]["column-1"]


def test_a_file_that_spells_all_categories_otherwise_is_noted(command):
    made = clean()
    column(made["west"], "sex", lambda _, cell: {"F": "2", "M": "1"}[cell])
    _, out, _ = command("init", *write(made))
    assert "one file alone has 1, 2, and no spelling of the others" in " ".join(
        out.replace("│", "").split()
    )


@pytest.mark.slow
def test_rare_categories_are_pooled_and_stand_in_no_study(command):
    made = clean()
    column(made["west"], "sex", lambda k, cell: "intersex" if k == 1 else cell)
    _, out, _ = command("init", *write(made))
    assert "1 rare spellings, which might identify a person, count as 'other'" in " ".join(
        out.replace("│", "").split()
    )
    assert "intersex" not in Path("study.toml").read_text()
    study = Study.load("study.toml")
    (sex,) = [one for one in study.data.columns if one.name == "sex"]
    assert sex.categories == ("F", "M", "other")
    assert len(silo_records.records(study, "west")) == 40


@pytest.mark.slow
def test_of_many_codes_the_commonest_are_categories_and_the_rest_is_pooled(ask):
    lay_cohort("wide", Path(), 400)
    ask("init", *COHORT)
    study = Study.load("study.toml")
    (codes,) = [one for one in study.data.columns if one.name == "main_code"]
    assert codes.other == "other"
    assert codes.categories[-1] == "other"
    assert 10 <= len(codes.categories) <= 21
    read = silo_records.records(study, "north")
    assert len(read) == 400
    beyond = codes.rule_with_gaps("a code that no file has")
    assert beyond == codes.categories.index("other")


def test_names_and_free_text_are_still_left_out(ask):
    made = clean()
    for silo, rows in made.items():
        added(rows, "note", lambda k, silo=silo: f"seen by {silo} number {k}, well")
    assert "free text" in ask("init", *write(made))["left_out"]["note"]


@pytest.mark.slow
def test_a_long_tail_is_clipped_and_a_gap_counts_as_a_typical_value(ask):
    lay_cohort("counts", Path(), 400)
    found = ask("init", *COHORT)
    study = Study.load("study.toml")
    columns = {one.name: one for one in study.data.columns}
    assert columns["CRP"].high <= 200  # of values up to 400
    assert columns["CRP"].default == 10.0  # of a median of 11
    assert "Größe cm" in columns
    text = Path("study.toml").read_text()
    assert '"Größe cm" = {' in text
    assert "bounds, steps, typical values and missing of age" in str(found["private"])


@pytest.mark.slow
def test_numbers_in_one_file_and_words_in_another_are_left_out_and_said(ask):
    made = clean()
    column(made["west"], "age", lambda k, _: ("young", "old")[k % 2])
    assert "words in others" in ask("init", *write(made))["left_out"]["age"]


@pytest.mark.parametrize("begins", [b"PK\x03\x04", b"\x89PNG\r\n\x1a\n", b"\xd0\xcf\x11\xe0"])
def test_a_workbook_or_picture_is_said_to_be_no_text(command, begins):
    Path("a.csv").write_bytes(begins + bytes(range(256)) * 8)
    code, _, err = command("init", "a.csv")
    assert (code, "a file of bytes; save it as CSV" in err) == (2, True)


def test_a_target_that_some_files_lack_is_refused_by_their_names(command):
    made = clean()
    made["west"][0][-1] = "death"
    code, _, err = command("init", *write(made), "--target", "died")
    assert code == 2
    assert "none in west.csv, which has patient, age, sex, pressure, smoker, death; rename" in err


def test_a_column_that_is_mostly_empty_is_not_guessed_as_the_target(command):
    made = clean()
    made["west"][0][-1] = "death"
    for rows in made.values():
        column(rows, "sex", lambda k, _: str(k % 5))
        column(rows, "smoker", lambda k, _: ("fine", "bad", "", "n/a")[k % 4])
    code, _, err = command("init", *write(made))
    assert code == 2
    assert "died, death: only in some" in err


@pytest.mark.slow
def test_of_many_columns_only_the_first_are_named(ask):
    made = clean()
    for rows in made.values():
        for number in range(40):
            added(rows, f"gene{number}", lambda k, n=number: str((7 * k + n) % 50), 2)
    bounds = next(one for one in ask("init", *write(made))["private"] if "bounds" in one)
    assert bounds.endswith("and 30 more")


@pytest.mark.parametrize(
    ("cells", "key"),
    [
        ([str(k) for k in range(1, 31)], True),
        ([str(k) for k in range(90001, 90031)], True),
        ([f"A-{k}" for k in range(30)], True),
        ([str(k) for k in range(20, 50)], False),  # ages in order
        ([f"{k}.5" for k in range(1, 31)], False),
        (["1", "1", *map(str, range(2, 30))], False),
    ],
)
def test_what_looks_like_a_key_of_rows(cells, key):
    from hubbub.desk.drafting.column_draft import is_key

    assert is_key("value", [cells]) == key


@pytest.mark.parametrize(
    ("cells", "kind", "holds"),
    [
        (["0"] * 190 + [f"{k}" for k in range(1, 11)], "time-to-event", (1.0, 10.0)),
        (["0"] * 995 + [f"{k}00" for k in range(1, 6)], "numeric", (0.0, 500.0)),
        ([f"-{k}" for k in range(1, 99)], "time-to-event", None),
        ([f"-{k}" for k in range(99)], "count", None),
    ],
)
def test_targets_that_are_nearly_all_nothing_have_bounds_or_a_refusal(cells, kind, holds):
    """They had ended in a traceback."""
    from hubbub.desk.drafting.target_draft import learned

    columns = {"x": cells, "died": [("no", "yes")[k % 2] for k in range(len(cells))]}
    event = "died" if kind == "time-to-event" else None
    if holds is None:
        with pytest.raises(DataError, match="found none above 0"):
            learned(columns, "x", kind=kind, event=event)
        return
    outcome = learned(columns, "x", kind=kind, event=event).outcome
    low, high = holds
    assert (outcome.grid[0] <= low) if outcome.grid else (outcome.low <= low)
    assert (outcome.grid[-1] if outcome.grid else outcome.high) >= high


def test_letters_that_nobody_sees_are_in_no_study(tmp_path):
    """A study cannot list them: its draft had been refused for a class or a missing cell."""
    marks, answers = ("\ufeff", "x\ufeff"), ("no", "yes\u200b")
    rows = [f"{20 + k * 7 % 50},{marks[k % 2]},{answers[k % 2]}" for k in range(60)]
    (tmp_path / "a.csv").write_text("\n".join(["age,mark,died", *rows]) + "\n")
    survey = surveyed([tmp_path / "a.csv"])
    made = draft(survey, Answers(target="died"))
    assert Study.parse(draft_text(made)).data.positive == ("yes",)
    assert write_tidy(made, tmp_path / "tidy") == {"a": 0}


@pytest.mark.parametrize("second", ["months", "months,x"])
def test_a_person_whom_no_column_names_is_refused_and_no_traceback(tmp_path, second):
    (tmp_path / "a.csv").write_text("months,died\n4.9,no\n5.1,yes\n")
    (tmp_path / "b.csv").write_text(f"{second}\n{'0,' * second.count(',')}1\n")
    survey = surveyed([tmp_path / "a.csv", tmp_path / "b.csv"])
    given = Answers(target="months", kind="numeric", patient="died")
    assert open_questions(survey, given) is not None
    with pytest.raises(DataError, match=r"'died' in every file, found none in b\.csv"):
        draft(survey, given)


def test_times_that_are_nearly_one_have_a_grid():
    from hubbub.desk.drafting.target_draft import learned

    cells = ["5", "5.0000000001"] * 20
    columns = {"x": cells, "died": ["no", "yes"] * 20}
    outcome = learned(columns, "x", kind="time-to-event", event="died").outcome
    assert outcome.grid[0] < outcome.grid[1]


def test_a_time_that_is_next_to_nothing_is_no_step_of_the_others():
    from hubbub.desk.drafting.target_draft import learned

    cells = [f"{1.5 * k}" for k in range(39)] + ["1e-320"]
    columns = {"x": cells, "died": ["no", "yes"] * 20}
    assert learned(columns, "x", kind="time-to-event", event="died").outcome.step == 0.0


def test_a_column_that_is_nearly_all_the_same_has_bounds():
    from hubbub.desk.drafting.column_draft import column_draft

    cells = ["0"] * 3965 + [f"{k / 7:.3f}" for k in range(35)]
    column = column_draft("lab", [cells]).column
    assert column.low <= 0 < 4.857 <= column.high


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ([["no", "yes", "0", "1"] * 9], "0 and 1 seem to mean no or yes"),
        ([["No", "Yes", "1", "unsure"] * 9], "1 seem to mean no or yes"),
        ([["false", "true"] * 9, ["0", "1"] * 9], "0 and 1 seem to mean false or true"),
        ([["yes", "no"] * 9, ["Ja", "Nein"] * 9, ["TRUE", "FALSE"] * 9], "false and ja and nein"),
        ([["M", "F"] * 9, ["M", "male"] * 9, ["w", "x"] * 9], "map them; one file alone has w, x"),
        ([["no", "yes", "maybe"] * 9], None),
        ([["f", "m"] * 9, ["f", "m", "1"] * 9], None),
        ([["F", "M"] * 9, ["female", "male", "M"] * 9], "f and female, m and male may mean"),
        ([["A", "B", "AB", "0"] * 9], None),
        ([["I", "II", "III", "IV", "V"] * 9], None),
        ([["m", "male", "mixed"] * 9], None),
    ],
)
def test_two_spellings_of_one_class_in_one_column_are_told(files, told):
    """0, 1, no and yes had become four categories without a word, as had F and female."""
    from hubbub.desk.drafting.column_draft import column_draft

    made = column_draft("smoker", files)
    assert made.column is not None
    assert (told in made.why) if told else not made.why
    assert ("one file alone" in made.why) == ("one file alone" in (told or ""))


@pytest.mark.parametrize(("step", "told"), [(0, False), (10, True)])
def test_a_column_with_a_long_tail_is_told_of_log_bins(step, told):
    """Values from 1 to 100, evenly or as a power of ten."""
    from hubbub.desk.drafting.column_draft import column_draft

    cells = [f"{10 ** (k / 33):.2f}" if step else str(k + 1) for k in range(67)]
    cells += [f"{100 * 1.08**k:.1f}" if step else str(k + 68) for k in range(33)]
    made = column_draft("crp", [cells])
    assert ('spacing = "log"' in made.why) == told


@pytest.mark.slow
def test_a_parquet_file_is_drafted_from_and_used_where_it_is(ask):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for name, (header, *rows) in clean().items():
        cells = dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))
        cells["age"] = [None if k == 3 else float(age) for k, age in enumerate(cells["age"])]
        parquet.write_table(arrow.table(cells), f"{name}.parquet")
    found = ask("init", "north.parquet", "south.parquet", "west.parquet")
    study = Study.load("study.toml")
    assert found["ready"]
    assert study.data.files == "{name}.parquet"
    assert len(silo_records.records(study, "west")) == 40


@pytest.mark.slow
def test_a_grid_ends_where_a_tenth_of_the_records_are_followed_and_lies_on_visits(ask):
    """Staggered entry over sixty months, by dates and by visits every three months."""

    def drafted(visit: float) -> Study:
        for number, name in enumerate(("north", "south", "west")):
            draw, rows = random.Random(number), ["age,months,died"]
            for _ in range(400):
                died, lost = draw.expovariate(0.01), draw.uniform(0, 60)
                seen = min(died, lost)
                seen = visit * -(-seen // visit) if visit else round(seen, 1)
                rows.append(f"{draw.randint(40, 80)},{seen:g},{'yes' if died < lost else 'no'}")
            Path(f"{name}.csv").write_text("\n".join(rows) + "\n")
        files = ("north.csv", "south.csv", "west.csv")
        ask("init", *files, "--time", "months", "--event", "died", "--replace")
        return Study.load("study.toml")

    dates = drafted(0.0).data.outcome
    assert dates.step == 0
    assert len(dates.grid) == 8
    assert 40 <= dates.grid[-1] <= 52  # 46 by the law; a hundredth of them are followed for 57
    visits = drafted(3.0).data.outcome
    assert visits.step == 3
    assert all(end % 3 == 0 for end in visits.grid)
    assert 42 <= visits.grid[-1] <= 51
