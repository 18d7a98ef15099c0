"""A silo's records beside a model: sums of clipped gradients and of evaluations.

Sums of at most a few dozen records are made in float32 and added up in float64, so that the
rounding of the sum stays within the margin that the plan takes off the clipping norm
(docs/privacy.md P6 i and P14). A kernel may round a record's forward pass in another way in a batch
of another shape or at another place of it, and a ReLU turns the last bit into a whole gradient. So
all those batches have one public shape, in which a record's place follows from its own bytes (A2).
The records stay in ordinary memory, a batch travels to the device, and the sum comes back.

Which records are held back from training, for evaluations, is decided by each record alone, so that
one record more or less changes nothing about the others (docs/privacy.md P16).
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from threading import Lock
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hubbub.learning.gradients import ClippedSum, clipped_sum
from hubbub.learning.layer_projection import LayerProjection
from hubbub.learning.models import default_loss, outputs_of
from hubbub.learning.parameter_vector import load_parameters, parameters_vector
from hubbub.learning.self_check import outputs_on, unquoted
from hubbub.learning.torch_settings import device_of, exact_products, is_on, plain_attention
from hubbub.study import Records

# In nats. A loss beyond this counts as this, so that what a record adds is bounded.
MOST_LOSS = 5.0
_CHUNK = 128  # rows of every batch of an evaluation (A2)
# Silos of one process may share a replica of the model, whose parameters are written here.
REPLICA = Lock()
_REPLICAS: WeakKeyDictionary[nn.Module, dict[torch.device, nn.Module]] = WeakKeyDictionary()


class TrainingTask:
    """One silo's records, and the model that is trained on them.

    Guarantees:
        1. An error that the model raises on the silo's records is reported by its kind alone.

    Args:
        model: the silo's replica; silos of one process may share it.
        records: the silo's own.
        clip: L2 norm to which each record's gradient is clipped, in units of the gradient.
        margin: the relative rounding error of the sum that `clip` already allows for; no unit.
        method: one that `hubbub.learning.clipped_sum` takes.
        most: a public number of records that a batch hardly ever exceeds; larger ones are summed
            one by one.
        device: a name that `hubbub.learning.device_of` takes.

    Raises:
        UserError: there is no such device.
        ModelError: the model cannot take the records.
        StudyError: there is no loss for the records' targets.

    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Flatten(0))
    >>> records = Records(
    ...     inputs=np.ones((4, 2), np.float32), targets=np.array([0, 0, 0, 1], np.float32)
    ... )
    >>> task = TrainingTask(model, records, clip=1.0, margin=1e-5, method="auto")
    >>> task.clipped_sum(np.zeros(3, np.float32), np.arange(4)).round(3).tolist()
    [1.0, 1.0, 1.0]
    """

    def __init__(
        self,
        model: nn.Module,
        records: Records,
        *,
        clip: float,
        margin: float,
        method: str,
        most: int = 1 << 14,
        device: str = "cpu",
    ) -> None:
        self._clip, self._margin, self._method = clip, margin, method
        self._size = _piece(most, margin)
        self._slots = slots_of(records)
        self._device = device_of(device)
        self._model = replica(model, self._device)
        self._inputs = torch.from_numpy(records.inputs)
        self._targets = torch.from_numpy(records.targets)
        self._loss = default_loss(outputs_on(self._model, self._inputs), self._targets.dtype)
        self._dimension = parameters_vector(model).size

    def __repr__(self) -> str:
        return "TrainingTask(<private>)"

    @property
    def count(self) -> int:
        """Number of records; never leaves the silo."""
        return int(self._targets.shape[0])

    def clipped_sum(
        self, parameters: NDArray[np.float32], chosen: NDArray[np.intp]
    ) -> NDArray[np.float64]:
        """Sum over the chosen records of clipped gradients, without noise.

        Args:
            parameters: (d,) float32, of the model at which gradients are taken.
            chosen: (m,) positions of records, from 0.

        Returns:
            (d,) float64, in units of the gradient; zeros if none is chosen.

        Raises:
            ModelError: the model cannot take one of the records.
            DataError: the parameters are not of length d.
        """
        plain = partial(clipped_sum, self._model)
        return self._total(plain, parameters, chosen, self._dimension)

    def projected_sum(
        self,
        parameters: NDArray[np.float32],
        chosen: NDArray[np.intp],
        dimension: int,
        draw_key: bytes,
    ) -> NDArray[np.float64]:
        """The same of gradients projected layer by layer to `dimension` numbers, then clipped.

        Args:
            parameters, chosen: as for `clipped_sum`.
            dimension: k, how many numbers a projection has.
            draw_key: the 16 public bytes that make the matrices.

        Returns:
            (k,) float64, in units of the gradient.

        Raises:
            ModelError, DataError: as for `clipped_sum`.
            StudyError: so many numbers do not fit the model.
        """
        layers = LayerProjection.of(self._model, dimension)
        projected = partial(layers.clipped_sum, self._model, draw_key=draw_key)
        return self._total(projected, parameters, chosen, dimension)

    def _total(
        self,
        summed: Callable[..., ClippedSum],
        parameters: NDArray[np.float32],
        chosen: NDArray[np.intp],
        size: int,
    ) -> NDArray[np.float64]:
        """Sums of a few records each, in float64, while nobody else writes to the replica."""
        total = np.zeros(size)
        with REPLICA, exact_products(), plain_attention():
            load_parameters(self._model, parameters)
            fits = self._size <= _piece(chosen.size, self._margin)
            for part, counted in pieces(chosen, self._slots, self._size if fits else 1):
                total += self._part(summed, part, counted).vector.cpu().numpy()
        return total

    def _part(
        self, summed: Callable[..., ClippedSum], part: NDArray[np.intp], counted: NDArray[np.bool_]
    ) -> ClippedSum:
        """The sum over a piece's counted records."""
        index, kept = torch.from_numpy(part), torch.from_numpy(counted)
        batch = (one[index].to(self._device) for one in (self._inputs, self._targets))
        work = partial(summed, self._loss, *batch, self._clip, method=self._method, counted=kept)
        return unquoted(work)


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


