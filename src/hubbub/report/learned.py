"""What was learned: the learning curve, and whether joining was worth it.

This file reads the rows of the metrics and of the comparison; it knows nothing of noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hubbub.report import charts, markup, modes, scales
from hubbub.report.number_format import amount, at_most, finite, score

Row = Mapping[str, float]
Comparison = Mapping[str, Mapping[str, float]]

_METRICS = {
    "auc": (
        "AUC",
        "AUC is the chance that the model ranks a positive test record above a negative one: "
        "0.5 is guessing, 1 is perfect.",
    ),
    "accuracy": ("accuracy", "Accuracy is the share of test records that are classified rightly."),
}


def metrics_of(rows: Sequence[Row]) -> list[str]:
    """The metrics that these rows hold, the telling one first."""
    return [key for key in _METRICS if any(finite(row, key) is not None for row in rows)]


def name_of(metric: str) -> str:
    """A metric's name for people."""
    return _METRICS[metric][0]


def learning(rows: Sequence[Row], against: str | None) -> markup.Html:
    """The section with the learning curve; the rows' epsilon holds against an adversary, if any."""
    found = metrics_of(rows)
    if not found:
        return markup.section(
            "What was learned", markup.tag("p", "This run was not scored on test records.")
        )
    meanings = " ".join(_METRICS[key][1] for key in found)
    figures = [_metric_figure(rows, found)]
    if against is not None:
        figures.append(_epsilon_figure(rows, against))
    words = f"Measured on public test records, which no silo had to give up. {meanings}"
    numbers = _metric_table(rows, found, promised=against is not None)
    return markup.section(
        "What was learned",
        markup.tag("p", words),
        markup.tag("div", *figures, class_="figures"),
        markup.tag("details", markup.tag("summary", "The same in numbers"), numbers),
    )


def joining(comparison: Comparison) -> markup.Html:
    """The section that compares the federation with its baselines."""
    metric = metrics_of(list(comparison.values()))[:1]
    if not metric:
        words = "No scores of baselines are given, so there is nothing to compare this study with."
        return markup.section("Is joining worth it?", markup.tag("p", words))
    shown = [mode for mode in modes.MODES if mode in comparison]
    name = name_of(metric[0])
    values = {mode: finite(comparison[mode], metric[0]) for mode in shown}
    spreads = {mode: finite(comparison[mode], "spread") for mode in shown}
    verdict = _verdict(values, spreads, name)
    return markup.section(
        "Is joining worth it?",
        *([markup.tag("p", verdict, class_="verdict")] if verdict else []),
        markup.tag("div", _bars(values, spreads, name), class_="figures"),
        _comparison_table(values, spreads, name),
    )


def _series(rows: Sequence[Row], key: str, name: str) -> charts.Series:
    points = ((row["step"], finite(row, key)) for row in rows)
    return charts.Series(name=name, points=tuple((x, y) for x, y in points if y is not None))


def _metric_figure(rows: Sequence[Row], found: Sequence[str]) -> markup.Html:
    series = [_series(rows, key, name_of(key)) for key in found]
    up = scales.linear((y for one in series for _, y in one.points), *charts.vertical(270))
    ends = (
        f"{one.name} from {score(one.points[0][1])} at step {amount(one.points[0][0])} "
        f"to {score(one.points[-1][1])} at step {amount(one.points[-1][0])}"
        for one in series
    )
    return _over_steps(series, rows, up, " and ".join(s.name for s in series), "; ".join(ends))


def _epsilon_figure(rows: Sequence[Row], against: str) -> markup.Html:
    series = _series(rows, "epsilon", "epsilon so far")
    up = scales.bounds((y for _, y in series.points), *charts.vertical(270))
    last = series.points[-1][1] if series.points else None
    words = f"epsilon against {against} rises with every step, to {at_most(last)}"
    label = "ε so far" + (" (log scale)" if up.log else "")
    return _over_steps([series], rows, up, label, words)


def _over_steps(
    series: Sequence[charts.Series], rows: Sequence[Row], up: scales.Scale, label: str, words: str
) -> markup.Html:
    across = scales.linear(
        [0.0, *(row["step"] for row in rows)], charts.LEFT, charts.RIGHT, whole=True
    )
    chart = charts.lines(
        series, across, up, labels=("training steps", label), described=f"Line chart: {words}."
    )
    return markup.tag("figure", chart, markup.tag("figcaption", f"{words[0].upper()}{words[1:]}."))


def _metric_table(rows: Sequence[Row], found: Sequence[str], *, promised: bool) -> markup.Html:
    head = ["Step", *(["ε so far"] if promised else []), "loss", *map(name_of, found)]
    body = [
        [
            amount(row["step"]),
            *([at_most(finite(row, "epsilon"))] if promised else []),
            amount(finite(row, "loss")),
            *(score(finite(row, key)) for key in found),
        ]
        for row in rows
    ]
    return markup.table("Every evaluation of the run", head, body, numeric=range(len(head)))


def _bars(
    values: Mapping[str, float | None], spreads: Mapping[str, float | None], name: str
) -> markup.Html:
    known = {mode: value for mode, value in values.items() if value is not None}
    items = [
        charts.ChartBar(label=modes.MODES[mode].label, value=value, spread=spreads[mode])
        for mode, value in known.items()
    ]
    words = ", ".join(f"{item.label} {score(item.value)}" for item in items)
    chart = charts.bars(items, label=f"test {name}", described=f"Bar chart of {name}: {words}.")
    caption = f"Test {name} by way of training; whiskers are one standard deviation between runs."
    return markup.tag("figure", chart, markup.tag("figcaption", caption))


def _comparison_table(
    values: Mapping[str, float | None], spreads: Mapping[str, float | None], name: str
) -> markup.Html:
    rows = [
        (
            modes.MODES[key].label,
            score(one),
            score(spreads[key]),
            modes.MODES[key].meaning,
            modes.MODES[key].trust,
        )
        for key, one in values.items()
    ]
    head = ("Way of training", f"test {name}", "± spread", "what happens", "who must be trusted")
    caption = "The same study under other arrangements, at the same ε where there is one"
    return markup.table(caption, head, rows, numeric=(1, 2))


def _verdict(
    values: Mapping[str, float | None], spreads: Mapping[str, float | None], name: str
) -> str:
    """In one sentence whether the federation beat the silos on their own."""
    together, alone = values.get("federated"), values.get("alone")
    if together is None or alone is None:
        return ""
    gain = together - alone
    noise = max(spreads["federated"] or 0.0, spreads["alone"] or 0.0)
    numbers = f"{name} {score(together)} together, {score(alone)} alone at the same ε"
    if abs(gain) <= noise:
        return f"No clear difference: {numbers}; runs differ by as much among themselves."
    if gain > 0:
        return f"Yes: {numbers}, a gain of {score(gain)}."
    return f"Not here: {numbers}, a loss of {score(-gain)}."
