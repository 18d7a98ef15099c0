"""What happens to records, as inert values that the accountant's questions are asked of.

A `Step` draws its own batches. `JointBatches` are drawn by all silos together, and the adversary
may own some of the records. Each has one row of docs/privacy.md that says which laws dominate it.
This file knows no epsilon and no delta.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from hubbub.core.errors import StudyError
from hubbub.core.privacy import accountant, arguments
from hubbub.core.privacy.dominating_pairs import (
    LEAST_SAMPLED_NOISE,
    Release,
    Step,
    release,
    release_with_malicious,
)

Event = Any  # of a kind that `release_of` knows
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


def releases_of(events: object, relation: str) -> list[Release]:
    """The dominating pairs of each event.

    Raises:
        StudyError: one is no event, has no account of this relation, or so little noise that it
            hides nothing.
    """
    if not isinstance(events, list | tuple):
        raise _no_event()
    arguments.choice("relation", relation, arguments.RELATIONS)
    return [release_of(event, relation) for event in events]


@singledispatch
def release_of(event: Event, relation: str) -> Release:  # noqa: ARG001 (as those registered take)
    """The dominating pairs of an event; whoever defines a kind registers its own."""
    raise _no_event()


@release_of.register
def _(event: Step, relation: str) -> Release:
    sampled = event.sampling != "full-batch" and event.sample_rate < 1
    if sampled and event.noise_multiplier < LEAST_SAMPLED_NOISE:
        raise StudyError(
            f"expected noise_multiplier of at least {LEAST_SAMPLED_NOISE:g} where batches are "
            f"sampled, got {event.noise_multiplier:g}; add noise: so little hides nothing"
        )
    return release(event, relation)


@release_of.register
def _(event: JointBatches, relation: str) -> Release:
    expect(relation, "substitute", "joint batches", "their size shows how many records are")
    return release_with_malicious(
        records=event.records,
        batch=event.batch,
        malicious=event.malicious,
        noise_multiplier=event.noise_multiplier,
        count=event.count,
    )


def _no_event() -> StudyError:
    return StudyError(
        "expected events to be a list of hubbub.Step, JointBatches or ProjectedStep, got "
        "something else; wrap each kind of steps in one"
    )


def expect(relation: str, wanted: str, what: str, why: str) -> None:
    """StudyError unless an event is asked about under the relation that it has an account of."""
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
