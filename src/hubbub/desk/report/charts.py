"""Charts as inline SVG: lines over a quantity, and values with their intervals.

Colours are classes that the page's style fills; series differ by mark as well as by colour. Every
chart carries its content in words for those who cannot see it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Any

from hubbub.core.number_format import amount
from hubbub.desk.report import markup

# Scales: from a quantity to a place on the paper, with round numbers for its ticks.

_LOG_FROM = 20  # largest over smallest value from which a linear axis would hide the small ones
_TICKS = 5  # of a linear axis, about


@dataclass(frozen=True, kw_only=True)
class Scale:
    """An axis from `low` at `start` to `high` at `end`, labelled at its ticks.

    Equal ratios are equally far apart if it is logarithmic; then 0 < low.
    """

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]
    log: bool = False

    def place(self, value: float) -> float:
        """Where a value stands."""
        low, high = self.low, self.high
        if self.log:
            value, low, high = log10(value), log10(low), log10(high)
        return self.start + (value - low) / (high - low) * (self.end - self.start)


def linear(values: Iterable[float], start: float, end: float, *, whole: bool = False) -> Scale:
    """A linear scale over the values, widened to the ticks next to them."""
    known = list(values) or [0.0]
    low, high = min(known), max(known)
    # The distance between the ends, or their size where four digits cannot tell them apart.
    size = max(abs(low), abs(high))
    span = next((span for span in (high - low, size) if span > max(1e-3 * size, 1e-9)), 1.0)
    # The least of 1, 2, 5 times a power of ten that makes no more ticks.
    least = span / _TICKS
    power = float(f"1e{floor(log10(least))}")
    step = power * next(m for m in (1, 2, 5, 10) if m * power >= least * (1 - 1e-9))
    step = max(1.0, step) if whole else step
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    last = max(last, first + 1)
    marks = tuple(round(step * k, 12) for k in range(first, last + 1))
    return Scale(low=marks[0], high=marks[-1], start=start, end=end, ticks=marks)


def scores(values: Iterable[float], start: float, end: float) -> Scale:
    """One scale for all metrics: from 0.5 to 1, or further if need be."""
    return linear([0.5, 1.0, *values], start, end)


def bounds(values: Iterable[float], start: float, end: float) -> Scale:
    """A scale for bounds: linear from 0, or logarithmic where they differ by a large factor."""
    known = [value for value in values if value > 0]
    if not known or max(known) <= _LOG_FROM * min(known):
        return linear([0.0, *known], start, end)
    first, last = floor(log10(min(known))), ceil(log10(max(known)))
    marks = tuple(float(f"1e{k}") for k in range(first, last + 1))
    return Scale(low=marks[0], high=marks[-1], start=start, end=end, ticks=marks, log=True)


def ratios(values: Iterable[float], start: float, end: float) -> Scale:
    """A logarithmic scale around 1, with ticks at 1, 2 and 5 times powers of ten."""
    known = [1.0, *(min(max(value, 0.01), 100.0) for value in values)]
    marks = [m * 10.0**k for k in range(-2, 3) for m in (1, 2, 5)]
    low = max((mark for mark in marks if mark <= min(known) * (1 + 1e-9)), default=marks[0])
    high = min((mark for mark in marks if mark >= max(known) * (1 - 1e-9)), default=marks[-1])
    if low == high:
        low, high = 0.5, 2.0
    ticks = tuple(round(mark, 12) for mark in marks if low <= mark <= high)
    return Scale(low=low, high=high, start=start, end=end, ticks=ticks, log=True)


# Colours and strokes of a chart that is a file of its own, as the page has them on paper.

SERIES = ("#1b5e9e", "#a34b08", "#1e7a46", "#8e3b8e", "#a01f3c", "#444444")
STROKES = {  # colour, width and dashes of lines, by class
    "grid": ("#dddddd", 1.0, "-"),
    "edge": ("#444444", 1.0, "-"),
    "outline": ("#444444", 1.0, "-"),
    "limit": ("#000000", 1.0, "--"),
    "whisker first": (SERIES[0], 3.0, "-"),
    "whisker other": ("#000000", 2.0, "-"),
}
STYLE = "\n".join(
    [
        "text { font: 13px sans-serif; fill: #000000 }",
        ".strong { font-weight: 600 }",
        f"circle {{ fill: {SERIES[4]} }}",
        "polyline { fill: none; stroke: currentColor; stroke-width: 2 }",
        ".area { fill: currentColor; opacity: .16 }",
        f".bar, circle.first {{ fill: {SERIES[0]} }}",
        ".bar { opacity: .7 }",
        ".whisker, .outline { fill: none }",
        ".series-1 polyline { stroke-dasharray: 7 3 }",
        *(f".series-{number} {{ color: {colour} }}" for number, colour in enumerate(SERIES)),
        *(
            f".{name.replace(' ', '.')} {{ stroke: {colour}; stroke-width: {width:g}"
            + ("; stroke-dasharray: 5 4 }" if dashes == "--" else " }")
            for name, (colour, width, dashes) in STROKES.items()
        ),
    ]
)


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
    """The quantities of a chart: `across`, between LEFT and RIGHT, and `up`, as `vertical` says."""

    across: Scale
    up: Scale
    labels: tuple[str, str]  # what both show, with units

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Where a point stands."""
        return self.across.place(x), self.up.place(y)

    def path(self, points: Iterable[tuple[float, float]]) -> list[str]:
        """Points of a line, as SVG lists them."""
        return [f"{x:.2f},{y:.2f}" for x, y in (self.place(*point) for point in points)]

    def drawn(self, parts: Sequence[markup.Html], described: str, more: float = 0) -> markup.Html:
        """The chart with these parts on it, and so much more room below."""
        return drawing([*_frame(self), *parts], self.up.start + _BELOW + more, described)


