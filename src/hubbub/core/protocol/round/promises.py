"""What all nodes promise before any of them tells a total: one set of silos in an attempt.

Theory of operation. Two totals of one node in one attempt, over sets that differ in one silo, give
that silo's mask away. A node remembers that it has answered; a copy of it, whose machine was set
back to an earlier state, does not. So a total is told only to who shows the PROMISE of every node
for the same silos and the same MODEL, and a node promises once in an attempt: a copy gets no second
total unless all other nodes promise a second set, which one that was not set back refuses
(docs/privacy.md P3). This file knows no mask and keeps nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.primitives.expected_frames import ExpectedFrames
from hubbub.core.protocol.primitives.identity import Roster
from hubbub.core.protocol.primitives.wire import Frame, Tag


def check_promises(promises: Sequence[bytes], own: Frame, roster: Roster) -> None:
    """See that every node has promised what this one has.

    Args:
        promises: of all nodes, this one's too.
        own: this node's, of the attempt whose total is asked for.
        roster: everybody.

    Raises:
        ProtocolError: one is missing, doubled, of another attempt, or about other silos or another
            MODEL. Then the aggregator has asked about several, or a node has made a promise up.
    """

    def misplaced(frame: Frame) -> str:
        place = (frame.tag, frame.round, frame.attempt, frame.receiver)
        if (
            place == (own.tag, own.round, own.attempt, own.receiver)
            and frame.sender in roster.nodes
        ):
            return ""
        return f"expected a PROMISE of a node for attempt {own.round}.{own.attempt}, got another"

    awaited = ExpectedFrames(Tag.PROMISE, roster.nodes, roster, own.study, own.session, misplaced)
    for data in promises:
        frame = awaited.take(data)
        if bytes(frame.payload) != own.payload:
            raise ProtocolError(
                f"expected {roster.name(frame.sender)} to promise a total of the silos and the "
                "MODEL that I was asked about, got a promise of others; nothing is told",
                culprit="relay",
            )
    awaited.check_whole(why="without it nothing is told")
