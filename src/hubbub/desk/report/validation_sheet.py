"""A private validation as people are told it: sentences, scores, calibration and decision curve.

Each score stands with its interval, beside knowing nothing. The terminal, the page, the notebook
and the paper take their sentences, rows and figures from here. It reads plain values, as
`validation.json` has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from hubbub.desk.report import charts, markup
from hubbub.desk.report.answers import Figure

Validation = Mapping[str, Any]
_INTERVALS = (
    "One noisy sum compared the published model's predictions with the outcomes. Every "
    "interval covers both the sampling of people and the added noise. Predictions were "
    "first rounded to public bins."
)
_LEAST = 0.05  # a net benefit that an axis shows at least
_GROUP_HEAD = ("group", "records, with noise", "score", "value", "95 % interval", "told apart")
HEAD = ("score", "value", "95 % interval", "knowing nothing", "told apart")
_NAMES = {
    "auc": "AUC",
    "c_index": "c-index",
    "brier": "Brier score",
    "accuracy": "accuracy",
    "r_squared": "R²",
    "rmse": "root mean squared error",
    "mae": "mean absolute error",
    "deviance_explained": "explained deviance",
    "calibration_gap": "mean of observed minus predicted",
    "calibration_slope": "calibration slope",
}
_NULLS = {
    "auc": "guessing",
    "c_index": "guessing",
    "accuracy": "always predicting the most common class",
}
_CLASS = "found_of_class_"
_CLOSE = ("brier", "deviance_explained", "r_squared")  # how near numbers are, not only their order


def validation_name(score: str) -> str:
    """A score as people call it."""
    if score.startswith(_CLASS):
        return f"sensitivity for class {score.removeprefix(_CLASS)}"
    return _NAMES.get(score, score)


def shown(value: float | None) -> str:
    """A score's value in its digits."""
    if value is None:
        return ""
    return f"{value:.3f}" if abs(value) < 10 else f"{value:,.4g}"


def validation_rows(told: Mapping[str, Any]) -> list[tuple[str, str, str, str, str]]:
    """A row of a table for each score of one table of records."""
    return [
        (
            validation_name(name),
            shown(one["value"]),
            _interval(one),
            shown(one["null"]),
            "" if one["null"] is None else _apart(one),
        )
        for name, one in told["scores"].items()
    ]


def whose(validation: Validation) -> str:
    """On which records, and by how much that may flatter."""
    told = validation["all"]
    unit = validation["unit"]
    count = "" if told is None else f"about {max(told['count'], 0):,.0f} "
    if validation["records"] == "held-back":
        return f"{count}{unit}s held back from training"
    much = validation["flatters"]
    by = "by an unknown amount" if much is None else f"by up to about {much:.2g}"
    name = validation_name(validation["telling"])
    return (
        f"{count}{unit}s it was trained on, which may flatter it: its {name} {by} (the "
        "most seen in experiments; privacy keeps it small)"
    )


def sentence(validation: Validation) -> str:
    """The telling score, and whether the model is better than one that knows nothing."""
    if validation["refusal"]:
        return f"private validation: no score; {validation['refusal']}"
    name, one = next(iter(validation["all"]["scores"].items()))
    return (
        f"private validation: {validation_name(name)} {shown(one['value'])} ({_interval(one)}, "
        f"sampling and noise included), {verdict(name, one)}; on {whose(validation)}"
    )


def verdict(name: str, one: Mapping[str, Any]) -> str:
    """Whether a model is told from one that knows nothing."""
    null = _NULLS.get(name, "predicting the mean for everybody")
    how = {None: "not told from", True: "better than", False: "worse than"}[one["is_better"]]
    return f"{how} {null}" + ("" if one["null"] is None else f" ({shown(one['null'])})")


def validation_lines(validation: Validation) -> Iterator[str]:
    """All of it for a terminal."""
    yield sentence(validation)
    for part in _told(validation):
        where = f"{part['by']} {part['group']}".strip() or "all"
        for name, one in part["scores"].items():
            if name.startswith(_CLASS) or bool(part["by"]) != (name == validation["telling"]):
                continue  # of groups the telling score, of all the others: it is said above
            told = "" if one["is_better"] is None and one["null"] is None else verdict(name, one)
            yield (
                f"  {where}: {validation_name(name)} {shown(one['value'])} ({_interval(one)})"
                + (f", {told}" if told else "")
            )
        if validation["telling"] not in part["scores"]:
            yield f"  {where}: too few records for this noise"


