"""A compute node's part: the total of the masks of those silos whose vectors arrived.

It holds nothing but keys. It answers once for a round and attempt, and never for a set of silos
below the quorum: two answers, or a small one, would open single silos' vectors to the aggregator.
"""

from __future__ import annotations

from hubbub import ring
from hubbub.errors import ProtocolError
from hubbub.identity import Keys, Roster
from hubbub.round.terms import Terms, Turn
from hubbub.summation.agreement import Session
from hubbub.summation.mask import Masking
from hubbub.summation.secrets import active_digest
from hubbub.wire import Frame, Tag, parse


class ComputeNode:
    """One compute node in one session."""

    def __init__(
        self, *, keys: Keys, roster: Roster, terms: Terms, session: Session, masking: Masking
    ) -> None:
        self._keys, self._roster, self._terms = keys, roster, terms
        self._session, self._masking = session, masking
        self._turn = Turn()

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
                f"expected a REQUEST from the aggregator, got a {frame.tag.name}", culprit=sender
            )
        if frame.receiver != self._session.index:
            raise ProtocolError("expected a REQUEST for me, got another node's", culprit="relay")
        arrived = self._terms.read_silos(frame.payload, sender)
        self._turn.take(frame.round, frame.attempt, self._terms.steps, sender)
        residues = ring.zeros(self._terms.dimension, self._terms.word_bits)
        digest = active_digest(())
        for silo in sorted(arrived & set(self._session.secrets)):
            key = self._session.secrets[silo].mask_key(
                transcript=self._session.transcript,
                round=frame.round,
                attempt=frame.attempt,
                active=digest,
            )
            self._masking.add(residues, key)
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
