"""The contract of a kind of statistics: what privacy, answers and verification rest on.

Records are drawn and searched for, noise is drawn from a seed; nothing is sent or written. What a
record may move a sum by is tried at the ends of every column, at what is no number, and by climbing
from there. That is a search and no proof: a bound that it finds broken is wrong, one that it does
not may be (docs/privacy.md P23).

Intervals are tried in releases of records drawn anew from 2,000, 100 of them or, where a kind needs
many sums, 40. A sound statistic is refused with a probability of at most 1e-6: where it has one
row, from 28 misses of its value in 100 on, or 17 in 40, and 13 or 9 releases without an answer that
a plan promised; where it has forty, from 31 or 18 and 14 or 10 on. Of forty, intervals a third as
long as they should be are refused by a row with a probability of .99 or, of many sums, .83; half as
long with .67 or .07.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hubbub.core.settings import Section
from hubbub.core.study.study import Study
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Array, Cells
from hubbub.estimation.kinds import KINDS, register
from hubbub.estimation.stacking import RELATIONS, stack
from hubbub.estimation.statistic import Answer, Estimate, Iterated, OneSum, Parameters, Statistic
from hubbub.estimation.statistic_keys import COMMON, StatisticKeys
from hubbub.testing.laws import as_declared, check_keys, completing, hold, too_often, trying

_NAME = "checked"
_FALSE_ALARM = 1e-6  # of all intervals and promises of a sound statistic together
_SHORT = 0.05  # by how much intervals may hold less often than they say
_REFUSED = 0.02  # of releases that a plan has promised
_RECORDS, _RELEASES, _RELEASES_OF_MANY_SUMS = 2000, 100, 40
_QUIET = 1e-7  # noise that does nothing
_ROUNDING = 1 + 1e-12  # of float64; stacking leaves room for much more
# What stands in cells that nobody should send.
_NO_NUMBERS = (math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, -0.0, -0.5)
_CLIMBERS, _SWEEPS, _DRAWN = 12, 2, 400
_LOOSE = 4  # bounds may be so many times what a search reaches, or noise drowns answers for nothing
_WILD = 6  # draws of each kind of sums that no records have
RowOf = tuple[str, str, str, str]
Truth = Callable[[Cells], Mapping[RowOf, float]]


def check_statistic(
    kind: type[OneSum] | type[Iterated],
    table: Mapping[str, Any],
    columns: Sequence[Column],
    *,
    cells: Cells | None = None,
    truth: Truth | None = None,
) -> None:
    """Hold a kind of statistics, registered or not, to everything that is asked of one.

    Laws:
        1. Its table is read, written and read again to the same statistic, and to the same study.
           Missing keys, unknown ones and wrong types are refused by name.
        2. There is a block for each record, if any. It depends on that record and public numbers
           alone, is finite whatever its cells hold, no longer than `sensitivity` and no further
           than `diameter` from another's; neither of these is far more than a search reaches.
        3. An answer follows from noisy sums and their noise alone, from any of them, and each of
           its intervals holds its own estimate; another instance, as a verifier has it, finds the
           same. It survives JSON.
        4. Without noise the answer is the true one, where `truth` says that.
        5. Intervals hold their value as often as they say, less 5 points at most; what a plan
           promises is answered in 98 of 100 releases. What chance explains is no fault: the head
           of this file says how much is let through.
        6. It says in a clause what a paper prints of it.

    Args:
        kind: the class.
        table: its table `[statistics.NAME]`, all but `kind`.
        columns: those of the study.
        cells: of 500 records or more of which it can be answered; drawn if None.
        truth: from cells the values that rows have, by quantity, column, level and group.

    Raises:
        AssertionError: it breaks a law; the sentence says which, and how to mend it.

    >>> age = Column(name="age", low=20, high=90)
    >>> check_statistic(KINDS["histogram"], {"column": "age", "bins": 4}, [age])
    """
    with trying(kind), _known(kind):
        case = _read(kind, dict(table), {column.name: column for column in columns})
        case = case if cells is None else _Case(case.statistic, case.table, case.columns, cells)
        for law in (_reading, _words, _shape, _alone, _bounds, _foreseen, _answers, _intervals):
            law(case)
        if truth is not None:
            _exact(case, truth)
        _releases(case)


@dataclass(frozen=True)
class _Case:
    """A statistic that is tried, and of which columns and records."""

    statistic: OneSum | Iterated
    table: dict[str, Any]
    columns: Mapping[str, Column]
    given: Cells | None = None

    @property
    def name(self) -> str:
        """What sentences call it."""
        return f'kind = "{self.statistic.kind}"'

    def read(self) -> OneSum | Iterated:
        """Another instance, as whoever verifies a run has it."""
        mend = "let `settings` give every key as `read` reads it"
        with completing(f"{self.name} is read as it is written", mend):
            return _statistic(type(self.statistic), self.statistic.settings(), self.columns)

    @cached_property
    def cells(self) -> Cells:
        """Records as they come: most within the bounds, some without a cell."""
        if self.given is not None:
            return self.given
        rng = np.random.default_rng(1)
        return {name: _drawn(column, rng) for name, column in self.columns.items()}

    @cached_property
    def blocks(self) -> Array:
        """Of these records, at the first parameters."""
        return _encoded(self.statistic, self.cells, self.statistic.start)

    @cached_property
    def places(self) -> list[Parameters]:
        """Parameters at which blocks are tried: none but the empty ones where one sum is all."""
        start = self.statistic.start
        if not isinstance(self.statistic, Iterated):
            return [start]
        rng = np.random.default_rng(2)
        near = [start + rng.normal(0, size, start.size) for size in (0.3, 1.0, 30.0)]
        wild = [np.full(start.size, value) for value in (0.7, -3e38, np.inf, np.nan)]
        return [start, *(np.asarray(one, np.float32) for one in (*near, *wild))]


def _drawn(column: Column, rng: np.random.Generator) -> Array:
    """Cells of a column: one in thirty missing, where that may be."""
    if column.categories:
        values = rng.integers(0, len(column.categories), _RECORDS).astype(np.float64)
    else:
        low, high = column.bounds
        values = low + (high - low) * rng.beta(1.6, 1.4, _RECORDS)
    return values if column.complete else np.where(rng.random(_RECORDS) < 1 / 30, np.nan, values)


@contextmanager
def _known(kind: type[OneSum] | type[Iterated]) -> Iterator[None]:
    """Studies of this process may ask for the kind, for as long as it is tried."""
    is_there = KINDS.get(kind.kind) is kind
    with completing("a kind has a name of its own", "give the class another `kind`"):
        register(kind)
    try:
        yield
    finally:
        if not is_there:
            del KINDS[kind.kind]


def _statistic(
    kind: type[Statistic], table: Mapping[str, Any], columns: Mapping[str, Column]
) -> OneSum | Iterated:
    section = Section(f"statistics.{_NAME}", table, (*COMMON, *kind.keys))
    return kind.read(StatisticKeys(section, columns))


def _read(
    kind: type[OneSum] | type[Iterated], table: dict[str, Any], columns: Mapping[str, Column]
) -> _Case:
    law = f'the table of kind = "{kind.kind}" that is tried is read'
    with completing(law, "mend `read`, or the table that the suite was given"):
        return _Case(_statistic(kind, table, columns), table, columns)


def _encoded(asked: OneSum | Iterated, cells: Cells, parameters: Parameters) -> Array:
    """The blocks of records, whatever kind of statistic it is."""
    law = f'kind = "{asked.kind}" makes a block of any record'
    with np.errstate(all="ignore"), completing(law, "clip, and count what is no number as missing"):
        if isinstance(asked, Iterated):
            return asked.encode_at(cells, parameters)
        return asked.encode(cells)


# 1. Settings, and 6. words.


def _reading(case: _Case) -> None:
    """Keys and their words; the same statistic and study after writing and reading."""
    asked, columns = case.statistic, case.columns
    kind = KINDS[asked.kind]
    own = {name: key for name, key in kind.keys.items() if key.says}
    hold(
        f"each key of {case.name} is described, and none is every statistic's",
        own.keys() == kind.keys.keys() and not own.keys() & {"kind", *COMMON},
        f"the keys {', '.join(kind.keys)}",
        "describe each in `keys` by a function of hubbub.core.settings, such as `number`",
    )
    check_keys(f"statistics.{_NAME}", case.table, lambda table: _statistic(kind, table, columns))
    again = case.read()
    hold(
        f"{case.name} is the same after it is written and read",
        again == asked and again.to_table() == asked.to_table(),
        f"{again.to_table()} in the place of {asked.to_table()}",
        "let `settings` give every key as `read` reads it, and the class be a frozen dataclass",
    )
    studies = [_study(case, table) for table in (case.table, asked.settings())]
    studies += [_study(case, dict(reversed(case.table.items()))), Study.parse(studies[0].as_toml())]
    hold(
        f"a study that asks for {case.name} has one id, however it is written",
        len({study.id for study in studies}) == 1,
        "several",
        "let `settings` write every default out, in one form",
    )


def _study(case: _Case, table: Mapping[str, Any]) -> Study:
    """A study that asks for nothing else."""
    with completing(f"a study may ask for {case.name}", "let `settings` give plain values of TOML"):
        return Study.from_table(
            {
                "study": {"name": _NAME},
                "parties": {"names": ["north", "south", "east"], "colluders": 1},
                "data": {
                    "files": "{name}.csv",
                    "columns": {name: as_declared(one) for name, one in case.columns.items()},
                },
                "privacy": {"epsilon": 4.0, "delta": 1e-5},
                "statistics": {_NAME: {"kind": case.statistic.kind, **table}},
            }
        )


def _words(case: _Case) -> None:
    """A title in one line, and a clause for a paper."""
    asked = case.statistic
    for what, text in (("title", asked.title), ("methods", type(asked).methods)):
        hold(
            f"`{what}` of {case.name} is a line of its own",
            text.strip() == text and text.isprintable() and text,
            repr(text),
            f"say in `{what}` what it shows"
            if what == "title"
            else "say what a paper prints: "
            '`methods = "means are of clipped values"`, without a full stop',
        )


# 2. What a record may do to a sum.


def _shape(case: _Case) -> None:
    """As many numbers as are stated, for any number of records."""
    asked, size = case.statistic, case.statistic.size
    for records in (len(next(iter(case.cells.values()))), 1, 0):
        cells = {name: values[:records] for name, values in case.cells.items()}
        found = _encoded(asked, cells, asked.start)
        hold(
            f"{case.name} makes ({records}, size) numbers of {records} records",
            found.shape == (records, size) and found.dtype == np.float64 and size > 0,
            f"{found.dtype} of the shape {found.shape}, and size = {size}",
            "let the encoding give a row of `size` float64 for each record",
        )
    longest, apart = asked.sensitivity, asked.diameter
    hold(
        f"the bounds of {case.name} go together",
        0 < apart <= 2 * longest * _ROUNDING and math.isfinite(longest),
        f"sensitivity = {longest} and diameter = {apart}",
        "two blocks are no further apart than twice the longest",
    )


def _alone(case: _Case) -> None:
    """A block follows from its own record, and the cells stay as they are."""
    asked, rng = case.statistic, np.random.default_rng(3)
    cells = _records(_ends(case), rng, _DRAWN)
    order = rng.permutation(_DRAWN)
    for place in case.places:
        before = {name: values.copy() for name, values in cells.items()}
        blocks, again = (_encoded(asked, cells, place) for _ in range(2))
        hold(
            f"{case.name} leaves the cells as they are",
            all(np.array_equal(before[name], cells[name], equal_nan=True) for name in cells),
            "others after encoding them",
            "work on a copy",
        )
        mixed = _encoded(asked, {name: values[order] for name, values in cells.items()}, place)
        few = {name: values[:1] for name, values in cells.items()}
        # Sums of another order differ by last digits, of which stacking rounds most away.
        near = 1e-12 * asked.sensitivity
        hold(
            f"a record's block of {case.name} follows from that record alone",
            np.array_equal(blocks, again, equal_nan=True)
            and np.allclose(mixed, blocks[order], rtol=0, atol=near, equal_nan=True)
            and np.allclose(
                *(_encoded(asked, few, place), blocks[:1]), rtol=0, atol=near, equal_nan=True
            ),
            "another block of the same record beside others, or the second time",
            "compute nothing from all records, such as a mean or a rank, and draw nothing",
        )


def _bounds(case: _Case) -> None:
    """No block is longer than stated, and no two are further apart, at any parameters."""
    asked, rng, ends = case.statistic, np.random.default_rng(4), _ends(case)
    most = {"sensitivity": 0.0, "diameter": 0.0}  # that any search reached
    for place in case.places:

        def blocks(cells: Cells, place: Parameters = place) -> Array:
            encoded = _encoded(asked, cells, place)
            hold(
                f"blocks of {case.name} are finite whatever stands in cells",
                np.isfinite(encoded).all(),
                f"a block that is not at the parameters {place[:4].tolist()}",
                "clip to public bounds, and count what is no number as missing",
            )
            return encoded

        longest, apart = _reached(blocks, ends, rng)
        for what, reached, stated_bound, says in (
            ("sensitivity", longest, asked.sensitivity, "is longer"),
            ("diameter", apart, asked.diameter, "is further from another"),
        ):
            hold(
                f"no block of {case.name} {says} than `{what}` = {stated_bound}",
                reached <= stated_bound * _ROUNDING,
                f"{reached:.12g}",
                f"raise `{what}` to what is proven, or clip the block",
            )
            most[what] = max(most[what], reached)
    for what, reached in most.items():
        hold(
            f"the {what} of {case.name} is no more than {_LOOSE} times what blocks reach",
            getattr(asked, what) <= _LOOSE * reached,
            f"{getattr(asked, what):g}, of which a search reaches {reached:.3g}",
            f"lower `{what}` to what is proven: the noise is in proportion",
        )
    for relation in RELATIONS:
        alone = stack({_NAME: asked}, relation)
        hold(
            f"{case.name} has its place in a study under {relation}",
            (alone.sensitivity if relation == RELATIONS[0] else alone.diameter) <= _ROUNDING,
            f"a vector of length {alone.sensitivity}",
            "state positive, finite bounds and errors",
        )


def _ends(case: _Case) -> dict[str, Array]:
    """Of each column the cells at which bounds may be reached, and what nobody should send."""
    ends = {}
    for name, column in case.columns.items():
        if column.categories:
            many = len(column.categories)
            inside = [*range(many), many]
        else:
            low, high = column.bounds
            inside = [*np.linspace(low, high, 13), *(low + (high - low) * x for x in (0.3, 0.7))]
        ends[name] = np.array([*inside, *_NO_NUMBERS], dtype=np.float64)
    return ends


def _records(ends: Mapping[str, Array], rng: np.random.Generator, number: int) -> dict[str, Array]:
    """Records whose cells are ends, or lie between two of them."""
    records = {}
    for name, values in ends.items():
        cells = rng.choice(values, number)
        inside = values[: len(values) - len(_NO_NUMBERS)]
        between = rng.uniform(inside.min(), inside.max(), number)
        records[name] = np.where(rng.random(number) < 0.3, between, cells)
    return records


def _reached(
    blocks: Callable[[Cells], Array], ends: Mapping[str, Array], rng: np.random.Generator
) -> tuple[float, float]:
    """The longest block that a search reaches, and the largest distance of two."""
    cells = _records(ends, rng, _DRAWN)
    drawn = blocks(cells)
    lengths = np.linalg.norm(drawn, axis=1)
    best = np.argsort(-lengths)[:_CLIMBERS]
    longest = _climbed(blocks, ends, cells, best, np.zeros((1, drawn.shape[1])))
    # From the pairs that are furthest apart each record climbs away from the other.
    first, second, apart = _furthest(drawn)
    for mine, others in ((first, second), (second, first)):
        apart = max(apart, _climbed(blocks, ends, cells, mine, drawn[others]))
    return max(float(lengths.max()), longest), apart


def _climbed(
    blocks: Callable[[Cells], Array],
    ends: Mapping[str, Array],
    cells: Mapping[str, Array],
    starts: np.ndarray[Any, Any],
    origin: Array,
) -> float:
    """The largest distance from an origin, one cell after another put where it is largest."""
    here, best = {name: values[starts] for name, values in cells.items()}, 0.0
    for _ in range(_SWEEPS):
        for name, values in ends.items():
            tried = {other: np.repeat(cell, len(values)) for other, cell in here.items()}
            tried[name] = np.tile(values, len(starts))
            towards = np.broadcast_to(origin, (len(starts), origin.shape[1]))
            far = np.linalg.norm(blocks(tried) - np.repeat(towards, len(values), axis=0), axis=1)
            far = far.reshape(len(starts), len(values))
            here[name] = values[far.argmax(axis=1)]
            best = max(best, float(far.max()))
    return best


def _furthest(vectors: Array) -> tuple[Any, Any, float]:
    """The pairs that are furthest apart, and how far: from differences, as squares lose digits."""
    squares = np.sum(vectors**2, axis=1)
    near = squares[:, None] + squares - 2 * vectors @ vectors.T
    first, second = np.unravel_index(np.argsort(-near, axis=None)[: 4 * _CLIMBERS], near.shape)
    exact = np.linalg.norm(vectors[first] - vectors[second], axis=1)
    best = np.argsort(-exact)[:_CLIMBERS]
    return first[best], second[best], float(exact.max())


# 3. What an answer rests on.


def _sums(case: _Case, sigma: float, rng: np.random.Generator, weights: Array) -> list[Array]:
    """One noisy sum after the other, of the records with these weights."""
    asked, place = case.statistic, case.statistic.start
    blocks = case.blocks
    if not isinstance(asked, Iterated):
        return [weights @ blocks + sigma * rng.standard_normal(asked.size)]
    means = []
    for step, sums in enumerate(asked.steps):
        blocks = _encoded(asked, case.cells, place) if step else blocks
        noise = sigma / math.sqrt(sums)
        means.append(weights @ blocks + noise * rng.standard_normal(asked.size))
        if step + 1 < len(asked.steps):
            place = asked.update(means[-1].copy(), noise, place)
    return means


def _answered(asked: OneSum | Iterated, sums: Sequence[Array], sigma: float) -> Answer:
    """What sums say; numbers that say nothing may be divided by."""
    with np.errstate(all="ignore"):
        if isinstance(asked, Iterated):
            noise = sigma / np.sqrt(np.array(asked.steps, dtype=np.float64))
            return asked.answer_from(np.array(sums), noise)
        return asked.answer(sums[0], sigma)


def _plain(answer: Answer) -> str:
    return json.dumps(answer.to_dict(), sort_keys=True)


def _any_sums(case: _Case) -> AbstractContextManager[None]:
    law = f"{case.name} has an answer for any finite sums"
    return completing(law, "where sums say nothing, give `make_answer` a refusal")


def _answers(case: _Case) -> None:
    """Any finite sums have an answer, of them alone, that another instance finds and JSON keeps."""
    asked, rng = case.statistic, np.random.default_rng(5)
    everybody = np.ones(len(case.blocks))
    fair = _sums(case, 1.0, rng, everybody)
    wild = [[factor * vector for vector in fair] for factor in (0.0, -1.0, 1e-9, 1e9)]
    wild += [[1e3 * rng.standard_normal(asked.size) for _ in fair]]
    for sums in (fair, *wild):
        before = [vector.copy() for vector in sums]
        with _any_sums(case):
            answer = _answered(asked, sums, 1.0)
            plain = _plain(answer)
            kept = json.loads(plain)
            json.dumps(kept, allow_nan=False)
        hold(
            f"an answer of {case.name} leaves the sums as they are",
            all(np.array_equal(one, two) for one, two in zip(before, sums, strict=True)),
            "others after it",
            "work on a copy",
        )
        _encoded(asked, {n: v[::-1] for n, v in case.cells.items()}, asked.start)  # others' records
        again = [_plain(_answered(one, before, 1.0)) for one in (asked, case.read())]
        hold(
            f"an answer of {case.name} follows from the noisy sums and their noise alone",
            again == [plain, plain],
            "another answer from the same sums, the second time or of an instance that is read "
            "from the study",
            "keep nothing in the class between records and answers, and draw nothing",
        )
        named = (answer.kind, answer.title, answer.confidence)
        hold(
            f"an answer of {case.name} says what it is of, and is an answer or a refusal",
            named == (asked.kind, asked.title, asked.confidence)
            and bool(answer.refusal) != bool(answer.rows or answer.curves or answer.tests),
            f"{named}, refusal {answer.refusal!r} and {len(answer.rows)} rows",
            "make every answer by `make_answer`",
        )
    hold(
        f"{case.name} is answered of the records that are tried",
        not (answer := _answered(asked, fair, 1.0)).refusal,
        f"the refusal {answer.refusal!r}",
        "give the suite other `cells`, from which it can be answered",
    )
    moved = [vector + 3.0 * rng.standard_normal(asked.size) for vector in fair]
    hold(
        f"{case.name} says what the sums say",
        _plain(_answered(asked, moved, 1.0)) != _plain(_answered(asked, fair, 1.0)),
        "the same answer from other sums",
        "compute the answer from the sums",
    )


def _intervals(case: _Case) -> None:
    """Whatever the sums, each interval holds its own estimate; what is no number is refused."""
    asked, rng = case.statistic, np.random.default_rng(9)
    fair = np.array(_sums(case, 1.0, rng, np.ones(len(case.blocks))))
    for sums, sigma in ((fair, 1.0), *_wild(fair, rng)):
        with _any_sums(case):
            answer = _answered(asked, list(sums), sigma)
        both: list[Any] = [*answer.tests, *answer.rows]
        p_values = [one.p_value for one in both if one.p_value is not None]
        apart = [ends for ends in _ends_of(answer) if not ends[0] <= ends[1] <= ends[2]]
        hold(
            f"each interval of {case.name} holds its own estimate, and each p-value is one",
            not apart and all(0 <= p <= 1 for p in p_values),
            f"{apart[:3]} and the p-values {p_values}",
            "mend the ends",
        )
    stacked = stack({_NAME: asked})
    none = [np.full(stacked.size, math.nan)] * stacked.rounds
    hold(
        f"{case.name} is refused where a sum is no number",
        stacked.answers(none, 1.0)[_NAME].refusal,
        "an answer",
        "leave `make_answer` as it is",
    )


def _wild(fair: Array, rng: np.random.Generator) -> Iterator[tuple[Array, float]]:
    """Sums that no records have, and noise of any size."""
    for _ in range(_WILD):
        size, sigma = 10.0 ** rng.uniform(-9, 9), 10.0 ** rng.uniform(-4, 3)
        noise = rng.standard_normal(fair.shape)
        yield size * fair, sigma
        yield -size * fair, sigma
        yield size * noise, sigma
        yield np.abs(fair) * 10.0 ** rng.uniform(-6, 6, fair.shape), sigma
        yield fair * rng.choice([-1.0, 0.0, 1e-9, 1.0], fair.shape), sigma
        yield fair * 10.0 ** rng.uniform(-4, 1) + sigma * noise, sigma
        yield np.full(fair.shape, float(rng.integers(2))), sigma


def _ends_of(answer: Answer) -> Iterator[tuple[float, float, float]]:
    """Of all its intervals and bands the low end, the estimate and the high end."""
    for row in answer.rows:
        yield row.low, row.value, row.high
    for curve in answer.curves:
        yield from zip(curve.low, curve.y, curve.high, strict=True)
        if curve.band_low:
            yield from zip(curve.band_low, curve.y, curve.band_high, strict=True)


def _foreseen(case: _Case) -> None:
    """What is expected follows from public numbers, and gets no better with more noise."""
    asked = case.statistic
    law = f"{case.name} says what to expect with any number of records and any noise"
    with completing(law, "give `make_expectation` what is known; infinity is an error, too"):
        by_noise = [asked.expected(1000.0, sigma) for sigma in (0.1, 1.0, 10.0, 1000.0)]
        few = [asked.expected(records, 1.0) for records in (0.0, 1.0)]
    for one in (*by_noise, *few):
        hold(
            law,
            one.possible >= one.answered
            and one.sentence
            and all(error >= 0 for _, error in one.errors),
            repr(one),
            "give errors that are not negative, and a sentence",
        )
    first, *_, last = by_noise
    hold(
        f"{case.name} expects no better answer with more noise",
        first.answered >= last.answered
        and all(a <= b for (_, a), (_, b) in zip(first.errors, last.errors, strict=True)),
        f"{first.errors} with little and {last.errors} with much",
        "let errors grow with sigma",
    )


# 4. and 5. Whether an answer is true.


def _rows(answer: Answer) -> dict[RowOf, Estimate]:
    return {(row.quantity, row.column, row.level, row.group): row for row in answer.rows}


def _exact(case: _Case, truth: Truth) -> None:
    """Without noise the answer is the true one."""
    everybody = np.ones(len(case.blocks))
    sums = _sums(case, 0.0, np.random.default_rng(6), everybody)
    rows, true = _rows(_answered(case.statistic, sums, _QUIET)), truth(case.cells)
    hold(
        f"`truth` speaks of rows that {case.name} has",
        true and true.keys() <= rows.keys(),
        f"{sorted(true.keys() - rows.keys())[:3]} where there are {sorted(rows)[:3]} and others",
        "name rows by quantity, column, level and group",
    )
    wrong = {
        row: (rows[row].value, value)
        for row, value in true.items()
        if not math.isclose(rows[row].value, value, rel_tol=1e-6, abs_tol=1e-6)
    }
    hold(
        f"{case.name} gives the true answer where there is no noise",
        not wrong,
        f"(answer, truth) = {dict(list(wrong.items())[:3])}",
        "let `answer` undo what the encoding does",
    )


def _releases(case: _Case) -> None:
    """Whether promised answers come, and their intervals hold what they are of.

    What has an error without noise, too, is of those from whom records are drawn; what has none, as
    a count, is of the records.
    """
    asked, rng, number = case.statistic, np.random.default_rng(7), len(case.blocks)
    # The largest noise with which a plan still promises an answer, to a tenth.
    sigma = 1000.0
    while sigma > _QUIET and not asked.expected(float(number), sigma).answered:
        sigma /= 1.1
    hold(
        f"{case.name} is answered of {number} records with some noise",
        sigma > _QUIET,
        "no noise with which `expected` says so",
        "let `expected` promise an answer where noise allows one, or give the suite other cells",
    )
    quiet = np.random.default_rng(8)
    of_all = _rows(_answered(asked, _sums(case, 0.0, quiet, np.ones(number)), _QUIET))
    counted = {key for key, row in of_all.items() if not row.standard_error > 1e3 * _QUIET}
    releases = _RELEASES_OF_MANY_SUMS if isinstance(asked, Iterated) else _RELEASES
    held: dict[RowOf, list[bool]] = {}
    refused = 0
    for _ in range(releases):
        weights = rng.multinomial(number, np.full(number, 1 / number)).astype(np.float64)
        answer = _answered(asked, _sums(case, sigma, rng, weights), sigma)
        refused += bool(answer.refusal)
        mine = of_all
        if counted:
            own = _answered(asked, _sums(case, 0.0, quiet, weights), _QUIET)
            mine = of_all | {key: row for key, row in _rows(own).items() if key in counted}
        for key, row in _rows(answer).items():
            if key in mine:
                value = mine[key].value
                held.setdefault(key, []).append(not (value < row.low or value > row.high))
    each = _FALSE_ALARM / (len(held) + 1)
    hold(
        f"{case.name} is answered where a plan promises that",
        not too_often(refused, releases, _REFUSED, each),
        f"{refused} of {releases} releases refused with noise of {sigma:.3g}",
        "let `expected` promise less",
    )
    miss = 1 - asked.confidence + _SHORT
    for key, hits in held.items():
        misses = len(hits) - sum(hits)
        hold(
            f"intervals of {case.name} hold their value in {asked.confidence:.3g} of releases",
            not too_often(misses, len(hits), miss, each),
            f"that {misses} of {len(hits)} of {' '.join(filter(None, key))} do not",
            "count the noise in, as well as sampling",
        )
