"""Rehearsals of linear models, all candidates at once: the law of a run at a hundredth of its time.

Each candidate is a column of one matrix of weights. All see the same batches and the same noise, in
units of their clip, so that what differs between them is what they are. What a run does beside, it
rounds to a grid that is too fine to matter here. The records are public or made up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from experiments.linear_heads import Array, LinearHead

_DECAYS = {"constant": 0.0, "linear": 1.0}
_BETA1, _BETA2, _TINY = 0.9, 0.999, 1e-8  # Adam's, as a study has them by default


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is chosen: how a model is trained, beside what the study says.

    Args:
        clip_norm: the largest norm of a record's gradient.
        steps: updates of the model.
        lr: Adam's learning rate.
        schedule: "constant" or "linear".
    """

    clip_norm: float
    steps: int
    lr: float
    schedule: str = "linear"

    @property
    def optimizer(self) -> dict[str, str | float]:
        """The table `training.optimizer`."""
        return {"name": "adam", "lr": self.lr, "schedule": self.schedule}


@dataclass(frozen=True, kw_only=True)
class RehearsalLaw:
    """What a plan says of a run with so many steps.

    Args:
        noise_multiplier: of the whole sum, in units of the clip.
        sample_rate: a record's chance to be in a batch.
        divisor: by which a sum is divided.
    """

    noise_multiplier: float
    sample_rate: float
    divisor: float


@dataclass(frozen=True)
class LinearModels:
    """Many linear models, one for each candidate.

    Args:
        head: of all of them.
        weights: (features + 1, B, outputs), the last row being biases.
        intercepts: (B, intercepts).
    """

    head: LinearHead
    weights: Array = field(repr=False)
    intercepts: Array = field(repr=False)

    def outputs(self, rows: Array) -> Array:
        """(m, B, k) of rows (m, features + 1)."""
        features, models, outputs = self.weights.shape
        predicted = (rows @ self.weights.reshape(features, -1)).reshape(-1, models, outputs)
        return predicted + self.intercepts if self.head.intercepts else predicted

    def losses(self, inputs: NDArray[np.generic], targets: NDArray[np.generic]) -> Array:
        """Mean loss of each model on records, (B,)."""
        found = self.outputs(with_bias(inputs))
        return np.asarray(self.head.losses(found, self.head.known(targets)).mean(0))


def with_bias(inputs: NDArray[np.generic]) -> Array:
    """Features (m, ...) as rows with a 1 at their end."""
    flat = inputs.reshape(len(inputs), -1).astype(np.float64)
    return np.column_stack([flat, np.ones(len(flat))])


def rehearsed(
    head: LinearHead,
    inputs: NDArray[np.generic],
    targets: NDArray[np.generic],
    candidates: Sequence[Settings],
    law: RehearsalLaw,
    random: np.random.Generator,
    *,
    intercept: float = 0.0,
) -> LinearModels:
    """Train one linear model for each candidate, from weights of zero.

    Guarantees:
        1. Each has the law of a run's model where every silo answers, up to the grid's rounding.

    Args:
        head: of the models.
        inputs: (n, ...) features of public or made-up records.
        targets: of the same, as `Records` have them.
        candidates: with as many steps each.
        law: of a run with so many steps.
        random: of the batches and the noise.
        intercept: where the bias begins.
    """
    [steps] = {candidate.steps for candidate in candidates}
    rows, known = with_bias(inputs), head.known(targets)
    clips = np.array([candidate.clip_norm for candidate in candidates])
    models = _Training(head, rows.shape[1], candidates, intercept)
    squares = (rows**2).sum(1)
    for step in range(steps):
        batch = np.flatnonzero(random.random(len(rows)) < law.sample_rate)
        weights, intercepts = _clipped_sums(
            models.at, rows[batch], known[batch], squares[batch], clips
        )
        sigmas = law.noise_multiplier * clips[:, None]
        features, _, outputs = weights.shape
        weights = weights + sigmas * random.standard_normal((features, 1, outputs))
        intercepts = intercepts + sigmas * random.standard_normal((1, intercepts.shape[1]))
        models.step(step, weights / law.divisor, intercepts / law.divisor)
    return models.at


def _clipped_sums(
    models: LinearModels, rows: Array, known: Array, squares: Array, clips: Array
) -> tuple[Array, Array]:
    """Sums of clipped gradients: of the weights, and of what stands behind them."""
    head, (features, count, outputs) = models.head, models.weights.shape
    slopes = head.slopes(models.outputs(rows), known)
    behind = slopes if head.intercepts else slopes[..., :0]
    own = slopes.sum(-1, keepdims=True) if head.intercepts else slopes
    norms = np.sqrt((own**2).sum(-1) * squares[:, None] + (behind**2).sum(-1))
    factors = np.minimum(1.0, clips / np.maximum(norms, 1e-300))[..., None]
    weights = rows.T @ (own * factors).reshape(len(rows), -1)
    return weights.reshape(features, count, outputs), (behind * factors).sum(0)


class _Training:
    """Models on their way, and Adam's memory of each."""

    def __init__(
        self, head: LinearHead, features: int, candidates: Sequence[Settings], intercept: float
    ) -> None:
        count, steps = len(candidates), candidates[0].steps
        self._steps = steps
        self._rates = np.array([candidate.lr for candidate in candidates])[:, None]
        self._decays = np.array([_DECAYS[candidate.schedule] for candidate in candidates])[:, None]
        self.at = LinearModels(
            head, np.zeros((features, count, head.outputs)), np.zeros((count, head.intercepts))
        )
        self.at.weights[-1] = intercept
        parts = (self.at.weights, self.at.intercepts)
        self._memories = [(np.zeros_like(part), np.zeros_like(part)) for part in parts]

    def step(self, step: int, *gradients: Array) -> None:
        """One step of Adam, as `learning.Optimizer` takes it."""
        rates = self._rates * (1.0 - self._decays * step / self._steps)
        moved = []
        parts = (self.at.weights, self.at.intercepts)
        for part, gradient, memory in zip(parts, gradients, self._memories, strict=True):
            first, second = memory
            first[...] += (1 - _BETA1) * (gradient - first)
            second[...] += (1 - _BETA2) * (gradient**2 - second)
            spread = np.sqrt(second / (1 - _BETA2 ** (step + 1))) + _TINY
            moved.append(part - rates * first / (1 - _BETA1 ** (step + 1)) / spread)
        self.at = LinearModels(self.at.head, *moved)
