"""A kernel for sums of weighted rows: each number is read once, and no longer copy of it is made.

Triton comes with torch's builds for GPUs; TRITON_INTERPRET=1 runs its kernels on a processor.
Nothing needs this file: per_record.py adds up the same by torch's own operations.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch

triton: Any = import_module("triton")
tl: Any = import_module("triton.language")

_BLOCK = 1024


@triton.jit  # type: ignore[misc, untyped-decorator, unused-ignore]
def _added(rows, factors, total, records, columns, block: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = at < columns
    added = tl.zeros((block,), dtype=tl.float64)
    place = rows + at
    for record in range(records):
        factor = tl.load(factors + record)
        numbers = tl.load(place, mask=inside, other=0.0).to(tl.float64)
        added += tl.where(factor == 0, 0.0, numbers * factor)  # what is not finite has 0
        place += columns
    tl.store(total + at, tl.load(total + at, mask=inside) + added, mask=inside)


def add_rows_to(total: torch.Tensor, rows: torch.Tensor, factors: torch.Tensor) -> None:
    """total += factors @ rows, in float64 but for the rows (n, columns); 0 times anything is 0."""
    records, columns = rows.shape
    grid = (triton.cdiv(columns, _BLOCK),)
    with torch.cuda.device_of(total):  # Triton takes the thread's own GPU, and that one's stream
        _added[grid](rows.contiguous(), factors.contiguous(), total, records, columns, block=_BLOCK)
