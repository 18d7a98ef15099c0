"""Sums as a device makes them, all records at once: made here on a processor, by a private switch.

Every sum is compared with the gradients that autograd gives record by record in float64.
"""

from __future__ import annotations

import copy
import functools
import gc
import os
import subprocess
import sys
import warnings
import weakref
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from hubbub import Study
from hubbub.core.errors import ModelError, StudyError
from hubbub.core.tabular.records import Records
from hubbub.learning import (
    TrainingTask,
    batches,
    build_model,
    checked_method,
    clipped_sum,
    device_sums,
    parameters_vector,
    per_record,
)
from hubbub.learning.clipped_sums import affordable
from hubbub.learning.layer_projection import LayerProjection
from hubbub.learning.per_record import Positions, Stack, Windows, norms_of, stored
from hubbub.learning.torch_settings import alike_each_time, exact_products, shortened
from nets import Net

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")

CROSS_ENTROPY = functools.partial(functional.cross_entropy, reduction="none")


@pytest.fixture(autouse=True)
def at_once(monkeypatch, request):
    """Take the way of a device on a processor too."""
    monkeypatch.setattr(device_sums, "_PIECEWISE", frozenset())


@pytest.fixture(params=["roomy", "short"])
def memory(request, monkeypatch):
    """With memory to spare, and with so little that each record is made after the other."""
    if request.param == "short":
        monkeypatch.setattr(device_sums, "_SPARE", 1)
        monkeypatch.setattr(device_sums, "_SHARE", 2**40)


def vision_transformer():
    """Patches by a convolution, a class token, learnt places, torch's own encoder."""

    def forward(m, x):
        patches = m.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([m.token.expand(len(x), -1, -1), patches], 1) + m.places
        return m.head(m.body(tokens)[:, 0])

    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, "gelu", batch_first=True, norm_first=True)
    return Net(
        forward,
        patches=nn.Conv2d(3, 8, 4, stride=4),
        token=nn.Parameter(torch.randn(1, 1, 8)),
        places=nn.Parameter(torch.randn(1, 5, 8)),
        body=nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
        head=nn.Linear(8, 3),
    )


def u_net():
    """Down by strides, up by a transposed convolution and by interpolation, with skips."""

    def forward(m, x):
        first = functional.silu(m.norm(m.into(x)))
        second = functional.silu(m.down(first))
        third = functional.silu(m.depth(m.point(second)))
        up = torch.cat([m.up(third), first], dim=1)
        wide = functional.interpolate(m.out(up), scale_factor=2, mode="bilinear")
        return functional.adaptive_avg_pool2d(wide, 1).flatten(1)

    return Net(
        forward,
        into=nn.Conv2d(2, 4, 3, padding="same"),
        norm=nn.GroupNorm(2, 4),
        down=nn.Conv2d(4, 8, 3, stride=2, padding=1),
        point=nn.Conv2d(8, 8, 1, bias=False),
        depth=nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=8),
        up=nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1, output_padding=1, groups=2),
        out=nn.Conv2d(8, 3, 3, padding=1, padding_mode="circular"),
    )


def recurrent(kind, **options):
    """Words through a recurrent layer, of whose last outputs the class is made."""
    body = getattr(nn, kind)(4, 5, **options)
    width = body.hidden_size * (1 + body.bidirectional)
    first = body.batch_first

    def forward(m, x):
        words = m.words(x)
        output, last = m.body(words if first else words.transpose(0, 1))
        hidden = last[0] if isinstance(last, tuple) else last
        return m.head(output.mean(1 if first else 0)) + m.ends(hidden[-1])

    return Net(
        forward, words=nn.Embedding(9, 4), body=body, head=nn.Linear(width, 3), ends=nn.Linear(5, 3)
    )


def frozen_body(model):
    model.body.requires_grad_(requires_grad=False)
    return model


