"""`hubbub bench`: this machine against its physical limits, measured side by side in one run.

Every row is a ratio to work that cannot be spared: the bare keystream of the same bytes from the
same library, the bare public-key operations, the noise and the hashes. Only ratios within one run
mean anything; other work on the machine disturbs them, the row with several threads most.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from hubbub.cli.output import add_json, bar, emit, table
from hubbub.protocol import ring
from hubbub.protocol.agreement.mask_stream import MaskStream
from hubbub.protocol.agreement.pair_secrets import PairSecret
from hubbub.protocol.identity import Keys
from hubbub.protocol.noise import add_noise_and_round, standard_normal
from hubbub.protocol.randomness import SecureSource, cipher_at
from hubbub.protocol.round import RoundParameters
from hubbub.protocol.token_lists.process_pool import cores
from hubbub.session.in_process import federate
from hubbub.session.layout import Layout

_COORDINATES = 1_000_000
_KEY = bytes(range(16))
# Those of one silo among ten.
_MASKS = [(bytes([number]) * 16, False) for number in range(9)]
_ROUNDS = 15
_SILOS = 10
_SIGMA = 8.0

Work = Callable[[], object]
Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class MaskPair:
    """What is measured, and the work that bounds it."""

    name: str
    work: Work
    limit: Work
    limit_is: str


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The least time of both, in `unit`: other work on the machine only ever adds."""

    name: str
    value: float
    unit: str
    limit: float
    ratio: float
    limit_is: str


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
    pairs = [*_mask_pairs(), *_noise_pairs(), *_protocol_pairs()]
    rows = []
    with bar("measuring", len(pairs), quiet=options.json) as progress:
        for pair in pairs:
            rows.append(_row(pair))
            progress.advance(pair.name)
    if options.json:
        emit({"results": [asdict(row) for row in rows], "coordinates": _COORDINATES})
        return 0
    table(
        f"{_COORDINATES:,} coordinates, the least of {_ROUNDS} tries, value and limit in turn",
        ("", "ms", "limit ms", "ratio", "the limit is"),
        [
            (row.name, f"{row.value:.2f}", f"{row.limit:.2f}", f"{row.ratio:.2f}", row.limit_is)
            for row in rows
        ],
    )
    return 0


def _mask_pairs() -> list[MaskPair]:
    """One mask of every width on one thread; what all threads gain, and the most they can."""
    threads = max(2, cores())
    one, all_ = MaskStream(1), MaskStream(threads)
    words = {bits: ring.zeros(_COORDINATES, bits) for bits in ring.WORD_BITS}
    pairs = [
        MaskPair(
            name=f"mask-{bits}",
            work=lambda bits=bits: one.add(words[bits], _KEY),  # type: ignore[misc]
            limit=_bare_keystream(words[bits].nbytes),
            limit_is="bare AES-128-CTR keystream",
        )
        for bits in ring.WORD_BITS
    ]
    threaded = MaskPair(
        name="mask-32-threads",
        work=lambda: all_.add_all(words[32], _MASKS),
        limit=lambda: one.add_all(words[32], _MASKS),
        limit_is=f"one thread; {threads} threads should be well below 1",
    )
    size = words[32].nbytes
    bare = MaskPair(
        name="keystream-32-threads",
        work=_bare_on_threads(size, len(_MASKS), threads),
        limit=_repeated(_bare_keystream(size), len(_MASKS)),
        limit_is="one thread; the masks cannot gain more than this",
    )
    return [*pairs, threaded, bare]


def _noise_pairs() -> list[MaskPair]:
    """Normals, and a gradient sum that becomes noisy residues."""
    source, noise, gradient = SecureSource(), np.empty(_COORDINATES), _gradient()
    generator = np.random.default_rng(0)
    return [
        MaskPair(
            name="noise",
            work=lambda: standard_normal(source, noise),
            limit=lambda: generator.standard_normal(out=noise),
            limit_is="NumPy's normals (not cryptographic)",
        ),
        MaskPair(
            name="encode",
            work=lambda: add_noise_and_round(gradient, _SIGMA, source, 16),
            limit=lambda: standard_normal(source, noise),
            limit_is="the noise alone",
        ),
    ]


def _protocol_pairs() -> list[MaskPair]:
    """The set-up of a pair, a silo's part of a round, and the whole round of ten silos."""
    source, gradient = SecureSource(), _gradient()
    least = _least_of_a_silo()
    payload = bytes(_COORDINATES * 2)

    def least_of_a_round() -> None:
        for _ in range(_SILOS):
            least()
            hashlib.sha256(payload).digest()  # the silo signs it, the aggregator gets the same

    return [
        MaskPair(
            name="key-agreement",
            work=_pair_set_up(),
            limit=_bare_exchanges(),
            limit_is="bare X25519 and ML-KEM-768, both ways",
        ),
        MaskPair(
            name="silo",
            work=lambda: _silo_part(gradient, source),
            limit=least,
            limit_is=f"the noise and {_SILOS - 1} bare keystreams",
        ),
        MaskPair(
            name="round",
            work=_full_round(),
            limit=least_of_a_round,
            limit_is=f"that of {_SILOS} silos, and one SHA-256 of each vector",
        ),
    ]


