"""The section with the private validation: scores, calibration plot, decision curve, groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from hubbub.desk.report import charts, markup, validation_sheet
from hubbub.desk.report import charts as curve_charts
from hubbub.desk.report import charts as scales

Validation = Mapping[str, Any]
_INTERVALS = (
    "Asked by one noisy sum at the model that is published. Every interval takes both into "
    "account: that other people might have been asked, and the noise. Predictions were rounded to "
    "public bins first."
)
_LEAST = 0.05  # a net benefit that an axis shows at least
_GROUP_HEAD = ("group", "records, with noise", "score", "value", "95 % interval", "told apart")


def validated(validation: Validation) -> markup.Html:
    """The section."""
    told = validation["all"]
    words = [validation_sheet.sentence(validation), _INTERVALS]
    if told is not None and (gap := validation_sheet.miscalibrated(told["scores"])):
        words.append(f"On average {gap.removeprefix('its ')}.")
    parts = [markup.tag("p", _sentence(word)) for word in words]
    if told is not None and told["scores"]:
        caption = "The model beside one that knows nothing of a record"
        rows = validation_sheet.rows(told)
        parts.append(markup.table(caption, validation_sheet.HEAD, rows, numeric=(1, 2, 3)))
        if drawn := _figures(told):
            parts.append(markup.tag("div", *drawn, class_="figures"))
    return markup.section("How good the model is on patients", *parts, *_groups(validation))


def _figures(told: Mapping[str, Any]) -> list[markup.Html]:
    figures = [_calibration(told["calibration"])] if told["calibration"] else []
    drawn = decision_chart(told["decisions"])
    if drawn is None:
        return figures
    points = _numbers(told["decisions"][0], ("from a chance of", "net benefit"))
    return [*figures, markup.figure(*drawn, points)]


def calibration_chart(curve: Mapping[str, Any]) -> tuple[markup.Html, str]:
    """What came over what was foretold, beside the line on which both are alike; and in words."""
    values = [*curve["x"], *curve["low"], *curve["high"], *curve["y"]]
    ends = (min(curve["x"]), max(curve["x"]))
    across = scales.linear(curve["x"], charts.LEFT, charts.RIGHT)
    up = scales.linear(values, *charts.vertical(charts.HEIGHT))
    words = (
        "Calibration: what came over what was foretold, in groups of about a fifth of the records, "
        "with 95 % intervals. On the straight line foretold and observed are alike; below it the "
        "model promises too much."
    )
    ideal = curve_charts.DrawnCurve(name="perfect", x=ends, y=ends)
    axes = charts.Axes(across=across, up=up, labels=("foretold", "observed"))
    return curve_charts.curves([_drawn(curve), ideal], axes, described=words), words


def _calibration(curve: Mapping[str, Any]) -> markup.Html:
    chart, words = calibration_chart(curve)
    return markup.figure(chart, words, _numbers(curve, ("foretold", "observed")))


def decision_chart(curves: Sequence[Mapping[str, Any]]) -> tuple[markup.Html, str] | None:
    """Net benefit of the model, and of treating everybody, where noise leaves something to see."""
    if not curves or not (shown := _clear(curves[0])).x:
        return None
    low, top = min([0.0, *shown.low]), max([0.0, *shown.high])
    others = [_clipped(curve, low, top) for curve in curves[1:]]
    drawn = [shown, *(one for one in others if len(one.x) > 1)]
    places = shown.x
    axes = charts.Axes(
        across=scales.linear([0.0, *places], charts.LEFT, charts.RIGHT),
        up=scales.linear([low, top], *charts.vertical(charts.HEIGHT)),
        labels=("chance from which on one would treat", "net benefit"),
    )
    everybody = ", beside treating everybody"
    if len(drawn) == 1:
        everybody = "; treating everybody has one that is outside the picture"
    words = (
        "Decision curve: the net benefit of treating whom the model gives at least that chance, "
        f"with 95 % intervals{everybody}; treating nobody is 0."
    )
    return curve_charts.curves(drawn, axes, described=words), words


def _clear(curve: Mapping[str, Any]) -> curve_charts.DrawnCurve:
    """The points whose interval is no wider than the largest benefit is high."""
    most = max([_LEAST, *curve["y"]])
    ends = zip(curve["low"], curve["high"], strict=True)
    kept = [place for place, (low, high) in enumerate(ends) if high - low <= most]
    parts = {key: tuple(curve[key][place] for place in kept) for key in ("x", "y", "low", "high")}
    return curve_charts.DrawnCurve(name=curve["name"], **parts)


def _clipped(curve: Mapping[str, Any], low: float, top: float) -> curve_charts.DrawnCurve:
    """The part of a curve that lies on the chart, without its interval."""
    kept = [(x, y) for x, y in zip(curve["x"], curve["y"], strict=True) if low <= y <= top]
    return curve_charts.DrawnCurve(
        name=curve["name"], x=tuple(x for x, _ in kept), y=tuple(y for _, y in kept)
    )


def _drawn(curve: Mapping[str, Any]) -> curve_charts.DrawnCurve:
    return curve_charts.DrawnCurve(
        name=curve["name"],
        x=tuple(curve["x"]),
        y=tuple(curve["y"]),
        low=tuple(curve["low"]),
        high=tuple(curve["high"]),
    )


def _numbers(curve: Mapping[str, Any], head: tuple[str, str]) -> markup.Html:
    """A figure's points as a table that can be unfolded."""
    rows = [
        tuple(validation_sheet.shown(value) for value in point)
        for point in zip(*(curve[key] for key in ("x", "y", "low", "high")), strict=True)
    ]
    shown = markup.table("The points of the figure", (*head, "low", "high"), rows, numeric=range(4))
    return markup.tag("details", markup.tag("summary", "The same in numbers"), shown)


def _groups(validation: Validation) -> list[markup.Html]:
    """A table for each column that groups are of."""
    groups_shown = []
    for by, parts in groupby(validation["groups"], key=lambda one: one["by"]):
        rows = [row for part in parts for row in _group_rows(part, validation["telling"])]
        groups_shown.append(markup.tag("h3", f"By {by}"))
        caption = f"Scores apart for each {by}"
        groups_shown.append(markup.table(caption, _GROUP_HEAD, rows, numeric=(1, 3, 4)))
    return groups_shown


def _group_rows(part: Mapping[str, Any], telling: str) -> list[tuple[str, ...]]:
    count = f"{max(part['count'], 0):,.0f}"
    kept = {k: v for k, v in part["scores"].items() if k in (telling, "brier", "calibration_gap")}
    if not kept:
        return [(part["group"], count, "too few records for the noise", "", "", "")]
    told = validation_sheet.rows({"scores": kept})
    return [
        (part["group"], count, name, value, ends, apart) for name, value, ends, _, apart in told
    ]


def _sentence(words: str) -> str:
    """With a capital letter and a full stop."""
    return words[0].upper() + words[1:] + ("" if words.endswith(".") else ".")
