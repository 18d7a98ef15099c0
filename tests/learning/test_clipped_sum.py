"""clipped_sum against a naive loop in float64, over architectures and over the known traps."""

from __future__ import annotations

import functools
import math
import weakref
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from hubbub.core.errors import DataError, ModelError, StudyError
from hubbub.learning import (
    build_model,
    checked_method,
    clipped_sum,
    clipped_sums,
    default_loss,
    evaluate,
    self_check,
)
from hubbub.learning.batches import Batch, batch_of
from hubbub.learning.clipped_sums import (
    _BUDGET,
    GradientSpace,
    _affordable,
    _shaped,
    chain_of,
    loop_parts,
)
from hubbub.learning.parameters import ParameterLayout, layout_of
from hubbub.learning.per_record import (
    MARGIN,
    Part,
    Positions,
    Rows,
    Source,
    Stack,
    clip_factors,
    formed,
    from_lookups,
    from_positions,
    norms_of,
)
from nets import Net

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")  # vmap's slow paths

CROSS_ENTROPY = functools.partial(functional.cross_entropy, reduction="none")


def halves(outputs, targets):
    """A loss that no list knows: it keeps the fast chain away."""
    return functional.cross_entropy(outputs, targets, reduction="none") * 0.5


def naive(model, loss, inputs, targets, clip):
    """One record after another, nothing shared with the code under test but the margin."""
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    parameters = [p for p in model.parameters() if p.requires_grad]
    total = torch.zeros(sum(p.numel() for p in parameters), dtype=torch.float64)
    for i in range(len(targets)):
        value = loss(model(*(x[i : i + 1] for x in inputs)), targets[i : i + 1]).sum()
        found = torch.autograd.grad(value, parameters, allow_unused=True)
        pairs = zip(parameters, found, strict=True)
        dense = [torch.zeros_like(p) if g is None else g.to_dense() for p, g in pairs]
        gradient = torch.cat([g.reshape(-1) for g in dense]).double()
        factor = min(1.0, clip / max(float(gradient.norm()), 1e-300)) * (1 - MARGIN)
        total += factor * gradient
    return total


def assert_right(model, loss, inputs, targets, *, method="auto", clip=None, chunk=None):
    dtype = next(model.parameters()).dtype
    if clip is None:  # between the records' norms, so that some are clipped and some are not
        first = (x[:1] for x in inputs) if isinstance(inputs, tuple) else (inputs[:1],)
        clip = float(naive(model, loss, tuple(first), targets[:1], 1e30).norm())
    expected = naive(model, loss, inputs, targets, clip)
    found = clipped_sum(model, loss, inputs, targets, clip, method=method, chunk=chunk)
    on_device = found.vector.device.type != "cpu"
    assert found.vector.dtype == (torch.float64 if on_device else dtype)
    assert found.vector.shape == expected.shape
    assert found.count == len(targets)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6
    error = float((found.vector.double() - expected).norm())
    assert error <= tolerance * max(float(expected.norm()), clip)


def classes(records, many=3):
    return torch.arange(records) % many


# Architectures ------------------------------------------------------------------------------------


def tied():
    table = nn.Embedding(7, 4)
    head = nn.Linear(4, 7, bias=False)
    head.weight = table.weight
    return Net(lambda m, x: m.head(torch.tanh(m.table(x)).mean(1)), table=table, head=head)


def reused():
    layer = nn.Linear(4, 4)
    return Net(
        lambda m, x: m.head(m.layer(torch.tanh(m.layer(x)))), layer=layer, head=nn.Linear(4, 3)
    )


def functional_use():
    return Net(
        lambda m, x: m.head(x @ m.layer.weight.t()), layer=nn.Linear(4, 5), head=nn.Linear(5, 3)
    )


def positions():
    return Net(
        lambda m, x: m.head((m.words(x) + m.places(torch.arange(x.shape[1]))[None]).mean(1)),
        words=nn.Embedding(9, 4, padding_idx=0),
        places=nn.Embedding(6, 4),
        head=nn.Linear(4, 3),
    )


