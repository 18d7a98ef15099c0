"""`hubbub bench`: this machine against its physical limits, measured side by side in one run.

Every row is a ratio to something that cannot be beaten here: the bare keystream of the same bytes
from the same library, or the copy of the same memory. Only ratios within one run mean anything.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from hubbub import ring
from hubbub.cli.output import add_json, bar, emit, table
from hubbub.identity import Keys
from hubbub.noise import add_noise_and_round, standard_normal
from hubbub.randomness import SecureSource, cipher_at
from hubbub.summation.mask import Masking

_COORDINATES = 1_000_000
_KEY = bytes(range(16))
_ROUNDS = 15

Work = Callable[[], object]


def add_commands(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "bench",
        help="this machine against its physical limits",
        description="this machine against its physical limits",
    )
    add_json(parser)
    parser.set_defaults(command=_bench)


def _bench(options: argparse.Namespace) -> int:
    results = []
    pairs = _pairs()
    with bar("measuring", len(pairs), quiet=options.json) as progress:
        for name, unit, work, limit, words in pairs:
            value, least = _alternating(work, limit)
            results.append(
                {
                    "name": name,
                    "value": value,
                    "unit": unit,
                    "limit": least,
                    "ratio": value / least,
                    "limit_is": words,
                }
            )
            progress.advance(name)
    if options.json:
        emit({"results": results, "coordinates": _COORDINATES})
        return 0
    table(
        f"{_COORDINATES:,} coordinates, medians of {_ROUNDS} rounds, value and limit in turn",
        ("", "ms", "limit ms", "ratio", "the limit is"),
        [
            (
                str(row["name"]),
                f"{row['value']:.2f}",
                f"{row['limit']:.2f}",
                f"{row['ratio']:.2f}",
                str(row["limit_is"]),
            )
            for row in results
        ],
    )
    return 0


def _pairs() -> list[tuple[str, str, Work, Work, str]]:
    """What is measured, beside what bounds it."""
    source, noise = SecureSource(), np.empty(_COORDINATES)
    gradient = np.random.default_rng(0).normal(size=_COORDINATES)
    words = {bits: ring.zeros(_COORDINATES, bits) for bits in ring.WORD_BITS}
    one, two = Masking(1), Masking(max(2, os.cpu_count() or 1))
    keystream = {bits: _bare_keystream(words[bits].nbytes) for bits in ring.WORD_BITS}
    rows: list[tuple[str, str, Work, Work, str]] = [
        (
            f"mask-{bits}",
            "ms",
            lambda bits=bits: one.add(words[bits], _KEY),  # type: ignore[misc]
            keystream[bits],
            "bare AES-128-CTR keystream",
        )
        for bits in ring.WORD_BITS
    ]
    rows.append(
        (
            "mask-32-threads",
            "ms",
            lambda: two.add(words[32], _KEY),
            keystream[32],
            "bare AES-128-CTR keystream, one thread",
        )
    )
    generator = np.random.default_rng(0)
    rows.append(
        (
            "noise",
            "ms",
            lambda: standard_normal(source, noise),
            lambda: generator.standard_normal(out=noise),
            "NumPy's normals (not cryptographic)",
        )
    )
    rows.append(
        (
            "encode",
            "ms",
            lambda: add_noise_and_round(gradient, 8.0, source, 16),
            lambda: standard_normal(source, noise),
            "the noise alone",
        )
    )
    rows.append(("key-agreement", "ms", _pair_agreement(), _bare_x25519(), "one X25519 exchange"))
    rows.append(
        (
            "round",
            "ms",
            lambda: _silo_round(gradient, source, one, 9),
            lambda: _round_limit(source, noise, keystream[16], 9),
            "noise and 9 bare keystreams",
        )
    )
    return rows


def _alternating(work: Work, limit: Work) -> tuple[float, float]:
    """Median milliseconds of both, measured in turn so that drift hits both."""
    work(), limit()
    spent: list[float] = []
    least: list[float] = []
    for _ in range(_ROUNDS):
        spent.append(_milliseconds(work))
        least.append(_milliseconds(limit))
    return median(spent), median(least)


def _milliseconds(work: Work) -> float:
    start = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - start)


def _bare_keystream(size: int) -> Work:
    """The library's keystream of `size` bytes in one call, into memory that is there already."""
    zeros, out = bytes(size), bytearray(size)
    return lambda: cipher_at(_KEY, 0).update_into(zeros, out)


def _silo_round(
    gradient: np.ndarray[Any, Any], source: SecureSource, masking: Masking, masks: int
) -> None:
    """What a silo does to a gradient sum before it sends it."""
    residues = add_noise_and_round(gradient, 8.0, source, 16)
    for number in range(masks):
        masking.add(residues, number.to_bytes(16, "big"))


def _round_limit(
    source: SecureSource, noise: np.ndarray[Any, Any], keystream: Work, masks: int
) -> None:
    standard_normal(source, noise)
    for _ in range(masks):
        keystream()


def _pair_agreement() -> Work:
    """Seal, sign, verify and open one contribution."""
    mine, yours = Keys.generate("a", "silo"), Keys.generate("b", "silo")

    def work() -> None:
        sealed = yours.identity.seal(bytes(32), b"bench")
        signature = mine.sign(sealed)
        mine.identity.verifies(signature, sealed)
        yours.open(sealed, b"bench")

    return work


def _bare_x25519() -> Work:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    mine, yours = X25519PrivateKey.generate(), X25519PrivateKey.generate().public_key()
    return lambda: mine.exchange(yours)
