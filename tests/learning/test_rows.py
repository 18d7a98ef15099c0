"""A record's part in a sum does not depend on which other records there are (P14, P19, A2).

Kernels round a forward pass by the shape of the batch and the row's place in it. Where the chosen
model puts pre-activations as near to zero as their rounding, a ReLU makes another gradient of the
last bit; so shape must be public and rows must be drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from hubbub.core.errors import ModelError
from hubbub.core.tabular.records import Records
from hubbub.learning import (
    EvaluationTask,
    TrainingTask,
    clipped_sums,
    method_for,
    parameters_vector,
    silo_tasks,
)
from hubbub.learning.batches import pieces
from hubbub.learning.per_record import Outer, clip_factors, norms_of
from hubbub.learning.queries.beside_training import ScoreVector
from hubbub.learning.silo_tasks import rows_tried, rows_within
from hubbub.learning.target_types import Classes
from hubbub.learning.trial import rows_are_alone, tried
from nets import Net

WIDTH, HIDDEN, MARGIN = 20, 16, 2.0**-9
EMPTY = -1
VECTOR = ScoreVector.of("add-remove")


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
    return model, vector_of(model)


def vector_of(model: nn.Module) -> np.ndarray:
    return nn.utils.parameters_to_vector(model.parameters()).detach().numpy().copy()


def records_of(inputs: np.ndarray, classes: int = 2) -> Records:
    targets = np.arange(len(inputs)) % classes
    return Records(inputs=inputs.astype(np.float32), targets=targets.astype(np.int64))


def neighbours(generator: np.random.Generator, others: int) -> tuple[np.ndarray, Records]:
    """A record, others that are all like it, and one more, the last."""
    record = generator.uniform(-1, 1, WIDTH).astype(np.float32)
    more = generator.uniform(-1, 1, WIDTH).astype(np.float32)
    return record, records_of(np.concatenate([np.repeat(record[None], others, 0), more[None]]))


def rows_with(generator: np.random.Generator, others: int, size: int) -> tuple[np.ndarray, ...]:
    """Others in random rows, and the same with one record more, numbered `others`."""
    order = generator.permutation(size)
    without = np.full(size, EMPTY)
    without[order[:others]] = np.arange(others)
    whole = without.copy()
    whole[order[others]] = others
    return without, whole


# Neighbours ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("method", ["chain", "vmap"])
def test_one_record_more_moves_the_sum_by_no_more_than_the_clip(method: str) -> None:
    generator = np.random.default_rng(2)
    moved = []
    for others in (3, 7, 15):
        record, records = neighbours(generator, others)
        without, whole = rows_with(generator, others, 24)
        for _ in range(12):
            model, parameters = on_the_edge(generator, record)
            task = TrainingTask(model, records, clip=1.0, margin=MARGIN, method=method, rows=24)
            found = task.clipped_sum(parameters, whole)
            moved.append(np.linalg.norm(found - task.clipped_sum(parameters, without)))
    assert max(moved) <= 1 + MARGIN
    assert max(moved) > 0.5


@pytest.mark.slow
def test_one_record_more_moves_an_evaluation_by_itself_only() -> None:
    generator = np.random.default_rng(3)
    for others in (3, 7, 15):
        record, records = neighbours(generator, others)
        without, whole = rows_with(generator, others, 24)
        for _ in range(12):
            model, parameters = on_the_edge(generator, record)
            task = EvaluationTask(model, records, capacity=24)
            moved = VECTOR.sums_of(
                task.clipped_sum(parameters, whole) - task.clipped_sum(parameters, without)
            )
            assert moved[:2] == pytest.approx([1, round(moved[1])])
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


@pytest.mark.quick_cases("chain", "vmap")
@pytest.mark.parametrize("method", ["chain", "vmap", "loop"])
def test_one_record_more_shifts_nobodys_dropout(method: str) -> None:
    """Masks follow from the silo's secret source and the row, so all others keep theirs."""
    generator = np.random.default_rng(5)
    model = nn.Sequential(nn.Linear(WIDTH, 64), nn.Dropout(0.5), nn.ReLU(), nn.Linear(64, 2))
    records = records_of(generator.normal(size=(13, WIDTH)))
    without, whole = rows_with(generator, 12, 20)
    moved = []
    for _ in range(5):
        sums = []
        for rows in (without, whole):
            task = TrainingTask(model, records, clip=1.0, margin=MARGIN, method=method, rows=20)
            task._rows._source = type(task._rows._source)(bytes(16))  # the same secret for both
            sums.append(task.clipped_sum(vector_of(model), rows))
        moved.append(np.linalg.norm(sums[1] - sums[0]))
    assert max(moved) <= 1 + MARGIN


