"""Full random shares: the paper's Algorithm 1 to the letter, `shares = "full"`.

A silo's residues are divided into one uniformly random vector for each of its compute nodes, which
add up to them. All but one of the nodes learn nothing even with unlimited computing power, as far
as the shares go; on the way to the node each travels encrypted, under a key for the MODEL that it
answers. It costs the silo a vector per node where compressed shares cost one in all, and is the
baseline that those are measured against.

Whether a share opens only its node can see. So each node says first, signed, whose shares do not
open, and only then is asked for a total of silos whose shares all nodes have (docs/privacy.md P4).
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.agreement.key_agreement import Place, Session
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import Frame, Tag, doubled_by
from hubbub.core.protocol.round.compute_node import ComputeNode
from hubbub.core.protocol.round.masking import Attempt, Masking
from hubbub.core.protocol.round.round_parameters import Turn, digest_of_shares

# A key seals one share of one attempt, so the nonce need not vary.
_NONCE = bytes(12)


def divided(residues: ring.Residues, parts: int, source: SecureSource) -> list[ring.Residues]:
    """Vectors that sum to `residues`: all but the last uniform and independent of it."""
    shares = []
    last = residues.copy()
    for _ in range(parts - 1):
        # P4: any of these vectors, as long as one is lacking, are uniform whatever the residues
        # are.
        share = np.empty_like(residues)
        source.fill(share)
        last -= share
        shares.append(share)
    return [*shares, last]


def sealed_shares(
    residues: ring.Residues, session: Session, place: Place, source: SecureSource
) -> Mapping[int, bytes]:
    """By compute node, its share of the residues, encrypted for it."""
    nodes = sorted(session.secrets)
    return {
        node: _cipher(session, node, place, session.index).encrypt(
            _NONCE, ring.to_bytes(share), None
        )
        for node, share in zip(nodes, divided(residues, len(nodes), source), strict=True)
    }


@dataclass(frozen=True)
class _Held:
    """A silo's newest SHARE at a node: sealed until the MODEL is known that it answers."""

    time: tuple[int, int]
    digest: bytes
    sealed: bytes = field(repr=False)


class Collection:
    """The newest share of every silo that one node has received.

    Args:
        session: the node's.
        dimension, word_bits: of a vector.
    """

    def __init__(self, session: Session, dimension: int, word_bits: int) -> None:
        self._session, self._dimension, self._word_bits = session, dimension, word_bits
        self._held: dict[int, _Held] = {}
        self._opened: dict[int, ring.Residues] = {}
        self._place: Place | None = None

    def add(self, frame: Frame, sealed: bytes | memoryview, sender: str) -> None:
        """Keep a silo's share in the place of its earlier one."""
        time, last = (frame.round, frame.attempt), self._held.get(frame.sender)
        if last is not None and time < last.time:
            raise ProtocolError("expected a share of the newest attempt", culprit="relay")
        if last is not None and time == last.time:
            raise ProtocolError(
                f"expected one share of {sender}, got a second",
                culprit=doubled_by(frame, last.digest, sender),
            )
        self._held[frame.sender] = _Held(time, frame.digest, bytes(sealed))

    def check_there(self, round: int, attempt: int, silos: Set[int]) -> None:
        """ProtocolError unless these silos have all sent a share for an attempt."""
        time = (round, attempt)
        there = {silo for silo in silos if silo in self._held and self._held[silo].time == time}
        if there != silos:
            raise ProtocolError(
                f"expected shares of the {len(silos)} silos that arrived, got {len(there)}",
                culprit="relay",
            )

    def open(self, place: Place, silos: Set[int]) -> tuple[frozenset[int], bytes]:
        """Open the shares of these silos, which are there, in the place of an earlier attempt's.

        Returns:
            The silos whose shares do not open, and the digest of all that was looked at.
        """
        opened = {silo: self._residues(silo, place) for silo in silos}
        self._opened = {silo: one for silo, one in opened.items() if one is not None}
        self._place = place
        for silo in self._opened:  # what is open is not kept twice
            self._held[silo] = replace(self._held[silo], sealed=b"")
        digests = {silo: self._held[silo].digest for silo in silos}
        return frozenset(silos - self._opened.keys()), digest_of_shares(place.model, digests)

    def check_open(self, place: Place, silos: Set[int]) -> None:
        """See that the shares of all these silos were opened."""
        # P4: what was opened for another MODEL is no share of this sum.
        there = silos & self._opened.keys() if place == self._place else set()
        if there != silos:
            raise ProtocolError(
                f"expected open shares of the {len(silos)} silos of the request, got "
                f"{len(there)}; the attempt is abandoned",
                culprit="relay",
            )

    def total(self, place: Place, silos: Set[int]) -> ring.Residues:
        """The sum of the shares of exactly these silos; others are left out."""
        self.check_open(place, silos)
        total = ring.zeros(self._dimension, self._word_bits)
        for silo in silos:
            total += self._opened[silo]
        return total

    def _residues(self, silo: int, place: Place) -> ring.Residues | None:
        """A silo's share, if it was sealed for this node, this attempt and this MODEL."""
        try:
            share = _cipher(self._session, silo, place, silo).decrypt(
                _NONCE, self._held[silo].sealed, None
            )
        # No error here: the node says so in its HELD, and the silo is left out (P4).
        except InvalidTag:
            return None
        return ring.from_bytes(share, self._dimension, self._word_bits)


