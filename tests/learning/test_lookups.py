"""What a record asks of a device that it lacks stops neither the device nor others' sums (P14)."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from hubbub.core.errors import ModelError, UserError
from hubbub.core.tabular.records import Records
from hubbub.learning import (
    EvaluationTask,
    TrainingTask,
    clipped_sum,
    frozen,
    parameters_vector,
    self_check,
    silo_tasks,
)
from hubbub.learning.batches import PaddedBatches, batch_of
from hubbub.learning.layer_projection import LayerProjection
from hubbub.learning.trial import LookupsWithin, RaisingOperations, refuse_memory, tried, unquoted

CPU, GPU = torch.device("cpu"), torch.device("cuda")
CROSS_ENTROPY = partial(functional.cross_entropy, reduction="none")
LAYERS = partial(LayerProjection.of, dimension=5)
TABLE = torch.arange(12.0).view(3, 4)
OF_MACHINE = [
    MemoryError(),
    torch.cuda.OutOfMemoryError("CUDA out of memory"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("CUDA error: device-side assert triggered"),
    RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
]
FAR = torch.tensor([[0, 9], [2, 400]])
NEAR = torch.tensor([[0, 2], [2, 2]])
LOOKUPS = {
    "embedding": (lambda at: functional.embedding(at, TABLE), FAR, NEAR),
    "gather": (lambda at: TABLE.gather(0, at), FAR, NEAR),
    "index": (lambda at: TABLE[at], FAR, NEAR),
    "index from the end": (lambda at: TABLE[at], torch.tensor([-1, -9]), torch.tensor([-1, -3])),
    "index of the second axis": (lambda at: TABLE[:, at], torch.tensor([7]), torch.tensor([3])),
    "index beside a mask": (
        lambda at: TABLE[torch.tensor([True, False, True]), at],
        torch.tensor([1, 8]),
        torch.tensor([1, 3]),
    ),
    "index_select": (lambda at: TABLE.index_select(0, at), FAR[1], NEAR[1]),
    "take": (TABLE.take, torch.tensor([3, 99]), torch.tensor([3, 11])),
    "scatter": (lambda at: torch.zeros(3, 2).scatter(0, at, 1.0), FAR, NEAR),
    "take from the end": (TABLE.take, torch.tensor([-1, -99]), torch.tensor([-1, -12])),
    "put": (lambda at: torch.zeros(3).put(at, torch.ones(2)), torch.tensor([-1, 8]), NEAR[1]),
    "bag": (lambda at: functional.embedding_bag(at, TABLE), FAR, NEAR),
    "index_fill": (
        lambda at: torch.zeros(3).index_fill(0, at, 2.0),
        torch.tensor([-1, -9]),
        torch.tensor([-1, -3]),
    ),
    "index_reduce": (
        lambda at: torch.zeros(3).index_reduce(0, at, torch.ones(2), "amax"),
        FAR[1],
        NEAR[1],
    ),
    "index_add": (lambda at: torch.zeros(3, 4).index_add(0, at, TABLE[:2]), FAR[1], NEAR[1]),
    "index_put": (lambda at: torch.zeros(3).index_put((at,), torch.ones(2)), FAR[1], NEAR[1]),
    "unsafe index_put": (
        lambda at: torch.ops.aten._unsafe_index_put(torch.zeros(3), [at], torch.ones(2)),
        FAR[1],
        NEAR[1],
    ),
    "max_unpool2d": (
        lambda at: functional.max_unpool2d(torch.ones(1, 1, 1, 2), at.view(1, 1, 1, 2), 2),
        torch.tensor([-1, 9]),
        torch.tensor([0, 7]),
    ),
    "max_unpool3d": (
        lambda at: functional.max_unpool3d(torch.ones(1, 1, 1, 1, 2), at.view(1, 1, 1, 1, 2), 2),
        torch.tensor([-1, 90]),
        torch.tensor([0, 15]),
    ),
    "nll_loss": (
        lambda at: functional.nll_loss(TABLE, at, reduction="none"),
        torch.tensor([9, -100, -1]),
        torch.tensor([3, -100, 0]),
    ),
    "nll_loss of pixels": (
        lambda at: functional.nll_loss(TABLE.view(1, 3, 2, 2), at, reduction="none"),
        torch.tensor([[[9, -100], [-1, 1]]]),
        torch.tensor([[[2, -100], [0, 1]]]),
    ),
    "multi_margin": (
        lambda at: functional.multi_margin_loss(TABLE[:2], at),
        torch.tensor([-1, 9]),
        torch.tensor([0, 3]),
    ),
    "multi_margin of one": (
        lambda at: functional.multi_margin_loss(TABLE[0], at),
        torch.tensor(9),
        torch.tensor(3),
    ),
    "multilabel_margin": (
        lambda at: functional.multilabel_margin_loss(TABLE[:1], at),
        torch.tensor([[9, 0, -5, 1]]),
        torch.tensor([[3, 0, -1, 1]]),
    ),
    "renorm": (
        lambda at: torch.embedding_renorm_(TABLE.clone(), at, 1.0, 2.0),
        torch.tensor([9, -7]),
        torch.tensor([2, 0]),
    ),
}


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", LOOKUPS)
def test_past_the_end_of_a_table_its_nearest_row_is_taken(name):
    lookup, far, near = LOOKUPS[name]
    wanted = lookup(near)
    with pytest.raises((IndexError, RuntimeError)):
        lookup(far)
    with LookupsWithin(CPU) as lookups:
        assert torch.equal(lookup(far), wanted)
        assert torch.equal(lookup(near), wanted)
    assert lookups.met


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("rows", ["embedding", "bag", "weighted bag", "take"])
def test_the_way_back_is_that_of_the_nearest_row(rows, sparse):
    at, near = torch.tensor([[0, 2], [2, 19]]), torch.tensor([[0, 2], [2, 2]])
    lookup = {
        "embedding": lambda at, table: functional.embedding(at, table, sparse=sparse),
        "bag": lambda at, table: functional.embedding_bag(at, table, sparse=sparse),
        "weighted bag": lambda at, table: functional.embedding_bag(
            at, table, mode="sum", sparse=sparse, per_sample_weights=table[:2, :2]
        ),
        "take": lambda at, table: table[:, 0].take(at),
    }[rows]

    def way_back(at):
        table = TABLE.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(lookup(at, table).square().sum(), table)
        return gradient.to_dense()

    wanted = way_back(near)
    with LookupsWithin(CPU):
        assert torch.equal(way_back(at), wanted)


CLASS_LOSSES = {
    "nll_loss": (functional.nll_loss, [9, -100, -1], [3, -100, 0]),
    "nll_loss of pixels": (
        lambda scores, at: functional.nll_loss(
            scores.mT.clone(memory_format=torch.contiguous_format).view(1, 4, 3, 1),
            at.view(1, 3, 1),
        ),
        [9, -100, -1],
        [3, -100, 0],
    ),
    "multi_margin": (functional.multi_margin_loss, [9, 1, -1], [3, 1, 0]),
    "multilabel_margin": (
        functional.multilabel_margin_loss,
        [[9, 0, -1, 2]] * 3,
        [[3, 0, -1, 2]] * 3,
    ),
}


@pytest.mark.parametrize("name", CLASS_LOSSES)
def test_the_way_back_of_a_loss_is_that_of_the_nearest_class(name):
    loss, far, near = CLASS_LOSSES[name]

    def way_back(at):
        scores = TABLE.clone().requires_grad_()
        return torch.autograd.grad(loss(scores, torch.tensor(at)), scores)[0]

    wanted = way_back(near)
    with LookupsWithin(CPU):
        assert torch.equal(way_back(far), wanted)


@pytest.mark.parametrize("method", ["vmap", "loop"])
@pytest.mark.parametrize("found", [torch.nan, 2.0, -1.0])
def test_a_record_of_no_chance_stops_no_device_and_adds_what_no_other_sees(method, found):
    class Chances(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).squeeze(1)

    model, chances = Chances(1, 1, bias=False), torch.tensor([[0.2], [found], [0.6]])
    nn.init.ones_(model.weight)
    loss = partial(functional.binary_cross_entropy, reduction="none")
    summed = partial(
        clipped_sum, model, loss, chances, torch.tensor([1.0, 0, 0]), 0.1, method=method
    )
    with pytest.raises(RuntimeError):
        summed()
    kept = torch.tensor([True, False, True])
    others = clipped_sum(model, loss, chances[kept], torch.tensor([1.0, 0]), 0.1, method=method)
    with LookupsWithin(CPU):
        assert summed().count == (2 if found != found else 3)
        assert torch.equal(summed(counted=kept).vector, others.vector)


def test_elsewhere_than_on_the_device_nothing_is_changed_or_counted():
    with LookupsWithin(GPU) as lookups, pytest.raises(IndexError):
        functional.embedding(FAR, TABLE)
    assert not lookups.met


class Words(nn.Module):
    """The mean of the words' rows, and a layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.words, self.last = nn.Embedding(5, 4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.words(x.long()).mean(1))


