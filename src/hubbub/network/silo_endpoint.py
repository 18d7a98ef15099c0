"""A silo in networked studies: its records, its ledger, and the pace of its answers.

The order is that of docs/privacy.md P15: the model is checked, the attempt is written to the ledger
and synced, and only then is the answer made (`session/silo_party.py`). Answers leave at multiples
of `pace`, so that how long a batch took does not tell how large it was.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from hubbub import learning
from hubbub.assurance import Ledger, attempts_of, entry_of, kind_of, part_of
from hubbub.errors import DataError, ProtocolError
from hubbub.network.endpoint import Endpoint, SessionState
from hubbub.planning import (
    EVALUATION,
    STANDARDISATION,
    STATISTICS,
    TRAINING,
    Plan,
    attempts_of_list,
    is_sparse,
    mechanism_of,
)
from hubbub.protocol import (
    Charge,
    JointSeed,
    LocalTask,
    Masking,
    RoundParameters,
    Session,
    Silo,
    Tag,
    parse,
    process_pool,
)
from hubbub.session import (
    Call,
    Membership,
    Party,
    RefusedError,
    SessionOffer,
    SiloParty,
    check_apart,
    lists_of,
    part_of_plan,
    purposes_of,
    round_parameters_of,
    sent_down,
)
from hubbub.study import Study
from hubbub.training import PreparedStudy, run_folder, standardised, write_statistics

_TELL_EVERY = 5.0
_AS_THEY_ARE = (STANDARDISATION, STATISTICS)  # what is summed of records that nothing was done to
_PACE = 0.02  # seconds; an answer leaves at a multiple of it


@dataclass(kw_only=True)
class _Study:
    """What a silo has ready for one study: its records, the model, the plan."""

    plain: PreparedStudy = field(repr=False)
    finished: list[bytes] = field(default_factory=list)


class SiloEndpoint(Endpoint):
    """A silo in networked studies.

    Args:
        data: the folder that a study's file names are relative to.
        ledger: the data set's ledger.
        device: where gradients are made.
        pace: seconds; an answer that took longer leaves at the next multiple.
        given, named: see `Endpoint`.
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
        self._studies: dict[bytes, _Study] = {}
        self._told = 0.0

    def close(self) -> None:
        """Close the ledger; nothing is answered from then on."""
        with self._lock:
            self._sessions.clear()
            self._books.close()

    def known(self, study: bytes, session: bytes) -> bool:
        """Whether the ledger has charged a session, before this process began."""
        return any((one.study, one.session) == (study, session) for one in self._ledger.entries())

    def check_able(self) -> None:
        """Whether the ledger would take a row now; raises if not, before others pay for nothing."""
        self._ledger.check_writable()

    def prepared(self, study: Study, offer: SessionOffer) -> tuple[Plan, RoundParameters]:
        """The plan from the records here; they are read once."""
        known = self._known(study)
        plan, numbers = part_of_plan(known.plain.plan, offer.purpose)
        self._featured(known.plain, offer)  # refuses what cannot be used
        down = sent_down(known.plain.plan, offer.purpose) or known.plain.initial.size
        return plan, round_parameters_of(plan, numbers or known.plain.numbers, parameters=down)

    def _known(self, study: Study) -> _Study:
        if study.id not in self._studies:
            check_apart(study)  # refuses, before records are read, what cannot be run apart
            plain = PreparedStudy.of(
                study, device=self._device, whose=[self.site.name], folder=self._data
            )
            _check_count(study, self.site.name, plain.counts[0])
            self._studies[study.id] = _Study(plain=plain)
        return self._studies[study.id]

    def _featured(self, plain: PreparedStudy, offer: SessionOffer) -> PreparedStudy:
        """The records as the session wants them: with standardised features, or as they are."""
        found, asked = offer.standardisation, plain.study.data.standardise
        if offer.purpose in _AS_THEY_ARE or (asked is None and found is None):
            return plain
        shape = plain.records[0].inputs.shape[1:]
        fits = asked and found and found.shift.shape == shape and found.is_within(asked.bound)
        if found is None or not fits:
            raise RefusedError(
                "plan",
                "expected shifts and scales of all features, within the study's bound, where it "
                "standardises them, and none elsewhere, got others from the aggregator",
            )
        return standardised(plain, found)

    def ready(self, study: Study) -> dict[str, Any]:
        """How many attempts this silo has paid for, by purpose: a resumed run counts them."""
        whole = self._known(study).plain.plan
        plans = {name: part_of_plan(whole, name)[0] for name in purposes_of(whole)}
        return {"attempts": {name: self._paid(study, one) for name, one in plans.items()}}

    def party(self, study: Study, offer: SessionOffer, plan: Plan, membership: Membership) -> Party:
        """The silo in a new session."""
        kind, epoch = kind_of(plan), mechanism_of(plan.study).epoch
        attempts_per_list = attempts_of_list(plan.study)
        most = ceil(membership.terms.steps / epoch)

        def silo(me: Membership, masking: Masking, seeds: JointSeed | None) -> Silo:
            # Made once the set-up has succeeded: an OPEN may be repeated for an hour.
            task = _task(self._featured(self._known(study).plain, offer), offer)
            return Silo(terms=me.terms, task=task, masking=masking, source=me.source, seeds=seeds)

        whole = attempts_of(self._known(study).plain.plan)

        def record(session: Session, charge: Charge) -> None:
            entry = entry_of(plan, session, charge, kind)
            self._ledger.charge(entry, attempts=most, study_attempts=whole)

        counts = study.data.counts
        return SiloParty(
            membership,
            silo,
            record=record,
            lists=lists_of(membership, counts, attempts_per_list, epoch, process_pool)
            if attempts_per_list
            else None,
            permit=partial(self._permit, study),
        )

    def answer_to(self, state: SessionState, call: Call, parts: Sequence[bytes]) -> list[bytes]:
        """The answer to a call of an open session, at this silo's pace if it is a sum."""
        if call is Call.CLOSE:
            return self._close(state, parts)
        if state.closed:
            raise RefusedError(
                "no-session", "expected a study that goes on, got a round after its end; open anew"
            )
        began, work = time.monotonic(), state.party.take(call, parts)
        with learning.threads_for(state.membership.terms.parameters):
            made = work()
        if call is Call.MODEL and not state.answered:
            state.answered = True
            if is_sparse(state.study):
                self.site.use_graph(state.study.id)
        if call is Call.FINISH:
            self._studies[state.study.id].finished.append(state.session)
        if call is (Call.SEED if state.membership.terms.needs_joint_seed else Call.MODEL):
            took = time.monotonic() - began
            if self._pace:
                time.sleep(ceil(took / self._pace) * self._pace - took)
            self.event_log.answered()
            if time.monotonic() - self._told > _TELL_EVERY:  # it takes a while
                self._tell(state)
        return made

    def _paid(self, study: Study, plan: Plan) -> int:
        """Attempts that the rows of a mechanism pay for: a row may be for a whole epoch (P9)."""
        return self._ledger.spent_on(study.id, kind_of(plan)) * mechanism_of(plan.study).epoch

    def _accounted(self, known: _Study) -> int:
        """Attempts of the training whose account has all that the ledger has charged (P16).

        Whoever asks for evaluations before they are due does not make the study's epsilon smaller.
        """
        plan = known.plain.plan
        early = [one.query.due_after(self._paid(plan.study, one.plan)) for one in plan.queries]
        return max(self._paid(plan.study, plan), *early, 0)

    def _tell(self, state: SessionState) -> None:
        """Where this silo stands, for its own people."""
        self._told = time.monotonic()
        known = self._known(state.study)
        whole = known.plain.plan
        spent = min(self._accounted(known), whole.study.training.steps)
        epsilon = whole.epsilon_after(max(spent, 1))  # before the training what is next is told
        self.event_log.progress(
            spent,
            whole.study.training.steps,
            study=state.study.name,
            purpose=state.offer.purpose,
            attempts=spent,
            epsilon=epsilon,
        )
        self.event_log.note("answered", attempts=spent, epsilon=round(epsilon, 4))

    def _close(self, state: SessionState, parts: Sequence[bytes]) -> list[bytes]:
        """The study is over: keep the model, and sign what the ledger holds."""
        if state.party.agreed is None:
            raise RefusedError("no-session", "expected a session that is set up, got its end")
        if len(parts) != 2:
            raise ProtocolError("expected CLOSE and RESULT, got other frames", culprit="relay")
        payload = self._from_aggregator(state, parts[0], Tag.CLOSE)
        known = self._known(state.study)
        listed = {bytes.fromhex(one) for one in _sessions(payload, self.roster.name(0))}
        plan = known.plain.plan
        paid = {one.session for one in self._ledger.entries() if one.study == state.study.id}
        part = part_of(
            self.site.keys,
            study=state.study.id,
            sessions=listed & (paid | set(known.finished)),
            ledger_head=self._ledger.head,
            ledger_rows=self._ledger.rows,
            attempts=self._accounted(known),
        )
        self._keep(state, plan, known, self._from_aggregator(state, parts[1], Tag.RESULT))
        for one in self._sessions.values():  # what was signed holds
            if one.study.id == state.study.id:
                one.closed = True
                if isinstance(one.party, SiloParty):
                    one.party.forget()
        self._tell(state)
        self.event_log.over()
        return [self._frame(state.session, state.study.id, Tag.CLOSED, json.dumps(part).encode())]

    def _keep(self, state: SessionState, plan: Plan, known: _Study, payload: bytes) -> None:
        """The trained model, or the statistics, in the silo's own folder."""
        size = known.plain.initial.size
        if len(payload) != 4 * size:
            raise ProtocolError(
                f"expected a model of {4 * size} bytes, got {len(payload)}",
                culprit=self.roster.name(0),
            )
        parameters = np.frombuffer(payload, dtype="<f4").copy()
        if not np.isfinite(parameters).all():
            raise ProtocolError(
                "expected a model of finite numbers, got others", culprit=self.roster.name(0)
            )
        folder = self.site.home / "models" / plan.study.id.hex()[:16]
        folder.mkdir(parents=True, exist_ok=True)
        trained = known.plain.trained(parameters)
        run_folder.write_study(folder, plan.study)
        run_folder.write_model(folder, plan, trained, known.plain.shape)
        if (found := state.offer.standardisation) is not None:
            run_folder.write_standardisation(folder, found)
        if not plan.study.trains:
            write_statistics(folder, plan, parameters)
        self.event_log.note("closed", study=plan.study.name, model=str(folder))

    def _from_aggregator(self, state: SessionState, data: bytes, tag: Tag) -> bytes:
        """The payload of a control message to everybody."""
        frame = parse(data, self.roster, study=state.study.id, session=state.session)
        if frame.tag is not tag or frame.sender != 0:
            raise ProtocolError(
                f"expected a {tag.name} of the aggregator, got another frame", culprit="relay"
            )
        return bytes(frame.payload)


def _task(prepared: PreparedStudy, offer: SessionOffer) -> LocalTask:
    """What the silo sums in a session."""
    if offer.purpose == TRAINING:
        return prepared.tasks[0]
    if offer.purpose == EVALUATION:
        return prepared.evaluation_tasks[0]
    if offer.purpose == STATISTICS:
        return prepared.statistic_tasks[0]
    return prepared.feature_sums[0]


def _check_count(study: Study, name: str, records: int) -> None:
    """A silo has as many records as everybody counts on (P10); how many else is in no log."""
    stated = dict(zip(study.parties.names, study.data.counts, strict=False)).get(name, records)
    if stated != records:
        raise DataError(
            f"expected {stated} records of {name}, as data.counts states, got another number; "
            "joint batches make it public: fix the records, or the study with everybody"
        )


def _sessions(payload: bytes, sender: str) -> list[str]:
    """The sessions of a study, hexadecimal, as the aggregator lists them."""
    try:
        return [bytes.fromhex(one).hex() for one in json.loads(payload)["sessions"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        found = "another"
    raise ProtocolError(f"expected the sessions of a study, got {found}", culprit=sender)
