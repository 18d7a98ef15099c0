"""Making a list of tokens with all parties in one process: the protocol on one screen.

Every party is a `Mixer` and what passes between them are bytes, as over a network. The work on the
layers is spread over all cores, and after each step the state can be kept, so that a crash costs
one step. The records themselves are not needed, only how many each silo has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import IntegrityError, ProtocolError, StudyError
from hubbub.protocol.identity import Keys, Roster
from hubbub.protocol.randomness import SecureSource
from hubbub.protocol.token_lists import onion_layers
from hubbub.protocol.token_lists.kept_state import Store
from hubbub.protocol.token_lists.list_context import ListContext
from hubbub.protocol.token_lists.mixer import Mixer
from hubbub.protocol.token_lists.onion_layers import Executor
from hubbub.protocol.token_lists.process_pool import process_pool
from hubbub.protocol.token_lists.token_list import Owned, Publication, TokenList
from hubbub.protocol.token_lists.verdict import Evidence, verdict

SESSION_BYTES = 16
Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """A finished list with everybody's part in it.

    Args:
        tokens: the public list.
        positions: by silo, for each of its records the place of its token in the list.
    """

    tokens: TokenList
    positions: Mapping[int, NDArray[np.intp]] = field(repr=False)


def create_tokens(
    keys: Sequence[Keys],
    roster: Roster,
    counts: Sequence[int],
    *,
    study: bytes,
    session: bytes | None = None,
    number: int = 0,
    workers: int | None = None,
    progress: Progress | None = None,
    resume: Store | None = None,
) -> Tokens:
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
        session: 16 bytes; drawn if left out.
        number: of the list in the session; never twice the same.
        workers: processes; None: one for each core, if it is worth it. Changes speed only.
        progress: called with the HPKE operations done and those there are.
        resume: where the state is kept after each step, and taken up from if there is one; it holds
            secrets and is emptied in the end, so keep the result.

    Raises:
        ProtocolError: naming a silo that cheated; in one process that is a defect.
        IntegrityError, StudyError: what was kept was altered, or is about another list.
    """
    listed, counts = _keys_of_silos(keys, roster), [int(count) for count in counts]
    kept = resume.load("secrets") if resume else None
    about = [study, roster.digest, number.to_bytes(4, "little"), _numbers(counts)]
    session, states = _taken_up(kept, about, session)
    mixers = {
        index: Mixer(
            keys=one,
            roster=roster,
            index=index,
            counts=counts,
            study=study,
            session=session,
            number=number,
        )
        for index, one in listed.items()
    }
    operations = 2 * len(listed) * sum(counts)
    tally = _Tally(operations, progress)
    with process_pool(operations, workers, tally.add) as executor:
        making = Making(
            mixers=mixers,
            list_context=ListContext(roster=roster, study=study, session=session, number=number),
            counts=counts,
            executor=executor,
            store=resume,
            about=[*about, session],
        )
        if states:
            tally.add(making.take_up(states) * sum(counts))
        else:
            making.submit()
        owned = making.mix()
    if resume:
        resume.clear()
    return Tokens(
        tokens=next(iter(owned.values())).tokens,
        positions={index: one.positions for index, one in owned.items()},
    )


