"""A few parties on a network that loses, doubles, delays, alters and repeats; faults are data.

A schedule is a list of operations, each a tuple of a name and whole numbers. The simulation plays
it and checks four laws at every step: a sum is right or there is none, no party uses a mask key
twice, no silo uses its noise twice, and no answer leaves before its charge. A silo's vector is a
unit vector, scaled by the attempt that it answers and far above the noise, so that a double count,
a lost vector and a stale one all show; the noise is what the vector leaves over.

    begin          the aggregator opens the next attempt, in the same or the next round
    deliver k      the k-th message in flight arrives (k modulo what there is)
    drop k         it is lost
    duplicate k    it is in flight twice
    corrupt k b    bit b of it flips
    misroute k p   it goes to party p instead
    replay k p     the k-th message ever sent goes to party p again, old sessions included
    crash s when   silo s loses its memory at its next MODEL: 0 before the charge, 1 after it
    close          the aggregator stops waiting: asks the nodes, or takes the sum
    take           the aggregator takes the sum
    restart        everybody sets up the next session; the ledgers stay, messages in flight too
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.agreement.key_agreement import Agreement, Session, sent_digest
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import Frame, Tag, parse
from hubbub.core.protocol.round.aggregator import Aggregator
from hubbub.core.protocol.round.compute_node import ComputeNode
from hubbub.core.protocol.round.masking import Attempt, Masking
from hubbub.core.protocol.round.silo import Silo
from protocol.parties import DIMENSION, STUDY, World
from protocol.view import Spy

Operation = tuple[str, int, int]
NAMES = (
    "begin",
    "deliver",
    "drop",
    "duplicate",
    "corrupt",
    "misroute",
    "replay",
    "crash",
    "close",
    "take",
    "restart",
)
SESSIONS = 4
# The noise of a silo, in grid steps, and the unit of the vectors, 100 deviations of a sum of three.
# Two fresh noise vectors agree with probability (2 sqrt(pi) SIGMA)^-5 < 1e-16.
SIGMA, UNIT = 500.0, 100_000


class Unit:
    """A silo's records: a unit vector, scaled by what the MODEL says."""

    count = capacity = 1

    def __init__(self, place: int) -> None:
        self._place = place

    def clipped_sum(self, parameters: np.ndarray, chosen: object) -> np.ndarray:
        vector = np.zeros(DIMENSION)
        vector[self._place % DIMENSION] = UNIT * weight(int(parameters[0]), int(parameters[1]))
        return vector


class Watched:
    """An `Answering` that keeps the residues before they are masked."""

    def __init__(self, masking: Masking) -> None:
        self._masking = masking
        self.residues: list[np.ndarray] = []

    def accept(self, model: bytes) -> Attempt:
        return self._masking.accept(model)

    def masked(self, attempt: Attempt, residues: ring.Residues) -> bytes:
        self.residues.append(ring.to_integers(residues.copy()))
        return self._masking.masked(attempt, residues)


def weight(round: int, attempt: int) -> int:
    """The length of the vectors of one attempt, different for each."""
    return 100 * round + attempt + 1


@lru_cache(maxsize=16)
def session_of(w: World, number: int) -> dict[int, Session]:
    """The number-th session of a world; set-ups are dear, so that schedules share them."""
    name = number.to_bytes(16, "little")
    parties = {i: w.agreement(i, session=name) for i in range(1, len(w.keys))}
    if not w.layout.nodes:
        commits = [party.commit() for party in parties.values()]
        reveals = [party.reveal(commits) for party in parties.values()]
        for party in parties.values():
            party.learn_seed(reveals)
    sent = {index: party.contribute() for index, party in parties.items()}
    digests = bytes(32) + b"".join(sent_digest(frames) for frames in sent.values())
    out = {i: party.confirm(_inbox(sent, i), digests) for i, party in parties.items()}
    return {index: _finished(party, index, out) for index, party in parties.items()}


def _finished(
    party: Agreement, index: int, out: dict[int, tuple[bytes, dict[int, bytes]]]
) -> Session:
    checks = [checks[index] for _, checks in out.values() if index in checks]
    return party.finish([out[other][0] for other in party.confirmers], checks)


def _inbox(sent: dict[int, dict[int, bytes]], index: int) -> list[bytes]:
    return [frames[index] for frames in sent.values() if index in frames]


