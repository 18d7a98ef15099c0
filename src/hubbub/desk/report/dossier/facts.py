"""What the dossier may say of a run, and how each of it stands.

A sentence reads members of the evidence by name, as `run.plan.silos`. Each is noted together with
how the findings of `hubbub verify` about it stand; where none does, or one does not hold, the
sentence cannot be made. This file knows no sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_GOOD = ("re-derived", "signed")  # from the best to the weakest
_WHY = {
    "not verifiable": "this run's evidence cannot show it",
    "not checked": "the check would take long; --thorough does it all the same",
}
# Members that have members of their own; of those in `_CHOSEN` it is noted, too, that they are
# there, or not.
_GROUPS = ("plan", "epsilon", "asked", "asked.data", "asked.parties", "study", "replay")
_CHOSEN = ("asked.model", "asked.training")


class NotShownError(Exception):
    """Why a sentence cannot be said, as a clause."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Members of the evidence and the findings about them, as plain values."""

    # The evidence; `asked`, the study with all its keys; `replay`, what a run's folder shows
    # besides.
    values: Mapping[str, Any]
    findings: Sequence[tuple[str, str, tuple[str, ...]]]  # claim, verdict, members it is about

    def standing(self, path: str) -> str:
        """How a member stands, by the weakest of the findings about it."""

        def is_within(inner: str, outer: str) -> bool:
            return inner == outer or inner.startswith(f"{outer}.")

        verdicts = [
            verdict
            for _, verdict, about in self.findings
            if any(is_within(path, member) or is_within(member, path) for member in about)
        ]
        if not verdicts:
            raise NotShownError("no checked evidence is about it")
        bad = [verdict for verdict in verdicts if verdict not in _GOOD]
        if bad:
            is_wrong = any(verdict not in _WHY for verdict in bad)
            raise NotShownError("the evidence about it is wrong" if is_wrong else _WHY[bad[0]])
        return max(verdicts, key=_GOOD.index)

    def value(self, path: str) -> Any:
        """What stands at a path; NotShownError if there is nothing."""
        value: Any = self.values
        for key in path.split("."):
            if not isinstance(value, Mapping) or key not in value:
                raise NotShownError("the evidence does not say it")
            value = value[key]
        return value


class Run:
    """Members of a run's evidence for one sentence, which are read as attributes.

    It remembers which were read, and how they stand.
    """

    def __init__(self, facts: Facts, path: str = "", noted: dict[str, str] | None = None) -> None:
        self._facts, self._path = facts, path
        self._noted: dict[str, str] = {} if noted is None else noted

    def __getattr__(self, name: str) -> Any:
        """A member, or a group of them; NotShownError if it was not found to hold."""
        path = f"{self._path}.{name}".lstrip(".")
        if path in _GROUPS:
            return Run(self._facts, path, self._noted)
        standing, value = self._facts.standing(path), self._facts.value(path)
        self._noted[path] = standing
        is_group = path in _CHOSEN and value is not None
        return Run(self._facts, path, self._noted) if is_group else value

    @property
    def noted(self) -> Mapping[str, str]:
        """What was read, in order, and how each stands."""
        return self._noted

    @property
    def standing(self) -> str:
        """The weakest of what was read; NotShownError if nothing was."""
        if not self._noted:
            raise NotShownError("it rests on no checked evidence")
        return max(self._noted.values(), key=_GOOD.index)
