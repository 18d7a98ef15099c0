"""One silo's vector hidden by hubbub, by its peers, and at the limits of this machine.

    python -m benchmarks.secure_sum [--flower PYTHON] [--tenseal PYTHON] [--write] [--json]

hubbub's rows are all that a silo does to a float64 gradient sum before it is signed: noise,
rounding onto the grid, and the masks of N - 1 silos, on one thread. Peers run in a Python of their
own (`python -m venv X && X/bin/pip install flwr`, the same for tenseal); none of them adds noise.
The limits are the bare AES-128-CTR keystream of the same masks in one call each, from the same
library, and the copy of the same bytes. hubbub and the limits are measured in turn; the paper's
way (a sample, scaled up) and the peers follow in the same run, one after the other, so a change of
load between them shows in the ratios. The table has the least time of each and the median.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.result_table import machine, write_table
from benchmarks.secure_sum import paper
from hubbub.core.protocol.agreement.masks import MaskStream
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.noise import add_noise_and_round
from hubbub.core.protocol.primitives.randomness import SecureSource, cipher_at

COORDINATES = 1_000_000
SILOS = (10, 100)
WORDS = (16, 32)
TRIES = 9
HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
_KEY = bytes(range(16))

Work = Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One way to hide one silo's vector; times in milliseconds."""

    way: str
    bits: int
    silos: int
    least: float
    median: float
    upload_bytes: float | None = None
    server_ms_per_silo: float | None = None
    times_hubbub: float | None = None


def interleaved(works: dict[str, Work], tries: int) -> dict[str, list[float]]:
    """Milliseconds of each, in turn, so that drift hits all."""
    spent: dict[str, list[float]] = {name: [] for name in works}
    for name, work in list(works.items()) * (tries + 1):
        start = time.perf_counter()
        work()
        spent[name].append(1e3 * (time.perf_counter() - start))
    return {name: all_[1:] for name, all_ in spent.items()}


def mask_key(number: int) -> bytes:
    return number.to_bytes(16, "little")


def hidden(bits: int, silos: int, mask_stream: MaskStream) -> Work:
    """Encode, noise and masks."""
    source = SecureSource()
    vector = np.random.default_rng(0).normal(size=COORDINATES)
    masks = [(mask_key(other), False) for other in range(1, silos)]

    def work() -> object:
        residues = add_noise_and_round(vector, 8.0, source, bits)
        mask_stream.add_all(residues, masks)
        return residues

    return work


def one_mask(bits: int, mask_stream: MaskStream) -> Work:
    residues = ring.zeros(COORDINATES, bits)
    return lambda: mask_stream.add(residues, mask_key(0))


