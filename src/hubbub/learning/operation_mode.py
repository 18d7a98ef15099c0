"""What sees each of torch's operations, without loading torch's compiler for it.

Torch keeps its compiler away from a mode's own code, and loads it to do so: 800 modules and 85 MiB
of memory in each silo. Here that is done only where somebody has loaded it.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class OperationMode(TorchDispatchMode):
    """A mode whose `__torch_dispatch__` is no part of what torch compiles."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)  # type: ignore[no-untyped-call]
        cls.__torch_dispatch__ = _not_compiled(cls.__torch_dispatch__)  # type: ignore[method-assign]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether torch, from 2.9 on, keeps its compiler away itself."""
        return False


def _not_compiled(seen: Any) -> Any:
    kept_away = torch._disable_dynamo(seen)  # noqa: SLF001 (torch's own way)

    @functools.wraps(seen)
    def called(*args: Any, **kwargs: Any) -> Any:
        return (kept_away if "torch._dynamo" in sys.modules else seen)(*args, **kwargs)

    return called
