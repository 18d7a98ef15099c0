"""Metrics in words: what each is called, what it means, and which way is better.

Metrics of a study's own are known by their names only. This file reads no rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from hubbub.core.number_format import Row, amount, finite, score

_OTHER = ("step", "epsilon", "seconds", "loss", "held_back_loss", "held_back_records")
_ENDS = ("_low", "_high")  # of the interval of a held-back metric


@dataclass(frozen=True, kw_only=True)
class MetricWords:
    """What people are told of a metric."""

    name: str
    meaning: str  # a sentence
    better: str = "lower"  # or "higher"; empty where neither is, or nobody knows
    is_share: bool = False  # whether it is read on a scale from one half to 1

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the largest value that it can have."""
        return (0.0 if self.better else -inf), (1.0 if self.is_share else inf)

    def shown(self, value: float | None) -> str:
        """A value of it."""
        return score(value) if self.is_share else amount(value)


def _share(name: str, meaning: str) -> MetricWords:
    return MetricWords(name=name, meaning=meaning, better="higher", is_share=True)


def _held_back(name: str, meaning: str) -> MetricWords:
    kept = "that silos kept out of the training. It is published with noise, which ε includes."
    return MetricWords(name=f"held-back {name}", meaning=f"{meaning} {kept}")


# The telling one of each kind of target first.
METRICS = {
    "auc": _share(
        "AUC",
        "AUC is the probability that the model ranks a positive test record above a "
        "negative one: 0.5 is guessing, 1 is perfect.",
    ),
    "accuracy": _share(
        "accuracy", "Accuracy is the share of test records that are classified correctly."
    ),
    "c_index": _share(
        "c-index",
        "The c-index (Harrell) is the probability that, of two test records, the model gives the "
        "higher risk to the one that has the event first: 0.5 is guessing, 1 is perfect.",
    ),
    "c_index_uno": _share(
        "c-index (Uno)", "Uno's c-index weights pairs so that early censoring counts less."
    ),
    "poisson_deviance": MetricWords(
        name="mean Poisson deviance",
        meaning="The mean Poisson deviance is how far expected counts are from those of the test "
        "records: 0 is perfect.",
    ),
    "rmsle": MetricWords(
        name="RMSE of logarithms",
        meaning="The RMSE of logarithms is the typical ratio by which predictions are off on "
        "test records: 0.1 is about 10 %.",
    ),
    "rmse": MetricWords(
        name="RMSE",
        meaning="RMSE is the root of the mean squared error on test records, in the target's unit.",
    ),
    "mae": MetricWords(
        name="MAE", meaning="MAE is the mean absolute error on test records, in the target's unit."
    ),
    "integrated_brier": MetricWords(
        name="integrated Brier score",
        meaning="The integrated Brier score is the squared error of the predicted survival "
        "probabilities, over time: 0 is perfect, 0.25 is guessing.",
    ),
    "brier": MetricWords(
        name="Brier score",
        meaning="The Brier score is the mean squared error of the probabilities: 0 is perfect.",
    ),
    "calibration_slope": MetricWords(
        name="calibration slope",
        meaning="The calibration slope is 1 where probabilities are as extreme as they should "
        "be, and below 1 where they are too extreme.",
        better="",
    ),
    "held_back_accuracy": _share(
        "held-back accuracy",
        "Held-back accuracy is the share of correctly classified records among those that silos "
        "kept out of the training. It is published with noise, which ε includes. It cannot show "
        "whether this beats always predicting the more common class; [validation] can.",
    ),
    "held_back_rmsle": _held_back(
        "RMSE of logarithms",
        "The held-back RMSE of logarithms is the typical ratio by which predictions are off on "
        "records",
    ),
    "held_back_rmse": _held_back("RMSE", "Held-back RMSE is that of records"),
    "held_back_hazard_brier": _held_back(
        "hazard Brier score",
        "The held-back hazard Brier score is the squared error of the predicted event probability "
        "in each interval, on records",
    ),
}


def metrics_of(rows: Sequence[Row]) -> list[str]:
    """The metrics that these rows hold, the telling one first, those of the study's own last."""
    held = dict.fromkeys(key for row in rows for key in row if finite(row, key) is not None)
    ends = [key for key in held if key.startswith("held_back_") and key.endswith(_ENDS)]
    own = [key for key in held if key not in (*_OTHER, *METRICS, *ends)]
    return [*(key for key in METRICS if key in held), *own]


def in_brief(row: Row) -> list[str]:
    """The newest metrics in a few words each: two of the public ones, and what is not usual."""
    held = metrics_of([row])
    shown = [key for key in held if key in held[:2] or key not in METRICS or is_held_back(key)]
    return [f"{name_of(key)} {row[key]:.3f}" for key in shown]


def words_of(metric: str) -> MetricWords:
    """What people are told of a metric."""
    own = MetricWords(name=metric, meaning=f"{metric} is a metric of the study's own.", better="")
    return METRICS.get(metric, own)


def label_of(metric: str) -> str:
    """A metric's name, with what it was measured on."""
    return name_of(metric) if is_held_back(metric) else f"test {name_of(metric)}"


def name_of(metric: str) -> str:
    """A metric's name for people."""
    return words_of(metric).name


def is_held_back(metric: str) -> bool:
    """Whether it was measured on records that silos kept out of the training."""
    return metric in METRICS and metric.startswith("held_back_")
