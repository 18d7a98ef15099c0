"""Parties with fixed keys, a set-up whose relay is a function, and frames that anybody may forge.

Keys come from fixed seeds, so that signatures repeat; the parties' randomness does not, unless a
test asks for it. A relay is a function of (phase, receiver, frames) that returns what is delivered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.agreement.joint_seed import JointSeed, SeedCheck
from hubbub.core.protocol.agreement.key_agreement import (
    Agreement,
    Roll,
    RollCall,
    Session,
    called,
    sent_digests,
)
from hubbub.core.protocol.agreement.masks import MaskStream
from hubbub.core.protocol.primitives.identity import Identity, Keys, Roster
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import EVERYBODY, Channel, Frame, Tag, unverified
from hubbub.core.protocol.round.additive_shares import ShareNode, Sharing
from hubbub.core.protocol.round.aggregator import Aggregator
from hubbub.core.protocol.round.compute_node import ComputeNode
from hubbub.core.protocol.round.masking import Masking
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.session.offer import Layout

STUDY = hashlib.sha256(b"a study for tests").digest()
SESSION = bytes(range(16))
DIMENSION = 5
PROJECTED = 8  # coordinates that a world with joint seeds projects to DIMENSION
Relay = Callable[[str, int, Any], Any]


def fixed_keys(name: str, role: str) -> Keys:
    """Keys that follow from the name alone."""
    signing = Ed25519PrivateKey.from_private_bytes(_seed("signing", name, 32))
    lattice, curve = fixed_opening(name)
    identity = Identity(
        name=name,
        role=role,
        verifying=signing.public_key().public_bytes_raw(),
        sealing=lattice.public_key().public_bytes_raw() + curve.public_key().public_bytes_raw(),
    )
    return Keys(
        identity=identity,
        _signing=signing,
        _lattice=lattice.private_bytes_raw(),
        _curve=curve.private_bytes_raw(),
    )


def fixed_opening(name: str) -> tuple[MLKEM768PrivateKey, X25519PrivateKey]:
    """The two private halves with which a party opens."""
    lattice = MLKEM768PrivateKey.from_seed_bytes(_seed("lattice", name, 64))
    return lattice, X25519PrivateKey.from_private_bytes(_seed("curve", name, 32))


def _seed(purpose: str, name: str, size: int) -> bytes:
    return hashlib.shake_256(f"{purpose} of {name}".encode()).digest(size)


@dataclass(frozen=True, kw_only=True, eq=False)  # hashed by identity
class World:
    """A roster, everybody's keys, and who shares masks with whom.

    With joint seeds (`joint`), sums are projected by signs. With a `correlation`, noise has one.
    """

    layout: Layout
    keys: tuple[Keys, ...] = field(repr=False)
    quorum: int
    joint: bool = False
    correlation: tuple[int, ...] = ()

    @cached_property
    def roster(self) -> Roster:
        return Roster.of(self.keys)

    @cached_property
    def round_parameters(self) -> RoundParameters:
        return RoundParameters(
            dimension=DIMENSION,
            parameters=PROJECTED if self.joint else 2,
            silos=len(self.layout.names),
            quorum=self.quorum,
            steps=9,
            word_bits=32,
            grid_step=1.0,
            sigma_grid=0.0,
            sample_rate=1.0,
            nodes=self.layout.nodes,
            projection="sign" if self.joint else "",
            clip=2.0**20,
            most_records=1 << 10,
            correlation=self.correlation,
        )

    def rolled(
        self, silos: Collection[int] | None = None, session: bytes = SESSION
    ) -> tuple[bytes, Roll]:
        """The ROLL of a session of these silos, or of all."""
        chosen = frozenset(silos or self.roster.silos)
        return called(self.keys[0], self.channel(session), chosen)

    def channel(self, session: bytes = SESSION) -> Channel:
        """What the frames of a session belong to."""
        return Channel(roster=self.roster, study=STUDY, session=session)

    def roll_call(self, index: int = 1, session: bytes = SESSION) -> RollCall:
        """A party that waits for its ROLL."""
        return RollCall(self.channel(session), quorum=self.quorum, index=index)

    def seed_check(self, session: bytes = SESSION) -> SeedCheck:
        """Who checks links and has none."""
        return SeedCheck(self.channel(session), **self._chains)

    def seeds(
        self, index: int, session: bytes = SESSION, source: SecureSource | None = None
    ) -> JointSeed:
        """One silo's part of the joint seeds."""
        keys, channel = self.keys[index], self.channel(session)
        return JointSeed(keys=keys, channel=channel, index=index, source=source, **self._chains)

    @property
    def _chains(self) -> dict[str, int]:
        """How long a chain of links is."""
        return {"steps": self.round_parameters.steps, "attempts": self.round_parameters.attempts}

    def agreement(self, index: int, **changes: Any) -> Agreement:
        """One party's side of the set-up; changes replace its arguments, or its channel's."""
        place = {name: changes.pop(name) for name in vars(self.channel()) if name in changes}
        channel = replace(self.channel(), **place)
        arguments: dict[str, Any] = {
            "keys": self.keys[index],
            "channel": channel,
            "index": index,
            "source": SecureSource(),
        }
        roll = changes.get("roll") or self.rolled(session=channel.session)[1]
        arguments |= {
            "roll": roll,
            "neighbours_of": partial(self.layout.neighbours, index, present=roll.silos),
            "extra_confirmers": () if self.layout.nodes else roll.silos,
        }
        return Agreement(**(arguments | changes))

    def aggregator(self, seeds: SeedCheck | None = None, session: bytes = SESSION) -> Aggregator:
        return Aggregator(
            keys=self.keys[0],
            channel=self.channel(session),
            round_parameters=self.round_parameters,
            seeds=seeds,
        )

    def masking(self, session: Session, mask_stream: MaskStream | None = None) -> Masking:
        is_full = self.round_parameters.full_shares
        masking_of = partial(Sharing, source=SecureSource()) if is_full else Masking
        return masking_of(
            keys=self.keys[session.index],
            roster=self.roster,
            round_parameters=self.round_parameters,
            session=session,
            mask_stream=mask_stream or MaskStream(),
        )

    def node(self, session: Session, mask_stream: MaskStream | None = None) -> ComputeNode:
        node_of = ShareNode if self.round_parameters.full_shares else ComputeNode
        return node_of(
            keys=self.keys[session.index],
            roster=self.roster,
            round_parameters=self.round_parameters,
            session=session,
            mask_stream=mask_stream or MaskStream(),
        )

    def forge(self, sender: int, tag: Tag, payload: bytes = b"", **changes: Any) -> bytes:
        """A frame with a true signature of `sender`, whatever it claims."""
        arguments: dict[str, Any] = {"study": STUDY, "session": SESSION, "receiver": EVERYBODY}
        frame = Frame(tag=tag, sender=sender, payload=payload, **(arguments | changes))
        return frame.sealed(self.keys[sender])

    def promises(self, own: bytes) -> list[bytes]:
        """A node's PROMISE, and those that the others make in whatever it says."""
        said = unverified(own)
        where = {"round": said.round, "attempt": said.attempt}
        others = [node for node in self.roster.nodes if node != said.sender]
        payload = bytes(said.payload)
        return [own, *(self.forge(node, Tag.PROMISE, payload, **where) for node in others)]

    def totals(self, aggregator: Aggregator, nodes: Mapping[int, ComputeNode]) -> None:
        """What an honest aggregator and its nodes do once all silos have answered."""
        promises = [nodes[i].promise(one) for i, one in aggregator.ask_nodes(Tag.REQUEST).items()]
        for one in promises:
            aggregator.receive(one)
        for node in nodes.values():
            aggregator.receive(node.total(promises))

    def total(self, node: ComputeNode, request: bytes) -> bytes:
        """What a node tells whose fellows all promise what it promises itself."""
        return node.total(self.promises(node.promise(request)))

    def model(
        self,
        active: Sequence[int],
        round: int = 1,
        attempt: int = 0,
        value: float = 0.0,
        row: int = 0,
    ) -> bytes:
        """A MODEL as a malicious aggregator may send it to one silo only."""
        parameters = np.full(self.round_parameters.parameters, value, dtype=np.float32)
        payload = b"".join(self.round_parameters.model_parts(active, parameters, row))
        return self.forge(0, Tag.MODEL, payload, round=round, attempt=attempt)

    def request(
        self,
        node: int,
        silos: Sequence[int],
        round: int = 1,
        attempt: int = 0,
        model: bytes = bytes(32),
        tag: Tag = Tag.REQUEST,
    ) -> bytes:
        """A REQUEST, or an ARRIVED, as a malicious aggregator may send it."""
        payload = self.round_parameters.named_payload(silos, model)
        where = {"receiver": node, "round": round, "attempt": attempt}
        return self.forge(0, tag, payload, **where)


