"""Made-up records of a shape, the same for everybody, on which a model is tried.

One of them is the null record that stands in empty rows. What a user's model says when it raises
may quote a record, as may a name of its own: only the kind of an error is told. This file knows no
silo's records.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hubbub.core.errors import HubbubError, ModelError, UserError
from hubbub.core.tabular.records import Records
from hubbub.learning.batches import (
    Batch,
    Loss,
    Tensors,
    UnitLoss,
    UnitModel,
    Work,
    batch_of,
    is_of_machine,
    on_device,
)
from hubbub.learning.clipped_sums import clipped_sum, loop_parts
from hubbub.learning.model_state import (
    OperationMode,
    addresses,
    attributes_unchanged,
    is_known,
    state_unchanged,
    tensors_in,
)
from hubbub.learning.models import outputs_of
from hubbub.learning.parameters import layout_of
from hubbub.learning.target_types import TargetType
from hubbub.learning.torch_settings import borrowed, device_under, seeded

MADE_UP = 4  # records
_REMEDY = "take gradients of it on made-up float32 records to see why"
_TRIED: WeakKeyDictionary[nn.Module, dict[tuple[int, ...], Trial]] = WeakKeyDictionary()

Made = TypeVar("Made")


def unquoted(work: Callable[[], Made], remedy: str = _REMEDY) -> Made:
    """What `work` gives; an error of the user's model is reported by its kind alone.

    Raises:
        ModelError: the model raises.
        UserError: the machine lacks memory, or its device has stopped.
    """
    try:
        return work()
    except HubbubError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 (the model is the user's)
        # What the model said may quote a record, as may a name of its own.
        known = type(error).__module__ == "builtins"
        kind = type(error).__name__ if known else "an error of its own"
        of_machine = is_of_machine(error)
    if of_machine:
        raise UserError(
            "expected memory for made-up records and a device that works, found one without; free "
            'it for hubbub, or take device = "cpu"'
        )
    raise ModelError(
        f"expected a model that takes records of the study's shape, found that it raised {kind}; "
        f"{remedy}"
    )


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Made-up records that a model takes, (4, ...), and how many outputs it gives for each."""

    inputs: torch.Tensor
    outputs: int

    @property
    def null(self) -> NDArray[np.float32]:
        """The public record that stands in empty rows."""
        return self.inputs[0].numpy()


def tried(model: nn.Module, shape: tuple[int, ...]) -> Trial:
    """The model tried on made-up records of that shape, the same for everybody, or a ModelError."""
    known = _TRIED.setdefault(model, {})
    if shape not in known:
        remedy = f"call it on made-up float32 records of shape {(MADE_UP, *shape)} to see why"
        known[shape] = unquoted(partial(_trial, model, shape), remedy)
    return known[shape]


def tried_on(
    model: nn.Module, records: Records, target_type: TargetType
) -> tuple[Trial, Tensors, Loss]:
    """Made-up records of the same shape, a target for each of them, and the loss of both.

    For a `UnitModel` they are units, of one row, of two, and so on.
    """
    units = model if isinstance(model, UnitModel) else None
    trial = tried(units.rows if units else model, tuple(records.inputs.shape[1:]))
    shape = (len(trial.inputs), *records.targets.shape[1:])
    targets = torch.from_numpy(np.zeros(shape, dtype=records.targets.dtype))
    loss = target_type.loss(trial.outputs, targets.dtype)
    return _of_units(trial, targets, loss, units.places) if units else (trial, targets, loss)


def _of_units(
    trial: Trial, targets: torch.Tensor, loss: Loss, places: int
) -> tuple[Trial, Tensors, Loss]:
    """The same as units of so many places, which the made-up records fill in turns."""
    rows = torch.stack([trial.inputs.roll(-turn, 0) for turn in range(places)], dim=1)
    counts = 1 + torch.arange(len(rows)) % places
    weights = (torch.arange(places) < counts[:, None]) / counts[:, None]
    labels = targets[:, None].expand(-1, places, *targets.shape[1:]).contiguous()
    return replace(trial, inputs=rows), (labels, weights), UnitLoss(loss)