def _cipher(session: Session, other: int, place: Place, silo: int) -> AESGCM:
    """The cipher of one share; `other` is whom the secret is shared with."""
    return AESGCM(session.secrets[other].share_key(session.transcript, place, silo))


# The parties of a round that differ where shares are full.


class Sharing(Masking):
    """A silo's side of the wire where its residues are divided among its nodes.

    Args:
        source: the silo's randomness.
        given: as for `Masking`.
    """

    def __init__(self, *, source: SecureSource, **given: Any) -> None:
        super().__init__(**given)
        self._source = source
        self._shares: dict[int, bytes] = {}

    def shares(self) -> dict[int, bytes]:
        """By compute node, the SHARE that goes with the last answer; each is handed out once."""
        shares, self._shares = self._shares, {}
        return shares

    def _hidden(self, attempt: Attempt, residues: ring.Residues) -> bytes:
        # P4: no masks: all shares but one are uniform and tell nothing of the vector.
        # P3: a copy of this machine draws the same shares for this MODEL, and others for any other.
        source = self._source.branch(b"shares" + attempt.model)
        sealed = sealed_shares(residues, self._session, attempt, source)
        self._shares = {
            node: self._frame(Tag.SHARE, attempt, node, share) for node, share in sealed.items()
        }
        return self._frame(Tag.MASKED, attempt, 0, attempt.model)


class ShareNode(ComputeNode):
    """A compute node that adds up full shares.

    It says once of an attempt whose shares do not open here. The share of a silo that was shown
    another MODEL than the one that the aggregator states does not (docs/privacy.md P4).

    Args:
        given: as for `ComputeNode`.
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        numbers = self._round_parameters
        self._looked = Turn()
        self._collection = Collection(self._session, numbers.dimension, numbers.word_bits)

    def keep(self, share: bytes) -> None:
        """Add a silo's full share to those of its attempt.

        Raises:
            ProtocolError: it is not from a silo that uses this node, not of the length, late, or
                the silo's second.
        """
        frame, sender = self._share_for_me(share)
        if frame.sender not in self._session.secrets:
            raise self._no_share(sender)
        self._check_not_answered(frame)
        self._collection.add(frame, self._round_parameters.read_share(frame, sender), sender)

    def held(self, arrived: bytes) -> bytes:
        """What this node says of the shares of an attempt, before it is asked for their total.

        Args:
            arrived: the aggregator's ARRIVED; the shares of all that it names were kept before.

        Returns:
            HELD: the silos whose shares do not open, and the digest of all these shares.

        Raises:
            ProtocolError: it is not from the aggregator, not for this node and session, of an
                attempt that was spoken about or answered, or names a silo whose share did not come.
        """
        frame, sender, silos, place = self._asked(arrived, Tag.ARRIVED)
        self._check_not_answered(frame)
        users = silos & set(self._session.secrets)
        # Before the word is used up: shares that were lost on the way may still come.
        self._collection.check_there(frame.round, frame.attempt, users)
        # P4: once in an attempt. A word tells of each share whether it opens for one MODEL; a
        # second one, for another MODEL, would tell more.
        self._looked.take(frame, self._round_parameters.steps, sender)
        closed, digest = self._collection.open(place, users)
        payload = self._round_parameters.named_payload(closed, digest)
        return self._frame(Tag.HELD, frame, payload).sealed(self._keys)

    def _check_not_answered(self, frame: Frame) -> None:
        if (frame.round, frame.attempt) <= self._turn.last:
            raise ProtocolError("expected an attempt not answered yet", culprit="relay")

    def _check_there(self, place: Place, silos: Set[int]) -> None:
        # P4: a silo whose share did not open here is not in this node's total.
        self._collection.check_open(place, silos)

    def _total_of(self, place: Place, silos: Set[int]) -> ring.Residues:
        return self._collection.total(place, silos)
