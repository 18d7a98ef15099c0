"""A private validation as a sheet: sentences, scores, calibration and decision curve.

It reads plain values, as `validation.json` has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hubbub.core.study.study import Study
from hubbub.desk.report import charts
from hubbub.desk.report.markup import Html
from hubbub.desk.report.scores import (
    advice,
    interval_of,
    miscalibrated,
    score_name,
    score_table,
    shown,
    verdict,
)
from hubbub.desk.report.sheet import Figure, Sheet, SheetOfModel, Table

Validation = Mapping[str, Any]
_INTERVALS = (
    "One noisy sum compared the published model's predictions with the outcomes. Every interval "
    "covers the sampling of people, the added noise and, of amounts, what public bins round: by "
    "how much wider bins change a score. Values beyond the public bounds count in the outermost "
    "bin. Where one wide bin has most amounts, or many share a value, no error, gap or slope is "
    "told. A c-index compares only records in different bins of the outcome."
)
_LEAST = 0.05  # a net benefit that an axis shows at least


def told(validation: Validation) -> SheetOfModel:
    """What is to be said of a validation, as `validation.json` has it."""
    if validation["refusal"]:
        return SheetOfModel(sheet=sheet_of(validation), next_step=next_step(validation))
    name, score = next(iter(validation["all"]["scores"].items()))
    who = whose(validation)
    remark = f"{interval_of(score)} (95 %, sampling and noise): {verdict(name, score)}. On {who}"
    return SheetOfModel(
        sheet=sheet_of(validation),
        telling=(score_name(name), shown(score["value"]), remark),
        next_step=next_step(validation),
        methods=f"The model was validated on {who}, by a noisy sum over public bins of predictions "
        "and outcomes. Intervals contain the values that the noisy counts do not contradict.",
    )


def planned(foreseen: Validation, study: Study) -> Sheet:
    """On which records the model will be scored, and how exactly, before any is touched."""
    much = foreseen["flatters"]
    flattered = "not known" if much is None else f"up to about {much:.2g}"
    rows = tuple(
        (
            f"{name} records" + ("  <- taken" if name == foreseen["records"] else ""),
            "beyond 1" if error is None else f"{error:.2g}",
            "nothing" if name == "held-back" else flattered,
        )
        for name, error in foreseen["errors"].items()
    )
    if not study.data.records:
        rows = ((foreseen["records"], "not known: state data.records", ""),)
    share = "" if foreseen["rate"] is None else f", if {foreseen['rate']:.3g} have the outcome"
    if share and not study.validation.rate:
        share += " (state your own guess in validation.rate)"
    title = f"Private validation: the {score_name(foreseen['score'])} of the trained model{share}"
    head = ("compared with", "standard error (noise and sampling)", "may flatter by")
    return Sheet(title="", tables=(Table(head, rows, title, words=(0, 1, 2)),))


def sheet_of(validation: Validation) -> Sheet:
    """What is to be said of a validation, but for what to do next."""
    title, everybody = "How well the model does on the sites' records", validation["all"]
    if everybody is None or not everybody["scores"]:
        return Sheet(title=title, sentences=(sentence(validation),))
    gap = miscalibrated(everybody["scores"]).removeprefix("its ")
    overall = score_table(everybody["scores"], f"The model on {whose(validation)}")
    # Of a subgroup or centre the telling score is told, and two of closeness.
    kept, rows = (validation["telling"], "brier", "calibration_gap"), list[tuple[str, ...]]()
    for part in validation["groups"]:
        scores = {name: score for name, score in part["scores"].items() if name in kept}
        lines = score_table(scores, "").rows or (("", "too few for this noise", "", ""),)
        who = f"{part['by']}: {part['group']}", f"{max(part['count'], 0):,.0f}"
        rows += [(*who, name, value, apart) for name, value, _, apart in lines]
    head = ("", "n, with noise", "score", "estimate (95 % interval)", "verdict")
    words = "The model by subgroup and centre"
    by_group = Table(head, tuple(rows), words, name="validation-groups", words=(0, 2, 4))
    return Sheet(
        title=title,
        sentences=(sentence(validation), *([f"on average {gap}"] if gap else [])),
        figures=tuple(_figures(everybody)),
        tables=(replace(overall, name="validation"), *([by_group] if rows else [])),
        notes=(_INTERVALS,),
    )


def whose(validation: Validation) -> str:
    """On which records, and by how much that may flatter."""
    told = validation["all"]
    unit = validation["unit"]
    count = "" if told is None else f"about {max(told['count'], 0):,.0f} "
    if validation["records"] == "held-back":
        return f"{count}{unit}s held back from training"
    much = validation["flatters"]
    by = "by an unknown amount" if much is None else f"by up to about {much:.2g}"
    name = score_name(validation["telling"])
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
        f"private validation: {score_name(name)} {shown(one['value'])} ({interval_of(one)}, "
        f"sampling and noise included), {verdict(name, one)}; on {whose(validation)}"
    )


def next_step(validation: Validation) -> str:
    """What to do with the model, or about it, in one sentence."""
    remedy = "give the validation more epsilon or more records"
    if validation["refusal"]:
        return f"next: {remedy}, or test the model on public records (data.test)"
    return advice(validation["all"]["scores"], remedy)


def _figures(everybody: Mapping[str, Any]) -> Iterator[Figure]:
    """The calibration plot and the decision curve, each with its points, where there is one."""
    curve, decisions = everybody["calibration"], everybody["decisions"]
    drawings = []
    if curve:
        axes = ("predicted", "observed")
        drawings.append(("calibration", curve, axes, _calibration_chart(curve)))
    if drawn := decision_chart(decisions):
        drawings.append(("decisions", decisions[0], ("threshold", "net benefit"), drawn))
    for name, own, head, (chart, words) in drawings:
        points = zip(*(own[key] for key in ("x", "y", "low", "high")), strict=True)
        rows = tuple(tuple(map(shown, point)) for point in points)
        table = Table((*head, "low", "high"), rows, "The points of the figure", words=())
        yield Figure(chart, words, charts.HEIGHT, name, table)


def _calibration_chart(curve: Mapping[str, Any]) -> tuple[Html, str]:
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
    ideal = charts.Series(name="perfect", points=tuple((end, end) for end in ends), marked=False)
    axes = charts.Axes(across=across, up=up, labels=("predicted", "observed"))
    return charts.lines([charts.Series.of(curve), ideal], axes, described=words), words


def decision_chart(curves: Sequence[Mapping[str, Any]]) -> tuple[Html, str] | None:
    """Net benefit of the model, and of treating everybody, where noise leaves something to see."""
    if not curves:
        return None
    # Of the model the points whose interval is no wider than the largest benefit is high.
    model = curves[0]
    most = max([_LEAST, *model["y"]])
    ends = zip(model["low"], model["high"], strict=True)
    clear = [place for place, (low, high) in enumerate(ends) if high - low <= most]
    if not clear:
        return None
    parts = {key: tuple(model[key][place] for place in clear) for key in ("x", "y", "low", "high")}
    drawn, places = [charts.Series.of({"name": model["name"], **parts})], parts["x"]
    low, top = min([0.0, *parts["low"]]), max([0.0, *parts["high"]])
    # Of the others the part that lies on the chart, without its interval.
    for curve in curves[1:]:
        kept = [(x, y) for x, y in zip(curve["x"], curve["y"], strict=True) if low <= y <= top]
        if len(kept) > 1:
            drawn.append(charts.Series(name=curve["name"], points=tuple(kept), marked=False))
    axes = charts.Axes(
        across=charts.linear([0.0, *places], charts.LEFT, charts.RIGHT),
        up=charts.linear([low, top], *charts.vertical(charts.HEIGHT)),
        labels=("threshold probability", "net benefit"),
    )
    everybody = ", compared with treating everybody"
    if len(drawn) == 1:
        everybody = "; the curve for treating everybody lies outside the picture"
    words = (
        "Decision curve: the net benefit of treating those whose predicted risk is at "
        f"least the threshold, with 95 % intervals{everybody}; treating nobody is 0."
    )
    return charts.lines(drawn, axes, described=words), words
