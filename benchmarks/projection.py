"""Random projections made on the fly: both kinds against a Gaussian matrix from torch.

    python benchmarks/projection.py [--rounds 5] [--threads 2] [--sizes 900000x400] [--json]

Times are minima over interleaved rounds in one process, in milliseconds: other work on the machine
only ever adds. "torch gaussian", the peer, draws float32 blocks of the same matrix size and
multiplies. The limit for signs is their keystream, 16/20 bits an entry.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from math import sqrt

import numpy as np
import torch

from hubbub.projection import Draw, Effort, Projection, lift, project
from hubbub.randomness import CHUNK_BYTES, cipher_at, keystream_into

DRAW = Draw(seed=bytes(range(32)), step=1)
SIZES = "900000x400,1000000x50,1000000x100,1000000x200,1000000x400"
_BLOCK = 2048


def torch_project(vector: torch.Tensor, dimension: int) -> torch.Tensor:
    """The same product with a matrix from torch's generator, block by block."""
    generator = torch.Generator().manual_seed(1)
    out = torch.zeros(dimension)
    for part in vector.split(_BLOCK):
        out += torch.randn(dimension, len(part), generator=generator) @ part
    return out / sqrt(dimension)


def keystream(size: int) -> None:
    """So many bytes of AES-CTR, in place."""
    cipher, buffer = cipher_at(bytes(16), 0), np.empty(CHUNK_BYTES, dtype=np.uint8)
    for _ in range(size // CHUNK_BYTES):
        keystream_into(cipher, buffer.data)


def milliseconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e3


def cases(parameters: int, dimension: int, threads: int) -> dict[str, Callable[[], object]]:
    vector = np.random.default_rng(0).normal(size=parameters)
    vector *= 20 / np.linalg.norm(vector)
    tensor = torch.from_numpy(vector).float()
    work: dict[str, Callable[[], object]] = {
        "torch gaussian": lambda: torch_project(tensor, dimension),
        "limit sign": lambda: keystream(parameters * dimension // 10),
    }
    for kind in ("sign", "gaussian"):
        shape = Projection(
            kind=kind, parameters=parameters, dimension=dimension, clip=1.0, records=400
        )
        for workers in sorted({1, threads}):
            effort = Effort(workers=workers)
            projected = project(vector, shape, DRAW, effort)
            check = vector @ lift(projected, shape, DRAW, effort) / (vector @ vector)
            assert abs(check - projected @ projected / (vector @ vector)) < 1e-6
            work[f"{kind} project, {workers} threads"] = lambda shape=shape, effort=effort: project(
                vector, shape, DRAW, effort
            )
            work[f"{kind} lift, {workers} threads"] = (
                lambda shape=shape, effort=effort, y=projected: lift(y, shape, DRAW, effort)
            )
    return work


def measured(work: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    best = dict.fromkeys(work, float("inf"))
    for turn in range(rounds):
        for name, one in work.items():
            # The Gaussian products take seconds; two turns of them are enough.
            if turn < 2 or not name.startswith("gaussian"):
                best[name] = min(best[name], milliseconds(one))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = []
    for size in options.sizes.split(","):
        parameters, dimension = (int(part) for part in size.split("x"))
        best = measured(cases(parameters, dimension, options.threads), options.rounds)
        for name, value in best.items():
            row = {"d": parameters, "k": dimension, "name": name, "ms": round(value, 1)}
            rows.append(row | {"torch / this": round(best["torch gaussian"] / value, 1)})
            if not options.json:
                ratio = rows[-1]["torch / this"]
                print(
                    f"{parameters:>9} {dimension:>5}  {name:<28} {value:>9.1f} ms {ratio:>7.1f} x"
                )
    if options.json:
        print(json.dumps({"results": rows}))


if __name__ == "__main__":
    main()
