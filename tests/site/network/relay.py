"""Malicious relays and small consortiums for them: whoever carries the bytes is a function.

A relay wraps a phase. It sees every request and every answer, and hands on what it likes. A party
here is watched as it answers: every answer that leaves a silo must be in its ledger by then, and no
two different answers, and no mask key, may exist for one place.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from hubbub.core.errors import HubbubError, ProtocolError
from hubbub.core.planning.plan import Plan
from hubbub.core.protocol.primitives.wire import EVERYBODY, Frame, Tag, unverified
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.runs.federated import SessionPlan, Standardisation
from hubbub.core.runs.prepared_study import PreparedStudy
from hubbub.core.session.ask import Call
from hubbub.core.session.offer import SessionOffer, planned_for, round_parameters_of
from hubbub.core.session.rounds import Rounds
from hubbub.core.study.study import Study
from hubbub.core.tabular.records import Records
from hubbub.learning.queries.training_query import TRAINING
from hubbub.learning.runs.preparing import prepare
from hubbub.site.network.coordinator import Coordinator
from hubbub.site.network.envelope import Missing, Phase, answer, read_answer, read_request, request
from hubbub.site.network.event_log import EventLog
from hubbub.site.network.requests import Requests
from hubbub.site.network.silo_endpoint import SiloEndpoint
from hubbub.site.network.waiting import Check, Clock, Timeouts
from network.consortium import Brisk, Consortium, planned, table
from network.engine import in_process
from protocol.view import Spy

Blob = bytes | Missing
# From the phase's name, the party and what it is sent (or sends) to what arrives; None: nothing.
Change = Callable[[str, str, Any], Any]

NAMES = ("ann", "bob", "cyn")
# What a party says once of an attempt, to whom it may concern.
SAID_ONCE = (Tag.MASKED, Tag.PROMISE, Tag.TOTAL, Tag.SEED_LINK, Tag.SHARE, Tag.HELD)
FEATURES, RECORDS = 4, 40


class Jumping(Clock):
    """A clock on which whoever waits has waited at once, and nothing else takes time.

    Args:
        slept: seconds of each wait.
    """

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> float:
        return sum(self.slept)

    def sleep(self, seconds: float, check: Check = lambda: None) -> None:
        self.slept.append(seconds)
        check()


HASTY = Timeouts(
    deadline=60.0, opening=300.0, waiting=300.0, ask_again=0.0, ping=60.0, clock=Brisk()
)


def at_once() -> Timeouts:
    """Nobody is waited for beyond enough silos."""
    return replace(HASTY, grace=0.0, clock=Jumping())


def records(party: str) -> Records:
    """Records of a silo that point where no other silo's do; no two are quite the same."""
    inputs = np.zeros((RECORDS, FEATURES), dtype=np.float32)
    inputs[:, ord(party[0]) % FEATURES] = 1.0 + 1e-4 * np.arange(RECORDS)
    return Records(inputs=inputs, targets=np.ones(RECORDS, dtype=np.float32))


def tiny(nodes: int = 0, names: tuple[str, ...] = NAMES, **changes: Any) -> dict[str, Any]:
    """A study whose sums are far above its noise, and whose plan costs milliseconds."""
    base: dict[str, dict[str, Any]] = {
        "study": {},
        "parties": {},
        "data": {
            "source": "python:network.relay:records",
            "target": "x",
            "records": RECORDS * len(names),
        },
        "model": {"inputs": [FEATURES]},
        "training": {"steps": 4, "sample_rate": 1.0},
        "privacy": {"epsilon": 20.0},
    }
    return table(names, nodes, **{key: base[key] | changes.get(key, {}) for key in base})


# Relays ----------------------------------------------------------------------------------------


def honest(_name: str, _party: str, blob: Any) -> Any:
    """Nothing is changed."""
    return blob


def at(call: str, change: Callable[[Any], Any], *parties: str, times: int = 1 << 30) -> Change:
    """A change of what some parties (all, if none is named) get or give in one kind of phase."""
    left = [times]

    def changed(name: str, party: str, blob: Any) -> Any:
        if name != call or (parties and party not in parties) or not left[0]:
            return blob
        left[0] -= 1
        return change(blob)

    return changed


def lost(_blob: Any) -> None:
    """Nothing arrives."""


def flipped(blob: bytes, place: int = -20) -> bytes:
    """One bit differs."""
    changed = bytearray(blob)
    changed[place] ^= 1
    return bytes(changed)


def on_parts(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[Any], Any]:
    """A change of the parts of an answer."""
    return lambda blob: answer(change(read_answer(blob))) if isinstance(blob, bytes) else blob


def on_asked(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[bytes], bytes]:
    """A change of the parts of a request."""

    def changed(blob: bytes) -> bytes:
        head, parts = blob[:22], answer() + blob[22:]
        return head + answer(change(read_answer(parts)))[len(answer()) :]

    return changed


