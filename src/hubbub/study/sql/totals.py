"""Expressions that have a value, or are missing, for every cell: no cell makes a database fail.

Whoever writes a query could else aim: `1 / (pid - 4711)` fails where one person is in a table, and
that a silo fails is seen by others (docs/privacy.md P31). So arithmetic is of real numbers that are
neither too large nor too small, or of whole ones that cannot overflow; a column becomes a number
where its text is one, and is missing elsewhere; a root, a logarithm and a power are of what they
are defined for. What cannot be made so is refused. This file knows expressions; `rendering` says
what a CAST is in the SQL of an engine.
"""

from __future__ import annotations

from itertools import chain

from sqlglot import exp

from hubbub.study.sql.ranges import MOST_EXPONENT, holds_whole, range_of
from hubbub.study.sql.scope import Scope, refused
from hubbub.study.sql.value_range import DAY, REAL, WHOLE, WHOLES

LONGEST = 1000  # letters of a text that is joined to another
_NESTED = 3  # roots, logarithms and powers within each other, each of which says its inner twice
KNOWN = (
    "known"  # in a CAST's meta: the type of what is cast, where that is a number, or a day, already
)
_PAIRS = (exp.Add, exp.Sub, exp.Mul, exp.Div)
_DEFINED = (exp.Sqrt, exp.Ln, exp.Exp)
_COMPARED = (
    *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE),
    *(exp.Between, exp.In, exp.Coalesce, exp.Nullif, exp.Case),
)


def total(made: exp.Expr, scope: Scope) -> exp.Expr:
    """An expression that no cell makes fail, from one whose parts are so already.

    Args:
        made: built of parts that were checked.
        scope: of its columns.

    Raises:
        StudyError: there is none.
    """
    if isinstance(made, exp.Cast):
        return _cast(made, scope)
    if isinstance(made, _PAIRS):
        return _pair(made, scope)
    if isinstance(made, exp.Neg | exp.Abs):
        return type(made)(this=_number(made.this, scope))
    if isinstance(made, exp.Floor | exp.Ceil):
        return type(made)(this=real(made.this, scope))
    if isinstance(made, _DEFINED):
        return _defined(made, scope)
    _check_texts(made)
    if isinstance(made, _COMPARED):
        _compare_alike(made, scope)
    return made


def real(built: exp.Expr, scope: Scope) -> exp.Expr:
    """A real number, or nothing."""
    if range_of(built, scope).kind is REAL and not isinstance(built, exp.Literal):
        return built
    return _cast(exp.cast(_bracketed(built), REAL), scope)


def _cast(made: exp.Cast, scope: Scope) -> exp.Cast:
    """A CAST that knows whether what it casts is a number already."""
    if made.to.this not in (*WHOLES, REAL, DAY):
        return made
    found = range_of(made.this, scope)
    known = found.is_number if made.to.this is not DAY else found.kind is DAY
    if not known and any(
        one.to.this in (*WHOLES, REAL, DAY) for one in made.this.find_all(exp.Cast)
    ):
        raise refused("a CAST to a number or a date within another", "cast once")
    made.meta[KNOWN] = found.kind.value if known else ""
    return made


def _number(built: exp.Expr, scope: Scope) -> exp.Expr:
    """A whole number as one that is wide enough, anything else as a real one."""
    if range_of(built, scope).kind not in WHOLES:
        return real(built, scope)
    if isinstance(built, exp.Cast | exp.Count):
        return built
    return _cast(exp.cast(_bracketed(built), WHOLE), scope)


