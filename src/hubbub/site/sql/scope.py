"""What a query may be made of, and why anything else is refused (docs/privacy.md P31).

`SCALARS` lists every expression that computes one row's value from that row alone, `COMPARED` and
`JOINED` every condition of one, with the parts that they keep; an expression with any other part is
refused. This file knows SQL; it must not know studies or connections.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from math import exp as power
from math import log, sqrt
from typing import Any

from sqlglot import exp

from hubbub.core.errors import StudyError

# By expression: which of its parts are expressions, and which are lists of them.
Parts = tuple[tuple[str, ...], tuple[str, ...]]
_ALONE: Parts = (("this",), ())
_PAIR: Parts = (("this", "expression"), ())
_LIST: Parts = (("this",), ("expressions",))
SCALARS: dict[type[exp.Expr], Parts] = {
    **dict.fromkeys((exp.Paren, exp.Neg, exp.Abs, exp.Floor, exp.Ceil, exp.Cast), _ALONE),
    **dict.fromkeys((exp.Sqrt, exp.Ln, exp.Exp), _ALONE),
    **dict.fromkeys((exp.Lower, exp.Upper, exp.Trim, exp.Length), _ALONE),
    **dict.fromkeys((exp.Nullif, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.DPipe), _PAIR),
    exp.Coalesce: _LIST,
    exp.Substring: (("this", "start", "length"), ()),
    exp.Extract: (("expression",), ()),
}
# Conditions: what compares values, and what joins conditions.
COMPARED: dict[type[exp.Expr], Parts] = {
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Like), _PAIR),
    exp.In: _LIST,
    exp.Between: (("this", "low", "high"), ()),
}
JOINED: dict[type[exp.Expr], tuple[str, ...]] = {
    exp.And: ("this", "expression"),
    exp.Or: ("this", "expression"),
    exp.Not: ("this",),
}
# Of several rows of one person: exact, whatever the order in which a database meets them.
AGGREGATES = (exp.Count, exp.Min, exp.Max)
TYPES = {
    exp.DataType.Type.INT,
    exp.DataType.Type.BIGINT,
    exp.DataType.Type.DOUBLE,
    exp.DataType.Type.TEXT,
    exp.DataType.Type.VARCHAR,
    exp.DataType.Type.DATE,
}
# Of which equal values have one text.
EXACT = {exp.DataType.Type.INT, exp.DataType.Type.BIGINT, exp.DataType.Type.DATE}
# Of which there is a least and a most whose text says no more than its value.
ORDERED = {*EXACT, exp.DataType.Type.DOUBLE}
# Words that a database reads as its clock, or as no day, where it expects a date.
CLOCK = re.compile(
    r"(?<![a-z])(now|today|tomorrow|yesterday|epoch|infinity|allballs)(?![a-z])", re.IGNORECASE
)
DATE_PARTS = {"YEAR", "MONTH", "DAY"}
# Where rows lie, or when they were written: that follows from other people's rows.
PLACES = {
    *("ctid", "xmin", "xmax", "cmin", "cmax", "tableoid", "oid"),
    *("rowid", "_rowid_", "rownum", "rownumber"),
}

_OTHERS = "its value depends on other people's rows"
_READS = "it reads what is not in the tables of data.tables"
_VARIES = "it gives another value at each reading, so one person would not stay one person's change"
_ORDER = "it adds in an order that other people's rows may change"
_WHY: tuple[tuple[tuple[type[exp.Expr], ...], str], ...] = (
    ((exp.Window,), f"a window: {_OTHERS}"),
    ((exp.Sum, exp.Avg, exp.Stddev, exp.Variance, exp.GroupConcat), f"an aggregate: {_ORDER}"),
    ((exp.AggFunc, exp.Filter), f"an aggregate: {_OTHERS}, unless it groups by the person's key"),
    ((exp.Exists, exp.Subquery, exp.Select), f"a subquery that gives a value: {_OTHERS}"),
    ((exp.Rand, exp.Randn), f"a random number: {_VARIES}"),
    ((exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime), f"the clock: {_VARIES}"),
    ((exp.CurrentUser, exp.SessionUser), f"who asks: {_VARIES}"),
    ((exp.Parameter, exp.Placeholder), "a parameter: nobody is there to give it"),
    ((exp.Star,), "a star: which columns it names the site's table says, not the study"),
    ((exp.Collate,), "a collation: engines differ in them"),
    ((exp.Anonymous, exp.Func), "a function that is not on the list"),
)
STATEMENTS = {
    exp.Union: "UNION: write one SELECT",
    exp.Intersect: f"INTERSECT: {_OTHERS}",
    exp.Except: f"EXCEPT: {_OTHERS}",
    exp.Values: f"VALUES: {_READS}",
}
# Parts of a SELECT by sqlglot's name.
PARTS = {
    "distinct": f"DISTINCT: {_OTHERS}",
    "limit": f"LIMIT or FETCH: {_OTHERS}, which it may push out",
    "offset": f"OFFSET: {_OTHERS}",
    "order": "ORDER BY: a result has no order here; name data.order for the rows of a patient",
    "having": "HAVING: WHERE of a SELECT around it does the same",
    "windows": f"a window: {_OTHERS}",
    "qualify": f"QUALIFY: {_OTHERS}",
    "sample": f"a sample: {_VARIES}",
    "laterals": "LATERAL: a JOIN on the person's key does the same",
    "locks": "a lock: the query only reads",
    "into": "INTO: the query only reads",
    "connect": f"CONNECT BY: {_OTHERS}",
    "match": f"MATCH_RECOGNIZE: {_OTHERS}",
    "pivots": f"PIVOT: {_OTHERS}",
}


# What to write for what is often written.
_INSTEAD: tuple[tuple[tuple[type[exp.Expr], ...], str], ...] = (
    ((exp.Subquery, exp.Exists), "JOIN (SELECT key, COUNT(*) AS n … GROUP BY key) on the key"),
    ((exp.Sum, exp.CountIf), "COUNT(CASE WHEN … THEN 1 END) to count"),
    ((exp.Round,), "CAST(… AS INTEGER)"),
    ((exp.ILike,), "LOWER(…) LIKE"),
    ((exp.Concat, exp.ConcatWs), "a || b"),
    ((exp.Left,), "SUBSTRING(…, 1, 3)"),
    ((exp.Pow,), "a * a"),
    ((exp.Greatest, exp.Least, exp.Filter), "CASE WHEN … THEN … ELSE … END"),
    ((exp.CurrentDate, exp.CurrentTimestamp), "a day, such as '2024-05-31'"),
    ((exp.Interval,), "CAST(a AS DATE) - CAST(b AS DATE) <= 30"),
)


def instead_of(node: exp.Expr) -> str:
    """What to do about an expression that is refused."""
    found = next((said for kinds, said in _INSTEAD if isinstance(node, kinds)), "it in another way")
    return f"write {found}, or compute it in a view of the site"


def why_not(node: exp.Expr) -> str:
    """Why an expression is refused, with its name."""
    for kinds, why in _WHY:
        if isinstance(node, kinds):
            return f"{_name(node)}, {why}" if kinds[-1] is not exp.Star else why
    return f"{_name(node)}, which is not on the list"


def _name(node: exp.Expr) -> str:
    """What a construct is called in SQL, as far as it is known."""
    if isinstance(node, exp.Anonymous):
        return f"{str(node.this)[:40].lower()}()"
    return f"{node.key.upper()[:40]}"


# What a value of a query may be: its type, and between which sizes a number of it lies.

REAL, WHOLE = exp.DataType.Type.DOUBLE, exp.DataType.Type.BIGINT
DAY, TEXT = exp.DataType.Type.DATE, exp.DataType.Type.TEXT
WHOLES = (exp.DataType.Type.INT, WHOLE)


@dataclass(frozen=True)
class ValueRange:
    """What a value may be.

    Args:
        kind: sqlglot's type, where the query says it; None: a column as it was read.
        least: of a number that is not 0, its least size.
        most: of a number, its largest size.
    """

    kind: Any = None
    least: float = 1.0
    most: float = 0.0

    @property
    def is_number(self) -> bool:
        """Whether it is one, as the query says it."""
        return self.kind is REAL or self.kind in WHOLES


# The tables of one SELECT: their names, whose rows they have, and which columns are asked for.

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
                column.meta[READ] = KEY if own else AS_TEXT if text else ""
                asked.append(exp.alias_(column, called, quoted=True))
            item.set("this", exp.select(*asked).from_(table).subquery(made, copy=False))
            item.this.args["alias"].this.set("quoted", True)


BASE = "b "  # a table of the site, within the SELECT that narrows it
READ, KEY, AS_TEXT = "read", "key", "text"  # in a column's meta, there: as what it is read


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


# What an expression's value may be: its type, and between which sizes a number of it lies.
#
# Databases fail where a number gets too large, or too small to be told from 0. The sizes of columns
# are bounded where they are read (`source`), those of what is computed of them here, so that no
# cell takes a number out of what a real number can hold (docs/privacy.md P31).

MOST_WHOLE = 1e15  # of a CAST to a whole number; a real number holds each of them exactly
MOST_LETTERS, MOST_POWER = 32, 19  # of a text that is read as a number, and of its power of ten
MOST_EXPONENT = 200  # of EXP
_CELL = (10.0 ** -(MOST_LETTERS + MOST_POWER), 10.0 ** (MOST_LETTERS + MOST_POWER))
_HOLDS = (1e-290, 1e290)  # well within what a real number holds
_LONG = 2.0**62  # what a whole number holds
_STEP = 2.0**-53  # between neighbouring real numbers, of their size


def range_of(built: exp.Expr, scope: Scope) -> ValueRange:
    """What an expression of what was checked may be."""
    if isinstance(built, exp.Column):
        return scope.range(built)
    if isinstance(built, exp.Literal):
        return _of_literal(built)
    if isinstance(built, exp.Cast):
        return _of_cast(built, scope)
    if isinstance(built, exp.Count | exp.Length | exp.Extract):
        return ValueRange(WHOLE, 1, MOST_WHOLE)
    if isinstance(built, exp.Min | exp.Max | exp.Paren):
        return range_of(built.this, scope)
    if isinstance(built, exp.Case):
        branches = [one.args["true"] for one in built.args["ifs"]]
        return _common([*branches, *filter(None, [built.args.get("default")])], scope)
    if isinstance(built, exp.Coalesce):
        return _common([built.this, *built.expressions], scope)
    if isinstance(built, exp.Nullif):
        return range_of(built.this, scope)
    if isinstance(built, _COMPUTED):
        return _held(_of_computed(built, scope))
    return ValueRange(TEXT if isinstance(built, _TEXTS) else None)


_TEXTS = (exp.Lower, exp.Upper, exp.Trim, exp.Substring, exp.DPipe)
_COMPUTED = (
    *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Abs),
    *(exp.Floor, exp.Ceil, exp.Sqrt, exp.Ln, exp.Exp),
)


def _of_literal(built: exp.Literal) -> ValueRange:
    if built.is_string:
        return ValueRange(TEXT)
    size = float(built.this)
    return ValueRange(REAL if "." in built.this else WHOLE, size or 1.0, size)


def _of_cast(built: exp.Cast, scope: Scope) -> ValueRange:
    kind = built.to.this
    if kind in WHOLES:
        inner = range_of(built.this, scope)
        most = min(inner.most, _LONG) if inner.kind in WHOLES else MOST_WHOLE
        return ValueRange(kind, 1, most)
    if kind is not REAL:
        return ValueRange(kind)
    inner = range_of(built.this, scope)
    return (
        ValueRange(kind, inner.least, inner.most) if inner.is_number else ValueRange(kind, *_CELL)
    )


def _of_computed(built: exp.Expr, scope: Scope) -> ValueRange:
    """Of arithmetic, whose parts are numbers, or two days."""
    one = range_of(built.this, scope)
    if isinstance(built, exp.Add | exp.Sub | exp.Mul | exp.Div):
        return _of_pair(built, one, range_of(built.expression, scope))
    if isinstance(built, exp.Neg | exp.Abs):
        return one
    if isinstance(built, exp.Floor | exp.Ceil):
        return ValueRange(REAL, 1, one.most + 1)
    if isinstance(built, exp.Sqrt):
        return ValueRange(REAL, sqrt(one.least), sqrt(one.most))
    if isinstance(built, exp.Exp):
        return ValueRange(REAL, power(-MOST_EXPONENT), power(MOST_EXPONENT))
    farthest = max(abs(log(one.least)), abs(log(one.most or 1.0)))
    return ValueRange(REAL, _STEP, farthest + 1)


def _of_pair(built: exp.Expr, one: ValueRange, other: ValueRange) -> ValueRange:
    if one.kind is DAY:  # two days, their difference
        return ValueRange(WHOLE, 1, 1e7)
    kind = WHOLE if one.kind in WHOLES and other.kind in WHOLES else REAL
    if isinstance(built, exp.Div):
        return ValueRange(REAL, one.least / max(other.most, 1.0), one.most / other.least)
    if isinstance(built, exp.Mul):
        return ValueRange(kind, one.least * other.least, one.most * other.most)
    least = 1.0 if kind is WHOLE else min(one.least, other.least) * _STEP
    return ValueRange(kind, least, one.most + other.most)


def holds_whole(built: exp.Expr, scope: Scope) -> bool:
    """Whether arithmetic of whole numbers stays within what one holds."""
    return _of_computed(built, scope).most <= _LONG


def _held(found: ValueRange) -> ValueRange:
    """Refuse what a cell could take out of what a number holds."""
    fits = _HOLDS[0] <= found.least and found.most <= _HOLDS[1]
    if not fits:
        raise refused(
            "arithmetic whose result may be too large, or too close to 0, for a database",
            "compute less in it, or in a view of the site",
        )
    return found


def _common(several: list[exp.Expr], scope: Scope) -> ValueRange:
    """Of expressions that stand for one value: their type, if they have one in common."""
    found = [range_of(one, scope) for one in several if not isinstance(one, exp.Null)]
    kinds = {one.kind for one in found}
    if len(kinds) == 1:
        kind = kinds.pop()
    elif kinds and kinds <= {*WHOLES, REAL}:
        kind = WHOLE if kinds <= {*WHOLES} else REAL
    else:
        return ValueRange()
    return ValueRange(kind, min(one.least for one in found), max(one.most for one in found))