def transformer():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    return Net(
        lambda m, x: m.head(m.body(m.words(x)).mean(1)),
        words=nn.Embedding(9, 8),
        body=nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
        head=nn.Linear(8, 3),
    )


def recurrent():
    return Net(
        lambda m, x: m.head(m.body(m.words(x))[0][:, -1]),
        words=nn.Embedding(9, 4),
        body=nn.LSTM(4, 5, batch_first=True),
        head=nn.Linear(5, 3),
    )


def branching():
    """Data-dependent control flow: some records use one branch, some the other."""
    return Net(
        lambda m, x: m.head(m.one(x) if x.sum() > 0 else m.other(x)),
        one=nn.Linear(4, 5),
        other=nn.Linear(4, 5),
        head=nn.Linear(5, 3),
    )


def frozen():
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    model[0].weight.requires_grad_(False)
    return model


def conv():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=2, padding=1),
        nn.GroupNorm(2, 4),
        nn.ReLU(inplace=True),
        nn.Conv2d(4, 4, 3, groups=2),
        nn.ReLU(inplace=True),
        nn.Conv2d(4, 3, (2, 1), dilation=(1, 2), bias=False),
        nn.Flatten(),
        nn.LazyLinear(3),
    )


ROWS = lambda n: torch.randn(n, 4)  # noqa: E731
WORDS = lambda n: torch.randint(9, (n, 6))  # noqa: E731
ARCHITECTURES = {
    "inplace-relu": (
        lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 3)),
        ROWS,
    ),
    "tied": (tied, lambda n: torch.randint(7, (n, 3))),
    "reused-layer": (reused, ROWS),
    "weight-used-by-hand": (functional_use, ROWS),
    "shared-positions-and-padding": (positions, lambda n: torch.randint(4, (n, 6))),
    "transformer": (transformer, WORDS),
    "lstm": (recurrent, WORDS),
    "branches": (branching, ROWS),
    "partly-frozen": (frozen, ROWS),
    "convolutions": (conv, lambda n: torch.randn(n, 2, 9, 8)),
    "linear-on-tokens": (
        lambda: nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Flatten(), nn.Linear(30, 3)),
        lambda n: torch.randn(n, 6, 4),
    ),
    "sparse-embedding": (
        lambda: nn.Sequential(nn.Embedding(9, 4, sparse=True), nn.Flatten(), nn.Linear(24, 3)),
        WORDS,
    ),
    "frequency-scaled-embedding": (
        lambda: nn.Sequential(
            nn.Embedding(9, 4, scale_grad_by_freq=True), nn.Flatten(), nn.Linear(24, 3)
        ),
        WORDS,
    ),
    "unused-layer": (
        lambda: Net(lambda m, x: m.used(x), used=nn.Linear(4, 3), unused=nn.Linear(4, 3)),
        ROWS,
    ),
    "weight-norm": (
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))),
        ROWS,
    ),
    "bilinear": (lambda: Net(lambda m, x: m.pair(x, x.sin()), pair=nn.Bilinear(4, 4, 3)), ROWS),
    "conv1d": (
        lambda: nn.Sequential(nn.Conv1d(4, 2, 3, padding="same"), nn.Flatten(), nn.Linear(12, 3)),
        lambda n: torch.randn(n, 4, 6),
    ),
}


def made(name, records, dtype=torch.float64):
    torch.manual_seed(records)
    build, data = ARCHITECTURES[name]
    model, inputs = build(), data(records)
    model(inputs[:1])  # lets lazy layers settle
    inputs = inputs.to(dtype) if inputs.is_floating_point() else inputs
    return model.to(dtype), inputs, classes(records)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_sum_is_that_of_a_naive_loop(name, dtype):
    model, inputs, targets = made(name, 6, dtype)
    assert_right(model, CROSS_ENTROPY, inputs, targets)
    assert_right(model, halves, inputs, targets, chunk=4)


