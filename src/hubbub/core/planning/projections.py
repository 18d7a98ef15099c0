"""Projections of sums, as plans, ledgers and sessions ask of them, whatever makes them (P8).

A silo sends k numbers in the place of all. `projection_of` and `transform_of` name the one way that
there is, the paper's Algorithm 3 (`random_projection.py`, `protocol/projection/`); nothing else of
the core knows which it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from hubbub.core.planning import random_projection
from hubbub.core.planning.plan_rows import PlanRow
from hubbub.core.privacy.dominating_pairs import Release, Step
from hubbub.core.protocol.projection.projected_sum import ProjectedSums
from hubbub.core.protocol.round.draw import Transform
from hubbub.core.protocol.round.round_parameters import RoundParameters


class _Stated(Protocol):
    """What a study states of a projection."""

    @property
    def kind(self) -> str:
        """Of its matrices."""

    @property
    def dimension(self) -> int:
        """k, numbers that a silo sends per step."""

    @property
    def clips_after(self) -> bool:
        """Whether records are clipped after it, so that it changes no account (P8 (6))."""


class Charged(_Stated, Protocol):
    """How the projection of a mechanism is charged."""

    @property
    def factor(self) -> float:
        """C~ / C, the length that a record's projection is charged with; 1 where no bound is."""

    @property
    def slack(self) -> float:
        """Delta that every step spends on longer ones."""

    def release(
        self, noise: float, step: Step, relation: str, plain: Callable[[float], Release]
    ) -> Release:
        """What all steps release through it.

        Args:
            noise: sigma / C that the adversary does not know.
            step: all steps, as if nothing were projected.
            plain: what they release at some noise, as if nothing were projected.
        """

    def lengthened(self, noise: float, plain: Callable[[float], Release]) -> Release:
        """What steps release if no projection is longer than C~, with the slack for those (P8)."""

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""

    def rows(self) -> list[PlanRow]:
        """What a plan says of it, for people."""


class Projection(_Stated, Protocol):
    """What a mechanism says of its projection."""

    @property
    def largest_coordinate(self) -> float:
        """Of what one record sends, in units of C (P7)."""

    def check(self, parameters: int | None, clip: float, rows: int) -> None:
        """Refuse one that has no account, sends more than the model has, or rounds too much.

        Args:
            parameters: how many the model has; None if that is not public yet.
            clip: C.
            rows: of the largest likely batch.

        StudyError: it is one of these.
        """

    def entries_failure(self, parameters: int, steps: int) -> float:
        """Probability that its matrices are further from exact ones than P8 (8) allows."""

    def charged(self, sampling: str, relation: str, steps: int, delta: float) -> Charged:
        """How it is charged.

        Args:
            delta: of the study, of which a slack is a part.
        """

    def charged_again(self, sampling: str, relation: str, factor: float, slack: float) -> Charged:
        """The same of a ledger's row, whose factor and slack were found when it was planned."""


def projection_of(kind: str, dimension: int) -> Projection | None:
    """Of a kind to so many numbers; None where all are sent, or there is no kind."""
    if not (kind and dimension):
        return None
    return random_projection.RandomProjection(kind=kind, dimension=dimension)


def transform_of(round_parameters: RoundParameters) -> Transform | None:
    """The projection that round parameters state; None where they state none."""
    return ProjectedSums(round_parameters) if round_parameters.projection else None
