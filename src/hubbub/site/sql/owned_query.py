"""A query that keeps people apart: checked, and built anew from what was understood.

*Theory of operation* (docs/privacy.md P31). A relation is *owned* if each of its rows carries, in
one column, the key of the person whose it is, and if the rows of a person follow from that person's
rows at the source alone. The tables of `data.tables` are owned. So is, of owned relations,

    a filter, and a computation row by row that keeps the key;
    a join in which the keys are equal;
    what is counted, or least, or most, in groups by the key;
    a join to a table of `data.reference`, which is the same whoever is in the database.

Nothing else is let in. The statement that runs is not the text of the study: it is made of the
parts that were checked here, and of no others, with every name quoted and every column said to be
of which table. This file knows SQL; it must not know engines, studies or connections.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Tokenizer

from hubbub.site.sql.constructs import AGGREGATES, EXACT, PARTS, STATEMENTS, why_not
from hubbub.site.sql.expressions import condition_of, value_of
from hubbub.site.sql.ranges import range_of
from hubbub.site.sql.scope import (
    Relation,
    Scope,
    all_of,
    name_of,
    refuse_more,
    refuse_system,
    refused,
    says_same_person,
)

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
                raise refused(f"the table {name!r} twice, whose rows are whose?", "name it once")
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
