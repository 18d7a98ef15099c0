"""A clip that follows a noisy quantile of the gradients' norms, beside the rule's.

    python -m experiments.noisy_quantiles [--small] [--runs 3]

As Andrew et al. (2021): with every sum goes the number of records whose gradient is no longer than
the clip, with noise of its own, and the clip grows or shrinks by exp(.2 (gamma - share)). Gradients
get 5 % more noise, so that both together cost what the sum alone would. Two classes, the cohorts
and the noise of `experiments.defaults`; the clip begins at the rule's.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from experiments.command import Shown, fill, options_of, parser_of
from experiments.defaults import cohort_of, draw_of, law_of
from experiments.linear_heads import TwoClasses
from experiments.linear_rehearsals import RehearsalLaw, with_bias
from experiments.results import Table
from hubbub.learning.study.training import UsualTraining, usual_training

Array = NDArray[Any]
KEY = ("cohort", "records", "epsilon", "quantile")
COLUMNS = (*KEY, "draws", "explained", "last_clip")
FIXED = 0.0  # the quantile of a clip that stays
SPEED, COUNT_PART = 0.2, 0.1  # of the clip; of what a step may cost, the part of the number


def trained(
    rows: Array,
    targets: Array,
    usual: UsualTraining,
    law: RehearsalLaw,
    quantile: float,
    random: np.random.Generator,
) -> tuple[Array, float]:
    """Weights, the bias last, and the last clip."""
    noise = law.noise_multiplier
    count_noise = noise / 2 / sqrt(COUNT_PART)  # a record moves it by half: it counts -1/2 or 1/2
    noise /= sqrt(1 - COUNT_PART) if quantile else 1.0
    clip, weights = usual.clip_norm, np.zeros(rows.shape[1])
    first, second = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(usual.steps):
        batch = rows[taken := random.random(len(rows)) < law.sample_rate]
        slopes = expit(batch @ weights) - targets[taken]
        norms = np.abs(slopes) * np.sqrt((batch**2).sum(1))
        factors = np.minimum(1.0, clip / np.maximum(norms, 1e-300))
        gradient = batch.T @ (slopes * factors) + noise * clip * random.standard_normal(
            len(weights)
        )
        if quantile:
            short = (norms <= clip).sum() - len(batch) / 2 + count_noise * random.standard_normal()
            clip *= exp(SPEED * (quantile - 0.5 - short / law.divisor))
        gradient /= law.divisor
        first += 0.1 * (gradient - first)
        second += 0.001 * (gradient**2 - second)
        sized = np.sqrt(second / (1 - 0.999 ** (step + 1))) + 1e-8
        rate = usual.lr * (1 - step / usual.steps)
        weights = weights - rate * first / (1 - 0.9 ** (step + 1)) / sized
    return weights, clip


def measured(
    name: str, records: int, epsilon: float, quantile: float, draws: int, shown: Shown
) -> dict[str, object]:
    """A row: means over draws."""
    cohort, head, found = cohort_of(name), TwoClasses(), []
    for seed in range(draws):
        train, test = draw_of(cohort, records, seed)
        law = law_of(len(train), epsilon, 5, 150)
        usual = usual_training(
            None,
            records=len(train),
            epsilon=epsilon,
            silos=5,
            colluders=1,
            square=cohort.square,
        )
        rows, known = with_bias(cohort.inputs), cohort.targets
        random = np.random.default_rng([3, seed])
        weights, clip = trained(rows[train], known[train], usual, law, quantile, random)
        outputs = (rows[test] @ weights)[:, None, None]
        lost = float(head.losses(outputs, head.known(known[test])).mean())
        found.append((1 - lost / head.null_loss(known[train], known[test]), clip))
        shown((seed + 1) / draws)
    explained, clip = np.mean(found, axis=0).tolist()
    return {"draws": draws, "explained": explained, "last_clip": clip}


def wanted(*, small: bool) -> list[dict[str, object]]:
    """The keys of all rows."""
    cohorts = [("hearts", 10**6), ("breast_cancer", 10**6)]
    cohorts += [("made-up classes 101", records) for records in (200, 1000, 5000)]
    return [
        {"cohort": name, "records": records, "epsilon": epsilon, "quantile": quantile}
        for name, records in (cohorts[:1] if small else cohorts)
        for epsilon in ((4.0,) if small else (1.0, 4.0))
        for quantile in (FIXED, 0.5, 0.8)
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table."""
    options = options_of(parser_of(__doc__ or ""), arguments)
    keys = wanted(small=options.small)
    table = Table(path=options.out / "noisy_quantiles.csv", key=KEY, columns=COLUMNS)

    def measure(number: int, shown: Shown) -> dict[str, object]:
        key: Any = keys[number]
        named = {"name" if part == "cohort" else part: value for part, value in key.items()}
        return measured(**named, draws=options.runs, shown=shown)

    fill(table, keys, measure, module="experiments.noisy_quantiles", arguments=arguments)


if __name__ == "__main__":
    main()
