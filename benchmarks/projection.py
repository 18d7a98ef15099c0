"""Random projections made on the fly, against a Gaussian matrix from torch.

    python -m benchmarks.projection [--rounds 7] [--sizes 900000x400] [--kinds sign,gaussian]
                                    [--write] [--json]

Times are minima over interleaved rounds in one process, in milliseconds: other work on the machine
only ever adds. "torch", the peer, draws float32 blocks of a Gaussian matrix of the same size and
multiplies, with torch's own number of threads; ours has one. The limit for signs is their
keystream, 16/20 bits an entry, on one core. `cpu_ms` is the processor time of all threads, which
other work changes less. `load` is the machine's when the size was begun: above 0, somebody else had
a part of it.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import sqrt
from pathlib import Path

import numpy as np
import torch

from benchmarks.result_table import write_table
from hubbub.core.protocol.primitives.randomness import CHUNK_BYTES, cipher_at, keystream_into
from hubbub.core.protocol.projection.matrix import Projection
from hubbub.core.protocol.projection.projected_sum import lift, project
from hubbub.core.protocol.round.draw import Draw

DRAW = Draw(seed=bytes(range(32)), step=1)
SIZES = "900000x100,900000x400,900000x1000"
RESULTS = Path(__file__).with_name("results")
_BLOCK = 2048
_SLOW_ROUNDS = 2  # products with Gaussian matrices take seconds

Work = Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One product: its time, and that of torch, or of the keystream, in units of it or for it."""

    d: int
    k: int
    product: str
    kind: str
    threads: int
    ms: float
    cpu_ms: float
    torch_over_this: float
    this_over_limit: float | None
    load: float


def torch_project(vector: torch.Tensor, dimension: int) -> torch.Tensor:
    """P^T x with a matrix from torch's generator, block by block."""
    generator = torch.Generator().manual_seed(1)
    out = torch.zeros(dimension)
    for part in vector.split(_BLOCK):
        out += torch.randn(dimension, len(part), generator=generator) @ part
    return out / sqrt(dimension)


def torch_lift(projected: torch.Tensor, parameters: int) -> torch.Tensor:
    """P y with the same matrix."""
    generator = torch.Generator().manual_seed(1)
    out = torch.empty(parameters)
    for part in out.split(_BLOCK):
        torch.mv(torch.randn(len(projected), len(part), generator=generator).T, projected, out=part)
    return out / sqrt(len(projected))


def keystream(size: int) -> None:
    """So many bytes of AES-CTR, in place."""
    cipher, buffer = cipher_at(bytes(16), 0), np.empty(CHUNK_BYTES, dtype=np.uint8)
    for _ in range(size // CHUNK_BYTES):
        keystream_into(cipher, buffer.data)


def milliseconds(work: Work) -> np.ndarray:
    """By the clock and by the processors."""
    clocks = (time.perf_counter, time.process_time)
    start = [clock() for clock in clocks]
    work()
    return np.array([clock() - then for clock, then in zip(clocks, start, strict=True)]) * 1e3


def ours(kind: str, vector: np.ndarray, dimension: int) -> tuple[Work, Work]:
    """Both products, seen to belong to one matrix."""
    shape = Projection(
        kind=kind, parameters=vector.size, dimension=dimension, clip=1.0, records=400
    )
    projected = project(vector, shape, DRAW)
    length = float(vector @ vector)
    there = vector @ lift(projected, shape, DRAW) / length
    assert abs(there - projected @ projected / length) < 1e-6
    return (
        lambda: project(vector, shape, DRAW),
        lambda: lift(projected, shape, DRAW),
    )


def cases(parameters: int, dimension: int, kinds: str) -> dict[tuple[str, str, int], Work]:
    """What is timed, by product, kind and threads."""
    vector = np.random.default_rng(0).normal(size=parameters)
    vector *= 20 / np.linalg.norm(vector)
    long, short = torch.from_numpy(vector).float(), torch.randn(dimension)
    work: dict[tuple[str, str, int], Work] = {
        ("project", "torch", torch.get_num_threads()): lambda: torch_project(long, dimension),
        ("lift", "torch", torch.get_num_threads()): lambda: torch_lift(short, parameters),
        ("both", "limit", 1): lambda: keystream(parameters * dimension // 10),
    }
    for kind in kinds.split(","):
        there, back = ours(kind, vector, dimension)
        work |= {("project", kind, 1): there, ("lift", kind, 1): back}
    return work


def rows(parameters: int, dimension: int, options: argparse.Namespace) -> list[Row]:
    """All products of one size."""
    load = os.getloadavg()[0]
    work = cases(parameters, dimension, options.kinds)
    best = {name: np.full(2, np.inf) for name in work}
    for turn in range(options.rounds):
        for name, one in work.items():
            if turn < _SLOW_ROUNDS or name[1] in ("sign", "limit"):
                best[name] = np.minimum(best[name], milliseconds(one))
    peers = {product: ms for (product, kind, _), (ms, _) in best.items() if kind == "torch"}
    limit, _ = best["both", "limit", 1]
    return [
        Row(
            d=parameters, k=dimension, product=product, kind=kind, threads=threads,
            ms=round(ms, 2), cpu_ms=round(cpu, 2),
            torch_over_this=round(peers.get(product, peers["project"]) / ms, 2),
            this_over_limit=round(ms / limit, 2) if kind in ("sign", "limit") else None,
            load=round(load, 2),
        )
        for (product, kind, threads), (ms, cpu) in best.items()
    ]  # fmt: skip


def show(row: Row) -> None:
    """One line for a reader."""
    name = f"{row.kind} {row.product}, {row.threads} threads"
    times = f"{row.ms:>8.1f} ms {row.cpu_ms:>8.1f} cpu  torch / this {row.torch_over_this:>6.1f}"
    print(f"{row.d:>9} {row.k:>5}  {name:<28} {times}  load {row.load:.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--kinds", default="sign", help="sign, or sign,gaussian: takes minutes")
    parser.add_argument("--write", action="store_true", help="write benchmarks/results")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found: list[Row] = []
    for size in options.sizes.split(","):
        parameters, dimension = (int(part) for part in size.split("x"))
        found += rows(parameters, dimension, options)
        if not options.json:
            for row in found:
                if (row.d, row.k) == (parameters, dimension):
                    show(row)
    if options.write:
        write_table(RESULTS / "projection.csv", found)
    if options.json:
        print(json.dumps({"results": [asdict(row) for row in found]}))


if __name__ == "__main__":
    main()
