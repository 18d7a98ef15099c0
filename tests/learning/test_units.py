"""Clipped sums by patient (P21): against a plain loop in float64, and against whoever would cheat.

A patient's rows are one unit: the mean of their gradients, clipped once. Whatever a patient's rows
hold, all of them together move the sum by at most C, and nobody else's part at all.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hubbub.core.errors import DataError
from hubbub.core.protocol.projection.matrix import Projection
from hubbub.core.protocol.projection.projected_sum import ProjectedSums, project
from hubbub.core.protocol.round.draw import Draw
from hubbub.core.tabular.records import Records
from hubbub.learning import EvaluationTask, TrainingTask, build_model, held_back, per_unit_model
from hubbub.learning.models import default_loss
from hubbub.learning.per_record import Outer, Products, Stack, clip_factors, from_positions
from hubbub.learning.queries.beside_training import FeatureSums, ScoreVector
from hubbub.learning.silo_tasks import rows_within
from nets import Net

torch.set_num_threads(1)
MARGIN = 2.0**-9
EMPTY = -1
VECTOR = ScoreVector.of("add-remove")


class Attentive(nn.Module):
    """Words, attention and normalisation: every kind of site that vmap knows."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(9, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.words(words.long())).mean(1))


def mlp(width: int, hidden: list[int], outputs: int = 3) -> nn.Module:
    return build_model("mlp", inputs=(width,), hidden=hidden, outputs=outputs, seed=b"units")


# By name: the model, the shape of a record, and the methods that take it.
MODELS = {
    "logistic": (
        build_model("logistic", inputs=(6,), outputs=1, seed=b""),
        (6,),
        "chain vmap loop",
    ),
    "small": (mlp(6, [8]), (6,), "chain vmap loop"),
    "wide": (mlp(60, [70, 80]), (60,), "chain vmap loop"),
    "images": (
        build_model("cnn", inputs=(1, 13, 13), outputs=3, hidden=[5], seed=b""),
        (1, 13, 13),
        "vmap loop",
    ),
    "words": (Attentive(), (5,), "vmap loop"),
}


@pytest.fixture(autouse=True)
def _as_they_were() -> Iterator[None]:
    """Tasks write parameters into the model that they are given."""
    before = {name: vector_of(model) for name, (model, *_) in MODELS.items()}
    yield
    for name, vector in before.items():
        nn.utils.vector_to_parameters(torch.from_numpy(vector), MODELS[name][0].parameters())


def vector_of(model: nn.Module) -> np.ndarray:
    return nn.utils.parameters_to_vector(model.parameters()).detach().numpy().copy()


def records_for(name: str, patients: np.ndarray, seed: int = 0) -> Records:
    generator = np.random.default_rng(seed)
    size = (len(patients), *MODELS[name][1])
    inputs = generator.integers(0, 9, size) if name == "words" else generator.normal(size=size)
    targets = generator.integers(0, 2 if name == "logistic" else 3, len(patients))
    kind = np.float32 if name == "logistic" else np.int64
    return Records(
        inputs=inputs.astype(np.float32), targets=targets.astype(kind), patients=patients
    )


def task_of(name: str, records: Records, most: int, **options: object) -> TrainingTask:
    known = {"clip": 1.0, "margin": MARGIN, "method": "auto"} | options
    return TrainingTask(per_unit_model(MODELS[name][0], most), records.capped(most), **known)


