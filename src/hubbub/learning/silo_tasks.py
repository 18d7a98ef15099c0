"""A silo's records beside the model that is trained on them: sums of clipped gradients.

Sums of at most a few dozen rows are made in float32 and added up in float64, so that the rounding
of the sum stays within the margin that the plan takes off the clipping norm (docs/privacy.md P6 i
and P14); on a device all rows at once, in float64. In which rows records stand, and what becomes
of one at which the model raises, is in batches.py.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from math import prod, sqrt
from threading import Lock
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hubbub.core.errors import ModelError
from hubbub.core.kept_pages import kept_pages
from hubbub.core.protocol.primitives.randomness import KEY_BYTES
from hubbub.core.tabular.records import Records
from hubbub.learning.batches import (
    Loss,
    PaddedBatches,
    Rows,
    Tensors,
    UnitLoss,
    UnitModel,
    batch_of,
    even_size,
    on_device,
    piece_size,
)
from hubbub.learning.clipped_sums import UNABLE, ClippedSum, affordable, clipped_sum
from hubbub.learning.device_sums import takes_all_at_once
from hubbub.learning.model_state import (
    attributes_restored,
    state_held,
    state_unchanged,
    writes_refused,
    zeros_filled,
)
from hubbub.learning.parameters import layout_of, load_parameters
from hubbub.learning.queries.beside_training import ScoreVector
from hubbub.learning.self_check import checked_method
from hubbub.learning.target_types import CLASSES, MOST_LOSS, TargetType
from hubbub.learning.torch_settings import computing, device_of, is_on, made_on, seeded
from hubbub.learning.trial import (
    LookupsWithin,
    RaisingOperations,
    Trial,
    kinds_for,
    rows_are_alone,
    tried_on,
    unquoted,
)
from hubbub.learning.views import Views
from hubbub.learning.vmapped import vmapped_losses

_PROCESSOR = torch.device("cpu")
# Silos of one process may share a replica of the model, whose parameters are written here.
REPLICA = Lock()
_REPLICAS: WeakKeyDictionary[nn.Module, dict[torch.device, nn.Module]] = WeakKeyDictionary()
# Of a model: rows of a piece, how many are taken at once, and whether they are alone.
CHECKED: WeakKeyDictionary[nn.Module, dict[object, tuple[int, int, bool]]] = WeakKeyDictionary()
_LOOKING_UP: WeakSet[nn.Module] = WeakSet()  # models that are on a device and look rows up


def replica(model: nn.Module, device: torch.device) -> nn.Module:
    """The model itself if it is on that device, else one copy there that all silos share.

    The copy has its own parameters: load them before use, while holding `REPLICA`.
    """
    if is_on(model, device):
        return model
    copies = _REPLICAS.setdefault(model, {})
    if device not in copies:
        copies[device] = copy.deepcopy(model).to(device)
    return copies[device]


def places_of(model: nn.Module) -> int:
    """The records that a unit of the model has at most; 0 where each record is one."""
    return model.places if isinstance(model, UnitModel) else 0


class _Task:
    """Of one silo: its records in rows, none of which anything shows."""

    _rows: PaddedBatches

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<private>)"

    @property
    def count(self) -> int:
        """Number of units; never leaves the silo."""
        return self._rows.count


class GradientProjection(Protocol):
    """What makes a few numbers of each record's gradient, before it is clipped (P8 (6))."""

    @property
    def dimension(self) -> int:
        """k, how many."""

    @property
    def clipped_sum(self) -> Callable[..., ClippedSum]:
        """As `hubbub.learning.clipped_sum`, with `draw_key`, the 16 public bytes that draw it."""


