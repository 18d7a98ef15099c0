"""Models, optimizers, metrics and files."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from hubbub.errors import DataError, IntegrityError, ModelError, StudyError
from hubbub.learning import (
    Optimizer,
    accuracy,
    auc,
    build_model,
    default_loss,
    evaluate,
    frozen_features,
    load_model,
    load_parameters,
    parameters_vector,
    save_model,
)
from hubbub.learning.optimizers import cosine


def two_layers(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs[0], 2), nn.Linear(2, outputs))


def no_model(inputs, outputs):
    return "model"


# Models -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "inputs", "outputs", "hidden", "d"),
    [
        ("logistic", (30,), 1, (), 31),
        ("mlp", (784,), 10, (536, 536, 536), 1_000_176 + 3 * 536 + 10),
        ("cnn", (3, 32, 32), 10, (), 38_720 + 913_152 + 3 * 384 + 10),
        (f"python:{__name__}:two_layers", (5,), 3, (), 21),
    ],
)
def test_a_model_has_the_size_of_its_kind_and_follows_from_its_seed(
    kind, inputs, outputs, hidden, d
):
    def build(seed):
        return build_model(kind, inputs=inputs, outputs=outputs, hidden=hidden, seed=seed)

    state = torch.get_rng_state()
    first, again, other = (parameters_vector(build(seed)) for seed in (b"a", b"a", b"b"))
    assert torch.equal(state, torch.get_rng_state())
    assert first.shape == (d,)
    assert first.dtype == np.float32
    assert (first == again).all()
    assert kind == "logistic" or (first != other).any()
    outcome = build(b"a")(torch.zeros(2, *inputs))
    assert outcome.shape == ((2,) if outputs == 1 else (2, outputs))


def test_without_biases_the_head_is_the_papers():
    model = build_model("cnn", inputs=(3, 32, 32), outputs=10, bias=False, seed=b"a")
    assert len(parameters_vector(model)) == 38_720 + 913_152


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [
        ("resnet", (4,)),
        ("cnn", (4,)),
        ("cnn", (3, 8, 8)),
        ("mlp", ()),
        ("mlp", (0,)),
        ("python:nowhere_at_all:f", (4,)),
        (f"python:{__name__}:missing", (4,)),
        (f"python:{__name__}:no_model", (4,)),
    ],
)
def test_a_model_that_cannot_be_built_is_refused(kind, inputs):
    with pytest.raises(StudyError, match="expected"):
        build_model(kind, inputs=inputs, outputs=2, seed=b"a")


def test_parameters_survive_the_flat_vector_and_frozen_ones_are_left_out():
    model = build_model("mlp", inputs=(4,), outputs=3, hidden=[5], seed=b"a")
    model[0].bias.requires_grad_(False)
    vector = parameters_vector(model)
    assert len(vector) == 20 + 15 + 3
    load_parameters(model, np.arange(38, dtype=np.float32))
    assert (parameters_vector(model) == np.arange(38)).all()
    assert not (model[0].bias == torch.arange(20, 25)).any()
    with pytest.raises(DataError, match="shape"):
        load_parameters(model, np.zeros(37, np.float32))


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.bool])
def test_the_binary_loss_takes_targets_of_any_type(dtype):
    losses = default_loss(1, dtype)(torch.zeros(3), torch.tensor([0, 1, 1]).to(dtype))
    assert losses.tolist() == pytest.approx([math.log(2)] * 3)


def test_a_loss_without_fitting_targets_is_refused():
    with pytest.raises(StudyError, match="int64"):
        default_loss(3, torch.int32)


# Optimizers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "options", "peer"),
    [
        ("sgd", {}, torch.optim.SGD),
        ("sgd", {"momentum": 0.9}, torch.optim.SGD),
        ("adam", {}, torch.optim.Adam),
    ],
)
def test_steps_are_those_of_torch(kind, options, peer):
    rng = np.random.default_rng(0)
    ours, parameters = Optimizer(kind, lr=0.05, **options), rng.normal(size=7)
    tensor = torch.tensor(parameters, requires_grad=True)
    theirs = peer([tensor], lr=0.05, **options)
    for _ in range(20):
        gradient = rng.normal(size=7)
        parameters = ours.step(parameters, gradient)
        tensor.grad = torch.from_numpy(gradient)
        theirs.step()
        np.testing.assert_allclose(parameters, tensor.detach().numpy(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_a_restored_optimizer_takes_the_same_steps_bit_for_bit(kind):
    def made():
        momentum = {"momentum": 0.9} if kind == "sgd" else {}
        return Optimizer(kind, lr=0.1, schedule="cosine", steps=10, **momentum)

    rng = np.random.default_rng(1)
    first, parameters = made(), rng.normal(size=5).astype(np.float32)
    for _ in range(3):
        parameters = first.step(parameters, rng.normal(size=5))
    second = made()
    second.load_state(first.state())
    gradient = rng.normal(size=5)
    one, two = first.step(parameters, gradient), second.step(parameters, gradient)
    assert one.dtype == np.float32
    assert one.tobytes() == two.tobytes()
    with pytest.raises(IntegrityError, match="state"):
        second.load_state({"step": np.array(3)})


def test_schedules_end_at_zero():
    for schedule, middle in (("linear", 0.5), ("cosine", 0.5), ("constant", 1.0)):
        optimizer = Optimizer(lr=1.0, schedule=schedule, steps=4)
        moves = [-float(optimizer.step(np.zeros(1), np.ones(1))[0]) for _ in range(5)]
        assert moves[0] == 1.0
        assert moves[2] == middle
        assert moves[4] == (1.0 if schedule == "constant" else 0.0)


@given(st.floats(0, 1))
def test_the_cosine_is_the_cosine(fraction):
    assert cosine(fraction) == pytest.approx(math.cos(math.pi * fraction), abs=1e-15)


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "lamb", "lr": 1.0},
        {"kind": "sgd", "lr": 0.0},
        {"kind": "sgd", "lr": 1.0, "beta1": 0.9},
        {"kind": "adam", "lr": 1.0, "momentum": 0.9},
        {"kind": "adam", "lr": 1.0, "beta2": 1.0},
        {"kind": "adam", "lr": 1.0, "epsilon": 0.0},
        {"kind": "sgd", "lr": 1.0, "schedule": "cosine"},
        {"kind": "sgd", "lr": 1.0, "schedule": "steps"},
    ],
)
def test_an_optimizer_with_unknown_or_bad_options_is_refused(options):
    with pytest.raises(StudyError, match="expected"):
        Optimizer(**options)


# Metrics ------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=30))
def test_auc_is_the_chance_that_a_positive_outranks_a_negative(pairs):
    scores, targets = np.array([p[0] for p in pairs], float), np.array([p[1] for p in pairs])
    if targets.all() or not targets.any():
        with pytest.raises(DataError, match="both classes"):
            auc(scores, targets)
        return
    differences = scores[targets][:, None] - scores[~targets][None]
    assert auc(scores, targets) == pytest.approx((np.sign(differences) / 2 + 0.5).mean())


def test_evaluation_gives_loss_accuracy_and_auc_and_leaves_the_mode_alone():
    model = nn.Sequential(nn.Dropout(0.9), nn.Flatten(0)).train()
    inputs, targets = torch.tensor([[2.0], [-1.0], [1.0]]), torch.tensor([1, 0, 0])
    found = evaluate(model, default_loss(1), inputs, targets, chunk=2)
    assert model.training
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert found["auc"] == 1.0
    expected = math.log1p(math.exp(-2)) + math.log1p(math.exp(-1)) + math.log1p(math.exp(1))
    assert found["loss"] == pytest.approx(expected / 3)


def test_accuracy_of_classes_and_of_nothing():
    assert accuracy(np.array([[0.0, 1.0], [3.0, 1.0]]), np.array([1, 1])) == 0.5
    with pytest.raises(DataError, match="at least one"):
        accuracy(np.zeros(0), np.zeros(0))


# Files --------------------------------------------------------------------------------------------


def test_a_model_survives_the_disk_with_its_metadata(tmp_path):
    model = build_model("mlp", inputs=(4,), outputs=3, hidden=[5], seed=b"a")
    other = build_model("mlp", inputs=(4,), outputs=3, hidden=[5], seed=b"b")
    path = tmp_path / "model.safetensors"
    save_model(path, model, {"study": "ab" * 32})
    assert load_model(path, other) == {"study": "ab" * 32}
    assert (parameters_vector(model) == parameters_vector(other)).all()
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]
    with pytest.raises(ModelError, match="shapes"):
        load_model(path, build_model("logistic", inputs=(4,), outputs=3, seed=b"a"))
    with pytest.raises(ModelError, match="strings"):
        save_model(path, model, {"epsilon": 1.0})


@pytest.mark.parametrize("place", [3, 20, -1])
def test_a_damaged_file_is_noticed(tmp_path, place):
    model, path = nn.Linear(4, 3), tmp_path / "model.safetensors"
    save_model(path, model, {"study": "s"})
    whole = bytearray(path.read_bytes())
    whole[place] ^= 1
    path.write_bytes(whole)
    before = parameters_vector(model)
    with pytest.raises(IntegrityError, match="expected"):
        load_model(path, model)
    assert (parameters_vector(model) == before).all()
    path.write_bytes(whole[:-7])
    with pytest.raises(IntegrityError, match="expected"):
        load_model(path, model)


def test_features_are_computed_once_and_again_when_anything_changes(tmp_path):
    runs = []
    extractor = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5)).train()
    extractor[0].register_forward_hook(lambda *_: runs.append(1))
    inputs = torch.randn(5, 3)
    first = frozen_features(extractor, inputs, tmp_path / "cache")
    second = frozen_features(extractor, inputs, tmp_path / "cache")
    assert len(runs) == 1
    assert (first == second).all()
    assert extractor.training
    with torch.no_grad():
        np.testing.assert_array_equal(first, extractor[0](inputs).numpy())
        extractor[0].bias += 1
    frozen_features(extractor, inputs, tmp_path / "cache")
    frozen_features(extractor, inputs + 1, tmp_path / "cache")
    assert len(runs) == 4  # three runs of the cache's, one of the test's
    for path in (tmp_path / "cache").iterdir():
        assert path.stat().st_mode & 0o077 == 0
        path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(IntegrityError, match="delete"):
        frozen_features(extractor, inputs, tmp_path / "cache")