def looped(model: nn.Module, records: Records, most: int, clip: float) -> np.ndarray:
    """Patient by patient, row by row, in float64; nothing shared with the code under test."""
    model = copy.deepcopy(model).double()
    parameters = list(model.parameters())
    total = np.zeros(sum(p.numel() for p in parameters))
    for patient in np.unique(records.patients):
        rows = np.flatnonzero(records.patients == patient)[:most]
        gradient = np.zeros_like(total)
        for row in rows:
            outputs = model(torch.from_numpy(records.inputs[row : row + 1]).double())
            target = torch.from_numpy(records.targets[row : row + 1])
            target = target.double() if target.is_floating_point() else target
            loss = default_loss(1 if outputs.dim() == 1 else outputs.shape[1], target.dtype)
            found = torch.autograd.grad(loss(outputs, target).sum(), parameters)
            gradient += np.concatenate([g.reshape(-1).numpy() for g in found]) / len(rows)
        total += gradient * min(1.0, clip / max(np.linalg.norm(gradient), 1e-300))
    return total


# Against the loop ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("most", [1, 2, 5])
@pytest.mark.parametrize("name", MODELS)
def test_sums_by_patient_are_those_of_a_plain_loop(name: str, most: int) -> None:
    generator = np.random.default_rng(most)
    model, _, methods = MODELS[name]
    records = records_for(name, generator.integers(0, 7, 23), most)
    typical = np.linalg.norm(looped(model, records, most, 1e30)) / 7
    for clip in (0.3 * typical, 3 * typical):
        expected = looped(model, records, most, clip)
        for method in methods.split():
            task = task_of(name, records, most, clip=clip, method=method)
            found = task.clipped_sum(vector_of(model), generator.permutation(task.count))
            assert np.linalg.norm(found - expected) <= 4e-6 * np.linalg.norm(expected)


def test_every_way_to_hold_a_layer_is_among_these_models() -> None:
    ones = torch.ones
    assert isinstance(from_positions(ones(2, 1, 70), ones(2, 1, 60)), Outer)
    assert isinstance(from_positions(ones(2, 5, 70), ones(2, 5, 80)), Products)
    assert isinstance(from_positions(ones(2, 5, 3), ones(2, 5, 8)), Stack)


@pytest.mark.slow
def test_a_record_of_each_patient_is_a_record() -> None:
    records = records_for("wide", np.arange(12))
    plain = Records(inputs=records.inputs, targets=records.targets)
    model = MODELS["wide"][0]
    alone = TrainingTask(model, plain, clip=0.5, margin=MARGIN, method="chain")
    expected = alone.clipped_sum(vector_of(model), np.arange(12))
    for most in (1, 4):  # places without a row count nothing
        found = task_of("wide", records, most, clip=0.5).clipped_sum(
            vector_of(model), np.arange(12)
        )
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


# Whoever would cheat ------------------------------------------------------------------------------

HOSTILE = (0.0, 1.0, -1.0, 1e-45, -1e-38, 1e-30, 3e4, -1e10, 1e18, -3e19, 1e30, 3e38, -3.4e38)


def hostile_rows(generator: np.random.Generator, rows: int, width: int) -> np.ndarray:
    """Rows of extremes, of rows that all but cancel each other, and of both."""
    picked = generator.choice(np.array(HOSTILE), (rows, width))
    turned = np.repeat(generator.choice(np.array(HOSTILE), (1, width)), rows, 0)
    turned *= 1 + 1e-6 * generator.normal(size=(rows, 1))
    kind = generator.integers(3)
    found = picked if kind == 0 else turned if kind == 1 else np.where(picked > 0, picked, turned)
    return np.clip(found, -3.4e38, 3.4e38).astype(np.float32)


