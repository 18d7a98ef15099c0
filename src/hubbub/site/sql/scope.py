"""The tables of one SELECT: their names, whose rows they have, and which columns are asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field

from sqlglot import exp

from hubbub.core.errors import StudyError
from hubbub.site.sql.constructs import PARTS
from hubbub.site.sql.value_range import ValueRange

_SYSTEM = ("pg_", "pragma_", "sqlite_", "duckdb_", "information_schema")
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
    """What stands in FROM.

    Args:
        source: a table, or a SELECT whose columns have names that were made here.
        key: the column with the person's key, by the name that a study has for it; empty: of
            nobody, a table of reference.
        columns: of a SELECT, by the study's name the one that was made; None: a table's are not
            known.
        ranges: of a SELECT, by the made name what a column may be, where the query says it.
    """

    source: exp.Expr
    key: str
    columns: Mapping[str, str] | None = None
    ranges: Mapping[str, ValueRange] = field(default_factory=dict)


class Scope:
    """The tables of one SELECT, and which of their columns are asked for.

    Every table and column has a name that is made here, with a space in it, as no name of a study
    has one: so no engine can take a study's name for another thing than was checked, whatever it
    makes of letters' case, of a table that is named as its column, or of a sibling in FROM.

    Args:
        number: of this SELECT in its query.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._relations: dict[str, Relation] = {}
        self._made: dict[str, str] = {}  # by the study's name of a table
        # Of each, by the study's name of a column and whether it is read as a text.
        self._asked: dict[str, dict[tuple[str, bool], str]] = {}
        self.owners: dict[str, str] = {}  # of each by its made name, the key's
        self._present: set[str] = set()  # those whose key cannot be missing
        self.of_rows = self  # which is another one where values are of groups

    @property
    def of_groups(self) -> Scope:
        """The same for values of groups, whose columns are read after they were grouped."""
        made = copy(self)
        assert made.of_rows is self, "a copy of this one"  # noqa: S101
        return made

    def add(self, name: str, relation: Relation, *, owned: bool) -> exp.Expr:
        """One more of them, as it stands in FROM."""
        if name.casefold() in map(str.casefold, self._relations):
            raise refused(f"the name {name!r} for two tables", "name them apart with AS")
        self._made[name] = f"t {self._number}.{len(self._relations)}"
        self._relations[name], self._asked[name] = relation, {}
        if relation.key:
            self.column(name, relation.key)
        if owned:
            self.own(name)
            self._present.add(self._made[name])
        return _placed(self._made[name], relation)

    def own(self, name: str) -> None:
        """Other tables may be joined to this one by its key."""
        self.owners[self._made[name]] = self.key_of(name).name

    def key_of(self, name: str) -> exp.Column:
        """The column with the person's key."""
        return self.column(name, self._relations[name].key)

    @property
    def only(self) -> str | None:
        """The name of the only one; None of several."""
        return next(iter(self._relations)) if len(self._relations) == 1 else None

    def column(self, table: str, name: str, *, text: bool = False) -> exp.Column:
        """A column of one of them; with `text` one that a table is to give as a text."""
        if table not in self._relations:
            raise refused(f"a column of {table!r}, which is not in this FROM", "join it")
        columns, asked = self._relations[table].columns, self._asked[table]
        if columns is None:
            made = asked.setdefault((name, text), f"c {len(asked)}")
        elif name in columns:
            made = columns[name]
        else:
            raise refused(f"a column {name!r} of {table!r}, which has none", "correct it")
        return exp.column(made, table=self._made[table], quoted=True)

    def text(self, column: exp.Expr) -> exp.Column | None:
        """What a table of the site gives as a text for a column of it, where that can be asked for.

        A key is one already. SQLite makes an index of what a table gives, and of nothing else.
        """
        if not isinstance(column, exp.Column):
            return None
        table = next(name for name, made in self._made.items() if made == column.table)
        relation = self._relations[table]
        names = [name for (name, _), made in self._asked[table].items() if made == column.name]
        if relation.key and column == self.key_of(table):
            return column
        if self is not self.of_rows or relation.columns is not None:
            return None
        return self.column(table, names[0], text=True)

    def range(self, column: exp.Column) -> ValueRange:
        """What a column may be, where the query itself says it."""
        name = next(name for name, made in self._made.items() if made == column.table)
        return self._relations[name].ranges.get(column.name, ValueRange())

    def is_key(self, column: exp.Column) -> bool:
        """Whether a column is the key of whose row it is."""
        return column.table in self._present and self.owners[column.table] == column.name

    def narrow(self, select: exp.Select) -> None:
        """Read of each table the columns that are asked for, by name.

        So a name that is no column of a table is an error of the database, never what else some
        engine makes of `table.name` (PostgreSQL calls a function of that name).
        """
        named = {made: name for name, made in self._made.items()}
        used = {(column.table, column.name) for column in select.find_all(exp.Column)}
        for item in [select.args["from_"], *select.args["joins"]]:
            if not isinstance(item.this, exp.Table):
                continue
            made, table = item.this.alias, item.this
            base = f"{BASE}{made}"
            table.args["alias"].this.set("this", base)
            if not self._asked[named[made]]:
                raise refused(f"a table {named[made]!r} of which no column is used", "leave it out")
            asked: list[exp.Expr] = []
            for (name, text), called in self._asked[named[made]].items():
                if (made, called) not in used and asked:
                    continue  # it was asked for as a text too, and only so
                column = exp.column(name, table=base, quoted=True)
                own = name == self._relations[named[made]].key
                column.meta[READ] = KEY if own else TEXT if text else ""
                asked.append(exp.alias_(column, called, quoted=True))
            item.set("this", exp.select(*asked).from_(table).subquery(made, copy=False))
            item.this.args["alias"].this.set("quoted", True)


BASE = "b "  # a table of the site, within the SELECT that narrows it
READ, KEY, TEXT = "read", "key", "text"  # in a column's meta, there: as what it is read


def _placed(made: str, relation: Relation) -> exp.Expr:
    """A relation under a name that was made for it."""
    alias = exp.TableAlias(this=exp.to_identifier(made, quoted=True))
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


def says_same_person(one: exp.Expr, key: exp.Column, before: Mapping[str, str]) -> bool:
    """Whether a condition says that a joined table's key is that of a table before it."""
    sides = [one.this, one.expression] if isinstance(one, exp.EQ) else []
    if len(sides) != 2 or not all(isinstance(side, exp.Column) for side in sides):
        return False
    own, other = sorted(sides, key=lambda side: side.table != key.table)
    return bool(own == key and before.get(other.table) == other.name)