def begun_state():
    """A GRU that begins with what another layer makes of the record, and with a weight."""

    def forward(m, x):
        begin = torch.stack([m.first(x[:, 0]), m.state.expand(len(x), -1)])
        return m.head(m.body(x, begin)[1][1])

    return Net(
        forward,
        first=nn.Linear(4, 5),
        state=nn.Parameter(torch.randn(5)),
        body=nn.GRU(4, 5, num_layers=2, batch_first=True),
        head=nn.Linear(5, 3),
    )


class LowRank(nn.Module):
    """A frozen layer and the product of two thin ones, as adapters have it."""

    def __init__(self, layer):
        super().__init__()
        self.base = layer.requires_grad_(requires_grad=False)
        self.down = nn.Linear(layer.in_features, 2, bias=False)
        self.up = nn.Linear(2, layer.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + 2.0 * self.up(self.down(x))


def language_model(adapters):
    """Word by word; the head is the table of words."""

    def forward(m, x):
        y = m.words(x) + m.places.weight[: x.shape[1]]
        y = y + m.out(functional.scaled_dot_product_attention(*(p(y) for p in (m.q, m.k, m.v))))
        y = y + m.wide(functional.gelu(m.deep(m.norm(y))))
        return m.head(y).mean(1)

    linear = {name: nn.Linear(6, 6) for name in ("q", "k", "v", "out", "deep", "wide")}
    model = Net(forward, words=nn.Embedding(9, 6), places=nn.Embedding(5, 6), **linear)
    model.norm, model.head = nn.LayerNorm(6), nn.Linear(6, 9, bias=False)
    model.head.weight = model.words.weight
    if adapters:
        model.requires_grad_(requires_grad=False)
        for name in ("q", "v"):
            setattr(model, name, LowRank(getattr(model, name)))
    return model


def scales():
    """Parameters of one number each, which are joined with biases."""
    model = Net(lambda m, x: m.head(x * m.scale) + m.shift, head=nn.Linear(4, 3))
    model.scale, model.shift = nn.Parameter(torch.tensor(1.5)), nn.Parameter(torch.tensor(0.5))
    return model


def used_in_many_ways():
    """A layer twice, one weight in two modules, one by hand, one frozen, one that is not used."""

    def forward(m, x):
        y = torch.tanh(m.twice(torch.tanh(m.twice(x))))
        y = y + m.same(x) @ m.hand.weight.t()
        return m.head(m.still(y))

    model = Net(forward, twice=nn.Linear(4, 4), same=nn.Linear(4, 4), hand=nn.Linear(4, 4))
    model.same.weight = model.twice.weight
    model.still = nn.Linear(4, 4).requires_grad_(requires_grad=False)
    model.head, model.unused = nn.Linear(4, 3), nn.Linear(4, 3)
    return model


def images(channels, size):
    return lambda n: torch.randn(n, channels, size, size)


def words(n):
    return torch.randint(9, (n, 5))


MODELS = {
    "vision transformer": (vision_transformer, images(3, 8)),
    "u-net": (u_net, images(2, 8)),
    "gru": (lambda: recurrent("GRU", batch_first=True), words),
    "gru, two ways, no bias": (
        lambda: recurrent("GRU", batch_first=True, num_layers=2, bidirectional=True, bias=False),
        words,
    ),
    "lstm, steps first": (lambda: recurrent("LSTM", num_layers=2), words),
    "lstm of two ways": (lambda: recurrent("LSTM", bidirectional=True, batch_first=True), words),
    "frozen gru": (
        lambda: frozen_body(recurrent("GRU", batch_first=True)),
        words,
    ),
    "gru with a state": (begun_state, lambda n: torch.randn(n, 6, 4)),
    "language model": (lambda: language_model(adapters=False), words),
    "adapters": (lambda: language_model(adapters=True), words),
    "scales": (scales, lambda n: torch.randn(n, 4)),
    "many ways": (used_in_many_ways, lambda n: torch.randn(n, 4)),
    "three dimensions": (
        lambda: nn.Sequential(
            nn.Conv3d(2, 3, 2),
            nn.ConvTranspose3d(3, 2, 2, stride=2),
            nn.Flatten(),
            nn.LazyLinear(3),
        ),
        lambda n: torch.randn(n, 2, 4, 3, 3),
    ),
    "one dimension": (
        lambda: nn.Sequential(
            nn.Conv1d(2, 4, 3, dilation=2, groups=2),
            nn.ConvTranspose1d(4, 2, 4, stride=3, dilation=2, bias=False),
            nn.Flatten(),
            nn.LazyLinear(3),
        ),
        lambda n: torch.randn(n, 2, 9),
    ),
    "chain": (lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), torch.randn),
}


