"""A transformer of the user's own learns to tell spam from other mails, through the real protocol.

The factory below is what a user writes; a study names it as `python:module:factory`. The real mails
are used where they have been fetched before, and made-up ones everywhere.
"""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial

import numpy as np
import pytest
import torch
from experiments.datasets import spam
from experiments.datasets.spam_mails import token_ids
from torch import nn
from torch.func import functional_call

from hubbub import Study, run
from hubbub.core.errors import DataError, ModelError
from hubbub.core.tabular.records import Records
from hubbub.learning import (
    TrainingTask,
    build_model,
    checked_method,
    evaluate_records,
    method_for,
)
from hubbub.learning.batches import batch_of
from hubbub.learning.clipped_sums import clipped_sum
from hubbub.learning.frozen import features_by
from hubbub.learning.parameters import layout_of
from hubbub.learning.torch_settings import as_traced
from hubbub.learning.vmapped import vmapped_losses

LENGTH, VOCABULARY, WIDTH = 24, 256, 8
MAILS = 200  # of each silo
OPTIONS = f"options = {{ silos = 4, length = {LENGTH}, vocabulary = {VOCABULARY} }}"
STUDY = """
[study]
name = "a transformer on mails"
[parties]
silos = 4
colluders = 1
[data]
source = "{source}
records = {records}
[model]
kind = "python:{module}:transformer"
[training]
steps = {steps}
sample_rate = 0.2
optimizer = {{ name = "adam", lr = 0.05 }}
[privacy]
epsilon = 8.0
delta = 1e-5
"""
MADE_UP = {"silo-1": 1, "silo-2": 2, "silo-3": 3, "silo-4": 4, "test": 5}


class Transformer(nn.Module):
    """Embeddings of words and places, an encoder layer with dropout, the mean, one logit."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.body = nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.1, batch_first=True)
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x):
        ids = x.long()
        states = self.words(ids) + self.places(torch.arange(ids.shape[1], device=x.device))
        return self.head(self.body(states).mean(1)).squeeze(-1)


class Padded(nn.Module):
    """Two layers that look away from padding, as torch's tutorials write them."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x):
        ids = x.long()
        states = self.body(self.words(ids), src_key_padding_mask=ids == 0)
        return self.head(states.mean(1)).squeeze(-1)


def transformer(inputs, outputs):
    assert (inputs, outputs) == ((LENGTH,), 1)
    return Transformer()


def column(inputs, outputs):
    """A model whose author forgot the last squeeze."""
    return nn.Linear(inputs[0], outputs)


@lru_cache
def mails(party: str, *, told: bool = True) -> Records:
    """Made-up mails, 1,000 to test: a fifth of the words tell what it is, if they are `told`."""
    generator = np.random.default_rng(MADE_UP[party])
    targets = generator.integers(2, size=1000 if party == "test" else MAILS)
    ids = [
        _mail(generator, bool(target) if told else bool(generator.integers(2)))
        for target in targets
    ]
    return Records(inputs=np.array(ids), targets=targets.astype(np.float32))


def _mail(generator, is_spam: bool) -> np.ndarray:
    """Common words with telling ones among them."""
    telling = ("win", "free", "$", "offer") if is_spam else ("lunch", "patch", "wrote", "list")
    words = [
        generator.choice(telling) if generator.random() < 0.2 else f"word{generator.integers(300)}"
        for _ in range(generator.integers(20, 80))
    ]
    return token_ids(words, length=LENGTH, vocabulary=VOCABULARY)


def trained(source: str, steps: int, records: int = 4 * MAILS) -> float:
    """The accuracy that a run reaches on the public test set, at epsilon 8."""
    study = Study.parse(STUDY.format(source=source, steps=steps, module=__name__, records=records))
    result = run(study)
    assert result.epsilon <= 8
    assert result.plan.noise_multiplier > 0.5
    return result.final["accuracy"]


