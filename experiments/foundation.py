"""Accuracy of a linear head on features of public networks, with nobody trusted.

    python -m experiments.foundation [--small] [--runs 3] [--sets cifar10 reviews-lora ...]
        [--by trusted ...] [--silos 8]

CIFAR-10 through EfficientNet-Lite2 (ImageNet) at 160 pixels, 50,000 records; the spam mails and
sentences of film reviews through MiniLM (needs `transformers`); chest x-rays of 682 patients as the
other images (datasets/chest_xrays.py says where they are from). Features are made once, of each
record by itself, and brought to one length; 8 and 32 silos, T = 0, and `fit` with all of its
defaults: nothing is tuned on any record. "reviews-lora" trains adapters in MiniLM's last layer too,
on the sentences' first 40 tokens, with the rule's clip and rate for networks in 30 steps of a
twenty-fifth of the records (needs `peft`). By whom:

- "nobody trusted": the real protocol;
- "trusted": the same epsilon with a curator who sees all records, by `fit` too;
- "opacus": a curator's training of the same head with Opacus (needs `opacus`), with clip, rate,
  steps and optimizer of the row of "nobody trusted", and all the noise that its sums had.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import hubbub
from experiments.command import Shown, fill, options_of, parser_of
from experiments.datasets.chest_xrays import chest_xrays
from experiments.datasets.images import cifar10_pixels
from experiments.datasets.reviews import reviews
from experiments.datasets.spam_mails import mails
from experiments.networks import (
    Features,
    LastLayer,
    image_features,
    of_one_length,
    sentence_features,
    token_states,
)
from experiments.results import Row, Table, summarise, text
from hubbub.learning.runs.uncounted import UncountedWarning
from hubbub.learning.study.training import STEPS, usual_training

NOBODY, TRUSTED, OPACUS = BY = ("nobody trusted", "trusted", "opacus")
KEY = ("set", "by", "silos", "epsilon", "run")
COLUMNS = (
    *KEY,
    *("delta", "records", "test_records", "features", "steps", "sample_rate", "clip_norm", "lr"),
    *("noise_multiplier", "total_noise_multiplier", "accuracy"),
)
ADAPTED = "reviews-lora"
SETS = ("cifar10", "xrays", "spam", "reviews", ADAPTED)
DELTA = 1e-5
WAYS = ((NOBODY, 8), (TRUSTED, 8), (NOBODY, 32), (OPACUS, 8))
_TEST_SHARE = 0.2
_BATCH, _STEPS = 1 / 25, 30  # share of the records and steps, where adapters are trained

Point = dict[str, object]


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Features and classes of training and test records."""

    train: tuple[Features, NDArray[np.int64]]
    test: tuple[Features, NDArray[np.int64]]


@lru_cache(maxsize=1)
def parts_of(name: str) -> Parts:
    """The records of one set."""
    if name == "small":
        generator = np.random.default_rng(0)
        shifts, classes = generator.normal(size=(3, 20)), generator.integers(0, 3, 4000)
        return _dealt(_scaled(shifts[classes] + generator.normal(size=(4000, 20))), classes, 3000)
    if name == "cifar10":
        (train, known), (test, asked) = cifar10_pixels()
        features = image_features(np.concatenate([train, test]), name)
        return _dealt(_scaled(features), np.concatenate([known, asked]), len(train))
    if name == "xrays":
        pixels, hashed, labels = chest_xrays()
        rows = _scaled(image_features(pixels, name))
    else:
        hashed, labels = mails() if name == "spam" else reviews()
        adapted = name == ADAPTED
        rows = token_states(hashed, name) if adapted else _scaled(sentence_features(hashed, name))
    # Equal texts lie together, and their hash says whether they are test records.
    places = [int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 2**32 for text in hashed]
    order = np.argsort(np.array(places) < _TEST_SHARE, kind="stable")
    held = sum(place < _TEST_SHARE for place in places)
    return _dealt(rows[order], np.array(labels)[order], len(hashed) - held)


def _scaled(features: NDArray[Any]) -> Features:
    return of_one_length(torch.from_numpy(features)).float().numpy()


def _dealt(rows: Features, classes: NDArray[Any], trained: int) -> Parts:
    known = classes.astype(np.int64)
    return Parts(train=(rows[:trained], known[:trained]), test=(rows[trained:], known[trained:]))


def adapters(records: int, point: Point) -> dict[str, Any]:
    """What `fit` is told where adapters are trained: the rule's settings for networks."""
    usual = usual_training(
        None,
        records=records,
        epsilon=float(str(point["epsilon"])),
        silos=int(str(point["silos"])),
        colluders=0,
        square=1 + LastLayer.SQUARE,
        steps=_STEPS,
        is_linear=False,
    )
    return {
        "model": LastLayer(seed=int(str(point["run"]))),
        "steps": _STEPS,
        "sample_rate": _BATCH,
        "clip_norm": usual.clip_norm,
        "optimizer": usual.optimizer,
    }


