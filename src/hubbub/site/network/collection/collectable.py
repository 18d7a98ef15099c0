"""Which studies can be collected: those of single sums, by compute nodes (docs/privacy.md P30).

General over queries: it looks at a query's mechanism and at who takes part, never at its kind.
"""

from __future__ import annotations

from collections.abc import Iterator

from hubbub.core.errors import StudyError
from hubbub.core.planning.plan_values import Plan
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import Query
from hubbub.core.session.session_offer import RefusedError
from hubbub.core.study.study import Study


def why_not(study: Study, planned: PlannedQuery[Query]) -> str:
    """What keeps a query's sum from being collected, and what to do; empty if nothing."""
    return next(_hindrances(study, planned), "")


def _hindrances(study: Study, planned: PlannedQuery[Query]) -> Iterator[str]:
    """All that does, in the order in which it is best put right."""
    parties, mechanism = study.parties, planned.mechanism
    if planned.query.is_asked_last:
        yield (
            f"a sum that is asked at first weights, got {planned.purpose}, which is asked at the "
            "released model; serve it without --until"
        )
    if mechanism.steps != 1:
        yield (
            f"one sum of {planned.purpose}, got {mechanism.steps}, of which each waits for the one "
            "before; serve it without --until"
        )
    if not parties.compute_nodes:
        yield (
            "parties.compute_nodes, got none: masks in pairs need every silo at once; have "
            f"{parties.colluders + 2} silos run nodes, and name them in parties.node_hosts"
        )
    if parties.nodes_per_silo not in (0, parties.compute_nodes):
        yield "every silo to use all nodes, got parties.nodes_per_silo; leave it out"
    if parties.shares == "full":
        yield 'parties.shares = "compressed", got "full"; leave it out'
    if study.attestation is not None or parties.trust != "none":
        yield "a study without attestation, got one with; serve it without --until"
    if mechanism.needs_joint_seed or mechanism.noise.epoch > 1:
        yield (
            "independent noise, whole sums and each silo's own batches, got correlated noise, a "
            "projection or joint batches; serve it without --until"
        )


def check_collectable(plan: Plan) -> list[PlannedQuery[Query]]:
    """The queries of a study that are collected, in their order.

    These are all that it asks, or all that come before a training, which then needs sessions.

    Raises:
        StudyError: the study cannot be collected; it says why, and what to do.
    """
    collectable: list[PlannedQuery[Query]] = []
    for planned in plan.stepped:
        if planned.query.is_asked_last and plan.main not in collectable:
            continue  # it is asked in sessions, as the training before it is
        why = why_not(plan.study, planned)
        if why and not (collectable and planned is plan.main):
            raise StudyError(f"expected with --until {why}")
        if not why:
            collectable.append(planned)
    return collectable


def refuse_uncollectable(study: Study, planned: PlannedQuery[Query]) -> None:
    """A party's own look at what it is asked to take part in.

    Raises:
        RefusedError: its study cannot be collected.
    """
    if why := why_not(study, planned):
        raise RefusedError("failed", f"expected {why}")
