"""The logarithm of a law's Fourier transform, so exact that a power of ten million may be taken.

Theory of operation (docs/privacy.md P13 (3)). A coefficient that an FFT computes errs by about u =
2^-53 whatever its size, and a power S of it by S u. But where |phi|^S is anything at all, phi - 1
is about 1 / S, and that difference can be had with an error relative to itself. With z = e^(-i t),

    z^k - 1 = k (z - 1) + (z - 1)^2 (positive sum of powers of z),

so the transform of the masses near the centre, less 1, is their mean times z - 1, and (z - 1)^2
times the transform of their tails added up twice. The FFT of those errs by u times their sum, about
half the variance; with the factor |z - 1|^2 that is u |phi - 1|. What lies far from the centre has
mass below 1 / S, and an FFT of its own.

Of many laws the product is next to nothing but at some tens of the lowest frequencies, for it is
about a Gaussian as wide as a tenth of the window. Once that is seen of the laws multiplied so far,
whose transforms bound the product, others are summed at what is left alone: sin and cos of k t are
exact relative to z^k - 1. What was left is counted as error. This file knows masses on integers, no
losses.
"""

from __future__ import annotations

from itertools import takewhile
from math import ceil, log2, sqrt

import numpy as np
from numpy import fft
from numpy.typing import NDArray

Array = NDArray[np.float64]
Cuts = NDArray[np.int64]
Spectrum = NDArray[np.complex128]

_UNIT = 2.0**-53
# Error of one coefficient of an FFT of a probability vector, in units of 2^-53 per binary stage.
_FFT_CONSTANT = 4.0
_LOW = 64  # a power of which an FFT's own error is nothing
_TOGETHER = 8
_LEAST = 1e-300
_ODD: list[int] = sorted(3**a * 5**b for a in range(41) for b in range(28))
_SUM = 40  # roundings in a pairwise sum of up to 2^30 numbers, and in what becomes of it
_NOTHING = -44.0  # the log of a coefficient that is nothing beside round-off
_SUMMED = 1 << 18  # terms that are summed at once
_FEWER = 256  # of so many frequencies one is left where sums are quicker than an FFT


