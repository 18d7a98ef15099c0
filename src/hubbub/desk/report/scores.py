"""Scores in words: with an interval, beside a model that knows nothing, and whether it is better.

A score alone misleads: where one record in a hundred has the outcome, a model that finds none is
right in ninety-nine. It reads plain values, as `Score.to_dict` and `validation.json` give them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hubbub.core.number_format import Row, amount, at_most, finite
from hubbub.core.planning import plan_rows
from hubbub.desk.report import charts, markup
from hubbub.desk.report.sheet import SheetOfModel, Table, table_html
from hubbub.learning.metric_words import is_held_back, label_of, metrics_of, name_of, words_of

Scores = Mapping[str, Mapping[str, Any]]
_RARE = 0.1  # share of the rarer class below which accuracy says little
# What a model that knows nothing does, by the score that it has; by any other it tells the mean.
_NULLS = {
    **dict.fromkeys(("auc", "c_index", "c_index_uno"), "guessing"),
    **dict.fromkeys(("accuracy", "held_back_accuracy"), "always predicting the most common class"),
}
_NAMES = {
    "r_squared": "R²",
    "deviance_explained": "explained deviance",
    "calibration_gap": "mean of predicted minus observed",
}
CLASS = "found_of_class_"  # before a class: how many of it were told
# How near numbers are, not only their order.
_CLOSE = ("brier", "integrated_brier", "deviance_explained", "r_squared")


def score_name(score: str) -> str:
    """A score as people call it."""
    if score.startswith(CLASS):
        return f"sensitivity for class {score.removeprefix(CLASS)}"
    return _NAMES.get(score) or name_of(score)


def shown(value: float | None) -> str:
    """A score's value in its digits."""
    if value is None:
        return ""
    return f"{value:.3f}" if abs(value) < 10 else f"{value:,.4g}"


def interval_of(score: Mapping[str, Any]) -> str:
    """Its ends."""
    return f"{shown(score['low'])} to {shown(score['high'])}"


def verdict(name: str, score: Mapping[str, Any]) -> str:
    """Whether a model is better than one that ignores the record."""
    how = {None: "cannot be told from", True: "better than", False: "worse than"}
    null = "" if score["null"] is None else f" ({shown(score['null'])})"
    nothing = _NULLS.get(name, "predicting the mean for everybody")
    return f"{how[score['is_better']]} {nothing}{null}"


def score_table(scores: Scores, caption: str) -> Table:
    """A row for each score, beside that of a model that ignores the record."""
    apart = {None: "cannot tell", True: "better", False: "worse"}
    rows = tuple(
        (
            score_name(name),
            f"{shown(score['value'])} ({interval_of(score)})",
            shown(score["null"]),
            "" if score["null"] is None else apart[score["is_better"]],
        )
        for name, score in scores.items()
    )
    head = ("score", "estimate (95 % interval)", "ignoring the record", "verdict")
    return Table(head, rows, caption, words=(0, 3))


def in_a_sentence(scores: Scores, row: Row) -> str:
    """The telling score, and whether the model is better than one that ignores the record."""
    name = telling(scores)
    if name:
        one = scores[name]
        words = (
            f"{label_of(name)} {shown(one['value'])} ({interval_of(one)}, {one['records']} "
            f"records): {verdict(name, one)}"
        )
        accuracy = scores.get("accuracy")
        if accuracy is None or len(scores) == 1 or 1 - accuracy["null"] >= _RARE:
            return words
        return (
            f"{words}; the outcome is rare, so ignore accuracy: {_NULLS['accuracy']} scores "
            f"{shown(accuracy['null'])}"
        )
    # A score that was told with noise; what knowing nothing would give, no sum has told.
    names = [name for name in row if is_held_back(name) and f"{name}_low" in row]
    keys = [f"{name}{end}" for name in names[:1] for end in ("", "_low", "_high")]
    values = [value for key in keys if (value := finite(row, key)) is not None]
    if not values or len(values) < len(keys):
        return ""
    (name, *_), (value, low, high) = names, values
    count = finite(row, "held_back_records") or 0.0
    said = (
        f"{label_of(name)} {shown(value)} ({shown(low)} to {shown(high)}, with noise, on about "
        f"{count:.0f} records)"
    )
    if name == "held_back_accuracy":
        return (
            f"{said}: this cannot show whether that beats {_NULLS[name]}; [validation] or "
            "public test records (data.test) can"
        )
    return f"{said}: no sum shows what predicting the mean would score"


