"""What the dossier may say of a run, and how each of it stands.

A sentence reads members of the evidence by name, as `run.plan.silos`. Each is noted together with
how the findings of `hubbub verify` about it stand; where none does, or one does not hold, the
sentence cannot be made. This file knows no sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypedDict, TypeVar

REDERIVED, SIGNED = "re-derived", "signed"
_GOOD = (REDERIVED, SIGNED)  # from the best to the weakest
_WHY = {
    "not verifiable": "no evidence can show it",
    "not checked": "the check would take long; --thorough does it all the same",
}
T = TypeVar("T")


class NotShownError(Exception):
    """Why a sentence cannot be said, as a clause."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Members of the evidence and the findings about them, as plain values."""

    # the evidence; `asked`, the study with all its keys; `replay`, what a run's folder shows
    # besides
    values: Mapping[str, Any]
    # claim, verdict, and the members that it is about
    findings: Sequence[tuple[str, str, tuple[str, ...]]]

    def standing(self, path: str) -> str:
        """How a member stands, by the weakest of the findings about it.

        Raises:
            NotShownError: no finding is about it, or one of them does not hold.
        """

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
        """What stands at a path.

        Raises:
            NotShownError: there is nothing.
        """
        value: Any = self.values
        for key in path.split("."):
            if not isinstance(value, Mapping) or key not in value:
                raise NotShownError("the evidence does not say it")
            value = value[key]
        return value


class Exposure(TypedDict):
    """What an adversary can learn: a row of the plan's, or of what was charged."""

    adversary: str
    colluding_silos: int
    epsilon: float | None


class Member(Generic[T]):
    """A member of a group: reading it notes it; NotShownError if it was not found to hold."""

    def __set_name__(self, owner: type[Group], name: str) -> None:
        self._name = name

    def __get__(self, group: Group, owner: type[Group]) -> T:
        value: T = group.run.read(f"{group.path}{self._name}")
        return value


class Group:
    """Members with a common path."""

    def __init__(self, run: Run, path: str) -> None:
        self.run, self.path = run, path


class PlanGroup(Group):
    """The plan."""

    stated_adversary = Member[str]()
    epsilon = Member[list[Exposure]]()
    delta = Member[float]()
    relation = Member[str]()
    unit = Member[str]()
    patient = Member[Mapping[str, Any] | None]()
    attack_power_at_1_percent = Member[float]()
    silos = Member[int]()
    compute_nodes = Member[int]()
    steps = Member[int]()
    sample_rate = Member[float]()
    dimension = Member[int]()
    noise_multiplier = Member[float]()
    total_noise_multiplier = Member[float]()
    grid_step = Member[float]()
    word_bits = Member[int]()
    certificate = Member[Mapping[str, float]]()
    auxiliary_queries = Member[Sequence[Mapping[str, Any]]]()

    def row_of(self, adversary: str) -> Exposure:
        """The row of an adversary; NotShownError if there is none."""
        for row in self.epsilon:
            if row["adversary"] == adversary:
                return row
        raise NotShownError("the plan has no row for it")


class SpentGroup(Group):
    """What was charged."""

    attempts = Member[int]()
    stated_adversary = Member[str]()
    after_attempts = Member[list[Exposure]]()


class DataGroup(Group):
    """What the study says of its data."""

    records = Member[int | None]()
    capacity = Member[Sequence[int]]()
    columns = Member[Sequence[Mapping[str, Any]]]()
    target = Member[str]()
    source = Member[str]()
    files = Member[str]()


class ModelGroup(Group):
    """The model that is trained."""

    kind = Member[str]()


class TrainingGroup(Group):
    """How it is trained."""

    clip_norm = Member[float]()
    sampling = Member[str]()


class PartiesGroup(Group):
    """What the study says of its parties."""

    trust = Member[str]()


class AskedGroup(Group):
    """The study, with all its keys."""

    statistics = Member[Mapping[str, Any] | None]()
    privacy = Member[Mapping[str, Any]]()

    @property
    def data(self) -> DataGroup:
        """Its data."""
        return DataGroup(self.run, "asked.data.")

    @property
    def parties(self) -> PartiesGroup:
        """Its parties."""
        return PartiesGroup(self.run, "asked.parties.")

    @property
    def model(self) -> ModelGroup | None:
        """Its model; that there is none is noted, too."""
        missing = self.run.read("asked.model") is None
        return None if missing else ModelGroup(self.run, "asked.model.")

    @property
    def training(self) -> TrainingGroup | None:
        """Its training, likewise."""
        missing = self.run.read("asked.training") is None
        return None if missing else TrainingGroup(self.run, "asked.training.")


class StudyGroup(Group):
    """Which study it is."""

    name = Member[str]()
    id = Member[str]()


class ReplayGroup(Group):
    """What the folder of a run shows."""

    model = Member[str]()
    frames = Member[int]()
    answers = Member[Mapping[str, str]]()


class Run(Group):
    """Members of a run's evidence for one sentence: remembers which were read, how they stand.

    Args:
        facts: of the run.
    """

    silos = Member[Sequence[Mapping[str, Any]]]()
    roster = Member[Sequence[Mapping[str, Any]]]()
    versions = Member[Mapping[str, str]]()
    trust = Member[Sequence[str]]()
    audit = Member[Mapping[str, Any]]()
    model = Member[str | None]()

    def __init__(self, facts: Facts) -> None:
        super().__init__(self, "")
        self._facts = facts
        self._standing: dict[str, str] = {}
        self.plan = PlanGroup(self, "plan.")
        self.epsilon = SpentGroup(self, "epsilon.")
        self.asked = AskedGroup(self, "asked.")
        self.study = StudyGroup(self, "study.")
        self.replay = ReplayGroup(self, "replay.")

    def read(self, path: str) -> Any:
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
            raise NotShownError("it rests on no checked evidence")
        return max(self._standing.values(), key=_GOOD.index)
