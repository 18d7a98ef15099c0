"""Coverage of every interval that a private validation prints.

    python -m experiments.validation_coverage [--small] [--runs 300] [--records 2000] [--epsilon 1]

Predictions and outcomes are drawn anew for each release from a law, put into their cells, and the
noise of one secure sum (delta 1e-5, 20 silos, one of which may collude) is added to what is sent.
The truth is what the scores of two million such records are without noise, of amounts and counts
also without bins, but for the c-index. "told" is the part of
releases in which a score was told at all; coverage is that of its 95 % interval among those.
"calibration" and "decisions" are all points of the figures that are drawn at the truth's places:
decisions at all edges between .05 and .6; calibration where observed is that of the release's own
groups. "better" is how often a model was said to be better than one that knows nothing: of a law
that knows nothing it must be rare.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import rel_entr

from experiments.command import fill, options_of, parser_of
from experiments.results import Table
from experiments.statistics_data import multiplier
from hubbub.learning.queries.validation import noisy_table
from hubbub.learning.queries.validation.kinds import Amounts, ClassValidation, Risks, Times
from hubbub.learning.queries.validation.layout import ValidationBlock, ValidationLayout
from hubbub.learning.queries.validation.noisy_table import NoisyTable, fifths

Array = NDArray[np.float64]
Generator = np.random.Generator
Drawn = tuple[Array, Array]
SILOS, MANY = 20, 2_000_000
RECORDS, EPSILONS = (500, 2000, 10_000), (0.25, 1.0, 4.0)
KEY = ("kind", "law", "records", "epsilon", "score")
COLUMNS = (*KEY, "releases", "told", "coverage", "better")

RISKS = Risks(bins=noisy_table.of_risks(512))
AMOUNTS = Amounts(bins=noisy_table.of_amounts(0, 100, 10), seen=noisy_table.of_amounts(0, 100, 10))
COUNTS = Amounts(bins=noisy_table.of_rates(12, 10), seen=noisy_table.of_counts(12, 10), counts=True)
TIMES = Times(bins=noisy_table.of_risks(128), ends=tuple(6.0 * k for k in range(1, 9)))
FOUR = ClassValidation(many=4)
# As many bins as `hubbub init` takes of few records.
FEW_AMOUNTS = Amounts(
    bins=noisy_table.of_amounts(0, 100, 6), seen=noisy_table.of_amounts(0, 100, 6)
)


def risks(law: str, records: int, rng: Generator) -> Drawn:
    """Risks about .25 or about .02; or some that know nothing."""
    middle = {"rare": -4.2}.get(law, -1.3)
    true = 1 / (1 + np.exp(-(middle + 1.2 * rng.standard_normal(records))))
    came = (rng.random(records) < true).astype(np.float64)
    if law == "too high":
        true = true ** (2 / 3)
    if law == "knows nothing":
        true = rng.beta(2, 6, records)
    return true, came


def amounts(law: str, records: int, rng: Generator) -> Drawn:
    """A normal law with R squared .4; or one that knows nothing."""
    foretold = 50 + 12 * rng.standard_normal(records)
    centre = 50 if law == "knows nothing" else foretold
    spread = 15 + 0.25 * np.abs(foretold - 50) if law == "fanned" else 15
    return foretold, np.clip(centre + spread * rng.standard_normal(records), 0, 100)


def counts(_: str, records: int, rng: Generator) -> Drawn:
    """Poisson's about gamma rates."""
    rates = rng.gamma(2, 1.2, records)
    return rates, rng.poisson(rates).clip(max=12).astype(np.float64)


def times(law: str, records: int, rng: Generator) -> Drawn:
    """Exponential, a third lost, or half of all."""
    burden = 0.9 * rng.standard_normal(records)
    hazard = 0.012 * np.exp(0 * burden if law == "knows nothing" else burden)
    died = rng.exponential(1 / hazard)
    lost = rng.exponential(60 if law == "many lost" else 120, records)
    survival = np.exp(-48 * 0.012 * np.exp(burden))
    return survival[:, None], np.column_stack([np.minimum(died, lost), died <= lost])


def classes(_: str, records: int, rng: Generator) -> Drawn:
    """Four classes by their chances."""
    chances = rng.dirichlet((2.0, 1.0, 1.0, 0.5), records)
    came = (chances.cumsum(axis=1) < rng.random((records, 1))).sum(axis=1)
    return chances, np.minimum(came, 3).astype(np.float64)


Kind = tuple[Any, Callable[[str, int, Generator], Drawn], Sequence[str]]
KINDS: Mapping[str, Kind] = {
    "risks": (RISKS, risks, ("calibrated", "too high", "rare", "knows nothing")),
    "amounts": (AMOUNTS, amounts, ("alike", "fanned", "knows nothing")),
    "counts": (COUNTS, counts, ("gamma",)),
    "times": (TIMES, times, ("third lost", "many lost", "knows nothing")),
    "classes": (FOUR, classes, ("Dirichlet",)),
    "amounts, 6 bins": (FEW_AMOUNTS, amounts, ("alike", "knows nothing")),
}
BESIDE = ("calibration", "decisions")


def cells(kind: str, law: str, records: int, rng: Generator) -> Array:
    """The counts of one draw."""
    layout, draw, _ = KINDS[kind]
    rows, columns = layout.places(*draw(law, records, rng))
    found = np.zeros(layout.shape)
    np.add.at(found, (rows, columns), 1.0)
    return found


@cache
def population(kind: str, law: str) -> Array:
    """The shares of cells of very many records."""
    found = cells(kind, law, MANY, np.random.default_rng(11))
    return found / MANY * 1e9


