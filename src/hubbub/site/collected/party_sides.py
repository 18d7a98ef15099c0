"""A party's side of collections: a request becomes frames, and what is on disk is all it knows.

A party may end at any moment; started again, it answers the same request with the same frames.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from io import BytesIO
from typing import Any

from cryptography.exceptions import InvalidTag

from hubbub import learning
from hubbub.core.errors import IntegrityError, ProtocolError
from hubbub.core.ledger.entry import Entry
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.ledger.tally import attempts_of, kind_of
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import Query
from hubbub.core.protocol.agreement.masks import MaskStream
from hubbub.core.protocol.primitives.identity import Keys
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import Tag, parse, unverified
from hubbub.core.protocol.round.local_task import LocalTask
from hubbub.core.protocol.round.round_parameters import Parameters
from hubbub.core.runs.spending import set_caps
from hubbub.core.session.ask import Call
from hubbub.core.session.offer import RefusedError, SessionOffer
from hubbub.core.study.study import Study
from hubbub.site.collected.collection_frames import CollectionPlace, Deposit, Opening
from hubbub.site.collected.collection_request import AskedCollection, Prepare
from hubbub.site.collected.node import CollectionNode, NodeState
from hubbub.site.network.envelope import request, request_digest
from hubbub.site.network.event_log import WAITING, EventLog
from hubbub.site.network.kept_frames import FOLDER, KEY, OPENED, KeptFrames
from hubbub.site.network.party_folder import PartyFolder
from hubbub.site.network.waiting import keep_pace

_LASTING = frozenset((OPENED, "deposit", "promise", "total"))  # files that are never removed


class PartySide(ABC):
    """A silo's or a compute node's part in collections."""

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
        """The frames of the answer."""
        if call is Call.COLLECT_REST:
            # Nothing is to be done here for now; how far it is, in words that are signed.
            if len(parts) != 1:
                raise ProtocolError("expected one RECEIPT, got other frames", culprit="relay")
            study, roster = self._folder.approved_study(unverified(parts[0]).study)
            frame = parse(parts[0], roster, study=study.id, session=session)
            if frame.tag is not Tag.RECEIPT or (frame.sender, frame.receiver) != (
                0,
                self._folder.index,
            ):
                raise ProtocolError("expected a RECEIPT for me, got another frame", culprit="relay")
            self._tell(study, session, said_in(frame.payload, roster.name(0)), parts[0])
            self.at_rest = True
            return []
        self.at_rest = False
        asked = AskedCollection.of(self._folder, session, parts, self._prepare)
        frames = self.answer_to(call, asked)
        self.kept(session)  # what was written just now is seen
        if not self._folder.approves(asked.study.id):  # a sum takes a while
            raise RefusedError("not-approved", "expected a study that is still approved here")
        return frames

    @abstractmethod
    def answer_to(self, call: Call, asked: AskedCollection) -> list[bytes]:
        """The answer to a call of a collection that this party takes part in."""

    def kept(self, collection: bytes) -> KeptFrames:
        """The files of a collection.

        Raises:
            IntegrityError: one is not there that this process has seen, and is never removed.
        """
        kept = KeptFrames(self._folder.home / FOLDER / collection.hex())
        there = _LASTING & {*kept.names()}
        seen = self._seen.setdefault(collection, set())
        if gone := sorted(seen - there):
            raise IntegrityError(
                f"expected {kept.folder / gone[0]}, which was written, it is gone; put it back "
                "where it was"
            )
        seen |= there
        return kept

    def _tell(self, study: Study, session: bytes, said: dict[str, Any], receipt: bytes) -> None:
        """How far a collection is, for this party's people."""
        kept = self.kept(session)
        own = kept.parts("deposit")  # which a node has none of
        why, mine = "", "" if own is None else unverified(own[0]).digest.hex()
        if said["taken"] not in ("", mine):  # P30: only a silo that was set back makes two
            why = "it has another than this folder, which was set back"
        elif not said["taken"] and self._folder.role == "silo":  # of which none is due
            is_closed = said["come"] >= said["quorum"]
            why = "the sum is closed" if is_closed else "the nodes' keys come first; join later"
        if why and why != self._log.current("no_deposit"):
            self._log.note("no-deposit", study=study.name, why=why)
        self._log.state(
            state=WAITING,
            study=study.name,
            open_until=said["until"],
            deposits=said["come"],
            quorum=said["quorum"],
            no_deposit=why,
        )
        if mine and said["taken"] == mine and kept.parts("receipt") is None:
            self._log.note("received", study=study.name)
            kept.keep("receipt", receipt)


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


