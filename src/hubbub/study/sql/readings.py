"""How a column of a site's table is read: as a text that every engine writes alike, or a number.

A cell is of whatever type the site's table has, and engines cast, compare and write each in their
own ways; some cells (a day of the year 10000, an interval of 200,000 years) no driver hands over.
So all that a query asks of a table is read as it comes out of it, before anything is done with it:

    a truth value    1 or 0
    a whole number   its digits
    a real number    the fewest digits that say it, without `.0`; nothing if it is none
    a decimal one    without zeros at its end
    anything else    as the engine writes it

with letters that differ as different ones, whatever the column's collation. Keys are written by the
one rule for what is the same (`hubbub.tabular.canonical`): of a text that is a whole number `.0` is
cut. Of an engine that is none of these a column is left as it is. This file knows engines; it must
not know queries.
"""

from __future__ import annotations

from sqlglot import exp

from hubbub.study.sql.text_forms import real_of

_TEXT = {
    "duckdb": """CASE
        WHEN TYPEOF({x}) = 'BOOLEAN' THEN CASE {t} WHEN 'true' THEN '1' WHEN 'false' THEN '0' END
        WHEN TYPEOF({x}) IN ('FLOAT', 'DOUBLE') THEN
            CASE {t} WHEN 'nan' THEN NULL WHEN '-nan' THEN NULL WHEN '-0.0' THEN '0'
            ELSE REGEXP_REPLACE({t}, '\\.0$', '') END
        WHEN TYPEOF({x}) LIKE 'DECIMAL%' AND {t} LIKE '%.%' THEN RTRIM(RTRIM({t}, '0'), '.')
        ELSE {t} END COLLATE "C\"""",
    "postgres": """CASE
        WHEN PG_TYPEOF({x}) = CAST('boolean' AS REGTYPE) THEN
            CASE {t} WHEN 'true' THEN '1' WHEN 'false' THEN '0' END
        WHEN PG_TYPEOF({x}) IN (CAST('real' AS REGTYPE), CAST('double precision' AS REGTYPE)) THEN
            CASE {t} WHEN 'NaN' THEN NULL WHEN '-0' THEN '0' WHEN 'Infinity' THEN 'inf'
            WHEN '-Infinity' THEN '-inf' ELSE CASE WHEN {t} ~ 'e\\+(0[0-9]|1[0-5])$'
            THEN CAST(CAST({t} AS NUMERIC) AS TEXT) ELSE {t} END END
        WHEN PG_TYPEOF({x}) = CAST('numeric' AS REGTYPE) THEN
            CASE {t} WHEN 'NaN' THEN NULL WHEN 'Infinity' THEN 'inf' WHEN '-Infinity' THEN '-inf'
            ELSE CASE WHEN {t} LIKE '%.%' THEN RTRIM(RTRIM({t}, '0'), '.') ELSE {t} END END
        ELSE {t} END COLLATE "C\"""",
    # It writes 1.0, 1.0e+20 and Inf, and all digits only where it is asked for.
    "sqlite": """CASE TYPEOF({x}) WHEN 'real' THEN
        LOWER(TRIM(REPLACE(REPLACE(PRINTF('%!.*g', CASE
        WHEN ABS({x}) < 1e15 AND CAST(PRINTF('%!.15g', {x}) AS REAL) = {x} THEN 15
        WHEN CAST(PRINTF('%!.16g', {x}) AS REAL) = {x} THEN 16 ELSE 17 END, {x}) || ' ',
        '.0 ', ''), '.0e', 'e')))
        ELSE {t} END COLLATE BINARY""",
}
_WHOLE = r"REGEXP_REPLACE({t}, '^([+-]?[0-9]+)\.0*$', '\1')"
_KEY = {
    "duckdb": _WHOLE,
    "postgres": _WHOLE,
    "sqlite": """CASE WHEN {t} LIKE '%.%' AND RTRIM({t}, '0') LIKE '%_.'
        AND (SUBSTR({t}, 1, 1) IN ('+', '-') OR SUBSTR({t}, 1, 1) GLOB '[0-9]')
        AND {head} GLOB '*[0-9]' AND NOT SUBSTR({head}, 2) GLOB '*[^0-9]*' THEN {head}
        ELSE {t} END""",
}
_TRUTH = "CASE {t} WHEN 'true' THEN 1 WHEN 'false' THEN 0 END"
_NUMBER = {
    "duckdb": f"CASE WHEN TYPEOF({{x}}) = 'BOOLEAN' THEN {_TRUTH} ELSE {{read}} END",
    "postgres": (
        f"CASE WHEN PG_TYPEOF({{x}}) = CAST('boolean' AS REGTYPE) THEN {_TRUTH} ELSE {{read}} END"
    ),
    # What is a number already is not written as a text and read again.
    "sqlite": """CASE TYPEOF({x}) WHEN 'integer' THEN CAST({x} AS REAL) WHEN 'real' THEN
        CASE WHEN {x} = 0 OR (ABS({x}) >= 1e-19 AND ABS({x}) < 1e20) THEN {x} END
        ELSE {read} END""",
}


def text_of(column: exp.Column, engine: str, *, key: bool) -> exp.Expr:
    """A column of a table as a text.

    Args:
        column: as the engine names it.
        engine: sqlglot's name of its SQL.
        key: whether it is the person's key.
    """
    if engine not in _TEXT:
        return column
    name = column.sql(dialect=engine)
    text = f"CAST({name} AS TEXT)"
    head = f"SUBSTR({text}, 1, LENGTH(RTRIM({text}, '0')) - 1)"
    other = _KEY[engine].format(t=text, head=head) if key else text
    made = _TEXT[engine].replace("ELSE {t} END COLLATE", "ELSE {other} END COLLATE")
    said = made.format(x=name, t=text, other=other)
    return exp.var(" ".join(said.split()))


def number_of(column: exp.Column, engine: str) -> exp.Expr:
    """A column of a table as a real number, or nothing where it is none."""
    name = column.sql(dialect=engine)
    text = f"CAST({name} AS TEXT)" if engine in _TEXT else name
    return exp.var(
        _NUMBER.get(engine, "{read}").format(
            x=name, t=text, read=real_of(exp.var(text), engine).sql(dialect=engine)
        )
    )
