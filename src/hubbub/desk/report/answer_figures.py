"""The figure that goes with an answer: a drawing and its caption, for the page and for files.

Survival figures are as papers print them: a point-wise interval around each curve, the p-value in
the figure, and the numbers at risk below the axis. This file reads plain values, as
`statistics.json` has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hubbub.desk.report import charts, curve_charts, markup, scales
from hubbub.desk.report.answer_tables import Answer, estimate_words, p_words

_RATIOS = (
    *("hazard ratio", "odds ratio", "rate ratio", "relative risk"),
    "ratio of geometric means",
)
_MOST_CURVES, _MOST_TIMES = 6, 8
_WHAT = {  # is on the vertical axis, by the kind of answer
    "survival": "share without the event",
    "incidence": "share with the event",
}
_LONGEST = 20  # letters of an estimate with its interval
_ESTIMATE_ROOM = 154  # for an estimate with its interval, right of a forest
_AT_RISK, _LINE = 62, 16  # where numbers at risk begin below the axis, and how high a line is


@dataclass(frozen=True)
class Figure:
    """A drawing with its caption.

    Args:
        chart: an `svg` element.
        words: what it shows, a sentence or two.
        height: of it; `charts.WIDTH` wide.
    """

    chart: markup.Html
    words: str
    height: float


def figure_of(answer: Answer) -> Figure | None:
    """The figure that goes with an answer, if there is one."""
    if answer["refusal"]:
        return None
    if answer["curves"]:
        return _curves(answer)
    if answer["kind"] == "histogram":
        return _histogram(answer)
    ratios = [row for row in answer["rows"] if row["quantity"] in _RATIOS]
    ratios = [row for row in ratios if row["quantity"] == ratios[0]["quantity"]]
    slopes = [row for row in answer["rows"] if row["quantity"] == "slope"]
    return _forest(answer, ratios or slopes) if ratios or slopes else None


def _curves(answer: Answer) -> Figure:
    """Curves with their intervals, the p-value, and numbers at risk below."""
    curves = answer["curves"][:_MOST_CURVES]
    places = [x for curve in curves for x in curve["x"]]
    what = _WHAT.get(answer["kind"], "share of records up to here")
    start = [0.0] if answer["kind"] in _WHAT else []
    across = scales.linear([*start, *places], charts.LEFT, charts.RIGHT)
    if times := _times_at_risk(curves):
        across = replace(across, ticks=times)
    up = scales.linear([0.0, 1.0], *charts.vertical(charts.HEIGHT))
    words = (
        f"{answer['title']}. The shaded area holds each point with {_percent(answer)} probability, "
        "noise included."
    )
    name = curves[0].get("column") or ("time" if start else "value")  # older answers have none
    axes = charts.Axes(across=across, up=up, labels=(name, what))
    extra = [*_tested(answer, axes), *_at_risk(curves, axes)]
    known = len(_own_numbers(curves))
    more = _LINE * (2 * known + 2) if known else 0
    if more:
        words += " Below: records at risk just after these times, with noise."
    drawn = [_drawn(curve) for curve in curves]
    chart = curve_charts.curves(drawn, axes, described=words, extra=extra, more=more)
    return Figure(chart, words, charts.HEIGHT + more)


def _drawn(curve: Mapping[str, Any]) -> curve_charts.DrawnCurve:
    """One curve with its point-wise interval."""
    return curve_charts.DrawnCurve(
        name=curve["name"] or "all",
        x=tuple(curve["x"]),
        y=tuple(curve["y"]),
        low=tuple(curve["low"]),
        high=tuple(curve["high"]),
    )


def _tested(answer: Answer, axes: charts.Axes) -> list[markup.Html]:
    """The p-values of the answer's tests, where curves leave room."""
    said = [
        f"{test['name']} p {p_words(test['p_value'], equal='= ')}"
        + (f" ({test['column']})" if test.get("column") else "")
        for test in answer["tests"]
    ]
    if answer["kind"] != "survival":  # other curves rise
        return [curve_charts.note(text, axes, line, above=True) for line, text in enumerate(said)]
    return [curve_charts.note(text, axes, line) for line, text in enumerate(reversed(said))]


