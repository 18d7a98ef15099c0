"""Frames of one kind, exactly one from every expected sender: verified, or somebody is blamed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from types import MappingProxyType

from hubbub.errors import ProtocolError
from hubbub.protocol.primitives import EVERYBODY, Frame, Roster, Tag, doubled_by, parse


class Expected:
    """Frames of one kind, at most one from each expected sender.

    Args:
        tag: the kind.
        receiver: whom they are for, if not for everybody.
        senders: whose are expected.
        roster, study, session: what they must be of.
    """

    __slots__ = ("_known", "_place", "_receiver", "_senders", "_tag")

    def __init__(
        self,
        tag: Tag,
        receiver: int,
        senders: Collection[int],
        roster: Roster,
        study: bytes,
        session: bytes,
    ) -> None:
        self._tag, self._receiver, self._senders = tag, receiver, senders
        self._place = roster, study, session
        self._known: dict[int, bytes] = {}  # the digests of those that were taken

    def take(self, data: bytes) -> Frame:
        """The frame, verified."""
        roster, study, session = self._place
        frame = parse(data, roster, study=study, session=session)
        wanted, name = self._tag.name, roster.name(frame.sender)
        if frame.tag is not self._tag or frame.round or frame.attempt:
            raise ProtocolError(
                f"expected a {wanted}, got a {frame.tag.name} of attempt "
                f"{frame.round}.{frame.attempt}",
                culprit="relay",
            )
        if frame.receiver not in (self._receiver, EVERYBODY):
            raise ProtocolError(
                f"expected a {wanted} for me, got one for another party", culprit="relay"
            )
        if frame.sender not in self._senders:
            raise ProtocolError(f"expected no {wanted} of {name}, got one", culprit="relay")
        if frame.sender in self._known:
            raise ProtocolError(
                f"expected one {wanted} of {name}, got a second",
                culprit=doubled_by(frame, self._known[frame.sender], name),
            )
        self._known[frame.sender] = frame.digest
        return frame

    @property
    def whole(self) -> bool:
        """Whether every expected sender's is there."""
        return len(self._known) == len(self._senders)

    def check_whole(self) -> None:
        """Name the first whose frame is not there."""
        if missing := set(self._senders).difference(self._known):
            raise ProtocolError(
                f"expected a {self._tag.name}, got none; it has not answered",
                culprit=self._place[0].name(min(missing)),
            )


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
    expected, payloads = Expected(tag, receiver, senders, roster, study, session), {}
    for frame in map(expected.take, frames):
        if len(frame.payload) != size:
            raise ProtocolError(
                f"expected a {tag.name} of {size} bytes, got {len(frame.payload)}",
                culprit=roster.name(frame.sender),
            )
        payloads[frame.sender] = bytes(frame.payload)
    expected.check_whole()
    return MappingProxyType(payloads)
