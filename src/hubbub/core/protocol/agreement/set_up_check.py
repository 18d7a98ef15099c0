"""Who has spoilt a set-up, as far as the aggregator can tell, who has passed everything on.

Theory of operation. Parties refuse what reaches them and can rarely tell a liar from whoever
carries: all of them call both "relay". The aggregator has what each party has said, and makes the
transcript that all must sign itself. Three things can be wrong with what came from a party:

    its frame is not signed, or is one of another place     itself or its way; called "relay"
    it has signed what no honest party signs                 itself
    it has signed another transcript than the aggregator's   itself or its way

The third is no proof. The digests of what all have sent travel unsigned, and a party that was shown
others, or a second frame that a colluding party has signed, signs another transcript honestly. But
what was altered was altered on the way of the party whose transcript differs: the aggregator knows
what it has sent, and two honest parties that were sent the same and got it sign the same. So others
have nothing to do with it, whatever they say, and the next try can go without that party.

It is looked for once a set-up has failed, phase by phase, and ends at the first in which something
is found, since all that follows may be its consequence. Nothing that keeps a secret rests on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.agreement import key_agreement
from hubbub.core.protocol.agreement.key_agreement import SEALED_BYTES, Roll, sent_digests
from hubbub.core.protocol.primitives.message_sizes import DIGEST_BYTES
from hubbub.core.protocol.primitives.wire import (
    EVERYBODY,
    Channel,
    ExpectedFrames,
    Tag,
    receiver_of,
)


def payload_of(
    channel: Channel,
    frame: bytes,
    tag: Tag,
    sender: int,
    *,
    size: int = DIGEST_BYTES,
    receiver: int = EVERYBODY,
) -> bytes:
    """What a party has signed in a set-up, in the place where it belongs.

    Raises:
        ProtocolError: naming the party, or "relay" for itself or its way.
    """
    awaited = ExpectedFrames(channel, tag, {sender}, receiver=receiver, sizes={sender: size})
    return bytes(awaited.take(frame).payload)


Heard = Mapping[int, Sequence[bytes]]  # frames by sender
Faults = dict[int, ProtocolError]  # by the party whose frames they are about


@dataclass(frozen=True, kw_only=True)
class SetUpCheck:
    """What is known of a set-up beside its frames.

    Args:
        neighbours_of: from a party's place and the graph's seed to whom it shares secrets with.
    """

    channel: Channel
    roll: Roll
    neighbours_of: Callable[[int, bytes], Sequence[int]]

    def faults(
        self, commits: Heard, reveals: Heard, sent: Heard, confirmed: Heard, context: bytes | None
    ) -> Faults:
        """What is wrong in the first phase in which something is, by sender; nothing if nothing is.

        Args:
            commits, reveals: what silos have answered in these phases; nothing with nodes.
            sent: contributions.
            confirmed: a CONFIRM, then key checks.
            context: what parties put into the transcript before all else; None if unknown.
        """
        # Each phase only where all before it were as they should be: what somebody answers to a lie
        # is no lie.
        found: Faults = {}
        committed = self._each(Tag.COMMIT, commits, found)
        shares = {} if found else self._each(Tag.REVEAL, reveals, found)
        for index, share in shares.items():
            if key_agreement.commitment(self.channel.session, index, share) != committed[index]:
                name = self.channel.roster.name(index)
                found[index] = ProtocolError(
                    "expected the seed share that was committed to, got another", culprit=name
                )
        told = b""
        if shares and not found:
            told = key_agreement.told_of(committed, shares)
        if found or not sent:
            return found
        # P4: the seed, and so the graph, follows from shares to which all had committed before.
        seed = b""
        if shares:
            seed = key_agreement.joint_seed(self.channel.session, self.roll.digest, told)
        for index, frames in sent.items():
            self._note(found, index, lambda i, f: self._check_sent(i, f, seed), frames)
        if found or not confirmed or context is None:
            return found
        start = key_agreement.start_of(self.channel, context)
        by_receiver = {
            i: {receiver_of(frame): frame for frame in frames} for i, frames in sent.items()
        }
        digests = sent_digests(by_receiver, len(self.channel.roster.parties))
        shown = (start, told, digests) if shares else (start, digests)
        for index, frames in confirmed.items():
            self._note(
                found, index, self._check_confirmed, frames, key_agreement.hash_of(*shown), sent
            )
        return found

    def _each(self, tag: Tag, heard: Heard, found: Faults) -> dict[int, bytes]:
        """Everybody's one payload of 32 bytes to everybody; what is wrong is noted."""
        payloads = {}
        for index, frames in heard.items():
            took = self._note(found, index, self._one, frames, tag)
            if isinstance(took, bytes):
                payloads[index] = took
        return payloads

    def _note(
        self, found: Faults, index: int, check: Callable[..., object], *told: object
    ) -> object:
        """What a check of a party's frames gives; its error is noted as about that party."""
        try:
            return check(index, *told)
        except ProtocolError as error:
            found[index] = error
            return None

    def _one(self, index: int, frames: Sequence[bytes], tag: Tag) -> bytes:
        _check_number(frames, 1)
        return payload_of(self.channel, frames[0], tag, index)

    def _check_sent(self, index: int, frames: Sequence[bytes], seed: bytes) -> None:
        """A contribution for each neighbour, and none else; one may have been taken away."""
        tag, size, left = Tag.CONTRIBUTION, SEALED_BYTES, set(self.neighbours_of(index, seed))
        _check_number(frames, len(left))
        for frame in frames:
            receiver = receiver_of(frame)
            # Whom it says it is for is not verified yet, so it may be anybody's doing.
            if receiver not in left:
                raise ProtocolError(
                    "expected one contribution for each neighbour, got another", culprit="relay"
                )
            payload_of(self.channel, frame, tag, index, size=size, receiver=receiver)
            left.remove(receiver)

    def _check_confirmed(
        self, index: int, frames: Sequence[bytes], wanted: bytes, sent: Heard
    ) -> None:
        """The transcript that follows from what the aggregator has, and a check a neighbour."""
        _check_number(frames, 1 + len(sent[index]))
        if payload_of(self.channel, frames[0], Tag.CONFIRM, index) != wanted:
            raise ProtocolError(
                f"expected {self.channel.roster.name(index)} to confirm what it was sent, got "
                "something else: it, or whoever carries its messages, has changed it",
                culprit="relay",
            )
        for frame in frames[1:]:
            receiver = receiver_of(frame)
            payload_of(self.channel, frame, Tag.KEY_CHECK, index, receiver=receiver)


def _check_number(frames: Sequence[bytes], expected: int) -> None:
    """As many as a party owes; who has taken some away, nobody can say."""
    if len(frames) != expected:
        raise ProtocolError(f"expected {expected} frames, got {len(frames)}")
