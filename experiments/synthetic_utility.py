"""Synthetic records of five public tables: how near their pairs are, and what is learned of them.

    python -m experiments.synthetic_utility [--small] [--runs 5]

Methods are hubbub's sums with the noise of 67 or of 4 silos, one of which may collude, and for 4
silos the twins of Prediger et al. 2024: each site makes records of its own rows with noise of its
own, and all are pooled. `tvd` is the mean total variation of all pairs of columns between synthetic
and real training records, `held_out` that of real test records; `auc` is that of a logistic
regression trained on synthetic records and scored on real ones, `real_auc` the same of real
records. Tables are SurvSet's (`pip install SurvSet`, GPLv3): event within a horizon, up to 25
columns. Cuts are the training records' own eighths, which a study would have to know otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hubbub
from experiments.command import fill, options_of, parser_of
from experiments.results import Table
from experiments.synthetic_coverage import SUMS, noise_of, released
from hubbub.core.errors import DataError
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Levels
from hubbub.estimation.synthesis.design import CodedColumn, Design

Array = NDArray[np.float64]
Whole = NDArray[np.int64]
HORIZONS = {"Framingham": 7300, "flchain": 3650, "Dialysis": 12, "rhc": 30, "support2": 182.5}
METHODS = (
    *("hubbub, 67 silos", "hubbub, 4 silos"),
    *("pooled twins, 67 sites", "pooled twins, 4 sites"),
)
ONCE = METHODS[2]  # slow, and far behind: at the first split of small tables alone
LARGE = ("rhc", "support2")
EPSILONS, DELTA = (0.5, 1.0, 2.0), 1e-5
KEY = ("table", "method", "epsilon", "run")
COLUMNS = (*KEY, "records", "columns", "tvd", "held_out", "auc", "real_auc", "seconds")
_MOST_COLUMNS, _LEVELS, _TRAINED = 25, 8, 0.7


def table_of(name: str, seed: int) -> tuple[Design, dict[str, Array], dict[str, Array]]:
    """A table's design, and its training and test records."""
    try:
        from SurvSet.data import SurvLoader
    except ImportError:
        raise DataError("expected the package SurvSet, found none; pip install SurvSet") from None
    frame: Any = SurvLoader().load_dataset(name)["df"]
    horizon = HORIZONS[name]
    frame = frame[(frame.time >= horizon) | (frame.event == 1)].reset_index(drop=True)
    order = np.random.default_rng(seed).permutation(len(frame))
    train = order[: int(_TRAINED * len(frame))]
    columns, cells = [], {}
    features = [c for c in frame.columns if c.startswith(("num_", "fac_"))]
    for column in features[: _MOST_COLUMNS - 1]:
        coded, found = (_classes if column.startswith("fac_") else _ranges)(frame, column, train)
        if coded is not None:
            columns.append(coded)
            cells[column] = found
    happened = ((frame.time <= horizon) & (frame.event == 1)).to_numpy(float)
    columns.append(_coded(Column(name="y", categories=("no", "yes"), complete=True)))
    cells["y"] = happened
    design = Design(
        columns=tuple(columns), targets=(len(columns) - 1,), rounds=SUMS, relation="add-remove"
    )
    test = order[len(train) :]
    parts = ({key: one[rows] for key, one in cells.items()} for rows in (train, test))
    return design, *parts


def _coded(column: Column, cuts: tuple[float, ...] = ()) -> CodedColumn:
    return CodedColumn(levels=Levels(column=column, cuts=cuts), complete=column.complete)


def _classes(frame: Any, name: str, _: Whole) -> tuple[CodedColumn | None, Array]:
    """The most frequent categories, and all others as one."""
    values = frame[name].astype(str)
    kept = sorted(values.value_counts().index[: _LEVELS - 1])
    values = values.where(values.isin(kept), "(other)")
    known = [*kept, *(["(other)"] if (values == "(other)").any() else [])]
    if len(known) < 2:
        return None, np.zeros(0)
    column = Column(name=name, categories=tuple(known), complete=True)
    places = {one: float(k) for k, one in enumerate(known)}
    return _coded(column), values.map(places).to_numpy(float)


