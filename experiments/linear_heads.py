"""Losses of linear models, many models at once: gradients with respect to what one layer gives.

A model is a column: of m records and B models all that is computed has shape (m, B, outputs). Each
head is that of a `hubbub.learning.TargetType`, in float64 and without torch. This file knows no
noise and no optimizer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_softmax, softmax, xlogy

from hubbub.core.errors import StudyError
from hubbub.core.study.study import Study
from hubbub.core.tabular.target import COUNT, NUMERIC, TIME_TO_EVENT, Outcome
from hubbub.learning.study.model import HUBER
from hubbub.learning.study.training import learning_of

Array = NDArray[np.float64]
_NEWTON, _APART = 30, 1e-5  # steps, and the distance of a difference
_FAINT = -15.0  # log-odds below which hazard and odds are one, as `learning.losses` has it
_REACH = 0.2  # of Huber's square, as `learning.losses` has it
_POWERS = (0.2, 4.0)  # of the time, as which a cumulated hazard may grow, as scoring has it


class LinearHead(ABC):
    """What follows the linear layer of a model, and the loss of it.

    Args:
        outputs: of the layer.
        intercepts: trainable numbers behind it, added to its only output; 0: none.
    """

    outputs: int = 1
    intercepts: int = 0

    @abstractmethod
    def known(self, targets: NDArray[np.generic]) -> Array:
        """Targets of `Records` as the loss wants them, (m, ...)."""

    @abstractmethod
    def slopes(self, found: Array, known: Array) -> Array:
        """Derivatives of each record's loss, (m, B, k), in `found`, (m, B, k)."""

    def null_loss(self, targets: NDArray[np.generic], test: NDArray[np.generic]) -> float:
        """Mean loss on test records of one output for all, found on others."""
        apart = self.known(test)
        constant = self.best_constant(self.known(targets))
        return float(self.losses(constant.repeat(len(apart), 0), apart).mean())

    def best_constant(self, known: Array) -> Array:
        """The outputs (1, 1, k) that have the least loss where all records have the same.

        By Newton's method, for outputs of which none changes another's slope.
        """
        constants = np.zeros((1, 1, self.intercepts or self.outputs))
        for _ in range(_NEWTON):
            slope, ahead = (
                self.slopes((constants + apart).repeat(len(known), 0), known).mean(0)
                for apart in (0.0, _APART)
            )
            constants = constants - np.clip(
                slope / np.maximum((ahead - slope) / _APART, 1e-6), -2, 2
            )
        return constants

    @abstractmethod
    def losses(self, found: Array, known: Array) -> Array:
        """Each record's loss, (m, B)."""


@dataclass(frozen=True)
class TwoClasses(LinearHead):
    """Binary cross entropy."""

    def known(self, targets: NDArray[np.generic]) -> Array:
        """0 or 1."""
        return targets.astype(np.float64)[:, None, None]

    def slopes(self, found: Array, known: Array) -> Array:
        """The chance less what happened."""
        return np.asarray(expit(found) - known)

    def losses(self, found: Array, known: Array) -> Array:
        """In nats."""
        return np.asarray((np.logaddexp(0.0, found) - known * found)[..., 0])


@dataclass(frozen=True)
class ClassHead(LinearHead):
    """Cross entropy of several classes."""

    outputs: int = 3

    def known(self, targets: NDArray[np.generic]) -> Array:
        """One-hot."""
        return np.eye(self.outputs)[targets.astype(np.int64)][:, None, :]

    def best_constant(self, known: Array) -> Array:
        """Logarithms of shares; a class that nobody has counts as half a record."""
        counts = np.maximum(known.sum((0, 1)), 0.5)
        return np.asarray(np.log(counts / counts.sum()))[None, None, :]

    def slopes(self, found: Array, known: Array) -> Array:
        """Chances less what happened."""
        return np.asarray(softmax(found, -1) - known)

    def losses(self, found: Array, known: Array) -> Array:
        """In nats."""
        return np.asarray(-(log_softmax(found, -1) * known).sum(-1))


@dataclass(frozen=True)
class Number(LinearHead):
    """Squared or Huber's error, in units of half the range; from the declared mean on."""

    outcome: Outcome
    is_huber: bool = False

    def known(self, targets: NDArray[np.generic]) -> Array:
        """The bounds are -1 and 1, less the declared mean's place between them."""
        low, high, mean = self.outcome.low, self.outcome.high, self.outcome.mean
        clipped = np.clip(targets.astype(np.float64), low, high)
        if self.outcome.is_log:
            clipped, low, high = np.log(clipped), log(low), log(high)
            mean = None if mean is None else log(mean)
        start = (low + high) / 2.0 if mean is None else mean
        return np.asarray(2.0 * (clipped - start) / (high - low))[:, None, None]

    def slopes(self, found: Array, known: Array) -> Array:
        """Twice the error, or as much of it as counts."""
        away = found - known
        return np.clip(away, -_REACH, _REACH) if self.is_huber else 2.0 * away

    def losses(self, found: Array, known: Array) -> Array:
        """The error."""
        away = np.abs(found - known)[..., 0]
        if not self.is_huber:
            return np.asarray(away**2)
        return np.where(away <= _REACH, away**2 / 2, _REACH * (away - _REACH / 2))