@cache
def truth(kind: str, law: str) -> Mapping[str, float]:
    """The scores of very many records."""
    layout, draw, _ = KINDS[kind]
    told = layout.scored(NoisyTable(counts=population(kind, law), sigma=0.0))
    true = {one.name: one.value for one in told.scores}
    if isinstance(layout, Amounts):
        true |= without_bins(*draw(law, MANY, np.random.default_rng(11)), counts=layout.counts)
    return true


def without_bins(foretold: Array, came: Array, *, counts: bool) -> dict[str, float]:
    """Errors and slopes of predictions as they are."""
    off, moved = foretold - came, foretold - foretold.mean()
    squares = float((off**2).mean())
    scores = {
        "r_squared": 1 - squares / float(came.var()),
        "rmse": math.sqrt(squares),
        "mae": float(np.abs(off).mean()),
        "calibration_gap": float(off.mean()),
        "calibration_slope": float((moved * came).mean() / (moved**2).mean()),
    }
    if counts:
        own, alone = (rel_entr(came, of) - came + of for of in (foretold, came.mean()))
        scores["deviance_explained"] = 1 - float(own.mean() / alone.mean())
    return scores


def names(kind: str, law: str) -> tuple[str, ...]:
    """What is told of it."""
    beside = {"risks": BESIDE, "classes": ()}.get(kind.partition(",")[0], BESIDE[:1])
    return (*truth(kind, law), *beside)


@cache
def releases(
    kind: str, law: str, records: int, epsilon: float, runs: int
) -> dict[str, list[tuple[bool, bool | None]]]:
    """By score, of each release in which it was told: whether it held, and what was said."""
    layout, rng = KINDS[kind][0], np.random.default_rng(records)
    sent = ValidationLayout(kind=layout, blocks=(ValidationBlock(by="", groups=("",), part=1.0),))
    sigma = multiplier(epsilon) * math.sqrt(SILOS / (SILOS - 2))
    found: dict[str, list[tuple[bool, bool | None]]] = {name: [] for name in names(kind, law)}
    for _ in range(runs):
        exact = sent.encoded(cells(kind, law, records, rng).ravel())
        noisy = exact + sigma * rng.standard_normal(exact.size)
        ((_, _, table),) = sent.tables(noisy, sigma)
        told, true = layout.scored(table), truth(kind, law)
        for one in told.scores:
            found[one.name].append((one.low <= true[one.name] <= one.high, one.is_better))
        values = np.array(
            getattr(layout, "bins", noisy_table.of_amounts(0, 1, layout.shape[0])).values
        )
        for place, (_, group) in enumerate(fifths(table, values)):
            if told.calibration is not None and place < len(told.calibration.x):
                seen = group_truth(kind, law, group.start, group.stop)
                held = told.calibration.low[place] <= seen <= told.calibration.high[place]
                found["calibration"].append((held, None))
        for curve in told.decisions[:1]:
            ends = zip(curve.x, curve.low, curve.high, strict=True)
            found["decisions"] += [
                (low <= benefit(kind, law, x) <= high, None)
                for x, low, high in ends
                if 0.05 < x < 0.6
            ]
    return found


@cache
def group_truth(kind: str, law: str, start: int, stop: int) -> float:
    """What came of all records whose prediction is in these bins."""
    layout = KINDS[kind][0]
    part = population(kind, law)[start:stop]
    if kind.startswith("times"):
        return float(1.0 - layout.survival(part.sum(axis=0)))
    values = np.array([0.0, 1.0]) if kind.startswith("risks") else np.array(layout.seen.values)
    return float((part * values).sum() / part.sum())


@cache
def benefit(kind: str, law: str, cut: float) -> float:
    """The net benefit of treating from a chance on."""
    whole = population(kind, law)
    place = KINDS[kind][0].bins.cuts.index(cut) + 1
    treated = whole[place:]
    return float((treated[:, 1] - cut / (1 - cut) * treated[:, 0]).sum() / whole.sum())


def measured(point: tuple[str, str, int, float, str], runs: int) -> dict[str, object]:
    """A row."""
    *where, name = point
    told = releases(*where, runs)[name]  # type: ignore[arg-type]
    many = 1 if name in BESIDE else runs
    return {
        "releases": runs,
        "told": math.nan if name in BESIDE else len(told) / many,
        "coverage": float(np.mean([held for held, _ in told])) if told else math.nan,
        "better": float(np.mean([said is True for _, said in told])) if told else math.nan,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table."""
    parser = parser_of(__doc__ or "")
    parser.set_defaults(runs=300)
    parser.add_argument("--records", type=int, help="of so many records alone")
    parser.add_argument("--epsilon", type=float, help="at this epsilon alone")
    options = options_of(parser, arguments)
    runs = 5 if options.small else options.runs
    points = [
        (kind, law, records, epsilon, name)
        for kind, (_, _, laws) in KINDS.items()
        for law in (laws[:1] if options.small else laws)
        for records in (RECORDS[1:2] if options.small else RECORDS)
        for epsilon in (EPSILONS[1:2] if options.small else EPSILONS)
        for name in names(kind, law)
        if options.named.records in (None, records) and options.named.epsilon in (None, epsilon)
        if not name.startswith("found_of_class") or name.endswith("_0")
    ]
    fill(
        Table(path=Path(options.out) / "validation_coverage.csv", key=KEY, columns=COLUMNS),
        [dict(zip(KEY, point, strict=True)) for point in points],
        lambda number, _: measured(points[number], runs),
        module="experiments.validation_coverage",
        arguments=arguments,
    )


if __name__ == "__main__":
    main()
