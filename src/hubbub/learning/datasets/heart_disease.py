"""The heart-disease records of four hospitals (UCI), as four silos and a public test set.

920 patients of Cleveland, Hungary (Budapest), Switzerland (Zurich and Basel) and VA Long Beach;
the target is whether a coronary artery is narrowed (`num` > 0). `PROVENANCE.md` beside this file
says where the file comes from, under which licence, and what is fixed here.

The columns below are what a consortium would write into its study: bounds are round figures that a
physician expects before seeing any record, defaults are ordinary healthy or middling values, and
neither is computed from the data.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path

import numpy as np

from hubbub.core.errors import StudyError
from hubbub.core.tabular.cells import read_cells
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.records import Records
from hubbub.core.tabular.table import encode_table

HEART_SILOS = ("cleveland", "hungary", "switzerland", "va-long-beach")
# What a study that only says `silos = 4` calls them.
_NUMBERED = {f"silo-{number}": name for number, name in enumerate(HEART_SILOS, 1)}
TEST_SHARE = 0.2
PRACTICES = 60

HEART_TARGET = "num"

_MISLABELLED = "304"  # this row says Cleveland, but is the first of the Hungarian file

HEART_COLUMNS = (
    Column(name="age", low=30, high=80),  # years
    Column(name="sex", categories=("Female", "Male")),
    Column(
        name="cp", categories=("typical angina", "atypical angina", "non-anginal", "asymptomatic")
    ),
    Column(name="trestbps", low=80, high=200, default=130, missing=("0",)),  # mm Hg at rest
    Column(name="chol", low=100, high=400, default=240, missing=("0",), indicator=True),  # mg/dl
    Column(name="fbs", categories=("FALSE", "TRUE"), default="FALSE"),  # sugar > 120 mg/dl
    Column(
        name="restecg",
        categories=("normal", "st-t abnormality", "lv hypertrophy"),
        default="normal",
    ),
    Column(name="thalch", low=70, high=200, default=140),  # beats a minute
    Column(name="exang", categories=("FALSE", "TRUE"), default="FALSE"),
    Column(name="oldpeak", low=-2, high=4, default=1),  # ST depression, mm
    Column(
        name="slope",
        categories=("upsloping", "flat", "downsloping", "not recorded"),
        default="not recorded",
    ),
    Column(name="ca", low=0, high=3, default=1, indicator=True),  # vessels coloured, 0 to 3
    Column(
        name="thal",
        categories=("normal", "fixed defect", "reversable defect", "not recorded"),
        default="not recorded",
    ),
)

_UNKNOWN = "not recorded"
# For statistics what is missing is missing, and whether there is a disease is one column more.
HEART_TABLE = (
    *(
        replace(
            column,
            default=None,
            indicator=False,
            categories=tuple(category for category in column.categories if category != _UNKNOWN),
        )
        for column in HEART_COLUMNS
    ),
    Column(name="disease", categories=("no", "yes")),
)


def heart(party: str, *, split: int = 0) -> Records:
    """Records of one hospital, or of the public test set pooled over all four.

    >>> heart("switzerland").inputs.shape[1]
    26

    Guarantees:
        1. A silo's records come from its own hospital, none of them is in the test set of the same
           `split`, and the four silos with the test set hold each of the 920 records once.

    Args:
        party: one of `HEART_SILOS` (also called "silo-1" to "silo-4", in that order), or "test".
        split: which of the pseudo-random 80/20 splits into training and test records, stratified
            by hospital. It is public and follows from `split` and the row order alone; it hides
            nothing, so it needs no cryptographic generator.

    Returns:
        Inputs float32 (n, 26); targets float32, 1 where the disease was found.
    """
    return encode_table(
        _chosen(_rows_of(_checked(party, split), split)),
        target=HEART_TARGET,
        columns=HEART_COLUMNS,
        positive=("1", "2", "3", "4"),
        negative=("0",),
        origin="heart.csv",
    )


def heart_cells(party: str, *, split: int | None = None) -> dict[str, list[str]]:
    """The cells of one hospital's table, columns as in `HEART_TABLE`.

    Without the test set of a split; of all patients if there is none.
    """
    party = _checked(party, split or 0)
    if split is None:
        rows = [row for row, silo in enumerate(_hospitals()) if silo == party]
    else:
        rows = _rows_of(party, split)
    cells = _chosen(rows)
    cells["disease"] = ["no" if text == "0" else "yes" for text in cells[HEART_TARGET]]
    return cells


def _checked(party: str, split: int) -> str:
    party = _NUMBERED.get(party, party)
    if party not in (*HEART_SILOS, "test"):
        raise StudyError(
            f"expected a silo of the heart data ({', '.join(HEART_SILOS)}) or 'test', found "
            f"{party!r}; use these names as parties.names"
        )
    if type(split) is not int or split < 0:
        raise StudyError(f"expected split to be a whole number from 0, found {split!r}; choose one")
    return party


def _chosen(rows: list[int]) -> dict[str, list[str]]:
    return {name: [texts[row] for row in rows] for name, texts in _cells().items()}


def practices(party: str, *, split: int = 0) -> Records:
    """The same records, dealt to 60 practices: many silos where nothing can be fetched.

    The silos hold all training records of the same split once, 12 or 13 each; the test set is that
    of `heart`. The dealing follows from the split, too.
    """
    if party == "test":
        return heart("test", split=split)
    names = [f"silo-{number}" for number in range(1, PRACTICES + 1)]
    if party not in names:
        raise StudyError(
            f"expected silo-1 to silo-{PRACTICES} of the practices or 'test', found {party!r}; "
            f"write silos = {PRACTICES}"
        )
    together = _together(split)
    dealt = np.random.Generator(np.random.PCG64(split)).permutation(len(together))
    mine = np.sort(dealt[names.index(party) :: PRACTICES])
    return Records(inputs=together.inputs[mine], targets=together.targets[mine])


@lru_cache(maxsize=1)
def _together(split: int) -> Records:
    """The training records of all hospitals."""
    return Records.together([heart(name, split=split) for name in HEART_SILOS])


def _rows_of(party: str, split: int) -> list[int]:
    """The rows of one party; the test set takes a fifth of every hospital's."""
    generator = np.random.Generator(np.random.PCG64(split))
    hospital = np.array(_hospitals())
    chosen: list[int] = []
    for silo in HEART_SILOS:
        rows = generator.permutation(np.flatnonzero(hospital == silo))
        tests = round(TEST_SHARE * len(rows))
        if party == "test":
            chosen += rows[:tests].tolist()
        elif party == silo:
            chosen += rows[tests:].tolist()
    return sorted(chosen)


def _hospitals() -> list[str]:
    """The silo of every row, with the one mislabelled row fixed."""
    cells = _cells()
    return [
        "hungary" if row == _MISLABELLED else label.lower().replace(" ", "-")
        for row, label in zip(cells["id"], cells["dataset"], strict=True)
    ]


@cache
def _cells() -> dict[str, list[str]]:
    return read_cells(Path(__file__).with_name("heart.csv"))
