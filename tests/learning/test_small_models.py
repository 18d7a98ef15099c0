"""Small models are summed all at once on a processor, too, in float64 (P6, P14)."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from torch import nn

from hubbub.core.tabular.records import Records
from hubbub.learning import TrainingTask, clipped_sum, clipped_sums, device_sums

CROSS_ENTROPY = functools.partial(nn.functional.cross_entropy, reduction="none")
ROWS = 3000


@pytest.fixture
def records() -> Records:
    drawn = np.random.default_rng(4)
    inputs = drawn.normal(size=(ROWS, 20)).astype(np.float32)
    return Records(inputs=inputs, targets=drawn.integers(0, 3, ROWS))


@pytest.mark.parametrize(("width", "at_once"), [(8, True), (2000, False)])
def test_a_batch_of_a_small_model_is_one_piece_and_a_larger_ones_many(records, width, at_once):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(20, width), nn.Tanh(), nn.Linear(width, 3))
    task = TrainingTask(model, records, clip=1.0, margin=1e-3, method="auto")
    assert (task._rows._most > ROWS) == at_once


def test_the_sum_is_that_of_pieces_but_for_what_float32_rounds(records, monkeypatch):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(20, 8), nn.Tanh(), nn.Linear(8, 3))
    weights = nn.utils.parameters_to_vector(model.parameters()).detach().numpy()
    rows = np.random.default_rng(5).permutation(ROWS)

    def total():
        task = TrainingTask(model, records, clip=0.1, margin=1e-3, method="auto")
        return task.clipped_sum(weights, rows)

    small = total()
    monkeypatch.setattr(device_sums, "_SMALL", 0)
    np.testing.assert_allclose(total(), small, rtol=0, atol=1e-3)
    assert np.linalg.norm(small) > 5


def test_p6_the_sum_of_many_rows_does_not_round_as_float32_would():
    """The least of 2^17 equal records is still a whole record in the sum."""
    model = nn.Linear(1, 2, bias=False)
    nn.init.zeros_(model.weight)
    inputs, targets = torch.full((2**17, 1), 0.7), torch.zeros(2**17, dtype=torch.long)
    one, _ = clipped_sum(model, CROSS_ENTROPY, inputs[:1], targets[:1], 0.1)
    total, count = clipped_sum(model, CROSS_ENTROPY, inputs, targets, 0.1)
    assert (total.dtype, count) == (torch.float64, 2**17)
    np.testing.assert_allclose(total.numpy(), 2**17 * one.numpy(), rtol=2**17 * 2.0**-52)


def test_a_piece_stays_within_the_memory_that_gradients_may_take(records, monkeypatch):
    """All rows are one piece, whose gradients are made for a few of them at a time."""
    sizes = []
    add = device_sums._add

    def noted(*given):
        sizes.append(given[3].size)
        return add(*given)

    monkeypatch.setattr(device_sums, "_add", noted)
    monkeypatch.setattr("hubbub.learning.clipped_sums._BUDGET", 2**14)
    model = nn.Sequential(nn.Linear(20, 8), nn.Tanh(), nn.Linear(8, 3))
    task = TrainingTask(model, records, clip=1.0, margin=1e-3, method="auto")
    task.clipped_sum(np.zeros(195, np.float32), np.arange(ROWS))
    assert max(sizes) < ROWS / 2


@pytest.mark.parametrize("records", [15, 400])
def test_a_sum_without_a_chunk_takes_at_once_what_its_first_records_show_to_fit(
    records, monkeypatch
):
    """And goes over no record twice."""
    seen, add = [], device_sums._add

    def added(*given):
        seen.append(given[3].size)
        return add(*given)

    monkeypatch.setattr(device_sums, "_add", added)
    model, inputs = nn.Linear(20, 3), torch.randn(records, 20)
    targets = torch.arange(records) % 3
    sums = [
        clipped_sum(model, CROSS_ENTROPY, inputs, targets, 0.1, method="vmap", **options).vector
        for options in ({}, {"chunk": 7})
    ]
    assert seen[: -(-records // 7) * -1] == ([15] if records == 15 else [20, 380])
    torch.testing.assert_close(*sums)
    monkeypatch.setattr(clipped_sums, "_BUDGET", 100 * (20 + 2 * 3))
    seen.clear()
    clipped_sum(model, CROSS_ENTROPY, inputs, targets, 0.1, method="vmap")
    assert sum(seen) == records
    assert max(seen) <= 100
