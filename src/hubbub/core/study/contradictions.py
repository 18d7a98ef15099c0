"""Keys that are each in range and yet contradict each other, across tables.

A contradiction is refused, never settled in favour of one of the keys: no setting may silently
change a guarantee. What goes against the tables of an ask, that ask says itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubbub.core.errors import StudyError
from hubbub.core.study.data import Data

if TYPE_CHECKING:
    from hubbub.core.study.study import Study

_MOST_SHARE = 0.9  # of epsilon, for all that is asked beside the main query


def refuse_contradictions(study: Study) -> None:
    """Refuse a study whose tables contradict each other, whatever each says by itself.

    Raises:
        StudyError: naming the keys.
    """
    data, silos = study.data, study.parties.silos
    if data.records and data.records < silos:
        raise StudyError(
            f"expected data.records >= {silos}, the number of silos, got {data.records}; fix it"
        )
    for ask in study.asks:
        ask.check(study)
    if data.counts and not study.shows_counts:
        raise StudyError(
            'expected no data.counts without training.sampling = "without-replacement", which '
            "alone makes them public, got some; remove them"
        )
    _check_counts(data, silos)
    _check_capacity(data, silos)
    _check_parts(study)


def _check_parts(study: Study) -> None:
    """What is asked beside the main query leaves some epsilon to it."""
    parts = {key: part for ask in study.asks for key, part in ask.parts(study).items()}
    epsilon, spent = study.privacy.epsilon, sum(parts.values())
    if spent > _MOST_SHARE * epsilon:
        raise StudyError(
            f"expected {' and '.join(parts)} together to be at most {_MOST_SHARE:g} of "
            f"privacy.epsilon = {epsilon:g}, of which they are a part, got {spent:g}; lower them"
        )


def _check_counts(data: Data, silos: int) -> None:
    """Every silo's number of records, which add up."""
    if data.counts and (len(data.counts) != silos or sum(data.counts) != data.records):
        raise StudyError(
            f"expected data.counts to be {silos} numbers that add up to data.records = "
            f"{data.records}, got {len(data.counts)} that add up to {sum(data.counts)}; fix them"
        )


def _check_capacity(data: Data, silos: int) -> None:
    """One number for all silos, or one for each; no silo counts on more than it may hold."""
    many = len(data.capacity)
    if many > 1 and many != silos:
        raise StudyError(
            f"expected data.capacity to be one number or {silos}, one for each silo, got "
            f"{many}; fix the list"
        )
    each = data.capacity if many > 1 else data.capacity * silos
    if data.counts and any(most < own for most, own in zip(each, data.counts, strict=False)):
        raise StudyError(
            "expected data.capacity to be at least data.counts for every silo, got less; fix one"
        )
