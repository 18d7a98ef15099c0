"""A silo's records beside a model: the clipped sum of a batch, as the round asks for it.

Sums of at most a few dozen records are made in float32 and added up in float64, so that the
rounding of the sum stays within the margin that the plan takes off the clipping norm
(docs/privacy.md P6 i and P14). A kernel may round a record's forward pass in another way in a batch
of another shape or at another place of it, and a ReLU turns the last bit into a whole gradient. So
all those batches have one public shape, in which a record's place follows from its own bytes (A2).
Where they are made, on a CPU or a GPU, is each silo's own choice:
the records stay in ordinary memory, a batch travels to the device, and the sum comes back.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from threading import Lock
from typing import TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hubbub.errors import DataError, HubbubError, ModelError
from hubbub.learning.gradients import ClippedSum, clipped_sum
from hubbub.learning.inspection import buffers_unchanged, refuse_unsafe
from hubbub.learning.layer_projection import LayerProjection
from hubbub.learning.metrics import evaluate
from hubbub.learning.models import default_loss
from hubbub.learning.parameter_vector import load_parameters, parameters_vector
from hubbub.learning.self_check import checked_method
from hubbub.learning.torch_settings import (
    borrowed,
    device_of,
    device_under,
    exact_products,
    plain_attention,
)
from hubbub.study import Records

Made = TypeVar("Made")

# Silos of one process may share a replica of the model, whose parameters are written here.
REPLICA = Lock()
_REPLICAS: WeakKeyDictionary[nn.Module, dict[torch.device, nn.Module]] = WeakKeyDictionary()
_CHECKED = 4  # records of made-up data on which a method is tried


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
        self._loss = default_loss(_outputs_on(self._model, self._inputs), self._targets.dtype)
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


def unquoted(work: Callable[[], Made]) -> Made:
    """What `work` gives; an error of the user's model is reported by its kind alone."""
    try:
        return work()
    except HubbubError:
        raise
    except Exception as error:  # noqa: BLE001 (the model is the user's, and raises what it likes)
        # What the model said may quote a record, as may a name of its own.
        known = type(error).__module__ == "builtins"
        kind = type(error).__name__ if known else "an error of its own"
    raise ModelError(
        f"expected a model that takes every record of the silo, found that it raised {kind}; try "
        "it on the records where they are"
    )


def replica(model: nn.Module, device: torch.device) -> nn.Module:
    """The model itself if it is on that device, else one copy there that all silos share.

    The copy has its own parameters: load them before use, while holding `REPLICA`.
    """
    if _is_on(model, device):
        return model
    copies = _REPLICAS.setdefault(model, {})
    if device not in copies:
        copies[device] = copy.deepcopy(model).to(device)
    return copies[device]


def _is_on(model: nn.Module, device: torch.device) -> bool:
    return all(tensor.device == device for tensor in model.state_dict().values())


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


def outputs_of(model: nn.Module, inputs: torch.Tensor) -> int:
    """1 if the model gives one number per record, else the number of its logits."""
    if not len(inputs):
        return 1
    with torch.no_grad():
        shape = tuple(model(inputs[:1]).shape)
    if len(shape) not in (1, 2) or shape[1:] == (1,):
        raise ModelError(
            "expected a model with outputs of shape (n,) for two classes or (n, classes) for more, "
            f"found ({', '.join(['n', *map(str, shape[1:])])}); end it with .squeeze(-1)"
        )
    return shape[1] if len(shape) == 2 else 1


def _outputs_on(model: nn.Module, inputs: torch.Tensor) -> int:
    """The same for a silo's records, on the model's device."""
    return unquoted(lambda: outputs_of(model, inputs[:1].to(device_under(model))))


