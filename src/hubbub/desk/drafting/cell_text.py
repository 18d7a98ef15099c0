"""What the text of a cell may mean: a number in any country's spelling, a date, or nothing at all.

The reader of a run knows one spelling of a number and no missing value but those that the study
lists. What is known here is for drafts, checks and tidy copies.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from hubbub.core.tabular.cells import GAP, NUMBER, SPELLING, CellFault, canonical, number_in


def listed(words: str) -> tuple[str, ...]:
    """The words of a list that is written as one text."""
    return tuple(words.split())


def word_set(words: str) -> frozenset[str]:
    """The words of a list in no order."""
    return frozenset(words.split())


MISSING = frozenset(
    (
        "",
        "not available",
        *listed("na n/a #n/a n.a. nan null none nil ? . .. - -- --- n.d. nd missing unknown unk"),
        *listed("k.a. <na> (blank) #div/0! #value! #ref! #name? #num! #null! -nan"),
    )
)
# These are missing only in columns of numbers, where they can be no category of their own.
_WORDS = word_set("none missing unknown unk nil nd")
_SENTINELS = word_set("-9 -99 -999 -9999 -99999")
TRUTHS = (("no", "yes"), ("n", "y"), ("false", "true"), ("f", "t"))
_FALSE_TRUE = ({"0", "false"}, {"1", "true"})
_SPACES = "' \u00a0\u202f\u2019"
_POINT = re.compile(rf"[+-]?[1-9]\d{{0,2}}([,{_SPACES}])\d{{3}}(?:\1\d{{3}})*(?:\.\d+)?")
_COMMA = re.compile(rf"[+-]?[1-9]\d{{0,2}}([.{_SPACES}])\d{{3}}(?:\1\d{{3}})*(?:,\d+)?")
_LIMIT = re.compile(
    r"(?:[<>\u2264\u2265]=? *|(?:under|over|above|below|(?:less|more) than|at least|up to|unter"
    r"|(?:ü|ue)ber|ab) +)([+-]?[\d.,].*)"
    r"|([+-]?[\d.,]*\d)(?: ?\+| ?plus| (?:and|or|&|und|oder|u\.) (?:over|older|above|up|more"
    r"|greater|under|below|less|younger|(?:ä|ae)lter|mehr))",
    re.IGNORECASE,
)
_STATA = re.compile(r"\.[a-z]")  # its many kinds of missing
_LONE_COMMA = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?")
_UNITS = " \t\u00a0\u202f%€$£"
_KEPT = 1 << 16  # cells whose meaning is asked for again and again
_MONTH = "jan|feb|mar|mär|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez"
_UNSEEN = re.compile("[\ufeff\u200b\u2060]")  # of no width, and no part of any word
_DATE = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}(?:[T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}(?: .*)?"
    r"|(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])"
    rf"|\d{{1,2}}[. -]+(?:{_MONTH})[a-zäé]*[. ,-]+\d{{2,4}}|(?:{_MONTH})[a-z]* \d{{1,2}},? \d{{4}}",
    re.IGNORECASE,
)


def folded(text: str) -> str:
    """The text without case, letters that nobody sees, and spaces at ends or doubled."""
    return " ".join(seen(text).split()).casefold()


def seen(text: str) -> str:
    """The text without letters that nobody sees, which programs for tables leave in cells."""
    return text if text.isascii() else _UNSEEN.sub("", text).strip()


def words_in(name: str) -> list[str]:
    """The words of a column's name, without digits.

    >>> words_in("OS_MONTHS"), words_in("d.time"), words_in("deathEvent30")
    (['os', 'months'], ['d', 'time'], ['death', 'event'])
    """
    pairs = zip(" " + name, name, strict=False)
    apart = "".join(f" {c}" if c.isupper() and before.islower() else c for before, c in pairs)
    return "".join(c if c.isalpha() else " " for c in apart).casefold().split()


@lru_cache(_KEPT)
def is_missing(text: str, *, number: bool = True) -> bool:
    """Whether a cell says that there is no value, in a column of numbers or of words."""
    bare = folded(text)
    if number and _STATA.fullmatch(bare):
        return True
    return bare in MISSING and (number or bare not in _WORDS)


def filled(cells: Collection[str]) -> list[str]:
    """The cells that hold something."""
    gone = {*filter(is_missing, set(cells))}
    return [cell for cell in cells if cell not in gone]


def meant_by_truth(text: str, spellings: Sequence[str]) -> str | None:
    """Which of a study's spellings a truth value is; None if it is none, or they are no such pair.

    Programs that read "yes" and "no" as truth values hand on 1 and 0, or true and false.
    """
    by_word = {folded(spelling): spelling for spelling in reversed(spellings)}
    words = next((pair for pair in TRUTHS if set(pair) == set(by_word)), None)
    place = next((k for k, values in enumerate(_FALSE_TRUE) if folded(text) in values), None)
    return None if words is None or place is None else by_word[words[place]]


def is_date(text: str) -> bool:
    """Whether a cell is a day."""
    return _DATE.fullmatch(text) is not None


def sentinels(numbers: Iterable[str]) -> set[str]:
    """Spellings such as -9 or 999 that stand for nothing: all other numbers lie far from them."""
    read = {text: number_in(text) or 0.0 for text in numbers}
    negative = {text for text, value in read.items() if value < 0}
    if negative:
        return negative if negative <= _SENTINELS else set()
    nines = {text for text in read if f"-{text}" in _SENTINELS and len(text) > 1}
    most = max((value for text, value in read.items() if text not in nines), default=0.0)
    return {text for text in nines if read[text] > 2 * most > 0}


def plain_number(text: str, decimal: str = ".") -> str | None:
    """A number as every program reads it; None if the text is none."""
    if number_in(text) is not None and not (decimal == "," and _COMMA.fullmatch(text)):
        return text
    core = seen(text).strip(_UNITS).replace("\u2212", "-")  # the minus of typesetters
    ways = (_with_comma, _with_point) if decimal == "," else (_with_point, _with_comma)
    numbers = (way(core) for way in ways)
    return next((text for text in numbers if text and number_in(text) is not None), None)


@lru_cache(_KEPT)
def measured(text: str, decimal: str = ".") -> str | None:
    """A number, or the limit below or above which a device could not measure; None if neither.

    >>> measured("1,5"), measured("<0.5"), measured("> 100"), measured("90+"), measured("<none")
    ('1.5', '0.5', '100', '90', None)
    """
    text = seen(text)
    limit = _LIMIT.fullmatch(text)
    return plain_number(limit[1] or limit[2] if limit else text, decimal)


def is_limit(text: str) -> bool:
    """Whether a cell says that a value lies below or above a number, such as "<0.5" or "90+"."""
    return _LIMIT.fullmatch(seen(text)) is not None


def is_code(text: str) -> bool:
    """Whether digits are a name, such as the postcode 01067: no number is written so."""
    return re.fullmatch(r"0\d+", text) is not None


def decimal_of(texts: Collection[str], usual: str) -> str:
    """Which decimal sign a column has: the one that some cell has beyond doubt, or the usual."""
    comma = point = 0
    for core, count in Counter(text.strip(_UNITS) for text in texts).items():
        has_comma, has_point = _with_comma(core) is not None, _with_point(core) is not None
        comma += count * (has_comma and not has_point)
        point += count * (has_point and not has_comma)
    return usual if comma == point else "," if comma > point else "."


def _with_point(text: str) -> str | None:
    if _POINT.fullmatch(text):
        return re.sub(rf"[,{_SPACES}]", "", text)
    return text if number_in(text) is not None else None


def _with_comma(text: str) -> str | None:
    """Read with a decimal comma; whole numbers are read so, too."""
    if _COMMA.fullmatch(text):
        return re.sub(rf"[.{_SPACES}]", "", text).replace(",", ".")
    if _LONE_COMMA.fullmatch(text):
        return text.replace(",", ".")
    return text if re.fullmatch(r"[+-]?\d+", text) else None


class Flaw(NamedTuple):
    """What people with the file are told of cells that are wrong in one way."""

    kind: str
    what: str
    remedy: str


def flaw_of(cell: str, fault: CellFault, spellings: Sequence[str], instead: str) -> Flaw:
    """What a fault means, said with the cell."""
    if fault.kind == GAP:
        return Flaw(GAP, f"expected {fault.expected}, found {fault.found}", fault.remedy)
    if fault.kind == SPELLING:
        return _strange_spelling(cell, fault, spellings, instead)
    if fault.kind != NUMBER:
        return Flaw(fault.kind, f"{cell!r} is {fault.found}", fault.remedy)
    if is_missing(cell):
        remedy = "list it in the column's “missing”, or remove the record"
        return Flaw(cell, f"{cell!r} looks like a missing value", remedy)
    if (number := measured(cell)) is not None:
        if is_limit(cell):
            what = f"{cell!r} is a limit of measurement, not a number"
            return Flaw("limit", what, f"write {number}, or list the cell in the column's missing")
        what = f"{cell!r} has a decimal comma, a thousands separator or a unit"
        return Flaw(NUMBER, what, f"write {number}")
    if is_date(cell):
        remedy = "turn it into a number, such as an age in years"
        return Flaw("date", f"{cell!r} is a date", remedy)
    return Flaw(cell, f"{cell!r} is not a number, or is too large", fault.remedy)


def _strange_spelling(cell: str, fault: CellFault, spellings: Sequence[str], instead: str) -> Flaw:
    """What people are told of a spelling that no list has."""
    near = next((spelling for spelling in spellings if folded(spelling) == folded(cell)), None)
    if near is not None and canonical(near).casefold() == canonical(cell).casefold():
        what = f"{cell!r} differs from {near!r} only in case or spaces"
        return Flaw(cell, what, f"write {near!r}, or {instead}")
    if near is not None:  # which no setting of a column makes one
        what = f"{cell!r} differs from {near!r} only in spaces, or letters that nobody sees"
        return Flaw(cell, what, f"write {near!r}")
    if (meant := meant_by_truth(cell, spellings)) is not None:
        what = f"{cell!r} is a truth value, and {meant!r} was read as one, as by DuckDB's read_csv"
        remedy = (
            f"map it in mapping.toml, spellings = {{ {cell!r} = {meant!r} }} (--mapping writes "
            "them), or have the column read as text: read_csv(..., all_varchar = true)"
        )
        return Flaw(cell, what, remedy)
    if is_missing(cell):
        what = f"{cell!r} looks like a missing value"
        return Flaw(cell, what, "remove the record, or list it as missing")
    return Flaw(cell, f"{cell!r} is not {fault.expected}", fault.remedy)