def _row(pair: MaskPair) -> Measurement:
    """Both measured in turn, so that drift hits both."""
    pair.work(), pair.limit()
    spent: list[float] = []
    least: list[float] = []
    for _ in range(_ROUNDS):
        spent.append(1000 * seconds(pair.work))
        least.append(1000 * seconds(pair.limit))
    value, limit = min(spent), min(least)
    return Measurement(
        name=pair.name,
        value=value,
        unit="ms",
        limit=limit,
        ratio=value / limit,
        limit_is=pair.limit_is,
    )


def seconds(work: Work, clock: Callable[[], float] = time.perf_counter) -> float:
    """What some work takes, by a clock."""
    start = clock()
    work()
    return clock() - start


def _gradient() -> Array:
    """A gradient sum in grid steps."""
    return np.random.default_rng(0).normal(size=_COORDINATES)


def _bare_keystream(size: int) -> Work:
    """The library's keystream of `size` bytes in one call, into memory that is there already."""
    zeros, out = bytes(size), bytearray(size)
    return lambda: cipher_at(_KEY, 0).update_into(zeros, out)


def _bare_on_threads(size: int, times: int, threads: int) -> Work:
    """So many bare keystreams, each thread making its part of all of them."""
    pool = ThreadPoolExecutor(threads - 1)
    own, *others = [_repeated(_bare_keystream(size // threads), times) for _ in range(threads)]

    def work() -> None:
        jobs = [pool.submit(other) for other in others]
        own()
        for job in jobs:
            job.result()

    return work


def _repeated(work: Work, times: int) -> Work:
    def repeated() -> None:
        for _ in range(times):
            work()

    return repeated


def _silo_part(gradient: Array, source: SecureSource) -> None:
    """What a silo does to a gradient sum before it signs it."""
    residues, mask_stream = add_noise_and_round(gradient, _SIGMA, source, 16), MaskStream()
    for number in range(1, _SILOS):
        mask_stream.add(residues, number.to_bytes(16, "big"))


def _least_of_a_silo() -> Work:
    """The same bytes of noise and of keystream, and nothing done with them."""
    source, noise = SecureSource(), np.empty(_COORDINATES)
    keystream = _bare_keystream(_COORDINATES * 2)

    def work() -> None:
        standard_normal(source, noise)
        for _ in range(1, _SILOS):
            keystream()

    return work


class _Still:
    """A silo whose gradient sum is ready."""

    count = 0

    def __init__(self, vector: Array) -> None:
        self._vector = vector

    def clipped_sum(self, parameters: NDArray[np.float32], chosen: NDArray[np.intp]) -> Array:
        """The vector, which the round will overwrite."""
        return self._vector.copy()


def _full_round() -> Work:
    """A round of the whole protocol with pairwise masks: every message made, sent, verified."""
    terms = RoundParameters(
        dimension=_COORDINATES,
        parameters=0,
        silos=_SILOS,
        quorum=_SILOS,
        steps=10**6,
        word_bits=16,
        grid_step=1.0,
        sigma_grid=_SIGMA,
        sample_rate=1.0,
        nodes=0,
    )
    layout = Layout(names=tuple(f"silo-{k}" for k in range(1, _SILOS + 1)), degree=_SILOS - 1)
    tasks = [_Still(_gradient())] * _SILOS
    parties = federate(layout, terms, tasks, study=b"hubbub bench".ljust(32, b"\0"))
    rounds, no_model = count(1), np.zeros(0, dtype=np.float32)
    return lambda: parties.sum(next(rounds), no_model)


def _pair_set_up() -> Work:
    """Two parties seal, sign, verify and open a contribution each, and derive their secret."""
    ends = Keys.generate("a", "silo"), Keys.generate("b", "silo")

    def sent(sender: Keys, receiver: Keys) -> bytes:
        sealed = receiver.identity.seal(bytes(32), b"bench")
        sender.identity.verifies(sender.sign(sealed), sealed)
        return receiver.open(sealed, b"bench")

    def work() -> None:
        a, b = sent(*ends), sent(*reversed(ends))
        for _ in ends:
            PairSecret.agree(
                low=1, high=2, from_low=a, from_high=b, study=bytes(32), session=bytes(16)
            )

    return work


def _bare_exchanges() -> Work:
    """The public-key operations inside two hybrid sealings and two openings."""
    curve, lattice = X25519PrivateKey.generate(), MLKEM768PrivateKey.generate()
    curve_public, lattice_public = curve.public_key(), lattice.public_key()

    def work() -> None:
        for _ in range(2):
            once = X25519PrivateKey.generate()
            once.exchange(curve_public)
            _secret, wrapped = lattice_public.encapsulate()
            curve.exchange(once.public_key())
            lattice.decapsulate(wrapped)

    return work