@dataclass
class Relay:
    """Carries, and keeps all that it has carried.

    Args:
        phase: what carries honestly.
        asks, tells: what becomes of requests and of answers.
        tape: phase, party, request, answer, in the order of the answers.
    """

    phase: Phase
    asks: Change = honest
    tells: Change = honest
    tape: list[tuple[str, str, bytes, Blob]] = field(default_factory=list)

    def __call__(
        self, name: str, requests: Mapping[str, bytes], deadline: float
    ) -> Iterator[tuple[str, Blob]]:
        told = {party: self.asks(name, party, blob) for party, blob in requests.items()}
        there = {party: blob for party, blob in told.items() if isinstance(blob, bytes)}
        for party, blob in self.phase(name, there, deadline):
            self.tape.append((name, party, there[party], blob))
            changed = self.tells(name, party, blob)
            if changed is not None:
                yield party, changed

    def asked(self, name: str, party: str) -> list[bytes]:
        """The requests that a party was handed in phases of a name."""
        return [one[2] for one in self.tape if one[:2] == (name, party)]

    def told(self, name: str, party: str) -> list[bytes]:
        """What it answered."""
        return [
            one[3] for one in self.tape if one[:2] == (name, party) and isinstance(one[3], bytes)
        ]


# Parties that are watched ----------------------------------------------------------------------


@dataclass
class Watched(Consortium):
    """A consortium in which every answer is held against the laws as it leaves.

    Args:
        sent: silo, session, round, attempt to the digest of what it signed there.
        keys: the mask keys that each party has used.
        broken: laws that an answer has broken; to be empty in the end.
    """

    sent: dict[tuple[int, bytes, int, int, int], bytes] = field(default_factory=dict)
    keys: dict[str, set[bytes]] = field(default_factory=dict)
    spies: dict[str, Spy] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    paid: dict[str, tuple[set[tuple[bytes, int, int]], bytes | None]] = field(default_factory=dict)

    def start(self, name: str) -> None:
        super().start(name)
        self.spies[name] = Spy()
        self.seats[name]._mask_stream = self.spies[name]
        self.seats[name]._told = inf  # its people are not told where it stands, however late

    @property
    def phase(self) -> Phase:
        return in_process(lambda name: self.asked(name) if name in self.seats else None)

    def asked(self, name: str) -> Callable[[bytes], bytes]:
        """What answers the aggregator for a party: requests have the sizes that it counts on."""

        def answered(blob: bytes) -> bytes:
            with contextlib.suppress(ProtocolError):  # what a relay has changed
                call, session, _ = read_request(blob)
                for state in self.seats[name]._sessions.values():
                    if state.session == session and len(blob) > state.limits.request(call):
                        self.broken.append(f"{name}: a {call.name} of {len(blob)} bytes")
            return self.answers(name)(blob)

        return answered

    def answers(self, name: str) -> Callable[[bytes], bytes]:
        """What answers for a party, watched."""
        endpoint = self.seats[name]

        def watched(blob: bytes) -> bytes:
            said = endpoint.answer(blob)
            try:
                self._check(name, endpoint, said)
            except HubbubError as error:  # such as a ledger that was closed by a restart
                self.broken.append(f"{name}: {error}")
            return said

        return watched

    def ask(
        self, name: str, call: Call, session: bytes, parts: Sequence[bytes] = ()
    ) -> list[bytes]:
        """What a party says to somebody who is not its aggregator's process."""
        return read_answer(self.answers(name)(request(call, session, parts)))

    def _check(self, name: str, endpoint: Any, said: bytes) -> None:
        for part in read_answer(said):
            frame = unverified(part)
            if frame.tag not in SAID_ONCE:
                continue
            place = (frame.sender, frame.session, frame.round, frame.attempt, frame.tag)
            if self.sent.setdefault((*place, frame.receiver), frame.digest) != frame.digest:
                self.broken.append(f"{name}: two different answers for one place")
            if isinstance(endpoint, SiloEndpoint) and place[1:4] not in self._paid(name, endpoint):
                self.broken.append(f"{name}: an answer without a row")
        seen = self.keys.setdefault(name, set())
        for key, _ in self.spies[name].taken():
            if key in seen:
                self.broken.append(f"{name}: a mask key used twice")
            seen.add(key)

    def _paid(self, name: str, endpoint: SiloEndpoint) -> set[tuple[bytes, int, int]]:
        """The rows of a silo; only the new ones are read."""
        seen, after = self.paid.setdefault(name, (set(), None))
        seen |= {(one.session, one.round, one.attempt) for one in endpoint._ledger.entries(after)}
        self.paid[name] = (seen, endpoint._ledger.head)
        return seen

    def party(self, name: str, session: bytes) -> Any:
        """A party in a session that is open."""
        found = [one for one in self.seats[name]._sessions.values() if one.session == session]
        return found[0].party

    def rows(self, name: str) -> list[tuple[bytes, int, int]]:
        """What a silo has paid for: session, round and attempt."""
        endpoint = self.seats[name]
        assert isinstance(endpoint, SiloEndpoint)
        return [(one.session, one.round, one.attempt) for one in endpoint._ledger.entries()]

    def sealed(self, party: str, tag: Tag, payload: bytes = b"", **where: Any) -> bytes:
        """A frame that a party signs, whatever it says."""
        party_folder = self.sites[party]
        said = {
            "study": self.study.id,
            "sender": party_folder.index,
            "receiver": 0,
            "payload": payload,
        }
        return Frame(tag=tag, **{**said, **where}).sealed(party_folder.keys)


