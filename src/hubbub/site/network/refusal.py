"""A refusal, made of an error: a few known words that leave a party, and a sentence that stays.

What leaves is signed, and bound to the one request that is refused (docs/protocol.md, section 8).
Nothing in it follows from a record; the sentence is for the party's own event log.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from hubbub.core.disk import why_of
from hubbub.core.errors import (
    BudgetError,
    HubbubError,
    IntegrityError,
    ProtocolError,
    SpentError,
    loggable,
)
from hubbub.core.protocol.primitives.identity import Keys
from hubbub.core.protocol.primitives.wire import Frame, Tag
from hubbub.core.session.session_offer import RefusedError
from hubbub.site.network.envelope import NO_SESSION, VersionError

_WORDS: tuple[tuple[type[HubbubError], str], ...] = (
    (VersionError, "version"),
    (ProtocolError, "protocol"),
    (BudgetError, "budget"),
    (IntegrityError, "ledger"),
    (HubbubError, "failed"),
)


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why a party says no.

    Args:
        why: one of `session_offer.REASONS`.
        said: the sentence for its own people.
        culprit: who is to blame, where the reason is "protocol".
        own: whether a reason of its own (`session_offer.OWN`) is indeed that: not where it could
            do what it is asked, and must not.
    """

    why: str
    said: str
    culprit: str = ""
    own: bool = True

    @classmethod
    def of(cls, error: Exception) -> Refusal:
        """What an error means to others."""
        if isinstance(error, RefusedError):
            return cls(why=error.why, said=str(error), culprit=error.culprit)
        if isinstance(error, HubbubError):
            why = next(word for kind, word in _WORDS if isinstance(error, kind))
            return cls(
                why=why,
                said=loggable(error),
                culprit=error.culprit
                if isinstance(error, ProtocolError) and why == "protocol"
                else "",
                own=not isinstance(error, SpentError),
            )
        if isinstance(error, OSError):
            return cls(why="failed", said=f"expected to read and write, got: {why_of(error)}")
        return cls(why="failed", said=type(error).__name__)

    def sealed(self, request: bytes, keys: Keys, sender: int) -> bytes:
        """The frame that refuses a request."""
        to = hashlib.sha256(request).hexdigest()
        payload = json.dumps({"why": self.why, "culprit": self.culprit, "to": to}).encode()
        return Frame(
            tag=Tag.REFUSAL,
            study=bytes(32),
            session=NO_SESSION,
            sender=sender,
            receiver=0,
            payload=payload,
        ).sealed(keys)
