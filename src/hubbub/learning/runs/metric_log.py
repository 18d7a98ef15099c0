"""The rows of metrics of a run, told to TensorBoard, MLflow or a file as they are made.

What goes there is what `metrics.jsonl` has, and of that only what is named here (`may_be_told`):

    step, epsilon      the account: a function of the study and the attempts so far, both public
    loss, metrics      of the published model on the public test set, the study's own among them
    held_back_...      of records that silos held back: from noisy sums that epsilon includes

Baselines have rows without noise, and are refused.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
    redirect_stdout,
)
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubbub.core.disk import why_of
from hubbub.core.errors import StudyError, UserError, with_extra
from hubbub.core.number_format import Row
from hubbub.core.study.study import Study
from hubbub.learning.metric_words import METRICS

Tell = Callable[[int, dict[str, float]], None]  # a step, and what is told of it
_HELD_BACK = ("held_back_loss", "held_back_records")
_ENDS = ("_low", "_high")  # of an interval
# Where MLflow's own would have a run wait four minutes for a server that is gone.
_MLFLOW = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
# In an address, which errors of MLflow repeat.
_PASSWORD = re.compile(r"(?<=//)\S*(?=@)|(?<=password=)[^&\s]+")


def may_be_told(study: Study) -> frozenset[str]:
    """The keys of a study's rows that may be told outside; all others stay where they are."""
    ends = {f"{name}{end}" for name in METRICS if name.startswith("held_back_") for end in _ENDS}
    own = {name.rpartition(":")[2] for name in study.training.metrics} if study.training else set()
    return frozenset({"epsilon", "loss", *METRICS, *_HELD_BACK, *ends, *own})


@dataclass(kw_only=True)
class MetricLog:
    """Tells each row once, in their order."""

    tell: Tell | None = None  # where rows go; None: nowhere
    keys: frozenset[str] = frozenset()  # that may be told
    rows: int = 0  # so many were told before, or by the process before

    def __call__(self, rows: Sequence[Row]) -> None:
        """These are a run's rows by now."""
        for row in rows[self.rows :]:
            if self.tell is None:
                return
            told = {key: float(row[key]) for key in row if key in self.keys}
            try:
                self.tell(int(row["step"]), {k: v for k, v in told.items() if math.isfinite(v)})
            except Exception as error:  # noqa: BLE001 (the run has been paid for, and goes on)
                self.tell = None
                warnings.warn(f"nothing more is logged: {_said(error)}", UserWarning, stacklevel=2)
                return
        self.rows = len(rows)


@contextmanager
def logged(log: str | None, study: Study, baseline: str | None = None) -> Iterator[MetricLog]:
    """What tells the rows of a study's run, until it is over; see `run` for `log`.

    Raises:
        StudyError: there is no such log, or a baseline has one.
        UserError: what it needs is not installed, or it cannot be opened.
    """
    if log is None:
        yield MetricLog()
        return
    kind, _, where = log.partition(":")
    if kind not in _LOGS or (not where and kind != "jsonl"):
        raise StudyError(
            "expected tensorboard:DIR, mlflow:URI, jsonl or jsonl:FILE as a log, got "
            f"{_open(log)!r}; choose one"
        )
    if baseline is not None:
        raise StudyError(
            f"expected no log of the baseline {baseline}, whose metrics may be without noise, got "
            f"{_open(log)!r}; leave it out"
        )
    stack = ExitStack()
    try:
        tell = stack.enter_context(_LOGS[kind](where, study))
    except ModuleNotFoundError as error:
        raise UserError(
            f"expected {error.name} to be installed for {kind}; {with_extra(kind)}"
        ) from None
    except Exception as error:  # noqa: BLE001 (each kind has errors of its own)
        why = f"expected to write to {_open(log)}, got: {_said(error)}; check it"
        if kind == "mlflow" and not where.startswith("http"):
            why += ", and pip install mlflow: the extra brings what writes to a server alone"
        raise UserError(why) from None
    metric_log = MetricLog(tell=tell, keys=may_be_told(study))
    try:
        yield metric_log
    finally:
        try:
            stack.__exit__(*sys.exc_info())
        except Exception as error:  # noqa: BLE001 (the run was paid for, and ends as it ends)
            if metric_log.tell is not None:  # else people know that the log has ended
                warnings.warn(f"the log was not closed: {_said(error)}", UserWarning, stacklevel=2)


def _said(error: Exception) -> str:
    """What a log's error says, without a password."""
    return _open(why_of(error) if isinstance(error, OSError) else str(error))


def _open(words: str) -> str:
    """Words without a password."""
    return _PASSWORD.sub("***", words)


@contextmanager
def _jsonl(where: str, _study: Study) -> Iterator[Tell]:
    """A line for each row, at once."""
    with Path(where).open("a", encoding="utf-8") if where else nullcontext(sys.stderr) as file:

        def tell(step: int, row: dict[str, float]) -> None:
            file.write(json.dumps({"step": step, **row}) + "\n")
            file.flush()

        yield tell


@contextmanager
def _tensorboard(where: str, study: Study) -> Iterator[Tell]:
    """Scalars in a folder, which TensorBoard shows."""
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(where) as writer:
        writer.add_text("study", f"{study.name}, {study.id.hex()}")

        def tell(step: int, row: dict[str, float]) -> None:
            for key, value in row.items():
                writer.add_scalar(key, value, step)
            writer.flush()

        yield tell


@contextmanager
def _mlflow(where: str, study: Study) -> Iterator[Tell]:
    """A run in the experiment that is called like the study; no name of a user or a machine."""
    from mlflow.tracking import MlflowClient

    settings = {name: value for name, value in _MLFLOW.items() if name not in os.environ}
    os.environ.update(settings)
    try:
        yield from _mlflow_run(MlflowClient(tracking_uri=where), study)
    finally:
        for name in settings:
            os.environ.pop(name, None)


def _mlflow_run(client: Any, study: Study) -> Iterator[Tell]:
    """The same by its client; a server that has failed once is not asked to end the run."""
    is_there = True
    held = client.get_experiment_by_name(study.name)
    experiment = held.experiment_id if held else client.create_experiment(study.name)
    run = client.create_run(experiment, run_name=study.id.hex()[:16]).info.run_id
    client.log_param(run, "study", study.id.hex())
    client.log_param(run, "delta", study.privacy.delta)

    def tell(step: int, row: dict[str, float]) -> None:
        nonlocal is_there
        is_there = False
        for key, value in row.items():
            client.log_metric(run, key, value, step=step)
        is_there = True

    def end(status: str) -> None:
        if not is_there:
            return
        with redirect_stdout(io.StringIO()):  # MLflow prints its address, with the password in it
            client.set_terminated(run, status)

    try:
        yield tell
    except BaseException:
        end("FAILED")
        raise
    end("FINISHED")


_LOGS: Mapping[str, Callable[[str, Study], AbstractContextManager[Tell]]] = {
    "jsonl": _jsonl,
    "tensorboard": _tensorboard,
    "mlflow": _mlflow,
}
