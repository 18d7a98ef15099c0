"""Charts as inline SVG: lines over a quantity, and values with their intervals.

Colours are classes that the page's style fills for light, dark and paper; series differ by mark as
well as by colour. Every chart carries its content in words for those who cannot see it. This file
knows numbers and labels, nothing about privacy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from hubbub.core.number_format import amount
from hubbub.desk.report import ink, markup, scales

WIDTH, HEIGHT = 460, 270  # of a chart of lines on the page
LEFT, RIGHT = 72, WIDTH - 18
EDGE, VALUE_ROOM = 14, 74  # of a chart with labels above its rows: the left edge, and for values
_TOP, _BELOW = 44, 46  # room for a legend or labels, and for ticks and a label
_DIGIT = 12  # room for a digit of a tick, on a phone too
_PITCH = 46  # from one interval of a chart to the next
_UPPER = 16  # where the labels above a chart stand
_MARKS = ("circle", "square")


@dataclass(frozen=True, kw_only=True)
class Axes:
    """The quantities of a chart: the one `across` lies between LEFT and RIGHT, the other one `up`.

    Args:
        across, up: their scales; the second is placed as `vertical` says.
        labels: what both show, with units.
    """

    across: scales.Scale
    up: scales.Scale
    labels: tuple[str, str]

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Where a point stands."""
        return self.across.place(x), self.up.place(y)

    def path(self, points: Iterable[tuple[float, float]]) -> list[str]:
        """Points of a line, as SVG lists them."""
        return [f"{x:.2f},{y:.2f}" for x, y in (self.place(*point) for point in points)]

    def drawn(self, parts: Sequence[markup.Html], described: str, more: float = 0) -> markup.Html:
        """The chart with these parts on it, and so much more room below."""
        return _svg([*_frame(self), *parts], self.up.start + _BELOW + more, described)


@dataclass(frozen=True, kw_only=True)
class Series:
    """Points that belong together, (x, y) each, by rising x.

    Args:
        name: for the legend.
        points: where the line goes.
        marked: whether its points have marks.
        faint: points without a line, of which the line is an average; then its own have no marks.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    marked: bool = True
    faint: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A value on a horizontal axis: its label, its ends if known, whether it stands `first`.

    What is `told` beside it is the value, if nothing else is said.
    """

    label: str
    value: float
    ends: tuple[float, float] | None
    first: bool
    told: str = ""


@dataclass(frozen=True, kw_only=True)
class BinShare:
    """A bar of a histogram with the ends of its interval."""

    name: str
    value: float
    ends: tuple[float, float]


def vertical(height: int) -> tuple[float, float]:
    """Where the vertical axis of a chart of this height begins (below) and ends (above)."""
    return height - _BELOW, _TOP


def lines(
    series: Sequence[Series], axes: Axes, *, described: str, extra: Sequence[markup.Html] = ()
) -> markup.Html:
    """At most two series as lines with marks, over `extra`."""
    drawn = [_line(one, axes, index) for index, one in enumerate(series)]
    legend = _legend([line.name for line in series]) if len(series) > 1 else []
    return axes.drawn([*extra, *drawn, *legend], described)


def alone(chart: markup.Html, height: float) -> str:
    """A chart of this height as an SVG file of its own, which no page's style fills."""
    ground = markup.tag("rect", width="100%", height="100%", fill="white")
    box = f"0 0 {WIDTH} {height:g}"
    parts = (markup.tag("style", markup.Html(ink.STYLE)), ground, chart)
    return markup.tag("svg", *parts, xmlns="http://www.w3.org/2000/svg", viewBox=box).text


def dot(at: tuple[float, float], text: str, axes: Axes) -> markup.Html:
    """One point that stands out."""
    x, y = axes.place(*at)
    return markup.tag("circle", markup.tag("title", text), cx=x, cy=y, r=5)


def limit(at: float, text: str, axes: Axes) -> markup.Html:
    """A dashed upright line that marks a value of the horizontal axis, with its label on top."""
    x = axes.across.place(at)
    side = "end" if x > (LEFT + RIGHT) / 2 else "start"
    return markup.tag(
        "g",
        markup.tag("line", x1=x, x2=x, y1=axes.up.start, y2=_UPPER + 6, class_="limit"),
        markup.tag("text", text, x=x, y=_UPPER, class_="strong", text_anchor=side),
    )


