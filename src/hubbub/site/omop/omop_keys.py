"""Common measurements with their unit and public bounds: `concepts.csv`.

Ids are OMOP's for LOINC's codes and UCUM's units, compared with OHDSI's DataQualityDashboard
(`inst/csv/OMOP_CDMv5.4_Concept_Level.csv`, January 2026) and its mappings of MIMIC
(`gcpt_meas_unit.csv`). Other units are those of that list that sites write most and a factor leads
from, and mmol/L of cholesterols; Fahrenheit, and mmol/mol of HbA1c, need an offset too: their
values are missing. Bounds are of what instruments and textbooks call possible, rounded outward, and
are no site's; a typical value is the middle of common reference ranges.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hubbub.core.errors import StudyError
from hubbub.core.settings import (
    NAME,
    Key,
    Keys,
    Section,
    keys_of,
    later,
    one_of,
    read,
    read_inner,
    schema,
    settings,
    table,
    truth,
    whole,
)
from hubbub.core.study.cell_stream import CellStream
from hubbub.core.study.source import TableSource

if TYPE_CHECKING:
    from hubbub.core.study.data import Data


@dataclass(frozen=True, kw_only=True)
class Concept:
    """One common measurement."""

    concept_id: int
    name: str
    unit_concept_id: int
    unit: str
    low: float
    high: float
    typical: float
    factors: tuple[tuple[int, float], ...]  # by other units' concept ids: one of them in `unit`


@cache
def common() -> dict[int, Concept]:
    """All of them, by id."""
    text = (resources.files("hubbub.site.omop") / "concepts.csv").read_text(encoding="utf-8")
    return {int(row["concept_id"]): _concept(row) for row in csv.DictReader(text.splitlines())}


def known(concepts: Sequence[int]) -> Concept | None:
    """The common measurement that is the only one among some ids; None if it is none."""
    return common().get(concepts[0]) if len(concepts) == 1 else None


def _concept(row: dict[str, str]) -> Concept:
    pairs = [word.split(":") for word in row["other_units"].split()]
    return Concept(
        concept_id=int(row["concept_id"]),
        name=row["name"],
        unit_concept_id=int(row["unit_concept_id"]),
        unit=row["unit"],
        low=float(row["low"]),
        high=float(row["high"]),
        typical=float(row["typical"]),
        factors=tuple((int(unit), float(factor)) for unit, factor in pairs),
    )


# The table `[data.omop]`: who is in the cohort, and what is known of each person.
#
# Every person of the cohort becomes one record. Its *index date* is the first day with one of some
# concepts, within an observation period; columns are what happened in windows of days around it.

PERSON = "person_id"
DOMAINS = ("condition", "drug", "measurement", "procedure", "visit", "death", "person")
TAKES = ("any", "count", "first", "last", "min", "max", "age", "sex")
TIME, EVENT = "days", "event"  # the columns that an outcome gives
FOLLOWED, HAPPENED = "followed", "happened"  # the same, for statistics beside a target
_ALWAYS = 36_500
_CONCEPTS = Key(
    says="Concept ids of the standard vocabularies; all of the domain if left out.",
    values="list of whole numbers",
    schema={"type": "array", "items": {"type": "integer", "minimum": 1}, "maxItems": 1000},
    reader=lambda section, key, _: section.wholes(key, longest=1000),
)
_DESCENDANTS = truth(
    "Whether the concepts below them count too, by the site's own table "
    "`concept_ancestor`, which is assumed not to depend on who is in the database."
)


def _pair_key(says: str, values: str, least: int, most: int) -> Key:
    items = {"type": "integer", "minimum": least, "maximum": most}
    pair = {"type": "array", "items": items, "minItems": 2, "maxItems": 2}
    return Key(says=says, values=values, schema=pair)


_TAKE = one_of(
    *TAKES,
    says="Whether it happened (`1`, `0`), how often, or a measurement's first, last, smallest or "
    'largest value; for `"person"` the age in years or the sex (`F`, `M`).',
)
_DAYS = _pair_key(
    "The window, from this many days after the index date to this many; negative: before.",
    "list of two whole numbers",
    *(-_ALWAYS, _ALWAYS),
)
_AGE = _pair_key(
    "Youngest and oldest age in years at the index date; others are not in the cohort.",
    "list of two whole numbers from 0",
    *(0, 150),
)


@settings
class Happening:
    """What happens on a day: one of some concepts of a domain."""

    domain: Annotated[str, one_of(*DOMAINS[:-1], says="Where it is written down.")]
    concepts: Annotated[tuple[int, ...], _CONCEPTS] = ()
    descendants: Annotated[bool, _DESCENDANTS] = False


@settings
class OmopColumn:
    """What is known of a person at the index date."""

    name: Annotated[str, "the column's name."]
    domain: Annotated[str, one_of(*DOMAINS, says="Where it is written down.")]
    concepts: Annotated[tuple[int, ...], _CONCEPTS] = ()
    descendants: Annotated[bool, _DESCENDANTS] = False
    take: Annotated[str, _TAKE] = "any"
    days: Annotated[tuple[int, int], _DAYS] = (-_ALWAYS, 0)

    @property
    def concept(self) -> Concept | None:
        """The common concept that it is a measurement of, if it is one."""
        return known(self.concepts) if self.domain == "measurement" else None


@settings
class Omop:
    """The cohort and its columns."""

    index: Annotated[
        Happening,
        table("The index date is the first day on which this happens.", default="required"),
    ]
    prior: Annotated[
        int, whole(0, _ALWAYS, "Days of observation required before the index date.")
    ] = 0
    age: Annotated[tuple[int, ...], _AGE] = ()
    outcome: Annotated[
        Happening | None,
        table(
            f"Gives the columns `{TIME}` and `{EVENT}`: days from the index date to the first day "
            "after it on which this happens (`1`), or to the end of the observation period (`0`); "
            f"for statistics beside them as a target the same as `{FOLLOWED}` and `{HAPPENED}`.",
            default="either",
        ),
    ] = None
    columns: Annotated[
        tuple[OmopColumn, ...],
        table("The columns, by name.", "table of tables", default="required"),
    ] = ()


_OMOP = table(
    'With `"omop"`: the [cohort and its columns](howto/omop.md), by concept.', default="none"
)


@settings
class Cohort:
    """The key of `[data]` that has them."""

    omop: Annotated[Omop, later(_OMOP)]


class OmopSource(TableSource):
    """Databases in the OMOP common data model, by one cohort."""

    Settings = Cohort

    def inner_keys(self) -> dict[str, Keys]:
        """Those of the cohort, its events and its columns."""
        return {
            "omop": keys_of(Omop),
            "omop.index": keys_of(Happening),
            "omop.outcome": keys_of(Happening),
            f"omop.columns.{NAME}": keys_of(OmopColumn),
        }

    def inner_schemas(self) -> dict[str, Any]:
        """That of the cohort."""
        happening = schema(keys_of(Happening))
        columns = {"additionalProperties": schema(keys_of(OmopColumn))}
        return {"omop": schema(keys_of(Omop), index=happening, outcome=happening, columns=columns)}

    def completed(self, table: Mapping[str, Any]) -> Mapping[str, Any]:
        """With the person as the unit, and columns whose bounds are known."""
        from hubbub.site.omop.compiling import with_columns

        return with_columns(table)

    def readers(self) -> Mapping[str, Callable[[Section], Any]]:
        """The cohort must be there."""
        return {"omop": omop_from}

    def written(self, request: Cohort) -> dict[str, Any]:
        """With columns by name."""
        return {"omop": omop_table(request.omop)}

    def meanings(self, request: Cohort) -> Mapping[str, tuple[str, tuple[int, ...]]]:
        """Of the declared columns."""
        return {
            one.name: (one.concept.unit if one.concept else "", one.concepts)
            for one in request.omop.columns
        }

    def columns(self, data: Data) -> Sequence[str]:
        """Those of the cohort's query, which keeps people apart, whatever the cohort."""
        from hubbub.site.omop.compiling import compiled

        return compiled(data.request.omop).columns

    def stream(self, data: Data, party: str, folder: Path) -> CellStream:
        """The rows of the cohort's query, by the silo's `sources.toml`."""
        from hubbub.site.omop.compiling import stream

        return stream(data.request.omop, party, folder)


