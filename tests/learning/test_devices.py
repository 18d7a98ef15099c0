"""A silo's choice of device changes speed alone: the same sums come back, in float64 on the CPU."""

from __future__ import annotations

import gc
import pkgutil
import weakref
from functools import cache, partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from hubbub.core.errors import UserError
from hubbub.core.tabular.records import Records
from hubbub.learning import (
    TrainingTask,
    build_model,
    clipped_sum,
    clipped_sums,
    default_loss,
    device_of,
    evaluate_records,
    method_for,
    parameters_vector,
    torch_settings,
)
from hubbub.learning.layer_projection import LayerProjection
from hubbub.learning.silo_tasks import EvaluationTask, replica
from hubbub.learning.torch_settings import exact_products, modes_kept

KINDS = {
    "logistic": ((20,), 1, ()),
    "mlp": ((20,), 3, (40, 30)),
    "cnn": ((3, 16, 16), 3, (20,)),
}


def made(kind: str) -> tuple[nn.Module, Records]:
    """A model of that kind and made-up records for it."""
    inputs, outputs, hidden = KINDS[kind]
    generator = np.random.default_rng(3)
    classes = generator.integers(max(outputs, 2), size=50)
    records = Records(
        inputs=generator.normal(size=(50, *inputs)).astype(np.float32),
        targets=classes.astype(np.float32 if outputs == 1 else np.int64),
    )
    return build_model(kind, inputs=inputs, outputs=outputs, hidden=hidden, seed=b"d"), records


def summed(kind: str, **options) -> np.ndarray:
    """The clipped sum of thirty of the records."""
    model, records = made(kind)
    method = method_for(model, records.inputs.shape[1:], records.targets)
    task = TrainingTask(model, records, clip=1.0, margin=1e-4, method=method, **options)
    return task.clipped_sum(parameters_vector(model), np.arange(5, 35))


