"""The parties of `faults.py` with joint seeds: links are lost, doubled, delayed and forged too.

Between MODEL and answer everybody reveals a link and waits for those of all active silos. Sums are
projected by the seed's matrix, so a silo with another seed makes a wrong sum. What a seed and its
matrix must be is computed by the second implementation from the silos' secrets. Laws, beside those
of `faults.py`: no link leaves before its attempt was accepted and charged, none twice and none of
an earlier time; no two honest parties have two seeds for one attempt.

    lie k b        the k-th link in flight is another, with a true signature of its sender
    crash s when   as before; 2: after the link has left
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import sqrt

import numpy as np

from hubbub.core.errors import ProtocolError
from hubbub.core.planning.projections import transform_of
from hubbub.core.protocol.agreement.joint_seed import JointSeed
from hubbub.core.protocol.agreement.key_agreement import Session
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import HEADER_BYTES, SIGNATURE_BYTES, Tag, parse, set_of
from hubbub.core.protocol.round.aggregator import Aggregator
from hubbub.core.protocol.round.compute_node import ComputeNode
from hubbub.core.protocol.round.masking import Attempt, Masking
from hubbub.core.protocol.round.silo import Silo
from protocol import faults
from protocol import reference as ref
from protocol import reference_draws as draws
from protocol.faults import UNIT, Simulation, weight
from protocol.parties import DIMENSION, PROJECTED, STUDY, World, set_up
from protocol.view import Spy

NAMES = (*faults.NAMES, "lie")
Time = tuple[int, int]


class JointUnit:
    """A silo's records: a unit vector before the projection, scaled by what the MODEL says."""

    count = capacity = 1

    def __init__(self, place: int) -> None:
        self._place = place

    def clipped_sum(self, parameters: np.ndarray, chosen: object) -> np.ndarray:
        vector = np.zeros(PROJECTED)
        vector[self._place % PROJECTED] = UNIT * weight(int(parameters[0]), int(parameters[1]))
        return vector


class Watched:
    """An `Answering` that keeps what residues are more than they should be: the noise."""

    def __init__(self, masking: Masking, expected: Callable[[Time], np.ndarray]) -> None:
        self._masking, self._expected = masking, expected
        self.noises: list[bytes] = []

    def accept(self, model: bytes) -> Attempt:
        return self._masking.accept(model)

    def masked(self, attempt: Attempt, residues: ring.Residues) -> bytes:
        noise = ring.to_integers(residues.copy()) - self._expected((attempt.round, attempt.attempt))
        assert np.abs(noise).max() < 20 * faults.SIGMA + 1, "a sum of another seed's matrix"
        self.noises.append(noise.tobytes())
        return self._masking.masked(attempt, residues)


def secret(number: int, index: int) -> bytes:
    """The key of the generator of a silo's chain in a session."""
    return hashlib.sha256(b"chain %d of silo %d" % (number, index)).digest()[:16]


def name_of(number: int) -> bytes:
    """The number-th session."""
    return number.to_bytes(16, "little")


def drawers(w: World, number: int) -> dict[int, JointSeed]:
    """Every silo's part of the joint seeds of a session, at its beginning."""
    return {
        index: w.seeds(index, name_of(number), SecureSource(secret(number, index)))
        for index in w.roster.silos
    }


@lru_cache(maxsize=64)
def chain_of(w: World, number: int, index: int) -> list[bytes]:
    """The links of a silo in a session, by the second implementation."""
    length = w.round_parameters.steps * w.round_parameters.attempts
    top = SecureSource(secret(number, index)).bytes(32)
    return ref.links(STUDY, name_of(number), index, top, length)


def model_numbers(time: Time) -> np.ndarray:
    """The model of an attempt."""
    return np.array([*time, *[0] * (PROJECTED - 2)], dtype=np.float32)


@lru_cache(maxsize=4096)
def seed_of(w: World, number: int, time: Time, active: frozenset[int]) -> bytes:
    """The seed of an attempt, by the second implementation."""
    place = (time[0] - 1) * w.round_parameters.attempts + time[1] + 1
    links = {index: chain_of(w, number, index)[place] for index in active}
    return ref.attempt_seed(STUDY, name_of(number), *time, links)


@lru_cache(maxsize=4096)
def vector_of(index: int, time: Time, seed: bytes) -> np.ndarray:
    """What a silo's residues are without noise."""
    key = draws.draw_key("sign", (PROJECTED, DIMENSION, *time), seed, model_numbers(time).tolist())
    signs = [draws.sign(key, index % PROJECTED, column) for column in range(DIMENSION)]
    return np.rint(np.array(signs) * (UNIT * weight(*time) / sqrt(DIMENSION))).astype(np.int64)


