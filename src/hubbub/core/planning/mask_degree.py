"""The mask graph of a study: how many neighbours each silo has, and who could take it apart (P4).

This file knows numbers of silos; who they are and what they send is not its affair.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

from hubbub.core.planning.plan_rows import PlanRow
from hubbub.core.protocol.agreement import mask_graph
from hubbub.core.study.parties import Parties

# Up to this many silos everybody shares masks with everybody in a session.
_COMPLETE_UP_TO = 100


def mask_degree(parties: Parties) -> int:
    """Neighbours of each silo on the mask graph (P4).

    The stated adversary's silos, the one that looks on among them, leave it whole whichever they
    are and whenever they are corrupted. Half of all silos do, if they were corrupted before it was
    drawn, but for a probability of 2^-50.
    """
    if parties.silos <= _COMPLETE_UP_TO:
        return parties.silos - 1
    certain = parties.colluders + parties.dropouts + 2
    likely = mask_graph.degree(parties.silos, parties.silos // 2, parties.dropouts)
    return min(parties.silos - 1, max(certain + certain % 2, likely))


def is_sparse(parties: Parties) -> bool:
    """Whether masks are pairwise and not everybody shares one with everybody."""
    return not parties.compute_nodes and mask_degree(parties) < parties.silos - 1


def torn_apart(parties: Parties, silos: int) -> float:
    """Probability that so many silos, corrupted before, take a graph of the others apart (P4).

    Of any of the graphs that may be drawn for the study; 0 where they cannot, whenever they are
    corrupted.
    """
    if not is_sparse(parties):
        return 0.0
    bits = mask_graph.failure_bits(parties.silos, silos, parties.dropouts, mask_degree(parties))
    return min(1.0, mask_graph.MOST_GRAPHS * float(2.0**-bits))


def borne_at_any_time(parties: Parties) -> int:
    """The most colluders, besides one that looks on, whom a sparse graph bears for certain (P4)."""
    return mask_degree(parties) - parties.dropouts - 2


def borne_if_drawn_later(parties: Parties) -> int:
    """The most whom it bears but for 2^-50, if they were corrupted before it was drawn (P4)."""
    degree = mask_degree(parties)

    def torn(colluders: int) -> bool:
        bits = mask_graph.failure_bits(parties.silos, colluders + 1, parties.dropouts, degree)
        return bits < mask_graph.FAILURE_BITS

    return bisect_left(range(parties.silos), True, key=torn) - 1


def to_dict(parties: Parties) -> dict[str, int]:
    """Whom a sparse graph bears, as plain values."""
    return {
        "colluders_at_any_time": borne_at_any_time(parties),
        "colluders_before_it_is_drawn": borne_if_drawn_later(parties),
    }


def rows(plain: Mapping[str, Any]) -> list[PlanRow]:
    """What a plan says of a sparse graph; from `to_dict`."""
    certain, likely = plain["colluders_at_any_time"], plain["colluders_before_it_is_drawn"]
    return [
        PlanRow("colluders that the mask graph bears", certain, "whenever they are corrupted"),
        PlanRow("the same", likely, "if they were corrupted before it was drawn"),
    ]
