"""What a model is trained for: by the target's kind its loss, predictions, metrics and evaluations.

A goal is public and follows from the study alone. `Classes` is the goal of every study that says
nothing of its target.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from math import log, sqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hubbub.core.errors import ModelError
from hubbub.core.study.silo_records import named_object
from hubbub.core.tabular.target import COUNT, TIME_TO_EVENT, Outcome
from hubbub.learning import models, scoring
from hubbub.learning.batches import Loss
from hubbub.learning.models import default_loss
from hubbub.learning.study.model import HUBER, LINEAR_PROBE, Model

# In nats. A loss beyond this counts as this in evaluations, so that what a record adds is bounded.
MOST_LOSS = 5.0
Outputs = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class TargetType(ABC):
    """What a model is trained for; hashable, and equal if all of its settings are."""

    loss_name: str = ""  # the user's own loss; empty if there is none

    def loss(self, outputs: int, targets: torch.dtype) -> Loss:
        """One value per record, for a model with so many outputs and targets of a type."""
        usual = self.usual_loss(outputs, targets)
        if not self.loss_name:
            return usual
        function = named_object(self.loss_name, "model.loss")
        return lambda found, wanted: function(self.apply_link(found), self.clip_targets(wanted))

    @abstractmethod
    def usual_loss(self, outputs: int, targets: torch.dtype) -> Loss:
        """That of the kind of target, where the user has no other."""

    def clip_targets(self, targets: torch.Tensor) -> torch.Tensor:
        """Targets as a user's own loss is given them: clipped to what is public."""
        return targets

    def apply_link(self, outputs: torch.Tensor) -> torch.Tensor:
        """Outputs as a user's own loss is given them: as the kind's own loss reads them."""
        return outputs

    @abstractmethod
    def some_targets(self, count: int) -> NDArray[Any]:
        """Made-up targets of all sorts, to try a loss on."""

    @abstractmethod
    def record_score(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """How well each record is done, in [0, 1], for private evaluations: (n,)."""

    @abstractmethod
    def metric(self, mean: float) -> tuple[str, float]:
        """The name of a mean of what `found` gives, and its value in the kind's own unit."""

    @abstractmethod
    def predicted(self, outputs: torch.Tensor) -> torch.Tensor:
        """What people are told of outputs: probabilities, or values in the target's unit."""

    def compared(self, outputs: torch.Tensor, targets: Outputs) -> tuple[Outputs, Outputs]:
        """Predictions and what came of records whose targets are known, in one unit."""
        return self.predicted(outputs.double()).cpu().numpy(), np.asarray(targets)

    @abstractmethod
    def scored(self, outputs: Outputs, targets: NDArray[Any]) -> dict[str, float]:
        """Metrics on public records by their usual names."""


@dataclass(frozen=True, kw_only=True)
class Classes(TargetType):
    """A target of classes: logits (n,) for two of them, (n, classes) for more."""

    def usual_loss(self, outputs: int, targets: torch.dtype) -> Loss:
        """Cross entropy."""
        return default_loss(outputs, targets)

    def some_targets(self, count: int) -> NDArray[Any]:
        """Both of two classes, which more have too."""
        return np.arange(count) % 2

    def record_score(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """1 if the class is found."""
        single = outputs.ndim == 1
        right = (outputs > 0) == (targets > 0.5) if single else outputs.argmax(1) == targets
        return right.double()

    def metric(self, mean: float) -> tuple[str, float]:
        """Accuracy."""
        return "held_back_accuracy", mean

    def predicted(self, outputs: torch.Tensor) -> torch.Tensor:
        """Probability of the second of two classes, (n,), or of every class, (n, classes)."""
        return torch.sigmoid(outputs) if outputs.ndim == 1 else torch.softmax(outputs, 1)

    def scored(self, outputs: Outputs, targets: NDArray[Any]) -> dict[str, float]:
        """Accuracy; for two classes that both occur also AUC, Brier and calibration slope."""
        scores = {"accuracy": scoring.accuracy(outputs, targets)}
        if outputs.ndim == 1 and len(np.unique(targets)) == 2 and np.isfinite(outputs).all():
            scores["auc"] = scoring.auc(outputs, targets)
            scores["brier"] = float(scoring.squared_errors(outputs, targets).mean())
            scores["calibration_slope"] = scoring.calibration_slope(outputs, targets)
        return scores


CLASSES = Classes()


@dataclass(frozen=True, kw_only=True)
class ProbedClasses(Classes):
    """A target of classes, learned by a `LinearProbe` from its moments."""

    def usual_loss(self, outputs: int, targets: torch.dtype) -> Loss:
        """What makes a gradient of a record's part in the moments; cross entropy in use."""
        usual = default_loss(outputs, targets)
        return partial(models.moments_loss, outputs_in_use=outputs, usual=usual)


@dataclass(frozen=True, kw_only=True)
class Amount(TargetType):
    """A number between public bounds: outputs (n,), in which the bounds are -1 and 1."""

    low: float
    high: float
    is_huber: bool = False
    is_log: bool = False  # whether the logarithm is learned
    mean: float | None = None  # predicted where outputs are 0; None: the middle of the scale

    def usual_loss(self, outputs: int, targets: torch.dtype) -> Loss:
        """Squared error, or Huber's."""
        _expect_outputs(outputs, 1)
        return partial(
            scoring.amount_errors,
            low=self.low,
            high=self.high,
            is_log=self.is_log,
            start=self._start,
            is_huber=self.is_huber,
        )

    def clip_targets(self, targets: torch.Tensor) -> torch.Tensor:
        """Between -1 and 1."""
        return scoring.scaled(targets, self.low, self.high, is_log=self.is_log)

    def apply_link(self, outputs: torch.Tensor) -> torch.Tensor:
        """From the declared mean on."""
        return outputs + self._start

    def some_targets(self, count: int) -> NDArray[Any]:
        """From bound to bound."""
        return np.linspace(self.low, self.high, count)

    def record_score(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The squared error as a share of the squared range."""
        return ((self.apply_link(outputs) - self.clip_targets(targets)) / 2.0) ** 2

    def metric(self, mean: float) -> tuple[str, float]:
        """Root mean squared error, of logarithms if those are learned."""
        low, high = self._ends
        return "held_back_rmsle" if self.is_log else "held_back_rmse", sqrt(mean) * (high - low)

    def predicted(self, outputs: torch.Tensor) -> torch.Tensor:
        """In the target's unit; of logarithms it is about the median."""
        low, high = self._ends
        amounts = (self.apply_link(outputs) * (high - low) + (low + high)) / 2.0
        return amounts.exp() if self.is_log else amounts

    def scored(self, outputs: Outputs, targets: NDArray[Any]) -> dict[str, float]:
        """Errors in the target's unit; of logarithms, too, if those are learned."""
        predicted = np.asarray(self.predicted(torch.from_numpy(outputs).double()))
        scores = scoring.errors(predicted, targets)
        if not self.is_log:
            return scores
        known = np.log(np.maximum(targets, self.low))
        return {"rmsle": scoring.errors(np.log(predicted), known)["rmse"], **scores}

    @property
    def _ends(self) -> tuple[float, float]:
        """What the outputs -1 and 1 mean: the bounds, or their logarithms."""
        return (log(self.low), log(self.high)) if self.is_log else (self.low, self.high)

    @property
    def _start(self) -> float:
        """The declared mean on the scale of the outputs."""
        if self.mean is None:
            return 0.0
        low, high = self._ends
        return (2.0 * (log(self.mean) if self.is_log else self.mean) - (low + high)) / (high - low)


@dataclass(frozen=True, kw_only=True)
class Count(TargetType):
    """A number from 0 up to a public bound, by its mean: outputs (n,), the mean's logarithm.

    With exposures targets are (n, 2), and the mean is that of the longest exposure.
    """

    high: float
    unit: float = 1.0  # what the loss counts in: of amounts with a log link what is about a mean
    exposure_high: float = 0.0  # public bound of an exposure; 0: there is none
    # Predicted where outputs are 0, with exposures for one unit of exposure; None: one unit.
    mean: float | None = None

    def usual_loss(self, outputs: int, targets: torch.dtype) -> Loss:
        """Half the Poisson deviance."""
        _expect_outputs(outputs, 1)
        return partial(
            scoring.poisson,
            high=self.high,
            unit=self.unit,
            exposure_high=self.exposure_high,
            start=self._start,
        )

    def clip_targets(self, targets: torch.Tensor) -> torch.Tensor:
        """Up to the bounds."""
        if not self.exposure_high:
            return targets.clamp(0.0, self.high)
        most = torch.tensor([self.high, self.exposure_high], dtype=targets.dtype)
        return targets.clamp(min=0.0).minimum(most.to(targets.device))

    def apply_link(self, outputs: torch.Tensor) -> torch.Tensor:
        """Logarithms of means in the target's unit; with exposures of rates."""
        return outputs + (self._start + log(self.unit / (self.exposure_high or 1.0)))

    def some_targets(self, count: int) -> NDArray[Any]:
        """Small numbers, and the bound."""
        squares = np.arange(count, dtype=np.float64) ** 2
        counts = squares.clip(max=self.high)
        if not self.exposure_high:
            return counts
        return np.column_stack([counts, self.exposure_high / np.arange(1.0, count + 1.0)])

    def record_score(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The squared error as a share of the squared bound."""
        means = self.predicted(outputs)
        known = self.clip_targets(targets)
        if self.exposure_high:
            means, known = means * known[..., 1], known[..., 0]
        return ((means - known) / self.high) ** 2

    def metric(self, mean: float) -> tuple[str, float]:
        """Root mean squared error."""
        return "held_back_rmse", sqrt(mean) * self.high

    def predicted(self, outputs: torch.Tensor) -> torch.Tensor:
        """How much is expected; with exposures for one unit of exposure."""
        return self.apply_link(outputs).exp()

    def compared(self, outputs: torch.Tensor, targets: Outputs) -> tuple[Outputs, Outputs]:
        """How much is expected of each record by its own exposure, and what came, both (n,)."""
        means, known = super().compared(outputs, targets)
        if not self.exposure_high:
            return means, known
        return means * known[:, 1], known[:, 0]

    def scored(self, outputs: Outputs, targets: NDArray[Any]) -> dict[str, float]:
        """Mean Poisson deviance, of counts, and errors."""
        means, known = self.compared(torch.from_numpy(outputs), targets)
        errors = scoring.errors(means, known)
        if self.unit != 1.0:
            return errors
        return {"poisson_deviance": float(scoring.deviances(means, known).mean()), **errors}

    @property
    def _start(self) -> float:
        """The logarithm of the declared mean, in units, of the longest exposure."""
        exposure = self.exposure_high or 1.0
        return 0.0 if self.mean is None else log(self.mean * exposure / self.unit)


@dataclass(frozen=True, kw_only=True)
class TimeToEvent(TargetType):
    """The time to an event by hazards on a public grid: outputs (n, times), their log-odds."""

    grid: tuple[float, ...]
    step: float = 0.0

    def usual_loss(self, outputs: int, targets: torch.dtype) -> Loss:
        """Minus the log-likelihood of a record's own intervals."""
        _expect_outputs(outputs, len(self.grid))
        return partial(scoring.hazards, grid=self.grid, step=self.step)

    def clip_targets(self, targets: torch.Tensor) -> torch.Tensor:
        """Times up to the grid's last; what happens later is not seen."""
        time, last = targets[..., :1], self.grid[-1]
        event = torch.where(time > last, 0.0, targets[..., 1:])
        return torch.cat([time.clamp(0.0, last), event], -1)

    def apply_link(self, outputs: torch.Tensor) -> torch.Tensor:
        """Log-odds of the hazards."""
        return scoring.log_odds(outputs, len(self.grid))

    def some_targets(self, count: int) -> NDArray[Any]:
        """Times within the grid and beyond, with the event and without."""
        times = np.linspace(0.0, 1.1 * self.grid[-1], count)
        return np.column_stack([times, np.arange(count) % 2])

    def record_score(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The mean squared error of the hazards over the record's own intervals."""
        return scoring.hazard_errors(outputs, targets, grid=self.grid, step=self.step)

    def metric(self, mean: float) -> tuple[str, float]:
        """The Brier score of the hazards."""
        return "held_back_hazard_brier", mean

    def predicted(self, outputs: torch.Tensor) -> torch.Tensor:
        """The chance to be without the event after each time of the grid, (n, times)."""
        return torch.exp(-torch.nn.functional.softplus(self.apply_link(outputs)).cumsum(-1))

    def scored(self, outputs: Outputs, targets: NDArray[Any]) -> dict[str, float]:
        """Concordance by Harrell and by Uno, and the integrated Brier score."""
        linked = self.apply_link(torch.from_numpy(outputs).double())
        hazard = torch.nn.functional.softplus(linked).numpy()
        return scoring.survival_scores(hazard, self.grid, targets[:, 0], targets[:, 1] > 0.5)


def goal_for(outcome: Outcome | None, model: Model) -> TargetType:
    """The goal of a study with this target and this model."""
    own = "" if model.loss == HUBER else model.loss
    if model.kind == LINEAR_PROBE:
        return ProbedClasses()
    if outcome is None:
        return Classes(loss_name=own)
    if outcome.kind == TIME_TO_EVENT:
        return TimeToEvent(grid=outcome.grid, step=outcome.step, loss_name=own)
    if outcome.kind == COUNT or outcome.is_log_link:
        return Count(
            high=outcome.high,
            unit=outcome.unit,
            exposure_high=outcome.exposure_high,
            mean=outcome.mean,
            loss_name=own,
        )
    return Amount(
        low=outcome.low,
        high=outcome.high,
        is_huber=model.loss == HUBER,
        is_log=outcome.is_log,
        mean=outcome.mean,
        loss_name=own,
    )


def _expect_outputs(outputs: int, wanted: int) -> None:
    if outputs != wanted:
        shape = "(n,)" if wanted == 1 else f"(n, {wanted})"
        raise ModelError(
            f"expected a model with outputs of shape {shape} for the study's target, found "
            f"{outputs} for each record; let it give {wanted}"
        )
