"""Aggregator, silos and compute nodes, fed frames in any order, changed and signed anew.

An input is a kind of world and a list of moves, most of them honest, so that every phase is
reached. Laws: a party refuses with a `ProtocolError` and is then as it was before; the sum is that
of the vectors that were accepted and no other; no party takes one time twice, nor a set of silos
below the quorum; no node tells a total that not all nodes have promised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import TypeVar

import numpy as np

from fuzz.frames import edited
from fuzz.reading import Reader, hold, likeness
from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.agreement.masks import MaskStream
from hubbub.core.protocol.primitives.wire import (
    DIGEST_BYTES,
    HEADER_BYTES,
    SIGNATURE_BYTES,
    Tag,
    unverified,
)
from hubbub.core.protocol.round.aggregator import Aggregator
from hubbub.core.protocol.round.compute_node import ComputeNode
from hubbub.core.protocol.round.masking import Masking
from hubbub.core.protocol.round.round_parameters import RoundParameters
from protocol.parties import DIMENSION, World, sessions_of, world

_MOST_MOVES = 40
_SILOS = 4
_BEGIN, _ANSWER, _ASK, _DELIVER, _TAKE, _SETTLE = range(6)  # the moves
_Result = TypeVar("_Result")


def check(data: bytes) -> None:
    """One input."""
    reader = Reader(data)
    game = Game(kind=reader.number() % 3)
    for _ in range(_MOST_MOVES):
        if not reader.more:
            break
        game.move(reader)


def seeds() -> list[bytes]:
    """In each world two honest attempts, and one in which every delivery is changed."""
    answers = b"".join(bytes([_ANSWER, silo, 0]) for silo in range(_SILOS))
    begin, ask, end = (
        bytes([_BEGIN, 0, 0]),
        bytes([_SETTLE, _ASK, _SETTLE, _SETTLE, _ASK, *[_SETTLE] * 4]),
        bytes([_SETTLE, _TAKE]),
    )
    changed = b"".join(bytes([_DELIVER, place, 1, place % 14, 1, 3, 0]) for place in range(14))
    honest, spoilt = begin + answers + ask + end, begin + answers + changed + bytes([_ASK])
    tails = (honest, honest + honest, honest + spoilt + changed + end, spoilt + changed + end)
    return [bytes([kind]) + tail for kind in range(3) for tail in tails]


@lru_cache(maxsize=3)
def _world(kind: int) -> tuple[World, RoundParameters]:
    """Pairwise masks, compute nodes, or full shares."""
    w = world(_SILOS, 2 if kind else 0)
    return w, replace(w.round_parameters, full_shares=kind == 2)


@dataclass(kw_only=True, eq=False)
class Game:
    """One session of one world, and every frame that was ever sent in it.

    Args:
        kind: of the world, 0 to 2.
    """

    kind: int
    sent: list[tuple[int, bytes]] = field(default_factory=list)
    times: dict[int, tuple[int, int]] = field(default_factory=dict)
    time: tuple[int, int] = (0, 0)
    settled: int = 0
    shares: dict[bytes, list[bytes]] = field(default_factory=dict)  # that go with a MASKED
    looked: bool = False  # whether nodes were handed full shares in this attempt
    promises: list[bytes] = field(default_factory=list)  # the newest that have come

    def __post_init__(self) -> None:
        self.w, self.round_parameters = _world(self.kind)
        self.sum = np.zeros(DIMENSION, dtype=np.uint32)
        self.model = b""
        arguments = {"roster": self.w.roster, "round_parameters": self.round_parameters}
        self.aggregator = Aggregator(
            keys=self.w.keys[0],
            channel=self.w.channel(),
            round_parameters=self.round_parameters,
        )
        sessions = sessions_of(self.w)
        party = {
            index: partial(
                Masking if index in self.w.roster.silos else ComputeNode,
                keys=self.w.keys[index],
                session=session,
                mask_stream=MaskStream(),
                **arguments,
            )
            for index, session in sessions.items()
        }
        self.silos: dict[int, Masking] = {i: party[i]() for i in self.w.roster.silos}
        self.nodes: dict[int, ComputeNode] = {i: party[i]() for i in self.w.roster.nodes}

    def move(self, reader: Reader) -> None:
        """Whatever comes next."""
        moves = (self.begin, self.answer, self.ask, self.deliver, self.take, self.settle)
        reader.one_of(moves)(reader)

    def begin(self, reader: Reader) -> None:
        """The aggregator opens the next attempt, or the next round."""
        step, away = reader.number(), reader.number() % (_SILOS + 1)
        round, attempt = self.time
        time = (round, attempt + 1) if step % 2 and round else (round + 1, 0)
        if time[0] > self.round_parameters.steps:
            return
        active = set(self.w.roster.silos) - {away}
        numbers = np.array(time, dtype=np.float32)
        begun = partial(self.aggregator.begin, *time, active, numbers)
        model = self._refusable(self.aggregator, begun)
        if model is not None:
            self.time, self.model, self.sum[:] = time, model, 0
            self.looked = not self.round_parameters.full_shares

    def answer(self, reader: Reader) -> None:
        """A silo hears the newest model, perhaps changed, and answers it."""
        index = 1 + reader.number() % _SILOS
        if self.model:
            self._model_arrives(index, edited(reader, self.w, self.model))

    def ask(self, _: Reader) -> None:
        """The aggregator has waited long enough; with full shares nodes look at them first."""
        tag = Tag.REQUEST if self.looked else Tag.ARRIVED
        frames = self._refusable(self.aggregator, lambda: self.aggregator.ask_nodes(tag))
        self.looked |= frames is not None
        self.sent += (frames or {}).items()

    def deliver(self, reader: Reader) -> None:
        """A frame of the past, perhaps changed, comes to whom it was sent or to somebody else."""
        choice = reader.number()
        if not self.sent:
            return
        newest = choice >= 128  # 255 is the newest frame, 0 the oldest
        receiver, frame = self.sent[(choice - 256 if newest else choice) % len(self.sent)]
        changed = edited(reader, self.w, frame)
        if changed is not frame and reader.number() % 4 == 3:
            receiver = reader.number() % len(self.w.keys)
        self._arrive(receiver, changed)

    def settle(self, _: Reader) -> None:
        """Everything that was sent since the last time arrives, as it was sent."""
        waiting, self.settled = self.sent[self.settled :], len(self.sent)
        for receiver, frame in waiting:
            self._arrive(receiver, frame)

    def take(self, _: Reader) -> None:
        """The sum, which is that of what was accepted."""
        found = self._refusable(self.aggregator, self._sum)
        if found is not None:
            hold(np.array_equal(found, self.sum.view(np.int32)), "another sum than was accepted")

    def _sum(self) -> object:
        return self.aggregator.attempt.integers()

    def _arrive(self, receiver: int, frame: bytes) -> None:
        if receiver == 0:
            self._answer_arrives(frame)
        elif receiver in self.silos:
            self._model_arrives(receiver, frame)
        else:
            node = self.nodes[receiver]
            self._refusable(node, lambda: node.keep(frame))
            held = self._refusable(node, lambda: node.held(frame))
            self.sent += [] if held is None else [(0, held)]
            promise = self._refusable(node, lambda: node.promise(frame))
            if promise is not None:
                self._goes_forward(receiver, frame)
                self._reaches_quorum(_payload(frame)[:1])
                self.sent.append((0, promise))
            self._promise_arrives(node, frame)

    def _promise_arrives(self, node: ComputeNode, frame: bytes) -> None:
        """A node is shown the last promises that came, whoever made them."""
        if frame[1] != Tag.PROMISE:
            return
        self.promises = [*self.promises, frame][-len(self.nodes) :]
        total = self._refusable(node, lambda: node.total(self.promises))
        if total is not None:
            hold(len({_payload(one) for one in self.promises}) == 1, "a total of several promises")
            hold(len({unverified(one).sender for one in self.promises}) == 2, "a promise too few")
            self.sent.append((0, total))

    def _answer_arrives(self, frame: bytes) -> None:
        """The sum goes by what is accepted, and by nothing else; a promise goes to all nodes."""
        if self._refusable(self.aggregator, lambda: self._receive(frame)) is None:
            return
        said, answered = _payload(frame), frame[1] == Tag.MASKED
        if frame[1] == Tag.PROMISE:
            self.sent += [(node, frame) for node in self.nodes]
        elif frame[1] in (Tag.MASKED, Tag.TOTAL):
            if answered:
                said, model = said[:-DIGEST_BYTES], said[-DIGEST_BYTES:]
                hold(model == unverified(self.model).digest, "an answer to another model")
            vector = np.frombuffer(said, dtype="<u4") if said else 0
            negative = not answered and not self.round_parameters.full_shares
            self.sum = self.sum - vector if negative else self.sum + vector
        total = self.aggregator.attempt.total
        hold(np.array_equal(total, self.sum), "another sum than was accepted")

    def _receive(self, frame: bytes) -> bytes:
        """An answer, with the shares that its silo sent beside it."""
        shares = self.shares.get(frame, [])
        sender = unverified(frame).sender if shares else 0
        return self.aggregator.receive(frame, self.aggregator.checked_shares(sender, shares))

    def _model_arrives(self, index: int, model: bytes) -> None:
        silo = self.silos[index]
        attempt = self._refusable(silo, lambda: silo.accept(model))
        if attempt is None:
            return
        self._goes_forward(index, model)
        self._reaches_quorum(_payload(model)[:1])
        hold(index in attempt.active, "a silo that takes part without being asked")
        answer = silo.masked(attempt, np.full(DIMENSION, index, dtype=np.uint32))
        shares = silo.shares()
        self.shares[answer] = list(shares.values())
        self.sent += [(0, answer), *shares.items()]

    def _goes_forward(self, index: int, frame: bytes) -> None:
        """No party uses a time up twice, or goes back."""
        time = int.from_bytes(frame[50:54], "little"), int.from_bytes(frame[54:58], "little")
        hold(self.times.get(index, (0, 0)) < time, "a time used up twice")
        hold(time[0] <= self.round_parameters.steps, "a round after the last")
        self.times[index] = time

    def _reaches_quorum(self, bits: bytes) -> None:
        chosen = int.from_bytes(bits, "big")
        hold(chosen.bit_count() >= self.round_parameters.quorum, "fewer silos than the noise needs")
        hold(chosen % 16 == 0 and chosen < 256, "silos that do not exist")

    def _refusable(self, party: object, call: Callable[[], _Result]) -> _Result | None:
        """The result; or None after a refusal, which must leave the party as it was."""
        before = likeness(party)
        try:
            return call()
        except ProtocolError:
            hold(likeness(party) == before, "a refusal that leaves a trace")
            return None


def _payload(frame: bytes) -> bytes:
    return frame[HEADER_BYTES:-SIGNATURE_BYTES]
