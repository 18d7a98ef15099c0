"""What follows from a mechanism's numbers alone: batches, epochs, and how many sums are due."""

from __future__ import annotations

from functools import partial
from math import exp

import pytest

import hubbub
from hubbub.core.errors import StudyError
from hubbub.core.planning.accounts import (
    Account,
    account_of,
    epsilon_of,
    least_certified,
    releases,
)
from hubbub.core.planning.exposure import Exposure
from hubbub.core.planning.mechanism import Mechanism, joint_batch
from hubbub.core.planning.noise_correlation import least_noise
from hubbub.core.planning.planned_query import largest_batch
from hubbub.core.planning.random_projection import RandomProjection
from hubbub.core.planning.study_plan import _power
from hubbub.core.privacy.accountant import Composition
from hubbub.core.privacy.certificate import EXACT, Certificate
from hubbub.core.privacy.dominating_pairs import LEAST_SAMPLED_NOISE, Step, release
from hubbub.core.privacy.laws import Law, Removal

USUAL = {"purpose": "sums", "relation": "substitute", "delta": 1e-5}
JOINT = {**USUAL, "sampling": "without-replacement", "sample_rate": 0.1, "records": 30}


@pytest.mark.parametrize(
    ("rate", "records", "batch"), [(0.07, 100, 7), (0.07, 101, 8), (0.7, 10, 7), (1.0, 9, 9)]
)
def test_p10_a_joint_batch_is_rounded_up_and_not_for_the_last_digit_of_a_float(
    rate: float, records: int, batch: int
) -> None:
    assert joint_batch(rate, records) == batch


@pytest.mark.parametrize(
    ("tokens", "served", "epoch", "rows"),
    [("per-step", 1, 1, 24), ("per-epoch", 10, 10, 3), ("static", 24, 10, 3)],
)
def test_p9_a_list_serves_what_the_study_says_and_a_row_pays_for_an_epoch_of_it(
    tokens: str, served: int, epoch: int, rows: int
) -> None:
    mechanism = Mechanism(**JOINT, steps=24, tokens=tokens)
    assert (mechanism.attempts_per_list, mechanism.epoch, mechanism.rows) == (served, epoch, rows)
    assert Mechanism(**USUAL, steps=24).attempts_per_list == 0
    uneven = Mechanism(**{**JOINT, "records": 31}, steps=24, tokens=tokens)
    assert uneven.epoch == (1 if tokens == "per-step" else 8)  # seven parts of 4, and one of 3


@pytest.mark.parametrize("every", [1, 3, 4])
def test_p16_sums_that_were_asked_for_early_are_counted_in_an_account_that_has_them(
    every: int,
) -> None:
    mechanism = Mechanism(**USUAL, steps=5, every=every)
    for sums in range(1, 6):
        step = mechanism.due_after(sums)
        assert mechanism.due_by(step) == sums
        assert mechanism.due_by(step - 1) == sums - 1
    assert mechanism.due_by(99) == 5
    waiting_for_none = Mechanism(**USUAL, steps=5)
    assert (waiting_for_none.due_after(5), waiting_for_none.due_by(0)) == (0, 5)


def test_p13_nothing_is_certified_below_the_least_noise_of_the_longest_projection() -> None:
    projected = RandomProjection(kind="sign", dimension=9)
    account = account_of(Mechanism(**JOINT, steps=4, projection=projected))
    assert account.projected is not None
    assert account.projected.factor > 1
    assert least_certified(account) == LEAST_SAMPLED_NOISE * account.projected.factor
    assert least_certified(account_of(Mechanism(**JOINT, steps=4))) == LEAST_SAMPLED_NOISE


@pytest.mark.parametrize(("records", "fits"), [(2**20, True), (2**32, False)])
def test_p8_a_plan_refuses_batches_that_are_too_long_for_its_projection(
    records: int, *, fits: bool
) -> None:
    mechanism = Mechanism(
        **USUAL, steps=4, records=records, projection=RandomProjection(kind="sign", dimension=9)
    )
    assert mechanism.projection is not None
    check = partial(mechanism.projection.check, 100, mechanism.clip, largest_batch(mechanism))
    if fits:
        check()
        return
    with pytest.raises(StudyError, match="expected sums that fit a grid"):
        check()


def test_p4_what_an_adversary_sees_if_a_graph_is_torn_is_part_of_its_certificate() -> None:
    row = Exposure(
        adversary="a", colluding_silos=9, known_shares=9, noise_multiplier=2, epsilon=1, torn=1e-9
    )
    made = row.certified(Certificate(epsilon=0.1, failure=1e-8))
    assert (made.epsilon, made.failure) == (0.1, pytest.approx(1.1e-8, rel=1e-9, abs=0))


def test_p25_an_epoch_of_correlated_noise_that_is_begun_needs_noise_for_all_of_it() -> None:
    asked = {"rate": 0.01, "epsilon": 1.0, "delta": 1e-5, "relation": "add-remove"}
    found = [least_noise(4, steps, **asked) for steps in (8, 9, 12)]
    assert found[0] < found[1] == found[2]
    alone = hubbub.noise_multiplier(sample_rate=0.04, steps=2, epsilon=1.0, delta=1e-5)
    assert found[0] == pytest.approx(alone, rel=1e-3)


def test_p23_a_diameter_is_of_sums_over_everybody_alone() -> None:
    def shift(sampling: str, rate: float, diameter: float) -> tuple[Law, ...]:
        account = Account(
            sampling=sampling,
            sample_rate=rate,
            relation="substitute",
            records=30,
            diameter=diameter,
        )
        return releases(account, 4.0, 1)[0].laws

    (near,), (usual,) = (shift("full-batch", 1.0, apart) for apart in (0.5, 2.0))
    assert isinstance(near, Removal)
    assert isinstance(usual, Removal)
    assert (near.shift, usual.shift) == (0.125, 0.5)
    assert shift("poisson", 0.1, 0.5) == shift("poisson", 0.1, 2.0)
    assert shift("without-replacement", 0.1, 0.5) == shift("without-replacement", 0.1, 2.0)


def test_p13_no_epsilon_past_50_is_told() -> None:
    beyond = release(Step(noise_multiplier=0.105, sample_rate=0.5), "add-remove")
    assert 50 < Composition([beyond]).epsilon(0.1).upper < 60
    assert epsilon_of([beyond], 0.1) is None


def test_p6_what_finite_precision_adds_is_part_of_what_an_attack_may_find() -> None:
    beside = (release(Step(noise_multiplier=4.0, sampling="full-batch"), "add-remove"),)
    ideal, sent = (_power(beside, one) for one in (EXACT, Certificate(epsilon=0.5)))
    assert sent == pytest.approx(ideal * exp(0.5), rel=0.1)


@pytest.mark.parametrize("sampling", ["poisson", "without-replacement"])
def test_p13_sampled_steps_with_hardly_any_noise_have_no_epsilon(sampling: str) -> None:
    step = hubbub.Step(noise_multiplier=0.029, sample_rate=0.5, sampling=sampling)
    with pytest.raises(StudyError, match="expected noise_multiplier of at least"):
        hubbub.composed_epsilon([step], delta=1e-5, relation="substitute")