ONCE = nn.Linear(6, 6)


@pytest.mark.parametrize(
    ("model", "loss", "known"),
    [
        (nn.Sequential(nn.Flatten(), nn.Linear(6, 6)), CROSS_ENTROPY, True),
        (nn.Sequential(nn.Flatten(0), nn.Linear(6, 6)), CROSS_ENTROPY, False),  # records together
        (nn.Sequential(nn.Flatten(1, 1), nn.Linear(6, 6)), CROSS_ENTROPY, False),
        (nn.Sequential(ONCE, nn.ReLU(), ONCE), CROSS_ENTROPY, False),
        (nn.Sequential(nn.Softmax(0), nn.Linear(6, 6)), CROSS_ENTROPY, False),
        (ONCE, functools.partial(functional.cross_entropy), False),  # their mean
        (ONCE, nn.CrossEntropyLoss(), False),
    ],
)
def test_p14_a_chain_is_of_layers_and_losses_that_take_each_row_alone(
    model: nn.Module, loss: Any, known: bool
) -> None:
    batch = Batch(inputs=(torch.zeros(2, 6),), targets=torch.zeros(2, dtype=torch.long))
    assert (chain_of(model, loss, batch) is not None) == known


@pytest.mark.parametrize(("off", "method"), [(0.0, "chain"), (1e-12, "chain"), (1e-6, "loop")])
def test_a_method_that_is_a_little_off_in_float64_is_not_taken(monkeypatch, off, method):
    """Its records would not be clipped to the norm that is charged."""
    honest = self_check._sum

    def summed(model, loss, batch, clip, by):
        return honest(model, loss, batch, clip, by) * (1.0 if by == "loop" else 1.0 + off)

    monkeypatch.setattr(self_check, "_sum", summed)
    model, inputs, targets = made("partly-frozen", 5)
    assert checked_method(model, CROSS_ENTROPY, inputs, targets) == method


@pytest.mark.parametrize("wrong", ["clips none", "clips a little later", "clips all", "nothing"])
def test_a_method_that_is_wrong_for_long_records_or_short_ones_alone_is_not_taken(
    monkeypatch, wrong
):
    """The check clips some of its records and not others, so that both are looked at."""
    honest = self_check._sum

    def summed(model, loss, batch, clip, by):
        if by == "loop" or wrong == "nothing":
            return honest(model, loss, batch, clip, by)
        if wrong != "clips all":
            return honest(model, loss, batch, clip * (1e30 if wrong == "clips none" else 1.01), by)
        total = 0.0
        for piece in (batch.piece(k, k + 1) for k in range(4)):
            norm = honest(model, loss, piece, 1e30, "loop").norm()
            total = total + honest(model, loss, piece, clip, "loop") * max(1.0, clip / norm)
        return total

    monkeypatch.setattr(self_check, "_sum", summed)
    monkeypatch.setattr(self_check, "METHODS", ("chain", "loop"))
    torch.manual_seed(1)
    inputs = torch.randn(4, 3) * torch.tensor([5.0, 1.0, 1.0, 1.0])[:, None]
    method = checked_method(nn.Linear(3, 2), CROSS_ENTROPY, inputs, torch.arange(4) % 2)
    assert method == ("chain" if wrong == "nothing" else "loop")


