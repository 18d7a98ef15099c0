"""The loss and metrics of a model on public records. This file trains nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from math import isfinite, sqrt
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hubbub.core.disk import write_bytes
from hubbub.core.errors import DataError, StudyError, UserError
from hubbub.core.study.silo_records import attempted, named_object
from hubbub.core.tabular.records import Records, Standardisation
from hubbub.learning import scoring
from hubbub.learning.batches import Loss, Tensors, batch_of, lacks_memory
from hubbub.learning.models import LinearProbe, outputs_of
from hubbub.learning.target_types import CLASSES, Amount, Classes, Count, TargetType, TimeToEvent
from hubbub.learning.torch_settings import computing, device_of, device_under, is_on, made_on

# A model's scores on public records beside those of a model that knows nothing of a record: it
# guesses, says the commoner class, or gives everybody the mean of the test records. Whether a model
# is better is judged on the difference record by record, which is known better than either score; a
# rank's interval is where it would not be a surprise. Public records are taken to be drawn one by
# one from those that the model is for. Nothing is noised, so nothing may be private.

_Z = 1.959963984540054  # 97.5 % of the normal law lie below
Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Score:
    """One metric of a model, and what a model that knows nothing would have.

    `low` and `high` are a 95 % interval of what it would be on ever more such records.
    """

    value: float
    low: float
    high: float
    null: float
    records: int  # that it was measured on
    is_better: bool | None  # than the null model; None: it is not told from it

    def to_dict(self) -> dict[str, Any]:
        """The score as plain values."""
        return dict(vars(self))


def beside_null(
    target_type: TargetType, outputs: NDArray[Any], targets: NDArray[Any]
) -> dict[str, Score]:
    """Scores by the usual names of metrics, the telling one first; those that are defined."""
    if not np.isfinite(outputs).all() or len(targets) < 2:
        return {}
    scores: dict[str, Score] = {}
    if isinstance(target_type, Classes):
        scores = _classes(outputs, targets)
    elif isinstance(target_type, Amount | Count):
        predicted, known = target_type.compared(torch.from_numpy(outputs), targets)
        known = known.astype(np.float64)
        if isinstance(target_type, Amount) and target_type.is_log:
            own, logs = np.log(predicted), np.log(np.maximum(known, target_type.low))
            scores["rmsle"] = _root((own - logs) ** 2, (logs.mean() - logs) ** 2)
        exposures = targets[:, 1] if targets.ndim == 2 else np.ones(len(known))
        counts = isinstance(target_type, Count) and target_type.unit == 1.0
        scores |= _numbers(predicted, known, exposures, counts=counts)
    elif isinstance(target_type, TimeToEvent):
        scores = _times(target_type, outputs, targets)
    return {name: one for name, one in scores.items() if isfinite(one.value)}


def _classes(outputs: NDArray[Any], targets: NDArray[Any]) -> dict[str, Score]:
    """AUC and Brier of two classes that both occur, and accuracy."""
    scores: dict[str, Score] = {}
    labels = (targets > 0.5) if outputs.ndim == 1 else targets
    kinds, counts = np.unique(labels, return_counts=True)
    if outputs.ndim == 1 and len(kinds) == 2:
        scores["auc"] = _rank(scoring.auc(outputs, targets), int(counts[1]), int(counts[0]))
        errors = scoring.squared_errors(outputs, labels)
        scores["brier"] = _mean(errors, (labels.mean() - labels) ** 2)
    said = outputs > 0 if outputs.ndim == 1 else outputs.argmax(1)
    commoner = kinds[np.argmax(counts)]
    wrong, null = (said != labels).astype(float), (labels != commoner).astype(float)
    apart = _mean(wrong, null)
    low, high = _wilson(1 - apart.value, len(labels))
    scores["accuracy"] = replace(
        apart, value=1 - apart.value, low=low, high=high, null=1 - apart.null
    )
    return scores


def _numbers(predicted: Array, known: Array, exposures: Array, *, counts: bool) -> dict[str, Score]:
    """Errors beside those of everybody's mean, or rate; of counts, their deviance first.

    Absolute errors are beside those of the median, or of the rate that makes them least.
    """
    scores: dict[str, Score] = {}
    null = known.sum() / exposures.sum() * exposures
    if counts and known.mean() > 0:
        own, others = (scoring.deviances(rate, known) for rate in (predicted, null))
        scores["poisson_deviance"] = _mean(own, others)
    scores["rmse"] = _root((predicted - known) ** 2, (null - known) ** 2)
    median = _median_rate(known, exposures) * exposures
    scores["mae"] = _mean(np.abs(predicted - known), np.abs(median - known))
    return scores


def _median_rate(known: Array, exposures: Array) -> float:
    """The median of rates, each as often as its exposure says: with exposures of 1 the median."""
    rates = np.divide(known, exposures, out=np.full(len(known), np.inf), where=exposures > 0)
    order = np.argsort(rates)
    before = exposures[order].cumsum()
    middle = np.searchsorted(before, before[-1] / 2, side="left")
    after = np.searchsorted(before, before[-1] / 2, side="right")
    return float(rates[order][[middle, min(after, len(order) - 1)]].mean())


def _times(
    target_type: TimeToEvent, outputs: NDArray[Any], targets: NDArray[Any]
) -> dict[str, Score]:
    """Harrell's concordance; of its pairs about as many are independent as records have events."""
    times, events = targets[:, 0], targets[:, 1] > 0.5
    value = target_type.scored(outputs, targets).get("c_index", float("nan"))
    ups = int(events.sum())
    if not ups or not isfinite(scoring.harrell(times, times, events)):
        return {}
    score = _rank(value, ups, max(1, len(times) - ups // 2))
    return {"c_index": replace(score, records=len(times))}


def _rank(value: float, ups: int, downs: int) -> Score:
    """A share of pairs that are ranked rightly, with the values at which it were no surprise.

    Hanley and McNeil (1982), equation 1, inverted: the error is that at the end of the interval,
    so that a perfect score of three records is no certainty.
    """
    low, high = (_end(value, side, ups, downs) for side in (-1.0, 1.0))
    better = True if low > 0.5 else False if high < 0.5 else None
    return Score(value=value, low=low, high=high, null=0.5, records=ups + downs, is_better=better)


def _end(value: float, side: float, ups: int, downs: int) -> float:
    """The farthest rank on one side from which the value is 1.96 standard errors away at most."""
    near, far = value, 0.5 + side / 2
    for _ in range(50):
        rank = middle = (near + far) / 2
        one, two = rank / (2 - rank), 2 * rank**2 / (1 + rank)
        parts = rank * (1 - rank), (ups - 1) * (one - rank**2), (downs - 1) * (two - rank**2)
        inside = abs(rank - value) <= _Z * sqrt(max(0.0, sum(parts)) / (ups * downs))
        near, far = (middle, far) if inside else (near, middle)
    return near


def _mean(own: Array, null: Array) -> Score:
    """A mean of errors, whose smaller is better, beside another's on the same records."""
    count, value = len(own), float(own.mean())
    width = _Z * float(own.std(ddof=1)) / sqrt(count)
    gained = null - own
    gain, doubt = float(gained.mean()), _Z * float(gained.std(ddof=1)) / sqrt(count)
    better = True if gain > doubt else False if gain < -doubt else None
    return Score(
        value=value,
        low=max(0.0, value - width),
        high=value + width,
        null=float(null.mean()),
        records=count,
        is_better=better,
    )


def _root(own: Array, null: Array) -> Score:
    """The root of such a mean of squares, in the unit of what is squared."""
    score = _mean(own, null)
    value, low, high, root = map(sqrt, (score.value, score.low, score.high, score.null))
    return replace(score, value=value, low=low, high=high, null=root)


def _wilson(share: float, count: int) -> tuple[float, float]:
    middle = (share + _Z**2 / (2 * count)) / (1 + _Z**2 / count)
    width = _Z * sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2)) / (1 + _Z**2 / count)
    return max(0.0, middle - width), min(1.0, middle + width)


