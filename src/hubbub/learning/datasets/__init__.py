"""The data sets that are shipped or fetched, by functions that give a party's `Records`.

That is the whole contract, for this source and for the user's own: the name of a silo gives the
records of that silo and of no other, and "test" gives the public test set. For statistics some also
give the cells of a silo's table, with columns that no model sees.
"""

from collections.abc import Callable, Mapping, Sequence

from hubbub.core.study.source import SetSource
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.records import Records
from hubbub.learning.datasets.dialysis import (
    DIALYSIS_COLUMNS,
    DIALYSIS_TABLE,
    DIALYSIS_TARGET,
    dialysis,
    dialysis_cells,
)
from hubbub.learning.datasets.heart_disease import (
    HEART_COLUMNS,
    HEART_SILOS,
    HEART_TABLE,
    HEART_TARGET,
    heart,
    heart_cells,
    practices,
)

_SETS = {
    "heart": (heart, HEART_COLUMNS, HEART_TARGET),
    "practices": (practices, HEART_COLUMNS, HEART_TARGET),
    "dialysis": (dialysis, DIALYSIS_COLUMNS, DIALYSIS_TARGET),
}
# Of all patients of a silo, or with a split of those outside its test set.
_TABLES = {"heart": (HEART_TABLE, heart_cells), "dialysis": (DIALYSIS_TABLE, dialysis_cells)}


class DataSets(SetSource):
    """The data sets that are shipped or fetched."""

    def function(self, name: str) -> Callable[..., Records] | None:
        """What gives a party's records."""
        return _SETS[name][0] if name in _SETS else None

    def encoding(self, name: str) -> tuple[tuple[Column, ...], str]:
        """As the functions encode them."""
        return _SETS[name][1:]

    def columns(self, name: str) -> Sequence[Column]:
        """Those of the set's table."""
        return _TABLES[name][0] if name in _TABLES else ()

    def cells(self, name: str) -> Callable[..., Mapping[str, Sequence[str]]]:
        """What gives them."""
        return _TABLES[name][1]
