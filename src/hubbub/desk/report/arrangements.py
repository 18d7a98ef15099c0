"""How well several arrangements of a study did: what "Is joining worth it?" is answered from.

An arrangement is hubbub or one of its baselines. Plain values, which go to JSON and back; who has
trained what, and on which splits, is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite, sqrt
from typing import Any

import numpy as np

from hubbub.core.number_format import NOT_KNOWN, Row, amount, at_most, finite
from hubbub.core.planning import plan_rows
from hubbub.desk.report import charts, markup, scores, trust_models
from hubbub.desk.report.sheet import Table, table_html
from hubbub.learning import metric_words
from hubbub.learning.metric_words import MetricWords, words_of

_LEVEL = 0.95
# What people must know of scores that stand beside an epsilon: said wherever a table is shown.
_BASELINES = (
    "read everyone's records directly; publishing them would be a separate release, which "
    "these epsilons do not cover."
)
UNCHARGED_REPEATS = (
    f"Only hubbub's first run was charged to the ledgers. The comparison runs {_BASELINES}"
)
UNCHARGED_BASELINE = (
    "No ledger counts this run. A baseline reads everyone's records directly; publishing it would "
    "be a separate release, which no epsilon shown here covers."
)
UNCHARGED_BASELINES = (
    f"Only hubbub's runs were charged to the ledgers. The baseline runs {_BASELINES}"
)


@dataclass(frozen=True, kw_only=True)
class Arrangement:
    """How well one way of training did.

    Raises:
        ValueError: the mean or an end is not finite, or the mean is not between the ends.
    """

    name: str  # "federated", a baseline's name, or any short text for people
    mean: float  # of the metric over all repeats, in the metric's unit
    # low, high: ends of the 95 % interval of the mean; None where there was one run only
    low: float | None = None
    high: float | None = None
    epsilon: float | None = None  # at most, at the study's delta; None if nothing is promised
    # against whom epsilon holds, as in the plan or in a few words; None likewise
    adversary: str | None = None

    def __post_init__(self) -> None:
        ends = [end for end in (self.low, self.mean, self.high) if end is not None]
        texts = (self.name, self.adversary or "")
        if not all(map(isfinite, [*ends, self.epsilon or 0.0])) or ends != sorted(ends):
            raise ValueError("expected low <= mean <= high")
        if len(ends) == 2 or not all(isinstance(text, str) for text in texts):
            raise ValueError("expected both ends of an interval or none, and texts for names")


@dataclass(frozen=True, kw_only=True)
class ArrangementTable:
    """Several arrangements of one study, scored alike."""

    metric: str  # the key that it has in the rows of the metrics, such as "auc"
    arrangements: tuple[Arrangement, ...]  # in the order in which they are shown
    how: str = ""  # one sentence on how often and on what they were scored, for people
    note: str = UNCHARGED_REPEATS  # which of the runs no ledger counts, for people

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> ArrangementTable:
        """From what `to_dict` gave."""
        found = tuple(Arrangement(**arrangement) for arrangement in content["arrangements"])
        texts = (content["how"], content["metric"], content["note"])
        if not all(isinstance(text, str) for text in texts) or not content["metric"].isidentifier():
            raise ValueError("expected the name of a metric, and a text")
        return cls(**{**content, "arrangements": found})

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def interval(values: Sequence[float], metric: str = "") -> tuple[float | None, float | None]:
    """The 95 % interval of the mean of repeats, by Student's t; (None, None) of fewer than two.

    It ends where the metric does, if one is named: no AUC is above 1, no squared error below 0.

    Requires: repeats that are independent of each other. Splits of the same records are not quite:
    their intervals are too short.

    Example:
        >>> low, high = interval([0.8, 0.9, 0.85])
        >>> round(low, 3), round(high, 3), interval([0.8, 1.0], "auc")[1]
        (0.726, 0.974, 1.0)
    """
    from scipy.special import stdtrit  # which takes long to import

    count = len(values)
    if count < 2:
        return None, None
    mean, deviation = float(np.mean(values)), float(np.std(values, ddof=1))
    reach = float(stdtrit(count - 1, (1 + _LEVEL) / 2)) * deviation / sqrt(count)
    least, most = words_of(metric).ends
    return max(mean - reach, least), min(mean + reach, most)


# Whether joining was worth it: arrangements of the study side by side, with intervals.

_LINES = (
    "Dot: the mean; line: its 95 % interval. Where intervals overlap, the difference may "
    "be due to chance."
)
_DOTS = "One run each, so the differences may be due to chance."
_NOBODY = "nobody: no guarantee"


def joining(found: ArrangementTable) -> markup.Html:
    """The section."""
    said, shown = verdict(found), table_of(found, "The same study in several arrangements")
    # What those are that have a name here.
    modes = [trust_models.MODES.get(one.name) for one in found.arrangements]
    about = [(mode.label, mode.meaning, mode.trust) for mode in modes if mode]
    columns = ("Arrangement", "what happens", "who must be trusted")
    meanings = [markup.table("What the arrangements are", columns, about)] if about else []
    return markup.section(
        "Is joining worth it?",
        *([markup.tag("p", said, class_="verdict")] if said else []),
        *([markup.tag("p", found.how)] if found.how else []),
        markup.tag("p", found.note),
        markup.tag("div", _figure(found), class_="figures"),
        table_html(shown),
        *meanings,
    )


def table_of(
    found: ArrangementTable, caption: str, names: Mapping[str, str] | None = None
) -> Table:
    """Each arrangement, by what it is called, with its interval, and its epsilon against whom."""
    metric = words_of(found.metric)
    rows = tuple(
        (
            (names or {}).get(one.name) or trust_models.called(one.name),
            metric.shown(one.mean),
            _range(one, metric),
            "none" if one.epsilon is None else at_most(one.epsilon),
            _NOBODY if one.epsilon is None else plan_rows.spoken(one.adversary or NOT_KNOWN),
        )
        for one in found.arrangements
    )
    head = ("Arrangement", f"test {metric.name}", "95 % interval", "ε at most", "ε holds against")
    return Table(head, rows, caption, words=(0, 4))


def _figure(found: ArrangementTable) -> markup.Html:
    metric = words_of(found.metric)
    name = metric.name
    every = [end for one in found.arrangements for end in (one.low, one.mean, one.high)]
    ends = [end for end in every if end is not None]
    axis = charts.scores if metric.is_share else charts.linear
    across = axis(ends, charts.EDGE, charts.WIDTH - charts.VALUE_ROOM)
    items = [
        charts.Interval(
            label=f"{trust_models.called(one.name)} · "
            f"{'no ε' if one.epsilon is None else f'ε ≤ {at_most(one.epsilon)}'}",
            value=one.mean,
            ends=None if one.low is None or one.high is None else (one.low, one.high),
            first=one.name == "federated",
        )
        for one in found.arrangements
    ]
    pairs = zip(items, found.arrangements, strict=True)
    words = "; ".join(f"{item.label} {_in_words(one, metric)}" for item, one in pairs)
    words = f"Intervals of {name}: {words}."
    chart = charts.intervals(items, across, label=f"test {name}", described=words)
    known = any(item.ends for item in items)
    way = f", {metric.better} is better" if metric.better else ""
    return markup.figure(chart, f"Test {name}{way}. {_LINES if known else _DOTS}")


def _range(one: Arrangement, metric: MetricWords) -> str:
    ends = f"{metric.shown(one.low)} to {metric.shown(one.high)}"
    return NOT_KNOWN if one.low is None else ends


def _in_words(one: Arrangement, metric: MetricWords) -> str:
    return metric.shown(one.mean) + ("" if one.low is None else f" ({_range(one, metric)})")


def verdict(found: ArrangementTable) -> str:
    """In one sentence whether the federation beat the silos on their own; empty if not known."""
    named = {arrangement.name: arrangement for arrangement in found.arrangements}
    together, alone, metric = named.get("federated"), named.get("alone"), words_of(found.metric)
    if together is None or alone is None:
        return ""
    both = _in_words(together, metric), _in_words(alone, metric)
    numbers = f"{metric.name} {both[0]} together, {both[1]} each silo alone"
    if together.low is None or alone.low is None:
        return (
            f"Not known: {numbers}, in one run of each; repeated runs would show how much is "
            "chance."
        )
    if max(together.low, alone.low) <= min(together.high or 0.0, alone.high or 0.0):
        return f"No clear difference: {numbers}; the intervals overlap."
    if not metric.better:
        return f"A clear difference: {numbers}."
    gain = together.mean - alone.mean if metric.better == "higher" else alone.mean - together.mean
    if gain > 0:
        return f"Yes: {numbers}, a gain of {metric.shown(gain)}."
    return f"No: {numbers}, a loss of {metric.shown(-gain)}."


# Several runs side by side: their curves on one axis, their last scores, and what each cost.

_NOTE = (
    "These runs belong to different studies. Unless the test records are the same, their "
    "scores cannot be compared."
)
_MOST = 12  # curves


@dataclass(frozen=True, kw_only=True)
class ReportedRun:
    """One run, as its folder tells of it."""

    folder: str  # its name, for people
    plan: Mapping[str, Any] = field(repr=False)
    metrics: Sequence[Row] = field(repr=False)
    baseline: str | None  # which one; None for the federation

    @property
    def mode(self) -> trust_models.Mode:
        """The arrangement that was run."""
        return trust_models.MODES[self.baseline or "federated"]

    @property
    def against(self) -> str | None:
        """The adversary against whom its epsilon holds; None: against nobody."""
        return plan_rows.promised_against(self.plan["stated_adversary"], self.baseline)

    @property
    def last(self) -> Row:
        """The last row of its metrics; empty if there is none."""
        return self.metrics[-1] if self.metrics else {}


def side_by_side(runs: Sequence[ReportedRun]) -> markup.Html:
    """The section."""
    shown_metrics = metric_words.metrics_of([row for run in runs for row in run.metrics])
    names = map(metric_words.name_of, shown_metrics)
    head = ("Run", "arrangement", "steps", *names, "ε at most", "against")
    rows = []
    for run in runs:
        spent = at_most(_spent(run)) if run.metrics else NOT_KNOWN
        values = (words_of(key).shown(finite(run.last, key)) for key in shown_metrics)
        against = run.against
        who = ("none", _NOBODY) if against is None else (spent, plan_rows.spoken(against))
        rows.append([run.folder, run.mode.label, amount(run.last.get("step")), *values, *who])
    numeric = range(2, 4 + len(shown_metrics))
    note = [markup.tag("p", _NOTE)] if len({run.plan["study_id"] for run in runs}) > 1 else []
    figures = []
    if shown_metrics:  # a curve for each run, all on one axis
        first = shown_metrics[:1]
        scored = [run for run in runs if first[0] in metric_words.metrics_of(run.metrics)]
        up = scores.scale_of([row for run in scored for row in run.metrics], first)
        curves = (
            scores.metric_figure(run.metrics, first, up, f"“{run.folder}”, {run.mode.label}")
            for run in scored[:_MOST]
        )
        figures = [markup.tag("div", *curves, class_="figures")]
    return markup.section(
        "Runs side by side",
        *note,
        *figures,
        markup.table("The last evaluation of each run", head, rows, numeric=numeric),
    )


def arrangements_of(runs: Sequence[ReportedRun]) -> ArrangementTable | None:
    """The runs of the first one's study by arrangement, averaged; None if it has but one."""
    same = [run for run in runs if run.plan["study_id"] == runs[0].plan["study_id"]]
    metric = metric_words.metrics_of([one.last for one in same])[:1]
    if not metric or len({one.baseline for one in same}) < 2:
        return None
    together = [[one for one in same if one.mode is mode] for mode in trust_models.MODES.values()]
    arrangements = [_arrangement(some, metric[0]) for some in together if some]
    how = "For the runs shown side by side on this page, scored on the same test records."
    found = tuple(filter(None, arrangements))
    return ArrangementTable(metric=metric[0], arrangements=found, how=how, note=UNCHARGED_BASELINES)


def _arrangement(runs: Sequence[ReportedRun], metric: str) -> Arrangement | None:
    """Runs of one arrangement, with an interval where there are several."""
    values = [value for run in runs if (value := finite(run.last, metric)) is not None]
    if not values:
        return None
    low, high = interval(values, metric)
    against = runs[0].against
    return Arrangement(
        name=runs[0].baseline or "federated",
        mean=sum(values) / len(values),
        low=low,
        high=high,
        epsilon=None if against is None else max(_spent(run) for run in runs),
        adversary=against,
    )


def _spent(one: ReportedRun) -> float:
    return max(finite(row, "epsilon") or 0.0 for row in one.metrics)
