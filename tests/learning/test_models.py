"""Models, optimizers, metrics and files."""

from __future__ import annotations

import copy
import hashlib
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from hubbub import Study, run
from hubbub.core import disk
from hubbub.core.errors import DataError, IntegrityError, ModelError, StudyError
from hubbub.core.tabular.records import Records
from hubbub.learning import (
    Optimizer,
    TrainingTask,
    accuracy,
    auc,
    build_model,
    checked_method,
    clipped_sum,
    default_loss,
    evaluate,
    load_model,
    load_parameters,
    method_for,
    optimizers,  # its blocks
    parameters_vector,
    save_model,
    through_frozen,
)
from hubbub.learning.frozen import frozen_features, frozen_layers
from hubbub.learning.optimizers import cosine
from hubbub.learning.per_record import MARGIN
from hubbub.learning.study.model import Frozen, model_from


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


@pytest.fixture
def small_blocks(monkeypatch):
    """Some tens of thousands of numbers are many blocks, which three threads share."""
    monkeypatch.setattr(optimizers, "_BLOCK", 1 << 10)
    monkeypatch.setattr(optimizers, "_WORTH_THREADS", 1 << 14)
    monkeypatch.setattr(optimizers, "cores", lambda: 3)


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_threads_change_no_bit_of_a_step(kind, small_blocks, monkeypatch):
    rng = np.random.default_rng(3)
    parameters, total = rng.normal(size=(2, 40_000))

    def taken(threads):
        monkeypatch.setattr(optimizers, "_WORTH_THREADS", 1 if threads else 1 << 30)
        own = Optimizer(kind, lr=0.1)
        return [own.step(parameters, total, 3.0).tobytes() for _ in range(2)]

    assert taken(threads=True) == taken(threads=False)


@pytest.mark.parametrize(
    ("kind", "options", "peer"),
    [
        ("sgd", {}, torch.optim.SGD),
        ("sgd", {"momentum": 0.9}, torch.optim.SGD),
        ("adam", {}, torch.optim.Adam),
    ],
)
@pytest.mark.parametrize("size", [7, 40_000])  # within what is worked on at once, and beyond it
def test_steps_are_those_of_torch(kind, options, peer, size, small_blocks):
    rng = np.random.default_rng(0)
    ours, parameters = Optimizer(kind, lr=0.05, **options), rng.normal(size=size)
    tensor = torch.tensor(parameters, requires_grad=True)
    theirs = peer([tensor], lr=0.05, **options)
    for _ in range(20):
        gradient = rng.normal(size=size)
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
    second.load_state(copy.deepcopy(first.state()))
    gradient = rng.normal(size=5)
    one, two = first.step(parameters, gradient), second.step(parameters, gradient)
    assert one.dtype == np.float32
    assert one.tobytes() == two.tobytes()
    with pytest.raises(IntegrityError, match="state"):
        second.load_state({"step": np.array(3)})


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_a_step_is_made_in_the_memory_of_the_state_and_a_sum_divided_as_beforehand(
    kind, small_blocks
):
    def made():
        return Optimizer(kind, lr=0.1, **({"momentum": 0.9} if kind == "sgd" else {}))

    rng = np.random.default_rng(2)
    first, second, parameters = made(), made(), rng.normal(size=40_000).astype(np.float32)
    for _ in range(2):
        total = rng.normal(size=parameters.size)
        before = {k: v for k, v in first.state().items() if v.size == parameters.size}
        one, two = first.step(parameters, total, 7.0), second.step(parameters, total / 7.0)
        assert one.tobytes() == two.tobytes()
        assert all(first.state()[name] is vector for name, vector in before.items())
        parameters = one


