"""A site: the one place where a parameter meets a batch, kept so that no weight gradient is made.

The layer is evaluated on all positions of all records at once, with a *stand-in* for its weight: a
detached alias that shares the storage. The gradient with respect to the layer's output then is all
that is asked of autograd; the per-record gradient follows from it and the kept activation. Since
only stand-ins enter the graph here, a graph that reaches the parameter itself proves that it was
used somewhere else as well (see `reached`). This file knows nothing of vmap or of clipping.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge
from torch.nn import functional

from hubbub.learning.per_record import Positions, Source, Stack, from_lookups


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
