"""Texts that are numbers or days: conditions in SQL that every engine answers alike.

A number is `-12`, `1.5`, `.5` or `1.5e-05`, of at most 32 letters and within 10 to the power of 19
either way; a day is `2024-05-31`, of the calendar. Nothing else is one: not `nan`, `inf`, `1_000`,
`0x1f`, `2023-02-29` or a word for the clock.
"""

from __future__ import annotations

from functools import reduce

from sqlglot import exp

from hubbub.site.sql.ranges import MOST_LETTERS
from hubbub.site.sql.value_range import REAL

_REGULAR = ("postgres", "duckdb")  # engines with regular expressions
_NUMBER = r"^-?([0-9]+\.?[0-9]*|\.[0-9]+)$|^-?([0-9]+|[0-9]*\.[0-9]+)e-?[01]?[0-9]$"
# What is left of a number without its digits.
_PLAIN, _UP, _DOWN = ("", "-", ".", "-."), ("e", ".e", "-e", "-.e"), ("e-", ".e-", "-e-", "-.e-")
_LONG_MONTHS = ("01", "03", "05", "07", "08", "10", "12")
_MONTHS = tuple(f"{one:02}" for one in range(1, 13))
_LEAP = tuple(f"{one:02}" for one in range(4, 100, 4))


def is_number(value: exp.Expr, engine: str) -> exp.Expr:
    """Whether the text of a value is a number."""
    text = _replaced(exp.func("LOWER", exp.func("TRIM", _text(value))), "e+", "e")
    short = exp.LTE(this=exp.Length(this=text), expression=exp.Literal.number(MOST_LETTERS))
    if engine in _REGULAR:
        form = exp.RegexpLike(this=text.copy(), expression=exp.Literal.string(_NUMBER))
        return exp.and_(short, form)
    rest = reduce(lambda made, digit: _replaced(made, digit, ""), "0123456789", text)
    some = exp.GT(this=exp.Length(this=text.copy()), expression=exp.Length(this=rest))
    signed = exp.or_(
        exp.and_(_like(text, "-%"), _like(rest, "-%")),
        exp.not_(exp.or_(_like(text, "-%"), _like(rest, "-%"))),
    )
    tails = [
        exp.and_(_in(rest, _UP), _any(text, ("%e_", "%e0_", "%e1_"))),
        exp.and_(_in(rest, _DOWN), _any(text, ("%e-_", "%e-0_", "%e-1_"))),
    ]
    powered = exp.and_(exp.or_(*tails), exp.not_(_any(text, ("e%", "-e%", "%.e%"))))
    return exp.and_(short, signed, some, exp.or_(_in(rest, _PLAIN), powered))


def real_of(value: exp.Expr, engine: str) -> exp.Expr:
    """A value whose text is a number as that number, else nothing."""
    if engine == "sqlite":
        text = f"TRIM({_text(value).sql(dialect=engine)})"
        lower = f"REPLACE(LOWER({text}), 'e+', 'e')"
        body = f"SUBSTR({lower}, 1 + ({lower} LIKE '-%'))"
        at = f"INSTR({body} || 'e', 'e')"
        parts = {"text": text, "lower": lower, "body": body, "at": at, "exact": exact(text)}
        said = _SQLITE_REAL.format(most=MOST_LETTERS, **parts)
        return exp.var(" ".join(said.split()))
    number = exp.cast(_text(value), REAL)  # PostgreSQL reads a literal before any condition
    return exp.Case(ifs=[exp.If(this=is_number(value, engine), true=number)])


def exact(text: str) -> str:
    """In SQLite's SQL the number that is nearest to a text of at most 15 digits with a point.

    SQLite itself may read that one's neighbour. So many digits are a whole number that a real one
    holds, as are powers of ten, and their quotient is rounded once.
    """
    places = f"SUBSTR('0000000000000000000000', 1, LENGTH({text}) - INSTR({text}, '.'))"
    return f"CAST(REPLACE({text}, '.', '') AS INTEGER) / CAST('1' || {places} AS REAL)"


