"""A made-up OMOP database, of nobody: for tests, and to try a study before anybody's data.

    python -m hubbub.site.omop.made_up north.duckdb 2000 1

writes one of 2,000 people from seed 1. Everybody has diabetes from some day on; older people, and
those with a high HbA1c, die sooner. Tables have the columns of version 5.4 that hubbub reads.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np

DIABETES, STROKE, METFORMIN, HBA1C, GLUCOSE, INPATIENT = (
    201826,
    381316,
    1503297,
    3004410,
    3004501,
    9201,
)
TABLES = {
    "person": "person_id INTEGER, gender_concept_id INTEGER, year_of_birth INTEGER",
    "observation_period": "observation_period_id INTEGER, person_id INTEGER, "
    "observation_period_start_date DATE, observation_period_end_date DATE",
    "condition_occurrence": "condition_occurrence_id INTEGER, person_id INTEGER, "
    "condition_concept_id INTEGER, condition_start_date DATE",
    "drug_exposure": "drug_exposure_id INTEGER, person_id INTEGER, drug_concept_id INTEGER, "
    "drug_exposure_start_date DATE",
    "measurement": "measurement_id INTEGER, person_id INTEGER, measurement_concept_id INTEGER, "
    "measurement_date DATE, value_as_number NUMERIC(12, 4), unit_concept_id INTEGER",
    "procedure_occurrence": "procedure_occurrence_id INTEGER, person_id INTEGER, "
    "procedure_concept_id INTEGER, procedure_date DATE",
    "visit_occurrence": "visit_occurrence_id INTEGER, person_id INTEGER, visit_concept_id INTEGER, "
    "visit_start_date DATE",
    "death": "person_id INTEGER, cause_concept_id INTEGER, death_date DATE",
    "concept_ancestor": "ancestor_concept_id INTEGER, descendant_concept_id INTEGER",
}
_TYPE_2 = 201826 + 1_000_000  # a made-up concept below that of diabetes
_MMOL, _MG, _PERCENT = 8753, 8840, 8554
Rows = list[tuple[str, tuple[Any, ...]]]


def rows(people: int, seed: int) -> Rows:
    """Every row, with its table."""
    draw = np.random.default_rng(seed)
    made_rows: Rows = [("concept_ancestor", (DIABETES, below)) for below in (DIABETES, _TYPE_2)]
    for person in range(1, people + 1):
        made_rows += _person(person, draw)
    counts = dict.fromkeys(TABLES, 0)
    numbered: Rows = []
    for table, row in made_rows:
        counts[table] += 1
        is_numbered = TABLES[table].startswith(f"{table}_id") and table != "person"
        numbered.append((table, (counts[table], *row) if is_numbered else row))
    return numbered


def _person(person: int, draw: np.random.Generator) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """All rows of one person."""
    born, high = int(draw.integers(1935, 1995)), float(draw.normal(7.5, 1.4))
    yield "person", (person, int(draw.choice([8507, 8532])), born)
    start = date(2015, 1, 1) + timedelta(days=int(draw.integers(0, 700)))
    index = start + timedelta(days=int(draw.integers(30, 900)))
    rate = 0.02 * np.exp(0.05 * (2016 - born - 55) + 0.4 * (high - 7.5))
    dies = index + timedelta(days=int(365 * draw.exponential(1 / rate)) + 1)
    end = min(dies, date(2023, 12, 31) - timedelta(days=int(draw.integers(0, 900))))
    yield "observation_period", (person, start, end)
    concept = int(draw.choice([DIABETES, _TYPE_2]))
    yield "condition_occurrence", (person, concept, index)
    yield "condition_occurrence", (person, concept, index + timedelta(days=40))
    if draw.random() < 0.2:
        yield "condition_occurrence", (person, STROKE, index - timedelta(days=20))
    if draw.random() < 0.6:
        yield (
            "drug_exposure",
            (person, METFORMIN, index + timedelta(days=int(draw.integers(-9, 9)))),
        )
    for _ in range(int(draw.poisson(1.5))):
        day = index - timedelta(days=int(draw.integers(0, 500)))
        yield (
            "measurement",
            (person, HBA1C, day, round(max(high + draw.normal(0, 0.3), 3), 2), _PERCENT),
        )
        mmol = bool(draw.random() < 0.5)
        value = (8 if mmol else 144) * (1 + 0.2 * draw.normal())
        yield "measurement", (person, GLUCOSE, day, round(value, 1), _MMOL if mmol else _MG)
    for _ in range(int(draw.poisson(2))):
        day = index - timedelta(days=int(draw.integers(0, 700)))
        yield "visit_occurrence", (person, INPATIENT, day)
    if dies == end:
        yield "death", (person, 0, dies)


def write(execute: Callable[..., Any], filled: Rows, mark: str = "?") -> None:
    """Make the tables and fill them."""
    for table, columns in TABLES.items():
        execute(f"CREATE TABLE {table} ({columns})")
    for table, row in filled:
        marks = ", ".join([mark] * len(row))
        execute(f"INSERT INTO {table} VALUES ({marks})", row)  # noqa: S608 (a table of the list above)


def main(arguments: list[str]) -> None:
    """Write a DuckDB file: its path, the number of people, the seed."""
    import duckdb

    path, people, seed = Path(arguments[0]), int(arguments[1]), int(arguments[2])
    with duckdb.connect(str(path)) as opened:
        opened.begin()
        write(opened.execute, rows(people, seed))
        opened.commit()


if __name__ == "__main__":
    main(sys.argv[1:])
