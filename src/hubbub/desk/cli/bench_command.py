"""`hubbub bench`: this machine against its physical limits, measured side by side in one run.

Every row is a ratio to work that cannot be spared. Only ratios within one run mean anything.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from timeit import timeit
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.protocol.agreement.masks import MaskStream
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.noise import standard_normal
from hubbub.core.protocol.primitives.randomness import SecureSource, cipher_at
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.session.in_process import federate
from hubbub.core.session.offer import Layout
from hubbub.desk.cli.terminal import add_command, bar, emit, table

_COORDINATES = 1_000_000
_KEY = bytes(range(16))
_ROUNDS, _SILOS = 15, 10
_NUMBERS = ("value", "limit", "ratio")

Work = Callable[[], object]
Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What is measured, and the work that bounds it."""

    name: str
    work: Work
    limit: Work
    limit_is: str


def add_commands(commands: Any) -> None:
    """Register the command."""
    add_command(commands, "bench", "measure this machine against its physical limits", _bench)


def _bench(options: argparse.Namespace) -> int:
    measure([_mask(16), _mask(32), _noise(), _round()], machine=options.json)
    return 0


def measure(pairs: Sequence[Measurement], *, machine: bool) -> None:
    """Measure pairs, and print them for a machine or for people."""
    rows, tries = list[dict[str, Any]](), range(_ROUNDS)
    with bar("measuring", len(pairs), quiet=machine) as progress:
        for pair in pairs:
            # The least of both: other work on the machine only ever adds. In turn: drift hits both.
            pair.work(), pair.limit()
            both = [[timeit(work, number=1) for work in (pair.work, pair.limit)] for _ in tries]
            value, limit = (1000 * min(seconds) for seconds in zip(*both, strict=True))
            row = {"name": pair.name, "value": value, "unit": "ms", "limit": limit}
            rows.append({**row, "ratio": value / limit, "limit_is": pair.limit_is})
            progress.advance(pair.name)
    if machine:
        emit({"results": rows, "coordinates": _COORDINATES})
        return
    table(
        f"{_COORDINATES:,} coordinates, the least of {_ROUNDS} tries, value and limit in turn",
        ("", "ms", "limit ms", "ratio", "the limit is"),
        [(row["name"], *(f"{row[key]:.2f}" for key in _NUMBERS), row["limit_is"]) for row in rows],
    )


def _mask(bits: int) -> Measurement:
    words, stream = ring.zeros(_COORDINATES, bits), MaskStream(1)
    return Measurement(
        name=f"mask-{bits}",
        work=lambda: stream.add(words, _KEY),
        limit=bare_keystream(words.nbytes),
        limit_is="bare AES-128-CTR keystream",
    )


def _noise() -> Measurement:
    source, noise, generator = SecureSource(), np.empty(_COORDINATES), np.random.default_rng(0)
    return Measurement(
        name="noise",
        work=lambda: standard_normal(source, noise),
        limit=lambda: generator.standard_normal(out=noise),
        limit_is="NumPy's normals (not cryptographic)",
    )


def _round() -> Measurement:
    """A round of the whole protocol with pairwise masks: every message made, sent, verified."""
    layout = Layout(names=tuple(f"silo-{k}" for k in range(1, _SILOS + 1)), degree=_SILOS - 1)
    round_parameters = RoundParameters(
        dimension=_COORDINATES,
        parameters=0,
        silos=_SILOS,
        quorum=_SILOS,
        steps=10**6,
        word_bits=16,
        grid_step=1.0,
        sigma_grid=8.0,
        sample_rate=1.0,
        nodes=0,
    )
    parties = federate(
        layout, round_parameters, [_Still()] * _SILOS, study=b"hubbub bench".ljust(32, b"\0")
    )
    rounds, no_model = count(1), np.zeros(0, dtype=np.float32)
    vector = bytes(_COORDINATES * 2)
    noise, keystream = _noise().work, bare_keystream(len(vector))

    def limit() -> None:
        for _ in range(_SILOS):
            noise()
            hashlib.sha256(vector).digest()  # the silo signs it, the aggregator gets the same
            for _ in range(1, _SILOS):
                keystream()

    return Measurement(
        name="round",
        work=lambda: parties.sum(next(rounds), no_model),
        limit=limit,
        limit_is=f"noise and keystreams alone of {_SILOS} silos, and one SHA-256 of each vector",
    )


class _Still:
    """A silo whose gradient sum is ready."""

    count = capacity = 0

    def clipped_sum(self, parameters: NDArray[np.float32], rows: NDArray[np.intp]) -> Array:
        """A vector, which the round will overwrite."""
        return np.ones(_COORDINATES)


def bare_keystream(size: int) -> Work:
    """The library's keystream of `size` bytes in one call, into memory that is there already."""
    zeros, out = bytes(size), bytearray(size)
    return lambda: cipher_at(_KEY, 0).update_into(zeros, out)