def what_next(scores: Scores, row: Row) -> str:
    """What to do with a model, or about it, in one sentence; by its public scores, if any."""
    if scores:
        return advice(scores, "score it on more public records")
    if any(map(is_held_back, row)):
        return (
            "next: before you use the model, compare it with one that ignores the "
            "record: [validation], or public records (data.test)"
        )
    return (
        "next: before you use the model, find out how good it is: [validation] costs part "
        "of epsilon, public test records (data.test) cost none"
    )


def advice(scores: Scores, remedy: str) -> str:
    """What follows from scores, the telling one first; `remedy` would make them more exact."""
    first = next(iter(scores.values()))
    close = next((scores[name] for name in _CLOSE if name in scores), first)
    if first["is_better"] is None and close["is_better"] is not False:
        return (
            "next: this does not show whether the model beats guessing, as the interval "
            f"contains both; {remedy}, or study the model with hubbub rehearse "
            "(docs/howto/bad_model.md)"
        )
    if not first["is_better"]:
        return (
            "next: do not use this model; look for the cause on public or synthetic records with "
            "hubbub rehearse, which costs no epsilon (docs/howto/bad_model.md)"
        )
    if "c_index" in scores and not any(name in scores for name in _CLOSE):
        return (
            "next: the model ranks records, but how accurate its values are is not known: use the "
            f"ranking only, or {remedy}"
        )
    if close["is_better"] is not True:
        return (
            "next: the model ranks records, but its values are not shown to beat the mean: use the "
            "ranking only, not the probabilities or amounts; see docs/howto/bad_model.md"
        )
    if gap := miscalibrated(scores):
        return f"next: use the model with hubbub predict, but {gap}; see the calibration plot"
    return (
        "next: use the model with hubbub predict; its costs, and the people for whom it fails, "
        "must be judged elsewhere"
    )


def miscalibrated(scores: Scores) -> str:
    """That predictions are too high or too low on average, where that is told from nothing."""
    gap = scores.get("calibration_gap")
    if gap is None or gap["low"] <= 0 <= gap["high"]:
        return ""
    way = "high" if gap["value"] > 0 else "low"
    return f"its predictions are too {way}, by {shown(abs(gap['value']))} on average"


def following(scores: Scores, row: Row, validated: SheetOfModel | None) -> str:
    """What to do next: by the validation, unless public records have scored the model."""
    return validated.next_step if validated and not telling(scores) else what_next(scores, row)


def telling(scores: Scores) -> str:
    """The name of the score that says most; empty if there is none."""
    return next(iter(scores), "")


# What was learned: the learning curve.

_CURVES = 2  # in one figure, at most
_BESIDE = (
    "The trained model beside one that ignores the record; the intervals cover the sampling of "
    "test records"
)
_STEPS = "Scores jump because of the noise. A step is one small improvement of the model."