def _pair(made: exp.Expr, scope: Scope) -> exp.Expr:
    """Arithmetic of two numbers, or the days between two dates."""
    sides = [made.this, made.expression]
    kinds = [range_of(side, scope).kind for side in sides]
    if DAY in kinds:
        if kinds != [DAY, DAY] or not isinstance(made, exp.Sub):
            raise refused(
                "arithmetic of a date", "write CAST(a AS DATE) - CAST(b AS DATE), which gives days"
            )
        days = [
            side if isinstance(side, exp.Cast) else _cast(exp.cast(side, DAY), scope)
            for side in sides
        ]
        return exp.Sub(this=days[0], expression=days[1])
    whole = all(kind in WHOLES for kind in kinds) and not isinstance(made, exp.Div)
    if whole and holds_whole(made, scope):
        first, second = (_number(side, scope) for side in sides)
    else:
        first, second = (real(side, scope) for side in sides)
    if isinstance(made, exp.Div):
        zero = exp.Literal.number(0)
        over = exp.Nullif(this=_bracketed(second), expression=zero)
        found: exp.Expr = exp.Div(this=_bracketed(first), expression=over, typed=True)
    else:
        found = type(made)(this=_bracketed(first), expression=_bracketed(second))
    range_of(found, scope)  # refuses what a number does not hold
    return exp.Paren(this=found)


def _defined(made: exp.Expr, scope: Scope) -> exp.Expr:
    """A root, logarithm or power where there is one."""
    inner = real(made.this, scope)
    if sum(1 for _ in inner.find_all(*_DEFINED)) >= _NESTED:
        raise refused(
            f"{made.key.upper()} within {_NESTED} others", "compute it in a SELECT within"
        )
    zero, end = exp.Literal.number(0), exp.Literal.number(MOST_EXPONENT)
    here = _bracketed(inner)
    if isinstance(made, exp.Sqrt):
        where: exp.Expr = exp.GTE(this=here, expression=zero)
    elif isinstance(made, exp.Ln):
        where = exp.GT(this=here, expression=zero)
    else:
        where = exp.Between(this=here, low=exp.Neg(this=end), high=end.copy())
    found = type(made)(this=inner.copy())
    range_of(found, scope)
    return exp.Case(ifs=[exp.If(this=where, true=found)])


def _check_texts(made: exp.Expr) -> None:
    """Keep a text short, and refuse what a cell could make one fail at."""
    if isinstance(made, exp.DPipe):
        made.set("this", _short(made.this))
        made.set("expression", _short(made.expression))
    elif isinstance(made, exp.Like) and not made.expression.is_string:
        raise refused("LIKE with a pattern that a cell gives", "write the pattern as a text")
    elif isinstance(made, exp.Substring):
        _check_places(made)


def _short(built: exp.Expr) -> exp.Expr:
    """The first letters of a text: no query can double one until a database gives up."""
    if isinstance(built, exp.Literal):
        return built
    first, last = exp.Literal.number(1), exp.Literal.number(LONGEST)
    text = exp.cast(_bracketed(built), exp.DataType.Type.TEXT)
    return exp.Substring(this=text, start=first, length=last)


def _check_places(made: exp.Substring) -> None:
    """Refuse places that a cell gives: a negative length is an error."""
    for part in (made.args.get("start"), made.args.get("length")):
        if part is not None and not (part.is_int and 0 < int(part.name) <= LONGEST):
            raise refused(
                f"SUBSTRING at other places than numbers from 1 to {LONGEST}", "write them so"
            )


def _compare_alike(made: exp.Expr, scope: Scope) -> None:
    """Beside real numbers, columns of a type that the query does not say are read as such."""
    several = [*_compared(made)]
    kinds = [(one, range_of(one, scope).kind) for one in several]
    if not any(kind is REAL and not isinstance(one, exp.Literal) for one, kind in kinds):
        return
    for one, kind in kinds:
        if kind is None and isinstance(one, exp.Column):
            one.replace(real(one.copy(), scope))


def _compared(made: exp.Expr) -> chain[exp.Expr]:
    """The parts of an expression that are to be of one type."""
    branches = [one.args["true"] for one in made.args.get("ifs") or ()]
    own = [made.args.get(part) for part in ("expression", "low", "high", "default")]
    own += [] if isinstance(made, exp.Case) else [made.this]
    return chain(branches, filter(None, own), made.args.get("expressions") or ())


def _bracketed(built: exp.Expr) -> exp.Expr:
    plain = isinstance(built, exp.Column | exp.Literal | exp.Paren | exp.Cast)
    return built.copy() if plain else exp.Paren(this=built.copy())
