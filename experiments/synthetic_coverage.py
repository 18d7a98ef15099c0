"""How often intervals of synthetic records hold the truth: of the sums, of twenty tables, naive.

    python -m experiments.synthetic_coverage [--small] [--runs 300] [--law dependent]

For each release records are drawn anew from a law whose truth is known, six columns with up to six
levels, and summed with the noise of 67 silos, one of which may collude, at delta 1e-5. `shares`,
`measured` and `coefficients` (of the target on a class, and on two numbers) are read off the sums.
At three points there are twenty models, too: `unmeasured` are shares of pairs between model
and sums, `twenty` is the log odds ratio of the target and a class, and `twenty_share` the target's
share, combined from twenty tables; `twenty_slope` that odds ratio where the other columns are the
same, a logistic regression on two of them and so model-dependent. `naive_share`, `naive_pair` and
`naive` are what one synthetic table says of the same by itself. In the law "three-way" the target
depends on two columns together, which the model does not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import hubbub
from experiments.command import fill, options_of, parser_of
from experiments.results import Table
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Levels
from hubbub.estimation.synthesis.components import combine, pair_coefficients
from hubbub.estimation.synthesis.design import CodedColumn, Design
from hubbub.estimation.synthesis.release import SyntheticData

Array, Whole = NDArray[np.float64], NDArray[np.int64]
LAWS, EPSILONS, RECORDS = ("dependent", "three-way"), (0.5, 1.0, 2.0), (1000, 3000, 8000, 20_000)
KEY = ("law", "records", "epsilon")
OF_SUMS = ("shares", "measured", "coefficients", "naive_share", "naive_pair", "naive")
OF_MODELS = ("unmeasured", "twenty", "twenty_share", "twenty_slope")
FOUND = (*OF_SUMS, *OF_MODELS)
MODELLED = (("dependent", 1000, 1.0), ("dependent", 20_000, 1.0), ("three-way", 20_000, 1.0))
EXPLAINED = ("a", "c", "e")  # the target by these columns, one at a time
COLUMNS = (*KEY, "releases", *FOUND)
SILOS, SUMS, Z = 67, 3, 1.959964
_TRUTH = 2_000_000


def noise_of(epsilon: float, silos: int) -> float:
    """The standard deviation of all noise in a sum, one of so many silos colluding."""
    left = hubbub.noise_multiplier(epsilon=epsilon, delta=1e-5, steps=SUMS, sample_rate=1.0)
    return left * float(np.sqrt(silos / (silos - 2)))


def drawn(law: str, records: int, rng: np.random.Generator) -> dict[str, Array]:
    """Records of a law."""
    a, b = rng.beta(2, 3, records), rng.random(records)
    c = (rng.random(records) < 0.2 + 0.6 * a).astype(float)
    d = rng.integers(0, 3, records).astype(float)
    e = np.clip(0.5 * b + 0.5 * rng.random(records), 0, 1)
    score = -1.5 + 2 * a + 0.5 * c
    if law == "three-way":
        score = -1.0 + 2.5 * (a > 0.4) * (b > 0.5)
    y = (rng.random(records) < 1 / (1 + np.exp(-score))).astype(float)
    return {"a": a, "b": b, "c": c, "d": d, "e": e, "y": y}


def design() -> Design:
    """Its columns, y being the target."""
    cuts = tuple(k / 6 for k in range(1, 6))
    numbers = [
        CodedColumn(
            levels=Levels(column=Column(name=name, low=0, high=1, complete=True), cuts=cuts),
            complete=True,
        )
        for name in "abe"
    ]
    classes = [
        CodedColumn(
            levels=Levels(
                column=Column(name=name, categories=tuple(map(str, range(many))), complete=True)
            ),
            complete=True,
        )
        for name, many in (("c", 2), ("d", 3), ("y", 2))
    ]
    order = {one.name: one for one in (*numbers, *classes)}
    columns = tuple(order[name] for name in "abcdey")
    return Design(columns=columns, targets=(5,), rounds=SUMS, relation="add-remove")


def released(made: Design, cells: dict[str, Array], sigma: float, seed: int) -> SyntheticData:
    """All sums of some records."""
    rng, numbers, sums = np.random.default_rng(seed), made.start, []
    for _ in range(made.rounds):
        sums.append(made.sum(cells, numbers) + rng.normal(0.0, sigma, made.size))
        numbers = made.update(sums, sigma, numbers)
    return SyntheticData(design=made, sums=np.array(sums), sigma=sigma)


def pair_table(x: Whole, y: Whole, sizes: tuple[int, int]) -> Array:
    """Shares of cells of levels."""
    counts = np.bincount(x * sizes[1] + y, minlength=sizes[0] * sizes[1])
    return counts.reshape(sizes) / max(len(x), 1)


def slope(x: Whole, y: Whole) -> tuple[float, float]:
    """The log odds ratio of two 0/1 columns, and the error that a table prints."""
    table = np.maximum(pair_table(x, y, (2, 2)) * len(x), 0.5)
    value = np.log(table[1, 1] * table[0, 0] / table[1, 0] / table[0, 1])
    return float(value), float(np.sqrt(np.sum(1 / table)))


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What a law says, of a very large sample.

    Args:
        tables: shares of the cells of each pair of columns.
        coefficients: of the target on each explaining column.
        slope: of the class where age is the same.
    """

    tables: Mapping[tuple[int, int], Array]
    coefficients: Mapping[str, Mapping[str, float]]
    slope: float

    @classmethod
    def of(cls, made: Design, law: str) -> Truth:
        """By drawing it."""
        cells = drawn(law, _TRUTH, np.random.default_rng(1))
        levels = np.column_stack([one.places(cells) for one in made.columns])
        exact = released(made, cells, 1e-6, 0)
        names = [one.name for one in made.columns]
        known = {
            name: pair_coefficients(exact.components, (names.index("y"), names.index(name)), 1, 0.9)
            for name in EXPLAINED
        }
        return cls(
            tables=tables_of(made, levels),
            coefficients={
                name: {key: one.value for key, one in found.items()}
                for name, found in known.items()
            },
            slope=adjusted(levels),
        )


