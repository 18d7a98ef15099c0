"""How much less noise other ways to sample would need beside correlated noise (docs/adr/0006).

Correlated noise (docs/privacy.md P25) lets a record into every b-th batch alone, by a coin of rate
b q each time, and has a certified account. Two published schemes are compared with it, at the same
epsilon, delta and expected batch, by the error of the sums of gradients:

    min-sep   after each batch with it, a record sits out b - 1; else a coin (arXiv 2602.09338)
    bins      a record is in one of 1 / q bins, secretly and for good (arXiv 2410.06266)

Neither has a certified account: what is printed is estimated from samples that are drawn where the
losses are (importance sampling), and for a record that is taken away alone. So the noise that is
told for them is rather too little than too much, and what they would save rather too much.

    python -m experiments.min_separation
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import exp, sqrt

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from scipy.signal import lfilter

from hubbub.core.planning.noise_correlation import _form, best_column, error_of, least_noise
from hubbub.core.protocol.primitives.correlated_noise import UNIT

Array = NDArray[np.float64]
# From a noise multiplier, a tilt of the noise and one of the record's batches, and a number of
# samples, to losses under the tilted law and the logarithm of their weights.
Sampler = Callable[[float, float, float, int], tuple[Array, Array]]

DELTA, STEPS, RATE = 1e-3, 1000, 0.01
BANDS = {1.0: (1, 4), 2.0: (8,), 4.0: (16,), 8.0: (32,)}
SAMPLES, AT_ONCE = 40_000, 1_000
TILT = 0.15  # little: a larger one has rare large weights, which few samples miss
_rng = np.random.default_rng(5)


def columns_of(column: Array, steps: int) -> Array:
    """The squared lengths of C's columns, which the last steps cut off."""
    sizes = np.cumsum(np.square(column))
    left = np.minimum(np.arange(steps, 0, -1), column.size)
    return np.asarray(sizes[left - 1])


def min_sep(column: Array, steps: int, rate: float) -> Sampler:
    """Losses of a record that sits out b - 1 batches after each that it was in."""
    bands = column.size
    coin, sizes = rate / (1 - (bands - 1) * rate), columns_of(column, steps)
    free = 1 - (bands - 1) * rate

    def drawn(noise: float, tilt: float, batches: float, count: int) -> tuple[Array, Array]:
        mine = min(0.5, batches * coin)
        logs = np.zeros(count)
        until = np.where(_rng.random(count) < free, 0, _rng.integers(1, max(2, bands), count))
        taken = np.zeros((steps, count))
        for t in range(steps):
            able = until <= t
            heads = able & (_rng.random(count) < mine)
            taken[t] = heads
            logs += np.where(heads, np.log(coin / mine), able * np.log((1 - coin) / (1 - mine)))
            until = np.where(heads, t + bands, until)
        signal = lfilter(column, [1.0], taken, axis=0)
        seen = (1 + tilt) * signal + noise * _rng.normal(size=signal.shape)
        logs += (-tilt * (signal * seen).sum(0) + (tilt + tilt**2 / 2) * taken.T @ sizes) / noise**2
        along = lfilter(column, [1.0], seen[::-1], axis=0)[::-1]
        worth = np.exp((along - sizes[:, None] / 2) / noise**2)
        able_by = np.zeros((steps + bands + 1, count))
        able_by[0] = free
        able_by[1:bands] = rate
        for t in range(steps):
            able_by[t + 1] += (1 - coin) * able_by[t]
            able_by[t + bands] += coin * able_by[t] * worth[t]
        return np.log(able_by[steps:].sum(0)), logs

    return drawn


