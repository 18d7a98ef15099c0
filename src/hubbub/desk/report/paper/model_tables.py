"""What a paper prints of a model: its scores on records, of groups too, and its two figures.

It reads plain values, as `validation.json` has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hubbub.desk.report import charts, validation_section, validation_words
from hubbub.desk.report.answer_figures import Figure
from hubbub.desk.report.answer_tables import TextTable

Validation = Mapping[str, Any]
_HEAD = ("", "estimate (95 % interval)", "knowing nothing", "told apart")
_GROUP_HEAD = ("", "n, with noise", "score", "estimate (95 % interval)")
_OF_GROUPS = ("brier", "calibration_gap")  # besides the telling score


def scores_table(validation: Validation) -> TextTable:
    """A line for each score of all records."""
    rows = [
        (name, f"{value} ({ends})", null, apart)
        for name, value, ends, null, apart in validation_words.rows(validation["all"])
    ]
    return TextTable(_HEAD, tuple(rows))


def groups_table(validation: Validation) -> TextTable | None:
    """The scores of subgroups and centres; None if there are none."""
    rows = [row for part in validation["groups"] for row in _of_group(part, validation["telling"])]
    return TextTable(_GROUP_HEAD, tuple(rows)) if rows else None


def _of_group(part: Mapping[str, Any], telling: str) -> Iterator[tuple[str, ...]]:
    label, count = f"{part['by']}: {part['group']}", f"{max(part['count'], 0):,.0f}"
    kept = {name: one for name, one in part["scores"].items() if name in (telling, *_OF_GROUPS)}
    if not kept:
        yield label, count, "", "too few for the noise"
    for name, value, ends, _, _ in validation_words.rows({"scores": kept}):
        yield label, count, name, f"{value} ({ends})"
        label, count = "", ""


def model_figures(validation: Validation) -> Iterator[tuple[str, Figure]]:
    """The calibration plot and the decision curve, each with the name of its file."""
    told = validation["all"]
    if told["calibration"]:
        chart, words = validation_section.calibration_chart(told["calibration"])
        yield "calibration", Figure(chart, words, charts.HEIGHT)
    if drawn := validation_section.decision_chart(told["decisions"]):
        yield "decisions", Figure(*drawn, charts.HEIGHT)


def model_methods(validation: Validation) -> str:
    """What the methods say of it: on whose records, and by how much that may flatter."""
    return (
        f"The model was validated on {validation_words.whose(validation)}, by a noisy sum over "
        "public bins of what it foretold and what came, with intervals of those values that the "
        "noisy counts do not contradict."
    )