@pytest.mark.slow
def test_a_transformer_learns_made_up_mails_through_the_protocol_with_noise():
    # From ten first weights 0.85 to 0.96 were reached, by 6 steps only 0.56 to 0.85; guessing stays
    # below 0.6 but for once in 1e9.
    assert trained(f'python:{__name__}:mails"', 20) > 0.5 + 0.1


@pytest.mark.slow
def test_mails_without_information_cannot_be_learned():
    # 1,000 test mails: 0.5 with a standard error of 0.016; false alarm below 1e-9.
    assert abs(trained(f'python:{__name__}:mails"\noptions = {{ told = false }}', 3) - 0.5) < 0.1


@pytest.mark.slow
def test_a_transformer_learns_to_find_real_spam_through_the_protocol_with_noise():
    try:
        test = spam("test", length=LENGTH, vocabulary=VOCABULARY, fetch=False)
    except DataError as error:
        pytest.skip(f'call experiments.datasets.spam("test") once to fetch the mails: {error}')
    chance = 1 - test.targets.mean()  # most mails are no spam
    assert trained(f'python:experiments.datasets:spam"\n{OPTIONS}', 60, 4827) > chance + 0.1


@pytest.mark.slow
def test_a_transformer_is_not_left_to_the_slow_loop():
    with torch.random.fork_rng(devices=[]):
        model = build_model(f"python:{__name__}:transformer", inputs=(LENGTH,), outputs=1, seed=b"")
    assert method_for(model, (LENGTH,), np.zeros(1, np.float32)) == "vmap"


