"""One step of the public model from a public noisy gradient, the same bits on every machine.

Whoever verifies a run recomputes each step, so nothing here may depend on a thread count or on a
mathematical library: only +, -, *, / and square roots, which IEEE 754 rounds correctly, element by
element in float64. This file needs no torch and knows no privacy: its inputs are public.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import IntegrityError, StudyError
from hubbub.core.kept_pages import cores
from hubbub.core.planning.query import Stepper
from hubbub.core.protocol.round.aggregator import RevealedSum
from hubbub.learning.study.training import OPTIMIZERS, SCHEDULES

_DEFAULTS = OPTIMIZERS | {"adam": OPTIMIZERS["adam"] | {"epsilon": 1e-8}}
_Vectors = dict[str, NDArray[Any]]
_BLOCK = 1 << 14  # numbers that are worked on at once, so that they stay in the cache
_LARGE_BLOCK = 1 << 17  # of many threads, each of which waits for the others in between
_WORTH_THREADS = 1 << 20  # numbers
_MEAN = "mean"  # of models, in a state
_PI = Decimal("3.14159265358979323846264338327950288419716939937510")


def cosine(fraction_of_pi: float) -> float:
    """cos(pi x), the same on every machine: a Taylor sum with 40 digits, rounded once."""
    with localcontext() as context:
        context.prec = 40
        square = (_PI * Decimal(fraction_of_pi)) ** 2
        term, total, n = Decimal(1), Decimal(1), 0
        while abs(term) > Decimal("1e-30"):
            n += 2
            term *= -square / (n * (n - 1))
            total += term
        return float(total)


class Optimizer:
    """Gradient descent ("sgd") or Adam, with a learning-rate schedule.

    Guarantees:
        1. `step` is a function of its arguments and `state()`, bit for bit on any IEEE machine.

    Args:
        kind: "sgd" or "adam".
        lr: learning rate, > 0: parameters moved per unit of the gradient ("sgd") or of its
            normalised mean ("adam").
        schedule: "constant", or "linear" or "cosine" from `lr` to zero over `steps` steps.
        steps: length of the schedule; needed unless it is constant.
        options: momentum for "sgd"; beta1, beta2, epsilon for "adam".

    Raises:
        StudyError: an option that is unknown or out of range.

    Example:
        >>> import numpy as np
        >>> Optimizer("sgd", lr=0.5).step(np.zeros(2), np.array([1.0, -2.0]))
        array([-0.5,  1. ])
    """

    def __init__(
        self,
        kind: str = "sgd",
        *,
        lr: float,
        schedule: str = "constant",
        steps: int | None = None,
        **options: float,
    ) -> None:
        if kind not in _DEFAULTS:
            raise StudyError(f'expected optimizer "sgd" or "adam", found "{kind}"')
        known = _DEFAULTS[kind]
        if not set(options) <= set(known):
            raise StudyError(
                f'expected options of "{kind}" out of lr, schedule, steps, {", ".join(known)}, '
                f"found {sorted(options)}"
            )
        if not 0 < lr < math.inf:
            raise StudyError(f"expected a learning rate lr > 0, found lr = {lr}")
        if schedule not in SCHEDULES:
            raise StudyError(f'expected schedule out of {SCHEDULES}, found "{schedule}"')
        if schedule != "constant" and (steps is None or steps < 1):
            raise StudyError(
                f'expected steps >= 1 with schedule = "{schedule}", found {steps}; '
                "set steps to the length of the training"
            )
        self._kind, self._lr, self._schedule, self._steps = kind, lr, schedule, steps
        self._options = known | options
        for name, value in self._options.items():
            if not (0 <= value < 1) or (name == "epsilon" and value == 0):
                raise StudyError(f"expected 0 <= {name} < 1 (epsilon > 0), found {name} = {value}")
        self._state: dict[str, NDArray[Any]] = {"step": np.zeros((), np.int64)}

    def step(
        self, parameters: NDArray[Any], gradient: NDArray[Any] | RevealedSum, divisor: float = 1.0
    ) -> NDArray[Any]:
        """Take one step and return the new parameters, in the dtype of the old.

        Args:
            parameters: float32 or float64, (d,); not changed.
            gradient: the noisy sum of gradients, (d,); not changed.
            divisor: what makes it a mean, above 0.

        Returns:
            (d,), in the dtype of `parameters`.

        Raises:
            StudyError: the shapes differ.
        """
        if parameters.shape != gradient.shape:
            raise StudyError(
                f"expected a gradient of the parameters' shape {parameters.shape}, "
                f"found {gradient.shape}"
            )
        rate = self._lr * self._decay(int(self._state["step"]))
        # The state of this step, whose vectors, zero at first, are still those before it.
        state = self._state
        for name in self._vectors() - state.keys():
            state[name] = np.ones(2) if name == "powers" else np.zeros(gradient.size)
        state["step"] = state["step"] + 1
        if self._kind == "adam":
            betas = np.array([self._options["beta1"], self._options["beta2"]])
            state["powers"] = state["powers"] * betas
        new = np.empty_like(parameters)

        def take(starts: range) -> None:
            scratch = np.empty((2, min(size, gradient.size)))
            for start in starts:
                part = slice(start, start + size)
                block = gradient[part]
                direction, spare = scratch[:, : len(block)]
                np.divide(block, divisor, out=direction)
                if self._kind == "adam":
                    self._adam(state, part, direction, spare)
                elif "velocity" in state:  # Polyak's heavy ball
                    velocity = state["velocity"][part]
                    velocity *= self._options["momentum"]
                    velocity += direction
                    direction[...] = velocity
                direction *= rate
                np.subtract(parameters[part], direction, out=direction)
                new[part] = direction

        # No number of one block is met by another's, so threads change no bit.
        threads = cores() if gradient.size >= _WORTH_THREADS else 1
        size = max(_BLOCK, min(_LARGE_BLOCK, gradient.size // (4 * threads)) if threads > 1 else 0)
        blocks = range(0, gradient.size, size)
        if threads == 1:  # a thread would take longer than the step of a small model
            take(blocks)
            return new
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(take, (blocks[first::threads] for first in range(threads))))
        return new

    def _decay(self, step: int) -> float:
        if self._schedule == "constant" or self._steps is None:
            return 1.0
        done = min(step / self._steps, 1.0)
        return 1.0 - done if self._schedule == "linear" else 0.5 * (1.0 + cosine(done))

    def _adam(
        self,
        state: _Vectors,
        part: slice,
        direction: NDArray[np.float64],
        spare: NDArray[np.float64],
    ) -> None:
        """Kingma and Ba 2015, algorithm 1; the powers of beta are kept as running products.

        `direction` is the gradient, and then Adam's.
        """
        beta1, beta2 = self._options["beta1"], self._options["beta2"]
        first, second, powers = state["first"][part], state["second"][part], state["powers"]
        first *= beta1
        first += np.multiply(direction, 1 - beta1, out=spare)
        second *= beta2
        np.multiply(direction, direction, out=direction)
        direction *= 1 - beta2
        second += direction
        np.sqrt(np.divide(second, 1 - powers[1], out=spare), out=spare)
        spare += self._options["epsilon"]
        np.divide(first, 1 - powers[0], out=direction)
        direction /= spare

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that the next step depends on besides its arguments.

        Returns:
            Arrays by name, which the next step writes over: whoever needs them longer has a copy.
            "step" is the number of steps that were taken.
        """
        return dict(self._state)

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a `state()` of an optimizer with the same options.

        Args:
            state: what `state()` gave; its arrays are the optimizer's from now on.

        Raises:
            IntegrityError: it is the state of another optimizer.
        """
        steps = np.asarray(state.get("step", -1))
        needed = {"step"} | (set() if steps == 0 else self._vectors())
        if set(state) != needed or steps < 0:
            raise IntegrityError(
                f'expected the state of "{self._kind}" to hold {sorted(needed)}, '
                f"found {sorted(state)}; load the state that this optimizer saved"
            )
        self._state = {name: np.asarray(value) for name, value in state.items()}

    def _vectors(self) -> set[str]:
        """Names of the state after the first step."""
        if self._kind == "adam":
            return {"first", "second", "powers"}
        return {"velocity"} if self._options["momentum"] else set()


class Averaged:
    """An optimizer that keeps a mean of its models: post-processing of what is released.

    It gives the models themselves, at which gradients are taken; `mean_in` gives the mean. Its
    guarantee is that of `Optimizer`.

    Args:
        optimizer: takes the steps.
        first: number of the first step, from 1, whose model is in the mean.
        decay: how much of the mean a step keeps at most; None: all models have equal weights.
    """

    def __init__(self, optimizer: Optimizer, *, first: int = 1, decay: float | None = None) -> None:
        self._optimizer, self._first, self._decay = optimizer, first, decay
        self._mean: NDArray[np.float64] | None = None

    def step(
        self, parameters: NDArray[Any], gradient: NDArray[Any] | RevealedSum, divisor: float = 1.0
    ) -> NDArray[Any]:
        """As `Optimizer.step`."""
        new = self._optimizer.step(parameters, gradient, divisor)
        before = int(self._optimizer.state()["step"]) - self._first  # models that are in the mean
        if before >= 0:
            if self._mean is None:
                self._mean = np.zeros(len(new))
            kept = before / (before + 1)
            if self._decay is not None:
                kept = min(self._decay, before / (before + 9))
            self._mean *= kept
            self._mean += (1 - kept) * new.astype(np.float64)
        return new

    def state(self) -> dict[str, NDArray[Any]]:
        """As of `Optimizer`, and the mean."""
        mean = {} if self._mean is None else {_MEAN: self._mean}
        return self._optimizer.state() | mean

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """As of `Optimizer`.

        Raises:
            IntegrityError: it is the state of another optimizer, or has no mean.
        """
        others = {name: value for name, value in state.items() if name != _MEAN}
        self._optimizer.load_state(others)
        if (_MEAN in state) != (int(others["step"]) >= self._first):
            raise IntegrityError(
                f"expected the state to hold a mean of models from step {self._first} on, found "
                "another one; load the state that this optimizer saved"
            )
        self._mean = np.asarray(state[_MEAN], np.float64) if _MEAN in state else None


def mean_in(state: Mapping[str, NDArray[Any]], last: NDArray[np.float32]) -> NDArray[np.float32]:
    """The mean of models that a state keeps; the last of them where it keeps none."""
    return state[_MEAN].astype(np.float32) if _MEAN in state else last


def stepped(
    optimizer: Stepper,
    parameters: NDArray[np.float32],
    gradient: NDArray[np.float64] | RevealedSum,
    divisor: float,
) -> NDArray[np.float32]:
    """The model after a step along a noisy sum; whoever verifies a run takes the same one.

    Args:
        optimizer: its state goes one step on; it may be what keeps sums instead.
        parameters: (d,) float32; not changed.
        gradient: (d,) float64, the noisy sum over records, in units of the gradient.
        divisor: number of records by which the sum is divided, above 0.

    Returns:
        (d,) float32.

    Raises:
        StudyError: the shapes differ.

    >>> stepped(Optimizer("sgd", lr=0.5), np.zeros(2, np.float32), np.array([8.0, -4.0]), 4.0)
    array([-1. ,  0.5], dtype=float32)
    """
    if isinstance(optimizer, Optimizer):  # which reads it block by block
        return optimizer.step(parameters, gradient, divisor).astype(np.float32, copy=False)
    return optimizer.step(parameters, np.asarray(gradient), divisor)
