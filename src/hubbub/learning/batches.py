"""A batch of records: tensors that share their first dimension, cut into pieces and single records.

Also what "the loss of one record" means here: the model sees a batch of one. Every method computes
the gradient of exactly this function. This file knows nothing of gradients.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hubbub.core.errors import DataError, ModelError, UserError
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.round.batches import EMPTY
from hubbub.core.tabular.records import Records, unit_rows
from hubbub.learning.torch_settings import has_room, seeded
from hubbub.learning.views import Views

Tensors = torch.Tensor | tuple[torch.Tensor, ...]
Loss = Callable[[Any, Any], torch.Tensor]
# From inputs, targets and which rows are kept, to a vector; the others hold the null record.
Work = Callable[[torch.Tensor, Tensors, torch.Tensor], NDArray[Any]]
# Torch and the libraries under it say the same by several types, and in words of a RuntimeError.
_SHORT_OF_MEMORY = re.compile(
    r"out of memory|DefaultCPUAllocator|bad_alloc"
    r"|CU(BLAS|DNN|SOLVER)_\w*(ALLOC_FAILED|ALLOCATION_FAILED|NOT_INITIALIZED)"
)
_STOPPED = re.compile(
    r"(CUDA|HIP)( driver)? error: (?!CU)|CU(BLAS|DNN|SOLVER)_\w*(EXECUTION_FAILED|INTERNAL_E)"
)


def lacks_memory(error: BaseException) -> bool:
    """Whether an error says that memory is short, where fewer records at once may fit.

    >>> lacks_memory(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublas`"))
    True
    """
    known = isinstance(error, MemoryError | torch.cuda.OutOfMemoryError)
    return known or _says(_SHORT_OF_MEMORY, error)


def is_of_machine(error: BaseException) -> bool:
    """Whether an error is no fault of a record or a model: memory is short, or a device stopped.

    >>> is_of_machine(RuntimeError("CUDA error: device-side assert triggered"))
    True
    """
    stopped = getattr(torch, "AcceleratorError", MemoryError)  # torch has it from 2.8 on
    return isinstance(error, stopped) or lacks_memory(error) or _says(_STOPPED, error)


def _says(words: re.Pattern[str], error: BaseException) -> bool:
    texts = error.args if isinstance(error, RuntimeError) else ()
    return any(isinstance(text, str) and words.search(text) for text in texts)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Inputs of records, and targets as the loss expects them."""

    inputs: tuple[torch.Tensor, ...]
    targets: Tensors

    @property
    def size(self) -> int:
        """How many records."""
        return len(self.inputs[0])

    def each(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Batch:
        """The batch with every tensor changed in the same way."""
        return Batch(inputs=tuple(map(change, self.inputs)), targets=changed(self.targets, change))

    def piece(self, start: int, stop: int) -> Batch:
        """Records start to stop - 1, in memory of their own: a model may write into its inputs."""
        return self.each(lambda values: values[start:stop].clone())

    def copied(self) -> Batch:
        """All records, in memory of their own."""
        return self.piece(0, self.size)


def changed(values: Tensors, change: Callable[[torch.Tensor], torch.Tensor]) -> Tensors:
    """The tensor, or each of the tuple, changed in one way."""
    return tuple(map(change, values)) if isinstance(values, tuple) else change(values)


def batch_of(inputs: Tensors, targets: Tensors) -> Batch:
    """Check that all tensors hold the same number of records."""
    xs = inputs if isinstance(inputs, tuple) else (inputs,)
    ys = targets if isinstance(targets, tuple) else (targets,)
    if not xs or not ys or not all(t.dim() > 0 for t in (*xs, *ys)):
        raise DataError("expected inputs and targets with one row per record, found a scalar")
    sizes = {len(t) for t in (*xs, *ys)}
    if len(sizes) != 1:
        raise DataError(
            f"expected inputs and targets with the same number of records, found {sorted(sizes)}; "
            "give every tensor one row per record"
        )
    return Batch(inputs=xs, targets=targets)


def single_value(value: torch.Tensor) -> torch.Tensor:
    """The loss of one record as a scalar tensor."""
    if value.numel() != 1:
        raise ModelError(
            f"expected one loss value per record, found {value.numel()} for a single record; "
            "reduce over everything but the first dimension, which is that of the records"
        )
    return value.reshape(())


def on_device(
    values: Tensors,
    device: torch.device,
    change: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor.contiguous,
) -> Tensors:
    """The tensor, or each of the tuple, changed in one way and on that device."""
    return changed(values, lambda value: change(value).contiguous().to(device))


# A patient's rows as one record: the model on all of them, and the mean of their losses.
#
# Theory of operation (docs/privacy.md P21). Every method here sums clipped gradients of *records*.
# A unit of k places is made one: its inputs are (k, ...), the model that sees them is `UnitModel`,
# and its loss the weighted sum over its places, whose gradient is the mean of its rows' gradients.
# So a unit is clipped once, as a record is, and whatever holds for records holds for it. A place
# without a row has weight 0 and holds a row of the same unit, so that it adds nothing of its own.

# Targets (n, k), and the weights of the places (n, k).
Weighted = tuple[torch.Tensor, ...]


class UnitModel(nn.Module):
    """A model on units of k rows, at most `places`: (n, k, ...) to (n, k, ...)."""

    rows: nn.Module

    def __init__(self, rows: nn.Module, places: int) -> None:
        super().__init__()
        self.rows, self.places = rows, places

    def forward(self, units: torch.Tensor) -> torch.Tensor:
        """The outputs of each unit's rows."""
        outputs: torch.Tensor = self.rows(units.flatten(0, 1))
        return outputs.reshape(*units.shape[:2], *outputs.shape[1:])


class UnitLoss:
    """The mean loss of each unit's rows, of the loss of single rows."""

    def __init__(self, rows: Loss) -> None:
        self.rows = rows

    def each(self, outputs: torch.Tensor, targets: Weighted) -> torch.Tensor:
        """(n, k): the loss of every place."""
        losses = self.rows(outputs.flatten(0, 1), targets[0].flatten(0, 1))
        return losses.reshape(targets[1].shape)

    def __call__(self, outputs: torch.Tensor, targets: Weighted) -> torch.Tensor:
        """(n,), of outputs (n, k, ...)."""
        return (self.each(outputs, targets) * targets[1]).sum(1)


def per_unit_model(model: nn.Module, places: int) -> nn.Module:
    """The model as units of so many rows see it; itself where each record is a unit."""
    return UnitModel(model, places) if places else model


def held_back(records: Records, share: float, seed: bytes) -> NDArray[np.bool_]:
    """Which records are held back from training, to be asked about the model (docs/privacy.md P16).

    About this share of them, each by its own bytes and the seed alone, so that one more or less
    changes nothing about the others. Of a patient all are or none, by the bytes of all of them in
    their order.

    Args:
        records: n of them.
        share: probability that a record is held back, in (0, 1).
        seed: public bytes, such as the study id.

    Returns:
        (n,) bool, True for the records that are held back.

    >>> records = Records(
    ...     inputs=np.arange(200, dtype=np.float32)[:, None], targets=np.zeros(200, np.float32)
    ... )
    >>> 10 < held_back(records, 0.2, b"study").sum() < 80
    np.True_
    """
    limit = int(share * 2.0**64)
    units = np.arange(len(records)) if records.patients is None else records.patients
    hashes = [hashlib.sha256(seed) for _ in range(records.units)]
    for unit, x, y in zip(units, records.inputs, records.targets, strict=True):
        hashes[unit].update(x.tobytes() + y.tobytes())
    chosen = [int.from_bytes(digest.digest()[:8], "big") < limit for digest in hashes]
    return np.array(chosen, dtype=bool)[units]


# A silo's records in the rows of batches: pieces of one public shape, whatever the records are.
#
# Theory of operation (docs/privacy.md P19). Which record stands in which row has been drawn
# before. A batch is cut into pieces of equally many rows; an empty
# row holds the null record, which is public and adds nothing. What a kernel makes of a row may
# depend on its own data, on the row, on the piece's shape and on the piece's seed of random
# layers, never on another row's data (A2); so no record moves another's part.
#
# A model that raises ends the whole piece, and with it everybody's part. The rows at fault are
# looked for by halves, in pieces of the same shape with the same seed, and are empty from then
# on: a record on which the model raises adds zero, as one does whose gradient is not finite, and
# the silo answers. Whoever chooses the weights can make the model raise on the null record
# itself. So the last row of a piece is always empty: then all of the piece is zero, however many
# of its rows hold records. A piece of one row needs none, for nobody else's part is in it.
#
# A kernel may round a row by its place and by the shape of the batch, but must not by other rows'
# values. No list of kernels proves that; so it is tried where it is relied on (`rows_are_alone`).
#
# The records stay in ordinary memory and a piece travels to the device; or they are there, where
# they fit. Sums come back.

Array = NDArray[np.float64]
Rows = NDArray[np.intp]


class PaddedBatches:
    """A silo's records, and sums over pieces of batches of them.

    Args:
        null: inputs of the null record, which the model takes; of a record's shape, or of a
            unit's: then each row of a batch holds all that a patient has, and `places` says how
            many records that are.
        most: rows of the largest piece; public.
        source: of the seeds of random layers and views; the operating system's if None.
    """

    def __init__(
        self,
        records: Records,
        null: NDArray[np.float32],
        *,
        most: int,
        device: torch.device,
        places: int = 0,
        source: SecureSource | None = None,
        views: Views | None = None,
    ) -> None:
        self._views = views
        self._records, self._null, self._places = records, null, places
        if (records.patients is None) == bool(places):
            raise DataError(
                "expected a model on units for records of patients, and on records for others, "
                "found one of the two; state data.patient"
            )
        self._units = None if records.patients is None else unit_rows(records.patients, places)
        self._most, self._device = most, device
        self._source = source or SecureSource()
        self._raising = np.zeros(self.count + 1, dtype=bool)
        self._is_machine_at_fault = False
        self._there: list[torch.Tensor] = []  # inputs and targets on the device, the null last
        if has_room(device, records.inputs.nbytes + records.targets.nbytes):
            nulls = null if places else null[None]
            zeros = np.zeros((len(nulls), *records.targets.shape[1:]), records.targets.dtype)
            pairs = ((records.inputs, nulls), (records.targets, zeros))
            self._there = [torch.from_numpy(np.concatenate(pair)).to(device) for pair in pairs]

    def __repr__(self) -> str:
        return "PaddedBatches(<private>)"

    @property
    def count(self) -> int:
        """Number of units, of records where each is one; never leaves the silo."""
        return len(self._records) if self._units is None else len(self._units.rows)

    def total(self, rows: Rows, size: int, work: Work) -> Array:
        """The sum, (size,) float64, of what `work` makes of pieces; zeros if all rows are empty.

        `rows` are (m,) positions of records, or EMPTY; m is public.
        """
        first, *others = pieces(rows, self._most)
        total = self._sum(first, size, work).astype(np.float64, copy=False)
        for piece in others:
            total += self._sum(piece, size, work)
        return total

    def _sum(self, piece: Rows, size: int, work: Work) -> NDArray[Any]:
        """The work on one piece, without the rows at which the model raises."""
        seed = int(self._source.words(1)[0] >> np.uint64(1))
        run = partial(self._run, seed, work)
        shared = len(piece) > 1  # else nobody else's part is in it
        if shared:
            piece = np.where(self._raising[piece], EMPTY, piece)  # EMPTY, the last, never raises
        part = run(piece)
        if part is None and shared and run(np.full_like(piece, EMPTY)) is not None:
            fault = self._at_fault(piece, np.flatnonzero(piece != EMPTY), run)
            self._raising[piece[fault]] = True  # and no log has a word of it
            piece[fault] = EMPTY
            part = run(piece)
        if part is None:
            self._check_machine(run, piece)
        return np.zeros(size) if part is None else part

    def _check_machine(self, run: Callable[[Rows], NDArray[Any] | None], piece: Rows) -> None:
        """Refuse to send nothing but noise where the machine cannot even sum null records.

        Raises:
            UserError: it lacks memory, or its device has stopped.
        """
        # P19: whether it can is no word about a record.
        nothing = np.full_like(piece, EMPTY)
        if self._is_machine_at_fault and run(nothing) is None and self._is_machine_at_fault:
            raise UserError(
                f"expected memory for {len(piece)} rows at once and a device that works, found "
                f'{self._device} without; free it for hubbub, or take device = "cpu"'
            )

    def _run(self, seed: int, work: Work, piece: Rows) -> NDArray[Any] | None:
        """The work on one piece; None where the model raises."""
        held = piece != EMPTY
        try:
            xs, *ys = self._tensors(piece, held)
            with seeded(seed, self._device):
                if self._views is not None:
                    xs, ys = self._views.of(xs, ys, self._places)
                return work(xs, ys[0] if len(ys) == 1 else tuple(ys), torch.from_numpy(held))
        except KeyboardInterrupt:  # of the people at the machine
            raise
        except BaseException as error:  # noqa: BLE001 (the model is the user's, and may call exit())
            self._is_machine_at_fault = is_of_machine(error)
            return None  # what it says may quote a record

    def _tensors(self, piece: Rows, held: NDArray[np.bool_]) -> list[torch.Tensor]:
        """Inputs and targets of a piece on the device; of units, the weight of each place."""
        if self._there:
            rows = torch.from_numpy(self._numbers(piece, held)).to(self._device)
            tensors = [values[rows] for values in self._there]
        else:
            arrays = self._filled(piece, held)
            tensors = [torch.from_numpy(values).to(self._device) for values in arrays]
        if self._units is not None:
            weights = np.full((len(piece), self._places), 1 / self._places, dtype=np.float32)
            weights[held] = self._units.shares[piece[held]]
            tensors.append(torch.from_numpy(weights).to(self._device))
        return tensors

    def _filled(self, piece: Rows, held: NDArray[np.bool_]) -> list[NDArray[Any]]:
        places = (len(piece), self._places) if self._places else (len(piece),)
        inputs = np.repeat(self._null[None], len(piece), axis=0)
        of_silo = self._records.targets
        targets = np.zeros((*places, *of_silo.shape[1:]), dtype=of_silo.dtype)
        mine = piece[held] if self._units is None else self._units.rows[piece[held]]
        inputs[held], targets[held] = self._records.inputs[mine], of_silo[mine]
        return [inputs, targets]

    def _numbers(self, piece: Rows, held: NDArray[np.bool_]) -> Rows:
        """Where a piece's records are on the device; of units, where those of each place are."""
        if self._units is None:
            return np.where(held, piece, len(self._records))
        empty = len(self._records) + np.arange(self._places)
        numbers = np.tile(empty, (len(piece), 1))
        numbers[held] = self._units.rows[piece[held]]
        return numbers

    def _at_fault(
        self, piece: Rows, suspects: NDArray[np.intp], run: Callable[[Rows], NDArray[Any] | None]
    ) -> list[int]:
        """The rows at which the model raises, of those suspected, each tried without the others."""
        alone = np.full_like(piece, EMPTY)
        alone[suspects] = piece[suspects]
        if not suspects.size or run(alone) is not None:
            return []
        if suspects.size == 1:
            return [int(suspects[0])]
        first, second = np.array_split(suspects, 2)
        return self._at_fault(piece, first, run) + self._at_fault(piece, second, run)


def pieces(rows: Rows, most: int) -> list[Rows]:
    """The rows in as few pieces of one length, at most `most`, as there can be.

    The last row of a piece is empty, unless it is the only one (P19).

    >>> [one.tolist() for one in pieces(np.arange(5), 4)]
    [[0, 1, 2, -1], [3, 4, -1, -1]]
    """
    size = piece_size(len(rows), most)
    held = max(1, size - 1)
    count = max(1, -(-len(rows) // held))
    padded = np.full((count, size), EMPTY, dtype=np.intp)
    filled = np.full(count * held, EMPTY, dtype=np.intp)
    filled[: len(rows)] = rows
    padded[:, :held] = filled.reshape(count, held)
    return list(padded)


def piece_size(rows: int, most: int) -> int:
    """How long those pieces are: one row, or several and an empty one."""
    return 1 if rows <= 1 or most <= 2 else 1 + even_size(rows, most - 1)


def even_size(rows: int, most: int) -> int:
    """The length of as few equal parts of so many rows, at most `most`, as there can be."""
    count = max(1, -(-rows // most))
    return max(1, -(-rows // count))
