"""A site: the one place where a parameter meets a batch, kept so that no weight gradient is made.

The layer is evaluated on all positions of all records at once, with a *stand-in* for its weight: a
detached alias that shares the storage. The gradient with respect to the layer's output then is all
that is asked of autograd; the per-record gradient follows from it and the kept activation. Since
only stand-ins enter the graph here, a graph that reaches the parameter itself proves that it was
used somewhere else as well (see `reached`). This file knows nothing of vmap or of clipping.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge
from torch.nn import functional

# Per-record gradients of one parameter in the shapes in which they come cheaply.
#
#     Outer      a layer that meets each record once: gradient_i = backprop_i (x) activation_i
#     Products   a large layer that meets each record a few times: the sum of such products
#     Stack      anything else: one stored gradient per record
#     Rows       an embedding: the few rows of the table that a record has touched
#     Positions  backprops and activations before anything is made of them
#
# All but the last can say their norms, in float64, and add the weighted sum of their records to a
# flat view, or put it in place of what is there (`kept` is 0), where the weight of a record whose
# norm is not finite is 0; `formed` turns the last into one of them. What is done, and on how many
# numbers, follows from shapes alone (docs/privacy.md P19).

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


def version_of(values: torch.Tensor) -> int:
    """How often the storage of `values` has been written to, through any view."""
    return values._version  # noqa: SLF001 (torch documents it, under this name)


@dataclass(frozen=True, kw_only=True)
class KeptTensors:
    """An activation and the version that it had when a layer read it."""

    values: torch.Tensor
    version: int

    def read(self) -> torch.Tensor:
        """The values, if nobody has overwritten them since."""
        if version_of(self.values) != self.version:
            raise RuntimeError("an activation was overwritten in place after a layer read it")
        return self.values


def keep(values: torch.Tensor) -> KeptTensors:
    """Keep an activation without its graph."""
    values = values.detach()
    return KeptTensors(values=values, version=version_of(values))


@dataclass(frozen=True, kw_only=True)
class MatrixSite:
    """A Linear layer: input (n, t, columns), output (n * t, rows)."""

    weight: str | None
    bias: str | None
    kept: KeptTensors
    edge: GradientEdge

    def parts(self, backprop: torch.Tensor) -> Iterator[Source]:
        """Per-record gradients of weight and bias from the gradient of the output."""
        inputs = self.kept.read()
        backprop = backprop.view(*inputs.shape[:2], -1)
        if self.weight is not None:
            yield self.weight, Positions(left=backprop, right=inputs)
        if self.bias is not None:
            yield self.bias, Stack(gradients=backprop.sum(1))


@dataclass(frozen=True, kw_only=True)
class ConvolutionSite:
    """An ungrouped Conv2d: input (n * images, c, h, w), output (n * images, rows, h', w')."""

    weight: str | None
    bias: str | None
    kept: KeptTensors
    edge: GradientEdge
    records: int
    kernel: tuple[int, int]
    geometry: dict[str, Any]  # stride, padding, dilation as functional.unfold takes them

    def parts(self, backprop: torch.Tensor) -> Iterator[Source]:
        """As for a Linear layer whose positions are the places of the sliding window."""
        backprop = self._positions(backprop.flatten(2))
        if self.weight is not None:
            patches = functional.unfold(self.kept.read(), self.kernel, **self.geometry)
            yield self.weight, Positions(left=backprop, right=self._positions(patches))
        if self.bias is not None:
            yield self.bias, Stack(gradients=backprop.sum(1))

    def _positions(self, values: torch.Tensor) -> torch.Tensor:
        """(n * images, rows, places) to (n, images * places, rows)."""
        rows = values.shape[1]
        grouped = values.unflatten(0, (self.records, -1)).transpose(1, 2)
        places: torch.Tensor = grouped.reshape(self.records, rows, -1).transpose(1, 2)
        return places


@dataclass(frozen=True, kw_only=True)
class LookupSite:
    """An Embedding: ids (n, t), output (n * t, columns)."""

    weight: str
    ids: KeptTensors
    edge: GradientEdge
    padding: int | None

    def parts(self, backprop: torch.Tensor) -> Iterator[Source]:
        """Per-record gradients of the rows that each record looked up."""
        ids = self.ids.read()
        yield self.weight, from_lookups(ids, backprop, self.padding)


Site = MatrixSite | ConvolutionSite | LookupSite


def stand_in(parameter: Any) -> Any:
    """A leaf that shares a parameter's storage, for use in its place; None for a missing bias."""
    return None if parameter is None else parameter.detach().requires_grad_()


def linear_on(
    values: torch.Tensor, weight: Any, bias: Any, names: Sequence[str | None]
) -> tuple[torch.Tensor, MatrixSite]:
    """A Linear layer's output on the rows of values (n, ..., columns), and the site it met them at.

    The edge is where the output's gradient arrives, whatever later overwrites the output.
    """
    rows = values.reshape(-1, values.shape[-1])
    output = functional.linear(rows, stand_in(weight), stand_in(bias))
    kept, edge = keep(rows.view(values.shape[0], -1, rows.shape[1])), get_gradient_edge(output)
    return output, MatrixSite(weight=names[0], bias=names[1], kept=kept, edge=edge)


def reached(losses: torch.Tensor) -> set[int]:
    """The id() of every leaf tensor from which `losses` were computed."""
    leaves: set[int] = set()
    seen: set[Node] = set()
    todo = [losses.grad_fn] if losses.grad_fn is not None else []
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            leaves.add(id(variable))
        todo.extend(child for child, _ in node.next_functions if child is not None)
    return leaves


def site_parts(sites: list[Site], backprops: list[torch.Tensor | None]) -> Iterator[Source]:
    """The per-record gradients of all sites; a site that no loss depends on gives none.

    One at a time, so that what one site unfolds is gone before the next one unfolds its own.
    """
    pairs = zip(sites, backprops, strict=True)
    return (part for site, b in pairs if b is not None for part in site.parts(b))


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
    return _towards_zero(exact, dtype)


def _towards_zero(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Round non-negative float64 `values` down into `dtype`."""
    rounded = values.to(dtype)
    below = torch.nextafter(rounded, torch.zeros_like(rounded))
    return torch.where(rounded.double() > values, below, rounded)
