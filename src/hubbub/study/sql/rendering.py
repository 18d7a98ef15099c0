"""The statement that a site's engine runs, from a checked query.

Numbers are divided as real numbers everywhere, and by zero gives nothing; dates are read and
subtracted as dates where an engine has none. A text is a number, or a date, where it is written as
one, and else nothing: no engine is asked for what it would fail at, or read in its own way (`now`).
So engines of sites give the same cells, and no cell makes one fail (docs/privacy.md P31).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sqlglot import ErrorLevel, exp

from hubbub.study.sql.constructs import AGGREGATES
from hubbub.study.sql.expressions import is_date
from hubbub.study.sql.ranges import MOST_WHOLE
from hubbub.study.sql.scope import BASE, all_of
from hubbub.study.sql.text_forms import day_of, is_number
from hubbub.study.sql.totals import KNOWN
from hubbub.study.sql.value_range import DAY, REAL, WHOLE, WHOLES

_SQLITE_PARTS = {"YEAR": "%Y", "MONTH": "%m", "DAY": "%d"}
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
    if engine in _BARE:
        _each(select_copy, exp.Column, _bare)
    if engine == "sqlite":
        _each(select_copy, exp.Sub, _days)
        _each(select_copy, exp.Extract, _date_part)
    _each(select_copy, exp.Cast, partial(_cast, engine=engine))
    if engine == "duckdb":
        _try(select_copy)
    return select_copy.sql(dialect=engine, comments=False, unsupported_level=ErrorLevel.RAISE)


def _each(
    select: exp.Select,
    kind: type[exp.Expr],
    change: Callable[[exp.Expr], exp.Expr],
) -> None:
    """Every expression of a kind changed, those within others first."""
    for node in reversed(list(select.find_all(kind))):
        node.replace(change(node.copy()))


def _bare(node: exp.Expr) -> exp.Expr:
    """A column of a site's table by its name alone."""
    return exp.column(node.name, quoted=True) if node.text("table").startswith(BASE) else node


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
        return node if known else _date(node, engine)
    if kind not in (*WHOLES, REAL):
        return node
    value = exp.Paren(this=node.this)
    number = exp.cast(value, REAL)
    if kind is REAL:
        found: exp.Expr = number
    elif known in [one.value for one in WHOLES]:
        return exp.cast(value, WHOLE)
    else:
        found = _whole(number)
    if known:
        return found
    return exp.Case(ifs=[exp.If(this=is_number(node.this, engine), true=found)])


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
    day = day_of(node.this)
    return exp.func("date", day) if engine == "sqlite" else exp.cast(day, DAY)


def _try(made: exp.Select) -> None:
    """DuckDB reads a text beside a number as one, and may fail at it: there it gives nothing.

    What joins tables by columns is compared as texts, which it need not try and can do at once.
    """
    for select in list(made.find_all(exp.Select)):
        for expression in select.expressions:
            _tried(expression, "this")
        if where := select.args.get("where"):
            _tried(where, "this")
        for join in select.args.get("joins") or ():
            parts = [_same(one) for one in all_of(join.args["on"])]
            join.set("on", exp.and_(*parts, copy=False))


def _tried(holder: exp.Expr, part: str) -> None:
    """Have an expression tried; of one with aggregates, what they are of."""
    value = holder.args[part]
    if isinstance(value, exp.Column | exp.Literal | exp.Star):
        return
    aggregates = list(value.find_all(*AGGREGATES))
    if not aggregates:
        holder.set(part, _trying(value))
    for aggregate in aggregates:
        if isinstance(aggregate.this, exp.Distinct):
            aggregate.this.set(
                "expressions", [_trying(inner) for inner in aggregate.this.expressions]
            )
        else:
            _tried(aggregate, "this")


def _trying(value: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="TRY", expressions=[value.copy()])


def _same(one: exp.Expr) -> exp.Expr:
    """One condition of a join."""
    sides = [one.this, one.expression] if isinstance(one, exp.EQ) else []
    if not sides or not all(isinstance(side, exp.Column) for side in sides):
        return _trying(one)
    point = (exp.Literal.string(r"\.0$"), exp.Literal.string(""))  # 1.0 is 1
    texts = [
        exp.Anonymous(
            this="REGEXP_REPLACE", expressions=[exp.cast(side, exp.DataType.Type.TEXT), *point]
        )
        for side in sides
    ]
    return exp.EQ(this=texts[0], expression=texts[1])
