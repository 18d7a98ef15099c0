"""The statement that a site's engine runs, from a checked query.

Columns of tables are read as `readings` says. Numbers are divided as real numbers everywhere, and
by zero gives nothing; dates are read and subtracted as dates where an engine has none. A text is a
number, or a date, where it is written as one, and else nothing: no engine is asked for what it
would fail at, or read in its own way (`now`). So engines of sites give the same cells, and no cell
makes one fail (docs/privacy.md P31).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sqlglot import ErrorLevel, exp

from hubbub.site.sql.expressions import is_date
from hubbub.site.sql.ranges import MOST_WHOLE
from hubbub.site.sql.readings import column_of, number_of, text_of
from hubbub.site.sql.scope import BASE, READ
from hubbub.site.sql.text_forms import day_of
from hubbub.site.sql.totals import COLUMN, KNOWN, TEXTS, TRUTH
from hubbub.site.sql.value_range import DAY, REAL, TEXT, WHOLE, WHOLES

_SQLITE_PARTS = {"YEAR": "%Y", "MONTH": "%m", "DAY": "%d"}
_LETTERS = ("postgres", "duckdb")  # engines that know more letters than A to Z as upper and lower
_UPPER, _LOWER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"
_BARE = ("postgres",)  # engines that read `table.name` as a call where there is no such column


def rendered(select: exp.Select, engine: str, schema: str = "") -> str:
    """The statement in an engine's SQL, every name quoted.

    Args:
        select: of a checked query.
        engine: sqlglot's name of its SQL.
        schema: of all tables; empty: the engine's usual one.
    """
    select_copy = select.copy()
    if schema:
        for table in select_copy.find_all(exp.Table):
            table.set("db", exp.to_identifier(schema, quoted=True))
    _each(select_copy, exp.Select, partial(_apart, engine=engine))
    _each(select_copy, exp.Column, partial(_as_read, engine=engine))
    if engine in _LETTERS:
        _each(select_copy, exp.Lower, partial(_translated, old=_UPPER, new=_LOWER))
        _each(select_copy, exp.Upper, partial(_translated, old=_LOWER, new=_UPPER))
    if engine == "postgres":
        _each(select_copy, exp.Predicate, _by_letters)
    if engine == "sqlite":
        _each(select_copy, exp.Sub, _days)
        _each(select_copy, exp.Extract, _date_part)
    _each(select_copy, exp.Cast, partial(_cast, engine=engine))
    if engine == "duckdb":
        _each(select_copy, exp.Trim, _of_spaces)
    return select_copy.sql(dialect=engine, comments=False, unsupported_level=ErrorLevel.RAISE)


def _each(
    select: exp.Select,
    kind: type[exp.Expr],
    change: Callable[[exp.Expr], exp.Expr],
) -> None:
    """Every expression of a kind changed, those within others first."""
    for node in reversed(list(select.find_all(kind))):
        node.replace(change(node.copy()))


def _as_read(node: exp.Expr, engine: str) -> exp.Expr:
    """A column of a site's table as what it is read."""
    if not node.text("table").startswith(BASE):
        return node
    column = exp.column(node.name, quoted=True) if engine in _BARE else node
    return column_of(column, engine, node.meta[READ])


def _apart(node: exp.Expr, engine: str) -> exp.Expr:
    """A site's table read before it is joined: SQLite then makes an index of what was read."""
    source = node.args["from_"].this
    narrow = isinstance(source, exp.Table) and source.alias.startswith(BASE)
    if engine == "sqlite" and narrow:
        node.set("limit", exp.Limit(expression=exp.Literal.number(-1)))
    return node


def _translated(node: exp.Expr, old: str, new: str) -> exp.Expr:
    """The letters A to Z alone: of others it depends on the database which are the same."""
    letters = exp.Literal.string(old), exp.Literal.string(new)
    return exp.Anonymous(this="TRANSLATE", expressions=[node.this, *letters])


def _by_letters(node: exp.Expr) -> exp.Expr:
    """Texts in the order of their letters' numbers, as they have it elsewhere."""
    if node.meta.get(TEXTS):
        node.set(
            "this", exp.Collate(this=_paren(node.this), expression=exp.to_identifier("C", True))
        )
    return node


def _of_spaces(node: exp.Expr) -> exp.Expr:
    """Without spaces at its ends, and no other letters that DuckDB takes for such."""
    return exp.Anonymous(this="TRIM", expressions=[node.this, exp.Literal.string(" ")])


def _days(node: exp.Expr) -> exp.Expr:
    """Days between two dates, as SQLite has them: texts, and functions of texts."""
    if not (is_date(node.this) and is_date(node.expression)):
        return node
    days = [exp.func("julianday", side) for side in (node.this, node.expression)]
    return _plainly(exp.Paren(this=exp.Sub(this=days[0], expression=days[1])))


def _date_part(node: exp.Expr) -> exp.Expr:
    parts = (exp.Literal.string(_SQLITE_PARTS[node.name.upper()]), node.expression)
    return _plainly(exp.func("strftime", *parts))


def _plainly(whole: exp.Expr) -> exp.Cast:
    """A CAST of what is a whole number already."""
    made = exp.cast(whole, WHOLE)
    made.meta[KNOWN] = WHOLE.value
    return made


def _cast(node: exp.Expr, engine: str) -> exp.Expr:
    """A value of a type, from one that is written so; nothing from another."""
    kind, known = node.args["to"].this, node.meta.get(KNOWN, "")
    if kind is DAY:
        return _date(node, engine) if known in ("", COLUMN) else node
    if kind is TEXT and known == COLUMN:
        return text_of(node, engine)
    if kind not in (*WHOLES, REAL) or known == TRUTH:
        return node
    if known in [one.value for one in WHOLES] and kind is not REAL:
        return exp.cast(_paren(node.this), WHOLE)
    number: exp.Expr = exp.cast(_paren(node.this), REAL)
    if known in ("", COLUMN):
        number = number_of(node.this, engine)
    return number if kind is REAL else _whole(number)


def _paren(node: exp.Expr) -> exp.Paren:
    return exp.Paren(this=node)


def _whole(number: exp.Expr) -> exp.Expr:
    """The nearest whole number, the upper one of two; nothing from one that is too large."""
    most = exp.Literal.number(int(MOST_WHOLE))
    fits = exp.LT(this=exp.Abs(this=number), expression=most)
    above = exp.Floor(
        this=exp.Add(this=number.copy(), expression=exp.cast(exp.Literal.number("0.5"), REAL))
    )
    return exp.Case(ifs=[exp.If(this=fits, true=exp.cast(above, WHOLE))])


def _date(node: exp.Expr, engine: str) -> exp.Expr:
    """A date from a text that begins with a day, and nothing from another."""
    day = day_of(node.this, engine)
    return exp.func("date", day) if engine == "sqlite" else exp.cast(day, DAY)
