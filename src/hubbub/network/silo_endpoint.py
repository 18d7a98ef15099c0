"""A silo's seat: its records, its ledger, and the round as `Silo` plays it.

The order is that of docs/privacy.md P15: the model is checked, the attempt is written to the ledger
and synced, and only then is the answer made. Answers leave at multiples of `pace`, so that how long
a batch took does not tell how large it was.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from hubbub import learning
from hubbub.assurance.evidence import part_of
from hubbub.assurance.ledger import Kind, Ledger
from hubbub.assurance.ledger.charging import entry_of, kind_of
from hubbub.disk import write_text
from hubbub.errors import HubbubError, ProtocolError
from hubbub.network.endpoint import Draw, Endpoint, Handler, Sitting, planned
from hubbub.network.envelope import Call
from hubbub.network.event_log import EventLog
from hubbub.network.party_folder import PartyFolder
from hubbub.network.timeouts import PACE
from hubbub.planning import (
    EVALUATION,
    STANDARDISATION,
    TRAINING,
    Plan,
    attempts_of_list,
    mechanism_of,
)
from hubbub.protocol.agreement.key_agreement import Session
from hubbub.protocol.agreement.mask_stream import MaskStream
from hubbub.protocol.round import LocalTask, Masking, RoundParameters, Silo
from hubbub.protocol.wire import Tag, parse
from hubbub.session.in_process import round_parameters_of
from hubbub.session.session_offer import RefusedError, SessionOffer, part_of_plan, purposes_of
from hubbub.session.silo_token_lists import Lists, check_count
from hubbub.study import Study
from hubbub.study.standardisation import FeatureSums
from hubbub.training import run_folder
from hubbub.training.auxiliary_sums import standardised
from hubbub.training.prepared_study import PreparedStudy

_TELL_EVERY = 5.0


@dataclass(frozen=True, kw_only=True)
class _Playing:
    """A session in which rounds may come, and how its attempts are charged."""

    silo: Silo
    agreed: Session = field(repr=False)
    plan: Plan = field(repr=False)
    kind: Kind
    most: int
    lists: Lists | None = field(default=None, repr=False)


@dataclass(kw_only=True)
class _Study:
    """What a silo has ready for one study: its records, the model, the plan."""

    plain: PreparedStudy = field(repr=False)
    finished: list[bytes] = field(default_factory=list)


class SiloEndpoint(Endpoint):
    """A silo in networked studies.

    Args:
        site, journal, draw: see `Seat`.
        data: the folder that a study's file names are relative to.
        ledger: the data set's ledger.
        device: where gradients are made.
        pace: seconds; an answer that took longer leaves at the next multiple.
        masking: how masks are added; changes speed only.
    """

    def __init__(
        self,
        site: PartyFolder,
        event_log: EventLog,
        *,
        data: Path,
        ledger: Path,
        device: str = "auto",
        pace: float = PACE,
        mask_stream: MaskStream | None = None,
        draw: Draw | None = None,
    ) -> None:
        self._data, self._device, self._pace = data, device, pace
        self._ledger, self._mask_stream = Ledger(ledger), mask_stream or MaskStream()
        self._studies: dict[bytes, _Study] = {}
        self._playing: dict[bytes, _Playing] = {}
        self._told = 0.0
        super().__init__(site, event_log, draw)

    def close(self) -> None:
        """Close the ledger; nothing is answered from then on."""
        with self._lock:
            self._sittings.clear()
            self._ledger.close()

    def rounds(self) -> Mapping[Call, Handler]:
        """A model or a joint seed to answer to, the end of the study, and lists of tokens."""
        mixing = (call for call in Call if call > Call.CLOSE)
        return {
            Call.MODEL: self._model,
            Call.SEED: self._seed,
            Call.CLOSE: self._close,
            **{call: partial(self._listed, call) for call in mixing},
        }

    def known(self, study: bytes, session: bytes) -> bool:
        """Whether the ledger has charged a session, before this process began."""
        return any((one.study, one.session) == (study, session) for one in self._ledger.entries())

    def prepared(self, study: Study, opening: SessionOffer) -> tuple[Plan, RoundParameters]:
        """The plan from the records here; they are read once."""
        known = self._known(study)
        plan, numbers = part_of_plan(known.plain.plan, opening.purpose)
        parameters = known.plain.initial.size
        self._featured(known.plain, opening)  # refuses what cannot be used
        return plan, round_parameters_of(plan, numbers or parameters, parameters=parameters)

    def _known(self, study: Study) -> _Study:
        if study.id not in self._studies:
            planned(study)  # refuses, before records are read, what cannot be run apart
            plain = PreparedStudy.of(
                study, device=self._device, whose=[self.site.name], folder=self._data
            )
            check_count(study, self.site.name, len(plain.records[0]))
            self._studies[study.id] = _Study(plain=plain)
        return self._studies[study.id]

    def _featured(self, plain: PreparedStudy, opening: SessionOffer) -> PreparedStudy:
        """The records as the session wants them: with standardised features, or as they are."""
        found, asked = opening.standardisation, plain.study.data.standardise
        if opening.purpose == STANDARDISATION or (asked is None and found is None):
            return plain
        shape = plain.records[0].inputs.shape[1:]
        if asked is None or found is None or found.shift.shape != shape:
            raise RefusedError(
                "plan",
                "expected shifts and scales of all features where the study standardises them, "
                "and none elsewhere, got others from the aggregator",
            )
        return standardised(plain, found)

    def ready(self, sitting: Sitting) -> dict[str, Any]:
        """How many attempts this silo has paid for, by purpose: a resumed run counts them."""
        whole = self._known(sitting.study).plain.plan
        plans = {name: part_of_plan(whole, name)[0] for name in purposes_of(whole)}
        return {"attempts": {name: self._paid(sitting.study, one) for name, one in plans.items()}}

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

    def seated(self, sitting: Sitting, agreed: Session) -> None:
        """Rounds may come; those of an older session for the same may not any more."""
        known, plan = self._studies[sitting.study.id], sitting.plan
        masking = Masking(
            keys=self.site.keys,
            roster=self.roster,
            terms=sitting.terms,
            session=agreed,
            mask_stream=self._mask_stream,
            source=sitting.source,
        )
        silo = Silo(
            terms=sitting.terms,
            task=_task(self._featured(known.plain, sitting.opening), sitting.opening),
            masking=masking,
            source=sitting.source,
            seeds=sitting.seeds,
        )
        open_here = {one.session for one in self._sittings.values()}
        epoch, every = mechanism_of(plan.study).epoch, attempts_of_list(plan.study)
        self._playing = {key: one for key, one in self._playing.items() if key in open_here}
        self._playing[agreed.id] = _Playing(
            silo=silo,
            agreed=agreed,
            plan=plan,
            kind=kind_of(plan),
            most=ceil(sitting.terms.steps / epoch),
            lists=self._lists(sitting, every, epoch) if every else None,
        )
        known.finished.append(agreed.id)
        self.event_log.note("seated")

    def _lists(self, sitting: Sitting, every: int, epoch: int) -> Lists:
        """The lists of a session, of which none is made yet."""
        return Lists(
            keys=self.site.keys,
            roster=self.roster,
            index=self.site.index,
            study=sitting.study.id,
            session=sitting.session,
            counts=sitting.study.data.counts,
            every=every,
            epoch=epoch,
        )

    def _listed(self, call: Call, sitting: Sitting, parts: Sequence[bytes]) -> list[bytes]:
        """A phase in the making of a list of tokens."""
        lists = self._played(sitting).lists
        if lists is None:
            raise ProtocolError(
                f"expected no {call.name} in a session without joint batches, got one",
                culprit="relay",
            )
        return lists.answer(call, parts)

    def _played(self, sitting: Sitting) -> _Playing:
        if sitting.session not in self._playing:
            raise RefusedError("no-session", "expected a session that is set up, got a round")
        return self._playing[sitting.session]

    def _model(self, sitting: Sitting, parts: Sequence[bytes]) -> list[bytes]:
        """A new attempt: checked, charged, and answered, or its part of the joint seed revealed."""
        began, one = time.monotonic(), self._played(sitting)
        if len(parts) != 1:
            raise ProtocolError(f"expected one MODEL, got {len(parts)} frames", culprit="relay")
        if one.lists is not None:
            one.lists.prepare(parts[0], one.silo)
        charge = one.silo.accept(parts[0])
        entry = entry_of(one.plan, one.agreed, charge, one.kind)
        try:  # P15: in the ledger before the answer exists
            if one.lists is None or not one.lists.is_paid:
                self._ledger.charge(entry, attempts=one.most)
        except HubbubError:
            one.silo.decline()
            raise
        if one.lists is not None:
            one.lists.use(charge.round)
        if sitting.terms.joint:
            return [one.silo.reveal()]
        return self._contributed(sitting, one.silo, began)

    def _seed(self, sitting: Sitting, parts: Sequence[bytes]) -> list[bytes]:
        """The links of all active silos: now the batch or the projection is fixed."""
        began, one = time.monotonic(), self._played(sitting)
        one.silo.learn_seed(parts)
        return self._contributed(sitting, one.silo, began)

    def _contributed(self, sitting: Sitting, silo: Silo, began: float) -> list[bytes]:
        with learning.threads_for(sitting.terms.parameters):
            masked = silo.contribute()
        made = [masked, *silo.shares().values()]
        took = time.monotonic() - began
        if self._pace:
            time.sleep(ceil(took / self._pace) * self._pace - took)
        self.event_log.add(answers=1, bytes_sent=sum(map(len, made)))
        if time.monotonic() - self._told > _TELL_EVERY:  # it takes a while
            self._tell(sitting)
        return made

    def _tell(self, sitting: Sitting) -> None:
        """Where this silo stands, for its own people."""
        self._told = time.monotonic()
        known = self._known(sitting.study)
        whole = known.plain.plan
        spent = min(self._accounted(known), whole.study.training.steps)
        epsilon = whole.epsilon_after(spent)
        self.event_log.state(
            study=sitting.study.name,
            purpose=sitting.opening.purpose,
            attempts=spent,
            steps=whole.study.training.steps,
            epsilon=epsilon,
        )
        self.event_log.note("answered", attempts=spent, epsilon=round(epsilon, 4))

    def _close(self, sitting: Sitting, parts: Sequence[bytes]) -> list[bytes]:
        """The study is over: keep the model, and sign what the ledger holds."""
        if sitting.agreed is None:
            raise RefusedError("no-session", "expected a session that is set up, got its end")
        if len(parts) != 2:
            raise ProtocolError("expected CLOSE and RESULT, got other frames", culprit="relay")
        said = self._from_aggregator(sitting, parts[0], Tag.CLOSE)
        known = self._known(sitting.study)
        told = {bytes.fromhex(one) for one in _sessions(said, self.roster.name(0))}
        plan = known.plain.plan
        paid = {one.session for one in self._ledger.entries() if one.study == sitting.study.id}
        part = part_of(
            self.site.keys,
            study=sitting.study.id,
            sessions=told & (paid | set(known.finished)),
            ledger_head=self._ledger.head,
            ledger_rows=self._ledger.rows,
            attempts=self._accounted(known),
        )
        self._keep(sitting, plan, known, self._from_aggregator(sitting, parts[1], Tag.RESULT))
        self._playing = {  # what was signed holds: another round needs another session
            key: one for key, one in self._playing.items() if one.agreed.study != sitting.study.id
        }
        self._tell(sitting)
        return [self._frame(sitting, Tag.CLOSED, json.dumps(part).encode())]

    def _keep(self, sitting: Sitting, plan: Plan, known: _Study, payload: bytes) -> None:
        """The trained model, in the silo's own folder."""
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
        run_folder.write_model(folder, plan, trained)
        if (found := sitting.opening.standardisation) is not None:
            write_text(folder / "standardisation.json", found.to_json())
        self.event_log.note("closed", study=plan.study.name, model=str(folder))

    def _from_aggregator(self, sitting: Sitting, data: bytes, tag: Tag) -> bytes:
        """The payload of a control message to everybody."""
        frame = parse(data, self.roster, study=sitting.study.id, session=sitting.session)
        if frame.tag is not tag or frame.sender != 0:
            raise ProtocolError(
                f"expected a {tag.name} of the aggregator, got another frame", culprit="relay"
            )
        return bytes(frame.payload)


def _task(setting: PreparedStudy, opening: SessionOffer) -> LocalTask:
    """What the silo sums in a session."""
    if opening.purpose == TRAINING:
        return setting.tasks[0]
    if opening.purpose == EVALUATION:
        return setting.evaluation_tasks[0]
    asked = setting.study.data.standardise
    assert asked is not None, "the plan has this purpose"  # noqa: S101
    return FeatureSums(setting.everything[0], asked.bound)


def _sessions(payload: bytes, sender: str) -> list[str]:
    """The sessions of a study, hexadecimal, as the aggregator lists them."""
    try:
        return [bytes.fromhex(one).hex() for one in json.loads(payload)["sessions"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        found = "another"
    raise ProtocolError(f"expected the sessions of a study, got {found}", culprit=sender)
