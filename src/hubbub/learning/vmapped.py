"""The general method: the forward of a single record under vmap, then one ordinary backward.

Theory of operation. `vmap` runs the forward of *one* record on all records at once, so a record's
loss depends on that record alone by construction, whatever the model does. Inside it,

- calls of linear layers, convolutions, embeddings, GRUs and LSTMs whose weights are parameters are
  intercepted, wherever they come from, and evaluated as a site: no weight gradient is ever made;
- calls of scaled_dot_product_attention are evaluated on all records at once, as sites are: torch's
  fused kernels have no batching rule, so that vmap would call them record by record; so are linear
  layers that are frozen, whose bias vmap would add in a pass of its own;
- every other trainable parameter ("direct") is given to each record as a copy of its own, an
  expanded view, whose gradient then is the per-record gradient.

The batched values under vmap are ordinary tensors one level down, with an ordinary graph, so the
backward is an ordinary one over all records and needs no batching rules. Which parameters are
direct is not trusted but proven: the graph of the losses holds stand-ins and copies only. If it
reaches a parameter itself (`x @ weight.t()`, attention between two sequences), that parameter
becomes direct and the forward is run again; if a direct one is still reached (a loss that holds a
parameter), the method gives up and the caller takes the loop.

This file knows nothing of clipping.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from types import FunctionType
from typing import Any

import torch
from torch import nn
from torch._C._functorch import (
    _add_batch_dim,
    _unwrap_batched,
    is_batchedtensor,
    is_functorch_wrapped_tensor,
)
from torch._functorch.pyfunctorch import VmapInterpreter, retrieve_current_functorch_interpreter
from torch.func import functional_call, vmap
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from hubbub.learning.batches import Batch, Loss, Tensors, changed, single_value
from hubbub.learning.parameters import ParameterLayout
from hubbub.learning.per_record import Source, Stack
from hubbub.learning.sites import (
    Group,
    Site,
    convolution_site,
    linear_on,
    lookup_site,
    reached,
    recurrent_on,
    site_parts,
    stand_in,
)
from hubbub.learning.torch_settings import Traced

# The layers that hand their parameters to those calls; of attention, what it does to itself.
_SITED = (
    nn.Linear,
    *(nn.Conv1d, nn.Conv2d, nn.Conv3d),
    *(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
    nn.Embedding,
    *(nn.GRU, nn.LSTM),
    nn.MultiheadAttention,
    nn.modules.linear.NonDynamicallyQuantizableLinear,
)


class Tape:
    """What the forward meets: its sites, and the parameters that turned out to need a copy."""

    def __init__(self, layout: ParameterLayout, direct: set[str]) -> None:
        self.sites: list[Site] = []
        self.escaped: set[str] = set()
        self._layout = layout
        self._free = set(layout.parameters) - direct

    def forget(self) -> None:
        """The forward begins anew."""
        self.sites.clear()
        self.escaped.clear()

    def claim(self, *parameters: torch.Tensor | None) -> list[str | None] | None:
        """The names of a layer's parameters for one site, or None if they cannot have it."""
        if not all(p is None or isinstance(p, nn.Parameter) for p in parameters):
            return None
        names = [self._layout.names.get(id(p)) for p in parameters]
        wanted = {name for name in names if name is not None}
        return names if wanted and wanted <= self._free else None


def _on_all_records(
    rule: Callable[..., Any], alike: Callable[..., Any], *values: torch.Tensor
) -> Any:
    """Hand the values of all records, one level below vmap, to a rule: each (records, ...).

    An `autograd.Function` would do the same for some fifty calls of Python: what is done one level
    below has an ordinary graph already. `alike` takes values that are the same for all records.
    """
    interpreter = retrieve_current_functorch_interpreter()
    pairs = [_unwrap_batched(value, interpreter.level()) for value in values]
    others = any(is_functorch_wrapped_tensor(value) for value, _ in pairs)
    if others or not isinstance(interpreter, VmapInterpreter):
        raise RuntimeError("the model itself uses vmap or grad")
    with interpreter.lower():
        if all(dim is None for _, dim in pairs):
            return alike(*values)
        records = interpreter.batch_size()
        output = rule(
            *(
                value.expand(records, *value.shape) if dim is None else value.movedim(dim, 0)
                for value, dim in pairs
            )
        )
    return tree_map(lambda values: _add_batch_dim(values, 0, interpreter.level()), output)