def off_scale(at: Sequence[float], text: str, axes: Axes) -> markup.Html:
    """Crosses above the upper edge, for values that have no place on the vertical axis."""
    y, places = axes.up.end - 12, [axes.across.place(x) for x in at]
    crosses = [
        markup.tag(
            "path",
            markup.tag("title", f"{amount(x)}: {text}"),
            d=f"M{place - 5:g} {y - 5:g}l10 10m0 -10l-10 10",
            class_="cross",
        )
        for x, place in zip(at, places, strict=True)
    ]
    x = places[0]
    side, gap = ("end", -12) if x > (LEFT + RIGHT) / 2 else ("start", 8)
    place = y + 4 if side == "end" else y + 28
    return markup.tag("g", *crosses, markup.tag("text", text, x=x + gap, y=place, text_anchor=side))


def strip(at: float | None, zones: Sequence[tuple[float, str]], described: str) -> markup.Html:
    """A band of zones, each its upper end and its name, with a mark; on a logarithmic scale.

    No mark's place means beyond the end.
    """
    low = zones[0][0] / 20
    across = scales.Scale(low=low, high=zones[-1][0], start=6, end=WIDTH - 6, ticks=(), log=True)
    parts, start = [], low
    for index, (end, name) in enumerate(zones):
        left, right = across.place(start), across.place(end)
        parts += [
            markup.tag(
                "rect", x=left, y=22, width=right - left - 2, height=18, class_=f"zone-{index}"
            ),
            markup.tag("text", name, x=(left + right) / 2, y=60, text_anchor="middle"),
        ]
        start = end
    x = across.place(min(max(at if at is not None else across.high, low), across.high))
    parts.append(markup.tag("path", d=f"M{x:.2f} 22l-7 -13h14z", class_="pointer"))
    return _svg(parts, 68, described)


def intervals(
    items: Sequence[Interval],
    across: scales.Scale,
    *,
    label: str,
    described: str,
    nothing: float | None = None,
) -> markup.Html:
    """Dots with a line from end to end, each with its label above and its value to the right.

    A dashed line stands at `nothing`, the value of no effect, if that is on the scale.
    """
    foot = height_of_intervals(len(items)) - _BELOW
    parts = _ticks_across(across, foot, 4)
    if nothing is not None and across.low <= nothing <= across.high:
        x = across.place(nothing)
        parts.append(markup.tag("line", x1=x, x2=x, y1=4, y2=foot + 5, class_="limit"))
    for index, item in enumerate(items):
        parts += _whisker(item, across, 8 + _PITCH * index)
    middle = (across.start + across.end) / 2
    parts.append(
        markup.tag("text", label, x=middle, y=foot + 38, text_anchor="middle", class_="axis")
    )
    return _svg(parts, foot + _BELOW, described)


def height_of_intervals(number: int) -> float:
    """How high a chart of so many intervals is."""
    return 10 + _PITCH * number + _BELOW


def drawing(parts: Sequence[markup.Html], height: float, described: str) -> markup.Html:
    """What is no chart, as wide as one."""
    return _svg(parts, height, described)


def bars(
    items: Sequence[BinShare], up: scales.Scale, *, labels: tuple[str, str], described: str
) -> markup.Html:
    """Bars side by side, each with a line for its interval; every few of them are named."""
    across = scales.Scale(low=0, high=len(items), start=LEFT, end=RIGHT, ticks=())
    axes, parts = Axes(across=across, up=up, labels=labels), list[markup.Html]()
    width = (RIGHT - LEFT) / len(items)
    room = max(len(item.name) for item in items) * _DIGIT * 0.8
    every = ceil(room / width)
    for index, one in enumerate(items):
        x, middle = across.place(index), across.place(index + 0.5)
        low, high = (up.place(end) for end in one.ends)
        top = up.place(one.value)
        title = markup.tag("title", f"{one.name}: {one.value:.3g}")
        height = max(up.place(0) - top, 0.0)
        parts += [
            markup.tag("rect", title, x=x + 1, y=top, width=width - 2, height=height, class_="bar"),
            markup.tag("path", d=f"M{middle:.2f} {low:.2f}V{high:.2f}", class_="whisker other"),
        ]
        if index % every == 0 and middle + room / 2 <= WIDTH:
            parts.append(
                markup.tag("text", one.name, x=middle, y=up.start + 19, text_anchor="middle")
            )
    return axes.drawn(parts, described)