@pytest.mark.parametrize("method", ["vmap", "loop"])
def test_p14_words_past_the_table_are_one_row_of_which_the_norm_is_taken(method):
    """As rows of their own their norm would be too small, and the record longer than the clip."""
    far, near = torch.tensor([[6, 7, 8, 9, 1.0]]), torch.tensor([[4, 4, 4, 4, 1.0]])
    model, label = Words(), torch.tensor([2])
    wanted, _ = clipped_sum(model, CROSS_ENTROPY, near, label, 0.01, method=method)
    with LookupsWithin(CPU):
        total, count = clipped_sum(model, CROSS_ENTROPY, far, label, 0.01, method=method)
    assert count == 1
    assert torch.equal(total, wanted)
    assert float(total.double().norm()) <= 0.01


class OwnTable(Words):
    """The same from a table of the model's own, of which vmap gives each record a copy."""

    def __init__(self, rows) -> None:
        super().__init__()
        self.words, self.rows = nn.Parameter(self.words.weight.detach()), rows

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.rows(self.words, x.long()).mean(1))


def scripted_rows(table: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    return torch.embedding(table, at)


def scripted_fill(table: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    return table.index_fill(0, at.flatten(), 0.5)[None]


with warnings.catch_warnings(action="ignore"):  # torch deprecates it, and takes it
    scripted_rows, scripted_fill = map(torch.jit.script, (scripted_rows, scripted_fill))

OWN_ROWS = {
    "functional": lambda table, at: functional.embedding(at, table),
    "torch": torch.embedding,
    "padded": lambda table, at: functional.embedding(at, table, padding_idx=-4),
    "filled": lambda table, at: table.index_fill(0, at.flatten(), 0.5)[None],
    "filled in place": lambda table, at: (table * 1).index_fill_(0, at.flatten(), 0.5)[None],
    "filled columns": lambda table, at: table.T.index_fill(-1, at.flatten(), 0.5).T[None],
    # As functions of TorchScript and exported modules call them.
    "scripted": scripted_rows,
    "scripted fill": scripted_fill,
    "aten": torch.ops.aten.embedding,
    "aten's default": torch.ops.aten.embedding.default,
    "aten filled": lambda table, at: torch.ops.aten.index_fill(table, 0, at.flatten(), 0.5)[None],
    "aten's scalar": lambda table, at: torch.ops.aten.index_fill.int_Scalar(
        table, 0, at.flatten(), 0.5
    )[None],
}


@pytest.mark.parametrize("rows", OWN_ROWS)
@pytest.mark.parametrize("word", [5, 7, -1])
@pytest.mark.parametrize("place", range(3))
def test_p14_a_word_past_a_records_own_table_reaches_no_other_records(rows, word, place):
    words, labels = torch.tensor([[0.0, 1, 2], [1, 1, 3], [4, 0, 2]]), torch.tensor([0, 1, 2])
    words[place, 0] = word
    model = OwnTable(OWN_ROWS[rows])
    try:
        wanted = clipped_sum(model, CROSS_ENTROPY, words, labels, 0.1, method="loop")
    except (IndexError, RuntimeError):
        for method in ("auto", "vmap"):
            with pytest.raises((IndexError, RuntimeError)):
                clipped_sum(model, CROSS_ENTROPY, words, labels, 0.1, method=method)
    else:  # -1 is the last row to fill
        found = clipped_sum(model, CROSS_ENTROPY, words, labels, 0.1)
        assert torch.allclose(found.vector, wanted.vector, atol=1e-7)


@pytest.mark.parametrize("rows", OWN_ROWS)
def test_of_a_records_own_table_vmap_finds_the_gradients_that_the_loop_finds(rows):
    words, labels = torch.tensor([[0, 1, 2], [1, 1, 3], [4, 0, 2]]).int(), torch.tensor([0, 1, 2])
    sums = [
        clipped_sum(OwnTable(OWN_ROWS[rows]), CROSS_ENTROPY, words, labels, 0.1, method=method)
        for method in ("vmap", "loop")
    ]
    assert torch.allclose(sums[0].vector, sums[1].vector, atol=1e-7)


@pytest.mark.parametrize("word", [5, 7, -1])
def test_p14_on_a_device_it_is_the_nearest_row_of_the_records_own_table(word):
    words, labels = torch.tensor([[0.0, 1, 2], [1, 1, 3], [4, 0, 2]]), torch.tensor([0, 1, 2])
    words[1, 0], model = word, OwnTable(OWN_ROWS["functional"])
    near = words.clamp(0, 4)
    wanted, _ = clipped_sum(model, CROSS_ENTROPY, near, labels, 0.1, method="vmap")
    with LookupsWithin(CPU):
        total, _ = clipped_sum(model, CROSS_ENTROPY, words, labels, 0.1, method="vmap")
    assert torch.equal(total, wanted)


def test_a_record_of_an_unknown_word_takes_no_other_out_of_a_devices_sum(monkeypatch):
    words = np.random.default_rng(0).integers(5, size=(12, 6)).astype(np.float32)
    known = Records(inputs=words, targets=np.arange(12) % 3)
    strange = Records(inputs=words.copy(), targets=known.targets)
    strange.inputs[3], known.inputs[3] = 1e6, 4

    def summed(records: Records) -> np.ndarray:
        model = Words()
        task = TrainingTask(model, records, clip=0.1, margin=1e-4, method="vmap", rows=9)
        silo_tasks._LOOKING_UP.add(model)  # as if it were on a device
        return task.clipped_sum(parameters_vector(model), np.arange(9))

    assert summed(strange).tobytes() == summed(known).tobytes()
    assert np.linalg.norm(summed(known)) > 0


def test_a_model_is_known_to_look_rows_up_once_it_was_tried_on_a_device():
    class Looks(nn.Module):
        pass

    model, meta = Looks(), torch.device("meta")
    with silo_tasks._lookups_seen(model, meta):
        functional.linear(torch.ones(2, 3, device=meta), torch.ones(4, 3, device=meta))
        TABLE[FAR.clamp(max=2)]
    assert model not in silo_tasks._LOOKING_UP
    with silo_tasks._lookups_seen(model, meta):
        functional.embedding(FAR.to(meta), TABLE.to(meta))
    assert isinstance(silo_tasks._rows_there_are(model, meta), LookupsWithin)


def test_row_by_row_a_model_may_look_rows_up_at_some_records_alone():
    """No made-up record shows it, so on a device every lookup there is held to its table."""
    model = nn.Linear(2, 3)
    assert isinstance(silo_tasks._rows_there_are(model, GPU, "loop"), LookupsWithin)
    assert not isinstance(silo_tasks._rows_there_are(model, GPU, "vmap"), LookupsWithin)
    assert not isinstance(silo_tasks._rows_there_are(model, CPU, "loop"), LookupsWithin)


@pytest.mark.parametrize("method", ["loop", "auto"])
@pytest.mark.parametrize("kind", [TrainingTask, EvaluationTask])
def test_what_stops_a_device_is_refused_where_rows_go_one_by_one_too(monkeypatch, kind, method):
    class Draws(nn.Linear):
        def forward(self, x):
            return super().forward(torch.bernoulli(x.sigmoid()))

    of_gpu = partial(RaisingOperations, GPU)
    monkeypatch.setattr(silo_tasks, "RaisingOperations", lambda _: of_gpu())
    records = Records(inputs=np.ones((4, 2), dtype=np.float32), targets=np.arange(4) % 3)
    given = {"clip": 0.1, "margin": 1e-4} if kind is TrainingTask else {}
    with pytest.raises(ModelError, match="never stops a GPU"):
        kind(Draws(2, 3), records, method=method, **given)


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: torch.multinomial(x, 1),
        torch.bernoulli,
        torch.poisson,
        lambda x: torch.normal(x, x),
        lambda x: torch._assert_async((x > 0).all()),
        lambda x: x.masked_scatter(x > 0, torch.ones(9)),
        lambda x: torch.ones(2).repeat_interleave(x[:, 0].long()),
    ],
    ids=["multinomial", "bernoulli", "poisson", "normal", "assertion", "scatter", "repeats"],
)
def test_what_stops_a_device_at_some_records_is_refused_there_and_noted_here(draw):
    inputs = torch.full((2, 3), 0.5)

    def work(xs, _, __):
        draw(xs)
        return np.zeros(1)

    here = RaisingOperations(CPU)
    here.seen_in(work)(inputs, torch.zeros(2), torch.ones(2))
    assert here.names
    with pytest.raises(ModelError, match=r'never stops a GPU.*device = "cpu"'):
        RaisingOperations(GPU).seen_in(work)(inputs, torch.zeros(2), torch.ones(2))


