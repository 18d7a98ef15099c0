"""A2, tried where it is relied on: does what a row adds depend on what stands in the other rows?

A kernel may round a row by its place and by the shape of the batch, but must not by other rows'
values (docs/privacy.md P19). No list of kernels proves that; so a few rows of made-up records are
summed among null records and again among wild ones, on the machine and the model at hand, and the
two sums must agree to the last bit. This file knows neither gradients nor records.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import numpy as np
import torch

from hubbub.learning.batches import Tensors, on_device
from hubbub.learning.record_rows import Work
from hubbub.learning.self_check import Trial, unquoted
from hubbub.learning.torch_settings import seeded

_HUGE = 1e30
_SEED = 1


def rows_are_alone(
    work: Work, trial: Trial, targets: Tensors, size: int, device: torch.device
) -> bool:
    """Whether a few rows of a piece add the same, bit for bit, whatever is in the others.

    Args:
        work: what is made of a piece.
        trial: records that the model takes.
        targets: one for each of the trial's records.
        size: rows of a piece.
        device: where the work is done.

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
    wild = alike * _HUGE
    wild[1::3] = torch.nan
    alone = unquoted(partial(added, null))
    with suppress(Exception):  # what the model cannot take is in no row of a real piece either
        return added(alike) == alone and added(wild) == alone
    return added(alike) == alone