class TrainingTask(_Task):
    """One silo's records, and the model that is trained on them.

    Guarantees:
        1. A record's part in a sum depends on that record, on its row and on public numbers alone,
           and its L2 norm is at most `clip` (docs/privacy.md P14, P19).
        2. A record on which the model raises, or whose gradient is not finite, adds zero; what the
           model said stays here.

    Args:
        model: the silo's replica; silos of one process may share it. A `UnitModel` where the
            records are those of patients, each of whom then is one unit (docs/privacy.md P21).
        records: the silo's own.
        clip: L2 norm to which each record's gradient is clipped, in units of the gradient.
        margin: the relative rounding error of the sum that `clip` already allows for; no unit.
        method: one that `hubbub.learning.clipped_sum` takes.
        capacity: the most records that the silo may hold, public; as many as there are if None.
        rows: of a batch, public; the capacity if None.
        device: a name that `hubbub.learning.device_of` takes.
        target_type: what the model is trained for; that of a classifier if it is left out.
        views: of each record, which the model then sees as a `UnitModel` of so many places, or of
            so many for each place of a patient; None: the record itself.
        precision: of forward and backward on a device, as `hubbub.learning.clipped_sum` takes it.
        layers: makes the model's projection, through which `projected_sum` is going to be asked
            for; None: `clipped_sum` is.

    Raises:
        UserError: there is no such device.
        ModelError: the model cannot take made-up records of this shape.
        StudyError: there is no loss for the records' targets, or the projection does not fit.

    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Flatten(0))
    >>> records = Records(
    ...     inputs=np.ones((4, 2), np.float32), targets=np.array([0, 0, 0, 1], np.float32)
    ... )
    >>> task = TrainingTask(model, records, clip=1.0, margin=1e-5, method="auto")
    >>> task.clipped_sum(np.zeros(3, np.float32), np.arange(4)).round(3).tolist()
    [1.0, 1.0, 1.0]
    """

    @made_on(_PROCESSOR)
    def __init__(
        self,
        model: nn.Module,
        records: Records,
        *,
        clip: float,
        margin: float,
        method: str,
        capacity: int | None = None,
        rows: int | None = None,
        device: str = "cpu",
        target_type: TargetType = CLASSES,
        views: Views | None = None,
        precision: str = "float32",
        layers: Callable[[nn.Module], GradientProjection] | None = None,
    ) -> None:
        self._precision = precision
        self.capacity = records.units if capacity is None else capacity
        self._clip, self._device = clip, device_of(device)
        self._model = replica(model, self._device)
        self._layers = layers and layers(self._model)
        self._dimension = layout_of(model).size
        model = replica(model, _PROCESSOR)  # where what it cannot take raises, and stops no device
        trial, targets, self._loss = tried_on(model, records, target_type)
        self._method = method
        self._key = (trial.inputs.shape, self._dimension, records.targets.dtype, target_type)
        if method == "auto":
            tried = partial(checked_method, model, self._loss, trial.inputs, targets)
            self._method = unquoted(tried)
        most = self._checked(trial, targets, self.capacity if rows is None else rows, margin)
        places, null = places_of(model), trial.null
        if views is not None:  # of which the null record, or null unit, has as many
            places = 0 if records.patients is None else places // views.count
            null = null[:places] if places else null[0]
            made_up = torch.from_numpy(null if places else null[None])
            with seeded(0, _PROCESSOR):  # or every piece would raise, and add nothing
                unquoted(partial(views.make, made_up, 1), "let training.augment.kind take them")
        self._rows = PaddedBatches(
            records, null, most=most, device=self._device, places=places, views=views
        )

    def clipped_sum(self, parameters: NDArray[np.float32], rows: Rows) -> NDArray[np.float64]:
        """Sum over the rows' records of clipped gradients, without noise.

        Args:
            parameters: (d,) float32, of the model at which gradients are taken.
            rows: (m,) positions of records, from 0, or EMPTY, which is -1; m is public.

        Returns:
            (d,) float64, in units of the gradient; zeros if all rows are empty.

        Raises:
            DataError: the parameters are not of length d.
        """
        return self._total(partial(clipped_sum, self._model), parameters, rows, self._dimension)

    def projected_sum(
        self, parameters: NDArray[np.float32], rows: Rows, draw_key: bytes
    ) -> NDArray[np.float64]:
        """The same of gradients projected layer by layer, then clipped.

        Args:
            parameters, rows: as for `clipped_sum`.
            draw_key: the 16 public bytes that make the matrices.

        Returns:
            (k,) float64, in units of the gradient.

        Raises:
            DataError: as for `clipped_sum`.
        """
        assert self._layers is not None, "the task was made with layers"  # noqa: S101
        return self._total(self._summing(draw_key), parameters, rows, self._layers.dimension)

    def _summing(self, draw_key: bytes = bytes(KEY_BYTES)) -> Callable[..., ClippedSum]:
        """The clipped sum that is going to be asked for: of gradients, or of projected ones."""
        if self._layers is None:
            return partial(clipped_sum, self._model)
        return partial(self._layers.clipped_sum, self._model, draw_key=draw_key)

    def _total(
        self,
        summed: Callable[..., ClippedSum],
        parameters: NDArray[np.float32],
        rows: Rows,
        size: int,
    ) -> NDArray[np.float64]:
        """Sums of a few rows each, in float64, while nobody else writes to the replica."""
        bounded = _rows_there_are(self._model, self._device, self._method)
        with REPLICA, computing(self._device), bounded:
            load_parameters(self._model, parameters)
            with state_held(self._model):
                return self._rows.total(rows, size, partial(self._piece, summed))

    def _piece(
        self,
        summed: Callable[..., ClippedSum],
        inputs: torch.Tensor,
        targets: Tensors,
        kept: torch.Tensor,
    ) -> NDArray[Any]:
        """The sum over a piece's kept rows."""
        with attributes_restored(self._model):
            part = summed(
                self._loss,
                inputs,
                targets,
                self._clip,
                method=self._method,
                chunk=self._chunk,
                counted=kept,
                precision=self._precision,
            )
        return np.asarray(part.vector.cpu().numpy())

    def _checked(self, trial: Trial, targets: Tensors, rows: int, margin: float) -> int:
        """Rows of a piece of such a batch; sets how many of them the method takes at once.

        A2 is not taken on trust: where what a row adds moves with what stands in the others, or an
        operation may raise, every row becomes a piece of its own, as with the loop.
        """
        known, raising = CHECKED.setdefault(self._model, {}), RaisingOperations(self._device)
        key = (self._method, rows, margin, self._precision, self._layers, self._key)
        if key not in known:
            seen = _lookups_seen(self._model, self._device)
            with REPLICA, computing(self._device), seen, kept_pages(self._dimension):
                few = trial.inputs.to(self._device), on_device(targets, self._device)
                with RaisingOperations(self._device).following(few):
                    most, products = unquoted(
                        partial(affordable, self._model, self._loss, *few, self._method)
                    )
                within = 1 if self._method == "loop" else rows_within(margin, products)
                if within > 1 and takes_all_at_once(self._device, self._dimension):
                    within = rows + 1  # an empty one beside them
                    most = most if self._device.type == "cpu" else within
                size = piece_size(rows, within)
                self._chunk = even_size(size, most)
                work = raising.seen_in(partial(self._piece, self._summing()))
                with zeros_filled(self._model), writes_refused(self._model):
                    kinds = kinds_for(self._model, self._loss)
                    few_rows = rows_tried(size, self._chunk)
                    alone = rows_are_alone(work, trial, targets, few_rows, self._device, kinds)
            known[key] = size, self._chunk, alone and not raising.names
        size, self._chunk, alone = known[key]
        if not alone:
            self._method, self._chunk = "loop", 1
        return size if alone else 1


