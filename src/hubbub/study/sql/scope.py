"""The tables of one SELECT: their names, whose rows they have, and which columns are asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp

from hubbub.errors import StudyError
from hubbub.study.sql.constructs import PARTS

_SYSTEM = ("pg_", "sqlite_", "duckdb_", "information_schema")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


def refused(what: str, remedy: str) -> StudyError:
    """What a query must not have, and what to do."""
    return StudyError(
        f"expected data.query to filter, compute row by row and join on the person's key, got "
        f"{what}; {remedy}"
    )


def refuse_more(node: exp.Expr, known: set[str], what: str) -> None:
    """Refuse a part of a node that is not known."""
    more = [part for part, value in node.args.items() if value and part not in known]
    if more:
        words = {"db": "a schema, which is the site's own", "sample": PARTS["sample"]}
        raise refused(f"{what} with {words.get(more[0], more[0])}", "leave that out")


def refuse_system(table: str) -> None:
    """Refuse a table of the database's own, which tells who else is in it."""
    if table.lower().startswith(_SYSTEM):
        raise refused(f"the table {table!r}, which is the database's own", "name one of people")


def name_of(node: object) -> str:
    """A name as databases read it: in small letters, unless it is quoted."""
    if not isinstance(node, exp.Identifier) or not _NAME.fullmatch(str(node.this)):
        raise refused("a name with other letters than a–z, 0–9 and _", "give it another")
    name = str(node.this)
    return name if node.args.get("quoted") else name.lower()


@dataclass(frozen=True)
class Relation:
    """What stands in FROM: its columns, if they are known, and the one with the person's key."""

    source: exp.Expr
    key: str  # empty: of nobody, a table of reference
    columns: tuple[str, ...] | None = None


class Scope:
    """The tables of one SELECT, and which of their columns are asked for."""

    def __init__(self) -> None:
        self._relations: dict[str, Relation] = {}
        self._asked: dict[str, dict[str, None]] = {}
        self.owners: dict[str, str] = {}
        self._present: set[str] = set()  # those whose key cannot be missing

    def add(self, name: str, relation: Relation, *, owned: bool) -> None:
        """One more of them."""
        if name in self._relations:
            raise refused(f"the name {name!r} for two tables", "name them apart with AS")
        self._relations[name], self._asked[name] = relation, {}
        if owned:
            self.owners[name] = relation.key
            self._present.add(name)

    @property
    def only(self) -> str | None:
        """The name of the only one; None of several."""
        return next(iter(self._relations)) if len(self._relations) == 1 else None

    def column(self, table: str, name: str) -> exp.Column:
        """A column of one of them."""
        if table not in self._relations:
            raise refused(f"a column of {table!r}, which is not in this FROM", "join it")
        columns = self._relations[table].columns
        if columns is not None and name not in columns:
            raise refused(f"a column {name!r} of {table!r}, which has none", "correct it")
        self._asked[table][name] = None
        return exp.column(name, table=table, quoted=True)

    def is_key(self, column: exp.Column) -> bool:
        """Whether a column is the key of whose row it is."""
        return column.table in self._present and self.owners[column.table] == column.name

    def narrow(self, select: exp.Select) -> None:
        """Read of each table the columns that are asked for, by name.

        So a name that is no column of a table is an error of the database, never what else some
        engine makes of `table.name` (PostgreSQL calls a function of that name).
        """
        for item in [select.args["from_"], *select.args["joins"]]:
            if not isinstance(item.this, exp.Table):
                continue
            name, table = item.this.alias, item.this
            table.set("alias", None)
            asked = [exp.column(one, quoted=True) for one in self._asked[name] or [self._key(name)]]
            item.set("this", exp.select(*asked).from_(table).subquery(name, copy=False))
            item.this.args["alias"].this.set("quoted", True)

    def _key(self, name: str) -> str:
        key = self._relations[name].key
        if not key:
            raise refused(f"a table {name!r} of which no column is used", "leave it out")
        return key


def placed(name: str, relation: Relation) -> exp.Expr:
    """A relation under its name."""
    alias = exp.TableAlias(this=exp.to_identifier(name, quoted=True))
    source = relation.source.copy()
    if isinstance(source, exp.Select):
        return exp.Subquery(this=source, alias=alias)
    source.set("alias", alias)
    return source


def all_of(condition: exp.Expr) -> Iterator[exp.Expr]:
    """Conditions that all must hold."""
    if isinstance(condition, exp.Paren):
        yield from all_of(condition.this)
    elif isinstance(condition, exp.And):
        yield from all_of(condition.this)
        yield from all_of(condition.expression)
    else:
        yield condition


def says_same_person(one: exp.Expr, name: str, key: str, before: Mapping[str, str]) -> bool:
    """Whether a condition says that a joined table's key is that of a table before it."""
    sides = [one.this, one.expression] if isinstance(one, exp.EQ) else []
    if len(sides) != 2 or not all(isinstance(side, exp.Column) for side in sides):
        return False
    own, other = sorted(sides, key=lambda side: side.table != name)
    return bool(own.table == name and own.name == key and before.get(other.table) == other.name)
