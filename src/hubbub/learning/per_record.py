"""Per-record gradients of one parameter in the shapes in which they come cheaply.

    Outer      a layer that meets each record once: gradient_i = backprop_i (x) activation_i
    Stack      anything else: one stored gradient per record
    Rows       an embedding: the few rows of the table that a record has touched
    Positions  backprops and activations before anything is made of them

The first three can say their squared norms, in float64, and add the weighted sum of their records
to a flat view, leaving out those that are not finite; `formed` turns the last into one of them.
There is no Gram matrix of activations here: in float32 it underestimates norms by cancellation,
and an underestimated norm is a record that is clipped too little. This file knows no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

_STRIPE = 2**18  # numbers whose copies stay in the cache

Gone = torch.Tensor | None  # which records, (n,), are left out; None where all are in


def square_norms(values: torch.Tensor) -> torch.Tensor:
    """Squared L2 norm of each record, (n, ...) to (n,), accumulated in float64.

    In stripes, because torch makes a float64 copy of all that it is given at once.
    """
    rows = values.reshape(values.shape[0], -1)
    stripes = rows.split(max(1, _STRIPE // max(1, len(rows))), dim=1)
    norms: torch.Tensor = torch.linalg.vector_norm(stripes[0], dim=1, dtype=torch.float64).square()
    for stripe in stripes[1:]:
        norms += torch.linalg.vector_norm(stripe, dim=1, dtype=torch.float64).square()
    return norms


def _blanked(values: torch.Tensor, gone: torch.Tensor | None) -> torch.Tensor:
    """`values`, (n, m), with the records that are gone set to zero: 0 times NaN would be NaN."""
    return values if gone is None else values.masked_fill(gone[:, None], 0)


@dataclass(frozen=True, kw_only=True)
class Outer:
    """gradient_i = left_i (x) right_i, with left (n, rows) and right (n, columns)."""

    left: torch.Tensor
    right: torch.Tensor

    def square_norms(self) -> torch.Tensor:
        """|left_i|^2 |right_i|^2: the norm of an outer product, with no cancellation."""
        return square_norms(self.left) * square_norms(self.right)

    def floats(self) -> int:
        """How many numbers this holds."""
        return self.left.numel() + self.right.numel()

    def add_to(self, view: torch.Tensor, factors: torch.Tensor, gone: Gone) -> None:
        """view += sum_i factors_i gradient_i, as one matrix product."""
        left, right = _blanked(self.left, gone), _blanked(self.right, gone)
        matrix = view.view(left.shape[1], right.shape[1])
        matrix.addmm_((left * factors[:, None]).t(), right)


@dataclass(frozen=True, kw_only=True)
class Stack:
    """One stored gradient per record, (n, ...)."""

    gradients: torch.Tensor
    scratch: int = 0  # numbers held while it was made

    def square_norms(self) -> torch.Tensor:
        """Of each record's stored gradient."""
        return square_norms(self.gradients)

    def floats(self) -> int:
        """How many numbers this holds."""
        return self.gradients.numel() + self.scratch

    def add_to(self, view: torch.Tensor, factors: torch.Tensor, gone: Gone) -> None:
        """view += sum_i factors_i gradient_i."""
        rows = _blanked(self.gradients.reshape(len(factors), -1), gone)
        view.addmv_(rows.t(), factors)


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows of a table: record `owner[u]` has gradient `values[u]` in row `index[u]`, once each.

    `room` is how many numbers there would be if no row occurred twice: it follows from the shape of
    the records, where how many rows occur is what they say (A2).
    """

    owner: torch.Tensor
    index: torch.Tensor
    values: torch.Tensor
    records: int
    room: int

    def square_norms(self) -> torch.Tensor:
        """Rows of one record are distinct, so their squared norms add up."""
        total = torch.zeros(self.records, dtype=torch.float64, device=self.values.device)
        return total.index_add_(0, self.owner, square_norms(self.values))

    def floats(self) -> int:
        """The most numbers that this may hold."""
        return self.room

    def add_to(self, view: torch.Tensor, factors: torch.Tensor, gone: Gone) -> None:
        """view += sum_i factors_i gradient_i, touching only the rows that occur."""
        lost = None if gone is None else gone[self.owner]
        values = _blanked(self.values, lost) * factors[self.owner][:, None]
        view.view(-1, values.shape[1]).index_add_(0, self.index, values)


@dataclass(frozen=True, kw_only=True)
class Positions:
    """gradient_i = sum_t left_it (x) right_it, with left (n, t, rows) and right (n, t, columns)."""

    left: torch.Tensor
    right: torch.Tensor


PerRecord = Outer | Stack | Rows
Part = tuple[str, PerRecord]  # the parameter's name and its per-record gradients
Source = tuple[str, PerRecord | Positions]  # the same as a method hands it over


def formed(source: PerRecord | Positions) -> PerRecord:
    """The per-record gradients of what may still be backprops and activations."""
    if isinstance(source, Positions):
        return from_positions(source.left, source.right)
    return source


def from_positions(left: torch.Tensor, right: torch.Tensor) -> Outer | Stack:
    """gradient_i = sum_t left_it (x) right_it, from (n, t, rows) and (n, t, columns)."""
    if left.shape[1] == 1:
        return Outer(left=left[:, 0], right=right[:, 0])
    gradients = torch.bmm(left.transpose(1, 2), right)
    return Stack(gradients=gradients, scratch=left.numel() + right.numel())


def from_lookups(ids: torch.Tensor, backprop: torch.Tensor, rows: int, padding: int | None) -> Rows:
    """The gradients of a table of `rows` rows from ids (n, t) and backprop (n, t, columns)."""
    records, positions = ids.shape
    keys = ids + rows * torch.arange(records, device=ids.device)[:, None]
    keys, values = keys.reshape(-1), backprop.reshape(records * positions, -1)
    if padding is not None:
        used = ids.reshape(-1) != padding
        keys, values = keys[used], values[used]
    distinct, place = torch.unique(keys, return_inverse=True)
    summed = values.new_zeros(len(distinct), values.shape[1]).index_add_(0, place, values)
    return Rows(
        owner=distinct // rows,
        index=distinct % rows,
        values=summed,
        records=records,
        room=backprop.numel(),
    )


def total_square_norms(parts: Sequence[Part]) -> torch.Tensor:
    """Squared norm of each record over all parameters, float64, (n,)."""
    return torch.stack([part.square_norms() for _, part in parts]).sum(0)
