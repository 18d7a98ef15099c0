"""What a query may be made of, and why anything else is refused (docs/privacy.md P31).

`SCALARS` lists every expression that computes one row's value from that row alone, `COMPARED` and
`JOINED` every condition of one, with the parts that they keep; an expression with any other part is
refused. This file knows SQL; it must not know studies or connections.
"""

from __future__ import annotations

import re

from sqlglot import exp

# By expression: which of its parts are expressions, and which are lists of them.
SCALARS: dict[type[exp.Expr], tuple[tuple[str, ...], tuple[str, ...]]] = {
    exp.Paren: (("this",), ()),
    exp.Coalesce: (("this",), ("expressions",)),
    exp.Nullif: (("this", "expression"), ()),
    exp.Add: (("this", "expression"), ()),
    exp.Sub: (("this", "expression"), ()),
    exp.Mul: (("this", "expression"), ()),
    exp.Div: (("this", "expression"), ()),
    exp.Neg: (("this",), ()),
    exp.Abs: (("this",), ()),
    exp.Floor: (("this",), ()),
    exp.Ceil: (("this",), ()),
    exp.Sqrt: (("this",), ()),
    exp.Ln: (("this",), ()),
    exp.Exp: (("this",), ()),
    exp.Lower: (("this",), ()),
    exp.Upper: (("this",), ()),
    exp.Trim: (("this",), ()),
    exp.Length: (("this",), ()),
    exp.Substring: (("this", "start", "length"), ()),
    exp.DPipe: (("this", "expression"), ()),
    exp.Extract: (("expression",), ()),
    exp.Cast: (("this",), ()),
}
# Conditions: what compares values, and what joins conditions.
COMPARED: dict[type[exp.Expr], tuple[tuple[str, ...], tuple[str, ...]]] = {
    exp.EQ: (("this", "expression"), ()),
    exp.NEQ: (("this", "expression"), ()),
    exp.GT: (("this", "expression"), ()),
    exp.GTE: (("this", "expression"), ()),
    exp.LT: (("this", "expression"), ()),
    exp.LTE: (("this", "expression"), ()),
    exp.In: (("this",), ("expressions",)),
    exp.Between: (("this", "low", "high"), ()),
    exp.Like: (("this", "expression"), ()),
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
