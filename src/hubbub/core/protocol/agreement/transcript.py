"""What all who set a session up sign alike, from what they were shown: the transcript's parts.

A party computes it in `key_agreement.py`, and whoever has passed everything on in
`set_up_check.py`. This file believes no frame and knows no secret.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping

from hubbub.core.protocol.primitives.identity import Roster

_Told = tuple[tuple[int, bytes], ...]


def start_of(study: bytes, session: bytes, roster: Roster, context: bytes) -> bytes:
    """What comes before commitments and digests."""
    return b"hubbub transcript v1" + study + session + roster.digest + context


def commitment(session: bytes, index: int, share: bytes) -> bytes:
    """What a party says of its share of the seed before it shows it."""
    place = session + index.to_bytes(4, "little")
    return hashlib.sha256(b"hubbub commit v1" + place + share).digest()


@functools.lru_cache(maxsize=2)
def joined(session: bytes, commits: _Told, shares: _Told) -> bytes | int:
    """All commitments with their shares; or the first silo that had committed to another."""
    committed = dict(commits)
    for index, share in sorted(shares):
        if commitment(session, index, share) != committed[index]:
            return index
    return told_of(committed, dict(shares))


def told_of(commits: Mapping[int, bytes], shares: Mapping[int, bytes]) -> bytes:
    """Commitments with their shares, in the order of the silos."""
    told = ((i.to_bytes(4, "little"), commits[i], shares[i]) for i in sorted(shares))
    return b"".join(b"".join(one) for one in told)


def joint_seed(session: bytes, roll: bytes, told: bytes) -> bytes:
    """The seed of the mask graph, from the digest of the ROLL and what `joined` gave."""
    return hashlib.sha256(b"hubbub joint seed v2" + session + roll + told).digest()


@functools.lru_cache(maxsize=2)  # of a thousand parties in one process all see the same
def hash_of(*shown: bytes) -> bytes:
    """SHA-256 of these one after the other."""
    return hashlib.sha256(b"".join(shown)).digest()