def _apply(
    tape: Tape, names: list[str | None], values: torch.Tensor, evaluate: Callable[..., torch.Tensor]
) -> Any:
    """Evaluate a site on the values of all records."""

    def alike(value: torch.Tensor) -> torch.Tensor:
        """No site of any record."""
        tape.escaped.update(name for name in names if name is not None)
        with torch.enable_grad():
            return evaluate(value.unsqueeze(0)).squeeze(0).detach()

    return _on_all_records(evaluate, alike, values)


class _Intercept(TorchFunctionMode):
    """Sends the calls that can be sites to the functions below."""

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self._tape = tape

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        taken = _TAKEN.get(func)
        call = func if taken is None else partial(taken, self._tape)
        return call(*args, **(kwargs or {}))


def _attention(
    _: Tape,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **options: Any,
) -> Any:
    def attend(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        return functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, dropout_p=dropout_p, is_causal=is_causal, **options
        )

    def rule(*records: torch.Tensor) -> Any:
        """On the records beside the batch of one that each of them is."""
        output = attend(*(values.flatten(0, 1) for values in records))
        return output.unflatten(0, (len(records[0]), -1))

    dims = 0 if attn_mask is None else attn_mask.dim()
    one_for_all = dims in (2, 3) or (dims == 4 and len(attn_mask) == 1)  # say a learned bias
    if query.dim() == 4 and one_for_all:
        attn_mask = attn_mask[(None,) * (4 - dims)].expand(len(query), -1, -1, -1)
    values = [query, key, value] + ([] if attn_mask is None else [attn_mask])
    shaped = all(v.dim() == 4 and v.shape[0] == query.shape[0] for v in values)
    if shaped and dropout_p == 0 and any(map(is_batchedtensor, values)):
        return _on_all_records(rule, attend, *values)
    return attend(*values)


def _multi_head(tape: Tape, *given: Any, **options: Any) -> Any:
    with _Intercept(tape):
        return _INSIDE(*given, **options)


# torch's multi_head_attention_forward, entered by a mode that wants to see the calls inside it: its
# own question whether anybody overrides it as a whole is answered with no.
_INSIDE = FunctionType(
    functional.multi_head_attention_forward.__code__,
    {**vars(functional), "has_torch_function": lambda _: False},
    argdefs=functional.multi_head_attention_forward.__defaults__,
)


def _are_frozen(*given: torch.Tensor | None) -> bool:
    """Whether a layer's parameters are its own, and none of them is trained."""
    return all(p is None or (isinstance(p, nn.Parameter) and not p.requires_grad) for p in given)


def _linear(tape: Tape, input: Any, weight: Any, bias: Any = None) -> Any:  # noqa: A002 (torch's)
    names = tape.claim(weight, bias)
    if names is None and is_batchedtensor(input) and _are_frozen(weight, bias):
        return _apply(tape, [], input, lambda values: functional.linear(values, weight, bias))
    if names is None:
        return functional.linear(input, weight, bias)

    def evaluate(values: torch.Tensor) -> torch.Tensor:
        output, site = linear_on(values, weight, bias, names)
        tape.sites.append(site)
        return output.view(*values.shape[:-1], -1)

    return _apply(tape, names, input, evaluate)


def _each(setting: Any, dims: int) -> tuple[int, ...]:
    """A setting of a convolution for each of its axes."""
    given = tuple(setting) if isinstance(setting, Sequence) else (setting,)
    return given if len(given) == dims else given * dims


