"""A compute node's part: the total of the masks, or full shares, of those silos that answered.

It holds nothing but keys. It answers once for a round and attempt, and never for a set of silos
below the quorum: two answers, or a small one, would open single silos' vectors to the aggregator.
"""

from __future__ import annotations

from collections.abc import Set

from hubbub.errors import ProtocolError
from hubbub.protocol.agreement import MaskStream, Session, active_digest
from hubbub.protocol.primitives import Frame, Keys, Roster, Tag, parse, ring
from hubbub.protocol.round.additive_shares import Collection, opened_share
from hubbub.protocol.round.round_parameters import RoundParameters, Turn


class ComputeNode:
    """One compute node in one session."""

    def __init__(
        self,
        *,
        keys: Keys,
        roster: Roster,
        terms: RoundParameters,
        session: Session,
        mask_stream: MaskStream,
    ) -> None:
        self._keys, self._roster, self._terms = keys, roster, terms
        self._session, self._mask_stream = session, mask_stream
        self._turn = Turn()
        self._collection = Collection(terms.dimension, terms.word_bits)

    def keep(self, share: bytes) -> None:
        """Add a silo's full share to those of its attempt.

        Raises:
            ProtocolError: it is not from a silo that uses this node, not sealed for it, late, or
                the silo's second.
        """
        frame = parse(share, self._roster, study=self._session.study, session=self._session.id)
        sender = self._roster.name(frame.sender)
        if frame.tag is not Tag.SHARE or frame.receiver != self._session.index:
            raise ProtocolError(
                f"expected a SHARE for me, got another {frame.tag.name}", culprit="relay"
            )
        if not self._terms.full_shares or frame.sender not in self._session.secrets:
            raise ProtocolError("expected no SHARE from this party, got one", culprit=sender)
        if (frame.round, frame.attempt) <= self._turn.last:
            raise ProtocolError("expected a share of an attempt not answered yet", culprit="relay")
        sealed = self._terms.read_share(frame, sender)
        opened = opened_share(
            sealed, self._session, frame.sender, frame.round, frame.attempt, sender
        )
        self._collection.add(frame, opened, sender)

    def total(self, request: bytes) -> bytes:
        """The answer to the aggregator's REQUEST.

        Raises:
            ProtocolError: it is not from the aggregator, not for this node and session, was
                answered before, or names too few silos or unknown ones. Silos that do not use this
                node may be named; they add nothing.
        """
        frame = parse(request, self._roster, study=self._session.study, session=self._session.id)
        sender = self._roster.name(frame.sender)
        if frame.tag is not Tag.REQUEST or frame.sender != 0:
            raise ProtocolError(
                f"expected a REQUEST from the aggregator, got a {frame.tag.name} of {sender}",
                culprit=sender if frame.tag is Tag.REQUEST else "relay",
            )
        if frame.receiver != self._session.index:
            raise ProtocolError("expected a REQUEST for me, got another node's", culprit="relay")
        arrived = self._terms.read_silos(frame.payload, sender)
        users = arrived & set(self._session.secrets)
        collected = None
        if self._terms.full_shares:
            collected = self._collection.total((frame.round, frame.attempt), users)
        self._turn.take(frame, self._terms.steps, sender)
        residues = (
            self._masks(frame.round, frame.attempt, users) if collected is None else collected
        )
        return Frame(
            tag=Tag.TOTAL,
            study=self._session.study,
            session=self._session.id,
            round=frame.round,
            attempt=frame.attempt,
            sender=self._session.index,
            receiver=0,
            payload=ring.to_bytes(residues),
        ).sealed(self._keys)

    def _masks(self, round: int, attempt: int, silos: Set[int]) -> ring.Residues:
        """The total of these silos' masks."""
        residues = ring.zeros(self._terms.dimension, self._terms.word_bits)
        digest = active_digest(())
        keys = [
            self._session.secrets[silo].mask_key(
                transcript=self._session.transcript, round=round, attempt=attempt, active=digest
            )
            for silo in sorted(silos)
        ]
        self._mask_stream.add_all(residues, [(key, False) for key in keys])
        return residues
