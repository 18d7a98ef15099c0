"""What an expression's value may be: its type, and between which sizes a number of it lies.

Databases fail where a number gets too large, or too small to be told from 0. The sizes of columns
are bounded where they are read (`rendering`), those of what is computed of them here, so that no
cell takes a number out of what a real number can hold (docs/privacy.md P31). This file knows
expressions; it must not know engines.
"""

from __future__ import annotations

from math import exp as power
from math import log, sqrt

from sqlglot import exp

from hubbub.site.sql.scope import Scope, refused
from hubbub.site.sql.value_range import DAY, REAL, TEXT, WHOLE, WHOLES, ValueRange

MOST_WHOLE = 1e15  # of a CAST to a whole number; a real number holds each of them exactly
MOST_LETTERS, MOST_POWER = 32, 19  # of a text that is read as a number, and of its power of ten
MOST_EXPONENT = 200  # of EXP
_CELL = (10.0 ** -(MOST_LETTERS + MOST_POWER), 10.0 ** (MOST_LETTERS + MOST_POWER))
_HOLDS = (1e-290, 1e290)  # well within what a real number holds
_LONG = 2.0**62  # what a whole number holds
_STEP = 2.0**-53  # between neighbouring real numbers, of their size


def range_of(built: exp.Expr, scope: Scope) -> ValueRange:
    """What an expression of what was checked may be.

    Args:
        built: the expression.
        scope: of its columns.

    Raises:
        StudyError: a number of it may be out of what a real number holds.
    """
    if isinstance(built, exp.Column):
        return scope.range(built)
    if isinstance(built, exp.Literal):
        return _of_literal(built)
    if isinstance(built, exp.Cast):
        return _of_cast(built, scope)
    if isinstance(built, exp.Count | exp.Length | exp.Extract):
        return ValueRange(WHOLE, 1, MOST_WHOLE)
    if isinstance(built, exp.Min | exp.Max | exp.Paren):
        return range_of(built.this, scope)
    if isinstance(built, exp.Case):
        branches = [one.args["true"] for one in built.args["ifs"]]
        return _common([*branches, *filter(None, [built.args.get("default")])], scope)
    if isinstance(built, exp.Coalesce):
        return _common([built.this, *built.expressions], scope)
    if isinstance(built, exp.Nullif):
        return range_of(built.this, scope)
    if isinstance(built, _COMPUTED):
        return _held(_of_computed(built, scope))
    return ValueRange(TEXT if isinstance(built, _TEXTS) else None)


_TEXTS = (exp.Lower, exp.Upper, exp.Trim, exp.Substring, exp.DPipe)
_COMPUTED = (
    *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Abs),
    *(exp.Floor, exp.Ceil, exp.Sqrt, exp.Ln, exp.Exp),
)


def _of_literal(built: exp.Literal) -> ValueRange:
    if built.is_string:
        return ValueRange(TEXT)
    size = float(built.this)
    return ValueRange(REAL if "." in built.this else WHOLE, size or 1.0, size)


def _of_cast(built: exp.Cast, scope: Scope) -> ValueRange:
    kind = built.to.this
    if kind in WHOLES:
        inner = range_of(built.this, scope)
        most = min(inner.most, _LONG) if inner.kind in WHOLES else MOST_WHOLE
        return ValueRange(kind, 1, most)
    if kind is not REAL:
        return ValueRange(kind)
    inner = range_of(built.this, scope)
    return (
        ValueRange(kind, inner.least, inner.most) if inner.is_number else ValueRange(kind, *_CELL)
    )


def _of_computed(built: exp.Expr, scope: Scope) -> ValueRange:
    """Of arithmetic, whose parts are numbers, or two days."""
    one = range_of(built.this, scope)
    if isinstance(built, exp.Add | exp.Sub | exp.Mul | exp.Div):
        return _of_pair(built, one, range_of(built.expression, scope))
    if isinstance(built, exp.Neg | exp.Abs):
        return one
    if isinstance(built, exp.Floor | exp.Ceil):
        return ValueRange(REAL, 1, one.most + 1)
    if isinstance(built, exp.Sqrt):
        return ValueRange(REAL, sqrt(one.least), sqrt(one.most))
    if isinstance(built, exp.Exp):
        return ValueRange(REAL, power(-MOST_EXPONENT), power(MOST_EXPONENT))
    farthest = max(abs(log(one.least)), abs(log(one.most or 1.0)))
    return ValueRange(REAL, _STEP, farthest + 1)


def _of_pair(built: exp.Expr, one: ValueRange, other: ValueRange) -> ValueRange:
    if one.kind is DAY:  # two days, their difference
        return ValueRange(WHOLE, 1, 1e7)
    kind = WHOLE if one.kind in WHOLES and other.kind in WHOLES else REAL
    if isinstance(built, exp.Div):
        return ValueRange(REAL, one.least / max(other.most, 1.0), one.most / other.least)
    if isinstance(built, exp.Mul):
        return ValueRange(kind, one.least * other.least, one.most * other.most)
    least = 1.0 if kind is WHOLE else min(one.least, other.least) * _STEP
    return ValueRange(kind, least, one.most + other.most)


def holds_whole(built: exp.Expr, scope: Scope) -> bool:
    """Whether arithmetic of whole numbers stays within what one holds."""
    return _of_computed(built, scope).most <= _LONG


def _held(found: ValueRange) -> ValueRange:
    """Refuse what a cell could take out of what a number holds."""
    fits = _HOLDS[0] <= found.least and found.most <= _HOLDS[1]
    if not fits:
        raise refused(
            "arithmetic whose result may be too large, or too close to 0, for a database",
            "compute less in it, or in a view of the site",
        )
    return found


def _common(several: list[exp.Expr], scope: Scope) -> ValueRange:
    """Of expressions that stand for one value: their type, if they have one in common."""
    found = [range_of(one, scope) for one in several if not isinstance(one, exp.Null)]
    kinds = {one.kind for one in found}
    if len(kinds) == 1:
        kind = kinds.pop()
    elif kinds and kinds <= {*WHOLES, REAL}:
        kind = WHOLE if kinds <= {*WHOLES} else REAL
    else:
        return ValueRange()
    return ValueRange(kind, min(one.least for one in found), max(one.most for one in found))
