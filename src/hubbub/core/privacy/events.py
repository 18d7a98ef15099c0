"""What happens to records, as inert values that the accountant's questions are asked of.

A `Step` draws its own batches. `JointBatches` are drawn by all silos together, and the adversary
may own some of the records; a `ProjectedStep` sends fewer numbers than it sums. Each has one row of
docs/privacy.md that says which laws dominate it. This file knows no epsilon and no delta.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hubbub.core.errors import StudyError
from hubbub.core.privacy import accountant, arguments, dominating_pairs, projected_step
from hubbub.core.privacy.dominating_pairs import LEAST_SAMPLED_NOISE, Release, Step

_MOST_RECORDS = 2**40


@dataclass(frozen=True, kw_only=True)
class JointBatches:
    """Batches of a fixed size without replacement, some of whose records the adversary owns.

    Who owns records knows whether they are in the batch, and so how many honest ones are: the step
    is the mixture over that number. Its relation is "substitute".

    Args:
        records: of all silos together, 1 to 2^40.
        batch: records in a batch, 1 to `records`.
        malicious: records that the adversary owns, 0 to `records` - 1.
        noise_multiplier: sigma / C, with C the norm to which one record is clipped; no unit.
        count: number of such steps, 1 to 10,000,000.

    Raises:
        StudyError: a value is out of its range.

    Source: docs/privacy.md P10.

    >>> JointBatches(records=100, batch=10, noise_multiplier=4.0).malicious
    0
    """

    records: int
    batch: int
    malicious: int = 0
    noise_multiplier: float
    count: int = 1

    def __post_init__(self) -> None:
        records = arguments.whole("records", self.records, least=1, most=_MOST_RECORDS)
        numbers = {
            "records": records,
            "batch": arguments.whole("batch", self.batch, least=1, most=records),
            "malicious": arguments.whole("malicious", self.malicious, least=0, most=records - 1),
            "noise_multiplier": arguments.noise(self.noise_multiplier),
            "count": arguments.whole("count", self.count, least=1, most=arguments.MOST_STEPS),
        }
        for name, number in numbers.items():
            object.__setattr__(self, name, number)


@dataclass(frozen=True, kw_only=True)
class ProjectedStep:
    """Poisson batches whose sum is sent through a fresh public random projection.

    The mixture over the projection's norm: no delta is spent on long ones. It is exact for
    "gaussian"; "sign" is charged as a mixture that is longer than any that can occur. Its relation
    is "add-remove".

    Args:
        dimension: k, numbers sent per step, from 2 to 2^40.
        noise_multiplier: sigma / C, with C the clipping norm *before* projecting; no unit.
        sample_rate: probability that a record is in a batch, from 1e-9 to 1.
        count: number of such steps, 1 to 10,000,000.
        kind: "gaussian" for entries N(0, 1/k), "sign" for entries +-1/sqrt(k).

    Raises:
        StudyError: a value is out of its range.

    Source: docs/privacy.md P8.

    >>> ProjectedStep(dimension=100, noise_multiplier=4.0, count=10).kind
    'gaussian'
    """

    dimension: int
    noise_multiplier: float
    sample_rate: float = 1.0
    count: int = 1
    kind: str = "gaussian"

    def __post_init__(self) -> None:
        arguments.choice("kind", self.kind, projected_step.PROJECTIONS)
        most = arguments.MOST_DIMENSION
        dimension = arguments.whole("dimension", self.dimension, least=2, most=most)
        step = self.step
        numbers = {
            "dimension": dimension,
            "noise_multiplier": step.noise_multiplier,
            "sample_rate": step.sample_rate,
            "count": step.count,
        }
        for name, number in numbers.items():
            object.__setattr__(self, name, number)

    @property
    def step(self) -> Step:
        """The same without a projection."""
        return Step(
            noise_multiplier=self.noise_multiplier,
            sample_rate=self.sample_rate,
            count=self.count,
        )


Event = Step | JointBatches | ProjectedStep


def releases_of(events: object, relation: str) -> list[Release]:
    """The dominating pairs of each event.

    Raises:
        StudyError: one is no event, has no account of this relation, or so little noise that it
            hides nothing.
    """
    if not isinstance(events, list | tuple) or not all(
        isinstance(event, Event) for event in events
    ):
        raise StudyError(
            "expected events to be a list of hubbub.Step, JointBatches or ProjectedStep, got "
            "something else; wrap each kind of steps in one"
        )
    arguments.choice("relation", relation, arguments.RELATIONS)
    return [release_of(event, relation) for event in events]


def release_of(event: Event, relation: str) -> Release:
    """The dominating pairs of an event."""
    if isinstance(event, JointBatches):
        _expect(relation, "substitute", "joint batches", "their size shows how many records are")
        return dominating_pairs.release_with_malicious(
            records=event.records,
            batch=event.batch,
            malicious=event.malicious,
            noise_multiplier=event.noise_multiplier,
            count=event.count,
        )
    if isinstance(event, ProjectedStep):
        _expect(relation, "add-remove", "a projected step", "another has no exact account here")
        if event.kind == "sign":  # P8 (7)
            return projected_step.release_by_signs(event.step, relation, dimension=event.dimension)
        return projected_step.release_projected(  # P8 (1)
            dimension=event.dimension,
            sample_rate=event.sample_rate,
            noise_multiplier=event.noise_multiplier,
            count=event.count,
        )
    sampled = event.sampling != "full-batch" and event.sample_rate < 1
    if sampled and event.noise_multiplier < LEAST_SAMPLED_NOISE:
        raise StudyError(
            f"expected noise_multiplier of at least {LEAST_SAMPLED_NOISE:g} where batches are "
            f"sampled, got {event.noise_multiplier:g}; add noise: so little hides nothing"
        )
    return dominating_pairs.release(event, relation)


def _expect(relation: str, wanted: str, what: str, why: str) -> None:
    if relation != wanted:
        raise StudyError(
            f'expected relation = "{wanted}" for {what}, got "{relation}": {why}; choose that'
        )


def asked(
    events: Sequence[Event] | None,
    noise_multiplier: float | None,
    steps: int | None,
    relation: str,
    **others: object,
) -> accountant.Composition:
    """What a question is about: the events, or equal steps that are stated one argument each.

    Raises:
        StudyError: both are stated, or neither, or a value is out of its range.
    """
    usual = {"sample_rate": 1.0, "sampling": "poisson", "records_per_unit": 1}
    stated = [name for name, value in others.items() if value != usual[name]]
    if events is None:
        if noise_multiplier is None or steps is None:
            raise StudyError(
                "expected noise_multiplier and steps, or events, got none of them or one; state "
                "what happens"
            )
        events = equal_steps(noise_multiplier, steps, **others)
    elif noise_multiplier is not None or steps is not None or stated:
        raise StudyError(
            "expected events alone, got them beside noise_multiplier, steps or what goes with "
            "those; state each kind of steps as one event"
        )
    return accountant.Composition(releases_of(events, relation))


def equal_steps(noise_multiplier: float, steps: int, **others: Any) -> list[Step]:
    """So many steps alike as events; StudyError if a value is out of its range."""
    count = arguments.whole("steps", steps, least=1, most=arguments.MOST_STEPS)
    return [Step(noise_multiplier=noise_multiplier, count=count, **others)]
