"""Clipped sums where much work at once is quickest, a device or a small model: all in one piece.

Theory of operation (docs/privacy.md P14). What is clipped of a record is what is *stored* of it: a
vector of float32 or bfloat16 numbers, or the outer product of two, however they came about. Its
norm is taken of the stored numbers in float64; they are multiplied by the record's factor, and
added to those of others, in float64 as well. So forward, backward and the products that make a
weight's gradient may be as short as a study lets them be: they change which function of the record
is bounded, and not the bound. The sum of n rows errs by 2^-52 n^2 C at most (P6 i).

A layer whose gradients take more memory than there is to spare beside what forward and backward
have left is made for a few records at a time, all layers of these before those of the next. How
many follows from shapes. This file draws no noise, and knows no layer.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from torch import nn

from hubbub.learning.batches import Batch, even_size, lacks_memory
from hubbub.learning.per_record import (
    Part,
    Rows,
    Source,
    Stack,
    clip_factors,
    norms_of,
    total_norms,
)
from hubbub.learning.torch_settings import modes_kept, shortened

if TYPE_CHECKING:
    from hubbub.learning.clipped_sums import Form, GradientSpace

_PIECEWISE = frozenset({"cpu"})  # where pieces of a larger model that stay in a cache are faster
_SMALL = 2**14  # parameters of a model whose pieces take less time than it takes to begin them
_FITTING: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()  # rows, where memory was short
_SPARE = 2**26  # numbers that are always to spare
_FEW = 2**22  # numbers that are joined, of a parameter of all records
_SHARE = 4  # of what forward and backward have left, one part in so many is


def takes_all_at_once(device: torch.device, parameters: int) -> bool:
    """Whether sums of a model of so many parameters there are made by this file."""
    return device.type not in _PIECEWISE or parameters <= _SMALL


def summed_at_once(
    form: Form,
    space: GradientSpace,
    batch: Batch,
    clip: float,
    model: nn.Module,
    *,
    device: torch.device,
    rows: int,
    counted: torch.Tensor,
    precision: str,
    affordable: Callable[[int, int], int] | None = None,
) -> tuple[torch.Tensor, int]:
    """The clipped sum in float64, and how many of the counted records are finite.

    `form` makes the gradients of `rows` records at once, or of fewer where memory is short; after
    the first of them of as many as are `affordable` by the numbers that these took, if it is given.
    """
    rows = min(rows, batch.size, _FITTING.get(model, rows))
    total = torch.zeros(space.size, dtype=torch.float64, device=device)
    kept = counted.to(device)
    while True:
        finite: list[torch.Tensor] = []
        start, most = 0, rows
        try:
            while start < batch.size:
                piece = batch.piece(start, start + most)
                some = kept[start : start + most]
                part, numbers = _add(total, form, space, piece, clip, some, precision)
                finite.append(part)
                start += piece.size
                if affordable is not None:
                    known = min(form.most, _FITTING.get(model, form.most))
                    most = min(affordable(numbers, piece.size), known)
            return total, int(torch.cat(finite).cpu().numpy().sum())
        except RuntimeError as error:
            if rows == 1 or not lacks_memory(error):
                raise
        rows = _FITTING[model] = -(-rows // 2)
        gc.collect()  # of what the error has left in cycles, which would be there beside the next
        total.zero_()


def _add(
    total: torch.Tensor,
    form: Form,
    space: GradientSpace,
    piece: Batch,
    clip: float,
    kept: torch.Tensor,
    precision: str,
) -> tuple[torch.Tensor, int]:
    """Add what is clipped of a piece's kept records; say which are finite, and of what numbers."""
    short = partial(shortened, precision, total.device.type)
    with modes_kept() if form.writes else nullcontext(), short():
        sources = form.parts(piece)
    if not sources:  # a loss that depends on no trainable parameter
        return kept, 0
    numbers = sum(given.floats() + _made((name, given)) * piece.size for name, given in sources)
    light, heavy = _by_weight(sources, piece.size)
    with short():
        parts = [space.shape(source) for source in light]
    parts, joined = _joined(parts)
    before = total_norms(parts) if parts else torch.zeros_like(kept, dtype=torch.float64)
    factors, finite = torch.zeros_like(before), torch.zeros_like(kept)
    for rows in _cut(heavy, sources, piece.size):
        with short():
            few = [space.shape((name, given.piece(rows))) for name, given in heavy]
        norms = norms_of(torch.stack([before[rows], *(part.norms() for _, part in few)], dim=1))
        finite[rows] = kept[rows] & norms.isfinite()
        factors[rows] = clip_factors(norms, clip, torch.float64).masked_fill(~kept[rows], 0.0)
        _add_parts(total, space, few, factors[rows], {})
        del few  # or they would be there beside the next
    _add_parts(total, space, parts, factors, joined)
    return finite, numbers


def _joined(parts: list[Part]) -> tuple[list[Part], dict[str, int]]:
    """Biases and the like side by side as one part, with no name; and how many numbers each has."""
    short = {
        name: part.gradients.reshape(len(part.gradients), -1)
        for name, part in parts
        if isinstance(part, Stack) and part.gradients.numel() <= _FEW
    }
    if len(short) < 2:
        return parts, {}
    beside = Stack(gradients=torch.cat(list(short.values()), dim=1))
    others = [(name, part) for name, part in parts if name not in short]
    return [*others, ("", beside)], {name: values.shape[1] for name, values in short.items()}


def _add_parts(
    total: torch.Tensor,
    space: GradientSpace,
    parts: Sequence[Part],
    factors: torch.Tensor,
    joined: dict[str, int],
) -> None:
    for name, part in parts:
        if name:
            part.add_to(total[space.slices[name]], factors)
            continue
        sums = total.new_zeros(sum(joined.values()))
        part.add_to(sums, factors)
        for own, added in zip(joined, sums.split(list(joined.values())), strict=True):
            total[space.slices[own]] += added


def _made(source: Source) -> int:
    """How many numbers are made of each record that are not there yet."""
    given = source[1]
    return 0 if isinstance(given, Stack | Rows) else given.numbers()


def _by_weight(sources: list[Source], records: int) -> tuple[list[Source], list[Source]]:
    """What is made of few numbers, for all records at once; and the rest, for some at a time."""
    light: list[Source] = []
    heavy: list[Source] = []
    spare = _SPARE
    for source in sorted(sources, key=_made):
        spare -= _made(source) * records
        (light if spare >= 0 else heavy).append(source)
    return light, heavy


def _cut(heavy: list[Source], sources: list[Source], records: int) -> list[slice]:
    """The records in equal pieces whose gradients fit beside what the backward has left."""
    left = sum(given.floats() for _, given in sources)
    most = max(1, max(_SPARE, left // _SHARE) // max(1, sum(map(_made, heavy))))
    size = even_size(records, most)
    return [slice(at, min(at + size, records)) for at in range(0, records, size)]
