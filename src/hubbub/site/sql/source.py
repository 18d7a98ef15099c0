"""A silo's own query: conditions that every engine answers alike, the text sent, and its rows.

A number is `-12`, `+3`, `.5` or `1.5e-05`, of at most 32 letters and within 10 to the power of 19
either way; a day is `2024-05-31`, of the calendar. Nothing else is one: not `nan`, `inf`, `1_000`,
`0x1f`, `2023-02-29` or a word for the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial, reduce
from pathlib import Path

from sqlglot import ErrorLevel, exp
from sqlglot.dialects.dialect import Dialect

from hubbub.core.errors import UserError
from hubbub.core.study.cell_stream import Cells, CellStream, texts_of
from hubbub.site.sql.engines import connection_of, rows_of
from hubbub.site.sql.owned_query import OwnedQuery, is_date
from hubbub.site.sql.scope import (
    BASE,
    DAY,
    KEY,
    MOST_LETTERS,
    MOST_WHOLE,
    READ,
    REAL,
    TEXT,
    WHOLE,
    WHOLES,
)
from hubbub.site.sql.totals import COLUMN, KNOWN, TEXTS, TRUTH

_REGULAR = ("postgres", "duckdb")  # engines with regular expressions
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)$|^[+-]?([0-9]+|[0-9]*\.[0-9]+)e-?[01]?[0-9]$"
# What is left of a number without its digits.
_PLAIN = ("", "-", "+", ".", "-.", "+.")
_UP, _DOWN = tuple(f"{left}e" for left in _PLAIN), tuple(f"{left}e-" for left in _PLAIN)
_LONG_MONTHS = ("01", "03", "05", "07", "08", "10", "12")
_MONTHS = tuple(f"{one:02}" for one in range(1, 13))
_LEAP = tuple(f"{one:02}" for one in range(4, 100, 4))


def is_number(value: exp.Expr, engine: str) -> exp.Expr:
    """Whether the text of a value is a number."""
    text = _replaced(exp.func("LOWER", exp.func("TRIM", _text(value))), "e+", "e")
    short = exp.LTE(this=exp.Length(this=text), expression=exp.Literal.number(MOST_LETTERS))
    if engine in _REGULAR:
        form = exp.RegexpLike(this=text.copy(), expression=exp.Literal.string(_NUMBER))
        return exp.and_(short, form)
    rest = reduce(lambda made, digit: _replaced(made, digit, ""), "0123456789", text)
    some = exp.GT(this=exp.Length(this=text.copy()), expression=exp.Length(this=rest))
    signed = exp.or_(
        *(exp.and_(_like(text, sign), _like(rest, sign)) for sign in ("-%", "+%")),
        exp.not_(exp.or_(_any(text, ("-%", "+%")), _any(rest, ("-%", "+%")))),
    )
    tails = [
        exp.and_(_in(rest, _UP), _any(text, ("%e_", "%e0_", "%e1_"))),
        exp.and_(_in(rest, _DOWN), _any(text, ("%e-_", "%e-0_", "%e-1_"))),
    ]
    powered = exp.and_(exp.or_(*tails), exp.not_(_any(text, ("e%", "-e%", "+e%", "%.e%"))))
    return exp.and_(short, signed, some, exp.or_(_in(rest, _PLAIN), powered))


def real_of(value: exp.Expr, engine: str) -> exp.Expr:
    """A value whose text is a number as that number, else nothing."""
    if engine == "sqlite":
        text = f"TRIM({_text(value).sql(dialect=engine)})"
        lower = f"REPLACE(LOWER({text}), 'e+', 'e')"
        body = f"SUBSTR({lower}, 1 + ({lower} LIKE '-%' OR {lower} LIKE '+%'))"
        at = f"INSTR({body} || 'e', 'e')"
        parts = {"text": text, "lower": lower, "body": body, "at": at, "exact": exact(text)}
        said = _SQLITE_REAL.format(most=MOST_LETTERS, **parts)
        return exp.var(" ".join(said.split()))
    number = exp.cast(_text(value), REAL)  # PostgreSQL reads a literal before any condition
    return exp.Case(ifs=[exp.If(this=is_number(value, engine), true=number)])


def exact(text: str) -> str:
    """In SQLite's SQL the number that is nearest to a text of at most 15 digits with a point.

    SQLite itself may read that one's neighbour. So many digits are a whole number that a real one
    holds, as are powers of ten, and their quotient is rounded once.
    """
    places = f"SUBSTR('0000000000000000000000', 1, LENGTH({text}) - INSTR({text}, '.'))"
    return f"CAST(REPLACE({text}, '.', '') AS INTEGER) / CAST('1' || {places} AS REAL)"


# A sign, digits with one point, and a power of ten.
_SQLITE_REAL = """CASE
    WHEN {text} <> '' AND LENGTH({text}) <= 18 AND NOT {text} GLOB '*[^0-9]*'
    THEN CAST({text} AS REAL)
    WHEN LENGTH({lower}) <= {most} AND SUBSTR({body}, 1, {at} - 1) GLOB '*[0-9]*'
    AND NOT SUBSTR({body}, 1, {at} - 1) GLOB '*[^0-9.]*' AND NOT {body} LIKE '%.%.%' AND (
    {at} > LENGTH({body}) OR (NOT {body} LIKE '%.e%' AND (SUBSTR({body}, {at} + 1) GLOB '[0-9]'
    OR SUBSTR({body}, {at} + 1) GLOB '[01][0-9]' OR SUBSTR({body}, {at} + 1) GLOB '-[0-9]'
    OR SUBSTR({body}, {at} + 1) GLOB '-[01][0-9]')))
    THEN CASE WHEN LENGTH(LTRIM(REPLACE({body}, '.', ''), '0')) <= 15 AND LENGTH({text}) <= 22
    AND {text} LIKE '%.%' AND NOT {lower} LIKE '%e%'
    THEN {exact}
    ELSE CAST({text} AS REAL) END END"""


def day_of(value: exp.Expr, engine: str) -> exp.Expr:
    """The first ten letters of a value's text where they are a day, else nothing."""
    day = _part(_text(value), 1, 10)
    form = reduce(lambda made, digit: _replaced(made, digit, "0"), "123456789", day)
    is_form: exp.Expr = exp.EQ(this=form, expression=exp.Literal.string("0000-00-00"))
    if engine == "sqlite":  # which takes a hundred brackets within each other
        digits = "-".join("[0-9]" * letters for letters in (4, 2, 2))
        is_form = exp.Glob(this=day.copy(), expression=exp.Literal.string(digits))
    year, month, number = _part(day, 1, 4), _part(day, 6, 2), _part(day, 9, 2)
    leap = exp.or_(
        _in(_part(day, 3, 2), _LEAP),
        exp.and_(_in(_part(day, 3, 2), ("00",)), _in(_part(day, 1, 2), _LEAP)),
    )
    there = exp.and_(
        is_form,
        exp.not_(_in(year, ("0000",))),
        _in(month, _MONTHS),
        _between(number, "01", "31"),
        exp.or_(_in(month, _LONG_MONTHS), exp.not_(_in(number, ("31",)))),
        exp.or_(
            exp.not_(_in(month, ("02",))),
            _between(number, "01", "28"),
            exp.and_(_in(number, ("29",)), leap),
        ),
    )
    return exp.Case(ifs=[exp.If(this=there, true=day.copy())])