def fast_size(least: int) -> int:
    """The least number from `least` on with no prime factor above 5: an FFT of it is quick.

    >>> [fast_size(least) for least in (7, 1000, 1025)]
    [8, 1000, 1080]
    """
    few = takewhile(lambda odd: odd < 2 * least, _ODD)  # a power of two is below that
    return min(one << (-(-least // one) - 1).bit_length() for one in few)


class PowerProduct:
    """The product of powers of transforms, and a bound on the error of every coefficient."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept = np.arange(size // 2 + 1)  # frequencies that are still looked at
        self._lost = np.zeros(size // 2 + 1)  # how large a coefficient of another one may be
        self._logarithm: Spectrum = np.zeros(size // 2 + 1, dtype=np.complex128)
        self._largest = np.zeros(size // 2 + 1)  # the log of how large it may be
        self._relative = np.zeros(size // 2 + 1)
        self._waiting: list[tuple[Spectrum, Array]] = []  # of the same low power
        self._power = 0
        self.shift = 0  # of all laws, which are centred before they are transformed

    def multiply(self, cuts: Cuts, mass: Array, count: int) -> None:
        """By the power `count` of the transform of masses that sum to one, at increasing cuts."""
        centre = round(float((mass * cuts).sum()))
        self.shift += count * centre
        if self._kept.size < self._lost.size:
            less_one, error = _summed(cuts - centre, mass, self._kept, self._size)
            self._take(*_logarithm(less_one, error), count)
            return
        if count <= _LOW:
            if len(self._waiting) >= _TOGETHER or count != self._power:
                self._settle()
            self._power = count
            self._waiting.append(_plain(cuts - centre, mass, self._size))
            return
        less_one, error = _less_one(cuts - centre, mass, 0.5 / count, self._size)
        self._take(*_logarithm(less_one, error), count)

    def leave(self) -> None:
        """Look no more at frequencies where the product is nothing, if few others are left."""
        self._settle()
        left = self._largest > _NOTHING
        if left.sum() > self._kept.size // _FEWER:
            return
        self._lost[self._kept[~left]] = np.exp(self._largest[~left])
        self._kept, self._logarithm = self._kept[left], self._logarithm[left]
        self._largest, self._relative = self._largest[left], self._relative[left]

    def result(self) -> tuple[Spectrum, Array]:
        """The coefficients, and by how much each may be wrong, the inverse's part included."""
        self._settle()
        error = self._lost
        error[self._kept] = np.exp(self._largest) * (self._relative + error_of_one(self._size))
        whole = np.zeros(error.size, dtype=np.complex128)
        whole[self._kept] = np.exp(self._logarithm)
        return whole, error

    def _settle(self) -> None:
        """Multiply by the powers that wait, all at once: logarithms are dear."""
        if not self._waiting:
            return
        product = self._waiting[0][0].copy()
        bound, relative = np.ones(product.size), np.zeros(product.size)
        for value, _ in self._waiting[1:]:
            product *= value
        for value, error in self._waiting:
            size = np.abs(value) + error
            bound, relative = bound * size, relative + error / size + 8 * _UNIT
        modulus = np.log(np.maximum(np.abs(product), _LEAST))
        self._logarithm += self._power * (modulus + 1j * np.angle(product))
        self._largest += self._power * np.log(bound)
        self._relative += self._power * relative
        self._waiting = []

    def _take(self, logarithm: Spectrum, error: Array, count: int) -> None:
        """Multiply by one power. |(phi + e)^S - phi^S| <= S |e| (|phi| + |e|)^(S - 1)."""
        bound = np.log(np.exp(logarithm.real) + error)
        self._logarithm += count * logarithm
        self._largest += count * bound
        self._relative += count * error * np.exp(-bound)


def error_of_one(size: int) -> float:
    """The largest error of a coefficient of an FFT of numbers whose sizes add up to one."""
    return _FFT_CONSTANT * _UNIT * log2(size)


def _plain(places: Cuts, mass: Array, size: int) -> tuple[Spectrum, Array]:
    """The transform, and a bound on its error."""
    value = fft.rfft(np.bincount(places % size, weights=mass, minlength=size))
    return value, np.full(value.size, error_of_one(size))


def _less_one(places: Cuts, mass: Array, tail: float, size: int) -> tuple[Spectrum, Array]:
    """The transform less one, and a bound on its error; `tail` may be far from the centre."""
    first, last = _near(mass, tail)
    near, error = _near_centre(places[first:last], mass[first:last], size)
    rest = np.concatenate([mass[:first], mass[last:]])
    away = np.concatenate([places[:first], places[last:]])
    far = fft.rfft(np.bincount(away % size, weights=rest, minlength=size))
    error += 2 * error_of_one(size) * float(rest.sum())
    return near + (far - far[0]), error


def _summed(places: Cuts, mass: Array, frequencies: Cuts, size: int) -> tuple[Spectrum, Array]:
    """The transform less one at some frequencies, and a bound on its error."""
    rows = max(1, _SUMMED // places.size)
    sums = np.empty((3, frequencies.size))
    for first in range(0, frequencies.size, rows):
        few = slice(first, first + rows)
        turn = frequencies[few, None] * places % size
        angle = 2 * np.pi / size * np.where(2 * turn > size, turn - size, turn)
        half = np.sin(angle / 2)
        parts = (-2 * half**2, -np.sin(angle), 2 * np.abs(half))  # and |z^k - 1|
        sums[:, few] = [(mass * part).sum(axis=1) for part in parts]
    return sums[0] + 1j * sums[1], 2 * _SUM * _UNIT * sums[2]


def _near(mass: Array, tail: float) -> tuple[int, int]:
    """The range of masses that leaves out at most `tail` on either side."""
    first = int(np.searchsorted(np.cumsum(mass), tail))
    last = mass.size - int(np.searchsorted(np.cumsum(mass[::-1]), tail))
    return first, last


def _near_centre(places: Cuts, mass: Array, size: int) -> tuple[Spectrum, Array]:
    """Sum of mass (z^place - 1) at all frequencies, and a bound on its error."""
    angle = 2 * np.pi / size * np.arange(size // 2 + 1)
    step = -2 * np.sin(angle / 2) ** 2 - 1j * np.sin(angle)  # z - 1
    least, most = min(int(places[0]), 0), max(int(places[-1]), 0)
    dense = np.zeros(most - least + 1)
    dense[places - least] = mass
    right, left = _added_twice(dense[-least:]), _added_twice(dense[: 1 - least][::-1])
    # z^k - 1 needs z^0 ... z^(k-2), and z^-k - 1 needs z^-1 ... z^-k.
    twice = np.concatenate([left[:0:-1], right[2:]])
    indices = np.arange(least, least + twice.size)
    curved = fft.rfft(np.bincount(indices % size, weights=twice, minlength=size))
    mean = float((mass * places).sum())
    total, spread = float(twice.sum()), float((mass * np.abs(places)).sum())
    length = np.abs(step)
    roundings = 4 * ceil(sqrt(dense.size)) + _SUM
    error = length**2 * total * (error_of_one(size) + roundings * _UNIT)
    return step * (mean + step * curved), error + length * spread * _SUM * _UNIT


def _added_twice(mass: Array) -> Array:
    """At k: the sum over places p >= k of (p - k + 1) mass[p]."""
    return _sums_from(_sums_from(mass))


def _sums_from(numbers: Array) -> Array:
    """Sums over all places from the k-th on, in blocks: 2 sqrt(n) roundings instead of n."""
    block = ceil(sqrt(numbers.size))
    padded = np.zeros(block * block)
    padded[-numbers.size :] = numbers[::-1]
    rows = np.cumsum(padded.reshape(block, block), axis=1)
    rows[1:] += np.cumsum(rows[:-1, -1])[:, None]
    return np.asarray(rows.reshape(-1)[-numbers.size :][::-1])


def _logarithm(less_one: Spectrum, error: Array) -> tuple[Spectrum, Array]:
    """log(1 + w), to a few roundings of w where that is small, of 1 elsewhere."""
    real, imag = less_one.real, less_one.imag
    size = np.abs(less_one)
    modulus = np.empty(size.size)
    small = size < 0.5
    modulus[small] = 0.5 * np.log1p((2 * real + real**2 + imag**2)[small])
    modulus[~small] = np.log(np.maximum(np.hypot(1 + real, imag)[~small], _UNIT))
    lost = np.where(small, 16 * size, 8.0) * _UNIT
    return modulus + 1j * np.arctan2(imag, 1 + real), error + lost
