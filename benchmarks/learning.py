"""Clipped gradient sums against a plain forward and backward, and against Opacus.

    python -m benchmarks.learning [--models A2,B] [--methods plain,hubbub] [--rounds 25]
                                   [--threads 1] [--write] [--json]

Times are the least over interleaved rounds in one process, since other work on the machine only
ever adds; the ratios are of processor time, which it adds least to. With more than one thread that
holds their waiting for each other as well: then read "wall ratio", on a quiet machine. Peak memory
is what one call adds to the high-water mark of a fresh process, the median of some. The limit is
the plain sum of gradients, without any clipping. "hubbub" takes as many records at once as a silo
does, which finds that out once for a study. "hubbub-layered" projects every record layer by
layer to 400 numbers (half the model's if that is less) and then clips; "of clipped" is a method's
time over that of "hubbub".

    A2  784-536-536-536-10 without biases: the paper's "model 1m"
    B   1600-384-384-384-10 without biases: the paper's CIFAR-10 head on cached features
    C   B with its two convolutions, on 32 x 32 images
    D   embedding, two transformer encoder layers of width 128, 64 words
    E   logistic regression with 30 features
    L   a frozen transformer of 10.2 million parameters (8 layers of width 320, 32 words) with
        adapters of rank 8 on queries and values, and a head: 82,570 are trained

Asked for: A2 and B at batch 400 within 1.5 times plain, in time, and within 2 times, in memory;
faster than Opacus in both its modes everywhere; the layered projection within 1.3 times the clipped
sum. Seen: results/large_models.md and learning.csv.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import importlib.util
import json
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from benchmarks.result_table import write_table
from hubbub.learning import build_model, clipped_sum
from hubbub.learning.batches import batch_of, even_size
from hubbub.learning.clipped_sums import affordable, chain_of
from hubbub.learning.frozen import LowRank, _adapt, _targets
from hubbub.learning.layer_projection import LayerProjection

CLIP = 1.0
DIMENSION = 400
_LARGE = 200.0  # megabytes, beside which what differs between processes is little
TABLE = Path(__file__).parent / "results" / "learning.csv"
LOSS = functools.partial(functional.cross_entropy, reduction="none")
CASES = [
    ("A2", 13),
    ("A2", 400),
    ("B", 13),
    ("B", 400),
    ("C", 40),
    ("C", 400),
    ("D", 40),
    ("E", 400),
    ("L", 40),
]


class Words(nn.Module):
    """Model D."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
        self.words = nn.Embedding(10_000, 128)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(128, 10)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits (n, 10) of word numbers (n, 64)."""
        return self.head(self.body(self.words(ids)).mean(1))


class Block(nn.Module):
    """A transformer layer whose projections are plain Linear layers, which Opacus takes as well."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, t, width) to the same."""
        y = self.first(x)
        split = [
            one(y).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for one in (self.query, self.key, self.value)
        ]
        met = functional.scaled_dot_product_attention(*split)
        x = x + self.out(met.transpose(1, 2).flatten(2))
        return x + self.narrow(functional.gelu(self.wide(self.second(x))))