def changed(records: Records, rows: np.ndarray, targets: np.ndarray) -> Records:
    """The first patient's rows exchanged for others."""
    inputs, labels = records.inputs.copy(), records.targets.copy()
    inputs[: len(rows)], labels[: len(rows)] = rows, targets
    return Records(inputs=inputs, targets=labels, patients=records.patients)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "method"), [("wide", "chain"), ("wide", "vmap"), ("small", "chain")]
)
def test_all_rows_of_a_patient_together_move_the_sum_by_at_most_the_clip(
    name: str, method: str
) -> None:
    generator = np.random.default_rng(11)
    model, (width,), _ = MODELS[name]
    patients = np.repeat(np.arange(4), 3)
    benign, rows = records_for(name, patients), np.array([2, EMPTY, 0, 3, 1])
    without = np.where(rows == 0, EMPTY, rows)
    moved, exchanged = [], []
    before = task_of(name, benign, 3, method=method)
    for trial in range(24):
        scale = float(generator.choice([1e-20, 1.0, 1e6, 1e15]))
        parameters = (scale * generator.normal(size=vector_of(model).size)).astype(np.float32)
        parameters = vector_of(model) if trial % 2 else parameters
        mine, labels = hostile_rows(generator, 3, width), generator.integers(0, 3, 3)
        task = task_of(name, changed(benign, mine, labels), 3, method=method)
        there, absent = (task.clipped_sum(parameters, one) for one in (rows, without))
        base = before.clipped_sum(parameters, rows)
        assert np.isfinite(there).all()
        moved.append(np.linalg.norm(there - absent))
        exchanged.append(np.linalg.norm(there - base))
    assert max(moved) <= 1 + MARGIN
    assert max(exchanged) <= 2 + MARGIN
    assert max(moved) > 0.5


def test_rows_that_cancel_are_clipped_by_what_is_left_of_them() -> None:
    """Two rows pull with 1e9 times the clip each, against each other: float32 would not add up."""
    model = nn.Sequential(nn.Linear(64, 64, bias=False))
    inputs = np.random.default_rng(3).normal(size=(2, 64)).astype(np.float32)
    inputs[1] = -inputs[0]
    inputs *= np.float32(1e9)
    inputs[1, :7] *= np.float32(1 + 2**-12)
    records = Records(inputs=inputs, targets=np.array([0, 0]), patients=np.array([5, 5]))
    weights = np.zeros(64 * 64, np.float32)
    task = TrainingTask(per_unit_model(model, 2), records, clip=1.0, margin=MARGIN, method="chain")
    found = task.clipped_sum(weights, np.array([0]))
    expected = looped(_with(model, weights), records, 2, 1.0)
    assert np.linalg.norm(found) <= 1 + 1e-6
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def _with(model: nn.Module, weights: np.ndarray) -> nn.Module:
    model = copy.deepcopy(model)
    nn.utils.vector_to_parameters(torch.from_numpy(weights), model.parameters())
    return model


def exact_square(left: np.ndarray, right: np.ndarray) -> Fraction:
    """|sum_t left_t (x) right_t|^2, exactly."""
    rows = [[Fraction(float(x)) for x in row] for row in left]
    columns = [[Fraction(float(x)) for x in row] for row in right]
    entries = (
        sum(rows[t][i] * columns[t][j] for t in range(len(rows)))
        for i in range(left.shape[1])
        for j in range(right.shape[1])
    )
    return sum((entry**2 for entry in entries), Fraction(0))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_norm_of_products_is_never_too_small(kind: type) -> None:
    generator = np.random.default_rng(5)
    far = 1e37 if kind is np.float32 else 1e120
    for trial in range(60):
        left, right = (generator.normal(size=(3, 4)).astype(kind) for _ in range(2))
        if trial % 3 == 1:  # what cancels but for the last digits
            left[1], right[1] = -left[0], right[0] * kind(1 + 2.0**-20)
            left[2] *= kind(1e-9)
        if trial % 3 == 2:
            left *= generator.choice([far, 1.0, 1 / far], size=(3, 1)).astype(kind)
            right *= generator.choice([far, 1.0, 1 / far], size=(3, 1)).astype(kind)
        sides = (torch.from_numpy(one[None]) for one in (left, right))
        found = Fraction(float(Products.of(*sides).norms()[0]))
        assert found**2 >= exact_square(left, right) * Fraction(1 - 2.0**-40)
        if trial % 3 == 0:
            assert found**2 <= exact_square(left, right) * Fraction(1 + 2.0**-30)


