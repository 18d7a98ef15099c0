"""A cohort and its columns as one query, which is then checked as any other (P31)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubbub.core.errors import StudyError
from hubbub.core.settings import Section
from hubbub.core.study.cell_stream import CellStream
from hubbub.site.omop.omop_keys import (
    EVENT,
    FOLLOWED,
    HAPPENED,
    PERSON,
    TIME,
    Happening,
    Omop,
    OmopColumn,
    column_table,
    omop_from,
)
from hubbub.site.sql.sql_keys import checked

if TYPE_CHECKING:
    from hubbub.site.sql.owned_query import OwnedQuery

ANCESTORS = "concept_ancestor"


@dataclass(frozen=True)
class _Domain:
    """A table of the common data model, and its columns."""

    table: str
    concept: str
    day: str
    key: str


_DOMAINS = {
    name: _Domain(table, f"{name}_concept_id", day, f"{table}_id")
    for name, table, day in (
        ("condition", "condition_occurrence", "condition_start_date"),
        ("drug", "drug_exposure", "drug_exposure_start_date"),
        ("measurement", "measurement", "measurement_date"),
        ("procedure", "procedure_occurrence", "procedure_date"),
        ("visit", "visit_occurrence", "visit_start_date"),
    )
} | {"death": _Domain("death", "cause_concept_id", "death_date", PERSON)}


def compiled(omop: Omop) -> OwnedQuery:
    """The query of a cohort."""
    tables = {one.table: PERSON for one in _DOMAINS.values()}
    tables |= dict.fromkeys(("person", "observation_period"), PERSON)
    return checked(text(omop), tables, reference=(ANCESTORS,), patient=PERSON)


def stream(omop: Omop, party: str, folder: Path) -> CellStream:
    """The rows of a cohort's query at a silo, by its `sources.toml`."""
    from hubbub.site.sql.source import stream_of  # which needs sqlglot

    return stream_of(compiled(omop), party, folder)


def text(omop: Omop) -> str:
    """The query, in PostgreSQL's SQL."""
    first_day = _grouped(f"MIN({_day(omop.index)}) AS day", *_source(omop.index))
    named = [("first_day", first_day), ("index_day", _observed(omop))]
    results, joins = [f"p.{PERSON}"], []
    for place, one in enumerate(omop.columns):
        if one.domain == "person":
            results.append(f'{_AGE if one.take == "age" else _SEX} AS "{one.name}"')
            continue
        name = f"c{place}"
        named += _column(one, name)
        joins.append(f"LEFT JOIN {name} ON {name}.{PERSON} = p.{PERSON}")
        results.append(f'{_result(one, name)} AS "{one.name}"')
    if omop.outcome is not None:
        named.append(("outcome", _outcome(omop.outcome)))
        joins.append(f"LEFT JOIN outcome ON outcome.{PERSON} = p.{PERSON}")
        happened = "outcome.day IS NOT NULL AND outcome.day <= i.until"
        last = f"CASE WHEN {happened} THEN outcome.day ELSE i.until END"
        days = f"CAST({last} AS DATE) - CAST(i.day AS DATE)"
        results += [f"{days} AS {name}" for name in (TIME, FOLLOWED)]
        event = f"CASE WHEN {happened} THEN 1 ELSE 0 END"
        results += [f"{event} AS {name}" for name in (EVENT, HAPPENED)]
    age = f" WHERE {_AGE} BETWEEN {omop.age[0]} AND {omop.age[1]}" if omop.age else ""
    clauses = ", ".join(f"{name} AS ({query})" for name, query in named)
    start = f"FROM person p JOIN index_day i ON i.{PERSON} = p.{PERSON}"
    return f"WITH {clauses} SELECT {', '.join(results)} {start} {' '.join(joins)}{age}"


_INDEX = f" JOIN index_day i ON i.{PERSON} = x.{PERSON}"
_AGE = "EXTRACT(YEAR FROM CAST(i.day AS DATE)) - p.year_of_birth"
_SEX = "CASE WHEN p.gender_concept_id = 8507 THEN 'M' WHEN p.gender_concept_id = 8532 THEN 'F' END"


def _source(one: Happening | OmopColumn, *conditions: str) -> tuple[str, str]:
    """FROM and WHERE of the rows of a domain, under the name x, that have one of the concepts."""
    domain, join = _DOMAINS[one.domain], ""
    where = [f"x.{domain.day} IS NOT NULL", *conditions]
    ids = ", ".join(map(str, one.concepts))
    if one.concepts and one.descendants:
        join = (
            f" JOIN {ANCESTORS} a ON a.descendant_concept_id = x.{domain.concept}"
            f" AND a.ancestor_concept_id IN ({ids})"
        )
    elif one.concepts:
        where.append(f"x.{domain.concept} IN ({ids})")
    return f"{domain.table} x{join}", " AND ".join(where)


