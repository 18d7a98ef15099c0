"""Rules that every record keeps: columns that follow from others, and rows that cannot be.

A model of pairs of columns knows no logic: it marries people before they were born, if only a
few. A study says the rules in public, as expressions of a record's cells, and records are drawn
until they hold (`synthesis/release.py`). That is post-processing of the noisy sums
(docs/privacy.md P26), and costs nothing.

An expression is what Python writes: names of columns (others than identifiers in `backticks`),
numbers, categories as texts, + - * /, comparisons, `in`, and, or, not, and `a if b else c`.
Nothing else is evaluated. One that reads a cell that is missing says nothing of that record.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import StudyError
from hubbub.core.number_format import offered
from hubbub.core.tabular.column import Column

Table = dict[str, list[Any]]
_LONGEST, _MOST_RULES = 300, 200  # letters of an expression; expressions
_MOST = 1e300  # what a number of an expression is below
_NUMBER, _TEXT, _TRUTH = "a number", "a category", "a truth value"
_QUOTED = re.compile(r"""`([^`]*)`|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'""")  # a name, or a text
_SUMS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_ORDERS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


class _Value(NamedTuple):
    """What a part of an expression is for each record."""

    kind: str
    cells: NDArray[Any]
    stated: tuple[str, ...] = ()  # if it is out of what the expression states, what that is
    columns: tuple[Column, ...] = ()  # of whose categories it may be


@dataclass(frozen=True, kw_only=True)
class RowRules:
    """The rules of a study's synthetic records.

    Args:
        columns: that they have, by name.
        follows: columns that follow from others, each with its expression, in this order: a number,
            a category, or of two categories whether it is the second.
        possible: what holds in every record.

    Raises:
        StudyError: an expression is none, or not of these columns.

    >>> age, wed = Column(name="age", low=0, high=90), Column(name="wed", low=0, high=90)
    >>> rules = RowRules(columns={"age": age, "wed": wed}, possible=("age - wed >= 14",))
    >>> rules.broken({"age": [30.0, 20.0, None], "wed": [10.0, 10.0, 9.0]})
    [1]
    """

    columns: Mapping[str, Column]
    follows: tuple[tuple[str, str], ...] = ()
    possible: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Evaluates every expression once."""
        if len(self.follows) + len(self.possible) > _MOST_RULES:
            raise StudyError(f"expected at most {_MOST_RULES} rules in [synthetic]; leave some out")
        one: Table = {
            name: [column.categories[0] if column.categories else column.bounds[0]]
            for name, column in self.columns.items()
        }
        for text in self.possible:
            if self._evaluated(text, one).kind != _TRUTH:
                raise _refusal(text, "a comparison, which is true or false")
        for name, text in self.follows:
            found, column = self._evaluated(text, one), self.columns[name]
            wanted = (_TRUTH, _TEXT) if column.categories else (_NUMBER,)
            if found.kind not in wanted or (found.kind == _TRUTH and len(column.categories) != 2):
                expected = _TEXT if column.categories else _NUMBER
                raise _refusal(text, f"{expected}, as column {name} has them")
            if found.kind == _TEXT:
                _ = self._in_categories(found, (column,), text)
            for other in found.columns:
                if not {*other.categories} <= {*column.categories}:
                    names = offered(column.categories)
                    raise _refusal(text, f"one of {names} of column {name}, as {other.name} is not")

    def followed(self, table: Table) -> Table:
        """The table with the columns that follow from others; in place."""
        for name, text in self.follows:
            for row, value in self._following(name, text, table):
                table[name][row] = value
        return table

    def unfollowed(self, table: Table) -> list[int]:
        """The rows in which a category is not what follows. A number seldom is, and is set."""
        off = {
            row
            for name, text in self.follows
            if self.columns[name].categories
            for row, value in self._following(name, text, table)
            if table[name][row] != value
        }
        return sorted(off)

    def _following(self, name: str, text: str, table: Table) -> Iterator[tuple[int, Any]]:
        """What a column is to be, row by row, where what it follows from is known."""
        (found, known), column = self._read(text, table), self.columns[name]
        cells = found.cells
        if found.kind == _TEXT:
            cells = self._in_categories(found, (column,), text)
        for row in map(int, np.flatnonzero(known)):
            value = cells[row]
            if found.kind == _NUMBER:
                yield row, column.nearest(float(value))
            else:
                yield row, column.categories[int(value)] if found.kind == _TRUTH else value

    def broken(self, table: Table) -> list[int]:
        """The rows that cannot be."""
        off = np.zeros(len(next(iter(table.values()))), dtype=np.bool_)
        for text in self.possible:
            found, known = self._read(text, table)
            off |= known & ~found.cells.astype(np.bool_)
        return [int(row) for row in np.flatnonzero(off)]

    def _read(self, text: str, table: Table) -> tuple[_Value, NDArray[np.bool_]]:
        """An expression of each record, and whether no cell that it reads is missing."""
        read = {one.id for one in ast.walk(self._parsed[text]) if isinstance(one, ast.Name)}
        gone = [[cell is None for cell in table[name]] for name in read]
        found = self._evaluated(text, table)
        known = ~np.any([np.zeros(len(found.cells), np.bool_), *map(np.array, gone)], axis=0)
        if found.kind == _NUMBER:
            known &= np.isfinite(found.cells)
        return found, known

    @cached_property
    def _parsed(self) -> Mapping[str, ast.expr]:
        """Each expression, whose names are those of columns."""
        texts = (*(text for _, text in self.follows), *self.possible)
        return {text: _tree(text) for text in texts}

    def _evaluated(self, text: str, table: Table) -> _Value:
        with np.errstate(all="ignore"):
            return self._part(self._parsed[text], table, text)

    def _part(self, node: ast.expr, table: Table, text: str) -> _Value:
        """A part of an expression, for each record."""
        rows = len(next(iter(table.values())))
        match node:
            case ast.Name():
                return self._column(node.id, table, text)
            case ast.Constant(value=str() as value):
                return _Value(_TEXT, np.full(rows, value, dtype=object), (value,))
            case ast.Constant(value=int() | float() as value) if (
                not isinstance(value, bool) and value < _MOST
            ):
                return _Value(_NUMBER, np.full(rows, float(value)), (f"{float(value):.15g}",))
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                numbers = self._of(_NUMBER, inner, table, text)
                stated = (
                    (f"{ast.literal_eval(node):.15g}",) if isinstance(inner, ast.Constant) else ()
                )
                return _Value(_NUMBER, -numbers, stated)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _SUMS:
                sides = [self._of(_NUMBER, one, table, text) for one in (left, right)]
                return _Value(_NUMBER, _SUMS[type(op)](*sides))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                held = self._of(_TRUTH, test, table, text)
                one, other = self._part(body, table, text), self._part(orelse, table, text)
                if one.kind != other.kind:
                    raise _refusal(text, f"{one.kind} on both sides of else")
                both = one.stated + other.stated
                if one.kind == _NUMBER and not (one.stated and other.stated):
                    both = ()
                cells = np.where(held, one.cells, other.cells)
                return _Value(one.kind, cells, both, one.columns + other.columns)
        return _Value(_TRUTH, self._held(node, table, text))

    def _held(self, node: ast.expr, table: Table, text: str) -> NDArray[np.bool_]:
        """Whether a part holds, for each record."""
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return np.asarray(~self._of(_TRUTH, inner, table, text))
            case ast.BoolOp(op=op, values=values):
                parts = [self._of(_TRUTH, one, table, text) for one in values]
                join = np.all if isinstance(op, ast.And) else np.any
                return np.asarray(join(parts, axis=0))
            case ast.Compare(
                left=left,
                ops=[ast.In() | ast.NotIn() as op],
                comparators=[ast.Tuple(elts=[_, *_] as listed) | ast.List(elts=[_, *_] as listed)],
            ):
                value = self._part(left, table, text)
                others = [self._part(one, table, text) for one in listed]
                equal = [self._compared(value, ast.Eq(), one, text) for one in others]
                return np.asarray(np.any(equal, axis=0) == isinstance(op, ast.In))
            case ast.Compare(left=left, ops=ops, comparators=rest):
                sides = [self._part(one, table, text) for one in (left, *rest)]
                pairs = zip(sides, ops, sides[1:], strict=False)
                held = [self._compared(one, op, other, text) for one, op, other in pairs]
                return np.asarray(np.all(held, axis=0))
        raise _refusal(
            text,
            'columns, numbers, texts, + - * /, comparisons, in ("a", "b"), and, or, not, if else',
        )

    def _column(self, name: str, table: Table, text: str) -> _Value:
        column = self.columns.get(name)
        if column is None:
            raise _refusal(text, f"columns out of {offered(self.columns)}, not {name!r}")
        if column.categories:
            return _Value(_TEXT, np.array(table[name], dtype=object), columns=(column,))
        return _Value(_NUMBER, np.array(table[name], dtype=np.float64))

    def _of(self, kind: str, node: ast.expr, table: Table, text: str) -> NDArray[Any]:
        """A part that must be of a kind."""
        found = self._part(node, table, text)
        if found.kind != kind:
            raise _refusal(text, f"{kind} where there is {found.kind}")
        return found.cells

    def _compared(self, one: _Value, op: ast.cmpop, other: _Value, text: str) -> NDArray[np.bool_]:
        """Whether a comparison holds."""
        if _TRUTH in (one.kind, other.kind) or type(op) not in _ORDERS:
            raise _refusal(text, 'comparisons of numbers or categories, or in ("a", "b")')
        left, right = one.cells, other.cells
        if _TEXT in (one.kind, other.kind):
            if not isinstance(op, ast.Eq | ast.NotEq):
                raise _refusal(text, "numbers where “less” or “greater” is asked")
            left = self._in_categories(one, other.columns, text)
            right = self._in_categories(other, one.columns, text)
        return np.asarray(_ORDERS[type(op)](left, right), dtype=np.bool_)

    def _in_categories(self, value: _Value, columns: tuple[Column, ...], text: str) -> NDArray[Any]:
        """Cells as texts, of which what is stated is spelled as categories of the columns are."""
        if value.kind == _NUMBER and not value.stated:
            raise _refusal(text, f"{_TEXT} where there is {_NUMBER}")
        if not columns:
            return value.cells
        spelled = {stated: self._category(stated, columns, text) for stated in value.stated}
        stated = (f"{one:.15g}" if value.kind == _NUMBER else one for one in value.cells)
        return np.array([spelled.get(one, one) for one in stated], dtype=object)

    @staticmethod
    def _category(stated: str, columns: tuple[Column, ...], text: str) -> str:
        for column in columns:
            for category in column.categories:
                if column.spelled(category) == column.spelled(stated):
                    return category
        names = offered(columns[0].categories)
        raise _refusal(text, f"one of {names} of column {columns[0].name}, not {stated!r}")


class _Unquoted(ast.NodeTransformer):
    """What stands for a name in backticks becomes one."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """`_["a name"]` as the name."""
        match node:
            case ast.Subscript(value=ast.Name(id="_"), slice=ast.Constant(value=str() as name)):
                return ast.Name(id=name)
        return node


def _tree(text: str) -> ast.expr:
    """An expression as Python's parser reads it."""
    if len(text) > _LONGEST:
        raise _refusal(text, f"at most {_LONGEST} letters")
    quoted = _QUOTED.sub(lambda one: one[0] if one[1] is None else f"_[{one[1]!r}]", text)
    try:
        with warnings.catch_warnings(action="error"):  # what Python will no longer read
            body: ast.expr = _Unquoted().visit(ast.parse(quoted.strip(), mode="eval")).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _refusal(text, "an expression such as age >= 18") from None
    return body


def _refusal(text: str, expected: str) -> StudyError:
    shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    return StudyError(f"expected {expected} in [synthetic], found {shown!r}; correct the rule")
