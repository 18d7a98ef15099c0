"""A party's side of collections: a request becomes frames, and what is on disk is all it knows.

A party may end at any moment; started again, it answers the same request with the same frames.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hubbub.core.errors import IntegrityError, ProtocolError
from hubbub.core.planning.plan_values import Plan
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import Query
from hubbub.core.protocol.agreement.mask_stream import MaskStream
from hubbub.core.protocol.primitives.wire import Tag, parse, unverified
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.session.ask import Call
from hubbub.core.session.layout import round_parameters_of
from hubbub.core.session.session_offer import RefusedError, SessionOffer
from hubbub.core.study.study import Study
from hubbub.site.collected.collection_opening import CollectionPlace
from hubbub.site.network.collection.asked import AskedCollection, approved, planned_of
from hubbub.site.network.collection.collectable import refuse_uncollectable
from hubbub.site.network.collection.kept_frames import FOLDER, OPENED, KeptFrames
from hubbub.site.network.event_log import WAITING, EventLog
from hubbub.site.network.party_folder import PartyFolder

_LASTING = frozenset((OPENED, "deposit", "promise", "total"))  # files that are never removed
Prepare = Callable[[Study, SessionOffer], tuple[Plan, PlannedQuery[Query]]]


class PartySide(ABC):
    """A silo's or a compute node's part in collections.

    Args:
        party_folder: its own.
        event_log: where it writes what happens.
        prepare: its own plan, and the query that is asked for.
        mask_stream: adds masks.
    """

    def __init__(
        self,
        party_folder: PartyFolder,
        event_log: EventLog,
        prepare: Prepare,
        mask_stream: MaskStream,
    ) -> None:
        self._folder, self._log, self._prepare = party_folder, event_log, prepare
        self._mask_stream = mask_stream
        self._seen: dict[bytes, set[str]] = {}  # by collection the files that were there
        self.at_rest = False  # the aggregator has said that there is nothing more to do for now

    def answer(self, call: Call, session: bytes, parts: Sequence[bytes]) -> list[bytes]:
        """The frames of the answer.

        Raises:
            RefusedError, ProtocolError, IntegrityError: there is none.
        """
        if call is Call.COLLECT_REST:
            return self._rest(session, parts)
        self.at_rest = False
        asked = AskedCollection.of(self._folder, session, parts)
        plan, planned = self._prepare(asked.study, asked.offer)
        planned_of(asked, plan)
        refuse_uncollectable(asked.study, planned)
        numbers = round_parameters_of(planned)
        asked.offer.check(numbers)
        frames = self.answer_to(call, asked, plan, planned, numbers)
        self.kept(session)  # what was written just now is seen
        if not self._folder.approves(asked.study.id):  # a sum takes a while
            raise RefusedError("not-approved", "expected a study that is still approved here")
        return frames

    @abstractmethod
    def answer_to(
        self,
        call: Call,
        asked: AskedCollection,
        plan: Plan,
        planned: PlannedQuery[Query],
        numbers: RoundParameters,
    ) -> list[bytes]:
        """The answer to a call of a collection that this party takes part in."""

    def kept(self, collection: bytes) -> KeptFrames:
        """The files of a collection.

        Raises:
            IntegrityError: one is not there that this process has seen, and is never removed.
        """
        kept = KeptFrames(self._home / collection.hex())
        there = _LASTING & {*kept.names()}
        seen = self._seen.setdefault(collection, set())
        if gone := sorted(seen - there):
            raise IntegrityError(
                f"expected {kept.folder / gone[0]}, which was written, it is gone; put it back "
                "where it was"
            )
        seen |= there
        return kept

    @property
    def _home(self) -> Path:
        return self._folder.home / FOLDER

    def _rest(self, session: bytes, parts: Sequence[bytes]) -> list[bytes]:
        """Nothing is to be done here for now; how far it is, in words that are signed."""
        if len(parts) != 1:
            raise ProtocolError("expected one RECEIPT, got other frames", culprit="relay")
        study, roster = approved(self._folder, unverified(parts[0]).study)
        frame = parse(parts[0], roster, study=study.id, session=session)
        if frame.tag is not Tag.RECEIPT or (frame.sender, frame.receiver) != (
            0,
            self._folder.index,
        ):
            raise ProtocolError("expected a RECEIPT for me, got another frame", culprit="relay")
        self._tell(study, session, said_in(frame.payload, roster.name(0)), parts[0])
        self.at_rest = True
        return []

    def _tell(self, study: Study, session: bytes, said: dict[str, Any], receipt: bytes) -> None:
        """How far a collection is, for this party's people."""
        self._log.state(
            state=WAITING,
            study=study.name,
            open_until=said["until"],
            deposits=said["come"],
            quorum=said["quorum"],
        )
        own = self._own_deposit(
            CollectionPlace(roster=self._folder.roster, study=study.id, id=session)
        )
        if own is not None and said["taken"] == own.hex():
            kept = self.kept(session)
            if kept.parts("receipt") is None:
                self._log.note("received", study=study.name)
                kept.keep("receipt", receipt)

    def _own_deposit(self, place: CollectionPlace) -> bytes | None:
        """The digest of this party's own deposit, if it has made one."""
        return None


def said_in(payload: bytes | memoryview, sender: str) -> dict[str, Any]:
    """What a RECEIPT says."""
    try:
        said = json.loads(bytes(payload))
        whole = all(type(said[key]) is int for key in ("until", "come", "quorum"))
        if whole and type(said["taken"]) is str:
            return {key: said[key] for key in ("until", "come", "quorum", "taken")}
        found = "others"
    except (ValueError, KeyError, TypeError, RecursionError):
        found = "another"
    raise ProtocolError(f"expected the words of a RECEIPT, got {found}", culprit=sender)
