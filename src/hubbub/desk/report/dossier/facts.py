"""What the dossier may say of a run, and how each of it stands.

A sentence asks for members of the evidence by their paths, as "plan.silos". Each answer is noted
together with how the findings of `hubbub verify` about it stand; where none does, or one does not
hold, the sentence cannot be made. This file knows no sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

REDERIVED, SIGNED = "re-derived", "signed"
_GOOD = (REDERIVED, SIGNED)  # from the best to the weakest
_WHY = {
    "not verifiable": "nothing in the evidence can show it",
    "not checked": "the check would take long; --thorough makes it all the same",
}


class NotShownError(Exception):
    """Why a sentence cannot be said, as a clause."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Members of the evidence and the findings about them, as plain values.

    Args:
        values: the evidence; `asked`, the study with all its keys; `replay`, what a run's folder
            shows besides.
        findings: claim, verdict, and the members that it is about.
    """

    values: Mapping[str, Any]
    findings: Sequence[tuple[str, str, tuple[str, ...]]]

    def standing(self, path: str) -> str:
        """How a member stands, by the weakest of the findings about it.

        Raises:
            NotShownError: no finding is about it, or one of them does not hold.
        """
        verdicts = [
            verdict
            for _, verdict, about in self.findings
            if any(_is_within(path, one) or _is_within(one, path) for one in about)
        ]
        if not verdicts:
            raise NotShownError("nothing that was checked is about it")
        bad = [verdict for verdict in verdicts if verdict not in _GOOD]
        if bad:
            wrong = any(verdict not in _WHY for verdict in bad)
            raise NotShownError("what the evidence says of it is wrong" if wrong else _WHY[bad[0]])
        return max(verdicts, key=_GOOD.index)

    def value(self, path: str) -> Any:
        """What stands at a path.

        Raises:
            NotShownError: there is nothing.
        """
        found: Any = self.values
        for key in path.split("."):
            if not isinstance(found, Mapping) or key not in found:
                raise NotShownError("the evidence does not say it")
            found = found[key]
        return found


class Reader:
    """Reads members for one sentence, and remembers which, and how they stand.

    Args:
        facts: of the run.
    """

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._standing: dict[str, str] = {}

    def __call__(self, path: str) -> Any:
        """What a member holds; NotShownError if it was not found to hold."""
        standing = self._facts.standing(path)
        value = self._facts.value(path)
        self._standing[path] = standing
        return value

    @property
    def fields(self) -> tuple[str, ...]:
        """What was read, in order."""
        return tuple(self._standing)

    @property
    def standing(self) -> str:
        """The weakest of what was read; NotShownError if nothing was."""
        if not self._standing:
            raise NotShownError("it rests on nothing that was checked")
        return max(self._standing.values(), key=_GOOD.index)


def _is_within(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root}.")
