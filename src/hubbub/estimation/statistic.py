"""What every kind of statistic has in common: cells go in, an answer comes out.

A statistic is made of public settings and columns alone. It turns records into vectors whose
length it bounds, and a noisy sum of them into an answer. It knows neither silos nor budgets.

Cells become numbers in [-1, 1], or the number of one of a column's public classes. Both are total:
whatever float stands in a cell, infinities and missing values included, becomes a number in range
or "missing". Bounds, categories and cuts are the study's; nothing is computed from records here.

What an answer consists of are plain values that know how they are written down. All of them follow
from noisy sums and public numbers alone.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from hubbub.core.settings import Key
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Array, Cells, Levels
from hubbub.estimation.data_frame import data_frame

if TYPE_CHECKING:
    from hubbub.estimation.stacking import Margins
    from hubbub.estimation.statistic_keys import StatisticKeys

Parameters = NDArray[np.float32]

MISSING = "missing"
LOGARITHM = "logarithm"  # of a ratio, which a standard error is of
TOO_FEW = "too few records for the noise"


def scaled(cells: Cells, column: Column) -> Array:
    """(n,) numbers in [-1, 1], nan where the cell is missing."""
    low, high = column.bounds
    unit = (np.clip(cells[column.name], low, high) - low) / (high - low)
    return np.asarray(np.clip(2.0 * unit - 1.0, -1.0, 1.0))


def one_hot(places: NDArray[np.int64], size: int) -> Array:
    """(n, size) with a 1 at each place; places below 0 give zeros, in the same operations."""
    return np.asarray(places[:, None] == np.arange(size), dtype=np.float64)


def group_names(by: Levels | None) -> tuple[str, ...]:
    """What groups are called; "" is all records, where nothing divides them."""
    return by.names if by else ("",)


def group_sums(sums: Array, by: Levels | None, sigma: float) -> list[tuple[str, Array, float]]:
    """Each group's name, its numbers and their noise; before them those of all groups, as ""."""
    names = group_names(by)
    blocks = sums.reshape(len(names), -1)
    groups = list(zip(names, blocks, [sigma] * len(blocks), strict=True))
    whole = [("", blocks.sum(axis=0), sigma * math.sqrt(len(blocks)))] if by else []
    return [*whole, *groups]


def in_own_groups(block: Array, by: Levels | None, cells: Cells) -> Array:
    """(n, groups x width) of (n, width): each record's block in its group's place, zeros elsewhere.

    Without groups the blocks stay as they are.
    """
    if by is None:
        return block
    groups = one_hot(by.places(cells), len(by))
    return np.asarray(
        (groups[:, :, None] * block[:, None, :]).reshape(len(block), len(by) * block.shape[1])
    )


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """One number of a table, and the interval that sampling and noise leave for it.

    Args:
        quantity: what it is: "records", "share", "mean", "hazard ratio" and the like.
        column: the column it is about; empty where it is about whole records.
        level: the category or class, empty where there is none.
        group: the group of records, empty for all.
        value: the estimate, in the unit of the quantity.
        standard_error: of sampling and noise together, on the scale that `error_of` names.
        error_of: "logarithm" where `standard_error` is that of the value's logarithm, as of ratios;
            empty where it is the value's own.
        low: lower end of the interval.
        high: upper end of the interval.
        p_value: of the test that a ratio is 1 or a slope 0; None where nothing is tested.
        p_adjusted: the same after Holm, where the study names a family of tests.
    """

    quantity: str
    column: str = ""
    level: str = ""
    group: str = ""
    value: float
    standard_error: float
    error_of: str = ""
    low: float
    high: float
    p_value: float | None = None
    p_adjusted: float | None = None

    def __post_init__(self) -> None:
        """Keeps Python's own floats."""
        for name in ("value", "standard_error", "low", "high"):
            object.__setattr__(self, name, float(getattr(self, name)))


