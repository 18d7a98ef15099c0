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
from math import isclose
from pathlib import Path
from typing import Any, NamedTuple

from hubbub.core import disk
from hubbub.core.errors import HubbubError, IntegrityError, UserError
from hubbub.core.settings import shortened
from hubbub.core.verification.transcript.frame_records import roster_of

MODEL, SPENDING = "model.safetensors", "spending.json"  # of a run's folder
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
LIBRARIES = ("torch", "numpy", "scipy", "cryptography")  # whose versions evidence has, if they ran


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


# What a check found: a claim, and how it stands.
#
# A claim is re-derived (computed again and found equal), signed (only its signer can vouch for it),
# not verifiable (nothing here can show it), not checked (it could be, but would take long), or
# wrong. Only a claim that nobody has looked at leaves a check incomplete. A finding names the
# members of the evidence and the files of the run that it is about, so that whoever quotes one can
# say how it stands, and files that none is about are seen. Other machines may calibrate to other
# last digits, so numbers are found equal if they agree to six.

REDERIVED, SIGNED, NOT_VERIFIABLE = "re-derived", "signed", "not verifiable"
NOT_CHECKED = "not checked"
RESTORE = "restore it from a backup, and rely on no result that rests on it until then"
CLOSE = 1e-6
_WRONG = "wrong: "


class Finding(NamedTuple):
    """A claim as a sentence, and the verdict; "wrong: why" if it does not hold.

    `about` are members of the evidence, as "epsilon.claimed", that stand as the verdict says;
    `files`, below the run's folder, those whose content was held against what follows, or of which
    the claim says that it cannot be.
    """

    claim: str
    verdict: str
    about: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    def covering(self, *about: str) -> Finding:
        """The same finding, about these members of the evidence."""
        return self._replace(about=about)

    def on(self, *files: str) -> Finding:
        """The same finding, about these files of the run."""
        return self._replace(files=files)

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.verdict.startswith(_WRONG)

    @property
    def is_checked(self) -> bool:
        """Whether somebody has looked."""
        return self.verdict != NOT_CHECKED


def rederived(claim: str) -> Finding:
    """A claim that was computed again."""
    return Finding(claim, REDERIVED)


def signed(claim: str) -> Finding:
    """A claim that somebody vouches for with a signature that was verified."""
    return Finding(claim, SIGNED)


def not_verifiable(claim: str) -> Finding:
    """A claim that cannot be checked here."""
    return Finding(claim, NOT_VERIFIABLE)


def not_checked(claim: str) -> Finding:
    """A claim whose check would take longer than was allowed for a stranger's numbers."""
    return Finding(claim, NOT_CHECKED)


def wrong(claim: str, why: object) -> Finding:
    """A claim that does not hold."""
    return Finding(claim, f"{_WRONG}{why}")


def judged(claim: str, why: object) -> Finding:
    """Re-derived, unless there is a reason why not."""
    return wrong(claim, why) if why else rederived(claim)


def difference(found: Any, made: Any, where: str = "it") -> str:
    """Where two plain values first differ by more than last digits; "" if nowhere."""
    if isinstance(found, dict) and isinstance(made, dict):
        if set(found) != set(made):
            odd = _shown(min(map(str, set(found) ^ set(made))))
            return f"{where} has or lacks {odd}, unlike what follows from the study"
        pairs = ((found[key], made[key], key) for key in made)
    elif isinstance(found, list) and isinstance(made, list | tuple) and len(found) == len(made):
        pairs = (
            (a, b, f"{where} {k}") for k, (a, b) in enumerate(zip(found, made, strict=True), 1)
        )
    else:
        same = type(found) is type(made) and found == made
        if isinstance(made, float) and type(found) in (int, float):
            same = isclose(found, made, rel_tol=CLOSE)
        if same:
            return ""
        return f"{where} is {_shown(found)}, {_shown(made)} follows from the study"
    return next((said for pair in pairs if (said := difference(*pair))), "")


def _shown(value: object) -> str:
    """In a sentence on a screen, which whole tables are not for."""
    return shortened(repr(value), 80)