SPARSE_ROWS = torch.tensor([0, 1, 2])
PUBLIC = torch.eye(2).to_sparse()
# Each at numbers that it takes; at others it reads beside its tensors, or stops the process.
UNCHECKED = {
    "classes of ctc": lambda x: functional.ctc_loss(
        torch.zeros(4, 1, 3), x[:1].long() + 1, torch.tensor([4]), torch.tensor([2])
    ),
    "segment lengths": lambda x: torch.segment_reduce(
        torch.ones(4), "sum", lengths=x[0].long() + 2, unsafe=True
    ),
    "segment offsets": lambda x: torch.segment_reduce(
        torch.ones(0), "sum", offsets=x[0].long(), initial=0
    ),
    "bag offsets": lambda x: functional.embedding_bag(torch.zeros(4).long(), TABLE, x[0].long()),
    "sparse indices": lambda x: torch.sparse_coo_tensor(x[:1].long(), torch.ones(2), (4,)),
    "sparse rows": lambda x: torch.sparse_csr_tensor(
        x[0].long().cumsum(0), torch.zeros(0).long(), torch.ones(0), (1, 4)
    ),
    "sparse columns": lambda x: torch.sparse_csr_tensor(
        SPARSE_ROWS, x[0].long(), torch.ones(2), (2, 4)
    ),
    "whole division": lambda x: torch.ones(2).long().div(x[0].long() + 3, rounding_mode="trunc"),
    "whole division in place": lambda x: (
        torch.ones(2).int().div_(x[0].int() + 3, rounding_mode="trunc")
    ),
    "trials of a binomial": lambda x: torch.binomial(x + 3, torch.full((2, 2), 0.5)),
    "degree of Legendre": lambda x: torch.special.legendre_polynomial_p(torch.ones(2), x[0]),
    "matrix of eigenvalues": torch.linalg.eigvals,
    "zeta from there": lambda x: torch.special.zeta(2.0, x + 3),
    "polygamma from there": lambda x: torch.polygamma(2, x + 3),
    "degree of Laguerre": lambda x: torch.special.laguerre_polynomial_l(torch.ones(2), x[0]),
}


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("name", UNCHECKED)
def test_p14_what_one_record_can_end_a_process_with_is_refused_by_name(name):
    x = torch.zeros(2, 2)
    UNCHECKED[name](x)
    with (
        pytest.raises(ModelError, match=r"any number a record may hold, found \w+\.\w+\."),
        RaisingOperations(CPU).following(x),
    ):
        UNCHECKED[name](x)


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: functional.embedding_bag(x.long(), TABLE),
        lambda x: functional.embedding_bag(x[0].long(), TABLE, torch.tensor([0, 1])),
        lambda x: torch.segment_reduce(x[0], "sum", lengths=torch.tensor([1, 1]), unsafe=True),
        lambda x: x.long().div(2, rounding_mode="trunc"),
        lambda x: x.div(x, rounding_mode="trunc"),
        lambda x: torch.binomial(torch.ones(2, 2), x),
        lambda x: PUBLIC @ x,
        lambda x: x.to_sparse() @ x,
        lambda x: torch.special.legendre_polynomial_p(x, 3),
        lambda x: torch.polygamma(1, x + 3),
        lambda x: (
            functional.embedding(x.long(), TABLE.clone().requires_grad_(), sparse=True)
            .sum()
            .backward()
        ),
    ],
    ids=[
        "bag",
        "offsets",
        "length",
        "half",
        "float",
        "trials",
        "matrix",
        "made",
        "degree",
        "trigamma",
        "gradient",
    ],
)
def test_what_is_public_or_checked_is_not_refused(operation):
    x = torch.zeros(2, 2)
    with RaisingOperations(CPU).following(x):
        operation(x)