def fitted(parts: Parts, point: Point, shown: Shown) -> dict[str, object]:
    """`fit` with its defaults over silos, to which records are dealt in turns."""
    (features, classes), silos = parts.train, int(str(point["silos"]))
    trusted = point["by"] == TRUSTED
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncountedWarning)  # experiments keep no ledger
        result = hubbub.fit(
            {
                f"silo-{silo + 1}": (features[silo::silos], classes[silo::silos])
                for silo in range(silos)
            },
            epsilon=float(str(point["epsilon"])),
            delta=DELTA,
            colluders=0,
            test=parts.test,
            classes=list(range(int(classes.max()) + 1)),
            baseline=TRUSTED if trusted else None,
            progress=lambda step, _: shown(step / STEPS),
            **(adapters(len(features), point) if point["set"] == ADAPTED else {}),
        )
    training, plan = result.plan.study.training, result.plan
    return {
        "steps": training.steps,
        "sample_rate": training.sample_rate,
        "clip_norm": training.clip_norm,
        "lr": dict(training.optimizer)["lr"],
        "noise_multiplier": plan.noise_multiplier,
        "total_noise_multiplier": plan.noise_multiplier if trusted else plan.total_noise_multiplier,
        "accuracy": result.final["accuracy"],
    }


def by_opacus(parts: Parts, beside: Row, shown: Shown) -> dict[str, object]:
    """Opacus' training with the settings of a row, and all of its noise."""
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

    (features, classes), (tested, known) = map(_tensors, (parts.train, parts.test))
    rate, steps = float(beside["sample_rate"]), int(beside["steps"])
    seed = int(beside["run"])
    head = LastLayer(seed=seed) if beside["set"] == ADAPTED else _zeros(features, classes)
    generator, model = torch.Generator().manual_seed(seed), GradSampleModule(head)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = DPOptimizer(
        torch.optim.Adam(trained, lr=float(beside["lr"])),
        noise_multiplier=float(beside["total_noise_multiplier"]),
        max_grad_norm=float(beside["clip_norm"]),
        expected_batch_size=int(rate * len(features)),
        generator=generator,
    )
    decay = torch.optim.lr_scheduler.LinearLR(optimizer.original_optimizer, 1.0, 0.0, steps)
    for step in range(steps):
        chosen = torch.rand(len(features), generator=generator) < rate
        optimizer.zero_grad()
        _loss(model(features[chosen]), classes[chosen]).backward()
        optimizer.step()
        decay.step()
        shown(step / steps)
    with torch.no_grad():
        outputs = torch.cat([head(rows) for rows in tested.split(500)])
    guessed = outputs.argmax(1) if outputs.dim() == 2 else outputs > 0
    right = (guessed == known).float().mean()
    settings = {name: beside[name] for name in COLUMNS[len(KEY) + 4 : -1]}
    return {**settings, "accuracy": float(right)}


def _zeros(features: torch.Tensor, classes: torch.Tensor) -> nn.Module:
    """A linear head that begins at 0, of one logit for two classes."""
    count = int(classes.max()) + 1
    head: nn.Module = nn.Linear(features.shape[1], count if count > 2 else 1)
    for parameter in head.parameters():
        nn.init.zeros_(parameter)
    return head if count > 2 else nn.Sequential(head, nn.Flatten(0))


def _loss(logits: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    if logits.dim() == 2:
        return nn.functional.cross_entropy(logits, classes)
    return nn.functional.binary_cross_entropy_with_logits(logits, classes.float())


def _tensors(part: tuple[Features, NDArray[np.int64]]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(part[0]), torch.from_numpy(part[1])


def row_of(point: Point, rows: Sequence[Row], shown: Shown) -> dict[str, object]:
    """A row but for its key."""
    parts = parts_of(str(point["set"]))
    if point["by"] == OPACUS:
        key = {name: text(point[name]) for name in KEY} | {"by": NOBODY}
        (beside,) = (row for row in rows if {name: row[name] for name in KEY} == key)
        measured = by_opacus(parts, beside, shown)
    else:
        measured = fitted(parts, point, shown)
    return {
        "delta": DELTA,
        "records": len(parts.train[0]),
        "test_records": len(parts.test[0]),
        "features": parts.train[0].shape[-1],
        **measured,
    }


def wanted(sets: Sequence[str], runs: int) -> list[Point]:
    """Of CIFAR-10 at epsilon 1, 2, 4 and 8, else at 1 and 4; with nobody trusted first."""
    points = []
    for name in sets:
        epsilons = (1.0, 8.0, 4.0, 2.0) if name == "cifar10" else (1.0, 4.0)
        points += [
            (name, by, silos, epsilon, run)
            for by, silos in WAYS
            for run in range(1, runs + 1)
            for epsilon in epsilons
        ]
    return [dict(zip(KEY, point, strict=True)) for point in points]


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table."""
    parser = parser_of(__doc__ or "")
    parser.set_defaults(runs=3)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--by", nargs="+", choices=BY, default=list(BY), help="these alone")
    parser.add_argument("--silos", type=int, help="so many silos alone")
    options = options_of(parser, arguments)
    named = options.named
    points = [
        point
        for point in wanted(named.sets, options.runs)
        if point["by"] in named.by and named.silos in (None, point["silos"])
    ]
    if options.small:
        points = [dict(zip(KEY, ("small", by, 4, 4.0, 1), strict=True)) for by in (NOBODY, TRUSTED)]
    table = Table(path=options.out / "foundation.csv", key=KEY, columns=COLUMNS)

    def measure(number: int, shown: Shown) -> dict[str, object]:
        return row_of(points[number], table.rows(), shown)

    fill(table, points, measure, module="experiments.foundation", arguments=arguments)
    summarise(table, KEY[:-1], ("accuracy",))


if __name__ == "__main__":
    main()
