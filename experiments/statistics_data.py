"""Patients of three data sets as cells of statistics, and the site of each of them.

Dialysis (6,805 patients, 67 centres), leukaemia (1,043 patients, 24 districts; both from a pinned
package, fetched once) and heart disease (920 patients, 4 hospitals, shipped). Bounds are round
figures; nothing is computed from records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import hubbub
from experiments.results import rows_of
from hubbub.core.tabular.column import Column
from hubbub.learning.datasets.dialysis import _WHEEL
from hubbub.learning.datasets.dialysis import dialysis as dialysis_records
from hubbub.learning.datasets.wheel import buffers_and_names, data_folder, fill

Cells = dict[str, NDArray[np.float64]]
DISEASES = ("congen", "diabetes", "hypert", "other", "renal")
AGE = Column(name="age", low=20, high=90)
BEGIN = Column(name="begin", low=1, high=44)
DISEASE = Column(name="disease", categories=DISEASES)
DIABETES = Column(name="diabetes", categories=("no", "yes"))
DIED = Column(name="died", categories=("no", "yes"))  # within a year
EVENT = Column(name="event", categories=("no", "yes"))
MONTHS = Column(name="time", low=0, high=44)
DAYS = Column(name="time", low=0, high=5000)
OLD = Column(name="old", categories=("under 65", "65 and over"))
SEX = Column(name="sex", categories=("0", "1"))
WBC = Column(name="wbc", low=0, high=500)
_LEUKAEMIA = replace(
    _WHEEL,  # the same package
    title="the leukaemia data",
    member="SurvSet/resources/pickles/LeukSurv.pickle",
)
_KEPT = ("pid", "event", "time", "sex", "district", "age", "wbc", "tpi")


@dataclass(frozen=True, kw_only=True)
class Patients:
    """Cells by column, and where each patient is."""

    cells: Cells
    site: NDArray[np.int64]

    @property
    def sites(self) -> int:
        """How many sites there are."""
        return int(self.site.max()) + 1


def dialysis() -> Patients:
    """All patients of 67 centres, up to 44 months."""
    texts = _table("dialysis")
    cells = {name: _numbers(texts[name]) for name in ("age", "begin", "time", "event")}
    cells["disease"] = np.array([float(DISEASES.index(text)) for text in texts["disease"]])
    cells["diabetes"] = (cells["disease"] == DISEASES.index("diabetes")).astype(np.float64)
    cells["died"] = ((cells["time"] <= 12) & (cells["event"] == 1)).astype(np.float64)
    return Patients(cells=cells, site=_numbers(texts["centre"]).astype(np.int64))


def leukaemia() -> Patients:
    """Patients with acute myeloid leukaemia of 24 districts, up to 13 years."""
    texts = _table("leukaemia")
    cells = {name: _numbers(texts[name]) for name in ("age", "time", "event", "sex", "wbc", "tpi")}
    cells["old"] = (cells["age"] >= 65).astype(np.float64)
    return Patients(cells=cells, site=_numbers(texts["district"]).astype(np.int64))


def heart() -> Patients:
    """Patients of four hospitals; a column holds what is not missing."""
    path = Path(hubbub.__file__).parent / "learning" / "datasets" / "heart.csv"
    rows = rows_of(path)
    site = {name: place for place, name in enumerate(sorted({row["dataset"] for row in rows}))}
    cells = {
        column.name: np.array([_cell(column, row[column.name]) for row in rows])
        for column in HEART
        if column.name != "ill"
    }
    cells["ill"] = np.array([float(row["num"] != "0") for row in rows])
    return Patients(cells=cells, site=np.array([site[row["dataset"]] for row in rows]))


HEART = (
    Column(name="age", low=20, high=90),
    Column(name="trestbps", low=80, high=200),
    Column(name="thalch", low=60, high=220),
    Column(name="sex", categories=("Female", "Male")),
    Column(
        name="cp",
        categories=("asymptomatic", "atypical angina", "non-anginal", "typical angina"),
    ),
    Column(name="exang", categories=("FALSE", "TRUE")),
    Column(name="ill", categories=("no", "yes")),
)
DATA: Mapping[str, Callable[[], Patients]] = {
    "dialysis": dialysis,
    "leukaemia": leukaemia,
    "heart": heart,
}


def multiplier(epsilon: float, delta: float = 1e-5) -> float:
    """Noise of one sum of sensitivity 1."""
    return hubbub.noise_multiplier(
        epsilon=epsilon, sample_rate=1.0, steps=1, delta=delta, relation="add-remove"
    )


def _cell(column: Column, text: str) -> float:
    if column.categories:
        return float(column.categories.index(text)) if text in column.categories else np.nan
    return float(text) if text else np.nan


def _numbers(texts: Sequence[str]) -> NDArray[np.float64]:
    return np.array(list(map(float, texts)))


def _table(name: str) -> dict[str, list[str]]:
    """A cached table, fetched if it is not there."""
    path = data_folder() / name / f"{name}.csv"
    if not path.exists():
        if name == "leukaemia":
            fill(path, _LEUKAEMIA, _KEPT, _read, fetch=True)
        else:
            dialysis_records("test")
    rows = rows_of(path)
    return {key: [row[key] for row in rows] for key in rows[0]}


def _read(pickled: bytes) -> dict[str, list[str]]:
    """The leukaemia table: buffers of numbers, whose order and types are pinned."""
    buffers, _ = buffers_and_names(pickled)
    pid, event, time = np.frombuffer(buffers[0], "<i8").reshape(3, -1).tolist()
    measured = np.frombuffer(buffers[5], "<f8").reshape(4, -1)
    found = {
        "pid": pid,
        "event": event,
        "time": time,
        "sex": np.frombuffer(buffers[1], "i1").tolist(),
        "district": np.frombuffer(buffers[4], "i1").tolist(),
        "age": np.frombuffer(buffers[7], "<i8").tolist(),
        "wbc": measured[2].tolist(),
        "tpi": measured[3].tolist(),
    }
    return {name: list(map(str, values)) for name, values in found.items()}
