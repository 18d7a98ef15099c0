"""Clipped sums on a GPU beside plain training and Opacus: builds, checks and times in one run.

    python benchmarks/gpu.py [--device cuda] [--rows A2,WRN] [--seconds 270] [--write]
    python benchmarks/gpu.py --device cpu --small      # a try without a GPU

Each row is a model and a batch, which `clipped_sum` is given at once. Before it is timed, its sum
of a few records is compared with what autograd gives for one after the other in float64, and each
of them alone with the clip. "plain" is one forward and backward without clipping, at the same
precision and in the same run; "x plain" is a ratio of medians, "memory" of the peaks that torch has
allocated. What there is no time for is left out and said. `--write` keeps the table under the
card's name in results/.

    A2, B, C, D, L   as in benchmarks/learning.py
    WRN              a wide residual network of depth 16 and width 4, with GroupNorm, 32 x 32 images
    GPT              a transformer of 85 million parameters, 128 words
    ViT, UNet, GRU   a vision transformer, a U-Net with transposed convolutions, two layers of GRU

Aims: at most 1.5 x plain at a row's larger batch, 2.5 at its smaller, never slower than Opacus'
faster mode, and at most 1.5 times plain's memory.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.learning import CLIP, LOSS, METHODS, Block, Case, made, present, trained
from hubbub.learning import build_model, clipped_sum, device_sums

RESULTS = Path(__file__).parent / "results"
CHECKED = 4  # records
TOLERANCES = {"float32": 1e-5, "tf32": 2e-2, "bf16": 1e-1}


class Transformer(nn.Module):
    """Words or patches through plain blocks."""

    def __init__(self, into: nn.Module, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.into = into
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (n, 10)."""
        y = self.into(x)
        y = y.flatten(2).mT if y.dim() == 4 else y
        return self.head(self.blocks(y).mean(1))


