"""Who takes part in a session, who shares masks with whom, and the numbers of its rounds."""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass

from hubbub.core.errors import StudyError
from hubbub.core.planning.plan_values import Plan
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.precision import largest_batch
from hubbub.core.planning.query import Query
from hubbub.core.protocol.agreement import mask_graph
from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.session.ask import Call


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
            return [here[k] for k in mask_graph.neighbours_of(place, len(here), each, seed)]
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
        planned: the query with its noise.
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
