"""The digests of what parties have sent to each other in a set-up, as all are told them.

Each party has 32 bytes in the order of the roster, zero where it sends no secret: the aggregator,
and silos that the session does not have (docs/privacy.md P29). This file believes no frame.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Set

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.primitives.identity import Roster
from hubbub.core.protocol.primitives.message_sizes import DIGEST_BYTES

_NOTHING = bytes(DIGEST_BYTES)


def sent_digest(frames: Mapping[int, bytes]) -> bytes:
    """SHA-256 over the hashes of a party's contributions, in the order of their receivers."""
    whole = hashlib.sha256(b"hubbub sent v1")
    for receiver in sorted(frames):
        whole.update(receiver.to_bytes(4, "little") + hashlib.sha256(frames[receiver]).digest())
    return whole.digest()


def sent_digests(sent: Mapping[int, Mapping[int, bytes]], parties: int) -> bytes:
    """All of them, from what each of so many parties has sent to whom."""
    return b"".join(sent_digest(sent[i]) if i in sent else _NOTHING for i in range(parties))


def check_digests(digests: bytes, index: int, own: bytes, roster: Roster, silos: Set[int]) -> None:
    """See that a party's own digest is listed, and none of who sends nothing.

    Args:
        digests: as the relay tells everybody.
        index, own: the party's place, and its digest.
        roster: everybody.
        silos: of the session.

    Raises:
        ProtocolError: naming the relay.
    """

    def listed(one: int) -> bytes:
        return digests[DIGEST_BYTES * one : DIGEST_BYTES * (one + 1)]

    if len(digests) != DIGEST_BYTES * len(roster.parties) or listed(index) != own:
        raise ProtocolError(
            "expected the digest of what I sent in the list of all, got another", culprit="relay"
        )
    for silo in {0, *roster.silos} - silos:
        if listed(silo) != _NOTHING:
            raise ProtocolError(
                f"expected no digest for {roster.name(silo)}, which sends no secret in this "
                "session, got one",
                culprit="relay",
            )
