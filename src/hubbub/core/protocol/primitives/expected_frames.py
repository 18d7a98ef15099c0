"""Frames of one kind, exactly one from each expected sender: verified, or somebody is blamed.

This file does not know where in a session they belong; who expects them says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.primitives.identity import Roster
from hubbub.core.protocol.primitives.wire import Frame, Tag, doubled_by, parse


class ExpectedFrames:
    """Frames of one kind, at most one from each expected sender.

    Args:
        tag: the kind.
        senders: whose are expected.
        roster, study, session: what they must be of.
        misplaced: what is wrong with the place of a true frame; empty if nothing.
        sizes: bytes of their payloads, by sender; who takes them checks them if None.
    """

    __slots__ = ("_known", "_misplaced", "_place", "_senders", "_sizes", "_tag")

    def __init__(
        self,
        tag: Tag,
        senders: Collection[int],
        roster: Roster,
        study: bytes,
        session: bytes,
        misplaced: Callable[[Frame], str],
        sizes: Mapping[int, int] | None = None,
    ) -> None:
        self._tag, self._senders = tag, senders
        self._misplaced, self._sizes = misplaced, sizes
        self._place = roster, study, session
        self._known: dict[int, bytes] = {}  # the digests of those that were taken

    def take(self, data: bytes) -> Frame:
        """The frame, verified.

        Raises:
            ProtocolError: naming who sent a second one, or another length; or the relay.
        """
        roster, study, session = self._place
        frame = parse(data, roster, study=study, session=session)
        wanted, name = self._tag.name, roster.name(frame.sender)
        if why := self._misplaced(frame):  # a true frame in a wrong place was carried there
            raise ProtocolError(why, culprit="relay")
        if frame.sender in self._known:
            raise ProtocolError(
                f"expected one {wanted} of {name}, got a second",
                culprit=doubled_by(frame, self._known[frame.sender], name),
            )
        if self._sizes is not None and len(frame.payload) != self._sizes[frame.sender]:
            raise ProtocolError(
                f"expected a {wanted} of {self._sizes[frame.sender]} bytes, got "
                f"{len(frame.payload)}",
                culprit=name,
            )
        self._known[frame.sender] = frame.digest
        return frame

    @property
    def missing(self) -> int | None:
        """The first sender whose frame is not there; None if all are."""
        return min(set(self._senders).difference(self._known), default=None)

    def check_whole(self, where: str = "", why: str = "it has not answered") -> None:
        """Name the first whose frame is not there."""
        if self.missing is not None:
            raise ProtocolError(
                f"expected a {self._tag.name}{where}, got none; {why}",
                culprit=self._place[0].name(self.missing),
            )
