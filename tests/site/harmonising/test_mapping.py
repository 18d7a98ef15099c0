"""Data dictionaries, and a site's own mapping of units, spellings, dates and names."""

from __future__ import annotations

import csv
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hubbub import Study
from hubbub.core.errors import DataError, StudyError, UserError
from hubbub.core.study import silo_records
from hubbub.core.study.cell_stream import ColumnMapping, mapped, mapping_of
from hubbub.core.study.extract import order_number
from hubbub.core.tabular.cells import number_in
from hubbub.desk.cli.main import main
from hubbub.desk.drafting.draft_files import mapping_draft
from hubbub.desk.drafting.raw_table import RawTable
from hubbub.desk.drafting.table_check import checked
from hubbub.site.data_dictionary import data_dictionary

STUDY = """
study.name = "units"
[parties]
names = ["north", "south"]
colluders = 0
[data]
files = "{name}.csv"
target = "died"
records = 400
patient = "pid"
most_per_patient = 1
[data.columns]
sex = { categories = ["F", "M"] }
glucose = { low = 20, high = 800, default = 100, missing = ["n/a"] }
seen = { low = 0, high = 100, feature = false }
[model]
kind = "logistic"
[training]
steps = 2
sample_rate = 0.1
[privacy]
epsilon = 1.0
delta = 1e-5
"""
NORTH = "pid,sex,glucose,died,seen\n" + "".join(
    f"{k},{'FM'[k % 2]},{18.0156 * (5 + k % 7 / 2)!r},{k % 3 % 2},{k % 50}\n" for k in range(60)
)
SOUTH = "pid;Geschlecht;Glukose;Died;seen\n" + "".join(
    f"{k};{('weiblich', 'männlich')[k % 2]};{5 + k % 7 / 2};{k % 3 % 2};{k % 50}\n".replace(
        ".", ","
    )
    for k in range(60)
)
MAPPING = """
[south.sex]
from = "Geschlecht"
spellings = { weiblich = "F", "männlich" = "M" }
[south.glucose]
from = "Glukose"
decimal = ","
factor = 18.0156
[south.died]
from = "Died"
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with both sites' files, of the same people."""
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(STUDY)
    Path("north.csv").write_text(NORTH)
    with Path("south.csv").open("w", newline="") as file:
        csv.writer(file).writerows(line.split(";") for line in SOUTH.splitlines())
    Path("mapping.toml").write_text(MAPPING)
    return tmp_path


def test_two_sites_with_other_names_units_and_spellings_have_the_same_records(here: Path):
    study = Study.load("study.toml")
    north, south = (silo_records.records(study, name, folder=here) for name in ("north", "south"))
    assert north.inputs.tobytes() == south.inputs.tobytes()
    assert north.targets.tobytes() == south.targets.tobytes()
    assert not [one for one in checked(study, ["north", "south"], here) if one.refused]
    Path("mapping.toml").unlink()
    with pytest.raises(DataError, match="south"):
        silo_records.records(study, "south", folder=here)
    assert [one for one in checked(study, ["south"], here) if one.refused]


def test_a_query_gives_what_a_sites_mapping_makes_of_it(here: Path):
    with closing(sqlite3.connect("south.sqlite")) as opened:
        opened.execute("CREATE TABLE t (pid, sex, glucose, died, seen)")
        rows = [line.split(";") for line in SOUTH.splitlines()[1:]]
        opened.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", rows)
        opened.commit()
    Path("sources.toml").write_text('[south]\nurl = "sqlite:///south.sqlite"\n')
    Path("sources.toml").chmod(0o600)
    own = MAPPING.replace('from = "Geschlecht"\n', "").replace('from = "Glukose"\n', "")
    Path("mapping.toml").write_text(own.replace('from = "Died"\n', ""))
    asked = STUDY.replace(
        'files = "{name}.csv"',
        'source = "sql"\nquery = "SELECT pid, sex, glucose, died, seen FROM t"\n'
        'tables = { t = "pid" }',
    )
    south = silo_records.records(Study.parse(asked), "south", folder=here)
    north = silo_records.records(Study.load("study.toml"), "north", folder=here)
    assert sorted(map(bytes, south.inputs)) == sorted(map(bytes, north.inputs))


def test_a_first_mapping_is_written_from_a_sites_cells(here: Path):
    Path("mapping.toml").unlink()
    with Path("south.csv").open("w", newline="") as file:
        lines = [line.split(";") for line in SOUTH.splitlines()]
        lines[0] = ["PID", "Sex", "Glucose ", "died", "seen"]
        csv.writer(file).writerows(
            [line[0], {"weiblich": "f"}.get(line[1], line[1]), *line[2:]] for line in lines
        )
    assert main(["check", "study.toml", "--silo", "south", "--mapping", "m.toml"]) == 0
    text = Path("m.toml").read_text()
    for part in (
        '[south.pid]\nfrom = "PID"',
        '[south.sex]\nfrom = "Sex"\nspellings = { "f" = "F" }\n# spellings: what are "männlich"?',
        'decimal = ","\n# hardly any value is within the bounds: is it another unit?\n',
        "\n# factor = 18.0156",
    ):
        assert part in text
    assert set(mapping_of("south", _as_mapping(text, here), "pid")) == {"pid", "sex", "glucose"}
    assert main(["check", "study.toml", "--silo", "south", "--mapping", "m.toml"]) != 0
    assert main(["check", "study.toml", "--mapping", "n.toml"]) != 0


