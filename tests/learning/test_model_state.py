"""No forward writes to what a model holds: not into sums, nor into a model's file (P14, P19)."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from hubbub.core.errors import ModelError
from hubbub.core.tabular.records import Records
from hubbub.learning import EvaluationTask, TrainingTask, method_for, model_state
from hubbub.learning.batches import per_unit_model
from hubbub.learning.frozen import features_by, frozen_features
from hubbub.learning.model_state import ModelState, state_unchanged, writes_refused
from nets import Net

MARGIN, ROWS = 2.0**-9, 12


class Remembering(nn.Module):
    """Keeps a running mean in one way or another, where a trained weight is above 1."""

    def __init__(self, write: Callable[[nn.Module, torch.Tensor], None], above: float) -> None:
        super().__init__()
        self.weight, self.last = nn.Parameter(torch.full((1,), 0.2)), nn.Linear(3, 2)
        self.frozen = nn.Parameter(torch.zeros(3), requires_grad=False)
        self.register_buffer("mean", torch.zeros(3))
        self.write, self.above = write, above

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.weight > self.above:
            with torch.no_grad():
                self.write(self, x.detach().mean(0))
        return self.last(x + self.frozen + self.mean)


def frozen_parameter(model: nn.Module, seen: torch.Tensor) -> None:
    model.frozen.mul_(0.9).add_(seen, alpha=0.1)


def buffer_through_data(model: nn.Module, seen: torch.Tensor) -> None:
    model.mean.data += 0.1 * seen


def trained_through_data(model: nn.Module, seen: torch.Tensor) -> None:
    model.last.weight.data[0] += 0.1 * seen


def through_numpy(model: nn.Module, seen: torch.Tensor) -> None:
    model.mean.numpy()[:] += 0.1 * seen.numpy()


def other_data(model: nn.Module, seen: torch.Tensor) -> None:
    model.frozen.data = model.frozen + 0.1 * seen


def other_tensor(model: nn.Module, seen: torch.Tensor) -> None:
    model.mean = model.mean + 0.1 * seen


def other_parameter(model: nn.Module, seen: torch.Tensor) -> None:
    model.frozen = nn.Parameter(model.frozen + 0.1 * seen, requires_grad=False)


def new_buffer(model: nn.Module, seen: torch.Tensor) -> None:
    known = dict(model.named_buffers()).get("seen", torch.zeros(3))
    model.register_buffer("seen", known + seen)
    model.last.bias.data[0] = float(seen[0])


def left_gradient(model: nn.Module, seen: torch.Tensor) -> None:
    model.frozen.grad = seen.clone()


WRITES = (
    frozen_parameter,
    buffer_through_data,
    trained_through_data,
    through_numpy,
    other_data,
    other_tensor,
    other_parameter,
    new_buffer,
    left_gradient,
)


def records(units: int = 0) -> Records:
    rows = ROWS * max(1, units)
    inputs = np.random.default_rng(1).uniform(0.1, 0.9, (rows, 3)).astype(np.float32)
    patients = np.arange(rows) // units if units else None
    return Records(inputs=inputs, targets=np.arange(rows) % 2, patients=patients)


def bytes_of(model: nn.Module) -> dict[str, bytes]:
    return {name: one.detach().numpy().tobytes() for name, one in model.state_dict().items()}


@pytest.mark.parametrize("write", WRITES)
def test_a_model_that_writes_to_its_tensors_is_refused_by_name_before_a_charge(write) -> None:
    with pytest.raises(ModelError, match=r"leaves parameters and buffers alone, found .*\['"):
        method_for(Remembering(write, 0.0), (3,), np.zeros(1, np.int64))
    for made in (trained, evaluated):
        with pytest.raises(ModelError, match="leaves parameters and buffers alone"):
            made(Remembering(write, 0.0), records())


def trained(model: nn.Module, known: Records) -> TrainingTask:
    return TrainingTask(model, known, clip=1.0, margin=MARGIN, method="loop")


def evaluated(model: nn.Module, known: Records) -> EvaluationTask:
    return EvaluationTask(model, known)


@pytest.mark.slow
@pytest.mark.parametrize("units", [0, 2], ids=["records", "patients"])
@pytest.mark.parametrize("write", WRITES)
def test_a_model_that_writes_at_chosen_weights_alone_keeps_nothing_and_adds_zero(
    write, units
) -> None:
    """Then nothing of a record is in the next sum, nor in what a party writes to its disk."""
    model = per_unit_model(Remembering(write, 1.0), units)
    tasks = trained(model, records(units)), evaluated(model, records(units))
    vector = np.concatenate(
        [p.detach().numpy().ravel() for p in model.parameters() if p.requires_grad]
    )
    quiet = [task.clipped_sum(vector, np.arange(ROWS)) for task in tasks]
    vector[0] = 2.0
    for task in tasks:
        assert not task.clipped_sum(vector, np.arange(ROWS)).any()
        held = bytes_of(model)
        assert not any(name.endswith("seen") for name in held)
        assert not held["rows.mean" if units else "mean"].strip(b"\0")
        assert not held["rows.frozen" if units else "frozen"].strip(b"\0")
    vector[0] = 0.2
    again = [task.clipped_sum(vector, np.arange(ROWS)) for task in tasks]
    assert all(np.array_equal(a, b) for a, b in zip(quiet, again, strict=True))
    assert quiet[0].any()


def test_an_evaluation_copies_the_model_once_however_many_pieces_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = Remembering(frozen_parameter, 1e9)  # which is asked row by row
    task, taken, copied = evaluated(model, records()), [], model_state._taken
    monkeypatch.setattr(model_state, "_taken", lambda one: taken.append(one) or copied(one))
    vector = nn.utils.parameters_to_vector([model.weight, *model.last.parameters()])
    task.clipped_sum(vector.detach().numpy().copy(), np.arange(ROWS))
    assert len(taken) == 1


@pytest.mark.slow
def test_a_record_that_makes_the_model_write_moves_nobody_elses_part() -> None:
    class Picky(Remembering):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            wild = (x[:, 0] * self.weight - 5.1).abs() < 0.1  # the null record is at 8.3
            if self.weight > 1 and bool(wild.any()):
                self.mean.data += x.detach().mean(0)
            return self.last(x + self.mean)

    known = records()
    known.inputs[4, 0] = 0.95
    for made in (trained, evaluated):
        model = Picky(frozen_parameter, 1e9)
        task = made(model, known)
        vector = nn.utils.parameters_to_vector([model.weight, *model.last.parameters()])
        vector = vector.detach().numpy().copy()
        vector[0] = 5.4
        whole = task.clipped_sum(vector, np.arange(ROWS))
        rows = np.arange(ROWS)
        rows[4] = -1
        assert np.array_equal(whole, task.clipped_sum(vector, rows))
        assert whole.any()


class Renormed(nn.Module):
    """Its table is shortened in the forward, but not at its first weights, which are short."""

    def __init__(self, direct: bool) -> None:
        super().__init__()
        self.table, self.last = nn.Parameter(torch.full((5, 3), 1e-3)), nn.Linear(3, 2)
        self.direct = direct

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        codes = x[:, 0].abs().long().clamp(max=4)
        if self.direct:
            torch.embedding_renorm_(self.table.detach(), codes, 1.0, 2.0)
            return self.last(self.table[codes])
        return self.last(functional.embedding(codes, self.table, max_norm=1.0))


@pytest.mark.slow
@pytest.mark.parametrize("direct", [False, True])
def test_a_table_that_may_be_shortened_is_refused_though_today_it_is_short(direct) -> None:
    model = Renormed(direct)
    with pytest.raises(ModelError, match=r"changed \['table'\]"):
        method_for(model, (3,), np.zeros(1, np.int64))
    assert bytes_of(model) == bytes_of(copy.deepcopy(model))


def test_not_a_number_is_the_same_number_and_minus_zero_another() -> None:
    model = nn.Linear(2, 1)
    with torch.no_grad():
        model.weight.fill_(torch.nan)
        model.bias.zero_()
    with state_unchanged(model):
        model(torch.ones(3, 2))
    with pytest.raises(ModelError, match=r"\['bias'\]"), state_unchanged(model):
        model.bias.data.neg_()
    assert not np.signbit(model.bias.detach().numpy()).any()


def test_views_and_strides_are_put_back_too() -> None:
    model = nn.Module()
    whole = torch.arange(12.0)
    model.register_buffer("odd", whole[1:8:2])
    model.weight = nn.Parameter(torch.ones(2, 3).t())
    state = ModelState(model)
    model.odd.data, model.weight.data = torch.zeros(7), torch.zeros(3, 2)
    whole[3] = 9.0
    assert state.put_back() == ["odd", "weight"]
    assert model.odd.tolist() == [1, 3, 5, 7]
    assert model.weight.stride() == (1, 3)
    assert state.put_back() == []
    assert state.renewed()


def test_what_has_no_bytes_to_compare_is_refused() -> None:
    model = nn.Linear(2, 1)
    model.register_buffer("graph", torch.eye(3).to_sparse())
    with pytest.raises(ModelError, match="dense"), state_unchanged(model):
        pass


def test_writes_that_change_nothing_are_seen_where_they_are_looked_for() -> None:
    model = nn.Linear(2, 1)
    with pytest.raises(ModelError, match=r"\['weight'\]"), writes_refused(model):
        model.weight.data.mul_(1.0)
    with writes_refused(model):
        model(torch.ones(3, 2)).sum().backward()


# Frozen layers, which see records one by one ---------------------------------------------------


@pytest.mark.slow
def test_a_records_features_are_the_same_bits_whatever_other_records_there_are(tmp_path) -> None:
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        layers = nn.Sequential(
            nn.Conv2d(3, 16, 5), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Flatten(), nn.Dropout(0.5)
        )
        images = torch.randn(261, 3, 12, 12)
    whole = frozen_features(layers, images, tmp_path)
    for keep in (slice(0, 1), slice(1, None), slice(200, 261), slice(0, 257)):
        assert np.array_equal(frozen_features(layers, images[keep], tmp_path), whole[keep])
    images[1::2] = torch.nan
    assert np.array_equal(frozen_features(layers, images, tmp_path)[::2], whole[::2])


@pytest.mark.slow
def test_frozen_layers_are_given_one_shape_whatever_number_of_records_there_is(tmp_path) -> None:
    shapes = set()
    layers = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten())
    layers[0].register_forward_hook(lambda _, given, __: shapes.add(given[0].shape))
    for count in (0, 1, 3, 257):
        frozen_features(layers, torch.randn(count, 1, 5, 5), tmp_path)
        assert shapes == {(1, 1, 5, 5), (8, 1, 5, 5)}


def test_p14_a_module_takes_several_records_at_once_only_where_none_moves_another() -> None:
    """Each has the same bits alone; what mixes, counts, draws, or may raise is given one by one."""
    layers = [nn.Linear(3, 2) for _ in range(2)]
    place = torch.arange(8.0)[:, None]
    layer = nn.TransformerEncoderLayer(4, 2, 4, batch_first=True)
    padded = nn.TransformerEncoder(layer, 1).eval().requires_grad_(False)

    def packed(x: torch.Tensor) -> torch.Tensor:
        with warnings.catch_warnings(action="ignore"):  # nested tensors are a prototype
            there = padded(x[:, :, None].repeat(1, 1, 4), src_key_padding_mask=x < -1e31)
        return torch.as_tensor(there)[:, 0]

    at_once: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "rows": lambda x: layers[1](torch.relu(layers[0](x)) @ layers[0].weight),
        "raises": lambda x: layers[0](x) if float(x.detach().numpy().max()) < 5 else x[9],
    }
    one_by_one: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "mixes": lambda x: x - x.mean(0) / 10,
        "mixes wild ones": lambda x: x + (np.abs(x.numpy()).max() > 1e9),
        "mixes large ones": lambda x: x + (((most := x.abs().amax()) > 1e2) & (most < 1e9)),
        "packs by a mask": packed,
        "takes by a mask": lambda x: x.clone().index_put_((x[:, 0] > 9,), torch.zeros(())),
        "branches in batches": lambda x: x if len(x) == 1 or float(x.max()) < 9 else 2 * x,
        "sees where": lambda x: x + 1e-6 * place[: len(x)],
        "sees how many": lambda x: x / len(x),
        "draws": lambda x: x + torch.rand(x.shape),
        "may raise": lambda x: x if float(x.max()) < 1e3 else x[9],
    }
    inputs = torch.randn(21, 3, generator=torch.Generator().manual_seed(0))
    inputs[4, 1] = 7.0
    for name, forward in (at_once | one_by_one).items():
        sizes = list[int]()
        module = Net(lambda _, x, of=forward, to=sizes: (to.append(len(x)), of(x))[1])
        whole = features_by(module, inputs)
        assert (sizes[-1] == 8) == (name in at_once), name
        for rows in (slice(4, 5), slice(1, 21), slice(5, 20)):
            assert features_by(module, inputs[rows]).tobytes() == whole[rows].tobytes(), name
        assert (whole[4] == 0).all() == (name == "raises"), name


def test_frozen_layers_that_write_for_some_record_make_its_features_zero(tmp_path) -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen.data += x.abs().max() > 5
            if x.abs().max() > 50:
                raise ModelError("a number above 50")
            return x + self.seen

    inputs = torch.ones(4, 3)
    inputs[1, 2], inputs[2, 0] = 6.0, 60.0
    layers = Counting()
    assert frozen_features(layers, inputs, tmp_path).tolist() == [
        [1] * 3,
        [0] * 3,
        [0] * 3,
        [1] * 3,
    ]
    assert not layers.seen.any()


def default_dtype() -> None:
    torch.set_default_dtype(torch.float64)


def gradients() -> None:
    torch.set_grad_enabled(True)


def determinism() -> None:
    torch.use_deterministic_algorithms(True)


def autocast() -> None:
    torch.set_autocast_enabled("cpu", True)


@pytest.mark.parametrize("change", [default_dtype, gradients, determinism, autocast])
def test_frozen_layers_that_change_a_mode_of_torch_for_one_record_move_no_other(
    change, tmp_path
) -> None:
    class Changing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            modes = (
                torch.get_default_dtype() == torch.float64,
                torch.is_grad_enabled(),
                torch.are_deterministic_algorithms_enabled(),
                torch.is_autocast_enabled("cpu"),
            )
            if bool(x.max() > 5):
                change()
            return x + sum(modes)

    inputs = torch.ones(4, 3)
    inputs[1] = 6.0
    before, deterministic = torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()
    try:
        features = frozen_features(Changing(), inputs, tmp_path)
    finally:
        torch.set_default_dtype(before)
        torch.set_grad_enabled(True)
        torch.use_deterministic_algorithms(deterministic)
        torch.set_autocast_enabled("cpu", False)
    assert np.array_equal(features[2:], features[[0, 0]])


def test_memory_that_tensors_share_is_copied_once_and_put_back() -> None:
    """As the weights of a recurrent layer do on a GPU."""
    model, flat = nn.GRU(3, 2), torch.arange(42.0)
    sizes = [one.numel() for one in model.parameters()]
    for one, part in zip(model.parameters(), flat.split(sizes), strict=True):
        one.data = part.view_as(one)
    state = ModelState(model)
    assert [copied.nbytes for copied in state._copies.values()] == [flat.nbytes]
    with torch.no_grad():
        model.bias_hh_l0.add_(1)
    assert state.put_back()
    assert torch.equal(flat, torch.arange(42.0))
    assert not state.put_back()
