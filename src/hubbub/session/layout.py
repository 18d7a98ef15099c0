"""Who takes part in a session, who shares masks with whom, and the numbers of its rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hubbub.planning import Plan, joint_batch, largest_batch
from hubbub.protocol import Keys, Roster, RoundParameters, mask_graph


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

    def neighbours(self, index: int, seed: bytes) -> Sequence[int]:
        """Roster indices of those with whom a party shares masks."""
        silos = len(self.names)
        if self.nodes == 0:
            each = silos - 1 if self.degree is None else self.degree
            return [1 + k for k in mask_graph.neighbours_of(index - 1, silos, each, seed)]
        each = self.nodes_per_silo or self.nodes
        if index <= silos:
            return [1 + silos + node for node in _nodes_of(index - 1, each, self.nodes)]
        node = index - silos - 1
        return [1 + k for k in range(silos) if node in _nodes_of(k, each, self.nodes)]


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


def confirmers_of(
    layout: Layout, roster: Roster, terms: RoundParameters, index: int
) -> Sequence[int]:
    """Who confirms the set-up to a party besides its neighbours: to a silo, all silos.

    With compute nodes only where all draw together: silos compare what they saw of the joint
    seeds, also those that share no honest node (docs/privacy.md P4).
    """
    comparing = not layout.nodes or terms.needs_joint_seed
    return roster.silos if comparing and index in roster.silos else ()


def round_parameters_of(
    plan: Plan, dimension: int, *, parameters: int | None = None
) -> RoundParameters:
    """The numbers of the rounds that a plan fixes.

    Args:
        plan: of the study.
        dimension: how many numbers are summed, before any projection.
        parameters: of the model that goes down, if not as many.
    """
    training, parties = plan.study.training, plan.study.parties
    joint, records = training.sampling == "without-replacement", plan.study.data.records
    return RoundParameters(
        dimension=training.projection or dimension,
        parameters=dimension if parameters is None else parameters,
        silos=parties.silos,
        quorum=plan.quorum,
        steps=training.steps,
        word_bits=plan.word_bits,
        grid_step=plan.grid_step,
        sigma_grid=plan.share_sigma_grid,
        sample_rate=training.sample_rate,
        nodes=parties.compute_nodes,
        full_shares=parties.shares == "full",
        projection=training.projection_kind if training.projection else "",
        clip=plan.clip,
        most_records=largest_batch(plan.study),
        batch=joint_batch(training.sample_rate, records) if joint else 0,
        records=records,
        fresh_lists=training.tokens == "per-step",
        short_models=training.download == "bfloat16",
        correlation=plan.correlation.coefficients if plan.correlation else (),
    )
