"""Rows of a batch: their law, and that their number is public (docs/privacy.md P19)."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, chisquare

from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.round.batches import (
    EMPTY,
    Groups,
    PoissonBatches,
    group_rows,
    injected,
    joint_rows,
    most_rows,
    poisson_rows,
)


def source(seed: int) -> SecureSource:
    return SecureSource(seed.to_bytes(16, "little"))


@pytest.mark.parametrize(("mean", "rows"), [(4, 9), (12.5, 20), (40, 53), (100, 121), (400, 442)])
def test_rows_are_as_many_as_one_batch_in_fifty_exceeds(mean: float, rows: int) -> None:
    assert most_rows(10**7, mean / 10**7) == rows


@pytest.mark.parametrize(("capacity", "rate"), [(1, 0.5), (30, 0.01), (500, 0.2), (100, 0.99)])
def test_the_number_of_rows_is_the_least_of_that_kind(capacity: int, rate: float) -> None:
    rows = most_rows(capacity, rate)
    assert binom.sf(rows, capacity, rate) <= 0.02
    assert rows == 1 or binom.sf(rows - 1, capacity, rate) > 0.02


def test_without_sampling_there_is_a_row_for_every_place() -> None:
    assert most_rows(7, 1.0) == 7
    assert sorted(poisson_rows(source(1), 5, 7, 1.0)) == [EMPTY, EMPTY, 0, 1, 2, 3, 4]
    assert poisson_rows(source(1), 0, 0, 1.0).tolist() == [EMPTY]


def test_p25_a_group_has_rows_for_its_places_at_so_many_times_the_rate() -> None:
    assert group_rows(1001, 0.01, 4) == most_rows(251, 0.04)
    assert group_rows(9, 0.3, 4) == 3  # of everybody in it


@pytest.mark.parametrize("records", [0, 1, 50, 80])
def test_as_many_words_are_drawn_and_rows_given_whatever_the_records_are(records: int) -> None:
    """The secret coins decide; with the same coins everything is the same but what is at them."""
    for seed in range(20):
        mine, full = source(seed), source(seed)
        rows, whole = poisson_rows(mine, records, 80, 0.1), poisson_rows(full, 80, 80, 0.1)
        assert rows.shape == whole.shape
        assert np.array_equal(rows, np.where(whole < records, whole, EMPTY))
        assert mine.words(1) == full.words(1)


@pytest.mark.parametrize("records", [0, 5, 80])
def test_p19_a_sessions_batches_have_the_rows_of_the_capacity(records: int) -> None:
    batches: Any = PoissonBatches(80, 0.1)
    rows = batches.rows(source(3), records, None, None)
    assert rows.tolist() == poisson_rows(source(3), records, 80, 0.1).tolist()
    assert rows.size == batches.most == most_rows(80, 0.1)


@pytest.mark.parametrize(("batch", "records", "rows"), [(6, 5, 5), (4, 9, 4)])
def test_a_joint_batch_has_as_many_rows_whichever_tokens_are_drawn(
    batch: int, records: int, rows: int
) -> None:
    for count in range(rows + 1):
        found = joint_rows(source(1), np.arange(count), batch, records)
        assert sorted(found) == [EMPTY] * (rows - count) + [*range(count)]


@pytest.mark.slow
def test_coins_are_tossed_again_where_heads_exceed_the_rows_and_places_are_alike() -> None:
    """The law on all outcomes of three places, two records and two rows, against its definition."""
    rate, records, capacity = 0.1, 2, 3
    rows = most_rows(capacity, rate)
    assert rows == 2
    law: Counter[tuple[int, ...]] = Counter()
    for coins in product((0, 1), repeat=capacity):
        heads = [k for k, head in enumerate(coins) if head]
        if len(heads) > rows:
            continue
        chance = rate ** len(heads) * (1 - rate) ** (capacity - len(heads))
        placings = [p for p in product(range(rows), repeat=len(heads)) if len(set(p)) == len(p)]
        for placing in placings:
            held = [EMPTY] * rows
            for place, row in zip(heads, placing, strict=True):
                held[row] = place if place < records else EMPTY
            law[tuple(held)] += chance / len(placings)
    one, draws = source(3), 20_000
    seen = Counter(tuple(poisson_rows(one, records, capacity, rate).tolist()) for _ in range(draws))
    assert set(seen) <= set(law)
    expected = np.array([law[key] for key in law])
    found = np.array([seen[key] for key in law])
    assert chisquare(found, draws * expected / expected.sum()).pvalue > 1e-6  # the false-alarm rate
    assert chisquare(found, np.full(len(law), draws / len(law))).pvalue < 1e-6


def test_the_injection_is_uniform_whatever_is_chosen() -> None:
    one = source(4)
    seen = Counter(tuple(injected(one, np.array([5, 9]), 3).tolist()) for _ in range(6000))
    assert len(seen) == 6
    assert chisquare(list(seen.values())).pvalue > 1e-6


def test_p19_of_too_many_heads_none_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut off, they would be those of the first places: a coin would move the chances of others."""
    for draw in (
        lambda one: poisson_rows(one, 9, 9, 0.1),
        lambda one: Groups(one, 9, 1).rows(one, 9, 1, 0.1),
    ):
        tosses = [np.arange(most_rows(9, 0.1) + 1), np.array([7])]
        monkeypatch.setattr(SecureSource, "chosen", lambda *_: tosses.pop(0))  # noqa: B023
        rows = draw(source(5))
        assert rows[rows != EMPTY].tolist() == [7]


def test_a_batch_of_too_many_heads_is_never_cut_off() -> None:
    one = source(5)
    for _ in range(300):
        rows = poisson_rows(one, 40, 40, 0.5)
        assert (rows != EMPTY).sum() <= len(rows) == most_rows(40, 0.5)
        assert len(set(rows[rows != EMPTY].tolist())) == (rows != EMPTY).sum()
