"""The rows of a ledger: any text that its own key has signed, and text that is no text at all.

The first byte chooses between a row that was signed and bytes that were put into the file; the rest
is the text of row 1, or of several rows, one a line. Laws: an `IntegrityError`, or a ledger whose
entries and cap are what they say when they are written again.
"""

from __future__ import annotations

import json
import tempfile
from functools import lru_cache
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fuzz.reading import hold
from hubbub.core.errors import IntegrityError
from hubbub.core.ledger.privacy_ledger import Cap, Entry, Ledger
from ledger.book import behind_its_back, cap_for, entry, insert, key_of, signed_by

_MOST_ROWS = 4
_BEGIN_ANEW = "DELETE FROM rows WHERE number > 0"
_RAW = "INSERT INTO rows VALUES (1, CAST(? AS TEXT), ?)"
_PARTS = (*entry().to_dict(), *cap_for(1).to_dict(), "cap", "charge")
_OTHERS = ("NaN", "1e400", "-Infinity", "null", "true", "[]", "{}", "\\ud800", "1" * 310)
WORDS = (*(f'"{part}": ' for part in _PARTS), *_OTHERS)


def check(data: bytes) -> None:
    """One input."""
    path = _path()
    behind_its_back(path, _BEGIN_ANEW)
    if data[:1] == b"\1":
        behind_its_back(path, _RAW, data[1:], bytes(64))
    else:
        _write(path, data[1:].decode("utf-8", "replace"))
    try:
        with Ledger(path) as ledger:
            rows = ledger.verify()
            hold(rows == len(list(ledger.entries())), "entries that are not counted")
            hold(all(Entry.of(one.to_dict()) == one for one in ledger.entries()), "another entry")
            hold(ledger.cap is None or Cap(**ledger.cap.to_dict()) == ledger.cap, "another cap")
    except IntegrityError as error:
        hold(str(error).isprintable(), "a sentence nobody can read")


def seeds() -> list[bytes]:
    """A charge, a cap, both, and rows that are neither."""
    charge = json.dumps({"charge": entry().to_dict()})
    cap = json.dumps({"cap": cap_for(3).to_dict()})
    texts = ("", "{}", charge, cap, f"{charge}\n{cap}\n{charge}", '{"charge": {}}', "[[1, 2]]")
    found = (charge.replace(": 2.0", ": 1" + "0" * 400), "[" * 3000)  # a huge number, deep lists
    raw = (charge.encode(), b"\xff", b"\1\xfb")
    return [b"\0" + text.encode() for text in texts + found] + [b"\1" + text for text in raw]


@lru_cache(maxsize=1)
def _folder() -> tempfile.TemporaryDirectory[str]:
    """A folder that is removed at the end."""
    return tempfile.TemporaryDirectory()


@lru_cache(maxsize=1)
def _path() -> Path:
    """A ledger with nothing in it."""
    path = Path(_folder().name) / "ledger"
    Ledger(path).close()
    return path


def _write(path: Path, texts: str) -> None:
    """Rows that the ledger's own key has signed."""
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(key_of(path).read_text()))
    for number, text in enumerate(texts.split("\n")[:_MOST_ROWS], start=1):
        insert(path, number, text, signed_by(key, path, number, text))