@dataclass(frozen=True, kw_only=True)
class NoisyTest:
    """A test whose p-value takes the noise into account.

    Args:
        name: "chi-square", "log-rank", "Welch's t", "Welch's F" and the like.
        column: whose values differ between groups; empty where the title says it.
        statistic: compared with a law of that name, chi-square for most; no unit.
        degrees: of freedom.
        degrees_below: of freedom of the denominator of an F; None of other laws.
        p_value: probability of such a statistic or a larger one if nothing differs.
        z: signed root of the statistic, the first group's excess of events; None where there are
            more than two groups.
        smd: standardised mean difference of two groups, the mean over pairs of more, without what
            noise adds to it on average; None where there is none.
        p_adjusted: the p-value after Holm, where the study names a family of tests.
    """

    name: str
    column: str = ""
    statistic: float
    degrees: float
    degrees_below: float | None = None
    p_value: float
    z: float | None = None
    smd: float | None = None
    p_adjusted: float | None = None


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A function with point-wise intervals and, for survival, a band and numbers at risk.

    Args:
        name: of its group, empty for all records.
        column: whose values x are; empty where that is not said.
        x: where it is known, in the unit of its column.
        y: its value at each x; between two it goes straight from one to the other.
        low: lower ends of the point-wise intervals.
        high: their upper ends.
        band_low: lower ends of the band that holds the whole curve with the stated confidence.
        band_high: its upper ends.
        at_risk: records at risk just after each x, all of them at the first, with noise.
        at_risk_error: standard error of these numbers.
    """

    name: str
    column: str = ""
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    band_low: tuple[float, ...] = ()
    band_high: tuple[float, ...] = ()
    at_risk: tuple[float, ...] = ()
    at_risk_error: tuple[float, ...] = ()

    def points(self) -> Iterator[dict[str, Any]]:
        """Each of its points, as plain values by the names of its fields."""
        named = {"name": self.name, "column": self.column}
        told = {key: value for key, value in asdict(self).items() if value and key not in named}
        for values in zip(*told.values(), strict=True):
            yield named | dict(zip(told, values, strict=True))


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer to one statistic of a study.

    Args:
        kind: the statistic's kind, "table" for example.
        title: one line that says what is shown.
        confidence: probability with which each interval holds its true value.
        rows: numbers of a table.
        curves: curves over a grid.
        tests: results of tests.
        notes: sentences that a reader needs: what was left out, what an estimate means.
        refusal: why nothing is shown, in one sentence; empty where there is an answer.
        library: whose data frames `to_frame` gives; "": of the first that is installed.
    """

    kind: str
    title: str
    confidence: float
    rows: tuple[Estimate, ...] = ()
    curves: tuple[Curve, ...] = ()
    tests: tuple[NoisyTest, ...] = ()
    notes: tuple[str, ...] = ()
    refusal: str = ""
    library: str = field(default="", repr=False, compare=False)

    def to_frame(
        self, part: Literal["rows", "tests", "curves"] = "rows", *, library: str = ""
    ) -> Any:
        """A data frame of its rows, its tests, or the points of its curves.

        Args:
            part: "rows" has a column for each field of `Estimate`, "tests" for each of `NoisyTest`,
                "curves" a row for each point and a column for each field of `Curve`.
            library: "pandas", "polars" or "pyarrow"; "": that of the tables that were asked.

        Raises:
            UserError: the library is not installed.
        """
        rows = (self.rows, self.tests)[part == "tests"]
        plain = [asdict(row) for row in rows]
        points = [point for curve in self.curves for point in curve.points()]
        return data_frame(points if part == "curves" else plain, library or self.library)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        plain: dict[str, Any] = plain_values(asdict(self))
        del plain["library"]
        return plain


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What can be said of an answer before any record is touched.

    Args:
        errors: expected standard errors by what they belong to, each in its own unit.
        sentence: the same in words.
        answered: whether there will be an answer: in 98 of 100 releases or more, also where records
            are skewed.
        possible: whether there may be one, which records decide.
    """

    errors: tuple[tuple[str, float], ...]
    sentence: str
    answered: bool
    possible: bool


def plain_values(value: Any) -> Any:
    """A value as JSON has it; a number that is not finite becomes None."""
    if isinstance(value, dict):
        return {key: plain_values(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain_values(part) for part in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value


@dataclass(frozen=True, kw_only=True)
class Statistic(ABC):
    """What all statistics of a study have in common: a block of the vector, and its bounds.

    Args:
        weight: how much its errors count against those of other statistics; positive, no unit.
        confidence: of its intervals, a probability.
    """

    weight: float = 1.0
    confidence: float = 0.95

    kind: ClassVar[str]  # "table" for example
    keys: ClassVar[Mapping[str, Key]]  # of its table, besides kind, weight and confidence
    methods: ClassVar[str] = ""  # what a paper says was done, in a clause
    rounds: ClassVar[int] = 1  # how many sums it needs
    if_noisy: ClassVar[str] = "refused"  # what becomes of it where noise is too large

    @classmethod
    @abstractmethod
    def read(cls, keys: StatisticKeys) -> OneSum | Iterated:
        """The statistic that a table of a study asks for; StudyError if it asks for none."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The keys that `read` reads it back from, every one that it has."""

    def to_table(self) -> dict[str, Any]:
        """The whole table that it is read from."""
        common = {"kind": self.kind, "weight": self.weight, "confidence": self.confidence}
        return common | self.settings()

    @property
    @abstractmethod
    def title(self) -> str:
        """What it shows, in one line."""

    @property
    @abstractmethod
    def size(self) -> int:
        """How many numbers its block has."""

    @property
    @abstractmethod
    def sensitivity(self) -> float:
        """The largest L2 norm of one record's block; no unit (docs/privacy.md P23)."""

    @property
    @abstractmethod
    def diameter(self) -> float:
        """The largest L2 distance of two records' blocks; no unit (docs/privacy.md P23)."""

    @property
    def start(self) -> Parameters:
        """Parameters of the first sum, float32; empty where one sum is all."""
        return np.zeros(0, np.float32)

    @abstractmethod
    def expected(self, records: float, sigma: float) -> Expectation:
        """What may be said with about so many records and this noise in its block."""

    def make_expectation(
        self,
        errors: Mapping[str, float],
        sigma: float,
        told: str,
        *,
        answered: bool,
        possible: bool = False,
        group: str = "",
        place: str = "",
    ) -> Expectation:
        """What is expected of it: `told`, if it may be answered, and what is in doubt."""
        why = f"records{group} for its noise of {sigma:.3g}{place}"
        if not answered:
            doubtful = f"{told}; but if the values are skewed there are too few {why}"
            hopeless = f"too few {why}: it will be {self.if_noisy}"
            told = f"{doubtful}, and it is {self.if_noisy}" if possible else hopeless
        return Expectation(
            errors=tuple(errors.items()),
            sentence=told,
            answered=answered,
            possible=answered or possible,
        )

    def make_answer(self, refusal: str = "", **parts: Any) -> Answer:
        """Its answer of these parts, or a refusal."""
        parts |= {"kind": self.kind, "title": self.title, "confidence": self.confidence}
        return Answer(refusal=refusal, **parts)