def tables_of(made: Design, levels: Whole) -> dict[tuple[int, int], Array]:
    """The shares of every pair's cells."""
    return {
        (a, b): pair_table(levels[:, a], levels[:, b], (made.columns[a].size, made.columns[b].size))
        for a, b in made.pairs
    }


def adjusted(levels: Whole) -> float:
    """The log odds ratio of c and y among records of one level of a, by Mantel and Haenszel."""
    top, bottom = 0.0, 0.0
    for level in range(6):
        rows = levels[levels[:, 0] == level]
        if len(rows):
            table = pair_table(rows[:, 2], rows[:, 5], (2, 2)) * len(rows)
            top += table[1, 1] * table[0, 0] / len(rows)
            bottom += table[1, 0] * table[0, 1] / len(rows)
    return float(np.log(max(top, 0.01) / max(bottom, 0.01)))


def measured(law: str, records: int, epsilon: float, releases: int) -> dict[str, object]:
    """The row of one point."""
    made, sigma = design(), noise_of(epsilon, SILOS)
    truth = Truth.of(made, law)
    held: dict[str, list[bool]] = {name: [] for name in FOUND}
    for number in range(releases):
        cells = drawn(law, records, np.random.default_rng((2, number)))
        data = released(made, cells, sigma, number)
        looks = [of_sums(data, truth), of_one_table(data, truth, number)]
        if (law, records, epsilon) in MODELLED:
            looks.append(of_models(data, truth, number))
        for name, inside in chain(*looks):
            held[name].append(bool(inside))
    return {
        "law": law,
        "records": records,
        "epsilon": epsilon,
        "releases": releases,
        **{name: float(np.mean(one)) if one else float("nan") for name, one in held.items()},
    }


def alone(table: Array, axis: int) -> Array:
    """The shares of one of a pair's columns."""
    return table.sum(axis=1 - axis)


