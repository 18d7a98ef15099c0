"""Frames of one kind, exactly one from every expected sender: verified, or somebody is blamed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

from hubbub.errors import ProtocolError
from hubbub.protocol.primitives import EVERYBODY, Frame, Roster, Tag, doubled_by, parse


# All parties of a process are shown the same commitments and shares of the seed.
@lru_cache(maxsize=4)
def payloads(
    frames: tuple[bytes, ...],
    size: int,
    receiver: int,
    tag: Tag,
    senders: frozenset[int],
    roster: Roster,
    study: bytes,
    session: bytes,
) -> Mapping[int, bytes]:
    """Payloads of a known size for everybody or one receiver, one from every expected sender."""
    payloads = {}
    for index, frame in verified(frames, receiver, tag, senders, roster, study, session):
        if len(frame.payload) != size:
            raise ProtocolError(
                f"expected a {tag.name} of {size} bytes, got {len(frame.payload)}",
                culprit=roster.name(index),
            )
        payloads[index] = bytes(frame.payload)
    return MappingProxyType(payloads)


def verified(
    frames: Sequence[bytes],
    receiver: int,
    tag: Tag,
    senders: frozenset[int],
    roster: Roster,
    study: bytes,
    session: bytes,
) -> Iterable[tuple[int, Frame]]:
    """Verified frames of one kind, exactly one from every expected sender."""
    taken = dict[int, bytes]()
    for data in frames:
        frame = parse(data, roster, study=study, session=session)
        name = roster.name(frame.sender)
        if frame.tag is not tag or frame.round or frame.attempt:
            raise ProtocolError(
                f"expected a {tag.name}, got a {frame.tag.name} of attempt "
                f"{frame.round}.{frame.attempt}",
                culprit="relay",
            )
        if frame.receiver not in (receiver, EVERYBODY):
            raise ProtocolError(
                f"expected a {tag.name} for me, got one for another party", culprit="relay"
            )
        if frame.sender not in senders:
            raise ProtocolError(f"expected no {tag.name} of {name}, got one", culprit="relay")
        if frame.sender in taken:
            raise ProtocolError(
                f"expected one {tag.name} of {name}, got a second",
                culprit=doubled_by(frame, taken[frame.sender], name),
            )
        taken[frame.sender] = frame.digest
        yield frame.sender, frame
    if missing := senders.difference(taken):
        raise ProtocolError(
            f"expected a {tag.name}, got none; it has not answered",
            culprit=roster.name(min(missing)),
        )