@lru_cache(maxsize=16)
def session_of(w: World, number: int) -> dict[int, Session]:
    """The number-th session, whose transcript begins with the anchors."""
    silos = drawers(w, number)
    anchors = [silo.anchor() for silo in silos.values()]
    (digest,) = {silo.learn_anchors(anchors) for silo in silos.values()}
    changed = {
        f"p{i}": w.agreement(i, session=name_of(number), context=digest)
        for i in range(1, len(w.keys))
    }
    return set_up(w, **changed)


@dataclass(kw_only=True, eq=False)
class Seeded(Simulation):
    """The parties with joint seeds and their network, under one schedule."""

    seeds: dict[tuple[int, Time], bytes] = field(default_factory=dict)
    revealed: dict[tuple[int, int], int] = field(default_factory=dict)

    # Operations. ----------------------------------------------------------------------------

    def begin(self, next_round: int = 0, away: int = 0) -> None:
        """A new attempt, of no more at one round than links were committed to."""
        round, attempt = self.turn
        last = attempt + 1 >= self.w.round_parameters.attempts
        turn = (round + 1, 0) if next_round % 2 or not round or last else (round, attempt + 1)
        self.turn = turn
        silos = set(self.w.roster.silos) - self.dead
        if away and len(silos) > self.w.quorum:
            silos.discard(min(silos) + away % len(silos))
        self.active = frozenset(silos)
        model = self.aggregator.begin(*turn, silos, model_numbers(turn))
        self.boxes[0] = {}
        for silo in silos:
            self._send(silo, model)

    def crash(self, silo: int, when: int) -> None:
        """A silo that will lose its memory while it answers."""
        self.crashing[1 + silo % len(self.w.layout.names)] = when % 3

    def lie(self, which: int, bit: int) -> None:
        """A silo reveals what it had not committed to, to one of the others."""
        links = [at for at, (_, data) in enumerate(self.flight) if data[1] == Tag.SEED_LINK]
        if links:
            receiver, data = self.flight[links[which % len(links)]]
            changed = bytearray(data[HEADER_BYTES:-SIGNATURE_BYTES])
            changed[bit // 8 % 32] ^= 1 << bit % 8
            header = data[:HEADER_BYTES]
            sender = int.from_bytes(header[58:62], "little")
            signed = b"hubbub frame v1" + header + hashlib.sha256(changed).digest()
            forged = header + bytes(changed) + self.w.keys[sender % len(self.w.keys)].sign(signed)
            self.flight[links[which % len(links)]] = (receiver, forged)

    def take(self, *_: int) -> None:
        """The sum, which must be right; before any attempt there is none to take."""
        if not self.active:
            return
        got, wanted = self.aggregator.attempt.integers(), np.zeros(DIMENSION, dtype=np.int64)
        for silo in self.arrived if self.nodes else self.active:
            wanted += vector_of(silo, self.turn, self._expected(self.turn))
        assert np.abs(got - wanted).max() < UNIT / 2, "a wrong sum"
        self.sums += 1

    # What the operations are made of. -------------------------------------------------------

    def _join(self) -> None:
        """Everybody, in the current session; anchors and links are new."""
        w, sessions = self.w, session_of(self.w, self.number)
        self.turn, self.active, self.arrived = (0, 0), frozenset(), frozenset[int]()
        self.dead, self.crashing = set(), {}
        self.spies = {index: Spy() for index in sessions}
        self.boxes: dict[int, dict[tuple[Time, int], bytes]] = {i: {} for i in range(len(w.keys))}
        self.waiting: dict[int, tuple[Time, frozenset[int]]] = {}
        drawn, check = drawers(w, self.number), w.seed_check(self._session)
        anchors = [one.anchor() for one in drawn.values()]
        self.history += anchors
        check.learn_anchors(anchors)
        for one in drawn.values():
            one.learn_anchors(anchors)
        self.drawn = drawn
        self.aggregator: Aggregator = w.aggregator(check, self._session)
        self.seen: dict[int, Watched] = {}
        self.silos = {
            i: self._silo(w.masking(sessions[i], self.spies[i]), i) for i in w.roster.silos
        }
        self.nodes: dict[int, ComputeNode] = {
            i: w.node(sessions[i], self.spies[i]) for i in w.roster.nodes
        }
        self.promises: dict[int, list[bytes]] = {i: [] for i in w.roster.nodes}

    def _silo(self, masking: Masking, index: int) -> Silo:
        def expected(time: Time) -> np.ndarray:
            return vector_of(index, time, self._expected(time))

        self.seen[index] = Watched(masking, expected)
        return Silo(
            round_parameters=replace(self.w.round_parameters, sigma_grid=faults.SIGMA),
            task=JointUnit(index),
            masking=self.seen[index],  # type: ignore[arg-type]
            source=SecureSource(),
            seeds=self.drawn[index],
            transform=transform_of(self.w.round_parameters),
        )

    def _expected(self, time: Time) -> bytes:
        """The seed of an attempt that is open, or was waited for."""
        actives = {waited[1] for waited in self.waiting.values() if waited[0] == time}
        (active,) = actives or {self.active}
        return seed_of(self.w, self.number, time, active)

    def _arrive(self, receiver: int, data: bytes) -> None:
        if data[1] == Tag.SEED_LINK and receiver not in self.nodes and receiver not in self.dead:
            self._keep(receiver, data)
        elif receiver == 0:
            self._reach_aggregator(data)
        elif receiver in self.nodes:
            self._reach_node(receiver, data)
        elif receiver not in self.dead:
            self._answer(receiver, data)

    def _answer(self, index: int, model: bytes) -> None:
        """What the runner of a silo does: accept, charge, reveal; crashing where it is told."""
        charge = self.silos[index].accept(model)
        time = (charge.round, charge.attempt)
        bits = parse(model, self.w.roster, study=STUDY, session=self._session).payload[:1]
        self.waiting[index] = (time, set_of(bits, len(self.w.roster.silos), "aggregator"))
        crash = self.crashing.pop(index, None)
        if crash != 0:
            row = (self._session, index, *time)
            assert row not in self.charges, "charged twice for one attempt"
            self.charges.add(row)
        if crash in (0, 1):
            self.dead.add(index)
            return
        self._reveal(index, self.silos[index].reveal())
        if crash == 2:
            self.dead.add(index)
            return
        self._try(index)

    def _reveal(self, index: int, link: bytes) -> None:
        """A link leaves: it was paid for, it is the one committed to, and it is the first."""
        frame = parse(link, self.w.roster, study=STUDY, session=self._session)
        time, number = (frame.round, frame.attempt), self.drawn[index]._check.number
        assert (self._session, index, *time) in self.charges, "a link without a charge"
        chain, place = chain_of(self.w, self.number, index), number(*time)
        assert bytes(frame.payload) not in chain[place + 1 :], "a link of a later attempt"
        assert place > self.revealed.get((self.number, index), 0), "a link revealed again"
        self.revealed[self.number, index] = place
        self.boxes[index][time, index] = link
        for receiver in (0, *self.w.roster.silos):
            if receiver != index:
                self._send(receiver, link)

    def _keep(self, receiver: int, data: bytes) -> None:
        """A link waits for the others of its attempt; what nobody signed does not."""
        frame = parse(data, self.w.roster, study=STUDY, session=self._session)
        self.boxes[receiver][(frame.round, frame.attempt), frame.sender] = data
        self._try(receiver)

    def _try(self, party: int) -> None:
        """Learn the seed once all links are there, and a silo answers."""
        time, active = self.waiting.get(party, ((0, 0), frozenset[int]()))
        if party == 0:
            time, active = self.turn, self.active
        links = [link for (at, _), link in self.boxes[party].items() if at == time]
        if not active or len(links) < len(active):
            return
        one = self.silos[party] if party else self.aggregator.attempt
        if party and one._accepted is None:  # it has answered
            return
        one.learn_seed(links)
        self._check_seed(time, active, one._seed if party else one.seed)
        if party:
            message = one.contribute()
            self._check_answer(message)
            self._send(0, message)

    def _check_seed(self, time: Time, active: frozenset[int], seed: bytes | None) -> None:
        """It is that of the links committed to, and everybody's."""
        assert seed == self.seeds.setdefault((self.number, time), seed), "two seeds for one attempt"
        assert seed == seed_of(self.w, self.number, time, active), "a seed of other links"

    def _check_noise(self) -> None:
        """No silo uses its noise twice, in any session, or none at all."""
        for index, watched in self.seen.items():
            seen = self.noises.setdefault(index, set())
            while watched.noises:
                noise = watched.noises.pop()
                assert any(noise), "an answer without noise"
                assert noise not in seen, "noise used twice"
                seen.add(noise)


def orderly(simulation: Seeded) -> None:
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


def shown_to(w: World, index: int, frames: list[bytes], number: int = 0) -> str | bytes:
    """Whom a silo, or who checks (0), names for the anchors it is shown; else their digest."""
    one = drawers(w, number)[index] if index else w.seed_check(name_of(number))
    try:
        return one.learn_anchors(frames)
    except ProtocolError as error:
        return error.culprit