def first_taken(shape: tuple[int, ...], work: Callable[[torch.Tensor], Made]) -> Made | None:
    """What `work` gives for the first made-up records that it takes; None if it takes none.

    They are numbers; or, as a table of words has no row -0.3, codes that are in every table.
    """
    with borrowed() as generator:
        generator.manual_seed(0)
        kinds = torch.randn((MADE_UP, *shape)), torch.randint(2, (MADE_UP, *shape)).float()
        for inputs in kinds:
            with suppress(IndexError, TypeError, RuntimeError):
                return work(inputs)
    return None


def _trial(model: nn.Module, shape: tuple[int, ...]) -> Trial:
    """The first of them that the model takes."""
    device = device_under(model)

    def of(inputs: torch.Tensor) -> Trial:
        given = inputs.to(device)
        with torch.no_grad(), RaisingOperations(_CPU).following(given):
            model(given)
            return Trial(inputs=inputs, outputs=outputs_of(model, given))

    with borrowed():
        return first_taken(shape, of) or of(torch.zeros((MADE_UP, *shape)))


# Whether a model's rows are independent: of the others in a batch, and of those before them.
#
# Tried on made-up records, in float64, with all generators seeded alike, before anything is
# charged. What hubbub relies on while it trains is more than this (docs/privacy.md P14, P19):
# rows of the methods "vmap" and "loop" cannot reach each other, and attributes are put back after
# every piece. A model is refused here so that its author learns of it.

Change = Callable[[torch.Tensor], torch.Tensor]
# What other rows may hold at worst, one kind at a time: a NaN would hide all the others.
WILD: tuple[Change, ...] = (
    *(partial(torch.mul, other=size) for size in (0.0, 10.0, 1e3, 1e6, 1e30)),
    *(partial(torch.full_like, fill_value=value) for value in (torch.inf, torch.nan)),
)
_NO_CLIP = 1e30
_CPU = torch.device("cpu")
_SEED = 1  # of random layers, while rows are tried
_MIXING = (
    "records mix; use nn.GroupNorm or nn.LayerNorm instead of batch statistics, and "
    "batch_first=True in attention"
)


def kinds_for(model: nn.Module, loss: Loss) -> tuple[Change, ...]:
    """Those that are tried: of layers that everybody knows, only what kernels make of the ends."""
    return (WILD[4], WILD[-1]) if is_known(model, loss) else WILD  # 1e30 and NaN


@torch.no_grad()
def refuse_mixing(model: nn.Module, batch: Batch) -> None:
    """Refuse a model whose outputs for a record depend on the other records of a batch.

    Where nothing is drawn, they have to be those of the records one by one; where something is, the
    same for the same seed whatever the others are. Nor may they be others each time.
    """
    training = model.training
    with state_unchanged(model):
        for mode in {training, False}:
            model.train(mode)
            together = _outputs(model, batch)
            if not _alike(together, _outputs(model, batch)):
                raise _remembering()
            if not _alike(together, _outputs(model, batch, seed=1)):  # something is drawn
                _refuse_reaching(model, batch, together)
                continue
            alone = [_outputs(model, batch.piece(i, i + 1)) for i in range(batch.size)]
            for output, *pieces in zip(together, *alone, strict=True):
                stacks = all(p.dim() == output.dim() > 0 for p in pieces)
                stacks = stacks and len(output) == len(pieces)
                same = partial(torch.allclose, rtol=1e-6, atol=1e-9, equal_nan=True)
                if not stacks or not same(output, torch.cat(pieces)):
                    raise ModelError(
                        "expected the outputs for a batch to be those for its records one by "
                        f"one, found others: {_MIXING}"
                    )
    model.train(training)


def refuse_memory(model: nn.Module, loss: Loss, batch: Batch) -> None:
    """Refuse a model that says something else of a record once it has seen others.

    The first call is left out: what it keeps follows from the shape, or is restored (P14).
    """
    if is_known(model, loss):
        return
    row, training = batch.piece(0, 1), model.training
    others = [batch.piece(i, i + 1) for i in range(1, batch.size)]
    for mode in {training, False}:
        model.train(mode)
        _results(model, loss, row)
        with attributes_unchanged(model):
            before = _results(model, loss, row)
            for other in others:
                _results(model, loss, other)
            for kind in WILD:
                try:  # it need not take them, nor may they hold such numbers
                    _results(model, loss, replace(row, inputs=tuple(map(kind, row.inputs))))
                except HubbubError:
                    raise
                except (Exception, SystemExit):  # noqa: BLE001, S110 (the model is the user's)
                    pass
        if not _alike(before, _results(model, loss, row)):
            raise _remembering()
    model.train(training)