@pytest.mark.parametrize(("kind", "momentum"), [("sgd", 0.0), ("sgd", 0.9), ("adam", None)])
@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_a_schedule_is_torchs_and_survives_the_disk_at_any_step(tmp_path, schedule, kind, momentum):
    steps, rng = 9, np.random.default_rng(3)
    options = {} if momentum is None else {"momentum": momentum}
    factors = {
        "constant": lambda _: 1.0,
        "linear": lambda step: 1 - step / steps,
        "cosine": lambda step: 0.5 * (1 + math.cos(math.pi * step / steps)),
    }
    parameters = rng.normal(size=5)
    tensor = torch.tensor(parameters, requires_grad=True)
    theirs = (torch.optim.SGD if kind == "sgd" else torch.optim.Adam)([tensor], lr=0.05, **options)
    scheduler = torch.optim.lr_scheduler.LambdaLR(theirs, factors[schedule])
    state = None
    for step in range(steps):
        ours = Optimizer(kind, lr=0.05, schedule=schedule, steps=steps, **options)
        if state is not None:  # a new process, which knows what is on the disk
            with np.load(tmp_path / f"{step}.npz") as stored:
                ours.load_state(dict(stored))
        gradient = rng.normal(size=5)
        parameters, tensor.grad = ours.step(parameters, gradient), torch.from_numpy(gradient)
        theirs.step()
        scheduler.step()
        np.testing.assert_allclose(parameters, tensor.detach().numpy(), rtol=1e-12, atol=1e-13)
        state = ours.state()
        np.savez(tmp_path / f"{step + 1}.npz", **state)


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


WIDTH = 3000
SILENT = """
[study]
name = "records without a gradient"
[parties]
silos = 3
colluders = 1
[data]
source = "python:{module}:silent"
options = {{ records = {records} }}
records = 1000
[model]
kind = "logistic"
bias = false
[training]
steps = 1
sample_rate = 0.5
optimizer = {{ name = "sgd", lr = 1.0 }}
[privacy]
epsilon = 4.0
delta = 1e-5
"""


def silent(party: str, *, records: int) -> Records:
    """Records of zeros, whose gradients are zero."""
    many = 4 if party == "test" else records
    return Records(inputs=np.zeros((many, WIDTH), np.float32), targets=np.ones(many, np.float32))


@pytest.mark.slow
@pytest.mark.parametrize("records", [0, 900])
def test_the_noise_of_a_step_does_not_depend_on_how_many_records_were_drawn(records):
    result = run(Study.parse(SILENT.format(module=__name__, records=records)))
    moved = parameters_vector(result.model).astype(np.float64)
    sigma = result.plan.to_dict()["share_sigma"] * math.sqrt(3) / (0.5 * 1000)
    ratio = moved.std() / sigma
    # The ratio has a standard error of 1 / sqrt(2 * 3000) = 0.013; false alarm below 1e-8.
    assert abs(ratio - 1) < 6 * 0.013
    assert abs(moved.std() / (sigma * 1.2) - 1) > 6 * 0.013  # and 20 % more is noticed


# Metrics ------------------------------------------------------------------------------------------


@pytest.mark.slow
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


def test_the_same_model_is_the_same_bytes(tmp_path):
    """Its header is in one order, which a reader of the format takes."""
    path, model = tmp_path / "model.safetensors", nn.Linear(3, 2)
    header = dict.fromkeys("abcdefgh", "1")
    written = set()
    for _ in range(6):  # of 8! orders
        save_model(path, model, header)
        written.add(path.read_bytes())
    assert len(written) == 1
    assert load_model(path, nn.Linear(3, 2)) == header


def test_features_are_computed_once_and_again_when_anything_changes(tmp_path):
    runs = []
    extractor = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5)).train()
    extractor[0].register_forward_hook(lambda *_: runs.append(1))
    inputs = torch.randn(5, 3)
    first = frozen_features(extractor, inputs, tmp_path / "cache")
    made = len(runs)
    second = frozen_features(extractor, inputs, tmp_path / "cache")
    assert len(runs) == made
    assert (first == second).all()
    assert extractor.training
    with torch.no_grad():
        np.testing.assert_allclose(first, extractor[0](inputs).numpy(), rtol=1e-5, atol=1e-6)
        extractor[0].bias += 1
    frozen_features(extractor, inputs, tmp_path / "cache")
    frozen_features(extractor, inputs + 1, tmp_path / "cache")
    assert len(runs) == 3 * made + 1  # three runs of the cache's, one of the test's
    assert not any(path.stat().st_mode & 0o077 for path in (tmp_path / "cache").iterdir())


