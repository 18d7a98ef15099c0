"""Which account a projection has, by what is sampled and who are neighbours (P8)."""

from __future__ import annotations

import pytest

from hubbub.core.planning.random_projection import (
    BOUNDED,
    EXACT,
    LONGER,
    UNPROJECTED,
    Projected,
    RandomProjection,
)
from hubbub.core.privacy.dominating_pairs import Release, Step, release, with_slack
from hubbub.core.privacy.laws import Enclosed, Removal, Reversed, with_missing
from hubbub.core.privacy.projected_step import projection_factor

STEPS, DELTA, NUMBERS = 4, 1e-5, 9
ACCOUNTS = [
    ("full-batch", "add-remove", EXACT, LONGER),
    ("full-batch", "substitute", EXACT, LONGER),
    ("poisson", "add-remove", EXACT, LONGER),
    ("poisson", "substitute", LONGER, LONGER),
    ("without-replacement", "add-remove", BOUNDED, BOUNDED),
    ("without-replacement", "substitute", BOUNDED, BOUNDED),
]


def charged(kind: str, sampling: str, relation: str) -> Projected:
    """As a plan charges it."""
    projection = RandomProjection(kind=kind, dimension=NUMBERS)
    return projection.charged(sampling, relation, STEPS, DELTA)


@pytest.mark.parametrize(("sampling", "relation", "gaussian", "sign"), ACCOUNTS)
def test_p8_a_projection_is_charged_exactly_only_where_one_vector_decides(
    sampling: str, relation: str, gaussian: str, sign: str
) -> None:
    for kind, account in (("gaussian", gaussian), ("sign", sign), ("layers", UNPROJECTED)):
        how = charged(kind, sampling, relation)
        assert (how.kind, how.dimension, how.account) == (kind, NUMBERS, account)
        if account != BOUNDED:
            assert (how.factor, how.slack) == (1.0, 0.0)


@pytest.mark.parametrize("kind", ["gaussian", "sign"])
@pytest.mark.parametrize(("relation", "events"), [("add-remove", 1), ("substitute", 3)])
def test_p8_slack_is_for_every_vector_that_may_be_longer_in_every_step(
    kind: str, relation: str, events: int
) -> None:
    """Under substitution those of the two records and of their difference."""
    how = charged(kind, "without-replacement", relation)
    assert 0 < STEPS * how.slack < DELTA
    assert how.factor == projection_factor(NUMBERS, how.slack / events, kind)
    asked = []

    def plain(noise: float) -> Release:
        asked.append(noise)
        return release(Step(noise_multiplier=noise, sample_rate=0.5, count=STEPS), relation)

    found = how.release(2.0, Step(noise_multiplier=2.0, count=STEPS), relation, plain)
    assert asked == [2.0 / how.factor]
    assert [law.missing for law in found.laws] == [how.slack] * len(found.laws)
    assert found.count == STEPS


@pytest.mark.parametrize(("sampling", "relation", "gaussian", "sign"), ACCOUNTS)
def test_p8_a_ledgers_row_is_charged_for_what_its_plan_was(
    sampling: str, relation: str, gaussian: str, sign: str
) -> None:
    for kind in ("gaussian", "sign", "layers"):
        first = charged(kind, sampling, relation)
        projection = RandomProjection(kind=kind, dimension=NUMBERS)
        again = projection.charged_again(sampling, relation, first.factor, first.slack)
        if first.account != BOUNDED or relation == "substitute":
            assert again == first
        else:  # the bound of signs needs no slack
            assert (again.account, again.factor, again.slack) == (LONGER, 1.0, 0.0)


def test_p8_an_exchange_of_what_is_not_sampled_is_one_vector_of_twice_the_length() -> None:
    how = charged("gaussian", "full-batch", "substitute")
    step = Step(noise_multiplier=6.0, sampling="full-batch", count=STEPS)
    plain = lambda _: pytest.fail("nothing is charged as if it were not projected")  # noqa: E731
    exchanged = how.release(6.0, step, "substitute", plain)
    assert exchanged == how.release(3.0, step, "add-remove", plain)
    assert exchanged.count == STEPS


def test_p8_slack_is_added_to_every_law_of_a_step_and_to_the_side_that_dominates() -> None:
    law = Removal(rate=0.5, shift=1.0)
    both = Enclosed(above=law, below=Removal(rate=0.5, shift=0.9))
    for one in (law, Reversed(law=law), both):
        once = with_missing(one, 1e-6)
        assert once.missing == 1e-6
        assert with_missing(once, 1e-6).missing == 2e-6
    assert with_missing(both, 1e-6).below == both.below
    two = with_slack(Release(laws=(law, Reversed(law=law)), count=3), 1e-6)
    assert [one.missing for one in two.laws] == [1e-6, 1e-6]
    assert two.count == 3
