"""Accuracy of a linear head on features of public networks, with nobody trusted.

    python -m experiments.foundation [--small] [--runs 3] [--sets cifar10 spam reviews]

CIFAR-10 through EfficientNet-Lite2 (ImageNet) at 160 pixels, 50,000 records; the spam mails and
sentences of film reviews through MiniLM (needs `transformers`). Features are made once, of each
record by itself, and brought to one length; 8 and 32 silos, T = 0, the real protocol, and `fit`
with all of its defaults: nothing is tuned on any record. "opacus" is a trusted curator's training
of the same head with Opacus (needs `opacus`): same clip, steps, rate and optimizer, and the noise
that the distributed run's sums had in all.
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
from experiments.datasets.images import cifar10_pixels
from experiments.datasets.reviews import reviews
from experiments.datasets.spam_mails import mails
from experiments.networks import Features, image_features, sentence_features
from experiments.results import Table, summarise
from hubbub.learning.runs.uncounted import UncountedWarning

NOBODY, OPACUS = "nobody trusted", "opacus"
KEY = ("set", "by", "silos", "epsilon", "run")
COLUMNS = (
    *KEY,
    *("delta", "records", "test_records", "features", "clip_norm", "lr"),
    *("noise_multiplier", "total_noise_multiplier", "accuracy"),
)
SETS = ("cifar10", "spam", "reviews")
DELTA = 1e-5
_TEST_SHARE = 0.2

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
        return _dealt(shifts[classes] + generator.normal(size=(4000, 20)), classes, 3000)
    if name == "cifar10":
        (train, known), (test, asked) = cifar10_pixels()
        features = image_features(np.concatenate([train, test]), name)
        return _dealt(features, np.concatenate([known, asked]), len(train))
    texts, classes = reviews() if name == "reviews" else mails()
    # Equal texts lie together, and their hash says whether they are test records.
    places = [int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 2**32 for text in texts]
    order = np.argsort(np.array(places) < _TEST_SHARE, kind="stable")
    held = sum(place < _TEST_SHARE for place in places)
    features = sentence_features(texts, name)
    return _dealt(features[order], np.array(classes)[order], len(texts) - held)


def _dealt(features: NDArray[Any], classes: NDArray[Any], trained: int) -> Parts:
    """Each record's features less their own mean, of the length that the rule of `fit` expects."""
    centred = features - features.mean(1, keepdims=True)
    lengths = np.linalg.norm(centred, axis=1, keepdims=True)
    rows = (centred / lengths * np.sqrt(features.shape[1] / 3)).astype(np.float32)
    known = classes.astype(np.int64)
    return Parts(train=(rows[:trained], known[:trained]), test=(rows[trained:], known[trained:]))


def distributed(parts: Parts, silos: int, epsilon: float, shown: Shown) -> hubbub.Result:
    """`fit` with its defaults over silos, to which records are dealt in turns."""
    features, classes = parts.train
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncountedWarning)  # experiments keep no ledger
        return hubbub.fit(
            {
                f"silo-{silo + 1}": (features[silo::silos], classes[silo::silos])
                for silo in range(silos)
            },
            epsilon=epsilon,
            delta=DELTA,
            colluders=0,
            test=parts.test,
            classes=list(range(int(classes.max()) + 1)),
            progress=lambda step, _: shown(step / 150),
        )


def trusted(parts: Parts, result: hubbub.Result, seed: int) -> float:
    """Accuracy of Opacus' training with the settings of that run and all of its noise."""
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

    study, plan = result.plan.study, result.plan
    training, options = study.training, dict(study.training.optimizer)
    (features, classes), (tested, known) = map(_tensors, (parts.train, parts.test))
    head = nn.Linear(features.shape[1], int(classes.max()) + 1)
    for parameter in head.parameters():
        nn.init.zeros_(parameter)
    generator, model = torch.Generator().manual_seed(seed), GradSampleModule(head)
    optimizer = DPOptimizer(
        torch.optim.Adam(model.parameters(), lr=float(options["lr"])),
        noise_multiplier=plan.total_noise_multiplier,
        max_grad_norm=training.clip_norm,
        expected_batch_size=training.sample_rate * len(features),
        generator=generator,
    )
    decay = torch.optim.lr_scheduler.LinearLR(
        optimizer.original_optimizer, 1.0, 0.0, training.steps
    )
    for _ in range(training.steps):
        chosen = torch.rand(len(features), generator=generator) < training.sample_rate
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(features[chosen]), classes[chosen]).backward()
        optimizer.step()
        decay.step()
    with torch.no_grad():
        return float((head(tested).argmax(1) == known).float().mean())


def _tensors(part: tuple[Features, NDArray[np.int64]]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(part[0]), torch.from_numpy(part[1])


def row_of(point: Point, shown: Shown) -> dict[str, object]:
    """A row but for its key."""
    parts = parts_of(str(point["set"]))
    silos, epsilon, run = int(str(point["silos"])), float(str(point["epsilon"])), point["run"]
    result = _distributed(str(point["set"]), silos, epsilon, run, shown)
    training, plan = result.plan.study.training, result.plan
    by_hubbub = point["by"] == NOBODY
    return {
        "delta": DELTA,
        "records": len(parts.train[0]),
        "test_records": len(parts.test[0]),
        "features": parts.train[0].shape[1],
        "clip_norm": training.clip_norm,
        "lr": dict(training.optimizer)["lr"],
        "noise_multiplier": plan.noise_multiplier,
        "total_noise_multiplier": plan.total_noise_multiplier,
        "accuracy": result.final["accuracy"]
        if by_hubbub
        else trusted(parts, result, int(str(run))),
    }


_RUNS: dict[object, hubbub.Result] = {}


def _distributed(name: str, silos: int, epsilon: float, run: object, shown: Shown) -> hubbub.Result:
    """That run, which serves the row beside it too."""
    key = (name, silos, epsilon, run)
    if key not in _RUNS:
        _RUNS.clear()
        _RUNS[key] = distributed(parts_of(name), silos, epsilon, shown)
    return _RUNS[key]


def wanted(sets: Sequence[str], runs: int) -> list[Point]:
    """Of texts at epsilon 1 and 4 with Opacus beside it; of images at 1, 2, 4 and 8."""
    points = []
    for name in sets:
        images = name == "cifar10"
        epsilons = (1.0, 8.0, 2.0, 4.0) if images else (1.0, 4.0)
        points += [
            (name, by, silos, epsilon, run)
            for silos in (8, 32)
            for run in range(1, runs + 1)
            for epsilon in epsilons
            for by in (NOBODY, OPACUS)
        ]
    return [dict(zip(KEY, point, strict=True)) for point in points]


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table."""
    parser = parser_of(__doc__ or "")
    parser.set_defaults(runs=3)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--no-opacus", action="store_true", help="without the rows of Opacus")
    options = options_of(parser, arguments)
    sets, runs = (["small"], 1) if options.small else (options.named.sets, options.runs)
    points = wanted(sets, runs)
    if options.small or options.named.no_opacus:
        points = [point for point in points if point["by"] == NOBODY]
    table = Table(path=options.out / "foundation.csv", key=KEY, columns=COLUMNS)

    def measure(number: int, shown: Shown) -> dict[str, object]:
        return row_of(points[number], shown)

    fill(table, points, measure, module="experiments.foundation", arguments=arguments)
    summarise(table, KEY[:-1], ("accuracy",))


if __name__ == "__main__":
    main()
