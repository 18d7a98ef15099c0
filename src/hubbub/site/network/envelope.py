"""One blob of bytes for each party and phase: what is asked with which frames, and what came back.

An envelope is not signed; the frames in it are, and each receiver checks them. Whoever carries
envelopes can lose, keep or exchange them, and is noticed. A refusal is a signed frame too, of no
study and no session; it holds the hash of the request that it refuses.

    request   "hub?", wire version, call, session (16 bytes, zeros for none), then parts
    answer    "hub!", wire version, then parts
    part      length (8 bytes, little-endian), bytes
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.agreement.key_agreement import SESSION_BYTES
from hubbub.core.protocol.primitives.wire import VERSION
from hubbub.core.session.ask import Call

_ASKS, _ANSWERS = b"hub?", b"hub!"
_MOST_PARTS = 1 << 20
_LARGE = 1 << 20  # bytes of a part, a model say, that is not copied out of its envelope
NO_SESSION = bytes(SESSION_BYTES)


class VersionError(ProtocolError):
    """An envelope of another wire version: whoever sent it runs another hubbub."""


def request(call: Call, session: bytes, parts: Sequence[bytes] = ()) -> bytes:
    """A request of a session with these parts."""
    return b"".join((_ASKS, bytes((VERSION, call)), session, *_lengths(parts)))


def answer(parts: Sequence[bytes] = ()) -> bytes:
    """An answer with these parts."""
    return b"".join((_ANSWERS, bytes((VERSION,)), *_lengths(parts)))


def read_request(data: bytes) -> tuple[Call, bytes, list[bytes]]:
    """What is asked, of which session, and the parts.

    Raises:
        ProtocolError: it is no request of this wire version.
    """
    rest = _opened(data, _ASKS)
    if len(rest) <= SESSION_BYTES or rest[0] not in Call.__members__.values():
        raise ProtocolError("expected a known call, got another", culprit="relay")
    session, parts = rest[1 : 1 + SESSION_BYTES], rest[1 + SESSION_BYTES :]
    return Call(rest[0]), bytes(session), _parts(parts)


def is_bare(data: bytes) -> bool:
    """Whether a request has no parts, so that two that ask for different things may look alike."""
    return len(data) <= len(_ASKS) + 2 + SESSION_BYTES


def read_answer(data: bytes) -> list[bytes]:
    """The parts of an answer.

    Raises:
        ProtocolError: it is no answer of this wire version.
    """
    return _parts(_opened(data, _ANSWERS))


def _lengths(parts: Sequence[bytes]) -> list[bytes]:
    return [piece for part in parts for piece in (len(part).to_bytes(8, "little"), part)]


def _opened(data: bytes, kind: bytes) -> memoryview:
    """What follows the version."""
    if data[: len(kind)] != kind or len(data) <= len(kind):
        raise ProtocolError("expected an envelope of hubbub, got other bytes", culprit="relay")
    if data[len(kind)] != VERSION:
        raise VersionError(
            f"expected wire version {VERSION}, got {data[len(kind)]}; all parties must run the "
            "same version of hubbub",
            culprit="relay",
        )
    return memoryview(data)[len(kind) + 1 :]


def _parts(rest: memoryview) -> list[bytes]:
    """The parts, to the last byte; a large one stays where it is, and is read as bytes are."""
    parts: list[bytes] = []
    while len(rest):
        size = int.from_bytes(rest[:8], "little")
        if len(rest) < 8 + size or len(parts) == _MOST_PARTS:
            raise ProtocolError("expected whole parts in an envelope, got others", culprit="relay")
        part = rest[8 : 8 + size]
        parts.append(cast("bytes", part) if size >= _LARGE else bytes(part))
        rest = rest[8 + size :]
    return parts
