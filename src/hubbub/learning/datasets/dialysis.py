"""Patients of 67 dialysis centres, as 67 silos and a public test set: who dies within a year.

6,805 patients who began haemodialysis; the target is whether one of them died within twelve months.
2,505 patients are left out, since they had been followed for less than that when the data were
closed: 4,300 are left, 28 % of whom died, and centres hold 2 to 162 of them.

The table is no part of hubbub: it is fetched once from a pinned package, and kept beside other
downloaded data. `docs/data.md` says where it comes from. Bounds below are round figures that
a physician expects before seeing any record; none is computed from the data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path

import numpy as np

from hubbub.core.errors import DataError, StudyError
from hubbub.core.tabular.cells import read_cells
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.records import Records
from hubbub.core.tabular.table import encode_table
from hubbub.learning.datasets.wheel import Wheel, buffers_and_names, data_folder, fill

CENTRES = 67
TEST_SHARE = 0.2
MONTHS = 12

_DISEASES = ("congen", "diabetes", "hypert", "other", "renal")  # by their codes
_AGE = Column(name="age", low=20, high=90)  # years, when dialysis began
_DISEASE = Column(name="disease", categories=_DISEASES)
_BEGIN = Column(name="begin", low=1, high=44)  # month of the study in which dialysis began
DIALYSIS_COLUMNS = (_AGE, Column(name="age squared", low=400, high=8100), _DISEASE, _BEGIN)
DIALYSIS_TARGET = "died"
DIALYSIS_TABLE = (
    *(_AGE, _DISEASE, _BEGIN),
    Column(name="time", low=0, high=44),  # months until death, or until no more is known
    Column(name="event", categories=("alive", "died")),
)
_WHEEL = Wheel(
    title="the dialysis data",
    package="SurvSet==0.2.11",
    sha256="43b71cfd96e764ef1708eaebcffc9cf6e5157babd69174d6484775ff0c88b229",
    member="SurvSet/resources/pickles/Dialysis.pickle",
)
_KEPT = ("pid", "event", "time", "centre", "disease", "age", "begin")


def dialysis(party: str, *, split: int = 0, fetch: bool = True) -> Records:
    """Records of one centre, or of the public test set over all of them.

    Guarantees:
        1. A record depends on one patient alone, and where it lies on that patient's number, centre
           and `split` alone: the silos with the test set hold each patient once.

    Args:
        party: "silo-1" to "silo-67", or "test", which holds about a fifth of all patients.
        split: which of the public splits into training and test records; a hash of it and of a
            patient's number decides.
        fetch: whether to download what is not cached (47 MB, with pip).

    Returns:
        Inputs float32 (n, 8); targets float32, 1 where the patient died within twelve months.
    """
    path = _fetched(party, split, fetch=fetch)
    cells = _known_first_year(path)
    rows = _rows_of(party, cells, split)
    if not rows:  # two centres have two patients each
        width = sum(column.width for column in DIALYSIS_COLUMNS)
        return Records(inputs=np.zeros((0, width), np.float32), targets=np.zeros(0, np.float32))
    return encode_table(
        {name: [texts[row] for row in rows] for name, texts in cells.items()},
        target=DIALYSIS_TARGET,
        columns=DIALYSIS_COLUMNS,
        origin=path.name,
    )


def dialysis_cells(
    party: str, *, split: int | None = None, fetch: bool = True
) -> dict[str, list[str]]:
    """The cells of one centre's table, columns as in `DIALYSIS_TABLE`, followed to the end.

    Without the test set of a split; all 6,805 patients if there is none.
    """
    path = _fetched(party, split or 0, fetch=fetch)
    cells = read_cells(path)
    try:
        cells["event"] = [("alive", "died")[int(text)] for text in cells["event"]]
        rows = _rows_of(party, cells, split)
    except (KeyError, ValueError, IndexError):
        raise _damaged(path) from None
    return {name: [texts[row] for row in rows] for name, texts in cells.items()}


def _fetched(party: str, split: int, *, fetch: bool) -> Path:
    """The table's file, once it is sure that it has such a party."""
    names = [f"silo-{number}" for number in range(1, CENTRES + 1)]
    if party not in (*names, "test"):
        raise StudyError(
            f"expected silo-1 to silo-{CENTRES} of the dialysis data or 'test', found {party!r}; "
            f"write silos = {CENTRES}"
        )
    if type(split) is not int or split < 0:
        raise StudyError(f"expected split to be a whole number from 0, found {split!r}; choose one")
    path = data_folder() / "dialysis" / "dialysis.csv"
    if not path.exists():
        fill(path, _WHEEL, _KEPT, _read, fetch=fetch)
    return path


def _rows_of(party: str, cells: Mapping[str, list[str]], split: int | None) -> list[int]:
    """Which patients' records are a party's; there is no test set without a split."""
    places = [
        "test" if split is not None and _is_test(patient, split) else f"silo-{int(centre) + 1}"
        for patient, centre in zip(cells["pid"], cells["centre"], strict=True)
    ]
    return [row for row, place in enumerate(places) if place == party]


@cache
def _is_test(patient: str, split: int) -> bool:
    """A public rule that spreads patients evenly, the same on every machine."""
    digest = hashlib.sha256(f"hubbub dialysis split {split} patient {patient}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < int(TEST_SHARE * 2**64)


@lru_cache(maxsize=1)
def _known_first_year(path: Path) -> dict[str, list[str]]:
    """Those of whom the first year is known, with the target and the square of the age."""
    cells = read_cells(path)
    try:
        times, deaths, ages = (list(map(int, cells[name])) for name in ("time", "event", "age"))
        known = [time > MONTHS or death == 1 for time, death in zip(times, deaths, strict=True)]
        cells[DIALYSIS_TARGET] = [str(int(time <= MONTHS)) for time in times]
        cells["age squared"] = [str(age * age) for age in ages]
    except (KeyError, ValueError):
        known = []
    if not known:
        raise _damaged(path)
    return {
        name: [text for text, keep in zip(texts, known, strict=True) if keep]
        for name, texts in cells.items()
    }


def _damaged(path: Path) -> DataError:
    return DataError(
        f"expected {path.name} to be a complete table of dialysis patients, found it damaged; "
        f"delete {path} and load again"
    )


def _read(pickled: bytes) -> Mapping[str, Sequence[str]]:
    """The pickled table as texts: five buffers of numbers, whose order and types are pinned."""
    buffers, _ = buffers_and_names(pickled)
    numbers, _, _, centres, diseases, ages = buffers
    pid, event, time = np.frombuffer(numbers, "<i8").reshape(3, -1).tolist()
    age, begin = np.frombuffer(ages, "<i8").reshape(2, -1).tolist()
    arrays = {"pid": pid, "event": event, "time": time, "age": age, "begin": begin}
    texts = {name: list(map(str, values)) for name, values in arrays.items()}
    texts["centre"] = list(map(str, np.frombuffer(centres, "i1").tolist()))
    texts["disease"] = [_DISEASES[code] for code in np.frombuffer(diseases, "i1").tolist()]
    return texts
