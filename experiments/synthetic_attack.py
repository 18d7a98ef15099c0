"""Whether one record was among those of which synthetic records were made, by shadow releases.

    python -m experiments.synthetic_attack [--small] [--runs 2000]

The attacker knows all other records and that the one in question, which is unlike them, is there or
not. It makes releases of both kinds itself, learns from half of them which counts of the synthetic
table tell them apart (a linear discriminant of how often each level and pair of levels of that
record occurs), and guesses the other half. `shown` is the epsilon that its guesses show with 95 %
confidence, at the study's delta; `sums` is the same of an attacker who has the noisy sums instead
and projects them on the record's own vector. The promise is `epsilon`, against who sees all sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

import hubbub
from experiments.command import fill, options_of, parser_of
from experiments.results import Table
from experiments.synthetic_coverage import SUMS, design, drawn, released

Array = NDArray[np.float64]
KEY = ("epsilon", "records")
COLUMNS = (*KEY, "releases", "shown", "sums", "true_positives", "false_positives")
EPSILONS, RECORDS, DELTA = (1.0, 2.0, 4.0), 100, 1e-5
_ERROR = 0.05


def looked_at(levels: NDArray[np.int64], target: NDArray[np.int64]) -> Array:
    """How often the target's levels, and pairs of them, occur in a table."""
    same = (levels == target).astype(float)
    pairs = same.T @ same
    return pairs[np.triu_indices(len(target))]


def releases_of(epsilon: float, records: int, many: int) -> tuple[Array, Array, NDArray[np.bool_]]:
    """What is seen of each release: counts of its table, its sums' projection; and which kind."""
    made = design()
    sigma = hubbub.noise_multiplier(epsilon=epsilon, delta=DELTA, steps=SUMS, sample_rate=1.0)
    others = drawn("dependent", records, np.random.default_rng(0))
    target = {"a": 0.99, "b": 0.01, "c": 0.0, "d": 2.0, "e": 0.95, "y": 0.0}
    with_it = {name: np.append(one, target[name]) for name, one in others.items()}
    alone = {name: np.array([value]) for name, value in target.items()}
    own = np.array([one.places(alone)[0] for one in made.columns])
    seen, projected, inside = [], [], np.arange(many) % 2 == 0
    for number in range(many):
        cells = with_it if inside[number] else others
        data = released(made, cells, sigma, number)
        seen.append(looked_at(data.model.draw(records, number), own))
        later = made.parameters_of(data.choice.pairs)
        parts = [made.start, *([later] * (SUMS - 1))]
        projected.append(
            sum(
                float((total - made.sum(others, part)) @ made.sum(alone, part))
                for total, part in zip(data.sums, parts, strict=True)
            )
        )
    return np.array(seen), np.array(projected), inside


def discriminant(seen: Array, inside: NDArray[np.bool_], learned: NDArray[np.bool_]) -> Array:
    """A score of each release, larger where the record seems to be there."""
    one, other = seen[learned & inside], seen[learned & ~inside]
    spread = np.cov(one.T) + np.cov(other.T) + 1e-3 * np.eye(seen.shape[1])
    return seen @ np.linalg.solve(spread, one.mean(axis=0) - other.mean(axis=0))


def shown_by(
    scores: Array, inside: NDArray[np.bool_], learned: NDArray[np.bool_]
) -> tuple[float, float, float]:
    """The epsilon that guesses show, and how often they are right and wrong.

    The threshold is the one that shows most in the half that was learned from.
    """

    def rates(cut: float, part: NDArray[np.bool_]) -> tuple[float, float, float]:
        found = scores[part] > cut
        hits, there = int(found[inside[part]].sum()), int(inside[part].sum())
        wrong, absent = int(found[~inside[part]].sum()), int((~inside[part]).sum())
        least = float(betaincinv(hits, there - hits + 1, _ERROR / 2)) if hits else 0.0
        most = float(betaincinv(wrong + 1, absent - wrong, 1 - _ERROR / 2)) if wrong < absent else 1
        shown = np.log(max(least - DELTA, 1e-12) / most)
        return max(float(shown), 0.0), hits / there, wrong / absent

    cuts = np.quantile(scores[learned], np.linspace(0.02, 0.98, 49))
    best = max(cuts, key=lambda cut: rates(float(cut), learned)[0])
    return rates(float(best), ~learned)


def measured(epsilon: float, records: int, many: int) -> dict[str, object]:
    """The row of one point."""
    seen, projected, inside = releases_of(epsilon, records, many)
    learned = np.arange(many) < many // 2
    shown, right, wrong = shown_by(discriminant(seen, inside, learned), inside, learned)
    return {
        "epsilon": epsilon,
        "records": records,
        "releases": many,
        "shown": shown,
        "sums": shown_by(projected, inside, learned)[0],
        "true_positives": right,
        "false_positives": wrong,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table."""
    parser = parser_of(__doc__ or "")
    parser.set_defaults(runs=2000)
    options = options_of(parser, arguments)
    small = options.small
    points = [(epsilon, RECORDS) for epsilon in (EPSILONS[-1:] if small else EPSILONS)]
    fill(
        Table(path=Path(options.out) / "synthetic_attack.csv", key=KEY, columns=COLUMNS),
        [dict(zip(KEY, point, strict=True)) for point in points],
        lambda number, _: measured(*points[number], 60 if small else options.runs),
        module="experiments.synthetic_attack",
        arguments=arguments,
    )


if __name__ == "__main__":
    main()
