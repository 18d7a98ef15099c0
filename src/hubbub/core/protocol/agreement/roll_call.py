"""ROLL: which silos a session has, said by the aggregator once, before anything depends on it.

Theory of operation. A session needs not all silos: any N - D set it up, and who comes late is in
the next one. The set is fixed before a silo commits to its share of the graph's seed, and never
shrinks: were it to follow from who reveals, T silos that withhold their shares would choose among
2^T graphs. Its digest enters the seed and the transcript, so all who finish have the same; every
later set of silos is a part of it (`round_parameters.py`). Compute nodes are in every session: to
choose among them could be to leave the honest one out (docs/privacy.md P29). This file knows no
secret.
"""

from __future__ import annotations

from dataclasses import dataclass

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.core.protocol.primitives.silo_set import bits_of, set_of
from hubbub.core.protocol.primitives.wire import EVERYBODY, Frame, Tag, doubled_by, parse


@dataclass(frozen=True, kw_only=True)
class Roll:
    """The silos of a session, by roster index, and the digest of the frame that names them."""

    silos: frozenset[int]
    digest: bytes


def called(
    keys: Keys, roster: Roster, study: bytes, session: bytes, silos: frozenset[int]
) -> tuple[bytes, Roll]:
    """The aggregator's ROLL, and what it says."""
    frame = Frame(
        tag=Tag.ROLL,
        study=study,
        session=session,
        sender=0,
        receiver=EVERYBODY,
        payload=bits_of(silos, len(roster.silos)),
    )
    return frame.sealed(keys), Roll(silos=silos, digest=frame.digest)


class RollCall:
    """Whoever is told a session's silos, once.

    Args:
        roster: everybody.
        study, session: of which it must be.
        quorum: the least number of silos, N - D.
        index: the receiver's place in the roster; a silo must be named itself.
    """

    def __init__(
        self, *, roster: Roster, study: bytes, session: bytes, quorum: int, index: int = 0
    ) -> None:
        self._roster, self._study, self._session = roster, study, session
        self._quorum, self._index = quorum, index
        self._roll: Roll | None = None

    @property
    def roll(self) -> Roll:
        """Who takes part.

        Raises:
            ProtocolError: nobody has said so.
        """
        if self._roll is None:
            raise ProtocolError("expected a ROLL before this, got none", culprit="relay")
        return self._roll

    def take(self, data: bytes) -> Roll:
        """Take the ROLL.

        Raises:
            ProtocolError: it is not the aggregator's for this session, a second one, names fewer
                silos than the quorum, or not the silo that receives it.
        """
        frame = parse(data, self._roster, study=self._study, session=self._session)
        sender = self._roster.name(frame.sender)
        placed = not (frame.round or frame.attempt) and frame.receiver == EVERYBODY
        if frame.tag is not Tag.ROLL or frame.sender != 0 or not placed:
            raise ProtocolError(
                f"expected a ROLL of the aggregator to everybody, got a {frame.tag.name} of "
                f"{sender}",
                culprit=sender if frame.tag is Tag.ROLL else "relay",
            )
        if self._roll is not None:
            raise ProtocolError(
                "expected one ROLL in a session, got a second",
                culprit=doubled_by(frame, self._roll.digest, sender),
            )
        silos = set_of(frame.payload, len(self._roster.silos), sender)
        if len(silos) < self._quorum:
            raise ProtocolError(
                f"expected at least {self._quorum} silos in a session, got {len(silos)}: the noise "
                "of fewer would not keep the study's epsilon",
                culprit=sender,
            )
        if self._index in self._roster.silos and self._index not in silos:
            raise ProtocolError("expected a session that I am in, got another", culprit="relay")
        self._roll = Roll(silos=silos, digest=frame.digest)
        return self._roll
