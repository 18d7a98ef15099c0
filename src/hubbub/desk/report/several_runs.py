"""Several runs side by side: their curves on one axis, their last scores, and what each cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hubbub.core.number_format import NOT_KNOWN, Row, amount, at_most, finite
from hubbub.core.planning import adversary_words
from hubbub.desk.report import comparison_table, learned, markup, privacy_cost, trust_models
from hubbub.learning import metric_words

_NOTE = (
    "These runs are of more than one study. Where the test records differ too, their scores "
    "cannot be compared."
)
_MOST = 12  # curves


@dataclass(frozen=True, kw_only=True)
class ReportedRun:
    """One run, as its folder tells of it.

    Args:
        folder: its name, for people.
        plan: as plain values.
        metrics: its rows.
        baseline: which one; None for the federation.
    """

    folder: str
    plan: Mapping[str, Any] = field(repr=False)
    metrics: Sequence[Row] = field(repr=False)
    baseline: str | None

    @property
    def mode(self) -> trust_models.Mode:
        """The arrangement that was run."""
        return trust_models.MODES[self.baseline or "federated"]

    @property
    def last(self) -> Row:
        """The last row of its metrics; empty if there is none."""
        return self.metrics[-1] if self.metrics else {}


def side_by_side(runs: Sequence[ReportedRun]) -> markup.Html:
    """The section."""
    shown_metrics = metric_words.metrics_of([row for run in runs for row in run.metrics])
    head = (
        "Run",
        "arrangement",
        "steps",
        *map(metric_words.name_of, shown_metrics),
        "ε at most",
        "against",
    )
    rows = [_row(run, shown_metrics) for run in runs]
    numeric = range(2, 4 + len(shown_metrics))
    note = [markup.tag("p", _NOTE)] if len({run.plan["study_id"] for run in runs}) > 1 else []
    return markup.section(
        "Runs side by side",
        *note,
        *([_figures(runs, shown_metrics[0])] if shown_metrics else []),
        markup.table("The last evaluation of each run", head, rows, numeric=numeric),
    )


def arrangements_of(runs: Sequence[ReportedRun]) -> comparison_table.ArrangementTable | None:
    """The runs of the first one's study by arrangement, averaged; None if it has but one."""
    same = [run for run in runs if run.plan["study_id"] == runs[0].plan["study_id"]]
    metric = metric_words.metrics_of([one.last for one in same])[:1]
    if not metric or len({one.baseline for one in same}) < 2:
        return None
    together = [[one for one in same if one.mode is mode] for mode in trust_models.MODES.values()]
    arrangements = [_arrangement(some, metric[0]) for some in together if some]
    how = "From the runs that this page shows side by side, scored on the same test records."
    return comparison_table.ArrangementTable(
        metric=metric[0],
        arrangements=tuple(filter(None, arrangements)),
        how=how,
        note=comparison_table.UNCHARGED_BASELINES,
    )


def _arrangement(runs: Sequence[ReportedRun], metric: str) -> comparison_table.Arrangement | None:
    """Runs of one arrangement, with an interval where there are several."""
    scores = [value for run in runs if (value := finite(run.last, metric)) is not None]
    if not scores:
        return None
    low, high = comparison_table.interval(scores)
    against = privacy_cost.against(runs[0].plan, runs[0].mode)
    return comparison_table.Arrangement(
        name=runs[0].baseline or "federated",
        mean=sum(scores) / len(scores),
        low=low,
        high=high,
        epsilon=None if against is None else max(_spent(run) for run in runs),
        adversary=against,
    )


def _spent(one: ReportedRun) -> float:
    return max(finite(row, "epsilon") or 0.0 for row in one.metrics)


def _row(one: ReportedRun, found: Sequence[str]) -> list[str]:
    against = privacy_cost.against(one.plan, one.mode)
    return [
        one.folder,
        one.mode.label,
        amount(one.last.get("step")),
        *(metric_words.words_of(key).shown(finite(one.last, key)) for key in found),
        "none" if against is None else at_most(_spent(one)) if one.metrics else NOT_KNOWN,
        "nobody: no promise" if against is None else adversary_words.spoken(against),
    ]


def _figures(runs: Sequence[ReportedRun], metric: str) -> markup.Html:
    """A curve for each run, all on one axis."""
    scored = [run for run in runs if metric in metric_words.metrics_of(run.metrics)]
    up = learned.scale_of([row for one in scored for row in one.metrics], [metric])
    figures = [
        learned.metric_figure(one.metrics, [metric], up, f"“{one.folder}”, {one.mode.label}")
        for one in scored[:_MOST]
    ]
    return markup.tag("div", *figures, class_="figures")
