"""What a witness has signed: an append-only list of its own, in one file.

A statement is on disk before the signature under it is handed out, so that no crash makes a witness
forget what it vouched for. The list is a chain like a ledger (`hash_chain.py`); what is signed, and
what is refused, is the business of `head_statement.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from hubbub.core.ledger.hash_chain import Chain
from hubbub.core.ledger.head_statement import HeadStatement, Witnessed, countersign
from hubbub.core.ledger.row import Row


class Witness:
    """What a witness has signed, in a chain of its own; made, with its key, if there is neither."""

    def __init__(self, path: Path) -> None:
        self._chain = Chain(path, "witness")
        self._last: Row | None = None
        self._known: dict[bytes, HeadStatement] = {}

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

    def sign(self, statement: HeadStatement) -> Witnessed:
        """Sign a statement, which is on disk then; IntegrityError if it contradicts others."""
        with self._chain.writing():
            last = self._catch_up()
            earlier = self._known.get(statement.ledger)
            signed = countersign(statement, earlier, witness=self.public, sign=self._chain.sign)
            if statement != earlier:
                last = self._chain.append(json.dumps(statement.to_dict()), last)
        self._last, self._known[statement.ledger] = last, statement
        return signed

    def _catch_up(self) -> Row:
        """Learn what was signed since the last look."""
        rows = self._chain.after(self._last)
        for row in rows:
            self._last = row
            if row.number > 0:
                statement = self._chain.parsed(row, _content, "a witnessed statement")
                self._known[statement.ledger] = statement
        assert self._last is not None, "a chain has its genesis"  # noqa: S101
        return self._last


def _content(text: str) -> HeadStatement:
    return HeadStatement.of(json.loads(text))