def _as_mapping(text: str, here: Path) -> Path:
    (here / "mapping.toml").write_text(text)
    return here


@pytest.mark.parametrize(
    ("mapping", "cell", "becomes"),
    [
        ({"factor": 18.0156}, "5.5", repr(5.5 * 18.0156)),
        ({"factor": 1.8, "offset": 32.0}, "37", repr(37 * 1.8 + 32)),
        ({"decimal": ","}, "5,5", "5.5"),
        ({"decimal": ","}, "n/a, see chart", "n/a, see chart"),
        ({"factor": 2.0}, "nothing", "nothing"),
        ({"factor": 2.0}, "", ""),
        ({"date": "%d.%m.%Y"}, "31.05.2024", "2024-05-31"),
        ({"date": "%d.%m.%Y"}, "31.02.2024", "31.02.2024"),
        ({"date": "%d.%m.%Y %H:%M"}, "01.05.2024 13:00", "2024-05-01T13:00:00"),
        ({"date": "%d.%m.%Y %H:%M%z"}, "01.05.2024 00:00+0200", "2024-05-01T00:00:00+02:00"),
        ({"spellings": (("1.0", "yes"),)}, "1", "yes"),
        ({"spellings": (("ja", "yes"),), "factor": 2.0}, "ja", "yes"),
    ],
)
def test_a_cell_becomes_what_its_mapping_says_or_stays(mapping: Any, cell: str, becomes: str):
    assert ColumnMapping(source="a", **mapping).cell(cell) == becomes


def test_rows_of_one_day_are_in_the_order_of_their_hours() -> None:
    column = ColumnMapping(source="a", date="%d.%m.%Y %H:%M")
    cells = ["30.04.2024 23:59", "01.05.2024 00:00", "01.05.2024 08:30", "01.05.2024 13:00"]
    numbers = [order_number(column.cell(cell)) for cell in cells]
    assert None not in numbers
    assert numbers == sorted({*filter(None, numbers)})


@pytest.mark.parametrize("cell", ["1.234", "1.234,5", "1,234.5", "12.5"])
def test_a_point_where_the_decimal_sign_is_a_comma_is_no_decimal_point(cell: str) -> None:
    """A German thousand was once read as one and a bit."""
    for factor in (1.0, 2.0):
        becomes = ColumnMapping(source="a", decimal=",", factor=factor).cell(cell)
        assert number_in(becomes) is None
    assert ColumnMapping(source="a", decimal=",").cell("e.g. this") == "e.g. this"


def test_a_column_of_the_studys_name_does_not_stand_in_for_the_mapped_one() -> None:
    cells = {"weight": ["154"], "Gewicht": ["70"]}
    mapping = {"weight": ColumnMapping(source="Gewicht_kg", factor=1.0)}
    assert "weight" not in mapped(cells, mapping)
    mapping = {"weight": ColumnMapping(source="Gewicht"), "Gewicht": ColumnMapping(source="weight")}
    assert mapped(cells, mapping) == {"weight": ["70"], "Gewicht": ["154"]}


def test_a_spelling_stands_once_in_a_mapping(tmp_path: Path) -> None:
    (tmp_path / "mapping.toml").write_text('[south.sex]\nspellings = { 1 = "F", "1.0" = "M" }\n')
    with pytest.raises(StudyError, match="each spelling once"):
        mapping_of("south", tmp_path, "pid")


@pytest.mark.parametrize(
    "text",
    [
        "north = 3",
        "[north]\nage = 3",
        "[north.age]\nfactor = 'x'",
        "[north.age]\nunit = 'kg'",
        "[north.age]\nspellings = {a = 1}",
        "[north.age",
    ],
)
def test_a_mapping_that_is_none_is_refused(tmp_path: Path, text: str):
    (tmp_path / "mapping.toml").write_text(text)
    with pytest.raises((UserError, StudyError), match="expected"):
        mapping_of("north", tmp_path, "pid")