def omop_from(section: Section) -> Omop:
    """The table `omop` of `[data]`."""
    return read(
        Omop,
        "data.omop",
        section.table("omop"),
        index=lambda inner: read(Happening, inner.path("index"), inner.table("index")),
        age=lambda inner: _pair(inner, "age", (), 0, 150),
        outcome=lambda inner: read_inner(Happening, inner, "outcome"),
        columns=lambda inner: tuple(
            _column(name, entry) for name, entry in inner.table("columns").items()
        ),
    )


def omop_table(omop: Omop) -> dict[str, Any]:
    """The table that is read as this."""
    stated: dict[str, Any] = {"index": _stated(omop.index)}
    stated |= {"prior": omop.prior} if omop.prior else {}
    stated |= {"age": list(omop.age)} if omop.age else {}
    stated |= {"outcome": _stated(omop.outcome)} if omop.outcome else {}
    return stated | {"columns": {column.name: _stated(column) for column in omop.columns}}


def column_table(one: OmopColumn) -> dict[str, Any]:
    """How `data.columns` declares a column whose bounds are known to hubbub alone."""
    if one.take == "any":
        return {"categories": ["0", "1"]}
    if one.take == "sex":
        return {"categories": ["F", "M", "unknown"], "default": "unknown"}
    if one.take == "age":
        return {"low": 0, "high": 110}
    if one.take == "count":
        return {"low": 0, "high": 20}
    if (concept := one.concept) is None:
        raise StudyError(
            f"expected data.columns.{one.name} with its bounds, got none, and the concept is not "
            "among the common ones; declare it"
        )
    return {
        "low": concept.low,
        "high": concept.high,
        "default": concept.typical,
        "indicator": True,
    }


