"""A model that remembers is refused, and what it remembers moves no other record's part (P14).

Memory outside tensors: attributes of modules and classes, generators of the process, generators of
the model's own. Each model here draws or keeps by what a record holds, so that it moves the parts
of the records after it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from hubbub.core.errors import ModelError
from hubbub.core.tabular.records import Records
from hubbub.learning import EvaluationTask, TrainingTask, method_for
from hubbub.learning.frozen import features_by
from hubbub.learning.model_state import attributes_restored, attributes_unchanged
from hubbub.learning.torch_settings import seeded
from hubbub.learning.trial import WILD

MARGIN, ROWS = 2.0**-9, 12
EMPTY = -1


class Kept(nn.Module):
    """A layer whose outputs another record's features may reach."""

    seen: ClassVar[list[float]] = [0.0]
    shared = 0.0

    def __init__(self, carry: Callable[[Kept, torch.Tensor], Any]) -> None:
        super().__init__()
        self.last = nn.Linear(3, 2)
        self.carry, self.kept, self.table, self.steps = carry, 0.0, {"sum": 0.0}, [0.0]
        self.own, self.pythons = torch.Generator(), random.Random(0)
        self.numpys = np.random.default_rng(0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(x * (1 + self.carry(self, x)) / 50)


def attribute(m: Kept, x: torch.Tensor) -> float:
    before, m.kept = m.kept, float(x.sum())
    return before


def counter(m: Kept, x: torch.Tensor) -> float:
    m.kept += float(x[0, 0] > 0)
    return m.kept


def tensor(m: Kept, x: torch.Tensor) -> Any:
    before = getattr(m, "past", torch.zeros(3))
    m.past = x[0].detach().clone()
    return before


def dictionary(m: Kept, x: torch.Tensor) -> float:
    before = m.table["sum"]
    m.table["sum"] = before + float(x.sum())
    return before


def appended(m: Kept, x: torch.Tensor) -> float:
    m.steps.append(float(x.sum()))
    return sum(m.steps[:-1])


def of_the_class(m: Kept, x: torch.Tensor) -> float:
    before, Kept.shared = Kept.shared, float(x.sum())
    return before


def in_the_class(m: Kept, x: torch.Tensor) -> float:
    m.seen.append(float(x.sum()))
    return sum(m.seen[:-1])


def on_a_layer(m: Kept, x: torch.Tensor) -> float:
    before = getattr(m.last, "noted", 0.0)
    m.last.noted = float(x.sum())
    return before


def in_an_object(m: Kept, x: torch.Tensor) -> float:
    before = vars(m.pythons).get("note", 0.0)
    m.pythons.note = float(x.sum())
    return before


def hooked(m: Kept, x: torch.Tensor) -> float:
    before, value = len(m.last._forward_pre_hooks), bool(x[0, 0] > 0)
    if value:
        m.last.register_forward_pre_hook(lambda *_: None)
    return float(before)


def buffered(m: Kept, x: torch.Tensor) -> float:
    before = float(m.note) if hasattr(m, "note") else 0.0
    m.register_buffer("note", x.sum().detach(), persistent=False)
    return before


def on_a_parameter(m: Kept, x: torch.Tensor) -> float:
    before = getattr(m.last.weight, "noted", 0.0)
    m.last.weight.noted = float(x.sum())
    return before


def in_a_gradient(m: Kept, x: torch.Tensor) -> Any:
    before = torch.zeros(3) if m.last.weight.grad is None else m.last.weight.grad[0].clone()
    m.last.weight.grad = x[:1].detach().expand(2, 3).to(m.last.weight.dtype)
    return before


def own_of_torch(m: Kept, x: torch.Tensor) -> float:
    return float(torch.rand(1 + int(x[0, 0] > 0), generator=m.own)[-1])


def own_of_python(m: Kept, x: torch.Tensor) -> float:
    return [m.pythons.random() for _ in range(1 + int(x[0, 0] > 0))][-1]


def own_of_numpy(m: Kept, x: torch.Tensor) -> float:
    return float(m.numpys.random(1 + int(x[0, 0] > 0))[-1])


KEPT = [attribute, counter, tensor, dictionary, appended, of_the_class, in_the_class, on_a_layer]
KEPT += [in_an_object, hooked, on_a_parameter, own_of_torch, own_of_python, own_of_numpy]
IN_TENSORS = [in_a_gradient, buffered]


def of_python(m: Kept, x: torch.Tensor) -> float:
    return [random.random() for _ in range(1 + int(x[0, 0] > 0))][-1]


def of_numpy(m: Kept, x: torch.Tensor) -> float:
    return float(np.random.random(1 + int(x[0, 0] > 0))[-1])  # noqa: NPY002 (models use it)


def of_torch(m: Kept, x: torch.Tensor) -> float:
    return float(torch.rand(1 + int(x[0, 0] > 0))[-1])


DRAWN = [of_python, of_numpy, of_torch]


def rarely(carry: Callable[[Kept, torch.Tensor], Any]) -> Callable[[Kept, torch.Tensor], Any]:
    """The same, but for records of one kind alone, which no made-up record is."""

    def rare(m: Kept, x: torch.Tensor) -> Any:
        return carry(m, x) if 40 < float(x.abs().max()) < 60 else m.kept

    rare.__name__ = f"rarely_{carry.__name__}"
    return rare


def records() -> Records:
    inputs = np.random.default_rng(1).normal(size=(ROWS, 3)).astype(np.float32)
    inputs[:, 1] = 50.0
    inputs[0] = (3.0, 50.0, 30.0)
    return Records(inputs=inputs, targets=np.arange(ROWS) % 2)


def model_of(carry: Callable[[Kept, torch.Tensor], Any]) -> Kept:
    Kept.shared, Kept.seen = 0.0, [0.0]
    with seeded(0, torch.device("cpu")):
        return Kept(carry)


def moved(kind: type, carry: Callable[[Kept, torch.Tensor], Any]) -> float:
    """How far one record, the first, moves a sum, with the same secrets."""
    sums = []
    for rows in (np.arange(ROWS), np.array([EMPTY, *range(1, ROWS)])):
        model = model_of(carry)
        options = {"clip": 1.0, "margin": MARGIN} if kind is TrainingTask else {}
        task = kind(model, records(), method="loop", **options)
        task._rows._source = type(task._rows._source)(bytes(16))
        vector = nn.utils.parameters_to_vector(model.parameters()).detach().numpy().copy()
        sums.append(task.clipped_sum(vector, rows))
    return float(np.linalg.norm(sums[1] - sums[0]))


@pytest.mark.quick_cases(
    "EvaluationTask-appended", "EvaluationTask-in_the_class", "EvaluationTask-hooked"
)
@pytest.mark.slow_cases(*(f"EvaluationTask-rarely_{one.__name__}" for one in KEPT))
@pytest.mark.parametrize("carry", [*KEPT, *DRAWN, *map(rarely, KEPT)])
@pytest.mark.parametrize("kind", [TrainingTask, EvaluationTask])
def test_one_record_moves_nobody_elses_part_whatever_the_model_keeps(kind, carry) -> None:
    assert 0.1 < moved(kind, carry) <= (1 + MARGIN if kind is TrainingTask else 3**0.5)


@pytest.mark.quick_cases("EvaluationTask-rarely_buffered", "EvaluationTask-rarely_in_a_gradient")
@pytest.mark.parametrize("carry", [*map(rarely, IN_TENSORS)])
@pytest.mark.parametrize("kind", [TrainingTask, EvaluationTask])
def test_what_is_kept_in_tensors_moves_nobody_elses_part(kind, carry) -> None:
    """A record that does so may count for nothing."""
    assert moved(kind, carry) <= (1 + MARGIN if kind is TrainingTask else 3**0.5)


@pytest.mark.quick_cases("buffered", "in_a_gradient", "in_the_class", "counter")
@pytest.mark.parametrize("carry", [*KEPT, *IN_TENSORS])
def test_a_model_that_keeps_something_of_a_record_is_refused_at_set_up(carry) -> None:
    with pytest.raises(ModelError, match=r"leaves the model's attributes alone|remembers|buffers"):
        method_for(model_of(carry), (3,), np.zeros(1, np.int64))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("carry", "name"), [(attribute, "Kept.kept"), (on_a_layer, "Linear.noted")]
)
def test_a_refusal_names_the_attribute_and_quotes_no_value(carry, name) -> None:
    with pytest.raises(ModelError, match=name) as caught:
        method_for(model_of(carry), (3,), np.zeros(1, np.int64))
    assert not any(character.isdigit() for character in str(caught.value))


