"""Scores in words: with an interval, beside a model that knows nothing, and whether it is better.

A score alone misleads: where one record in a hundred has the outcome, a model that finds none is
right in ninety-nine. It reads plain values, as `Score.to_dict` gives them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hubbub.core.number_format import Row, finite
from hubbub.learning.metric_words import is_held_back, label_of, words_of

Scores = Mapping[str, Mapping[str, Any]]
_RARE = 0.1  # share of the rarer class below which accuracy says little
_NULL = {
    "auc": "guessing",
    "c_index": "guessing",
    "accuracy": "always saying the commoner class",
    "held_back_accuracy": "always saying the commoner class",
}
SCORES_HEAD = ("score", "value", "95 % interval", "knowing nothing", "told apart")


def score_rows(scores: Scores) -> list[tuple[str, str, str, str, str]]:
    """A row of a table for each score."""
    return [
        (
            words_of(name).name,
            words_of(name).shown(one["value"]),
            interval_of(name, one["low"], one["high"]),
            words_of(name).shown(one["null"]),
            {None: "no better", True: "better", False: "worse"}[one["is_better"]],
        )
        for name, one in scores.items()
    ]


def in_a_sentence(scores: Scores, row: Row) -> str:
    """The telling score, and whether the model is better than one that knows nothing.

    Args:
        scores: on public test records; empty where there are none.
        row: the last row of the metrics.
    """
    name = telling(scores)
    if name:
        one = scores[name]
        return (
            f"{label_of(name)} {words_of(name).shown(one['value'])} "
            f"({interval_of(name, one['low'], one['high'])}, {one['records']} records): "
            f"{_verdict(name, one)}{_rare_words(scores)}"
        )
    return _held_back(row)


def what_next(scores: Scores, row: Row) -> str:
    """What to do with a model, or about it, in one sentence; empty where nothing was trained.

    Args:
        scores, row: as for `in_a_sentence`.
    """
    name = telling(scores)
    if name and scores[name]["is_better"]:
        if "brier" in scores and not scores["brier"]["is_better"]:
            return (
                "next: it ranks, but its probabilities are no better than the mean: read ranks, "
                "not chances, or see docs/howto/bad_model.md"
            )
        return "next: hubbub predict uses it; what it costs and for whom it fails, judge elsewhere"
    if name:
        return (
            "next: do not use it; look for the reason on public or made-up records with hubbub "
            "rehearse, where it costs nothing (docs/howto/bad_model.md)"
        )
    if any(map(is_held_back, row)):
        return (
            "next: judge it beside a model that knows nothing before it is used: [validation], or "
            "public records (data.test)"
        )
    return (
        "next: judge it before it is used: [validation] tells how good it is for a part of "
        "epsilon, public records (data.test) at no cost"
    )


def telling(scores: Scores) -> str:
    """The name of the score that says most; empty if there is none."""
    return next(iter(scores), "")


def interval_of(name: str, low: float, high: float) -> str:
    """An interval in the metric's own digits."""
    return f"{words_of(name).shown(low)} to {words_of(name).shown(high)}"


def _verdict(name: str, score: Mapping[str, Any]) -> str:
    """Whether a model is told from one that knows nothing."""
    null = _NULL.get(name, "giving everybody the mean")
    if score["is_better"] is None:
        return f"no better than {null} ({words_of(name).shown(score['null'])})"
    how = "better" if score["is_better"] else "worse"
    return f"{how} than {null} ({words_of(name).shown(score['null'])})"


def _rare_words(scores: Scores) -> str:
    """What accuracy is worth where the outcome is rare."""
    known = scores.get("accuracy")
    if known is None or len(scores) == 1 or 1 - known["null"] >= _RARE:
        return ""
    return (
        f"; the outcome is rare, so do not read accuracy: who always says the commoner class has "
        f"{words_of('accuracy').shown(known['null'])}"
    )


def _held_back(row: Row) -> str:
    """A score that was told with noise; what knowing nothing would give, no sum has told."""
    names = [name for name in row if is_held_back(name) and f"{name}_low" in row]
    if not names:
        return ""
    name, count = names[0], finite(row, "held_back_records") or 0.0
    low, high = finite(row, f"{name}_low"), finite(row, f"{name}_high")
    value = finite(row, name)
    if value is None or low is None or high is None:
        return ""
    said = (
        f"{label_of(name)} {words_of(name).shown(value)} ({interval_of(name, low, high)}, noise "
        f"and about {count:.0f} records counted in)"
    )
    if name == "held_back_accuracy":
        return (
            f"{said}: whether that is better than {_NULL[name]} cannot be told from it; "
            "[validation] or public test records (data.test) can tell"
        )
    return f"{said}: what giving everybody the mean would have, no sum has told"


def remarks(scores: Scores, shown: Sequence[str]) -> list[str]:
    """A sentence for each of some metrics that have a score beside a null model."""
    return [
        f"{words_of(name).name}: {interval_of(name, scores[name]['low'], scores[name]['high'])} "
        f"(95 %, of {scores[name]['records']} records), {_verdict(name, scores[name])}."
        for name in shown
        if name in scores
    ]