@dataclass(kw_only=True)
class Making:
    """All parties at work on one list.

    Args:
        mixers: the silos, by index, in the order of the roster.
        venue: which list.
        counts: records of each silo.
        labour: who works on the layers.
        store: where the state is kept.
        about: what must be the same when it is taken up.
    """

    mixers: Mapping[int, Mixer]
    list_context: ListContext
    counts: Sequence[int]
    executor: Executor = onion_layers.in_this_thread
    store: Store | None = None
    about: Sequence[bytes] = ()
    _step: int = 0
    _keys: list[bytes] = field(default_factory=list)
    _published: list[Publication] = field(default_factory=list, repr=False)
    _names: list[list[bytes]] = field(default_factory=list, repr=False)
    _input: list[bytes] = field(default_factory=list, repr=False)

    def submit(self) -> None:
        """Keys, commitments, and list 0."""
        mixers = self.mixers.values()
        self._keys = [mixer.key() for mixer in mixers]
        commits = [mixer.commit(self._keys, self.executor) for mixer in mixers]
        self._published = [mixer.submit(commits) for mixer in mixers]
        self._input = [one.forms for one in self._published]
        self._keep()
        self._save("keys", self._keys)
        self._save("input", self._input)
        if self.store:  # the last, so that there is nothing to take up before all is there
            self._save("secrets", [*self.about, *(mixer.saved() for mixer in mixers)])

    def mix(self) -> dict[int, Owned]:
        """Every silo's turn, and after each step everybody's look."""
        self._look()
        for turn, mixer in list(self.mixers.items())[self._step :]:
            try:
                self._published = [mixer.mix([one.forms for one in self._published], self.executor)]
            except ProtocolError:
                if mixer.disputed:
                    self.settle(turn)
                raise
            self._step = turn
            self._keep()
            self._look()
        return {index: mixer.finish() for index, mixer in self.mixers.items()}

    def settle(self, complainer: int) -> None:
        """Open the list, which is lost, and name who is to blame.

        Raises:
            ProtocolError: always.
        """
        complaint = self.mixers[complainer].complain()
        opened = [mixer.give_up(complaint) for mixer in self.mixers.values()]
        found = verdict(self.evidence(), complaint, opened, self.executor)
        raise ProtocolError(
            f"expected a list that everybody made as agreed, got one where {found.reason}",
            culprit=found.culprit,
        )

    def evidence(self) -> Evidence:
        """What has been published so far."""
        forms = {self._step: [one.forms for one in self._published], 0: self._input}
        return Evidence(
            list_context=self.list_context,
            counts=self.counts,
            keys=self._keys,
            names=self._names,
            forms=forms,
        )

    def take_up(self, states: Sequence[bytes]) -> int:
        """Go on from the last step that was kept; how many silos' worth of work is done."""
        self._keys, self._input = self._load("keys"), self._load("input")
        number, *forms = self._load("step")
        self._step = int.from_bytes(number, "little")
        self._names = [self._load(f"names-{step}") for step in range(self._step)]
        pairs = zip(self._load(f"names-{self._step}"), forms, strict=True)
        self._published = [Publication(names=one, forms=other) for one, other in pairs]
        for mixer, state in zip(self.mixers.values(), states, strict=True):
            mixer.resume(state, self._step)
        return len(self.mixers) + self._step

    def _look(self) -> None:
        names = [one.names for one in self._published]
        self._names.append(names)
        seen = [mixer.look(names) for mixer in self.mixers.values()]
        for mixer in self.mixers.values():
            mixer.agree(seen)

    def _keep(self) -> None:
        """What was published in this step, and then, in one piece, that it is the last."""
        forms = [one.forms for one in self._published]
        self._save(f"names-{self._step}", [one.names for one in self._published])
        self._save("step", [self._step.to_bytes(4, "little"), *forms])

    def _save(self, name: str, parts: Sequence[bytes]) -> None:
        if self.store:
            self.store.save(name, onion_layers.packed(parts))

    def _load(self, name: str) -> list[bytes]:
        kept = self.store.load(name) if self.store else None
        if kept is None:
            raise IntegrityError(
                f"expected the file {name} of a list in the making, got none; remove the folder "
                "and start again"
            )
        return onion_layers.unpacked(kept)


class _Tally:
    """How much is done of how much."""

    def __init__(self, whole: int, progress: Progress | None) -> None:
        self._done, self._whole, self._progress = 0, whole, progress

    def add(self, operations: int) -> None:
        self._done += operations
        if self._progress:
            self._progress(self._done, self._whole)


def _taken_up(
    kept: bytes | None, about: Sequence[bytes], session: bytes | None
) -> tuple[bytes, list[bytes]]:
    """The session, and the silos' states if there are any."""
    if kept is None:
        return session or SecureSource().bytes(SESSION_BYTES), []
    parts = onion_layers.unpacked(kept)
    before, states = parts[: len(about)], parts[len(about) + 1 :]
    if before != list(about) or session not in (None, parts[len(about)]):
        raise StudyError(
            "expected to go on with the same list, got one that was begun with another study, "
            "roster, number, session or number of records; use another folder"
        )
    return parts[len(about)], states


def _keys_of_silos(keys: Sequence[Keys], roster: Roster) -> dict[int, Keys]:
    """The silos' keys by index, in the order of the roster."""
    found = {one.identity: one for one in keys}
    missing = [index for index in roster.silos if roster.parties[index] not in found]
    if missing:
        raise StudyError(
            f"expected the keys of every silo of the roster, got none of "
            f"{roster.name(missing[0])}; pass them all"
        )
    return {index: found[roster.parties[index]] for index in roster.silos}


def _numbers(values: Sequence[int]) -> bytes:
    return b"".join(value.to_bytes(4, "little") for value in values)
