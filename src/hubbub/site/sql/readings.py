"""How a column of a site's table is read: as a text that every engine writes alike, or a number.

A cell is of whatever type the site's table has, and engines cast, compare and write each in their
own ways; some cells (a day of the year 10000, an interval of 200,000 years) no driver hands over.
So all that a query asks of a table is read as it comes out of it, before anything is done with it:

    a truth value    1 or 0
    a whole number   its digits
    a real number    the fewest digits that say it, without `.0`; nothing if it is none
    a decimal one    without zeros at its end
    anything else    as the engine writes it; nothing if a letter of it has the number 0

with letters that differ as different ones, whatever the column's collation. Keys are written by the
one rule for what is the same (`core.tabular.cell_rule`): of a text that is a whole number `.0` is
cut. SQLite, of which every cell has its own type, keeps real numbers until a text is needed: it may
read a text of one as the neighbour of that. Of any other engine a column is left as it is. This
file knows engines; it must not know queries.
"""

from __future__ import annotations

from sqlglot import exp

from hubbub.site.sql.scope import KEY
from hubbub.site.sql.text_forms import exact, real_of

_TEXT = {
    "duckdb": """CASE
        WHEN TYPEOF({x}) = 'BOOLEAN' THEN CASE {t} WHEN 'true' THEN '1' WHEN 'false' THEN '0' END
        WHEN TYPEOF({x}) IN ('FLOAT', 'DOUBLE') THEN
            CASE {t} WHEN 'nan' THEN NULL WHEN '-nan' THEN NULL WHEN '-0.0' THEN '0'
            ELSE REGEXP_REPLACE({t}, '\\.0$', '') END
        WHEN TYPEOF({x}) LIKE 'DECIMAL%' AND {t} LIKE '%.%' THEN RTRIM(RTRIM({t}, '0'), '.')
        WHEN NOT CONTAINS({t}, CHR(0)) THEN {other} END COLLATE "C\"""",
    "postgres": """CASE
        WHEN PG_TYPEOF(COALESCE({x}, NULL)) = CAST('boolean' AS REGTYPE) THEN
            CASE {t} WHEN 'true' THEN '1' WHEN 'false' THEN '0' END
        WHEN PG_TYPEOF(COALESCE({x}, NULL))
            IN (CAST('real' AS REGTYPE), CAST('double precision' AS REGTYPE)) THEN
            CASE {t} WHEN 'NaN' THEN NULL WHEN '-0' THEN '0' WHEN 'Infinity' THEN 'inf'
            WHEN '-Infinity' THEN '-inf' ELSE CASE WHEN {t} ~ 'e\\+(0[0-9]|1[0-5])$'
            THEN CAST(CAST({t} AS NUMERIC) AS TEXT) ELSE {t} END END
        WHEN PG_TYPEOF(COALESCE({x}, NULL)) = CAST('numeric' AS REGTYPE) THEN
            CASE {t} WHEN 'NaN' THEN NULL WHEN 'Infinity' THEN 'inf' WHEN '-Infinity' THEN '-inf'
            ELSE CASE WHEN {t} LIKE '%.%' THEN RTRIM(RTRIM({t}, '0'), '.') ELSE {t} END END
        ELSE {other} END""",
}
_WHOLE = r"REGEXP_REPLACE({t}, '^([+-]?[0-9]+)\.0*$', '\1')"
# Its functions end at a letter of number 0, where keys of several people may be one.
_SQLITE_PLAIN = "CASE WHEN INSTR({t}, CHAR(0)) = 0 THEN {t} END"
_SQLITE = "CASE TYPEOF({x}) WHEN 'real' THEN {x} ELSE {other} END COLLATE BINARY"
_SQLITE_WHOLE = """CASE WHEN INSTR({t}, CHAR(0)) THEN NULL
    WHEN {t} LIKE '%.%' AND RTRIM({t}, '0') LIKE '%_.'
    AND (SUBSTR({t}, 1, 1) IN ('+', '-') OR SUBSTR({t}, 1, 1) GLOB '[0-9]')
    AND {head} GLOB '*[0-9]' AND NOT SUBSTR({head}, 2) GLOB '*[^0-9]*' THEN {head}
    ELSE {t} END"""
# It writes 1.0, 1.0e+20 and Inf, and more than 15 digits only where it is asked for them.
_SQLITE_TEXT = """CASE TYPEOF({x}) WHEN 'real' THEN
    LOWER(TRIM(REPLACE(REPLACE(CASE WHEN ABS({x}) < 1e15
    AND (CAST({p} AS REAL) = {x} OR (ABS({x}) > 1e-4 AND {exact} = {x})) THEN {p}
    WHEN CAST(PRINTF('%!.16g', {x}) AS REAL) = {x} THEN PRINTF('%!.16g', {x})
    WHEN ABS({x}) < 1e16 THEN PRINTF('%!.17g', {x}) ELSE PRINTF('%!.16e', {x}) END || ' ',
    '.0 ', ''), '.0e', 'e')))
    ELSE {t} END COLLATE BINARY"""
_SQLITE_NUMBER = """CASE TYPEOF({x}) WHEN 'integer' THEN CAST({x} AS REAL) WHEN 'real' THEN
    CASE WHEN {x} = 0 OR (ABS({x}) >= 1e-19 AND ABS({x}) < 1e20) THEN {x} END
    ELSE {read} END"""


def column_of(column: exp.Expr, engine: str, kind: str) -> exp.Expr:
    """A column of a table, as it comes out of it.

    Args:
        column: as the engine names it.
        engine: sqlglot's name of its SQL.
        kind: `scope.KEY` of a person, `scope.TEXT`, or nothing.
    """
    name = column.sql(dialect=engine)
    text = f"CAST({name} AS TEXT)"
    if engine == "sqlite" and kind:
        return _sqlite_text(column, key=kind == KEY)
    if engine == "sqlite":
        return _sql(_SQLITE, x=name, other=_SQLITE_PLAIN.format(t=text))
    if engine not in _TEXT:
        return column
    if engine == "postgres":  # a collation of the site's may refuse what is asked of a text
        text = f'({text} COLLATE "C")'
    other = _WHOLE.format(t=text) if kind == KEY else text
    return _sql(_TEXT[engine], x=name, t=text, other=other)


def text_of(cast: exp.Expr, engine: str) -> exp.Expr:
    """The text of what came out of a table, from its CAST to one."""
    return _sqlite_text(cast.this, key=False) if engine == "sqlite" else cast


def number_of(value: exp.Expr, engine: str) -> exp.Expr:
    """A value as a real number, or nothing where it is none."""
    read = real_of(value, engine)
    if engine != "sqlite":
        return read
    name = value.sql(dialect=engine)
    return _sql(_SQLITE_NUMBER, x=name, read=read.sql(dialect=engine))


def _sqlite_text(value: exp.Expr, *, key: bool) -> exp.Expr:
    name = value.sql(dialect="sqlite")
    text, printed = f"CAST({name} AS TEXT)", f"PRINTF('%!.15g', {name})"
    head = f"SUBSTR({text}, 1, LENGTH(RTRIM({text}, '0')) - 1)"
    other = (_SQLITE_WHOLE if key else _SQLITE_PLAIN).format(t=text, head=head)
    return _sql(_SQLITE_TEXT, x=name, t=other, p=printed, exact=exact(printed))


def _sql(form: str, **parts: str) -> exp.Expr:
    """SQL of one engine, which is not read again."""
    return exp.var(" ".join(form.format(**parts).split()))