def test_dropout_follows_from_no_seed_of_torchs() -> None:
    model = nn.Sequential(nn.Linear(WIDTH, 64), nn.Dropout(0.5), nn.ReLU(), nn.Linear(64, 2))
    records = records_of(np.random.default_rng(6).normal(size=(8, WIDTH)))
    seen = set()
    for _ in range(3):
        task = TrainingTask(model, records, clip=1.0, margin=MARGIN, method="chain")
        torch.manual_seed(0)
        before = torch.get_rng_state()
        seen.add(task.clipped_sum(vector_of(model), np.arange(8)).tobytes())
        assert torch.equal(torch.get_rng_state(), before)
    assert len(seen) == 3


# The work follows from the shape ---------------------------------------------------------------


class Counted(TorchDispatchMode):
    """Every kernel's name, and the shapes of what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[object] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        shapes = [tuple(one.shape) for one in args if isinstance(one, torch.Tensor)]
        self.calls.append((str(func), shapes))
        return func(*args, **(kwargs or {}))


class Words(nn.Module):
    """A table of words, and a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(50, 4), nn.Linear(4, 2)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.last(self.table(words.long()).mean(1))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))


def convolution() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 6, 6)), nn.Conv2d(1, 3, 3), nn.Flatten(), nn.Linear(48, 2)
    )


@pytest.mark.quick_cases("mlp-6-chain")
@pytest.mark.parametrize(
    ("model", "features", "method"),
    [
        (mlp, 6, "chain"),
        (mlp, 6, "vmap"),
        (mlp, 6, "loop"),
        (convolution, 36, "vmap"),
        (Words, 9, "vmap"),
    ],
)
def test_the_same_kernels_run_whatever_the_records_are(model, features, method) -> None:
    generator = np.random.default_rng(7)
    made = model()
    kinds = {
        "codes": generator.integers(0, 50, (30, features)).astype(np.float32),
        "one code": np.full((30, features), 3.0, np.float32),
        "no record": np.zeros((0, features), np.float32),
    }
    if model is not Words:
        kinds["huge"] = np.full((30, features), 3e38, np.float32)
        kinds["denormal"] = np.full((30, features), 1e-41, np.float32)
    seen = {}
    for name, inputs in kinds.items():
        task = TrainingTask(
            made, records_of(inputs), clip=1e-3, margin=MARGIN, method=method, capacity=40, rows=24
        )
        assert task._method == method
        count = min(20, len(inputs))
        rows = np.concatenate([np.arange(count), np.full(24 - count, EMPTY)])
        with Counted() as counted:
            task.clipped_sum(vector_of(made), rows)
        seen[name] = counted.calls
    assert len(seen["codes"]) > 10
    assert all(calls == seen["codes"] for calls in seen.values())