def _text(value: exp.Expr) -> exp.Expr:
    return exp.cast(exp.Paren(this=value.copy()), exp.DataType.Type.TEXT)


def _part(text: exp.Expr, start: int, length: int) -> exp.Expr:
    first, last = exp.Literal.number(start), exp.Literal.number(length)
    return exp.Substring(this=text.copy(), start=first, length=last)


def _replaced(text: exp.Expr, old: str, new: str) -> exp.Expr:
    return exp.func("REPLACE", text.copy(), exp.Literal.string(old), exp.Literal.string(new))


def _like(text: exp.Expr, pattern: str) -> exp.Expr:
    return exp.Like(this=text.copy(), expression=exp.Literal.string(pattern))


def _any(text: exp.Expr, patterns: tuple[str, ...]) -> exp.Expr:
    return exp.or_(*(_like(text, pattern) for pattern in patterns))


def _in(text: exp.Expr, several: tuple[str, ...]) -> exp.Expr:
    return exp.In(this=text.copy(), expressions=[exp.Literal.string(one) for one in several])


def _between(text: exp.Expr, low: str, high: str) -> exp.Expr:
    ends = exp.Literal.string(low), exp.Literal.string(high)
    return exp.Between(this=text.copy(), low=ends[0], high=ends[1])


# How a column of a site's table is read: as a text that every engine writes alike, or a number.
#
# A cell is of whatever type the site's table has, and engines cast, compare and write each in their
# own ways; some cells (a day of the year 10000, an interval of 200,000 years) no driver hands over.
# So all that a query asks of a table is read as it comes out of it, before anything is done with
# it:
#
#     a truth value    1 or 0
#     a whole number   its digits
#     a real number    the fewest digits that say it, without `.0`; nothing if it is none
#     a decimal one    without zeros at its end
#     anything else    as the engine writes it; nothing if a letter of it has the number 0
#
# with letters that differ as different ones, whatever the column's collation. Keys are written by
# the one rule for what is the same (`cells.canonical`): of a text that is a whole number
# `.0` is cut. A real number that several whole ones share is in powers of ten, and a text of one
# keeps its `.0`: both are nobody's key (`records.is_rounded`). SQLite, of which every cell has its
# own type, keeps real numbers until a text is needed: it may read a text of one as the neighbour of
# that. Of any other engine a column is left as it is.

