"""A large frame that this process has just sealed is recognised, and nothing else is."""

from __future__ import annotations

import hashlib
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from hubbub.core.protocol.primitives import wire
from hubbub.core.protocol.primitives.wire import HEADER_BYTES, Frame, Tag, parse
from hubbub.core.session.secure_sums import secure_sum
from hubbub.core.verification.transcript import frame_records
from protocol.parties import SESSION, STUDY, flipped, refused, world

W = world()
SIZE = 1 << 17
VECTOR = SIZE - 32  # of a MASKED the digest at its end is hashed apart
MIDDLE = HEADER_BYTES + SIZE // 2


def large(payload: bytes | memoryview, keys: Any = W.keys[1]) -> bytes:
    frame = Frame(
        tag=Tag.MASKED, study=STUDY, session=SESSION, sender=1, receiver=0, payload=payload
    )
    return frame.sealed(keys)


def read(data: bytes) -> Frame:
    return parse(data, W.roster, study=STUDY, session=SESSION)


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the room that parties of one process ask for."""
    monkeypatch.setattr(wire, "_SEALED", wire.Sealed())
    wire.seal_ahead(0)


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the payloads that were hashed, in their order."""
    sizes: list[int] = []

    def sha256(data: bytes | memoryview) -> Any:
        sizes.append(len(data))
        return hashlib.sha256(data)

    monkeypatch.setattr(wire, "hashlib", SimpleNamespace(sha256=sha256))
    return sizes


def test_the_very_frame_is_hashed_once_and_a_copy_anew(hashed: list[int]) -> None:
    data = large(bytes(SIZE))
    copy = bytes(bytearray(data))
    assert bytes(read(data).payload) == bytes(SIZE)
    assert hashed.count(VECTOR) == 1
    assert read(copy).digest == read(data).digest
    assert hashed.count(VECTOR) == 3  # and it is recognised only once


def test_as_many_are_recognised_as_threads_may_seal_ahead(
    hashed: list[int],
) -> None:
    """Else whoever adds up would hash them one after the other, where there are many cores."""
    wire.seal_ahead(8)
    for data in [large(bytes(SIZE)) for _ in range(9)]:
        read(data)
    assert hashed.count(VECTOR) == 9


def test_a_copy_is_not_recognised_before_the_frame_itself_either(hashed: list[int]) -> None:
    data = large(bytes(SIZE))
    read(bytes(bytearray(data)))
    assert hashed.count(VECTOR) == 2
    read(data)
    assert hashed.count(VECTOR) == 2


@pytest.mark.parametrize("place", [HEADER_BYTES, MIDDLE, HEADER_BYTES + SIZE - 1])
def test_a_frame_as_long_as_one_just_sealed_is_not_believed(place: int) -> None:
    data = large(bytes(SIZE))
    with refused("relay", "got a false signature"):
        read(flipped(data, place))
    read(data)  # what is refused does not spoil what is true


def test_another_partys_signature_under_a_recognised_frame_is_refused() -> None:
    with refused("relay", "signed by silo-1, got a false signature"):
        read(large(bytes(SIZE), W.keys[2]))


def test_a_buffer_that_changes_after_it_was_hashed_is_not_believed() -> None:
    buffer = bytearray(SIZE)

    class Changing:
        """Signs what was hashed; by the time the frame is put together, it is another."""

        def sign(self, signed: bytes) -> bytes:
            buffer[SIZE // 2] ^= 1
            return W.keys[1].sign(signed)

    with refused("relay", "got a false signature"):
        read(large(memoryview(buffer), Changing()))


def test_a_frame_that_changes_after_it_was_recognised_is_a_copy() -> None:
    data = bytearray(large(bytes(SIZE)))
    frame = read(data)  # type: ignore[arg-type]  # what a careless caller may pass
    data[MIDDLE] ^= 1
    assert bytes(frame.payload) == bytes(SIZE)
    with refused("relay", "got a false signature"):
        read(data)  # type: ignore[arg-type]  # as above


def test_a_party_of_its_own_process_holds_no_frame_that_it_sealed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody there parses them: models and masked vectors would be held for nothing."""
    monkeypatch.setattr(wire, "_SEALED", wire.Sealed())
    frames = [large(bytes([number]) * SIZE) for number in range(3)]
    assert held(frames) == []


def test_few_frames_are_held_and_none_that_was_parsed() -> None:
    frames = [large(bytes([number]) * SIZE) for number in range(20)]
    assert held(frames) == [16, 17, 18, 19]
    for frame in frames:
        read(frame)
    del frame
    assert held(frames) == []


def held(frames: list[bytes]) -> list[int]:
    """Which of the frames somebody else refers to."""
    alone = [bytes(bytearray(frames[0]))]
    least = sys.getrefcount(alone[0])
    return [place for place in range(len(frames)) if sys.getrefcount(frames[place]) > least]


def test_a_look_that_believes_nothing_changes_nothing(hashed: list[int]) -> None:
    data = large(bytes(SIZE))
    assert wire.unverified(data).tag == wire.tag_of(data) == Tag.MASKED
    assert (wire.sender_of(data), wire.receiver_of(data)) == (1, 0)
    read(data)
    assert hashed.count(VECTOR) == 1  # the sender's: it is still recognised


def test_what_was_verified_is_written_down_without_being_hashed_again(hashed: list[int]) -> None:
    data, head = large(bytes(SIZE)), bytes(32)
    frame = read(bytes(bytearray(data)))  # from another machine
    again = frame_records.record_of(data, head, full=False)
    hashed.clear()
    assert frame_records.record_of(data, head, full=False, short=frame.short) == again
    assert hashed == [64]  # of the chain: what stands for the vector, with the MODEL's


@pytest.mark.parametrize("nodes", [0, 2])
def test_a_masked_vector_is_parsed_once(monkeypatch: pytest.MonkeyPatch, nodes: int) -> None:
    parsed: list[int] = []
    split = wire._split

    def counted(data: bytes) -> Frame:
        parsed.append(data[1])
        return split(data)

    monkeypatch.setattr(wire, "_split", counted)
    secure_sum([[1, 2], [3, 4], [5, 6]], compute_nodes=nodes)
    assert parsed.count(Tag.MASKED) == 3