@dataclass(kw_only=True, eq=False)
class Simulation:
    """The parties and their network, under one schedule.

    Args:
        w: the world.
        sums: how many sums were taken, so that a test can see that schedules do something.
    """

    w: World
    sums: int = 0
    refusals: int = 0
    number: int = 0
    turn: tuple[int, int] = (0, 0)
    active: frozenset[int] = frozenset()
    flight: list[tuple[int, bytes]] = field(default_factory=list)
    history: list[bytes] = field(default_factory=list)
    charges: set[tuple[bytes, int, int, int]] = field(default_factory=set)
    answers: set[tuple[bytes, int, int, int]] = field(default_factory=set)
    keys: dict[int, set[bytes]] = field(default_factory=dict)
    noises: dict[int, set[bytes]] = field(default_factory=dict)
    crashing: dict[int, int] = field(default_factory=dict)
    dead: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._join()

    def play(self, schedule: Sequence[Operation]) -> None:
        """Every operation in turn; a refusal is an ordinary outcome, a broken law is not."""
        for name, *numbers in schedule:
            try:
                getattr(self, name)(*numbers)
            except ProtocolError:
                self.refusals += 1
            self._check_keys()
            self._check_noise()

    # Operations. Each takes two numbers and may ignore them. --------------------------------

    def begin(self, next_round: int = 0, away: int = 0) -> None:
        """A new attempt; with pairwise masks among those that are not known to be dead."""
        round, attempt = self.turn
        turn = (round + 1, 0) if next_round % 2 or not round else (round, attempt + 1)
        self.turn = turn
        silos = set(self.w.roster.silos) - self.dead
        if away and len(silos) > self.w.quorum:
            silos.discard(min(silos) + away % len(silos))
        self.active = frozenset(silos)
        model = self.aggregator.begin(*turn, silos, np.array(turn, dtype=np.float32))
        for silo in silos:
            self._send(silo, model)

    def deliver(self, which: int = 0, _: int = 0) -> None:
        """To whom it is addressed on the envelope."""
        if self.flight:
            self._arrive(*self.flight.pop(which % len(self.flight)))

    def drop(self, which: int, _: int = 0) -> None:
        """Lost."""
        if self.flight:
            self.flight.pop(which % len(self.flight))

    def duplicate(self, which: int, _: int = 0) -> None:
        """Twice in flight."""
        if self.flight:
            self.flight.append(self.flight[which % len(self.flight)])

    def corrupt(self, which: int, bit: int) -> None:
        """One bit flips."""
        if self.flight:
            place = which % len(self.flight)
            receiver, data = self.flight[place]
            changed = bytearray(data)
            changed[bit // 8 % len(data)] ^= 1 << bit % 8
            self.flight[place] = (receiver, bytes(changed))

    def misroute(self, which: int, party: int) -> None:
        """To somebody else."""
        if self.flight:
            _, data = self.flight.pop(which % len(self.flight))
            self._arrive(party % len(self.w.keys), data)

    def replay(self, which: int, party: int) -> None:
        """Something old again."""
        if self.history:
            self._arrive(party % len(self.w.keys), self.history[which % len(self.history)])

    def crash(self, silo: int, when: int) -> None:
        """A silo that will lose its memory while it answers."""
        self.crashing[1 + silo % len(self.w.layout.names)] = when % 2

    def close(self, *_: int) -> None:
        """The aggregator has waited long enough."""
        if self.nodes:
            self.arrived = frozenset(self.aggregator.attempt.arrived)
            for node, request in self.aggregator.ask_nodes(Tag.REQUEST).items():
                self._send(node, request)
        else:
            self.take()

    def take(self, *_: int) -> None:
        """The sum, which must be right; before any attempt there is none to take."""
        if not self.active:
            return
        got = self.aggregator.attempt.integers()
        wanted = np.zeros(DIMENSION, dtype=np.int64)
        for silo in self.arrived if self.nodes else self.active:
            wanted[silo % DIMENSION] += UNIT * weight(*self.turn)
        assert np.abs(got - wanted).max() < UNIT / 2, "a wrong sum"
        self.sums += 1

    def restart(self, *_: int) -> None:
        """A new session for everybody."""
        if self.number + 1 < SESSIONS:
            self.number += 1
            self._join()

    # What the operations are made of. -------------------------------------------------------

    def _join(self) -> None:
        """Everybody, in the current session, with nothing remembered of an earlier one."""
        w, sessions = self.w, session_of(self.w, self.number)
        self.turn, self.active, self.arrived = (0, 0), frozenset(), frozenset[int]()
        self.dead, self.crashing = set(), {}
        self.spies = {index: Spy() for index in sessions}
        self.aggregator = Aggregator(
            keys=w.keys[0],
            channel=w.channel(self._session),
            round_parameters=w.round_parameters,
        )
        self.watched: dict[int, Watched] = {}
        self.silos = {
            i: self._silo(w.masking(sessions[i], self.spies[i]), i) for i in w.roster.silos
        }
        self.nodes: dict[int, ComputeNode] = {
            i: w.node(sessions[i], self.spies[i]) for i in w.roster.nodes
        }
        self.promises: dict[int, list[bytes]] = {i: [] for i in w.roster.nodes}

    @property
    def _session(self) -> bytes:
        return self.number.to_bytes(16, "little")

    def _silo(self, masking: Masking, index: int) -> Silo:
        self.watched[index] = Watched(masking)
        return Silo(
            round_parameters=replace(self.w.round_parameters, sigma_grid=SIGMA),
            task=Unit(index),
            masking=self.watched[index],  # type: ignore[arg-type]
            source=SecureSource(),
        )

    def _send(self, receiver: int, data: bytes) -> None:
        self.flight.append((receiver, data))
        self.history.append(data)

    def _arrive(self, receiver: int, data: bytes) -> None:
        if receiver == 0:
            self._reach_aggregator(data)
        elif receiver in self.nodes:
            self._reach_node(receiver, data)
        elif receiver not in self.dead:
            self._answer(receiver, data)

    def _reach_aggregator(self, data: bytes) -> None:
        """A promise is shown to all nodes; all else is for the sum."""
        if data[1] != Tag.PROMISE:
            self.aggregator.receive(data)
            return
        self.aggregator.receive(data)
        for node in self.nodes:
            self._send(node, data)

    def _reach_node(self, node: int, data: bytes) -> None:
        """What the runner of a node does: promise, and tell the total with the last promise."""
        if data[1] != Tag.PROMISE:
            self._send(0, self.nodes[node].promise(data))
            self.promises[node] = []
            return
        self.promises[node].append(data)
        if len(self.promises[node]) >= len(self.nodes):
            shown, self.promises[node] = self.promises[node], []
            self._send(0, self.nodes[node].total(shown))

    def _answer(self, index: int, model: bytes) -> None:
        """What the runner of a silo does: accept, charge, contribute; crashing where it is told."""
        charge = self.silos[index].accept(model)
        crash = self.crashing.pop(index, None)
        row = (self._session, index, charge.round, charge.attempt)
        if crash != 0:
            assert row not in self.charges, "charged twice for one attempt"
            self.charges.add(row)
        if crash is not None:
            self.dead.add(index)
            return
        message = self.silos[index].contribute()
        self._check_answer(message)
        self._send(0, message)

    def _check_answer(self, message: bytes) -> None:
        """It was paid for, and it is the only one."""
        frame: Frame = parse(message, self.w.roster, study=STUDY, session=self._session)
        row = (frame.session, frame.sender, frame.round, frame.attempt)
        assert frame.tag is Tag.MASKED
        assert row in self.charges, "an answer without a charge"
        assert row not in self.answers, "a second answer to one attempt"
        self.answers.add(row)

    def _check_keys(self) -> None:
        """No party uses a mask key twice, in any session."""
        for index, spy in self.spies.items():
            if spy.used:
                seen = self.keys.setdefault(index, set())
                for key, _ in spy.taken():
                    assert key not in seen, "a mask key used twice"
                    seen.add(key)

    def _check_noise(self) -> None:
        """No silo uses its noise twice, in any session, or none at all."""
        for index, watched in self.watched.items():
            seen = self.noises.setdefault(index, set())
            while watched.residues:
                noise = watched.residues.pop()
                noise[index % DIMENSION] -= UNIT * round(noise[index % DIMENSION] / UNIT)
                assert noise.any(), "an answer without noise"
                assert noise.tobytes() not in seen, "noise used twice"
                seen.add(noise.tobytes())


def orderly(simulation: Simulation) -> None:
    """A whole round on a network that works again, in a new session if somebody is dead."""
    if simulation.dead or simulation.turn[0] >= simulation.w.round_parameters.steps:
        simulation.number += 1
        simulation._join()
    simulation.flight.clear()
    simulation.crashing.clear()
    simulation.begin(1)
    while simulation.flight:
        simulation.deliver()
    simulation.close()
    while simulation.flight:
        simulation.deliver()
    if simulation.nodes:
        simulation.take()
