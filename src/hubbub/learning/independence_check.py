"""Whether a model's rows are independent: of the others in a batch, and of those before them.

Tried on made-up records, in float64, with all generators seeded alike, before anything is charged.
What hubbub relies on while it trains is more than this (docs/privacy.md P14, P19): rows of the
methods "vmap" and "loop" cannot reach each other, and attributes are put back after every piece.
A model is refused here so that its author learns of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from hubbub.core.errors import HubbubError, ModelError
from hubbub.learning.attributes import attributes_unchanged
from hubbub.learning.batches import Batch, Loss
from hubbub.learning.clipped_sums import clipped_sum
from hubbub.learning.inspection import is_known
from hubbub.learning.model_state import state_unchanged
from hubbub.learning.torch_settings import device_under, seeded

LedgerMechanism = Callable[[torch.Tensor], torch.Tensor]
# What other rows may hold at worst, one kind at a time: a NaN would hide all the others.
WILD: tuple[LedgerMechanism, ...] = (
    *(partial(torch.mul, other=size) for size in (0.0, 10.0, 1e3, 1e6, 1e30)),
    *(partial(torch.full_like, fill_value=value) for value in (torch.inf, torch.nan)),
)
_NO_CLIP = 1e30
_CPU = torch.device("cpu")
_MIXING = (
    "records mix; use nn.GroupNorm or nn.LayerNorm in place of batch statistics, and "
    "batch_first=True in attention"
)


def kinds_for(model: nn.Module, loss: Loss) -> tuple[LedgerMechanism, ...]:
    """Those that are tried: of layers that everybody knows, only what kernels make of the ends."""
    return (WILD[4], WILD[-1]) if is_known(model, loss) else WILD  # 1e30 and NaN


@torch.no_grad()
def refuse_mixing(model: nn.Module, batch: Batch) -> None:
    """Refuse a model whose outputs for a record depend on the other records of a batch.

    Where nothing is drawn, they have to be those of the records one by one; where something is, the
    same for the same seed whatever the others are.

    Raises:
        ModelError: they do, or they are others each time that the same is asked.
    """
    training = model.training
    with state_unchanged(model):
        for mode in {training, False}:
            model.train(mode)
            together = _outputs(model, batch)
            if not _alike(together, _outputs(model, batch)):
                raise _remembering()
            if _alike(together, _outputs(model, batch, seed=1)):
                alone = [_outputs(model, batch.piece(i, i + 1)) for i in range(batch.size)]
                for whole, *pieces in zip(together, *alone, strict=True):
                    _refuse_unequal(whole, pieces)
            else:
                _refuse_reaching(model, batch, together)
    model.train(training)


def refuse_memory(model: nn.Module, loss: Loss, batch: Batch) -> None:
    """Refuse a model that says something else of a record once it has seen others.

    The first call is left out: what it keeps follows from the shape, or is restored (P14).

    Raises:
        ModelError: it does, or a forward changes an attribute, a buffer.
    """
    if is_known(model, loss):
        return
    row, training = batch.piece(0, 1), model.training
    others = [batch.piece(i, i + 1) for i in range(1, batch.size)]
    for mode in {training, False}:
        model.train(mode)
        _said(model, loss, row)
        with attributes_unchanged(model):
            before = _said(model, loss, row)
            for other in others:
                _said(model, loss, other)
            for kind in WILD:
                _bear(model, loss, row, kind)
        if not _alike(before, _said(model, loss, row)):
            raise _remembering()
    model.train(training)


def _bear(model: nn.Module, loss: Loss, row: Batch, kind: LedgerMechanism) -> None:
    """Show the model a wild row, which it need not take."""
    try:
        _said(model, loss, replace(row, inputs=tuple(map(kind, row.inputs))))
    except HubbubError:
        raise
    except (Exception, SystemExit):  # noqa: BLE001, S110 (the model is the user's)
        pass


def _said(model: nn.Module, loss: Loss, row: Batch) -> list[torch.Tensor]:
    """Outputs and gradient of a record, for one seed."""
    with torch.no_grad():
        outputs = _outputs(model, row)
    with seeded(0, device_under(model) or _CPU):
        parts = clipped_sum(model, loss, row.inputs, row.labels(), _NO_CLIP, method="loop")
    return [*outputs, parts.vector]


def _outputs(model: nn.Module, batch: Batch, seed: int = 0) -> list[torch.Tensor]:
    """The tensors among the outputs for a batch."""
    with seeded(seed, device_under(model) or _CPU):
        return [x for x in tree_leaves(model(*batch.inputs)) if isinstance(x, torch.Tensor)]


def _alike(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    """Whether the same work gave the same numbers, but for the last bits."""
    pairs = list(zip(some, others, strict=False))
    same = partial(torch.allclose, rtol=1e-9, atol=1e-12, equal_nan=True)
    return len(some) == len(others) and all(x.shape == y.shape and same(x, y) for x, y in pairs)


def _refuse_unequal(whole: torch.Tensor, pieces: list[torch.Tensor]) -> None:
    """Refuse outputs that do not stack up."""
    stacks = all(p.dim() == whole.dim() > 0 for p in pieces) and len(whole) == len(pieces)
    if stacks and torch.allclose(whole, torch.cat(pieces), rtol=1e-6, atol=1e-9, equal_nan=True):
        return
    raise ModelError(
        "expected outputs for a batch that are those of its records one by one, found others: "
        + _MIXING
    )


def _refuse_reaching(model: nn.Module, batch: Batch, together: list[torch.Tensor]) -> None:
    """Refuse outputs for a record that are others beside other records, at the same seed."""
    for place in range(batch.size):
        rows = (torch.arange(batch.size, device=batch.inputs[0].device) + 1) % batch.size
        rows[place] = place
        outputs = _outputs(model, batch.each(partial(torch.index_select, dim=0, index=rows)))
        stacks = all(x.dim() and len(x) == batch.size for x in (*together, *outputs))
        if not stacks or not _alike([x[place] for x in together], [x[place] for x in outputs]):
            raise ModelError(
                "expected outputs for a record that are the same beside any other records at the "
                "same seed, found others: " + _MIXING + "; draw as much for any record"
            )


def _remembering() -> ModelError:
    return ModelError(
        "expected the same outputs and gradient for the same record and seed, found others: the "
        "model remembers, or draws from a generator of its own; keep nothing of a record, and draw "
        "from torch's generator, which is seeded for every row"
    )