@pytest.mark.parametrize("kind", [TrainingTask, EvaluationTask])
def test_a_model_of_sparse_tensors_is_watched_and_taken_row_by_row(kind):
    class Sparse(Words):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(5, 2, sparse=True)
            self.last = nn.Linear(2, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last((PUBLIC @ self.words(x.long()).mean(1).mT).mT)

    records = Records(inputs=np.ones((4, 2), dtype=np.float32), targets=np.arange(4) % 3)
    given = {"clip": 0.1, "margin": 1e-4} if kind is TrainingTask else {}
    model = Sparse()
    task = kind(model, records, method="loop", **given)
    assert np.linalg.norm(task.clipped_sum(parameters_vector(model), np.arange(4))) > 0


TRUNCATED = {"rounding_mode": "trunc"}


class Divides(nn.Linear):
    """Stops a processor at no number; its operation does, at the least divided by -1."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        whole = x.long()
        return super().forward(x + whole.div(1 + whole.abs(), **TRUNCATED))


class DividesInTraining(Divides):
    """The same, in training alone."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) if self.training else nn.Linear.forward(self, x)


@pytest.mark.parametrize("method", ["loop", "vmap", "auto"])
@pytest.mark.parametrize("model", [Divides, DividesInTraining])
def test_p14_a_model_is_tried_for_it_before_any_record_is_seen(model, method):
    records = Records(inputs=np.ones((4, 2), dtype=np.float32), targets=np.arange(4) % 3)
    with pytest.raises(ModelError, match=r"found aten\.div"):
        TrainingTask(model(2, 3), records, clip=0.1, margin=1e-4, method=method)
    if model is Divides:
        with pytest.raises(ModelError, match=r"found aten\.div"):
            EvaluationTask(model(2, 3), records, method=method)


def test_p14_so_are_made_up_records_a_loss_and_frozen_layers():
    """Each as the first that gets them: what is refused is not run once."""
    with pytest.raises(ModelError, match=r"found aten\.div"):
        tried(Divides(2, 3), (2,))
    with pytest.raises(ModelError, match=r"found aten\.div"):
        self_check._check_loss(lambda _, y: y.div(y + 1, **TRUNCATED), 3, FAR.view(-1))
    batch = batch_of(torch.ones(4, 2), torch.arange(4) % 3)
    with pytest.raises(ModelError, match=r"found aten\.div"):
        refuse_memory(nn.Linear(2, 3), lambda x, y: x[:, 0] + y.div(y + 1, **TRUNCATED), batch)
    with pytest.raises(UserError, match=r"found aten\.div"):
        frozen.features_by(Divides(2, 3), torch.ones(4, 2))


def test_p14_a_sum_that_is_projected_is_tried_as_it_is_going_to_be_made(monkeypatch):
    def fails(*_, **__):
        raise RuntimeError("it takes no such layer")

    monkeypatch.setattr(LayerProjection, "clipped_sum", fails)
    records = Records(inputs=np.ones((4, 2), dtype=np.float32), targets=np.arange(4) % 3)
    given = {"clip": 0.1, "margin": 1e-4, "method": "chain"}
    TrainingTask(nn.Linear(2, 3), records, **given)
    with pytest.raises(ModelError, match="found that it raised RuntimeError"):
        TrainingTask(nn.Linear(2, 3), records, layers=LAYERS, **given)


def test_p14_a_model_is_tried_for_each_margin_precision_and_projection_and_then_no_more(
    monkeypatch,
):
    """One that was tried alike is not tried again, whatever study asks."""
    tried = []
    monkeypatch.setattr(silo_tasks, "rows_are_alone", lambda *_: tried.append(0) or True)
    records = Records(inputs=np.ones((4, 2), dtype=np.float32), targets=np.arange(4) % 3)
    given, model = {"clip": 0.1, "margin": 1e-4, "method": "chain"}, nn.Linear(2, 3)
    changes = (
        {},
        {"margin": 1e-5},
        {"precision": "bf16"},
        {"layers": LAYERS},
        {"method": "vmap"},
    )
    for number, change in enumerate(changes, 1):
        for _ in range(2):
            TrainingTask(model, records, **given | change)
            assert len(tried) == number


@pytest.mark.parametrize("most", [1, 4])
@pytest.mark.parametrize("fault", OF_MACHINE)
def test_a_machine_that_cannot_sum_null_records_says_so_and_sends_no_zeros(fault, most):
    def work(*_):
        raise fault

    with pytest.raises(UserError, match="expected memory for"):
        _padded(most).total(np.arange(3), 2, work)


def test_a_device_that_takes_no_batch_says_so_and_sends_no_zeros(monkeypatch):
    def stopped(*_):
        raise torch.cuda.OutOfMemoryError

    batches = _padded(4)
    monkeypatch.setattr(batches, "_filled", stopped)
    with pytest.raises(UserError, match="expected memory for"):
        batches.total(np.arange(3), 2, lambda *_: np.zeros(2))


@pytest.mark.parametrize("most", [1, 4])
@pytest.mark.parametrize(
    "fault", [MemoryError, RuntimeError, RuntimeError("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED")]
)
def test_p19_a_record_at_which_the_model_raises_adds_zero_whatever_it_raises(fault, most):
    def work(xs, _, kept):
        mine = xs * kept[:, None]
        if mine.max() > 1:
            raise fault
        return mine.sum(0).numpy()

    assert _padded(most).total(np.arange(3), 2, work).tolist() == [2.0, 2.0]


def _padded(most: int) -> PaddedBatches:
    """Three records, the second with a large number."""
    inputs = np.array([[1, 1], [5, 0], [1, 1]], dtype=np.float32)
    records = Records(inputs=inputs, targets=np.zeros(3, dtype=np.float32))
    return PaddedBatches(records, np.zeros(2, dtype=np.float32), most=most, device=CPU)


@pytest.mark.parametrize("raised", OF_MACHINE)
def test_a_machine_without_memory_for_a_trial_is_no_fault_of_the_model(raised):
    def work():
        raise raised

    with pytest.raises(UserError, match="expected memory for made-up records"):
        unquoted(work)