_CHUNK = 1024  # records at once
T = TypeVar("T")


@torch.no_grad()
def evaluate(
    model: nn.Module,
    loss: Loss,
    inputs: Tensors,
    targets: torch.Tensor,
    *,
    chunk: int = _CHUNK,
    target_type: TargetType = CLASSES,
    own: Sequence[str] = (),
) -> dict[str, float]:
    """Mean loss, and the metrics of what a model is trained for, in eval mode.

    Args:
        model: gives outputs (n,) or (n, outputs); its mode is put back afterwards.
        loss: one value per record, shape (n,).
        inputs: public records, (n, ...), or a tuple of such tensors, on any device.
        targets: (n, ...).
        chunk: records evaluated at once, where the model is; fewer if memory is short.
        target_type: what the model is trained for; that of a classifier if it is left out.
        own: functions "python:module:name" that score targets and predictions.

    Returns:
        "loss" (in the loss's own unit) and the target type's metrics; of a classifier "accuracy" (a
        share in [0, 1]) and, for two classes, "auc" (a probability), "brier" and
        "calibration_slope". Those of own functions stand under their names. Each where it is
        defined and finite.

    Raises:
        DataError: there is no record, or inputs and targets do not hold the same number.
        StudyError: a function is not there, raises, or gives no number.

    >>> import functools
    >>> loss = functools.partial(nn.functional.cross_entropy, reduction="none")
    >>> evaluate(nn.Identity(), loss, torch.eye(3), torch.arange(3))["accuracy"]
    1.0
    """
    logits, losses = _outputs(model, loss, inputs, targets, chunk)
    truth = targets.cpu().numpy()
    scores = {"loss": float(losses.double().mean()), **target_type.scored(logits.numpy(), truth)}
    predicted = target_type.predicted(logits).numpy()
    scores |= {name.rpartition(":")[2]: _scored(name, truth, predicted) for name in own}
    return {name: value for name, value in scores.items() if isfinite(value)}


