"""Whether joining was worth it: arrangements of the study side by side, with intervals.

It shows an `ArrangementTable` and says in one sentence what follows from it; it trains nothing.
"""

from __future__ import annotations

from hubbub.core.number_format import NOT_KNOWN, at_most
from hubbub.core.planning import adversary_words
from hubbub.desk.report import charts, markup, scales, trust_models
from hubbub.desk.report.comparison_table import Arrangement, ArrangementTable
from hubbub.learning.metric_words import MetricWords, words_of

_HEADING = "Is joining worth it?"
_LINES = (
    "Dot: the mean; line: the 95 % interval, within which the mean of very many repeats is "
    "expected. Where lines overlap, chance alone may have made the difference."
)
_DOTS = "One run each, so chance alone may have made the differences."
_NOBODY = "nobody: no promise"


def joining(found: ArrangementTable | None) -> markup.Html:
    """The section."""
    if found is None or not found.arrangements:
        words = "This study was trained in one arrangement only: there is nothing to compare with."
        return markup.section(_HEADING, markup.tag("p", words))
    metric = words_of(found.metric)
    said = verdict(found)
    return markup.section(
        _HEADING,
        *([markup.tag("p", said, class_="verdict")] if said else []),
        *([markup.tag("p", found.how)] if found.how else []),
        markup.tag("p", found.note),
        markup.tag("div", _figure(found, metric), class_="figures"),
        _scores(found, metric),
        *_meanings(found),
    )


def _figure(found: ArrangementTable, metric: MetricWords) -> markup.Html:
    ends, name = (
        [end for arrangement in found.arrangements for end in _ends(arrangement)],
        metric.name,
    )
    if metric.is_share:
        ends = [min(max(end, 0.0), 1.0) for end in ends]
    axis = scales.scores if metric.is_share else scales.linear
    across = axis(ends, charts.EDGE, charts.WIDTH - charts.VALUE_ROOM)
    items = [_interval(arrangement) for arrangement in found.arrangements]
    pairs = zip(items, found.arrangements, strict=True)
    words = "; ".join(f"{item.label} {_in_words(one, metric)}" for item, one in pairs)
    chart = charts.intervals(
        items, across, label=f"test {name}", described=f"Intervals of {name}: {words}."
    )
    known = any(item.ends for item in items)
    way = f", {metric.better} is better" if metric.better else ""
    return markup.figure(chart, f"Test {name}{way}. {_LINES if known else _DOTS}")


def _interval(one: Arrangement) -> charts.Interval:
    bound = "no ε" if one.epsilon is None else f"ε ≤ {at_most(one.epsilon)}"
    return charts.Interval(
        label=f"{trust_models.called(one.name)} · {bound}",
        value=one.mean,
        ends=None if one.low is None or one.high is None else (one.low, one.high),
        first=one.name == "federated",
    )


def _ends(one: Arrangement) -> list[float]:
    return [end for end in (one.low, one.mean, one.high) if end is not None]


def _range(one: Arrangement, metric: MetricWords) -> str:
    ends = f"{metric.shown(one.low)} to {metric.shown(one.high)}"
    return NOT_KNOWN if one.low is None else ends


def _in_words(one: Arrangement, metric: MetricWords) -> str:
    return metric.shown(one.mean) + ("" if one.low is None else f" ({_range(one, metric)})")


def _scores(found: ArrangementTable, metric: MetricWords) -> markup.Html:
    rows = [
        (
            trust_models.called(arrangement.name),
            metric.shown(arrangement.mean),
            _range(arrangement, metric),
            "none" if arrangement.epsilon is None else at_most(arrangement.epsilon),
            _NOBODY
            if arrangement.epsilon is None
            else adversary_words.spoken(arrangement.adversary or NOT_KNOWN),
        )
        for arrangement in found.arrangements
    ]
    head = ("Arrangement", f"test {metric.name}", "95 % interval", "ε at most", "ε holds against")
    caption = "The same study in several arrangements"
    return markup.table(caption, head, rows, numeric=(1, 2, 3))


def _meanings(found: ArrangementTable) -> list[markup.Html]:
    """What the arrangements are, for those that have a name here."""
    known = [
        trust_models.MODES[arrangement.name]
        for arrangement in found.arrangements
        if arrangement.name in trust_models.MODES
    ]
    rows = [(mode.label, mode.meaning, mode.trust) for mode in known]
    head = ("Arrangement", "what happens", "who must be trusted")
    return [markup.table("What the arrangements are", head, rows)] if rows else []


def verdict(found: ArrangementTable) -> str:
    """In one sentence whether the federation beat the silos on their own; empty if not known."""
    named = {arrangement.name: arrangement for arrangement in found.arrangements}
    together, alone, metric = named.get("federated"), named.get("alone"), words_of(found.metric)
    if together is None or alone is None:
        return ""
    both = _in_words(together, metric), _in_words(alone, metric)
    numbers = f"{metric.name} {both[0]} together, {both[1]} each silo alone"
    if together.low is None or alone.low is None:
        return f"Not known: {numbers}, in one run of each; repeats would show what chance does."
    if max(together.low, alone.low) <= min(together.high or 0.0, alone.high or 0.0):
        return f"No clear difference: {numbers}; the intervals overlap."
    if not metric.better:
        return f"A clear difference: {numbers}."
    gain = together.mean - alone.mean if metric.better == "higher" else alone.mean - together.mean
    if gain > 0:
        return f"Yes: {numbers}, a gain of {metric.shown(gain)}."
    return f"Not here: {numbers}, a loss of {metric.shown(-gain)}."
