"""The statement that a site's engine runs, from a checked query.

Numbers are divided as real numbers everywhere, and by zero gives nothing; dates are read and
subtracted as dates where an engine has none. So engines of sites give the same cells. A text is a
date only where its first ten letters are as 2024-05-31 is: an engine may read other words as its
clock.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sqlglot import ErrorLevel, exp

from hubbub.study.sql.expressions import is_date
from hubbub.study.sql.scope import BASE

_SQLITE_PARTS = {"YEAR": "%Y", "MONTH": "%m", "DAY": "%d"}
_BARE = ("postgres",)  # engines that read `table.name` as a call where there is no such column


def rendered(select: exp.Select, engine: str, schema: str = "") -> str:
    """The statement in an engine's SQL, every name quoted.

    Args:
        select: of a checked query.
        engine: sqlglot's name of its SQL.
        schema: of all tables; empty: the engine's usual one.
    """
    made = select.copy()
    if schema:
        for table in made.find_all(exp.Table):
            table.set("db", exp.to_identifier(schema, quoted=True))
    _each(made, exp.Div, _divided)
    if engine in _BARE:
        _each(made, exp.Column, _bare)
    if engine == "sqlite":
        _each(made, exp.Sub, _days)
        _each(made, exp.Extract, _date_part)
    _each(made, exp.Cast, partial(_date, engine=engine))
    return made.sql(dialect=engine, comments=False, unsupported_level=ErrorLevel.RAISE)


def _each(
    select: exp.Select,
    kind: type[exp.Expr],
    change: Callable[[exp.Expr], exp.Expr],
) -> None:
    """Every expression of a kind changed, those within others first."""
    for node in reversed(list(select.find_all(kind))):
        node.replace(change(node.copy()))


def _divided(node: exp.Expr) -> exp.Expr:
    """Real division."""
    over = exp.Nullif(this=exp.Paren(this=node.expression), expression=exp.Literal.number(0))
    real = exp.cast(exp.Paren(this=node.this), exp.DataType.Type.DOUBLE)
    return exp.Paren(this=exp.Div(this=real, expression=over, typed=True))


def _bare(node: exp.Expr) -> exp.Expr:
    """A column of a site's table by its name alone."""
    return exp.column(node.name, quoted=True) if node.text("table").startswith(BASE) else node


def _days(node: exp.Expr) -> exp.Expr:
    """Days between two dates, as SQLite has them: texts, and functions of texts."""
    if not (is_date(node.this) and is_date(node.expression)):
        return node
    days = [exp.func("julianday", side) for side in (node.this, node.expression)]
    between = exp.Sub(this=days[0], expression=days[1])
    return exp.cast(exp.Paren(this=between), exp.DataType.Type.INT)


def _date_part(node: exp.Expr) -> exp.Expr:
    parts = (exp.Literal.string(_SQLITE_PARTS[node.name.upper()]), node.expression)
    return exp.cast(exp.func("strftime", *parts), exp.DataType.Type.INT)


def _date(node: exp.Expr, engine: str) -> exp.Expr:
    """A date from a text that begins with a day, and nothing from another."""
    if not is_date(node):
        return node
    text = exp.cast(exp.Paren(this=node.this), exp.DataType.Type.TEXT)
    first, last = exp.Literal.number(1), exp.Literal.number(10)
    day = exp.Substring(this=text, start=first, length=last)
    form: exp.Expr = day.copy()
    for digit in "123456789":  # each engine has REPLACE, and not each a pattern of digits
        form = exp.func("REPLACE", form, exp.Literal.string(digit), exp.Literal.string("0"))
    is_day = exp.EQ(this=form, expression=exp.Literal.string("0000-00-00"))
    checked = exp.Case(ifs=[exp.If(this=is_day, true=day)])
    return exp.func("date", checked) if engine == "sqlite" else exp.cast(checked, node.args["to"])
