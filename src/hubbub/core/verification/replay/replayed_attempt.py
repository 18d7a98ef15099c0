"""One attempt while a transcript is played: who was asked, who answered, and what it adds up to.

What may come when, and whose signature it must have, is the business of `replayed_session.py`.
This file knows one attempt, and believes that its frames were signed by their senders.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.agreement.joint_seed import SeedCheck
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.wire import Tag, unverified
from hubbub.core.protocol.round.additive_shares import Place, digest_of_shares
from hubbub.core.protocol.round.round_parameters import Parameters, RoundParameters
from hubbub.core.verification.transcript.frame_records import Kept

Time = tuple[int, int]


@dataclass
class ReplayedAttempt:
    """An attempt while its answers are read."""

    time: Time
    active: frozenset[int]
    model: bytes
    parameters: Parameters = field(repr=False)
    total: ring.Residues = field(repr=False)
    links: list[bytes] = field(default_factory=list, repr=False)
    seed: bytes | None = None
    arrived: set[int] = field(default_factory=set)
    shares: dict[int, dict[int, bytes]] = field(default_factory=dict)  # node, silo, SHARE's digest
    told: dict[Tag, set[int]] = field(default_factory=dict)  # nodes that were asked, by ARRIVED too
    closed: set[int] = field(default_factory=set)  # silos whose shares some node could not open
    held: set[int] = field(default_factory=set)
    promises: set[int] = field(default_factory=set)  # of nodes
    totals: set[int] = field(default_factory=set)
    asked: bool = False
    whole: bool = True

    def is_complete(self, round_parameters: RoundParameters, nodes: Iterable[int]) -> bool:
        """Whether no mask is left on the sum."""
        if round_parameters.nodes:
            return len(self.summed) >= round_parameters.quorum and self.totals == set(nodes)
        return self.arrived == self.active

    @property
    def summed(self) -> set[int]:
        """Silos whose answers are in the sum."""
        return self.arrived - self.closed

    def add(
        self, kept: Kept, round_parameters: RoundParameters, sender: str, aggregator: str
    ) -> None:
        """Take an answer in, if its vector was kept."""
        is_total = kept.tag is Tag.TOTAL
        if not is_total and kept.answered != self.model:
            raise ProtocolError(
                f"expected {sender} to answer the MODEL of this attempt, found that it was shown "
                "another, or says so: what such silos send does not add up",
                culprit=aggregator,
            )
        (self.totals if is_total else self.arrived).add(kept.sender)
        if kept.payload is None:
            self.whole = False
            return
        frame = unverified(kept.frame)
        if is_total:
            combine = np.add if round_parameters.full_shares else np.subtract
            combine(self.total, round_parameters.read_total(frame, sender), out=self.total)
        else:
            self.total += round_parameters.read_answer(frame, self.model, aggregator)

    def add_link(self, kept: Kept, seeds: SeedCheck, sender: str) -> None:
        """Take a silo's link; with the last one the joint seed is known."""
        if self.arrived or self.seed is not None:
            raise ProtocolError("expected its link before the answers, once", culprit=sender)
        self.links.append(kept.frame)
        if len(self.links) == len(self.active):
            self.seed = seeds.seed(*self.time, self.active, self.links)

    def check_request(self, kept: Kept, round_parameters: RoundParameters, sender: str) -> None:
        """A node must be asked about those who answered, and nobody else, and about their MODEL."""
        named, model = round_parameters.read_request(unverified(kept.frame), sender, self.active)
        total = kept.tag is Tag.REQUEST
        done, wanted = (self.totals, self.summed) if total else (self.held, self.arrived)
        if kept.sender != 0 or kept.receiver in done or not (total or round_parameters.full_shares):
            raise ProtocolError(
                f"expected {kept.tag.name} before the node's answer", culprit=sender
            )
        self.asked |= total
        self.told.setdefault(kept.tag, set()).add(kept.receiver)
        if named != wanted or model != self.model:
            raise ProtocolError(
                f"expected a {kept.tag.name} that names the {len(wanted)} silos that answered "
                "this MODEL, found another set or another MODEL",
                culprit=sender,
            )
        if total and self.held != self.told.get(Tag.ARRIVED, set()):
            raise ProtocolError("expected every node's HELD before a REQUEST", culprit=sender)

    def add_promise(self, kept: Kept, round_parameters: RoundParameters, sender: str) -> None:
        """A node's word for the silos that it was asked about, which are all that answered."""
        named, model = round_parameters.read_request(unverified(kept.frame), sender, self.active)
        if not self.asked or named != self.summed or model != self.model:
            raise ProtocolError(
                f"expected {sender} to promise the total of the {len(self.summed)} silos whose sum "
                "is taken, found a promise of others",
                culprit=sender,
            )
        self.promises.add(kept.sender)

    def add_held(
        self, kept: Kept, round_parameters: RoundParameters, sender: str, aggregator: str
    ) -> None:
        """A node's word about the shares that it was handed.

        Where shares were kept, it must be about these; there are none in transcripts of old.
        """
        if not round_parameters.full_shares:
            raise ProtocolError("expected no HELD in this study, found one", culprit=sender)
        closed, digest = round_parameters.read_named(unverified(kept.frame), sender)
        place = Place(round=self.time[0], attempt=self.time[1], model=self.model)
        shares = self.shares.get(kept.sender, {})
        if self.shares and digest != digest_of_shares(place, shares):
            raise ProtocolError(
                f"expected {sender} to speak of the shares that it was handed for this MODEL, "
                "found a word about others",
                culprit=aggregator,
            )
        if not closed <= (shares.keys() if self.shares else self.arrived):
            raise ProtocolError("expected a HELD about silos that use the node", culprit=sender)
        self.held.add(kept.sender)
        self.closed |= closed

    def add_share(self, kept: Kept, sender: str) -> None:
        """That a silo has sent a node a share with its answer."""
        handed = self.shares.setdefault(kept.receiver, {})
        if kept.sender not in self.arrived or kept.sender in handed or self.told:
            raise ProtocolError(
                "expected one SHARE for a node, after its silo's MASKED and before ARRIVED",
                culprit=sender,
            )
        handed[kept.sender] = hashlib.sha256(kept.signed).digest()