def case(name, records=6):
    torch.manual_seed(4)
    build, data = MODELS[name]
    model = build()
    inputs = data(records, 4) if data is torch.randn else data(records)
    model(inputs[:1])
    return model.eval(), inputs, torch.arange(records) % 3


def gradients(model, inputs, targets):
    """(n, d) in float64, by autograd, of one record after the other."""
    wide = copy.deepcopy(model).double()
    rows = []
    for x, y in zip(inputs.split(1), targets.split(1), strict=True):
        loss = CROSS_ENTROPY(wide(x.double() if x.is_floating_point() else x), y).sum()
        parameters = [p for p in wide.parameters() if p.requires_grad]
        parts = torch.autograd.grad(loss, parameters, allow_unused=True)
        pairs = zip(parameters, parts, strict=True)
        rows.append(
            torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for p, g in pairs])
        )
    return torch.stack(rows)


def clipped(rows, clip):
    return rows * (clip / rows.norm(dim=1)).clamp(max=1)[:, None]


# What is in few tests is quick: the others hold the same law of more layers.
slow = pytest.mark.slow


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("name", MODELS)
def test_the_sum_is_that_of_float64_record_by_record(name):
    model, inputs, targets = case(name)
    rows = gradients(model, inputs, targets)
    clip = float(rows.norm(dim=1).median())
    counted = torch.tensor([True, False, True, True, True, True])
    total, count = clipped_sum(model, CROSS_ENTROPY, inputs, targets, clip, counted=counted)
    wanted = clipped(rows, clip)[counted].sum(0)
    assert total.dtype == torch.float64
    assert count == 5
    assert float((total - wanted).norm()) <= 1e-5 * float(wanted.norm())


@slow
@pytest.mark.parametrize("name", MODELS)
def test_no_model_of_these_is_taken_record_by_record(name):
    model, inputs, targets = case(name)
    method = checked_method(model, CROSS_ENTROPY, inputs, targets)
    assert method == ("chain" if name == "chain" else "vmap")


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
@pytest.mark.parametrize(
    "name",
    ["chain", *(pytest.param(one, marks=slow) for one in ("vision transformer", "u-net", "gru"))],
)
def test_no_record_is_longer_than_the_clip_however_short_the_numbers(name, precision):
    model, inputs, targets = case(name)
    for clip in (1e-30, 1e-9, 0.3):
        for i in range(len(inputs)):
            batch = inputs[i : i + 1], targets[i : i + 1]
            total, _ = clipped_sum(model, CROSS_ENTROPY, *batch, clip, precision=precision)
            assert 0.9999 * clip < float(total.norm()) <= clip


@pytest.mark.parametrize("name", ["vision transformer", "gru", "language model", "chain"])
def test_numbers_of_eight_bits_change_the_sum_and_not_by_much(name):
    model, inputs, targets = case(name)
    rough, exact = (
        clipped_sum(model, CROSS_ENTROPY, inputs, targets, 1e3, precision=precision).vector
        for precision in ("bf16", "float32")
    )
    assert 1e-5 < float((rough - exact).norm() / exact.norm()) < 0.1


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf, 3e38])
@pytest.mark.parametrize(
    "name",
    ["many ways", *(pytest.param(one, marks=slow) for one in ("u-net", "gru with a state"))],
)
def test_a_record_that_is_not_finite_adds_nothing_and_moves_nobody(name, bad):
    model, inputs, targets = case(name)
    rest = torch.arange(6) != 2
    wanted = clipped_sum(model, CROSS_ENTROPY, inputs, targets, 0.5, counted=rest)
    inputs[2].view(-1)[0] = bad
    total = clipped_sum(model, CROSS_ENTROPY, inputs, targets, 0.5)
    if total.count == 6:  # 3e38, where a layer makes it small
        total = clipped_sum(model, CROSS_ENTROPY, inputs, targets, 0.5, counted=rest)
    assert total.count == wanted.count == 5
    torch.testing.assert_close(total.vector, wanted.vector, rtol=1e-6, atol=1e-9)


