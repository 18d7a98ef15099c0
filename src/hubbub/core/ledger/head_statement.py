"""What a ledger says of its head under its own signature, and what others sign under that.

Theory of operation. No file shows by itself that it is the newest (`hash_chain.py`). So a ledger
states how many rows it has and what its head is; another party, the witness, signs that statement
and remembers it. From then on a copy without that row is caught: by the witness, if it has fewer
rows or another head at the same number, and by whoever holds the statement against the file
(`Ledger.verify`). A witness sees heads, so it cannot tell a ledger that was set back and has grown
past the witnessed number since; the statement it signed can.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from hubbub.core.errors import IntegrityError
from hubbub.core.ledger.hash_chain import Chain, Head, Row, is_signed

Sign = Callable[[bytes], bytes]

_STATEMENT = b"hubbub ledger statement v1"
_WITNESS = b"hubbub ledger witness v1"
_LONGEST_TIME = 64
_MOST_ROWS = 2**63
_PARTY = "party"  # in a witness's row, beside the statement


@dataclass(frozen=True, kw_only=True)
class HeadStatement:
    """What a ledger says of itself; IntegrityError unless it is signed by the ledger's key."""

    ledger: bytes  # its public key, 32 bytes
    rows: int  # the genesis included
    head: bytes  # digest of the last one, 32 bytes
    time: str  # as its maker states; printable
    signature: bytes

    def __post_init__(self) -> None:
        printable = self.time.isprintable() and self.time.isascii()
        if (
            (len(self.ledger), len(self.head)) != (32, 32)
            or not 0 < self.rows < _MOST_ROWS
            or not (printable and len(self.time) <= _LONGEST_TIME)
            or not is_signed(self.ledger, self.signature, self.content)
        ):
            raise IntegrityError(
                "expected a statement signed by its ledger, found one that was altered or made up; "
                "ask for a new one"
            )

    @classmethod
    def made(cls, ledger: bytes, head: Head, time: str, sign: Sign) -> Self:
        """A new statement; `sign` signs with the ledger's key."""
        said: dict[str, Any] = {"ledger": ledger, "rows": head.number + 1, "head": head.digest}
        return cls(**said, time=time, signature=sign(_content(**said, time=time)))

    @property
    def content(self) -> bytes:
        """What is signed."""
        return _content(self.ledger, self.rows, self.head, self.time)

    def follows(self, earlier: HeadStatement) -> bool:
        """Whether both can be true of one ledger that only grows, or are of two."""
        # A chain only grows: fewer rows, or as many and another head, are not of the same one.
        same = (self.rows, self.head) == (earlier.rows, earlier.head)
        return same or self.rows > earlier.rows or self.ledger != earlier.ledger

    def to_dict(self) -> dict[str, Any]:
        """The statement as JSON knows it."""
        fields = vars(self).items()
        return {key: at.hex() if isinstance(at, bytes) else at for key, at in fields}

    @classmethod
    def of(cls, plain: Any) -> Self:
        """The statement that `plain` gave."""
        with _parsing("a statement of a ledger"):
            if (type(plain["rows"]), type(plain["time"])) != (int, str):
                raise TypeError
            keys = {key: bytes.fromhex(plain[key]) for key in ("ledger", "head", "signature")}
            return cls(**{**plain, **keys})


@dataclass(frozen=True, kw_only=True)
class Witnessed:
    """A statement signed by another party, its witness; IntegrityError if that is not so."""

    statement: HeadStatement
    witness: bytes
    signature: bytes

    def __post_init__(self) -> None:
        if not is_signed(self.witness, self.signature, _witnessed(self.statement)):
            raise IntegrityError(
                "expected a statement signed by its witness, found one that was altered or made "
                "up; ask the witness for it again"
            )

    def to_dict(self) -> dict[str, Any]:
        """What JSON knows of it."""
        return {
            "statement": self.statement.to_dict(),
            "witness": self.witness.hex(),
            "signature": self.signature.hex(),
        }

    @classmethod
    def of(cls, plain: Any) -> Self:
        """What `plain` gave."""
        with _parsing("a witnessed statement of a ledger"):
            keys = {key: bytes.fromhex(plain[key]) for key in ("witness", "signature")}
            return cls(**{**plain, **keys, "statement": HeadStatement.of(plain["statement"])})