def _outputs(
    model: nn.Module, loss: Loss, inputs: Tensors, targets: torch.Tensor, chunk: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """A model's outputs in eval mode, and its losses, record by record; its mode is put back."""
    batch, training = batch_of(inputs, targets), model.training
    if not batch.size:
        raise DataError("expected at least one record to evaluate, found none; check the test set")
    device = device_under(model)

    def of_piece(start: int, stop: int) -> tuple[torch.Tensor, torch.Tensor]:
        piece = batch.piece(start, stop).each(lambda values: values.to(device))
        outputs = model(*piece.inputs)
        return outputs.cpu(), loss(outputs, piece.targets).cpu()

    model.eval()
    try:
        with computing(device or torch.device("cpu")):
            outputs, losses = zip(*_in_pieces(batch.size, chunk, of_piece), strict=True)
    finally:
        model.train(training)
    return torch.cat(outputs), torch.cat(losses)


def _in_pieces(size: int, chunk: int, of_piece: Callable[[int, int], T]) -> list[T]:
    """What is computed of records start to stop - 1, in order; of fewer where memory is short."""
    start, results = 0, list[T]()
    while start < size or not results:
        stop = min(start + chunk, size)
        try:
            results.append(of_piece(start, stop))
        except RuntimeError as error:
            if stop - start <= 1 or not lacks_memory(error):
                raise
            chunk = -(-(stop - start) // 2)
            continue
        start = stop
    return results


def _scored(name: str, targets: NDArray[Any], predicted: NDArray[Any]) -> float:
    """What a user's metric says; it sees public records only."""
    metric = named_object(name, "training.metrics")
    given = targets.copy(), predicted.copy()  # which it may sort, say
    score, raised = attempted(partial(metric, *given), quotes=True)
    if not raised:
        try:
            return float(score)
        except (TypeError, ValueError):
            raised = type(score).__name__
    raise StudyError(
        f"expected {name} to give a number for targets and predictions of the public test "
        f"records, got {raised}; correct the function"
    )


def evaluate_records(
    model: nn.Module,
    records: Records,
    *,
    device: str = "cpu",
    target_type: TargetType = CLASSES,
    own: Sequence[str] = (),
) -> dict[str, float]:
    """Metrics of a model on public records.

    Args:
        model: gives outputs of shape (n,) or (n, classes); left as it is.
        records: public, such as the test set; at least one.
        device: where they are computed, a name that `hubbub.learning.device_of` takes.
        target_type, own: as for `evaluate`.

    Returns:
        What `evaluate` gives with the target type's loss.

    Raises:
        DataError: there are no records.
        ModelError: the outputs have another shape.
        UserError: there is no such device.

    >>> import numpy as np
    >>> records = Records(inputs=np.eye(3, dtype=np.float32), targets=np.arange(3))
    >>> evaluate_records(torch.nn.Identity(), records)["accuracy"]
    1.0
    """
    placed, loss, inputs, targets = _placed(model, records, device, target_type)
    return evaluate(placed, loss, inputs, targets, target_type=target_type, own=own)


@torch.no_grad()
def scores_of(
    model: nn.Module, records: Records, *, device: str = "cpu", target_type: TargetType = CLASSES
) -> dict[str, Score]:
    """A model's scores on public records beside those of one that knows nothing of a record.

    Arguments and errors are those of `evaluate_records`.
    """
    placed, loss, inputs, targets = _placed(model, records, device, target_type)
    outputs, _ = _outputs(placed, loss, inputs, targets, _CHUNK)
    return beside_null(target_type, outputs.numpy(), records.targets)


def _placed(
    model: nn.Module, records: Records, device: str, target_type: TargetType
) -> tuple[nn.Module, Loss, torch.Tensor, torch.Tensor]:
    """A model where it is computed, its loss, and the records as tensors."""
    place = device_of(device)
    model = model if is_on(model, place) else copy.deepcopy(model).to(place)
    inputs, targets = torch.from_numpy(records.inputs), torch.from_numpy(records.targets)
    with made_on(place):
        loss = target_type.loss(outputs_of(model, inputs[:1].to(place)), targets.dtype)
    return model, loss, inputs, targets


class Scorer(nn.Module):
    """A trained model with all that stands around it: features in, predictions out."""

    shift: torch.Tensor
    scale: torch.Tensor

    def __init__(
        self,
        model: nn.Module,
        standardisation: Standardisation | None = None,
        target_type: TargetType = CLASSES,
    ) -> None:
        super().__init__()
        self._target_type = target_type
        self.model = model
        self.register_buffer("shift", torch.zeros(1))
        self.register_buffer("scale", torch.ones(1))
        if standardisation is not None:
            self.shift = torch.tensor(standardisation.shift)
            self.scale = torch.tensor(standardisation.scale)
        self.eval()

    def around(self, model: nn.Module) -> Scorer:
        """The same around another model."""
        scorer = Scorer(model, None, self._target_type)
        scorer.shift, scorer.scale = self.shift, self.scale
        return scorer.eval()

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """What the goal predicts: for classes the probability of the second, or of every one."""
        return self._target_type.predicted(self.model((features - self.shift) / self.scale))


@torch.no_grad()
def scores(scorer: Scorer, features: NDArray[np.float32]) -> NDArray[np.float32]:
    """Predictions for records (n, ...), not yet standardised, a piece at a time; n may be 0."""
    device = scorer.shift.device

    def of_piece(start: int, stop: int) -> NDArray[np.float32]:
        placed = torch.from_numpy(features[start:stop]).to(device)
        return scorer(placed).cpu().numpy()  # type: ignore[no-any-return]

    with computing(device):
        return np.concatenate(_in_pieces(len(features), _CHUNK, of_piece))


def write_onnx(path: Path, scorer: Scorer, shape: tuple[int, ...]) -> None:
    """Write a scorer as an ONNX file with the input "features" of a shape and the output "scores".

    Raises:
        UserError: the packages `onnx` and `onnxscript` are not there, or cannot say such a model.
        OSError: the file cannot be written.
    """
    for package in ("onnx", "onnxscript"):
        if find_spec(package) is None:
            raise UserError(
                f"expected the package {package} to write ONNX, found it missing; pip install onnx "
                "onnxscript"
            )
    # Whatever the exporter raises, it is about the model.
    names: dict[str, Any] = {"input_names": ["features"], "output_names": ["scores"]}
    try:
        program = torch.onnx.export(
            scorer.around(_settled(scorer.model)),
            (torch.zeros(2, *shape),),
            dynamo=True,
            dynamic_shapes=({0: torch.export.Dim("records")},),
            verbose=False,
            **names,
        )
        assert program is not None  # noqa: S101  # dynamo=True gives a program
        content: bytes = program.model_proto.SerializeToString()
    except Exception as error:
        kind = type(error).__name__
        raise UserError(
            f"expected a model that torch can write as ONNX, it raised {kind}; use hubbub.load "
            "and torch instead"
        ) from error
    write_bytes(path, content)


def _settled(model: nn.Module) -> nn.Module:
    """A model of the same outputs, in which nothing is left to be solved."""
    if isinstance(model, LinearProbe):
        return model.settled()
    settled = copy.deepcopy(model)
    for name, part in list(settled.named_modules()):
        if isinstance(part, LinearProbe):
            settled.set_submodule(name, part.settled())
    return settled