def try_out(model: nn.Module, records: Records | None) -> None:
    """See that a user's model takes a silo's or the test set's records, before any is charged for.

    A copy of it is tried: a model may keep what it has seen, and this one is going to be sent.

    Args:
        model: left as it is.
        records: a silo's or the test set's; None or no records: nothing is tried.

    Raises:
        ModelError: it raises an error on them, whose words are kept from the reader.
        DataError: they have classes for which it has no logit.

    >>> records = Records(inputs=np.ones((4, 2), np.float32), targets=np.array([0, 1, 1, 5]))
    >>> try_out(torch.nn.Linear(2, 3), records)
    Traceback (most recent call last):
        ...
    hubbub.errors.DataError: expected class numbers below 3, as the model has so many logits, ...
    """
    if records is None or not len(records):
        return
    copied = unquoted(partial(copy.deepcopy, model))
    with borrowed():
        outputs = _outputs_on(copied, torch.from_numpy(records.inputs))
        few = Records(inputs=records.inputs[:2], targets=records.targets[:2])
        unquoted(partial(evaluate_records, copied, few))
    classes = outputs > 1 and records.targets.dtype == np.int64
    if classes and not np.isin(records.targets, range(outputs)).all():
        raise DataError(
            f"expected class numbers below {outputs}, as the model has so many logits, found "
            "others; correct the data or the model"
        )


def method_for(model: nn.Module, shape: tuple[int, ...], targets: NDArray[np.generic]) -> str:
    """The fastest method that is right for this model, tried on made-up records of that shape.

    Args:
        model: left as it is.
        shape: of one record.
        targets: of any records; only their dtype is looked at.

    Returns:
        "chain", "vmap" or "loop", for use as `clipped_sum(method=...)`.

    Raises:
        ModelError: the model mixes or remembers records, or gives outputs of another shape.
        StudyError: there is no loss for such outputs and targets.

    >>> method_for(torch.nn.Linear(5, 3), (5,), np.zeros(0, dtype=np.int64))
    'chain'
    """
    refuse_unsafe(model)
    made_up = torch.from_numpy(np.zeros(_CHECKED, dtype=targets.dtype))
    with buffers_unchanged(model), exact_products(), plain_attention():
        inputs, outputs = unquoted(partial(_trial, model, shape))
        return checked_method(model, default_loss(outputs, made_up.dtype), inputs, made_up)


def _trial(model: nn.Module, shape: tuple[int, ...]) -> tuple[torch.Tensor, int]:
    """Made-up records that the model takes, and the number of its outputs."""
    with borrowed() as generator:
        generator.manual_seed(0)
        numbers = torch.randn((_CHECKED, *shape))
        try:
            return numbers, outputs_of(model, numbers)
        except (IndexError, TypeError, RuntimeError):  # a table of words has no row -0.3
            words = torch.randint(2, (_CHECKED, *shape)).float()  # 0 and 1 are in every table
            return words, outputs_of(model, words)


def evaluate_records(
    model: nn.Module, records: Records, *, device: str = "cpu"
) -> dict[str, float]:
    """Metrics of a model on public records.

    Args:
        model: gives outputs of shape (n,) or (n, classes); left as it is.
        records: public, such as the test set; at least one.
        device: where they are computed, a name that `hubbub.learning.device_of` takes.

    Returns:
        "loss" (nats per record), "accuracy" (a share in [0, 1]) and, for two classes, "auc" (a
        probability); each where it is defined and finite.

    Raises:
        DataError: there are no records.
        ModelError: the outputs have another shape.
        UserError: there is no such device.

    >>> records = Records(inputs=np.eye(3, dtype=np.float32), targets=np.arange(3))
    >>> evaluate_records(torch.nn.Identity(), records)["accuracy"]
    1.0
    """
    place = device_of(device)
    model = model if _is_on(model, place) else copy.deepcopy(model).to(place)
    inputs, targets = torch.from_numpy(records.inputs), torch.from_numpy(records.targets)
    loss = default_loss(outputs_of(model, inputs[:1].to(place)), targets.dtype)
    return evaluate(model, loss, inputs, targets)