def _day(one: Happening | OmopColumn) -> str:
    return f"CAST(x.{_DOMAINS[one.domain].day} AS DATE)"


def _grouped(
    results: str, source: str, where: str, *, key: str = f"x.{PERSON}", also: str = ""
) -> str:
    """A query of one row for each person: of names and numbers that were checked, no texts."""
    return f"SELECT {key}, {results} FROM {source} WHERE {where} GROUP BY {key}{also}"  # noqa: S608


def _observed(omop: Omop) -> str:
    """Who was observed on that day, and until when."""
    since = "CAST(f.day AS DATE) - CAST(o.observation_period_start_date AS DATE)"
    until = "CAST(o.observation_period_end_date AS DATE)"
    return _grouped(
        f"f.day, MAX({until}) AS until",
        f"first_day f JOIN observation_period o ON o.{PERSON} = f.{PERSON}",
        f"{since} >= {omop.prior} AND {until} >= f.day",
        key=f"f.{PERSON}",
        also=", f.day",
    )


def _within(one: OmopColumn) -> str:
    """That a row lies in the window."""
    return f"{_day(one)} - CAST(i.day AS DATE) BETWEEN {one.days[0]} AND {one.days[1]}"


def _value(one: OmopColumn) -> str:
    """A measurement's value, in the unit that counts; missing in any other."""
    plain = "CAST(x.value_as_number AS DOUBLE PRECISION)"
    if (concept := one.concept) is None:
        return plain
    cases = [f"WHEN x.unit_concept_id = {concept.unit_concept_id} THEN {plain}"]
    cases += [
        f"WHEN x.unit_concept_id = {unit} THEN {plain} * CAST({factor} AS DOUBLE PRECISION)"
        for unit, factor in concept.factors
    ]
    return f"CASE {' '.join(cases)} END"


def _column(one: OmopColumn, name: str) -> Iterator[tuple[str, str]]:
    """The named queries of one column."""
    table, where = _source(one, _within(one))
    source = table + _INDEX
    if one.take in ("any", "count"):
        counted = f"COUNT(DISTINCT x.{_DOMAINS[one.domain].key})"
        yield name, _grouped(f"{counted} AS n", source, where)
        return
    value = _value(one)
    where += f" AND {value} IS NOT NULL"
    if one.take in ("min", "max"):
        yield name, _grouped(f"{one.take.upper()}({value}) AS v", source, where)
        return
    which, day = "MIN" if one.take == "first" else "MAX", f"{name}_day"
    yield day, _grouped(f"{which}({_day(one)}) AS day", source, where)
    same = f" JOIN {day} d ON d.{PERSON} = x.{PERSON} AND d.day = {_day(one)}"
    yield name, _grouped(f"MIN({value}) AS v", source + same, where)


def _result(one: OmopColumn, name: str) -> str:
    """The column in the result: what nobody wrote down did not happen."""
    if one.take == "any":
        return f"CASE WHEN {name}.n IS NULL THEN 0 ELSE 1 END"
    return f"COALESCE({name}.n, 0)" if one.take == "count" else f"{name}.v"


def _outcome(outcome: Happening) -> str:
    """The first day after the index date on which it happens."""
    table, where = _source(outcome, f"{_day(outcome)} > i.day")
    return _grouped(f"MIN({_day(outcome)}) AS day", table + _INDEX, where)


# What a study of a cohort need not say: whose a record is, and columns whose bounds are known.

_PARTS = ("column", "time", "event")  # of a target that is a table


def with_columns(stated: Mapping[str, Any]) -> dict[str, Any]:
    """The table `[data]` with the person as the unit, one record each, and all columns declared."""
    omop = omop_from(Section("data", stated, tuple(stated)))
    for key, value in (("patient", PERSON), ("most_per_patient", 1)):
        if stated.get(key, value) != value:
            raise StudyError(
                f"expected data.{key} = {value!r} of a cohort, got another; leave it out"
            )
    target = stated.get("target")
    parts = [target.get(key) for key in _PARTS] if isinstance(target, dict) else [target]
    named = {part for part in parts if isinstance(part, str)}
    own = stated.get("columns", {})
    if not isinstance(own, dict):
        return dict(stated)
    wanted = [column for column in omop.columns if column.name not in named]
    columns = {one.name: own.get(one.name) or column_table(one) for one in wanted} | own
    if omop.outcome is not None and EVENT not in named:
        columns.setdefault(EVENT, {"categories": ["0", "1"]})
    return {**stated, "patient": PERSON, "most_per_patient": 1, "columns": columns}
