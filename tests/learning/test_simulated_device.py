"""Sums and evaluations on a simulated GPU: no device meets another, and the host waits seldom."""

from __future__ import annotations

import copy
import importlib
import sys
from functools import partial
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from torch import nn

from hubbub import Study
from hubbub.core.tabular.records import Records
from hubbub.learning import (
    TrainingTask,
    build_model,
    clipped_sum,
    evaluate_records,
    parameters_vector,
    per_unit_model,
)
from hubbub.learning.layer_projection import LayerProjection
from hubbub.learning.silo_tasks import CellMarks, EvaluationTask
from hubbub.learning.study_model import model_of
from hubbub.learning.torch_settings import seeded
from hubbub.learning.views import Views, crop_flip
from nets import Net
from simulated_device import SimulatedDevice
from test_device_sums import CROSS_ENTROPY, STUDY, case, clipped, gradients, language_model

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")
THERE = "cuda:1"  # which nobody gets who forgets to name it
CASES = (
    *("vision transformer", "u-net", "gru", "lstm of two ways", "language model"),
    *("adapters", "many ways", "chain"),
)
WAITS, SENT = 3, 3  # of a step: which records are finite, the guard, the sum; and what is sent


@pytest.fixture
def device():
    """What notes waits, inside."""
    with SimulatedDevice() as simulated:
        yield simulated


def test_the_simulation_refuses_what_a_gpu_does_and_counts_what_the_host_waits_for(device):
    here, there = torch.arange(4.0), torch.arange(4.0, device=THERE)
    other = torch.arange(4.0, device="cuda")
    assert [str(one.device) for one in (here, there, other)] == ["cpu", "cuda:1", "cuda:0"]
    for mixed in (lambda: here + there, lambda: other * there, lambda: here[there.long()]):
        with pytest.raises(RuntimeError, match="same device"):
            mixed()
    assert (there[here.long()] + torch.tensor(1.0)).device == there.device
    with pytest.raises(TypeError, match="numpy"):
        there.numpy()
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(3, device=THERE, generator=torch.Generator())
    assert torch.stack([there, there]).t().detach().cumsum(0).device == there.device
    assert not device.waits
    there[there > 1].tolist()
    assert (float(there.sum()), there.cpu().device.type) == (6.0, "cpu")
    assert device.waits == {"index": 1, "tolist": 1, "_local_scalar_dense": 1, "to": 1}


@pytest.mark.quick_cases(
    *(f"{name}-float32" for name in CASES), "gru-tf32", "u-net-bf16", "chain-bf16"
)
@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
@pytest.mark.parametrize("name", CASES)
def test_a_sum_there_is_that_of_float64_and_is_waited_for_twice(name, precision, device):
    model, inputs, targets = case(name)
    rows = gradients(model, inputs, targets)
    clip = float(rows.norm(dim=1).median())
    wanted = clipped(rows, clip).sum(0)
    model, inputs, targets = copy.deepcopy(model).to(THERE), inputs.to(THERE), targets.to(THERE)
    device.waits.clear()
    method = "chain" if name == "chain" else "vmap"
    batch = inputs, targets, clip
    total, count = clipped_sum(model, CROSS_ENTROPY, *batch, method=method, precision=precision)
    assert device.waits.total() <= WAITS - 1
    assert (str(total.device), count) == (THERE, 6)
    most = {"float32": 1e-5, "tf32": 1e-5, "bf16": 0.1}[precision]
    assert float((total.cpu() - wanted).norm() / wanted.norm()) <= most


def words(model):
    """A model of words that gets them as numbers of a table."""
    return Net(lambda m, x: m.body(x.long()), body=model)


def cnn():
    return build_model("cnn", inputs=(1, 13, 13), outputs=3, hidden=(6,), seed=b"d")


TASKS = {
    "cnn": (cnn, (1, 13, 13)),
    "gru": (lambda: words(case("gru")[0]), (5,)),
    "words": (lambda: words(language_model(adapters=False)), (5,)),
}


