"""The plan: shares, adversaries, grid and certificate against docs/privacy.md P3 to P7."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise, product
from math import comb, inf, log, pi, sqrt
from random import Random
from unittest import mock

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scipy.special import bdtrc, ndtr, ndtri

import hubbub
from hubbub import Study
from hubbub.core.errors import StudyError
from hubbub.core.planning import exposure, noise_shares, planned_query
from hubbub.core.planning import study_plan as planning
from hubbub.core.planning.accounts import Account, account_of, releases, releases_of_units
from hubbub.core.planning.exposure import epsilon_against
from hubbub.core.planning.mechanism import Mechanism
from hubbub.core.planning.noise_shares import shares_of, sharing_silos
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.planned_query import certificate_for, grid_for
from hubbub.core.planning.random_projection import RandomProjection
from hubbub.core.privacy.accountant import Composition
from hubbub.core.privacy.certificate import EXACT, Certificate
from hubbub.core.protocol.agreement import masks
from hubbub.core.protocol.agreement.joint_seed import LINK_BYTES
from hubbub.core.protocol.primitives.wire import OVERHEAD
from hubbub.core.session.offer import Layout, layout_of
from hubbub.desk.cli import terminal
from hubbub.desk.cli.study_commands import show_plan
from hubbub.desk.report.page import render
from hubbub.learning.queries.training_query import training_of
from hubbub.learning.study.model import is_dimension, told_shape

INSIDER = "aggregator + "
WITHOUT_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)  # which would take minutes
ALL_NODES_BUT_ONE = "aggregator and all compute nodes but one"
plan = lru_cache(hubbub.plan)


def account(one: Study) -> Account:
    """What a step of the study's training is charged as."""
    return account_of(training_of(one).mechanism)


@lru_cache
def plan_in_short(one: Study, *, dimension: int | None = None) -> Plan:
    """The plan with no coalition but the stated one, and no comparison: they take most time."""
    alone = mock.patch.object(exposure, "_curve", lambda parties: [parties.colluders])
    with alone, mock.patch.object(planning, "joint_batches", return_value=None):
        return hubbub.plan(one, dimension=dimension)


def study(*, parties=None, data=None, model=None, training=None, privacy=None) -> Study:
    """A small study with a model whose size is public, cheap to account for."""
    return Study.from_table(
        {
            "study": {"name": "plan"},
            "parties": {"silos": 6, "colluders": 2, **(parties or {})},
            "data": {"source": "python:none:none", "records": 10_000, **(data or {})},
            "model": model or {"kind": "logistic", "inputs": [9]},
            "training": {"steps": 40, "sample_rate": 0.2, **(training or {})},
            "privacy": {"epsilon": 1.0, "delta": 1e-5, **(privacy or {})},
        }
    )


# Noise shares (P3) -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("colluding", "published"), [(1, 1.22), (3, 1.60), (4, 1.96), (5, 2.61), (8, 24.1)]
)
def test_p3_noise_left_gives_the_published_epsilons(colluding, published):
    ten = study(parties={"silos": 10, "colluders": 3})
    left = shares_of(ten.parties).left(colluding + 1)
    bound = hubbub.epsilon(
        noise_multiplier=left, sample_rate=0.008, steps=1250, delta=1e-5, relation="add-remove"
    )
    assert bound.upper == pytest.approx(published, abs=0.05 if published > 20 else 0.005)


@pytest.mark.parametrize("dropouts", [0, 2])
def test_p3_shares_are_the_silos_less_colluders_dropouts_and_the_observer(dropouts):
    made = plan_in_short(study(parties={"dropouts": dropouts, "compute_nodes": 2}))
    assert made.main.shares == 6 - 2 - dropouts - 1
    assert made.main.share_sigma == pytest.approx(made.noise_multiplier / sqrt(made.main.shares))
    assert made.quorum == 6 - dropouts
    # The stated adversary, with every drop-out that the study allows, faces exactly z.
    assert made.stated.noise_multiplier == pytest.approx(made.noise_multiplier)
    assert made.total_noise_multiplier == pytest.approx(
        made.noise_multiplier * sqrt(6 / made.main.shares)
    )


def test_no_noise_is_left_when_every_share_is_known():
    for dropouts in (0, 2):
        shares = shares_of(study(parties={"dropouts": dropouts}).parties, announced=True)
        assert shares.left(shares.most_known) > shares.left(6) == shares.left(99) == 0


@pytest.mark.parametrize("known", range(11))
def test_p3_what_is_left_where_shares_are_announced_is_that_of_the_worst_set(known):
    shares = shares_of(
        study(parties={"silos": 10, "colluders": 1, "dropouts": 3}).parties, announced=True
    )
    assert (shares.known, shares.fewest, shares.sharing) == (2, 7, 10)
    sets = range(max(shares.fewest, known + 1), shares.sharing + 1)
    worst = min(((n - known) / (n - shares.known) for n in sets), default=0.0)
    assert shares.left(known) == pytest.approx(sqrt(worst))


