"""Low-rank adapters over a frozen module: `kind = "lora"` (LoRA, Hu et al. 2021).

The frozen module's weights W are public and stay as they are. A target, a Linear layer of it, gives
W x + B A x with an A of `rank` rows and a B of `rank` columns; a head turns the module's features
into logits. A, B and the head are all that is trained, clipped, noised and sent. B and the head are
zero at first, so that the model begins with the frozen module's features.

A and B are Linear layers of their own, called where the target is called: each is a site of its own
(layer_sites.py), and no gradient of the size of W is made. This file knows no training.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

import torch
from torch import nn

from hubbub.core.errors import ModelError
from hubbub.learning.frozen_features import frozen_layers
from hubbub.learning.models import seeded_by
from hubbub.learning.study.model import Model


def low_rank_model(asked: Model, *, seed: bytes) -> LowRank:
    """The model of a study of kind "lora"; the first A of each target follows from public bytes.

    Raises:
        IntegrityError: the file of the weights is missing or another one.
        ModelError: the weights do not fit the module, or the adapters its layers.
        StudyError: the module cannot be made.
    """
    assert asked.frozen is not None, "a study of this kind has it"  # noqa: S101
    base = frozen_layers(asked.frozen, Path())
    with seeded_by(seed):
        for layer in _targets(base, asked.target_modules):
            _adapt(layer, asked.rank)
    return LowRank(base, asked.frozen.features, asked.outputs)


class LowRank(nn.Module):
    """A frozen module with adapters in it, and a head on what it gives for each record.

    Args:
        base: gives (n, features); stays in evaluation mode.
        features: how many they are.
        outputs: number of logits; 1 gives outputs of shape (n,).
    """

    def __init__(self, base: nn.Module, features: int, outputs: int) -> None:
        super().__init__()
        self.base, self.head = base.eval(), nn.Linear(features, outputs)
        for parameter in self.head.parameters():
            nn.init.zeros_(parameter)

    def train(self, mode: bool = True) -> Self:
        """As of any module, but that what is frozen is in evaluation mode always."""
        super().train(mode)
        self.base.eval()
        return self

    def forward(self, records: torch.Tensor) -> torch.Tensor:
        """Logits of (n, ...) records."""
        outputs = self.base(records)
        if outputs.dim() != 2 or outputs.shape[1] != self.head.in_features:
            raise ModelError(
                f"expected a frozen module that gives ({self.head.in_features},) features for each "
                f"record, as model.frozen.features says, found {tuple(outputs.shape[1:])}; fix one"
            )
        logits: torch.Tensor = self.head(outputs)
        return logits.squeeze(-1) if self.head.out_features == 1 else logits


class Adapter(nn.Module):
    """What is added to the output of a frozen layer: B A x."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(
        self, _: nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor
    ) -> torch.Tensor:
        """As a forward hook of the layer."""
        raised: torch.Tensor = output + self.up(self.down(inputs[0]))
        return raised


def _targets(base: nn.Module, names: tuple[str, ...]) -> list[nn.Linear]:
    """The layers whose names are, or end with, one of those asked for."""
    modules = dict(base.named_modules())
    targets: list[nn.Linear] = []
    for name in names:
        mine = [one for key, one in modules.items() if f".{key}".endswith(f".{name}")]
        # A layer of another type may have its weights used without being called itself.
        linear = [one for one in mine if type(one) is nn.Linear]
        if not linear or len(linear) < len(mine):
            some = [key for key, one in modules.items() if type(one) is nn.Linear][:8]
            kinds = sorted({type(one).__name__ for one in mine}) or "no layer"
            raise ModelError(
                "expected model.target_modules to name Linear layers of the frozen module, "
                f'"{name}" names {kinds}; choose some like {some}'
            )
        targets += linear
    return list(dict.fromkeys(targets))


def _adapt(layer: nn.Linear, rank: int) -> None:
    """Put an adapter on a layer."""
    most = min(layer.in_features, layer.out_features)
    if rank > most:
        raise ModelError(
            f"expected model.rank <= {most}, the smaller side of a target of shape "
            f"{tuple(layer.weight.shape)}, found {rank}; lower it"
        )
    adapter = Adapter(layer, rank)
    layer.add_module("adapter", adapter)
    layer.register_forward_hook(adapter)
