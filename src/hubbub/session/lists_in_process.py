"""The lists of tokens of a session, made when they are due: per step, per epoch, or once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hubbub.protocol.token_lists import create_tokens
from hubbub.session.in_process import Federation, Lists

Notice = Callable[[str], None]


def lists_of(parties: Federation, counts: Sequence[int], every: int, notice: Notice) -> Lists:
    """A new list of tokens every so many attempts.

    Args:
        parties: everybody, after set-up.
        counts: records of each silo, in the order of the roster.
        every: attempts that a list serves.
        notice: told now and then how far the mixing of a list has come.
    """
    attempts = made = 0

    def lists(_round: int, _attempt: int) -> Mapping[int, NDArray[np.intp]] | None:
        nonlocal attempts, made
        due = attempts % every == 0
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
            progress=lambda done, all_: notice(f"list {made}: {100 * done // all_} % mixed"),
        )
        return tokens.positions

    return lists
