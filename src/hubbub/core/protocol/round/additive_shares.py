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

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.agreement.key_agreement import Place, Session
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import Frame, digest_by_party, doubled_by

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


def digest_of_shares(place: Place, shares: Mapping[int, bytes]) -> bytes:
    """SHA-256 over what a node was handed for an attempt: from silo to its SHARE's digest."""
    return digest_by_party(b"hubbub held v1" + place.model, shares)


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
        return frozenset(silos - self._opened.keys()), digest_of_shares(place, digests)

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
