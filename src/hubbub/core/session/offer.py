"""What the aggregator says when it opens a session, and how a party holds it against its own plan.

A party's numbers follow from the study that it approved and from its own installation. Those that
are sent are compared with them and then forgotten; only shifts and scales of features, which are
the public result of an earlier sum, are taken over.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from math import isclose
from typing import Any

from hubbub import VERSION
from hubbub.core.errors import RULES, HubbubError, ProtocolError, StudyError, printable
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.planned_query import PlannedQuery, largest_batch
from hubbub.core.planning.query import Query
from hubbub.core.protocol.agreement import masks
from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.core.protocol.primitives.wire import Channel, Tag
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.session.ask import Call
from hubbub.core.study.study import Study
from hubbub.core.tabular.records import Standardisation

LARGEST_OFFER = 1 << 26  # bytes of an offer
# Machines may differ in the last digits of a plan, which is no difference that a sum would show.
_SAME = 1e-9


class RefusedError(HubbubError):
    """A party declines to answer, for a reason that the others may know.

    Args:
        why: one of `REASONS`.
        message: one sentence for this party's own people.
        culprit: who is to blame, where the reason is "protocol".
    """

    def __init__(self, why: str, message: str, culprit: str = "") -> None:
        super().__init__(message)
        self.why, self.culprit = why, culprit


# What a refusal tells others, and what they should do; never more than this leaves a party.
REASONS = {
    "not-approved": "its administrator has not approved this study, or not with this roster; run "
    "hubbub approve there",
    "version": "it runs another version of hubbub; install the same everywhere",
    "plan": "its own plan of the study has other numbers; install the same versions everywhere",
    "no-session": "it does not know the session, as after a restart; a new one will be set up",
    "budget": "its ledger refuses the attempt: a cap or the study's attempts are used up, or the "
    "study was closed",
    "ledger": "its ledger cannot be written or was altered; its own log says more",
    "graphs": (
        "it has drawn as many unused mask graphs as it may; find out who fails, then approve "
        "the study there again"
    ),
    "protocol": "what reached it breaks the protocol",
    "failed": "it could not do its part; its own log says why",
    **{
        f"evidence-{rule}": f"evidence that it was shown fails the rule “{rule}”; its own log says "
        "more"
        for rule in RULES
    },
}
# Of these, what keeps a party itself from doing its part, whatever others do.
OWN = frozenset({"version", "plan", "budget", "ledger", "graphs", "failed"})


@dataclass(frozen=True, kw_only=True)
class SessionOffer:
    """What is said of a session before it is set up.

    Args:
        purpose: what is summed in it: one of the study's queries.
        round_parameters: the numbers of the rounds, as the aggregator has them.
        version: of hubbub, at the aggregator.
        standardisation: what was done to the features, where the study asks for that.
        at: the time at which evidence is verified, seconds since 1970; 0 where none is shown.
    """

    purpose: str
    round_parameters: Mapping[str, Any]
    version: str = VERSION
    standardisation: Standardisation | None = None
    at: int = 0

    @classmethod
    def of(
        cls,
        purpose: str,
        round_parameters: RoundParameters,
        standardisation: Standardisation | None = None,
        at: int = 0,
    ) -> SessionOffer:
        """The offer of a session with these numbers."""
        return cls(
            purpose=purpose,
            round_parameters=round_parameters.to_dict(),
            standardisation=standardisation,
            at=at,
        )

    def payload(self) -> bytes:
        """It as bytes."""
        scaling = self.standardisation
        content = {
            "purpose": self.purpose,
            "terms": dict(self.round_parameters),
            "version": self.version,
            "standardisation": json.loads(scaling.to_json()) if scaling else None,
            **({"at": self.at} if self.at else {}),
        }
        return json.dumps(content, sort_keys=True).encode()

    @classmethod
    def read(cls, payload: bytes | memoryview, sender: str) -> SessionOffer:
        """What `payload` wrote.

        Raises:
            ProtocolError: it is none.
        """
        try:
            if len(payload) > LARGEST_OFFER:
                raise ValueError
            content = json.loads(bytes(payload))
            features, at = content["standardisation"], content.get("at", 0)
            if type(at) is not int or not 0 <= at < 2**40:  # seconds since 1970
                raise ValueError
            return cls(
                purpose=str(content["purpose"]),
                round_parameters=dict(content["terms"]),
                version=str(content["version"])[:40],
                standardisation=Standardisation.of_plain(features) if features else None,
                at=at,
            )
        except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
            found = "another"
        raise ProtocolError(f"expected the opening of a session, got {found}", culprit=sender)

    def check(self, mine: RoundParameters) -> None:
        """Refuse unless the round parameters are those of this party's own plan.

        Raises:
            RefusedError: naming the first number that differs.
        """
        # P3, P7: noise, grid and quorum are those of one's own plan, never those of a message.
        own = mine.to_dict()
        theirs = self.round_parameters
        odd = [one for one in own if not _same(own[one], theirs.get(one))]
        # A number that is unknown here may change what others do, so it is refused as well.
        name = next(iter((*odd, *sorted(theirs.keys() - own.keys()))), None)
        if name is None:
            return
        apart = self.version != VERSION
        raise RefusedError(
            "version" if apart else "plan",
            f"expected {name} = {own.get(name)!r}, as follows from the study here, got another "
            f"from the aggregator, which runs hubbub {printable(self.version)} (here {VERSION}); "
            "install the same version of hubbub and its libraries everywhere",
        )


def offer_frame(keys: Keys, channel: Channel, offer: SessionOffer) -> bytes:
    """The OPEN by which the aggregator offers a session to everybody."""
    return channel.frame(Tag.OPEN, 0, offer.payload()).sealed(keys)


def context_of(payload: bytes | memoryview, roll: bytes, seen: bytes) -> bytes:
    """What all parties must have been shown alike before they agree on secrets.

    Args:
        payload: of the OPEN.
        roll: digest of the ROLL (P29).
        seen: of anchors and evidence, where there are any.
    """
    # P4: it enters every mask's key, so parties that were offered different things share no mask.
    offered = hashlib.sha256(payload).digest()
    return hashlib.sha256(b"hubbub opening v2" + offered + roll + seen).digest()


def check_apart(study: Study) -> None:
    """Refuse a study that this version cannot run apart.

    Raises:
        RefusedError: it cannot.
    """
    if study.is_unattested:
        raise RefusedError(
            "failed",
            'expected [attestation.silo] with trust = "tee", got a study without; add it',
        )
    if study.shows_counts and not study.data.counts:
        raise RefusedError(
            "failed",
            'expected data.counts with sampling = "without-replacement" where the parties run '
            "apart, got none; state how many records each silo has",
        )


def planned_for(plan: Plan, purpose: str) -> PlannedQuery[Query]:
    """What a session with this purpose sums.

    Raises:
        RefusedError: the study has no such purpose.
    """
    planned = plan.planned(purpose)
    if planned is None:
        raise RefusedError("plan", "expected a purpose of the study, got another; nothing is sent")
    return planned


def _same(mine: object, theirs: object) -> bool:
    if isinstance(mine, float) and isinstance(theirs, float):
        return isclose(mine, theirs, rel_tol=_SAME)
    if isinstance(mine, tuple) and isinstance(theirs, list):
        return all(type(their) is int for their in theirs) and list(mine) == theirs
    return type(mine) is type(theirs) and mine == theirs


# Who takes part in a session, who shares masks with whom, and the numbers of its rounds.


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How many parties there are, and who shares masks with whom.

    Args:
        names: the silos.
        nodes: compute nodes; 0 for pairwise masks.
        nodes_per_silo: 0 for all of them.
        degree: of the mask graph; None for the complete one.
    """

    names: tuple[str, ...]
    nodes: int = 0
    nodes_per_silo: int = 0
    degree: int | None = None

    def keys(self) -> list[Keys]:
        """Fresh keys of everybody, in the order of the roster."""
        return [
            Keys.generate("aggregator", "aggregator"),
            *(Keys.generate(name, "silo") for name in self.names),
            *(Keys.generate(f"node-{number}", "node") for number in range(1, self.nodes + 1)),
        ]

    def neighbours(
        self, index: int, seed: bytes, present: Collection[int] | None = None
    ) -> Sequence[int]:
        """Roster indices of those with whom a party shares masks.

        Args:
            index: the party's place in the roster.
            seed: of the mask graph; nothing with compute nodes.
            present: the silos of the session, by roster index; None for all.
        """
        silos, here = len(self.names), sorted(present or range(1, 1 + len(self.names)))
        if self.nodes == 0:  # P29: of the study's degree, whoever is there
            each, place = silos - 1 if self.degree is None else self.degree, here.index(index)
            return [here[k] for k in masks.neighbours_of(place, len(here), each, seed)]
        each = self.nodes_per_silo or self.nodes
        if index <= silos:
            return [1 + silos + node for node in _nodes_of(index - 1, each, self.nodes)]
        node = index - silos - 1
        return [k for k in here if node in _nodes_of(k - 1, each, self.nodes)]