def rows_tried(size: int, chunk: int) -> int:
    """Rows of the piece on which A2 is tried, in place of one of `size` that is cut by `chunk`.

    All parts of a piece but the last are of one shape. Four show all that there is: the first
    begins the sum, of the next two one holds a row that counts, the last may be shorter.
    """
    return size if size <= 4 * chunk else 3 * chunk + (size % chunk or chunk)


@contextmanager
def _lookups_seen(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Remember of a model on a device whether it looks rows up, none of which is past a table."""
    if device.type == "cpu":
        yield
        return
    with LookupsWithin(device) as lookups:
        yield
    if lookups.met:
        _LOOKING_UP.add(model)


def _rows_there_are(
    model: nn.Module, device: torch.device, method: str = ""
) -> AbstractContextManager[object]:
    """Lookups of a model on a device are of rows that there are (docs/privacy.md P14).

    Row by row it may look up at some records alone, which no made-up one shows.
    """
    varies = method == "loop" and device.type != "cpu"
    return LookupsWithin(device) if varies or model in _LOOKING_UP else nullcontext()


def rows_within(margin: float, products: int = 1) -> int:
    """Most rows P of a float32 sum with 2 P (P + 2) 2^-24 <= margin (P6 i).

    Where each row is the sum of t > 1 products, with 2 sqrt(t) P (t P + 4) 2^-24 (P21).
    """
    most = margin * 2.0**23
    if products == 1:
        return max(1, int(sqrt(most + 1)) - 1)
    return max(1, int((sqrt(4 + sqrt(products) * most) - 2) / products))


@dataclass(frozen=True)
class ScoreMarks:
    """A short vector of how well a record is done, and of its loss (docs/privacy.md P16)."""

    vector: ScoreVector

    @property
    def size(self) -> int:
        """That it is there, its score, its loss."""
        return 3

    def columns(
        self,
        target_type: TargetType,
        outputs: torch.Tensor,
        targets: torch.Tensor,
        losses: torch.Tensor,
    ) -> torch.Tensor:
        """(3, n)."""
        marks = target_type.record_score(outputs, targets).double()
        # What is not a number counts as the largest loss and error, as a wrong class does (P16).
        marks = marks.nan_to_num(nan=1.0).clamp(0.0, 1.0)
        bounded = (losses.double() / MOST_LOSS).nan_to_num(nan=1.0).clamp(0.0, 1.0)
        presence, scale = self.vector.presence, self.vector.scale
        scores = torch.stack([marks, bounded])
        return torch.cat([torch.full_like(bounded, presence)[None], scale * (scores - 0.5)])


class Placed(Protocol):
    """Public cells, a row for each bin of predictions and a column for each outcome."""

    @property
    def shape(self) -> tuple[int, int]:
        """How many rows and columns."""

    def places(
        self, predicted: NDArray[Any], targets: NDArray[Any]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """(n,) the row and the column of each record."""


@dataclass(frozen=True)
class CellMarks:
    """A 1 in the cell of a record's prediction and outcome, 0 elsewhere (docs/privacy.md P27)."""

    cells: Placed

    @property
    def size(self) -> int:
        """How many cells."""
        return prod(self.cells.shape)

    def columns(
        self,
        target_type: TargetType,
        outputs: torch.Tensor,
        targets: torch.Tensor,
        losses: torch.Tensor,
    ) -> torch.Tensor:
        """(cells, n)."""
        predicted, known = target_type.compared(outputs, targets.cpu().numpy())
        place = np.ravel_multi_index(self.cells.places(predicted, known), self.cells.shape)
        hot = np.zeros((self.size, len(place)))
        hot[place, np.arange(len(place))] = 1.0
        return torch.from_numpy(hot).to(outputs.device)


# What a record adds to an evaluation follows from its own prediction, target and loss.
Marks = ScoreMarks | CellMarks


_ADD_REMOVE = ScoreMarks(ScoreVector.of("add-remove"))
_MOST_EVALUATED = 128  # rows of the largest piece of an evaluation


class EvaluationTask(_Task):
    """A silo's records beside a trained model: the sum of what each says of itself by its marks.

    Of patients it is the sum of what is each one's mean. Nothing is clipped, since what a record
    adds is bounded by its marks (docs/privacy.md P16, P27).

    Guarantees:
        1. A record's part depends on that record, on its row and on public numbers alone: it is
           found under vmap or one by one, where the model is more than a chain of known layers
           (docs/privacy.md P19).

    Args:
        model: as for `TrainingTask`.
        records: that the model is compared with, such as those that are held back.
        method, capacity, device, target_type: as for `TrainingTask`.
        marks: how a record becomes a vector; by its score and loss if it is left out.

    Raises:
        UserError: there is no such device.
        ModelError, StudyError: as for `TrainingTask`.

    >>> model = nn.Sequential(nn.Linear(2, 1), nn.Flatten(0))
    >>> records = Records(
    ...     inputs=np.ones((4, 2), np.float32), targets=np.array([0, 0, 0, 1], np.float32)
    ... )
    >>> task = EvaluationTask(model, records)
    >>> total = task.clipped_sum(np.ones(3, np.float32), np.arange(4))
    >>> round(ScoreVector.of("add-remove").scores_of(total)[0], 6)
    0.25
    """

    @made_on(_PROCESSOR)
    def __init__(
        self,
        model: nn.Module,
        records: Records,
        *,
        method: str = "auto",
        capacity: int | None = None,
        device: str = "cpu",
        target_type: TargetType = CLASSES,
        marks: Marks = _ADD_REMOVE,
    ) -> None:
        self.capacity = records.units if capacity is None else capacity
        self._device, self._marks = device_of(device), marks
        self._model = replica(model, self._device)
        self._layout = layout_of(self._model)
        model = replica(model, _PROCESSOR)  # where what it cannot take raises, and stops no device
        trial, targets, loss = tried_on(model, records, target_type)
        self._each: Loss = loss.each if isinstance(loss, UnitLoss) else loss
        self._target_type = target_type
        self._key = (trial.inputs.shape, self._layout.size, records.targets.dtype, target_type)
        self._method = "loop" if method == "auto" else method
        if method == "auto":
            with suppress(ModelError):  # row by row no model mixes
                tried = partial(checked_method, model, loss, trial.inputs, targets)
                self._method = unquoted(tried)
        most = self._checked(trial, targets, piece_size(self.capacity, _MOST_EVALUATED))
        self._rows = PaddedBatches(
            records, trial.null, most=most, device=self._device, places=places_of(model)
        )

    def clipped_sum(self, parameters: NDArray[np.float32], rows: Rows) -> NDArray[np.float64]:
        """What the rows' records add to an evaluation, without noise.

        Args:
            parameters, rows: as for `TrainingTask.clipped_sum`.

        Returns:
            (size of the marks,) float64: each record adds its marks, such as the `ScoreVector` of
            what the goal finds of it (1 for the right class) and of its loss / MOST_LOSS, both from
            0 to 1; nothing if the model raises on it.

        Raises:
            DataError: the parameters are not of length d.
        """
        with self._evaluating(), _rows_there_are(self._model, self._device, self._method):
            load_parameters(self._model, parameters)
            with state_held(self._model):
                return self._rows.total(rows, self._marks.size, partial(self._piece, self._marks))

    def _checked(self, trial: Trial, targets: Tensors, size: int) -> int:
        """Rows of a piece of at most `size`, as `TrainingTask` checks them (A2)."""
        known, raising = CHECKED.setdefault(self._model, {}), RaisingOperations(self._device)
        key = ("evaluation", self._method, size, self._key)
        if key not in known:
            kinds = kinds_for(self._model, self._each)
            seen = _lookups_seen(self._model, self._device)
            with self._evaluating(), seen, zeros_filled(self._model), writes_refused(self._model):
                # A single made-up row may not have the model write to its tensors (P14).
                row = trial.inputs[:1].to(self._device)
                label = on_device(targets, self._device, lambda values: values[:1])
                # Nor may it stop a device, be it taken row by row from the beginning.
                alone_first = RaisingOperations(self._device).seen_in(self._row)
                with state_unchanged(self._model):
                    unquoted(partial(alone_first, row, label, torch.ones(1, dtype=torch.bool)))
                # A record's score moves with its output; the cell it is in may not.
                work = raising.seen_in(partial(self._piece, _ADD_REMOVE))
                alone = False
                few = trial.inputs.to(self._device), on_device(targets, self._device)
                with suppress(*UNABLE):  # in evaluation a model may do what vmap cannot take
                    alone = self._method != "loop" and len(self._losses(*few)) == 2
                if alone:
                    alone = rows_are_alone(work, trial, targets, size, self._device, kinds)
            known[key] = size, size, alone and not raising.names
        if known[key][-1]:
            return size
        self._method = "loop"
        return 1

    def _row(self, inputs: torch.Tensor, targets: Tensors, _: torch.Tensor) -> NDArray[np.float64]:
        """A row through the model and the loss, of which nothing is kept."""
        self._each(self._model(inputs.clone()), targets)
        return np.zeros(0)

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """The replica in evaluation mode, while nobody else writes to it."""
        with REPLICA, computing(self._device), torch.no_grad():
            training = self._model.training
            self._model.eval()
            try:
                yield
            finally:
                self._model.train(training)

    def _piece(
        self, marks: Marks, inputs: torch.Tensor, targets: Tensors, kept: torch.Tensor
    ) -> NDArray[np.float64]:
        # What is written is seen first, and then put back with what it was written in.
        with attributes_restored(self._model), state_unchanged(self._model):
            outputs, losses = self._losses(inputs, targets)
        labels, *weights = targets if isinstance(targets, tuple) else (targets,)
        if weights:  # of a unit's places
            outputs, labels = outputs.flatten(0, 1), labels.flatten(0, 1)
        columns = marks.columns(self._target_type, outputs, labels, losses.reshape(-1))
        if weights:  # which add up to 1
            columns = (columns.reshape(marks.size, *losses.shape) * weights[0]).sum(2)
        return columns.masked_fill(~kept.to(columns.device), 0.0).sum(1).cpu().numpy()

    def _losses(self, inputs: torch.Tensor, targets: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
        """Outputs and losses of rows; no row sees another, whatever the model does."""
        batch = batch_of(inputs, targets).copied()
        if self._method == "vmap":
            return vmapped_losses(self._model, self._each, self._layout, batch)
        outputs = self._model(*batch.inputs)  # of known layers, or of one row
        return outputs, self._each(outputs, batch.targets)