# A silo in collections: a row, a deposit, and from then on the same bytes (docs/privacy.md P30).
#
#     opened      COLLECT and NODE_KEYs: a silo takes part in one opening of a collection
#     deposit     DEPOSIT, VECTOR and, where the study is over with it, the silo's last word
#     receipt     the aggregator's word that it has them
#
# It states its ledger's head before it pays, and beside the deposit: whoever keeps the one notices
# an older copy, and whoever keeps the other knows of the row (P15).
#
# The order is `opened`, the note of the id, the ledger's row, the deposit, its file. What is made
# is sent from its file alone. A crash before that file leaves a row without a deposit, for which
# one is made anew: what was made before has left nobody's memory. A file without a row (a ledger
# that was set back) gets its row before anything is sent.

# Its records, ready for a query's sum, and what the sum is taken at.
TaskOf = Callable[[Study, SessionOffer, PlannedQuery[Query]], tuple[LocalTask, Parameters]]


class SiloSide(PartySide):
    """A silo's part in collections; see `PartySide` for what is given beside its own."""

    def __init__(
        self,
        *given: Any,
        ledger: Ledger,
        task_of: TaskOf,
        last_word: Callable[[Study, set[bytes]], dict[str, Any]],  # closes a study, and signs it
        source_of: Callable[[], SecureSource],  # its randomness for the next deposit
        ready: Callable[..., bytes],  # the READY of a collection and a study
        pace: float = 0.0,  # seconds; a deposit leaves at a multiple
        **named: Any,
    ) -> None:
        super().__init__(*given, **named)
        self._ledger, self._task_of = ledger, task_of
        self._last_word, self._source_of = last_word, source_of
        self._ready, self._pace = ready, pace

    def answer_to(self, call: Call, asked: AskedCollection) -> list[bytes]:
        """What its ledger is, or the deposit; a silo is asked for nothing else."""
        if call is Call.COLLECT_KEY:
            return [self._stated(call, asked)]
        if call is not Call.COLLECT_DEPOSIT:
            raise ProtocolError(f"expected a call for a silo, got {call.name}", culprit="relay")
        began = time.monotonic()
        opening = Opening.read(asked.place, asked.collect, asked.all(Tag.NODE_KEY))
        frames = self._open(asked, opening)
        if frames is None and self._folder.notes.result(asked.study.id):
            raise ProtocolError(
                f"expected no sum for {asked.planned.purpose} after the RESULT that this silo has "
                "signed, got a COLLECT",
                culprit=asked.place.roster.name(0),
            )
        self._charge(asked)  # P15: before it exists, or is sent again
        if frames is None:
            numbers = asked.numbers
            task, parameters = self._task_of(asked.study, asked.offer, asked.planned)
            maker = Deposit(
                keys=self._folder.keys,
                silo=self._folder.index,
                opening=opening,
                round_parameters=numbers,
                mask_stream=self._mask_stream,
            )
            # Where no model is trained, nothing needs torch.
            with learning.threads_for(numbers.parameters) if asked.study.model else nullcontext():
                deposit = maker.made(task, numbers.sent(parameters), self._source_of())
            frames = [deposit.deposit, deposit.vector]
            if asked.planned.purpose == asked.plan.main.purpose:
                # The study is over here with this deposit (P15).
                payload = json.dumps(self._last_word(asked.study, {asked.place.id})).encode()
                word = asked.place.frame(Tag.CLOSED, self._folder.index, payload, receiver=0)
                frames.append(word.sealed(self._folder.keys))
            # P30: on disk before it leaves, and no other leaves
            self.kept(asked.place.id).keep("deposit", *frames)
            self._log.answered()
            self._log.note("deposited", study=asked.study.name)
            keep_pace(began, self._pace)
        return [self._stated(call, asked), *frames]

    def _stated(self, call: Call, asked: AskedCollection) -> bytes:
        """The READY to one request: a relay shows no older one as its answer (P15)."""
        asks = request(call, asked.place.id, asked.sent)
        return self._ready(asked.place.id, asked.study, to=request_digest(asks))

    def _open(self, asked: AskedCollection, opening: Opening) -> list[bytes] | None:
        """Take part in this opening of the collection, and in no other; what was deposited."""
        kept, shown = self.kept(asked.place.id), [asked.collect, *asked.all(Tag.NODE_KEY)]
        before, deposit = kept.in_order({"opened": len(shown), "deposit": 2})
        paid = self._rounds_paid(asked)
        if any(paid):  # P15: a row of a session, whose rounds count from 1, pays for no collection
            raise ProtocolError(
                "expected a new collection, got the id of a session", culprit="relay"
            )
        if before is None:
            if not self._folder.notes.open_session(asked.place.id) and paid:
                raise ProtocolError(
                    "expected a new collection, got the id of an old session", culprit="relay"
                )
            kept.keep("opened", *shown)
            return None
        if Opening.read(asked.place, before[0], before[1:]).q != opening.q:
            raise ProtocolError(
                "expected the opening that I have taken part in, got another of the same "
                "collection: the aggregator has signed two, or a node two keys",
                culprit=self._liar(asked, before),
            )
        return deposit

    def _rounds_paid(self, asked: AskedCollection) -> set[int]:
        """The rounds of the ledger's rows of this id: 0 is a collection's own."""
        own, entries = (asked.place.study, asked.place.id), self._ledger.entries()
        return {entry.round for entry in entries if (entry.study, entry.session) == own}

    def _liar(self, asked: AskedCollection, before: list[bytes]) -> str:
        """Who has signed two things for one place."""
        place = asked.place
        both = [place.parsed(one, Tag.COLLECT, 0).digest for one in (before[0], asked.collect)]
        if both[0] != both[1]:
            return place.roster.name(0)
        mine = {place.parsed(one, Tag.NODE_KEY).digest for one in before[1:]}
        keys = [place.parsed(one, Tag.NODE_KEY) for one in asked.all(Tag.NODE_KEY)]
        return next(place.roster.name(key.sender) for key in keys if key.digest not in mine)

    def _charge(self, asked: AskedCollection) -> None:
        """The row of this collection, once."""
        if 0 in self._rounds_paid(asked):
            return
        planned = asked.planned
        # Before the row: whoever dies behind it knows its time.
        named = {"study": asked.study.name, "purpose": planned.purpose}
        self._log.note("charging", **named, session=asked.place.id.hex())
        self._ledger.check_units(asked.plan)
        set_caps([self._ledger], asked.study.privacy)  # P24: before the first charge
        self._ledger.charge(
            Entry(
                study=asked.place.study,
                session=asked.place.id,
                round=0,
                attempt=0,
                kind=kind_of(planned),
                certificate=planned.certificate,
            ),
            attempts=planned.mechanism.rows,
            study_attempts=attempts_of(asked.plan),
            study_certificate=asked.plan.certificate,
        )


