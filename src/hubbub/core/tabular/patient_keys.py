"""Whose a record is: the one rule for the keys of patients, from files and from memory.

Spaces at the ends of a key say nothing, a whole number is the same in every form (`7`, `7.0`), and
so is a letter that Unicode composes in two ways. Case, zeros in front and all else tell patients
apart, as hospitals' keys do: what looks alike is for `hubbub check` to show, not to join, since two
people in one unit would exchange a part of it where each should be there or not (docs/privacy.md
P21). A key that is missing is nobody's: it is refused, never one patient; so is a text of more than
`_LONGEST` letters, since to compose a very long one takes hours. This file knows keys; it must not
know where they come from.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import DataError
from hubbub.core.tabular.cell_rule import canonical

_LONGEST = 1000
_EXACT = 2.0**53  # from here on several whole numbers are one float
# What is written for a missing value by programs, beside nothing.
_MISSING = frozenset({"", "nan", "NaN", "None", "NaT", "<NA>"})


def patient_key(value: object) -> str:
    """One spelling for one patient; "" for a key that is missing.

    >>> patient_key(" 7.0"), patient_key(7), patient_key("07"), patient_key(float("nan"))
    ('7', '7', '07', '')
    """
    text = str(value)
    key = canonical(unicodedata.normalize("NFC", text)) if len(text) <= _LONGEST else ""
    return "" if key in _MISSING else key


def patient_numbers(
    values: Iterable[object], place: Callable[[int], str] = "at {}".format
) -> NDArray[np.intp]:
    """Whose each record is, (n,), as numbers from 0 in the order in which patients come.

    Args:
        values: a key for each record.
        place: how an error names a row, which is counted from 0.

    Raises:
        DataError: a key is missing.
    """
    known: dict[str, int] = {}
    keys: dict[str, str] = {}
    numbers = []
    for row, value in enumerate(values):
        if isinstance(value, float) and abs(value) >= _EXACT:
            raise DataError(
                f"expected keys of patients as texts or whole numbers, found a floating-point "
                f"number past 2**53 {place(row)}, which several of them share; read the column as "
                'text, such as with pandas.read_csv(..., dtype={"column": str})'
            )
        text = str(value)
        if text not in keys:
            keys[text] = patient_key(text)
        if not keys[text]:
            raise DataError(
                f"expected a patient for every record, found none {place(row)}; fill it in or "
                "remove the record"
            )
        numbers.append(known.setdefault(keys[text], len(known)))
    return np.array(numbers, dtype=np.intp)
