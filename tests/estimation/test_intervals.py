"""Noise in the errors of shares, tests and rates: what intervals are made of, in closed form."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2_contingency

from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Levels
from hubbub.estimation import cox, intervals
from hubbub.estimation.baseline_table import Table
from hubbub.estimation.crosstab import Crosstab
from hubbub.estimation.effects import Effects, Root, sandwich, told
from hubbub.estimation.incidence import _Incidence
from hubbub.estimation.newton_sums import EntryNoise, Scored, Together, near_root
from hubbub.estimation.quantiles import rank_test
from hubbub.estimation.rates import _Rate
from hubbub.estimation.statistic import TOO_FEW, group_sums

Array = NDArray[np.float64]


def test_p23_parts_of_a_records_information_are_together_no_longer_than_what_is_shared() -> None:
    assert cox._GATHERED**2 + cox._CROSS**2 + cox._SQUARES**2 <= 1


def test_the_sum_of_groups_has_the_noise_of_all_of_them() -> None:
    by = Levels(column=Column(name="site", categories=("a", "b", "c", "d")))
    whole, *groups = group_sums(np.arange(8.0), by, 3.0)
    assert (whole[0], whole[1].tolist(), whole[2]) == ("", [12.0, 16.0], 6.0)
    assert [(name, noise) for name, _, noise in groups] == [(one, 3.0) for one in "abcd"]
    assert [noise for *_, noise in group_sums(np.arange(2.0), None, 3.0)] == [3.0]


def test_a_share_is_uncertain_by_the_noise_of_part_and_whole_and_by_chance() -> None:
    sums, part, whole = np.array([30.0, 70.0]), np.array([1.0, 0.0]), np.ones(2)
    found = intervals.share(sums, part, whole, 4.0, 1.96)
    # Of part - p whole: (1 - p) and -p times the noise of the two numbers.
    noise = 16.0 * (0.7**2 + 0.3**2)
    assert found.value == 0.3
    assert found.standard_error == pytest.approx(sqrt(noise + 100 * 0.3 * 0.7) / 100)


def test_a_test_of_independence_allows_for_noise_in_every_cell() -> None:
    counts = np.array([[30.0, 20.0], [20.0, 30.0]])
    plain = intervals.independence(counts, np.zeros((4, 4))).statistic
    assert plain == pytest.approx(chi2_contingency(counts, correction=False).statistic)
    # Each cell varies by 25 of chance, and as much again of noise.
    noisy = intervals.independence(counts, 25.0 * np.eye(4)).statistic
    assert noisy == pytest.approx(plain / 2)


def test_a_test_of_ranks_allows_for_the_noise_of_every_count() -> None:
    counts = np.array([[40.0, 30.0, 30.0], [30.0, 30.0, 40.0]])
    plain, noisy = (rank_test(counts, np.eye(3), sigma).statistic for sigma in (0.0, 3.0))
    ranks = np.array([35.0, 100.0, 165.0]) / 200  # of the middle of each bin, among all
    apart = ranks - 0.5
    chance = np.array([70, 60, 70]) @ apart**2 / 199 * 200 / 4
    assert plain / noisy == pytest.approx(1 + 9.0 * (apart @ apart) / 2 / chance)


def test_a_rate_is_uncertain_by_the_noise_of_its_time_too() -> None:
    rate = _Rate("all", 400.0, 50.0, 2.0)
    alone = rate.logarithm[1]
    longer = _Rate("all", 400.0, 1e9, 2.0).logarithm[1]
    assert alone - longer == pytest.approx(4.0 / 50.0**2, rel=1e-3)


def test_effects_whose_information_is_hardly_above_the_noise_are_told_with_more_care() -> None:
    root = Root(np.zeros(1), np.array([[100.0]]))
    found = sandwich(root, np.array([[50.0]]), lambda _: np.array([0.01 / 3]), least=2.0)
    (wider,) = intervals.caution(np.array([1.0]))
    assert wider > 1.2
    assert found.covariance[0, 0] == pytest.approx(0.01 + 0.01 * 50 * 0.01 * wider**2)
    assert found.sampling[0] == pytest.approx(0.01)
    usual = sandwich(root, np.array([[50.0]]), lambda _: np.array([0.01 / 3]))
    assert usual.clear[0] == pytest.approx(3 / 2)


def test_effects_too_far_from_where_their_sums_were_taken_are_not_told() -> None:
    ones = np.ones(2)
    effects = Effects(
        values=ones, covariance=0.01 * np.eye(2), clear=9 * ones, sampling=0.01 * ones
    )
    assert told(effects) == [0, 1]
    assert told(replace(effects, far=np.array([True, False]))) == [1]


def test_what_curvature_may_move_an_effect_by_is_in_its_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Scored(np.zeros(1), np.ones(1), np.array([[100.0]]), np.eye(1), 1e-9, 100.0)
    found = []
    for bent in (0.0, 0.02):
        monkeypatch.setattr(Together, "bent", lambda *_, bent=bent: np.array([bent]))
        root = near_root([one], EntryNoise(turned=np.eye(1)), 0, np.array([True]), np.ones(1))
        assert root is not None
        found.append(root.covariance[0, 0])
    assert found[1] - found[0] == pytest.approx(0.02**2)


def test_effects_of_several_sums_are_uncertain_by_the_noise_of_their_information() -> None:
    def scored(at: float, blur: float) -> Scored:
        information, noise = np.array([[100.0]]), np.array([[1.0]])
        return Scored(np.array([at]), np.array([10.0]), information, noise, blur, 100.0)

    alone = EntryNoise(turned=np.eye(1))
    for blur in (1e-9, 4.0):
        joint = Together((scored(0.0, blur), scored(0.4, blur)), alone)
        found = joint.effects
        assert found is not None
        # Each sum's information leads by half of its way to the root, the last one's by both.
        first, last = joint.apart[:, 0] / 4
        noise = 0.5 + blur**2 * (first**2 + (last + (first + last)) ** 2)
        wider = intervals.caution(3.0 * found.clear - 3.0)[0]
        assert found.covariance[0, 0] == pytest.approx(0.01 + 1e-4 * noise * wider**2)


def incidence(events: Array, risk: Array) -> Any:
    """Of the first of two causes, in three bins."""
    sets = SimpleNamespace(exposed=np.eye(3), events_of=lambda _: np.zeros((3, 3)))
    course: Any = SimpleNamespace(
        length=3, by_kind=events, entered=risk, sets=sets, sigma=2.0, wider=np.full(3, 1.5)
    )
    return _Incidence(course, 0)


def test_incidence_moves_with_every_count_as_its_variance_says() -> None:
    events, risk = np.array([[9.0, 7.0, 5.0], [4.0, 6.0, 8.0]]), np.array([100.0, 80.0, 60.0])
    by_events, by_risk = incidence(events, risk)._gradients
    for place in range(3):
        step = 1e-5 * np.eye(3)[place]
        moved = incidence(events, risk + step)._raw - incidence(events, risk - step)._raw
        assert moved / 2e-5 == pytest.approx(by_risk[:, place], abs=1e-8)
        for cause in range(2):
            more = np.outer(np.eye(2)[cause], step)
            moved = incidence(events + more, risk)._raw - incidence(events - more, risk)._raw
            assert moved / 2e-5 == pytest.approx(by_events[cause][:, place], abs=1e-8)
    # Of these rows alone, with the caution of who is at risk.
    noise = (2.0 * 1.5) ** 2 * np.sum(by_risk**2, axis=1)
    assert incidence(events, risk).noise == pytest.approx(noise)


def test_a_test_of_changing_effects_allows_for_the_noise_of_every_bin() -> None:
    def noise(effects: Array, weights: Array) -> Array:
        return np.asarray(9.0 * np.sum(weights**2, axis=0))

    stratum = SimpleNamespace(
        bins=2,
        total=np.full(2, 10.0),
        by_bin=lambda _: (np.array([[1.0], [3.0]]), np.array([[[4.0]], [[6.0]]])),
        at=lambda _: (np.array([4.0]), np.array([[10.0]])),
        noise=noise,
    )
    all_of_it: Any = SimpleNamespace(_strata=[stratum])
    all_of_it._at = lambda effects: cox.PartialLikelihood._at(all_of_it, effects)
    found = cox.PartialLikelihood.proportional(all_of_it, np.zeros(1))
    # Events lie at 1/4 and 3/4, their mean by information at 0.55.
    score, chance = 1 / 4 + 3 * 3 / 4, 4 / 16 + 6 * 9 / 16 - 0.55 * 5.5
    assert found is not None
    assert found.statistic == pytest.approx(score**2 / (chance + 9 * (0.3**2 + 0.2**2)))


def test_a_crosstab_needs_records_that_stand_clear_of_the_noise_of_all_its_cells() -> None:
    two = [Levels(column=Column(name=name, categories=("no", "yes"))) for name in ("row", "on")]
    asked = Crosstab(rows=two[0], across=two[1], test=True)
    # Noise of 3 in each of four cells is 6 in their sum, which five times of are 30.
    assert asked.answer(np.full(4, 7.4), 3.0).refusal == TOO_FEW
    assert asked.answer(np.full(4, 7.6), 3.0).refusal == ""
    cells = np.array([120.0, 80.0, 80.0, 120.0])
    (told,) = asked.answer(cells, 3.0).tests
    wider = intervals.caution(np.array((400.0 - 30.0) / 6.0))
    expected = intervals.independence(cells.reshape(2, 2), 9.0 * wider**2 * np.eye(4))
    assert told.statistic == pytest.approx(expected.statistic)


def test_a_table_describes_records_that_stand_clear_of_the_noise() -> None:
    asked = Table(columns=(Column(name="age", low=20, high=90, complete=True),))
    sums = np.zeros(asked.size)
    sums[0] = 14.9
    assert asked.answer(sums, 3.0).refusal == TOO_FEW
    sums[0] = 15.1
    assert asked.answer(sums, 3.0).refusal == ""
