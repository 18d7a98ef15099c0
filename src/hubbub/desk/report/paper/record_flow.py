"""The flow of records, as CONSORT has it: how many each question is about, with noise.

Who is left out of a question lacks a cell that it needs; how many these are is the difference to
the largest number that any question tells. It reads plain values, as the files of a run have them.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hubbub.desk.report import charts, markup
from hubbub.desk.report.answers import Answer
from hubbub.desk.report.charts import word
from hubbub.desk.report.sheet import Figure, Table

_REACH = 1.96  # standard deviations of the noise that are told
_LINE, _PAD, _GAP = 17, 10, 16  # height of a line, room in a box, and between two
_STEM, _LEFT, _RIGHT = 24, 46, 306  # the line down, and where boxes of questions begin and end
_SIDE = 330  # where boxes of those begin who are left out
_WIDE, _LONG, _SHORT = 58, 34, 15  # letters that a line of each of these has room for


@dataclass(frozen=True)
class Counted:
    """How many records one question is about."""

    name: str  # of the question
    title: str  # what it shows
    value: float  # how many, with noise
    error: float  # standard error of that, by noise
    # how many there are in each group, where it has some
    groups: tuple[tuple[str, float], ...] = ()


def counted(
    answers: Mapping[str, Answer], validation: Mapping[str, Any] | None
) -> Sequence[Counted]:
    """What is known of each question that tells a number of records."""
    known = []
    for name, answer in answers.items():
        rows = [row for row in answer["rows"] if row["quantity"] == "records"]
        whole = [row for row in rows if not row["group"] and not row["level"]]
        if rows and not answer["refusal"]:
            summed = whole[:1] or rows
            error = math.sqrt(sum(float(row["standard_error"]) ** 2 for row in summed))
            groups = tuple((row["group"], float(row["value"])) for row in rows if row["group"])
            alone = groups if all(not row["level"] for row in rows) else ()
            value = sum(float(row["value"]) for row in summed)
            known.append(Counted(name, answer["title"], value, error, alone))
    if validation is None or validation["all"] is None:
        return known
    told = validation["all"]
    title = f"Validation of the model on {validation['records']} {validation['unit']}s"
    return [*known, Counted("validation", title, told["count"], told["count_error"])]


def flow_table(known: Sequence[Counted], unit: str) -> Table:
    """A line for each question."""
    whole = _whole(known)
    rows = []
    for one in known:
        numbers, fewer = (f"{one.value:,.0f}", f"{_REACH * one.error:,.0f}"), _fewer(one, whole)
        rows.append((f"{one.title} ({one.name})", *numbers, f"{fewer:,.0f}" if fewer else ""))
    head = ("question", f"{unit}s", "± by noise (95 %)", "fewer than in the largest")
    return Table(head, tuple(rows))


def flow_figure(known: Sequence[Counted], unit: str, sites: int | None) -> Figure:
    """The same as boxes: all above, each question below, and who is left out of it beside it."""
    whole = _whole(known)
    where = f" of {sites} sites" if sites else ""
    head = [f"{_told(whole)} {unit}s{where}", f"by the noisy count of “{whole.name}”"]
    top, y = _box(head, (charts.EDGE, charts.WIDTH - charts.EDGE), charts.EDGE, _WIDE)
    parts, start, middle = [*top], y, y
    for one in known:
        y += _GAP
        lines = [f"{one.title} ({one.name})", f"n = {_told(one)}"]
        if one.groups:
            lines.append("; ".join(f"{name} {value:,.0f}" for name, value in one.groups))
        box, end = _box(lines, (_LEFT, _RIGHT), y, _LONG)
        middle = (y + end) / 2
        parts += [*box, _line(_STEM, middle, _LEFT, middle)]
        if fewer := _fewer(one, whole):
            left = [f"{fewer:,.0f} fewer:", "a cell missing", "or not asked"]
            side, below = _box(left, (_SIDE, charts.WIDTH - charts.EDGE), y, _SHORT)
            parts += [*side, _line(_RIGHT, middle, _SIDE, middle)]
            end = max(end, below)
        y = end
    parts.append(_line(_STEM, start, _STEM, middle))
    words = f"Flow of {unit}s. Every number carries noise; ± is its size in 95 of 100 releases."
    return Figure(charts.drawing(parts, y + charts.EDGE, words), words, y + charts.EDGE)


def _told(one: Counted) -> str:
    return f"{one.value:,.0f} (± {_REACH * one.error:,.0f})"


def _whole(known: Sequence[Counted]) -> Counted:
    """The most exact of those from which the largest is not told apart."""
    largest = max(known, key=lambda one: one.value)
    return min((one for one in known if not _fewer(one, largest)), key=lambda one: one.error)


def _fewer(one: Counted, whole: Counted) -> float:
    """How many fewer a question is about; 0 where noise alone may be what makes the difference."""
    apart = whole.value - one.value
    return apart if apart > _REACH * math.hypot(one.error, whole.error) else 0.0


def _box(
    lines: Sequence[str], across: tuple[float, float], y: float, letters: int
) -> tuple[list[markup.Html], float]:
    """A box with these lines in it, broken where they are too long, and where it ends."""
    broken = [part for line in lines for part in textwrap.wrap(line, letters)]
    end = y + 2 * _PAD + _LINE * len(broken) - 4
    left, right = across
    sides = {"width": right - left, "height": end - y}
    outline = markup.tag("rect", x=left, y=y, **sides, class_="outline")
    texts = [
        word(text, left + _PAD, y + _PAD + 9 + _LINE * place, "start", "axis")
        for place, text in enumerate(broken)
    ]
    return [outline, *texts], end


def _line(x1: float, y1: float, x2: float, y2: float) -> markup.Html:
    return markup.tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_="edge")
