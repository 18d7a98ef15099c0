"""How a model is trained where nobody says otherwise: one rule, from public numbers alone.

The noise in a mean gradient follows from the *signal* s = n epsilon sqrt((N - T - 1) / N): units,
what is promised to each, and the share of the silos whose noise the promised adversary does not
know. The less signal, the smaller are clip and learning rate: a smaller clip bends the gradient and
has less noise, a smaller rate averages over more steps. Both follow the length |x| of a record's
features. `experiments/defaults.py` has found the numbers, and measures them on cohorts that they
were not found on (docs/experiments.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import floor, log10, prod, sqrt

from hubbub.core.study.study import Study
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.outcome import COUNT, NUMERIC, TIME_TO_EVENT, Outcome
from hubbub.learning.study.training import learning_of

STEPS, SAMPLE_RATE = 150, 0.2
_SIGNAL = 4000.0  # at which the factors below hold as they are
_CLIP, _RATE = 0.8, 0.2  # per |x|, and times |x|, of classes
_CLIPS = {NUMERIC: 1 / 3, TIME_TO_EVENT: 1.6}
_RATES = {NUMERIC: 0.2, TIME_TO_EVENT: 1.3}
_COUNT_CLIP = 0.7  # times the root of the largest count
_LINK_CLIP = 2.7  # times the root of the largest amount, in means; of amounts with a log link
_MOST_RATE = 0.3
_NETWORK_CLIP, _NETWORK_RATE = 1.5, 0.45  # of models of several layers, beside a linear one's


@dataclass(frozen=True, kw_only=True)
class UsualTraining:
    """How a model is trained where nobody says otherwise.

    Args:
        clip_norm: the largest norm of a record's gradient.
        lr: Adam's learning rate, which falls linearly to 0.
        steps: updates of the model.
        sample_rate: a record's chance to be in a batch.
    """

    clip_norm: float
    lr: float
    steps: int = STEPS
    sample_rate: float = SAMPLE_RATE

    @property
    def optimizer(self) -> dict[str, str | float]:
        """The table `training.optimizer`."""
        return {"name": "adam", "lr": self.lr, "schedule": "linear"}


def usual_training(
    outcome: Outcome | None,
    *,
    records: int,
    epsilon: float,
    silos: int,
    colluders: int,
    square: float,
    steps: int = STEPS,
    is_linear: bool = True,
) -> UsualTraining:
    """The rule.

    Args:
        outcome: the target; None: classes.
        records: public number of units, at least 1.
        epsilon: what is promised.
        silos, colluders: of whom some may join the adversary.
        square: of the length of a record's features, as `squared_length` has it.
        steps: updates of the model.
        is_linear: whether the model is, or has several layers.

    >>> usual_training(None, records=4000, epsilon=1.0, silos=5, colluders=1, square=16.0)
    UsualTraining(clip_norm=3.1, lr=0.046, steps=150, sample_rate=0.2)
    """
    kind = "" if outcome is None else outcome.kind
    unknown = max(silos - colluders - 1, 1) / silos
    signal = records * epsilon * sqrt(unknown) / _SIGNAL
    if outcome is not None and outcome.is_log_link:
        kind = COUNT  # whose loss it has
    clip = _CLIP * sqrt(square) * signal ** (1 / 6) * _CLIPS.get(kind, 1.0)
    if outcome is not None and outcome.kind == COUNT:
        clip *= _COUNT_CLIP * sqrt(outcome.high)
    if outcome is not None and outcome.is_log_link:
        # What is clipped of the largest amounts is missing in all predictions.
        most = outcome.high / outcome.unit
        longest = min(most, _LINK_CLIP * sqrt(most) * signal ** (1 / 3))
        clip = sqrt(square) * longest
    rate = _RATE / sqrt(square) * signal ** (1 / 3) * _RATES.get(kind, 1.0)
    rate *= (STEPS / steps) ** (1 / 3)
    if not is_linear:
        clip, rate = clip * _NETWORK_CLIP, rate * _NETWORK_RATE
    return UsualTraining(
        clip_norm=_two_digits(clip), lr=_two_digits(min(rate, _MOST_RATE)), steps=steps
    )


def usual_for(study: Study) -> UsualTraining:
    """The rule for a study that trains a model, with as many steps as it has.

    Args:
        study: whatever it says of clip, rate and optimizer.
    """
    model, training = learning_of(study)
    data, columns = study.data, study.data.columns
    square = squared_length(columns) if columns else 1.0 + prod(model.inputs) / 3
    if data.standardise is not None:
        square = (
            1.0 + sum(column.width for column in columns if column.feature)
            if columns
            else 3 * square
        )
    kept = 1.0 if training.evaluate is None else 1.0 - training.evaluate.holdout
    return usual_training(
        data.outcome,
        records=max(1, round(data.records * kept)),
        epsilon=study.privacy.epsilon,
        silos=study.parties.silos,
        colluders=study.parties.colluders,
        square=square,
        steps=training.steps,
        is_linear=model.kind == "logistic",
    )


def squared_length(columns: Iterable[Column]) -> float:
    """|x|^2 of a record of these columns, beside its bias: 1 of a category, 1/3 of a number.

    Of a column with a reference a tenth: few records are of another category.
    """
    return 1.0 + sum(_square(column) for column in columns if column.feature)


def _square(column: Column) -> float:
    if column.reference:
        return 0.1
    return 1.0 if column.categories else 1 / 3


def _two_digits(value: float) -> float:
    """Rounded: a setting says no more."""
    return round(value, 1 - floor(log10(value)))
