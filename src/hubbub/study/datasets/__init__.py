"""The data set that is shipped, by a function that gives a party's `Records`.

That is the whole contract, for this source and for the user's own: the name of a silo gives the
records of that silo and of no other, and "test" gives the public test set. A source knows `Column`
and `Records`; it must not know studies, models or the protocol.
"""

from hubbub.study.datasets.dialysis import DIALYSIS_COLUMNS, DIALYSIS_TARGET, dialysis
from hubbub.study.datasets.heart_disease import (
    HEART_COLUMNS,
    HEART_SILOS,
    HEART_TARGET,
    heart,
    practices,
)

# How the tables of these sources are encoded: the columns, and the target's name.
ENCODINGS = {
    "heart": (HEART_COLUMNS, HEART_TARGET),
    "practices": (HEART_COLUMNS, HEART_TARGET),
    "dialysis": (DIALYSIS_COLUMNS, DIALYSIS_TARGET),
}
