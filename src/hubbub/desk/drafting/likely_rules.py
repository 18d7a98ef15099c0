"""Rules that hold in every row of some files, and would not by chance: proposals for `[synthetic]`.

A rule is proposed where rows that break it would be many if its two columns had nothing to do with
each other. Whether it holds for everybody, people say; its numbers are rounded, as bounds are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, permutations, product
from keyword import iskeyword
from math import ceil, floor, log10
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import StudyError
from hubbub.core.tabular.cell_rule import CellFault
from hubbub.core.tabular.column import Column
from hubbub.desk.drafting.column_draft import NOT_RECORDED
from hubbub.estimation.synthesis.row_rules import RowRules

_EXPECTED = 20.0  # rows that would break a rule by chance
_MOST_COLUMNS, _MOST_RULES = 30, 10
Values = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class LikelyRules:
    """What may be said of every record.

    Args:
        follows: by a column its expression.
        possible: expressions that hold.
    """

    follows: Mapping[str, str]
    possible: tuple[str, ...]


def likely_rules(columns: Sequence[Column], cells: Mapping[str, Sequence[str]]) -> LikelyRules:
    """Rules of these columns, by the cells of all files."""
    some = columns[:_MOST_COLUMNS]
    values = {one.name: _values(one, cells[one.name]) for one in some}
    numbers = [one for one in some if not one.categories]
    classes = [one for one in some if one.categories]
    follows: dict[str, str] = {}
    for one, number in product(classes, numbers):
        text = _follows(one, number, values)
        if text and _is_read(some, follows=((one.name, text),)):
            follows.setdefault(one.name, text)
    possible = [
        *(rule for pair in combinations(classes, 2) for rule in _exclusive(*pair, values)),
        *(rule for pair in permutations(numbers, 2) for rule in _ordered(*pair, values)),
        *(
            rule
            for one, number in product(classes, numbers)
            if one.name not in follows
            for rule in _bounded(one, number, values)
        ),
    ]
    read = (text for text in possible if _is_read(some, possible=(text,)))
    return LikelyRules(follows=follows, possible=tuple(islice(read, _MOST_RULES)))


def _is_read(columns: Sequence[Column], **rules: Any) -> bool:
    """Whether a study may say so; a long name or an odd one fits no expression."""
    try:
        _ = RowRules(columns={one.name: one for one in columns}, **rules)
    except StudyError:
        return False
    return True


def _values(column: Column, cells: Sequence[str]) -> Values:
    """Numbers, or places of categories; nan where a cell is missing or none of the column's."""
    read = {cell: column.rule_with_gaps(cell) for cell in set(cells)}
    return np.array([np.nan if isinstance(v := read[cell], CellFault) else v for cell in cells])


def _both(first: Column, second: Column, values: Mapping[str, Values]) -> tuple[Values, Values]:
    """The values of the rows that have both."""
    one, other = values[first.name], values[second.name]
    known = ~(np.isnan(one) | np.isnan(other))
    return one[known], other[known]


def _exclusive(a: Column, b: Column, values: Mapping[str, Values]) -> Iterator[str]:
    """Categories that never come together."""
    first, second = _both(a, b, values)
    shape = len(a.categories), len(b.categories)
    pairs = (first * shape[1] + second).astype(np.int64)
    met = np.bincount(pairs, minlength=shape[0] * shape[1]).reshape(shape)
    expected = np.outer(met.sum(axis=1), met.sum(axis=0)) / max(len(first), 1)
    for i, j in np.argwhere((met == 0) & (expected >= _EXPECTED)):
        one, other = a.categories[i], b.categories[j]
        if NOT_RECORDED not in (one, other):
            yield f"not ({_is(a, one)} and {_is(b, other)})"


def _follows(a: Column, number: Column, values: Mapping[str, Values]) -> str:
    """Whether the second of two categories is all that lies above a number, or up to it."""
    if len(a.categories) != 2:
        return ""
    place, value = _both(a, number, values)
    below, above = value[place == 0], value[place == 1]
    if min(len(below), len(above)) < _EXPECTED:
        return ""
    if below.max() < above.min():
        return f"{_name(number)} > {_between(below.max(), above.min()):.12g}"
    if above.max() < below.min():
        return f"{_name(number)} <= {_between(above.max(), below.min()):.12g}"
    return ""


def _bounded(a: Column, number: Column, values: Mapping[str, Values]) -> Iterator[str]:
    """Numbers beyond which a category never is."""
    place, value = _both(a, number, values)
    low, high = number.bounds
    unit = 10.0 ** floor(log10((high - low) / 5))
    for k, category in enumerate(a.categories):
        own = value[place == k]
        if category == NOT_RECORDED or len(own) < _EXPECTED:
            continue
        share = len(own) / len(value)
        most, least = np.ceil(own.max() / unit) * unit, np.floor(own.min() / unit) * unit
        for sign, end, beyond in ((">", most, value > most), ("<", least, value < least)):
            if beyond.sum() * share >= _EXPECTED:
                yield f"not ({_is(a, category)} and {_name(number)} {sign} {end:.12g})"


def _ordered(a: Column, b: Column, values: Mapping[str, Values]) -> Iterator[str]:
    """A number that is never above another one."""
    one, other = _both(a, b, values)
    if len(one) and (one <= other).all():
        ranks = np.searchsorted(np.sort(other), one)  # of others' values that lie below
        if ranks.mean() >= _EXPECTED and (one < other).any():
            yield f"{_name(a)} <= {_name(b)}"


def _is(column: Column, category: str) -> str:
    return f"{_name(column)} == {json.dumps(category, ensure_ascii=False)}"


def _name(column: Column) -> str:
    """A column as an expression has it."""
    name = column.name
    return name if name.isidentifier() and name.isascii() and not iskeyword(name) else f"`{name}`"


def _between(least: float, most: float) -> float:
    """The roundest number from the first on that is below the second."""
    unit = 10.0 ** floor(log10(most - least) + 1)
    while ceil(least / unit) * unit >= most:
        unit /= 10
    return ceil(least / unit) * unit
