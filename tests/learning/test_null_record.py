"""A model that raises on the null record tells nobody whether a row was empty (P19, A2).

The null record is public, and the aggregator chooses the weights. If a piece with an empty row came
to nothing where a full one keeps its sum, one record would move the sum of all.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.tabular.records import Records
from hubbub.learning import EvaluationTask, TrainingTask
from hubbub.learning.batches import per_unit_model, pieces

CAPACITY, MARGIN, EMPTY = 12, 2.0**-9, -1


class Cholesky(nn.Module):
    """A matrix is positive definite unless weight times the first feature is below -1."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.weight, self.last = nn.Parameter(torch.full((1,), 0.2)), nn.Linear(3, 2)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        risk = self.dropout(self.weight * x[:, :1])
        matrix = torch.eye(3) * (1 + risk[:, :, None].clamp(max=1.0))
        return self.last(torch.linalg.cholesky(matrix).diagonal(dim1=-2, dim2=-1) * x)


class Scale(Cholesky):
    """A Normal takes no scale that is not above zero."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = 1 + (self.weight * x[:, :1]).clamp(max=1.0)
        return self.last(torch.distributions.Normal(x, scale, validate_args=True).loc)


class Table(Cholesky):
    """A row of a table is looked up, which there is not below -1."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        place = (1 + (self.weight * x[:, 0]).clamp(-10, 1.0)).floor().long()
        return self.last(x * nn.functional.embedding(place, torch.ones(3, 3)))


class Backward(Cholesky):
    """Raises when the gradient comes back."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(_Refusing.apply(x, self.weight))


class _Refusing(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x * 1.0

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        risk = 1 + (weight * x[..., :1]).clamp(max=1.0)
        torch.linalg.cholesky(torch.eye(3) * risk[..., None])
        return grad, torch.zeros_like(weight)


class Leaving(Cholesky):
    """Ends the process, as somebody's script might."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if (self.weight * x[:, 0] < -1).any():
            raise SystemExit("enough")
        return self.last(x)


MODELS = (Cholesky, Scale, Table, Backward, Leaving)
# At the first the null record raises, whose first feature is 1.54; at the others some records do.
WEIGHTS = (-1.0, 5.0, 0.0)
# Of the first both, and of the others each with one of the two relations.
QUICK = (
    *("Cholesky-add-remove-records", "Cholesky-substitution-patients", "Scale-add-remove-records"),
    *(
        "Table-substitution-patients",
        "Backward-substitution-patients",
        "Leaving-add-remove-records",
    ),
)


def table(count: int, last: float = 0.5, patients: int = 0) -> Records:
    """So many units out of CAPACITY; the first feature of the last row of all of them is given."""
    units = np.arange(CAPACITY * max(1, patients)) // max(1, patients)
    inputs = np.random.default_rng(1).uniform(0.1, 0.9, (len(units), 3)).astype(np.float32)
    inputs[-1, 0] = last
    keep = units < count
    return Records(
        inputs=inputs[keep],
        targets=(np.arange(len(units)) % 2)[keep],
        patients=units[keep] if patients else None,
    )


def vector_of(model: nn.Module, weight: float) -> np.ndarray:
    vector = nn.utils.parameters_to_vector(model.parameters()).detach().numpy().copy()
    vector[0] = weight
    return vector


def trained(model: nn.Module, records: Records, method: str) -> TrainingTask:
    return TrainingTask(model, records, clip=1.0, margin=MARGIN, method=method, capacity=CAPACITY)


def evaluated(model: nn.Module, records: Records, method: str) -> EvaluationTask:
    return EvaluationTask(model, records, method=method, capacity=CAPACITY)


class Neighbours:
    """A model's tasks over two tables whose last records are each other's neighbours.

    The two share the model, so that it is checked once.
    """

    def __init__(
        self,
        made: Callable[..., TrainingTask | EvaluationTask],
        model: nn.Module,
        method: str,
        tables: tuple[Records, Records],
    ) -> None:
        self.model = copy.deepcopy(model)
        first = made(self.model, tables[0], method)
        second = made(self.model, tables[1], first._method)
        self.tasks = [(first, tables[0]), (second, tables[1])]

    def moved(self, weight: float, seed: bytes = bytes(16)) -> tuple[float, np.ndarray]:
        """By how much a sum moves between the two."""
        order = np.random.default_rng(3).permutation(CAPACITY)
        sums = []
        for task, records in self.tasks:
            task._rows._source = SecureSource(seed)  # the same randomness for both tables
            rows = np.full(CAPACITY, EMPTY)
            rows[order[: records.units]] = np.arange(records.units)
            sums.append(task.clipped_sum(vector_of(self.model, weight), rows))
        return float(np.linalg.norm(sums[0] - sums[1])), sums[0]


def neighbours(relation: str, patients: int) -> tuple[Records, Records]:
    if relation == "add-remove":
        return table(CAPACITY, patients=patients), table(CAPACITY - 1, patients=patients)
    return table(CAPACITY, -0.8, patients=patients), table(CAPACITY, 0.7, patients=patients)


@pytest.mark.quick_cases(*QUICK)
@pytest.mark.parametrize("patients", [0, 2], ids=["records", "patients"])
@pytest.mark.parametrize("relation", ["add-remove", "substitution"])
@pytest.mark.parametrize("kind", MODELS)
def test_a_null_record_that_raises_lets_one_record_move_no_sum(kind, relation, patients) -> None:
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = per_unit_model(kind(), patients)
    tables, most = neighbours(relation, patients), 1 if relation == "add-remove" else 2
    methods = ("loop",) if kind in (Scale, Leaving) else ("loop", "vmap")
    training = [Neighbours(trained, model, method, tables) for method in methods]
    evaluating = Neighbours(evaluated, model, methods[-1], tables)
    for weight in WEIGHTS:
        for tasks in training:
            assert tasks.moved(weight)[0] <= most * (1 + MARGIN)
        assert evaluating.moved(weight)[0] <= 3**0.5
    by, total = training[0].moved(0.0)
    assert by > 0.01
    assert np.linalg.norm(total) > 1


@pytest.mark.slow
def test_a_null_record_that_raises_by_its_dropout_lets_one_record_move_no_sum() -> None:
    """Its mask follows from the row, so that it may raise in one row and not in the last."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = Cholesky(dropout=0.05)
    tasks = Neighbours(trained, model, "vmap", neighbours("add-remove", 0))
    worst = max(tasks.moved(-0.7, bytes([seed] * 16))[0] for seed in range(30))
    assert worst <= 1 + MARGIN


def test_the_last_row_of_a_piece_is_empty() -> None:
    for count in (2, 40, 154, 155, 400):
        for piece in pieces(np.arange(count), 155):
            assert piece[-1] == EMPTY
            assert len(piece) <= 155
