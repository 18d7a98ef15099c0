"""Synthetic records, and everything else that noisy sums of a study's columns give.

All of it follows from the sums and public numbers, whoever makes it again (docs/privacy.md P26).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import UserError
from hubbub.core.number_format import offered
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Array, Levels
from hubbub.estimation.data_frame import data_frame
from hubbub.estimation.row_rules import RowRules
from hubbub.estimation.synthesis import components
from hubbub.estimation.synthesis.components import (
    Coefficient,
    Combined,
    Components,
    Share,
    combine,
    components_of,
    pair_coefficients,
)
from hubbub.estimation.synthesis.design import CodedColumn, Design
from hubbub.estimation.synthesis.entropy_model import (
    EntropyModel,
    PairChoice,
    Table,
    cells_of,
    choose,
    fitted,
)

REFITS = 20
MOST_UNASKED = 1_000_000  # records, as many as a study may ask for
_REDRAWN, _NUMBERS_REDRAWN = 50, 20  # draws for records that break a rule; within their levels
_POOL, _RAKED = 5, 30  # records drawn for each that is exchanged; rounds of raking
_MOST = 10_000_000  # that may be asked for at all


@dataclass(frozen=True, kw_only=True, repr=False)
class SyntheticData:
    """Synthetic records of all silos together, and shares with valid intervals.

    Args:
        design: of the sums.
        sums: (made, size) the noisy ones.
        sigma: standard deviation of all noise in each of their numbers.
        wanted: how many records; 0: about as many as there are units.
        rules: what every record keeps; None: nothing.
        library: whose data frames `to_frame` gives; "": of the first that is installed.

    >>> from hubbub.estimation.synthesis.release import example
    >>> share = example().shares("died")["yes"]
    >>> 0.2 < share.low < share.high < 0.4
    True
    """

    design: Design
    sums: Array
    sigma: float
    wanted: int = 0
    rules: RowRules | None = None
    library: str = ""

    def __repr__(self) -> str:
        return (
            f"synthetic records of {len(self.design.columns)} columns, {self.records} of them; "
            f"{len(self.choice.pairs)} of {len(self.design.pairs)} pairs were measured level by "
            "level"
        )

    @cached_property
    def components(self) -> Components:
        """What the sums say."""
        return components_of(self.design, list(self.sums), self.sigma)

    @cached_property
    def choice(self) -> PairChoice:
        """What was measured, and in which order columns are drawn: by the first sum alone."""
        return choose(self.design, components_of(self.design, list(self.sums[:1]), self.sigma))

    @cached_property
    def model(self) -> EntropyModel:
        """From which records are drawn."""
        return fitted(self.components, self.choice)

    @property
    def records(self) -> int:
        """How many there are if nothing else is asked for; a sum may say anything."""
        told = self.components.records
        return self.wanted or round(min(max(told, 1.0), MOST_UNASKED))

    def draw(self, records: int | None = None, *, seed: int = 0) -> Table:
        """Synthetic records.

        Args:
            records: how many; None: as many as the study says.
            seed: another one gives others.

        Returns:
            By each column's name its cells: a category, a number drawn evenly from its range, or
            None where it is missing.

        Raises:
            UserError: there are to be fewer than 1, or more than 10,000,000; or hardly a record
                keeps the study's rules.

        >>> from hubbub.estimation.synthesis.release import example
        >>> data = example()
        >>> table = data.draw(100)
        >>> sorted(table), len(table["age"])
        (['age', 'died', 'sex'], 100)
        """
        many = self.records if records is None else records
        if not 1 <= many <= _MOST:
            raise UserError(f"expected 1 to 10,000,000 records, got {many}; ask for so many")
        return self._drawn(self.model, many, self._seed(seed))

    def _drawn(self, model: EntropyModel, many: int, seed: int, *, evenly: bool = True) -> Table:
        """Records that keep the rules.

        Those whose levels break one are exchanged for others of the model that keep them all, such
        that each level is as frequent as it was (raked, Deming and Stephan 1940).
        """
        levels = model.draw(many, seed, evenly=evenly)
        table, off = self._cells(levels, seed + 1)
        for attempt in range(_REDRAWN if off else 0):
            more = min(max(_POOL * len(off), 1000), _MOST)
            others = model.draw(more, seed + 2 * attempt + 2**60, evenly=False)
            again, left = self._cells(others, seed + 2 * attempt + 2**60 + 1)
            kept = np.setdiff1d(np.arange(more), left)
            rng = np.random.default_rng(seed + attempt)
            weights = _raked(others[kept], levels[off], [one.size for one in self.design.columns])
            order = kept[np.argsort(-np.log(weights) - rng.gumbel(size=len(kept)))]
            for name, cells in again.items():
                for row, other in zip(off, order, strict=False):
                    table[name][row] = cells[other]
            off = off[len(order) :]
            if not off or not len(order):
                break
        if off:
            raise UserError(
                "expected records that obey the rules of [synthetic], found none for "
                f"{len(off)} of {many}; correct follows and possible"
            )
        return table

    def _cells(self, levels: NDArray[np.int64], seed: int) -> tuple[Table, list[int]]:
        """Cells of levels, and the rows that break a rule; numbers are drawn anew until few do."""
        table = cells_of(self.design.columns, levels, seed)
        if self.rules is None:
            return table, []
        rng = np.random.default_rng(seed)
        off = sorted({*self.rules.unfollowed(table), *self.rules.broken(table)})
        for _ in range(_NUMBERS_REDRAWN if off else 0):
            again = cells_of(self.design.columns, levels[off], int(rng.integers(2**40)))
            left = {*self.rules.unfollowed(again), *self.rules.broken(again)}
            for name, cells in again.items():
                for k, row in enumerate(off):
                    if k not in left:
                        table[name][row] = cells[k]
            off = [off[k] for k in sorted(left)]
            if not off:
                break
        return table, self.rules.broken(self.rules.followed(table))

    def to_frame(self, records: int | None = None, *, seed: int = 0, library: str = "") -> Any:
        """The same as `draw`, as a data frame.

        Args:
            records: how many; None: as many as the study says.
            seed: another one gives others.
            library: "pandas", "polars" or "pyarrow"; "": that of the silos' tables.

        Returns:
            A data frame of that library with a column for each.

        Raises:
            UserError: the library is not installed.
        """
        return data_frame(self.draw(records, seed=seed), library or self.library)

    def tables(self, many: int = REFITS) -> Iterator[Table]:
        """Several tables for an analysis whose results `hubbub.combine` makes one of.

        Each is drawn from a model of its own, of the same components with as much fresh noise as
        they have already; nothing is drawn in towards independence, and every record is drawn by
        itself, as people are.

        Args:
            many: how many; 20 are enough.

        Returns:
            The tables, one after the other, each as `draw` gives one.
        """
        units = round(min(self.components.records, _MOST))
        for number, model in enumerate(self.refitted(many)):
            yield self._drawn(model, units, self._seed(1000 + number), evenly=False)

    def shares(self, column: str, *, confidence: float = 0.95) -> dict[str, Share]:
        """The shares of a column's levels, with intervals; from the sums, not from records.

        Args:
            column: its name.
            confidence: of each interval, a probability.

        Returns:
            By each level's name its share.

        Raises:
            UserError: there is no such column.
        """
        place = self._place(column)
        intervals = components.one_way(self.components, place, confidence)
        return dict(zip(self.design.columns[place].names, intervals, strict=True))

    def pair_shares(
        self, first: str, second: str, *, confidence: float = 0.95
    ) -> dict[tuple[str, str], Share]:
        """The shares of the cells of two columns, with intervals.

        Args:
            first: a column's name.
            second: another one's.
            confidence: of each interval, a probability.

        Returns:
            By both levels' names the share of their cell.

        Raises:
            UserError: there is no such column, or both are the same.
        """
        a, b = self._place(first), self._place(second)
        if a == b:
            raise UserError(f"expected two columns, got {first} twice; name another")
        if a > b:
            turned = self.pair_shares(second, first, confidence=confidence)
            return {(y, x): one for (x, y), one in turned.items()}
        models = [] if self.components.is_whole((a, b)) else [self.model, *self._refits]
        tables = np.array([one.pairs[a, b] for one in models])
        intervals = components.two_way(self.components, (a, b), confidence, models=tables)
        names = [self.design.columns[k].names for k in (a, b)]
        return {
            (x, y): one
            for x, row in zip(names[0], intervals, strict=True)
            for y, one in zip(names[1], row, strict=True)
        }

    def coefficients(
        self, outcome: str, level: str, column: str, *, confidence: float = 0.95
    ) -> dict[str, Coefficient]:
        """Logistic regression of a level of one column on another, from the sums.

        Args:
            outcome: the name of the column that is explained.
            level: which of its levels.
            column: the one that explains it; numbers count as the middles of their ranges.
            confidence: of each interval, a probability.

        Returns:
            Logarithms of odds ratios: by the column's levels but the first, or for a number under
            its name, of one unit more. Records that lack a cell are left out, and so are levels too
            rare for the noise: each has a note, and no first one of them is compared with.

        Raises:
            UserError: there is no such column or level, the pair was not measured level by level,
                or noise leaves too little.

        >>> from hubbub.estimation.synthesis.release import example
        >>> slope = example().coefficients("died", "yes", "age")["age"]
        >>> 0.01 < slope.low < slope.high < 0.04
        True
        """
        a, b = self._place(outcome), self._place(column)
        levels = self.design.columns[a].levels.names  # a missing cell is none of them
        if level not in levels:
            raise UserError(f"expected a level of {outcome}, {', '.join(levels)}, got {level!r}")
        if a == b or not self.components.is_whole((min(a, b), max(a, b))):
            raise UserError(
                f"expected a pair that was measured level by level, got {outcome} and "
                f"{column}; name the outcome in synthetic.targets, or combine the same "
                "analysis of twenty tables"
            )
        return pair_coefficients(self.components, (a, b), levels.index(level), confidence)

    def basis(self, *columns: str) -> str:
        """What an analysis of these columns by several tables rests on.

        Args:
            columns: the names of all that it looks at, each once.

        Returns:
            "measured" for one column and for a pair that was chosen, so that records are drawn by
            it; else "model-dependent": the model says how the columns go together.

        Raises:
            UserError: there is no such column, or none is named.

        >>> from hubbub.estimation.synthesis.release import example
        >>> example().basis("age", "died"), example().basis("age", "died", "sex")
        ('measured', 'model-dependent')
        """
        places = tuple(sorted({self._place(column) for column in columns}))
        if not places:
            raise UserError("expected the columns of an analysis, got none; name all of them")
        known = len(places) == 1 or places in self.choice.pairs
        return components.MEASURED if known else components.MODEL_DEPENDENT

    def analyse(
        self,
        analysis: Callable[[Table], float],
        columns: Sequence[str],
        *,
        many: int = REFITS,
        confidence: float = 0.95,
    ) -> Combined:
        """An analysis of several tables, combined, and what it rests on.

        Args:
            analysis: of a table to one number; it gets these columns and no others.
            columns: all that it looks at.
            many: how many tables.
            confidence: of the interval, a probability.

        Returns:
            The mean of its results, with an interval, in their unit.

        Raises:
            UserError: there is no such column, or a result is not finite.

        >>> from hubbub.estimation.synthesis.release import example
        >>> died = example().analyse(lambda table: table["died"].count("yes") / 2000, ["died"])
        >>> 0.2 < died.low < died.high < 0.4, died.basis
        (True, 'measured')
        """
        basis = self.basis(*columns)
        found = [analysis({name: table[name] for name in columns}) for table in self.tables(many)]
        return combine(found, confidence=confidence, basis=basis)

    @cached_property
    def _refits(self) -> list[EntropyModel]:
        return list(self.refitted(REFITS))

    def refitted(self, many: int = REFITS) -> Iterator[EntropyModel]:
        """Models of the components with fresh noise, from each of which `tables` draws one.

        Args:
            many: how many.

        Returns:
            The models, one after the other.
        """
        rng = np.random.default_rng(self._seed(999))
        for _ in range(many):
            noisy = {
                key: replace(
                    one, value=one.value + rng.standard_normal(one.value.shape) * deviation
                )
                for key, one in self.components.by.items()
                for deviation in [np.sqrt(np.where(one.known, one.variance, 0.0))]
            }
            yield fitted(replace(self.components, by=noisy), self.choice, shrink=False)

    def _place(self, column: str) -> int:
        names = [one.name for one in self.design.columns]
        if column not in names:
            raise UserError(f"expected one of the columns {offered(names)}, got {column!r}")
        return names.index(column)

    def _seed(self, number: int) -> int:
        """What is drawn differs from release to release, and is the same for who draws it again."""
        told = hashlib.sha256(np.ascontiguousarray(self.sums).tobytes()).digest()
        return int.from_bytes(told[:6], "big") * 10_000 + 2 * number


def _raked(levels: NDArray[np.int64], wanted: NDArray[np.int64], sizes: Sequence[int]) -> Array:
    """(n,) weights of records by which each column's levels are as frequent as in others."""
    weights = np.ones(len(levels))
    for _ in range(_RAKED):
        for k, size in enumerate(sizes):
            has = np.bincount(levels[:, k], weights, minlength=size)
            lacks = np.bincount(wanted[:, k], minlength=size) + 1e-3
            weights *= (lacks / np.maximum(has, 1e-12))[levels[:, k]]
            weights = np.clip(weights / weights.mean(), 1e-12, 1e12) if len(weights) else weights
    return weights


