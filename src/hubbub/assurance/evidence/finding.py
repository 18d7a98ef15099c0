"""What a check found: a claim, and how it stands.

A claim is re-derived (computed again and found equal), signed (only its signer can vouch for it),
not verifiable (nothing here can show it), or wrong. This file knows no claims.
"""

from __future__ import annotations

from typing import NamedTuple

REDERIVED, SIGNED, NOT_VERIFIABLE = "re-derived", "signed", "not verifiable"
_WRONG = "wrong: "


class Finding(NamedTuple):
    """A claim as a sentence, and the verdict; "wrong: why" if it does not hold."""

    claim: str
    verdict: str

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.verdict.startswith(_WRONG)


def rederived(claim: str) -> Finding:
    """A claim that was computed again."""
    return Finding(claim, REDERIVED)


def signed(claim: str) -> Finding:
    """A claim that somebody vouches for with a signature that was verified."""
    return Finding(claim, SIGNED)


def not_verifiable(claim: str) -> Finding:
    """A claim that cannot be checked here."""
    return Finding(claim, NOT_VERIFIABLE)


def wrong(claim: str, why: object) -> Finding:
    """A claim that does not hold."""
    return Finding(claim, f"{_WRONG}{why}")


def judged(claim: str, why: object) -> Finding:
    """Re-derived, unless there is a reason why not."""
    return wrong(claim, why) if why else rederived(claim)