def learning(
    rows: Sequence[Row],
    against: str | None,
    cost: charts.Scale,
    scores: Scores,
    *,
    validated: bool = False,
) -> markup.Html:
    """The section with the learning curve."""
    shown_metrics = metrics_of(rows)
    # What fits on one axis: two shares, or one metric of any other kind.
    shares = [key for key in shown_metrics if words_of(key).is_share]
    curves = shown_metrics[:1]
    curves = shares[:_CURVES] if {*curves} & {*shares} else curves
    figures = [metric_figure(rows, curves, scale_of(rows, curves))] if shown_metrics else []
    if against is not None and rows:
        series = charts.Series(name="epsilon so far", points=_points(rows, "epsilon"))
        last = series.points[-1][1] if series.points else None
        who = plan_rows.spoken(against)
        words = f"epsilon (ε) against {who} grows with every step, to {at_most(last)}"
        label = "ε so far" + (" (log scale)" if cost.log else "")
        figures.append(_over_steps([series], rows, cost, label, words))
    numbers = _metric_table(rows, shown_metrics, promised=against is not None)
    more = [markup.tag("details", markup.tag("summary", "The same in numbers"), numbers)]
    return markup.section(
        "What was learned",
        *(markup.tag("p", words) for words in _words(shown_metrics, validated)),
        *([table_html(score_table(scores, _BESIDE))] if scores else []),
        *([markup.tag("div", *figures, class_="figures")] if figures else []),
        *(more if rows else []),
    )


def scale_of(rows: Sequence[Row], keys: Sequence[str]) -> charts.Scale:
    """The axis for some metrics of these rows."""
    values = [y for key in keys for row in rows if (y := finite(row, key)) is not None]
    axis = charts.scores if all(words_of(key).is_share for key in keys) else charts.linear
    return axis(values, *charts.vertical(charts.HEIGHT))


def metric_figure(
    rows: Sequence[Row], found: Sequence[str], up: charts.Scale, title: str = ""
) -> markup.Html:
    """Metrics over steps, on an axis that other figures may share."""
    series = [charts.Series(name=name_of(key), points=_points(rows, key)) for key in found]
    ends = ", ".join(
        f"{one.name} {words_of(key).shown(one.points[-1][1])}"
        for key, one in zip(found, series, strict=True)
    )
    label = " and ".join(line.name for line in series)
    words = f"{label} over the steps; at the end {ends}"
    return _over_steps(series, rows, up, label, f"{title}: {words}" if title else words)


def _words(found: Sequence[str], validated: bool) -> Iterator[str]:
    if found:
        where = "Measured on public test records, not on the silos' records."
        known = [] if all(map(is_held_back, found)) else [where]
        yield " ".join([*known, *(words_of(key).meaning for key in found)])
        yield _STEPS
    elif validated:
        yield (
            "The study names no public test records, so there is no score for each step; the final "
            "score is shown above."
        )
    else:
        yield (
            "This run was not scored, because the study names no public test records. Judge the "
            "model on records that were not used to train it."
        )


def _points(rows: Sequence[Row], key: str) -> tuple[tuple[float, float], ...]:
    points = ((row["step"], finite(row, key)) for row in rows)
    return tuple((x, y) for x, y in points if y is not None)


def _over_steps(
    series: Sequence[charts.Series], rows: Sequence[Row], up: charts.Scale, label: str, words: str
) -> markup.Html:
    steps = [0.0, *(row["step"] for row in rows)]
    across = charts.linear(steps, charts.LEFT, charts.RIGHT, whole=True)
    axes = charts.Axes(across=across, up=up, labels=("training steps", label))
    chart = charts.lines(series, axes, described=f"Line chart: {words}.")
    return markup.figure(chart, f"{words[0].upper()}{words[1:]}.")


def _metric_table(rows: Sequence[Row], found: Sequence[str], *, promised: bool) -> markup.Html:
    spent, loss = ["ε so far"] if promised else [], ["loss"] if found else []
    head = ["Step", *spent, *loss, *map(name_of, found)]
    body = [
        [
            amount(row["step"]),
            *([at_most(finite(row, "epsilon"))] if promised else []),
            *([amount(finite(row, "loss"))] if found else []),
            *(words_of(key).shown(finite(row, key)) for key in found),
        ]
        for row in rows
    ]
    return markup.table("Every evaluation of the run", head, body, numeric=range(len(head)))