class UNet(nn.Module):
    """Two steps down and up again, with skips."""

    def __init__(self, width: int) -> None:
        super().__init__()
        sizes = (width, 2 * width, 4 * width)
        self.into = nn.Conv2d(3, width, 3, padding=1)
        self.downs = nn.ModuleList(
            nn.Conv2d(low, high, 3, stride=2, padding=1) for low, high in pairwise(sizes)
        )
        self.ups = nn.ModuleList(
            nn.ConvTranspose2d(high, low, 2, stride=2)
            for high, low in zip(sizes[:0:-1], sizes[-2::-1], strict=True)
        )
        self.joins = nn.ModuleList(
            nn.Sequential(nn.Conv2d(2 * size, size, 3, padding=1), nn.GroupNorm(8, size), nn.SiLU())
            for size in sizes[-2::-1]
        )
        self.out = nn.Conv2d(width, 10, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (n, 10) of the mean place."""
        seen = [self.into(x)]
        for down in self.downs:
            seen.append(functional.silu(down(seen[-1])))
        y = seen.pop()
        for up, join in zip(self.ups, self.joins, strict=True):
            y = join(torch.cat([up(y), seen.pop()], dim=1))
        return self.out(y).mean((2, 3))


class Recurrent(nn.Module):
    """Words through two layers of GRU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(5000, width)
        self.body = nn.GRU(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, 10)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits (n, 10)."""
        return self.head(self.body(self.words(ids))[0].mean(1))


class Row(NamedTuple):
    """A model with the batches that it is timed at, and those of the small form."""

    name: str
    batches: tuple[int, ...]
    case: Callable[[int, bool], Case]
    peers: tuple[str, ...] = ("opacus-ghost", "opacus-hooks")


def images(records: int, side: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(records, 3, side, side), torch.randint(10, (records,))


def wide_resnet(records: int, small: bool) -> Case:
    depth, width, side = (10, 1, 8) if small else (16, 4, 32)
    options = {"inputs": (3, side, side), "outputs": 10, "depth": depth, "width": width}
    return Case(build_model("wide-resnet", seed=b"gpu", **options), *images(records, side))


def words(records: int, small: bool) -> Case:
    width, layers, vocabulary = (16, 1, 50) if small else (768, 12, 8000)
    model = Transformer(nn.Embedding(vocabulary, width), width, layers, width // 8 if small else 12)
    ids = torch.randint(vocabulary, (records, 8 if small else 128))
    return Case(model, ids, torch.randint(10, (records,)))


def patches(records: int, small: bool) -> Case:
    width, layers, side, step = (16, 1, 8, 4) if small else (384, 8, 64, 8)
    into = nn.Conv2d(3, width, step, stride=step)
    return Case(Transformer(into, width, layers, 2 if small else 6), *images(records, side))


def u_net(records: int, small: bool) -> Case:
    return Case(UNet(8 if small else 32), *images(records, 8 if small else 64))


def recurrent(records: int, small: bool) -> Case:
    ids = torch.randint(5000, (records, 6 if small else 64))
    return Case(Recurrent(8 if small else 256), ids, torch.randint(10, (records,)))


def learning(name: str) -> Callable[[int, bool], Case]:
    return lambda records, _: made(name, records)


ROWS = (
    Row("A2", (400, 8192), learning("A2")),
    Row("B", (4096,), learning("B")),
    Row("C", (400, 4096), learning("C")),
    Row("L", (40, 1024), learning("L")),
    Row("D", (400,), learning("D"), peers=()),
    Row("WRN", (64, 512), wide_resnet),
    Row("GPT", (16, 128), words),
    Row("ViT", (256,), patches),
    Row("UNet", (128,), u_net),
    Row("GRU", (512,), recurrent, peers=()),
)


def hubbub(case: Case, precision: str) -> Callable[[], object]:
    batch = case.inputs, case.targets
    return lambda: clipped_sum(case.model, LOSS, *batch, CLIP, precision=precision)


def method(name: str, case: Case, precision: str) -> Callable[[], object]:
    if name == "hubbub":
        return hubbub(case, precision)
    run, kind = METHODS[name](case), case.inputs.device.type

    def at_precision() -> object:
        matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
        matmul.allow_tf32 = cudnn.allow_tf32 = precision == "tf32"
        with torch.autocast(kind, torch.bfloat16, enabled=precision == "bf16"):
            return run()

    return at_precision


def on(case: Case, device: str) -> Case:
    return Case(*(part.to(device) for part in case))


def checked(case: Case, precision: str) -> tuple[float, float]:
    """The error of the sum of a few records, relative; and the longest part, in clips."""
    few = case.inputs[:CHECKED], case.targets[:CHECKED]
    wide, rows = copy.deepcopy(case.model).double(), []
    for x, y in zip(few[0].split(1), few[1].split(1), strict=True):
        loss = LOSS(wide(x.double() if x.is_floating_point() else x), y).sum()
        parts = torch.autograd.grad(loss, trained(wide))
        rows.append(torch.cat([part.reshape(-1) for part in parts]))
    gradients = torch.stack(rows)
    clip = float(gradients.norm(dim=1).median())
    wanted = (gradients * (clip / gradients.norm(dim=1)).clamp(max=1)[:, None]).sum(0)
    total = clipped_sum(case.model, LOSS, *few, clip, precision=precision).vector
    lengths = [
        float(clipped_sum(case.model, LOSS, x, y, clip / 2, precision=precision).vector.norm())
        for x, y in zip(few[0].split(1), few[1].split(1), strict=True)
    ]
    return float((total - wanted).norm() / wanted.norm()), max(lengths) / (clip / 2)


def timed(run: Callable[[], object], budget: float) -> tuple[float, float | None]:
    """Median milliseconds of a call, and megabytes at the peak."""
    cuda = torch.cuda.is_available()
    wait: Callable[[], object] = torch.cuda.synchronize if cuda else lambda: None
    run()
    wait()
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    times: list[float] = []
    begun = time.perf_counter()
    while len(times) < 3 or (len(times) < 30 and time.perf_counter() - begun < budget):
        start = time.perf_counter()
        run()
        wait()
        times.append(1e3 * (time.perf_counter() - start))
    peak = torch.cuda.max_memory_allocated() / 2**20 if cuda else None
    return statistics.median(times), peak


def cells(options: argparse.Namespace) -> Iterator[tuple[Row, int, str, str]]:
    """What is measured: float32 of all rows first, then what is shorter."""
    names = options.rows.split(",") if options.rows else [row.name for row in ROWS]
    for precision in options.precisions.split(","):
        for row in ROWS:
            batches = (CHECKED,) if options.small else row.batches
            for records in batches if row.name in names else ():
                peers = row.peers if precision != "bf16" else ()
                for name in ("plain", "hubbub", *filter(present, peers)):
                    yield row, records, precision, name


def measured(
    row: Row, records: int, precision: str, name: str, options: argparse.Namespace
) -> dict:
    torch.manual_seed(0)
    case = on(row.case(records, options.small), options.device)
    result: dict[str, object] = {
        "model": row.name,
        "batch": records,
        "precision": precision,
        "method": name,
    }
    try:
        if name == "hubbub":
            result["error"], result["longest"] = checked(case, precision)
            good = result["error"] <= TOLERANCES[precision] and result["longest"] <= 1
            result["right"] = bool(good)
        result["ms"], result["peak_mb"] = timed(method(name, case, precision), options.each)
    except Exception as error:  # noqa: BLE001 (a row that fails is said, and the others go on)
        result["failed"] = f"{type(error).__name__}: {str(error)[:120]}"
    del case
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return result


def with_ratios(results: list[dict]) -> None:
    """Beside plain of the same model, batch and precision."""
    plain = {
        key_of(result): result
        for result in results
        if result["method"] == "plain" and "ms" in result
    }
    for result in results:
        base = plain.get(key_of(result))
        if base and "ms" in result:
            result["x plain"] = round(result["ms"] / base["ms"], 2)
            if base["peak_mb"]:
                result["memory"] = round(result["peak_mb"] / base["peak_mb"], 2)


def key_of(result: dict) -> tuple[object, ...]:
    return result["model"], result["batch"], result["precision"]


def table(results: list[dict], head: str) -> str:
    """All rows as text."""
    names = ("model", "batch", "precision", "method", "ms", "x plain", "peak_mb", "memory", "error")
    lines = [head, "".join(f"{name:>14}" for name in names)]
    for result in results:
        shown = [
            f"{v:.3g}" if isinstance(v := result.get(name, ""), float) else str(v) for name in names
        ]
        said = result.get("failed", "" if result.get("right", True) else "WRONG")
        lines.append("".join(f"{text:>14}" for text in shown) + f"  {said}")
    return "\n".join(lines)


def card(device: str) -> str:
    return (
        torch.cuda.get_device_name()
        if device.startswith("cuda")
        else "a processor, by the way of a device"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", default="", help="names, all if left out")
    parser.add_argument("--precisions", default="float32,tf32,bf16")
    parser.add_argument("--small", action="store_true", help="tiny models and batches")
    parser.add_argument("--seconds", type=float, default=270.0, help="for all of it")
    parser.add_argument("--each", type=float, default=0.8, help="seconds for result method")
    parser.add_argument("--write", action="store_true", help="keep the table in results/")
    parser.add_argument("--json", type=Path, help="where the numbers go")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")  # Opacus and vmap advise on speed
    if options.device == "cpu":
        device_sums._PIECEWISE = frozenset()  # noqa: SLF001 (the way of a device)
    begun, results, left_out = time.perf_counter(), [], 0
    for row, records, precision, name in cells(options):
        if time.perf_counter() - begun > options.seconds:
            left_out += 1
            continue
        results.append(measured(row, records, precision, name, options))
        print(".", end="", file=sys.stderr, flush=True)
    with_ratios(results)
    head = (
        f"{card(options.device)}, torch {torch.__version__}, {left_out} left out for want of time"
    )
    print("\n" + table(results, head))
    content = {"card": card(options.device), "torch": torch.__version__, "results": results}
    paths = [options.json] if options.json else []
    if options.write:
        paths.append(RESULTS / f"gpu_{card(options.device).lower().replace(' ', '_')}.json")
    for path in paths:
        path.write_text(json.dumps(content, indent=1) + "\n")
    return 0 if all(result.get("right", True) for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
