"""Frames: whatever is not exactly what a party of this study and session signed is refused."""

from __future__ import annotations

import struct

import pytest

from hubbub.core.protocol.primitives.wire import (
    HEADER_BYTES,
    OVERHEAD,
    VERSION,
    Frame,
    Tag,
    doubled_by,
    parse,
)
from protocol.parties import SESSION, STUDY, flipped, refused, world

W = world()
GOOD = W.forge(1, Tag.MASKED, b"payload", round=3, attempt=2, receiver=0)


def read(data: bytes) -> Frame:
    return parse(data, W.roster, study=STUDY, session=SESSION)


def test_a_frame_comes_back_as_it_was_sealed() -> None:
    frame = read(GOOD)
    assert (frame.tag, frame.sender, frame.receiver) == (Tag.MASKED, 1, 0)
    assert (frame.round, frame.attempt, bytes(frame.payload)) == (3, 2, b"payload")


@pytest.mark.parametrize("length", range(0, len(GOOD), 7))
def test_a_truncated_frame_is_refused(length: int) -> None:
    with refused("relay", "expected at least|expected a payload of"):
        read(GOOD[:length])


def test_an_extended_frame_is_refused() -> None:
    with refused("relay", "expected a payload of 8 bytes, got the length 7"):
        read(GOOD + b"\0")


@pytest.mark.parametrize("place", range(len(GOOD)))
def test_no_bit_of_a_frame_is_outside_the_signature(place: int) -> None:
    with refused("relay", "expected"):
        read(flipped(GOOD, place))


@pytest.mark.parametrize("version", [0, 1, VERSION + 1, 255])
def test_another_version_is_refused(version: int) -> None:
    with refused("relay", f"expected wire version {VERSION}, got {version}"):
        read(bytes([version]) + GOOD[1:])


@pytest.mark.parametrize("tag", [0, 39, max(Tag) + 1, 255])
def test_an_unknown_tag_is_refused(tag: int) -> None:
    with refused("relay", f"expected a known tag, got {tag}"):
        read(GOOD[:1] + bytes([tag]) + GOOD[2:])


@pytest.mark.parametrize("sender", [len(W.keys), 2**31, 2**32 - 1])
def test_a_sender_outside_the_roster_is_refused(sender: int) -> None:
    with refused("relay", f"expected a sender of the roster, got {sender}"):
        read(GOOD[:58] + struct.pack("<I", sender) + GOOD[62:])


def test_a_party_cannot_speak_in_the_name_of_another() -> None:
    frame = Frame(tag=Tag.MASKED, study=STUDY, session=SESSION, sender=2, payload=b"")
    with refused("relay", "signed by silo-2, got a false signature"):
        read(frame.sealed(W.keys[1]))


def test_a_signature_of_another_frame_does_not_fit() -> None:
    other = W.forge(1, Tag.MASKED, b"another", round=3, attempt=2, receiver=0)
    with refused("relay", "false signature"):
        read(GOOD[:-64] + other[-64:])


def test_a_frame_of_another_study_is_refused() -> None:
    with refused("relay", f"expected study {STUDY.hex()[:16]}, got {'0' * 16}"):
        read(W.forge(1, Tag.MASKED, study=bytes(32)))


def test_a_frame_of_an_earlier_session_is_refused() -> None:
    with refused("relay", "expected a MASKED of this session, got one of another: a replay"):
        read(W.forge(1, Tag.MASKED, session=bytes(16)))


def test_a_length_that_lies_is_refused_before_anything_is_read() -> None:
    for claim in (0, 6, 8, 2**63, 2**64 - 1):
        with refused("relay", "expected a payload of 7 bytes"):
            read(GOOD[:66] + struct.pack("<Q", claim) + GOOD[HEADER_BYTES:])


def test_the_digest_tells_frames_apart_by_what_was_signed_and_not_by_the_signature() -> None:
    other = W.forge(1, Tag.MASKED, b"payloads", round=3, attempt=2, receiver=0)
    later = W.forge(1, Tag.MASKED, b"payload", round=3, attempt=3, receiver=0)
    assert len({read(data).digest for data in (GOOD, other, later)}) == 3
    unsigned = Frame(
        tag=Tag.MASKED,
        study=STUDY,
        session=SESSION,
        round=3,
        attempt=2,
        sender=1,
        receiver=0,
        payload=b"payload",
    )
    assert unsigned.digest == read(GOOD).digest
    assert len(unsigned.digest) == 32


def test_a_frame_taken_twice_blames_the_relay_and_another_in_its_place_its_signer() -> None:
    first, other = read(GOOD), read(W.forge(1, Tag.MASKED, b"other", round=3, attempt=2))
    assert doubled_by(read(GOOD), first.digest, "silo-1") == "relay"
    assert doubled_by(other, first.digest, "silo-1") == "silo-1"


def test_the_overhead_is_what_the_page_says() -> None:
    assert (HEADER_BYTES, OVERHEAD) == (74, 138)