def next_step(validation: Validation) -> str:
    """What to do with the model, or about it, in one sentence."""
    if validation["refusal"]:
        return (
            "next: give the validation more epsilon or more records, or test the model "
            "on public records (data.test)"
        )
    scores = validation["all"]["scores"]
    first = next(iter(scores.values()))
    if first["is_better"] is None:
        return (
            "next: this does not show whether the model beats guessing, as the interval "
            "contains both; give the validation more epsilon or more records, or study "
            "the model with hubbub rehearse (docs/howto/bad_model.md)"
        )
    if not first["is_better"]:
        return (
            "next: do not use this model; look for the cause on public or synthetic records with "
            "hubbub rehearse, which costs no epsilon (docs/howto/bad_model.md)"
        )
    if "c_index" in scores and not any(name in scores for name in _CLOSE):
        return (
            "next: the model ranks records, but the noise hides how accurate its values "
            "are: use the ranking only, or give the validation more epsilon"
        )
    close = next((scores[name] for name in _CLOSE if name in scores), first)
    if close["is_better"] is not True:
        return (
            "next: the model ranks records, but its values are not shown to beat the mean: use the "
            "ranking, not the probabilities or amounts; see docs/howto/bad_model.md"
        )
    if gap := miscalibrated(scores):
        return f"next: use the model with hubbub predict, but {gap}; see the calibration plot"
    return (
        "next: use the model with hubbub predict; its costs, and the people for whom it "
        "fails, must be judged elsewhere"
    )


def miscalibrated(scores: Mapping[str, Mapping[str, Any]]) -> str:
    """That predictions are too high or too low on average, where that is told from nothing."""
    gap = scores.get("calibration_gap")
    if gap is None or gap["low"] <= 0 <= gap["high"]:
        return ""
    way = "high" if gap["value"] > 0 else "low"
    return f"its predictions are too {way}, by {shown(abs(gap['value']))} on average"


def _told(validation: Validation) -> list[Mapping[str, Any]]:
    return [group for group in (validation["all"], *validation["groups"]) if group is not None]


def _interval(one: Mapping[str, Any]) -> str:
    return f"{shown(one['low'])} to {shown(one['high'])}"


def _apart(one: Mapping[str, Any]) -> str:
    if one["is_better"] is None:
        return "cannot tell"
    return "better" if one["is_better"] else "worse"


def validated(validation: Validation) -> markup.Html:
    """The section of the page."""
    everybody = validation["all"]
    words = [sentence(validation), _INTERVALS]
    if everybody is not None and (gap := miscalibrated(everybody["scores"])):
        words.append(f"On average {gap.removeprefix('its ')}.")
    parts = [
        markup.tag("p", text[0].upper() + text[1:] + ("" if text.endswith(".") else "."))
        for text in words
    ]
    if everybody is not None and everybody["scores"]:
        caption = "The model beside one that ignores the record"
        rows = validation_rows(everybody)
        parts.append(markup.table(caption, HEAD, rows, numeric=(1, 2, 3)))
        drawn = [
            markup.figure(figure.chart, figure.words, _points(everybody, name))
            for name, figure in figures_of(validation)
        ]
        parts += [markup.tag("div", *drawn, class_="figures")] if drawn else []
    # A table for each column that groups are of.
    for by, group in groupby(validation["groups"], key=lambda part: part["by"]):
        lines = [row for part in group for row in _group_rows(part, validation["telling"])]
        parts.append(markup.tag("h3", f"By {by}"))
        caption = f"Scores by {by}"
        parts.append(markup.table(caption, _GROUP_HEAD, lines, numeric=(1, 3, 4)))
    return markup.section("How well the model does on the sites' records", *parts)


def figures_of(validation: Validation) -> Iterator[tuple[str, Figure]]:
    """The calibration plot and the decision curve, each with its name, where there is one."""
    everybody = validation["all"]
    if everybody["calibration"]:
        yield "calibration", Figure(*_calibration_chart(everybody["calibration"]), charts.HEIGHT)
    if drawn := decision_chart(everybody["decisions"]):
        yield "decisions", Figure(*drawn, charts.HEIGHT)


