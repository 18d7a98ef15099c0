"""Per-record gradients in the shapes in which they come cheaply, their norms, factors and sums.

Which layers they come from, and how, is in sites.py. This file knows no model and no record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Self

import torch
from torch.nn import functional

# Of one parameter:
#
#     Outer      a layer that meets each record once: gradient_i = backprop_i (x) activation_i
#     Products   a large layer that meets each record a few times: the sum of such products
#     Stack      anything else: one stored gradient per record
#     Rows       an embedding: the few rows of the table that a record has touched
#     Positions  backprops and activations before anything is made of them
#     Windows    the same of a convolution, before its windows are written out
#     Repeated   a parameter that a record meets at several sites
#
# All but the last three can say their norms, in float64, and add the weighted sum of their records
# to a flat view, or put it in place of what is there (`kept` is 0), where the weight of a record
# whose norm is not finite is 0; `formed` turns the others into one of them. What is done, and on
# how many numbers, follows from shapes alone (docs/privacy.md P19). Where the view is of float64
# and the numbers are shorter, as on a device, factors and products are not rounded to shorter ones.

_STRIPE = 2**16  # numbers whose copies stay in the cache
_WIDE_STRIPE = 2**25  # the same on a device: as many as fill it
Adding = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]
_LONG = 2**16  # numbers of a row that are worth an entry in a list
_MOST = 64  # products of one record that are not made into its gradient


def norms_of(values: torch.Tensor) -> torch.Tensor:
    """L2 norm of each record, (n, ...) to (n,), accumulated in float64.

    In stripes of whole rows, or of parts of long ones, because torch makes a float64 copy of all
    that it is given at once; on a device many rows in a kernel, which makes none. Squares of
    float32 numbers neither overflow nor vanish in float64; float64 numbers are scaled first.
    """
    rows = values.reshape(values.shape[0], -1)
    on_device = rows.device.type != "cpu"
    if on_device and rows.dtype != torch.float64:
        return _norms_on_device(rows)
    most = _WIDE_STRIPE if on_device else _STRIPE
    if rows.shape[1] > most:
        pieces = [norms_of(stripe) for stripe in rows.split(most, dim=1)]
        return norms_of(torch.stack(pieces, dim=1))
    few = max(1, most // max(1, rows.shape[1]))
    return torch.cat([_norms(stripe) for stripe in rows.split(few)])


def _norms(rows: torch.Tensor) -> torch.Tensor:
    if rows.dtype == torch.float64 and rows.shape[1]:
        largest = torch.linalg.vector_norm(rows, ord=torch.inf, dim=1)
        scale = torch.where(largest > 0, largest, torch.ones_like(largest))
        scaled: torch.Tensor = torch.linalg.vector_norm(rows / scale[:, None], dim=1) * scale
        return scaled
    norms: torch.Tensor = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    return norms


def _norms_on_device(rows: torch.Tensor) -> torch.Tensor:
    """The same by few kernels."""
    if len(rows) and rows.shape[1] >= _LONG:
        # As `torch.nn.utils.get_total_norm` has it: reads short numbers, adds up long ones.
        return torch.stack(torch._foreach_norm(rows.unbind(), 2, torch.float64))  # noqa: SLF001
    return _norms(rows)


def _finite(values: torch.Tensor) -> torch.Tensor:
    """`values` with zeros for what is not finite, as 0 times NaN would be NaN.

    Only a record whose norm is not finite has any, and its factor is 0. Several times as fast as
    to blank whole records, and the same for all of them.
    """
    return values.nan_to_num(0.0, 0.0, 0.0)


@dataclass(frozen=True, kw_only=True)
class _Tensors:
    """What is made of tensors that have the records in front."""

    def piece(self, rows: slice) -> Self:
        """Of some of the records."""
        return replace(self, **{name: values[rows] for name, values in self._tensors().items()})

    def floats(self) -> int:
        """How many numbers this holds."""
        real = (values for values in self._tensors().values() if values.is_floating_point())
        return sum(values.numel() for values in real)

    def _tensors(self) -> dict[str, torch.Tensor]:
        return {k: held for k, held in vars(self).items() if isinstance(held, torch.Tensor)}


@dataclass(frozen=True, kw_only=True)
class Outer(_Tensors):
    """gradient_i = left_i (x) right_i, with left (n, rows) and right (n, columns)."""

    left: torch.Tensor
    right: torch.Tensor

    def norms(self) -> torch.Tensor:
        """|left_i| |right_i|: the norm of an outer product, with no cancellation."""
        return norms_of(self.left) * norms_of(self.right)

    def add_to(self, view: torch.Tensor, factors: torch.Tensor, kept: int = 1) -> None:
        """view = kept view + sum_i factors_i gradient_i, as one matrix product.

        A factor times `left` that is no normal number was not rounded to nearest, and `right` may
        be large enough to bring the difference back: it counts as zero (docs/privacy.md P14).
        """
        matrix = view.view(self.left.shape[1], self.right.shape[1])
        if view.dtype != self.left.dtype:  # products of two short numbers are exact in float64
            left = _finite(self.left.double() * factors.double()[:, None])
            matrix.addmm_(left.t(), _finite(self.right.double()), beta=kept)
            return
        scaled = (self.left * factors[:, None]).nan_to_num_(0.0, 0.0, 0.0)
        left = functional.hardshrink(scaled, torch.finfo(scaled.dtype).tiny)
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
        right = _finite(self.right).reshape(-1, columns)
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


def _add_plainly(total: torch.Tensor, rows: torch.Tensor, factors: torch.Tensor) -> None:
    """total += factors @ rows in float64, where 0 times what is not finite is 0."""
    columns = max(1, _WIDE_STRIPE // len(factors))
    for target, stripe in zip(total.split(columns), rows.split(columns, dim=1), strict=True):
        target.add_((stripe * factors[:, None]).nansum(0))


@lru_cache
def _way_to_add(device: torch.device) -> Adding:
    """The kernel of triton_rows.py where it is there and right, which reads each number once."""
    if device.type == "cuda":
        with suppress(Exception):  # whatever it lacks, it is not needed
            from hubbub.learning.triton_rows import add_rows_to

            if _is_right(add_rows_to, device):
                return add_rows_to
    return _add_plainly


def _is_right(adding: Adding, device: torch.device) -> bool:
    """Whether it gives the sum of made-up rows, some not finite, that torch's own gives."""
    rows = torch.linspace(-3, 5, 5 * 3000, device=device).view(5, 3000).exp()
    rows[2, ::7], rows[2, 1::7] = torch.nan, torch.inf
    factors = torch.tensor([0.3, 1.0, 0.0, 1e-9, 0.7], dtype=torch.float64, device=device)
    for kind in (torch.float32, torch.bfloat16):
        mine, wanted = torch.ones(2, 3000, dtype=torch.float64, device=device)
        adding(mine, rows.to(kind), factors)
        _add_plainly(wanted, rows.to(kind), factors)
        if not torch.allclose(mine, wanted, rtol=1e-14, atol=0):
            return False
    return True


