"""Patients' keys that look alike, or like nobody's: a run takes them as they are, people see them.

Two spellings of one patient weaken what the patient is promised, and so do two patients under one
key (docs/privacy.md P21); which of the two it is, only the hospital knows. So nothing is joined
here. This file knows keys as texts, and may quote them: what it says stays with who has the file.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from hubbub.core.tabular.patient_keys import patient_key
from hubbub.desk.drafting.cell_text import is_missing
from hubbub.desk.drafting.raw_table import Fault, RawTable

# Nine digits and more, of which a few were kept.
_CUT = re.compile(r"[+-]?\d([.,]\d{1,8})?[eE]\+?(0?9|[1-9]\d+)|\d{10,}([.,]0)?[eE]\+?\d+")


def likely_namesakes(table: RawTable, column: str) -> Iterator[Fault]:
    """What is odd about the keys in a column of a table."""
    groups: dict[str, list[str]] = {}
    for key in filter(None, dict.fromkeys(map(patient_key, table.column(column)))):
        groups.setdefault("" if is_missing(key) else near_key(key), []).append(key)
    nobody = groups.pop("", [])
    near = [group for group in groups.values() if len(group) > 1]
    if nobody:
        yield Fault(
            file=table.origin,
            column=column,
            what=f"{nobody[0]!r} looks like a missing value, and counts as one patient",
            remedy="leave the cells empty or fill them in, unless somebody is called so",
            refused=False,
        )
    if near:
        shown = " and ".join(map(repr, near[0][:2]))
        yield Fault(
            file=table.origin,
            column=column,
            what=f"{len(near)} times keys look alike, such as {shown}: they are several patients",
            remedy="spell each patient in one way, unless they are several people",
            refused=False,
        )


def cut_numbers(table: RawTable, column: str) -> Iterator[Fault]:
    """Long numbers of which a spreadsheet has kept the first digits: many people share one."""
    cells = table.column(column)
    cut = [cell for cell in cells if _CUT.fullmatch(cell.strip())]
    if cut and len(cut) >= sum(not is_missing(cell) for cell in cells) / 2:
        yield Fault(
            file=table.origin,
            column=column,
            what=f"{len(cut)} cells such as {cut[0]!r} are long numbers that a spreadsheet or a "
            f"program has cut: {len(set(cut))} are left of them, so that several people share one",
            remedy="export the column as text; as a key it would make one unit of many people, and "
            "as a number it says nothing",
            refused=False,
        )


def near_key(text: str) -> str:
    """A key without what people spell in many ways: case, accents, signs, zeros in front.

    >>> near_key("PAT-007"), near_key("pat 7"), near_key("1-12") == near_key("11-2")
    ('pat 7', 'pat 7', False)
    """
    bare = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    kept = "".join(sign for sign in bare if unicodedata.category(sign) not in ("Mn", "Cf"))
    return " ".join(part.lstrip("0") or "0" for part in re.findall(r"\d+|[^\W\d_]+", kept))
