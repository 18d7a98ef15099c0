"""The transcript: what was kept comes back, and no byte of it can change unnoticed."""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubbub.core.errors import IntegrityError, ProtocolError, UserError
from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.core.protocol.primitives.wire import (
    EVERYBODY,
    HEADER_BYTES,
    SIGNATURE_BYTES,
    Frame,
    Tag,
    parse,
)
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.verification.transcript.frame_records import (
    Kept,
    end_of,
    files,
    head_of,
    path_of,
    read,
    read_header,
)
from hubbub.core.verification.transcript.writer import Transcript, recover

KEYS = [Keys.generate("aggregator", "aggregator")] + [
    Keys.generate(f"silo-{k}", "silo") for k in (1, 2, 3)
]
ROSTER = Roster.of(KEYS)
STUDY, SESSION = bytes(range(32)), bytes(range(16))
TERMS = RoundParameters(
    dimension=9,
    parameters=9,
    silos=3,
    quorum=3,
    steps=4,
    word_bits=16,
    grid_step=0.25,
    sigma_grid=8.0,
    sample_rate=0.5,
    nodes=0,
)


def frame(tag: Tag, sender: int, payload: bytes, *, round: int = 1) -> bytes:
    return Frame(
        tag=tag,
        study=STUDY,
        session=SESSION,
        round=round,
        sender=sender,
        receiver=EVERYBODY if tag is Tag.MODEL else 0,
        payload=payload,
    ).sealed(KEYS[sender])


FRAMES = [
    frame(tag, sender, random.Random(17 * round + sender).randbytes(size), round=round)
    for round in (1, 2)
    for tag, sender, size in (
        (Tag.MODEL, 0, 37),
        (Tag.MASKED, 1, 50),
        (Tag.MASKED, 2, 50),
        (Tag.MASKED, 3, 0),
    )
]


def written(folder: Path, *, full: bool = True, frames: list[bytes] = FRAMES) -> Path:
    with Transcript(
        folder,
        study=STUDY,
        session=SESSION,
        roster=ROSTER,
        purpose="training",
        full=full,
        round_parameters=TERMS,
    ) as transcript:
        for one in frames:
            transcript.keep(one)
        transcript.seal()
    return path_of(folder, SESSION)


def whole(path: Path) -> list[Kept]:
    return list(read(path))


def as_bytes(kept: Kept) -> bytes:
    assert kept.payload is not None
    return kept.words + kept.payload + kept.signature