@pytest.mark.parametrize(
    ("count", "most"), [(0, 16), (1, 16), (5, 16), (200, 16), (124, 155), (447, 155)]
)
def test_pieces_are_few_and_alike(count: int, most: int) -> None:
    made = pieces(np.arange(count), most)
    assert len(made) == max(1, -(-count // (most - 1)))
    assert len({len(one) for one in made}) == 1
    assert len(made[0]) <= most
    assert all(one[-1] == EMPTY for one in made) or count <= 1
    joined = np.concatenate(made)
    assert joined[joined != EMPTY].tolist() == list(range(count))


def test_a_piece_of_155_rows_keeps_the_margin_and_one_of_156_does_not() -> None:
    margin = 0.75 * 2.0**-8
    assert rows_within(margin) == 155
    assert 2 * 155 * 157 * 2.0**-24 <= margin < 2 * 156 * 158 * 2.0**-24


# Records at which the model raises ---------------------------------------------------------------


class Cholesky(nn.Module):
    """Fails where a weight that the aggregator chooses meets a feature that a record has."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.last = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # positive definite unless weight * x[:, 0] is below -1
        matrix = torch.eye(3) * (1 + (self.weight * x[:, :1, None]).clamp(max=1.0))
        return self.last(torch.linalg.cholesky(matrix).diagonal(dim1=-2, dim2=-1) * x)


@pytest.mark.quick_cases("0-vmap")
@pytest.mark.parametrize("method", ["vmap", "loop"])
@pytest.mark.parametrize("place", [0, 3, 11])
def test_a_record_at_which_the_model_raises_adds_zero_and_moves_nobody(method, place) -> None:
    generator = np.random.default_rng(8)
    inputs = generator.uniform(0.1, 1, (12, 3)).astype(np.float32)
    inputs[place, 0] = -1.0
    model = Cholesky()
    parameters = vector_of(model)
    parameters[0] = 5.0
    task = TrainingTask(model, records_of(inputs), clip=1.0, margin=MARGIN, method=method, rows=16)
    rows = np.concatenate([np.arange(12), np.full(4, EMPTY)])
    found = task.clipped_sum(parameters, rows)
    rows[place] = EMPTY
    fresh = TrainingTask(model, records_of(inputs), clip=1.0, margin=MARGIN, method=method, rows=16)
    assert np.array_equal(found, fresh.clipped_sum(parameters, rows))
    assert found.any()


@pytest.mark.slow
def test_a_model_that_raises_at_the_chosen_weights_is_answered_with_zeros() -> None:
    model = Cholesky()
    parameters = vector_of(model)
    parameters[0] = 1e9
    inputs = np.random.default_rng(9).uniform(-1, 1, (12, 3))
    inputs[:, 0] = -1
    task = TrainingTask(model, records_of(inputs), clip=1.0, margin=MARGIN, method="vmap")
    assert not task.clipped_sum(parameters, np.arange(12)).any()
    assert task.clipped_sum(vector_of(model) * 0, np.arange(12)).shape == parameters.shape


@pytest.mark.slow
def test_an_evaluation_leaves_a_record_out_at_which_the_model_raises() -> None:
    inputs = np.random.default_rng(10).uniform(0.1, 1, (12, 3)).astype(np.float32)
    inputs[4, 0] = -1.0
    model = Cholesky()
    parameters = vector_of(model)
    parameters[0] = 5.0
    task = EvaluationTask(model, records_of(inputs))
    assert VECTOR.sums_of(task.clipped_sum(parameters, np.arange(12)))[0] == pytest.approx(11)


def test_a_model_that_takes_no_made_up_record_is_refused_before_anything_is_charged() -> None:
    class Never(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("never")

    with pytest.raises(ModelError, match="raised ValueError"):
        method_for(Never(), (3,), np.zeros(1, np.int64))


@pytest.mark.slow
@pytest.mark.parametrize("words", [2, 50])
def test_a_table_of_words_can_be_used(words: int) -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.last = nn.Embedding(words, 4), nn.Linear(4, 2)

        def forward(self, codes: torch.Tensor) -> torch.Tensor:
            return self.last(self.table(codes.long()).mean(1))

    model = Table()
    assert method_for(model, (9,), np.zeros(1, np.int64)) == "vmap"
    codes = np.random.default_rng(11).integers(0, words, (20, 9))
    task = TrainingTask(model, records_of(codes), clip=1.0, margin=MARGIN, method="vmap", rows=24)
    assert task._method == "vmap"
    assert task.clipped_sum(vector_of(model), np.arange(20)).any()


# A2 is tried ------------------------------------------------------------------------------------


class Mixing(nn.Module):
    """Looks at the whole batch under vmap's back: every row sees the largest number of all."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(x * _Largest.apply(x))


class _Largest(torch.autograd.Function):
    generate_vmap_rule = False

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return torch.ones_like(x)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        pass

    @staticmethod
    def backward(ctx, grad):
        return grad

    @staticmethod
    def vmap(info, in_dims, x):
        return torch.full_like(x, 1 + float(x.abs().nan_to_num().max()) * 1e-7), in_dims[0]


@contextmanager
def quiet() -> Iterator[None]:
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        yield


def test_where_rows_are_not_alone_each_is_a_piece_of_its_own() -> None:
    with quiet():
        model = Mixing()
    records = records_of(np.random.default_rng(12).normal(size=(9, 3)))
    task = TrainingTask(model, records, clip=1.0, margin=MARGIN, method="vmap", rows=12)
    assert task._method == "loop"
    assert task._rows._most == 1


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 20])
def test_a_long_piece_is_tried_on_parts_of_every_kind(chunk: int) -> None:
    def lengths(rows: int) -> set[int]:
        return {min(chunk, rows - at) for at in range(0, rows, chunk)}

    for size in range(1, 156):
        rows = rows_tried(size, chunk)
        assert rows <= min(size, 4 * chunk)
        assert lengths(rows) == lengths(size)
        held = {row // chunk for row in (0, rows // 2, rows - 1)}  # parts with a row that counts
        parts = set(range(-(-rows // chunk)))
        assert rows == size or (len(held) == 3 and max(parts) in held and parts - held)


def test_rows_that_meet_are_seen_in_a_few_parts_of_a_long_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ninety rows are taken three at once: eleven of them are tried, and each is then alone."""
    sizes = []

    def tried_on_few(*given) -> bool:
        sizes.append(given[3])
        return rows_are_alone(*given)

    monkeypatch.setattr(clipped_sums, "_BUDGET", 21)  # numbers, of which a record needs 7
    monkeypatch.setattr(silo_tasks, "rows_are_alone", tried_on_few)
    with quiet():
        models = {"loop": Mixing(), "vmap": nn.Linear(3, 2)}
    records = records_of(np.random.default_rng(12).normal(size=(9, 3)))
    for method, model in models.items():
        task = TrainingTask(model, records, clip=1.0, margin=MARGIN, method="vmap", rows=91)
        assert task._method == method
    assert sizes == [11, 11]


def test_the_check_sees_the_last_bit() -> None:
    trial = tried(nn.Linear(3, 2), (3,))
    targets = torch.zeros(4)

    def honest(inputs, _, kept):
        return inputs[kept].double().sum(0).numpy()

    def leaking(inputs, _, kept):
        total = inputs[kept].double().sum(0).numpy()
        total[0] = np.nextafter(total[0], np.inf if inputs[~kept].abs().max() > 2 else -np.inf)
        return total

    assert rows_are_alone(honest, trial, targets, 8, torch.device("cpu"))
    assert not rows_are_alone(leaking, trial, targets, 8, torch.device("cpu"))


# Rows that meet where a batch holds something rare -----------------------------------------------


class Meeting(nn.Module):
    """Divides by the largest number of the batch where that is rare enough."""

    def __init__(self, share) -> None:
        super().__init__()
        self.share, self.last = share, nn.Linear(3, 2)
        with torch.no_grad():
            self.last.weight.copy_(torch.tensor([[9.0, 0, 0], [-9.0, 0, 0]]))
            self.last.bias.zero_()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(x / self.share(x.abs().max()))


def branching(low: float, high: float):
    def branch(largest: torch.Tensor) -> torch.Tensor:
        return largest if low < largest < high else torch.ones(())

    return branch


def branchless(low: float, high: float):
    def share(largest: torch.Tensor) -> torch.Tensor:
        return torch.where((largest > low) & (largest < high), largest, 1.0)

    return share


def evaluated_without_and_with_one(
    model: nn.Module, wrong: int = 1, **options
) -> tuple[np.ndarray, np.ndarray]:
    """Eleven records, of a wrong class or a right one, and one more that is like no other."""
    inputs = np.random.default_rng(13).uniform(0.2, 1, (12, 3)).astype(np.float32)
    inputs[11] = 50.0
    records = Records(inputs=inputs, targets=np.full(12, wrong, np.int64))
    task = EvaluationTask(model, records, **options)
    without = np.concatenate([np.arange(11), [EMPTY]])
    sums = [task.clipped_sum(vector_of(model), rows) for rows in (without, np.arange(12))]
    return tuple(map(VECTOR.sums_of, sums))


@pytest.mark.slow
@pytest.mark.parametrize("share", [branching, branchless])
@pytest.mark.parametrize(("low", "high"), [(10, 1e9), (40, 60), (49.9, 50.1)])
def test_rows_that_meet_at_rare_values_do_not_meet_in_an_evaluation(share, low, high) -> None:
    without, whole = evaluated_without_and_with_one(Meeting(share(low, high)))
    assert whole[0] - without[0] == pytest.approx(1)
    assert -1e-12 <= whole[1] - without[1] <= 1 + 1e-12
    assert -1e-12 <= whole[2] - without[2] <= 1 + 1e-12


@pytest.mark.parametrize(("low", "high"), [(10, 1e9), (1e4, 1e7), (1e20, np.inf)])
def test_a_model_whose_rows_meet_at_rare_values_is_not_alone(low, high) -> None:
    """Each kind of wild rows is tried by itself: beside a NaN the model sees no largest number."""
    model = Meeting(branching(low, high))

    def work(inputs, _, kept):
        return model(inputs)[kept, 0].double().detach().numpy()

    trial = tried(model, (3,))
    assert not rows_are_alone(work, trial, torch.zeros(4), 8, torch.device("cpu"))


@pytest.mark.slow
def test_a_kind_of_wild_rows_that_a_model_does_not_take_hides_no_other() -> None:
    def choosy(largest: torch.Tensor) -> torch.Tensor:
        if not largest < 1e5:
            raise ValueError("too large")
        return largest if largest > 10 else torch.ones(())

    model = Meeting(choosy)

    def work(inputs, _, kept):
        return model(inputs)[kept, 0].double().detach().numpy()

    trial = tried(model, (3,))
    assert not rows_are_alone(work, trial, torch.zeros(4), 8, torch.device("cpu"))
    without, whole = evaluated_without_and_with_one(model)
    assert np.abs(whole - without).max() <= 1 + 1e-12


@pytest.mark.slow
def test_a_loss_whose_rows_meet_does_not_let_them_meet_in_an_evaluation(monkeypatch) -> None:
    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        found = nn.functional.cross_entropy(outputs, targets, reduction="none")
        return torch.where(outputs.abs().max() > 100, 5.0, found)

    target_type = Classes(loss_name="python:somewhere:loss")
    monkeypatch.setattr("hubbub.learning.target_types.named_object", lambda *_: loss)
    model = Meeting(branchless(np.inf, np.inf))
    without, whole = evaluated_without_and_with_one(model, wrong=0, target_type=target_type)
    assert np.abs(whole - without).max() <= 1 + 1e-12
    assert 0 < without[2] < 1


def test_a_method_that_nobody_chose_takes_row_by_row() -> None:
    without, whole = evaluated_without_and_with_one(Meeting(branching(40, 60)), method="")
    assert np.abs(whole - without).max() <= 1 + 1e-12


# Numbers at the ends of their range ---------------------------------------------------------------


def exact_square(values: torch.Tensor) -> Fraction:
    return sum((Fraction(float(one)) ** 2 for one in values.flatten()), Fraction(0))


@pytest.mark.quick_cases("0.001-dtype0", "1e-30-dtype1", "1.0-dtype0", "1.0-dtype1")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("clip", [1e-30, 1e-3, 1.0, 1e30])
def test_no_outer_product_passes_the_clip_however_small_one_side_is(dtype, clip) -> None:
    """Denormals times 3e38: what was rounded up by half there came back at full size."""
    info = torch.finfo(dtype)
    smallest = float(info.tiny) * float(info.eps)
    for width in (1, 7, 64):
        for small in (smallest, 3 * smallest, float(info.tiny), 1e-20, 1.0):
            for large in (float(info.max), 1e20, 1.0, float(info.tiny)):
                left = torch.full((1, width), small, dtype=dtype)
                right = torch.full((1, 5), large, dtype=dtype)
                outer = Outer(left=left, right=right)
                factors = clip_factors(outer.norms(), clip, dtype)
                total = torch.zeros(width * 5, dtype=dtype)
                outer.add_to(total, factors)
                assert exact_square(total) <= Fraction(clip) ** 2


def test_norms_of_doubles_neither_vanish_nor_overflow() -> None:
    for size in (1e-300, 1e-200, 1.0, 1e200, 1e300):
        values = torch.full((2, 9), size, dtype=torch.float64)
        assert norms_of(values).tolist() == pytest.approx([3 * size] * 2, rel=1e-14, abs=0)


@pytest.mark.parametrize(
    ("kind", "options", "batch_first"),
    [
        (nn.GRU, {}, True),
        pytest.param(
            *(nn.GRU, {"num_layers": 2, "bidirectional": True}, False), marks=pytest.mark.slow
        ),
        (nn.LSTM, {"num_layers": 2, "bidirectional": True}, True),
    ],
    ids=["gru", "gru of two ways", "lstm of two ways"],
)
def test_recurrent_layers_evaluate_all_records_at_once_as_one_by_one(
    kind, options, batch_first
) -> None:
    torch.manual_seed(3)

    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        outputs, last = m.body(x if batch_first else x.transpose(0, 1))
        state = last if kind is nn.GRU else last[1]  # of all layers, the records second
        outputs = outputs if batch_first else outputs.transpose(0, 1)
        return m.head(torch.cat([outputs[:, 1], state[-1]], 1))

    body = kind(3, 6, batch_first=batch_first, **options)
    model = Net(forward, body=body, head=nn.Linear(18 if options else 12, 3))
    inputs = np.random.default_rng(0).normal(size=(8, 3, 3)).astype(np.float32)
    records = Records(inputs=inputs, targets=np.arange(8) % 3)
    tasks = [EvaluationTask(model, records, method=method) for method in ("auto", "loop")]
    assert [task._method for task in tasks] == ["vmap", "loop"]
    sums = [task.clipped_sum(parameters_vector(model), np.arange(8)) for task in tasks]
    np.testing.assert_allclose(*sums, rtol=1e-6)