@pytest.mark.quick_cases(
    "frequency-scaled-embedding", "inplace-relu", "linear-on-tokens", "partly-frozen"
)
@pytest.mark.parametrize("name", sorted(set(ARCHITECTURES) - {"branches"}))
def test_the_self_check_picks_a_method_that_is_right(name):
    model, inputs, targets = made(name, 5)
    method = checked_method(model, CROSS_ENTROPY, inputs, targets)
    loops = ("frequency-scaled-embedding",)
    chains = ("inplace-relu", "partly-frozen")
    assert method == ("loop" if name in loops else "chain" if name in chains else "vmap")
    assert_right(model, CROSS_ENTROPY, inputs, targets, method=method)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    widths=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    bias=st.booleans(),
    act=st.sampled_from([nn.ReLU, nn.Tanh, nn.GELU, functools.partial(nn.ReLU, inplace=True)]),
    tokens=st.sampled_from([0, 1, 3]),
    norm=st.booleans(),
    double=st.booleans(),
    records=st.integers(1, 9),
    chunk=st.sampled_from([None, 1, 2, 5]),
    seed=st.integers(0, 10**6),
)
def test_any_small_network_is_summed_as_by_a_naive_loop(
    widths, bias, act, tokens, norm, double, records, chunk, seed
):
    torch.manual_seed(seed)
    layers, width = [], 4
    for after in widths:
        layers += [nn.Linear(width, after, bias=bias), act()]
        layers += [nn.LayerNorm(after)] if norm and double else []  # ill-conditioned in float32
        width = after
    layers += [nn.Flatten(), nn.Linear(width * max(tokens, 1), 3)]
    dtype = torch.float64 if double else torch.float32
    model = nn.Sequential(*layers).to(dtype)
    inputs = torch.randn(*((records, tokens, 4) if tokens else (records, 4)), dtype=dtype)
    assert_right(model, CROSS_ENTROPY, inputs, classes(records), chunk=chunk)


@pytest.mark.parametrize("method", ["chain", "vmap", "loop"])
def test_the_three_methods_agree(method):
    model = build_model("mlp", inputs=(4,), outputs=3, hidden=[6, 5], seed=b"x").double()
    assert_right(model, CROSS_ENTROPY, torch.randn(7, 4).double(), classes(7), method=method)


def test_a_large_convolution_at_few_places_is_summed_at_once():
    """As the last ones of a network of images are: as products, which are not written out."""
    layers = nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 2, padding=1), nn.Flatten()
    model, inputs = nn.Sequential(*layers, nn.Linear(576, 3)), torch.randn(5, 64, 4, 4)
    assert_right(model, CROSS_ENTROPY, inputs, classes(5), method="vmap")