@st.composite
def studies(draw, most=40):
    trust = draw(st.sampled_from(["none", "none", "tee"]))
    silos = draw(st.integers(3, most))
    sampling = draw(st.sampled_from(["poisson", "full-batch", "without-replacement"]))
    joint = sampling == "without-replacement"  # which needs everybody
    dropouts = 0 if joint else draw(st.integers(0, (silos - 2) // 2))
    colluders = draw(st.integers(0, silos - 2 - dropouts))
    nodes = draw(st.integers(0, 4))
    substitute = joint or draw(st.booleans())
    rate = 1.0 if sampling == "full-batch" else draw(st.floats(0.01, 0.9))
    return study(
        parties={
            "silos": silos,
            "colluders": colluders,
            "dropouts": dropouts,
            "compute_nodes": nodes,
            "trust": trust,
        },
        training={"steps": draw(st.integers(1, 200)), "sampling": sampling, "sample_rate": rate},
        privacy={
            "epsilon": draw(st.floats(0.05, 8)),
            "delta": 10.0 ** draw(st.integers(-9, -5)),
            "relation": "substitute" if substitute else "add-remove",
        },
    )


@pytest.mark.slow
@settings(max_examples=3, deadline=None, phases=WITHOUT_SHRINKING)
@given(studies())
def test_the_stated_adversary_gets_at_most_the_epsilon_of_the_study(one):
    made = plan_in_short(one)
    assert made.stated.epsilon <= one.privacy.epsilon
    assert made.epsilon() == made.stated.epsilon
    # The accountant on its own says the same of the noise that is left, certificate included.
    ideal = hubbub.epsilon(
        noise_multiplier=made.stated.noise_multiplier,
        sample_rate=one.training.sample_rate,
        steps=one.training.steps,
        delta=one.privacy.delta,
        relation=one.privacy.relation,
        sampling=one.training.sampling,
    )
    assert ideal.lower <= one.privacy.epsilon
    assert made.stated.epsilon >= 0.97 * one.privacy.epsilon


@pytest.mark.slow
@settings(max_examples=3, deadline=None, phases=WITHOUT_SHRINKING)
@given(studies(most=7))
def test_epsilon_grows_with_the_colluders(one):
    made = plan(one)
    coalitions = [
        row
        for row in made.exposures
        if row.adversary.startswith(INSIDER) and not row.adversary.endswith(("holding", "broken"))
    ]
    assert [row.colluding_silos for row in coalitions] == sorted(
        {row.colluding_silos for row in coalitions}
    )
    for less, more in pairwise(coalitions):
        assert less.epsilon <= more.epsilon
        assert less.noise_multiplier >= more.noise_multiplier
    outsider = made.epsilon("outsider (published results)")
    assert outsider <= made.epsilon("one silo") <= made.stated.epsilon


@pytest.mark.slow
def test_a_delta_at_which_hardly_any_noise_is_needed_is_planned_all_the_same():
    # One step that takes a record as rarely as delta allows: epsilon jumps as the noise shrinks.
    made = plan_in_short(
        study(training={"steps": 1, "sample_rate": 0.001}, privacy={"delta": 0.001})
    )
    assert made.stated.epsilon <= 1.0


@pytest.mark.slow
def test_the_report_shows_what_joint_batches_and_projections_cost():
    def page(made):
        return render(json.loads(made.to_json()), [], baseline=None)

    made, plain = plan(joint()), page(plan(study()))
    shown = page(made)
    for words in ("whose part in each joint batch it knows", "under Poisson sampling", "2,500"):
        assert words in shown
        assert words not in plain
    exact = page(plan_in_short(study(training={"projection": 5})))
    assert "over the law of the public matrix" in exact
    longer = plan_in_short(study(training={"projection": 9}, privacy={"relation": "substitute"}))
    assert "mixture over norms no shorter" in page(longer)
    by_layers = page(plan_in_short(study(training={"projection": 9, "projection_kind": "layers"})))
    assert "records are clipped after it" in by_layers
    both = {"projection": 9, "sampling": "without-replacement", "sample_rate": 0.02}
    slack = plan_in_short(study(training=both, privacy={"relation": "substitute"}))
    assert "of δ, paid in every step" in page(slack)
    assert f"{account_of(slack.mechanism).projected.factor:.4g}" in page(slack)


def test_an_unknown_adversary_is_refused():
    with pytest.raises(StudyError, match=r"one silo.*'the moon'"):
        plan(study()).epsilon("the moon")


# Who shares a sum (P4) -------------------------------------------------------------------------


def smallest_component(silos: int, nodes: int, each: int) -> int:
    """The smallest sum that any set of colluding nodes can isolate that leaves every silo one."""
    layout = Layout(names=tuple(map(str, range(silos))), nodes=nodes, nodes_per_silo=each)
    used = [{n - 1 - silos for n in layout.neighbours(k, b"")} for k in range(1, silos + 1)]
    smallest = silos
    for honest in product([False, True], repeat=nodes):
        kept = [{node for node in mine if honest[node]} for mine in used]
        if all(kept):
            smallest = min(smallest, *_component_sizes(kept))
    return smallest


def _component_sizes(kept: list[set[int]]) -> list[int]:
    groups: list[tuple[set[int], int]] = []
    for mine in kept:
        joined, size = set(mine), 1
        apart = []
        for nodes, count in groups:
            if nodes & joined:
                joined, size = joined | nodes, size + count
            else:
                apart.append((nodes, count))
        groups = [*apart, (joined, size)]
    return [size for _, size in groups]


@pytest.mark.parametrize(
    ("silos", "nodes", "each"),
    [(6, 4, 2), (7, 4, 2), (8, 4, 2), (13, 5, 2), (12, 5, 3), (20, 6, 3), (23, 7, 3), (9, 3, 1)],
)
def test_p4_no_sum_over_fewer_silos_than_planned_can_be_isolated(silos, nodes, each):
    parties = {"silos": silos, "compute_nodes": nodes, "nodes_per_silo": each, "colluders": 0}
    assert sharing_silos(study(parties=parties).parties) <= smallest_component(silos, nodes, each)


def test_subsets_of_nodes_share_less_and_cost_more_noise():
    full = {"silos": 24, "compute_nodes": 6, "colluders": 2}
    made = {k: plan_in_short(study(parties={**full, "nodes_per_silo": k})) for k in (6, 3, 2)}
    assert made[6].main.division.sharing == 24
    assert (
        made[6].main.division.sharing
        > made[3].main.division.sharing
        > made[2].main.division.sharing
    )
    assert made[6].main.share_sigma < made[3].main.share_sigma < made[2].main.share_sigma
    assert all(one.stated.epsilon <= 1.0 for one in made.values())


def test_p4_a_silo_without_an_honest_node_is_protected_by_its_own_share_only():
    made = plan_in_short(
        study(parties={"silos": 24, "compute_nodes": 6, "nodes_per_silo": 2, "colluders": 2})
    )
    (row,) = [one for one in made.exposures if one.adversary == ALL_NODES_BUT_ONE]
    own_share = made.main.share_sigma / made.mechanism.clip
    assert row.noise_multiplier <= own_share * (1 + 1e-9)


def test_a_subset_too_small_for_any_share_is_refused():
    parties = {"silos": 10, "compute_nodes": 10, "nodes_per_silo": 2, "colluders": 3}
    with pytest.raises(StudyError, match=r"nodes_per_silo.*at least one.*got 2.*raise"):
        plan_in_short(study(parties=parties))


# Grid and word (P5, P7) ------------------------------------------------------------------------


def capacity(made, bits: int) -> float:
    """Aligned records that a word holds at the coarsest grid, 12 sigma kept free."""
    free = 2.0 ** (bits - 1) - 1 - 12 * 4 * sqrt(made.study.parties.silos)
    return free * (made.main.share_sigma / made.mechanism.clip) / 4


@pytest.mark.parametrize("mean", [0.01, 1.0, 10.0, 1e3, 1e5])
def test_p7_a_batch_is_larger_than_a_word_holds_once_in_2_100_at_most(mean: float) -> None:
    rate = mean / 10**6
    usual = {"purpose": "training", "relation": "add-remove", "delta": 1e-5, "steps": 1}
    mechanism = Mechanism(**usual, clip=1.0, sample_rate=rate, records=10**6)
    assert bdtrc(planned_query.largest_batch(mechanism), 10**6, rate) < 2.0**-100


@pytest.mark.parametrize("silos", [3, 10, 1000])
@pytest.mark.parametrize("epsilon", [0.05, 8.0])
def test_p7_the_smallest_word_that_holds_the_batch_is_chosen(silos, epsilon):
    parties, privacy = {"silos": silos, "colluders": 1}, {"epsilon": epsilon}
    made = plan_in_short(study(parties=parties, privacy=privacy))
    noise, words = made.noise_multiplier, []
    for records in (0, 1000, 10**4, 10**5, 10**9):
        # The noise does not depend on the number of records, so it is calibrated once.
        one = study(parties=parties, data={"records": records}, privacy=privacy)
        mechanism = replace(made.mechanism, records=records)
        bits, sigma, held = grid_for(mechanism, one.parties, noise, made.main.division)
        main = replace(made.main, word_bits=bits, share_sigma_grid=sigma, sum_limit=held)
        found = replace(made, study=one, main=main)
        assert records != 10**4 or found == made
        check_word(found, min(records, records * 0.2 + 12 * sqrt(records * 0.2)) or 1 << 14)
        words.append(bits)
    assert words[1:] == sorted(words[1:])


def check_word(made: Plan, needed: float) -> None:
    """The word holds so many aligned records and 12 sigma; half the word would not."""
    record = made.mechanism.clip / made.main.grid_step
    spread = 12 * made.main.share_sigma_grid * sqrt(made.study.parties.silos)
    assert made.word_bits in (16, 32, 64)
    assert made.main.share_sigma_grid >= 4
    assert made.main.sum_limit >= needed
    assert needed * record + spread < 2.0 ** (made.word_bits - 1)
    # The capacity is a float's: near 2^63 its last digits are not there.
    assert made.main.sum_limit * record + spread < 2.0 ** (made.word_bits - 1) * (1 + 1e-12)
    if made.word_bits > 16:
        assert capacity(made, made.word_bits // 2) < needed + 60 + 12 * sqrt(needed)


def test_the_grid_step_is_the_share_in_grid_units():
    made = plan_in_short(study(training={"clip_norm": 0.25}))
    assert made.main.grid_step * made.main.share_sigma_grid == pytest.approx(made.main.share_sigma)
    assert made.main.share_sigma == pytest.approx(plan_in_short(study()).main.share_sigma * 0.25)
    assert made.main.record_clip < made.mechanism.clip == 0.25


@pytest.mark.parametrize(
    ("model", "dimension", "shape"),
    [
        ({"kind": "logistic"}, 10, (9,)),
        ({"kind": "logistic", "inputs": [3, 3]}, 10, (3, 3)),
        ({"kind": "logistic", "inputs": [3, 3]}, 11, None),
        ({"kind": "logistic", "outputs": 3}, 30, (9,)),
        ({"kind": "logistic", "outputs": 3}, 31, None),
        ({"kind": "mlp", "hidden": [4, 5], "bias": False}, 9 * 4 + 20 + 5, (9,)),
        ({"kind": "mlp", "hidden": [4, 5], "bias": False}, 20 + 5, None),
    ],
)
def test_the_shape_of_a_record_follows_from_the_size_of_a_layered_model(model, dimension, shape):
    one = study(model=model)
    assert is_dimension(one, dimension) == (shape is not None)
    if shape is not None:
        assert told_shape(one, dimension) == shape
        assert told_shape(one, None) == (shape if "inputs" in model else None)


@pytest.mark.parametrize(
    ("epsilon", "delta", "says"),
    [
        (0.001, 1e-5, r"privacy.epsilon to leave at least 0.001 .* got 0.001; raise it"),
        (49.5, 1e-5, r"privacy.epsilon of at most \d+ for .*, got 49.5; .* grows with e\^epsilon"),
    ],
)
def test_what_finite_precision_leaves_too_little_of_is_refused_in_the_studys_own_numbers(
    epsilon, delta, says
):
    with pytest.raises(StudyError, match=says):
        plan_in_short(study(privacy={"epsilon": epsilon, "delta": delta}))


def test_the_upload_is_the_residues_the_digest_of_the_model_and_one_frame():
    made = plan_in_short(study())
    assert made.dimension == 10
    assert made.upload_bytes_per_step == 10 * made.word_bits // 8 + 32 + OVERHEAD
    large = plan_in_short(study(), dimension=1000)
    assert large.upload_bytes_per_step == 1000 * large.word_bits // 8 + 32 + OVERHEAD


# Certificate (P5, P6) --------------------------------------------------------------------------


@pytest.mark.parametrize("dimension", [0, -1, 3.5, 27.0, "27", True, 2**50], ids=repr)
def test_a_dimension_that_is_none_is_refused(dimension):
    with pytest.raises(StudyError, match="expected dimension"):
        hubbub.plan(study(), dimension=dimension)


def test_numpys_own_dimension_is_one():
    made = plan_in_short(study(), dimension=np.int64(27))
    assert made.to_json() == plan_in_short(study(), dimension=27).to_json()


@pytest.mark.parametrize(
    ("silos", "steps", "numbers"), [(24, 40, 10**6), (6, 160, 10**6), (6, 40, 4 * 10**6)]
)
def test_p6_the_certificate_grows_with_the_root_of_all_numbers_that_are_drawn(
    silos, steps, numbers
):
    few = study()
    more = study(parties={"silos": silos}, training={"steps": steps})
    small = certificate_for(training_of(few).mechanism, few.parties, 10**6)
    large = certificate_for(training_of(more).mechanism, more.parties, numbers)
    assert large.epsilon == pytest.approx(2 * small.epsilon, rel=1e-3)


@pytest.mark.slow
def test_the_certificate_grows_with_steps_dimension_and_silos():
    base = plan_in_short(study(), dimension=1000).certificate
    for other in (
        plan_in_short(study(training={"steps": 200}), dimension=1000),
        plan_in_short(study(), dimension=10**6),
        plan_in_short(study(parties={"silos": 100}), dimension=1000),
    ):
        assert other.certificate.epsilon > base.epsilon
        assert other.certificate.slack >= base.slack
        assert other.certificate.delta_factor >= base.delta_factor >= 1


def test_the_certificate_counts_what_a_row_pays_for_to_the_end_of_its_epoch():
    """Of five steps in epochs of four, an aggregator can have eight attempts answered (P15)."""
    static = {"sampling": "without-replacement", "sample_rate": 0.25, "tokens": "static"}

    def epsilon_of(steps: int) -> float:
        one = study(training={**static, "steps": steps}, privacy={"relation": "substitute"})
        return certificate_for(training_of(one).mechanism, one.parties, 1000).epsilon

    assert epsilon_of(4) < epsilon_of(5) == epsilon_of(8) < epsilon_of(9)


def test_the_certificate_is_at_least_what_p6_asks_of_rounding_and_sampler():
    steps, dimension, silos = 200, 10**6, 6
    made = plan_in_short(study(training={"steps": steps}), dimension=dimension).certificate
    draws, unit = steps * dimension * silos, 2.0**-53
    reach = 9 * 4.0  # the smallest share that a plan allows
    eta = 2 * unit * (5 * reach + 1) * (1 + (reach + 1) / 16)
    assert made.epsilon >= 2 * draws * eta**2
    assert made.epsilon >= 2 * draws * 2 * 2.718281828 ** -((4 * pi) ** 2)
    assert 0 < made.epsilon < 0.01
    assert 0 < made.added_delta(1.0) < 1e-7


def test_the_certificate_is_paid_for_in_the_stated_epsilon():
    one = study(training={"steps": 500})
    made = plan_in_short(one, dimension=10**8)
    ideal = hubbub.epsilon(
        noise_multiplier=made.stated.noise_multiplier,
        sample_rate=0.2,
        steps=500,
        delta=1e-5,
        relation="add-remove",
    )
    assert made.certificate.epsilon > 1e-9
    assert made.stated.epsilon >= ideal.lower + made.certificate.epsilon
    assert made.stated.epsilon <= one.privacy.epsilon


def test_p4_no_mask_graph_takes_anything_of_the_promised_delta():
    parties = {"silos": 200, "colluders": 20}
    sparse = plan_in_short(study(parties=parties, privacy={"delta": 1e-12}))
    with_nodes = plan_in_short(
        study(parties={**parties, "compute_nodes": 2}, privacy={"delta": 1e-12})
    )
    assert sparse.degree < 199
    assert sparse.stated.torn == 0
    assert sparse.certificate == with_nodes.certificate


def odds_of_windows(silos: int, colluders: int, dropouts: int, degree: int) -> Fraction:
    """P4's bound by counting: of all windows of `degree` places, those with so few honest silos."""
    gone = range(max(degree - dropouts, 0), degree + 1)
    bad = sum(comb(colluders, one) * comb(silos - colluders, degree - one) for one in gone)
    return Fraction(comb(silos, 2) * bad, comb(silos, degree))


@pytest.mark.parametrize(
    ("silos", "colluders", "dropouts", "degree"),
    [
        (2, 0, 0, 1),
        (67, 5, 0, 66),
        (100, 10, 5, 99),
        (101, 5, 0, 42),
        (200, 5, 0, 52),
        (200, 5, 10, 82),
        (300, 30, 0, 58),
        (300, 30, 15, 106),
        (300, 100, 0, 102),
        (300, 101, 0, 104),  # even
        (300, 250, 45, 298),
        (300, 252, 45, 299),  # everybody with everybody
        (1000, 30, 0, 66),
        (1000, 100, 50, 224),
    ],
)
def test_p4_a_session_has_the_least_degree_of_its_rule(silos, colluders, dropouts, degree):
    parties = {"silos": silos, "colluders": colluders, "dropouts": dropouts}
    assert noise_shares.mask_degree(study(parties=parties).parties) == degree
    if silos > 100 and degree < silos - 1:
        assert degree >= colluders + dropouts + 2
        half = silos // 2, dropouts
        assert odds_of_windows(silos, *half, degree) <= Fraction(1, 2**50)
        fewer = degree - 2
        assert fewer < colluders + dropouts + 2 or (
            odds_of_windows(silos, *half, fewer) > Fraction(1, 2**50)
        )


@pytest.mark.slow_cases("counts2", "counts1")
@pytest.mark.parametrize("counts", [(101, 60, 0), (120, 30, 3), (150, 5, 15)])
def test_p4_no_colluders_chosen_once_the_graph_is_known_take_it_apart(counts):
    """All those around a silo, or around a run of silos, but for as many as the plan allows."""
    silos, colluders, dropouts = counts
    parties = {"silos": silos, "colluders": colluders, "dropouts": dropouts}
    layout = layout_of(plan_in_short(study(parties=parties)))
    links = {one: set(layout.neighbours(one, b"the seed")) for one in range(1, silos + 1)}
    circle, half = order_of(links), len(links[1]) // 2
    assert links[circle[0]] == {*circle[1 : half + 1], *circle[-half:]}
    deleted = colluders + 1 + dropouts
    for run in range(1, silos - deleted):
        for left in range(deleted + 1):
            gone = {*circle[:left], *circle[left + run : run + deleted]}
            assert is_connected({one: links[one] - gone for one in links.keys() - gone})


def order_of(links: dict[int, set[int]]) -> list[int]:
    """The silos of a circulant graph in the order of its circle: neighbours share most others."""
    order = [1]
    left = links.keys() - {1}
    while left:
        last = links[order[-1]] | {order[-1]}
        order.append(min(left, key=lambda one: (len((links[one] | {one}) ^ last), one)))
        left -= {order[-1]}
    return order


def is_connected(links: dict[int, set[int]]) -> bool:
    """Whether every silo is reached from any."""
    edge = {next(iter(links))}
    reached = set(edge)
    while edge:
        edge = set().union(*(links[one] for one in edge)) - reached
        reached |= edge
    return reached == links.keys()


@pytest.mark.parametrize(
    ("counts", "degree"),
    [
        ((100, 10, 0), 12),
        ((100, 10, 5), 16),
        ((100, 33, 0), 28),
        ((1000, 100, 0), 20),
        ((1000, 100, 50), 92),
        ((10_000, 1000, 0), 24),
    ],
)
def test_p4_degrees_for_fifty_bits(counts, degree):
    assert masks.degree(*counts) == degree


def test_p6_an_adversary_far_above_the_studys_epsilon_has_a_row():
    """The sampler's slack was sized for epsilon 10: from about 17 on every row said inf."""
    ten = study(
        parties={"silos": 10, "colluders": 3}, training={"steps": 1250, "sample_rate": 0.008}
    )
    left = shares_of(ten.parties).left(9)
    for numbers in (27, 10**6):
        found = exposure.epsilon_against(
            account(ten),
            certificate_for(training_of(ten).mechanism, ten.parties, numbers),
            1e-5,
            1250,
            1.0,
            left,
            0,
        )
        assert 24.1 < found < 24.2


def test_p4_the_degree_is_the_least_that_keeps_the_promise():
    draw = Random(7)
    for _ in range(60):
        silos = draw.randint(17, 400)
        counts = (silos, draw.randint(0, silos - 1), draw.randint(0, silos // 2))
        least = masks.degree(*counts)
        for each in range(2, silos - 1, 2):
            kept = masks.failure_bits(*counts, each) >= masks.FAILURE_BITS
            assert kept == (each >= least)


def test_p4_many_silos_of_which_many_are_missing_take_no_time():
    assert masks.degree(100_000, 30_000, 20_000) > 20_000


def survivors(silos: int, degree: int, gone: set[int]) -> Iterator[set[int]]:
    """The connected parts of what is left of a circulant graph; places are in random order."""
    left = set(range(silos)) - gone
    while left:
        part, edge = set(), {left.pop()}
        while edge:
            part |= edge
            reach = range(-(degree // 2), degree // 2 + 1)
            edge = {(one + step) % silos for one in edge for step in reach} & left
            left -= edge
        yield part


def plan_for(silos: int, promised: int, *colluding: int) -> Plan:
    """The plan of one step, with rows for so many silos."""
    one = study(
        parties={"silos": silos, "colluders": promised}, training={"steps": 1, "sample_rate": 1.0}
    )
    with mock.patch.object(exposure, "_curve", return_value=sorted({promised, *colluding})):
        return hubbub.plan(one)


@pytest.mark.slow_cases("101-3", "120-70")
@pytest.mark.parametrize(("silos", "colluders"), [(101, 3), (120, 70), (150, 0)])
def test_p4_every_row_holds_for_silos_that_tell_their_mask_keys(silos, colluders):
    made = plan_for(silos, colluders, colluders + 1, 3 * silos // 4, silos - 2)
    assert made.degree < silos - 1
    assert made.stated.torn == 0
    chance = Random(1)
    for row in made.exposures:
        told, shares = row.colluding_silos + 1, silos - row.known_shares
        if not row.colluding_silos or told >= silos:
            continue
        short = 0
        for _ in range(300):
            places = chance.sample(range(silos), told + 1)
            parts = survivors(silos, made.degree, set(places[1:]))
            short += next(len(part) for part in parts if places[0] in part) < shares
        assert short <= 300 * row.torn + 5 * sqrt(300 * row.torn)


@pytest.mark.parametrize("evaluate", [None, {"every": 1, "epsilon": 0.3}])
def test_p4_a_studys_mask_graphs_are_paid_for_once_whatever_is_asked(evaluate):
    one = study(
        parties={"silos": 20, "colluders": 3},
        training={"steps": 1, "sample_rate": 1.0} | ({"evaluate": evaluate} if evaluate else {}),
    )
    with (
        mock.patch.object(exposure, "_curve", return_value=[3, 4]),
        mock.patch.object(noise_shares, "torn_apart", return_value=1e-9),
    ):
        rows = hubbub.plan(one).exposures
    assert [row.torn for row in rows if row.colluding_silos == 4] == [1e-9]


@given(st.integers(2, 30), st.integers(2, 8), st.integers(1, 8))
def test_p4_where_silos_use_some_nodes_the_smallest_sum_is_that_of_the_honest_node(n, m, each):
    each = min(each, m)
    layout = Layout(names=tuple(map(str, range(n))), nodes=m, nodes_per_silo=each, degree=None)
    one = study(
        parties={"silos": n, "colluders": 0, "compute_nodes": m, "nodes_per_silo": each},
    )
    fewest = min(len(layout.neighbours(1 + n + node, b"")) for node in range(m))
    assert sharing_silos(one.parties) == fewest


def test_p4_a_row_that_the_graph_cannot_keep_counts_one_share_alone():
    made = plan_for(140, 3, 130)
    far = next(row for row in made.exposures if row.colluding_silos == 130)
    assert far.known_shares == 139
    assert far.noise_multiplier == pytest.approx(made.total_noise_multiplier / sqrt(140))
    near = next(row for row in made.exposures if row.colluding_silos == 3)
    assert near == made.stated
    assert near.known_shares == 4
    complete = plan_for(67, 5, 10, 60)
    assert complete.degree == 66
    known = {row.colluding_silos: row.known_shares for row in complete.exposures}
    assert (known[10], known[60]) == (11, 61)


def test_p4_the_plan_of_a_sparse_graph_says_whom_it_bears_and_when():
    made = plan_for(140, 3, 130)
    graph = made.to_dict()["mask_graph"]
    certain, likely = graph["colluders_at_any_time"], graph["colluders_before_it_is_drawn"]
    assert certain == made.degree - 2
    torn = {row.colluding_silos: row.torn for row in made.exposures}
    assert torn[certain] == 0
    assert 0 < torn[likely] <= 2.0**-40 < torn[likely + 1]
    assert likely >= 69  # half of all, the one that looks on among them
    assert "mask_graph" not in plan_for(67, 5).to_dict()


def test_p4_the_plan_in_words_says_whom_the_graph_bears(capsys, monkeypatch):
    monkeypatch.setattr(terminal._out, "width", 300)
    made = plan_for(140, 3)
    likely = made.to_dict()["mask_graph"]["colluders_before_it_is_drawn"]
    show_plan(made)
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert f"shares masks (without compute nodes) {made.degree} " in shown
    assert f"if they were corrupted before it was drawn {likely} " in shown
    show_plan(plan_for(67, 5))
    assert "mask graph" not in capsys.readouterr().out


NOTHING_ADDED = Certificate()
MUCH_ADDED = Certificate(epsilon=0.05, failure=2e-6, delta_factor=1.2)
EVERY_KIND = [
    study(parties={"compute_nodes": 2}),
    study(training={"sampling": "without-replacement"}, privacy={"relation": "substitute"}),
    study(training={"projection": 8, "sample_rate": 0.05}, privacy={"relation": "substitute"}),
]


@pytest.mark.slow
@pytest.mark.parametrize("one", EVERY_KIND)
def test_the_certificate_is_added_to_every_exposure_and_at_every_step(one):
    with mock.patch.object(planned_query, "certificate_for", return_value=MUCH_ADDED):
        made = plan_in_short(replace(one, name="much added"))
    mechanism, ideal = account(one), (one.privacy.delta - 2e-6) / 1.2
    for row in made.exposures:
        steps = one.training.steps
        whole = releases(mechanism, row.noise_multiplier, steps, row.known_records)
        assert row.epsilon == pytest.approx(Composition(whole).epsilon(ideal).upper + 0.05)
    known = made.stated.known_records
    after = Composition(releases(mechanism, made.stated.noise_multiplier, 7, known))
    assert made.epsilon_after(7) == pytest.approx(after.epsilon(ideal).upper + 0.05)
    assert made.stated.epsilon <= one.privacy.epsilon


def test_what_the_certificate_adds_is_paid_for_with_noise():
    one = study()
    with mock.patch.object(planned_query, "certificate_for", return_value=NOTHING_ADDED):
        ideal = plan_in_short(replace(one, name="nothing added"))
    with mock.patch.object(planned_query, "certificate_for", return_value=MUCH_ADDED):
        dear = plan_in_short(replace(one, name="much added"))
    assert ideal.noise_multiplier < plan_in_short(one).noise_multiplier * (1 + 1e-3)
    assert dear.noise_multiplier > 1.03 * ideal.noise_multiplier


def test_p20_what_finite_precision_adds_is_part_of_what_a_patient_is_promised():
    """For a patient with several records, of which each is a unit, as for a record."""
    one = study(data={"most_per_patient": 3}, training={"steps": 5})
    with mock.patch.object(planned_query, "certificate_for", return_value=MUCH_ADDED):
        made = plan_in_short(replace(one, name="much added"))
    ideal = (one.privacy.delta - 2e-6) / 1.2
    whole = releases_of_units(account(one), made.stated.noise_multiplier, 5, 3)
    promised = Composition(whole).epsilon(ideal).upper + 0.05
    assert made.patient.epsilon == pytest.approx(promised)


EVALUATED = {"steps": 4, "sample_rate": 1.0, "evaluate": {"every": 1, "epsilon": 0.5}}


def test_p16_a_query_beside_the_training_is_paid_out_of_the_epsilon_of_the_study():
    made = plan_in_short(study(training=EVALUATED))
    (scores,) = made.beside
    training = hubbub.Step(
        noise_multiplier=made.stated.noise_multiplier, sampling="full-batch", count=4
    )
    beside = hubbub.Step(
        noise_multiplier=scores.mechanism.noise_multiplier,
        sampling="full-batch",
        count=scores.mechanism.steps,
    )
    alone, together = (
        hubbub.composed_epsilon(steps, delta=1e-5) for steps in ([training], [training, beside])
    )
    assert alone.upper < 0.95
    assert 0.999 < together.upper <= 1.0


def test_p16_the_attack_power_of_a_plan_is_that_of_all_queries_together():
    """Gaussian sums are one Gaussian test: its best power is known, and no bound is below it."""
    made = plan_in_short(study(training=EVALUATED))
    (scores,) = made.beside
    noises = (made.stated.noise_multiplier, scores.mechanism.noise_multiplier)
    apart = sqrt(sum(4 / noise**2 for noise in noises))
    best = float(ndtr(ndtri(0.01) + apart))
    assert best <= made.attack_power <= 1.1 * best


def test_p3_whoever_knows_more_shares_knows_more_of_every_query():
    with mock.patch.object(exposure, "_curve", return_value=[2, 4]):
        made = hubbub.plan(study(training=EVALUATED))
    (scores,), far = made.beside, made.exposures[-1]
    left = far.noise_multiplier / made.noise_multiplier
    assert (far.colluding_silos, left) == (4, pytest.approx(sqrt(1 / 3)))
    training, beside = (
        hubbub.Step(noise_multiplier=noise * left, sampling="full-batch", count=4)
        for noise in (made.noise_multiplier, scores.noise_multiplier)
    )
    whole = hubbub.composed_epsilon([training, beside], delta=1e-5)
    assert whole.lower <= far.epsilon <= whole.upper * 1.001


def test_p6_what_is_sent_has_a_factor_in_delta_and_twice_its_exponent_in_epsilon():
    mechanism = training_of(study(training={"steps": 10**6})).mechanism
    found = certificate_for(mechanism, study().parties, 10**7)
    exponent = log(found.delta_factor)
    assert exponent > 1e-5
    assert found.epsilon == pytest.approx(2 * exponent, rel=1e-9)


def test_p16_the_finite_precision_of_every_query_is_paid():
    made = plan_in_short(study(training=EVALUATED))
    alone = plan_in_short(study(training={"steps": 4, "sample_rate": 1.0}))
    (scores,) = made.beside
    assert scores.certificate.epsilon > 0
    assert made.certificate == alone.certificate.after(scores.certificate)


# Joint batches and malicious silos (P10) ---------------------------------------------------------


def joint(**training):
    """A study whose batches are drawn without replacement."""
    return study(
        data={"records": 5000},
        training={"sampling": "without-replacement", "sample_rate": 0.02, **training},
        privacy={"relation": "substitute"},
    )


@pytest.mark.slow
def test_p10_the_exposures_charge_what_each_adversary_knows_of_a_joint_batch():
    made = plan(joint())
    known = {row.adversary: row.known_records for row in made.exposures}
    assert known["outsider (published results)"] == known["aggregator"] == 0
    assert known["one silo"] == 834  # a sixth, rounded up
    assert made.stated.known_records == 2500  # two that collude and one that looks on
    assert made.exposures[-1].known_records == 4167  # the sixth silo's records are never known
    exact = hubbub.malicious_epsilon(
        records=5000, batch=100, malicious=2500, noise_multiplier=made.stated.noise_multiplier,
        steps=40, delta=1e-5,
    )  # fmt: skip
    assert exact.lower <= made.stated.epsilon <= 1.0
    assert made.stated.epsilon <= exact.upper * 1.001  # gathered into cells, on the dear side


def test_p9_an_epoch_that_was_begun_is_charged_whole():
    thirds = Account(
        sampling="full-batch", sample_rate=1.0, relation="substitute", records=100, epoch=3
    )
    charged = [releases(thirds, 2.0, steps)[0].count for steps in (1, 3, 4, 6, 7)]
    assert charged == [1, 1, 2, 2, 3]


def test_p10_noise_is_found_for_who_owns_the_observers_records_too():
    """Two colluders and the silo that looks on own half of the records of six."""
    with mock.patch.object(planning.accounts, "least_noise", return_value=4.0) as asked:
        made = plan_in_short(joint(steps=3))
    assert [call.args[2] for call in asked.call_args_list] == [2500]
    assert made.stated.known_records == 2500


def test_p10_of_silos_whose_records_are_counted_those_with_the_most_collude():
    with mock.patch.object(planning.accounts, "least_noise", return_value=4.0):
        made = plan_in_short(joint(steps=3))
    mechanism = replace(made.mechanism, counts=(700, 2000, 100, 1000, 200, 1000))
    owned = [exposure.owned_records(mechanism, made.study.parties, many) for many in range(7)]
    assert owned == [0, 2000, 3000, 4000, 4700, 4900, 4900]


@pytest.mark.slow
def test_p10_the_plan_says_what_poisson_sampling_would_save():
    made = plan(joint())
    found = made.joint_batches
    assert found.known_records == 2500
    poisson = plan_in_short(
        replace(joint(), training=replace(joint().training, sampling="poisson"))
    )
    assert found.noise_poisson == pytest.approx(poisson.noise_multiplier, rel=1e-3)
    saved = round(100 * (1 - poisson.noise_multiplier / made.noise_multiplier))
    (said,) = made.warnings
    assert saved >= 5
    assert f"{saved} % smaller" in said
    assert found.epsilon_poisson < found.epsilon_nobody < found.epsilon < found.epsilon_slack
    assert made.to_dict()["without_replacement"]["epsilon_slack"] == found.epsilon_slack
    assert poisson.joint_batches is None
    assert poisson.to_dict()["without_replacement"] is None


def test_p10_the_slack_is_paid_in_every_step():
    with mock.patch.object(exposure, "_curve", lambda parties: [parties.colluders]):
        made = hubbub.plan(joint())
    bound = hubbub.malicious_epsilon(
        records=5000, batch=100, malicious=2500, noise_multiplier=made.stated.noise_multiplier,
        steps=40, delta=1e-5, slack=made.joint_batches.slack,
    )  # fmt: skip
    assert made.joint_batches.slack * 40 == pytest.approx(1e-6, rel=1e-2)
    assert made.joint_batches.epsilon_slack == pytest.approx(bound.upper, rel=1e-3)
    *_, stated = made.joint_batches.colluders
    assert (stated.known_records, stated.epsilon) == (2500, made.stated.epsilon)
    assert stated.epsilon_poisson == pytest.approx(made.joint_batches.epsilon_poisson, rel=1e-3)


# Projection (P8) -------------------------------------------------------------------------------


def test_p8_one_vector_is_charged_exactly():
    made = plan_in_short(study(training={"projection": 5}))
    assert account_of(made.mechanism).projected.exact
    bound = hubbub.projected_epsilon(
        dimension=5, noise_multiplier=made.stated.noise_multiplier, sample_rate=0.2, steps=40,
        delta=1e-5,
    )  # fmt: skip
    assert bound.lower <= made.stated.epsilon <= 1.0
    assert bound.upper == pytest.approx(made.stated.epsilon, rel=1e-4)
    assert made.epsilon("outsider (published results)") < made.epsilon("one silo") < 1.0
    assert made.to_dict()["projection"]["exact"] is True


@pytest.mark.slow
def test_p8_without_sampling_an_exchange_is_one_vector_of_twice_the_length():
    training = {"sampling": "full-batch", "sample_rate": 1.0, "steps": 5, "projection": 5}
    one = plan_in_short(study(training=training))
    two = plan_in_short(study(training=training, privacy={"relation": "substitute"}))
    assert account_of(one.mechanism).projected == account_of(two.mechanism).projected
    assert two.noise_multiplier == pytest.approx(2 * one.noise_multiplier, rel=1e-3)


@pytest.mark.slow
def test_p8_where_three_distances_matter_the_slack_is_paid_three_times_in_every_step():
    steps = 4
    joint = {"sampling": "without-replacement", "sample_rate": 0.02, "steps": steps}
    one = study(training={"projection": 9, **joint}, privacy={"relation": "substitute"})
    made = plan_in_short(one)
    how = account_of(made.mechanism).projected
    assert not how.exact
    assert 0 < steps * how.slack < 0.5001e-5
    assert how.factor == pytest.approx(hubbub.projection_bound(dimension=9, delta=how.slack / 3))
    # By hand: the plain account for C~ at what is left of delta.
    left = made.certificate.ideal_delta(1e-5, 1.0) - steps * how.slack
    plain = replace(account(one), projected=None)
    noise = made.stated.noise_multiplier / how.factor
    by_hand = Composition(releases(plain, noise, steps, made.stated.known_records)).epsilon(left)
    assert by_hand.lower <= made.stated.epsilon <= by_hand.upper * 1.001 + made.certificate.epsilon
    without = releases(plain, made.stated.noise_multiplier / 1.5, steps, made.stated.known_records)
    assert Composition(without).epsilon(left).upper < 1.0  # with less noise, were nothing projected


@pytest.mark.slow
def test_p8_under_substitution_the_mixture_is_cheaper_than_a_bound_with_slack():
    one = study(training={"projection": 9}, privacy={"relation": "substitute"})
    made, mechanism = plan_in_short(one), account(one)
    bound = RandomProjection(kind="gaussian", dimension=9).bounded(events=2, steps=40, delta=1e-5)
    bounded = releases(replace(mechanism, projected=bound), made.stated.noise_multiplier, 40)
    assert account_of(made.mechanism).projected.slack == 0 < bound.slack
    assert Composition(bounded).epsilon(1e-5).lower > 1.2 * made.stated.epsilon


def test_p8_the_exact_account_is_never_dearer_than_any_split_of_delta():
    exact = hubbub.projected_epsilon(
        dimension=10, noise_multiplier=2.1, sample_rate=0.02, steps=50, delta=1e-5
    )
    for share in (0.01, 0.1, 0.5):
        factor = hubbub.projection_bound(dimension=10, delta=share * 1e-5 / 50)
        bound = hubbub.epsilon(
            noise_multiplier=2.1 / factor, sample_rate=0.02, steps=50, delta=(1 - share) * 1e-5
        )
        assert exact.upper < bound.lower


@pytest.mark.parametrize("kind", ["gaussian", "sign"])
def test_p8_the_split_of_delta_is_near_the_best(kind):
    how = RandomProjection(kind=kind, dimension=20).bounded(events=3, steps=40, delta=1e-5)
    ours = hubbub.epsilon(
        noise_multiplier=3 / how.factor, sample_rate=0.1, steps=40, delta=1e-5 - 40 * how.slack,
        relation="substitute",
    )  # fmt: skip
    for share in (0.003, 0.01, 0.03, 0.1, 0.3):
        factor = hubbub.projection_bound(dimension=20, delta=share * 1e-5 / 120, kind=kind)
        other = hubbub.epsilon(
            noise_multiplier=3 / factor, sample_rate=0.1, steps=40, delta=(1 - share) * 1e-5,
            relation="substitute",
        )  # fmt: skip
        assert ours.lower < 1.01 * other.upper


@pytest.mark.slow
def test_a_projection_sends_its_own_numbers_and_is_certified_for_them():
    whole = plan_in_short(study(), dimension=10**6)
    made = plan_in_short(study(training={"projection": 400}), dimension=10**6)
    assert (made.dimension, made.main.numbers_sent, whole.main.numbers_sent) == (10**6, 400, 10**6)
    link = LINK_BYTES + OVERHEAD  # of the joint seed
    assert made.upload_bytes_per_step == 400 * made.word_bits // 8 + 32 + OVERHEAD + link
    assert made.certificate.epsilon < whole.certificate.epsilon
    # A projected coordinate of m aligned records is Gaussian with deviation m C / sqrt(k).
    room = 2.0 ** (made.word_bits - 1) - 12 * made.main.share_sigma_grid * sqrt(6)
    deviation = made.main.sum_limit * made.mechanism.clip / made.main.grid_step / sqrt(400)
    assert 12 * deviation < room


@pytest.mark.parametrize("k", [1, 11])
def test_a_projection_that_cannot_be_is_refused(k):
    with pytest.raises(StudyError, match=rf"training.projection.*2 to 10.*got {k};"):
        plan(study(training={"projection": k}))


# What else follows -----------------------------------------------------------------------------


def test_epsilon_so_far_grows_to_the_stated_epsilon():
    made = plan_in_short(study())
    spent = [made.epsilon_after(step) for step in (1, 10, 39, 40)]
    assert spent == sorted(spent)
    assert 0 < spent[0] < spent[-1] == made.stated.epsilon


@pytest.mark.parametrize("colluders", [0, 3])
def test_with_tees_the_noise_is_shared_by_all_and_the_promise_holds(colluders):
    made = plan_in_short(study(parties={"trust": "tee", "colluders": colluders}))
    assert made.stated.epsilon <= 1.0
    assert made.main.shares == 6
    assert made.stated.epsilon == made.epsilon("aggregator")
    broken = made.exposures[-1]
    assert broken.adversary.endswith("no enclave holding")
    assert broken.epsilon > made.stated.epsilon


def test_warnings_name_what_a_reader_should_know():
    one = study(
        parties={"colluders": 0, "compute_nodes": 1},
        data={"records": 0},
        privacy={"epsilon": 20.0},
    )
    said = " ".join(plan_in_short(one).warnings)
    for key in ("colluders = 0", "compute_nodes = 1", "data.records", "epsilon = 20"):
        assert key in said
    assert "delta" in " ".join(plan_in_short(study(privacy={"delta": 1e-3})).warnings)
    assert plan_in_short(study(data={"capacity": 5000})).warnings == ()


@pytest.mark.parametrize(("epsilon", "warned"), [(1.0, True), (8.0, False)])
def test_a_plan_says_that_a_table_is_too_wide_for_its_epsilon(epsilon, warned):
    wide = study(
        data={"records": 5000, "capacity": 5000},
        model={"kind": "logistic", "inputs": [200], "outputs": 1},
        privacy={"epsilon": epsilon},
    )
    said = " ".join(plan_in_short(wide).warnings)
    assert ("200 weights are many for 5000 records" in said) == warned
    assert ("Leave out columns" in said) == warned


def test_p19_the_plan_says_where_no_capacity_is_stated():
    """Records of one's own alone: built-in data and joint batches have public numbers."""

    def said(**data):
        own = {"source": "python:somewhere:records", "records": 740, **data}
        return [one for one in plan_in_short(study(data=own)).warnings if "data.capacity" in one]

    (words,) = said()
    assert "epsilon does not cover one" in words
    assert said(capacity=300) == []


def test_the_json_holds_the_promised_keys_and_no_infinity():
    made = plan(study())
    table = made.to_dict()
    for key in ("noise_multiplier", "share_sigma", "word_bits", "upload_bytes_per_step", "epsilon"):
        assert key in table
    for row in table["epsilon"]:
        assert {"adversary", "colluding_silos", "epsilon"} <= row.keys()
        assert row["epsilon"] != inf
    assert "Infinity" not in made.to_json()
    assert table["study_id"] == made.study.id.hex()


def test_p13_no_epsilon_is_claimed_where_a_sum_beside_the_training_has_hardly_any_noise() -> None:
    training = Mechanism(
        purpose="training",
        relation="add-remove",
        delta=1e-5,
        steps=10,
        clip=1.0,
        noise_multiplier=1.0,
    )
    beside = replace(training, purpose="evaluation", steps=1, noise_multiplier=1e-4)
    account = account_of(training)
    told = epsilon_against(account, EXACT, 1e-5, 10, 1.0, 1.0, 0, beside=(beside,))
    assert told == inf
