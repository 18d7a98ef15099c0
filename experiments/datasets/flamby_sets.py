"""FLamby's Fed-Heart-Disease and Fed-TCGA-BRCA, with FLamby's own training and test records.

The hearts are hubbub's own file: the 740 records of which FLamby's ten columns are complete, split
by its rule (scikit-learn's stratified split of each centre, seed 43). The breast cancers are the
files that FLamby ships as `brca.csv` and `train_test_split.csv` (data of the GDC, open access).
They are not shipped here: they are read from `flamby/tcga_brca.csv` and
`flamby/tcga_brca_split.csv` in the folder of downloaded data.

With `fold` from 0 to 2 FLamby's test records are left out, and a third of the training records,
chosen by their row or name, takes their place: settings are tuned on those.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import DataError, StudyError
from hubbub.core.tabular.cells import read_cells
from hubbub.core.tabular.records import Records
from hubbub.core.tabular.table import encode_table
from hubbub.learning.datasets.heart_disease import HEART_COLUMNS, HEART_SILOS
from hubbub.learning.datasets.wheel import data_folder

BRCA_SILOS = tuple(f"region-{number}" for number in range(6))
_CENTRES = ("Cleveland", "Hungary", "Switzerland", "VA Long Beach")  # in the order of HEART_SILOS
_LEFT_OUT = ("slope", "ca", "thal")  # which most centres did not record
# What is made of the others, by its place, and what it is multiplied with, so that what is 0 or 1
# counts as much as what is -1 to 1: age, sex, atypical angina, no angina, cholesterol not measured,
# highest heart rate, angina by exercise, ST depression.
_PICKED = {0: 1, 1: 1, 3: 2, 5: 2, 8: 2, 13: 1, 14: 1, 15: 1}
_MISLABELLED = "304"  # says Cleveland, and is the first of Hungary's
_SEED, _TEST = 43, 1.0 - 0.66
_FEW = 2  # of a class, with which FLamby does not stratify a centre
_FOLDS = 3
_OLD, _YOUNG = 90.0, 20.0  # years


def flamby_heart(party: str, *, fold: int = -1, split: int = _SEED) -> Records:
    """The hearts of one centre, or test records of all centres or, as "test-CENTRE", of one.

    Args:
        party: one of `HEART_SILOS`, "test" or "test-" and one of them.
        fold: which third of the training records is for testing; -1: FLamby's test records.
        split: seed of the split; 43 is FLamby's own, others have the same sizes.

    Returns:
        Inputs float32 (n, 8); targets float32, 1 where the disease was found.

    Raises:
        StudyError: another name or fold.
    """
    _check_fold(fold)
    tests, centre = party.startswith("test"), party.removeprefix("test").removeprefix("-")
    if centre not in (*HEART_SILOS, "") or (not centre and not tests):
        raise StudyError(f"expected a centre of {HEART_SILOS} or 'test', found {party!r}; name one")
    cells, rows = _heart_cells(), []
    for silo in (centre,) if centre else HEART_SILOS:
        train, test = _heart_split(silo, split)
        if fold >= 0:
            test, train = train[fold::_FOLDS], np.delete(train, np.s_[fold::_FOLDS])
        rows += (test if tests else train).tolist()
    found = encode_table(
        {name: [texts[row] for row in rows] for name, texts in cells.items()},
        target="num",
        columns=[column for column in HEART_COLUMNS if column.name not in _LEFT_OUT],
        positive=("1", "2", "3", "4"),
        negative=("0",),
        origin="heart.csv",
    )
    scales = np.array(list(_PICKED.values()), dtype=np.float32)
    return found.with_inputs(found.inputs[:, list(_PICKED)] * scales)


@lru_cache(maxsize=1)
def _heart_cells() -> dict[str, list[str]]:
    with resources.as_file(resources.files("hubbub.learning.datasets") / "heart.csv") as path:
        return read_cells(path)


@lru_cache(maxsize=32)
def _heart_split(silo: str, split: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """A centre's complete rows, for training and for testing, as FLamby splits them."""
    from sklearn.model_selection import train_test_split

    cells, title = _heart_cells(), _CENTRES[HEART_SILOS.index(silo)]
    names = [one.name for one in HEART_COLUMNS if one.name not in _LEFT_OUT]
    centres = [
        "Hungary" if number == _MISLABELLED else place
        for number, place in zip(cells["id"], cells["dataset"], strict=True)
    ]
    rows = [
        row
        for row, place in enumerate(centres)
        if place == title and all(cells[name][row] for name in names)
    ]
    ill = np.array([cells["num"][row] != "0" for row in rows])
    train, test = train_test_split(
        np.array(rows),
        train_size=1 - _TEST,
        test_size=_TEST,
        random_state=split,
        stratify=ill if min(ill.sum(), (~ill).sum()) > _FEW else None,
    )
    return train, test