_TEXT = {
    "duckdb": """CASE {shared}
        WHEN TYPEOF({x}) = 'BOOLEAN' THEN CASE {t} WHEN 'true' THEN '1' WHEN 'false' THEN '0' END
        WHEN TYPEOF({x}) IN ('FLOAT', 'DOUBLE') THEN
            CASE {t} WHEN 'nan' THEN NULL WHEN '-nan' THEN NULL WHEN '-0.0' THEN '0'
            ELSE REGEXP_REPLACE({t}, '\\.0$', '') END
        WHEN TYPEOF({x}) LIKE 'DECIMAL%' AND {t} LIKE '%.%' THEN RTRIM(RTRIM({t}, '0'), '.')
        WHEN NOT CONTAINS({t}, CHR(0)) THEN {other} END COLLATE "C\"""",
    "postgres": """CASE {shared}
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
# Of a key: the real numbers past those that are one whole number each (`cells.exact_below`).
_SHARED = {
    "duckdb": """WHEN TYPEOF({x}) IN ('FLOAT', 'DOUBLE') AND ABS(TRY_CAST({t} AS DOUBLE))
        BETWEEN CASE TYPEOF({x}) WHEN 'FLOAT' THEN 16777216 ELSE 9007199254740992 END AND 1e308
        THEN FORMAT('{{:.16E}}', TRY_CAST({t} AS DOUBLE))""",
    "postgres": """WHEN CASE WHEN {t} !~ 'e\\+' THEN FALSE
        WHEN PG_TYPEOF(COALESCE({x}, NULL)) = CAST('real' AS REGTYPE)
        THEN ABS(CAST({t} AS DOUBLE PRECISION)) >= 16777216
        WHEN PG_TYPEOF(COALESCE({x}, NULL)) = CAST('double precision' AS REGTYPE)
        THEN ABS(CAST({t} AS DOUBLE PRECISION)) >= 9007199254740992 END THEN UPPER({t})""",
}
# Of a text: up to that number, which 17 digits in front of the point tell from larger ones.
_WHOLE = r"""CASE WHEN LPAD(LTRIM(SPLIT_PART({t}, '.', 1), '+-0'), 17, '0') < '09007199254740992'
    THEN REGEXP_REPLACE({t}, '^([+-]?[0-9]+)\.0*$', '\1') ELSE {t} END"""
# Its functions end at a letter of number 0, where keys of several people may be one.
_SQLITE_PLAIN = "CASE WHEN INSTR({t}, CHAR(0)) = 0 THEN {t} END"
_SQLITE = "CASE TYPEOF({x}) WHEN 'real' THEN {x} ELSE {other} END COLLATE BINARY"
_SQLITE_WHOLE = """CASE WHEN INSTR({t}, CHAR(0)) THEN NULL
    WHEN {t} LIKE '%.%' AND RTRIM({t}, '0') LIKE '%_.'
    AND (SUBSTR({t}, 1, 1) IN ('+', '-') OR SUBSTR({t}, 1, 1) GLOB '[0-9]')
    AND {head} GLOB '*[0-9]' AND NOT SUBSTR({head}, 2) GLOB '*[^0-9]*'
    AND ABS(CAST({head} AS REAL)) < 9007199254740992 THEN {head}
    ELSE {t} END"""
# It writes 1.0, 1.0e+20 and Inf, and more than 15 digits only where it is asked for them.
_SQLITE_SHARED = """WHEN TYPEOF({x}) = 'real' AND ABS({x}) BETWEEN 9007199254740992 AND 1e308
    THEN PRINTF('%!.16E', {x})"""
_SQLITE_TEXT = """CASE {shared} WHEN TYPEOF({x}) = 'real' THEN
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
    other, shared = text, ""
    if kind == KEY:
        other, shared = _WHOLE.format(t=text), _SHARED[engine].format(x=name, t=text)
    return _sql(_TEXT[engine], x=name, t=text, other=other, shared=shared)


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
    shared = _SQLITE_SHARED.format(x=name) if key else ""
    return _sql(_SQLITE_TEXT, x=name, t=other, p=printed, exact=exact(printed), shared=shared)


def _sql(form: str, **parts: str) -> exp.Expr:
    """SQL of one engine, which is not read again."""
    return exp.var(" ".join(form.format(**parts).split()))


# The statement that a site's engine runs, from a checked query.
#
# Columns of tables are read by `column_of`. Numbers are divided as real numbers everywhere, and by
# zero gives nothing; dates are read and subtracted as dates where an engine has none. A text is
# a number, or a date, where it is written as one, and else nothing: no engine is asked for what it
# would fail at, or read in its own way (`now`). So engines of sites give the same cells, and no
# cell makes one fail (docs/privacy.md P31).

_SQLITE_PARTS = {"YEAR": "%Y", "MONTH": "%m", "DAY": "%d"}
_LETTERS = ("postgres", "duckdb")  # engines that know more letters than A to Z as upper and lower
_UPPER, _LOWER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"
_BARE = ("postgres",)  # engines that read `table.name` as a call where there is no such column


def rendered(select: exp.Select, engine: str, schema: str = "") -> str:
    """The statement in an engine's SQL, every name quoted."""
    select_copy = select.copy()
    if schema:
        for table in select_copy.find_all(exp.Table):
            table.set("db", exp.to_identifier(schema, quoted=True))
    _each(select_copy, exp.Select, partial(_apart, engine=engine))
    _each(select_copy, exp.Column, partial(_as_read, engine=engine))
    if engine in _LETTERS:
        _each(select_copy, exp.Lower, partial(_translated, old=_UPPER, new=_LOWER))
        _each(select_copy, exp.Upper, partial(_translated, old=_LOWER, new=_UPPER))
    if engine == "postgres":
        _each(select_copy, exp.Predicate, _by_letters)
    if engine == "sqlite":
        _each(select_copy, exp.Sub, _days)
        _each(select_copy, exp.Extract, _date_part)
    _each(select_copy, exp.Cast, partial(_cast, engine=engine))
    if engine == "duckdb":
        _each(select_copy, exp.Trim, _of_spaces)
    return select_copy.sql(dialect=engine, comments=False, unsupported_level=ErrorLevel.RAISE)


def _each(
    select: exp.Select,
    kind: type[exp.Expr],
    change: Callable[[exp.Expr], exp.Expr],
) -> None:
    """Every expression of a kind changed, those within others first."""
    for node in reversed(list(select.find_all(kind))):
        node.replace(change(node.copy()))


def _as_read(node: exp.Expr, engine: str) -> exp.Expr:
    """A column of a site's table as what it is read."""
    if not node.text("table").startswith(BASE):
        return node
    column = exp.column(node.name, quoted=True) if engine in _BARE else node
    return column_of(column, engine, node.meta[READ])


def _apart(node: exp.Expr, engine: str) -> exp.Expr:
    """A site's table read before it is joined: SQLite then makes an index of what was read."""
    source = node.args["from_"].this
    narrow = isinstance(source, exp.Table) and source.alias.startswith(BASE)
    if engine == "sqlite" and narrow:
        node.set("limit", exp.Limit(expression=exp.Literal.number(-1)))
    return node


def _translated(node: exp.Expr, old: str, new: str) -> exp.Expr:
    """The letters A to Z alone: of others it depends on the database which are the same."""
    letters = exp.Literal.string(old), exp.Literal.string(new)
    return exp.Anonymous(this="TRANSLATE", expressions=[node.this, *letters])


def _by_letters(node: exp.Expr) -> exp.Expr:
    """Texts in the order of their letters' numbers, as they have it elsewhere."""
    if node.meta.get(TEXTS):
        node.set(
            "this", exp.Collate(this=_paren(node.this), expression=exp.to_identifier("C", True))
        )
    return node


def _of_spaces(node: exp.Expr) -> exp.Expr:
    """Without spaces at its ends, and no other letters that DuckDB takes for such."""
    return exp.Anonymous(this="TRIM", expressions=[node.this, exp.Literal.string(" ")])


def _days(node: exp.Expr) -> exp.Expr:
    """Days between two dates, as SQLite has them: texts, and functions of texts."""
    if not (is_date(node.this) and is_date(node.expression)):
        return node
    days = [exp.func("julianday", side) for side in (node.this, node.expression)]
    return _plainly(exp.Paren(this=exp.Sub(this=days[0], expression=days[1])))


def _date_part(node: exp.Expr) -> exp.Expr:
    parts = (exp.Literal.string(_SQLITE_PARTS[node.name.upper()]), node.expression)
    return _plainly(exp.func("strftime", *parts))


def _plainly(whole: exp.Expr) -> exp.Cast:
    """A CAST of what is a whole number already."""
    made = exp.cast(whole, WHOLE)
    made.meta[KNOWN] = WHOLE.value
    return made


def _cast(node: exp.Expr, engine: str) -> exp.Expr:
    """A value of a type, from one that is written so; nothing from another."""
    kind, known = node.args["to"].this, node.meta.get(KNOWN, "")
    if kind is DAY:
        return _date(node, engine) if known in ("", COLUMN) else node
    if kind is TEXT and known == COLUMN:
        return text_of(node, engine)
    if kind not in (*WHOLES, REAL) or known == TRUTH:
        return node
    if known in [one.value for one in WHOLES] and kind is not REAL:
        return exp.cast(_paren(node.this), WHOLE)
    number: exp.Expr = exp.cast(_paren(node.this), REAL)
    if known in ("", COLUMN):
        number = number_of(node.this, engine)
    return number if kind is REAL else _whole(number)


def _paren(node: exp.Expr) -> exp.Paren:
    return exp.Paren(this=node)


def _whole(number: exp.Expr) -> exp.Expr:
    """The nearest whole number, the upper one of two; nothing from one that is too large."""
    most = exp.Literal.number(int(MOST_WHOLE))
    fits = exp.LT(this=exp.Abs(this=number), expression=most)
    above = exp.Floor(
        this=exp.Add(this=number.copy(), expression=exp.cast(exp.Literal.number("0.5"), REAL))
    )
    return exp.Case(ifs=[exp.If(this=fits, true=exp.cast(above, WHOLE))])


def _date(node: exp.Expr, engine: str) -> exp.Expr:
    """A date from a text that begins with a day, and nothing from another."""
    day = day_of(node.this, engine)
    return exp.func("date", day) if engine == "sqlite" else exp.cast(day, DAY)


# A silo's database as a stream of cells: the study's query, by the site's connection.


def stream_of(query: OwnedQuery, party: str, folder: Path) -> CellStream:
    """The rows of a checked query at a silo, by its `sources.toml`."""
    return CellStream(
        origin=f"the database of {party}",
        pieces=partial(_pieces, query, party, folder),
        ordered=False,
    )


def _pieces(query: OwnedQuery, party: str, folder: Path) -> Iterator[Cells]:
    connection = connection_of(party, folder)
    if Dialect.get(connection.dialect) is None:  # sqlglot's own sentence would quote it
        raise UserError(
            f"expected dialect of [{party}] in sources.toml to be sqlglot's word for the SQL, got "
            "another; correct it"
        )
    statement = rendered(query.select, connection.dialect, connection.schema)
    for rows in rows_of(connection, statement, party):
        columns = zip(*rows, strict=True)
        yield {name: texts_of(own) for name, own in zip(query.columns, columns, strict=True)}
