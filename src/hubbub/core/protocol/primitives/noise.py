"""Gaussian noise from cryptographic words, and its rounding onto the grid.

Theory of operation. The sampler is the ziggurat of Marsaglia and Tsang (2000), exact up to float64
arithmetic: the area under exp(-x^2/2) is covered by 1024 layers of equal area. Ten bits of a word
choose the layer, the other 54 a signed point in it; a point inside the layer above is under the
curve for certain (99.7 % of all), the rest is decided by the curve itself, and points of the lowest
layer beyond its edge are drawn from the true tail by Marsaglia's method. All of it is done for
65,536 samples at a time, in memory that the next ones use again: few calls, so that threads seldom
wait for one another, and no fresh pages. What the float arithmetic adds to epsilon is counted by
the plan (docs/privacy.md P6).
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import DataError, StudyError
from hubbub.core.protocol.primitives import compiled, randomness, ring

Array = NDArray[np.float64]

_LAYERS = 1024
_INDEX_BITS = 10
_CHUNK = 1 << 16
# Where the tail starts, and the area of each layer: what lets 1024 of them cover the curve.
_START = Decimal("4.038849846109504522714423405336")
_AREA = Decimal("0.001226324646353088072885370927737")
_COARSE = 1 << 52  # words below it are too few to be uniforms by themselves
# Where int64 still holds value and noise together.
_LARGEST = 2.0**62
_LARGEST_SIGMA = 2.0**50
_TOO_LARGE = (
    "expected a sum of finite numbers below 2^62 grid steps, got another; "
    "nothing was sent: check the records and the clipping"
)


def _density(x: Array | float) -> Array:
    return np.asarray(np.exp(-0.5 * np.square(x)))


class Layers(NamedTuple):
    """The edges x_0 > x_1 > ... of the layers.

    Args:
        scale: all but the last, for 54-bit points.
        inner: all but the first.
        edge: all of them.
        tail: where the tail starts.
    """

    scale: Array
    inner: Array
    edge: Array
    tail: float


@lru_cache(maxsize=1)
def layers() -> Layers:
    """Every edge is the float64 next to the true one, the same on every machine."""
    with localcontext(prec=30):
        height = (-_START * _START / 2).exp()
        edges = [_AREA / height, _START]
        while len(edges) < _LAYERS:
            height += _AREA / edges[-1]
            edges.append((-2 * height.ln()).sqrt())
    x = np.array([*map(float, edges), 0.0])
    return Layers(x[:-1] * 2.0**-53, x[1:].copy(), x, float(_START))


class _Room(NamedTuple):
    """Where one chunk after the other is worked on, and the loops for it, if they are compiled."""

    words: NDArray[np.uint64]
    layer: NDArray[np.int64]
    scratch: Array
    normal: Array
    loops: compiled.Loops | None

    @classmethod
    def of(cls, size: int) -> _Room:
        """For the chunks of a vector."""
        loops = compiled.loops() if size >= compiled.WORTH else None
        size = min(_CHUNK, size)
        words, layer = np.empty(size, dtype=np.uint64), np.empty(size, dtype=np.int64)
        return cls(words, layer, np.empty(size), np.empty(size), loops)

    def first(self, size: int) -> _Room:
        """As much of it as the last chunk needs."""
        words, layer, scratch, normal, loops = self
        return _Room(words[:size], layer[:size], scratch[:size], normal[:size], loops)


def standard_normal(source: randomness.SecureSource, out: Array) -> None:
    """Overwrite `out` with independent N(0, 1) samples.

    Guarantees:
        1. Independent of everything the source has given before.
        2. Exact up to float64 rounding, tails included to 15 sigma (docs/privacy.md P6 iii).
    """
    room = _Room.of(out.size)
    for part in _chunks(out.size):
        _fill(source, room.first(part.stop - part.start), out[part])


def _fill(source: randomness.SecureSource, room: _Room, out: Array) -> None:
    """One chunk: all at once, then whatever needs a second look."""
    words, layer, scratch, _, loops = room
    scale, inner, _, _ = layers()
    source.fill(words)
    points = words.view(np.int64)
    if loops is not None:
        places = layer[: loops.points(points, scale, inner, out, layer)]
        _settle(source, points[places] & (_LAYERS - 1), out, places)
        return
    # P6 (iii): ten bits are the layer and the other 54, with their sign, the point; no bit serves
    # twice.
    np.bitwise_and(points, _LAYERS - 1, out=layer)
    np.right_shift(points, _INDEX_BITS, out=points)
    # No layer is outside of the tables; unless told how to wrap, `take` would fill a copy first.
    np.multiply(points, scale.take(layer, out=scratch, mode="wrap"), out=out)
    outside = np.abs(out) >= inner.take(layer, out=scratch, mode="wrap")
    places = np.flatnonzero(outside)
    _settle(source, layer[places], out, places)


def _settle(
    source: randomness.SecureSource, layer: NDArray[np.int64], out: Array, places: NDArray[np.intp]
) -> None:
    """Decide about points that are not under the curve for certain, and draw for those refused."""
    scale, inner, _, _ = layers()
    while places.size:
        places = places[~_decide(source, layer, out, places)]
        # P6 (iii): after a refusal all is drawn anew. In the same layer again, the law would be
        # another.
        again = source.words(places.size)
        layer = (again & np.uint64(_LAYERS - 1)).view(np.int64)
        out[places] = (again.view(np.int64) >> _INDEX_BITS) * scale[layer]
        beyond = np.abs(out[places]) >= inner[layer]
        places, layer = places[beyond], layer[beyond]


def _decide(
    source: randomness.SecureSource, layer: NDArray[np.int64], out: Array, places: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """Accept wedge points under the curve, replace tail points; False: draw anew."""
    point = out[places]
    height = _unit(source, places.size)
    edge = layers().edge
    low, high = _density(edge[layer]), _density(edge[layer + 1])
    # P6 (iii): a height between the curve's at the layer's two edges, against the curve at the
    # point.
    accepted = low + height * (high - low) < _density(point)
    # The lowest layer ends in the tail: what is beyond its edge is drawn from there, not refused.
    tail = layer == 0
    if tail.any():
        out[places[tail]] = np.copysign(_tail(source, int(tail.sum())), point[tail])
    return np.asarray(accepted | tail)


def _tail(source: randomness.SecureSource, count: int) -> Array:
    """|x| given |x| > start (Marsaglia 1964): exponentials with a uniform test."""
    draws, start = np.empty(0), layers().tail
    while draws.size < count:
        missing = 2 * (count - draws.size) + 4
        # P6 (iii): v has density t e^(-tv); 2 y > v^2 makes it the tail's, e^(-(t + v)^2 / 2).
        x = -np.log(_fine_unit(source, missing)) / start
        y = -np.log(_fine_unit(source, missing))
        draws = np.concatenate([draws, start + x[2 * y > x * x]])
    return draws[:count]


def _unit(source: randomness.SecureSource, count: int) -> Array:
    """Uniforms in (0, 1] whose small values are as fine as 2^-64."""
    return (source.words(count).astype(np.float64) + 1.0) * 2.0**-64


def _fine_unit(source: randomness.SecureSource, count: int) -> Array:
    """Uniforms in (0, 1] whose small values are as fine as 2^-128; the tail hangs on those."""
    words = source.words(count)
    unit = (words.astype(np.float64) + 1.0) * 2.0**-64
    # P6 (iii): a word below 2^52 says only that the number is small; a second one says where it is.
    small = np.flatnonzero(words < np.uint64(_COARSE))
    if small.size:
        unit[small] = (words[small].astype(np.float64) + _unit(source, small.size)) * 2.0**-64
    return unit


def add_noise_and_round(
    vector: Array,
    sigma_grid: float,
    source: randomness.SecureSource,
    word_bits: int,
    *,
    grid_step: float = 1.0,
) -> ring.Residues:
    """Residues of round(vector / grid_step + N(0, sigma_grid^2)) (P5).

    The noise is added before the rounding, so the rounding is post-processing of a noisy value and
    adds no sensitivity. It is added to the fraction of each number, whose integer part joins
    afterwards in integers, so that large sums do not coarsen it (P6). `sigma_grid` = 0 adds none
    (exact sums, and the adversary's silos of an audit).

    Args:
        vector: what is added up, left as it is.
        sigma_grid: standard deviation of the noise, in steps of the grid.
        word_bits: of a residue.
        grid_step: width of a step, in the vector's unit.

    Raises:
        DataError: a number is not finite or past 2^62 grid steps: it would be sent without noise.
        StudyError: `sigma_grid` is negative, not finite, or past 2^50.
    """
    if not 0 <= sigma_grid <= _LARGEST_SIGMA:
        raise StudyError(
            f"expected noise of 0 to 2^50 grid steps, got {sigma_grid!r}; check the plan"
        )
    out, room = np.empty(vector.size, ring.residue_type(word_bits)), _Room.of(vector.size)
    for part in _chunks(vector.size):
        here = room.first(part.stop - part.start)
        if sigma_grid > 0:
            _fill(source, here, here.normal)
        else:
            here.normal.fill(0)
        _round(vector[part], grid_step, sigma_grid, here, out[part])
    return out


def add_and_round(
    vector: Array, noise: Array, word_bits: int, *, grid_step: float = 1.0
) -> ring.Residues:
    """Residues of round(vector / grid_step + noise), for noise that was drawn before (P25).

    Args:
        vector, word_bits, grid_step: as for `add_noise_and_round`.
        noise: in steps of the grid.

    Raises:
        DataError: as for `add_noise_and_round`.
    """
    out, room = np.empty(vector.size, ring.residue_type(word_bits)), _Room.of(vector.size)
    for part in _chunks(vector.size):
        here = room.first(part.stop - part.start)
        np.copyto(here.normal, noise[part])
        _round(vector[part], grid_step, 1.0, here, out[part])
    return out


def _round(vector: Array, grid_step: float, sigma: float, room: _Room, out: ring.Residues) -> None:
    """One chunk: the noise joins the fractions, then the integer parts join in integers."""
    words, total, whole, value, loops = room
    if loops is not None:
        if not loops.rounded(vector, grid_step, value, sigma, _LARGEST, out):
            raise DataError(_TOO_LARGE)
        return
    steps = np.divide(vector, grid_step, out=words.view(np.float64))
    # What int64 cannot hold would leave as a constant, without noise. NaN is the minimum and the
    # maximum of whatever holds it, and fails every comparison.
    if not (steps.min() > -_LARGEST and steps.max() < _LARGEST):
        raise DataError(_TOO_LARGE)
    # P6: beside a large integer part a float64 would have fewer bits for the noise.
    np.floor(steps, out=whole)
    value *= sigma
    value += np.subtract(steps, whole, out=steps)
    # P5: rounding after the noise is free. Before it, a record could move every number by a further
    # grid step.
    np.copyto(total, np.rint(value, out=value), casting="unsafe")
    integers = words.view(np.int64)
    np.copyto(integers, whole, casting="unsafe")
    np.add(total, integers, out=out, casting="unsafe")


def _chunks(size: int) -> Iterator[slice]:
    """Slices of at most one chunk."""
    for start in range(0, size, _CHUNK):
        yield slice(start, min(start + _CHUNK, size))
