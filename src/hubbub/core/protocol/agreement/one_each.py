"""Frames of a set-up, exactly one from every expected sender, for everybody or for one party."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache, partial
from types import MappingProxyType

from hubbub.core.protocol.primitives.expected_frames import ExpectedFrames
from hubbub.core.protocol.primitives.identity import Roster
from hubbub.core.protocol.primitives.wire import EVERYBODY, Frame, Tag


def expected(
    tag: Tag,
    receiver: int,
    senders: Collection[int],
    roster: Roster,
    study: bytes,
    session: bytes,
    sizes: Mapping[int, int] | None = None,
) -> ExpectedFrames:
    """Frames of a set-up, for everybody or one receiver."""
    misplaced = partial(_misplaced, tag, receiver, senders, roster)
    return ExpectedFrames(tag, senders, roster, study, session, misplaced, sizes)


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
    sizes = dict.fromkeys(senders, size)
    awaited = expected(tag, receiver, senders, roster, study, session, sizes)
    payloads = {frame.sender: bytes(frame.payload) for frame in map(awaited.take, frames)}
    awaited.check_whole()
    return MappingProxyType(payloads)


def _misplaced(
    tag: Tag, receiver: int, senders: Collection[int], roster: Roster, frame: Frame
) -> str:
    """What is wrong with a frame that is no part of this; empty if nothing."""
    if frame.tag is not tag or frame.round or frame.attempt:
        attempt = f"{frame.round}.{frame.attempt}"
        return f"expected a {tag.name}, got a {frame.tag.name} of attempt {attempt}"
    if frame.receiver not in (receiver, EVERYBODY):
        return f"expected a {tag.name} for me, got one for another party"
    if frame.sender not in senders:
        return f"expected no {tag.name} of {roster.name(frame.sender)}, got one"
    return ""
