"""Expressions that have a value, or are missing, for every cell: no cell makes a database fail.

Whoever writes a query could else aim: `1 / (pid - 4711)` fails where one person is in a table, and
so does a text beside a number, which an engine casts of itself; that a silo fails is seen by others
(docs/privacy.md P31). So each expression has one type: a text, a whole or a real number, or a day.
A column of a table is the text that it was read as (`source`), of which the query need not say
the type: beside a number it is read as one, beside a day as a day. Whatever else stands beside
another type is refused, and nothing is left for an engine to cast. Arithmetic is of real numbers
that are neither too large nor too small, or of whole ones that cannot overflow; a root, a logarithm
and a power are of what they are defined for. This file knows expressions; `source` says what a
CAST is in the SQL of an engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import date
from typing import Any

from sqlglot import exp

from hubbub.core.tabular.cells import number_in
from hubbub.site.sql.scope import (
    DAY,
    MOST_EXPONENT,
    REAL,
    TEXT,
    WHOLE,
    WHOLES,
    Scope,
    ValueRange,
    holds_whole,
    range_of,
    refused,
)

LONGEST = 1000  # letters of a text that is joined to another
_NESTED = 3  # within each other, of what says its inner twice
KNOWN = "known"  # in a CAST's meta: the type of what is cast, where that is a number or a day
COLUMN = "column"  # there, of a column as it was read
TRUTH = "truth"  # there, of a condition
TEXTS = "texts"  # in a comparison's meta: whether it puts texts in order
_PAIRS = (exp.Add, exp.Sub, exp.Mul, exp.Div)
_DEFINED = (exp.Sqrt, exp.Ln, exp.Exp)
_OF_TEXT = (exp.Lower, exp.Upper, exp.Trim, exp.Length, exp.Substring, exp.DPipe)
_NAMES: dict[Any, str] = {
    None: "a column",
    TEXT: "a text",
    DAY: "a date",
    **dict.fromkeys((*WHOLES, REAL), "a number"),
}


def total(made: exp.Expr, scope: Scope) -> exp.Expr:
    """A value that no cell makes fail, from one whose parts are so already."""
    if isinstance(made, exp.Cast):
        return _cast(made.this, made.to.this, scope)
    if isinstance(made, _PAIRS):
        return _pair(made, scope)
    if isinstance(made, exp.Neg | exp.Abs):
        return type(made)(this=_number(made.this, scope))
    if isinstance(made, exp.Floor | exp.Ceil):
        return type(made)(this=real(made.this, scope))
    if isinstance(made, _DEFINED):
        return _defined(made, scope)
    if isinstance(made, _OF_TEXT):
        _read_texts(made, scope)
    elif isinstance(made, exp.Coalesce):
        first, *others = alike([made.this, *made.expressions], scope)
        made.set("this", first)
        made.set("expressions", others)
    elif isinstance(made, exp.Nullif):
        _set_alike(made, ("this", "expression"), scope)
    elif isinstance(made, exp.Case):
        _case(made, scope)
    return made


def compared(made: exp.Expr, scope: Scope) -> exp.Expr:
    """A comparison, IN, BETWEEN or LIKE of values of one type."""
    if isinstance(made, exp.Like):
        if not made.expression.is_string:
            raise refused("LIKE with a pattern that a cell gives", "write the pattern as a text")
        made.set("this", read(made.this, TEXT, scope))
    elif isinstance(made, exp.In):
        first, *others = alike([made.this, *made.expressions], scope, compared=True)
        made.set("this", first)
        made.set("expressions", others)
    else:
        ordered = not isinstance(made, exp.EQ | exp.NEQ)
        _set_alike(made, ("this", "expression", "low", "high"), scope, ordered=ordered)
        made.meta[TEXTS] = ordered and range_of(made.this, scope).kind is TEXT
    return made


def holds(value: exp.Expr, scope: Scope) -> exp.Expr:
    """A value as a condition: whether it is another number than 0, as truth values are read."""
    kind = range_of(value, scope).kind
    if kind in (TEXT, DAY):
        raise refused(f"{_NAMES[kind]} as a condition", "compare it with something")
    number = value if kind in WHOLES else real(value, scope)
    return exp.NEQ(this=_bracketed(number), expression=exp.Literal.number(0))


def truth(condition: exp.Expr) -> exp.Cast:
    """A condition as a value: 1, 0, or missing."""
    made = exp.cast(exp.Paren(this=condition), exp.DataType.Type.INT)
    made.meta[KNOWN] = TRUTH
    return made


def alike(
    parts: Sequence[exp.Expr], scope: Scope, *, compared: bool = False, ordered: bool = False
) -> list[exp.Expr]:
    """Values that stand for each other or beside each other, as values of one type.

    Args:
        parts: of them, NULL has any type.
        compared: whether it matters which are equal: columns are so as texts.
        ordered: whether it matters which is less: texts of numbers have another order.

    Raises:
        StudyError: they are of several, or nothing says of which where that matters.
    """
    kinds = {range_of(part, scope).kind for part in parts if not isinstance(part, exp.Null)}
    stated = kinds - {None}
    if not stated:
        if ordered:
            raise refused(
                "columns that are put in order, while the query does not say whether they are "
                "numbers, dates or texts",
                "write CAST(column AS DOUBLE PRECISION), DATE or TEXT on one side",
            )
        return [_as_text(part, scope) for part in parts] if compared else list(parts)
    if ordered and None in kinds and any(map(_is_quoted_number, parts)):
        raise refused(
            "a column that is put in order with a number in quotes, as a text: '9' is after '18'",
            "leave the quotes out, or write CAST(column AS TEXT) if it is a code",
        )
    if DAY in stated:
        kind: Any = DAY
    elif TEXT in stated:
        kind = TEXT
    elif kinds <= {*WHOLES}:
        return list(parts)
    else:
        kind = REAL
    return [read(part, kind, scope) for part in parts]


def real(built: exp.Expr, scope: Scope) -> exp.Expr:
    """A real number, or nothing."""
    return read(built, REAL, scope)


def read(built: exp.Expr, kind: Any, scope: Scope) -> exp.Expr:
    """A value as one of a type: itself, or as a column is read, without the query's CAST."""
    found = range_of(built, scope).kind
    number_wanted = kind is REAL and (found is REAL or found in WHOLES)
    if found is kind:
        return built
    if found is None or number_wanted or (kind is DAY and _is_day(built)):
        return _cast(built, kind, scope)
    raise refused(
        f"{_NAMES[found]} where {_NAMES[kind]} is expected, which engines compare in their own "
        "ways or not at all",
        "CAST one to the type of the other",
    )


