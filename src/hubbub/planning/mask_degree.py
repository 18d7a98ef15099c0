"""The mask graph of a study: how many neighbours each silo has, and who could take it apart (P4).

This file knows numbers of silos; who they are and what they send is not its affair.
"""

from __future__ import annotations

from hubbub.protocol import mask_graph
from hubbub.study.parties import Parties


def mask_degree(parties: Parties) -> int:
    """Neighbours of each silo on the mask graph: the stated adversary's silos leave it whole (P4).

    They are the colluders, and the one that looks on.
    """
    return mask_graph.degree(parties.silos, parties.colluders + 1, parties.dropouts)


def is_sparse(parties: Parties) -> bool:
    """Whether masks are pairwise and not everybody shares one with everybody."""
    return not parties.compute_nodes and mask_degree(parties) < parties.silos - 1


def torn_apart(parties: Parties, silos: int) -> float:
    """Probability that so many silos take a graph of the others apart (P4).

    Of any of the graphs that may be drawn for the study; 0 where the bound is 0.
    """
    if not is_sparse(parties):
        return 0.0
    bits = mask_graph.failure_bits(parties.silos, silos, parties.dropouts, mask_degree(parties))
    return min(1.0, mask_graph.MOST_GRAPHS * float(2.0**-bits))