@pytest.mark.slow
def test_of_many_layers_of_one_kind_the_one_that_remembers_is_seen() -> None:
    model = nn.Sequential(model_of(attribute), nn.Linear(2, 3), model_of(lambda m, x: 0.0))
    with pytest.raises(ModelError, match=r"Kept\.kept"):
        method_for(model, (3,), np.zeros(1, np.int64))


PAST: list[float] = [0.0]


def in_a_global(m: Kept, x: torch.Tensor) -> float:
    before, PAST[0] = PAST[0], float(x.sum())
    return before


@pytest.mark.slow
def test_memory_in_a_global_is_seen_when_a_row_is_played_again() -> None:
    with pytest.raises(ModelError, match="remembers"):
        method_for(model_of(in_a_global), (3,), np.zeros(1, np.int64))


def test_memory_that_random_layers_would_hide_is_seen() -> None:
    def hidden(m: Kept, x: torch.Tensor) -> Any:
        return torch.rand(()) + in_a_global(m, x)

    with pytest.raises(ModelError, match="remembers"):
        method_for(model_of(hidden), (3,), np.zeros(1, np.int64))


@pytest.mark.slow
def test_rows_that_meet_behind_random_layers_are_refused() -> None:
    def meeting(m: Kept, x: torch.Tensor) -> torch.Tensor:
        return torch.rand(x.shape) + x.mean(0)

    def apart(m: Kept, x: torch.Tensor) -> torch.Tensor:
        return torch.rand(x.shape) + x.mean(1, keepdim=True)

    with pytest.raises(ModelError, match="records mix"):
        method_for(model_of(meeting), (3,), np.zeros(1, np.int64))
    assert method_for(model_of(apart), (3,), np.zeros(1, np.int64)) == "loop"