@dataclass(frozen=True)
class Rate(LinearHead):
    """Half the Poisson deviance of means exp(found), from the declared one on."""

    outcome: Outcome

    def known(self, targets: NDArray[np.generic]) -> Array:
        """(m, 1, 2): up to the bound, in units, and the mean's logarithm where `found` is 0."""
        numbers, said = targets.astype(np.float64), self.outcome
        longest, unit = said.exposure_high or 1.0, said.unit
        start = 0.0 if said.mean is None else log(said.mean * longest / unit)
        starts = np.full(len(numbers), start)
        if said.exposure_high:
            starts = start + np.log(np.clip(numbers[:, 1] / longest, 1e-9, 1.0))
            numbers = numbers[:, 0]
        return np.stack([np.clip(numbers, 0.0, said.high) / unit, starts], -1)[:, None, :]

    def slopes(self, found: Array, known: Array) -> Array:
        """The mean less what came."""
        return np.asarray(np.exp(np.minimum(found + known[..., 1:], 80.0)) - known[..., :1])

    def losses(self, found: Array, known: Array) -> Array:
        """From 0."""
        logs, came = (found + known[..., 1:])[..., 0], known[..., 0]
        return np.asarray(xlogy(came, came) - came - came * logs + np.exp(np.minimum(logs, 80.0)))


@dataclass(frozen=True)
class Hazards(LinearHead):
    """Minus the log-likelihood of proportional odds on a grid, with an intercept for each."""

    grid: tuple[float, ...]
    step: float = 0.0

    @property
    def intercepts(self) -> int:  # type: ignore[override]
        """One for each interval."""
        return len(self.grid)

    def known(self, targets: NDArray[np.generic]) -> Array:
        """(m, 3, intervals): the part without the event, the event inside, and at the end."""
        pairs = targets.astype(np.float64)
        time, event, ends = pairs[:, :1], pairs[:, 1:] > 0.5, np.array(self.grid)
        if self.step:
            time, ends = np.round(time / self.step), np.floor(ends / self.step + 1e-6)
        starts = np.array([0.0, *ends[:-1]])
        at_end = event & (time == ends)
        inside = event & (time < ends) & ((time > starts) | (starts <= 0))
        seen = np.where(at_end, 0.0, np.clip((time - starts) / (ends - starts), 0.0, 1.0))
        return np.stack([seen, inside, at_end], 1).astype(np.float64)

    def _part(self, hazard: Array, seen: Array) -> Array:
        """The part of an interval's hazard in the part that was seen: it is a power of the time.

        As `learning.scoring.hazards` has it, which gives the reasons.
        """
        if len(self.grid) == 1:
            return seen
        ends = np.array(self.grid)
        starts = np.array([0.0, *ends[:-1]])
        middles = np.log((starts + ends) / 2)
        rates = np.log(hazard) - np.log(ends - starts)
        outer = np.concatenate([rates[..., 2:], rates[..., -1:]], -1) - rates[..., :-1]
        apart = np.append(middles[2:] - middles[:-2], middles[-1] - middles[-2])
        first = np.log(hazard[..., :2].sum(-1, keepdims=True) / hazard[..., :1])
        powers = np.concatenate([first / log(ends[1] / ends[0]), 1 + outer / apart], -1)
        powers = powers.clip(*_POWERS)
        with np.errstate(divide="ignore"):  # what starts at 0 has a logarithm of minus infinity
            before = np.expm1(powers * np.log(starts / ends))
            reached = np.expm1(powers * np.log((starts + seen * (ends - starts)) / ends))
        return np.where(seen < 1.0, (before - reached) / before, 1.0)

    def slopes(self, found: Array, known: Array) -> Array:
        """Of each interval that a record has lived in."""
        odds, (seen, inside, at_end) = self._odds(found), known[:, None].transpose(2, 0, 1, 3)
        chance, hazard = expit(odds), np.logaddexp(0.0, odds)
        relative = np.divide(chance, hazard, out=np.ones_like(odds), where=odds > _FAINT)
        part = self._part(hazard, seen)
        return np.asarray(chance * (part + at_end) - at_end - relative * inside)

    def losses(self, found: Array, known: Array) -> Array:
        """In nats."""
        odds, (seen, inside, at_end) = self._odds(found), known[:, None].transpose(2, 0, 1, 3)
        hazard = np.logaddexp(0.0, odds)
        logs = np.where(odds > _FAINT, np.log(np.maximum(hazard, 1e-12)), odds)
        lost = hazard * self._part(hazard, seen) - logs * inside + np.logaddexp(0.0, -odds) * at_end
        return np.asarray(lost.sum(-1))

    def _odds(self, found: Array) -> Array:
        half = 1.0 - 0.5 ** (1.0 / len(self.grid))
        return found + log(half / (1.0 - half))


def head_of(study: Study) -> LinearHead:
    """The head of a study's linear model.

    Raises:
        StudyError: its loss is its own.
    """
    model, _ = learning_of(study)
    outcome = study.data.outcome
    if model.loss not in ("", HUBER):
        raise StudyError(f"expected a loss of hubbub's, got {model.loss!r}; leave model.loss out")
    if outcome is None:
        return TwoClasses() if model.outputs == 1 else ClassHead(outputs=model.outputs)
    if outcome.kind == COUNT or outcome.is_log_link:
        return Rate(outcome=outcome)
    if outcome.kind == NUMERIC:
        return Number(outcome=outcome, is_huber=model.loss == HUBER)
    assert outcome.kind == TIME_TO_EVENT  # noqa: S101  # there is no other
    return Hazards(grid=outcome.grid, step=outcome.step)
