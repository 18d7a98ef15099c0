"""Curves over their areas, with words on and below the axes: a part of `charts`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hubbub.desk.report import markup
from hubbub.desk.report.charts import LEFT, RIGHT, Axes


@dataclass(frozen=True, kw_only=True)
class DrawnCurve:
    """A curve that goes straight from point to point, between `low` and `high`."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


def word(text: str, x: float, y: float, anchor: str, class_: str) -> markup.Html:
    """A text on a chart."""
    return markup.tag("text", text, x=x, y=y, text_anchor=anchor, class_=class_)


def note(text: str, axes: Axes, line: int, *, above: bool = False) -> markup.Html:
    """A text in the lower left of a chart, or in the upper; lines are counted from there."""
    place = axes.up.end + 18 + 16 * line if above else axes.up.start - 10 - 16 * line
    return word(text, LEFT + 8, place, "start", "strong")


def curves(
    drawn: Sequence[DrawnCurve],
    axes: Axes,
    *,
    described: str,
    extra: Sequence[markup.Html] = (),
    more: float = 0,
) -> markup.Html:
    """Curves over their areas, at most six, and `extra`, with so much more room below."""
    parts = []
    for index, one in enumerate(drawn):
        colour = f"series-{index}"
        line, low, high = (
            axes.path(list(zip(one.x, y, strict=False))) for y in (one.y, one.low, one.high)
        )
        if low:
            area = markup.tag("polygon", points=" ".join([*high, *low[::-1]]), class_="area")
            parts.append(markup.tag("g", area, class_=colour))
        stroke = markup.tag("polyline", points=" ".join(line))
        parts.append(markup.tag("g", stroke, class_=colour, data_name=one.name))
    if len(drawn) > 1:
        room = (RIGHT - LEFT) / min(len(drawn), 3)
        for index, one in enumerate(drawn):
            x, y = LEFT + room * (index % 3), 12 + 16 * (index // 3)
            stroke = markup.tag("polyline", points=f"{x:g},{y} {x + 20:g},{y}")
            parts.append(markup.tag("g", stroke, class_=f"series-{index}"))
            parts.append(markup.tag("text", one.name, x=x + 26, y=y + 4))
    return axes.drawn([*parts, *extra], described, more)