def test_a_named_device_is_that_device_and_auto_is_the_best_there_is():
    assert device_of("cpu") == torch.device("cpu")
    assert device_of("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("name", ["meta", "gpu", "", "cpu:0", "cuda:", "cuda:-1", "cuda:x", "mps"])
def test_what_is_no_device_of_a_silo_is_refused(name):
    with pytest.raises(UserError, match='"auto", "cpu" or "cuda"'):
        device_of(name)
    model, records = made("logistic")
    with pytest.raises(UserError, match="choose one"):
        TrainingTask(model, records, clip=1.0, margin=1e-4, method="loop", device=name)
    with pytest.raises(UserError, match="choose one"):
        evaluate_records(model, records, device=name)


def test_a_gpu_that_is_not_there_is_refused_with_what_to_take():
    with pytest.raises(UserError, match='"auto" or "cpu"'):
        device_of("cuda:99")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_sum_comes_back_in_float64_and_is_that_of_the_default(kind):
    usual, named, best = summed(kind), summed(kind, device="cpu"), summed(kind, device="auto")
    assert usual.dtype == named.dtype == best.dtype == np.float64
    assert usual.tobytes() == named.tobytes()
    assert np.linalg.norm(best - usual) <= 1e-5 * np.linalg.norm(usual)
    assert np.linalg.norm(usual) > 0.1


@pytest.mark.slow_cases("loop")
@pytest.mark.parametrize("method", ["chain", "vmap", "loop"])
def test_no_wish_for_short_numbers_reaches_a_clipped_sum(precision, method):
    """Autocast to bfloat16 and products of 10 bits, as they speed up a GPU: the same bits."""
    model, records = made("mlp")
    x, y = torch.from_numpy(records.inputs), torch.from_numpy(records.targets)

    def bits() -> bytes:
        return (
            clipped_sum(model, default_loss(3, y.dtype), x, y, 0.5, method=method)[0]
            .numpy()
            .tobytes()
        )

    exact = bits()
    torch.set_float32_matmul_precision("medium")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model(x).dtype == torch.bfloat16  # so it would be
        assert bits() == exact
        assert torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("method", ["vmap", "loop"])
def test_the_public_sum_asks_a_gpu_for_whole_products(precision, method):
    model = Asking()
    torch.set_float32_matmul_precision("medium")
    loss = partial(torch.nn.functional.binary_cross_entropy_with_logits, reduction="none")
    clipped_sum(model, loss, torch.ones(4, 3), torch.ones(4), 1.0, method=method)
    assert model.seen == {"ieee"}
    assert torch.get_float32_matmul_precision() == "medium"


@pytest.mark.parametrize("kind", KINDS)
def test_the_gpus_sum_and_metrics_are_those_of_the_cpu(kind, gpu):
    here, there = summed(kind), summed(kind, device=gpu)
    assert np.linalg.norm(here - there) <= 1e-5 * np.linalg.norm(here)
    model, records = made(kind)
    cpu, cuda = (evaluate_records(model, records, device=name) for name in ("cpu", gpu))
    assert cuda == pytest.approx(cpu, rel=1e-4)
    assert all(parameter.device.type == "cpu" for parameter in model.parameters())


def test_one_record_stays_within_the_clip_on_the_gpu_too(gpu):
    model, records = made("mlp")
    task = TrainingTask(model, records, clip=0.01, margin=1e-4, method="vmap", device=gpu)
    for record in range(20):
        vector = task.clipped_sum(parameters_vector(model), np.array([record]))
        assert np.linalg.norm(vector) <= 0.01


def test_silos_on_one_device_share_a_replica_that_goes_with_the_model():
    model = nn.Linear(3, 2)
    place = torch.device("meta")  # a device that every machine has
    shared = replica(model, place)
    assert shared.weight.device == place
    assert replica(model, place) is shared
    assert replica(model, torch.device("cpu")) is model
    assert model.weight.device.type == "cpu"
    gone = weakref.ref(shared)
    del model, shared
    gc.collect()
    assert gone() is None


class Asking(nn.Module):
    """A model that notes how exact matrix products are while it is summed."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 1)
        self.seen: set[str] = set()

    def forward(self, x):
        if torch.is_grad_enabled():
            self.seen.add(torch.backends.cuda.matmul.fp32_precision)
        return self.head(x).squeeze(-1)


@pytest.fixture
def precision():
    """How torch computes, put back afterwards."""
    with modes_kept():
        yield


@pytest.mark.slow_cases("medium")
@pytest.mark.parametrize("wish", ["high", "medium"])
def test_rough_products_are_switched_off_in_a_sum_and_on_again_afterwards(precision, wish):
    model = Asking()
    records = Records(inputs=np.ones((4, 3), np.float32), targets=np.ones(4, np.float32))
    task = TrainingTask(model, records, clip=1.0, margin=1e-4, method="loop")
    torch.set_float32_matmul_precision(wish)
    task.clipped_sum(parameters_vector(model), np.arange(4))
    assert model.seen == {"ieee"}
    assert torch.get_float32_matmul_precision() == wish


def test_a_wish_for_one_backend_alone_is_put_back_too(precision):
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    with exact_products():
        assert torch.backends.cuda.matmul.fp32_precision == "ieee"
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"


class Constant(nn.Module):
    """A model that makes a tensor of its own in its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = build_model("mlp", inputs=(4,), outputs=3, hidden=(5,), seed=b"d")

    def forward(self, x):
        return self.layers(x + torch.full((4,), 0.5))


def told_of(model: nn.Module) -> list[object]:
    """All that is made of a model and a few records."""
    inputs = np.random.default_rng(3).normal(size=(9, 4)).astype(np.float32)
    records = Records(inputs=inputs, targets=np.arange(9) % 3)
    method = method_for(model, (4,), records.targets)
    parameters, rows = parameters_vector(model), np.arange(9)
    train = TrainingTask(model, records, clip=1.0, margin=1e-4, method=method)
    tasks = train, EvaluationTask(model, records, method=method)
    sums = [task.clipped_sum(parameters, rows).tobytes() for task in tasks]
    drawn = build_model("mlp", inputs=(4,), outputs=3, hidden=(5,), seed=b"d")
    return [method, *sums, evaluate_records(model, records), parameters_vector(drawn).tobytes()]


@cache
def usual() -> tuple[nn.Module, list[object]]:
    """A model, and what is made of it while nothing of torch is set."""
    model = Constant()
    return model, told_of(model)


@pytest.mark.parametrize(
    "default",
    [
        partial(torch.set_default_device, "meta"),
        partial(torch.set_default_dtype, torch.float64),
        partial(torch.set_autocast_enabled, "cpu", True),
    ],
    ids=["device", "type", "autocast"],
)
def test_the_callers_defaults_change_nothing_and_stay(precision, default):
    """Or models were refused, or a study's first weights were others at one of its silos."""
    model, wanted = usual()
    default()
    before = modes()
    assert told_of(model) == wanted
    assert modes() == before


class Doubled(TorchFunctionMode):
    """Every result of torch's functions that is a number is twice what it is."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        given = func(*args, **(kwargs or {}))
        is_number = isinstance(given, torch.Tensor) and given.is_floating_point()
        return given + given if is_number and "norm" not in str(func) else given


def backend(*path: str, precision: str):
    """What sets the precision of one of torch's backends."""

    def change() -> None:
        place = torch.backends
        for name in path:
            place = getattr(place, name)
        place.fp32_precision = precision

    return change


LOGISTIC = partial(torch.nn.functional.binary_cross_entropy_with_logits, reduction="none")
OWN = ("matmul", "conv", "rnn")
LEFT = []  # what is not ended before it is dropped
# What a forward may change of how torch computes, in this thread or in the process.
CHANGES = {
    "medium": partial(torch.set_float32_matmul_precision, "medium"),
    "high": partial(torch.set_float32_matmul_precision, "high"),
    "all": backend(precision="bf16"),
    "older": lambda: setattr(torch.backends.cudnn, "allow_tf32", True),
    **{
        "/".join(path): backend(*path, precision=precision)
        for precision, *paths in (
            ("tf32", ("cuda", "matmul"), ("cudnn",), ("cudnn", "conv"), ("cudnn", "rnn")),
            ("bf16", ("mkldnn",), *(("mkldnn", one) for one in ("matmul", "conv", "rnn"))),
        )
        for path in paths
    },
    "autocast": partial(torch.set_autocast_enabled, "cpu", True),
    "autocast type": partial(torch.set_autocast_dtype, "cpu", torch.float16),
    "type": partial(torch.set_default_dtype, torch.float64),
    "device": partial(torch.set_default_device, "meta"),
    "gradients": partial(torch.set_grad_enabled, False),
    "inference": lambda: LEFT.append(torch._C._InferenceMode(True)),
    "denormal": partial(torch.set_flush_denormal, True),
    "threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "anomaly": partial(torch.autograd.set_detect_anomaly, True),
    "benchmark": lambda: setattr(torch.backends.cudnn, "benchmark", True),
    "cudnn": lambda: setattr(torch.backends.cudnn, "enabled", False),
    "mkldnn": lambda: setattr(torch.backends.mkldnn, "enabled", False),
    "attention": partial(torch.backends.cuda.enable_math_sdp, False),
    "NumPy": lambda: np.seterr(all="raise"),
    "mode": lambda: Doubled().__enter__(),
}


class Changing(nn.Module):
    """A model whose forward changes how torch computes, and leaves it so."""

    def __init__(self, change) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.hidden, self.head, self.change = nn.Linear(40, 30), nn.Linear(30, 1), change

    def forward(self, x):
        output = self.head(torch.tanh(self.hidden(x))).squeeze(-1)
        self.change()
        return output


class ShortProducts(TorchDispatchMode):
    """A machine that rounds the factors of products as it is asked to, which not every one does."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kinds = {torch_settings._precision(place) for place in torch_settings._PRECISIONS[3:]}
        if ("mm" in str(func) or "mv" in str(func)) and kinds != {"ieee"}:
            sums = "add" in str(func)
            args = [*args[:sums], *map(shortened, args[sums:])]
        return func(*args, **(kwargs or {}))


def shortened(one):
    """A tensor of float32 with the 8 bits of bfloat16."""
    short = isinstance(one, torch.Tensor) and one.dtype == torch.float32
    return one.bfloat16().float() if short else one


def modes() -> list[object]:
    """How torch computes now."""
    known = [torch_settings._precision(place) for place in torch_settings._PRECISIONS]
    return known + [get() for get, _ in torch_settings._MODES]


@pytest.mark.parametrize("change", ["autocast type", "threads", "medium"])
@pytest.mark.parametrize("at_once", [True, False])
def test_what_a_forward_leaves_of_torch_is_gone_after_its_piece(
    precision, monkeypatch, change, *, at_once
):
    monkeypatch.setattr(clipped_sums, "takes_all_at_once", lambda *_: at_once)
    x, before = torch.linspace(-1, 1, 80).view(2, 40), modes()
    seen = []

    def changed() -> None:
        seen.append(modes())
        CHANGES[change]()

    for _ in range(2):
        clipped_sum(Changing(changed), LOGISTIC, x, torch.ones(2), 1.0, chunk=1, method="loop")
    assert seen == [seen[0]] * len(seen)
    assert modes() == before


@pytest.mark.slow
@pytest.mark.parametrize("method", ["vmap", "loop"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_no_change_that_a_forward_makes_lengthens_a_record_or_stays(precision, change, method):
    """One record is at most C, the others are what it is, and the process is as it was."""
    model, before = Changing(change), modes()
    x, y = torch.linspace(-1, 1, 40).sin().expand(3, 40), torch.ones(3)
    layers = LayerProjection.of(model, 60)
    for summed in (clipped_sum, partial(layers.clipped_sum, draw_key=bytes(16))):
        total = partial(summed, model, LOGISTIC, clip=1e-3, chunk=1, method=method)
        with ShortProducts():
            one, three = total(inputs=x[:1], targets=y[:1])[0], total(inputs=x, targets=y)[0]
        length = torch.linalg.vector_norm(one, dtype=torch.float64).item() / 1e-3
        assert length <= 1
        assert length > 0.999 or change in (CHANGES["gradients"], CHANGES["inference"])
        assert torch.allclose(three, 3 * one, rtol=1e-6)
        assert modes() == before


def test_what_rounds_products_in_torch_is_all_put_right_for_a_sum(precision):
    """Each of torch's words for it, found by walking what torch has, says IEEE inside."""
    names = [one.name for one in pkgutil.iter_modules(torch.backends.m.__path__)]
    backends = [getattr(torch.backends, name, None) for name in names]
    places = [getattr(backend, own) for backend in backends for own in OWN if hasattr(backend, own)]
    assert len(places) == len(torch_settings._PRECISIONS) - 3
    for change in CHANGES.values():
        with modes_kept():
            change()
            with exact_products():
                assert {place.fp32_precision for place in places} == {"ieee"}
                assert not torch.backends.cudnn.allow_tf32
