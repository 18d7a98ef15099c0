"""Records that a silo holds back from training, and what they add to a noisy evaluation.

Which records are held back is decided by each record alone, so that one record more or less changes
nothing about the others (docs/privacy.md P16).
"""

from __future__ import annotations

import hashlib
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hubbub.learning.models import default_loss
from hubbub.learning.parameter_vector import load_parameters
from hubbub.learning.task import REPLICA, outputs_of, pieces, replica, slots_of, unquoted
from hubbub.learning.torch_settings import device_of, exact_products, plain_attention
from hubbub.study import Records

# In nats. A loss beyond this counts as this, so that what a record adds is bounded.
MOST_LOSS = 5.0
_CHUNK = 128  # rows of every batch: neither shape nor place may follow other records (A2)


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
        inputs = self._inputs[index].to(self._device)
        targets = self._targets[index].to(self._device)
        outputs = self._model(inputs)
        losses = default_loss(outputs_of(self._model, inputs), targets.dtype)(outputs, targets)
        single = outputs.ndim == 1
        found = (outputs > 0) == (targets > 0.5) if single else outputs.argmax(1) == targets
        # What is not a number counts as wrong and as the largest loss.
        bounded = (losses.double() / MOST_LOSS).nan_to_num(nan=1.0).clamp(0.0, 1.0)
        return np.array([float(kept.sum()), float(found[kept].sum()), float(bounded[kept].sum())])
