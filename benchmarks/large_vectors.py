"""What vectors of a large model cost the kernel: faults, system time, memory; in own processes.

    python -m benchmarks.large_vectors [--numbers 1000000 17000000 60000000] [--rounds 3] [--write]

Each row is a process of its own, of which `getrusage` says what it took; imports are taken off.
Rounds are interleaved, and a row is the one of least processor time. The limit of a sum is the same
sum as plain NumPy makes it, with the bare keystream of the same masks; that of a training is the
same steps in PyTorch, without clipping, noise or silos: plain gradients and Adam in its fused form.
Opacus (if it is installed) clips the same steps by its ghost norms and adds its noise, for one
trusted holder of all records. The other row is the same work without `kept_pages`, which is what
the C library does if it is left alone. `of_limit` is processor time over the limit's. Times on a
busy machine are long, user's and system's alike; ratios, faults and memory tell more.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from benchmarks.result_table import write_table

RESULTS = Path(__file__).parent / "results" / "large_vectors.csv"
SILOS = 4
_HEAD = """
import json, resource, sys
from contextlib import nullcontext
import numpy as np
import hubbub
from hubbub.core import kept_pages
from hubbub.core.protocol.primitives.randomness import cipher_at
numbers, silos, way = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if way == "as the C library":
    kept_pages._glibc = lambda: None
def took():
    one = resource.getrusage(resource.RUSAGE_SELF)
    return np.array([one.ru_utime, one.ru_stime, one.ru_minflt])
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() >> 20
"""
_TAIL = """
found = dict(zip(("user", "system", "faults"), (took() - before).tolist()))
found["base_mb"] = base
found["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
print(json.dumps(found))
"""
_WORK = {
    "secure_sum": """
vectors = [np.arange(numbers) % 7 for _ in range(silos)]
hubbub.secure_sum([[1, 2], [3, 4], [5, 6]])
before, base = took(), resident()
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
before, base = took(), resident()
hubbub.fit(silos=data, steps=5, hidden=[side, side], **asked)
""",
}
_LIMIT = """
vectors = [np.arange(numbers) % 7 for _ in range(silos)]
before, base = took(), resident()
total, stream = np.zeros(numbers, dtype=np.uint64), np.zeros(1 << 13, dtype=np.uint8)
for vector in vectors:
    for number in range(silos - 1):
        cipher = cipher_at(number.to_bytes(16, "little"), 0)
        for _ in range(0, vector.nbytes, stream.nbytes):
            cipher.update_into(stream, stream)
    total += vector.view(np.uint64)
"""

_STEPS = """
import functools, torch
from torch import nn
rows = 100
def made(side):
    layers = [nn.Linear(100, side), nn.ReLU(), nn.Linear(side, side), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(side, 1), nn.Flatten(0))
loss = functools.partial(nn.functional.binary_cross_entropy_with_logits, reduction="none")
data = [(torch.randn(rows, 100), torch.randint(2, (rows,)).float()) for _ in range(silos)]
"""
_TIMED = """
steps(4)
before, base = took(), resident()
steps(int((numbers - 1e3) ** 0.5))
"""
_PLAIN = """
def steps(side):
    model = made(side)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    for _ in range(5):
        optimizer.zero_grad(set_to_none=False)
        for x, y in data:
            loss(model(x), y).sum().backward()
        optimizer.step()
"""
_OPACUS = """
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizerFastGradientClipping
def steps(side):
    model = GradSampleModuleFastGradientClipping(
        made(side), max_grad_norm=1.0, loss_reduction="sum"
    )
    optimizer = DPOptimizerFastGradientClipping(
        torch.optim.Adam(model.parameters(), fused=True), noise_multiplier=1.0, max_grad_norm=1.0,
        expected_batch_size=silos * rows, loss_reduction="sum",
    )
    x, y = (torch.cat(both) for both in zip(*data))
    for _ in range(5):
        optimizer.zero_grad()
        model.enable_hooks()
        losses = loss(model(x), y)
        losses.sum().backward(retain_graph=True)
        factors = model.get_clipping_coef()
        optimizer.zero_grad()
        model.disable_hooks()
        (factors * losses).sum().backward()
        optimizer.step()
"""


def measured(work: str, numbers: int, way: str) -> dict[str, float]:
    """What a process took."""
    run = [sys.executable, "-c", _HEAD + work + _TAIL, str(numbers), str(SILOS), way]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def _processor(found: dict[str, float]) -> float:
    return found["user"] + found["system"]


def _ways(name: str) -> tuple[str, dict[str, str]]:
    """The limit, and scripts by what they stand for."""
    ways = {"hubbub": _WORK[name], "as the C library": _WORK[name]}
    if name == "secure_sum":
        return "keystream and sum alone", {**ways, "keystream and sum alone": _LIMIT}
    if find_spec("opacus"):
        ways["Opacus, ghost norms"] = _STEPS + _OPACUS + _TIMED
    return "plain PyTorch", {**ways, "plain PyTorch": _STEPS + _PLAIN + _TIMED}


def main() -> None:
    """Print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--numbers", type=int, nargs="+", default=[10**6, 17 * 10**6, 60 * 10**6])
    parser.add_argument("--write", action="store_true", help=f"to {RESULTS}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", nargs="+", default=list(_WORK), choices=list(_WORK))
    options = parser.parse_args()
    rows = []
    for numbers in options.numbers:
        for name in options.work:
            limit, ways = _ways(name)
            spent: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
            for _ in range(options.rounds):
                for way, script in ways.items():
                    spent[way].append(measured(script, numbers, way))
            least = {way: min(found, key=_processor) for way, found in spent.items()}
            for way, found in least.items():
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
                        "of_limit": round(_processor(found) / _processor(least[limit]), 2),
                        "faults_in_4_bytes_a_number": round(pages, 2),
                        "peak_mb": int(found["peak_mb"]),
                        "peak_in_4_bytes_a_number": round(
                            (found["peak_mb"] - found["base_mb"]) * 2**20 / (4 * numbers), 1
                        ),
                    }
                )
                print(*rows[-1].values(), sep="  ", flush=True)
    if options.write:
        write_table(RESULTS, rows)


if __name__ == "__main__":
    main()