# A compute node in collections: its key, its promise and its total, each on disk before it leaves.
#
#     key         the secret key of this collection, sealed to the node's own
#     opened      COLLECT, NODE_KEY
#     promise     SET, SET_PROMISE
#     total       SET_TOTAL; then `key` is overwritten and removed
#
# Nothing else than that, and a withdrawal of the study (`party_folder.py`), removes a key: what is
# not to be seen for a moment, or cannot be read, is no sign of either.
#
# The secret is sealed to the long-term key, which a passphrase may close: whoever reads this folder
# alone opens nothing (docs/privacy.md P30).

_PARTS = {"signing": 32, "lattice": 64, "curve": 32}  # bytes


class NodeSide(PartySide):
    """A compute node's part in collections; see `PartySide`."""

    def answer_to(self, call: Call, asked: AskedCollection) -> list[bytes]:
        """A key, a look at seeds, a promise, or a total."""
        node = CollectionNode(
            keys=self._folder.keys,
            node=self._folder.index,
            place=asked.place,
            round_parameters=asked.numbers,
            mask_stream=self._mask_stream,
        )
        state = self._state(asked.place)
        if state is not None:
            node.check_same(state, asked.collect)
        if call is Call.COLLECT_KEY:
            return [self._begun(node, asked, state).node_key]
        if state is None:
            raise ProtocolError(
                "expected a collection that I have made a key for, got another: this machine was "
                "set back to an earlier state, or the id is wrong; the collection is lost",
                culprit="relay",
            )
        keys, deposits = asked.all(Tag.NODE_KEY), asked.all(Tag.DEPOSIT)
        if call is Call.COLLECT_LOOK:
            return [node.look(state, keys, deposits)]
        if call is Call.COLLECT_PROMISE:
            after = node.promised(state, keys, asked.one(Tag.SET), deposits)
            self._keep(asked.place, state, after)
            return [after.promise]
        if call is Call.COLLECT_TOTAL:
            after = node.told(state, keys, deposits, asked.all(Tag.SET_PROMISE))
            self._keep(asked.place, state, after)
            self._log.answered()
            self._log.note("told", study=asked.study.name)
            return [after.total]
        raise ProtocolError(f"expected a call for a node, got {call.name}", culprit="relay")

    def _begun(
        self, node: CollectionNode, asked: AskedCollection, state: NodeState | None
    ) -> NodeState:
        """The key of a collection, made once."""
        if state is not None:
            return state
        # A key without its `opened` was shown to nobody, or that file is not to be seen at this
        # moment: it is taken, and never made anew in the place of one that seeds are sealed to.
        kept = self.kept(asked.place.id)
        sealed = kept.erasable(KEY)
        begun = node.begin(asked.collect, self._secret(asked.place, sealed[0]) if sealed else None)
        if not sealed:
            assert begun.secret is not None, "a new state has its key"  # noqa: S101
            kept.erase(KEY)  # one that was overwritten, if any
            kept.keep(KEY, self._sealed(asked.place, begun.secret))
        kept.keep(OPENED, begun.collect, begun.node_key)  # from now on it is this key
        return begun

    def _state(self, place: CollectionPlace) -> NodeState | None:
        """All that is on disk; what a crash has left half done is done now."""
        kept = self.kept(place.id)
        opened, promise, total = kept.in_order({OPENED: 2, "promise": 2, "total": 1})
        if opened is None:
            return None
        place.parsed(opened[0], Tag.COLLECT, 0)  # else the id is in use, in another study
        state = NodeState(collect=opened[0], node_key=opened[1], secret=None)
        if promise:
            state = replace(state, fixed=promise[0], promise=promise[1])
        if total:
            state = replace(state, total=total[0])
            kept.erase(KEY)
            return state
        key = kept.erasable(KEY)
        return replace(state, secret=self._secret(place, key[0]) if key else None)

    def _keep(self, place: CollectionPlace, before: NodeState, after: NodeState) -> None:
        """What is new in a state, in the order in which a crash may come."""
        kept = self.kept(place.id)
        if after.promise != before.promise:
            kept.keep("promise", after.fixed, after.promise)
        if after.total != before.total:
            kept.keep("total", after.total)
        if after.secret is None:
            kept.erase(KEY)

    def _sealed(self, place: CollectionPlace, secret: Keys) -> bytes:
        parts = secret.secret_parts()
        whole = b"".join(parts[name] for name in _PARTS)
        return self._folder.keys.identity.seal(whole, _context(place))

    def _secret(self, place: CollectionPlace, sealed: bytes) -> Keys:
        """The keys that `_sealed` has sealed."""
        try:
            whole_key = self._folder.keys.open(sealed, _context(place))
        except (InvalidTag, ValueError):
            raise IntegrityError(
                f"expected the key of collection {place.id.hex()[:16]} as it was kept, it was "
                "altered; the collection is lost"
            ) from None
        whole = BytesIO(whole_key)
        parts = {name: whole.read(size) for name, size in _PARTS.items()}
        return Keys.restored(self._folder.name, "node", **parts)


def _context(place: CollectionPlace) -> bytes:
    return b"hubbub node key v1" + place.study + place.id