def test_a_record_without_a_gradient_is_counted_and_adds_zero():
    model = Net(lambda m, x: m.head(x) * 0.0, head=nn.Linear(4, 3))
    total, count = clipped_sum(model, CROSS_ENTROPY, torch.randn(3, 4), torch.arange(3), 1.0)
    assert count == 3
    assert not total.any()
    none = Net(lambda m, x: x[:, :3], head=nn.Linear(4, 3))
    total, count = clipped_sum(none, CROSS_ENTROPY, torch.randn(3, 4), torch.arange(3), 1.0)
    assert count == 3
    assert not total.any()


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("name", ["u-net", "language model", "gru", "many ways"])
def test_a_projected_sum_is_that_of_the_loop(name):
    model, inputs, targets = case(name)
    layers = LayerProjection.of(model, sum(p.numel() for p in model.parameters()) // 2)
    sums = [
        layers.clipped_sum(
            model, CROSS_ENTROPY, inputs, targets, 0.5, bytes(16), method=method
        ).vector
        for method in ("vmap", "loop")
    ]
    torch.testing.assert_close(*sums, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "short",
    [
        torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:119] DefaultCPUAllocator: can't allocate"),
    ],
    ids=["torch", "cuBLAS", "cuDNN", "processor"],
)
def test_memory_that_is_short_halves_the_rows_and_the_next_call_remembers(monkeypatch, short):
    model, inputs, targets = case("chain")
    wanted = clipped_sum(model, CROSS_ENTROPY, inputs, targets, 0.5).vector
    seen: list[int] = []
    real = device_sums._add

    def add(total, form, space, piece, *rest):
        seen.append(piece.size)
        if piece.size > 2:
            total += 1.0  # what was added before memory was out is forgotten
            raise short
        return real(total, form, space, piece, *rest)

    monkeypatch.setattr(device_sums, "_add", add)
    for rows in ([6, 3, 2, 2, 2], [2, 2, 2]):
        total = clipped_sum(model, CROSS_ENTROPY, inputs, targets, 0.5).vector
        torch.testing.assert_close(total, wanted)
        assert seen == rows
        seen.clear()


def test_what_an_error_for_want_of_memory_holds_is_gone_before_the_next_try(monkeypatch):
    model, inputs, targets = case("chain")
    held: list[weakref.ref] = []
    left: list[bool] = []
    real = device_sums._add

    def add(total, form, space, piece, *rest):
        left.extend(one() is not None for one in held)
        if piece.size > 3:
            cycle = Net(None, gradients=nn.Linear(2, 2))
            cycle.itself = [cycle]
            held.append(weakref.ref(cycle))
            raise torch.cuda.OutOfMemoryError
        return real(total, form, space, piece, *rest)

    monkeypatch.setattr(device_sums, "_add", add)
    gc.disable()
    try:
        clipped_sum(model, CROSS_ENTROPY, inputs, targets, 0.5)
    finally:
        gc.enable()
    assert left == [False, False]


def test_how_many_rows_fit_is_judged_by_what_will_be_made(monkeypatch):
    """And not by the products of a processor's pieces, made in float64 on a device for nothing."""
    monkeypatch.setattr(per_record.Products, "of", None)
    model = Net(
        lambda m, x: m.head(m.wide(x).mean(1)), wide=nn.Linear(90, 90), head=nn.Linear(90, 3)
    )
    batch = torch.randn(6, 2, 90), torch.arange(6) % 3
    assert affordable(model, CROSS_ENTROPY, *batch, "vmap")[1] == 1


