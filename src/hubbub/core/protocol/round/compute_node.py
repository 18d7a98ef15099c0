"""A compute node's part: the total of the masks of those silos that answered.

It holds nothing but keys. It answers once for a round and attempt, for one MODEL, and never for a
set of silos below the quorum: two answers, or a small one, would open single silos' vectors to the
aggregator. It promises the set first, and tells a total only when all nodes have promised the same:
so it is, too, if its machine is set back to an earlier state. Which MODEL it is the aggregator
says, and need not be believed: the masks of a silo that was shown another are others
(docs/privacy.md P4).
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.agreement.key_agreement import Place, Session
from hubbub.core.protocol.agreement.masks import MaskStream
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.core.protocol.primitives.wire import EVERYBODY, Channel, ExpectedFrames, Frame, Tag
from hubbub.core.protocol.round import round_parameters
from hubbub.core.protocol.round.round_parameters import PresentThroughout, Turn

# What all nodes promise before any of them tells a total: one set of silos in an attempt.
#
# Theory of operation. Two totals of one node in one attempt, over sets that differ in one silo,
# give that silo's mask away. A node remembers that it has answered; a copy of it, whose machine was
# set back to an earlier state, does not. So a total is told only to who shows the PROMISE of every
# node for the same silos and the same MODEL, and a node promises once in an attempt: a copy gets no
# second total unless all other nodes promise a second set, which one that was not set back refuses
# (docs/privacy.md P3).


def check_promises(promises: Sequence[bytes], own: Frame, channel: Channel) -> None:
    """See that every node has promised what this one has.

    Args:
        promises: of all nodes, this one's too.
        own: this node's, of the attempt whose total is asked for.

    Raises:
        ProtocolError: one is missing, doubled, of another attempt, or about other silos or another
            MODEL. Then the aggregator has asked about several, or a node has made a promise up.
    """
    # P3: of all nodes, also of those that a silo does not use: any of them may be the one that is
    # honest and was not set back.
    time = own.round, own.attempt
    what = f"a node for attempt {own.round}.{own.attempt}"
    awaited = ExpectedFrames(channel, Tag.PROMISE, channel.roster.nodes, time=time, what=what)
    for data in promises:
        frame = awaited.take(data)
        # P3: totals of two sets differ by the masks of single silos, and would bare these.
        if bytes(frame.payload) != own.payload:
            raise ProtocolError(
                f"expected {channel.roster.name(frame.sender)} to promise a total of the silos and "
                "the MODEL that I was asked about, got a promise of others; nothing is told",
                culprit="relay",
            )
    awaited.check_whole(why="without it nothing is told")


class ComputeNode:
    """One compute node in one session."""

    def __init__(
        self,
        *,
        keys: Keys,
        roster: Roster,
        round_parameters: round_parameters.RoundParameters,
        session: Session,
        mask_stream: MaskStream,
    ) -> None:
        self._keys, self._roster, self._round_parameters = keys, roster, round_parameters
        self._session, self._mask_stream = session, mask_stream
        self._channel = session.channel(roster)
        self._turn, self._attendance = Turn(), PresentThroughout(round_parameters)
        # What was promised and is not told yet: the PROMISE, and whose masks for which MODEL.
        self._promised: tuple[Frame, Place, frozenset[int]] | None = None

    def keep(self, share: bytes) -> None:
        """Refuse a full share; see `additive_shares.py` for who takes one.

        Raises:
            ProtocolError: there are none in this study.
        """
        raise self._no_share(self._share_for_me(share)[1])

    def held(self, arrived: bytes) -> bytes:
        """Refuse to say anything of full shares.

        Raises:
            ProtocolError: there are none in this study.
        """
        sender = self._asked(arrived, Tag.ARRIVED)[1]
        raise ProtocolError("expected no ARRIVED in this study, got one", culprit=sender)

    def promise(self, request: bytes) -> bytes:
        """This node's word that in this attempt it tells the total of these silos and of no others.

        Returns:
            PROMISE, for all nodes.

        Raises:
            ProtocolError: it is not from the aggregator, not for this node and session, was
                answered before, or names too few silos, ones that are not in the session, or,
                where noise is correlated, one that had left it. Silos that do not use this node
                may be named; they add nothing.
        """
        frame, sender, silos, place = self._asked(request, Tag.REQUEST)
        users = frozenset(silos & set(self._session.secrets))
        self._check_there(place, users)
        # P3: one promise in an attempt, and then for later attempts only; noted before it exists.
        # P25, rule 2: who was not in an earlier set does not come back.
        self._turn.take(frame, self._round_parameters.steps, sender)
        self._attendance.stay(silos, sender)
        # In the words of the REQUEST, so that the promises of all nodes can be held against each
        # other.
        promise = self._frame(Tag.PROMISE, frame, bytes(frame.payload), EVERYBODY)
        self._promised = promise, place, users
        return promise.sealed(self._keys)

    def total(self, promised: Sequence[bytes]) -> bytes:
        """The total that was promised, once.

        Args:
            promised: the PROMISEs of all nodes.

        Raises:
            ProtocolError: nothing was promised, or it was told; a node has not promised the same
                (`check_promises`); or full shares of a later attempt have come.
        """
        if self._promised is None:
            raise ProtocolError(
                "expected a REQUEST before the promises, once for a total, got none",
                culprit="relay",
            )
        own, place, users = self._promised
        check_promises(promised, own, self._channel)
        residues = self._total_of(place, users)
        # Only now: promises that were garbled on the way may come again, for the same bits of a
        # total.
        self._promised = None
        return self._frame(Tag.TOTAL, own, ring.to_bytes(residues)).sealed(self._keys)

    def _asked(self, data: bytes, tag: Tag) -> tuple[Frame, str, frozenset[int], Place]:
        """A message in which the aggregator names silos, and the MODEL that they have answered."""
        frame = self._channel.parse(data)
        sender = self._roster.name(frame.sender)
        if frame.tag is not tag or frame.sender != 0:
            raise ProtocolError(
                f"expected a {tag.name} from the aggregator, got a {frame.tag.name} of {sender}",
                culprit=sender if frame.tag is tag else "relay",
            )
        if frame.receiver != self._session.index:
            raise ProtocolError(
                f"expected a {tag.name} for me, got another node's", culprit="relay"
            )
        # P3, P29: a node counts the quorum for itself, whatever silos have accepted.
        silos, model = self._round_parameters.read_request(frame, sender, self._session.silos)
        return (
            frame,
            sender,
            silos,
            Place(round=frame.round, attempt=frame.attempt, model=model),
        )

    def _frame(self, tag: Tag, asked: Frame, payload: bytes, receiver: int = 0) -> Frame:
        """An answer, to the aggregator unless it is for everybody."""
        time, mine = (asked.round, asked.attempt), self._session.index
        return self._channel.frame(tag, mine, payload, receiver=receiver, time=time)

    def _share_for_me(self, data: bytes) -> tuple[Frame, str]:
        """A SHARE for this node, and who has sent it."""
        frame = self._channel.parse(data)
        if frame.tag is not Tag.SHARE or frame.receiver != self._session.index:
            raise ProtocolError(
                f"expected a SHARE for me, got another {frame.tag.name}", culprit="relay"
            )
        return frame, self._roster.name(frame.sender)

    def _no_share(self, sender: str) -> ProtocolError:
        return ProtocolError("expected no SHARE from this party, got one", culprit=sender)

    def _check_there(self, place: Place, silos: Set[int]) -> None:
        """See that there is what the total of these silos is made of; masks follow from keys."""

    def _total_of(self, place: Place, silos: Set[int]) -> ring.Residues:
        """The total of these silos' masks."""
        residues = ring.zeros(self._round_parameters.dimension, self._round_parameters.word_bits)
        # P4: for the MODEL that is stated. If the silos were shown another, these are other masks
        # than theirs, and what is left is uniform.
        secrets, transcript = self._session.secrets, self._session.transcript
        keys = [secrets[silo].mask_key(transcript, place) for silo in sorted(silos)]
        self._mask_stream.add_all(residues, [(key, False) for key in keys])
        return residues
