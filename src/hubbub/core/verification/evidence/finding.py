"""What a check found: a claim, and how it stands.

A claim is re-derived (computed again and found equal), signed (only its signer can vouch for it),
not verifiable (nothing here can show it), not checked (it could be, but would take long), or wrong.
Only a claim that nobody has looked at leaves a check incomplete. A finding names the members of the
evidence that it is about, so that whoever quotes one can say how it stands. Other machines may
calibrate to other last digits, so numbers are found equal if they agree to six. This file knows no
claims.
"""

from __future__ import annotations

from math import isclose
from typing import Any, NamedTuple

REDERIVED, SIGNED, NOT_VERIFIABLE = "re-derived", "signed", "not verifiable"
NOT_CHECKED = "not checked"
RESTORE = "restore it from a backup, and rely on no result that rests on it until then"
CLOSE = 1e-6
_WRONG = "wrong: "


class Finding(NamedTuple):
    """A claim as a sentence, and the verdict; "wrong: why" if it does not hold.

    `about` are members of the evidence, as "epsilon.claimed", that stand as the verdict says.
    """

    claim: str
    verdict: str
    about: tuple[str, ...] = ()

    def covering(self, *about: str) -> Finding:
        """The same finding, about these members of the evidence."""
        return self._replace(about=about)

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
            odd = min(map(str, set(found) ^ set(made)))
            return f"{where} has or lacks {odd!r}, unlike what follows from the study"
        pairs = ((found[key], made[key], key) for key in made)
    elif isinstance(found, list) and isinstance(made, list | tuple) and len(found) == len(made):
        pairs = (
            (a, b, f"{where} {k}") for k, (a, b) in enumerate(zip(found, made, strict=True), 1)
        )
    else:
        same = type(found) is type(made) and found == made
        if isinstance(made, float) and type(found) in (int, float):
            same = isclose(found, made, rel_tol=CLOSE)
        return "" if same else f"{where} is {found!r}, {made!r} follows from the study"
    return next((said for pair in pairs if (said := difference(*pair))), "")