def test_a_data_dictionary_says_what_each_column_means(
    here: Path, capsys: pytest.CaptureFixture[str]
):
    entries = {one.column: one for one in data_dictionary(Study.load("study.toml"))}
    assert list(entries) == ["pid", "died", "sex", "glucose", "seen"]
    assert (entries["pid"].role, entries["died"].codes) == ("patient", ("0", "1"))
    assert (entries["glucose"].low, entries["glucose"].high) == ("20", "800")
    assert entries["glucose"].missing == "counts as 100.0, also written n/a"
    assert entries["seen"].role == "statistics"
    assert main(["schema", "data", "study.toml", "--out", "dictionary.csv"]) == 0
    with Path("dictionary.csv").open(newline="") as file:
        assert [row["column"] for row in csv.DictReader(file)] == list(entries)
    capsys.readouterr()
    assert main(["schema", "data", "study.toml", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["columns"]) == 5
    assert main(["schema", "data"]) != 0
    columns = STUDY[STUDY.index("files") : STUDY.index("[model]")]
    built_in = STUDY.replace(columns, 'source = "hubbub.datasets:heart"\n')
    with pytest.raises(StudyError, match=r"expected data\.columns"):
        data_dictionary(Study.parse(built_in))


def test_truth_values_of_an_event_are_mapped_as_those_of_a_class() -> None:
    """The study spells them as text, this site's database has made 1 and 0 of it."""
    timed = STUDY.replace(
        'target = "died"',
        'target = { time = "days", kind = "time-to-event", event = "died", positive = ["yes"], '
        'negative = ["no"], grid = [10, 20, 30] }',
    )
    table = RawTable.of(
        "north",
        ("pid", "sex", "glucose", "days", "died", "seen"),
        [(f"p{k}", "F", "100", str(k), str(k % 2), "3") for k in range(20)],
    )
    assert mapping_draft(table, "north", Study.parse(timed).data) == (
        '[north.died]\nspellings = { "0" = "no", "1" = "yes" }\n'
    )


def drafted(cells: list[str]) -> str:
    """What is proposed for the column of glucose."""
    rows = [(f"p{k}", "F", cell, str(k % 2), "3") for k, cell in enumerate(cells)]
    table = RawTable.of("north", ("pid", "sex", "glucose", "died", "seen"), rows)
    return mapping_draft(table, "north", Study.parse(STUDY).data)


def test_a_comma_is_proposed_where_more_cells_are_numbers_with_it_than_without() -> None:
    """A mapping that states it reads no point: one comma was once paid for by all others."""
    assert drafted(["100,5"] * 9 + ["1.100", "100.5"]) == (
        '[north.glucose]\ndecimal = ","\nspellings = { "1.100" = "1100", "100.5" = "100.5" }\n'
    )
    assert drafted(["100.5"] * 9 + ["100,5", "<40", "none"]) == (
        '[north.glucose]\nspellings = { "100,5" = "100.5" }\n'
    )
    unit = drafted(["5.5"] * 9 + ["5,5"])
    assert "factor = 18.0156" in unit
    assert "spellings" not in unit  # it would be in the site's unit


@pytest.mark.parametrize(
    "more",
    ['decimal = ","', "factor = 0.5", "offset = 1", 'spellings = { b = "a" }', 'date = "%Y"'],
)
def test_p21_a_mapping_names_the_column_of_keys_and_changes_none(tmp_path: Path, more: str):
    (tmp_path / "mapping.toml").write_text('[north.pid]\nfrom = "nr"')
    assert mapping_of("north", tmp_path, "pid")["pid"].source == "nr"
    (tmp_path / "mapping.toml").write_text(f'[north.pid]\nfrom = "nr"\n{more}')
    with pytest.raises(UserError, match="may make one patient of several"):
        mapping_of("north", tmp_path, "pid")


def test_a_code_that_the_study_counts_as_missing_has_no_unit(tmp_path: Path) -> None:
    """-999 mmol/l had become -17,997.6 mg/dl, and counted as the lower bound."""
    data = Study.parse(STUDY.replace('missing = ["n/a"]', 'missing = ["-999", "NA"]')).data
    (tmp_path / "mapping.toml").write_text("[north.glucose]\nfactor = 18.0156")
    mapping = mapping_of("north", tmp_path, data.patient, data.columns)
    own = {"pid": ["1"] * 4, "glucose": ["5", "-999", "-999.0", "NA"]}
    assert mapped(own, mapping)["glucose"] == ["90.078", "-999", "-999.0", "NA"]
    (tmp_path / "mapping.toml").write_text(
        '[north.glucose]\nfactor = 18.0156\nspellings = { "-999" = "55" }'
    )
    mapping = mapping_of("north", tmp_path, data.patient, data.columns)
    assert mapped(own, mapping)["glucose"][1] == "55"


@pytest.mark.parametrize("form", ["%d.%m.%Y %H:%M %Z", "%%%Z"])
def test_the_name_of_a_zone_is_refused_as_it_says_no_offset(tmp_path: Path, form: str):
    """01:30 CEST and 01:30 CET are an hour apart, and `strptime` reads both alike, or neither."""
    (tmp_path / "mapping.toml").write_text(f'[north.seen]\ndate = "{form}"')
    with pytest.raises(StudyError, match=r"a form without %Z.*write %z"):
        mapping_of("north", tmp_path, "pid")
    (tmp_path / "mapping.toml").write_text('[north.seen]\ndate = "%d.%m.%Y %%Z %z"')
    assert mapping_of("north", tmp_path, "pid")["seen"].date.endswith("%z")