def test_a_model_that_no_seed_governs_is_refused() -> None:
    with pytest.raises(ModelError, match="a generator of its own"):
        method_for(model_of(lambda m, x: random.SystemRandom().random()), (3,), np.zeros(1, int))


@pytest.mark.slow
def test_what_is_kept_of_the_shape_alone_is_no_memory() -> None:
    def cached(m: Kept, x: torch.Tensor) -> Any:
        if "mask" not in m.table:
            m.table["mask"] = torch.arange(x.shape[1]) / 10
        return m.table["mask"]

    method_for(model_of(cached), (3,), np.zeros(1, np.int64))


@pytest.mark.parametrize("carry", [*KEPT, *IN_TENSORS])
def test_attributes_are_put_back_whatever_was_written(carry) -> None:
    x, said = torch.tensor([[1.0, 2.0, 3.0]]), []
    model = model_of(carry)
    with attributes_unchanged(model):
        for _ in range(2):
            with attributes_restored(model):
                said.append(torch.as_tensor(carry(model, x)))
                again = torch.as_tensor(carry(model, x))
    assert torch.equal(*said)
    assert not torch.equal(again, said[0])


@pytest.mark.quick_cases("attribute", "of_torch", "dictionary", "in_an_object")
@pytest.mark.parametrize("carry", [*KEPT, *DRAWN])
def test_a_frozen_module_that_remembers_gives_each_record_its_own_features(carry) -> None:
    inputs = torch.from_numpy(records().inputs)
    whole = features_by(model_of(carry).eval(), inputs)
    assert np.array_equal(features_by(model_of(carry).eval(), inputs[1:]), whole[1:])


def test_seeds_govern_every_generator_of_the_process_and_leave_it_as_it_was() -> None:
    def drawn() -> tuple[float, float, float]:
        return random.random(), float(np.random.random()), float(torch.rand(()))  # noqa: NPY002

    random.seed(5)
    expected = random.random()
    random.seed(5)
    seen = []
    for seed in (3, 3, 2**62 + 4):
        with seeded(seed, torch.device("cpu")):
            seen.append(drawn())
    assert seen[0] == seen[1]
    assert all(one != other for one, other in zip(seen[0], seen[2], strict=True))
    assert random.random() == expected


def test_each_wild_kind_is_alone() -> None:
    kinds = [kind(torch.ones(2)) for kind in WILD]
    assert sum(bool(one.isnan().any()) for one in kinds) == 1
    assert {10.0, 1e3, 1e6} <= {float(one[0]) for one in kinds}