class OneSum(Statistic):
    """One that needs a single sum."""

    @property
    def margins(self) -> Margins:
        """What its block tells that others of the study may tell, too."""
        return {}

    @abstractmethod
    def encode(self, cells: Cells) -> Array:
        """The blocks of n records, (n, size)."""

    @abstractmethod
    def answer(self, sums: Array, sigma: float) -> Answer:
        """The answer from a noisy sum (size,) whose numbers have independent noise of sd sigma."""


class Iterated(Statistic):
    """One that needs a few steps, each taken at the parameters that the step before it gave.

    A step is one sum or several, all taken at the same parameters: their mean has less noise.
    """

    steps: ClassVar[tuple[int, ...]]  # how many sums each has; `rounds` is their number

    @abstractmethod
    def encode_at(self, cells: Cells, parameters: Parameters) -> Array:
        """The blocks of n records at these parameters, (n, size); bounded whatever these are."""

    @abstractmethod
    def update(self, sums: Array, sigma: float, parameters: Parameters) -> Parameters:
        """The parameters after a step, the mean of whose sums was taken at `parameters`."""

    @abstractmethod
    def answer_from(self, sums: Array, sigmas: Array) -> Answer:
        """The answer from the steps' mean sums, (steps, size), and the noise of each, (steps,)."""
