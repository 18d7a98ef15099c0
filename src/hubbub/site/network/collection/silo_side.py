"""A silo in collections: a row, a deposit, and from then on the same bytes (docs/privacy.md P30).

    opened      COLLECT and NODE_KEYs: a silo takes part in one opening of a collection
    deposit     DEPOSIT, VECTOR and, where the study is over with it, the silo's last word
    receipt     the aggregator's word that it has them

The order is `opened`, the note of the id, the ledger's row, the deposit, its file. What is made is
sent from its file alone. A crash before that file leaves a row without a deposit, for which one is
made anew: what was made before has left nobody's memory. A file without a row (a ledger that was
set back) gets its row before anything is sent.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from hubbub import learning
from hubbub.core.errors import ProtocolError
from hubbub.core.ledger.entry import Entry
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.ledger.row_cost import attempts_of, kind_of
from hubbub.core.planning.plan_values import Plan
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import Query
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import Tag
from hubbub.core.protocol.round.projected_sum import LocalTask
from hubbub.core.protocol.round.round_parameters import Parameters, RoundParameters
from hubbub.core.runs.spending import set_caps
from hubbub.core.session.ask import Call
from hubbub.core.session.session_offer import SessionOffer
from hubbub.core.study.study import Study
from hubbub.core.verification.evidence.collecting import part_of
from hubbub.site.collected.collection_opening import CollectionPlace, Opening
from hubbub.site.collected.deposit import Deposit, read_deposit
from hubbub.site.network.collection.asked import AskedCollection
from hubbub.site.network.collection.party_side import PartySide
from hubbub.site.network.pace import keep_pace

TaskOf = Callable[[Study, SessionOffer, PlannedQuery[Query]], tuple[LocalTask, Parameters]]


class SiloSide(PartySide):
    """A silo's part in collections.

    Args:
        given: see `PartySide`.
        ledger: of its data set.
        task_of: its records, ready for a query's sum, and what the sum is taken at.
        attempts_of_study: how many attempts of a study's main query its ledger accounts for.
        source_of: its randomness for the next deposit.
        pace: seconds; a deposit leaves at a multiple.
        named: see `PartySide`.
    """

    def __init__(
        self,
        *given: Any,
        ledger: Ledger,
        task_of: TaskOf,
        attempts_of_study: Callable[[Study], int],
        source_of: Callable[[], SecureSource],
        pace: float = 0.0,
        **named: Any,
    ) -> None:
        super().__init__(*given, **named)
        self._ledger, self._task_of = ledger, task_of
        self._attempts_of_study, self._source_of = attempts_of_study, source_of
        self._pace = pace

    def answer_to(
        self,
        call: Call,
        asked: AskedCollection,
        plan: Plan,
        planned: PlannedQuery[Query],
        numbers: RoundParameters,
    ) -> list[bytes]:
        """The deposit; a silo is asked for nothing else."""
        if call is not Call.COLLECT_DEPOSIT:
            raise ProtocolError(f"expected a call for a silo, got {call.name}", culprit="relay")
        began = time.monotonic()
        opening = Opening.read(asked.place, asked.collect, asked.all(Tag.NODE_KEY))
        frames = self._open(asked, opening)
        if frames is None and self._folder.notes.result(asked.study.id):
            raise ProtocolError(
                f"expected no sum for {planned.purpose} after the RESULT that this silo has "
                "signed, got a COLLECT",
                culprit=asked.place.roster.name(0),
            )
        self._charge(asked, plan, planned)  # P15: before it exists, or is sent again
        if frames is None:
            task, parameters = self._task_of(asked.study, asked.offer, planned)
            maker = Deposit(
                keys=self._folder.keys,
                silo=self._folder.index,
                opening=opening,
                round_parameters=numbers,
                mask_stream=self._mask_stream,
            )
            with learning.threads_for(numbers.parameters):
                deposit = maker.made(task, numbers.sent(parameters), self._source_of())
            frames = [deposit.deposit, deposit.vector]
            if planned.purpose == plan.main.purpose:
                frames.append(self._last_word(asked))
            # P30: on disk before it leaves, and no other leaves
            self.kept(asked.place.id).keep("deposit", *frames)
            self._log.answered()
            self._log.note("deposited", study=asked.study.name, session=asked.place.id.hex())
            keep_pace(began, self._pace)
        return frames

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

    def _charge(self, asked: AskedCollection, plan: Plan, planned: PlannedQuery[Query]) -> None:
        """The row of this collection, once."""
        if 0 in self._rounds_paid(asked):
            return
        self._ledger.check_units(plan)
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
            study_attempts=attempts_of(plan),
        )

    def _last_word(self, asked: AskedCollection) -> bytes:
        """The silo's part of the evidence: the study is over here with this deposit (P15)."""
        study = asked.study
        self._ledger.close_study(study.id)
        paid = {entry.session for entry in self._ledger.entries() if entry.study == study.id}
        part = part_of(
            self._folder.keys,
            study=study.id,
            sessions={asked.place.id},
            unlisted=paid - {asked.place.id},
            ledger_head=self._ledger.head,
            ledger_rows=self._ledger.rows,
            attempts=self._attempts_of_study(study),
        )
        payload = json.dumps(part).encode()
        index = self._folder.index
        return asked.place.frame(Tag.CLOSED, index, payload, receiver=0).sealed(self._folder.keys)

    def _own_deposit(self, place: CollectionPlace) -> bytes | None:
        frames = self.kept(place.id).parts("deposit")
        return None if frames is None else read_deposit(place, frames[0]).digest
