"""Full random shares: the paper's Algorithm 1 to the letter, `shares = "full"`.

A silo's residues are divided into one uniformly random vector for each of its compute nodes, which
add up to them. All but one of the nodes learn nothing even with unlimited computing power, as far
as the shares go; on the way to the node each travels encrypted. It costs the silo a vector per
node where compressed shares cost one in all, and is the baseline that those are measured against.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hubbub.errors import ProtocolError
from hubbub.protocol.agreement import Session
from hubbub.protocol.primitives import Frame, SecureSource, doubled_by, ring

# A key seals one share of one attempt, so the nonce need not vary.
_NONCE = bytes(12)


def divided(residues: ring.Residues, parts: int, source: SecureSource) -> list[ring.Residues]:
    """Vectors that sum to `residues`: all but the last uniform and independent of it."""
    shares = []
    last = residues.copy()
    for _ in range(parts - 1):
        share = np.empty_like(residues)
        source.fill(share)
        last -= share
        shares.append(share)
    return [*shares, last]


def sealed_shares(
    residues: ring.Residues, session: Session, round: int, attempt: int, source: SecureSource
) -> Mapping[int, bytes]:
    """By compute node, its share of the residues, encrypted for it."""
    nodes = sorted(session.secrets)
    return {
        node: _cipher(session, node, round, attempt, session.index).encrypt(
            _NONCE, ring.to_bytes(share), None
        )
        for node, share in zip(nodes, divided(residues, len(nodes), source), strict=True)
    }


class Collection:
    """The newest share of every silo that one node has received."""

    def __init__(self, dimension: int, word_bits: int) -> None:
        self._dimension, self._word_bits = dimension, word_bits
        self._held: dict[int, tuple[tuple[int, int], bytes, ring.Residues]] = {}

    def add(self, frame: Frame, share: bytes, sender: str) -> None:
        """Keep a silo's share in the place of its earlier one."""
        time = (frame.round, frame.attempt)
        last, digest, _ = self._held.get(frame.sender, ((0, 0), b"", None))
        if time < last:
            raise ProtocolError("expected a share of the newest attempt", culprit="relay")
        if time == last:
            raise ProtocolError(
                f"expected one share of {sender}, got a second",
                culprit=doubled_by(frame, digest, sender),
            )
        residues = ring.from_bytes(share, self._dimension, self._word_bits)
        self._held[frame.sender] = (time, frame.digest, residues)

    def total(self, time: tuple[int, int], silos: Set[int]) -> ring.Residues:
        """The sum of the shares of exactly these silos; others are left out."""
        there = {silo for silo in silos if silo in self._held and self._held[silo][0] == time}
        if there != silos:
            raise ProtocolError(
                f"expected shares of the {len(silos)} silos of the request, got {len(there)}; "
                "the attempt is abandoned",
                culprit="relay",
            )
        total = ring.zeros(self._dimension, self._word_bits)
        for silo in silos:
            total += self._held[silo][2]
        return total


def opened_share(
    sealed: bytes | memoryview, session: Session, silo: int, round: int, attempt: int, name: str
) -> bytes:
    """The share that a silo sealed for this node.

    Raises:
        ProtocolError: it was not sealed by this silo for this node and attempt.
    """
    try:
        return _cipher(session, silo, round, attempt, silo).decrypt(_NONCE, bytes(sealed), None)
    except InvalidTag:
        raise ProtocolError("expected a share sealed for me, got another", culprit=name) from None


def _cipher(session: Session, other: int, round: int, attempt: int, silo: int) -> AESGCM:
    """The cipher of one share; `other` is whom the secret is shared with."""
    key = session.secrets[other].share_key(
        transcript=session.transcript, round=round, attempt=attempt, sender=silo
    )
    return AESGCM(key)