def countersign(
    statement: HeadStatement, earlier: HeadStatement | None, *, witness: bytes, sign: Sign
) -> Witnessed:
    """Sign a statement of another party's ledger, or refuse it.

    Guarantees:
        1. Of two statements of one ledger with the same number of rows and different heads, at most
           one is signed; after one with more rows, none with fewer.

    Requires:
        The result, or the statement in it, is remembered before it is handed out; `earlier` is what
        was signed last for this ledger, if anything.

    Raises:
        IntegrityError: the two contradict each other, which proves that the ledger was set back.
    """
    if earlier is not None and not statement.follows(earlier):
        kind = "fewer rows" if statement.rows < earlier.rows else "another head"
        raise IntegrityError(
            f"expected ledger {statement.ledger.hex()[:16]} to go on from the {earlier.rows} rows "
            f"witnessed at {earlier.time}, it states {kind} ({statement.rows} rows at "
            f"{statement.time}): it was set back; keep both statements as the proof, and ask its "
            "owner to restore the newest copy"
        )
    signature = sign(_witnessed(statement))
    return Witnessed(statement=statement, witness=witness, signature=signature)


@contextmanager
def _parsing(wanted: str) -> Iterator[None]:
    """What goes wrong with somebody's JSON, in one sentence."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError):
        raise IntegrityError(f"expected {wanted}, found something else; ask for it again") from None


def _content(ledger: bytes, rows: int, head: bytes, time: str) -> bytes:
    return _STATEMENT + ledger + rows.to_bytes(8, "big") + head + time.encode()


def _witnessed(statement: HeadStatement) -> bytes:
    """What a witness signs: the statement, the ledger's signature included."""
    return _WITNESS + statement.signature + statement.content


# What a witness has signed: an append-only list of its own, in one file.
#
# A statement is on disk before the signature under it is handed out, so that no crash makes a
# witness forget what it vouched for. The list is a chain like a ledger (`hash_chain.py`).


class Witness:
    """What a witness has signed, in a chain of its own; made, with its key, if there is neither."""

    def __init__(self, path: Path) -> None:
        self._chain = Chain(path, "witness")
        self._last: Row | None = None
        self._known: dict[bytes, HeadStatement] = {}
        self._ledger_of: dict[str, bytes] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._chain.close()

    @property
    def public(self) -> bytes:
        """The public key, which others know this witness by."""
        return self._chain.public

    @property
    def known(self) -> Mapping[bytes, HeadStatement]:
        """The last statement of every ledger, by its public key."""
        self._catch_up()
        return dict(self._known)

    def last_of(self, party: str) -> HeadStatement | None:
        """The last statement of the ledger that a party stated last, whichever that was."""
        self._catch_up()
        return self._known.get(self._ledger_of.get(party, b""))

    def sign(self, statement: HeadStatement, party: str = "") -> Witnessed:
        """Sign a statement, which is on disk then; IntegrityError if it contradicts others.

        Args:
            statement: of a ledger.
            party: whose that is, if the witness is to remember it.
        """
        with self._chain.writing():
            last = self._catch_up()
            earlier = self._known.get(statement.ledger)
            signed = countersign(statement, earlier, witness=self.public, sign=self._chain.sign)
            if statement != earlier:
                said = statement.to_dict() | ({_PARTY: party} if party else {})
                last = self._chain.append(json.dumps(said), last)
        self._last = last
        self._note(statement, party)
        return signed

    def _catch_up(self) -> Row:
        """Learn what was signed since the last look."""
        rows = self._chain.after(self._last)
        for row in rows:
            self._last = row
            if row.number > 0:
                self._note(*self._chain.parsed(row, _stated, "a witnessed statement"))
        assert self._last is not None, "a chain has its genesis"  # noqa: S101
        return self._last

    def _note(self, statement: HeadStatement, party: str) -> None:
        self._known[statement.ledger] = statement
        if party:
            self._ledger_of[party] = statement.ledger


def _stated(text: str) -> tuple[HeadStatement, str]:
    plain = json.loads(text)
    party = str(plain.pop(_PARTY, ""))
    return HeadStatement.of(plain), party