def _at_risk(curves: Sequence[Mapping[str, Any]], axes: charts.Axes) -> list[markup.Html]:
    """Numbers at risk below the ticks of the axis."""
    known = _own_numbers(curves)
    top = axes.up.start + _AT_RISK
    head = curve_charts.word("at risk, with noise", charts.LEFT, top, "start", "axis")
    parts = [head] if known else []
    for index, (label, one) in enumerate(known.items()):
        y = top + _LINE * (2 * index + 1)
        name = curve_charts.word(label, charts.LEFT, y, "start", "strong")
        parts.append(markup.tag("g", name, class_=f"series-{curves.index(one)}"))
        parts += [
            curve_charts.word(
                _risk_at(one, time), axes.across.place(time), y + _LINE, "middle", "risk"
            )
            for time in axes.across.ticks
        ]
    return parts


def _own_numbers(curves: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """A curve for each of the numbers at risk, by what they are called.

    Curves of one group, as of competing events, have the same: these are the group's.
    """
    shared: dict[tuple[float, ...], list[Mapping[str, Any]]] = {}
    for curve in curves:
        if curve["at_risk"]:
            shared.setdefault(tuple(curve["at_risk"]), []).append(curve)
    names = {
        numbers: (same[0]["name"] if len(same) == 1 else same[0]["name"].rpartition(": ")[0])
        for numbers, same in shared.items()
    }
    return {names[numbers] or "all": same[0] for numbers, same in shared.items()}


def _times_at_risk(curves: Sequence[Mapping[str, Any]]) -> tuple[float, ...]:
    """Times of the grid, equally many bins apart, at which they are told; none if nowhere."""
    grid: Sequence[float] = max(
        (curve["x"] for curve in curves if curve["at_risk"]), key=len, default=()
    )
    return tuple(grid[:: -(-len(grid) // _MOST_TIMES)]) if grid else ()


def _risk_at(curve: Mapping[str, Any], time: float) -> str:
    """How many are at risk just after a time of the grid, as far as the curve goes."""
    known = dict(zip(curve["x"], curve["at_risk"], strict=False))
    return f"{max(known[time], 0):,.0f}" if time in known else ""


def _histogram(answer: Answer) -> Figure:
    """Bars of the shares of bins, with their intervals."""
    rows = [row for row in answer["rows"] if row["quantity"] == "share"]
    bins = [row for row in rows if row["level"] != "missing"]
    items = [
        charts.BinShare(name=row["level"], value=row["value"], ends=(row["low"], row["high"]))
        for row in bins
    ]
    tops = [0.0, *(end for item in items for end in item.ends)]
    up = scales.linear(tops, *charts.vertical(charts.HEIGHT))
    how = f"with {_percent(answer)} intervals."
    words = f"{answer['title']}: the share of records in each bin, {how}"
    chart = charts.bars(items, up, labels=(bins[0]["column"], "share"), described=words)
    return Figure(chart, words, charts.HEIGHT)


def _forest(answer: Answer, rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Effects with their intervals, ratios on a logarithmic axis."""
    ratio = rows[0]["quantity"] in _RATIOS
    name, none = rows[0]["quantity"], 1.0 if ratio else 0.0
    known = [row for row in rows if None not in (row["value"], row["low"], row["high"])]
    ends = [row[key] for row in known for key in ("low", "value", "high")]
    place = (charts.EDGE, charts.WIDTH - _ESTIMATE_ROOM)
    across = scales.ratios(ends, *place) if ratio else scales.linear([0.0, *ends], *place)
    items = [
        charts.Interval(
            label=": ".join(filter(None, (row["group"], row["column"], row["level"]))),
            value=row["value"],
            ends=(row["low"], row["high"]),
            first=not row["low"] <= none <= row["high"],
            told=estimate_words(row, _LONGEST),
        )
        for row in known
    ]
    nothing = "1 means no difference" if ratio else "0 means no effect"
    words = f"{answer['title']}: {name}s with {_percent(answer)} intervals; {nothing}."
    chart = charts.intervals(items, across, label=name, described=words, nothing=none)
    return Figure(chart, words, charts.height_of_intervals(len(items)))


def _percent(answer: Answer) -> str:
    return f"{100 * answer['confidence']:g} %"
