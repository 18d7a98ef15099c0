"""Expressions of a query, built anew from what was understood: of a row, or of a person's rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Tokenizer

from hubbub.site.sql.scope import (
    AGGREGATES,
    CLOCK,
    COMPARED,
    DATE_PARTS,
    EXACT,
    JOINED,
    ORDERED,
    PARTS,
    PLACES,
    SCALARS,
    STATEMENTS,
    TYPES,
    Relation,
    Scope,
    all_of,
    instead_of,
    name_of,
    range_of,
    refuse_more,
    refuse_system,
    refused,
    says_same_person,
    why_not,
)
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


# A query that keeps people apart: checked, and built anew from what was understood.
#
# *Theory of operation* (docs/privacy.md P31). A relation is *owned* if each of its rows carries, in
# one column, the key of the person whose it is, and if the rows of a person follow from that
# person's rows at the source alone. The tables of `data.tables` are owned. So is, of owned
# relations,
#
#     a filter, and a computation row by row that keeps the key;
#     a join in which the keys are equal;
#     what is counted, or least, or most, in groups by the key;
#     a join to a table of `data.reference`, which is the same whoever is in the database.
#
# Nothing else is let in. The statement that runs is not the text of the study: it is made of the
# parts that were checked here, and of no others, with every name quoted and every column said to be
# of which table.

DIALECT = "postgres"  # in which queries of studies are written, whatever engine a site has
MOST_LETTERS = 20_000
_KNOWN = {"expressions", "from_", "joins", "where", "group", "with_"}


@dataclass(frozen=True, kw_only=True)
class OwnedQuery:
    """A query that was checked.

    Args:
        select: the statement that runs, in the dialect of studies.
        columns: names of its result's columns, in order.
        tables: that it reads.
    """

    select: exp.Select = field(repr=False)
    columns: tuple[str, ...]
    tables: tuple[str, ...]


def checked(
    query: str,
    tables: Mapping[str, str],
    *,
    reference: Sequence[str] = (),
    patient: str,
) -> OwnedQuery:
    """The query, if neighbouring tables of people give results that differ in one person's rows.

    Args:
        query: one SELECT, in PostgreSQL's SQL.
        tables: by name of each table of people the column that says whose a row is.
        reference: tables that are the same whoever is in the database.
        patient: the column of the result that must be that key.

    Raises:
        StudyError: it is none, with what is refused and why.
    """
    with suppress(RecursionError):
        return _Check(dict(tables), tuple(reference)).query(_parsed(query), patient)
    raise refused("too deep a nesting", "write it flatter")


def _parsed(query: str) -> exp.Expr:
    """The one statement of a text without comments."""
    if len(query) > MOST_LETTERS:
        raise refused(f"more than {MOST_LETTERS} letters", "shorten it")
    said = "several statements, or none"
    try:
        if any(token.comments for token in Tokenizer(dialect=DIALECT).tokenize(query)):
            said = "a comment, which may say what is not run"
        else:
            statements = sqlglot.parse(query, read=DIALECT)
            if len(statements) == 1 and statements[0] is not None:
                return statements[0]
    except SqlglotError:
        said = "no SQL that is known"
    raise refused(said, "write one SELECT in PostgreSQL's SQL, without comments")


class _Check:
    """One query, while it is checked."""

    def __init__(self, tables: dict[str, str], reference: tuple[str, ...]) -> None:
        self._tables, self._reference = tables, reference
        self._named: dict[str, Relation] = {}  # WITH
        self._read: list[str] = []
        self._scopes = count()
        self._check_names([*tables, *reference])

    @staticmethod
    def _check_names(names: Sequence[str]) -> None:
        """Refuse one table under two names: engines hold a and A for the same."""
        known: set[str] = set()
        for name in names:
            if name.casefold() in known:
                raise refused(f"the table {name!r} twice, in other letters", "name it once")
            known.add(name.casefold())

    def query(self, statement: exp.Expr, patient: str) -> OwnedQuery:
        """The whole of it."""
        if not isinstance(statement, exp.Select):
            why = next((w for kind, w in STATEMENTS.items() if isinstance(statement, kind)), "")
            raise refused(
                why or f"{statement.key.upper()[:40]}, which is no SELECT", "write one SELECT"
            )
        self._with(statement)
        made, keys = self._select(statement)
        if patient not in keys:
            raise refused(
                f"no column {patient!r} of the result that is the person's key as it stands",
                f"select that key AS {patient}, as data.patient says",
            )
        select, columns = made.source, tuple(made.columns or ())
        assert isinstance(select, exp.Select), "it was built"  # noqa: S101
        for built, name in zip(select.expressions, columns, strict=True):
            built.set("alias", exp.to_identifier(name, quoted=True))
        return OwnedQuery(select=select, columns=columns, tables=tuple(dict.fromkeys(self._read)))

    def _with(self, statement: exp.Select) -> None:
        """The named queries at its head, each seen by those after it."""
        clause = statement.args.get("with_")
        if clause is None:
            return
        if clause.args.get("recursive"):
            raise refused("WITH RECURSIVE, which has no bound", "write it without")
        for expression in clause.expressions:
            name, inner = self._alias(expression), expression.this
            if not isinstance(inner, exp.Select) or inner.args.get("with_"):
                raise refused("a WITH of something else than one SELECT", "write one SELECT")
            taken = [*self._named, *self._tables, *self._reference]
            if name.casefold() in map(str.casefold, taken):
                raise refused(f"the name {name!r} for two things", "choose another")
            self._named[name] = self._inner(inner)

    def _inner(self, select: exp.Select) -> Relation:
        inner, keys = self._select(select)
        if not keys:
            raise refused(
                "a SELECT within, without the person's key in its result", "select the key too"
            )
        return replace(inner, key=keys[0])

    def _select(self, select: exp.Select) -> tuple[Relation, list[str]]:
        """One SELECT built anew, and which columns of its result are the person's key."""
        for part, value in select.args.items():
            if value and part not in _KNOWN:
                raise refused(PARTS.get(part, f"{part} in a SELECT"), "remove it")
        scope = Scope(next(self._scopes))
        start = select.args.get("from_")
        if start is None:
            raise refused("a SELECT without FROM", "select from a table of data.tables")
        name, relation = self._relation(start.this)
        if not relation.key:
            raise refused(
                f"a SELECT from {name!r}, whose rows are nobody's",
                "begin with a table of data.tables",
            )
        built = exp.select().from_(scope.add(name, relation, owned=True))
        joins = [self._join(join, scope) for join in select.args.get("joins") or ()]
        built.set("joins", joins)
        where = select.args.get("where")
        if where is not None:
            built.set("where", exp.Where(this=condition_of(where.this, scope)))
        groups = self._groups(select.args.get("group"), scope)
        expressions, columns, keys = self._results(select.expressions, scope, groups)
        built.set("expressions", expressions)
        if groups is not None:
            built.set("group", exp.Group(expressions=[group.copy() for group in groups]))
        scope.narrow(built)
        ranges = {expression.alias: range_of(expression.this, scope) for expression in expressions}
        return Relation(source=built, key="", columns=columns, ranges=ranges), keys

    def _relation(self, node: exp.Expr) -> tuple[str, Relation]:
        """One item of FROM or JOIN: its name in this SELECT, and what it is."""
        if isinstance(node, exp.Subquery):
            refuse_more(node, {"this", "alias"}, "a SELECT within")
            if not isinstance(node.this, exp.Select) or node.this.args.get("with_"):
                raise refused("something else than one SELECT in brackets", "write one SELECT")
            return self._alias(node), self._inner(node.this)
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            inner = node.this if isinstance(node, exp.Table) else node
            said = inner.key.upper() if isinstance(inner, exp.Expr) else "nothing"
            raise refused(
                f"{said[:40]} in FROM, which reads what is not in the tables of data.tables",
                "name a table",
            )
        refuse_more(node, {"this", "alias"}, "a table")
        table = name_of(node.this)
        alias = self._alias(node) if node.args.get("alias") else table
        if table in self._named:
            known = self._named[table]
            return alias, known
        if table not in self._tables and table not in self._reference:
            raise refused(
                f"the table {table!r}, of which the study does not say whose its rows are",
                f'add it to data.tables, as {table} = "the column with the person\'s key"',
            )
        refuse_system(table)
        self._read.append(table)
        source = exp.Table(this=exp.to_identifier(table, quoted=True))
        return alias, Relation(source, self._tables.get(table, ""))

    def _alias(self, node: exp.Expr) -> str:
        alias = node.args.get("alias")
        if not isinstance(alias, exp.TableAlias) or alias.args.get("columns"):
            raise refused("a SELECT within without a plain name", "write (SELECT …) AS name")
        return name_of(alias.this)

    def _join(self, join: exp.Join, scope: Scope) -> exp.Join:
        """One join, whose keys must be equal."""
        side, kind = str(join.args.get("side") or ""), str(join.args.get("kind") or "")
        if (side, kind) not in (
            ("", ""),
            ("", "INNER"),
            ("LEFT", ""),
            ("LEFT", "OUTER"),
        ) or join.args.get("method"):
            word = f"{join.args.get('method') or ''} {side} {kind} JOIN".strip()
            raise refused(f"a {word}", "write JOIN or LEFT JOIN with ON")
        refuse_more(join, {"this", "on", "side", "kind"}, "a JOIN")
        if join.args.get("on") is None:
            raise refused(
                "a JOIN without ON, which pairs rows of different people",
                "say ON with the person's key at both sides",
            )
        name, relation = self._relation(join.this)
        before = dict(scope.owners)
        placed = scope.add(name, relation, owned=bool(relation.key) and not side)
        on = condition_of(join.args["on"], scope)
        if relation.key and not any(
            says_same_person(one, scope.key_of(name), before) for one in all_of(on)
        ):
            raise refused(
                f"a JOIN of {name!r} that does not say that the person is the same",
                f"write ON {name}.{relation.key} = the key of another table, AND what else",
            )
        if relation.key and side:
            scope.own(name)  # other tables may be joined to it
        return exp.Join(this=placed, on=on, side=side or None)

    def _groups(self, group: exp.Group | None, scope: Scope) -> list[exp.Column] | None:
        if group is None:
            return None
        refuse_more(group, {"expressions"}, "GROUP BY")
        values = [value_of(expression, scope) for expression in group.expressions]
        columns = [one for one in values if isinstance(one, exp.Column)]
        if len(columns) < len(values) or not any(map(scope.is_key, columns)):
            raise refused(
                "GROUP BY without the person's key, or by what is no column: groups of several "
                "people",
                "group by the key, and by columns",
            )
        return columns

    def _results(
        self, stated: Sequence[exp.Expr], scope: Scope, groups: list[exp.Column] | None
    ) -> tuple[list[exp.Expr], dict[str, str], list[str]]:
        """The columns of a result, their names by the study's, and which are the person's key."""
        results: list[exp.Expr] = []
        columns: dict[str, str] = {}
        keys: list[str] = []
        values = scope if groups is None else scope.of_groups
        for one in stated:
            value = one.this if isinstance(one, exp.Alias) else one
            if isinstance(one, exp.Alias):
                name = name_of(one.args["alias"])
            elif isinstance(one, exp.Column) and isinstance(one.this, exp.Identifier):
                name = name_of(one.this)
            else:
                raise refused(
                    why_not(exp.Star()) if one.is_star else "a column without a name",
                    "write AS name",
                )
            if name.casefold() in map(str.casefold, columns):
                raise refused(f"two columns {name!r}", "name them apart")
            built = _of_group(value_of(value, values, groups), scope, groups)
            if isinstance(built, exp.Column) and scope.is_key(built):
                keys.append(name)
            columns[name] = f"r {len(columns)}"
            results.append(exp.alias_(built, columns[name], quoted=True))
        return results, columns, keys


def _of_group(built: exp.Expr, scope: Scope, groups: list[exp.Column] | None) -> exp.Expr:
    """A value of a group; of equal values in it, no one shows which of them was met first.

    Values may be equal and have several texts (0.0 and -0.0, 1.0 and 1.00, a and A where a column
    is so declared), and which of them stands for a group follows from how tables were joined, which
    follows from how large they are. A whole number or a date has one text.
    """
    for column in built.find_all(exp.Column) if groups is not None else ():
        cast, aggregate = column.find_ancestor(exp.Cast), column.find_ancestor(*AGGREGATES)
        whole = cast is not None and cast.this is column and cast.to.this in EXACT
        if not (whole or scope.is_key(column) or aggregate or scope.range(column).kind in EXACT):
            raise refused(
                "a column of GROUP BY as it stands, of whose equal values the database shows one "
                "or another",
                "write CAST(column AS INTEGER), BIGINT or DATE, or join the groups to its table",
            )
    return built
