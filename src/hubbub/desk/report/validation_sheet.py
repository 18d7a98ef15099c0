"""A private validation in words: each score with its interval, beside knowing nothing.

It reads plain values, as `validation.json` has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Validation = Mapping[str, Any]
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
    "calibration_gap": "foretold less observed, on average",
    "calibration_slope": "calibration slope",
}
_NULLS = {
    "auc": "guessing",
    "c_index": "guessing",
    "accuracy": "always saying the commonest class",
}
_CLASS = "found_of_class_"
_CLOSE = ("brier", "deviance_explained", "r_squared")  # how near numbers are, not only their order


def validation_name(score: str) -> str:
    """A score as people call it."""
    if score.startswith(_CLASS):
        return f"share of class {score.removeprefix(_CLASS)} that is found"
    return _NAMES.get(score, score)


def shown(value: float | None) -> str:
    """A score's value in its digits."""
    if value is None:
        return ""
    return f"{value:.3f}" if abs(value) < 10 else f"{value:,.4g}"


def rows(told: Mapping[str, Any]) -> list[tuple[str, str, str, str, str]]:
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
        return f"{count}{unit}s that were held back from its training"
    much = validation["flatters"]
    by = "by how much is not known" if much is None else f"by up to about {much:.2g}"
    name = validation_name(validation["telling"])
    return (
        f"{count}{unit}s that it was trained on, which may flatter it: its {name} {by} (what was "
        "seen at most; privacy keeps that small)"
    )


def sentence(validation: Validation) -> str:
    """The telling score, and whether the model is better than one that knows nothing."""
    if validation["refusal"]:
        return f"private validation: no score; {validation['refusal']}"
    name, one = next(iter(validation["all"]["scores"].items()))
    return (
        f"private validation: {validation_name(name)} {shown(one['value'])} ({_interval(one)}, "
        f"chance and noise counted in), {verdict(name, one)}; on {whose(validation)}"
    )


def verdict(name: str, one: Mapping[str, Any]) -> str:
    """Whether a model is told from one that knows nothing."""
    null = _NULLS.get(name, "giving everybody the mean")
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
            yield f"  {where}: too few records for the noise"


def next_step(validation: Validation) -> str:
    """What to do with the model, or about it, in one sentence."""
    if validation["refusal"]:
        return (
            "next: give the validation more of epsilon, or more records, or judge the model on "
            "public records (data.test)"
        )
    scores = validation["all"]["scores"]
    first = next(iter(scores.values()))
    if first["is_better"] is None:
        return (
            "next: this cannot tell whether the model is better than knowing nothing, as its "
            "interval holds both; give the validation more of epsilon or more records, or look at "
            "the model with hubbub rehearse (docs/howto/bad_model.md)"
        )
    if not first["is_better"]:
        return (
            "next: do not use it; look for the reason on public or made-up records with hubbub "
            "rehearse, where it costs nothing (docs/howto/bad_model.md)"
        )
    if "c_index" in scores and not any(name in scores for name in _CLOSE):
        return (
            "next: it ranks; how close its numbers are, the noise hides: read ranks, or give the "
            "validation more of epsilon"
        )
    close = next((scores[name] for name in _CLOSE if name in scores), first)
    if close["is_better"] is not True:
        return (
            "next: it ranks, but its numbers are not told from the mean: read ranks, not chances "
            "or amounts, or see docs/howto/bad_model.md"
        )
    if gap := miscalibrated(scores):
        return f"next: hubbub predict uses it, but {gap}; see the calibration plot"
    return "next: hubbub predict uses it; what it costs and for whom it fails, judge elsewhere"


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
