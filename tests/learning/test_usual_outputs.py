"""Models whose outputs mean logits without being a tensor of them are read as what they mean."""

from __future__ import annotations

import copy
import logging
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import hubbub
from hubbub import Study
from hubbub.core.errors import ModelError
from hubbub.learning.self_check import method_for
from hubbub.learning.study_model import with_logits, with_usual_outputs
from hubbub.learning.target_types import CLASSES, Amount, Classes

RECORDS = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))


class Wrapped(nn.Module):
    """A linear layer whose outputs another function wraps."""

    def __init__(self, outputs, wrap):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.wrap = nn.Linear(3, outputs), wrap

    def forward(self, x):
        return self.wrap(self.linear(x))


class Compiled(nn.Module):
    """As what torch.compile gives, copies of which have no hooks."""

    def __init__(self, module):
        super().__init__()
        self._orig_mod = module

    def forward(self, x):
        return self._orig_mod(x)

    def __reduce__(self):
        return Compiled, (self._orig_mod,)


def usual(model, outputs=1, target_type=CLASSES):
    """A copy of the model with its usual outputs, and those of some records."""
    model = with_usual_outputs(copy.deepcopy(model), (3,), target_type, single=outputs == 1)
    return model, model(RECORDS).detach()


@pytest.mark.parametrize(
    "wrap",
    [lambda x: SimpleNamespace(logits=x, loss=None), lambda x: {"logits": x}, lambda x: x],
    ids=["object", "mapping", "tensor"],
)
@pytest.mark.parametrize("columns", [1, 2, 3])
def test_logits_in_an_object_and_of_both_classes_are_logits(wrap, columns):
    model = Wrapped(columns, wrap)
    wanted = model.linear(RECORDS).detach()
    found = usual(model, outputs=3 if columns == 3 else 1)[1]
    if columns < 3:  # softmax of two is the sigmoid of their difference
        wanted = wanted[:, 1] - wanted[:, 0] if columns == 2 else wanted[:, 0]
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(
    ("columns", "wrap", "last"),
    [
        (1, torch.sigmoid, "sigmoid"),
        (1, lambda x: torch.sigmoid(x).squeeze(-1), "sigmoid"),
        (1, lambda x: torch.sigmoid(x)[:, 0], "sigmoid"),
        (1, lambda x: torch.sigmoid(x.t()).t().clamp(1e-7, 1), "sigmoid"),
        (2, lambda x: x.softmax(1), "softmax"),
        (2, lambda x: x.softmax(1)[:, 1], "softmax"),
        (2, lambda x: x.softmax(1)[:, 1:], "softmax"),
        (2, lambda x: x.double().softmax(1).float(), "softmax"),
        (3, lambda x: x.softmax(-1), "softmax"),
    ],
    ids=[
        *("sigmoid", "squeezed", "selected", "clamped", "softmax of two", "its second"),
        *("its second column", "of other numbers", "softmax of three"),
    ],
)
def test_probabilities_are_read_as_such_with_a_note(columns, wrap, last, caplog):
    model = Wrapped(columns, wrap)
    with caplog.at_level(logging.WARNING):
        found = usual(model, outputs=3 if columns == 3 else 1)[1]
    assert f"ends in a {last}" in caplog.text
    raw = model.linear(RECORDS).detach()
    wanted = {1: raw.sigmoid()[:, 0], 2: raw.softmax(1)[:, -1], 3: raw.softmax(1)}[columns]
    read = found.softmax(1) if columns == 3 else found.sigmoid()
    torch.testing.assert_close(read, wanted, atol=1e-4, rtol=1e-4)


class InTraining(Wrapped):
    """A model that gives logits in training, and what it wraps them with elsewhere."""

    def forward(self, x):
        return self.linear(x) if self.training else super().forward(x)


@pytest.mark.parametrize("columns", [1, 2])
def test_probabilities_outside_training_alone_are_read_so_there(columns):
    model = InTraining(columns, torch.sigmoid if columns == 1 else lambda x: x.softmax(1))
    raw = model.linear(RECORDS).detach()
    model = with_usual_outputs(model, (3,), CLASSES, single=True)
    wanted = raw[:, 0] if columns == 1 else raw[:, 1] - raw[:, 0]
    for mode in (True, False):
        torch.testing.assert_close(model.train(mode)(RECORDS).detach(), wanted)


@pytest.mark.parametrize(
    ("wrap", "target_type"),
    [
        (torch.tanh, CLASSES),
        (lambda x: torch.sigmoid(x) - 0.5, CLASSES),
        (torch.sigmoid, Amount(low=0.0, high=1.0)),
        (torch.sigmoid, Classes(loss_name="python:own:loss")),
    ],
    ids=["tanh", "not the last", "an amount", "the user's own loss"],
)
def test_a_sigmoid_elsewhere_stays_what_it_is(wrap, target_type, caplog):
    model = Wrapped(1, lambda x: wrap(x).squeeze(-1))
    torch.testing.assert_close(usual(model, 1, target_type)[1], model(RECORDS).detach())
    assert not caplog.text


def test_two_outputs_stay_where_targets_may_be_class_numbers():
    model = with_usual_outputs(nn.Linear(3, 2), (3,), CLASSES, single=True, pairs=False)
    assert model(RECORDS).shape == (5, 2)
    assert not model._forward_hooks


def test_torchscript_is_refused_by_its_name():
    with pytest.warns(DeprecationWarning, match="trace"):
        traced = torch.jit.trace(nn.Linear(3, 1), torch.zeros(1, 3))
    model = nn.Sequential(traced, nn.Flatten(0))
    with pytest.raises(ModelError, match=r"found 0 in TorchScript.*the module that was scripted"):
        method_for(model, (3,), np.zeros(0, np.float32))


def test_a_compiled_model_is_the_one_that_was_compiled_whose_copies_keep_the_hook():
    study = Study.parse(
        """
        study = { name = "usual" }
        parties = { silos = 3, colluders = 1 }
        data = { source = "python:nowhere:records" }
        model = { kind = "python:nowhere:net", inputs = [3] }
        training = { steps = 1, sample_rate = 0.5 }
        privacy = { epsilon = 1.0, delta = 1e-5 }
        """
    )
    model = copy.deepcopy(with_logits(study, Compiled(nn.Linear(3, 1)), (3,)))
    assert model(RECORDS).shape == (5,)
    assert [name for name, _ in model.named_parameters()] == ["weight", "bias"]


@pytest.mark.slow
def test_a_usual_model_has_no_hook_and_keeps_its_fast_method():
    model = usual(nn.Sequential(nn.Linear(3, 3)), outputs=3)[0]
    assert not model._forward_hooks
    assert method_for(model, (3,), np.zeros(0, np.int64)) == "chain"
    assert method_for(usual(nn.Linear(3, 2))[0], (3,), np.zeros(0, np.float32)) == "vmap"


@pytest.mark.slow
def test_such_a_model_is_trained_kept_and_loaded(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (60, 3))
    silos = dict.fromkeys(("north", "south", "east"), (x, np.where(x[:, 0] > 0, "ill", "well")))
    model = Wrapped(2, lambda x: {"logits": x})
    result = hubbub.fit(silos, epsilon=8, model=model, steps=2, out=tmp_path / "run")
    names = ["linear.weight", "linear.bias"]
    assert [name for name, _ in result.model.named_parameters()] == names
    again = hubbub.load(tmp_path / "run", model=model)
    np.testing.assert_array_equal(again.predict(x), result.predict(x))