def test_what_is_kept_of_features_has_no_name_that_follows_from_records(tmp_path):
    """The same records in two folders: no name is in both, nor the key anywhere else."""
    extractor, inputs = nn.Linear(3, 2), torch.ones(5, 3)
    names = []
    for folder in (tmp_path / "one", tmp_path / "other"):
        frozen_features(extractor, inputs, folder)
        names.append({path.name for path in folder.iterdir()} - {"key", "lock"})
    assert [len(one) for one in names] == [1, 1]
    assert names[0] != names[1]


@pytest.mark.parametrize("spoil", ["torn", "folder", "empty", "others", "zeros", "key"])
def test_features_that_cannot_be_read_are_made_again(tmp_path, spoil):
    """No error says where they lie, and what killed processes left there goes."""
    extractor, inputs = nn.Linear(3, 2), torch.randn(5, 3)
    first = frozen_features(extractor, inputs, tmp_path)
    (kept,) = tmp_path.glob("*.npy")
    (tmp_path / "tmpabc.part").write_bytes(b"left")
    if spoil == "torn":
        kept.write_bytes(kept.read_bytes()[:-4])
    elif spoil == "folder":
        kept.unlink()
        kept.mkdir()
    elif spoil == "key":
        (tmp_path / "key").write_bytes(b"short")
    else:
        kept.write_bytes(b"")
        if spoil != "empty":
            np.save(kept, np.zeros((5, 2) if spoil == "zeros" else (4, 2)))  # float64, or too few
    assert (frozen_features(extractor, inputs, tmp_path) == first).all()
    assert not list(tmp_path.glob("*.part"))


def test_a_full_disk_costs_kept_features_and_no_run(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk, "write_all", full)
    extractor, inputs = nn.Linear(3, 2), torch.randn(5, 3)
    assert frozen_features(extractor, inputs, tmp_path).shape == (5, 2)
    assert not list(tmp_path.glob("*.part"))


# Frozen layers of a study -------------------------------------------------------------------------


MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


def convolutions(**changes: np.ndarray) -> dict[str, np.ndarray]:
    """Two small convolutions, the second without a bias."""
    rng = np.random.default_rng(4)
    shapes = {"conv1.weight": (5, 3, 3, 3), "conv1.bias": (5,), "conv2.weight": (4, 5, 3, 3)}
    return {name: rng.normal(size=s).astype(np.float32) for name, s in shapes.items()} | changes


def frozen_at(path: Path, **options) -> Frozen:
    """What a study says about that file."""
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return Frozen(weights=path.name, sha256=sha256, **options)


@pytest.fixture
def weights(tmp_path) -> Path:
    path = tmp_path / "conv.npz"
    np.savez(path, **convolutions())
    return path


def images(records: int = 6) -> Records:
    pixels = np.random.default_rng(8).uniform(size=(records, 3, 20, 20)).astype(np.float32)
    return Records(inputs=pixels, targets=np.zeros(records, np.int64))


