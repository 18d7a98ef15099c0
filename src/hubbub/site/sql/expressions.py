"""Expressions of a query, built anew from what was understood: of a row, or of a person's rows."""

from __future__ import annotations

import re

from sqlglot import exp

from hubbub.site.sql.constructs import (
    AGGREGATES,
    CLOCK,
    COMPARED,
    DATE_PARTS,
    JOINED,
    ORDERED,
    PLACES,
    SCALARS,
    TYPES,
    instead_of,
    why_not,
)
from hubbub.site.sql.ranges import range_of
from hubbub.site.sql.scope import Scope, name_of, refuse_more, refused
from hubbub.site.sql.totals import alike, compared, holds, real, total, truth

# Parts that sqlglot adds of itself, which say nothing beside PostgreSQL's SQL.
_OF_THE_PARSER: dict[type[exp.Expr], tuple[str, ...]] = {
    exp.Div: ("typed",),
    exp.DPipe: ("safe",),
    exp.Cast: ("to",),
    exp.Extract: ("this",),
}


def value_of(node: exp.Expr, scope: Scope, groups: list[exp.Column] | None = None) -> exp.Expr:
    """A value built anew, a condition as 1 or 0; with `groups` one of a group's rows."""
    if isinstance(node, exp.Column):
        column = _column(node, scope)
        if groups is not None and column not in groups:
            raise refused(
                f"the column {node.name!r} of one of a group's rows",
                "group by it too, or take its MIN or MAX",
            )
        return column
    if groups is not None and isinstance(node, AGGREGATES):
        return _aggregate(node, scope)
    if isinstance(node, exp.Literal):
        return _literal(node, scope)
    if isinstance(node, exp.Null):
        return exp.Null()
    if isinstance(node, (*COMPARED, *JOINED, exp.Is, exp.Boolean)):
        return truth(condition_of(node, scope, groups))
    if isinstance(node, exp.Case):
        return _case(node, scope, groups)
    if type(node) not in SCALARS:
        raise refused(why_not(node), instead_of(node))
    return _scalar(node, scope, groups)


def condition_of(node: exp.Expr, scope: Scope, groups: list[exp.Column] | None = None) -> exp.Expr:
    """A condition built anew: comparisons, joined; another value holds if it is a number but 0."""
    if isinstance(node, exp.Paren):
        refuse_more(node, {"this"}, "PAREN")
        return exp.Paren(this=condition_of(node.this, scope, groups))
    if isinstance(node, exp.Boolean):
        return exp.Boolean(this=bool(node.this))
    if isinstance(node, exp.Null):
        return exp.Null()
    if isinstance(node, exp.Is):
        return _is(node, scope, groups)
    if type(node) in JOINED:
        parts = JOINED[type(node)]
        refuse_more(node, {*parts}, node.key.upper())
        built = {part: condition_of(node.args[part], scope, groups) for part in parts}
        return type(node)(**built)
    if type(node) not in COMPARED:
        return holds(value_of(node, scope, groups), scope)
    if isinstance(node, exp.In) and not node.args.get("expressions"):
        raise refused("IN without a list of values", "list them, or join on the person's key")
    made = compared(_built(node, COMPARED[type(node)], scope, groups, more=("negate",)), scope)
    return exp.Not(this=exp.Paren(this=made)) if node.args.get("negate") else made


def _is(node: exp.Is, scope: Scope, groups: list[exp.Column] | None) -> exp.Expr:
    """Whether a value is missing, or a condition true or false."""
    refuse_more(node, {"this", "expression", "negate"}, "IS")
    other = node.expression
    if not isinstance(other, exp.Null | exp.Boolean):
        raise refused("IS of something else than NULL, TRUE or FALSE", "write = instead")
    of = value_of if isinstance(other, exp.Null) else condition_of
    inner = exp.Paren(this=of(node.this, scope, groups))
    made = exp.Is(this=inner, expression=condition_of(other, scope))
    return exp.Not(this=exp.Paren(this=made)) if node.args.get("negate") else made


def _case(node: exp.Case, scope: Scope, groups: list[exp.Column] | None) -> exp.Expr:
    """A CASE of conditions, or of values that are compared with one."""
    refuse_more(node, {"this", "ifs", "default"}, "CASE")
    of = condition_of if node.this is None else value_of
    parts: dict[str, exp.Expr] = {
        part: value_of(inner, scope, groups)
        for part in ("this", "default")
        if (inner := node.args.get(part)) is not None
    }
    ifs = []
    for one in node.args["ifs"]:
        refuse_more(one, {"this", "true"}, "WHEN")
        true = value_of(one.args["true"], scope, groups)
        ifs.append(exp.If(this=of(one.this, scope, groups), true=true))
    return total(exp.Case(ifs=ifs, **parts), scope)


def _scalar(node: exp.Expr, scope: Scope, groups: list[exp.Column] | None) -> exp.Expr:
    _check_form(node)
    kind = _type(node) if isinstance(node, exp.Cast) else None
    built = _built(
        node, SCALARS[type(node)], scope, groups, more=_OF_THE_PARSER.get(type(node), ())
    )
    if kind is not None:
        built.set("to", kind)
    if isinstance(node, exp.Extract):
        built.set("this", exp.var(node.name.upper()))
    return total(built, scope)


def _built(
    node: exp.Expr,
    known: tuple[tuple[str, ...], tuple[str, ...]],
    scope: Scope,
    groups: list[exp.Column] | None,
    more: tuple[str, ...],
) -> exp.Expr:
    """A node of the parts that are known, each a value built anew."""
    single, several = known
    parts: dict[str, object] = {}
    for part in single:
        if (inner := node.args.get(part)) is not None:
            parts[part] = value_of(inner, scope, groups)
    for part in several:
        parts[part] = [value_of(one, scope, groups) for one in node.args.get(part) or ()]
    refuse_more(node, {*single, *several, *more}, node.key.upper())
    return type(node)(**parts)


