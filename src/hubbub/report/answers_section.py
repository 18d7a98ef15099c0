"""The section with the answers of statistics: a table and a figure for each, with plain captions.

It reads plain values, as `statistics.json` has them, and knows neither sums nor noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hubbub.report import charts, markup, scales
from hubbub.report.answer_tables import Answer, said_of, tables_of
from hubbub.report.number_format import amount

_INTERVALS = (
    "Every number comes with an interval that takes both into account: that other people might "
    "have been asked, and the noise that was added. Tests take the noise into account, too."
)
_RATIOS = ("hazard ratio", "odds ratio")
_MOST_CURVES = 6


def answers(statistics: Mapping[str, Answer]) -> markup.Html:
    """The section with all answers, by their names."""
    parts = [one for name, answer in statistics.items() for one in _answer(name, answer)]
    return markup.section("What was asked", markup.tag("p", _INTERVALS), *parts)


def _answer(name: str, answer: Answer) -> list[markup.Html]:
    """One answer: its heading, figure, table, tests and notes."""
    parts = [markup.tag("h3", f"{answer['title']} ({name})")]
    if answer["refusal"]:
        return [*parts, markup.tag("p", f"Not answered: {answer['refusal']}.")]
    drawn = _figure(answer)
    parts += [markup.tag("div", drawn, class_="figures")] if drawn else []
    for what, table in tables_of(answer).items():
        if what == "over time":  # which the figure shows
            continue
        said = f", {what}" if what else ""
        caption = f"{answer['title']}{said}, with {_percent(answer)} intervals"
        numeric = range(1, len(table.head))
        shown = markup.table(caption, table.head, table.rows, numeric=numeric)
        parts.append(_folded(shown) if drawn and len(table.rows) > 12 else shown)
    return parts + [markup.tag("p", f"{_capital(one)}.") for one in said_of(answer)]


def _folded(table: markup.Html) -> markup.Html:
    """A long table that a figure shows already."""
    return markup.tag("details", markup.tag("summary", "The same in numbers"), table)


def _figure(answer: Answer) -> markup.Html | None:
    """The figure that goes with the kind, if there is one."""
    if answer["curves"]:
        return _curves(answer)
    if answer["kind"] == "histogram":
        return _histogram(answer)
    ratios = [row for row in answer["rows"] if row["quantity"] in _RATIOS]
    slopes = [row for row in answer["rows"] if row["quantity"] == "slope"]
    return _forest(answer, ratios or slopes) if ratios or slopes else None


def _curves(answer: Answer) -> markup.Html:
    """Curves with their bands, and numbers at risk below."""
    curves = answer["curves"][:_MOST_CURVES]
    places = [x for one in curves for x in one["x"]]
    survival = answer["kind"] == "survival"
    start = [0.0] if survival else []
    across = scales.linear([*start, *places], charts.LEFT, charts.RIGHT)
    up = scales.linear([0.0, 1.0], *charts.vertical(charts.HEIGHT))
    what, held = "share of records up to here", "each point"
    if survival:
        what, held = "share without the event", "the whole curve"
    words = (
        f"{answer['title']}. The shaded area holds {held} with {_percent(answer)} probability, "
        "noise included."
    )
    name = curves[0].get("column") or ("time" if survival else "value")  # older answers have none
    axes = charts.Axes(across=across, up=up, labels=(name, what))
    chart = charts.curves([_drawn(one) for one in curves], axes, described=words)
    told = [_at_risk(curves, across.ticks)] if any(one["at_risk"] for one in curves) else []
    return markup.figure(chart, words, *told)


def _drawn(curve: Mapping[str, Any]) -> charts.DrawnCurve:
    """One curve, with its simultaneous band where it has one."""
    low = curve["band_low"] or curve["low"]
    high = curve["band_high"] or curve["high"]
    return charts.DrawnCurve(
        name=curve["name"] or "all",
        x=tuple(curve["x"]),
        y=tuple(curve["y"]),
        low=tuple(low),
        high=tuple(high),
    )


def _at_risk(curves: Sequence[Mapping[str, Any]], ticks: Sequence[float]) -> markup.Html:
    """Numbers at risk at the times of the grid that are nearest to the ticks of the axis."""
    grid = max((one["x"] for one in curves), key=len)
    shown = sorted({min(grid, key=lambda x: abs(x - tick)) for tick in ticks if tick >= 0})
    rows = [(one["name"] or "all", *(_risk_at(one, time) for time in shown)) for one in curves]
    head = (curves[0].get("column", ""), *map(amount, shown))
    caption = "Records at risk just after these times, with noise"
    return markup.table(caption, head, rows, numeric=range(1, len(head)))


def _risk_at(curve: Mapping[str, Any], time: float) -> str:
    """How many are at risk just after a time of the grid, as far as the curve goes."""
    known = dict(zip(curve["x"], curve["at_risk"], strict=False))
    return f"{max(known[time], 0):,.0f}" if time in known else ""


def _histogram(answer: Answer) -> markup.Html:
    """Bars of the shares of bins, with their intervals."""
    rows = [row for row in answer["rows"] if row["quantity"] == "share"]
    bins = [row for row in rows if row["level"] != "missing"]
    items = [
        charts.BinShare(name=row["level"], value=row["value"], ends=(row["low"], row["high"]))
        for row in bins
    ]
    tops = [0.0, *(end for one in items for end in one.ends)]
    up = scales.linear(tops, *charts.vertical(charts.HEIGHT))
    how = f"with {_percent(answer)} intervals."
    words = f"{answer['title']}: the share of records in each bin, {how}"
    chart = charts.bars(items, up, labels=(bins[0]["column"], "share"), described=words)
    return markup.figure(chart, words)


def _forest(answer: Answer, rows: Sequence[Mapping[str, Any]]) -> markup.Html:
    """Effects with their intervals, ratios on a logarithmic axis."""
    ratio = rows[0]["quantity"] in _RATIOS
    known = [row for row in rows if None not in (row["value"], row["low"], row["high"])]
    ends = [row[key] for row in known for key in ("low", "value", "high")]
    place = (charts.EDGE, charts.WIDTH - charts.VALUE_ROOM)
    across = scales.ratios(ends, *place) if ratio else scales.linear([0.0, *ends], *place)
    items = [
        charts.Interval(
            label=": ".join(filter(None, (row["column"], row["level"]))),
            value=row["value"],
            ends=(row["low"], row["high"]),
            first=not row["low"] <= (1.0 if ratio else 0.0) <= row["high"],
        )
        for row in known
    ]
    name = rows[0]["quantity"]
    nothing = "1 means no difference" if ratio else "0 means no effect"
    words = f"{answer['title']}: {name}s with {_percent(answer)} intervals; {nothing}."
    return markup.figure(charts.intervals(items, across, label=name, described=words), words)


def _percent(answer: Answer) -> str:
    return f"{100 * answer['confidence']:g} %"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
