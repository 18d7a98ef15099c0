"""What a transcript looks like on disk, and reading it back.

Theory of operation. A file begins with a header, which names the session, its parties with their
public keys and the numbers of its rounds; frames follow. Every record ends with a digest over its
words and the digest before it, so that no byte can change, go or come unnoticed, and the digest of
the last one, the head, stands for the whole session. What a chain cannot show is that its end is
missing: for that the head is written elsewhere (`evidence`). A record covers a payload by its
hash, and so does a frame's signature; a transcript of hashes, which leaves vectors out, therefore
has the same head as a full one, and its signatures can still be verified. Of a MASKED such a
transcript keeps the digest of the MODEL too, which the hash covers apart from the vector. Of a
SHARE, which only its node can open, any transcript keeps the hash alone.

Masked vectors and totals look uniform, so they may be kept (docs/privacy.md P4). This file believes
no signature.

    offset  size  part
         0     8  "hubbub" and the format, 2, in two bytes, little-endian
         8     4  length h of the header, little-endian
        12     h  the header, JSON
      12+h    32  the first head: SHA-256("hubbub transcript v1", all bytes so far)
                  then for every frame:
         0     1  1: with its payload; 2: with what stands for it
         1    74  the frame's header (`wire.py`)
        75     n  the payload; or its hash, 32 bytes, of a MASKED that of the residues and the
                  digest of the MODEL, 64 bytes
      75+n    64  the frame's signature
     139+n    32  the new head: SHA-256(head before, frame's header, hash of the payload, signature)
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from hubbub.core.disk import json_value, open_ordinary, why_of
from hubbub.core.errors import IntegrityError, StudyError, UserError
from hubbub.core.protocol.primitives.identity import Roster, identity_of, plain_identity
from hubbub.core.protocol.primitives.message_sizes import HEADER, HEADER_BYTES, SIGNATURE_BYTES
from hubbub.core.protocol.primitives.wire import SIGNED_FIRST, Tag, hash_of, short_of, shortened
from hubbub.core.protocol.round.round_parameters import RoundParameters

# What a transcript says of its session before the first frame.


@dataclass(frozen=True, kw_only=True)
class Header:
    """What a file says of its session before the first frame; `study` and `session` are ids."""

    study: bytes
    session: bytes
    purpose: str  # only "training" makes steps of the model
    number: int  # of the run's sessions before
    roster: Roster = field(repr=False)
    round_parameters: RoundParameters | None = None


def plain_roster(roster: Roster) -> list[dict[str, str]]:
    """Everybody's public half as JSON knows it, in the roster's order."""
    return [plain_identity(party) for party in roster.parties]


def roster_of(plain: list[Mapping[str, str]]) -> Roster:
    """The roster that `plain_roster` wrote."""
    return Roster(parties=tuple(identity_of(one) for one in plain))


def written(header: Header) -> bytes:
    """The header as JSON."""
    plain = {
        "study": header.study.hex(),
        "session": header.session.hex(),
        "purpose": header.purpose,
        "number": header.number,
        "terms": None if header.round_parameters is None else header.round_parameters.to_dict(),
        "roster": plain_roster(header.roster),
    }
    return json.dumps(plain, separators=(",", ":")).encode()


@lru_cache(maxsize=8)  # a thousand keys take a while to check, and are asked for more than once
def parsed(text: bytes) -> Header:
    """The header that `written` wrote; ValueError, KeyError or TypeError if it is none."""
    plain: Mapping[str, Any] = json_value(text)
    return Header(
        study=bytes.fromhex(plain["study"]),
        session=bytes.fromhex(plain["session"]),
        purpose=str(plain["purpose"]),
        number=int(plain["number"]),
        roster=roster_of(plain["roster"]),
        round_parameters=None if plain["terms"] is None else RoundParameters(**plain["terms"]),
    )


FOLDER = "transcript"
_FORMAT = 2
_MAGIC = b"hubbub" + _FORMAT.to_bytes(2, "little")
_START = b"hubbub transcript v1"
_DIGEST_BYTES = 32
_WHOLE, _HASHED = 1, 2
# Of one frame and of the header; a model of 250 million numbers, and the keys of 100,000 parties.
_MOST_BYTES, _MOST_HEADER = 2**30, 2**28
_FIELDS = ("tag", "study", "session", "round", "attempt", "sender", "receiver", "size")
# What is left out of a transcript of hashes: everything that is as long as a sum.
_VECTORS = frozenset({Tag.MASKED, Tag.TOTAL, Tag.SHARE, Tag.VECTOR, Tag.SET_TOTAL})
_SEALED = Tag.SHARE  # what no reader can open is left out of any transcript


@dataclass(frozen=True, kw_only=True)
class Kept:
    """One frame as it was kept, and the transcript's head after it; no signature is looked at.

    The payload is None where only what stands for it was kept, `short`; the digest is the hash that
    was signed; `words` are the frame's header.
    """

    tag: Tag
    study: bytes
    session: bytes
    round: int
    attempt: int
    sender: int
    receiver: int
    size: int
    payload: bytes | None = field(repr=False)
    short: bytes = field(repr=False)
    digest: bytes = field(repr=False)
    signature: bytes = field(repr=False)
    words: bytes = field(repr=False)
    head: bytes = field(repr=False)

    @property
    def version(self) -> int:
        """Of the wire, as its sender signed it."""
        return self.words[0]

    @property
    def signed(self) -> bytes:
        """What the sender signed."""
        return SIGNED_FIRST + self.words + self.digest

    @property
    def frame(self) -> bytes:
        """A frame whose payload was kept, as it was sent."""
        return self.words + (self.payload or b"") + self.signature

    @property
    def answered(self) -> bytes:
        """The digest of the MODEL that a MASKED answers, which is kept in any case."""
        return self.short[-_DIGEST_BYTES:]


def path_of(folder: Path, session: bytes) -> Path:
    """Where a run keeps the transcript of a session."""
    return folder / FOLDER / f"{session.hex()}.frames"


def files(folder: Path) -> list[Path]:
    """The transcripts of a run, by name."""
    return sorted((folder / FOLDER).glob("*.frames"))


def record_of(
    frame: bytes, head: bytes, *, full: bool, short: bytes = b""
) -> tuple[tuple[bytes | memoryview, ...], bytes]:
    """A frame as a record, in pieces to be written one after another, and the head after it.

    `short` is what stands for its payload, where that is known.
    """
    view = memoryview(frame)
    words, signature = view[:HEADER_BYTES], view[-SIGNATURE_BYTES:]
    payload = view[HEADER_BYTES:-SIGNATURE_BYTES]
    short = short or short_of(frame)
    # Over the payload's hash, so transcripts with vectors and without have one head.
    after = _next(head, words, hash_of(words[1], short), signature)
    if words[1] != _SEALED and (full or words[1] not in _VECTORS):
        start, content, end = bytes([_WHOLE]) + words, payload, signature.tobytes() + after
        return (start, content, end), after
    return (b"".join((bytes([_HASHED]), words, short, signature, after)),), after


def start_of(header: Header) -> bytes:
    """The bytes of a file up to its first head."""
    text = written(header)
    return _MAGIC + struct.pack("<I", len(text)) + text


def first_head(start: bytes) -> bytes:
    """The head before the first frame."""
    return hashlib.sha256(_START + start).digest()


def read_header(path: Path) -> Header:
    """What a transcript says of its session; errors are those of `read`."""
    with _opened(path) as file:
        text, _ = _header(file, path)
    try:
        return parsed(text)
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
        StudyError,
    ):
        raise IntegrityError(
            f"expected the header of {path} to name a session and its parties, found something "
            "else; use the version of hubbub that wrote it"
        ) from None


def read(path: Path) -> Iterator[Kept]:
    """The frames of a transcript in order, each checked against the chain before it is given.

    Raises:
        IntegrityError: at the first record that does not fit, or at a torn end.
        UserError: the file cannot be read.
    """
    with _opened(path) as file:
        for number, (start, kept) in enumerate(_records(file, path), 1):
            if kept is None:
                raise _torn(path, number) if _is_torn(file, start) else _altered(path, number)
            yield kept


def head_of(path: Path) -> bytes:
    """The head of a transcript after its last frame; errors are those of `read`."""
    with _opened(path) as file:
        _, head = _header(file, path)
    for kept in read(path):
        head = kept.head
    return head


def end_of(path: Path) -> int:
    """Where the last whole record ends; IntegrityError if no crash explains what is wrong."""
    with _opened(path) as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(0)
        for number, (start, kept) in enumerate(_records(file, path), 1):
            if kept is None:
                if not _is_torn(file, start):
                    raise _altered(path, number)
                end = start
        return end


def _records(file: BinaryIO, path: Path) -> Iterator[tuple[int, Kept | None]]:
    """Where each record begins, and its frame; None for the first that does not fit, the last."""
    _, head = _header(file, path)
    start = file.tell()
    while kind := file.read(1):
        kept = _record(file, kind[0], head)
        yield start, kept
        if kept is None:
            return
        head, start = kept.head, file.tell()


def _record(file: BinaryIO, kind: int, head: bytes) -> Kept | None:
    """The frame that stands here, or None if what stands here does not fit."""
    words = file.read(HEADER_BYTES)
    if kind not in (_WHOLE, _HASHED) or len(words) < HEADER_BYTES:
        return None
    stored = _stored_bytes(kind, words)
    if stored > _MOST_BYTES:
        return None
    if stored + SIGNATURE_BYTES + _DIGEST_BYTES > os.fstat(file.fileno()).st_size - file.tell():
        return None  # asked before reading: an altered length may be more than there is memory
    content, signature = file.read(stored), file.read(SIGNATURE_BYTES)
    short = shortened(words[1], content) if kind == _WHOLE else content
    digest = hash_of(words[1], short)
    after = file.read(_DIGEST_BYTES)
    if after != _next(head, words, digest, signature):
        return None
    fields: dict[str, Any] = dict(zip(_FIELDS, HEADER.unpack(words)[1:], strict=True))
    if fields["tag"] not in Tag.__members__.values():  # of another version
        return None
    fields |= {"tag": Tag(fields["tag"]), "payload": content if kind == _WHOLE else None}
    return Kept(**fields, short=short, digest=digest, signature=signature, words=words, head=after)


def _stored_bytes(kind: int, words: bytes) -> int:
    """How much of its payload a record holds."""
    size = int(HEADER.unpack(words)[-1])
    if kind == _WHOLE:
        return size
    return _DIGEST_BYTES + (min(size, _DIGEST_BYTES) if words[1] == Tag.MASKED else 0)


def _next(
    head: bytes, words: bytes | memoryview, digest: bytes, signature: bytes | memoryview
) -> bytes:
    """The head after one more frame."""
    return hashlib.sha256(b"".join((head, words, digest, signature))).digest()


def _is_torn(file: BinaryIO, start: int) -> bool:
    """Whether a record that does not fit was just not written to its end."""
    # It is too short then, or ends in zeros, which file systems put where nothing was written yet.
    if file.seek(0, os.SEEK_END) - start > 2 * _MOST_BYTES:
        return False
    file.seek(start)
    rest = file.read().rstrip(b"\0")
    if len(rest) <= HEADER_BYTES:
        return True
    stored = _stored_bytes(rest[0], rest[1 : 1 + HEADER_BYTES])
    return len(rest) < 1 + HEADER_BYTES + stored + SIGNATURE_BYTES + _DIGEST_BYTES


def _header(file: BinaryIO, path: Path) -> tuple[bytes, bytes]:
    """The header's text and the first head; the file stands at the first record."""
    start = file.read(len(_MAGIC) + 4)
    if not start.startswith(_MAGIC) or len(start) < len(_MAGIC) + 4:
        raise IntegrityError(
            f"expected a transcript of format {_FORMAT} in {path}, found something else; restore "
            "it from a backup, or use the version of hubbub that wrote it"
        )
    (size,) = struct.unpack("<I", start[len(_MAGIC) :])
    if size > min(_MOST_HEADER, os.fstat(file.fileno()).st_size):
        raise _altered(path, 0)
    text, head = file.read(size), file.read(_DIGEST_BYTES)
    if head != first_head(start + text):
        raise _altered(path, 0)
    return text, head


def _opened(path: Path) -> BinaryIO:
    try:
        return open_ordinary(path)
    except OSError as error:
        raise UserError(
            f"expected a transcript that can be read at {path}, got: {why_of(error)}; check the "
            "path and the permissions"
        ) from None


def _torn(path: Path, number: int) -> IntegrityError:
    return IntegrityError(
        f"expected record {number} of {path} to be written to its end, found the file cut off "
        "there; resume the run, or restore the file from a backup"
    )


def _altered(path: Path, number: int) -> IntegrityError:
    what = f"record {number}" if number else "the header"
    return IntegrityError(
        f"expected {what} of {path} to fit the chain, it was altered; restore the file from a "
        "backup, and rely on no result that rests on it until then"
    )