def test_the_norm_of_products_covers_what_they_are_exchanged_for() -> None:
    """P21: two that cancel whole leave sides as long as the little that gives them a factor."""
    left, right = torch.ones(1, 2, 3), torch.ones(1, 2, 4)
    left[:, 1] = -1
    part = Products.of(left, right)
    assert part.norms()[0] >= part.left[0].norm() > 0


def exactly(values: torch.Tensor) -> list[Fraction]:
    return [Fraction(float(value)) for value in values.flatten()]


@pytest.mark.parametrize("far", [1.0, 1e9, 1e18])
def test_float32_adds_up_products_that_cancel_within_what_is_proven(far: float) -> None:
    """Two rows of each patient pull `far` times as hard as the clip, against each other."""
    generator, units, clip = np.random.default_rng(6), 5, 1.0
    left, right = (generator.normal(size=(units, 3, 6)).astype(np.float32) for _ in range(2))
    left[:, 0] *= np.float32(far)
    left[:, 1], right[:, 1] = -left[:, 0], right[:, 0]
    right[1:3, 1] *= np.float32(1 + 2.0**-18)
    right[3:, 1, 2:] = 0
    part = Products.of(torch.from_numpy(left), torch.from_numpy(right))
    factors = clip_factors(part.norms(), clip, torch.float32)
    wanted = [Fraction(0)] * 36
    for unit, factor in enumerate(exactly(factors)):
        pairs = [
            (exactly(torch.from_numpy(left[unit, t])), exactly(torch.from_numpy(right[unit, t])))
            for t in range(3)
        ]
        mine = [factor * sum(a[i] * b[j] for a, b in pairs) for i in range(6) for j in range(6)]
        assert sum(one**2 for one in mine) <= 1
        wanted = [total + one for total, one in zip(wanted, mine, strict=True)]
    found = torch.zeros(36)
    part.add_to(found, factors)
    gone = [one - total for one, total in zip(exactly(found), wanted, strict=True)]
    proven = 3**0.5 * units * (3 * units + 4) * 2.0**-24 + units * 2.0**-21
    assert float(sum(one**2 for one in gone)) ** 0.5 <= proven
    naive = torch.zeros(6, 6)
    scaled = torch.from_numpy(left) * factors[:, None, None]
    naive.addmm_(scaled.view(-1, 6).t(), torch.from_numpy(right).view(-1, 6))
    missed = [one - total for one, total in zip(exactly(naive), wanted, strict=True)]
    assert (float(sum(one**2 for one in missed)) ** 0.5 > proven) == (far > 1)


@pytest.mark.slow
def test_a_piece_has_as_many_patients_as_keep_the_margin() -> None:
    margin = 0.75 * 2.0**-8
    for products in (2, 3, 10, 64):
        most = rows_within(margin, products)
        lost = [2 * products**0.5 * p * (products * p + 4) * 2.0**-24 for p in (most, most + 1)]
        assert lost[0] <= margin < lost[1]
    assert rows_within(margin, 3) == 68
    records, rows = records_for("wide", np.repeat(np.arange(100), 3)), np.arange(100)
    task = task_of("wide", records, 3, margin=margin, clip=1e-3)
    seen: list[int] = []

    def work(inputs: torch.Tensor, *_: object) -> np.ndarray:
        seen.append(len(inputs))
        return np.zeros(1)

    task._rows.total(rows, 1, work)
    assert max(seen) <= 68


def test_p21_rows_of_a_piece_follow_from_the_shape_of_the_records_at_hand() -> None:
    """A large layer adds a product for each position, and rounds as often: of more, fewer rows."""
    layers = nn.Linear(200, 100), nn.Linear(100, 1)
    model = Net(lambda m, x: m.last(m.wide(x)).mean((1, 2)), wide=layers[0], last=layers[1])
    most = []
    for positions in (1, 3, 1):
        records = Records(
            inputs=np.zeros((2, positions, 200), np.float32), targets=np.zeros(2, np.float32)
        )
        task = TrainingTask(
            model, records, clip=1.0, margin=2.0**-8, method="vmap", rows=400, capacity=400
        )
        most.append(task._rows._most)
    assert most[0] == most[2] > most[1]