def _svg(parts: Sequence[markup.Html], height: float, described: str) -> markup.Html:
    box = f"0 0 {WIDTH} {height:g}"
    return markup.tag("svg", *parts, viewBox=box, role="img", aria_label=described)


def _frame(axes: Axes) -> list[markup.Html]:
    """Axes with ticks, their numbers, and what they measure."""
    across, up, labels = axes.across, axes.up, axes.labels
    middle = (across.start + across.end) / 2
    height = (up.start + up.end) / 2
    rows = [
        markup.tag(
            "g",
            markup.tag(
                "line", x1=LEFT, x2=RIGHT, y1=up.place(tick), y2=up.place(tick), class_="grid"
            ),
            markup.tag("text", amount(tick), x=LEFT - 8, y=up.place(tick) + 4, text_anchor="end"),
            class_="tick-up",
        )
        for tick in up.ticks
    ]
    turned = f"rotate(-90 16 {height:g})"
    return [
        *rows,
        *_ticks_across(across, up.start, up.start),
        markup.tag("line", x1=LEFT, x2=RIGHT, y1=up.start, y2=up.start, class_="edge"),
        markup.tag(
            "text", labels[0], x=middle, y=up.start + 38, text_anchor="middle", class_="axis"
        ),
        markup.tag("text", labels[1], x=16, y=height, transform=turned, text_anchor="middle"),
    ]


def _ticks_across(across: scales.Scale, foot: float, head: float) -> list[markup.Html]:
    """Ticks with their numbers; of many or long ones every second, or third, and so on."""
    if not across.ticks:
        return []
    widest = max(len(amount(tick)) for tick in across.ticks) * _DIGIT
    apart = (across.end - across.start) / max(len(across.ticks) - 1, 1)
    shown = [(across.place(tick), tick) for tick in across.ticks[:: ceil(widest / apart)]]
    return [
        markup.tag(
            "g",
            markup.tag("line", x1=x, x2=x, y1=head, y2=foot + 5, class_="grid"),
            markup.tag("text", amount(tick), x=x, y=foot + 19, text_anchor="middle"),
            class_="tick-across",
        )
        for x, tick in shown
    ]


def _line(one: Series, axes: Axes, index: int) -> markup.Html:
    single = one.faint or (one.points if one.marked else ())
    marks = [
        _mark(axes.place(x, y), _MARKS[index], f"{one.name} at {amount(x)}: {amount(y)}")
        for x, y in single
    ]
    kind = "faint" if one.faint else "marks"
    line = markup.tag("polyline", points=" ".join(axes.path(one.points)))
    # The name is what tests and people who save the picture find the line by.
    return markup.tag(
        "g",
        markup.tag("g", *marks, class_=kind),
        line,
        class_=f"series-{index}",
        data_name=one.name,
    )


def _mark(place: tuple[float, float], shape: str, title: str) -> markup.Html:
    x, y = place
    inner = markup.tag("title", title)
    if shape == "circle":
        return markup.tag("circle", inner, cx=x, cy=y, r=3.5)
    return markup.tag("rect", inner, x=x - 3, y=y - 3, width=6, height=6)


def _legend(names: Sequence[str]) -> list[markup.Html]:
    entries = []
    for index, name in enumerate(names):
        x = LEFT + 120 * index
        mark = _mark((x + 12, 12), _MARKS[index], name)
        stroke = markup.tag("polyline", points=f"{x},12 {x + 24},12")
        entries += [markup.tag("g", stroke, mark, class_=f"series-{index}")]
        entries += [markup.tag("text", name, x=x + 32, y=_UPPER)]
    return entries


def _whisker(item: Interval, across: scales.Scale, top: float) -> list[markup.Html]:
    """One row of a chart of intervals."""
    x, y = across.place(item.value), top + 28
    kind = "first" if item.first else "other"
    parts = [markup.tag("text", item.label, x=across.start, y=top + 13, class_="strong")]
    if item.ends:
        low, high = (across.place(min(max(end, across.low), across.high)) for end in item.ends)
        path = f"M{low:.2f} {y - 5:g}v10m0 -5H{high:.2f}m0 -5v10"
        parts.append(markup.tag("path", d=path, class_=f"whisker {kind}"))
    parts.append(markup.tag("circle", cx=x, cy=y, r=5, class_=kind))
    told = item.told or f"{item.value:.3f}"
    parts.append(markup.tag("text", told, x=across.end + 14, y=y + 5))
    return parts