def _column(name: str, entry: object) -> OmopColumn:
    path = f"data.omop.columns.{name}"
    if not isinstance(entry, Mapping):
        raise StudyError(f"expected {path} to be a table, got another value; write one")
    if not name.isidentifier() or not name.isascii() or len(name) > 63:
        raise StudyError(
            f"expected a name of letters, digits and _ for {path}, got another; rename it"
        )
    column = read(
        OmopColumn,
        path,
        entry,
        name=lambda _: name,
        days=lambda section: _pair(section, "days", (-_ALWAYS, 0), -_ALWAYS, _ALWAYS),
    )
    of_person = column.take in ("age", "sex")
    if of_person != (column.domain == "person") or (of_person and column.concepts):
        raise StudyError(
            f'expected take = "age" or "sex" of domain = "person" and of no other in {path}, got '
            "another pair; correct it"
        )
    if column.take in ("first", "last", "min", "max") and column.domain != "measurement":
        raise StudyError(
            f'expected take = "{column.take}" of a measurement in {path}, got '
            f"{column.domain}; take "
            '"any" or "count"'
        )
    return column


def _pair(
    section: Section, key: str, default: tuple[int, ...], least: int, most: int
) -> tuple[int, ...]:
    """Two whole numbers that do not fall."""
    if key not in section:
        return default
    pair = section.content[key]
    good = isinstance(pair, list) and len(pair) == 2
    good = good and all(type(one) is int and least <= one <= most for one in pair)
    if not good or pair[0] > pair[1]:
        raise section.refusal(key, f"two whole numbers from {least} to {most}", "write [-365, 0]")
    return tuple(pair)


def _stated(one: Happening | OmopColumn) -> dict[str, Any]:
    """What differs from a default."""
    stated: dict[str, Any] = {"domain": one.domain}
    stated |= {"concepts": list(one.concepts)} if one.concepts else {}
    stated |= {"descendants": True} if one.descendants else {}
    if isinstance(one, OmopColumn):
        stated |= {"take": one.take} if one.take != OmopColumn.take else {}
        stated |= {"days": list(one.days)} if one.days != OmopColumn.days else {}
    return stated
