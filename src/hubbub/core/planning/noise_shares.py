"""How the noise of a sum is divided among silos, and what of it is left against whom (P3).

With pairwise masks a sum opens only if everybody answers whom its MODEL names, so a share may
follow from the set that is named: of n silos each adds 1 / (n - c) of the stated variance, c the
shares that the stated adversary knows. Where a sum may hold fewer than were named (compute nodes),
or where noise is taken back in later sums (P25), each share is that of the fewest silos. This file
knows no mechanism and no record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

from hubbub.core.errors import StudyError
from hubbub.core.planning.plan_rows import PlanRow
from hubbub.core.protocol.agreement import masks
from hubbub.core.study.parties import Parties


@dataclass(frozen=True, kw_only=True)
class NoiseShares:
    """How many silos' shares add up to the noise that is left against the stated adversary.

    Args:
        sharing: silos in the smallest sum that can be isolated, if nobody is missing (P4).
        dropouts: how many of them may be missing.
        known: shares that the stated adversary can subtract.
        announced: whether a share follows from the set that an attempt's MODEL names.
    """

    sharing: int
    dropouts: int
    known: int
    announced: bool = False

    def __post_init__(self) -> None:
        # P3: where no unknown share may be left, nothing can be promised.
        if self.fewest - self.known < 1:
            raise StudyError(
                "expected parties.nodes_per_silo to leave at least one noise share, got "
                f"{self.sharing} silos that share a sum; raise nodes_per_silo or lower colluders "
                "and dropouts"
            )

    @property
    def fewest(self) -> int:
        """Silos in a sum at least."""
        return self.sharing - self.dropouts

    @property
    def count(self) -> int:
        """How many shares add up to the stated noise where all silos take part."""
        return (self.sharing if self.announced else self.fewest) - self.known

    @property
    def most_known(self) -> int:
        """Shares that anybody can subtract at most: the record's own silo keeps its own."""
        return (self.sharing if self.announced else self.fewest) - 1

    @property
    def widest(self) -> float:
        """Standard deviation of a share where most silos are missing, over that where none is."""
        return sqrt(self.count / (self.fewest - self.known))

    def left(self, known: int) -> float:
        """z_eff / z of P3: the least that is left of the noise if so many shares are subtracted.

        Whoever announces the sets chooses them. Of n silos max(n - known, 1) / (n - c) of the
        variance is left, c the stated adversary's: it falls in n if fewer are known; if more are,
        it falls up to n = known + 1 and grows from there.
        """
        active = self.fewest
        if self.announced:
            worst = self.sharing if known <= self.known else max(self.fewest, known + 1)
            active = min(worst, self.sharing)
        divided = active - self.known if self.announced else self.count
        # P3: where no unknown share is left, no noise is claimed.
        return sqrt(max(active - known, 0) / divided)

    def total(self, active: int) -> float:
        """Standard deviation of all noise in a sum of so many silos, over the stated one."""
        return sqrt(active / (active - self.known if self.announced else self.count))

    def largest_total(self, silos: int) -> float:
        """The largest of these in a study of so many silos.

        A sum of all has the most shares; where shares are announced, one of the fewest has more
        noise: n / (n - c) falls in n.
        """
        return self.total(self.fewest if self.announced else silos)

    def to_dict(self, share_sigma: float) -> dict[str, Any]:
        """Announced shares as plain values; `share_sigma` is of all silos, in the sum's unit."""
        return {"of_all": self.count, "widest_share_sigma": share_sigma * self.widest}

    def rows(self, share_sigma: float) -> list[PlanRow]:
        """The same for people."""
        words = "σ of what one silo adds where most silos are missing"
        return [PlanRow("widest noise share", share_sigma * self.widest, words)]


def shares_of(parties: Parties, *, announced: bool = False) -> NoiseShares:
    """The shares of a study's silos.

    Args:
        announced: whether noise is independent from sum to sum, so that shares may follow from the
            set that is named; see `may_announce`.

    Raises:
        StudyError: no share is left.
    """
    return NoiseShares(
        sharing=sharing_silos(parties),
        dropouts=parties.dropouts,
        known=known_shares(parties, parties.colluders),
        announced=announced and may_announce(parties),
    )


def may_announce(parties: Parties) -> bool:
    """Whether a sum opens for all whom its MODEL names alone, and these may be fewer than all."""
    return parties.compute_nodes == 0 and parties.dropouts > 0


def sharing_silos(parties: Parties) -> int:
    """Silos in the smallest sum that can be isolated, before colluders and drop-outs (P4)."""
    if 0 < parties.nodes_per_silo < parties.compute_nodes:
        # Consecutive nodes on a circle: one honest node may be the only one for its own silos. The
        # N mod M silos that are over use the first nodes once more than the last.
        each, over = divmod(parties.silos, parties.compute_nodes)
        spared = parties.compute_nodes - over
        return parties.nodes_per_silo * each + max(0, parties.nodes_per_silo - spared)
    return parties.silos


def known_shares(parties: Parties, colluders: int) -> int:
    """Noise shares known to so many silos and to a further one that looks on (P3).

    Attested enclaves keep a silo's share from its own owner.
    """
    return 0 if parties.trust == "tee" else colluders + 1


# The mask graph of a study: how many neighbours each silo has, and who could take it apart (P4).

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
    likely = masks.degree(parties.silos, parties.silos // 2, parties.dropouts)
    # P4: (a) for the stated adversary, and even, as both sides of a circle are alike; or (b).
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
    # P4, P29: once for each graph that may be drawn, with the bound for all N silos.
    bits = masks.failure_bits(parties.silos, silos, parties.dropouts, mask_degree(parties))
    return min(1.0, masks.MOST_GRAPHS * float(2.0**-bits))


def borne_at_any_time(parties: Parties) -> int:
    """The most colluders, besides one that looks on, whom a sparse graph bears for certain (P4)."""
    return mask_degree(parties) - parties.dropouts - 2


def borne_if_drawn_later(parties: Parties) -> int:
    """The most whom it bears but for 2^-50, if they were corrupted before it was drawn (P4)."""
    degree = mask_degree(parties)

    def torn(colluders: int) -> bool:
        bits = masks.failure_bits(parties.silos, colluders + 1, parties.dropouts, degree)
        return bits < masks.FAILURE_BITS

    return bisect_left(range(parties.silos), True, key=torn) - 1


def to_dict(parties: Parties) -> dict[str, int]:
    """Whom a sparse graph bears, as plain values."""
    return {
        "colluders_at_any_time": borne_at_any_time(parties),
        "colluders_before_it_is_drawn": borne_if_drawn_later(parties),
    }


def mask_graph_rows(plain: Mapping[str, Any]) -> list[PlanRow]:
    """What a plan says of a sparse graph; from `to_dict`."""
    certain, likely = plain["colluders_at_any_time"], plain["colluders_before_it_is_drawn"]
    return [
        PlanRow("colluders that the mask graph bears", certain, "whenever they are corrupted"),
        PlanRow("the same", likely, "if they were corrupted before it was drawn"),
    ]
