"""How many bins of predictions a validation has where nobody says: from public numbers alone.

Each cell of the table has noise of its own, so fewer bins tell more of a score; and a prediction
counts as its bin's middle, so fewer bins tell another score. What is taken has the least of both
together, of the usual table by which a plan foresees.
"""

from __future__ import annotations

from dataclasses import replace
from math import hypot, inf

from hubbub.core.study.study import Study
from hubbub.learning.queries.validation.validation_layout import layout_of
from hubbub.learning.queries.validation.whose_records import whose_records

_NUMBERS = (5, 6, 8, 10, 16)
_FINE = 50  # bins, of which a score is as good as not rounded


def usual_bins(study: Study) -> int:
    """The number of bins by which a study's telling score is told best; 0 where it has none.

    Args:
        study: with a validation, whatever number of bins it has.
    """
    asked = study.validation
    assert asked is not None, "a validation is asked for"  # noqa: S101

    def with_bins(number: int) -> Study:
        return study.changed(validation=replace(asked, bins=number))

    fine = layout_of(with_bins(_FINE))
    if (
        fine.cells == layout_of(with_bins(_NUMBERS[-1])).cells
    ):  # classes have none, and risks the same for all
        return 0
    whole = fine.usual.value

    def error(number: int) -> float:
        binned = with_bins(number)
        expected = whose_records(binned).error
        return hypot(inf if expected is None else expected, layout_of(binned).usual.value - whole)

    return min(_NUMBERS, key=error)
