"""What an answer to a round's call must hold before anybody uses it."""

from __future__ import annotations

from collections.abc import Sequence, Set

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.primitives.identity import Roster
from hubbub.core.protocol.primitives.message_sizes import LINK_BYTES
from hubbub.core.protocol.primitives.wire import EVERYBODY, Tag, parse, receiver_of, tag_of


def check_frames(frames: Sequence[bytes], tag: Tag, share_holders: Set[int]) -> None:
    """Look at the tags of an answer; who uses its frames verifies them.

    A frame too many would reach parties that rightly refuse it, and cost them their part; a
    share too few leaves a node that cannot answer.

    Args:
        frames: the answer, one frame at least.
        tag: of its first frame.
        share_holders: the nodes for which a share must follow, by roster index.

    Raises:
        ProtocolError: it has other frames.
    """
    shares = frames[1:]
    holders = {receiver_of(share) for share in shares}
    good = (
        tag_of(frames[0]) == tag
        and all(tag_of(share) == Tag.SHARE for share in shares)
        and len(holders) == len(shares)
        and holders == share_holders
    )
    if not good:
        raise ProtocolError(f"expected one {tag.name}, got other frames", culprit="relay")


def check_link(
    frame: bytes, roster: Roster, silo: int, *, study: bytes, session: bytes, time: tuple[int, int]
) -> None:
    """Look at a link of a joint seed, which its silo must have signed for this very attempt.

    Args:
        frame: a SEED_LINK.
        roster: everybody.
        silo: from whom it came, by roster index.
        study, session: what it must be bound to.
        time: the round and the attempt.

    Raises:
        ProtocolError: it is another's, of another attempt, or no link.
    """
    link = parse(frame, roster, study=study, session=session)
    if (link.round, link.attempt) != time:
        raise ProtocolError("expected a link of this attempt, got another", culprit="relay")
    if link.receiver != EVERYBODY or len(link.payload) != LINK_BYTES:
        raise ProtocolError(
            f"expected a link of {LINK_BYTES} bytes to everybody, got another",
            culprit=roster.name(silo),
        )
