"""P22: what a promise leaves to queries that are chosen one after the other."""

from __future__ import annotations

from dataclasses import replace
from math import erfc, exp, log, sqrt
from unittest import mock

import numpy as np
import pytest

from hubbub.core.ledger.entry import Entry, LedgerMechanism
from hubbub.core.ledger.privacy_filter import SumsBudget
from hubbub.core.ledger.tally import Tally, costs_of
from hubbub.core.privacy.accountant import Composition
from hubbub.core.privacy.certificate import Certificate


def gaussian_delta(shift: float, epsilon: float) -> float:
    """Balle and Wang's closed form, written out again: what the module's own must agree with."""

    def tail(x: float) -> float:
        return erfc(x / sqrt(2)) / 2

    return tail(epsilon / shift - shift / 2) - exp(epsilon) * tail(epsilon / shift + shift / 2)


def shift_of(epsilon: float, delta: float) -> float:
    """The largest shift that is (epsilon, delta)-DP."""
    low, high = 1e-6, 100.0
    for _ in range(200):
        middle = sqrt(low * high)
        low, high = (middle, high) if gaussian_delta(middle, epsilon) <= delta else (low, middle)
    return low


def entry(number: int, shift: float, **more: object) -> Entry:
    """A sum over all records, of a study of its own."""
    kind = LedgerMechanism(noise_multiplier=1 / shift, sample_rate=1.0, sampling="full-batch")
    return Entry(
        study=bytes([number]) * 32,
        session=bytes([number]) * 32,
        round=1,
        attempt=1,
        kind=replace(kind, **more),
    )


def charged(*entries: Entry) -> Tally:
    tally = Tally()
    for one in entries:
        tally.add(one)
    return tally


PROMISES = [(0.25, 1e-6), (1.0, 1e-5), (4.0, 1e-5), (8.0, 1e-9)]


@pytest.mark.parametrize("queries", [2, 4, 8, 16])
@pytest.mark.parametrize(("epsilon", "delta"), PROMISES)
def test_p22_equal_queries_together_are_what_is_promised_and_hardly_less(epsilon, delta, queries):
    """Not a percent of noise is missing, and none is too much."""
    budget = SumsBudget(epsilon=epsilon, delta=delta, relation="add-remove")
    each = shift_of(budget.left(Tally(), queries), delta)
    whole = each * sqrt(queries)
    assert gaussian_delta(whole, epsilon) <= delta
    assert gaussian_delta(1.01 * whole, epsilon) > delta


@pytest.mark.parametrize(("epsilon", "delta"), PROMISES)
def test_p22_what_is_kept_for_certificates_is_never_spent_on_queries(epsilon, delta):
    budget = SumsBudget(epsilon=epsilon, delta=delta, relation="add-remove")
    kept, whole = budget._kept, 2 * shift_of(budget.left(Tally(), 4), delta)
    left = (delta - kept.failure) / kept.delta_factor
    assert gaussian_delta(whole, epsilon - kept.epsilon) <= left


def test_p22_what_is_left_falls_by_the_squares_of_what_was_charged():
    budget = SumsBudget(epsilon=1.0, delta=1e-5, relation="add-remove")
    whole = 2 * shift_of(budget.left(Tally(), 4), 1e-5)
    tally = charged(entry(1, 0.6 * whole))
    assert shift_of(budget.left(tally), 1e-5) == pytest.approx(0.8 * whole, rel=1e-4)
    tally.add(entry(2, 0.79 * whole))
    assert shift_of(budget.left(tally), 1e-5) == pytest.approx(
        sqrt(0.64 - 0.79**2) * whole, rel=1e-3
    )
    tally.add(entry(3, 0.13 * whole))
    assert budget.left(tally) == 0.0


def test_p22_an_exchange_moves_a_sum_by_the_diameter():
    budget = SumsBudget(epsilon=1.0, delta=1e-5, relation="substitute")
    for diameter in (2.0, 1.41):
        moved = charged(entry(1, 0.05, diameter=diameter))
        same = SumsBudget(epsilon=1.0, delta=1e-5, relation="add-remove")
        alone = charged(entry(1, 0.05 * diameter))
        assert budget.left(moved) == pytest.approx(same.left(alone), rel=1e-5)


