"""The key `data.target`: the name of a column, or a table that says what is in it.

A text is the column of a class. This file knows how a target is declared; it reads no cell.
"""

from __future__ import annotations

from itertools import pairwise
from math import floor
from typing import Any

from hubbub.core.section import Section, is_number
from hubbub.core.settings import keys_of, number, numbers, one_of, text, texts
from hubbub.core.tabular.cell_rule import canonical
from hubbub.core.tabular.outcome import COUNT, KINDS, LOG_LINK, NUMERIC, TIME_TO_EVENT, Outcome

_CLASS = "class"
_KEYS = {
    _CLASS: ("column",),
    NUMERIC: ("column", "low", "high", "scale", "mean"),
    COUNT: ("column", "high", "mean", "exposure", "exposure_high"),
    TIME_TO_EVENT: ("time", "event", "positive", "negative", "grid", "step"),
}
_MOST, _MOST_TIMES = 1e15, 1000
TARGET = {
    "kind": one_of(*(_CLASS, *KINDS), says='What is learned; `"class"` is what a text says.'),
    "column": text("The column; of a time to an event it is `time`.", default="either"),
    "low": number(-_MOST, _MOST, "Public lower bound of a number.", default="either"),
    "high": number(
        *(-_MOST, _MOST, "Public upper bound of a number or a count."),
        values="to 10^15; of a count from 1",
        default="either",
    ),
    **{key: keys_of(Outcome)[key][0] for key in ("scale", "mean", "exposure", "exposure_high")},
    "time": text(
        'The column of the time, in any unit; it and the keys below are for `"time-to-event"`.',
        default="either",
    ),
    "event": text("Whether the time ends with the event: the column.", default="either"),
    "positive": texts("Its spellings for the event.", default='`["1"]`'),
    "negative": texts(
        "Its spellings for a time that ends without it; any other is refused.", default='`["0"]`'
    ),
    "grid": numbers(
        "Public times at which the intervals of the hazards end.",
        f"2 to {_MOST_TIMES:,} rising numbers above 0",
        default="either",
    ),
    "step": keys_of(Outcome)["step"][0],
}


def target_from(section: Section, default: str, *, files: bool) -> tuple[str, Outcome | None]:
    """The target's own column, and what it is if it is no class.

    Args:
        section: the table `[data]`.
        default: the column's name where there are no files, which it then does not matter for.
        files: whether records come from files, so that columns must be named.
    """
    known = section.content.get("target")
    if not isinstance(known, dict):
        return section.text("target", None if files else default), None
    inner = Section("data.target", known, tuple(TARGET))
    kind = inner.text("kind", None, options=(_CLASS, *KINDS))
    for key in [*TARGET][1:]:
        if key not in _KEYS[kind]:
            inner.absent(key, f'for kind = "{kind}"')
    own = "time" if kind == TIME_TO_EVENT else "column"
    name = inner.text(own, None if files else default)
    if kind == _CLASS:
        return name, None
    for key in ("positive", "negative", "classes"):
        section.absent(key, "beside a target that is no class")
    return name, _outcome(inner, kind, name, files=files)


def _outcome(inner: Section, kind: str, name: str, *, files: bool) -> Outcome:
    """What the table says of a target that is no class."""
    if kind == NUMERIC:
        return _amount(inner)
    if kind == COUNT:
        return _count(inner, name, files=files)
    event = inner.text("event", None if files else "")
    if event == name or (files and not event):
        raise inner.refusal("event", "another column than the time's", "name the event's own")
    positive, negative = inner.texts("positive", ("1",)), inner.texts("negative", ("0",))
    for key, spellings in (("positive", positive), ("negative", negative)):
        if not spellings:
            raise inner.refusal(key, "at least one spelling", 'write it like ["1"]')
    if not set(map(canonical, positive)).isdisjoint(map(canonical, negative)):
        raise inner.refusal("negative", "spellings that positive has not", "fix one list")
    grid, step = _grid(inner), 0.0
    if "step" in inner.content:
        step = TARGET["step"].read(inner, "step", None)
        visits = [floor(time / step + 1e-6) for time in (0.0, *grid)]
        if any(b <= a for a, b in pairwise(visits)):
            wanted = "at most the shortest interval of data.target.grid"
            raise inner.refusal("step", wanted, "lower it, or leave out times of the grid")
    return Outcome(
        kind=kind, event=event, positive=positive, negative=negative, grid=grid, step=step
    )


