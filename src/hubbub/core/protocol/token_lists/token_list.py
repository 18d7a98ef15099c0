"""What silos publish on the way to a shuffled token list, and the list itself, as values.

This file knows how lists are bound to their place, and nothing of the order of events.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hubbub.core.protocol.primitives.identity import Roster
from hubbub.core.protocol.token_lists.list_context import ListContext
from hubbub.core.protocol.token_lists.onion_layers import NAME_BYTES, Names


@dataclass(frozen=True, kw_only=True)
class Publication:
    """What a silo publishes in one step.

    Args:
        names: the MIX_NAMES frame, for everybody.
        forms: the MIX_FORMS frame, for the next mixer; whoever wants may have it.
    """

    names: bytes
    forms: bytes


@dataclass(frozen=True, kw_only=True)
class TokenList:
    """The finished list: public, and the same for everybody.

    Args:
        study, session, number: which list it is.
        names: 32 bytes for each token, in the order of the list; schemes choose places in it.
    """

    study: bytes
    session: bytes
    number: int
    names: bytes = field(repr=False)

    @property
    def size(self) -> int:
        """n, the number of tokens."""
        return len(self.names) // NAME_BYTES

    @property
    def digest(self) -> bytes:
        """SHA-256 that stands for the list and its order."""
        place = self.study + self.session + self.number.to_bytes(4, "little")
        return hashlib.sha256(b"hubbub token list v1" + place + self.names).digest()


@dataclass(frozen=True, kw_only=True)
class Owned:
    """What a silo has in the end.

    Args:
        tokens: the public list.
        positions: for each of its own records the place of its token; never leaves the silo.
    """

    tokens: TokenList
    positions: NDArray[np.intp] = field(repr=False)


def list_places(
    list_context: ListContext, counts: Sequence[int], publics: Sequence[bytes]
) -> list[bytes]:
    """What the names and layers of each list are bound to, list 0 first: it, the keys, all."""
    whole = hashlib.sha256(
        b"hubbub mix v1" + list_context.study + list_context.session + list_context.roster.digest
    )
    whole.update(list_context.number.to_bytes(4, "little"))
    for count, public in zip(counts, publics, strict=True):
        whole.update(count.to_bytes(4, "little") + public)
    start = whole.digest()
    return [
        hashlib.sha256(b"hubbub mix list v1" + start + step.to_bytes(4, "little")).digest()
        for step in range(len(publics) + 1)
    ]


def commitment(place: bytes, index: int, names: bytes | memoryview) -> bytes:
    """What a silo commits to before it shows its wrapped tokens; nobody else's can be copied."""
    head = b"hubbub mix commit v1" + place + index.to_bytes(4, "little")
    return hashlib.sha256(b"".join((head, names))).digest()


def doubled(names: Names, owners: NDArray[np.intp]) -> set[int]:
    """The owners of names that are there more than once."""
    _, inverse, counts = np.unique(names, return_inverse=True, return_counts=True)
    return set(owners[counts[inverse] > 1].tolist())


def joined(roster: Roster, silos: set[int]) -> str:
    """The names of parties to blame who can only have done it together."""
    return " and ".join(roster.name(index) for index in sorted(silos))