def _nodes_of(silo: int, each: int, nodes: int) -> list[int]:
    """The nodes that a silo uses: consecutive on a circle (docs/privacy.md P4)."""
    return sorted((silo + step) % nodes for step in range(each))


def layout_of(plan: Plan) -> Layout:
    """Who takes part in a study, and who shares masks with whom."""
    parties = plan.study.parties
    return Layout(
        names=parties.names,
        nodes=parties.compute_nodes,
        nodes_per_silo=parties.nodes_per_silo,
        degree=plan.degree,
    )


def roll_leads(roster: Roster, *, attested: bool) -> Call:
    """The call in which everybody is told the silos of the session first: that after OPEN."""
    if attested:
        return Call.ATTEST
    return Call.CONTRIBUTE if roster.nodes else Call.COMMIT


def confirmers_of(
    layout: Layout, roster: Roster, round_parameters: RoundParameters, index: int, silos: Set[int]
) -> Collection[int]:
    """Who confirms the set-up to a party besides its neighbours: to a silo, all of the session's.

    With compute nodes only where all draw together: silos compare what they saw of the joint
    seeds, also those that share no honest node (docs/privacy.md P4).
    """
    comparing = not layout.nodes or round_parameters.needs_joint_seed
    return silos if comparing and index in roster.silos else ()