def _amount(inner: Section) -> Outcome:
    """A number with its bounds and its scale."""
    low, high = (TARGET[key].read(inner, key, None) for key in ("low", "high"))
    if high <= low:
        raise inner.refusal("high", f"above low = {low:g}", "exchange or widen the bounds")
    scale = TARGET["scale"].read(inner, "scale", Outcome.scale)
    if scale == "log" and low <= 0:
        remedy = f'name the least number that matters, or write scale = "{LOG_LINK}", which '
        remedy += "takes zeros"
        raise inner.refusal("low", 'above 0 with scale = "log"', remedy)
    if scale == LOG_LINK and low:
        raise inner.refusal("low", f'0 with scale = "{LOG_LINK}"', "write low = 0")
    mean = _mean(inner, low, high, positive=scale == LOG_LINK)
    return Outcome(kind=NUMERIC, low=low, high=high, scale=scale, mean=mean)


def _count(inner: Section, name: str, *, files: bool) -> Outcome:
    """A count, and for how long or of how much it was counted; in memory that has no column."""
    high = inner.number("high", None, least=1, most=_MOST)
    exposure, longest = inner.text("exposure", ""), Outcome.exposure_high
    if exposure or "exposure_high" in inner.content:
        longest = TARGET["exposure_high"].read(inner, "exposure_high", None)
        if exposure == name or (files and not exposure):
            wanted = "another column than the count's beside data.target.exposure_high"
            raise inner.refusal("exposure", wanted, "name the exposure's own")
    most = high if not longest else _MOST
    mean = _mean(inner, 0.0, most, positive=True)
    return Outcome(kind=COUNT, high=high, mean=mean, exposure=exposure, exposure_high=longest)


def _mean(inner: Section, low: float, high: float, *, positive: bool) -> float | None:
    """A guess of the mean that lies between the bounds."""
    if "mean" not in inner.content:
        return None
    mean = float(TARGET["mean"].read(inner, "mean", None))
    if not low <= mean <= high or (positive and mean <= 0):
        above = "above 0 and " if positive else ""
        wanted = f"{above}from {low:g} to {high:g}, the bounds"
        raise inner.refusal("mean", wanted, "correct it, or leave it out")
    return mean


def _grid(inner: Section) -> tuple[float, ...]:
    """Rising times above 0, at least two."""
    given = inner.content.get("grid")
    times = given if isinstance(given, list) else []
    good = all(map(_is_time, times)) and all(a < b for a, b in pairwise(times))
    if not good or not 2 <= len(times) <= _MOST_TIMES:
        wanted = f"2 to {_MOST_TIMES} rising times above 0"
        raise inner.refusal("grid", wanted, "write it like [365, 730, 1095]")
    return tuple(float(time) for time in times)


def _is_time(value: Any) -> bool:
    return is_number(value) and 0 < value <= _MOST


def target_table(target: str, outcome: Outcome) -> dict[str, Any]:
    """The table `data.target` that is read as these."""
    own = "time" if outcome.kind == TIME_TO_EVENT else "column"
    names = {"kind": outcome.kind, own: target}
    keys = [key for key in _KEYS[outcome.kind] if key != own]
    said: dict[str, Any] = {key: getattr(outcome, key) for key in keys}
    for key in ("scale", "mean", "exposure", "exposure_high", "step"):
        if key in said and said[key] == getattr(Outcome, key):
            del said[key]
    return names | {key: list(one) if isinstance(one, tuple) else one for key, one in said.items()}