def bare_keystream(bits: int, count: int) -> Work:
    zeros, out = bytes(COORDINATES * bits // 8), bytearray(COORDINATES * bits // 8)

    def work() -> None:
        for other in range(count):
            cipher_at(mask_key(other), 0).update_into(zeros, out)

    return work


def halves(bits: int) -> Work:
    """The bare keystream of one mask, half of it on another thread: the most two can gain."""
    pool, size = ThreadPoolExecutor(1), COORDINATES * bits // 16
    zeros, out = bytes(size), (bytearray(size), bytearray(size))

    def half(number: int) -> None:
        cipher_at(mask_key(0), number * size // 16).update_into(zeros, out[number])

    def work() -> None:
        other = pool.submit(half, 1)
        half(0)
        other.result()

    return work


def memory_copy(bits: int, count: int) -> Work:
    source, target = ring.zeros(COORDINATES, bits), ring.zeros(COORDINATES, bits)

    def work() -> None:
        for _ in range(count):
            np.copyto(target, source)

    return work


def server_sum(bits: int) -> float:
    """Adding one silo's vector, in milliseconds."""
    total, vector = ring.zeros(COORDINATES, bits), ring.zeros(COORDINATES, bits)
    return min(interleaved({"": lambda: np.add(total, vector, out=total)}, TRIES)[""])


def rows_here(bits: int, silos: int, tries: int) -> list[Row]:
    """hubbub and the limits."""
    one, two = MaskStream(1), MaskStream(2)
    works = {
        "hubbub": hidden(bits, silos, one),
        "hubbub, masks on 2 threads": hidden(bits, silos, two),
        "limit: bare keystream": bare_keystream(bits, silos - 1),
        "limit: memory copy": memory_copy(bits, silos - 1),
    }
    spent = interleaved(works, tries)
    sizes = {name: COORDINATES * bits / 8 for name in spent if name.startswith("hubbub")}
    served = server_sum(bits)
    return [
        Row(
            way=name,
            bits=bits,
            silos=silos,
            least=min(times),
            median=median(times),
            upload_bytes=sizes.get(name),
            server_ms_per_silo=served if name in sizes else None,
        )
        for name, times in spent.items()
    ]


def rows_paper(silos: int) -> list[Row]:
    """The paper's masks, N - 1 of them, at its 4 bytes a coordinate."""
    rows = []
    ways = (
        ("paper: full shares from `secrets`, 3 nodes", paper.full_share, 3),
        ("paper: Blake2 pair masks", paper.pair_mask, silos - 1),
    )
    for way, mask, count in ways:
        spent = [count * each for each in paper.milliseconds(mask, COORDINATES, 3)]
        sent = 4.0 * COORDINATES * (3 if mask is paper.full_share else 1)
        rows.append(
            Row(
                way=way,
                bits=32,
                silos=silos,
                least=min(spent),
                median=median(spent),
                upload_bytes=sent,
            )
        )
    return rows


def row_of_peer(
    way: str, bits: int, silos: int, command: Sequence[str]
) -> tuple[Row, dict[str, str]]:
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    row = Row(
        way=way,
        bits=bits,
        silos=silos,
        least=found["least"],
        median=found["median"],
        upload_bytes=found["bytes"],
        server_ms_per_silo=found["server_least"],
    )
    return row, found["versions"]


def thread_rows(tries: int) -> list[dict[str, float | int]]:
    """One mask: against the bare keystream, and what a second thread gains, mask and keystream."""
    rows = []
    for bits in WORDS:
        works = {
            "one": one_mask(bits, MaskStream(1)),
            "two": one_mask(bits, MaskStream(2)),
            "bare": bare_keystream(bits, 1),
            "halves": halves(bits),
            "copy": memory_copy(bits, 1),
        }
        spent = interleaved(works, 5 * tries)
        least = {name: min(times) for name, times in spent.items()}
        rows.append(
            {
                "bits": bits,
                "mask_ms": least["one"],
                "two_threads_ms": least["two"],
                "bare_keystream_ms": least["bare"],
                "copy_ms": least["copy"],
                "mask_over_keystream": least["one"] / least["bare"],
                "median_mask_over_keystream": median(spent["one"]) / median(spent["bare"]),
                "two_threads_gain": least["one"] / least["two"],
                "median_two_threads_gain": median(spent["one"]) / median(spent["two"]),
                "bare_two_threads_gain": least["bare"] / least["halves"],
                "median_bare_two_threads_gain": median(spent["bare"]) / median(spent["halves"]),
            }
        )
    return rows


def compared(rows: Sequence[Row]) -> list[Row]:
    """Every row's least time in units of hubbub's at 16 bits and the same number of silos."""
    base = {row.silos: row.least for row in rows if row.way == "hubbub" and row.bits == 16}
    return [
        Row(**(asdict(row) | {"times_hubbub": row.least / base[row.silos]}))
        for row in sorted(rows, key=lambda row: (row.silos, row.bits, row.least))
    ]


def collected(options: argparse.Namespace) -> tuple[list[Row], dict[str, dict[str, str]]]:
    """All rows, and the versions of everybody."""
    versions = {
        "hubbub": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "cryptography": version("cryptography"),
        }
    }
    rows: list[Row] = []
    for silos in SILOS:
        for bits in WORDS:
            rows += rows_here(bits, silos, options.tries)
        rows += rows_paper(silos)
        if options.flower:
            command = [options.flower, str(HERE / "flower.py"), str(silos), str(COORDINATES), "5"]
            row, versions["flower"] = row_of_peer("Flower SecAgg+ client", 32, silos, command)
            rows.append(row)
        if options.tenseal:
            command = [options.tenseal, str(HERE / "ckks.py"), str(COORDINATES), "3"]
            row, versions["tenseal"] = row_of_peer("TenSEAL CKKS", 40, silos, command)
            rows.append(row)
    return compared(rows), versions


def text_of(
    rows: Sequence[Row], threads: Sequence[dict[str, float | int]], versions: object
) -> str:
    """The tables in Markdown, with the command and versions that made them."""
    asked = " ".join("PYTHON" if Path(word).is_absolute() else word for word in sys.argv[1:])
    lines = [
        f"# Hiding {COORDINATES:,} coordinates of one silo",
        "",
        f"`python -m benchmarks.secure_sum {asked}` on {os.cpu_count()} cores ({machine()}), "
        f"load {os.getloadavg()[0]:.1f}; versions: {json.dumps(versions)}.",
        "",
        "Milliseconds, the least and the median; N silos, so N - 1 masks. The last column but one "
        "is what the server does for each silo when none is missing.",
        "",
        "| N | way | bits | least ms | median ms | x hubbub-16 | server ms | bytes / coordinate |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        served = "" if row.server_ms_per_silo is None else f"{row.server_ms_per_silo:.2f}"
        sent = "" if row.upload_bytes is None else f"{row.upload_bytes / COORDINATES:.1f}"
        lines.append(
            f"| {row.silos} | {row.way} | {row.bits} | {row.least:.2f} | {row.median:.2f} | "
            f"{row.times_hubbub:.2f} | {served} | {sent} |"
        )
    lines += [
        "",
        "One mask, and what two threads gain; of the bare keystream too, for that is the most that",
        "a mask can: a thread that wakes takes tens of microseconds here, whatever it does then.",
        "",
        "|" + " | ".join(threads[0]) + "|",
    ]
    lines.append("|" + "---|" * len(threads[0]))
    lines += ["|" + " | ".join(f"{value:.4g}" for value in row.values()) + "|" for row in threads]
    return "\n".join(lines) + "\n"


def write(rows: Sequence[Row], text: str) -> None:
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "secure_sum.md").write_text(text)
    write_table(RESULTS / "secure_sum.csv", rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--flower", metavar="PYTHON", help="a Python that has flwr")
    parser.add_argument("--tenseal", metavar="PYTHON", help="a Python that has tenseal")
    parser.add_argument("--tries", type=int, default=TRIES)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="write benchmarks/results")
    options = parser.parse_args()
    rows, versions = collected(options)
    threads = thread_rows(options.tries)
    text = text_of(rows, threads, versions)
    if options.json:
        found = {"results": [asdict(row) for row in rows], "mask": threads, "versions": versions}
        print(json.dumps(found))
    else:
        print(text)
    if options.write:
        write(rows, text)


if __name__ == "__main__":
    main()