def _calibration_chart(curve: Mapping[str, Any]) -> tuple[markup.Html, str]:
    """What came over what was foretold, beside the line on which both are alike; and in words."""
    values = [*curve["x"], *curve["low"], *curve["high"], *curve["y"]]
    ends = (min(curve["x"]), max(curve["x"]))
    across = charts.linear(curve["x"], charts.LEFT, charts.RIGHT)
    up = charts.linear(values, *charts.vertical(charts.HEIGHT))
    words = (
        "Calibration: observed outcomes against predictions, in groups of about a fifth "
        "of the records, with 95 % intervals. On the diagonal, predictions match what "
        "happened; below it, they are too high."
    )
    ideal = charts.DrawnCurve(name="perfect", x=ends, y=ends)
    axes = charts.Axes(across=across, up=up, labels=("predicted", "observed"))
    return charts.curves([charts.DrawnCurve.of(curve), ideal], axes, described=words), words


def decision_chart(curves: Sequence[Mapping[str, Any]]) -> tuple[markup.Html, str] | None:
    """Net benefit of the model, and of treating everybody, where noise leaves something to see."""
    if not curves or not (shown := _clear(curves[0])).x:
        return None
    low, top = min([0.0, *shown.low]), max([0.0, *shown.high])
    others = [_clipped(curve, low, top) for curve in curves[1:]]
    drawn = [shown, *(one for one in others if len(one.x) > 1)]
    places = shown.x
    axes = charts.Axes(
        across=charts.linear([0.0, *places], charts.LEFT, charts.RIGHT),
        up=charts.linear([low, top], *charts.vertical(charts.HEIGHT)),
        labels=("risk from which on one would treat", "net benefit"),
    )
    everybody = ", compared with treating everybody"
    if len(drawn) == 1:
        everybody = "; the curve for treating everybody lies outside the picture"
    words = (
        "Decision curve: the net benefit of treating those whose predicted risk is at "
        f"least the threshold, with 95 % intervals{everybody}; treating nobody is 0."
    )
    return charts.curves(drawn, axes, described=words), words


def _clear(curve: Mapping[str, Any]) -> charts.DrawnCurve:
    """The points whose interval is no wider than the largest benefit is high."""
    most = max([_LEAST, *curve["y"]])
    ends = zip(curve["low"], curve["high"], strict=True)
    kept = [place for place, (low, high) in enumerate(ends) if high - low <= most]
    parts = {key: tuple(curve[key][place] for place in kept) for key in ("x", "y", "low", "high")}
    return charts.DrawnCurve(name=curve["name"], **parts)


def _clipped(curve: Mapping[str, Any], low: float, top: float) -> charts.DrawnCurve:
    """The part of a curve that lies on the chart, without its interval."""
    kept = [(x, y) for x, y in zip(curve["x"], curve["y"], strict=True) if low <= y <= top]
    return charts.DrawnCurve(
        name=curve["name"], x=tuple(x for x, _ in kept), y=tuple(y for _, y in kept)
    )


def _drawn(curve: Mapping[str, Any]) -> charts.DrawnCurve:
    return charts.DrawnCurve(
        name=curve["name"],
        x=tuple(curve["x"]),
        y=tuple(curve["y"]),
        low=tuple(curve["low"]),
        high=tuple(curve["high"]),
    )


def _points(everybody: Mapping[str, Any], name: str) -> markup.Html:
    """A figure's points as a table that can be unfolded."""
    curve, head = everybody["calibration"], ("predicted", "observed")
    if name == "decisions":
        curve, head = everybody["decisions"][0], ("from a risk of", "net benefit")
    rows = [
        tuple(map(shown, point))
        for point in zip(*(curve[key] for key in ("x", "y", "low", "high")), strict=True)
    ]
    table = markup.table("The points of the figure", (*head, "low", "high"), rows, numeric=range(4))
    return markup.tag("details", markup.tag("summary", "The same in numbers"), table)


def _group_rows(part: Mapping[str, Any], telling: str) -> list[tuple[str, ...]]:
    """Scores of one group, as its count tells."""
    count = f"{max(part['count'], 0):,.0f}"
    rows = validation_rows({"scores": scores_of_group(part, telling)})
    if not rows:
        return [(part["group"], count, "too few records for this noise", "", "", "")]
    return [
        (part["group"], count, name, value, ends, apart) for name, value, ends, _, apart in rows
    ]


def scores_of_group(part: Mapping[str, Any], telling: str) -> dict[str, Mapping[str, Any]]:
    """The scores that are told of a subgroup or centre: the telling one, and two of closeness."""
    kept = (telling, "brier", "calibration_gap")
    return {name: score for name, score in part["scores"].items() if name in kept}
