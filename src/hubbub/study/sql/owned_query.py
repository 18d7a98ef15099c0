"""A query that keeps people apart: checked, and built anew from what was understood.

*Theory of operation* (docs/privacy.md P31). A relation is *owned* if each of its rows carries, in
one column, the key of the person whose it is, and if the rows of a person follow from that person's
rows at the source alone. The tables of `data.tables` are owned. So is, of owned relations,

    a filter, and a computation row by row that keeps the key;
    a join in which the keys are equal;
    what is counted, or least, or most, in groups by the key;
    a join to a table of `data.reference`, which is the same whoever is in the database.

Nothing else is let in. The statement that runs is not the text of the study: it is made of the parts
that were checked here, and of no others, with every name quoted and every column said to be of which
table. This file knows SQL; it must not know engines, studies or connections.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Tokenizer

from hubbub.errors import StudyError
from hubbub.study.sql.constructs import (
    AGGREGATES,
    DATE_PARTS,
    PARTS,
    PLACES,
    SCALARS,
    STATEMENTS,
    TYPES,
    why_not,
)
from hubbub.study.sql.scope import Relation, Scope, all_of, placed, refused, says_same_person

DIALECT = "postgres"  # in which queries of studies are written, whatever engine a site has
MOST_LETTERS = 20_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
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
    return _Check(dict(tables), tuple(reference)).query(_parsed(query), patient)


def _parsed(query: str) -> exp.Expression:
    """The one statement of a text without comments."""
    if len(query) > MOST_LETTERS:
        raise refused(f"more than {MOST_LETTERS} letters", "shorten it")
    try:
        if any(token.comments for token in Tokenizer(dialect=DIALECT).tokenize(query)) or (
            "--" in query or "/*" in query
        ):
            raise refused("a comment, which may say what is not run", "remove it")
        statements = sqlglot.parse(query, read=DIALECT)
    except (SqlglotError, RecursionError) as error:
        kind = "too deep a nesting" if isinstance(error, RecursionError) else "no SQL that is known"
        fault = kind
    else:
        if len(statements) == 1 and statements[0] is not None:
            return statements[0]
        fault = "several statements, or none"
    raise refused(fault, "write one SELECT in PostgreSQL's SQL")


class _Check:
    """One query, while it is checked."""

    def __init__(self, tables: dict[str, str], reference: tuple[str, ...]) -> None:
        self._tables, self._reference = tables, reference
        self._named: dict[str, Relation] = {}  # WITH
        self._read: list[str] = []

    def query(self, statement: exp.Expression, patient: str) -> OwnedQuery:
        """The whole of it."""
        if not isinstance(statement, exp.Select):
            why = next((w for kind, w in STATEMENTS.items() if isinstance(statement, kind)), "")
            raise refused(
                why or f"{statement.key.upper()[:40]}, which is no SELECT", "write one SELECT"
            )
        try:
            self._with(statement)
            made, keys = self._select(statement)
        except RecursionError:
            keys = None
        if keys is None:
            raise refused("too deep a nesting", "write it flatter")
        columns = tuple(one.alias_or_name for one in made.expressions)
        if patient not in keys:
            raise refused(
                f"no column {patient!r} of the result that is the person's key as it stands",
                f"select that key AS {patient}, as data.patient says",
            )
        return OwnedQuery(select=made, columns=columns, tables=tuple(dict.fromkeys(self._read)))

    def _with(self, statement: exp.Select) -> None:
        """The named queries at its head, each seen by those after it."""
        clause = statement.args.get("with_")
        if clause is None:
            return
        if clause.args.get("recursive"):
            raise refused("WITH RECURSIVE, which has no bound", "write it without")
        for one in clause.expressions:
            name, inner = self._alias(one), one.this
            if not isinstance(inner, exp.Select) or inner.args.get("with_"):
                raise refused("a WITH of something else than one SELECT", "write one SELECT")
            if name in self._named or name in self._tables or name in self._reference:
                raise refused(f"the name {name!r} for two things", "choose another")
            self._named[name] = self._inner(inner)

    def _inner(self, select: exp.Select) -> Relation:
        made, keys = self._select(select)
        if not keys:
            raise refused(
                "a SELECT within, without the person's key in its result", "select the key too"
            )
        columns = tuple(one.alias_or_name for one in made.expressions)
        return Relation(source=made, key=next(iter(keys)), columns=columns)

    def _select(self, select: exp.Select) -> tuple[exp.Select, list[str]]:
        """One SELECT built anew, and which columns of its result are the person's key."""
        for part, value in select.args.items():
            if value and part not in _KNOWN:
                raise refused(PARTS.get(part, f"{part} in a SELECT"), "remove it")
        scope = Scope()
        start = select.args.get("from_")
        if start is None:
            raise refused("a SELECT without FROM", "select from a table of data.tables")
        name, relation = self._relation(start.this)
        if not relation.key:
            raise refused(
                f"a SELECT from {name!r}, whose rows are nobody's",
                "begin with a table of data.tables",
            )
        scope.add(name, relation, owned=True)
        made = exp.select().from_(placed(name, relation))
        joins = [self._join(join, scope) for join in select.args.get("joins") or ()]
        made.set("joins", joins)
        where = select.args.get("where")
        if where is not None:
            made.set("where", exp.Where(this=self._value(where.this, scope)))
        groups = self._groups(select.args.get("group"), scope)
        expressions, keys = self._results(select.expressions, scope, groups)
        made.set("expressions", expressions)
        if groups is not None:
            made.set("group", exp.Group(expressions=[one.copy() for one in groups]))
        scope.narrow(made)
        return made, keys

    def _relation(self, node: exp.Expression) -> tuple[str, Relation]:
        """One item of FROM or JOIN: its name in this SELECT, and what it is."""
        if isinstance(node, exp.Subquery):
            self._only(node, {"this", "alias"}, "a SELECT within")
            if not isinstance(node.this, exp.Select) or node.this.args.get("with_"):
                raise refused("something else than one SELECT in brackets", "write one SELECT")
            return self._alias(node), self._inner(node.this)
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            inner = node.this if isinstance(node, exp.Table) else node
            said = inner.key.upper() if isinstance(inner, exp.Expression) else "nothing"
            raise refused(
                f"{said[:40]} in FROM, which reads what is not in the tables of data.tables",
                "name a table",
            )
        self._only(node, {"this", "alias"}, "a table")
        table = self._name(node.this)
        alias = self._alias(node) if node.args.get("alias") else table
        if table in self._named:
            known = self._named[table]
            return alias, Relation(known.source, known.key, known.columns)
        if table not in self._tables and table not in self._reference:
            raise refused(
                f"the table {table!r}, of which the study does not say whose its rows are",
                f'add it to data.tables, as {table} = "the column with the person\'s key"',
            )
        self._read.append(table)
        source = exp.Table(this=exp.to_identifier(table, quoted=True))
        return alias, Relation(source, self._tables.get(table, ""))

    def _only(self, node: exp.Expression, known: set[str], what: str) -> None:
        more = [part for part, value in node.args.items() if value and part not in known]
        if more:
            words = {"db": "a schema, which is the site's own", "sample": PARTS["sample"]}
            raise refused(f"{what} with {words.get(more[0], more[0])}", "leave that out")

    def _alias(self, node: exp.Expression) -> str:
        alias = node.args.get("alias")
        if not isinstance(alias, exp.TableAlias) or alias.args.get("columns"):
            raise refused("a SELECT within without a plain name", "write (SELECT …) AS name")
        return self._name(alias.this)

    @staticmethod
    def _name(node: object) -> str:
        """A name as databases read it: in small letters, unless it is quoted."""
        name = node.this if isinstance(node, exp.Identifier) else None
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise refused("a name with other letters than a–z, 0–9 and _", "give it another")
        return name if node.args.get("quoted") else name.lower()  # type: ignore[attr-defined]

    def _join(self, join: exp.Join, scope: Scope) -> exp.Join:
        """One join, whose keys must be equal."""
        side, kind = str(join.args.get("side") or ""), str(join.args.get("kind") or "")
        if side not in ("", "LEFT") or kind not in ("", "INNER", "OUTER") or join.args.get("method"):
            word = f"{join.args.get('method') or ''} {side} {kind} JOIN".strip()
            raise refused(f"a {word}", "write JOIN or LEFT JOIN with ON")
        self._only(join, {"this", "on", "side", "kind"}, "a JOIN")
        if join.args.get("on") is None:
            raise refused(
                "a JOIN without ON, which pairs rows of different people",
                "say ON with the person's key at both sides",
            )
        name, relation = self._relation(join.this)
        before = dict(scope.owners)
        scope.add(name, relation, owned=bool(relation.key) and not side)
        on = self._value(join.args["on"], scope)
        if relation.key and not any(says_same_person(one, name, relation.key, before) for one in all_of(on)):
            raise refused(
                f"a JOIN of {name!r} that does not say that the person is the same",
                f"write ON {name}.{relation.key} = the key of another table, AND what else there is",
            )
        if relation.key and side:
            scope.owners[name] = relation.key  # other tables may be joined to it
        return exp.Join(this=placed(name, relation), on=on, side=side or None)

    def _groups(self, group: exp.Group | None, scope: Scope) -> list[exp.Column] | None:
        if group is None:
            return None
        self._only(group, {"expressions"}, "GROUP BY")
        found = [self._value(one, scope) for one in group.expressions]
        columns = [one for one in found if isinstance(one, exp.Column)]
        if len(columns) < len(found) or not any(map(scope.is_key, columns)):
            raise refused(
                "GROUP BY without the person's key, or by what is no column: groups of several "
                "people",
                "group by the key, and by columns",
            )
        return columns

    def _results(
        self, stated: Sequence[exp.Expression], scope: Scope, groups: list[exp.Column] | None
    ) -> tuple[list[exp.Expression], list[str]]:
        """The columns of a result, and which of them are the person's key."""
        made: list[exp.Expression] = []
        keys: list[str] = []
        for one in stated:
            value = one.this if isinstance(one, exp.Alias) else one
            if isinstance(one, exp.Alias):
                name = self._name(one.args["alias"])
            elif isinstance(one, exp.Column) and isinstance(one.this, exp.Identifier):
                name = self._name(one.this)
            else:
                raise refused(
                    why_not(exp.Star()) if one.is_star else "a column without a name",
                    "write AS name",
                )
            if name in [other.alias for other in made]:
                raise refused(f"two columns {name!r}", "name them apart")
            built = self._value(value, scope, groups)
            if isinstance(built, exp.Column) and scope.is_key(built):
                keys.append(name)
            made.append(exp.alias_(built, name, quoted=True))
        return made, keys

    def _value(
        self, node: exp.Expression, scope: Scope, groups: list[exp.Column] | None = None
    ) -> exp.Expression:
        """An expression built anew; with `groups` one of a group's rows."""
        if isinstance(node, exp.Column):
            column = self._column(node, scope)
            if groups is not None and column not in groups:
                raise refused(
                    f"the column {column.name!r} of one of a group's rows",
                    "group by it too, or take its MIN or MAX",
                )
            return column
        if groups is not None and isinstance(node, AGGREGATES):
            return self._aggregate(node, scope)
        if isinstance(node, exp.Literal):
            return _literal(node)
        if isinstance(node, exp.Boolean | exp.Null):
            return type(node)(**({"this": bool(node.this)} if isinstance(node, exp.Boolean) else {}))
        if type(node) not in SCALARS:
            raise refused(why_not(node), "write it in another way, or in a view of the site")
        return self._scalar(node, scope, groups)

    def _scalar(
        self, node: exp.Expression, scope: Scope, groups: list[exp.Column] | None
    ) -> exp.Expression:
        single, several = SCALARS[type(node)]
        parts: dict[str, object] = {}
        for part in single:
            if (inner := node.args.get(part)) is not None:
                parts[part] = self._value(inner, scope, groups)
        for part in several:
            parts[part] = [self._value(one, scope, groups) for one in node.args.get(part) or ()]
        if isinstance(node, exp.Is) and node.args.get("negate"):
            parts["negate"] = True
        if isinstance(node, exp.In) and not parts["expressions"]:
            raise refused("IN without a list of values", "list them, or join on the person's key")
        if isinstance(node, exp.Trim) and node.expression is not None:
            raise refused("TRIM of certain letters", "write TRIM(column)")
        if isinstance(node, exp.Floor | exp.Ceil) and node.args.get("decimals") is not None:
            raise refused("FLOOR or CEIL with decimals", "write it with one argument")
        if isinstance(node, exp.Cast):
            parts["to"] = _type(node)
        if isinstance(node, exp.Extract):
            word = str(node.this.name if isinstance(node.this, exp.Expression) else "").upper()
            if word not in DATE_PARTS:
                raise refused("EXTRACT of that part", "take YEAR, MONTH or DAY")
            parts["this"] = exp.var(word)
        return type(node)(**parts)

    def _aggregate(self, node: exp.Expression, scope: Scope) -> exp.Expression:
        """COUNT, MIN or MAX of a person's rows."""
        self._only(node, {"this", "big_int"}, node.key.upper())
        inner = node.this
        if isinstance(node, exp.Count) and isinstance(inner, exp.Star):
            return exp.Count(this=exp.Star())
        if isinstance(node, exp.Count) and isinstance(inner, exp.Distinct):
            self._only(inner, {"expressions"}, "COUNT(DISTINCT)")
            values = [self._value(one, scope) for one in inner.expressions]
            if len(values) != 1:
                raise refused("COUNT(DISTINCT) of several columns", "count one")
            return exp.Count(this=exp.Distinct(expressions=values))
        if not isinstance(inner, exp.Expression):
            raise refused(f"{node.key.upper()} of nothing", "name a column")
        return type(node)(this=self._value(inner, scope))

    def _column(self, node: exp.Column, scope: Scope) -> exp.Column:
        """A column, with its table."""
        self._only(node, {"this", "table"}, "a column")
        if not isinstance(node.this, exp.Identifier):
            inner = node.this if isinstance(node.this, exp.Expression) else node
            raise refused(why_not(inner), "name its columns")
        name = self._name(node.this)
        if name.lower() in PLACES:
            raise refused(
                f"{name!r}, the place of a row, which follows from other people's rows", "leave it"
            )
        table = self._name(node.args["table"]) if node.args.get("table") else scope.only
        if table is None:
            raise refused(
                f"the column {name!r} of one of several tables", "write table.column everywhere"
            )
        return scope.column(table, name)


def _literal(node: exp.Literal) -> exp.Literal:
    """A number or a text that every engine reads alike."""
    text = str(node.this)
    if node.is_string:
        if "\\" in text or not text.isprintable():
            raise refused("a text with a backslash or an unprintable letter", "write another")
        return exp.Literal.string(text)
    if not re.fullmatch(r"[0-9]{1,18}(\.[0-9]{1,18})?", text):
        raise refused("a number in another form than 12 or 1.5", "write it so")
    return exp.Literal.number(text)


def _type(node: exp.Cast) -> exp.DataType:
    """The type of a CAST."""
    kind = node.args.get("to")
    plain = isinstance(kind, exp.DataType) and not kind.expressions and kind.this in TYPES
    if not plain or any(node.args.get(part) for part in ("format", "action", "default", "safe")):
        raise refused(
            "a CAST to another type", "use INTEGER, BIGINT, DOUBLE PRECISION, TEXT or DATE"
        )
    return exp.DataType(this=kind.this)  # type: ignore[union-attr]