def _results(model: nn.Module, loss: Loss, row: Batch) -> list[torch.Tensor]:
    """Outputs and gradient of a record, for one seed."""
    with RaisingOperations(_CPU).following((row.inputs, row.targets)):
        with torch.no_grad():
            outputs = _outputs(model, row)
        with seeded(0, device_under(model) or _CPU):
            parts = clipped_sum(model, loss, row.inputs, row.targets, _NO_CLIP, method="loop")
    return [*outputs, parts.vector]


def _outputs(model: nn.Module, batch: Batch, seed: int = 0) -> list[torch.Tensor]:
    with seeded(seed, device_under(model) or _CPU):
        return tensors_in(model(*batch.copied().inputs))


def _alike(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    """Whether the same work gave the same numbers, but for the last bits."""
    pairs = list(zip(some, others, strict=False))
    same = partial(torch.allclose, rtol=1e-9, atol=1e-12, equal_nan=True)
    return len(some) == len(others) and all(x.shape == y.shape and same(x, y) for x, y in pairs)


def _refuse_reaching(model: nn.Module, batch: Batch, together: list[torch.Tensor]) -> None:
    """Refuse outputs for a record that are others beside other records, at the same seed."""
    for place in range(batch.size):
        rows = (torch.arange(batch.size, device=batch.inputs[0].device) + 1) % batch.size
        rows[place] = place
        outputs = _outputs(model, batch.each(partial(torch.index_select, dim=0, index=rows)))
        stacks = all(x.dim() and len(x) == batch.size for x in (*together, *outputs))
        if not stacks or not _alike([x[place] for x in together], [x[place] for x in outputs]):
            raise ModelError(
                "expected the outputs for a record not to depend on the other records, at the same "
                f"seed, found others: {_MIXING}; draw as much for any record"
            )


def _remembering() -> ModelError:
    return ModelError(
        "expected the same outputs and gradient for the same record and seed, found others: the "
        "model remembers, or draws from a generator of its own; store nothing about a record, and "
        "draw from torch's generator, which is seeded for every row"
    )


# Operations of torch that raise at some values and not at others, looked for in a model.
#
# Where one of them is given several rows at once, whether it raises may be decided by a row's
# place, as a last bit is, or by the random numbers of its row: the null record might then raise in
# one empty row and not in another (docs/privacy.md A2). A model with such an operation is given one
# row at a time; so is one whose kernels have shapes that follow from the values of all rows, as of
# what is packed by a mask. A table in which something is looked up is not among them: that is the
# everyday way of words, and a word that a record holds is the same in every row.

# The first line tells Python a value, so that the model itself may raise by it.
_RAISING = re.compile(
    r"aten\.(_local_scalar_dense|is_nonzero|equal|nonzero\w*|masked_select|_?unique\w*|_assert\w+"
    r"|_linalg_(check_errors|eigh|svd)|linalg_(eig|eigvals|lstsq|pinv)"
    r"|multinomial|poisson|binomial|_standard_gamma|_sample_dirichlet"
    r"|repeat_interleave|masked_scatter_?"
    r"|_nested_tensor_from_mask\w*|_pack_padded_sequence|_?to_sparse\w*)\..*"
    r"|aten\.(normal\..*Tensor.*|bernoulli\.(default|out)|bernoulli_?\.Tensor)"
)

# Of these, what stops a device for good, and with it the sums of all other records.
_STOPPING = re.compile(
    r"aten\.(_assert_async|multinomial|poisson|binomial|_standard_gamma|_sample_dirichlet"
    r"|normal|bernoulli|masked_scatter|repeat_interleave)_?\..*"
)


def _takes_by_mask(func: Any, args: Sequence[Any]) -> bool:
    """Whether it takes, or writes, as many rows of a tensor as a mask has."""
    by_index = str(func).split(".")[1].strip("_") in ("index", "index_put", "index_put_impl")
    return by_index and any(at.dtype in (torch.bool, torch.uint8) for at in tensors_in(args[1]))


# And operations that torch checks on no device: a number that a record may hold has them read or
# write past their tensors, end the process, or count up to it. By name, such arguments of theirs.


def _at(*places: int | str) -> Callable[[Sequence[Any], dict[str, Any]], object]:
    """The arguments at these places, or of these names."""
    return lambda args, named: [
        named.get(place) if isinstance(place, str) else args[place] for place in places
    ]


def _whole_divisor(args: Sequence[Any], named: dict[str, Any]) -> object:
    """A processor stops at the least whole number divided by -1, rounded towards zero."""
    whole = not any(tensor.is_floating_point() for tensor in tensors_in(args))
    return args[1] if whole and named.get("rounding_mode") == "trunc" else None


def _indices(args: Sequence[Any], _: dict[str, Any]) -> object:
    """Of a sparse tensor of the model's; of an embedding's gradient they have been checked."""
    backward = torch._C._current_graph_task_id() >= 0  # noqa: SLF001 (torch has no other word)
    return None if backward else args[3]


_UNCHECKED: dict[str, Callable[[Sequence[Any], dict[str, Any]], object]] = {
    "_ctc_loss": _at(1),  # classes
    "segment_reduce": _at("lengths", "offsets"),
    **dict.fromkeys(("_embedding_bag", "_embedding_bag_forward_only"), _at(2)),  # offsets
    "_sparse_coo_tensor_with_dims_and_tensors": _indices,
    "sparse_compressed_tensor": _at(0, 1),
    "_sparse_compressed_tensor_unsafe": _at(0, 1),
    "_convert_indices_from_coo_to_csr": _at(0),
    "_convert_indices_from_csr_to_coo": _at(0, 1),
    "div": _whole_divisor,
    "binomial": _at(0),  # of NaN trials it draws for ever
    "linalg_eig": _at(0),  # as which eigvals is seen here, which crashes at what is not finite
    # Degrees up to which they count, and numbers below 0 from which they do.
    **dict.fromkeys(("special_legendre_polynomial_p", "special_laguerre_polynomial_l"), _at(1)),
    "special_zeta": _at(1),
    "polygamma": lambda args, _: next((n for n in args if isinstance(n, int) and n < 2), args),
}


class RaisingOperations(OperationMode):
    """Their names, where what they are given follows from records.

    Inside, a ModelError names the first that one record could stop the process or a device with.

    Args:
        device: that they are for.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()
        self._is_processor = device.type == "cpu"
        self._followed: set[int] = set()  # addresses of numbers that follow from records

    def seen_in(self, work: Work) -> Work:
        """The work on a piece, watched."""

        def watched(inputs: torch.Tensor, targets: Tensors, kept: torch.Tensor) -> NDArray[Any]:
            with self.following((inputs, targets)):
                return work(inputs, targets, kept)

        return watched

    @contextmanager
    def following(self, records: object) -> Iterator[None]:
        """Watch what is done inside with the tensors among the records."""
        self._followed = set(addresses(records))
        with self:
            yield

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        follows = self._follows((args, kwargs))
        unchecked = _UNCHECKED.get(str(func).split(".")[1].rstrip("_"))
        if follows and unchecked and self._follows(unchecked(args, kwargs or {})):
            raise ModelError(
                f"expected operations that take any number a record may hold, found {func}, which "
                "does not check it and may stop the process; give it there only what is public, or "
                "use one that checks, as torch.gather and torch.scatter_add do"
            )
        if follows and (_RAISING.fullmatch(str(func)) or _takes_by_mask(func, args)):
            self.names.add(str(func))
            if not self._is_processor and _STOPPING.fullmatch(str(func)):
                raise ModelError(
                    f"expected a model that never stops a GPU, found {func}, which does at some "
                    'records; take device = "cpu"'
                )
        given = func(*args, **(kwargs or {}))
        (self._followed.update if follows else self._followed.difference_update)(addresses(given))
        return given

    def _follows(self, values: object) -> bool:
        return not self._followed.isdisjoint(addresses(values))


# Where a number of a record says which row of a table is taken, and the table has no such row, a
# processor raises, and the record adds nothing. A device stops for good instead, so that one record
# would take all others out of the sum. There the nearest row is taken (docs/privacy.md P14).

_Bounds = Callable[[list[Any]], None]


def _of_rows(place: int, rows: Callable[[list[Any]], int], *, wraps: bool = False) -> _Bounds:
    """The argument at a place names rows: from 0, or where it `wraps` from as many below 0."""

    def bound(given: list[Any]) -> None:
        count = rows(given)
        given[place] = given[place].clamp(-count if wraps else 0, count - 1)

    return bound


def _of_axes(given: list[Any]) -> None:
    """The second argument has indices, or None, for one axis of the first after the other."""
    table, places, axis = given[0], list(given[1]), 0
    for at, index in enumerate(places):
        if index is None or index.dtype not in (torch.bool, torch.uint8):
            if index is not None:
                places[at] = index.clamp(-table.shape[axis], table.shape[axis] - 1)
            axis += 1
        else:
            axis += index.dim()
    given[1] = places


def _along(given: list[Any]) -> int:
    """How long the first argument is along the axis that the second names."""
    return int(given[0].shape[given[1]]) if given[0].dim() else 1


def _of_classes(place: int, *, least: int = 0) -> _Bounds:
    """The argument at a place names columns of the one before; -1, if it is least, ends a list."""

    def bound(given: list[Any]) -> None:
        scores = given[place - 1]
        given[place] = given[place].clamp(least, scores.shape[1 if scores.dim() > 1 else 0] - 1)

    return bound


def _but_ignored(place: int) -> _Bounds:
    """The same, but for the class that the loss ignores, its third argument after that place."""
    within = _of_classes(place)

    def bound(given: list[Any]) -> None:
        classes = given[place]
        within(given)
        given[place] = torch.where(classes == given[place + 3], classes, given[place])

    return bound


def _of_chances(given: list[Any]) -> None:
    """Predictions and targets are from 0 to 1; what is no number stays none on the way back."""
    given[:2] = [chances.nan_to_num().clamp(0, 1) for chances in given[:2]]


_OF_TABLE = _of_rows(1, lambda given: len(given[0]))
_OF_ALL = _of_rows(1, lambda given: int(given[0].numel()), wraps=True)
# Backward passes are among them: what is looked up was kept for these as the model gave it.
_LOOKUPS: dict[str, _Bounds] = {
    **dict.fromkeys(("embedding", "_embedding_bag", "_embedding_bag_forward_only"), _OF_TABLE),
    "embedding_renorm": _OF_TABLE,
    "embedding_dense_backward": _of_rows(1, lambda given: int(given[2])),
    "_sparse_coo_tensor_with_dims_and_tensors": _of_rows(3, lambda given: int(given[2][0])),
    "_embedding_bag_backward": _of_rows(1, lambda given: int(given[6])),
    "_embedding_bag_per_sample_weights_backward": _of_rows(2, lambda given: len(given[1])),
    **dict.fromkeys(("take", "put"), _OF_ALL),
    **dict.fromkeys(("index", "_unsafe_index", "index_put", "_index_put_impl"), _of_axes),
    "_unsafe_index_put": _of_axes,
    **dict.fromkeys(("gather", "scatter", "scatter_add", "scatter_reduce"), _of_rows(2, _along)),
    **dict.fromkeys(
        ("index_select", "index_add", "index_copy", "index_reduce"), _of_rows(2, _along)
    ),
    "index_fill": _of_rows(2, _along, wraps=True),
    **dict.fromkeys(("max_unpool2d", "max_unpool3d"), _of_rows(1, lambda given: prod(given[2]))),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), _but_ignored(1)),
    **dict.fromkeys(("nll_loss_backward", "nll_loss2d_backward"), _but_ignored(2)),
    "multi_margin_loss": _of_classes(1),
    "multi_margin_loss_backward": _of_classes(2),
    "multilabel_margin_loss_forward": _of_classes(1, least=-1),
    "multilabel_margin_loss_backward": _of_classes(2, least=-1),
    "binary_cross_entropy": _of_chances,
}


class LookupsWithin(OperationMode):
    """Has every lookup on a device take a row that there is, and chances be some.

    Attributes:
        met: whether there was one.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device, self.met = device, False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        bound = _LOOKUPS.get(str(func).split(".")[1].rstrip("_"))
        tensors = (value for value in args if isinstance(value, torch.Tensor))
        if bound is not None and any(tensor.device == self._device for tensor in tensors):
            self.met, given = True, list(args)
            bound(given)
            args = given
        return func(*args, **(kwargs or {}))


# Whether a model does more for one record than for another of the same shape.
#
# A model that runs as a chain or under vmap cannot: its operations are the same whatever the
# records hold. One that is taken row by row can, by a loop to a record's length or a branch; how
# long it takes then tells of records (docs/privacy.md P19). It is run on made-up records here, and
# torch's operations are counted: a difference shows that it does, no difference shows nothing.

_FILLS = (0.0, -1.0, 1.0, torch.nan)  # what stands behind the end of a short record
_CONSTANTS = (1.0, 2.0, 3.0, 5.0, 8.0)  # codes, or lengths


def work_varies(model: nn.Module, loss: Loss, inputs: Tensors, targets: Tensors) -> bool:
    """Whether made-up records make the model run other operations, or on other shapes."""
    batch, layout, done = batch_of(inputs, targets), layout_of(model), set()
    row = batch.piece(0, 1)
    loss(model(*row.inputs), row.targets)  # what is made once
    rows = [batch.piece(k, k + 1) for k in range(1, batch.size)]
    for record, change in [*((record, torch.clone) for record in (row, *rows)), *_changes(row)]:
        with suppress(Exception, SystemExit), seeded(0, device_under(model) or _CPU):
            # what raises is no record that takes part
            changed = replace(record, inputs=tuple(map(change, record.inputs)))
            with torch.enable_grad(), _Operations() as operations:
                loop_parts(model, loss, layout, changed)
            done.add(tuple(operations.seen))
    return len(done) > 1


def _changes(row: Batch) -> Iterator[tuple[Batch, Change]]:
    """How a record is made unlike itself in whatever a model may look at."""
    yield from ((row, kind) for kind in WILD)
    yield from ((row, partial(torch.full_like, fill_value=value)) for value in _CONSTANTS)
    for fill in _FILLS:
        yield from ((row, partial(_shortened, part=part, fill=fill)) for part in (2, 4))


def _shortened(values: torch.Tensor, *, part: int, fill: float) -> torch.Tensor:
    """(1, n, ...) with a fill behind that part of it."""
    short = values.clone()
    short[:, values.shape[1] // part :] = fill
    return short


class _Operations(OperationMode):
    """What torch was asked to do, and on which shapes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[object] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        shapes = tuple(tuple(arg.shape) for arg in args if isinstance(arg, torch.Tensor))
        self.seen.append((str(func), shapes))
        return func(*args, **(kwargs or {}))


def rows_are_alone(
    work: Work,
    trial: Trial,
    targets: Tensors,
    size: int,
    device: torch.device,
    kinds: Sequence[Change] = WILD,
) -> bool:
    """Whether a few rows of a piece add the same, bit for bit, whatever is in the others (A2).

    A few rows of made-up records are summed among null records and again among wild ones, of one
    kind after the other, on the machine and the model at hand.

    Raises:
        ModelError: the model raises on made-up records.
    """
    watched = np.unique([0, size // 2, size - 1])[: len(trial.inputs)]
    kept = torch.zeros(size, dtype=torch.bool, device=_CPU)
    kept[watched] = True
    labels = on_device(targets, device, lambda values: values[:1].expand(size, *values.shape[1:]))

    def added(others: torch.Tensor) -> bytes:
        inputs = others.clone()
        inputs[watched] = trial.inputs[: len(watched)]
        with seeded(_SEED, device):
            return work(inputs.to(device), labels, kept).tobytes()

    null = torch.from_numpy(trial.null).expand(size, *trial.null.shape)
    alike = trial.inputs[np.arange(size) % len(trial.inputs)]
    alone = unquoted(partial(added, null))
    if added(alike) != alone:
        return False
    for kind in kinds:
        # What the model cannot take is in no row of a real piece either.
        with suppress(Exception, SystemExit):
            if added(kind(alike)) != alone:
                return False
    return True