def test_p14_what_a_models_autocast_shortens_is_clipped_and_added_at_its_full_length():
    def forward(model, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model.head(model.wide(torch.tanh(model.first(x))).relu().mean(1)).float()

    torch.manual_seed(0)
    layers = {"first": nn.Linear(4, 130), "wide": nn.Linear(130, 130), "head": nn.Linear(130, 3)}
    model, inputs, targets = Net(forward, **layers), torch.randn(5, 6, 4), classes(5)
    expected = naive(model, CROSS_ENTROPY, inputs, targets, 0.5)
    found = clipped_sum(model, CROSS_ENTROPY, inputs, targets, 0.5, method="vmap").vector
    assert float((found - expected).norm()) < 0.02 * float(expected.norm())
    one = clipped_sum(model, CROSS_ENTROPY, inputs[:1], targets[:1], 0.1, method="vmap").vector
    assert 0.0999 < float(one.double().norm()) <= 0.1


def test_several_inputs():
    model = Net(lambda m, x, y: m.a(x) + m.b(y), a=nn.Linear(4, 3), b=nn.Linear(2, 3))
    assert_right(model, CROSS_ENTROPY, (torch.randn(5, 4), torch.randn(5, 2)), classes(5))


def test_one_record_and_one_logit():
    model = build_model("logistic", inputs=(4,), outputs=1, seed=b"x")
    assert_right(model, default_loss(1), torch.randn(1, 4), torch.ones(1, dtype=torch.int64))


@pytest.mark.parametrize("name", ["inplace-relu", "transformer", "lstm"])
def test_an_empty_batch_gives_zeros(name):
    model, inputs, targets = made(name, 2)
    found = clipped_sum(model, CROSS_ENTROPY, inputs[:0], targets[:0], 1.0)
    assert found.count == 0
    assert found.vector.shape == (sum(p.numel() for p in model.parameters()),)
    assert not found.vector.any()


def test_dropout_is_drawn_for_each_record_and_nothing_else_is_touched():
    torch.manual_seed(0)
    model = Net(lambda m, x: m.head(m.drop(x)), drop=nn.Dropout(0.5), head=nn.Linear(64, 2))
    inputs, targets = torch.ones(40, 64), torch.zeros(40, dtype=torch.int64)
    before = [p.clone() for p in model.parameters()]
    weight = clipped_sum(model, halves, inputs, targets, 1e6, method="vmap").vector[:64]
    assert len(weight.unique()) > 5  # one mask for all records would leave two values
    assert all(map(torch.equal, before, model.parameters()))
    assert all(p.grad is None for p in model.parameters())


def test_a_loss_that_holds_a_parameter_still_gives_the_true_gradient():
    model = nn.Sequential(nn.Linear(4, 3)).double()

    def loss(outputs, targets):
        return CROSS_ENTROPY(outputs, targets) + model[0].weight.square().sum()

    assert_right(model, loss, torch.randn(5, 4).double(), classes(5))


@pytest.mark.slow
def test_a_model_that_takes_gradients_itself_still_gives_the_true_gradient():
    def force(m, x):
        return m.head(torch.func.grad(lambda v: m.energy(v).tanh().sum())(x))

    model = Net(force, energy=nn.Linear(4, 2), head=nn.Linear(4, 3)).double()
    assert_right(model, CROSS_ENTROPY, torch.randn(5, 4).double(), classes(5))


class Spare(nn.Module):
    """With a layer that no record reaches."""

    def __init__(self):
        super().__init__()
        self.used, self.spare = nn.Linear(3, 2), nn.Linear(4, 2)

    def forward(self, x):
        return self.used(x)


@pytest.mark.parametrize("method", ["vmap", "loop"])
@pytest.mark.parametrize("records", [0, 5])
def test_where_no_gradient_was_added_there_are_zeros_and_not_what_memory_held(
    monkeypatch, method, records
):
    def held(layout, size):
        return torch.full((size,), math.nan, dtype=layout.dtype)

    monkeypatch.setattr(clipped_sums, "takes_all_at_once", lambda *_: False)
    monkeypatch.setattr(ParameterLayout, "empty", held)
    x, y = torch.randn(records, 3), torch.randint(2, (records,))
    total, count = clipped_sum(Spare(), CROSS_ENTROPY, x, y, 1.0, method=method)
    assert count == records
    assert torch.isfinite(total).all()
    assert total[8:].tolist() == [0.0] * 10


def test_an_activation_overwritten_after_use_is_never_used():
    def forward(m, x):
        doubled = x * 2
        found = m.head(doubled)
        doubled.mul_(0)  # here autograd's own check sees nothing: no gradient of x is asked for
        return found

    model = Net(forward, head=nn.Linear(4, 3))
    with pytest.raises(RuntimeError, match="overwritten"):
        clipped_sum(model, CROSS_ENTROPY, torch.randn(3, 4), classes(3), 1.0, method="vmap")
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        clipped_sum(model, CROSS_ENTROPY, torch.randn(3, 4), classes(3), 1.0)


# Refusals -----------------------------------------------------------------------------------------


def test_batch_norm_in_training_is_refused_with_its_replacement_named():
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    with pytest.raises(ModelError, match="GroupNorm"):
        clipped_sum(model, CROSS_ENTROPY, torch.randn(5, 4), classes(5), 1.0)
    assert_right(model.eval(), CROSS_ENTROPY, torch.randn(5, 4), classes(5))


@pytest.mark.parametrize("assign", [True, False])
def test_a_forward_that_changes_a_buffer_is_refused_and_the_buffer_put_back(assign):
    def forward(m, x):
        if assign:
            m.seen = m.seen + 1
        else:
            m.seen.add_(1)
        return m.head(x)

    model = Net(forward, head=nn.Linear(4, 3))
    model.register_buffer("seen", torch.zeros(()))
    for targets in (classes(5), classes(5)):
        with pytest.raises(ModelError, match="buffers"):
            clipped_sum(model, CROSS_ENTROPY, torch.randn(5, 4), targets, 1.0)
    assert float(model.seen) == 0


def test_mixing_outside_batch_norm_is_refused_at_set_up_and_harmless_without():
    model = Net(
        lambda m, x: m.head(m.body(x) - m.body(x).mean(0)),
        body=nn.Linear(4, 5),
        head=nn.Linear(5, 3),
    )
    inputs = torch.randn(5, 4)
    with pytest.raises(ModelError, match="records mix"):
        checked_method(model, CROSS_ENTROPY, inputs, classes(5))
    assert_right(
        model, CROSS_ENTROPY, inputs, classes(5)
    )  # a record's loss is that of a batch of one


def test_a_branch_that_the_whole_batch_decides_is_refused_at_set_up():
    model, inputs, targets = made("branches", 5)
    with pytest.raises(ModelError, match="records mix"):
        checked_method(model, CROSS_ENTROPY, inputs, targets)


@pytest.mark.slow
def test_time_first_attention_is_refused_at_set_up():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)  # reads (time, batch, features)
    model = Net(lambda m, x: m.head(m.body(x).mean(1)), body=layer, head=nn.Linear(8, 3))
    with pytest.raises(ModelError, match="batch_first"):
        checked_method(model, CROSS_ENTROPY, torch.randn(5, 5, 8), classes(5))