GEOMETRIES = {
    "even, as large": lambda: nn.Conv2d(2, 4, 4, padding="same"),
    "even, wide gaps, as large": lambda: nn.Conv2d(2, 4, (4, 2), padding="same", dilation=(1, 3)),
    "steps that leave some": lambda: nn.Conv2d(2, 4, 3, stride=(3, 2), padding=(0, 2), groups=2),
    "valid": lambda: nn.Conv2d(2, 4, (1, 5), padding="valid", bias=False),
    "transposed, uneven": lambda: nn.ConvTranspose2d(
        2, 4, (3, 2), stride=(2, 3), padding=(1, 0), output_padding=(1, 2), dilation=(2, 1)
    ),
    "transposed, in groups": lambda: nn.ConvTranspose2d(2, 4, 3, groups=2, padding=1),
    "mirrored": lambda: nn.Conv2d(2, 4, 3, padding=2, padding_mode="reflect"),
}


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("name", GEOMETRIES)
def test_windows_lie_as_the_convolution_has_them(name):
    torch.manual_seed(1)
    model = nn.Sequential(GEOMETRIES[name](), nn.Tanh(), nn.Flatten(), nn.LazyLinear(3))
    inputs, targets = torch.randn(4, 2, 7, 6), torch.arange(4) % 3
    model(inputs[:1])
    total = clipped_sum(model, CROSS_ENTROPY, inputs, targets, 1e3, method="vmap").vector
    wanted = gradients(model, inputs, targets).sum(0)
    assert float((total - wanted).norm()) <= 1e-5 * float(wanted.norm())


def test_what_products_make_is_stored_before_it_is_measured():
    """Products that cancel leave rounding: the norm is that of what is added, not of the truth."""
    left = torch.randn(3, 4, 5)
    right = torch.randn(3, 4, 6)
    left[:, 2:], right[:, 2:] = -left[:, :2] * (1 + 1e-7), right[:, :2]
    made = stored(Positions(left=left, right=right))
    assert isinstance(made, Stack)
    rows = made.gradients.double().flatten(1)
    torch.testing.assert_close(norms_of(made.gradients), rows.norm(dim=1), rtol=1e-12, atol=0)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_norms_of_long_and_short_rows_on_a_device_are_those_of_float64(kind):
    """Squares that float32 has no room for, and numbers that are none."""
    for columns in (3, per_record._LONG + 1):
        rows = torch.randn(4, columns).to(kind)
        rows[1], rows[2, 0], rows[3] = rows[1] * 1e-30, torch.inf, 1e30
        norms = per_record._norms_on_device(rows)
        assert norms.dtype == torch.float64
        assert not norms[2].isfinite()
        exact = rows.double().norm(dim=1)
        torch.testing.assert_close(norms[[0, 1, 3]], exact[[0, 1, 3]], rtol=1e-12, atol=0)


def test_windows_of_many_records_are_written_out_some_at_a_time(monkeypatch):
    given = Windows(
        left=torch.randn(6, 4, 9),
        images=torch.randn(6, 2, 5, 5),
        records=3,
        groups=2,
        kernel=(3, 3),
        steps=(1, 1),
        margins=((0, 0), (0, 0)),
        gaps=(1, 1),
        places=(3, 3),
    )
    at_once = stored(given)
    monkeypatch.setattr(per_record, "_WIDE_STRIPE", 1)
    torch.testing.assert_close(stored(given).gradients, at_once.gradients)