def test_a_patient_is_clipped_once_before_a_gaussian_projection() -> None:
    """What is sent is the projection of the loop's sum, whose parts are at most the clip long."""
    model, patients = MODELS["wide"][0], np.repeat(np.arange(4), 3)
    records, rows = records_for("wide", patients), np.array([2, 0, EMPTY, 3, 1])
    task, before = task_of("wide", records, 3, clip=0.01), vector_of(model)
    shape = Projection(kind="gaussian", parameters=before.size, dimension=40, clip=0.01, records=10)
    round_parameters: Any = SimpleNamespace(
        projection="gaussian", parameters=before.size, dimension=40
    )
    round_parameters.clip, round_parameters.most_records, draw = (
        0.01,
        10,
        Draw(seed=bytes(32), step=1),
    )
    sent = ProjectedSums(round_parameters).clipped_sum(task, before, rows, draw)
    wanted = looped(model, records, 3, 0.01)
    assert 0.01 < np.linalg.norm(wanted) <= 0.04  # of four patients
    np.testing.assert_allclose(sent, project(wanted, shape, draw), rtol=0, atol=1e-6)


# Nobody else --------------------------------------------------------------------------------------


@pytest.mark.quick_cases("small-chain")
@pytest.mark.parametrize(
    ("name", "method"), [("wide", "chain"), ("small", "chain"), ("words", "vmap")]
)
def test_a_patients_part_is_the_same_whoever_else_is_there(name: str, method: str) -> None:
    """Bit for bit: others' rows, their number and the order of the file do not matter."""
    mine = records_for(name, np.zeros(3, dtype=np.int64), seed=1)
    found = set()
    for seed, others in ((2, [1, 1, 2, 2, 2, 2]), (3, [1, 2, 3, 3, 4]), (4, [7])):
        whose = np.concatenate([np.zeros(3, dtype=np.int64), others])
        more = records_for(name, whose, seed)
        inputs, targets = more.inputs.copy(), more.targets.copy()
        inputs[:3], targets[:3] = mine.inputs, mine.targets
        order = np.argsort(np.random.default_rng(seed).uniform(size=len(whose)))
        order[np.isin(order, range(3))] = range(3)  # a patient's own order is the patient's
        records = Records(inputs=inputs[order], targets=targets[order], patients=whose[order])
        task = task_of(name, records, 4, method=method, capacity=9, rows=6)
        rows = np.array([EMPTY, EMPTY, 0, EMPTY, EMPTY, EMPTY])
        found.add(task.clipped_sum(vector_of(MODELS[name][0]), rows).tobytes())
    assert len(found) == 1


def test_rows_beyond_the_cap_are_left_out_unseen() -> None:
    records = records_for("small", np.array([4, 1, 4, 4, 1, 4]))
    model, found = MODELS["small"][0], set()
    for value in (0.0, 1e20):
        inputs = records.inputs.copy()
        inputs[[3, 5]] = value  # the third and fourth of patient 4
        other = Records(inputs=inputs, targets=records.targets, patients=records.patients)
        task = task_of("small", other, 2)
        assert task.count == 2
        found.add(task.clipped_sum(vector_of(model), np.arange(2)).tobytes())
    assert len(found) == 1
    assert len(records.capped(2)) == 4
    assert len(records.capped(1000)) == 6


