"""The data set that is shipped, by a function that gives a party's `Records`.

That is the whole contract, for this source and for the user's own: the name of a silo gives the
records of that silo and of no other, and "test" gives the public test set. A source knows `Column`
and `Records`; it must not know studies, models or the protocol.

For statistics some sources also give the cells of a silo's table, with columns that no model sees.
"""

from hubbub.study.datasets.dialysis import (
    DIALYSIS_COLUMNS,
    DIALYSIS_TABLE,
    DIALYSIS_TARGET,
    dialysis,
    dialysis_cells,
)
from hubbub.study.datasets.heart_disease import (
    HEART_COLUMNS,
    HEART_SILOS,
    HEART_TABLE,
    HEART_TARGET,
    heart,
    heart_cells,
    practices,
)

# How the tables of these sources are encoded: the columns, and the target's name.
ENCODINGS = {
    "heart": (HEART_COLUMNS, HEART_TARGET),
    "practices": (HEART_COLUMNS, HEART_TARGET),
    "dialysis": (DIALYSIS_COLUMNS, DIALYSIS_TARGET),
}
# Whose tables statistics may be about: the columns, and what gives a silo's cells, of all its
# patients or of those outside the test set of a split.
TABLES = {
    "heart": (HEART_TABLE, heart_cells),
    "dialysis": (DIALYSIS_TABLE, dialysis_cells),
}