def of_sums(data: SyntheticData, truth: Truth) -> Iterator[tuple[str, bool]]:
    """Whether intervals that are read off the sums hold the truth."""
    columns = data.design.columns
    for (a, b), table in truth.tables.items():
        if b == a + 1:
            for k, axis in ((a, 0), *(((b, 1),) if b == len(columns) - 1 else ())):
                shares = data.shares(columns[k].name).values()
                for share, value in zip(shares, alone(table, axis), strict=True):
                    yield "shares", share.low <= value <= share.high
        if data.components.is_whole((a, b)):
            shares = data.pair_shares(columns[a].name, columns[b].name).values()
            for share, value in zip(shares, table.reshape(-1), strict=True):
                yield "measured", share.low <= value <= share.high
    for name, known in truth.coefficients.items():
        for key, one in data.coefficients("y", "1", name).items():
            yield "coefficients", one.low <= known[key] <= one.high


def of_models(data: SyntheticData, truth: Truth, seed: int) -> Iterator[tuple[str, bool]]:
    """The same of what needs models that are fitted anew."""
    columns, many = data.design.columns, max(round(data.components.records), 1)
    for (a, b), table in truth.tables.items():
        if not data.components.is_whole((a, b)):
            shares = data.pair_shares(columns[a].name, columns[b].name).values()
            for share, value in zip(shares, table.reshape(-1), strict=True):
                yield "unmeasured", share.low <= value <= share.high
    found: dict[str, list[float]] = {"twenty": [], "twenty_share": [], "twenty_slope": []}
    for number, model in enumerate(data.refitted()):
        levels = model.draw(many, seed * 1000 + number, evenly=False)
        found["twenty"].append(slope(levels[:, 2], levels[:, 5])[0])
        found["twenty_share"].append(float(levels[:, 5].mean()))
        found["twenty_slope"].append(adjusted(levels))
    table = truth.tables[2, 5]
    known = {
        "twenty": float(np.log(table[1, 1] * table[0, 0] / table[1, 0] / table[0, 1])),
        "twenty_share": float(table[:, 1].sum()),
        "twenty_slope": truth.slope,
    }
    for name, estimates in found.items():
        one = combine(estimates)
        yield name, one.low <= known[name] <= one.high


def of_one_table(data: SyntheticData, truth: Truth, seed: int) -> Iterator[tuple[str, bool]]:
    """Whether intervals that an analysis of one table prints hold the truth."""
    many = max(round(data.components.records), 1)
    levels = data.model.draw(many, seed)
    for (a, b), table in tables_of(data.design, levels).items():
        kinds = [("naive_pair", table, truth.tables[a, b])]
        if b == len(data.design.columns) - 1:
            kinds.append(("naive_share", alone(table, 0), alone(truth.tables[a, b], 0)))
        for name, found, values in kinds:
            reach = Z * np.sqrt(found * (1 - found) / many)
            for inside in (np.abs(found - values) <= reach).reshape(-1):
                yield name, inside
    (known,) = truth.coefficients["c"].values()
    value, error = slope(levels[:, 2], levels[:, 5])
    yield "naive", abs(value - known) <= Z * error


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table."""
    parser = parser_of(__doc__ or "")
    parser.set_defaults(runs=300)
    parser.add_argument("--law", choices=LAWS, help="only this one")
    options = options_of(parser, arguments)
    small, named = options.small, options.named
    points = [
        dict(zip(KEY, (law, records, epsilon), strict=True))
        for records in (RECORDS[:1] if small else RECORDS)
        for law in (LAWS[:1] if small else [named.law] if named.law else LAWS)
        for epsilon in (EPSILONS[1:2] if small else EPSILONS)
    ]
    fill(
        Table(path=Path(options.out) / "synthetic_coverage.csv", key=KEY, columns=COLUMNS),
        points,
        lambda number, _: measured(
            *(points[number][key] for key in KEY),
            3 if small else options.runs,  # type: ignore[arg-type]
        ),
        module="experiments.synthetic_coverage",
        arguments=arguments,
    )


if __name__ == "__main__":
    main()