@lru_cache(maxsize=32)
def world(
    silos: int = 4,
    nodes: int = 0,
    *,
    quorum: int = 3,
    degree: int = 0,
    each: int = 0,
    joint: bool = False,
    correlation: tuple[int, ...] = (),
) -> World:
    """A world of silos a, b, c, ... and nodes; degree 0 is the complete graph."""
    names = tuple(f"silo-{number}" for number in range(1, silos + 1))
    layout = Layout(names=names, nodes=nodes, nodes_per_silo=each, degree=degree or silos - 1)
    keys = [fixed_keys("aggregator", "aggregator")]
    keys += [fixed_keys(name, "silo") for name in names]
    keys += [fixed_keys(f"node-{number}", "node") for number in range(1, nodes + 1)]
    return World(
        layout=layout, keys=tuple(keys), quorum=quorum, joint=joint, correlation=correlation
    )


def honest(phase: str, receiver: int, frames: Any) -> Any:
    """The relay that delivers what was sent."""
    return frames


def set_up(
    w: World, relay: Relay = honest, silos: Collection[int] | None = None, **changed: Agreement
) -> dict[int, Session]:
    """A whole set-up of some silos, or all, through a relay; `p2=...` replaces party 2."""
    _, roll = w.rolled(silos)
    here = [*sorted(roll.silos), *w.roster.nodes]
    parties = {i: changed.get(f"p{i}", w.agreement(i, roll=roll)) for i in here}
    if not w.layout.nodes:
        commits = [party.commit() for party in parties.values()]
        reveals = [party.reveal(relay("commits", i, commits)) for i, party in parties.items()]
        for index, party in parties.items():
            party.learn_seed(relay("reveals", index, reveals))
    sent = {index: party.contribute() for index, party in parties.items()}
    digests = sent_digests(sent, len(w.keys))
    confirms, checks = {}, {}
    for index, party in parties.items():
        inbox = relay("contributions", index, _inbox(sent, index))
        confirms[index], checks[index] = party.confirm(inbox, relay("digests", index, digests))
    sessions = {}
    for index, party in parties.items():
        confirmed = [confirms[other] for other in party.confirmers]
        sessions[index] = party.finish(
            relay("confirms", index, confirmed), relay("checks", index, _inbox(checks, index))
        )
    return sessions


@lru_cache(maxsize=32)
def sessions_of(w: World) -> dict[int, Session]:
    """The sessions of one honest set-up, which tests of the round share."""
    return set_up(w)


@contextmanager
def refused(culprit: str, says: str) -> Iterator[None]:
    """Expects a ProtocolError that blames this party and says this."""
    with pytest.raises(ProtocolError, match=says) as caught:
        yield
    assert caught.value.culprit == culprit


def flipped(data: bytes, place: int) -> bytes:
    """The bytes with one bit changed."""
    changed = bytearray(data)
    changed[place] ^= 1
    return bytes(changed)


def _inbox(sent: dict[int, dict[int, bytes]], index: int) -> list[bytes]:
    return [frames[index] for frames in sent.values() if index in frames]