def summary_of(data: SyntheticData) -> Mapping[str, Any]:
    """What was chosen and the numbers that the model is made of, as plain values."""
    names = [column.name for column in data.design.columns]
    chosen = set(data.choice.pairs)
    return {
        "records": data.components.records,
        "columns": [
            {"name": column.name, "levels": list(column.names)} for column in data.design.columns
        ],
        "drawn": [
            {"column": names[step.column], "given": [names[k] for k in step.parents]}
            for step in data.choice.steps
        ],
        "pairs": [
            {
                "columns": [names[a], names[b]],
                "stands_out": score,
                "measured": (a, b) in chosen,
            }
            for (a, b), score in data.choice.scores.items()
        ],
        "cliques": [
            {"columns": [names[k] for k in clique.members], "shares": clique.table.tolist()}
            for clique in data.model.cliques
        ],
    }


# Noisy sums of made-up records, for examples and tests.


def example() -> SyntheticData:
    """Of 2,000 made-up records with three columns."""
    rng = np.random.default_rng(0)
    age, sex = rng.uniform(20, 90, 2000), rng.integers(0, 2, 2000)
    died = rng.random(2000) < age / 200
    cells = {"age": age, "sex": sex.astype(float), "died": died.astype(float)}
    columns = (
        (Column(name="age", low=20, high=90, complete=True), (30.0, 40.0, 50.0, 60.0, 70.0, 80.0)),
        (Column(name="sex", categories=("f", "m"), complete=True), ()),
        (Column(name="died", categories=("no", "yes"), complete=True), ()),
    )
    coded = tuple(
        CodedColumn(levels=Levels(column=one, cuts=cuts), complete=True) for one, cuts in columns
    )
    design = Design(columns=coded, targets=(2,), rounds=3, relation="add-remove")
    return released(design, cells, sigma=5.0, seed=1)


def released(
    design: Design, cells: dict[str, np.ndarray], *, sigma: float, seed: int
) -> SyntheticData:
    """All sums of some records, with noise from a generator that is no secret."""
    rng, parameters, sums = np.random.default_rng(seed), design.start, []
    for _ in range(design.rounds):
        exact = design.sum(cells, parameters)
        sums.append(exact + rng.normal(0.0, sigma, design.size))
        parameters = design.update(sums, sigma, parameters)
    return SyntheticData(design=design, sums=np.array(sums), sigma=sigma)
