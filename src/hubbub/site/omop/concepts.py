"""Common measurements with their unit and public bounds: `concepts.csv`.

Ids are OMOP's for LOINC's codes and UCUM's units. Each id and its first unit were compared with
OHDSI's DataQualityDashboard, whose list for version 5.4 has the same names and approves the same
units (`inst/csv/OMOP_CDMv5.4_Concept_Level.csv`, January 2026), and what units are called with
OHDSI's mappings of MIMIC (`gcpt_meas_unit.csv`) and published cohort definitions. Other units are
those of that list that sites write most and a factor leads from, and mmol/L of cholesterols, which
are not on it; Fahrenheit, and mmol/mol of HbA1c, need an offset too: their values are missing.
Bounds are of what instruments and textbooks call possible, rounded outward, and are no site's; a
typical value is the middle of common reference ranges. A site's own vocabularies, which are
licensed, are not copied here.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True, kw_only=True)
class Concept:
    """One common measurement.

    Args:
        concept_id: OMOP's.
        name: what it is.
        unit_concept_id, unit: in which it counts.
        low, high: public bounds, in that unit.
        typical: what stands in for a missing one.
        factors: by other units' concept ids: one of them in that unit.
    """

    concept_id: int
    name: str
    unit_concept_id: int
    unit: str
    low: float
    high: float
    typical: float
    factors: tuple[tuple[int, float], ...]


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
