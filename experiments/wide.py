"""What tables of two hundred columns lose to the noise, and what makes that less.

    python -m experiments.wide [--small] [--runs 3]

Made-up hospitals' tables: rare diagnoses as flags, laboratory values with and without long tails, a
disease that a tenth of them foretell. A linear model by the rule, five silos, T = 1, by the batched
rehearsals of `experiments.defaults`. The ways: *plain* codes a flag as -1 or +1; *reference* as 0
or 1 (`reference` of a column); *small clip* is that with half the rule's clip; *projected* gives
the model 60 public random directions of all features; *thresholded* takes from every weight of
*reference* .3 of what noise alone would move it by, which is public.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.command import Shown, fill, options_of, parser_of
from experiments.defaults import law_of
from experiments.linear_heads import TwoClasses
from experiments.linear_rehearsals import LinearModels, RehearsalLaw, Settings, rehearsed, with_bias
from experiments.results import Table
from hubbub.learning import scoring
from hubbub.learning.study.training import UsualTraining, usual_training

Array = NDArray[Any]
WORLDS = {  # flags, values, records
    "90 flags, 60 values": (90, 60, 4500),
    "60 flags, 20 values": (60, 20, 2250),
    "20 flags, 100 values": (20, 100, 3000),
}
KEY = ("world", "epsilon", "way")
COLUMNS = (*KEY, "records", "features", "draws", "auc", "explained", "auc_no_privacy")
WAYS = ("plain", "reference", "small clip", "projected", "thresholded")
SCORED, DIRECTIONS, FACTORS = 5000, 60, 6


@dataclass(frozen=True)
class Wide:
    """Features with flags as 0 or 1 at their beginning, and what is foretold."""

    inputs: Array
    targets: Array
    flags: int

    @property
    def square(self) -> float:
        """|x|^2 as the rule has it, where each flag has a reference."""
        return 1 + 0.1 * self.flags + (self.inputs.shape[1] - self.flags) / 3


def wide(flags: int, values: int, records: int, seed: int) -> Wide:
    """A table, of which six hidden numbers bind columns together."""
    random = np.random.default_rng(seed)
    count = records + SCORED
    hidden = random.normal(size=(count, FACTORS))
    common = np.clip(np.exp(random.normal(-3, 0.9, flags)), 0.01, 0.2)
    odds = np.log(common / (1 - common)) + hidden @ random.normal(0, 0.3, (FACTORS, flags))
    ill = random.random((count, flags)) < 1 / (1 + np.exp(-odds))
    measured = hidden @ random.normal(0, 0.5, (FACTORS, values))
    measured = measured + random.normal(size=measured.shape)
    chances = ill @ _few(flags, random) + measured @ _few(values, random)
    happened = random.random(count) < 1 / (1 + np.exp(1.3 + chances.mean() - chances))
    tailed = np.where(random.random(values) < 0.5, np.exp(0.6 * measured), measured)
    low, high = np.percentile(tailed, (1, 99), axis=0)
    bounded = np.clip(2 * (tailed - low) / (high - low) - 1, -1, 1)
    return Wide(np.column_stack([ill, bounded]), happened.astype(np.float64), flags)


def _few(columns: int, random: np.random.Generator) -> Array:
    """Effects, of which one in eight is any."""
    effects = random.normal(0.1, 0.6, columns)
    effects[random.random(columns) > 1 / 8] = 0.0
    return effects


def coded(table: Wide, way: str, random: np.random.Generator) -> tuple[Array, float]:
    """Features of a way, and |x|^2."""
    if way == "plain":
        plain = table.inputs.copy()
        plain[:, : table.flags] = 2 * plain[:, : table.flags] - 1
        return plain, table.square + 0.9 * table.flags
    if way == "projected":
        width = table.inputs.shape[1]
        directions = random.choice((-1.0, 1.0), (width, DIRECTIONS)) / sqrt(DIRECTIONS)
        return table.inputs @ directions, table.square
    return table.inputs, table.square


def thresholded(models: LinearModels, usual: UsualTraining) -> LinearModels:
    """Weights less a part of what noise alone moves them by: Adam's steps of falling length."""
    moved = 0.3 * usual.lr * sqrt(usual.steps / 3)
    weights = np.sign(models.weights) * np.maximum(np.abs(models.weights) - moved, 0)
    weights[-1] = models.weights[-1]
    return replace(models, weights=weights)


def measured(world: str, epsilon: float, way: str, draws: int, shown: Shown) -> dict[str, object]:
    """A row: means over draws, each another table."""
    flags, values, records = WORLDS[world]
    rows = []
    for seed in range(draws):
        random = np.random.default_rng(seed)
        table = wide(flags, values, records, 100 + seed)
        inputs, square = coded(table, way, random)
        usual = usual_training(
            None, records=records, epsilon=epsilon, silos=5, colluders=1, square=square
        )
        clip = usual.clip_norm * (0.5 if way == "small clip" else 1.0)
        own = Settings(clip_norm=clip, steps=usual.steps, lr=usual.lr)
        law = law_of(records, epsilon, 5, usual.steps)
        private = _trained(inputs, table, own, law, seed)
        if way == "thresholded":
            private = thresholded(private, usual)
        free = replace(law, noise_multiplier=0.0)
        none = _trained(inputs, table, Settings(clip_norm=1e9, steps=400, lr=0.02), free, seed)
        rows.append([*_scores(inputs, table, private), _scores(inputs, table, none)[0]])
        shown((seed + 1) / draws)
    auc, explained, without = np.mean(rows, axis=0).tolist()
    return {
        "records": records,
        "features": table.inputs.shape[1],
        "draws": draws,
        "auc": auc,
        "explained": explained,
        "auc_no_privacy": without,
    }


def _trained(
    inputs: Array, table: Wide, settings: Settings, law: RehearsalLaw, seed: int
) -> LinearModels:
    """One model of the records that do not score."""
    train, targets = inputs[SCORED:], table.targets[SCORED:]
    random = np.random.default_rng([7, seed])
    return rehearsed(TwoClasses(), train, targets, [settings], law, random)


def _scores(inputs: Array, table: Wide, models: LinearModels) -> tuple[float, float]:
    """AUC and explained deviance of the records that score."""
    scored, targets = inputs[:SCORED], table.targets[:SCORED]
    auc = scoring.auc(models.outputs(with_bias(scored))[:, 0, 0], targets)
    null = TwoClasses().null_loss(table.targets[SCORED:], targets)
    return auc, float(1 - models.losses(scored, targets)[0] / null)


def wanted(*, small: bool) -> list[dict[str, object]]:
    """The keys of all rows."""
    worlds = list(WORLDS)[1:2] if small else list(WORLDS)
    epsilons = (4.0,) if small else (1.0, 4.0)
    return [
        {"world": world, "epsilon": epsilon, "way": way}
        for world in worlds
        for epsilon in epsilons
        for way in (WAYS[:1] if small else WAYS)
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table."""
    options = options_of(parser_of(__doc__ or ""), arguments)
    keys = wanted(small=options.small)
    table = Table(path=options.out / "wide.csv", key=KEY, columns=COLUMNS)

    def measure(number: int, shown: Shown) -> dict[str, object]:
        key: Any = keys[number]
        return measured(**key, draws=options.runs, shown=shown)

    fill(table, keys, measure, module="experiments.wide", arguments=arguments)


if __name__ == "__main__":
    main()
