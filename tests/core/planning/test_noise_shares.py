"""Shares that are left, graphs that are torn, and rows that a coalition may subtract (P3, P4)."""

from __future__ import annotations

from math import comb

import pytest
from scipy.stats import hypergeom

from hubbub.core.errors import StudyError
from hubbub.core.planning.exposure import _adversaries
from hubbub.core.planning.mechanism import Mechanism
from hubbub.core.planning.noise_shares import NoiseShares, mask_degree, shares_of, torn_apart
from hubbub.core.planning.planned_query import grid_for
from hubbub.core.planning.random_projection import RandomProjection
from hubbub.core.planning.study_plan import _left_by_precision
from hubbub.core.privacy.certificate import Certificate
from hubbub.core.protocol.agreement.masks import MOST_GRAPHS
from hubbub.core.study.parties import Parties, Privacy, numbered


def test_p3_nothing_is_planned_where_the_stated_adversary_knows_every_share() -> None:
    assert NoiseShares(sharing=4, dropouts=1, known=2).count == 1
    with pytest.raises(StudyError, match="at least one noise share"):
        NoiseShares(sharing=4, dropouts=1, known=3)


def test_p4_dropouts_leave_a_graph_that_fewer_silos_tear_apart() -> None:
    parties = Parties(names=numbered(140), colluders=3, dropouts=10)
    each = mask_degree(parties)
    tail = hypergeom.sf(each - 10 - 1, 140, 80, each)
    found = torn_apart(parties, 80)
    assert 0 < found < 1e-3
    assert found == pytest.approx(MOST_GRAPHS * comb(140, 2) * tail)


def test_p4_a_silo_without_the_honest_node_is_left_with_its_own_share_however_many_collude() -> (
    None
):
    parties = Parties(names=numbered(10), colluders=7, compute_nodes=10, nodes_per_silo=9)
    (row,) = (one for one in _adversaries(parties) if "all compute nodes but one" in one.name)
    assert min(row.shares, shares_of(parties).most_known) == 8


def test_p7_a_word_holds_projected_records_whose_coordinates_are_longer_than_they_are() -> None:
    projection = RandomProjection(kind="sign", dimension=9)
    assert projection.largest_coordinate == 4
    mechanism = Mechanism(
        purpose="sums", relation="add-remove", delta=1e-5, steps=1, records=20, sample_rate=1.0,
        projection=projection,
    )  # fmt: skip
    parties = Parties(names=numbered(6), colluders=2)
    bits, sigma, most = grid_for(mechanism, parties, 2.0, shares_of(parties))
    record = 4 * sigma / (2.0 / 3**0.5)  # grid steps
    assert most * record + 12 * 6**0.5 * sigma < 2.0 ** (bits - 1) <= 2 * (most + 1) * record


def test_p7_a_word_holds_the_noise_of_the_fewest_silos_where_shares_are_announced() -> None:
    """Which have more of it together than all have, and here it takes up most of the word."""
    shares = NoiseShares(sharing=20, dropouts=14, known=5, announced=True)
    mechanism = Mechanism(
        purpose="sums", relation="add-remove", delta=1e-5, steps=1, records=20, sample_rate=1.0
    )
    parties = Parties(names=numbered(20), colluders=5)
    bits, sigma, most = grid_for(mechanism, parties, 1e3, shares)
    record = sigma / (1e3 / shares.count**0.5)  # grid steps
    spread = 12 * sigma * shares.count**0.5 * max(shares.total(n) for n in range(6, 21))
    assert most * record + spread <= 2.0 ** (bits - 1) - 1 < (most + 1) * record + spread


def test_p6_the_slack_is_taken_from_delta_at_the_whole_epsilon() -> None:
    certificate = Certificate(epsilon=0.5, slack=1e-7, failure=1e-8, delta_factor=1.1)
    left = _left_by_precision(Privacy(epsilon=2.0, delta=1e-5), certificate)
    assert left == (1.5, certificate.ideal_delta(1e-5, 2.0))
