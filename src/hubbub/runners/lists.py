"""The lists of tokens of a session, made when they are due: per step, per epoch, or once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import DataError
from hubbub.round import Terms
from hubbub.runners.federation import Federation, Lists
from hubbub.sampling import create_tokens


def lists_of(parties: Federation, terms: Terms, counts: Sequence[int], every: int) -> Lists:
    """A new list of tokens every so many attempts; 0 for one list in all.

    Raises:
        DataError: the silos together have another number of records than the study states, which
            is public where batches are joint.
    """
    if sum(counts) != terms.records:
        raise DataError(
            f"expected {terms.records} records in all, as data.records states, got "
            f"{sum(counts)}; joint batches make the number public: mend the study"
        )
    attempts = made = 0

    def lists(_round: int, _attempt: int) -> Mapping[int, NDArray[np.intp]] | None:
        nonlocal attempts, made
        due = attempts % every == 0 if every else attempts == 0
        attempts += 1
        if not due:
            return None
        made += 1
        session = parties.session
        tokens = create_tokens(
            parties.keys,
            parties.roster,
            counts,
            study=session.study,
            session=session.id,
            number=made,
        )
        return tokens.positions

    return lists
