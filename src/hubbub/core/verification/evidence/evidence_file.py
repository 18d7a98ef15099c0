"""An evidence file as bytes: how it is signed, and how it is read again.

The last member signs all bytes before it, so that nobody need agree on what the same JSON is. A
file may come from anybody, who may mean harm: nothing of it is believed before its signature is
verified. What it says, and whether that is true, is the business of `claims.py`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hubbub.core import disk
from hubbub.core.errors import HubbubError, IntegrityError, UserError
from hubbub.core.verification.transcript.transcript_header import roster_of

MODEL = "model.safetensors"  # of a run's folder
_WHOLE = b"hubbub evidence v1"
_PART = b"hubbub evidence part v1"
_SIGNED = re.compile(rb'(.*),\n "signature": "([0-9a-f]{128})"\n\}\n', re.DOTALL)
_MOST_BYTES = 2**26  # ten thousand silos need a third of it
# What a well-signed file of anything may raise while it is read as evidence.
MALFORMED = (
    *(HubbubError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError),
    RecursionError,
)

Plain = dict[str, Any]


def load(path: Path) -> Plain:
    """The content of an evidence file; IntegrityError if it is not as its aggregator signed it."""
    content = _verified(read_whole(path))
    if content is None:
        raise IntegrityError(
            f"expected {path} to be evidence as its aggregator signed it, it was altered or is "
            "another file; get it again from whom it came from, or restore a backup"
        )
    return content


def read_whole(path: Path, *, most: int = _MOST_BYTES) -> bytes:
    """A file of a run as it is; UserError as for `check_ordinary`, or if it is too large."""
    with _readable(path):
        return disk.read_bytes(path, most=most)


def read_plain(path: Path) -> Any:
    """What a JSON file of a run holds; errors are those of `read_whole`, or ValueError."""
    return disk.json_value(read_whole(path))


def check_ordinary(path: Path) -> None:
    """Refuse to read what is no file of a run: to open a pipe would wait for whoever writes to it.

    Raises:
        UserError: it is no ordinary file.
    """
    with _readable(path):
        disk.open_ordinary(path).close()


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """The disk's errors as ours."""
    try:
        yield
    except OSError as error:
        why = error.strerror
        raise UserError(
            f"expected a file that can be read at {path}, got: {why}; check the path"
        ) from None


def with_signature(content: Plain, sign: Callable[[bytes], bytes]) -> str:
    """The text of a file, whose last member signs all bytes before it."""
    body = json.dumps(content, indent=1, allow_nan=False).removesuffix("\n}")
    return f'{body},\n "signature": "{sign(_signed_words(body.encode())).hex()}"\n}}\n'


def part_words(part: Mapping[str, Any]) -> bytes:
    """What a silo signs: JSON with sorted keys and without spaces, as for a study's id."""
    plain = {key: value for key, value in part.items() if key != "signature"}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return _PART + text.encode()


def _verified(whole: bytes) -> Plain | None:
    """The content of a file, None unless its aggregator signed exactly these bytes."""
    match = _SIGNED.fullmatch(whole)
    if match is None:
        return None
    try:
        content: Plain = disk.json_value(match[1] + b"\n}")
        (aggregator,) = roster_of(content["roster"][:1]).parties
        signature = bytes.fromhex(match[2].decode())
        return content if aggregator.verifies(signature, _signed_words(match[1])) else None
    except MALFORMED:
        return None


def _signed_words(body: bytes) -> bytes:
    return _WHOLE + hashlib.sha256(body).digest()