class Frozen(nn.Module):
    """Model L's frozen module."""

    def __init__(self, width: int = 320, layers: int = 8) -> None:
        super().__init__()
        self.words = nn.Embedding(1000, width)
        self.blocks = nn.Sequential(*(Block(width, 5) for _ in range(layers)))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Features (n, width) of word numbers (n, t)."""
        return self.blocks(self.words(ids)).mean(1)


def adapted() -> nn.Module:
    """Model L, with an adapter of which no gradient is zero."""
    base = Frozen().requires_grad_(requires_grad=False)
    for layer in _targets(base, ("query", "value")):
        _adapt(layer, 8)
    model = LowRank(base, 320, 10)
    for parameter in model.parameters():
        if parameter.requires_grad:
            nn.init.normal_(parameter, std=0.05)
    return model


class Case(NamedTuple):
    """A model with a batch."""

    model: nn.Module
    inputs: torch.Tensor
    targets: torch.Tensor


def made(name: str, records: int) -> Case:
    torch.manual_seed(0)
    build = functools.partial(build_model, outputs=10, bias=False, seed=b"benchmark")
    targets = torch.randint(10, (records,))
    if name == "A2":
        model = build("mlp", inputs=(784,), hidden=[536] * 3)
    elif name == "B":
        model = build("mlp", inputs=(1600,), hidden=[384] * 3)
    elif name == "C":
        model = build("cnn", inputs=(3, 32, 32))
    elif name == "L":
        return Case(adapted(), torch.randint(1000, (records, 32)), targets)
    elif name == "D":
        return Case(Words(), torch.randint(10_000, (records, 64)), targets)
    else:
        model, targets = build_model("logistic", inputs=(30,), outputs=2, seed=b""), targets % 2
    shape = {"A2": (784,), "B": (1600,), "C": (3, 32, 32), "E": (30,)}[name]
    return Case(model, torch.randn(records, *shape), targets)


def trained(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def plain(case: Case) -> Callable[[], object]:
    wanted = trained(case.model)

    def run() -> object:
        losses = LOSS(case.model(case.inputs), case.targets)
        return torch.cat([g.reshape(-1) for g in torch.autograd.grad(losses.sum(), wanted)])

    return run


def hubbub(case: Case, method: str = "") -> Callable[[], object]:
    batch = case.inputs, case.targets
    if not method:
        method = "chain" if chain_of(case.model, LOSS, batch_of(*batch)) else "vmap"
    most, _ = affordable(case.model, LOSS, *batch, method)
    chunk = even_size(len(case.inputs), most)
    return lambda: clipped_sum(case.model, LOSS, *batch, CLIP, method=method, chunk=chunk)


def layered(case: Case) -> Callable[[], object]:
    dimension = min(DIMENSION, sum(p.numel() for p in trained(case.model)) // 2)
    projection = LayerProjection.of(case.model, dimension)
    batch = case.inputs, case.targets
    return lambda: projection.clipped_sum(case.model, LOSS, *batch, CLIP, bytes(16))


def in_training(model: nn.Module) -> nn.Module:
    """Opacus overlooks layers in evaluation mode, where adapters of a frozen module are."""
    for module in model.modules():
        module.training = True
    return model


def opacus_hooks(case: Case) -> Callable[[], object]:
    from opacus import GradSampleModule
    from opacus.validators import ModuleValidator

    model = GradSampleModule(in_training(ModuleValidator.fix(case.model)), loss_reduction="sum")
    wanted = trained(model)

    def run() -> object:
        model.zero_grad()
        LOSS(model(case.inputs), case.targets).sum().backward()
        norms = torch.stack([p.grad_sample.flatten(1).norm(dim=1) for p in wanted]).norm(dim=0)
        factors = (CLIP / (norms + 1e-6)).clamp(max=1)
        pieces = [(factors @ p.grad_sample.flatten(1)) for p in wanted]
        for p in wanted:
            p.grad_sample = None
        return torch.cat(pieces)

    return run


def opacus_ghost(case: Case) -> Callable[[], object]:
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.validators import ModuleValidator

    model = GradSampleModuleFastGradientClipping(
        in_training(ModuleValidator.fix(case.model)), max_grad_norm=CLIP, loss_reduction="sum"
    )

    def run() -> object:
        model.zero_grad()
        model.enable_hooks()
        losses = LOSS(model(case.inputs), case.targets)
        losses.sum().backward(retain_graph=True)
        factors = model.get_clipping_coef()
        model.zero_grad()
        model.disable_hooks()
        (factors * losses).sum().backward()
        return torch.cat([p.grad.reshape(-1) for p in trained(model)])

    return run


METHODS: dict[str, Callable[[Case], Callable[[], object]]] = {
    "plain": plain,
    "hubbub": hubbub,
    "hubbub-vmap": functools.partial(hubbub, method="vmap"),
    "hubbub-loop": functools.partial(hubbub, method="loop"),
    "hubbub-layered": layered,
    "opacus-ghost": opacus_ghost,
    "opacus-hooks": opacus_hooks,
}


class Spent(NamedTuple):
    """Least milliseconds of one method, by two clocks."""

    wall: float
    cpu: float


def least(name: str, records: int, rounds: int, budget: float) -> dict[str, Spent]:
    """Of every method, interleaved; a slow one stops when its time is spent."""
    runs = {m: METHODS[m](made(name, records)) for m in METHODS if present(m)}
    times: dict[str, list[Spent]] = {method: [] for method in runs}
    for run in runs.values():
        run()
    for _ in range(rounds):
        for method, run in runs.items():
            if len(times[method]) < 3 or sum(t.wall for t in times[method]) < 1e3 * budget:
                times[method].append(spent(run))
    return {
        method: Spent(*(min(clock) for clock in zip(*found, strict=True)))
        for method, found in times.items()
    }


def spent(run: Callable[[], object]) -> Spent:
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return Spent(1e3 * (time.perf_counter() - wall), 1e3 * (time.process_time() - cpu))


def present(method: str) -> bool:
    return "opacus" not in method or importlib.util.find_spec("opacus") is not None


def high_water() -> float:
    """Megabytes that this process has held at most; Linux's ru_maxrss would count its parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def peak(name: str, records: int, method: str, options: argparse.Namespace) -> float:
    """Megabytes that one call adds in a fresh process: small ones are the median of several."""
    command = [sys.executable, "-m", "benchmarks.learning", "--peak", f"{name},{records},{method}"]
    command += ["--threads", str(options.threads)]
    peaks: list[float] = []
    while len(peaks) < options.processes and (not peaks or peaks[0] < _LARGE):
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        peaks.append(float(found))
    return statistics.median(peaks)


