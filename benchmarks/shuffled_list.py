"""A shuffled token list whose silos are all in this process: for tests, benchmarks and trials.

The phases, their order and their checks are those of `token_lists.py`; here each silo is its
`SiloTokenLists` and nothing else. A run makes its lists through its own parties.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import StudyError
from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.core.protocol.primitives.wire import Channel
from hubbub.core.protocol.token_lists.process_pool import SharedPool
from hubbub.core.protocol.token_lists.token_list import ListContext, TokenList
from hubbub.core.session.ask import Answer, Call, Peers
from hubbub.core.session.setup import new_session
from hubbub.core.session.token_lists import SiloTokenLists, TokenLists

# Called with the HPKE operations done and those there are.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class OwnedTokens:
    """A finished list with everybody's part in it.

    Args:
        tokens: the public list.
        positions: by silo, for each of its records the place of its token in the list.
    """

    tokens: TokenList
    positions: Mapping[int, NDArray[np.intp]] = field(repr=False)


class LocalSilos(Peers):
    """The silos of this process, which make lists and nothing else."""

    def __init__(self, roster: Roster, lists: Mapping[int, SiloTokenLists]) -> None:
        super().__init__(roster)
        self._lists = lists

    def ask(
        self,
        call: Call,
        requests: Mapping[int, Sequence[bytes]],
        session: bytes,
        *,
        needs_all: bool = False,
        more_seconds: float = 0.0,
    ) -> Iterator[tuple[int, Answer]]:
        """As `Peers.ask`; a fault is raised by whoever finds it."""
        for index, parts in requests.items():
            yield index, self._lists[index].answer(call, parts)


def shuffled_list(
    keys: Sequence[Keys],
    roster: Roster,
    counts: Sequence[int],
    *,
    study: bytes,
    session: bytes | None = None,
    number: int = 1,
    progress: Progress = lambda _done, _all: None,
) -> OwnedTokens:
    """A list with one token for each record, of which every silo knows only its own.

    Guarantees:
        1. The order of the honest silos' tokens is uniform to everybody else, as long as one mixer
           is honest: docs/sampling.md says against whom.
        2. Every record has exactly one place in the list, and every place one record.

    Args:
        keys: of all silos, in any order; others are left aside.
        roster: everybody.
        counts: how many records each silo has, in the order of the roster; public.
        study: the study id, 32 bytes.
        session: 16 bytes; a new one if None.
        number: of the list in the session, from 1; never twice the same.
        progress: see `Progress`.

    Returns:
        The list, and everybody's places in it.

    Raises:
        ProtocolError: naming a silo that cheated; in one process that is a defect.
        StudyError: keys are missing, or numbers are out of range.
    """
    found, session = {one.identity: one for one in keys}, session or new_session()
    counts = [int(count) for count in counts]
    pool = SharedPool(counts, progress)
    lists = {}
    for index in roster.silos:
        if roster.parties[index] not in found:
            raise StudyError(
                f"expected the keys of every silo of the roster, got none of {roster.name(index)}; "
                "pass them all"
            )
        lists[index] = SiloTokenLists(
            keys=found[roster.parties[index]],
            index=index,
            list_context=ListContext(
                roster=roster, study=study, session=session, number=number - 1
            ),
            counts=counts,
            attempts_per_list=1,
            epoch=1,
            batches=cast("Any", None),  # no batch is drawn
            pool=pool,
        )
    TokenLists(
        peers=LocalSilos(roster, lists),
        channel=Channel(roster=roster, study=study, session=session),
        counts=counts,
        attempts_per_list=1,
        number=number - 1,
    ).prepare()
    owned = {index: one.newest for index, one in lists.items()}
    return OwnedTokens(
        tokens=next(iter(owned.values())).tokens,
        positions={index: one.positions for index, one in owned.items()},
    )