def _two_layers():
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 4)).double()


def _weight_of_another():
    """A layer whose weight is no parameter: it follows from that of the layer before."""
    model = _two_layers()
    del model[2].weight
    model[2].weight = model[0].weight.t()
    return model


def _hook_of_a_module():
    model = _two_layers()
    model[2].register_full_backward_pre_hook(lambda _, gradients: (gradients[0] * 2,))
    return model


def _hook_of_a_parameter():
    model = _two_layers()
    model[0].weight.register_hook(lambda gradient: gradient * 2)
    return model


@pytest.mark.parametrize("build", [_weight_of_another, _hook_of_a_module, _hook_of_a_parameter])
def test_auto_leaves_to_the_loop_what_only_the_loop_sees(build):
    torch.manual_seed(0)
    model, inputs, targets = build(), torch.randn(5, 4, dtype=torch.float64), classes(5)
    assert_right(model, CROSS_ENTROPY, inputs, targets)


class Halving(nn.Module):
    """Writes into its inputs, before a layer that vmap cannot take."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.RNN(4, 3, batch_first=True), nn.Linear(3, 3)

    def forward(self, x):
        return self.head(self.body(x.div_(2.0))[0][:, -1])


def test_a_model_that_writes_into_its_inputs_is_given_those_that_it_was_handed():
    torch.manual_seed(0)
    model, inputs, targets = Halving().double(), torch.randn(5, 2, 4).double(), classes(5)
    before = inputs.clone()
    total = clipped_sum(model, CROSS_ENTROPY, inputs, targets, 1.0).vector
    assert checked_method(model, CROSS_ENTROPY, inputs, targets) == "loop"
    evaluate(model, CROSS_ENTROPY, inputs, targets)
    assert torch.equal(inputs, before)
    torch.testing.assert_close(total, naive(model, CROSS_ENTROPY, inputs, targets, 1.0))


def test_bad_options_are_refused():
    model, inputs, targets = made("inplace-relu", 4)
    for clip in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(StudyError, match="clip"):
            clipped_sum(model, CROSS_ENTROPY, inputs, targets, clip)
    with pytest.raises(StudyError, match="chunk"):
        clipped_sum(model, CROSS_ENTROPY, inputs, targets, 1.0, chunk=0)
    with pytest.raises(StudyError, match="method"):
        clipped_sum(model, CROSS_ENTROPY, inputs, targets, 1.0, method="ghost")
    with pytest.raises(ModelError, match="auto"):
        clipped_sum(model, halves, inputs, targets, 1.0, method="chain")
    with pytest.raises(DataError, match="same number"):
        clipped_sum(model, CROSS_ENTROPY, inputs, targets[:2], 1.0)
    with pytest.raises(ModelError, match="float32"):
        clipped_sum(model.half(), CROSS_ENTROPY, inputs.half(), targets, 1.0)
    with pytest.raises(ModelError, match="one loss value"):
        clipped_sum(model.double(), lambda o, t: o, inputs, targets, 1.0)


# Norms --------------------------------------------------------------------------------------------


def exact_square(values):
    return sum(Fraction(v) ** 2 for v in values.double().reshape(-1).tolist())


@settings(max_examples=60, deadline=None)
@given(
    scale=st.floats(1e-25, 1e25),
    clip=st.floats(1e-6, 1e6),
    records=st.integers(1, 4),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 10**6),
)
def test_no_contribution_passes_the_clip_in_exact_arithmetic(scale, clip, records, dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    gradients = torch.randn(records, 50, generator=generator, dtype=torch.float64)
    gradients = (gradients * scale).to(dtype)
    factors = clip_factors(norms_of(gradients), clip, dtype)
    for gradient, factor in zip(gradients, factors, strict=True):
        contribution = gradient * factor  # rounded as in the sum
        assert exact_square(contribution) <= Fraction(clip) ** 2
        norm = float(gradient.double().norm())
        if norm > clip:  # and nothing is thrown away
            assert float(contribution.double().norm()) >= clip * (1 - 3 * MARGIN)


@given(st.floats(1e-30, 1e30), st.floats(1e-20, 1e38))
def test_factors_are_rounded_towards_zero_denormal_ones_included(clip, norm):
    norms = torch.tensor([norm], dtype=torch.float64)
    exact = min(1.0, clip / norm) * (1 - MARGIN)
    double = float(clip_factors(norms, clip, torch.float64))
    assert double == pytest.approx(exact, rel=2.0**-50, abs=0)
    assert 0 <= float(clip_factors(norms, clip, torch.float32)) <= double


def test_p14_a_norm_that_is_not_finite_has_the_factor_zero():
    norms = torch.tensor([math.nan, math.inf, 0.5], dtype=torch.float64)
    for dtype in (torch.float32, torch.float64):
        assert clip_factors(norms, 1.0, dtype).tolist() == [0.0, 0.0, 1 - MARGIN]


@pytest.mark.quick_cases("chain")
@pytest.mark.parametrize("method", ["chain", "vmap", "loop"])
def test_the_sum_of_one_record_is_within_the_clip_in_exact_arithmetic(method):
    for seed in range(20):
        torch.manual_seed(seed)
        model = build_model("mlp", inputs=(30,), outputs=3, hidden=[20], seed=b"%d" % seed)
        inputs, targets = torch.randn(1, 30) * 10.0 ** (seed - 5), classes(1)
        vector = clipped_sum(model, CROSS_ENTROPY, inputs, targets, 0.1, method=method).vector
        assert exact_square(vector) <= Fraction(0.1) ** 2


def test_cancellation_between_positions_does_not_shrink_the_norm():
    """A float32 Gram matrix of these activations gives norms that are wrong, even negative."""
    torch.manual_seed(0)
    left = torch.randn(1, 64, 16)
    right = torch.randn(1, 1, 16) * 1e3 + torch.randn(1, 64, 16)
    left = left - left.mean(1, keepdim=True)
    part = from_positions(left, right)
    stored = float(exact_square(part.gradients))
    assert float(part.norms()) ** 2 == pytest.approx(stored, rel=1e-13)
    gram = ((left @ left.mT) * (right @ right.mT)).sum()
    assert abs(float(gram) / stored - 1) > 1e-4  # why Gram matrices are not used


def test_repeated_words_add_up_within_a_record_only():
    ids, backprop = torch.tensor([[2, 2, 0], [2, 1, 0]]), torch.ones(2, 3, 1)
    part = from_lookups(ids, backprop, 0)
    assert isinstance(part, Rows)
    assert part.norms().square().tolist() == pytest.approx([4.0, 2.0])


@pytest.mark.parametrize("method", ["chain", "vmap", "loop"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_record_that_is_not_finite_contributes_exactly_zero_and_is_not_counted(method, bad):
    model = build_model("mlp", inputs=(4,), outputs=3, hidden=[6], seed=b"x")
    inputs, targets = torch.randn(6, 4), classes(6)
    spoilt = inputs.clone()
    spoilt[2, 1] = bad
    kept = [0, 1, 3, 4, 5]
    found = clipped_sum(model, CROSS_ENTROPY, spoilt, targets, 0.5, method=method)
    expected = naive(model, CROSS_ENTROPY, inputs[kept], targets[kept], 0.5)
    assert found.count == 5
    assert torch.allclose(found.vector.double(), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["transformer", "convolutions"])
def test_a_record_that_is_not_finite_spoils_no_other_in_any_layer(name):
    model, _, targets = made(name, 4)
    if name == "transformer":
        model = Net(lambda m, x: m.head(m.body(x).mean(1)), body=model.body, head=model.head)
        inputs = torch.randn(4, 3, 8).double()
    else:
        inputs = torch.randn(4, 2, 9, 8).double()
    expected = naive(model, CROSS_ENTROPY, inputs[1:], targets[1:], 0.5)
    inputs[0] = math.nan
    found = clipped_sum(model, CROSS_ENTROPY, inputs, targets, 0.5)
    assert found.count == 3
    assert torch.allclose(found.vector, expected, rtol=1e-9, atol=1e-12)


def test_the_loop_is_the_gradient_of_a_batch_of_one():
    model = nn.Linear(2, 2, bias=False).double()
    batch = batch_of(torch.tensor([[1.0, 2.0]]).double(), torch.tensor([0]))
    [(name, part)] = loop_parts(model, CROSS_ENTROPY, layout_of(model), batch)
    logits = model.weight.detach() @ torch.tensor([1.0, 2.0]).double()
    residual = logits.softmax(0) - torch.tensor([1.0, 0.0])
    assert name == "weight"
    assert torch.allclose(
        part.gradients[0], torch.outer(residual, torch.tensor([1.0, 2.0]).double())
    )


def test_what_a_gradient_is_made_of_goes_before_the_next_gradient_is_made() -> None:
    left = [torch.ones(2, 3, 4) for _ in range(3)]
    alive = [weakref.ref(one) for one in left]
    sources: list[Source] = [(f"{i}", Positions(left=one, right=one)) for i, one in enumerate(left)]
    left.clear()
    seen = []

    def shape(source: Source) -> Part:
        seen.append([ref() is not None for ref in alive])
        return source[0], formed(source[1])

    parts = _shaped(sources, GradientSpace(shape=shape, slices={}, size=0))
    assert [name for name, _ in parts] == ["0", "1", "2"]
    assert seen == [[True, True, True], [False, True, True], [False, False, True]]


def test_records_at_once_follow_from_the_most_that_is_held_together() -> None:
    """1 and then 4 numbers are made, of 8 and of 2: at most 1 + 8 + 2 are held of a record."""
    parts: list[Part] = [
        ("a", Stack(gradients=torch.ones(3, 1), scratch=3 * 8)),
        ("b", Stack(gradients=torch.ones(3, 4), scratch=3 * 2)),
    ]
    assert _affordable(parts, 3) == _BUDGET * 3 // (3 * 11)
