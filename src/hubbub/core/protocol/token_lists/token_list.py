"""What silos publish on the way to a shuffled token list, and the list itself, as values.

This file knows how lists are bound to their place, and nothing of the order of events.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import ProtocolError, StudyError
from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.core.protocol.primitives.message_sizes import SIGNATURE_BYTES
from hubbub.core.protocol.primitives.wire import EVERYBODY, Channel, ExpectedFrames, Frame, Tag
from hubbub.core.protocol.token_lists.onion_layers import NAME_BYTES, Names

# Where the messages about one list belong, and what is repeated so that two lies can be compared.
#
# A *list context* is one list in the making: study, session and the list's number; frames carry the
# number as their round and the step of the mixnet as their attempt. A *statement* is a frame
# without its payload, but with the payload's hash and the signature: 185 bytes that prove to
# anybody what was signed. Everybody repeats the statements that it took, so whoever shows two silos
# different things is convicted by its own two signatures.

_HASH_BYTES, _LENGTH_BYTES = 32, 8
# The payload's length and its hash end what is signed; all before them is the frame's place.
_CONTENT_BYTES = _LENGTH_BYTES + _HASH_BYTES

Payload = bytes | memoryview


@dataclass(frozen=True, kw_only=True)
class Post:
    """A frame that was taken: who sent it, what it holds, and its statement."""

    sender: int
    payload: Payload
    statement: bytes


@dataclass(frozen=True, kw_only=True)
class ListContext(Channel):
    """One list in the making, in a session whose silos mix in the order of the roster.

    Args:
        roster, study, session: see `Channel`.
        number: of the list in the session.
    """

    number: int

    def __post_init__(self) -> None:
        """Refuses a number that no frame has room for."""
        super().__post_init__()
        if not 0 <= self.number < 1 << 32:
            raise StudyError(
                f"expected a list's number from 0 to 2^32 - 1, got {self.number}; set up a new "
                "session"
            )

    def sealed(self, keys: Keys, sender: int, tag: Tag, step: int, payload: bytes) -> bytes:
        """A signed frame to everybody."""
        return self.frame(tag, sender, payload, time=(self.number, step)).sealed(keys)

    def one_each(
        self, frames: Sequence[bytes], tag: Tag, step: int, sizes: Mapping[int, int]
    ) -> dict[int, Post]:
        """Exactly one frame from each expected sender, of the length that is known beforehand.

        Raises:
            ProtocolError: naming who sent another length, sent two or sent none; or the relay.
        """
        posts = dict[int, Post]()
        awaited = ExpectedFrames(
            self,
            tag,
            sizes,
            time=(self.number, step),
            sizes=sizes,
            what=f"step {step} of list {self.number}",
        )
        for data in frames:
            frame = awaited.take(data)
            statement = frame.signed + data[-SIGNATURE_BYTES:]
            posts[frame.sender] = Post(
                sender=frame.sender, payload=frame.payload, statement=statement
            )
        awaited.check_whole(f"it has not answered in step {step} of list {self.number}")
        return dict(sorted(posts.items()))

    def complaint(self, data: bytes) -> Frame:
        """A silo's demand to open this list, with statements of what it was shown last.

        Raises:
            ProtocolError: it is no such thing; the relay brought it.
        """
        frame = self.parse(data)
        if (
            frame.tag is not Tag.MIX_COMPLAINT
            or frame.round != self.number
            or frame.receiver != EVERYBODY
            or len(frame.payload) > statement_bytes() * len(self.roster.silos)
            or frame.sender not in self.roster.silos
        ):
            raise ProtocolError(
                f"expected a complaint of a silo about list {self.number}, got a "
                f"{frame.tag.name} about {frame.round}",
                culprit="relay",
            )
        return frame

    def compare(self, mine: Mapping[int, Post], repeated: Payload, repeater: int) -> None:
        """Hold what another says that it took against what I took.

        Raises:
            ProtocolError: naming who signed two different things for one place; or the repeater, if
                it repeats what nobody signed.
        """
        size = statement_bytes()
        statements = [bytes(repeated[at : at + size]) for at in range(0, len(repeated), size)]
        if len(statements) != len(mine):
            raise ProtocolError(
                f"expected {len(mine)} statements repeated, got {len(statements)}",
                culprit=self.roster.name(repeater),
            )
        for post, statement in zip(mine.values(), statements, strict=True):
            self._compare_one(post, statement, repeater)

    def _compare_one(self, mine: Post, statement: bytes, repeater: int) -> None:
        signed, signature = statement[:-SIGNATURE_BYTES], statement[-SIGNATURE_BYTES:]
        own = mine.statement[:-SIGNATURE_BYTES]
        if signed == own:
            return
        sender = self.roster.parties[mine.sender]
        same_place = signed[:-_CONTENT_BYTES] == own[:-_CONTENT_BYTES]
        if not same_place or not sender.verifies(signature, signed):
            raise ProtocolError(
                f"expected what {sender.name} signed, repeated, got what it did not sign",
                culprit=self.roster.name(repeater),
            )
        raise ProtocolError(
            "expected the same for everybody, got two different things that it signed for one "
            f"place: it showed {self.roster.name(repeater)} another",
            culprit=sender.name,
        )


@cache
def statement_bytes() -> int:
    """Length of a statement."""
    empty = Frame(tag=Tag.MIX_KEY, study=bytes(32), session=bytes(16), sender=0, payload=b"")
    return len(empty.signed) + SIGNATURE_BYTES


def repeated(posts: Mapping[int, Post]) -> bytes:
    """What everybody repeats: the statements, in the order of the roster."""
    return b"".join(post.statement for post in posts.values())


def parted(payload: Payload, statements: int) -> tuple[Payload, Payload]:
    """What a sender says itself, and then so many statements of others that it repeats."""
    own = len(payload) - statements * statement_bytes()
    return payload[:own], payload[own:]


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