def test_p22_whoever_stops_after_a_lucky_answer_gains_nothing():
    """The worst of many rules that look at the first answer, by integrating over it."""
    epsilon, delta = 1.0, 1e-5
    budget = SumsBudget(epsilon=epsilon, delta=delta, relation="add-remove")
    first = shift_of(budget.left(Tally(), 2), delta)
    rest = shift_of(budget.left(charged(entry(1, first))), delta)
    loss = np.linspace(first**2 / 2 - 9 * first, first**2 / 2 + 9 * first, 4001)
    density = np.exp(-(((loss - first**2 / 2) / first) ** 2) / 2) / (first * sqrt(2 * np.pi))
    stops = np.maximum(0.0, 1 - np.exp(epsilon - loss))
    goes_on = np.array([gaussian_delta(rest, epsilon - one) for one in loss])
    found = [
        np.trapezoid(density * np.where(stop, stops, goes_on), loss)
        for threshold in np.linspace(-1, 2, 31)
        for stop in (loss > threshold, loss < threshold)
    ]
    assert max(found) <= delta
    assert max(found) > 0.9 * delta


def test_p22_trainings_count_as_if_they_had_been_fixed_beforehand():
    budget = SumsBudget(epsilon=2.0, delta=1e-5, relation="add-remove")
    sampled = entry(1, 0.5, sampling="poisson", sample_rate=0.1)
    left = budget.left(charged(sampled))
    assert 0 < left < 2.0
    both = charged(sampled, entry(2, shift_of(left, 1e-5)))
    assert 1.98 < both.epsilon(delta=1e-5, relation="add-remove") <= 2.0


def test_p22_certificates_have_a_part_that_is_kept_and_no_more():
    budget = SumsBudget(epsilon=1.0, delta=1e-5, relation="add-remove")
    small, large = Certificate(epsilon=0.0009), Certificate(epsilon=0.0011)
    assert budget.left(charged(replace(entry(1, 0.01), certificate=small))) > 0.9
    assert budget.left(charged(replace(entry(1, 0.01), certificate=large))) == 0.0


def test_p22_the_promise_holds_for_the_upper_end_of_what_was_spent():
    """Of sampled steps the two ends of epsilon lie apart; between them nothing is let in."""
    sampled = charged(entry(1, 0.5, sampling="poisson", sample_rate=0.1))
    bound = Composition(costs_of(sampled.counts(), "add-remove")).epsilon(1e-5)
    assert bound.lower < bound.upper
    for epsilon, fits in (((bound.lower + bound.upper) / 2, False), (bound.upper, True)):
        budget = SumsBudget(epsilon=epsilon, delta=1e-5, relation="add-remove")
        assert allowed(budget, Tally(), sampled) == fits


def allowed(budget: SumsBudget, before: Tally, after: Tally) -> bool:
    """Whether a query is let in that leads from one tally to the other."""
    with mock.patch.object(Tally, "after", return_value=after):
        return budget.allows(before, mock.sentinel.plan)


def test_p22_all_of_the_promise_is_for_a_first_query_alone():
    budget = SumsBudget(epsilon=1.0, delta=1e-5, relation="add-remove")
    half = (1 - 1e-6) * shift_of(1.0, 1e-5) / sqrt(2)  # nothing is kept for certificates
    one, both = charged(entry(1, half)), charged(entry(1, half), entry(2, half))
    assert allowed(budget, Tally(), both)
    assert not allowed(budget, one, both)


def test_p22_a_query_is_not_let_in_with_a_certificate_beyond_what_is_kept():
    budget = SumsBudget(epsilon=1.0, delta=1e-5, relation="add-remove")
    one = charged(entry(1, 0.01))
    for failure, fits in ((0.9e-7, True), (1.1e-7, False)):
        second = replace(entry(2, 0.01), certificate=Certificate(failure=failure))
        assert allowed(budget, one, charged(entry(1, 0.01), second)) == fits


def test_a_budget_of_nothing_charged_has_all_of_it_for_one_query():
    budget = SumsBudget(epsilon=1.0, delta=1e-5, relation="add-remove")
    assert budget.left(Tally()) == 1.0
    assert log(budget.left(Tally(), 1000)) < log(0.05)
