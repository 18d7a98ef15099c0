"""CKKS by TenSEAL on one vector: run by a Python that has tenseal.

    /path/to/tenseal/bin/python ckks.py COORDINATES TRIES

Encrypts and serialises the vector in full slots, with the parameters that NVIDIA FLARE's examples
use (degree 8192, moduli of 60, 40 and 40 bits, scale 2^40). One key decrypts every client's vector:
it hides vectors from the server only. The server's part is one addition of two such vectors.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from importlib.metadata import version
from statistics import median

import numpy as np
import tenseal

DEGREE, MODULI, SCALE = 8192, [60, 40, 40], 2.0**40


def main() -> None:
    coordinates, tries = map(int, sys.argv[1:])
    context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, DEGREE, coeff_mod_bit_sizes=MODULI)
    context.global_scale = SCALE
    vector = np.random.default_rng(0).normal(size=coordinates)
    pieces = [vector[low : low + DEGREE // 2] for low in range(0, coordinates, DEGREE // 2)]
    spent, size = [], 0
    for _ in range(tries):
        start = time.perf_counter()
        sent = [tenseal.ckks_vector(context, piece).serialize() for piece in pieces]
        spent.append(1e3 * (time.perf_counter() - start))
        size = sum(map(len, sent))
    start = time.perf_counter()
    mine = [tenseal.ckks_vector_from(context, data) for data in sent]
    for one in mine:
        one.add_(one)
    served = 1e3 * (time.perf_counter() - start)
    print(
        json.dumps(
            {
                "least": min(spent),
                "median": median(spent),
                "server_least": served,
                "bytes": size,
                "versions": {
                    "tenseal": version("tenseal"),
                    "numpy": np.__version__,
                    "python": platform.python_version(),
                },
            }
        )
    )


if __name__ == "__main__":
    main()