def task_of(name, places=0):
    torch.manual_seed(2)
    build, shape = TASKS[name]
    generator = np.random.default_rng(1)
    inputs = generator.integers(9, size=(30, *shape)) / (1 if len(shape) == 1 else 9)
    patients = np.arange(30) // 2 if places else None
    targets = generator.integers(3, size=30)
    records = Records(inputs=inputs.astype(np.float32), targets=targets, patients=patients)
    return per_unit_model(build(), places), records


def trained(name, where, meter=None, places=0, projected=0, **options):
    """The sum of some rows, and what was waited for meanwhile."""
    model, records = task_of(name, places)
    options |= {"clip": 1.0, "margin": 1e-4, "method": "vmap", "rows": 12}
    if projected:
        options["layers"] = partial(LayerProjection.of, dimension=projected)
    task = TrainingTask(model, records, device=where, **options)
    if meter:
        meter.waits.clear()
        meter.sent = 0
    given = parameters_vector(model), np.array([*range(9), -1, -1, -1])
    total = task.projected_sum(*given, bytes(16)) if projected else task.clipped_sum(*given)
    return task, total


@pytest.mark.quick_cases("cnn-patients", "cnn-projected", "cnn-whole")
@pytest.mark.parametrize(
    "options", [{}, {"places": 2}, {"projected": 40}], ids=["whole", "patients", "projected"]
)
@pytest.mark.parametrize("name", ["cnn", "gru", "words"])
def test_a_silos_step_there_is_that_of_the_processor_and_is_waited_for_three_times(
    name, options, device
):
    _, here = trained(name, "cpu", **options)
    task, there = trained(name, THERE, device, **options)
    assert task._method == "vmap"
    assert device.waits.total() <= WAITS
    signs = 2 * len(list(task._model.parameters())) if "projected" in options else 0
    assert device.sent <= SENT + bool(options.get("places")) + signs
    assert np.linalg.norm(here - there) <= 1e-5 * np.linalg.norm(here)


def test_views_there_are_those_of_the_processor(device):
    model, records = task_of("cnn")
    model, views = per_unit_model(model, 2), Views(count=2, make=crop_flip)
    sums = []
    for where in ("cpu", THERE):
        task = TrainingTask(
            model, records, clip=1.0, margin=1e-4, method="vmap", device=where, views=views
        )
        task._rows._source = SimpleNamespace(words=lambda _: np.array([8], np.uint64))
        sums.append(task.clipped_sum(parameters_vector(model), np.arange(9)))
    np.testing.assert_allclose(*sums, rtol=1e-4, atol=1e-6)


def test_what_is_drawn_there_follows_from_the_seed_and_no_other_gpu_is_touched(device):
    """Or random layers would draw the same in every step, and users of another something else."""
    before = [one.get_state() for one in device.generators]
    place = torch.device(THERE)
    drawn = []
    for seed in (5, 5, 6):
        with seeded(seed, place):
            drawn.append(torch.rand(4, device=place).tolist())
    assert drawn[0] == drawn[1] != drawn[2]
    after = [one.get_state() for one in device.generators]
    assert all(map(torch.equal, before, after))


class Cells:
    """Right and wrong by class."""

    shape = 2, 3

    def places(self, predicted, targets):
        return (predicted.argmax(1) == targets).astype(np.intp), targets


def test_a_caller_whose_tensors_are_made_there_is_served_there_and_on_the_processor(device):
    torch.set_default_device(THERE)
    try:
        model = Net(lambda m, x: m.head(x + torch.full((4,), 0.5)), head=nn.Linear(4, 3))
        records = Records(inputs=np.eye(4, dtype=np.float32), targets=np.arange(4) % 3)
        sums, method = [], "auto"
        for where in ("cpu", THERE):
            task = TrainingTask(model, records, clip=1.0, margin=1e-4, method=method, device=where)
            sums.append(task.clipped_sum(parameters_vector(model), np.arange(4)))
            method = task._method  # found on the processor wherever the sums are made
    finally:
        torch.set_default_device(None)
    np.testing.assert_allclose(*sums, rtol=1e-5)
    assert np.linalg.norm(sums[0]) > 0.1


