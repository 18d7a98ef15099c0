"""What was learned: the learning curve, averaged over neighbouring evaluations.

This file reads the rows of the metrics; it knows nothing of noise.
"""

from __future__ import annotations

from collections.abc import Sequence

from hubbub.core.number_format import Row, amount, at_most, finite
from hubbub.core.planning import adversary_words
from hubbub.desk.report import charts, markup, scales, score_words
from hubbub.learning.metric_words import is_held_back, metrics_of, name_of, words_of

_REACH = 2  # evaluations on either side that are averaged
_FEWEST = 5  # evaluations that are worth averaging
_CURVES = 2  # in one figure, at most
_AVERAGED = (
    "Lines are running means, each over an evaluation and up to two before and after it; faint "
    "marks are the single evaluations, which jump up and down because of the noise. A step is one "
    "small improvement of the model."
)


def learning(
    rows: Sequence[Row],
    against: str | None,
    cost: scales.Scale,
    scores: score_words.Scores,
    *,
    validated: bool = False,
) -> markup.Html:
    """The section with the learning curve.

    Args:
        rows: of the metrics.
        against: the adversary against whom their epsilon holds, if any.
        cost: the axis for it.
        scores: on public test records beside a model that knows nothing, by metric.
        validated: whether the model was scored otherwise.
    """
    shown_metrics = metrics_of(rows)
    curves = _alike(shown_metrics)
    figures = [metric_figure(rows, curves, scale_of(rows, curves))] if shown_metrics else []
    if against is not None and rows:
        figures.append(_epsilon_figure(rows, against, cost))
    numbers = _metric_table(rows, shown_metrics, promised=against is not None)
    more = [markup.tag("details", markup.tag("summary", "The same in numbers"), numbers)]
    return markup.section(
        "What was learned",
        *(markup.tag("p", words) for words in _words(shown_metrics, validated)),
        *([_scores(scores)] if scores else []),
        *([markup.tag("div", *figures, class_="figures")] if figures else []),
        *(more if rows else []),
    )


def _scores(scores: score_words.Scores) -> markup.Html:
    """The final model's scores, each beside one that knows nothing."""
    caption = (
        "The trained model beside one that knows nothing of a record: intervals say how far chance "
        "in the choice of test records may carry a score"
    )
    body = score_words.score_rows(scores)
    return markup.table(caption, score_words.SCORES_HEAD, body, numeric=(1, 2, 3))


def running_mean(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Every y averaged with those of up to two points before and after it; of few points, all."""
    if len(points) < _FEWEST:
        return tuple(points)
    near = [points[max(0, k - _REACH) : k + _REACH + 1] for k in range(len(points))]
    means = [sum(y for _, y in some) / len(some) for some in near]
    return tuple((x, mean) for (x, _), mean in zip(points, means, strict=True))


def _alike(found: Sequence[str]) -> list[str]:
    """The first metrics that fit on one axis: two shares, or one of any other kind."""
    shares = [key for key in found if words_of(key).is_share]
    return shares[:_CURVES] if found and found[0] in shares else list(found[:1])


def scale_of(rows: Sequence[Row], keys: Sequence[str]) -> scales.Scale:
    """The axis for some metrics of these rows."""
    values = [y for key in keys for row in rows if (y := finite(row, key)) is not None]
    axis = scales.scores if all(words_of(key).is_share for key in keys) else scales.linear
    return axis(values, *charts.vertical(charts.HEIGHT))


def metric_figure(
    rows: Sequence[Row], found: Sequence[str], up: scales.Scale, title: str = ""
) -> markup.Html:
    """Metrics over steps, on an axis that other figures may share."""
    series = [_averaged(rows, key) for key in found]
    ends = ", ".join(
        f"{one.name} {words_of(key).shown(one.points[-1][1])}"
        for key, one in zip(found, series, strict=True)
    )
    when = (
        "mean of the last evaluations" if any(line.faint for line in series) else "last evaluation"
    )
    label = " and ".join(line.name for line in series)
    words = f"{label} over the steps; at the end {ends} ({when})"
    return _over_steps(series, rows, up, label, f"{title}: {words}" if title else words)


def _words(found: Sequence[str], validated: bool) -> list[str]:
    if not found and validated:
        return [
            "The study names no public test records, so there is no score on the way; how good "
            "the model is in the end stands above."
        ]
    if not found:
        return [
            "This run was not scored: the study names no public test records. How good the model "
            "is has to be judged elsewhere, on records that were not used for it."
        ]
    where = "Measured on public test records, which no silo had to give up."
    known = [] if all(map(is_held_back, found)) else [where]
    return [" ".join([*known, *(words_of(key).meaning for key in found)]), _AVERAGED]


def _points(rows: Sequence[Row], key: str) -> tuple[tuple[float, float], ...]:
    points = ((row["step"], finite(row, key)) for row in rows)
    return tuple((x, y) for x, y in points if y is not None)


def _averaged(rows: Sequence[Row], key: str) -> charts.Series:
    single = _points(rows, key)
    mean = running_mean(single)
    return charts.Series(
        name=name_of(key), points=mean, faint=single if len(single) >= _FEWEST else ()
    )


def _epsilon_figure(rows: Sequence[Row], against: str, up: scales.Scale) -> markup.Html:
    series = charts.Series(name="epsilon so far", points=_points(rows, "epsilon"))
    last = series.points[-1][1] if series.points else None
    who = adversary_words.spoken(against)
    words = f"epsilon (ε) against {who} grows with every step, to {at_most(last)}"
    label = "ε so far" + (" (log scale)" if up.log else "")
    return _over_steps([series], rows, up, label, words)


def _over_steps(
    series: Sequence[charts.Series], rows: Sequence[Row], up: scales.Scale, label: str, words: str
) -> markup.Html:
    across = scales.linear(
        [0.0, *(row["step"] for row in rows)], charts.LEFT, charts.RIGHT, whole=True
    )
    axes = charts.Axes(across=across, up=up, labels=("training steps", label))
    chart = charts.lines(series, axes, described=f"Line chart: {words}.")
    return markup.figure(chart, f"{words[0].upper()}{words[1:]}.")


def _metric_table(rows: Sequence[Row], found: Sequence[str], *, promised: bool) -> markup.Html:
    head = [
        "Step",
        *(["ε so far"] if promised else []),
        *(["loss"] if found else []),
        *map(name_of, found),
    ]
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
