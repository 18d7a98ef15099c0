"""What the parts of a round take on this machine, each beside the work that bounds it.

    python -m benchmarks.machine [--json]

`hubbub bench` measures a mask, the noise and a whole round; here are the parts besides: masks on
all threads, the encoding of a sum, the set-up of a pair, and a silo's part of a round. The row with
several threads is the one that other work on the machine disturbs most.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from hubbub.core.protocol.agreement.key_agreement import PairSecret
from hubbub.core.protocol.agreement.masks import MaskStream
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.identity import Keys
from hubbub.core.protocol.primitives.noise import add_noise_and_round, standard_normal
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.token_lists.process_pool import cores
from hubbub.desk.cli.bench_command import Array, Measurement, Work, bare_keystream, measure

COORDINATES, SILOS, SIGMA = 1_000_000, 10, 8.0  # as `hubbub bench` has them
MASKS = [(bytes([number]) * 16, False) for number in range(SILOS - 1)]  # of one silo


def threaded() -> list[Measurement]:
    """What all threads gain, and the most that they can."""
    threads = max(2, cores())
    one, all_ = MaskStream(1), MaskStream(threads)
    words = ring.zeros(COORDINATES, 32)
    return [
        Measurement(
            name="mask-32-threads",
            work=lambda: all_.add_all(words, MASKS),
            limit=lambda: one.add_all(words, MASKS),
            limit_is=f"one thread; {threads} threads should be well below 1",
        ),
        Measurement(
            name="keystream-32-threads",
            work=bare_on_threads(words.nbytes, len(MASKS), threads),
            limit=repeated(bare_keystream(words.nbytes), len(MASKS)),
            limit_is="one thread; the masks cannot gain more than this",
        ),
    ]


def parts() -> list[Measurement]:
    """A sum becomes noisy residues; a pair is set up; a silo makes its vector."""
    source, noise = SecureSource(), np.empty(COORDINATES)
    gradient = np.random.default_rng(0).normal(size=COORDINATES)
    return [
        Measurement(
            name="encode",
            work=lambda: add_noise_and_round(gradient, SIGMA, source, 16),
            limit=lambda: standard_normal(source, noise),
            limit_is="the noise alone",
        ),
        Measurement(
            name="key-agreement",
            work=pair_set_up(),
            limit=bare_exchanges(),
            limit_is="bare X25519 and ML-KEM-768, both ways",
        ),
        Measurement(
            name="silo",
            work=lambda: silo_part(gradient, source),
            limit=least_of_a_silo(),
            limit_is=f"the noise and {SILOS - 1} bare keystreams",
        ),
    ]


def least_of_a_silo() -> Work:
    """A silo's noise and the bytes of its keystreams, and nothing done with them."""
    source, noise = SecureSource(), np.empty(COORDINATES)
    keystream = bare_keystream(COORDINATES * 2)

    def work() -> None:
        standard_normal(source, noise)
        for _ in range(1, SILOS):
            keystream()

    return work


def bare_on_threads(size: int, times: int, threads: int) -> Work:
    """So many bare keystreams, each thread making its part of all of them."""
    pool = ThreadPoolExecutor(threads - 1)
    own, *others = [repeated(bare_keystream(size // threads), times) for _ in range(threads)]

    def work() -> None:
        jobs = [pool.submit(other) for other in others]
        own()
        for job in jobs:
            job.result()

    return work


def repeated(work: Work, times: int) -> Work:
    def repeated() -> None:
        for _ in range(times):
            work()

    return repeated


def silo_part(gradient: Array, source: SecureSource) -> None:
    """What a silo does to a gradient sum before it signs it."""
    residues, mask_stream = add_noise_and_round(gradient, SIGMA, source, 16), MaskStream()
    for number in range(1, SILOS):
        mask_stream.add(residues, number.to_bytes(16, "big"))


def pair_set_up() -> Work:
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


def bare_exchanges() -> Work:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    measure([*threaded(), *parts()], machine=parser.parse_args().json)


if __name__ == "__main__":
    main()