@pytest.mark.quick_cases("cnn-scores", "cnn-cells")
@pytest.mark.parametrize("marks", [{}, {"marks": CellMarks(Cells())}], ids=["scores", "cells"])
@pytest.mark.parametrize("name", ["cnn", "words"])
def test_an_evaluation_there_is_that_of_the_processor_and_seldom_waited_for(name, marks, device):
    model, records = task_of(name)
    sums = []
    for where in ("cpu", THERE):
        task = EvaluationTask(model, records, device=where, **marks)
        device.waits.clear()
        sums.append(task.clipped_sum(parameters_vector(model), np.arange(30)))
    assert device.waits.total() <= WAITS + 2 * bool(marks)
    np.testing.assert_allclose(*sums, rtol=1e-5, atol=1e-6)
    metrics = [evaluate_records(model, records, device=where) for where in ("cpu", THERE)]
    assert metrics[0] == pytest.approx(metrics[1], rel=1e-5)


def test_what_a_gpu_evaluates_is_alike_each_time(device):
    """Sums by atomic additions would differ in their last bits, and each record go alone."""
    seen = set()

    def forward(m, x):
        if x.is_cuda:
            seen.add(torch.are_deterministic_algorithms_enabled())
        return m.head(x)

    records = task_of("gru")[1]
    EvaluationTask(Net(forward, head=nn.Linear(5, 3)), records, device=THERE, method="loop")
    assert seen == {True}


def test_a_linear_probe_that_the_processor_has_solved_is_solved_there_too(device):
    probe = build_model("linear-probe", inputs=(4,), outputs=3, hidden=(), seed=b"d").eval()
    torch.nn.init.eye_(probe.second.weight)
    torch.nn.init.eye_(probe.first.weight)
    records = torch.arange(8.0).view(2, 4).sin()
    here = probe(records)
    there = copy.deepcopy(probe).to(THERE)(records.to(THERE))
    torch.testing.assert_close(there.cpu(), here)


def test_a_model_that_is_on_a_gpu_is_tried_on_the_processor(device):
    """A number that has no row in a table raises there, and would stop the GPU for good."""
    text = STUDY.format(
        more="", model='{ kind = "mlp", hidden = [4] }', columns="{ a = { low = 0, high = 1 } }"
    )
    given = nn.Linear(1, 2).to(THERE)
    tried = model_of(Study.parse(text), (1,), given)
    assert str(given.weight.device) == THERE
    assert tried.weight.device.type == "cpu"


def test_the_kernel_for_rows_is_launched_on_the_gpu_that_has_them(device, monkeypatch):
    seen = []

    class Kernel:
        def __init__(self, _):
            pass

        def __getitem__(self, grid):
            return lambda *_, **__: seen.append((grid, torch.cuda.current_device()))

    triton = MagicMock(jit=Kernel, cdiv=lambda a, b: -(-a // b))
    monkeypatch.setitem(sys.modules, "triton", triton)
    monkeypatch.setitem(sys.modules, "triton.language", triton)
    monkeypatch.delitem(sys.modules, "hubbub.learning.triton_rows", raising=False)
    kernel = importlib.import_module("hubbub.learning.triton_rows")
    monkeypatch.delitem(sys.modules, "hubbub.learning.triton_rows")
    rows = torch.ones(3, 2000, device=THERE)
    total, factors = (torch.ones(n, dtype=torch.float64, device=THERE) for n in (2000, 3))
    kernel.add_rows_to(total, rows, factors)
    assert seen == [((2,), 1)]
    assert torch.cuda.current_device() == 0