class Writing(nn.Module):
    """A model that keeps what it has seen in a buffer."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x):
        self.seen.data += 1
        return self.head(x)


def test_a_model_that_writes_to_itself_is_refused_and_put_back():
    model = Writing()
    with pytest.raises(ModelError, match="leaves parameters and buffers alone"):
        clipped_sum(model, CROSS_ENTROPY, torch.randn(3, 4), torch.arange(3), 1.0)
    assert not model.seen.any()


def task_of(model, records, **options):
    method = "vmap"
    return TrainingTask(model, records, clip=0.5, margin=1e-4, method=method, **options)


def cases_of_a_task():
    model = build_model("cnn", inputs=(1, 13, 13), outputs=3, hidden=(6,), seed=b"d")
    generator = np.random.default_rng(1)
    inputs = generator.normal(size=(40, 1, 13, 13)).astype(np.float32)
    return model, Records(inputs=inputs, targets=generator.integers(3, size=40))


def test_a_task_takes_all_rows_in_one_piece_and_gives_the_sum_of_pieces(monkeypatch):
    model, records = cases_of_a_task()
    rows = np.array([*range(35), -1, -1])
    task = task_of(model, records, rows=37)
    assert task._chunk == 38  # and an empty one
    total = task.clipped_sum(parameters_vector(model), rows)
    monkeypatch.setattr(device_sums, "_PIECEWISE", frozenset({"cpu"}))
    usual = task_of(copy.deepcopy(model), records, rows=37)
    assert usual._chunk < 38
    wanted = usual.clipped_sum(parameters_vector(model), rows)
    assert np.linalg.norm(total - wanted) <= 1e-5 * np.linalg.norm(wanted)


def test_records_that_stay_on_a_device_give_the_same_rows(monkeypatch):
    model, records = cases_of_a_task()
    rows = np.array([3, -1, 7, 39])
    wanted = task_of(model, records, rows=4).clipped_sum(parameters_vector(model), rows)
    monkeypatch.setattr(batches, "has_room", lambda device, size: size < 2**20)
    task = task_of(model, records, rows=4)
    assert [len(values) for values in task._rows._there] == [41, 41]
    monkeypatch.setattr(type(task._rows), "_filled", None)  # not asked any more
    assert task.clipped_sum(parameters_vector(model), rows).tobytes() == wanted.tobytes()


def test_a_precision_that_there_is_not_is_refused():
    model, inputs, targets = case("chain")
    with pytest.raises(StudyError, match="precision"):
        clipped_sum(model, CROSS_ENTROPY, inputs, targets, 1.0, precision="fp8")


STUDY = """
study.name = "s"
privacy = {{ epsilon = 1, delta = 1e-5 }}
parties = {{ silos = 5, colluders = 1 }}
data = {{ files = "{{name}}.csv", target = "y", records = 90, columns = {columns} }}
model = {model}
training = {{ steps = 9, sample_rate = 0.1 {more} }}
"""
MLP, LOGISTIC = '{ kind = "mlp", hidden = [4] }', '{ kind = "logistic" }'


def study(more="", model=MLP):
    return Study.parse(
        STUDY.format(more=more, model=model, columns="{ a = { low = 0, high = 1 } }")
    )


def test_a_precision_is_part_of_a_studys_id_only_where_it_is_another():
    usual, stated, short = map(study, ("", ', precision = "float32"', ', precision = "tf32"'))
    assert usual.id == stated.id != short.id
    assert study(', precision = "bf16"').id not in (usual.id, short.id)


def test_a_precision_is_refused_where_it_makes_no_sense():
    with pytest.raises(StudyError, match=r"training\.precision"):
        study(', precision = "float16"')
    with pytest.raises(StudyError, match="leave it out"):
        study(', precision = "bf16"', LOGISTIC)
    assert study(', precision = "float32"', LOGISTIC).id == study("", LOGISTIC).id


def test_a_studys_precision_reaches_the_silos_task(monkeypatch):
    from hubbub.learning.queries import training_query

    given = {}
    monkeypatch.setattr(
        training_query.learning, "TrainingTask", lambda *_, **options: given.update(options)
    )
    learner = Mock(spec_set=("per_view_model", "method", "device", "target_type", "views"))
    silo = Mock(learner=learner)
    training_query.training_of(study(', precision = "bf16"'))._task(silo, None, 4, 4, 0.1)
    assert given["precision"] == "bf16"


def test_a_tasks_sum_is_as_short_as_it_may_be():
    model, records = cases_of_a_task()
    sums = {
        precision: task_of(model, records, precision=precision).clipped_sum(
            parameters_vector(model), np.arange(9)
        )
        for precision in ("float32", "bf16")
    }
    error = np.linalg.norm(sums["bf16"] - sums["float32"]) / np.linalg.norm(sums["float32"])
    assert 1e-5 < error < 0.1


def test_on_a_processor_by_pieces_a_precision_changes_no_bit(monkeypatch):
    monkeypatch.setattr(device_sums, "_PIECEWISE", frozenset({"cpu"}))
    model, inputs, targets = case("vision transformer")
    short, exact = (
        clipped_sum(model, CROSS_ENTROPY, inputs, targets, 0.5, precision=precision).vector
        for precision in ("bf16", "float32")
    )
    assert torch.equal(short, exact)


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_what_a_precision_changes_in_torch_is_put_back(precision):
    torch.backends.cudnn.benchmark, before = True, torch.backends.cudnn.benchmark
    try:
        with exact_products(), shortened(precision, "cpu"):
            assert not torch.backends.cudnn.benchmark
            # A model may ask in torch's older words, which raise where they say something else.
            matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
            older = torch.get_float32_matmul_precision(), matmul.allow_tf32, cudnn.allow_tf32
            assert older == (
                ("high", True, True) if precision == "tf32" else ("highest", False, False)
            )
            short = torch.backends.cuda.matmul.fp32_precision == "tf32"
            assert (short, torch.is_autocast_enabled("cpu")) == (
                precision == "tf32",
                precision == "bf16",
            )
        assert torch.backends.cudnn.benchmark
        assert torch.backends.cuda.matmul.fp32_precision != "tf32"
        assert not torch.is_autocast_enabled("cpu")
    finally:
        torch.backends.cudnn.benchmark = before


def test_alike_each_time_is_put_back_and_fills_no_memory(monkeypatch):
    words = "max_pool2d_backward_cuda does not have a deterministic implementation, but you set"
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    with alike_each_time():
        warnings.warn(words, stacklevel=1)  # of a model that has none, which is an error elsewhere
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert torch.backends.cudnn.deterministic
        assert not torch.backends.cudnn.benchmark
        assert not torch.utils.deterministic.fill_uninitialized_memory
    assert not torch.are_deterministic_algorithms_enabled()
    assert not torch.backends.cudnn.deterministic
    assert torch.backends.cudnn.benchmark
    with pytest.warns(UserWarning, match="deterministic"):
        warnings.warn(words, stacklevel=1)


INTERPRETED = """
import torch
from hubbub.learning import per_record
from hubbub.learning.triton_rows import add_rows_to
here = torch.device("cpu")
assert per_record._way_to_add(here) is per_record._add_plainly
assert per_record._is_right(add_rows_to, here)
for records, columns in ((1, 1), (7, 1025), (3, 4096)):
    stack = per_record.Stack(gradients=torch.randn(records, columns))
    sums, factors = torch.zeros(2, columns, dtype=torch.float64), torch.rand(records)
    stack.add_to(sums[0], factors)
    per_record._way_to_add = lambda _: add_rows_to
    stack.add_to(sums[1], factors)
    per_record._way_to_add = lambda _: per_record._add_plainly
    torch.testing.assert_close(*sums, rtol=1e-12, atol=1e-14)
print("the same")
"""


@slow
def test_the_kernel_for_rows_gives_the_same_sum_by_tritons_interpreter():
    pytest.importorskip("triton")
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    command = [sys.executable, "-c", INTERPRETED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "the same", done.stderr[-2000:]


def test_a_kernel_that_adds_something_else_is_not_taken():
    def spoilt(total, rows, factors):
        total += factors @ rows.double()  # 0 times what is not finite is no number

    def short(total, rows, factors):
        per_record._add_plainly(total, rows, factors.float().double())

    here = torch.device("cpu")
    assert per_record._is_right(per_record._add_plainly, here)
    assert not per_record._is_right(spoilt, here)
    assert not per_record._is_right(short, here)
