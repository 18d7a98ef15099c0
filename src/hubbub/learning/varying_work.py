"""Whether a model does more for one record than for another of the same shape.

A model that runs as a chain or under vmap cannot: its operations are the same whatever the records
hold. One that is taken row by row can, by a loop to a record's length or a branch; how long it
takes then tells of records (docs/privacy.md P19). It is run on made-up records here, and torch's
operations are counted: a difference shows that it does, no difference shows nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from hubbub.learning.batches import Batch, Loss, Tensors, batch_of
from hubbub.learning.clipped_sums import loop_parts
from hubbub.learning.independence_check import WILD
from hubbub.learning.operation_mode import OperationMode
from hubbub.learning.parameter_vector import layout_of
from hubbub.learning.torch_settings import device_under, seeded

Change = Callable[[torch.Tensor], torch.Tensor]

_FILLS = (0.0, -1.0, 1.0, torch.nan)  # what stands behind the end of a short record
_CONSTANTS = (1.0, 2.0, 3.0, 5.0, 8.0)  # codes, or lengths


def work_varies(model: nn.Module, loss: Loss, inputs: Tensors, targets: Tensors) -> bool:
    """Whether made-up records make the model run other operations, or on other shapes.

    Args:
        model: left as it is.
        loss: one value per record.
        inputs, targets: a few records that the model takes.

    >>> class Unrolled(nn.Linear):
    ...     def forward(self, x):
    ...         for _ in range(int((x != 0).sum())):
    ...             x = super().forward(x)
    ...         return x
    >>> x, y = torch.ones(4, 3), torch.ones(4, 3)
    >>> [work_varies(one(3, 3), nn.functional.mse_loss, x, y) for one in (nn.Linear, Unrolled)]
    [False, True]
    """
    batch, layout, done = batch_of(inputs, targets), layout_of(model), set()
    row = batch.piece(0, 1)
    loss(model(*row.inputs), row.labels())  # what is made once
    rows = [batch.piece(k, k + 1) for k in range(1, batch.size)]
    for record, change in [*((one, torch.clone) for one in (row, *rows)), *_changes(row)]:
        with suppress(Exception, SystemExit), seeded(0, device_under(model) or torch.device("cpu")):
            # what raises is no record that takes part
            changed = replace(record, inputs=tuple(map(change, record.inputs)))
            with torch.enable_grad(), _Operations() as operations:
                loop_parts(model, loss, layout, changed)
            done.add(tuple(operations.seen))
    return len(done) > 1


def _changes(row: Batch) -> Iterator[tuple[Batch, Change]]:
    """How a record is made unlike itself in whatever a model may look at."""
    yield from ((row, kind) for kind in WILD)
    yield from ((row, partial(torch.full_like, fill_value=one)) for one in _CONSTANTS)
    for fill in _FILLS:
        yield from ((row, partial(_shortened, part=part, fill=fill)) for part in (2, 4))


def _shortened(values: torch.Tensor, *, part: int, fill: float) -> torch.Tensor:
    """(1, n, ...) with a fill behind that part of it."""
    short = values.clone()
    short[:, values.shape[1] // part :] = fill
    return short


class _Operations(OperationMode):
    """What torch was asked to do, and on which shapes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[object] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        shapes = tuple(tuple(arg.shape) for arg in args if isinstance(arg, torch.Tensor))
        self.seen.append((str(func), shapes))
        return func(*args, **(kwargs or {}))