def _geometry(weight: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> dict[str, Any]:
    """How the windows of a convolution lie, as `Windows` takes it."""
    kernel, dims = tuple(weight.shape[2:]), weight.dim() - 2
    gaps = _each(dilation, dims)
    if padding == "same":
        spare = [gap * (size - 1) for size, gap in zip(kernel, gaps, strict=True)]
        margins = [(total // 2, total - total // 2) for total in spare]
    else:
        margins = [(m, m) for m in _each(0 if padding == "valid" else padding, dims)]
    return {
        "groups": groups,
        "kernel": kernel,
        "steps": _each(stride, dims),
        "margins": tuple(margins),
        "gaps": gaps,
    }


def _convolution(
    function: Callable[..., torch.Tensor],
    tape: Tape,
    input: Any,  # noqa: A002 (torch's name)
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    *rest: Any,
    **named: Any,
) -> Any:
    """By a function of so many dimensions; transposed or not."""
    is_transposed = "transpose" in function.__name__
    keys = ("output_padding", "groups", "dilation") if is_transposed else ("dilation", "groups")
    options = dict(zip(keys, rest, strict=False)) | named
    names = tape.claim(weight, bias) if input.dim() == weight.dim() else None
    if names is None:
        return function(input, weight, bias, stride, padding, **options)

    def evaluate(values: torch.Tensor) -> torch.Tensor:
        images = values.flatten(0, 1)
        output = function(images, stand_in(weight), stand_in(bias), stride, padding, **options)
        gaps, groups = options.get("dilation", 1), options.get("groups", 1)
        lie = _geometry(weight, stride, padding, gaps, groups)
        tape.sites.append(
            convolution_site(images, output, names, len(values), lie, is_transposed=is_transposed)
        )
        return output.view(*values.shape[:2], *output.shape[1:])

    return _apply(tape, names, input, evaluate)


def _recurrent(
    kind: str, tape: Tape, values: Any, state: Any, parameters: Any, *options: Any
) -> Any:
    """A GRU or an LSTM, of as many layers as it has."""
    function: Any = torch.gru if kind == "gru" else torch.lstm
    states = (state,) if isinstance(state, torch.Tensor) else tuple(state)
    groups = _by_layer(parameters, options) if values.dim() == 3 else []
    *_, both_ways, records_first = options

    def called(value: torch.Tensor, *starts: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = starts[0] if kind == "gru" else starts
        outputs: tuple[torch.Tensor, ...] = function(value, given, parameters, *options)
        return outputs

    def beside(given: torch.Tensor, *begun: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The sequences of all records, as those of one."""
        count, axis = len(given), 0 if records_first else 1  # the axis of a record's sequences
        starts = [state.transpose(0, 1).flatten(1, 2).contiguous() for state in begun]
        output, *last = called(given.movedim(0, axis).flatten(axis, axis + 1), *starts)
        output = output.unflatten(axis, (count, -1)).movedim(axis, 0)
        return (output, *(state.unflatten(1, (count, -1)).transpose(0, 1) for state in last))

    if (
        groups
        and not torch.is_grad_enabled()
        and not any(map(is_functorch_wrapped_tensor, groups[0]))
    ):
        # No gradient is asked for, so no site, and the weights are the same for all records.
        return _on_all_records(beside, called, values, *states)
    named: list[Group] = []
    for group in groups:
        names = [None] * len(group) if _are_frozen(*group) else tape.claim(*group)
        if names is not None:
            named.append((group, names))
    if not groups or len(named) < len(groups):
        return function(values, state, parameters, *options)

    def rule(given: torch.Tensor, *begun: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = given if records_first else given.transpose(1, 2)
        output, last, sites = recurrent_on(kind, given, begun, named, both_ways)
        tape.sites.extend(sites)
        return (output if records_first else output.transpose(1, 2), *last)

    def alike(value: torch.Tensor, *starts: torch.Tensor) -> Any:
        """No site of any record."""
        tape.escaped.update(name for _, names in named for name in names if name)
        return tree_map(torch.Tensor.detach, called(value, *starts))

    return _on_all_records(rule, alike, values, *states)


def _by_layer(parameters: Any, options: tuple[Any, ...]) -> list[Sequence[Any]]:
    """Weights of input and state, and biases, of each layer and direction; none if it is another.

    What has dropout between layers, lengths of its own, or projects its states, is another.
    """
    if len(options) != 6 or not isinstance(parameters, Sequence) or (options[2] and options[3]):
        return []
    size = 4 if options[0] else 2
    groups = [parameters[at : at + size] for at in range(0, len(parameters), size)]
    return groups if len(parameters) == size * options[1] * (1 + options[4]) else []


def _embedding(
    tape: Tape,
    input: Any,  # noqa: A002 (torch's name)
    weight: Any,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,  # noqa: ARG001 (the gradient is made here)
) -> Any:
    if scale_grad_by_freq:
        raise RuntimeError("an embedding scales its gradient by frequency")
    names = None if max_norm is not None else tape.claim(weight)
    padding = None if padding_idx is None else padding_idx % weight.shape[0]
    if max_norm is not None and is_functorch_wrapped_tensor(weight):
        raise RuntimeError("an embedding shortens rows of a record's own table")
    if names is None:
        return functional.embedding(input, weight, padding_idx, max_norm, norm_type)

    def evaluate(values: torch.Tensor) -> torch.Tensor:
        output = functional.embedding(values.reshape(-1), stand_in(weight), padding_idx)
        ids = values.reshape(values.shape[0], -1)
        tape.sites.append(lookup_site(ids, output, str(names[0]), len(weight), padding))
        return output.view(*values.shape, -1)

    return _apply(tape, names, input, evaluate)


def _torchs_embedding(
    tape: Tape, weight: Any, indices: Any, padding_idx: int = -1, *options: Any, **named: Any
) -> Any:
    padding = None if padding_idx < 0 else padding_idx
    return _embedding(tape, indices, weight, padding, None, 2.0, *options, **named)


def _forms(operation: Any) -> list[Any]:
    """An operation by the names that torch.ops has for it, as exported modules call it."""
    return [operation, *(getattr(operation, name) for name in operation.overloads())]


_TAKEN: dict[Any, Callable[..., Any]] = {
    functional.linear: _linear,
    **{
        function: partial(_convolution, function)
        for dims in "123"
        for name in ("conv{}d", "conv_transpose{}d")
        for function in [getattr(functional, name.format(dims))]
    },
    torch.gru: partial(_recurrent, "gru"),
    torch.lstm: partial(_recurrent, "lstm"),
    functional.embedding: _embedding,
    **dict.fromkeys((torch.embedding, *_forms(torch.ops.aten.embedding)), _torchs_embedding),
    functional.scaled_dot_product_attention: _attention,
    functional.multi_head_attention_forward: _multi_head,
}


# Two of vmap's own rules let a number past the end of a record's table reach the next record's.
# These take their place for the whole process, whatever calls them: all else they give is the same.


def _own_rows(
    weight: torch.Tensor,
    indices: torch.Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,  # noqa: ARG001 (the same rows)
) -> torch.Tensor:
    """Rows of a record's own table, or of one that all share."""
    if scale_grad_by_freq:
        raise RuntimeError("an embedding scales its gradient by frequency")
    at = indices.reshape(-1, 1).long()
    rows = weight.gather(0, at.expand(-1, weight.shape[1]))
    if padding_idx >= 0:
        rows = torch.where(at == padding_idx, rows.detach(), rows)
    return rows.view(*indices.shape, -1)


def _own_places(values: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    """Which places along an axis a record's index names, in a shape that meets the values'."""
    size, after = (values.shape[dim], values.shape[dim:][1:]) if values.dim() else (1, ())
    at = torch.where(index < 0, index + size, index).reshape(-1).long()
    named = torch.zeros(size, dtype=torch.bool, device=values.device).scatter(0, at, True)
    return named.view(-1, *(1 for _ in after)) if values.dim() else named.view(())


def _filled(values: torch.Tensor, dim: int, index: torch.Tensor, value: Any) -> torch.Tensor:
    return values.masked_fill(_own_places(values, dim, index), value)


def _fill(values: torch.Tensor, dim: int, index: torch.Tensor, value: Any) -> torch.Tensor:
    return values.masked_fill_(_own_places(values, dim, index), value)


_RULES = torch.library.Library("aten", "IMPL")
with warnings.catch_warnings(action="ignore"):  # torch warns that one takes another's place
    for operation, rule in {
        "embedding": _own_rows,
        **dict.fromkeys(("index_fill.int_Scalar", "index_fill.int_Tensor"), _filled),
        **dict.fromkeys(("index_fill_.int_Scalar", "index_fill_.int_Tensor"), _fill),
    }.items():
        _RULES.impl(operation, rule, "FuncTorchBatched")


def likely_direct(model: nn.Module, layout: ParameterLayout) -> set[str]:
    """A first guess at the parameters that need a copy per record; `vmapped_parts` corrects it."""
    layers = [m for m in model.modules() if type(m) in _SITED]
    owned = {id(p) for m in layers for p in m.parameters(recurse=False)}
    return {name for key, name in layout.names.items() if key not in owned}


def vmapped_parts(
    model: Traced, loss: Loss, layout: ParameterLayout, batch: Batch, direct: set[str]
) -> list[Source]:
    """Per-record gradients of `batch`; adds to `direct` what it finds to need a copy per record."""
    while True:
        tape = Tape(layout, direct)
        # One view of the parameter per record, whose gradient is that record's.
        originals = {name: layout.parameters[name].detach() for name in direct}
        copies = {
            name: original.expand(batch.size, *original.shape).requires_grad_()
            for name, original in originals.items()
        }
        losses = _losses(model, loss, batch, tape, copies)
        escaped = tape.escaped | {layout.names[i] for i in reached(losses) & set(layout.names)}
        if not escaped:
            return _parts(losses, tape, copies)
        if escaped & direct:
            raise RuntimeError("a parameter is used outside the model's forward")
        direct |= escaped


def _losses(
    model: Traced, loss: Loss, batch: Batch, tape: Tape, copies: dict[str, torch.Tensor]
) -> torch.Tensor:
    """The loss of every record, (n,), with its graph."""
    copies = {f"model.{name}": copy for name, copy in copies.items()}

    def of_record(
        own: dict[str, torch.Tensor], xs: tuple[torch.Tensor, ...], ys: Tensors
    ) -> torch.Tensor:
        inputs = tuple(x.unsqueeze(0) for x in xs)
        outputs = functional_call(model, own, inputs) if own else model(*inputs)
        return single_value(loss(outputs, changed(ys, lambda y: y.unsqueeze(0))))

    losses: torch.Tensor = _on_every(model, tape, of_record, copies, batch.inputs, batch.targets)
    return losses


def vmapped_losses(
    model: nn.Module, loss: Loss, layout: ParameterLayout, batch: Batch
) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs and losses of every record, each as in a batch of its own: no row sees another."""
    tape, traced = Tape(layout, set(layout.parameters)), Traced(model)

    def of_record(xs: tuple[torch.Tensor, ...], ys: Tensors) -> Any:
        outputs = traced(*(x.unsqueeze(0) for x in xs))
        record_loss = loss(outputs, changed(ys, lambda y: y.unsqueeze(0)))
        return outputs.squeeze(0), record_loss.squeeze(0)

    outputs, losses = _on_every(traced, tape, of_record, batch.inputs, batch.targets)
    return outputs, losses


def _on_every(model: Traced, tape: Tape, of_record: Callable[..., Any], *given: Any) -> Any:
    """What `of_record` makes of each; once more if the model turns to its traced way."""
    try:
        with _Intercept(tape):
            return vmap(of_record, randomness="different")(*given)
    except RuntimeError as error:
        if not model.turns(error):
            raise
    tape.forget()
    return _on_every(model, tape, of_record, *given)


def _parts(losses: torch.Tensor, tape: Tape, copies: dict[str, torch.Tensor]) -> list[Source]:
    """One backward for the outputs of all sites and the copies of all direct parameters."""
    wanted: list[Any] = [site.edge for site in tape.sites] + list(copies.values())
    if not losses.requires_grad:
        return []
    gradients: Any = torch.autograd.grad(losses.sum(), wanted, allow_unused=True)
    sited, rest = gradients[: len(tape.sites)], gradients[len(tape.sites) :]
    pairs = zip(copies, rest, strict=True)
    stacks: list[Source] = [(name, Stack(gradients=g)) for name, g in pairs if g is not None]
    return site_parts(tape.sites, list(sited)) + stacks
