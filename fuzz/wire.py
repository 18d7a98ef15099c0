"""`wire.parse`: arbitrary bytes, or a header and payload that are signed as an insider can.

The first byte chooses: whether the rest is signed, whether the length is set right before, and who
signs what names no sender. Laws: a `ProtocolError` or a frame; a frame says what its bytes say, in
whatever kind of buffer they came, and its signer would sign the same bytes again.
"""

from __future__ import annotations

from fuzz.frames import claimed, signed
from fuzz.reading import hold
from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.primitives.wire import HEADER_BYTES, SIGNATURE_BYTES, Frame, Tag, parse
from protocol.parties import SESSION, STUDY, world

_WORLD = world(2, 1)
_SIGN, _MEASURE = 1, 2


def check(data: bytes) -> None:
    """One input."""
    mode, message = (data[0], data[1:]) if data else (0, b"")
    if mode & _SIGN:
        message = _signed(message, mode)
    frame = _parsed(message)
    for other in (bytearray(message), memoryview(message)):
        hold(_parsed(other) == frame, "another buffer, another frame")
    if frame is not None:
        payload = message[HEADER_BYTES:-SIGNATURE_BYTES]
        hold(bytes(frame.payload) == payload, "another payload than was sent")
        hold((frame.study, frame.session) == (STUDY, SESSION), "a frame of elsewhere")
        hold(frame.sealed(_WORLD.keys[frame.sender]) == message, "other bytes than were signed")


def seeds() -> list[bytes]:
    """A frame of every kind, each signed and as raw bytes, and some that are no frames."""
    frames = [
        _WORLD.forge(index % 4, tag, bytes(index), round=index) for index, tag in enumerate(Tag)
    ]
    unsigned = [bytes([_SIGN | _MEASURE]) + frame[:-SIGNATURE_BYTES] for frame in frames]
    return [b"", bytes(139), *unsigned, *(b"\0" + frame for frame in frames)]


def _signed(message: bytes, mode: int) -> bytes:
    """The message with a signature of its sender."""
    if mode & _MEASURE and len(message) >= HEADER_BYTES:
        size = (len(message) - HEADER_BYTES).to_bytes(8, "little")
        message = message[: HEADER_BYTES - 8] + size + message[HEADER_BYTES:]
    return signed(claimed(message, _WORLD, mode >> 2), message)


def _parsed(message: bytes | bytearray | memoryview) -> Frame | None:
    """The frame, or None if it is refused as it should be."""
    try:
        return parse(message, _WORLD.roster, study=STUDY, session=SESSION)  # type: ignore[arg-type]
    except ProtocolError as error:
        hold(error.culprit == "relay", f"{error.culprit} is blamed for what it may not have sent")
        return None