def flamby_brca(party: str, *, fold: int = -1, age: float = 1.0, weight: float = 1.0) -> Records:
    """The breast cancers of one region, or test records of all regions or of one.

    Args:
        party: one of `BRCA_SILOS`, "test" or "test-" and one of them.
        fold: as for the hearts.
        age: what the age of 90 becomes; 20 becomes minus that.
        weight: what 1 becomes in features of 0 and 1.

    Returns:
        Inputs float32 (n, 39); targets float64 (n, 2), days and 1 for a death.

    Raises:
        StudyError: another name or fold.
        DataError: the files are not there.
    """
    _check_fold(fold)
    tests, region = party.startswith("test"), party.removeprefix("test").removeprefix("-")
    if region not in (*BRCA_SILOS, "") or (not region and not tests):
        raise StudyError(f"expected a region of {BRCA_SILOS} or 'test', found {party!r}; name one")
    ids, numbers, folds = _brca()
    mine = [one.partition("_") for one in folds]
    wanted = [region.rpartition("-")[2]] if region else list("012345")
    pick = "test" if tests and fold < 0 else "train"
    chosen = np.array([kind == pick and place in wanted for kind, _, place in mine])
    if fold >= 0:
        digests = [hashlib.sha256(name.encode()).digest()[0] % _FOLDS for name in ids]
        chosen &= (np.array(digests) == fold) == tests
    ages = ((2 * numbers[:, :1] - _OLD - _YOUNG) / (_OLD - _YOUNG)).clip(-1, 1)
    inputs = np.hstack([age * ages, weight * numbers[:, 1:-2]]).astype(np.float32)
    return Records(inputs=inputs[chosen], targets=numbers[chosen][:, [-1, -2]])


@lru_cache(maxsize=1)
def _brca() -> tuple[list[str], NDArray[np.float64], list[str]]:
    """Names, numbers (age, 38 features of 0 and 1, event, days) and part of every patient."""
    folder = data_folder() / "flamby"
    if not (folder / "tcga_brca.csv").is_file():
        raise DataError(
            f"expected FLamby's brca.csv as {folder / 'tcga_brca.csv'} and its "
            "train_test_split.csv beside it as tcga_brca_split.csv, found none; put them there, or "
            "name the folder above in HUBBUB_DATA"
        )
    cells = read_cells(folder / "tcga_brca.csv")
    split = read_cells(folder / "tcga_brca_split.csv")
    parts = dict(zip(split["pid"], split["fold2"], strict=True))
    ids = cells.pop("pid")
    numbers = np.array([list(map(float, column)) for column in cells.values()]).T
    return ids, numbers, [parts.get(name, "") for name in ids]


def _check_fold(fold: int) -> None:
    if type(fold) is not int or not -1 <= fold < _FOLDS:
        raise StudyError(f"expected fold to be -1, 0, 1 or 2, found {fold!r}; choose one")
