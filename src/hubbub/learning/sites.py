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

from hubbub.learning.per_record import Positions, Repeated, Source, Stack, Windows, from_lookups


class KeptTensors:
    """An activation without its graph, and how often its storage had been written to by then."""

    def __init__(self, values: torch.Tensor) -> None:
        self._values = values.detach()
        self._version = self._values._version  # noqa: SLF001 (torch documents it by this name)

    def read(self) -> torch.Tensor:
        """The values, if nobody has overwritten them, through any view, since a layer read them."""
        if self._values._version != self._version:  # noqa: SLF001 (the same)
            raise RuntimeError("an activation was overwritten in place after a layer read it")
        return self._values


@dataclass(frozen=True, kw_only=True)
class Site:
    """Where parameters met a batch, and what their gradients are by that of the layer's output."""

    edge: GradientEdge
    parts: Callable[[torch.Tensor], Iterator[Source]]


Names = Sequence[str | None]  # of weight and bias; None where there is none to train


def stand_in(parameter: Any) -> Any:
    """A leaf that shares a parameter's storage, for use in its place; None for a missing bias."""
    return None if parameter is None else parameter.detach().requires_grad_()


def linear_on(
    values: torch.Tensor, weight: Any, bias: Any, names: Names
) -> tuple[torch.Tensor, Site]:
    """A Linear layer's output on the rows of values (n, ..., columns), and the site it met them at.

    The edge is where the output's gradient arrives, whatever later overwrites the output.
    """
    rows = values.reshape(-1, values.shape[-1])
    output = functional.linear(rows, stand_in(weight), stand_in(bias))
    kept = KeptTensors(rows.view(values.shape[0], -1, rows.shape[1]))

    def parts(backprop: torch.Tensor) -> Iterator[Source]:
        inputs = kept.read()
        backprop = backprop.view(*inputs.shape[:2], -1)
        if names[0] is not None:
            yield names[0], Positions(left=backprop, right=inputs)
        if names[1] is not None:
            yield names[1], Stack(gradients=backprop.sum(1))

    return output, Site(edge=get_gradient_edge(output), parts=parts)


def convolution_site(
    images: torch.Tensor,
    output: torch.Tensor,
    names: Names,
    records: int,
    geometry: dict[str, Any],
    *,
    is_transposed: bool,
) -> Site:
    """Of a convolution, or a transposed one, from and to (n * images, channels, ...).

    It is a Linear layer whose positions are the places of the sliding window. A transposed one
    slides over its output: input and output change places. `geometry` is that of `Windows`.
    """
    kept = KeptTensors(images)

    def parts(backprop: torch.Tensor) -> Iterator[Source]:
        if names[0] is not None:
            seen, slid = (backprop, kept.read()) if is_transposed else (kept.read(), backprop)
            windows = Windows(
                left=slid.flatten(2),
                images=seen.to(backprop.dtype),
                records=records,
                places=tuple(slid.shape[2:]),
                **geometry,
            )
            yield names[0], windows
        if names[1] is not None:
            by_record = backprop.unflatten(0, (records, -1)).flatten(3)
            yield names[1], Stack(gradients=by_record.sum((1, 3)))

    return Site(edge=get_gradient_edge(output), parts=parts)


def lookup_site(
    ids: torch.Tensor, output: torch.Tensor, name: str, table: int, padding: int | None
) -> Site:
    """Of an Embedding with so many rows: ids (n, t), output (n * t, columns)."""
    kept = KeptTensors(ids)

    def parts(backprop: torch.Tensor) -> Iterator[Source]:
        # Past the table a device took the nearest row; of one row a record has one gradient (P14).
        yield name, from_lookups(kept.read().clamp(0, table - 1), backprop, padding, table)

    return Site(edge=get_gradient_edge(output), parts=parts)


def _state_site(
    edge: GradientEdge, states: torch.Tensor, resets: torch.Tensor | None, names: Names
) -> Site:
    """Of the way from one state of a recurrent layer to the next: states (n, t, width).

    It is a Linear layer whose positions are the steps in time. `edge` is that of the gates, (n * t,
    gates). The last third of a GRU's takes the state's share times `resets`, (n, t, width).
    """
    width = states.shape[2]
    kept, held = KeptTensors(states), None if resets is None else KeptTensors(resets)

    def parts(backprop: torch.Tensor) -> Iterator[Source]:
        right = kept.read()
        left = backprop.reshape(*right.shape[:2], -1)
        if held is not None:
            last = left[..., 2 * width :] * held.read()
            left = torch.cat([left[..., : 2 * width], last], dim=2)
        if names[0] is not None:
            yield names[0], Positions(left=left, right=right)
        if names[1] is not None:
            yield names[1], Stack(gradients=left.sum(1))

    return Site(edge=edge, parts=parts)


Group = tuple[Sequence[Any], Names]  # weights and biases, and their names


def recurrent_on(
    kind: str,
    values: torch.Tensor,
    states: Sequence[torch.Tensor],
    groups: Sequence[Group],
    both_ways: bool,
) -> tuple[torch.Tensor, list[torch.Tensor], list[Site]]:
    """A GRU's or LSTM's outputs and last states, and the sites where its parameters met records.

    Outputs are (n, b, t, width), of b sequences (n, b, t, columns) in each of n records. `states`
    before the first step are one (n, layers, b, width), or two for "lstm"; those after the last are
    like them. `groups` are of each layer, in each direction.
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
    # As cuDNN wants them: or it refuses the one, copies the others each time, and warns of it.
    begun = [state[None].contiguous() for state in states]
    matrices = [torch.eye(len(weight), dtype=weight.dtype, device=weight.device), inner]
    given = [*matrices, *([torch.zeros_like(biases[0]), biases[1]] if biases else [])]
    beside = torch.cat([one.reshape(-1) for one in given]).split([one.numel() for one in given])
    output, *last = run(
        gates.view(records * count, steps, -1),
        begun[0] if kind == "gru" else begun,
        [part.view_as(one) for part, one in zip(beside, given, strict=True)],
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
        resets = (shares + own).sigmoid().view(records, count * steps, -1)
    sites = [site]
    if any(names[1::2]):
        inner_names = (names[1], names[3] if biases else None)
        states_before = before.view(records, count * steps, -1)
        sites.append(_state_site(site.edge, states_before, resets, inner_names))
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
