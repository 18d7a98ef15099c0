"""The kinds of models that hubbub makes: which keys of `[model]` each takes, and how large it is.

Who adds a kind adds it here, and its module in `learning/models.py`. A plan counts parameters
before any model is built, and without torch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

LINEAR_PROBE, LORA = "linear-probe", "lora"


class Sizes(Protocol):
    """What of `[model]` says how large it is."""

    @property
    def kind(self) -> str:
        """Its name."""

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of hidden layers."""

    @property
    def outputs(self) -> int:
        """Logits."""

    @property
    def bias(self) -> bool:
        """Whether fully connected layers have biases."""


@dataclass(frozen=True, kw_only=True)
class ModelKind:
    """One kind.

    Args:
        keys: of the table, beside `kind`, `inputs` and `outputs`; any other is refused.
        parameters: how many are trained, of a model on so many features and for so many intervals
            of a time to an event (0: none); None where they do not follow from these.
    """

    keys: Collection[str]
    parameters: Callable[[Sizes, int, int], int] | None = None


def _connected(model: Sizes, features: int, intervals: int) -> int:
    """Of fully connected layers, and of the intercepts of proportional odds."""
    widths = (features, *model.hidden, model.outputs)
    layers = sum(low * high + (high if model.bias else 0) for low, high in pairwise(widths))
    return layers + (intervals if model.outputs == 1 else 0)


def _probe(model: Sizes, features: int, intervals: int) -> int:  # noqa: ARG001 (it takes no times)
    """Of the sums of a linear probe."""
    return (features + 1) * (features + 1 + model.outputs)


MODEL_KINDS = {
    "logistic": ModelKind(keys=("bias", "intercept", "loss", "frozen"), parameters=_connected),
    "mlp": ModelKind(keys=("hidden", "bias", "loss", "frozen"), parameters=_connected),
    "cnn": ModelKind(keys=("hidden", "bias", "loss")),
    LINEAR_PROBE: ModelKind(keys=("frozen",), parameters=_probe),
    LORA: ModelKind(keys=("rank", "target_modules", "loss", "frozen")),
}
_OWN = ModelKind(keys=("loss", "frozen"))  # a model that a study brings


def model_kind_of(kind: str) -> ModelKind:
    """What there is to say of the word `model.kind`."""
    return MODEL_KINDS.get(kind, _OWN)


def features_of(model: Sizes, parameters: int, intervals: int) -> int | None:
    """On how many features a model has so many parameters; None if on none."""
    count = model_kind_of(model.kind).parameters
    assert count is not None, "of a kind that is counted"  # noqa: S101
    low, high = 1, parameters  # every feature adds at least one
    while low < high:
        middle = (low + high) // 2
        if count(model, middle, intervals) < parameters:
            low = middle + 1
        else:
            high = middle
    return low if count(model, low, intervals) == parameters else None
