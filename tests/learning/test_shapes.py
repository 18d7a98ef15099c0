"""A record's part in a sum does not depend on which other records there are (P14, A2).

Kernels round a forward pass by the shape of the batch and the row's place in it. Where the chosen
model puts pre-activations as near to zero as their rounding, a ReLU makes another gradient of the
last bit; so shape and place must be public.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from hubbub.learning import EvaluationTask, TrainingTask, gradients
from hubbub.learning.task import pieces, slots_of
from hubbub.study.tabular import Records

WIDTH, HIDDEN, MOST = 20, 16, 600


def on_the_edge(generator: np.random.Generator, record: np.ndarray) -> tuple[nn.Module, np.ndarray]:
    """A model whose first layer gives the record nothing but rounding, and its parameters."""
    first, second = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, 2)
    with torch.no_grad():
        first.weight.copy_(torch.from_numpy(generator.normal(size=(HIDDEN, WIDTH))))
        first.bias.zero_()
        first.bias.copy_(-first(torch.from_numpy(record[None]))[0])
        second.weight.copy_(torch.from_numpy(30 * generator.normal(size=(2, HIDDEN))))
        second.bias.zero_()
    model = nn.Sequential(first, nn.ReLU(), second)
    parameters = torch.nn.utils.parameters_to_vector(model.parameters())
    return model, parameters.detach().numpy().copy()


def neighbours(generator: np.random.Generator, others: int, record: np.ndarray) -> Records:
    """Others that are alike, and one record more, the last."""
    more = generator.uniform(-1, 1, WIDTH).astype(np.float32)
    inputs = np.concatenate([np.repeat(record[None], others, 0), more[None]])
    return Records(inputs=inputs, targets=np.zeros(others + 1, np.int64))


@pytest.mark.parametrize("method", ["chain", "vmap"])
def test_one_record_more_moves_the_sum_by_no_more_than_the_clip(method: str) -> None:
    generator = np.random.default_rng(2)
    moved = []
    for others in (3, 7, 15):
        record = generator.uniform(-1, 1, WIDTH).astype(np.float32)
        records = neighbours(generator, others, record)
        for _ in range(12):
            model, parameters = on_the_edge(generator, record)
            task = TrainingTask(model, records, clip=1.0, margin=2.0**-9, method=method, most=MOST)
            whole = task.clipped_sum(parameters, np.arange(others + 1))
            moved.append(np.linalg.norm(whole - task.clipped_sum(parameters, np.arange(others))))
    assert max(moved) <= 1 + 2.0**-9
    assert max(moved) > 0.5


def test_one_record_more_moves_an_evaluation_by_itself_only() -> None:
    generator = np.random.default_rng(3)
    for others in (3, 7, 15):
        record = generator.uniform(-1, 1, WIDTH).astype(np.float32)
        records = neighbours(generator, others, record)
        for _ in range(12):
            model, parameters = on_the_edge(generator, record)
            task = EvaluationTask(model, records)
            whole = task.clipped_sum(parameters, np.arange(others + 1))
            moved = whole - task.clipped_sum(parameters, np.arange(others))
            assert moved[0] == 1
            assert moved[1] in (0, 1)
            assert -1e-9 <= moved[2] <= 1 + 1e-9


def test_batches_of_another_shape_would_move_it_by_more() -> None:
    """What the other tests hold against: the machine does round by the shape of the batch."""
    generator = np.random.default_rng(2)
    differ = 0
    for _ in range(200):
        record = generator.uniform(-1, 1, WIDTH).astype(np.float32)
        layer = nn.Linear(WIDTH, HIDDEN)
        with torch.no_grad():
            rows = torch.from_numpy(np.repeat(record[None], 64, 0))
            differ += any(
                bool((layer(rows[:n])[0] != layer(rows[:1])[0]).any()) for n in (2, 5, 64)
            )
    if not differ:
        pytest.skip("this machine's kernels round alike in batches of any shape")
    assert differ


@pytest.mark.parametrize("count", [0, 1, 5, 200])
def test_every_record_is_in_one_piece_at_the_place_of_its_own(count: int) -> None:
    generator = np.random.default_rng(count)
    records = Records(
        inputs=generator.normal(size=(max(count, 1), 3)).astype(np.float32),
        targets=np.zeros(max(count, 1), np.float32),
    )
    slots, chosen = slots_of(records), np.arange(count)
    seen: list[int] = []
    for part, counted in pieces(chosen, slots, 16):
        assert part.shape == counted.shape == (16,)
        places = np.flatnonzero(counted)
        assert np.array_equal(slots[part[places]] % 16, places)
        seen += part[places].tolist()
    assert sorted(seen) == chosen.tolist()


class FirstWord(nn.Module):
    """A table of words of which only the first counts."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(VOCABULARY, 4), nn.Linear(4, 1)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        found = self.table(words.long())
        return self.last(found[:, 0] + 0 * found.sum(1)).squeeze(-1)


VOCABULARY = 200


def test_how_many_words_differ_does_not_decide_how_large_pieces_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A record of many words would otherwise change the shape in which all others are summed."""
    monkeypatch.setattr(gradients, "_BUDGET", 5_000)
    sizes: list[int] = []
    whole = gradients.Batch.piece

    def watched(self: gradients.Batch, start: int, stop: int) -> gradients.Batch:
        piece = whole(self, start, stop)
        sizes.append(piece.size)
        return piece

    monkeypatch.setattr(gradients.Batch, "piece", watched)
    seen = []
    for words in (np.zeros((60, 100)), np.tile(np.arange(100), (60, 1))):
        records = Records(inputs=words.astype(np.float32), targets=np.ones(60, np.float32))
        sizes.clear()
        gradients.clipped_sum(
            FirstWord(),
            lambda outputs, targets: (outputs - targets) ** 2,
            torch.from_numpy(records.inputs),
            torch.from_numpy(records.targets),
            1.0,
            method="vmap",
        )
        seen.append(list(sizes))
    assert len(set(map(tuple, seen))) == 1
    assert len(seen[0]) > 2, "the budget matters"
