"""Operations of torch that raise at some values and not at others, looked for in a model.

Where one of them is given several rows at once, whether it raises may be decided by a row's place,
as a last bit is, or by the random numbers of its row: the null record might then raise in one empty
row and not in another (docs/privacy.md A2). A model with such an operation is given one row at a
time. A table in which something is looked up is not among them: that is the everyday way of words,
and a word that a record holds is the same in every row. This file knows no model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils._pytree import tree_leaves

from hubbub.learning.batches import Tensors
from hubbub.learning.operation_mode import OperationMode

# The first line tells Python a value, so that the model itself may raise by it.
_RAISING = re.compile(
    r"aten\.(_local_scalar_dense|is_nonzero|equal|nonzero\w*|masked_select|_?unique\w*|_assert\w+"
    r"|_linalg_(check_errors|eigh|svd)|linalg_(eig|eigvals|lstsq|pinv)"
    r"|multinomial|poisson|binomial|_standard_gamma|_sample_dirichlet)\..*"
    r"|aten\.(normal\..*Tensor.*|bernoulli\.(default|out)|bernoulli_?\.Tensor)"
)


class RaisingOperations(OperationMode):
    """Their names, where what they are given follows from records."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()
        self._followed: set[int] = set()  # addresses of numbers that follow from records

    def seen_in(
        self, work: Callable[[torch.Tensor, Tensors, torch.Tensor], NDArray[np.float64]]
    ) -> Callable[[torch.Tensor, Tensors, torch.Tensor], NDArray[np.float64]]:
        """The work on a piece, watched."""

        def watched(
            inputs: torch.Tensor, targets: Tensors, kept: torch.Tensor
        ) -> NDArray[np.float64]:
            self._followed = set(_addresses((inputs, targets)))
            with self:
                return work(inputs, targets, kept)

        return watched

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        follows = not self._followed.isdisjoint(_addresses((args, kwargs)))
        if follows and _RAISING.fullmatch(str(func)):
            self.names.add(str(func))
        given = func(*args, **(kwargs or {}))
        (self._followed.update if follows else self._followed.difference_update)(_addresses(given))
        return given


def _addresses(values: Any) -> Iterable[int]:
    """Of the tensors among them; a view has that of its base."""
    leaves = (tree_leaf for tree_leaf in tree_leaves(values) if isinstance(tree_leaf, torch.Tensor))
    return [leaf.untyped_storage().data_ptr() for leaf in leaves if leaf.numel()]
