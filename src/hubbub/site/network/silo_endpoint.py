"""A silo in networked studies: its records, its ledger, and the pace of its answers.

The order is that of docs/privacy.md P15: the model is checked, the attempt is written to the ledger
and synced, and only then is the answer made (`session/party.py`). So it is with the end: what
is signed of a study comes after the row that closes it, and no answer after that. Answers leave at
multiples of `pace`, so that how long a batch took does not tell how large it was.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, nullcontext, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hubbub import learning
from hubbub.core.disk import json_value, read_text, write_text
from hubbub.core.errors import (
    DataError,
    HubbubError,
    IntegrityError,
    NoRoomError,
    ProtocolError,
    loggable,
)
from hubbub.core.ledger.head_statement import Witnessed
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.ledger.tally import attempts_of, entry_of, kind_of
from hubbub.core.planning.noise_shares import is_sparse
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import Query, QueryState, SteppedQuery
from hubbub.core.planning.study_plan import plan
from hubbub.core.protocol.agreement.key_agreement import Session
from hubbub.core.protocol.primitives.wire import EVERYBODY, Tag
from hubbub.core.protocol.round.local_task import LocalTask
from hubbub.core.protocol.round.masking import Attempt
from hubbub.core.protocol.round.round_parameters import Parameters
from hubbub.core.protocol.round.silo import Charge
from hubbub.core.runs.prepared_study import PreparedStudy
from hubbub.core.runs.spending import set_caps
from hubbub.core.session.ask import Call
from hubbub.core.session.offer import RefusedError, SessionOffer, check_apart, planned_for
from hubbub.core.session.party import Membership, Party, SiloParty
from hubbub.core.study import silo_records
from hubbub.core.study.study import Study
from hubbub.core.verification.evidence.collecting import part_of
from hubbub.learning.runs.preparing import prepare
from hubbub.site.network.endpoint import Endpoint, SessionState
from hubbub.site.network.event_log import QUEUED
from hubbub.site.network.waiting import keep_pace

_UNUSABLE = (HubbubError, ValueError, LookupError, TypeError, OSError)
_PACE = 0.02  # seconds; an answer leaves at a multiple of it


class SiloEndpoint(Endpoint):
    """A silo in networked studies.

    Args:
        data: the folder that a study's file names are relative to.
        pace: seconds; an answer that took longer leaves at the next multiple.
    """

    def __init__(
        self,
        *given: Any,
        data: Path,
        ledger: Path,
        device: str = "auto",
        pace: float = _PACE,
        **named: Any,
    ) -> None:
        super().__init__(*given, **named)
        self._data, self._device, self._pace = data, device, pace
        self._books = ExitStack()
        self._ledger = self._books.enter_context(Ledger(ledger))
        self._books.enter_context(self._ledger.held())  # no other process charges it meanwhile
        self._side = self.side(
            ledger=self._ledger,
            task_of=self._task_of,
            last_word=self._last_word,
            source_of=lambda: self._source_of(self._begun),
            ready=self._ready,
            pace=pace,
        )

    def close(self) -> None:
        """Close the ledger; nothing is answered from then on."""
        with self._lock:
            for key in list(self._sessions):
                self._leave(key)
            self._books.close()

    def known(self, study: bytes, session: bytes) -> bool:
        """Whether the ledger has charged a session, before this process began."""
        entries = self._ledger.entries()
        return any((entry.study, entry.session) == (study, session) for entry in entries)

    def signs_end(self, study: bytes) -> bool:
        """Only of a study of which a session was set up with this silo."""
        return study in self._finished

    def check_able(self, begins: Plan | None = None) -> None:
        """Whether the ledger would take a row now; raises if not, before others pay for nothing."""
        self._ledger.check_writable()
        if begins is None:
            return
        try:
            self._ledger.check_room(begins, beside=self._plans_of)
        except NoRoomError as error:  # its people alone can make room
            self.log_of(begins.study).state(state=QUEUED, why=loggable(error))
            raise
        if self.log_of(begins.study).current("state") == QUEUED:
            self._waits_no_more(begins.study)

    def _plans_of(self, studies: Iterable[bytes]) -> list[Plan]:
        """Of those of some studies that are approved here, and not noted to be over."""
        left = (study for study in studies if not self.party_folder.has_ended(study))
        found = (self.party_folder.study(study, unread=True) for study in left)
        return [plan(study) for study in found if study is not None]

    def prepared(self, study: Study, offer: SessionOffer) -> tuple[Plan, PlannedQuery[Query]]:
        """The plan from the records here; they are read once."""
        prepared = self._prepared(study)
        planned = planned_for(prepared.plan, offer.purpose)
        self._featured(prepared, planned.query, offer)  # refuses what cannot be used
        return prepared.plan, planned

    def _prepared(self, study: Study) -> PreparedStudy:
        if study.id not in self._studies:
            check_apart(study)  # refuses, before records are read, what cannot be run apart
            silo_records.check_kept(study, self.party_folder.name, self._data)
            prepared = prepare(
                study, device=self._device, whose=[self.party_folder.name], folder=self._data
            )
            _check_count(study, self.party_folder.name, prepared.counts[0])
            self._studies[study.id] = prepared
        held: PreparedStudy = self._studies[study.id]  # its records, as they are
        return held

    def _featured(self, plain: PreparedStudy, query: Query, offer: SessionOffer) -> PreparedStudy:
        """The records as a query wants them: with standardised features, or as they are."""
        standardisation, asked = offer.standardisation, plain.study.data.standardise
        if query.takes_raw_records or (asked is None and standardisation is None):
            return plain
        records = plain.silos[0].records
        if not (
            asked
            and standardisation
            and records is not None
            and standardisation.shift.shape == records.inputs.shape[1:]
            and standardisation.is_within(asked.bound)
        ):
            raise RefusedError(
                "plan",
                "expected shifts and scales of all features, within the study's bound, where it "
                "standardises them, and none elsewhere, got others from the aggregator",
            )
        return plain.standardised(standardisation)

    def _task_of(
        self, study: Study, offer: SessionOffer, planned: PlannedQuery[Query]
    ) -> tuple[LocalTask, Parameters]:
        """The records, ready for a query's first sum, and what it is taken at."""
        prepared = self._featured(self._prepared(study), planned.query, offer)
        (task,) = prepared.tasks_of(planned.query)
        assert isinstance(planned.query, SteppedQuery), "a single sum is a step"  # noqa: S101
        return task, prepared.start(planned.query).parameters

    def ready(self, study: Study) -> dict[str, Any]:
        """How many attempts this silo has paid for, by purpose, and the head of its ledger.

        A resumed run counts them; the head is witnessed (docs/privacy.md P15).
        """
        plan = self._prepared(study).plan
        attempts = {query.purpose: self._paid(study, query) for query in plan.queries}
        statement = self._ledger.statement(f"{datetime.now(UTC):%F}")
        return {"attempts": attempts, "ledger": statement.to_dict()}

    def party(
        self,
        study: Study,
        offer: SessionOffer,
        plan: Plan,
        planned: PlannedQuery[Query],
        membership: Membership,
    ) -> Party:
        """The silo in a new session."""
        kind, mechanism = kind_of(planned), planned.mechanism

        def task() -> LocalTask:
            # Made once the set-up has succeeded: an OPEN may be repeated for an hour.
            prepared = self._featured(self._prepared(study), planned.query, offer)
            (task,) = prepared.tasks_of(planned.query)
            return task

        study_attempts = attempts_of(plan)

        def record(session: Session, charge: Charge) -> None:
            entry = entry_of(planned, session, charge, kind)
            self._ledger.check_units(plan)
            set_caps([self._ledger], study.privacy)
            self._ledger.charge(
                entry,
                attempts=mechanism.rows,
                study_attempts=study_attempts,
                study_certificate=plan.certificate,
            )

        return SiloParty(
            membership,
            task,
            check=partial(self._check_state, (study.id, offer.purpose), planned),
            record=record,
            permit=partial(self._permit, study),
        )

    def answer_to(self, state: SessionState, call: Call, parts: Sequence[bytes]) -> list[bytes]:
        """The answer to a call of an open session, at this silo's pace if it is a sum."""
        if call is Call.CLOSE:
            return self._close(state, parts)
        if call is Call.RESULT:
            # The model that all that is asked last is asked at is noted and signed once for ever:
            # nothing else is summed for the study from then on, so nobody shows two models.
            query = state.plan.planned(state.offer.purpose)
            if len(parts) != 1 or query is None or not query.query.is_asked_last:
                raise ProtocolError("expected no RESULT in this session, got one", culprit="relay")
            payload = self.from_aggregator(*state.named, parts[0], Tag.RESULT)
            result = self._model_in(payload, self._prepared(state.study))
            digest = self._noted(state.study, payload)
            state.result = result  # which no session is asked at before it is noted
            tag = Tag.RESULT_SIGNED
            return [self._frame(state.session, state.study.id, tag, digest, receiver=EVERYBODY)]
        began, work = time.monotonic(), state.party.take(call, parts)
        numbers = state.membership.round_parameters.parameters
        # torch takes seconds and 180 MB to load, and works where there is a model.
        with learning.threads_for(numbers) if state.study.model else nullcontext():
            answered = work()
        if call is Call.MODEL and not state.answered:
            state.answered = True
            if is_sparse(state.study.parties):
                self.party_folder.notes.use_graph(state.study.id)
        by_seed = state.membership.round_parameters.needs_joint_seed
        if call is (Call.SEED if by_seed else Call.MODEL):
            keep_pace(began, self._pace)
            self._attempt_answered(state)
        return answered

    def _noted(self, study: Study, result: bytes | memoryview) -> bytes:
        """The digest of a study's RESULT, which is on disk from now on."""
        digest = hashlib.sha256(result).digest()
        if not self.party_folder.notes.take_result(study.id, digest):
            raise ProtocolError(
                "expected the RESULT that this silo has noted before, got another",
                culprit=self.roster.name(0),
            )
        return digest

    def _check_state(
        self, key: tuple[bytes, str], planned: PlannedQuery[Query], attempt: Attempt
    ) -> None:
        """Refuse what cannot be asked at, as far as it is known here (docs/evidence.md)."""
        state = self._sessions[key]
        query, result, aggregator = planned.query, state.result, self.roster.name(0)
        if query.is_asked_last and result is None:
            raise ProtocolError(
                f"expected RESULT before {planned.purpose}, which is asked at it, got none",
                culprit=aggregator,
            )
        if not query.is_asked_last and self.party_folder.notes.result(state.study.id):
            raise ProtocolError(
                f"expected no sum for {planned.purpose} after the RESULT that this silo has "
                "signed, got a MODEL",
                culprit=aggregator,
            )
        if not isinstance(query, SteppedQuery):
            return
        plain = self._prepared(state.study)
        begin = plain.start(query).parameters if result is None else query.start(result)
        most = attempt.round - 1
        if not state.study.parties.dropouts:  # no sum is without this silo
            most = min(most, self._paid(state.study, planned))
        if why := query.misfit(attempt.parameters, begin, most):
            raise ProtocolError(
                f"expected a MODEL of {planned.purpose} that follows from the sums before it, got "
                f"another: {why}",
                culprit=aggregator,
            )

    def _paid(self, study: Study, planned: PlannedQuery[Query]) -> int:
        """Attempts that the rows of a query pay for: a row may be for a whole epoch (P9)."""
        return self._ledger.spent_on(study.id, kind_of(planned)) * planned.mechanism.epoch

    def _accounted(self, prepared: PreparedStudy) -> int:
        """Attempts of the main query whose account has all that the ledger has charged (P16).

        Whoever asks for evaluations before they are due does not make the study's epsilon smaller.
        """
        plan = prepared.plan
        paid = {query.purpose: self._paid(plan.study, query) for query in plan.queries}
        early = [planned.mechanism.due_after(paid[planned.purpose]) for planned in plan.beside]
        return max(paid[plan.main.purpose], *early, 0)

    def _tell(self, state: SessionState) -> None:
        """Where this silo stands, for its own people."""
        self._told = time.monotonic()
        prepared = self._prepared(state.study)
        plan = prepared.plan
        spent = min(self._accounted(prepared), plan.mechanism.steps)
        epsilon = plan.epsilon_after(max(spent, 1))  # before the training what is next is told
        log = self.log_of(state.study)
        log.progress(
            spent,
            plan.mechanism.steps,
            study=state.study.name,
            purpose=state.offer.purpose,
            attempts=spent,
            epsilon=epsilon,
        )
        log.note("answered", attempts=spent, epsilon=round(epsilon, 4))

    def _close(self, state: SessionState, parts: Sequence[bytes]) -> list[bytes]:
        """The study is over: keep the model, and sign what the ledger holds."""
        if state.party.agreed is None:
            raise RefusedError("no-session", "expected a session that is set up, got its end")
        if len(parts) != 2:
            raise ProtocolError("expected CLOSE and RESULT, got other frames", culprit="relay")
        payload = self.from_aggregator(*state.named, parts[0], Tag.CLOSE)
        prepared = self._prepared(state.study)
        listed, heads = _told(bytes(payload), self.roster.name(0))
        self._keep_heads(heads)
        result = self.from_aggregator(*state.named, parts[1], Tag.RESULT)
        self._keep(state, prepared, result)
        part = self._last_word(state.study, listed)
        self._tell(state)
        self.end(state.study)
        closed = self._frame(state.session, state.study.id, Tag.CLOSED, json.dumps(part).encode())
        return [closed, self._ready(state.session, state.study)]

    def told_heads(self, payload: bytes) -> None:
        """See `Endpoint`: who was set back is shown its own newest statement."""
        with suppress(ProtocolError):
            self._keep_heads(_told(payload, self.roster.name(0))[1])

    def end(self, study: Study) -> None:
        """See `Endpoint.end`; what was kept of the records for it is removed."""
        silo_records.forget(study, self.party_folder.name, self._data)
        super().end(study)

    def _last_word(self, study: Study, listed: set[bytes]) -> dict[str, Any]:
        """What the ledger holds of a study, which is closed for ever before it is signed (P15).

        Args:
            study: it.
            listed: the sessions that have a transcript at the aggregator.
        """
        self._ledger.close_study(study.id)
        paid = {entry.session for entry in self._ledger.entries() if entry.study == study.id}
        return part_of(
            self.party_folder.keys,
            study=study.id,
            sessions=listed & paid,
            unlisted=paid - listed,
            ledger_head=self._ledger.head,
            ledger_rows=self._ledger.rows,
            attempts=self._accounted(self._prepared(study)),
        )

    def _keep(
        self, state: SessionState, prepared: PreparedStudy, payload: bytes | memoryview
    ) -> None:
        """What the study has given, in the silo's own folder."""
        from hubbub.learning.runs.result import write_result  # which takes long to import

        plan = prepared.plan
        parameters = self._model_in(payload, prepared)
        try:
            plan.main.query.check_complete(QueryState(parameters=parameters))
        except IntegrityError:
            raise ProtocolError(
                "expected as many sums as answers need, got fewer", culprit=self.roster.name(0)
            ) from None
        self._noted(plan.study, payload)
        standardisation = state.offer.standardisation
        # It was in no session that said how features are standardised (P29).
        if plan.study.data.standardise and standardisation is None:
            self.event_log.note("closed", study=plan.study.name, model="the aggregator's folder")
            return
        folder = self.party_folder.model(plan.study.id)
        folder.mkdir(parents=True, exist_ok=True)
        write_result(folder, prepared, parameters, standardisation)
        self.event_log.note("closed", study=plan.study.name, model=str(folder))

    def _model_in(self, payload: bytes | memoryview, prepared: PreparedStudy) -> Parameters:
        """The parameters in a RESULT."""
        size = prepared.initial.size
        if len(payload) != 4 * size:
            raise ProtocolError(
                f"expected a model of {4 * size} bytes, got {len(payload)}",
                culprit=self.roster.name(0),
            )
        parameters = np.frombuffer(payload, dtype="<f4")
        if not np.isfinite(parameters).all():
            raise ProtocolError(
                "expected a model of finite numbers, got others", culprit=self.roster.name(0)
            )
        return parameters

    def _keep_heads(self, heads: Any) -> None:
        """What the aggregator has witnessed of everybody's ledgers, the newest of each.

        It is of use where a folder is restored: nothing here rests on it, so what cannot be read of
        it is left out.
        """
        for name in map(self.roster.name, self.roster.silos):
            path = self.party_folder.witnessed(name)
            with suppress(*_UNUSABLE):
                head = Witnessed.of(heads[name])
                with suppress(*_UNUSABLE):
                    before = Witnessed.of(json_value(read_text(path)))
                    if not head.statement.follows(before.statement):
                        continue
                path.parent.mkdir(exist_ok=True)
                write_text(path, json.dumps(head.to_dict()) + "\n", durable=False)


def _check_count(study: Study, name: str, records: int) -> None:
    """A silo has as many records as everybody counts on (P10); how many else is in no log."""
    stated = dict(zip(study.parties.names, study.data.counts, strict=False)).get(name, records)
    if stated != records:
        raise DataError(
            f"expected {stated} records of {name}, as data.counts states, got another number; "
            "joint batches make it public: fix the records, or the study with everybody"
        )


def _told(payload: bytes, sender: str) -> tuple[set[bytes], Any]:
    """What a CLOSE lists: the sessions of a study, and heads of ledgers, if any."""
    try:
        told = json.loads(payload)
        return {*map(bytes.fromhex, told["sessions"])}, told.get("heads")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        found = "another"
    raise ProtocolError(f"expected the sessions of a study, got {found}", culprit=sender)