class Refusing(nn.Module):
    """Raises on a row whose first number is large."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        if bool((rows[..., 0] > 100).any()):
            raise ValueError("no")
        return self.layer(rows)


@pytest.mark.slow
def test_a_patient_with_a_row_at_which_the_model_raises_adds_nothing() -> None:
    model = Refusing()
    records = records_for("small", np.repeat(np.arange(3), 2))
    inputs = records.inputs.copy()
    inputs[3, 0] = 1000.0
    spoiled = Records(inputs=inputs, targets=records.targets, patients=records.patients)
    units, parameters = per_unit_model(model, 2), vector_of(model)
    options = {"clip": 1.0, "margin": MARGIN, "method": "loop"}
    found = TrainingTask(units, spoiled, **options).clipped_sum(parameters, np.arange(3))
    others = TrainingTask(units, records, **options).clipped_sum(parameters, np.array([0, 2]))
    np.testing.assert_allclose(found, others, rtol=0, atol=1e-7)


@pytest.mark.slow
def test_a_model_on_rows_takes_no_patients_and_one_on_units_nothing_else() -> None:
    """What is clipped must be what the plan says: never silently the other of the two."""
    model = MODELS["small"][0]
    records = records_for("small", np.array([0, 0, 1]))
    plain = Records(inputs=records.inputs, targets=records.targets)
    for given, units in ((records, model), (plain, per_unit_model(model, 2))):
        with pytest.raises(DataError, match=r"data\.patient"):
            TrainingTask(units, given, clip=1.0, margin=MARGIN, method="chain")


# Other sums ---------------------------------------------------------------------------------------


def test_an_evaluation_counts_patients_by_the_mean_of_their_rows() -> None:
    model, most = MODELS["small"][0], 3
    records = records_for("small", np.array([0, 0, 0, 1, 2, 2]))
    task = EvaluationTask(per_unit_model(model, most), records)
    found = VECTOR.sums_of(task.clipped_sum(vector_of(model), np.arange(3)))
    with torch.no_grad():
        outputs = model(torch.from_numpy(records.inputs))
        targets = torch.from_numpy(records.targets)
        losses = nn.functional.cross_entropy(outputs, targets, reduction="none").numpy() / 5
        right = (outputs.argmax(1) == targets).numpy()
    means = [[v[records.patients == p].mean() for p in range(3)] for v in (right, losses)]
    np.testing.assert_allclose(found, [3, *np.sum(means, axis=1)], atol=1e-6)


def test_standardisation_counts_patients_by_the_mean_of_their_rows() -> None:
    records = records_for("small", np.array([0, 0, 0, 1, 2, 2]))
    found = FeatureSums(records, 2.0, most=3).clipped_sum(np.zeros(0, np.float32), np.arange(3))
    scaled = np.clip(records.inputs / 2.0, -1, 1)
    means = [
        [v[records.patients == p].mean(0) for p in range(3)] for v in (scaled, scaled**2 - 0.5)
    ]
    np.testing.assert_allclose(found, [3, *np.sum(means, axis=1).reshape(-1)], atol=1e-6)


def test_a_patient_is_held_back_whole_and_by_no_other() -> None:
    records = records_for("small", np.repeat(np.arange(200), 3))
    back = held_back(records, 0.3, b"study")
    whole = back.reshape(200, 3)
    assert (whole.all(1) | ~whole.any(1)).all()
    assert 25 < whole.all(1).sum() < 95  # 60 are expected, with a deviation of 6.5
    order = np.random.default_rng(0).permutation(200)
    rows = (3 * order[:90, None] + np.arange(3)).reshape(-1)  # some of them, in another order
    assert (held_back(records.part(rows), 0.3, b"study") == back[rows]).all()


def test_records_know_their_patients() -> None:
    records = records_for("small", np.array(["b", "a", "b"]))
    assert records.units == 2
    assert records.patients is not None
    together = Records.together([records, records.part(np.array([1]))])
    assert together.units == 3
    assert len(together) == 4
    for wrong in (np.zeros(2, np.int64), np.zeros(3), np.zeros((3, 1), np.int64), ["b", "a", "b"]):
        with pytest.raises(DataError, match="expected patients as an array"):
            Records(inputs=records.inputs, targets=records.targets, patients=wrong)  # type: ignore[arg-type]
