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

from hubbub.learning.per_record import Positions, Repeated, Source, Stack, Windows, from_lookups


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
    """A convolution, or a transposed one: input and output are (n * images, channels, ...).

    A transposed one slides over its output: input and output change places.
    """

    weight: str | None
    bias: str | None
    kept: KeptTensors
    edge: GradientEdge
    records: int
    is_transposed: bool
    geometry: dict[str, Any]  # groups, kernel, steps, margins, gaps of `Windows`

    def parts(self, backprop: torch.Tensor) -> Iterator[Source]:
        """As for a Linear layer whose positions are the places of the sliding window."""
        if self.weight is not None:
            images, slid = self.kept.read(), backprop
            if self.is_transposed:
                images, slid = slid, images
            yield (
                self.weight,
                Windows(
                    left=slid.flatten(2),
                    images=images.to(backprop.dtype),
                    records=self.records,
                    places=tuple(slid.shape[2:]),
                    **self.geometry,
                ),
            )
        if self.bias is not None:
            by_record = backprop.unflatten(0, (self.records, -1)).flatten(3)
            yield self.bias, Stack(gradients=by_record.sum((1, 3)))


@dataclass(frozen=True, kw_only=True)
class LookupSite:
    """An Embedding: ids (n, t), output (n * t, columns)."""

    weight: str
    ids: KeptTensors
    edge: GradientEdge
    padding: int | None
    table: int

    def parts(self, backprop: torch.Tensor) -> Iterator[Source]:
        """Per-record gradients of the rows that each record looked up."""
        # Past the table a device took the nearest row; of one row a record has one gradient (P14).
        ids = self.ids.read().clamp(0, self.table - 1)
        yield self.weight, from_lookups(ids, backprop, self.padding, self.table)


@dataclass(frozen=True, kw_only=True)
class RecurrentSite:
    """The way from one state of a recurrent layer to the next: states (n, t, width).

    `edge` is that of the gates, (n * t, gates), of which the input's share is a `MatrixSite`. The
    last third of a GRU's takes the state's share times `resets`, (n, t, width).
    """

    weight: str | None
    bias: str | None
    states: KeptTensors
    resets: KeptTensors | None
    edge: GradientEdge

    def parts(self, backprop: torch.Tensor) -> Iterator[Source]:
        """As for a Linear layer whose positions are the steps in time."""
        states = self.states.read()
        left = backprop.reshape(*states.shape[:2], -1)
        if self.resets is not None:
            width = states.shape[2]
            last = left[..., 2 * width :] * self.resets.read()
            left = torch.cat([left[..., : 2 * width], last], dim=2)
        if self.weight is not None:
            yield self.weight, Positions(left=left, right=states)
        if self.bias is not None:
            yield self.bias, Stack(gradients=left.sum(1))


Site = MatrixSite | ConvolutionSite | LookupSite | RecurrentSite


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


Group = tuple[Sequence[Any], Sequence[str | None]]  # weights and biases, and their names


def recurrent_on(
    kind: str,
    values: torch.Tensor,
    states: Sequence[torch.Tensor],
    groups: Sequence[Group],
    both_ways: bool,
) -> tuple[torch.Tensor, list[torch.Tensor], list[Site]]:
    """A GRU's or LSTM's outputs and last states, and the sites where its parameters met records.

    Args:
        kind: "gru" or "lstm".
        values: (n, b, t, columns), of b sequences in each of n records.
        states: one (n, layers, b, width), or two for "lstm": those before the first step.
        groups: of each layer, in each direction.
        both_ways: whether there are two.

    Returns:
        Outputs (n, b, t, width), states like those given, sites.
    """
    ways = 2 if both_ways else 1
    ends: list[list[torch.Tensor]] = []
    sites: list[Site] = []
    for first in range(0, len(groups), ways):
        outputs = []
        for way in range(ways):
            begun = [state[:, first + way].flatten(0, 1) for state in states]
            turned = values.flip(2) if way else values
            output, last, met = _one_way(kind, turned, begun, groups[first + way])
            outputs.append(output.flip(2) if way else output)
            ends.append(last)
            sites += met
        values = torch.cat(outputs, dim=3)
    shape = values.shape[:2]
    last = [
        torch.stack([state.view(*shape, -1) for state in kinds], 1)
        for kinds in zip(*ends, strict=True)
    ]
    return values, last, sites


def _one_way(
    kind: str, values: torch.Tensor, states: Sequence[torch.Tensor], group: Group
) -> tuple[torch.Tensor, list[torch.Tensor], list[Site]]:
    """One layer in one direction by torch's own kernel, from states (n * b, width).

    The kernel is given the gates' inputs, which a Linear layer makes, and the identity for that
    layer's weight: so the gradient of what it is given is that of the gates, at every step.
    """
    (records, count, steps, _), (parameters, names) = values.shape, group
    weight, inner, *biases = (parameter.detach() for parameter in parameters)
    bias, bias_name = (biases[0], names[2]) if biases else (None, None)
    gates, site = linear_on(values, weight, bias, [names[0], bias_name])
    run: Any = torch.gru if kind == "gru" else torch.lstm
    output, *last = run(
        gates.view(records * count, steps, -1),
        states[0][None] if kind == "gru" else [state[None] for state in states],
        [
            torch.eye(len(weight), dtype=weight.dtype, device=weight.device),
            inner,
            *([torch.zeros_like(biases[0]), biases[1]] if biases else []),
        ],
        bool(biases),
        1,  # layer
        0.0,  # dropout
        True,  # as in training: a GPU's kernel has no backward otherwise
        False,  # in one direction
        True,  # records first
    )
    before, resets = torch.cat([states[0][:, None], output[:, :-1]], dim=1).detach(), None
    if kind == "gru":
        width = before.shape[2]
        own = functional.linear(before, inner[:width], biases[1][:width] if biases else None)
        shares = gates.detach().view(records * count, steps, -1)[..., :width]
        resets = keep((shares + own).sigmoid().view(records, count * steps, -1))
    sites: list[Site] = [site]
    if any(names[1::2]):
        inner_site = RecurrentSite(
            weight=names[1],
            bias=names[3] if biases else None,
            states=keep(before.view(records, count * steps, -1)),
            resets=resets,
            edge=site.edge,
        )
        sites.append(inner_site)
    return output.view(records, count, steps, -1), [state[0] for state in last], sites


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


def site_parts(sites: list[Site], backprops: list[torch.Tensor | None]) -> list[Source]:
    """The per-record gradients of all sites; a site that no loss depends on gives none."""
    uses: dict[str, list[Any]] = {}
    for site, backprop in zip(sites, backprops, strict=True):
        for name, given in () if backprop is None else site.parts(backprop):
            uses.setdefault(name, []).append(given)
    repeated = {name: Repeated(uses=tuple(all_uses)) for name, all_uses in uses.items()}
    return [(name, use if len(use.uses) > 1 else use.uses[0]) for name, use in repeated.items()]
