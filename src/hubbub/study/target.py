"""The key `data.target`: the name of a column, or a table that says what is in it.

A text is the column of a class. This file knows how a target is declared; it reads no cell.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hubbub.section import Section, is_number
from hubbub.settings import keys_of, number, numbers, one_of, text, texts
from hubbub.tabular import COUNT, KINDS, NUMERIC, TIME_TO_EVENT, Outcome, canonical

_CLASS = "class"
_KEYS = {
    _CLASS: ("column",),
    NUMERIC: ("column", "low", "high", "scale"),
    COUNT: ("column", "high"),
    TIME_TO_EVENT: ("time", "event", "positive", "negative", "grid"),
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
    "scale": keys_of(Outcome)["scale"][0],
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
        low, high = (TARGET[key].read(inner, key, None) for key in ("low", "high"))
        if high <= low:
            raise inner.refusal("high", f"above low = {low:g}", "exchange or widen the bounds")
        scale = inner.text("scale", Outcome.scale, options=("linear", "log"))
        if scale == "log" and low <= 0:
            raise inner.refusal(
                "low", 'above 0 with scale = "log"', "name the least number that matters"
            )
        return Outcome(kind=kind, low=low, high=high, scale=scale)
    if kind == COUNT:
        return Outcome(kind=kind, high=inner.number("high", None, least=1, most=_MOST))
    event = inner.text("event", None if files else "")
    if event == name or (files and not event):
        raise inner.refusal("event", "another column than the time's", "name the event's own")
    positive, negative = inner.texts("positive", ("1",)), inner.texts("negative", ("0",))
    for key, spellings in (("positive", positive), ("negative", negative)):
        if not spellings:
            raise inner.refusal(key, "at least one spelling", 'write it like ["1"]')
    if not set(map(canonical, positive)).isdisjoint(map(canonical, negative)):
        raise inner.refusal("negative", "spellings that positive has not", "fix one list")
    return Outcome(kind=kind, event=event, positive=positive, negative=negative, grid=_grid(inner))


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
    if not outcome.is_log:
        said.pop("scale", None)
    return names | {key: list(one) if isinstance(one, tuple) else one for key, one in said.items()}
