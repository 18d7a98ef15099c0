"""A collection in one process: everybody's part, with fixed keys, for tests that play with it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import Tag
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.site.collected.collection_frames import CollectionPlace, Deposit, Deposited, Opening
from hubbub.site.collected.collector import Collector
from hubbub.site.collected.node import CollectionNode, NodeState
from protocol.parties import SESSION, STUDY, World, world

NOTHING = np.zeros(2, dtype=np.float32)


@dataclass(kw_only=True)
class Task:
    """A silo whose sum is this vector."""

    vector: NDArray[np.float64]
    count: int = 3
    capacity: int = 3

    def clipped_sum(self, parameters: Any, rows: Any) -> NDArray[np.float64]:
        assert sorted(rows.tolist()) == [0, 1, 2]
        return self.vector


@dataclass
class Collection:
    """One collection, honest unless a test does otherwise."""

    w: World
    sigma: float = 0.0
    id: bytes = SESSION
    states: dict[int, NodeState] = field(default_factory=dict)

    @cached_property
    def place(self) -> CollectionPlace:
        return CollectionPlace(roster=self.w.roster, study=STUDY, session=self.id)

    @cached_property
    def numbers(self) -> RoundParameters:
        return replace(self.w.round_parameters, sigma_grid=self.sigma)

    @cached_property
    def collect(self) -> bytes:
        return self.w.forge(0, Tag.COLLECT, b'{"purpose": "statistics"}', session=self.id)

    @property
    def silos(self) -> list[int]:
        return list(self.w.roster.silos)

    @property
    def nodes(self) -> list[int]:
        return list(self.w.roster.nodes)

    @cached_property
    def node_keys(self) -> list[bytes]:
        return [self.begin(node) for node in self.nodes]

    def begin(self, node: int) -> bytes:
        self.states[node] = self.node(node).begin(self.collect)
        return self.states[node].node_key

    @cached_property
    def opening(self) -> Opening:
        return Opening.read(self.place, self.collect, self.node_keys)

    def node(self, node: int) -> CollectionNode:
        return CollectionNode(
            keys=self.w.keys[node], node=node, place=self.place, round_parameters=self.numbers
        )

    def vector(self, silo: int) -> NDArray[np.float64]:
        """Of which every sum of silos is another."""
        return np.full(self.numbers.dimension, float(10**silo))

    def silo(self, silo: int, opening: Opening | None = None) -> Deposit:
        return Deposit(
            keys=self.w.keys[silo],
            silo=silo,
            opening=opening or self.opening,
            round_parameters=self.numbers,
        )

    def deposit(
        self,
        silo: int,
        source: SecureSource | None = None,
        opening: Opening | None = None,
        vector: NDArray[np.float64] | None = None,
    ) -> Deposited:
        task = Task(vector=self.vector(silo) if vector is None else vector)
        return self.silo(silo, opening).made(task, NOTHING, source or SecureSource())

    def promise(self, node: int, fixed: bytes, deposits: list[bytes]) -> bytes:
        state = self.node(node).promised(self.states[node], self.node_keys, fixed, deposits)
        self.states[node] = state
        return state.promise

    def total(self, node: int, deposits: list[bytes], promises: list[bytes]) -> bytes:
        state = self.node(node).told(self.states[node], self.node_keys, deposits, promises)
        self.states[node] = state
        return state.total

    def set_of(self, deposits: dict[int, Deposited], q: bytes = b"") -> bytes:
        """A SET as a malicious aggregator signs it."""
        digests = b"".join(digest(deposits[silo].deposit) for silo in sorted(deposits))
        payload = (q or self.opening.q) + self.numbers.bitmap(deposits) + digests
        return self.w.forge(0, Tag.SET, payload, session=self.id)

    def collector(self) -> Collector:
        return Collector(place=self.place, round_parameters=self.numbers, collect=self.collect)

    def collector_with_keys(self) -> Collector:
        found = self.collector()
        for one in self.node_keys:
            found.take_key(one)
        return found


def collection(silos: int = 5, nodes: int = 3, *, quorum: int = 4, **named: Any) -> Collection:
    return Collection(world(silos, nodes, quorum=quorum), **named)


def digest(frame: bytes) -> bytes:
    """Of a frame, as it stands for it."""
    from hubbub.core.protocol.primitives.wire import unverified

    return unverified(frame).digest


def residues(frame: bytes) -> NDArray[np.uint32]:
    """Of a VECTOR or a SET_TOTAL."""
    return np.frombuffer(frame[74:-64], "<u4", count=5)


def seeded(word: str) -> SecureSource:
    return SecureSource(hashlib.sha256(word.encode()).digest()[:16])
