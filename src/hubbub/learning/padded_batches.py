"""A silo's records in the rows of batches: pieces of one public shape, whatever the records are.

Theory of operation (docs/privacy.md P19). Which record stands in which row has been drawn before
(protocol/round/batch_rows.py). A batch is cut into pieces of equally many rows; an empty row holds
the null record, which is public and adds nothing. What a kernel makes of a row may depend on its
own data, on the row, on the piece's shape and on the piece's seed of random layers, never on
another row's data (A2); so no record moves another's part.

A model that raises ends the whole piece, and with it everybody's part. The rows at fault are looked
for by halves, in pieces of the same shape with the same seed, and are empty from then on: a record
on which the model raises adds zero, as one does whose gradient is not finite, and the silo answers.
Whoever chooses the weights can make the model raise on the null record itself. So the last row of a
piece is always empty: then all of the piece is zero, however many of its rows hold records. A piece
of one row needs none, for nobody else's part is in it.

A kernel may round a row by its place and by the shape of the batch, but must not by other rows'
values. No list of kernels proves that; so it is tried where it is relied on (`rows_are_alone`).

The records stay in ordinary memory, a piece travels to the device, and sums come back. This file
knows neither gradients nor losses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hubbub.core.errors import DataError
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.round.batches import EMPTY
from hubbub.core.tabular.records import Records, unit_rows
from hubbub.learning.batches import Tensors, on_device
from hubbub.learning.torch_settings import seeded
from hubbub.learning.trial import WILD, Change, Trial, unquoted

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
# From inputs, targets and which rows are kept, to a vector; the others hold the null record.
Work = Callable[[torch.Tensor, Tensors, torch.Tensor], NDArray[Any]]

_SEED = 1


class PaddedBatches:
    """A silo's records, and sums over pieces of batches of them.

    Args:
        records: the silo's own.
        null: inputs of the null record, which the model takes; of a record's shape, or of a
            unit's: then each row of a batch holds all that a patient has, and `places` says how
            many records that are.
        most: rows of the largest piece; public.
        device: where the work is done.
        source: of the seeds of random layers; the operating system's if None.
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
    ) -> None:
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

    def __repr__(self) -> str:
        return "PaddedBatches(<private>)"

    @property
    def count(self) -> int:
        """Number of units, of records where each is one; never leaves the silo."""
        return len(self._records) if self._units is None else len(self._units.rows)

    def total(self, rows: Rows, size: int, work: Work) -> Array:
        """The sum of `work` over all pieces, in float64.

        Args:
            rows: (m,) positions of records, or EMPTY; m is public.
            size: of the vectors that `work` gives.
            work: what is made of a piece.

        Returns:
            (size,) float64; zeros if all rows are empty.
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
        if len(piece) == 1:  # nobody else's part is in it
            alone = run(piece)
            return np.zeros(size) if alone is None else alone
        piece = np.where(self._raising[piece], EMPTY, piece)  # EMPTY, the last, never raises
        part = run(piece)
        if part is None and run(np.full_like(piece, EMPTY)) is not None:
            fault = self._at_fault(piece, np.flatnonzero(piece != EMPTY), run)
            self._raising[piece[fault]] = True  # and no log has a word of it
            piece[fault] = EMPTY
            part = run(piece)
        return np.zeros(size) if part is None else part

    def _run(self, seed: int, work: Work, piece: Rows) -> NDArray[Any] | None:
        """The work on one piece; None where the model raises."""
        held = piece != EMPTY
        xs, *ys = (torch.from_numpy(one).to(self._device) for one in self._filled(piece, held))
        try:
            with seeded(seed, self._device):
                return work(xs, ys[0] if len(ys) == 1 else tuple(ys), torch.from_numpy(held))
        except KeyboardInterrupt:  # of the people at the machine
            raise
        except BaseException:  # noqa: BLE001 (the model is the user's, and may even call exit())
            return None  # what it says may quote a record

    def _filled(self, piece: Rows, held: NDArray[np.bool_]) -> list[NDArray[Any]]:
        """Inputs and targets of a piece, and of units the weight of each place."""
        places = (len(piece), self._places) if self._places else (len(piece),)
        inputs = np.repeat(self._null[None], len(piece), axis=0)
        known = self._records.targets
        targets = np.zeros((*places, *known.shape[1:]), dtype=known.dtype)
        mine = piece[held] if self._units is None else self._units.rows[piece[held]]
        inputs[held], targets[held] = self._records.inputs[mine], known[mine]
        if self._units is None:
            return [inputs, targets]
        weights = np.full(places, 1 / self._places, dtype=np.float32)
        weights[held] = self._units.shares[piece[held]]
        return [inputs, targets, weights]

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
    kept = torch.zeros(size, dtype=torch.bool)
    kept[watched] = True

    labels = on_device(targets, device, lambda one: one[:1].expand(size, *one.shape[1:]))

    def added(others: torch.Tensor) -> bytes:
        inputs = others.clone()
        inputs[watched] = trial.inputs[: len(watched)]
        with seeded(_SEED, device):
            return work(inputs.to(device), labels, kept).tobytes()

    null = torch.from_numpy(trial.null).expand(size, *trial.null.shape)
    alike = trial.inputs[torch.arange(size) % len(trial.inputs)]
    alone = unquoted(partial(added, null))
    if added(alike) != alone:
        return False
    for kind in kinds:
        # What the model cannot take is in no row of a real piece either.
        with suppress(Exception, SystemExit):
            if added(kind(alike)) != alone:
                return False
    return True
