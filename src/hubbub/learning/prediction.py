"""From features to predictions: what is done with a trained model. This file trains nothing."""

from __future__ import annotations

import copy
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hubbub.core.disk import write_bytes
from hubbub.core.errors import UserError
from hubbub.core.tabular.standardisation import Standardisation
from hubbub.learning.linear_probe import LinearProbe
from hubbub.learning.target_types import CLASSES, TargetType
from hubbub.learning.torch_settings import plain_attention

_CHUNK = 1024  # records at once


class Scorer(nn.Module):
    """A trained model with all that stands around it: features in, predictions out.

    Args:
        model: gives outputs (n,) or (n, outputs).
        standardisation: what was done to features before the model saw them; None if nothing.
        target_type: what the model was trained for; that of a classifier if it is left out.
    """

    shift: torch.Tensor
    scale: torch.Tensor

    def __init__(
        self,
        model: nn.Module,
        standardisation: Standardisation | None = None,
        target_type: TargetType = CLASSES,
    ) -> None:
        super().__init__()
        self._target_type = target_type
        self.model = model
        scaling = standardisation
        self.register_buffer("shift", torch.zeros(1) if scaling is None else _tensor(scaling.shift))
        self.register_buffer("scale", torch.ones(1) if scaling is None else _tensor(scaling.scale))
        self.eval()

    def around(self, model: nn.Module) -> Scorer:
        """The same around another model."""
        scorer = Scorer(model, None, self._target_type)
        scorer.shift, scorer.scale = self.shift, self.scale
        return scorer.eval()

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """What the goal predicts: for classes the probability of the second, or of every one."""
        return self._target_type.predicted(self.model((features - self.shift) / self.scale))


def _tensor(array: NDArray[np.float32]) -> torch.Tensor:
    return torch.from_numpy(np.array(array))


@torch.no_grad()
def scores(scorer: Scorer, features: NDArray[np.float32]) -> NDArray[np.float32]:
    """Predictions for records (n, ...), not yet standardised, a piece at a time; n may be 0.

    Returns:
        (n,) or (n, ...), as the scorer gives them.
    """
    device = scorer.shift.device
    pieces = np.split(features, range(_CHUNK, len(features), _CHUNK))
    with plain_attention():
        scored = [scorer(torch.from_numpy(piece).to(device)).cpu().numpy() for piece in pieces]
    return np.concatenate(scored)


def write_onnx(path: Path, scorer: Scorer, shape: tuple[int, ...]) -> None:
    """Write a scorer as an ONNX file with the input "features" of a shape and the output "scores".

    Raises:
        UserError: the packages `onnx` and `onnxscript` are not there, or cannot say such a model.
        OSError: the file cannot be written.
    """
    for package in ("onnx", "onnxscript"):
        if find_spec(package) is None:
            raise UserError(
                f"expected the package {package} to write ONNX, found it missing; pip install onnx "
                "onnxscript"
            )
    write_bytes(path, _onnx_bytes(scorer, torch.zeros(2, *shape)))


def _settled(model: nn.Module) -> nn.Module:
    """A model of the same outputs, in which nothing is left to be solved."""
    if isinstance(model, LinearProbe):
        return model.settled()
    settled = copy.deepcopy(model)
    for name, part in list(settled.named_modules()):
        if isinstance(part, LinearProbe):
            settled.set_submodule(name, part.settled())
    return settled


def _onnx_bytes(scorer: Scorer, example: torch.Tensor) -> bytes:
    """The file's content; whatever the exporter raises, it is about the model."""
    names: dict[str, Any] = {"input_names": ["features"], "output_names": ["scores"]}
    try:
        program = torch.onnx.export(
            scorer.around(_settled(scorer.model)),
            (example,),
            dynamo=True,
            dynamic_shapes=({0: torch.export.Dim("records")},),
            verbose=False,
            **names,
        )
        assert program is not None  # noqa: S101  # dynamo=True gives a program
        content: bytes = program.model_proto.SerializeToString()
    except Exception as error:
        kind = type(error).__name__
        raise UserError(
            f"expected a model that torch can write as ONNX, it raised {kind}; use hubbub.load "
            "and torch instead"
        ) from error
    return content
