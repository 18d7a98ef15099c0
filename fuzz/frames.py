"""Frames changed at the fuzzer's will and signed anew by the party that they claim to come from.

A changed frame whose signature stays false reaches nothing behind the signature. Here the fuzzer
holds every party's key: what it sends is what a malicious party, or all of them, may send. The
layout of a frame is written out a second time, so that a lie about a length can be told.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Any

from fuzz.reading import Reader
from hubbub.core.protocol.primitives.identity import Keys
from hubbub.core.protocol.primitives.wire import EVERYBODY
from protocol.parties import World

_HEADER = struct.Struct("<BB32s16sIIIIQ")
_FIELDS = (
    "version",
    "tag",
    "study",
    "session",
    "round",
    "attempt",
    "sender",
    "receiver",
    "size",
)
_MOST_EDITS, _LONGEST = 4, 255


def signed(keys: Keys, unsigned: bytes) -> bytes:
    """Header and payload, whatever they are, with a true signature."""
    header, payload = unsigned[: _HEADER.size], unsigned[_HEADER.size :]
    content = b"hubbub frame v1" + header + hashlib.sha256(payload).digest()
    return unsigned + keys.sign(content)


def claimed(unsigned: bytes, w: World, otherwise: int = 0) -> Keys:
    """The keys of the party that a header names as its sender; of another, if it names nobody."""
    sender = int.from_bytes(unsigned[58:62], "little") if len(unsigned) >= 62 else otherwise
    return w.keys[sender if sender < len(w.keys) else otherwise % len(w.keys)]


def edited(reader: Reader, w: World, frame: bytes) -> bytes:
    """The frame after a few changes that the reader chooses; with none it is as it was."""
    changes = reader.number() % (_MOST_EDITS + 1)
    if not changes:
        return frame
    fields = dict(zip(_FIELDS, _HEADER.unpack_from(frame), strict=True))
    payload, lie = frame[_HEADER.size : -64], 0
    for _ in range(changes):
        kind = reader.number() % 14
        if kind < 8:
            _edit_field(reader, w, fields, kind)
        elif kind < 13:
            payload = _edited_payload(reader, payload, kind)
        else:
            lie = reader.number()
    fields["size"] = len(payload) + lie
    unsigned = _HEADER.pack(*fields.values()) + payload
    return signed(claimed(unsigned, w), unsigned)


def _edit_field(reader: Reader, w: World, fields: dict[str, Any], kind: int) -> None:
    """Another value in one field of the header."""
    value = reader.number()
    if kind <= 2:
        fields[("tag", "round", "attempt")[kind]] = value
    elif kind == 3:
        fields["sender"] = value % (len(w.keys) + 1)
    elif kind == 4:
        fields["receiver"] = EVERYBODY if value == _LONGEST else value
    elif kind == 5:
        fields[("round", "attempt", "sender", "receiver")[value % 4]] = reader.number(4)
    elif kind == 6:
        name = ("study", "session")[value % 2]
        fields[name] = bytes([fields[name][0] ^ 1]) + fields[name][1:]
    else:
        fields["version"] = value


def _edited_payload(reader: Reader, payload: bytes, kind: int) -> bytes:
    """Another payload: a byte changed, a part, more, something else, or nothing."""
    if kind == 8 and payload:
        place = reader.number(2) % len(payload)
        return payload[:place] + reader.bytes(1) + payload[place + 1 :]
    if kind == 9:
        return payload[: reader.number(2) % (len(payload) + 1)]
    if kind == 10:
        return payload + reader.bytes(reader.number())
    return reader.bytes(reader.number()) if kind == 11 else b""