def _ranges(frame: Any, name: str, train: Whole) -> tuple[CodedColumn | None, Array]:
    """Ranges with about as many training records each."""
    values = frame[name].to_numpy(float)
    known = values[train][~np.isnan(values[train])]
    low, high = (float(x) for x in np.quantile(known, [0.01, 0.99]))
    cuts = np.unique(np.quantile(known, np.linspace(0, 1, _LEVELS + 1)[1:-1]))
    inside = tuple(float(x) for x in cuts if low < x < high)
    if not inside:
        return None, np.zeros(0)
    complete = not np.isnan(values).any()
    return _coded(Column(name=name, low=low, high=high, complete=complete), inside), values


def levels(design: Design, cells: dict[str, Array]) -> Whole:
    """(n, columns) places of records."""
    return np.column_stack([one.places(cells) for one in design.columns])


def synthetic(
    design: Design, cells: dict[str, Array], method: str, epsilon: float, seed: int
) -> Whole:
    """Records by a method, as many as there are real ones."""
    many, sites = len(cells["y"]), int(method.split()[-2])
    if method.startswith("hubbub"):
        sigma = noise_of(epsilon, sites)
        return released(design, cells, sigma, seed).model.draw(many, seed)
    whose = np.random.default_rng(seed).integers(0, sites, many)
    # Each adds all of the noise, which nobody else's hides: that of a silo which sums alone.
    sigma = hubbub.noise_multiplier(epsilon=epsilon, delta=DELTA, steps=SUMS, sample_rate=1.0)
    drawn = []
    for site in range(sites):
        mine = {key: one[whose == site] for key, one in cells.items()}
        twin = released(design, mine, sigma, seed * sites + site)
        drawn.append(twin.model.draw(len(mine["y"]), seed))
    return np.concatenate(drawn)


def mean_variation(design: Design, one: Whole, other: Whole) -> float:
    """The mean total variation of all pairs of columns."""
    apart = []
    for a, b in design.pairs:
        sizes = (design.columns[a].size, design.columns[b].size)
        tables = []
        for rows in (one, other):
            flat = rows[:, a] * sizes[1] + rows[:, b]
            tables.append(np.bincount(flat, minlength=sizes[0] * sizes[1]) / len(rows))
        apart.append(0.5 * np.abs(tables[0] - tables[1]).sum())
    return float(np.mean(apart))


def auc_of(design: Design, train: Whole, test: Whole) -> float:
    """Of a logistic regression on all levels."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    def features(rows: Whole) -> Array:
        hot = [np.eye(one.size)[rows[:, k], 1:] for k, one in enumerate(design.columns[:-1])]
        return np.column_stack(hot)

    if len(np.unique(train[:, -1])) < 2:
        return 0.5
    model = LogisticRegression(max_iter=300).fit(features(train), train[:, -1])
    return float(roc_auc_score(test[:, -1], model.predict_proba(features(test))[:, 1]))


def compared(design: Design, made: Whole, real: Whole, held: Whole) -> dict[str, object]:
    """What is measured of synthetic records, beside the real ones of training and of the test."""
    return {
        "records": len(real),
        "columns": len(design.columns),
        "tvd": mean_variation(design, made, real),
        "held_out": mean_variation(design, held, real),
        "auc": auc_of(design, made, held),
        "real_auc": auc_of(design, real, held),
    }


def measured(table: str, method: str, epsilon: float, run: int) -> dict[str, object]:
    """The row of one run."""
    design, train, test = table_of(table, run)
    begun = time.perf_counter()
    made = synthetic(design, train, method, epsilon, run)
    seconds = time.perf_counter() - begun
    key = dict(zip(KEY, (table, method, epsilon, run), strict=True))
    found = compared(design, made, levels(design, train), levels(design, test))
    return key | found | {"seconds": seconds}


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table."""
    options = options_of(parser_of(__doc__ or ""), arguments)
    small = options.small
    points = [
        (table, method, epsilon, run)
        for run in range(1 if small else options.runs)
        for table in (["Dialysis"] if small else HORIZONS)
        for method in METHODS
        for epsilon in (EPSILONS[1:2] if small else EPSILONS)
        if method != ONCE or (run == 0 and table not in LARGE)
    ]
    fill(
        Table(path=Path(options.out) / "synthetic_utility.csv", key=KEY, columns=COLUMNS),
        [dict(zip(KEY, point, strict=True)) for point in points],
        lambda number, _: measured(*points[number]),
        module="experiments.synthetic_utility",
        arguments=arguments,
    )


if __name__ == "__main__":
    main()