def _is_day(built: exp.Expr) -> bool:
    """Whether a text of the query is a day."""
    with suppress(ValueError):
        return built.is_string and date.fromisoformat(built.name).isoformat() == built.name
    return False


def _is_quoted_number(built: exp.Expr) -> bool:
    return built.is_string and number_in(built.name) is not None


def _as_text(part: exp.Expr, scope: Scope) -> exp.Expr:
    """A value of which the query does not say the type, as a text."""
    if (column := scope.text(part)) is not None:
        return column
    return part if isinstance(part, exp.Null) else _cast(part, TEXT, scope)


def _set_alike(
    made: exp.Expr, names: Sequence[str], scope: Scope, *, ordered: bool = False
) -> None:
    """Some parts of an expression as values of one type."""
    there = [name for name in names if made.args.get(name) is not None]
    given = [made.args[name] for name in there]
    parts = alike(given, scope, compared=True, ordered=ordered)
    for name, part in zip(there, parts, strict=True):
        made.set(name, part)


def _case(made: exp.Case, scope: Scope) -> None:
    """What a CASE compares, and what it gives, each of one type."""
    ifs = made.args["ifs"]
    if made.this is not None:
        first, *others = alike([made.this, *(one.this for one in ifs)], scope, compared=True)
        made.set("this", first)
        for one, part in zip(ifs, others, strict=True):
            one.set("this", part)
    default = made.args.get("default")
    given = [one.args["true"] for one in ifs]
    *parts, last = alike([*given, exp.Null() if default is None else default], scope)
    for one, part in zip(ifs, parts, strict=True):
        one.set("true", part)
    made.set("default", last)


