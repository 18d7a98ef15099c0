"""Made-up records of a shape, the same for everybody, on which a model is tried.

One of them is the null record that stands in empty rows. What a user's model says when it raises
may quote a record, as may a name of its own: only the kind of an error is told. This file knows no
silo's records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hubbub.core.errors import HubbubError, ModelError
from hubbub.core.tabular.records import Records
from hubbub.learning.batches import Loss, Tensors
from hubbub.learning.models import outputs_of
from hubbub.learning.target_types import TargetType
from hubbub.learning.torch_settings import borrowed, device_under
from hubbub.learning.unit_model import UnitLoss, UnitModel

MADE_UP = 4  # records
_TRIED: WeakKeyDictionary[nn.Module, dict[tuple[int, ...], Trial]] = WeakKeyDictionary()

Made = TypeVar("Made")


def unquoted(work: Callable[[], Made], remedy: str = "try it where it is") -> Made:
    """What `work` gives; an error of the user's model is reported by its kind alone."""
    try:
        return work()
    except HubbubError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 (the model is the user's)
        # What the model said may quote a record, as may a name of its own.
        known = type(error).__module__ == "builtins"
        kind = type(error).__name__ if known else "an error of its own"
    raise ModelError(
        f"expected a model that takes records of the study's shape, found that it raised {kind}; "
        f"{remedy}"
    )


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Made-up records that a model takes, (4, ...), and how many outputs it gives for each."""

    inputs: torch.Tensor
    outputs: int

    @property
    def null(self) -> NDArray[np.float32]:
        """The public record that stands in empty rows."""
        return self.inputs[0].numpy()


def tried(model: nn.Module, shape: tuple[int, ...]) -> Trial:
    """The model tried on made-up records of that shape, the same for everybody.

    Raises:
        ModelError: it takes none, or gives outputs of another shape.
    """
    known = _TRIED.setdefault(model, {})
    if shape not in known:
        remedy = f"call it on made-up records of shape {(MADE_UP, *shape)} to see why"
        known[shape] = unquoted(partial(_trial, model, shape), remedy)
    return known[shape]


def tried_on(
    model: nn.Module, records: Records, target_type: TargetType
) -> tuple[Trial, Tensors, Loss]:
    """Made-up records of the same shape, a target for each of them, and the loss of both.

    For a `UnitModel` they are units, of one row, of two, and so on.

    Raises:
        ModelError, StudyError: as for `tried` and the goal's loss.
    """
    units = model if isinstance(model, UnitModel) else None
    trial = tried(units.rows if units else model, tuple(records.inputs.shape[1:]))
    shape = (len(trial.inputs), *records.targets.shape[1:])
    targets = torch.from_numpy(np.zeros(shape, dtype=records.targets.dtype))
    loss = target_type.loss(trial.outputs, targets.dtype)
    return _of_units(trial, targets, loss, units.places) if units else (trial, targets, loss)


def _of_units(
    trial: Trial, targets: torch.Tensor, loss: Loss, places: int
) -> tuple[Trial, Tensors, Loss]:
    """The same as units of so many places, which the made-up records fill in turns."""
    rows = torch.stack([trial.inputs.roll(-turn, 0) for turn in range(places)], dim=1)
    counts = 1 + torch.arange(len(rows)) % places
    weights = (torch.arange(places) < counts[:, None]) / counts[:, None]
    labels = targets[:, None].expand(-1, places, *targets.shape[1:]).contiguous()
    return replace(trial, inputs=rows), (labels, weights), UnitLoss(loss)


def made_up(generator: torch.Generator, shape: tuple[int, ...]) -> Iterator[torch.Tensor]:
    """Numbers; or, as a table of words has no row -0.3, codes that are in every table."""
    generator.manual_seed(0)
    numbers = torch.randn((MADE_UP, *shape))
    words = torch.randint(2, (MADE_UP, *shape)).float()
    yield from (numbers, words)


def _trial(model: nn.Module, shape: tuple[int, ...]) -> Trial:
    """The first of them that the model takes."""
    device = device_under(model)
    with borrowed() as generator:
        for inputs in made_up(generator, shape):
            try:
                with torch.no_grad():
                    model(inputs.to(device))
                return Trial(inputs=inputs, outputs=outputs_of(model, inputs.to(device)))
            except (IndexError, TypeError, RuntimeError):
                continue
        nothing = torch.zeros((MADE_UP, *shape))
        return Trial(inputs=nothing, outputs=outputs_of(model, nothing.to(device)))
