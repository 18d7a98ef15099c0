"""What all parties of a collection must have been shown alike: its opening and the nodes' keys.

Theory of operation. The aggregator signs COLLECT, which names the sum and its numbers. Each compute
node makes a sealing key for this collection alone and signs it, with the digest of the COLLECT, in
NODE_KEY. The digest of all of these, in the order of the roster, is what the protocol calls Q: it
is in every seal, in every mask's key, in every deposit and in the set. Whoever was shown another
COLLECT or another key has another Q, and what it sends adds up with nothing (docs/privacy.md P30).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hubbub.core.errors import ProtocolError, StudyError
from hubbub.core.protocol.primitives.expected_frames import ExpectedFrames
from hubbub.core.protocol.primitives.identity import Identity, Keys, Roster
from hubbub.core.protocol.primitives.message_sizes import DIGEST_BYTES
from hubbub.core.protocol.primitives.wire import EVERYBODY, Frame, Tag, parse


@dataclass(frozen=True, kw_only=True)
class CollectionPlace:
    """Which collection of which study, and who takes part: what a frame must be of.

    Args:
        roster: everybody.
        study: its id, 32 bytes.
        id: of the collection, 16 bytes.
    """

    roster: Roster = field(repr=False)
    study: bytes
    id: bytes

    def parsed(self, data: bytes, tag: Tag, sender: int | None = None) -> Frame:
        """A verified frame of this collection to everybody.

        Args:
            data: the frame.
            tag: of which kind it must be.
            sender: of whom; whoever says this checks it if None.

        Raises:
            ProtocolError: naming the relay; it is another.
        """
        frame = parse(data, self.roster, study=self.study, session=self.id)
        misplaced = frame.tag is not tag or frame.receiver != EVERYBODY
        if misplaced or (sender is not None and frame.sender != sender):
            who = "" if sender is None else f" of {self.roster.name(sender)}"
            raise ProtocolError(
                f"expected a {tag.name}{who} to everybody, got a {frame.tag.name} of "
                f"{self.roster.name(frame.sender)}",
                culprit="relay",
            )
        return frame

    def frame(self, tag: Tag, sender: int, payload: bytes, receiver: int = EVERYBODY) -> Frame:
        """A frame of this collection; everybody may see it, unless it is for one."""
        return Frame(
            tag=tag,
            study=self.study,
            session=self.id,
            sender=sender,
            receiver=receiver,
            payload=payload,
        )

    def expected(self, tag: Tag, senders: Sequence[int] | range) -> ExpectedFrames:
        """Frames of one kind to everybody, one from each of these."""

        def misplaced(frame: Frame) -> str:
            if (frame.tag, frame.receiver) == (tag, EVERYBODY) and frame.sender in senders:
                return ""
            return f"expected a {tag.name} of this collection, got a {frame.tag.name}"

        return ExpectedFrames(tag, senders, self.roster, self.study, self.id, misplaced)


@dataclass(frozen=True, kw_only=True)
class Opening:
    """A collection that is open: verified, and the same at all who have the same Q.

    Args:
        place: which one.
        digest: of the COLLECT.
        keys: by node, whose sealing key is that of this collection.
        q: SHA-256 over COLLECT and all NODE_KEYs, 32 bytes.
    """

    place: CollectionPlace
    digest: bytes
    keys: Mapping[int, Identity] = field(repr=False)
    q: bytes

    @classmethod
    def read(cls, place: CollectionPlace, collect: bytes, node_keys: Sequence[bytes]) -> Opening:
        """The opening that these frames make.

        Args:
            place: of which it must be.
            collect: the aggregator's COLLECT.
            node_keys: the NODE_KEYs of all nodes.

        Raises:
            ProtocolError: a frame is missing, doubled, false, or for another COLLECT, or a node's
                key is none.
        """
        digest = place.parsed(collect, Tag.COLLECT, 0).digest
        awaited = place.expected(Tag.NODE_KEY, place.roster.nodes)
        frames = {frame.sender: frame for frame in map(awaited.take, node_keys)}
        awaited.check_whole(why="without all nodes' keys nothing can be sealed")
        keys = {node: key_in(place, frames[node], digest) for node in place.roster.nodes}
        whole = b"".join(frames[node].digest for node in place.roster.nodes)
        q = hashlib.sha256(b"hubbub collection v1" + digest + whole).digest()
        return cls(place=place, digest=digest, keys=keys, q=q)


def node_key(
    place: CollectionPlace, keys: Keys, node: int, collect: bytes, sealing: bytes
) -> bytes:
    """A node's NODE_KEY: the key that seeds of this collection are sealed to.

    Args:
        place: of the collection.
        keys, node: the node's own, and its place in the roster.
        collect: digest of the COLLECT.
        sealing: the public key, made for this collection alone.
    """
    return place.frame(Tag.NODE_KEY, node, collect + sealing).sealed(keys)


def key_in(place: CollectionPlace, frame: Frame, collect: bytes) -> Identity:
    """The node whose sealing key is the one in its NODE_KEY.

    Args:
        place: of the collection.
        frame: its NODE_KEY.
        collect: digest of the COLLECT.

    Raises:
        ProtocolError: it is for another COLLECT, or no key.
    """
    node, payload = place.roster.parties[frame.sender], bytes(frame.payload)
    if payload[:DIGEST_BYTES] != collect:
        raise ProtocolError(
            f"expected {node.name} to have been shown this COLLECT, it was shown another",
            culprit="relay",
        )
    try:
        return replace(node, sealing=payload[DIGEST_BYTES:])
    except StudyError:
        raise ProtocolError(
            "expected a sealing key in its NODE_KEY, got other bytes", culprit=node.name
        ) from None
