"""What is written as ONNX says what `predict` says, for every kind of model and of target."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from hubbub.core.tabular.records import Standardisation
from hubbub.learning import build_model
from hubbub.learning.evaluation import Scorer, scores, write_onnx
from hubbub.learning.frozen import LowRank, _adapt
from hubbub.learning.target_types import (
    CLASSES,
    Amount,
    Count,
    ProbedClasses,
    TargetType,
    TimeToEvent,
)

torch.set_num_threads(1)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("onnx") is None or importlib.util.find_spec("onnxscript") is None,
        reason="ONNX IS NOT TESTED: onnx and onnxscript are not installed",
    ),
]


class Encoder(nn.Module):
    """One layer of a transformer over numbers, and what reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.TransformerEncoderLayer(6, 2, 12, dropout=0.1, batch_first=True)
        self.head = nn.Linear(6, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).mean(1)).squeeze(-1)


def adapted() -> nn.Module:
    """Adapters in a frozen module, and a head, moved away from zero."""
    base = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5))
    _adapt(base[0], 2)
    made = LowRank(base, 5, 1)
    for parameter in made.parameters():
        parameter.data += 0.3
    return made


def built(kind: str, inputs: tuple[int, ...], outputs: int, *hidden: int) -> nn.Module:
    made = build_model(kind, inputs=inputs, outputs=outputs, hidden=hidden, seed=b"onnx")
    torch.manual_seed(0)
    for parameter in made.parameters():  # a logistic model begins with zeros
        parameter.data += 0.1 * torch.randn_like(parameter)
    return made


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], TargetType]] = {
    "logistic": (lambda: built("logistic", (6,), 1), (6,), CLASSES),
    "logistic, 3 classes": (lambda: built("logistic", (6,), 3), (6,), CLASSES),
    "mlp": (lambda: built("mlp", (6,), 1, 8, 4), (6,), CLASSES),
    "cnn": (lambda: built("cnn", (1, 16, 16), 3, 8), (1, 16, 16), CLASSES),
    "linear-probe": (lambda: built("linear-probe", (5,), 3), (5,), ProbedClasses()),
    "lora": (adapted, (6,), CLASSES),
    "a transformer": (Encoder, (4, 6), CLASSES),
    "an amount": (lambda: built("logistic", (6,), 1), (6,), Amount(low=2.0, high=9.0)),
    "an amount's logarithm": (
        lambda: built("logistic", (6,), 1),
        (6,),
        Amount(low=2.0, high=9.0, is_log=True),
    ),
    "a count": (lambda: built("mlp", (6,), 1, 4), (6,), Count(high=30.0)),
    "a time": (lambda: built("logistic", (6,), 4), (6,), TimeToEvent(grid=(1.0, 2.0, 3.0, 4.0))),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore")  # the exporter's own
def test_the_file_scores_as_the_model_does(case: str, tmp_path: Path) -> None:
    import onnx.reference

    make, shape, target_type = CASES[case]
    draw = np.random.default_rng(0)
    found = Standardisation(
        shift=draw.normal(size=shape[-1:]).astype(np.float32),
        scale=draw.uniform(0.5, 2, size=shape[-1:]).astype(np.float32),
    )
    scorer = Scorer(make(), found if case == "logistic" else None, target_type)
    write_onnx(tmp_path / "model.onnx", scorer, shape)
    session = onnx.reference.ReferenceEvaluator(str(tmp_path / "model.onnx"))
    for count in (1, 7):  # another number of records than it was written with
        features = draw.normal(size=(count, *shape)).astype(np.float32)
        (said,) = session.run(None, {"features": features})
        expected = scores(scorer, features)
        assert said.shape == expected.shape
        np.testing.assert_allclose(said, expected, atol=2e-5)
    assert np.ptp(expected) > 1e-3  # that would not hold of any constant