def test_a_full_transcript_gives_back_every_frame_byte_for_byte(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert [as_bytes(kept) for kept in read(path)] == FRAMES
    found = read_header(path)
    assert (found.study, found.session, found.roster, found.round_parameters) == (
        STUDY,
        SESSION,
        ROSTER,
        TERMS,
    )
    assert found.purpose == "training"
    assert files(tmp_path) == [path]


def test_the_fields_of_a_kept_frame_are_those_that_the_wire_reads(tmp_path: Path) -> None:
    for kept, sent in zip(read(written(tmp_path)), FRAMES, strict=True):
        real = parse(sent, ROSTER, study=STUDY, session=SESSION)
        assert kept.signed == real.signed
        for name in ("tag", "study", "session", "round", "attempt", "sender", "receiver"):
            assert getattr(kept, name) == getattr(real, name)
        assert kept.size == len(real.payload)


def test_a_transcript_of_hashes_drops_vectors_and_keeps_signatures_and_head(tmp_path: Path) -> None:
    full, hashes = written(tmp_path / "full"), written(tmp_path / "hashes", full=False)
    assert head_of(full) == head_of(hashes)
    for kept, sent in zip(read(hashes), FRAMES, strict=True):
        assert (kept.payload is None) == (kept.tag is Tag.MASKED)
        assert ROSTER.parties[kept.sender].verifies(kept.signature, kept.signed)
        assert not ROSTER.parties[kept.sender ^ 1].verifies(kept.signature, kept.signed)
        assert kept.words == sent[:HEADER_BYTES]
    payload = FRAMES[1][HEADER_BYTES:-SIGNATURE_BYTES]
    assert payload in full.read_bytes()
    assert payload[:-32] not in hashes.read_bytes()
    answered = [one.answered for one in read(hashes) if one.tag is Tag.MASKED]
    assert answered[0] == payload[-32:]
    assert answered == [one.answered for one in read(full) if one.tag is Tag.MASKED]


def test_the_head_is_that_of_the_reader_at_every_frame(tmp_path: Path) -> None:
    heads = []
    with Transcript(
        tmp_path, study=STUDY, session=SESSION, roster=ROSTER, purpose="training", full=True
    ) as transcript:
        for one in FRAMES:
            transcript.keep(one)
            heads.append(transcript.head)
    assert [kept.head for kept in read(path_of(tmp_path, SESSION))] == heads
    assert len(set(heads)) == len(heads)


@pytest.mark.parametrize("full", [True, False])
def test_every_flipped_byte_is_noticed_and_the_file_is_named(tmp_path: Path, full: bool) -> None:
    path = written(tmp_path, full=full)
    content = path.read_bytes()
    for place in [*range(40), *random.Random(3).sample(range(40, len(content)), 500)]:
        altered = bytearray(content)
        altered[place] ^= random.Random(place).randrange(1, 256)
        path.write_bytes(altered)
        with pytest.raises(IntegrityError, match=path.name):
            head_of(path)
    path.write_bytes(content)
    head_of(path)


def test_every_cut_is_noticed_unless_it_is_between_frames_where_the_head_differs(
    tmp_path: Path,
) -> None:
    path = written(tmp_path)
    content, head = path.read_bytes(), head_of(path)
    ends = [len(content)]
    for sent in reversed(FRAMES):
        ends.append(ends[-1] - len(sent) - 33)
    for size in sorted({*ends[1:], *random.Random(4).sample(range(ends[-1], len(content)), 200)}):
        path.write_bytes(content[:size])
        if size in ends:
            assert head_of(path) != head
        else:
            with pytest.raises(IntegrityError, match="cut off"):
                head_of(path)
        recover(path)
        assert path.stat().st_size == max(end for end in ends if end <= size)
        assert [as_bytes(kept) for kept in read(path)] == FRAMES[: len(whole(path))]


@pytest.mark.parametrize("cut", [1, 40, 150, 200])
def test_recover_takes_zeros_after_a_crash_for_a_torn_end_and_keeps_what_it_cuts(
    tmp_path: Path, cut: int
) -> None:
    path = written(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[:-cut] + bytes(cut + 4096))
    assert recover(path) > 4096
    assert 6 <= len(whole(path)) < len(FRAMES)
    kept = path.with_suffix(".torn").read_bytes()
    assert path.read_bytes() + kept == content[:-cut] + bytes(cut + 4096)
    assert recover(path) == 0


def test_recover_refuses_what_no_crash_does_and_leaves_the_file(tmp_path: Path) -> None:
    path = written(tmp_path)
    content = bytearray(path.read_bytes())
    content[-300] ^= 1
    path.write_bytes(content)
    with pytest.raises(IntegrityError, match=path.name):
        recover(path)
    assert path.read_bytes() == content


def test_frames_in_another_order_or_twice_do_not_fit(tmp_path: Path) -> None:
    path = written(tmp_path)
    content, start = path.read_bytes(), end_of(written(tmp_path / "none", frames=[]))
    records, place = [], start
    for sent in FRAMES:
        records.append(content[place : place + len(sent) + 33])
        place += len(sent) + 33
    for order in ([1, 0, *range(2, 8)], [0, 0, *range(1, 8)], [0, *range(2, 8)]):
        path.write_bytes(content[:start] + b"".join(records[k] for k in order))
        with pytest.raises(IntegrityError, match="record"):
            head_of(path)


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=400))
def test_bytes_from_anywhere_are_refused_in_a_sentence(tmp_path_factory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "a.frames"
    path.write_bytes(content)
    for function in (head_of, read_header, recover):
        with pytest.raises(IntegrityError, match="expected"):
            function(path)


def test_a_session_has_one_transcript_and_sessions_are_numbered(tmp_path: Path) -> None:
    written(tmp_path)
    with pytest.raises(IntegrityError, match="already"):
        written(tmp_path)
    with Transcript(
        tmp_path, study=STUDY, session=bytes(16), roster=ROSTER, purpose="training", full=True
    ):
        pass
    assert read_header(path_of(tmp_path, bytes(16))).number == 1


def test_nothing_is_kept_after_it_was_closed(tmp_path: Path) -> None:
    transcript = Transcript(
        tmp_path, study=STUDY, session=SESSION, roster=ROSTER, purpose="training", full=True
    )
    transcript.close()
    head = transcript.head
    with pytest.raises(IntegrityError, match="closed"):
        transcript.keep(FRAMES[0])
    with pytest.raises(IntegrityError, match="closed"):
        transcript.seal()
    assert transcript.head == head


def test_a_missing_file_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.frames"):
        head_of(tmp_path / "none.frames")


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written_is_said_to_be_so(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(IntegrityError, match="fix the disk"):
        written(tmp_path)


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
sys.path[:0] = {paths!r}
from run.test_transcript import FRAMES, ROSTER, STUDY, SESSION
from hubbub.core.errors import IntegrityError
from hubbub.core.verification.transcript.frame_records import path_of
from hubbub.core.verification.transcript.writer import Transcript

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
folder = Path(sys.argv[1])
transcript = Transcript(
    folder, study=STUDY, session=SESSION, roster=ROSTER, purpose="training", full=True
)
size = path_of(folder, SESSION).stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 700, size + 700))
kept = 0
try:
    for one in FRAMES:
        transcript.keep(one)
        kept += 1
except IntegrityError as error:
    assert "fix the disk" in str(error)
    try:
        transcript.keep(FRAMES[0])
    except IntegrityError:
        print(kept)
"""


@pytest.mark.slow
def test_a_full_disk_is_told_in_a_sentence_and_what_was_kept_before_is_whole(
    tmp_path: Path,
) -> None:
    paths = [str(Path(__file__).parents[2]), *sys.path]
    assert resource.RLIMIT_FSIZE is not None
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK.format(paths=paths), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    kept = int(done.stdout)
    assert 0 < kept < len(FRAMES)
    path = path_of(tmp_path, SESSION)
    with pytest.raises(IntegrityError, match="cut off"):
        head_of(path)
    assert recover(path) > 0
    assert len(whole(path)) > 0
    # The keys above are made anew in every process, so only the words are compared.
    assert [one.words for one in read(path)] == [sent[:HEADER_BYTES] for sent in FRAMES[:kept]]


def test_signatures_of_strangers_do_not_verify(tmp_path: Path) -> None:
    stranger = Keys.generate("silo-1", "silo")
    forged = Frame(
        tag=Tag.MASKED, study=STUDY, session=SESSION, round=1, sender=1, receiver=0, payload=b"x"
    ).sealed(stranger)
    (kept,) = read(written(tmp_path, frames=[forged]))
    assert not ROSTER.parties[1].verifies(kept.signature, kept.signed)
    with pytest.raises(ProtocolError):
        parse(forged, ROSTER, study=STUDY, session=SESSION)