def test_frozen_layers_are_convolutions_with_relu_and_pooling_on_normalised_channels(weights):
    frozen, records = frozen_at(weights, mean=MEAN, std=STD), images()
    folder = weights.parent
    found = through_frozen(frozen, records, folder=folder, cache=folder / "cache").inputs
    kept = {name: torch.from_numpy(value) for name, value in convolutions().items()}
    x = (torch.from_numpy(records.inputs) - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(
        STD
    ).view(3, 1, 1)
    for number in (1, 2):
        x = nn.functional.conv2d(x, kept[f"conv{number}.weight"], kept.get(f"conv{number}.bias"))
        x = nn.functional.max_pool2d(x.clamp(min=0), 3, 2)
    np.testing.assert_allclose(found, x.flatten(1).numpy(), rtol=1e-5, atol=1e-5)
    assert found.dtype == np.float32
    assert not any(p.requires_grad for p in frozen_layers(frozen, folder).parameters())


def test_npz_and_safetensors_give_the_same_features_and_a_study_without_layers_the_records(weights):
    safetensors = pytest.importorskip("safetensors.numpy")
    other, folder, records = weights.with_suffix(".safetensors"), weights.parent, images()
    safetensors.save_file(convolutions(), other)
    one, two = (
        through_frozen(frozen_at(path), records, folder=folder, cache=folder / path.suffix)
        for path in (weights, other)
    )
    assert one.inputs.tobytes() == two.inputs.tobytes()
    assert through_frozen(None, records) is records


def test_features_of_a_study_are_computed_once_and_lie_where_only_their_owner_reads(
    weights, monkeypatch
):
    monkeypatch.setenv("HUBBUB_DATA", str(weights.parent / "data"))
    first = through_frozen(frozen_at(weights), images(), folder=weights.parent)
    monkeypatch.setattr(nn.Conv2d, "forward", lambda *_: pytest.fail("computed again"))
    again = through_frozen(frozen_at(weights), images(), folder=weights.parent)
    assert first.inputs.tobytes() == again.inputs.tobytes()
    folder = weights.parent / "data" / "features"
    assert folder.stat().st_mode & 0o077 == 0
    assert {path.stat().st_mode & 0o077 for path in folder.iterdir()} == {0}
    assert len(list(folder.glob("*.npy"))) == 1


@pytest.mark.slow
def test_silos_that_store_the_same_features_at_once_do_not_spoil_them(tmp_path):
    inputs, extractor = torch.randn(200, 50), nn.Linear(50, 40)
    expected = extractor(inputs).detach().numpy()
    found = []

    def silo() -> None:
        found.append(frozen_features(extractor, inputs, tmp_path))

    threads = [threading.Thread(target=silo) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(np.allclose(one, expected, atol=1e-5) for one in found)
    assert len(list(tmp_path.glob("*.npy"))) <= 1
    assert {path.suffix or path.name for path in tmp_path.iterdir()} <= {".npy", "key", "lock"}


def test_another_file_of_weights_is_refused(weights):
    frozen = frozen_at(weights)
    np.savez(weights, **convolutions(**{"conv1.bias": np.ones(5, np.float32)}))
    with pytest.raises(IntegrityError, match=r"SHA-256.*get the file that the study names"):
        through_frozen(frozen, images(), folder=weights.parent)
    weights.unlink()
    with pytest.raises(IntegrityError, match="put the file there"):
        through_frozen(frozen, images(), folder=weights.parent)


class Touch:
    """Leaves a file behind where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_weights_that_would_run_code_are_refused_and_do_not_run_it(weights):
    trace = weights.parent / "trace"
    np.savez(weights, **{"conv1.weight": np.array([Touch(trace)], dtype=object)}, allow_pickle=True)
    with pytest.raises(IntegrityError, match="expected tensors"):
        through_frozen(frozen_at(weights), images(), folder=weights.parent)
    assert not trace.exists()


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"fc1.weight": np.ones((3, 3), np.float32)},
        convolutions(other=np.ones(3, np.float32)),
        {"conv2.weight": np.ones((4, 3, 3, 3), np.float32)},
        {"conv1.bias": np.ones(4, np.float32)},
        {"conv1.weight": np.ones((4, 3), np.float32)},
    ],
)
def test_a_file_that_holds_no_convolutions_is_refused(weights, arrays):
    np.savez(weights, **arrays)
    with pytest.raises(ModelError, match=r"conv1\.weight"):
        frozen_layers(frozen_at(weights), weights.parent)


@pytest.mark.parametrize(
    ("shape", "options"),
    [((2, 1, 20, 20), {}), ((2, 3, 8, 8), {}), ((2, 7), {}), ((2, 3, 20, 20), {"mean": (0.5,)})],
)
def test_records_that_frozen_layers_cannot_take_are_one_sentence(weights, shape, options):
    options = options | {"std": options["mean"]} if options else {}
    records = Records(inputs=np.ones(shape, np.float32), targets=np.zeros(2, np.int64))
    with pytest.raises(DataError, match="channels") as caught:
        through_frozen(
            frozen_at(weights, **options),
            records,
            folder=weights.parent,
            cache=weights.parent / "cache",
        )
    assert "\n" not in str(caught.value)


def test_a_silo_without_records_has_no_features(weights):
    found = through_frozen(
        frozen_at(weights), images(0), folder=weights.parent, cache=weights.parent / "cache"
    )
    assert found.inputs.shape == (0, 4 * 2 * 2)


FROZEN = {"weights": "conv.npz", "sha256": "ab" * 32}
MLP = {"kind": "mlp", "hidden": [4], "inputs": [36], "outputs": 10}


def test_a_study_names_frozen_layers_by_file_and_hash():
    stated = model_from(MLP | {"frozen": FROZEN | {"mean": [0.5, 1], "std": [1, 2]}})
    assert stated.frozen == Frozen(**FROZEN, mean=(0.5, 1.0), std=(1.0, 2.0))
    assert model_from(MLP | {"frozen": FROZEN}).frozen == Frozen(**FROZEN)
    assert model_from(MLP).frozen is None


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"frozen": "conv.npz"}, "table"),
        ({"frozen": {"weights": "conv.npz"}}, "model.frozen.sha256"),
        ({"frozen": FROZEN | {"sha256": "AB" * 32}}, "small hexadecimal"),
        ({"frozen": FROZEN | {"weights": "conv.pt"}}, "safetensors"),
        ({"frozen": FROZEN | {"path": "conv.npz"}}, "model.frozen"),
        ({"frozen": FROZEN | {"mean": [0.5]}}, "model.frozen.std"),
        ({"frozen": FROZEN | {"mean": [0.5], "std": [0]}}, "above 0"),
        ({"frozen": FROZEN | {"mean": [True], "std": [1]}}, "list of numbers"),
        ({"frozen": FROZEN, "inputs": [3, 20, 20]}, "how many come out"),
        ({"frozen": FROZEN, "inputs": []}, "how many come out"),
        ({"frozen": FROZEN, "kind": "cnn", "inputs": [36]}, "inputs|frozen"),
    ],
)
def test_frozen_layers_that_are_not_whole_are_refused_by_name(table, says):
    with pytest.raises(StudyError, match=says):
        model_from(MLP | table)


# What any model may be ----------------------------------------------------------------------------

CLASSES = default_loss(3)


class Pair(nn.Module):
    """Words and numbers of one record, as two arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.numbers = nn.Embedding(7, 4), nn.Linear(2, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, words, numbers):
        return self.head(torch.tanh(self.words(words).mean(1) + self.numbers(numbers)))


class Masked(nn.Module):
    """Attention that looks away from padding, with a token of its own and a tied head."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(9, 8)
        self.first = nn.Parameter(torch.randn(1, 1, 8))
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 9, bias=False)
        self.head.weight = self.words.weight

    def forward(self, words):
        seen = torch.cat([self.first.expand(len(words), -1, -1), self.words(words)], 1)
        padded = torch.cat([torch.zeros_like(words[:, :1]), (words == 0).long()], 1).bool()
        found, _ = self.attention(seen, seen, seen, key_padding_mask=padded, need_weights=False)
        return self.head(self.norm(seen + found)[:, 0])


def pairs(records: int):
    torch.manual_seed(5)
    inputs = torch.randint(7, (records, 3)), torch.randn(records, 2)
    return Pair(), inputs, torch.arange(records) % 3


def in_double(model, inputs):
    return model.double(), tuple(x.double() if x.is_floating_point() else x for x in inputs)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", "vmap", "loop"])
def test_several_inputs_of_a_record_are_summed_and_evaluated(method):
    model, inputs, targets = pairs(11)
    assert checked_method(model, CLASSES, inputs, targets) == "vmap"
    assert evaluate(model, CLASSES, inputs, targets, chunk=3)["loss"] > 0
    model, inputs = in_double(model, inputs)
    found = clipped_sum(model, CLASSES, inputs, targets, 0.3, method=method, chunk=4)
    expected = one_by_one(model, CLASSES, inputs, targets, 0.3)
    assert found.count == 11
    np.testing.assert_allclose(found.vector, expected, rtol=1e-11, atol=1e-13)


def test_several_targets_of_a_record_reach_the_loss_together():
    def weighted(outputs, targets):
        labels, weights = targets
        return CLASSES(outputs, labels) * weights

    model, inputs, labels = pairs(7)
    model, inputs = in_double(model, inputs)
    targets = labels, torch.rand(7).double()
    found = clipped_sum(model, weighted, inputs, targets, 0.3)
    expected = one_by_one(model, weighted, inputs, targets, 0.3)
    np.testing.assert_allclose(found.vector, expected, rtol=1e-11, atol=1e-13)
    with pytest.raises(DataError, match="same number"):
        clipped_sum(model, weighted, (inputs[0], inputs[1][:3]), targets, 0.3)


@pytest.mark.slow
def test_attention_with_padding_an_own_token_and_a_tied_head_is_summed():
    torch.manual_seed(6)
    model, words = Masked().double(), torch.randint(9, (8, 5))
    words[:, 3:] = 0
    targets, loss = torch.arange(8), default_loss(9)
    with sdpa_kernel(SDPBackend.MATH):
        assert checked_method(model, loss, words, targets) == "vmap"
        found = clipped_sum(model, loss, words, targets, 0.3)
        expected = one_by_one(model, loss, (words,), targets, 0.3)
    np.testing.assert_allclose(found.vector, expected, rtol=1e-10, atol=1e-12)


def one_by_one(model, loss, inputs, targets, clip):
    """The clipped sum by torch's own backward, one record after another."""
    parameters, total = list(model.parameters()), 0.0
    for i in range(len(inputs[0])):
        alone = targets[i : i + 1] if isinstance(targets, torch.Tensor) else None
        wanted = tuple(t[i : i + 1] for t in targets) if alone is None else alone
        value = loss(model(*(x[i : i + 1] for x in inputs)), wanted).sum()
        found = torch.autograd.grad(value, parameters)
        gradient = torch.cat([g.reshape(-1) for g in found])
        total = total + gradient * min(1.0, clip / float(gradient.norm())) * (1 - MARGIN)
    return total


def test_a_model_without_anything_to_train_is_refused():
    model = nn.Linear(4, 3).requires_grad_(False)
    with pytest.raises(ModelError, match="all of them frozen"):
        clipped_sum(model, CLASSES, torch.ones(2, 4), torch.zeros(2, dtype=torch.int64), 1.0)
    with pytest.raises(ModelError, match="found none"):
        parameters_vector(nn.ReLU())


class Beside(nn.Identity):
    """Keeps words beside its tensors, which no file of tensors holds."""

    def get_extra_state(self):
        return {"step": 1}

    def set_extra_state(self, state):
        pass


@pytest.mark.parametrize(
    ("layer", "says"),
    [
        (Beside(), "leave out its get_extra_state"),
        (nn.BatchNorm1d(4), "GroupNorm"),
        (nn.BatchNorm1d(4, track_running_stats=False).eval(), "GroupNorm"),
        (nn.BatchNorm2d(4), "GroupNorm"),
        (nn.BatchNorm3d(4), "GroupNorm"),
        (nn.SyncBatchNorm(4), "GroupNorm"),
        (nn.InstanceNorm1d(4, track_running_stats=True), "track_running_stats=False"),
        (nn.Embedding(4, 4, max_norm=1.0), "max_norm=None"),
    ],
    ids=str,
)
def test_a_layer_that_mixes_or_remembers_records_is_refused_wherever_it_hides(layer, says):
    model = nn.Sequential(nn.Linear(4, 4), nn.ModuleDict({"inner": nn.Sequential(layer)}))
    for refuse in (
        lambda: clipped_sum(model, CLASSES, torch.ones(2, 4), torch.zeros(2), 1.0),
        lambda: method_for(nn.Sequential(nn.Linear(4, 4), layer), (4,), np.zeros(1, np.int64)),
    ):
        with pytest.raises(ModelError, match=says) as caught:
            refuse()
        assert type(layer).__name__ in str(caught.value)


class Widest(TorchFunctionMode):
    """Notes the most rows that any matrix product with a weight sees at once."""

    rows = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is nn.functional.linear:
            self.rows = max(self.rows, args[0].numel() // args[0].shape[-1])
        return function(*args, **(kwargs or {}))


@pytest.mark.quick_cases("100", "7")
@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_a_setting_bounds_how_many_records_are_held_at_once(chunk):
    model = build_model("mlp", inputs=(4,), outputs=3, hidden=[6], seed=b"x")
    inputs, targets = torch.randn(100, 4), torch.arange(100) % 3
    with Widest() as seen:
        clipped_sum(model, CLASSES, inputs, targets, 1.0, method="chain", chunk=chunk)
    assert seen.rows == chunk
    calls: list[object] = []

    def counted(outputs, labels):
        calls.append(outputs)
        return CLASSES(outputs, labels)

    clipped_sum(model, counted, inputs, targets, 1.0, method="vmap", chunk=chunk)
    assert len(calls) == -(-100 // chunk)


def test_a_model_that_remembers_records_is_refused_before_it_is_tried_and_forgets():
    model = Counting()
    with pytest.raises(ModelError, match="buffers"):
        method_for(model, (4,), np.zeros(1, np.int64))
    assert float(model.seen) == 0


class Counting(nn.Module):
    """A model that counts its records."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.seen = nn.Buffer(torch.zeros(()))

    def forward(self, x):
        self.seen += len(x)
        return self.head(x)


class Dividing(nn.Module):
    """A model whose gradient is not a number for some records."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(2, 1)

    def forward(self, x):
        return (self.head(x) / x[:, :1]).squeeze(-1)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["vmap", "loop"])
def test_a_silos_records_without_a_finite_gradient_add_nothing_and_are_told_to_nobody(method):
    rng = np.random.default_rng(9)
    inputs, targets = rng.uniform(1, 2, (30, 2)).astype(np.float32), np.ones(30, np.float32)
    inputs[::3, 0] = 0.0
    whole, fine = (
        TrainingTask(
            Dividing(),
            Records(inputs=inputs[kept], targets=targets[kept]),
            clip=0.1,
            margin=1e-4,
            method=method,
        )
        for kept in (np.arange(30) >= 0, np.arange(30) % 3 > 0)
    )
    parameters = np.array([0.3, 0.2, 0.1], np.float32)
    total = whole.clipped_sum(parameters, np.arange(30))
    assert np.isfinite(total).all()
    expected = fine.clipped_sum(parameters, np.arange(20))
    np.testing.assert_allclose(total, expected, rtol=1e-6)
    assert isinstance(total, np.ndarray)  # and no count beside it
    assert not whole.clipped_sum(parameters, np.arange(0, 30, 3)).any()


@pytest.mark.parametrize("lost", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_is_left_out(lost):
    inputs, targets = torch.zeros(4, 2), torch.tensor([0.0, 1.0, 0.0, 1.0])
    model = nn.Sequential(nn.Linear(2, 1), nn.Flatten(0))
    found = evaluate(model, lambda outputs, _: torch.full_like(outputs, lost), inputs, targets)
    assert {"accuracy", "auc"} <= set(found)
    assert "loss" not in found


@pytest.mark.slow
def test_threads_that_build_models_at_once_get_the_weights_of_their_seeds_and_all_come_back() -> (
    None
):
    def weights(seed: bytes) -> bytes:
        model = build_model("mlp", inputs=(6,), outputs=1, hidden=[5], seed=seed)
        return b"".join(one.detach().numpy().tobytes() for one in model.parameters())

    seeds = [bytes([k]) for k in range(4)]
    alone = {seed: weights(seed) for seed in seeds}
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(weights, seeds * 100, timeout=600))
    assert together == [alone[seed] for seed in seeds] * 100


def test_a_linear_model_begins_at_a_public_intercept_and_no_other_model_does():
    model = build_model("logistic", inputs=(3,), outputs=1, seed=b"s", intercept=-4.5)
    assert [one.flatten().tolist() for one in model.parameters()] == [[0.0, 0.0, 0.0], [-4.5]]
    for more in ({"outputs": 3}, {"bias": False}, {"kind": "mlp", "hidden": [4]}):
        stated = {"kind": "logistic", "inputs": [3], "intercept": -4.5, **more}
        with pytest.raises(StudyError, match=r"model\.intercept to be absent"):
            model_from(stated)
    assert model_from({"kind": "logistic", "inputs": [3], "intercept": -4.5}).intercept == -4.5


class Crowded(nn.Linear):
    """A layer on a device that has room for so many records."""

    room = 3

    def forward(self, rows):
        """As torch says it where memory is short."""
        if len(rows) > self.room:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return super().forward(rows)


def test_an_evaluation_for_which_memory_is_short_takes_fewer_records_at_once():
    torch.manual_seed(0)
    inputs, targets, model = torch.randn(11, 4), torch.arange(11) % 2, Crowded(4, 2)
    crowded = evaluate(model, CLASSES, inputs, targets)
    model.room = 11
    assert crowded == pytest.approx(evaluate(model, CLASSES, inputs, targets), rel=1e-6)
    model.room = 0
    with pytest.raises(torch.cuda.OutOfMemoryError):
        evaluate(model, CLASSES, inputs, targets)