def peak_here(name: str, records: int, method: str) -> float:
    METHODS[method](made(name, 2))()  # loads what the first call loads
    run = METHODS[method](made(name, records))
    ctypes.CDLL(None).malloc_trim(0)  # what finding out how many records to take has left
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark is what is resident now
    before = high_water()
    run()
    return high_water() - before


def measured(name: str, records: int, options: argparse.Namespace) -> list[dict[str, object]]:
    times = least(name, records, options.rounds, options.seconds)
    peaks = {method: peak(name, records, method, options) for method in times}
    return [
        {
            "model": name,
            "batch": records,
            "method": method,
            "ms": round(found.wall, 3),
            "cpu_ms": round(found.cpu, 3),
            "of plain": round(found.cpu / times["plain"].cpu, 2),
            "of clipped": round(found.cpu / times["hubbub"].cpu, 2),
            "peak_mb": round(peaks[method], 1),
            "peak of plain": round(peaks[method] / max(peaks["plain"], 0.1), 2),
        }
        for method, found in times.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="A2,B,C,D,E,L")
    parser.add_argument("--methods", default=",".join(METHODS), help="plain and hubbub at least")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--seconds", type=float, default=4.0, help="at most, per method")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--processes", type=int, default=3, help="for each peak of memory")
    parser.add_argument("--write", action="store_true", help="keep the table in results/")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for method in METHODS.keys() - set(options.methods.split(",")):
        del METHODS[method]
    warnings.simplefilter("ignore")  # Opacus and vmap advise on speed
    if options.peak:
        name, records, method = options.peak.split(",")
        print(peak_here(name, int(records), method))
        return
    rows: list[dict[str, object]] = []
    for name, records in CASES:
        if name in options.models.split(","):
            rows += measured(name, records, options)
            if not options.json:
                show(rows[-len(METHODS) :], name, records)
    if options.write:
        write(rows, options.threads)
    if options.json:
        print(json.dumps({"results": rows, "threads": options.threads, "torch": torch.__version__}))


def write(rows: list[dict[str, object]], threads: int) -> None:
    """Keep the rows in place of older ones of the same models."""
    new = [row | {"threads": threads, "torch": torch.__version__} for row in rows]
    write_table(TABLE, new, of="model", order=[model for model, _ in CASES])


def show(rows: list[dict[str, object]], name: str, records: int) -> None:
    """One case as a small table."""
    columns = (
        "ms",
        "wall ratio",
        "cpu_ms",
        "of plain",
        "of clipped",
        "peak_mb",
        "peak of plain",
    )
    (plain_ms,) = (row["ms"] for row in rows if row["method"] == "plain")
    print(f"{name}, batch {records}\n  {'method':14}" + "".join(f"{c:>15}" for c in columns))
    for row in rows:
        if (row["model"], row["batch"]) == (name, records):
            told = row | {"wall ratio": row["ms"] / plain_ms}
            print(f"  {row['method']:14}" + "".join(f"{told[c]:15.2f}" for c in columns))
    for method in METHODS:
        if not present(method):
            print(f"  {method:14}  not installed (pip install opacus==1.6.0)")


if __name__ == "__main__":
    main()