@dataclass(frozen=True, kw_only=True)
class Stack(_Tensors):
    """One stored gradient per record, (n, ...)."""

    gradients: torch.Tensor
    scratch: int = 0  # numbers that it was made of, which are there until then

    def norms(self) -> torch.Tensor:
        """Of each record's stored gradient."""
        return norms_of(self.gradients)

    def add_to(self, view: torch.Tensor, factors: torch.Tensor, kept: int = 1) -> None:
        """view = kept view + sum_i factors_i gradient_i, in stripes as their norms are made."""
        rows = self.gradients.reshape(len(factors), -1)
        if view.dtype != rows.dtype:
            if not kept:
                view.zero_()
            _way_to_add(view.device)(view, rows, factors.double())
            return
        columns = max(1, _STRIPE // len(factors))
        for target, stripe in zip(view.split(columns), rows.split(columns, dim=1), strict=True):
            target.addmv_(_finite(stripe).t(), factors, beta=kept)


@dataclass(frozen=True, kw_only=True)
class Rows(_Tensors):
    """Rows of a table: record i has gradient `values[i, t]` in row `index[i, t]`.

    No row occurs twice in a record with a value other than zero; index is (n, t), values are
    (n, t, columns), as many as a record has positions (docs/privacy.md P19).
    """

    index: torch.Tensor
    values: torch.Tensor
    table: int = 0  # how many rows the table has, where it is met elsewhere too

    def norms(self) -> torch.Tensor:
        """Rows of one record are distinct, so the values' norm is the gradient's."""
        return norms_of(self.values)

    def add_to(self, view: torch.Tensor, factors: torch.Tensor, kept: int = 1) -> None:
        """view = kept view + sum_i factors_i gradient_i, on the rows that occur."""
        if not kept:
            view.zero_()
        records, _, columns = self.values.shape
        values = _finite(self.values.view(records, -1) * factors.to(view.dtype)[:, None])
        _add_rows(view.view(-1, columns), self.index.reshape(-1), values.view(-1, columns))

    def written_out(self) -> torch.Tensor:
        """(n, table, columns): each record's gradient."""
        records, positions, columns = self.values.shape
        gradients = self.values.new_zeros(records, self.table, columns)
        first = torch.arange(records, device=self.index.device)[:, None].expand(-1, positions)
        gradients.index_put_((first, self.index), self.values, accumulate=True)
        return gradients


def _add_rows(table: torch.Tensor, index: torch.Tensor, values: torch.Tensor) -> None:
    """Add rows to those of a table; on a device in an order that is the same each time."""
    if table.device.type == "cpu":
        table.index_add_(0, index, values)
    else:
        table.index_put_((index,), values, accumulate=True)


@dataclass(frozen=True, kw_only=True)
class Positions(_Tensors):
    """gradient_i = sum_t left_it (x) right_it, with left (n, t, rows) and right (n, t, columns)."""

    left: torch.Tensor
    right: torch.Tensor

    def numbers(self) -> int:
        """How many are made of each record."""
        return self.left.shape[2] * self.right.shape[2] if self.left.shape[1] > 1 else 0

    def stored(self) -> Outer | Stack:
        """What is clipped where each gradient is made, and what was made is measured."""
        right = self.right.to(self.left.dtype)
        if self.left.shape[1] == 1:
            return Outer(left=self.left[:, 0], right=right[:, 0])
        return Stack(gradients=torch.bmm(self.left.mT, right))


@dataclass(frozen=True, kw_only=True)
class Windows(_Tensors):
    """A convolution's outputs or their gradients beside the images that it slides over.

    `left` is (n * images, groups * rows, places), `images` (n * images, groups * channels, ...).
    """

    left: torch.Tensor
    images: torch.Tensor
    records: int
    groups: int
    kernel: tuple[int, ...]
    steps: tuple[int, ...]
    margins: tuple[tuple[int, int], ...]  # zeros before and after, by axis
    gaps: tuple[int, ...]  # between the numbers of a window
    places: tuple[int, ...]

    def piece(self, rows: slice) -> Windows:
        """Of some of the records."""
        start, stop, _ = rows.indices(self.records)
        images = slice(*(at * len(self.left) // self.records for at in (start, stop)))
        left, values = self.left[images], self.images[images]
        return replace(self, left=left, images=values, records=stop - start)

    def numbers(self) -> int:
        """How many are made of each record."""
        return self.left.shape[1] * self.images.shape[1] // self.groups * prod(self.kernel)

    def positions(self) -> Positions:
        """With the records' groups in front, (n * groups, images * places, ...)."""
        values = functional.pad(self.images, [n for pair in reversed(self.margins) for n in pair])
        axes = zip(self.kernel, self.steps, self.gaps, self.places, strict=True)
        for axis, (size, step, gap, count) in enumerate(axes, 2):
            values = values.unfold(axis, gap * (size - 1) + 1, step)[..., ::gap]
            values = values.narrow(axis, 0, count)
        dims = len(self.kernel)
        order = (0, 1, *range(2 + dims, 2 + 2 * dims), *range(2, 2 + dims))
        columns = values.permute(order).reshape(len(values), -1, self.left.shape[2])
        return Positions(left=self._by_record(self.left), right=self._by_record(columns))

    def _by_record(self, values: torch.Tensor) -> torch.Tensor:
        """(n * images, groups * rows, places) to (n * groups, images * places, rows)."""
        grouped = values.unflatten(0, (self.records, -1)).unflatten(2, (self.groups, -1))
        rows = grouped.shape[3]
        ordered = grouped.permute(0, 2, 3, 1, 4).reshape(self.records * self.groups, rows, -1)
        positions: torch.Tensor = ordered.mT
        return positions

    def stored(self) -> Stack:
        """As for `Positions`, of as many records at once as are worth it."""
        written = self.images.shape[1] * prod((*self.kernel, *self.places))
        written *= len(self.images) // self.records
        rows = max(1, _WIDE_STRIPE // max(1, written))
        if rows >= self.records:
            pair = self.positions()
            gradients = torch.bmm(pair.left.mT, pair.right.to(pair.left.dtype))
            return Stack(gradients=gradients.view(self.records, -1))
        pieces = (self.piece(slice(at, at + rows)) for at in range(0, self.records, rows))
        return Stack(gradients=torch.cat([piece.stored().gradients for piece in pieces]))


@dataclass(frozen=True, kw_only=True)
class Repeated:
    """A parameter that a record meets at several sites: its gradient is the sum of theirs."""

    uses: tuple[Given, ...]

    def piece(self, rows: slice) -> Repeated:
        """Of some of the records."""
        return Repeated(uses=tuple(use.piece(rows) for use in self.uses))

    def floats(self) -> int:
        """How many numbers this holds."""
        return sum(use.floats() for use in self.uses)

    def numbers(self) -> int:
        """How many are made of each record, at most at once."""
        return 2 * max(written_size(use) for use in self.uses)

    def stored(self) -> Stack:
        """As for `Positions`."""
        first, *others = map(written_out, self.uses)
        return Stack(gradients=sum(others, first))


PerRecord = Outer | Products | Stack | Rows
Given = Stack | Rows | Positions | Windows | Repeated  # what a site hands over
Part = tuple[str, PerRecord]  # the parameter's name and its per-record gradients
Source = tuple[str, Given]  # the same as a method hands it over


def written_size(given: Given) -> int:
    """How many numbers a record's gradient has."""
    if isinstance(given, Rows):
        return given.table * given.values.shape[2]
    if isinstance(given, Stack):
        return given.gradients[0].numel()
    if isinstance(given, Positions):
        return given.left.shape[2] * given.right.shape[2]
    return given.numbers()


def written_out(given: Given) -> torch.Tensor:
    """(n, numbers): each record's gradient."""
    part = stored(given)
    if isinstance(part, Outer):
        return (part.left[:, :, None] * part.right[:, None]).flatten(1)
    gradients = part.written_out() if isinstance(part, Rows) else part.gradients
    return gradients.reshape(len(gradients), -1)  # of a parameter without axes, too


def stored(given: Given) -> Outer | Stack | Rows:
    """Per-record gradients as they are clipped on a device: made, and measured as they are made."""
    return given if isinstance(given, Stack | Rows) else given.stored()


def formed(given: Given) -> PerRecord:
    """Per-record gradients as they are clipped on a processor."""
    if isinstance(given, Windows) and given.groups == 1:
        given = given.positions()
    if isinstance(given, Positions):
        return from_positions(given.left, given.right)
    return stored(given)


def from_positions(left: torch.Tensor, right: torch.Tensor) -> Outer | Products | Stack:
    """gradient_i = sum_t left_it (x) right_it, from (n, t, rows) and (n, t, columns)."""
    positions, rows, columns = left.shape[1], left.shape[2], right.shape[2]
    # What a model's autocast has shortened is measured and added at its full length.
    kind = torch.promote_types(torch.promote_types(left.dtype, right.dtype), torch.float32)
    left, right = left.to(kind), right.to(kind)
    if positions == 1:
        return Outer(left=left[:, 0], right=right[:, 0])
    if positions <= _MOST and positions**2 * (rows + columns) < rows * columns:
        return Products.of(left, right)
    gradients = torch.bmm(left.transpose(1, 2), right)
    return Stack(gradients=gradients, scratch=left.numel() + right.numel())


def from_lookups(
    ids: torch.Tensor, backprop: torch.Tensor, padding: int | None, table: int = 0
) -> Rows:
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
    summed = torch.zeros_like(values)
    _add_rows(summed, numbers.view(-1), values[origin.view(-1)])
    index = torch.zeros_like(ids).view(-1).index_copy_(0, numbers.view(-1), ordered.view(-1))
    return Rows(index=index.view_as(ids), values=summed.view(records, positions, -1), table=table)


def total_norms(parts: Sequence[Part]) -> torch.Tensor:
    """Norm of each record over all parameters, float64, (n,)."""
    return norms_of(torch.stack([part.norms() for _, part in parts], dim=1))


# The clipping factor of one record, and the proof that rounding never carries a record past C.
#
# Theory of operation (docs/privacy.md P14). Let g be one record's gradient as it is stored: a
# vector of m <= 2^32 floats of the model's dtype, or the exact outer product of two such vectors;
# of sums of products P21 says the same. Its contribution to the sum is c*g, and the claim is
# |c*g| <= clip in exact arithmetic:
#
# 1. Squares are accumulated in float64. Those of float32 numbers are exact there and neither
#    overflow nor vanish; float64 numbers are divided by the largest of the record first. Sums of
#    at most m non-negative terms, in any order, err by a factor of at least 1 - (m + 8) 2^-53; a
#    norm is a root of one, an outer product's norm the product of two, the whole gradient's a
#    norm of norms. So the computed norm is at least |g| (1 - 2^-21).
# 2. c64 = min(1, clip / norm) (1 - MARGIN), rounded a few times in float64: a factor 1 + 2^-50.
# 3. c is c64 rounded *towards zero* into the model's dtype: c <= c64, denormal factors included.
# 4. Multiplying c into g (or into one side of an outer product) rounds each entry once: a factor
#    of at most 1 + 2^-24, since every product of normal size is rounded to nearest. One that is
#    not of normal size may be rounded up by half, and in an outer product the other side may be
#    3e38: there it counts as zero. In a stored gradient all such errors together stay below
#    2^-134, of which a clip of at least 1e-30 knows nothing.
#
# (1 - MARGIN)(1 + 2^-24)(1 + 2^-50) / (1 - 2^-21) < 1 with MARGIN = 2^-20. The margin also scales
# records that are not clipped at all; it biases the sum by one part in a million.
#
# What is *not* covered: adding up n contributions rounds too. The returned vector is the exact sum
# plus an error of L2 norm at most n (n + 2) 2^-24 clip in float32 (2^-53 in float64), in the worst
# case (of sums of t products each, sqrt(t) n (t n + 4) 2^-24: P21); in practice about sqrt(n) 2^-24
# clip. A certificate must add it to the sensitivity.
#
# A record whose norm is not finite gets the factor 0.

MARGIN = 2.0**-20


def clip_factors(norms: torch.Tensor, clip: float, dtype: torch.dtype) -> torch.Tensor:
    """The factor of each record, in `dtype`, from its gradient's norm, float64, shape (n,)."""
    exact = (clip / norms).clamp(max=1.0) * (1.0 - MARGIN)
    exact = torch.where(norms.isfinite(), exact, torch.zeros_like(exact))
    rounded = exact.to(dtype)  # and then towards zero
    below = torch.nextafter(rounded, torch.zeros_like(rounded))
    return torch.where(rounded.double() > exact, below, rounded)