@dataclass(frozen=True, kw_only=True)
class Series:
    """Points that belong together, (x, y) each, by rising x, over an area from `low` to `high`."""

    name: str  # for the legend
    points: tuple[tuple[float, float], ...]  # where the line goes
    low: tuple[float, ...] = ()  # at each point; without an area, of none
    high: tuple[float, ...] = ()
    marked: bool = True  # whether its points have marks

    @classmethod
    def of(cls, curve: Mapping[str, Any]) -> Series:
        """A curve from plain values, as the files of a run have it."""
        points = tuple(zip(curve["x"], curve["y"], strict=False))
        ends = {key: tuple(curve.get(key, ())) for key in ("low", "high")}
        return cls(name=curve["name"], points=points, **ends, marked=False)


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
    series: Sequence[Series],
    axes: Axes,
    *,
    described: str,
    extra: Sequence[markup.Html] = (),
    more: float = 0,
) -> markup.Html:
    """At most six series as lines over their areas, `extra` on top, and so much more room below."""
    parts = []
    for index, one in enumerate(series):
        if one.low:
            xs = [x for x, _ in one.points]
            low, high = (axes.path(zip(xs, end, strict=False)) for end in (one.low, one.high))
            area = markup.tag("polygon", points=" ".join([*high, *low[::-1]]), class_="area")
            parts.append(markup.tag("g", area, class_=f"series-{index}"))
        parts.append(_line(one, axes, index))
    room = (RIGHT - LEFT) / min(len(series), 3) if series else 0.0
    for index, one in enumerate(series if len(series) > 1 else ()):
        x, y = LEFT + room * (index % 3), 12 + 16 * (index // 3)
        stroke = markup.tag("polyline", points=f"{x:g},{y} {x + 20:g},{y}")
        mark = [_mark((x + 10, y), _MARKS[index % 2], one.name)] if one.marked else []
        parts.append(markup.tag("g", stroke, *mark, class_=f"series-{index}"))
        parts.append(markup.tag("text", one.name, x=x + 26, y=y + 4))
    return axes.drawn([*parts, *extra], described, more)


def alone(chart: markup.Html, height: float) -> str:
    """A chart of this height as an SVG file of its own, which no page's style fills."""
    ground = markup.tag("rect", width="100%", height="100%", fill="white")
    box = f"0 0 {WIDTH} {height:g}"
    parts = (markup.tag("style", markup.Html(STYLE)), ground, chart)
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
    crosses = []
    for x, place in zip(at, places, strict=True):
        title = markup.tag("title", f"{amount(x)}: {text}")
        drawn = f"M{place - 5:g} {y - 5:g}l10 10m0 -10l-10 10"
        crosses.append(markup.tag("path", title, d=drawn, class_="cross"))
    x = places[0]
    side, gap = ("end", -12) if x > (LEFT + RIGHT) / 2 else ("start", 8)
    place = y + 4 if side == "end" else y + 28
    return markup.tag("g", *crosses, markup.tag("text", text, x=x + gap, y=place, text_anchor=side))


def intervals(
    items: Sequence[Interval],
    across: Scale,
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
    parts.append(word(label, middle, foot + 38, "middle", "axis"))
    return drawing(parts, foot + _BELOW, described)


def height_of_intervals(number: int) -> float:
    """How high a chart of so many intervals is."""
    return 10 + _PITCH * number + _BELOW


def bars(
    items: Sequence[BinShare], up: Scale, *, labels: tuple[str, str], described: str
) -> markup.Html:
    """Bars side by side, each with a line for its interval; every few of them are named."""
    across = Scale(low=0, high=len(items), start=LEFT, end=RIGHT, ticks=())
    axes, parts = Axes(across=across, up=up, labels=labels), list[markup.Html]()
    width = (RIGHT - LEFT) / len(items)
    room = max(len(item.name) for item in items) * _DIGIT * 0.8
    every = ceil(room / width)
    for index, one in enumerate(items):
        x, middle = across.place(index), across.place(index + 0.5)
        low, high = (up.place(end) for end in one.ends)
        top = up.place(one.value)
        title = markup.tag("title", f"{one.name}: {one.value:.3g}")
        size = {"width": width - 2, "height": max(up.place(0) - top, 0.0)}
        parts += [
            markup.tag("rect", title, x=x + 1, y=top, **size, class_="bar"),
            markup.tag("line", x1=middle, x2=middle, y1=low, y2=high, class_="whisker other"),
        ]
        if index % every == 0 and middle + room / 2 <= WIDTH:
            place = {"x": middle, "y": up.start + 19}
            parts.append(markup.tag("text", one.name, **place, text_anchor="middle"))
    return axes.drawn(parts, described)


def drawing(parts: Sequence[markup.Html], height: float, described: str) -> markup.Html:
    """Of parts, as wide as every chart."""
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
            markup.tag("line", x1=LEFT, x2=RIGHT, y1=y, y2=y, class_="grid"),
            markup.tag("text", amount(tick), x=LEFT - 8, y=y + 4, text_anchor="end"),
            class_="tick-up",
        )
        for tick, y in zip(up.ticks, map(up.place, up.ticks), strict=True)
    ]
    turned = f"rotate(-90 16 {height:g})"
    return [
        *rows,
        *_ticks_across(across, up.start, up.start),
        markup.tag("line", x1=LEFT, x2=RIGHT, y1=up.start, y2=up.start, class_="edge"),
        word(labels[0], middle, up.start + 38, "middle", "axis"),
        markup.tag("text", labels[1], x=16, y=height, transform=turned, text_anchor="middle"),
    ]


