"""How many records a silo may hold, and so how many rows its batches have: public numbers (P19).

Whoever writes a study states `data.capacity`. Where it is not stated a silo takes the first step of
a public ladder that holds its records: an equal share of `data.records` and a little more, twice
that, four times, and so on. Which step it took may then show, as a refusal would, and neighbours
that take different steps are outside what P19 states.
"""

from __future__ import annotations

from itertools import count
from math import ceil

from hubbub.core.errors import DataError
from hubbub.core.study.study import Study

_SLACK, _MORE = 1.02, 8  # of an equal share, so that silos of about that size need no second step


def capacity_of(study: Study, name: str, records: int) -> int:
    """The most records that a silo may hold.

    Args:
        study: the study.
        name: of the silo.
        records: how many it has, which only decides where nothing is stated.

    Raises:
        DataError: it has more than the study states.
    """
    data, silos = study.data, study.parties.silos
    if data.capacity:
        stated = data.capacity[study.parties.names.index(name) if len(data.capacity) > 1 else 0]
    elif study.shows_counts:
        stated = records  # joint batches make the number public
    elif data.records:
        stated = min(_ladder(ceil(data.records / silos), records), data.records)
    else:
        stated = _ladder(1, records)
    if records > stated:
        what = "data.capacity" if data.capacity else "data.records"
        raise DataError(
            f"expected at most {stated} records of {name}, as {what} says, got more; batches have "
            f"one public shape: state {what} as large as it is"
        )
    return stated


def _ladder(share: int, records: int) -> int:
    """The first of these public numbers that is large enough."""
    first = ceil(_SLACK * share) + _MORE
    return next(first << step for step in count() if first << step >= records)