# A sign, digits with one point, and a power of ten.
_SQLITE_REAL = """CASE
    WHEN {text} <> '' AND LENGTH({text}) <= 18 AND NOT {text} GLOB '*[^0-9]*'
    THEN CAST({text} AS REAL)
    WHEN LENGTH({lower}) <= {most} AND SUBSTR({body}, 1, {at} - 1) GLOB '*[0-9]*'
    AND NOT SUBSTR({body}, 1, {at} - 1) GLOB '*[^0-9.]*' AND NOT {body} LIKE '%.%.%' AND (
    {at} > LENGTH({body}) OR (NOT {body} LIKE '%.e%' AND (SUBSTR({body}, {at} + 1) GLOB '[0-9]'
    OR SUBSTR({body}, {at} + 1) GLOB '[01][0-9]' OR SUBSTR({body}, {at} + 1) GLOB '-[0-9]'
    OR SUBSTR({body}, {at} + 1) GLOB '-[01][0-9]')))
    THEN CASE WHEN LENGTH(LTRIM(REPLACE({body}, '.', ''), '0')) <= 15 AND LENGTH({text}) <= 22
    AND {text} LIKE '%.%' AND NOT {lower} LIKE '%e%'
    THEN {exact}
    ELSE CAST({text} AS REAL) END END"""


def day_of(value: exp.Expr, engine: str) -> exp.Expr:
    """The first ten letters of a value's text where they are a day, else nothing."""
    day = _part(_text(value), 1, 10)
    form = reduce(lambda made, digit: _replaced(made, digit, "0"), "123456789", day)
    is_form: exp.Expr = exp.EQ(this=form, expression=exp.Literal.string("0000-00-00"))
    if engine == "sqlite":  # which takes a hundred brackets within each other
        digits = "-".join("[0-9]" * letters for letters in (4, 2, 2))
        is_form = exp.Glob(this=day.copy(), expression=exp.Literal.string(digits))
    year, month, number = _part(day, 1, 4), _part(day, 6, 2), _part(day, 9, 2)
    leap = exp.or_(
        _in(_part(day, 3, 2), _LEAP),
        exp.and_(_in(_part(day, 3, 2), ("00",)), _in(_part(day, 1, 2), _LEAP)),
    )
    there = exp.and_(
        is_form,
        exp.not_(_in(year, ("0000",))),
        _in(month, _MONTHS),
        _between(number, "01", "31"),
        exp.or_(_in(month, _LONG_MONTHS), exp.not_(_in(number, ("31",)))),
        exp.or_(
            exp.not_(_in(month, ("02",))),
            _between(number, "01", "28"),
            exp.and_(_in(number, ("29",)), leap),
        ),
    )
    return exp.Case(ifs=[exp.If(this=there, true=day.copy())])


def _text(value: exp.Expr) -> exp.Expr:
    return exp.cast(exp.Paren(this=value.copy()), exp.DataType.Type.TEXT)


def _part(text: exp.Expr, start: int, length: int) -> exp.Expr:
    first, last = exp.Literal.number(start), exp.Literal.number(length)
    return exp.Substring(this=text.copy(), start=first, length=last)


def _replaced(text: exp.Expr, old: str, new: str) -> exp.Expr:
    return exp.func("REPLACE", text.copy(), exp.Literal.string(old), exp.Literal.string(new))


def _like(text: exp.Expr, pattern: str) -> exp.Expr:
    return exp.Like(this=text.copy(), expression=exp.Literal.string(pattern))


def _any(text: exp.Expr, patterns: tuple[str, ...]) -> exp.Expr:
    return exp.or_(*(_like(text, pattern) for pattern in patterns))


def _in(text: exp.Expr, several: tuple[str, ...]) -> exp.Expr:
    return exp.In(this=text.copy(), expressions=[exp.Literal.string(one) for one in several])


def _between(text: exp.Expr, low: str, high: str) -> exp.Expr:
    ends = exp.Literal.string(low), exp.Literal.string(high)
    return exp.Between(this=text.copy(), low=ends[0], high=ends[1])
