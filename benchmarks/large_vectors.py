"""What vectors of a large model cost the kernel: faults, system time, memory; in own processes.

    python -m benchmarks.large_vectors [--numbers 1000000 17000000 60000000] [--write]

Each row is a process of its own, of which `getrusage` says what it took; imports are taken off. The
limit is the same sum as plain NumPy makes it, with the bare keystream of the same masks; the other
row is the same work without `kept_pages`, which is what the C library does if it is left alone.
Times on a busy machine are long, user's and system's alike; faults and memory are the same.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "large_vectors.csv"
SILOS = 4
_HEAD = """
import json, resource, sys
from contextlib import nullcontext
import numpy as np
import hubbub
from hubbub import kept_pages
from hubbub.protocol.primitives.randomness import cipher_at
numbers, silos, way = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if way == "as the C library":
    kept_pages._glibc = lambda: None
def took():
    one = resource.getrusage(resource.RUSAGE_SELF)
    return np.array([one.ru_utime, one.ru_stime, one.ru_minflt])
"""
_TAIL = """
found = dict(zip(("user", "system", "faults"), (took() - before).tolist()))
found["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
print(json.dumps(found))
"""
_WORK = {
    "secure_sum": """
vectors = [np.arange(numbers) % 7 for _ in range(silos)]
hubbub.secure_sum([[1, 2], [3, 4], [5, 6]])
before = took()
hubbub.secure_sum(vectors)
""",
    "fit, 5 steps of 4 x 100 records": """
side = int((numbers - 1e3) ** 0.5)
rng = np.random.default_rng(0)
data = {
    str(one): (rng.normal(size=(100, 100)).astype("f4"), rng.integers(0, 2, 100))
    for one in range(silos)
}
asked = dict(model="mlp", epsilon=4.0, delta=1e-5, colluders=1)
hubbub.fit(silos=data, steps=1, hidden=[4], **asked)
before = took()
hubbub.fit(silos=data, steps=5, hidden=[side, side], **asked)
""",
}
_LIMIT = """
vectors = [np.arange(numbers) % 7 for _ in range(silos)]
before = took()
total, stream = np.zeros(numbers, dtype=np.uint64), np.zeros(1 << 13, dtype=np.uint8)
for vector in vectors:
    for number in range(silos - 1):
        cipher = cipher_at(number.to_bytes(16, "little"), 0)
        for _ in range(0, vector.nbytes, stream.nbytes):
            cipher.update_into(stream, stream)
    total += vector.view(np.uint64)
"""


def measured(work: str, numbers: int, way: str) -> dict[str, float]:
    """What a process took."""
    run = [sys.executable, "-c", _HEAD + work + _TAIL, str(numbers), str(SILOS), way]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def main() -> None:
    """Print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--numbers", type=int, nargs="+", default=[10**6, 17 * 10**6, 60 * 10**6])
    parser.add_argument("--write", action="store_true", help=f"to {RESULTS}")
    options = parser.parse_args()
    rows = []
    for numbers in options.numbers:
        for name, work in _WORK.items():
            ways = {"hubbub": work, "as the C library": work}
            if name == "secure_sum":
                ways["keystream and sum alone"] = _LIMIT
            for way, script in ways.items():
                found = measured(script, numbers, way)
                share = found["system"] / (found["user"] + found["system"])
                pages = found["faults"] * 4096 / (4 * numbers)
                rows.append(
                    {
                        "what": name,
                        "numbers": numbers,
                        "way": way,
                        "user_s": round(found["user"], 2),
                        "system_s": round(found["system"], 2),
                        "system_share": round(share, 3),
                        "faults_in_4_bytes_a_number": round(pages, 2),
                        "peak_mb": int(found["peak_mb"]),
                    }
                )
                print(*rows[-1].values(), sep="  ", flush=True)
    if options.write:
        with RESULTS.open("w", newline="") as file:
            table = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
            table.writeheader()
            table.writerows(rows)


if __name__ == "__main__":
    main()
