"""What a party is asked in a collection, checked against its own folder and plan.

A COLLECT says what an OPEN says (`session/offer.py`), and until when the sum is open. A
party looks the study up among those approved here, makes the plan itself, and compares; so nobody
who carries the request can have it take part in anything else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from hubbub.core.errors import ProtocolError, StudyError
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import Query
from hubbub.core.protocol.primitives.identity import Keys
from hubbub.core.protocol.primitives.wire import Tag, tag_of, unverified
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.session.offer import RefusedError, SessionOffer, round_parameters_of
from hubbub.core.study.study import Study
from hubbub.site.collected.collection_frames import CollectionPlace
from hubbub.site.network.party_folder import PartyFolder

_LATEST = 2**40  # seconds since 1970
Prepare = Callable[[Study, SessionOffer], tuple[Plan, PlannedQuery[Query]]]


@dataclass(frozen=True, kw_only=True)
class AskedCollection:
    """A request of a collection, whose frames are not verified yet but for the COLLECT."""

    study: Study
    place: CollectionPlace
    offer: SessionOffer
    until: int  # seconds since 1970; a word to people
    plan: Plan = field(repr=False)  # the party's own
    planned: PlannedQuery[Query] = field(repr=False)  # that is asked for
    numbers: RoundParameters
    sent: Sequence[bytes] = field(repr=False)  # the frames, in their order
    parts: dict[int, list[bytes]] = field(repr=False)  # by tag

    @classmethod
    def of(
        cls, party_folder: PartyFolder, session: bytes, parts: Sequence[bytes], prepare: Prepare
    ) -> AskedCollection:
        """What these parts ask, of a study that is approved here and can be collected."""
        by_tag: dict[int, list[bytes]] = {}
        for part in parts:
            by_tag.setdefault(tag_of(part), []).append(part)
        collects = by_tag.get(Tag.COLLECT, [])
        if len(collects) != 1:
            raise ProtocolError("expected one COLLECT in a request, got another", culprit="relay")
        study, roster = party_folder.approved_study(unverified(collects[0]).study)
        place = CollectionPlace(roster=roster, study=study.id, session=session)
        frame = place.parsed(collects[0], Tag.COLLECT, 0)
        offer = SessionOffer.read(frame.payload, roster.name(0))
        until = until_of(frame.payload, roster.name(0))
        plan, planned = prepare(study, offer)
        if plan.planned(offer.purpose) is None:
            raise RefusedError(
                "plan", "expected a purpose of the study, got another; nothing is sent"
            )
        if why := why_not(study, planned):
            raise RefusedError("failed", f"expected {why}")
        numbers = round_parameters_of(planned)
        offer.check(numbers)
        return cls(
            study=study,
            place=place,
            offer=offer,
            until=until,
            plan=plan,
            planned=planned,
            numbers=numbers,
            sent=parts,
            parts=by_tag,
        )

    @property
    def collect(self) -> bytes:
        """The COLLECT."""
        return self.parts[Tag.COLLECT][0]

    def all(self, tag: Tag) -> list[bytes]:
        """The frames of one kind."""
        return self.parts.get(tag, [])

    def one(self, tag: Tag) -> bytes:
        """The only frame of a kind; ProtocolError if there is another number of them."""
        frames = self.all(tag)
        if len(frames) != 1:
            raise ProtocolError(f"expected one {tag.name}, got {len(frames)}", culprit="relay")
        return frames[0]


def collect_frame(place: CollectionPlace, keys: Keys, offer: SessionOffer, until: float) -> bytes:
    """The COLLECT by which the aggregator opens a collection."""
    content = json.loads(offer.payload()) | {"until": int(until)}
    payload = json.dumps(content, sort_keys=True).encode()
    return place.frame(Tag.COLLECT, 0, payload).sealed(keys)


def until_of(payload: bytes | memoryview, sender: str) -> int:
    """Until when a collection is open, as a COLLECT says; seconds since 1970."""
    try:
        until = json.loads(bytes(payload))["until"]
        if type(until) is int and 0 <= until < _LATEST:
            return until
        found = "another"
    except (ValueError, KeyError, TypeError, RecursionError):
        found = "none"
    raise ProtocolError(f"expected until when a collection is open, got {found}", culprit=sender)


# Which studies can be collected: those of single sums, by compute nodes (docs/privacy.md P30).
#
# General over queries: it looks at a query's mechanism and at who takes part, never at its kind.


def why_not(study: Study, planned: PlannedQuery[Query]) -> str:
    """What keeps a query's sum from being collected, and what to do; empty if nothing."""
    return next(_hindrances(study, planned), "")


def _hindrances(study: Study, planned: PlannedQuery[Query]) -> Iterator[str]:
    """All that does, in the order in which it is best put right."""
    parties, mechanism = study.parties, planned.mechanism
    if planned.query.is_asked_last:
        yield (
            f"a sum of a query at the first weights, got {planned.purpose}, which needs "
            "the released model; serve it without --until"
        )
    if mechanism.steps != 1:
        yield (
            f"one sum of {planned.purpose}, got {mechanism.steps}, each of which needs "
            "the one before; serve it without --until"
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