@dataclass(kw_only=True)
class Session:
    """A session that is open, without the loop of a training around it."""

    rounds: Rounds
    plan: Plan
    round_parameters: RoundParameters
    initial: np.ndarray
    sums: Callable[[Iterable[int], np.ndarray], np.ndarray]
    close: Callable[[Sequence[bytes]], list[dict[str, Any]]]

    def round(self, number: int, attempts: int = 1) -> tuple[np.ndarray | None, int]:
        """A round; a sum that is not that of a possible set of silos is an error."""
        total, made = self.rounds.round(number, self.initial, attempts)
        if total is not None:
            self.check(total)
        return total, made

    def check(self, total: np.ndarray) -> None:
        """The sum of those who took part, but for the noise."""
        there = [
            i
            for i in range(1, 1 + self.round_parameters.silos)
            if i not in self.rounds.attendance.absent
        ]
        wanted = self.sums(there, self.initial) / self.round_parameters.grid_step
        room = 8 * self.round_parameters.sigma_grid * self.round_parameters.silos**0.5
        assert np.abs(total - wanted).max() < room, "a wrong sum"


def opened(
    parties: Consortium,
    phase: Phase | None = None,
    timeouts: Timeouts = HASTY,
    standardisation: Standardisation | None = None,
    purpose: str = TRAINING,
    twice: Sequence[str] = (),
) -> Session:
    """Set a session up, as the aggregator does, that has seen two processes of some parties."""
    event_log = EventLog(party="aggregator", say=parties.said.append)
    roster, study = parties.aggregator.roster, parties.study
    requests = Requests(roster, study.id, phase or parties.phase, event_log, timeouts)
    for name in twice:
        requests.see_twice(name)
    coordinator = Coordinator(parties.aggregator, study, requests)
    coordinator.standardise(standardisation)
    prepared = setting_of(parties.study)
    planned = planned_for(prepared.plan, purpose)
    round_parameters = round_parameters_of(planned)
    wanted = SessionPlan(
        plan=prepared.plan, planned=planned, round_parameters=round_parameters, tasks=()
    )
    rounds = coordinator.set_up(wanted)

    def sums(silos: Iterable[int], model: np.ndarray) -> np.ndarray:
        return np.sum([_sum_of(parties.study, silo, model.tobytes()) for silo in silos], axis=0)

    def close(sessions: Sequence[bytes]) -> list[dict[str, Any]]:
        return coordinator.close(sessions, prepared.initial.astype("<f4").tobytes())

    return Session(
        rounds=rounds,
        plan=prepared.plan,
        round_parameters=round_parameters,
        initial=prepared.initial,
        sums=sums,
        close=close,
    )


@cache
def setting_of(study: Study) -> PreparedStudy:
    """Everybody's records and the plan, for whoever checks sums."""
    return prepare(study)


@cache
def _sum_of(study: Study, silo: int, model: bytes) -> np.ndarray:
    """What a silo's records add to a sum."""
    parameters = np.frombuffer(model, dtype=np.float32).copy()
    task = setting_of(study).tasks[silo - 1]
    return task.clipped_sum(parameters, np.arange(task.count))


def terms_for(parties: Consortium) -> tuple[Plan, RoundParameters]:
    """The plan of the study and the terms of its training, as everybody has them."""
    plan = planned(parties.study)
    assert plan.dimension is not None
    return plan, round_parameters_of(plan.main)


def open_frame(
    parties: Consortium, session: bytes, round_parameters: Any = None, **changes: Any
) -> bytes:
    """An OPEN as an aggregator may sign it, with what it likes in it."""
    said = json.loads(SessionOffer.of(TRAINING, terms_for(parties)[1]).payload())
    said["terms"] |= round_parameters or {}
    payload = json.dumps(said | changes).encode()
    party_folder = parties.aggregator
    return Frame(
        tag=Tag.OPEN,
        study=parties.study.id,
        session=session,
        sender=0,
        receiver=EVERYBODY,
        payload=payload,
    ).sealed(party_folder.keys)


def refusal(parts: Sequence[bytes]) -> tuple[str, str]:
    """Why a party says no, and whom it blames."""
    assert len(parts) == 1, "expected one REFUSAL"
    frame = unverified(parts[0])
    assert frame.tag is Tag.REFUSAL, f"expected a REFUSAL, got a {frame.tag.name}"
    said = json.loads(bytes(frame.payload))
    return said["why"], said["culprit"]


def gathered(home: Path, nodes: int = 0, **changes: Any) -> Watched:
    """A tiny consortium whose answers are watched."""
    found = Watched.gather(home, tiny(nodes, **changes))
    assert isinstance(found, Watched)
    return found
