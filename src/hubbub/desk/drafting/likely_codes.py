"""Columns of few whole numbers: codes, whose size means nothing, or amounts.

1 to 6 may be six wards, or six points of pain. A name tells some; of the others people are asked.
This file sees the cells of one column at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from hubbub.desk.drafting.cell_text import is_missing, measured
from hubbub.desk.drafting.question import words_in

_CODES = frozenset(
    {
        *("race", "ethnicity", "ethnic", "marital", "ward", "site", "centre", "center", "hospital"),
        *("clinic", "department", "dept", "region", "district", "type", "kind", "code", "category"),
        *("sex", "gender", "religion", "language", "insurance", "payer", "payor", "disposition"),
        *("source", "reason", "occupation", "job", "employment", "housing", "blood", "country"),
        *("nationality", "arm", "treatment", "trt", "drug", "mode", "origin", "rasse", "station"),
        *("familienstand", "geschlecht", "beruf", "konfession", "versicherung", "diagnosis"),
    }
)
_AMOUNTS = frozenset(
    {
        *("age", "alter", "score", "scale", "count", "num", "number", "anzahl", "n", "no", "of"),
        *("visits", "admissions", "children", "kids", "siblings", "days", "weeks", "months"),
        *("years", "hours", "year", "grade", "stage", "level", "pain", "severity", "parity"),
        *("gravida", "apgar", "gcs", "ecog", "karno", "asa", "nyha", "index", "points", "rating"),
        *("comorbidities", "nodes", "falls", "doses", "cigarettes", "drinks", "education", "los"),
        *("stay", "time", "duration", "grad", "stadium", "punkte", "jahre", "tage", "rank"),
        *("previous", "prior", "episodes", "events", "lesions", "vessels", "instance", "visit"),
        *("tumors", "size"),
    }
)
_FEWEST, _MOST, _LARGEST = 3, 20, 30  # different numbers, and the largest that no 99 is
_UNKNOWN = frozenset({88, 99, 999})
_ROWS = 20


def by_name(name: str) -> bool | None:
    """Whether a column of few whole numbers holds codes, by its name; None if it does not say.

    >>> by_name("ward"), by_name("pain_score"), by_name("slope")
    (True, False, None)
    """
    words = {*words_in(name)}
    if words & _AMOUNTS:
        return False
    return True if words & _CODES else None


def few_whole_numbers(cells: Sequence[str]) -> list[int]:
    """The numbers that a column has, if they are few whole ones that nearly follow each other."""
    spellings = {cell for cell in set(cells) if not is_missing(cell)}
    if len(cells) < _ROWS or not _FEWEST <= len(spellings) <= 2 * _MOST:
        return []
    read = [measured(cell) for cell in spellings]
    numbers = {float(one) for one in read if one is not None}
    if None in read or any(number % 1 or number < 0 for number in numbers):
        return []
    kept = sorted({int(number) for number in numbers} - _UNKNOWN)
    if not _FEWEST <= len(kept) <= _MOST or kept[-1] > _LARGEST:
        return []
    return sorted(map(int, numbers)) if 2 * len(kept) > kept[-1] - kept[0] else []


def in_words(numbers: Sequence[int]) -> str:
    """Whole numbers, those that follow each other as one: "1 to 5, 9".

    >>> in_words([1, 2, 3, 4, 5, 9])
    '1 to 5, 9'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{one[0]} to {one[-1]}" if len(one) > 1 else str(one[0]) for one in runs)