def _check_form(node: exp.Expr) -> None:
    """Refuse forms of what is known that say more than is kept."""
    if isinstance(node, exp.Trim) and node.expression is not None:
        raise refused("TRIM of certain letters", "write TRIM(column)")
    if isinstance(node, exp.Floor | exp.Ceil) and node.args.get("decimals") is not None:
        raise refused("FLOOR or CEIL with decimals", "write it with one argument")
    if isinstance(node, exp.Extract) and node.name.upper() not in DATE_PARTS:
        raise refused("EXTRACT of that part", "take YEAR, MONTH or DAY")
    if isinstance(node, exp.Extract) and not is_date(node.expression.unnest()):
        raise refused(
            "EXTRACT of what is not cast to a date", "write EXTRACT(YEAR FROM CAST(column AS DATE))"
        )


def _aggregate(node: exp.Expr, scope: Scope) -> exp.Expr:
    """COUNT, MIN or MAX of a person's rows."""
    refuse_more(node, {"this", "big_int"}, node.key.upper())
    inner, scope = node.this, scope.of_rows
    if isinstance(node, exp.Count) and isinstance(inner, exp.Star):
        return exp.Count(this=exp.Star())
    if isinstance(node, exp.Count) and isinstance(inner, exp.Distinct):
        refuse_more(inner, {"expressions"}, "COUNT(DISTINCT)")
        values = [value_of(expression, scope) for expression in inner.expressions]
        if len(values) != 1:
            raise refused("COUNT(DISTINCT) of several columns", "count one")
        return exp.Count(this=exp.Distinct(expressions=alike(values, scope, compared=True)))
    if not isinstance(inner, exp.Expr):
        raise refused(f"{node.key.upper()} of nothing", "name a column")
    if isinstance(node, exp.Count):
        return exp.Count(this=value_of(inner, scope))
    return type(node)(this=_ordered(node.key.upper(), inner, scope))


def _ordered(named: str, inner: exp.Expr, scope: Scope) -> exp.Expr:
    """What is least or most: of equal values there is one text, so none shows which came first."""
    built = value_of(inner, scope)
    kind = range_of(built, scope).kind
    if kind not in ORDERED:
        raise refused(
            f"{named} of what may be written in several ways, such as 1 and 1.0",
            f"write {named}(CAST(… AS INTEGER)), BIGINT, DOUBLE PRECISION or DATE",
        )
    if kind is not exp.DataType.Type.DOUBLE:
        return built
    number = real(built, scope)  # a numeric's scale is gone, and so is -0.0:
    zero = exp.EQ(this=exp.Paren(this=number.copy()), expression=exp.Literal.number(0))
    return exp.Case(ifs=[exp.If(this=zero, true=exp.Literal.number("0.0"))], default=number)


def _column(node: exp.Column, scope: Scope) -> exp.Column:
    """A column, with its table."""
    refuse_more(node, {"this", "table"}, "a column")
    if not isinstance(node.this, exp.Identifier):
        inner = node.this if isinstance(node.this, exp.Expr) else node
        raise refused(why_not(inner), "name its columns")
    name = name_of(node.this)
    if name.lower() in PLACES:
        raise refused(
            f"{name!r}, the place of a row, which follows from other people's rows", "leave it"
        )
    table = name_of(node.args["table"]) if node.args.get("table") else scope.only
    if table is None:
        raise refused(
            f"the column {name!r} of one of several tables", "write table.column everywhere"
        )
    return scope.column(table, name)


def _literal(node: exp.Literal, scope: Scope) -> exp.Expr:
    """A number or a text that every engine reads alike."""
    text = str(node.this)
    if node.is_string:
        if "\\" in text or not text.isprintable():
            raise refused("a text with a backslash or an unprintable letter", "write another")
        if said := CLOCK.search(text):
            raise refused(
                f"a text with the word {said[0].lower()!r}, which a database may read as its clock",
                "write a day such as '2024-05-31', or compare with another text",
            )
        return exp.Literal(this=text, is_string=True)
    if not re.fullmatch(r"[0-9]{1,18}(\.[0-9]{1,18})?", text):
        raise refused("a number in another form than 12 or 1.5", "write it so")
    number = exp.Literal(this=text, is_string=False)
    return total(exp.cast(number, exp.DataType.Type.DOUBLE), scope) if "." in text else number


def _type(node: exp.Cast) -> exp.DataType:
    """The type of a CAST."""
    kind = node.args.get("to")
    plain = isinstance(kind, exp.DataType) and not kind.expressions and kind.this in TYPES
    if not plain or any(node.args.get(part) for part in ("format", "action", "default", "safe")):
        raise refused(
            "a CAST to another type", "use INTEGER, BIGINT, DOUBLE PRECISION, TEXT or DATE"
        )
    said = kind.this  # type: ignore[union-attr]
    is_text = said is exp.DataType.Type.VARCHAR
    data_type = exp.DataType(this=exp.DataType.Type.TEXT if is_text else said)
    if data_type.this is exp.DataType.Type.DATE and any(map(is_date, node.this.find_all(exp.Cast))):
        raise refused("a CAST to DATE within another", "cast once")
    return data_type


def is_date(node: object) -> bool:
    """Whether an expression is a CAST to DATE."""
    return isinstance(node, exp.Cast) and node.to.this is exp.DataType.Type.DATE