def _cast(built: exp.Expr, kind: Any, scope: Scope) -> exp.Expr:
    """A CAST that knows whether what it casts is a number, or a day, already."""
    if isinstance(built, exp.Paren):
        return _cast(built.this, kind, scope)
    found = range_of(built, scope)
    if isinstance(built, exp.Case) and found.kind in (None, TEXT):
        return _in_branches(built, kind, scope)
    made = exp.Cast(this=_bracketed(built), to=exp.DataType(this=kind))
    column = scope.text(built) if kind is TEXT and found.kind is None else None
    if column is not None:
        return exp.Cast(this=column, to=made.to)
    if kind is TEXT and found.kind is REAL:
        raise refused(
            "a CAST of a real number to a text, which each engine writes in its own way",
            "cast it to BIGINT first, or leave it a number",
        )
    if (kind is DAY and found.is_number) or (found.kind is DAY and kind not in (DAY, TEXT)):
        raise refused(f"a CAST of {_NAMES[found.kind]} to {_NAMES[kind]}", "leave it as it is")
    known = found.is_number if kind is not DAY else found.kind is DAY
    if isinstance(built, exp.Null):
        found, known = ValueRange(kind), True
    if kind is not TEXT:
        _check_nested(built, known=known)
    made.meta[KNOWN] = found.kind.value if known else COLUMN if found.kind is None else ""
    return made


def _in_branches(built: exp.Case, kind: Any, scope: Scope) -> exp.Case:
    """A CAST of each thing that a CASE gives: what is cast is said twice, and no condition is."""
    for branch in built.args["ifs"]:
        branch.set("true", _cast(branch.args["true"], kind, scope))
    built.set("default", _cast(built.args["default"], kind, scope))
    return built


def _check_nested(built: exp.Expr, *, known: bool) -> None:
    """Refuse what would be said twice within what is said twice, and so on."""
    casts = [one for one in built.find_all(exp.Cast) if one.to.this in (*WHOLES, REAL, DAY)]
    if not known and any(one.meta.get(KNOWN) != TRUTH for one in casts):
        raise refused("a CAST to a number or a date within another", "cast once")
    rounded = [one for one in casts if one.meta.get(KNOWN) == REAL.value and one.to.this in WHOLES]
    if len(rounded) >= _NESTED:
        raise refused(f"a CAST within {_NESTED} others", "compute it in a SELECT within")


def _number(built: exp.Expr, scope: Scope) -> exp.Expr:
    """A whole number as one that is wide enough, anything else as a real one."""
    if range_of(built, scope).kind not in WHOLES:
        return real(built, scope)
    if isinstance(built, exp.Cast | exp.Count):
        return built
    return _cast(built, WHOLE, scope)


def _pair(made: exp.Expr, scope: Scope) -> exp.Expr:
    """Arithmetic of two numbers, or the days between two dates."""
    sides = [made.this, made.expression]
    kinds = [range_of(side, scope).kind for side in sides]
    if DAY in kinds:
        if kinds != [DAY, DAY] or not isinstance(made, exp.Sub):
            raise refused(
                "arithmetic of a date", "write CAST(a AS DATE) - CAST(b AS DATE), which gives days"
            )
        days = [side if isinstance(side, exp.Cast) else _cast(side, DAY, scope) for side in sides]
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


def _read_texts(made: exp.Expr, scope: Scope) -> None:
    """Keep a text one, and short, and refuse what a cell could make one fail at."""
    made.set("this", read(made.this, TEXT, scope))
    if isinstance(made, exp.DPipe):
        made.set("this", _short(made.this))
        made.set("expression", _short(read(made.expression, TEXT, scope)))
    elif isinstance(made, exp.Substring):
        _check_places(made)


def _short(built: exp.Expr) -> exp.Expr:
    """The first letters of a text: no query can double one until a database gives up."""
    if isinstance(built, exp.Literal):
        return built
    first, last = exp.Literal.number(1), exp.Literal.number(LONGEST)
    return exp.Substring(this=_bracketed(built), start=first, length=last)


def _check_places(made: exp.Substring) -> None:
    """Refuse places that a cell gives: a negative length is an error."""
    for part in (made.args.get("start"), made.args.get("length")):
        if part is not None and not (part.is_int and 0 < int(part.name) <= LONGEST):
            raise refused(
                f"SUBSTRING at other places than numbers from 1 to {LONGEST}", "write them so"
            )


def _bracketed(built: exp.Expr) -> exp.Expr:
    plain = isinstance(built, exp.Column | exp.Literal | exp.Paren | exp.Cast)
    return built.copy() if plain else exp.Paren(this=built.copy())