def round_parameters_of(
    planned: PlannedQuery[Query], *, numbers: int | None = None
) -> RoundParameters:
    """The numbers of a query's rounds, which its plan fixes.

    Args:
        numbers: of a sum before any projection, and of what goes down, where they are others than
            the plan's: those of canaries.

    Raises:
        StudyError: how many numbers are summed is not known yet.
    """
    mechanism, parties = planned.mechanism, planned.parties
    dimension = mechanism.numbers_sent(planned.numbers if numbers is None else numbers)
    parameters = planned.broadcast_numbers if numbers is None else numbers
    if dimension is None or parameters is None:
        raise StudyError(
            "expected a plan that knows how many parameters the model has, got one that leaves it "
            "open; give hubbub.plan the dimension"
        )
    return RoundParameters(
        dimension=dimension,
        parameters=parameters,
        silos=parties.silos,
        quorum=planned.quorum,
        steps=mechanism.steps,
        word_bits=planned.word_bits,
        grid_step=planned.grid_step,
        sigma_grid=planned.share_sigma_grid,
        sample_rate=mechanism.sample_rate,
        nodes=parties.compute_nodes,
        full_shares=parties.shares == "full",
        projection=mechanism.projection.kind if mechanism.projection else "",
        clip=mechanism.clip,
        most_records=largest_batch(mechanism),
        batch=mechanism.batch,
        records=mechanism.records,
        fresh_lists=mechanism.tokens == "per-step",
        short_models=planned.query.short_broadcast,
        correlation=mechanism.noise.coefficients,
        announced_shares=planned.shares if planned.division.announced else 0,
    )