def bins(column: Array, steps: int, rate: float) -> Sampler:
    """Losses of a record that is in every batch of one bin."""
    many = round(1 / rate)
    impulses = np.zeros((steps, many))
    for bin_ in range(many):
        impulses[bin_::many, bin_] = 1
    signals = lfilter(column, [1.0], impulses, axis=0)
    gram = signals.T @ signals
    root = np.linalg.cholesky(gram + 1e-12 * np.eye(many))

    def drawn(noise: float, tilt: float, _: float, count: int) -> tuple[Array, Array]:
        at = _rng.integers(many, size=count)
        along = (1 + tilt) * gram[at] + noise * _rng.normal(size=(count, many)) @ root.T
        own = along[np.arange(count), at]
        logs = (-tilt * own + (tilt + tilt**2 / 2) * gram[at, at]) / noise**2
        worth = (along - np.diag(gram) / 2) / noise**2
        top = worth.max(1)
        return top + np.log(np.exp(worth - top[:, None]).mean(1)), logs

    return drawn


def estimate(
    sampler: Sampler, noise: float, epsilon: float, tilt: tuple[float, float], count: int
) -> tuple[float, float]:
    """delta at epsilon, and its standard error."""
    parts = []
    for _ in range(count // AT_ONCE):
        loss, logs = sampler(noise, *tilt, AT_ONCE)
        parts.append(np.exp(logs) * np.maximum(0, -np.expm1(np.minimum(0, epsilon - loss))))
    whole = np.concatenate(parts)
    return float(whole.mean()), float(whole.std()) / sqrt(whole.size)


def least(sampler: Sampler, epsilon: float, near: float, tilt: float) -> tuple[float, float]:
    """The noise multiplier at which delta is reached, and its standard error, relative."""
    noise, slope, last = near, -8.0, (0.0, 0.0)
    for turn in range(5):
        value, off = estimate(sampler, noise, epsilon, (tilt, 1.0), SAMPLES)
        here = (float(np.log(noise)), float(np.log(max(value, 1e-9) / DELTA)))
        if turn and here[0] != last[0]:
            slope = float(np.clip((here[1] - last[1]) / (here[0] - last[0]), -30.0, -3.0))
        if abs(here[1]) < 0.06:
            break
        last, noise = here, exp(here[0] - float(np.clip(here[1] / slope, -0.5, 0.5)))
    return noise, off / max(value, 1e-300) / abs(slope)


def error(column: Array, noise: float) -> float:
    """Of sums of gradients, as in P25."""
    return noise * error_of(column, _form(0.0, "constant", STEPS))


def rival(column: Array) -> Array:
    """A column of norm 1."""
    return np.asarray(column / np.linalg.norm(column))


def main() -> None:
    """The tables of the ADR."""
    show, best = partial(Console().print, highlight=False, soft_wrap=True), dict[float, float]()
    show("epsilon  bands  noise, P25  its error  min-sep / P25")
    for epsilon, several in BANDS.items():
        for bands in several:
            column = np.array(best_column(bands, 0.0, "constant", STEPS)) / UNIT
            noise = least_noise(bands, STEPS, RATE, epsilon, DELTA, "add-remove")
            whole = error(column, noise)
            best[epsilon] = min(whole, best.get(epsilon, whole))
            apart, off = least(min_sep(column, STEPS, RATE), epsilon, noise, TILT)
            show(
                f"{epsilon:7g}  {bands:5d}  {noise:10.4f}  {whole:9.4f}  "
                f"{apart / noise:.3f} +- {off:.3f}",
            )
    show("epsilon  matrix           error of bins / least of P25")
    lags = np.arange(STEPS)
    for epsilon, whole in best.items():
        columns = {
            f"{b} bands": np.array(best_column(b, 0.0, "constant", STEPS)) / UNIT for b in (32, 100)
        }
        columns |= {f"lambda CGD, {x}": rival(x**lags) for x in (0.5, 0.9)}
        for name, column in columns.items():
            noise, off = least(bins(column, STEPS, RATE), epsilon, 4.0, TILT)
            show(f"{epsilon:7g}  {name:15s}  {error(column, noise) / whole:.3f} +- {off:.3f}")


if __name__ == "__main__":
    main()