def _ticks_across(across: Scale, foot: float, head: float) -> list[markup.Html]:
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
    marks = [
        _mark(axes.place(x, y), _MARKS[index % 2], f"{one.name} at {amount(x)}: {amount(y)}")
        for x, y in (one.points if one.marked else ())
    ]
    line = markup.tag("polyline", points=" ".join(axes.path(one.points)))
    # The name is what tests and people who save the picture find the line by.
    marked = markup.tag("g", *marks, class_="marks")
    return markup.tag("g", marked, line, class_=f"series-{index}", data_name=one.name)


def _mark(place: tuple[float, float], shape: str, title: str) -> markup.Html:
    x, y = place
    inner = markup.tag("title", title)
    if shape == "circle":
        return markup.tag("circle", inner, cx=x, cy=y, r=3.5)
    return markup.tag("rect", inner, x=x - 3, y=y - 3, width=6, height=6)


def _whisker(item: Interval, across: Scale, top: float) -> list[markup.Html]:
    """One row of a chart of intervals."""
    x, y = across.place(item.value), top + 28
    kind = "first" if item.first else "other"
    parts = [markup.tag("text", item.label, x=across.start, y=top + 13, class_="strong")]
    if item.ends:
        low, high = (across.place(min(max(end, across.low), across.high)) for end in item.ends)
        for x1, x2, up in ((low, high, 0), (low, low, 5), (high, high, 5)):
            ends = {"x1": x1, "x2": x2, "y1": y - up, "y2": y + up}
            parts.append(markup.tag("line", **ends, class_=f"whisker {kind}"))
    parts.append(markup.tag("circle", cx=x, cy=y, r=5, class_=kind))
    told = item.told or f"{item.value:.3f}"
    parts.append(markup.tag("text", told, x=across.end + 14, y=y + 5))
    return parts


def word(text: str, x: float, y: float, anchor: str, class_: str) -> markup.Html:
    """A text on a chart."""
    return markup.tag("text", text, x=x, y=y, text_anchor=anchor, class_=class_)


def note(text: str, axes: Axes, line: int, *, above: bool = False) -> markup.Html:
    """A text in the lower left of a chart, or in the upper; lines are counted from there."""
    place = axes.up.end + 18 + 16 * line if above else axes.up.start - 10 - 16 * line
    return word(text, LEFT + 8, place, "start", "strong")
