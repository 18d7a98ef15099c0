"""A list of tokens against the bare HPKE operations that it takes, on all cores, in one run.

    python -m benchmarks.mixnet [--tokens 50000] [--silos 10] [--write] [--json]

"bare" seals and opens as often as the list does, with plaintexts of the same lengths, in one
process per core, and does nothing else: half of it before the list is made and half after, because
other work on the machine comes and goes. The clock of the bare processes starts once they are up;
that of the list includes the start of its workers, all signatures, every silo's checks and the
shuffles. Processor time is that of all processes together, and less disturbed by others. Memory is
the peak of the process that plays all parties, and of it and its workers together.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import resource
import sys
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from benchmarks.result_table import write_table
from benchmarks.shuffled_list import shuffled_list
from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.core.protocol.token_lists.process_pool import cores

TABLE = Path(__file__).parent / "results" / "mixnet.csv"
SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
INFO = bytes(51)  # as long as what a layer is bound to


def layers(tokens: int, silos: int, start: Barrier, end: Barrier) -> None:
    """Seal `tokens` tokens `silos` times and open them again, a few at a time."""
    keys = [X25519PrivateKey.generate() for _ in range(silos)]
    publics = [key.public_key() for key in keys]
    start.wait()
    for begin in range(0, tokens, 64):
        forms = [os.urandom(16) for _ in range(min(64, tokens - begin))]
        for public in publics:
            forms = [SUITE.encrypt(form, public, info=INFO) for form in forms]
        for key in reversed(keys):
            forms = [SUITE.decrypt(form, key, info=INFO) for form in forms]
    end.wait()


def bare(tokens: int, silos: int) -> tuple[float, float]:
    """Seconds on the clock and of all processors, for as many operations on all cores."""
    context = multiprocessing.get_context("fork")
    start, end = context.Barrier(cores() + 1), context.Barrier(cores() + 1)
    share = -(-tokens // cores())
    processes = [
        context.Process(target=layers, args=(share, silos, start, end)) for _ in range(cores())
    ]
    before = processor()
    for process in processes:
        process.start()
    start.wait()
    clock = time.perf_counter()
    end.wait()
    clock = time.perf_counter() - clock
    for process in processes:
        process.join()
    return clock, processor() - before


def processor() -> float:
    """Processor seconds of this process and of all its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def measured(tokens: int, silos: int, *, quiet: bool) -> dict[str, Any]:
    keys = [Keys.generate("aggregator", "aggregator")]
    keys += [Keys.generate(f"silo-{number}", "silo") for number in range(1, silos + 1)]
    roster, counts = Roster.of(keys), [tokens // silos] * silos
    first = bare(sum(counts) // 2, silos)
    clock, used = time.perf_counter(), processor()
    watch = {} if quiet else {"progress": progress}
    made = shuffled_list(keys, roster, counts, study=bytes(32), **watch)
    clock, used = time.perf_counter() - clock, processor() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    worker = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    last = bare(sum(counts) - sum(counts) // 2, silos)
    places = [place for own in made.positions.values() for place in own.tolist()]
    assert sorted(places) == list(range(sum(counts)))
    return {
        "tokens": sum(counts),
        "silos": silos,
        "cores": cores(),
        "seconds": round(clock, 2),
        "bare_seconds": round(first[0] + last[0], 2),
        "ratio": round(clock / (first[0] + last[0]), 3),
        "processor_seconds": round(used, 2),
        "bare_processor_seconds": round(first[1] + last[1], 2),
        "processor_ratio": round(used / (first[1] + last[1]), 3),
        "peak_mib": round(peak),
        "peak_with_workers_mib": round(peak + cores() * worker),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 1),
    }


def progress(done: int, operations: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done:>9,} of {operations:,} HPKE operations", end="", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=50_000)
    parser.add_argument("--silos", type=int, default=10)
    parser.add_argument("--write", action="store_true", help="put the row into results/mixnet.csv")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    row = measured(options.tokens, options.silos, quiet=options.json)
    if options.write:
        write_table(TABLE, [row], of="tokens")
    if options.json:
        print(json.dumps(row))
    else:
        print("\n".join(f"{name:>24}  {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
