"""A cohort in OMOP: what it says of people, against rows read by hand, and alike in all engines."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from hubbub import Study
from hubbub.core.errors import StudyError
from hubbub.core.study import silo_records
from hubbub.site.omop import made_up
from hubbub.site.omop.compiling import compiled
from hubbub.site.omop.omop_keys import common
from hubbub.site.sql.source import rendered

YEAR = [-365, 0]
STUDY: dict[str, Any] = {
    "study": {"name": "diabetes"},
    "parties": {"names": ["north", "south", "west"], "colluders": 1},
    "data": {
        "source": "omop",
        "target": {"kind": "time-to-event", "time": "days", "event": "event", "grid": [365, 730]},
        "records": 200,
        "omop": {
            "index": {"domain": "condition", "concepts": [made_up.DIABETES], "descendants": True},
            "age": [18, 75],
            "prior": 90,
            "outcome": {"domain": "death"},
            "columns": {
                "age": {"domain": "person", "take": "age"},
                "sex": {"domain": "person", "take": "sex"},
                "stroke": {"domain": "condition", "concepts": [made_up.STROKE]},
                "metformin": {"domain": "drug", "concepts": [made_up.METFORMIN], "days": [-3, 3]},
                "stays": {"domain": "visit", "take": "count", "days": YEAR},
                "hba1c": {
                    "domain": "measurement",
                    "concepts": [made_up.HBA1C],
                    "take": "last",
                    "days": YEAR,
                },
                "glucose": {
                    "domain": "measurement",
                    "concepts": [made_up.GLUCOSE],
                    "take": "max",
                    "days": YEAR,
                },
            },
        },
    },
    "model": {"kind": "logistic"},
    "training": {"steps": 2, "sample_rate": 0.1},
    "privacy": {"epsilon": 1.0, "delta": 1e-5},
}


def study(**omop: Any) -> Study:
    data = STUDY["data"] | {"omop": STUDY["data"]["omop"] | omop}
    return Study.from_table({**STUDY, "data": data})


@pytest.fixture(scope="module")
def people() -> made_up.Rows:
    return made_up.rows(120, 3)


def by_hand(rows: made_up.Rows) -> dict[int, dict[str, Any]]:
    """The cohort, person by person."""
    found = {}
    for person in {row[0] for table, row in rows if table == "person"}:
        own = [
            (table, row) for table, row in rows if person in row[:2] and of(table, row) == person
        ]
        if (one := described(own)) is not None:
            found[person] = one
    return found


def of(table: str, row: tuple[Any, ...]) -> object:
    return (
        row[0] if table in ("person", "death") else None if table == "concept_ancestor" else row[1]
    )


def described(rows: list[tuple[str, tuple[Any, ...]]]) -> dict[str, Any] | None:
    """What is known of a person at the index date."""

    def each(table: str) -> list[tuple[Any, ...]]:
        return [row for name, row in rows if name == table]

    (person,) = each("person")
    below = {made_up.DIABETES, made_up.DIABETES + 1_000_000}
    index = min(row[3] for row in each("condition_occurrence") if row[2] in below)
    ends = [r[3] for r in each("observation_period") if (index - r[2]).days >= 90 and r[3] >= index]
    if not ends or not 18 <= index.year - person[2] <= 75:
        return None

    def within(day: date, first: int, last: int) -> bool:
        return first <= (day - index).days <= last

    def values(concept: int) -> list[tuple[date, float]]:
        taken = [row for row in each("measurement") if row[2] == concept and within(row[3], *YEAR)]
        return [(row[3], row[4] * (18.0156 if row[5] == 8753 else 1)) for row in taken]

    hba1c, glucose = values(made_up.HBA1C), values(made_up.GLUCOSE)
    last = max((day for day, _ in hba1c), default=None)
    died = [row[2] for row in each("death") if index < row[2] <= max(ends)]
    return {
        "age": index.year - person[2],
        "sex": {8507: "M", 8532: "F"}[person[1]],
        "stroke": any(
            r[2] == made_up.STROKE and r[3] <= index for r in each("condition_occurrence")
        ),
        "metformin": any(within(row[3], -3, 3) for row in each("drug_exposure")),
        "stays": sum(within(row[3], *YEAR) for row in each("visit_occurrence")),
        "hba1c": min((value for day, value in hba1c if day == last), default=None),
        "glucose": max((value for _, value in glucose), default=None),
        "days": (min(died, default=max(ends)) - index).days,
        "event": bool(died),
    }


@pytest.mark.slow
def test_a_cohort_says_what_is_read_by_hand(people: made_up.Rows):
    query = compiled(study().data.request.omop)
    with duckdb.connect() as opened:
        made_up.write(opened.execute, people)
        found = opened.execute(rendered(query.select, "duckdb")).fetchall()
    told = {int(row[0]): dict(zip(query.columns[1:], row[1:], strict=True)) for row in found}
    expected = by_hand(people)
    assert 20 < len(expected) < 120
    assert len({one["event"] for one in expected.values()}) == 2
    assert told.keys() == expected.keys()
    for person, one in expected.items():
        for name, value in one.items():
            cell = told[person][name]
            assert cell == (pytest.approx(value) if isinstance(value, float) else value), name


@pytest.mark.slow
def test_p31_engines_that_hold_the_same_people_give_the_same_bytes(
    people: made_up.Rows, postgresql: Any, tmp_path: Path
):
    urls = {"duckdb": "duckdb:///registry", "sqlite": "sqlite:///registry"}
    urls["postgresql"] = postgresql.made("omop")
    found = {}
    for engine, url in urls.items():
        home = tmp_path / engine
        home.mkdir()
        (home / "sources.toml").write_text(f'[north]\nurl = "{url}"\n')
        (home / "sources.toml").chmod(0o600)
        fill(engine, home / "registry", people, postgresql)
        records = silo_records.records(study(), "north", folder=home)
        assert records.patients is not None
        found[engine] = [a.tobytes() for a in (records.inputs, records.targets, records.patients)]
    assert len(records) == records.units == len(by_hand(people))
    assert found["duckdb"] == found["postgresql"] == found["sqlite"]


def fill(engine: str, path: Path, people: made_up.Rows, postgresql: Any) -> None:
    """One engine's database, SQLite's in another order and with dates as texts."""
    if engine == "postgresql":
        with postgresql.owner("omop") as opened, opened.cursor() as cursor:
            made_up.write(cursor.execute, people, "%s")
            cursor.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
    elif engine == "duckdb":
        with duckdb.connect(str(path)) as opened:
            made_up.write(opened.execute, people)
    else:
        with closing(sqlite3.connect(path)) as opened:
            texts = [(name, tuple(map(plain, row))) for name, row in people[::-1]]
            made_up.write(opened.execute, texts)
            opened.commit()


def plain(value: object) -> object:
    return value.isoformat() if isinstance(value, date) else value


def test_columns_that_a_study_does_not_declare_have_the_bounds_that_are_known():
    columns = {one.name: one for one in study().data.columns}
    assert list(columns) == ["age", "sex", "stroke", "metformin", "stays", "hba1c", "glucose"]
    assert columns["hba1c"].bounds == (3, 18)
    assert columns["glucose"].bounds == (20, 800)
    assert columns["stroke"].categories == ("0", "1")
    own = {"hba1c": {"low": 4.0, "high": 14.0, "default": 7.0}}
    data = STUDY["data"] | {"columns": own}
    made = Study.from_table({**STUDY, "data": data})
    assert {one.name: one for one in made.data.columns}["hba1c"].bounds == (4, 14)
    assert len(made.data.columns) == 7


@pytest.mark.slow
def test_a_study_of_a_cohort_comes_back_from_its_file_and_its_unit_is_the_person():
    made = study()
    assert (made.data.unit, made.data.patient) == ("patient", "person_id")
    assert made.data.most_per_patient == 1
    assert Study.parse(made.as_toml()).id == made.id
    assert study(prior=91).id != made.id


def test_what_is_no_cohort_is_refused():
    columns: Mapping[str, Any] = STUDY["data"]["omop"]["columns"]
    for wrong, said in (
        ({"index": {"domain": "person"}}, "data.omop.index.domain"),
        ({"index": {"concepts": [1]}}, "data.omop.index.domain"),
        ({"age": [80, 18]}, "data.omop.age"),
        ({"columns": {"x; DROP": {"domain": "visit"}}}, "a name of letters"),
        ({"columns": {"x y": {"domain": "visit"}}}, "a name of letters"),
        ({"columns": {**columns, "person_id": {"domain": "visit"}}}, "person_id"),
        ({"columns": {"x": {"domain": "visit", "take": "age"}}}, 'domain = "person"'),
        ({"columns": {"x": {"domain": "visit", "take": "last"}}}, "of a measurement"),
        ({"columns": {"x": {"domain": "measurement", "concepts": [5], "take": "last"}}}, "bounds"),
        ({"columns": {"x": {"domain": "visit", "days": [1]}}}, "days"),
        ({"columns": {"x": {"domain": "visit", "concepts": ["1; DROP"]}}}, "concepts"),
        ({"outcome": {"domain": "labs"}}, "data.omop.outcome.domain"),
    ):
        with pytest.raises(StudyError, match=said):
            study(**wrong)
    for key, value in (("patient", "pid"), ("most_per_patient", 3), ("query", "SELECT 1")):
        with pytest.raises(StudyError, match=f"data.{key}"):
            Study.from_table({**STUDY, "data": STUDY["data"] | {key: value}})


def test_common_concepts_have_bounds_around_a_typical_value_and_factors_that_keep_it_possible():
    found = common()
    assert len(found) >= 20
    for one in found.values():
        assert one.low < one.typical < one.high
        for unit, factor in one.factors:
            assert unit != one.unit_concept_id
            assert np.isfinite(factor)
            assert factor > 0
    glucose = found[made_up.GLUCOSE]
    assert dict(glucose.factors)[8753] * 5.55 == pytest.approx(100, rel=0.01)  # mmol/L to mg/dL
    assert dict(found[3016723].factors)[8749] * 88.42 == pytest.approx(1, rel=0.001)
    assert dict(found[3000905].factors) == {8816: 1, 8961: 1, 9444: 1}  # one size, four names
