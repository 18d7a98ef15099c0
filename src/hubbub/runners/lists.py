"""The lists of tokens of a session, made when they are due: per step, per epoch, or once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hubbub.runners.federation import Federation, Lists
from hubbub.sampling import create_tokens

Notice = Callable[[str], None]
# HPKE operations from which worker processes are worth their start.
_WORTH_PROCESSES = 40_000


def lists_of(parties: Federation, counts: Sequence[int], every: int, notice: Notice) -> Lists:
    """A new list of tokens every so many attempts; 0 for one list in all.

    Args:
        parties: everybody, after set-up.
        counts: records of each silo, in the order of the roster.
        every: attempts that a list serves.
        notice: told now and then how far the mixing of a list has come.
    """
    operations = 2 * len(counts) * sum(counts)
    workers = None if operations >= _WORTH_PROCESSES else 1
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
            workers=workers,
            progress=lambda done, all_: notice(f"list {made}: {100 * done // all_} % mixed"),
        )
        return tokens.positions

    return lists
