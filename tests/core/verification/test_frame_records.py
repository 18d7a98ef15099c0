"""What a transcript keeps of a frame, and when it is on the disk."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from hubbub.core.protocol.primitives.wire import Tag
from hubbub.core.verification.transcript import writer
from hubbub.core.verification.transcript.frame_records import first_head, path_of, read, record_of
from hubbub.core.verification.transcript.writer import Transcript
from protocol.parties import SESSION, STUDY, world

W = world(4, nodes=2)
VECTORS = {Tag.MASKED, Tag.TOTAL, Tag.SHARE, Tag.VECTOR, Tag.SET_TOTAL}  # all as long as a sum
WHOLE, HASHED = 1, 2


@pytest.mark.parametrize("tag", Tag)
def test_p4_a_transcript_of_hashes_has_no_vector_and_none_has_a_sealed_share(tag: Tag) -> None:
    """Both have one head, so neither can be put in the place of the other unnoticed."""
    frame, head = W.forge(1, tag, bytes(range(96))), bytes(32)
    (full, after), (short, same) = (record_of(frame, head, full=full) for full in (True, False))
    assert after == same
    kinds = [b"".join(one)[0] for one in (full, short)]
    assert kinds == [
        HASHED if tag is Tag.SHARE else WHOLE,
        HASHED if tag in VECTORS else WHOLE,
    ]
    for kind, record in zip(kinds, (full, short), strict=True):
        assert (bytes(range(64)) in b"".join(record)) is (kind == WHOLE)


def test_the_first_head_is_what_transcripts_on_disk_have() -> None:
    assert first_head(b"a header") == sha256(b"hubbub transcript v1" + b"a header").digest()


def test_p15_what_is_sealed_is_on_the_disk_frame_and_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a crash would forget attempts that silos have paid for."""
    synced = list[Any]()
    monkeypatch.setattr(writer.os, "fsync", lambda file: synced.append(os.fstat(file).st_size))
    place = {"study": STUDY, "session": SESSION, "roster": W.roster}
    with Transcript(tmp_path, **place, full=True, purpose="training") as transcript:
        transcript.keep(W.forge(0, Tag.MODEL, bytes(9)))
        synced.clear()
        transcript.seal()
        path = path_of(tmp_path, SESSION)
        assert synced == [path.stat().st_size]
        assert [kept.tag for kept in read(path)] == [Tag.MODEL]
