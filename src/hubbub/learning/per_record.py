"""Per-record gradients of one parameter in the shapes in which they come cheaply.

    Outer      a layer that meets each record once: gradient_i = backprop_i (x) activation_i
    Products   a large layer that meets each record a few times: the sum of such products
    Stack      anything else: one stored gradient per record
    Rows       an embedding: the few rows of the table that a record has touched
    Positions  backprops and activations before anything is made of them

All but the last can say their norms, in float64, and add the weighted sum of their records to a
flat view, or put it in place of what is there (`kept` is 0), where the weight of a record whose
norm is not finite is 0; `formed` turns the last into one of them. What is
done, and on how many numbers, follows from shapes alone (docs/privacy.md P19). This file knows no
model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

_STRIPE = 2**18  # numbers whose copies stay in the cache
_MOST = 64  # products of one record that are not made into its gradient


def norms_of(values: torch.Tensor) -> torch.Tensor:
    """L2 norm of each record, (n, ...) to (n,), accumulated in float64.

    In stripes, because torch makes a float64 copy of all that it is given at once. Squares of
    float32 numbers neither overflow nor vanish in float64; float64 numbers are scaled first.
    """
    rows = values.reshape(values.shape[0], -1)
    if rows.dtype == torch.float64 and rows.shape[1]:
        largest = torch.linalg.vector_norm(rows, ord=torch.inf, dim=1)
        scale = torch.where(largest > 0, largest, torch.ones_like(largest))
        return _norms(rows, lambda stripe: stripe / scale[:, None]) * scale
    return _norms(rows, lambda stripe: stripe)


def _norms(rows: torch.Tensor, scaled: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Norms of rows, each stripe of which is scaled first."""

    def norm(stripe: torch.Tensor) -> torch.Tensor:
        length: torch.Tensor = torch.linalg.vector_norm(scaled(stripe), dim=1, dtype=torch.float64)
        return length

    columns = max(1, _STRIPE // max(1, len(rows)))
    if columns >= rows.shape[1]:
        return norm(rows)
    squares = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
    for stripe in rows.split(columns, dim=1):
        squares += norm(stripe).square()
    return squares.sqrt()


def _finite(values: torch.Tensor) -> torch.Tensor:
    """`values` with zeros for what is not finite, as 0 times NaN would be NaN.

    Only a record whose norm is not finite has any, and its factor is 0. Several times as fast as
    to blank whole records, and the same for all of them.
    """
    return values.nan_to_num(0.0, 0.0, 0.0)


@dataclass(frozen=True, kw_only=True)
class Outer:
    """gradient_i = left_i (x) right_i, with left (n, rows) and right (n, columns)."""

    left: torch.Tensor
    right: torch.Tensor

    def norms(self) -> torch.Tensor:
        """|left_i| |right_i|: the norm of an outer product, with no cancellation."""
        return norms_of(self.left) * norms_of(self.right)

    def floats(self) -> int:
        """How many numbers this holds."""
        return self.left.numel() + self.right.numel()

    def add_to(self, view: torch.Tensor, factors: torch.Tensor, kept: int = 1) -> None:
        """view = kept view + sum_i factors_i gradient_i, as one matrix product.

        A factor times `left` that is no normal number was not rounded to nearest, and `right` may
        be large enough to bring the difference back: it counts as zero (docs/privacy.md P14).
        """
        scaled = (self.left * factors[:, None]).nan_to_num_(0.0, 0.0, 0.0)
        left = functional.hardshrink(scaled, torch.finfo(scaled.dtype).tiny)
        matrix = view.view(left.shape[1], self.right.shape[1])
        matrix.addmm_(left.t(), _finite(self.right), beta=kept)


@dataclass(frozen=True, kw_only=True)
class Products:
    """gradient_i = sum_t left_it (x) right_it, never made, of products that do not cancel.

    Given products may: then a float32 Gram matrix would say a norm that is too small, and a float32
    sum would round by what has cancelled. So they are exchanged in float64 for others of the same
    sum, in which the right sides are short and all but orthogonal: the left sides' lengths then
    make the gradient's, and float32 can add them up (docs/privacy.md P21). A gradient that is tiny
    beside the given products is clipped by what these round.
    """

    left: torch.Tensor  # (n, t, rows) in float64
    right: torch.Tensor  # (n, t, columns)
    lengths: torch.Tensor  # (n,) in float64: never below that of the gradient

    @classmethod
    def of(cls, left: torch.Tensor, right: torch.Tensor) -> Products:
        """From numbers of either type: L' R = (S' D L)' Q, with D as the lengths of R's rows.

        S is the Cholesky factor of their cosines and a little of the identity; S Q = R / D.
        """
        kind, scale = right.dtype, left.new_ones(1, 1).double()
        if kind == torch.float64:  # whose products may overflow or vanish
            left, right, scale = _scaled(left, right)
        left, right = left.double(), right.double()
        positions, rows, columns = left.shape[1], left.shape[2], right.shape[2]
        lefts, rights = torch.bmm(left, left.mT), torch.bmm(right, right.mT)
        sizes = rights.diagonal(dim1=1, dim2=2).sqrt()
        inverse = torch.where(sizes > 0, 1 / sizes, sizes)
        cosines = rights * inverse[:, :, None] * inverse[:, None]
        lefts = lefts * sizes[:, :, None] * sizes[:, None]
        little = positions * (rows + columns + 2 * positions**2 + 16) * 2.0**-52
        squares = (cosines * lefts).sum((1, 2)).clamp(min=0)
        squares += 1.5 * little * lefts.diagonal(dim1=1, dim2=2).sum(1)
        cosines.diagonal(dim1=1, dim2=2).add_(little)
        factor = torch.linalg.cholesky_ex(cosines).L
        return cls(
            left=torch.bmm(factor.mT * (sizes * scale)[:, None], left),
            right=_substituted(factor, inverse, right).to(kind),
            lengths=squares.sqrt() * scale[..., 0],
        )

    def norms(self) -> torch.Tensor:
        """The lengths, which are not below the gradients' for any rounding."""
        return self.lengths

    def floats(self) -> int:
        """How many numbers this holds, in those of float32."""
        return 2 * self.left.numel() + self.right.numel()

    def add_to(self, view: torch.Tensor, factors: torch.Tensor, kept: int = 1) -> None:
        """view = kept view + sum_i factors_i gradient_i, as one matrix product."""
        rows, columns = self.left.shape[2], self.right.shape[2]
        left = _finite(self.left.mul_(factors.double()[:, None, None])).to(view.dtype)
        right = _finite(self.right).view(-1, columns)
        view.view(rows, columns).addmm_(left.view(-1, rows).t(), right, beta=kept)


def _substituted(factor: torch.Tensor, scales: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Q with factor Q = scales values, from the first row to the last."""
    diagonal = factor.diagonal(dim1=1, dim2=2)
    solution = values * (scales / diagonal)[:, :, None]
    factor = factor / diagonal[:, :, None]
    for row in range(1, solution.shape[1]):
        one = slice(row, row + 1)
        solution[:, one].baddbmm_(factor[:, one, :row], solution[:, :row], alpha=-1)
    return solution


def _scaled(
    left: torch.Tensor, right: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Both sides without their lengths, but for those of products among their longest; and that.

    The last of shape (n, 1).
    """
    (lefts, one), (rights, other) = _directions(left), _directions(right)
    longest = (one * other).amax(1, keepdim=True)
    weights = torch.where(longest > 0, one * other / longest, one * other)
    return lefts * weights, rights, longest[:, :, 0]


def _directions(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(n, t, m) as vectors of length 1 (or 0), and their lengths (n, t, 1)."""
    largest = values.abs().amax(2, keepdim=True)
    scaled = torch.where(largest > 0, values / largest, values)
    lengths = torch.linalg.vector_norm(scaled, dim=2, keepdim=True)
    return torch.where(largest > 0, scaled / lengths, scaled), lengths * largest


@dataclass(frozen=True, kw_only=True)
class Stack:
    """One stored gradient per record, (n, ...)."""

    gradients: torch.Tensor
    scratch: int = 0  # numbers held while it was made

    def norms(self) -> torch.Tensor:
        """Of each record's stored gradient."""
        return norms_of(self.gradients)

    def floats(self) -> int:
        """How many numbers this holds."""
        return self.gradients.numel() + self.scratch

    def add_to(self, view: torch.Tensor, factors: torch.Tensor, kept: int = 1) -> None:
        """view = kept view + sum_i factors_i gradient_i, in stripes as their norms are made."""
        rows = self.gradients.reshape(len(factors), -1)
        columns = max(1, _STRIPE // len(factors))
        for part, stripe in zip(view.split(columns), rows.split(columns, dim=1), strict=True):
            part.addmv_(_finite(stripe).t(), factors, beta=kept)


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows of a table: record i has gradient `values[i, t]` in row `index[i, t]`.

    No row occurs twice in a record with a value other than zero; index is (n, t), values are
    (n, t, columns), as many as a record has positions (docs/privacy.md P19).
    """

    index: torch.Tensor
    values: torch.Tensor

    def norms(self) -> torch.Tensor:
        """Rows of one record are distinct, so the values' norm is the gradient's."""
        return norms_of(self.values)

    def floats(self) -> int:
        """How many numbers this holds."""
        return self.values.numel()

    def add_to(self, view: torch.Tensor, factors: torch.Tensor, kept: int = 1) -> None:
        """view = kept view + sum_i factors_i gradient_i, on the rows that occur."""
        if not kept:
            view.zero_()
        records, _, columns = self.values.shape
        values = _finite(self.values.view(records, -1) * factors[:, None])
        view.view(-1, columns).index_add_(0, self.index.reshape(-1), values.view(-1, columns))


@dataclass(frozen=True, kw_only=True)
class Positions:
    """gradient_i = sum_t left_it (x) right_it, with left (n, t, rows) and right (n, t, columns)."""

    left: torch.Tensor
    right: torch.Tensor


PerRecord = Outer | Products | Stack | Rows
Part = tuple[str, PerRecord]  # the parameter's name and its per-record gradients
Source = tuple[str, PerRecord | Positions]  # the same as a method hands it over


def formed(source: PerRecord | Positions) -> PerRecord:
    """The per-record gradients of what may still be backprops and activations."""
    if isinstance(source, Positions):
        return from_positions(source.left, source.right)
    return source


def from_positions(left: torch.Tensor, right: torch.Tensor) -> Outer | Products | Stack:
    """gradient_i = sum_t left_it (x) right_it, from (n, t, rows) and (n, t, columns)."""
    positions, rows, columns = left.shape[1], left.shape[2], right.shape[2]
    if positions == 1:
        return Outer(left=left[:, 0], right=right[:, 0])
    if positions <= _MOST and positions**2 * (rows + columns) < rows * columns:
        return Products.of(left, right)
    gradients = torch.bmm(left.transpose(1, 2), right)
    return Stack(gradients=gradients, scratch=left.numel() + right.numel())


def from_lookups(ids: torch.Tensor, backprop: torch.Tensor, padding: int | None) -> Rows:
    """The gradients of a table from ids (n, t) and backprop (n * t, columns).

    What a record adds to one row at several positions is added up at the first of them.
    """
    records, positions = ids.shape
    values = backprop.reshape(records * positions, -1)
    if padding is not None:
        values = values.masked_fill(ids.reshape(-1, 1) == padding, 0)
    ordered, order = ids.sort(dim=1, stable=True)
    changes = torch.zeros_like(ids)
    changes[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    numbers = changes.cumsum(1) + positions * torch.arange(records, device=ids.device)[:, None]
    origin = order + positions * torch.arange(records, device=ids.device)[:, None]
    summed = torch.zeros_like(values).index_add_(0, numbers.view(-1), values[origin.view(-1)])
    index = torch.zeros_like(ids).view(-1).index_copy_(0, numbers.view(-1), ordered.view(-1))
    return Rows(index=index.view_as(ids), values=summed.view(records, positions, -1))


def total_norms(parts: Sequence[Part]) -> torch.Tensor:
    """Norm of each record over all parameters, float64, (n,)."""
    return norms_of(torch.stack([part.norms() for _, part in parts], dim=1))