@pytest.mark.slow
def test_a_model_with_padding_is_evaluated_as_it_is_trained():
    torch.manual_seed(3)
    model, known = Padded().eval(), mails("test")
    shorter = np.where(np.arange(LENGTH) < LENGTH // 3, known.inputs, 0)
    records = Records(inputs=shorter, targets=known.targets)
    assert method_for(model, (LENGTH,), records.targets) == "vmap"
    inputs = torch.from_numpy(records.inputs)
    assert (inputs == 0).any()
    slow = model(inputs).detach()  # with gradients, as in training
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's nested tensors are a prototype
        fast = model(inputs)
    assert torch.backends.mha.get_fastpath_enabled()
    loss = nn.functional.binary_cross_entropy_with_logits
    trained_on, other = (float(loss(x, torch.from_numpy(records.targets))) for x in (slow, fast))
    assert abs(trained_on - other) > 1e-3
    assert evaluate_records(model, records)["loss"] == pytest.approx(trained_on, rel=1e-5)


def test_a_model_that_gives_a_column_is_refused_with_the_remedy():
    model = build_model(f"python:{__name__}:column", inputs=(3,), outputs=1, seed=b"")
    with pytest.raises(ModelError, match=r"found \(n, 1\).*squeeze"):
        method_for(model, (3,), np.zeros(1, np.float32))


@pytest.mark.slow
def test_a_word_outside_the_vocabulary_adds_nothing_and_is_not_quoted(caplog):
    model, known = Transformer().eval(), mails("silo-1")
    records = Records(inputs=known.inputs.copy(), targets=known.targets)
    records.inputs[3, 0] = 31337
    task = TrainingTask(model, records, clip=1.0, margin=1e-4, method="vmap", rows=2)
    parameters = np.concatenate([p.detach().numpy().ravel() for p in model.parameters()])
    alone = task.clipped_sum(parameters, np.array([2, -1]))
    assert alone.any()
    assert np.array_equal(task.clipped_sum(parameters, np.array([2, 3])), alone)
    assert "raised" not in caplog.text  # a record at which a model raises leaves no word in a log
    assert "31337" not in caplog.text


class Telling(nn.Module):
    """A model that puts a record into the very name of its error."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(LENGTH, 1)

    def forward(self, x):
        if torch.is_grad_enabled():
            raise type(f"Saw{int(x[0, 0])}", (Exception,), {})
        return self.head(x).squeeze(-1)


def test_an_error_of_the_models_own_is_not_even_named():
    records = mails("silo-1")
    with pytest.raises(ModelError, match="raised an error of its own") as caught:
        TrainingTask(Telling(), records, clip=1.0, margin=1e-4, method="loop")
    assert "Saw" not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None


class Masked(nn.Module):
    """Takes the shorter way where a mask hides nothing, and has one for graphs, as transformers."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(16, WIDTH), nn.Linear(WIDTH, 3)
        self.scale = nn.Parameter(torch.ones(WIDTH))  # which needs a copy for each record

    def forward(self, ids):
        seen = (ids != 0)[..., None]
        if not torch.jit.is_tracing() and (seen.sum() == seen.numel()):
            return self.head((self.words(ids) * self.scale).mean(1))
        return self.head((self.words(ids) * self.scale * seen).sum(1) / seen.sum(1).clamp(min=1))


def test_a_branch_that_libraries_leave_out_of_graphs_costs_no_loop():
    model, ids = Masked(), torch.randint(1, 16, (6, 5))
    ids[::2, 3:] = 0
    given = model, nn.CrossEntropyLoss(reduction="none"), ids, torch.arange(6) % 3, 0.1
    together = clipped_sum(*given, method="vmap")
    alone = clipped_sum(*given, method="loop")
    assert together.count == alone.count == 6
    assert torch.allclose(together.vector, alone.vector, rtol=0, atol=1e-6)
    assert not torch.jit.is_tracing()


class Doubled(nn.Module):
    """Calls a layer with weights of its own making, which torch refuses where it traces."""

    def __init__(self):
        super().__init__()
        self.layer, self.scale = nn.Linear(5, 3), nn.Parameter(torch.ones(3, 1))

    def forward(self, x):
        weights = {"weight": self.layer.weight * self.scale, "bias": self.layer.bias}
        return functional_call(self.layer, weights, (x,))


class Ceiling(nn.Module):
    """Takes sizes for tensors where it is traced, as MobileViT does."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, x):
        rows = torch.ceil(len(x) / 2) if torch.jit.is_tracing() else -(-len(x) // 2)
        return self.layer(x) * rows


@pytest.mark.parametrize("kind", [Doubled, Ceiling])
def test_what_cannot_be_traced_costs_no_loop_either(kind):
    model, x = kind(), torch.randn(6, 5)
    loss, targets = nn.CrossEntropyLoss(reduction="none"), torch.arange(6) % 3
    together, alone = (
        clipped_sum(model, loss, x, targets, 0.1, method=method) for method in ("vmap", "loop")
    )
    assert torch.allclose(together.vector, alone.vector, rtol=0, atol=1e-6)
    batch = batch_of(x, targets)
    outputs, _ = vmapped_losses(model, loss, layout_of(model), batch)
    assert torch.allclose(outputs, torch.cat([model(one) for one in x.split(1)]))
    assert features_by(model.eval(), x, {}).any(axis=1).all()


class Picking(nn.Module):
    """Raises at some records, but not where it is traced."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 3)

    def forward(self, x):
        places = x[:, :1].long()
        return self.layer(x.gather(1, places.clamp(0, 4) if torch.jit.is_tracing() else places))


def test_p14_no_record_has_the_others_go_another_way():
    x = torch.zeros(6, 5)
    x[2, 0] = 99
    loss = nn.CrossEntropyLoss(reduction="none")
    with pytest.raises(RuntimeError, match="out of bounds"):
        clipped_sum(Picking(), loss, x, torch.arange(6) % 3, 0.1, method="vmap")


class Twice(nn.Module):
    """Gives something else where it is traced; but the gradients' directions are the same."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 1, bias=False)
        nn.init.ones_(self.layer.weight)

    def forward(self, x):
        if torch.jit.is_tracing():
            return 2 * self.layer(x).squeeze(-1)
        return self.layer(x).squeeze(-1) * (2 if (x > 9).any() else 1)


def test_what_gives_something_else_where_it_is_traced_goes_record_by_record():
    loss = partial(nn.functional.binary_cross_entropy_with_logits, reduction="none")
    inputs = torch.eye(3).repeat(2, 1)[:4] + 1  # all of them are clipped
    assert checked_method(Twice(), loss, inputs, torch.zeros(4)) == "loop"


def test_evaluation_goes_the_way_of_a_graph_too():
    model, ids = Masked(), torch.randint(1, 16, (6, 5))
    ids[::2, 3:] = 0
    batch = batch_of(ids, torch.arange(6) % 3)
    loss = nn.CrossEntropyLoss(reduction="none")
    outputs, _ = vmapped_losses(model, loss, layout_of(model), batch)
    assert torch.allclose(outputs, model(ids), atol=1e-6)


class Asking(nn.Module):
    """May be scripted: what asks torch is compiled with it."""

    def forward(self, x):
        return -x if torch.jit.is_tracing() else x


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_module_that_asks_can_be_scripted():
    assert torch.jit.script(Asking())(torch.ones(1)) == 1


def test_only_the_thread_that_traces_is_told_so():
    with as_traced(), ThreadPoolExecutor(1) as pool:
        assert torch.jit.is_tracing()
        assert not pool.submit(torch.jit.is_tracing).result()
        with pytest.raises(RuntimeError, match="as it was"), as_traced():
            raise RuntimeError("as it was")
        assert torch.jit.is_tracing()
    assert not torch.jit.is_tracing()


def test_frozen_features_of_such_a_model_are_made_in_batches():
    at_once: dict[tuple[int, ...], int] = {}
    ids = torch.randint(1, 16, (20, 5)).float()
    ids[::2, 3:] = 0
    model = nn.Sequential(Long(), Masked()).eval()
    rows = features_by(model, ids, at_once)
    assert max(at_once.values()) > 1
    for k in (0, 1):
        assert np.array_equal(features_by(model, ids[k : k + 1], at_once)[0], rows[k])


class Windowed(nn.Module):
    """Attention within windows, all with one learned bias of their places, as MaxViT has it."""

    def __init__(self, dims):
        super().__init__()
        self.into, self.bias = nn.Linear(4, 12), nn.Parameter(torch.randn(3, 3)[(None,) * dims])

    def forward(self, x):
        q, k, v = self.into(x.view(-1, 2, 3, 4)).unflatten(-1, (1, 12)).transpose(2, 3).chunk(3, -1)
        out = nn.functional.scaled_dot_product_attention(
            *(one.flatten(0, 1) for one in (q, k, v)), attn_mask=self.bias
        )
        return out.reshape(len(x), -1)[:, :3]


class OneQuery(nn.Module):
    """Attention of one query to several windows, each with a bias of its own."""

    def __init__(self):
        super().__init__()
        self.into, self.bias = nn.Linear(4, 3), nn.Parameter(torch.randn(2, 1, 3, 3))

    def forward(self, x):
        q = self.into(x.view(1, 1, 3, 4))
        k = q.expand(2, -1, -1, -1)
        out = nn.functional.scaled_dot_product_attention(q, k, k, attn_mask=self.bias)
        return out.reshape(len(x), -1)[:, :3]


def test_windows_may_have_masks_of_their_own_and_one_query():
    given = OneQuery(), nn.CrossEntropyLoss(reduction="none"), torch.randn(5, 12)
    given = *given, torch.arange(5) % 3, 0.1
    together, alone = (clipped_sum(*given, method=method) for method in ("vmap", "loop"))
    assert torch.allclose(together.vector, alone.vector, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dims", [0, 1, 2])
def test_a_learned_bias_of_all_windows_costs_no_loop(dims):
    given = Windowed(dims), nn.CrossEntropyLoss(reduction="none"), torch.randn(5, 24)
    given = *given, torch.arange(5) % 3, 0.1
    together, alone = (clipped_sum(*given, method=method) for method in ("vmap", "loop"))
    assert together.count == alone.count == 5
    assert torch.allclose(together.vector, alone.vector, rtol=0, atol=1e-6)


class Long(nn.Module):
    """Numbers as codes."""

    def forward(self, x):
        return x.long().clamp(0, 15)
