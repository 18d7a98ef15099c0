"""What follows from a joint seed, once more, from docs/protocol.md alone: matrices and batches.

Entries are made one by one with Python's integers and floats, sums are exact. It shares no line
with the package, and only hashes and keystreams with the other half of the second implementation.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from protocol.reference import keystream, sha, u32, words

_ROWS = 8192  # of one tile of Gaussian entries
_HALF = math.sqrt(0.5)


def draw_key(
    kind: str, numbers: tuple[int, int, int, int], seed: bytes, model: Sequence[float]
) -> bytes:
    """The key of a matrix; the numbers are d, k, round and attempt."""
    digest = sha(struct.pack(f"<{len(model)}f", *model))
    places = b"".join(u32(number) for number in numbers)
    return sha(b"hubbub projection v1 " + kind.encode() + b" ", places, seed, digest)[:16]


# Signs ---------------------------------------------------------------------------------------


def sign(key: bytes, row: int, column: int) -> int:
    """One entry times sqrt(k)."""
    group, place = divmod(column, 20)
    word = words(keystream(key, 16, (group << 64) + row // 8), 16)[row % 8]
    if place < 16:
        return 1 - 2 * (word >> place & 1)
    checked = [bit for bit in range(16) if min(bit + 1, 15) >> (place - 16) & 1]
    return 1 - 2 * (sum(word >> bit & 1 for bit in checked) & 1)


def grid_of(clip: float, records: int, parameters: int) -> float:
    """The step of the grid on which a sum is put before it is projected."""
    return power_of_two(clip * records, math.sqrt(parameters))


def power_of_two(length: float, spread: float) -> float:
    """The least power of two in whose steps length <= 2^46 and length times spread <= 2^52."""
    least, step = max(length / 2.0**46, length * spread / 2.0**52), 1.0
    while step < least:
        step *= 2
    while step / 2 >= least:
        step /= 2
    return step


def projected(vector: Sequence[float], k: int, key: bytes, step: float) -> list[float]:
    """The k numbers that a silo has of its clipped sum, by signs."""
    whole = [round(value / step) for value in vector]
    sums = [sum(sign(key, i, j) * n for i, n in enumerate(whole)) for j in range(k)]
    return [float(total) * (step / math.sqrt(k)) for total in sums]


def lifted(numbers: Sequence[float], d: int, key: bytes) -> list[float]:
    """The estimate of the d numbers, by signs."""
    k = len(numbers)
    step = power_of_two(max(abs(number) for number in numbers), k)
    whole = [round(number / step) for number in numbers]
    sums = [sum(sign(key, i, j) * n for j, n in enumerate(whole)) for i in range(d)]
    return [float(total) * (step / math.sqrt(k)) for total in sums]


# Gaussian entries ----------------------------------------------------------------------------


def gaussian(key: bytes, row: int, column: int, k: int) -> int:
    """One entry times sqrt(k), in steps of 2^-20."""
    tile, row = divmod(row, _ROWS)
    pair, second = divmod(column, 2)
    block = (tile * -(-k // 2) + pair) * _ROWS + row
    low, middle, high, angle = words(keystream(key, 16, block), 32)
    turn = ((angle >> 2) + 0.5) * (math.pi / 4 * 2.0**-29) - math.pi / 4
    square = turn * turn
    cosine = _series(square, [-1 / 3628800, 1 / 40320, -1 / 720, 1 / 24, -1 / 2, 1.0])
    sine = _series(square, [-1 / 39916800, 1 / 362880, -1 / 5040, 1 / 120, -1 / 6, 1.0]) * turn
    size = round((cosine + sine if second else cosine - sine) * _radius(low, middle, high))
    return -size if angle >> second & 1 else size


def _radius(low: int, middle: int, high: int) -> float:
    """sqrt(-ln u) in steps of 2^-20."""
    number = (high + 0.5) * 2.0**-32 + float(middle << 32 | low)
    mantissa, exponent = math.frexp(number)
    if mantissa >= _HALF:
        scaled = mantissa
    else:
        scaled, exponent = 2 * mantissa, exponent - 1
    ratio = (scaled - 1) / (scaled + 1)
    logarithm = _series(ratio * ratio, [1 / odd for odd in (11, 9, 7, 5, 3, 1)]) * ratio * -2
    return math.sqrt(max(logarithm + (64 - exponent) * math.log(2), 0)) * 2.0**20


def _series(power: float, coefficients: Sequence[float]) -> float:
    """Horner's rule, the highest power first."""
    total = coefficients[0]
    for coefficient in coefficients[1:]:
        total = total * power + coefficient
    return total


# Layer by layer ------------------------------------------------------------------------------


def divided(sizes: Sequence[int], k: int) -> list[int]:
    """How many of k numbers each parameter gets: one, then each to whom it helps most."""
    sent = [1] * len(sizes)
    for _ in range(k - len(sizes)):
        open_ones = [i for i, size in enumerate(sizes) if sent[i] < size]
        best = max(open_ones, key=lambda i: (sizes[i] / (sent[i] * (sent[i] + 1)), -i))
        sent[best] += 1
    return sent


def sides(rows: int, columns: int, sent: int) -> tuple[int, int]:
    """How many sign vectors a parameter has for its rows and for its columns."""
    down = min(rows, math.isqrt(sent - 1) + 1)
    across = min(columns, -(-sent // down))
    return -(-sent // across), across


def layer_signs(
    key: bytes, place: int, rows: int, columns: int, sent: int
) -> tuple[list[list[int]], list[list[int]]]:
    """The sign vectors of a parameter, a list for each of its rows and of its columns."""
    down, across = sides(rows, columns, sent)
    count = rows * down + columns * across
    stream = keystream(key, -(-count // 8), place << 64)
    signs = [1 - 2 * (stream[bit // 8] >> bit % 8 & 1) for bit in range(count)]
    outer, inner = signs[: rows * down], signs[rows * down :]
    return _cut(outer, down), _cut(inner, across)


def _cut(values: Sequence[int], size: int) -> list[list[int]]:
    return [list(values[at : at + size]) for at in range(0, len(values), size)]


# Batches -------------------------------------------------------------------------------------


def without_replacement(seed: bytes, n: int, b: int, step: int) -> list[int]:
    """The places of a batch from a list that serves one step."""
    if b == n:
        return list(range(n))
    for drawn in _draws(b"hubbub without replacement v1", seed, n, b, step):
        order = sorted(range(n), key=drawn.__getitem__)
        if drawn[order[b - 1]] != drawn[order[b]]:
            return sorted(order[:b])
    raise AssertionError


def partition(seed: bytes, n: int, b: int, step: int) -> list[int]:
    """The places of the step's batch, each place once in an epoch."""
    epoch, part = divmod(step - 1, -(-n // b))
    for drawn in _draws(b"hubbub partition v1", seed, n, b, epoch):
        if len(set(drawn)) == n:
            order = sorted(range(n), key=drawn.__getitem__)
            return sorted(order[part * b : (part + 1) * b])
    raise AssertionError


def _draws(context: bytes, seed: bytes, n: int, b: int, number: int):
    """One list of n words after the other."""
    use = b"".join(value.to_bytes(8, "little") for value in (n, b, number))
    key, size = sha(context, seed, use)[:16], 8 * n
    for at in range(0, 1 << 30, size):
        skip = at % 16
        yield words(keystream(key, skip + size, at // 16)[skip:], 64)