def _piece(batch: int, margin: float) -> int:
    """Most records c of a float32 sum with 2 b (c + 2) 2^-24 <= margin (P6 i)."""
    return max(1, int(margin * 2.0**23 / max(batch, 1)) - 2)


def slots_of(records: Records) -> NDArray[np.intp]:
    """A number for each record, from its own bytes alone: its place in whichever piece it is."""
    pairs = zip(records.inputs, records.targets, strict=True)
    digests = (hashlib.sha256(one.tobytes() + target.tobytes()).digest() for one, target in pairs)
    return np.array([int.from_bytes(one[:4], "big") for one in digests], dtype=np.intp)


def pieces(
    chosen: NDArray[np.intp], slots: NDArray[np.intp], size: int
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.bool_]]]:
    """Pieces of `size` places, each record in its own, and which places are filled.

    What a kernel makes of a row depends on its place and on the shape; neither depends on what
    other records there are (A2).
    """
    places = slots[chosen] % size
    order = np.argsort(places, kind="stable")
    taken = np.bincount(places, minlength=size)
    turns = np.arange(chosen.size) - np.repeat(np.cumsum(taken) - taken, taken)
    for turn in range(int(taken.max(initial=0))):
        here = order[turns == turn]
        part, counted = np.full(size, chosen[here[0]]), np.zeros(size, dtype=bool)
        part[places[here]], counted[places[here]] = chosen[here], True
        yield part, counted


def held_back(records: Records, share: float, seed: bytes) -> NDArray[np.bool_]:
    """Which records are held back: about this share of them, each by its own bytes and the seed.

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
    pairs = zip(records.inputs, records.targets, strict=True)
    digests = (hashlib.sha256(seed + one.tobytes() + y.tobytes()).digest() for one, y in pairs)
    return np.array([int.from_bytes(one[:8], "big") < limit for one in digests], dtype=bool)


class EvaluationTask:
    """A silo's held-back records: their number, how many are right, and the sum of their losses.

    Args:
        model: as for `TrainingTask`.
        records: those that are held back.
        device: a name that `hubbub.learning.device_of` takes.

    Raises:
        UserError: there is no such device.

    >>> model = nn.Sequential(nn.Linear(2, 1), nn.Flatten(0))
    >>> records = Records(
    ...     inputs=np.ones((4, 2), np.float32), targets=np.array([0, 0, 0, 1], np.float32)
    ... )
    >>> task = EvaluationTask(model, records)
    >>> task.clipped_sum(np.ones(3, np.float32), np.arange(4))[:2].tolist()
    [4.0, 1.0]
    """

    def __init__(self, model: nn.Module, records: Records, *, device: str = "cpu") -> None:
        self._model, self._device = replica(model, device_of(device)), device_of(device)
        self._inputs = torch.from_numpy(records.inputs)
        self._targets = torch.from_numpy(records.targets)
        self._slots = slots_of(records)

    def __repr__(self) -> str:
        return "EvaluationTask(<private>)"

    @property
    def count(self) -> int:
        """Number of records; never leaves the silo."""
        return int(self._targets.shape[0])

    def clipped_sum(
        self, parameters: NDArray[np.float32], chosen: NDArray[np.intp]
    ) -> NDArray[np.float64]:
        """What the chosen records add to an evaluation, without noise.

        Args:
            parameters, chosen: as for `TrainingTask.clipped_sum`.

        Returns:
            (3,) float64: each record adds 1, 1 if its class is found, and its loss / MOST_LOSS up
            to 1.

        Raises:
            ModelError: the model cannot take one of the records.
            DataError: the parameters are not of length d.
        """
        total = np.zeros(3)
        with REPLICA, exact_products(), plain_attention(), torch.no_grad():
            load_parameters(self._model, parameters)
            training = self._model.training
            self._model.eval()
            try:
                for part, counted in pieces(chosen, self._slots, _CHUNK):
                    total += unquoted(partial(self._part, part, counted))
            finally:
                self._model.train(training)
        return total

    def _part(self, part: NDArray[np.intp], counted: NDArray[np.bool_]) -> NDArray[np.float64]:
        index, kept = torch.from_numpy(part), torch.from_numpy(counted).to(self._device)
        inputs, targets = (one[index].to(self._device) for one in (self._inputs, self._targets))
        outputs = self._model(inputs)
        losses = default_loss(outputs_of(self._model, inputs), targets.dtype)(outputs, targets)
        single = outputs.ndim == 1
        found = (outputs > 0) == (targets > 0.5) if single else outputs.argmax(1) == targets
        # What is not a number counts as wrong and as the largest loss.
        bounded = (losses.double() / MOST_LOSS).nan_to_num(nan=1.0).clamp(0.0, 1.0)
        return np.array([float(kept.sum()), float(found[kept].sum()), float(bounded[kept].sum())])
