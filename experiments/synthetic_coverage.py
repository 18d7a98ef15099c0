"""How often intervals of synthetic records hold the truth: of the sums, of twenty tables, naive.

    python -m experiments.synthetic_coverage [--small] [--runs 300]

For each release records are drawn anew from a law whose truth is known, six columns with up to six
levels, and summed with the noise of 67 silos, one of which may collude, at delta 1e-5. `shares`,
`measured` and `unmeasured` are shares of columns and pairs read off the sums; `twenty` is the
log odds ratio of the target and one measured column, and `twenty_share` the
target's share, combined from twenty tables; `naive_share`, `naive_pair` and `naive` are what one
synthetic table says of the same by itself. In the law "three-way" the target depends on two columns
together, which the model does not know: `twenty` is of a measured pair there, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import hubbub
from experiments.command import fill, options_of, parser_of
from experiments.results import Table
from hubbub.estimation import Levels
from hubbub.synthesis import Design, SyntheticData, combine
from hubbub.synthesis.coding import CodedColumn
from hubbub.tabular import Column

Array = NDArray[np.float64]
LAWS, EPSILONS, RECORDS = ("dependent", "three-way"), (0.5, 1.0, 2.0), (3000, 20_000)
KEY = ("law", "records", "epsilon")
FOUND = (
    *("shares", "measured", "unmeasured", "twenty", "twenty_share"),
    *("naive_share", "naive_pair", "naive"),
)
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


def pair_table(x: Array, y: Array, sizes: tuple[int, int]) -> Array:
    """Shares of cells of levels."""
    table = np.zeros(sizes)
    np.add.at(table, (x.astype(int), y.astype(int)), 1.0)
    return table / table.sum()


def slope(x: Array, y: Array) -> tuple[float, float]:
    """The log odds ratio of two 0/1 columns, and the error that a table prints."""
    table = np.maximum(pair_table(x, y, (2, 2)) * len(x), 0.5)
    value = np.log(table[1, 1] * table[0, 0] / table[1, 0] / table[0, 1])
    return float(value), float(np.sqrt(np.sum(1 / table)))


def levels_of(data: SyntheticData, table: dict[str, list[object]]) -> dict[str, Array]:
    """The levels of drawn cells."""
    cells = {}
    for one in data.design.columns:
        names = {name: float(k) for k, name in enumerate(one.names)}
        column = table[one.name]
        numeric = not one.levels.column.categories
        cells[one.name] = np.array(column if numeric else [names[str(x)] for x in column], float)
    return {one.name: one.places(cells).astype(float) for one in data.design.columns}


def measured(law: str, records: int, epsilon: float, releases: int) -> dict[str, object]:
    """The row of one point."""
    made, sigma = design(), noise_of(epsilon, SILOS)
    truth = drawn(law, _TRUTH, np.random.default_rng(1))
    places = {one.name: one.places(truth).astype(float) for one in made.columns}
    held: dict[str, list[bool]] = {name: [] for name in FOUND}
    for number in range(releases):
        cells = drawn(law, records, np.random.default_rng((2, number)))
        data = released(made, cells, sigma, number)
        for name, inside in _looked_at(data, places):
            held[name].append(inside)
    return {
        "law": law,
        "records": records,
        "epsilon": epsilon,
        "releases": releases,
        **{name: float(np.mean(one)) if one else float("nan") for name, one in held.items()},
    }


def _looked_at(data: SyntheticData, truth: dict[str, Array]) -> Iterator[tuple[str, bool]]:
    """Whether each interval of a release holds the truth."""
    many, columns = max(round(data.components.records), 1), data.design.columns
    one = levels_of(data, data.draw())
    for k, column in enumerate(columns):
        true = np.bincount(truth[column.name].astype(int), minlength=column.size) / _TRUTH
        drawn_shares = np.bincount(one[column.name].astype(int), minlength=column.size) / many
        for share, value in zip(data.shares(column.name).values(), true, strict=True):
            yield "shares", share.low <= value <= share.high
        for value, found in zip(true, drawn_shares, strict=True):
            yield "naive_share", abs(found - value) <= Z * np.sqrt(found * (1 - found) / many)
        for other in columns[k + 1 :]:
            pair = (column.name, other.name)
            wide = (column.size, other.size)
            exact = pair_table(truth[pair[0]], truth[pair[1]], wide).reshape(-1)
            shares = list(data.pair_shares(*pair).values())
            basis = "measured" if shares[0].basis == "measured" else "unmeasured"
            for share, value in zip(shares, exact, strict=True):
                yield basis, share.low <= value <= share.high
            table = pair_table(one[pair[0]], one[pair[1]], wide).reshape(-1)
            for value, found in zip(exact, table, strict=True):
                yield "naive_pair", abs(found - value) <= Z * np.sqrt(found * (1 - found) / many)
    wanted, share_wanted = slope(truth["c"], truth["y"])[0], truth["y"].mean()
    slopes, means = [], []
    for table in data.tables():
        drawn_levels = levels_of(data, table)
        slopes.append(slope(drawn_levels["c"], drawn_levels["y"])[0])
        means.append(float(drawn_levels["y"].mean()))
    for name, found, value in (
        ("twenty", combine(slopes), wanted),
        ("twenty_share", combine(means), share_wanted),
    ):
        yield name, found.low <= value <= found.high
    alone, error = slope(one["c"], one["y"])
    yield "naive", abs(alone - wanted) <= Z * error


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table."""
    parser = parser_of(__doc__ or "")
    parser.set_defaults(runs=300)
    options = options_of(parser, arguments)
    small = options.small
    points = [
        dict(zip(KEY, (law, records, epsilon), strict=True))
        for records in (RECORDS[:1] if small else RECORDS)
        for law in (LAWS[:1] if small else LAWS)
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
