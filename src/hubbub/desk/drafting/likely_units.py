"""Numbers that cannot be what their column's name says, and files that measure in other units.

Names are looked up in a short list of kinds, of which everybody knows what cannot be. Files are
compared by their middle halves, which few slips move; a usual factor that brings one half onto the
others' is a proposal, and people say whether it is right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, log
from statistics import median, quantiles
from typing import NamedTuple

from hubbub.desk.drafting.question import words_in
from hubbub.desk.drafting.time_event_pairs import is_time

_FEW = 20  # values of a file, below which its half says little
_PART = 4  # of the values, one part at most is a slip; more are another unit, or another thing
_NEAR = 1.1  # times, by which a factor may miss
_LEAST = 1e-9  # above 0: what can be measured of somebody alive
_KINDS = (  # in whatever unit is usual
    ({"age", "alter", "edad", "idade", "eta"}, (0.0, 120.0)),
    ({"height", "stature", "groesse", "größe"}, (0.2, 250.0)),
    ({"weight", "gewicht"}, (0.2, 700.0)),
    ({"bmi"}, (8.0, 150.0)),
    ({"temp", "temperature", "temperatur"}, (20.0, 115.0)),
    (
        {"sbp", "dbp", "bp", "systolic", "diastolic", "pulse", "puls", "heartrate"}
        | {"bloodpressure"},
        (10.0, 400.0),
    ),
    ({"spo", "sao", "saturation"}, (10.0, 100.0)),
    ({"gcs"}, (3.0, 15.0)),
    (
        {"glucose", "cholesterol", "creatinine", "haemoglobin", "hemoglobin", "hb", "sodium"}
        | {"potassium", "albumin", "platelets", "kreatinin", "glukose", "cholesterin", "insulin"},
        (_LEAST, inf),
    ),
)
_OTHER = frozenset({"birth", "sample", "survey", "change", "diff", "delta", "log", "score"})
_SHORT = frozenset({"months", "month", "weeks", "days", "hours", "monate", "tage", "wochen"})


class Unit(NamedTuple):
    """What makes one unit another: value * factor + offset."""

    factor: float
    offset: float = 0.0

    def of(self, value: float) -> float:
        """The value in the other unit."""
        return value * self.factor + self.offset


# HbA1c (IFCC's mmol/mol to %), Fahrenheit; then either way: glucose, cholesterol, triglycerides,
# creatinine, bilirubin (mg/dl and SI units), tens, inches, pounds.
OFFSETS = (Unit(0.09148, 2.152), Unit(0.5556, -17.7778))
_FACTORS = (18.0156, 38.67, 88.57, 88.42, 17.1, 10, 100, 1000, 2.54, 0.45359237)
FACTORS = (
    *(Unit(one) for factor in _FACTORS for one in (factor, 1 / factor)),
    Unit(1.8, 32.0),
)


def plausible(name: str) -> tuple[float, float]:
    """Between which numbers a column of this name can lie.

    >>> plausible("Age at admission"), plausible("x")
    ((0.0, 120.0), (-inf, inf))
    """
    words = {*words_in(name), "".join(words_in(name))}
    if words & _OTHER:
        return -inf, inf
    kind = next((bounds for names, bounds in _KINDS if names & words), None)
    if kind is not None:
        return (0.0, inf) if words & _SHORT else kind
    return (0.0, inf) if is_time(name) else (-inf, inf)


def cannot_be(name: str, values: Sequence[float]) -> list[float]:
    """The values that a column of this name cannot have, if they are few among the others."""
    low, high = plausible(name)
    beyond = [value for value in values if not low <= value <= high]
    return beyond if _PART * len(beyond) <= len(values) else []


class Apart(NamedTuple):
    """A file that lies apart from the others.

    Args:
        half: between which the middle half of its values lies.
        usual: the others' median.
        unit: what brings it onto the others; None if no usual unit does.
    """

    half: tuple[float, float]
    usual: float
    unit: Unit | None


def apart(files: Sequence[Sequence[float]]) -> Mapping[int, Apart]:
    """By its place each file whose middle half overlaps none of the others'.

    Of two files the second; where nearly all lie apart from each other, none.
    """
    alone = _alone(files)
    if not alone:
        return {}
    others = [value for k, values in enumerate(files) if k not in alone for value in values]
    usual, middle = median(others), _half(others)
    return {
        k: Apart(half, usual, _unit(files[k], half, usual, middle)) for k, half in alone.items()
    }


def _alone(files: Sequence[Sequence[float]]) -> Mapping[int, tuple[float, float]]:
    """The middle halves of the files that lie apart."""
    halves = {k: _half(values) for k, values in enumerate(files) if len(values) >= _FEW}
    alone = {
        k: half
        for k, half in halves.items()
        if len(halves) > 1
        and not any(
            half[0] <= other[1] and other[0] <= half[1] for j, other in halves.items() if j != k
        )
    }
    if len(halves) == 2 and alone:
        return {1: alone[1]} if 1 in alone else {}
    return alone if len(halves) - len(alone) > 1 else {}


def _unit(
    mine: Sequence[float],
    half: tuple[float, float],
    usual: float,
    others: tuple[float, float],
) -> Unit | None:
    """What brings a file's values onto the others' median and middle half; None: no usual unit."""
    own, (low, high) = median(mine), others
    if min(mine) < 0 or not own or usual <= 0:
        return None

    def miss(unit: Unit) -> float:
        moved = unit.of(own)
        return abs(log(moved / usual)) if moved > 0 else inf

    def fits(unit: Unit) -> bool:
        below, above = sorted(map(unit.of, half))
        return (
            below <= usual <= above
            or (low <= below and above <= high)
            or (miss(unit) < log(_NEAR) and below <= high and low <= above)
        )

    fitting = [unit for unit in (*OFFSETS, *FACTORS) if fits(unit)]
    return min(fitting, key=miss, default=None)


def _half(values: Sequence[float]) -> tuple[float, float]:
    """Between which a half of the values lies."""
    low, _, high = quantiles(values, n=4)
    return low, high
