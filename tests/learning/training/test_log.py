"""Metrics that are told outside: just the published rows, each once, and nothing without noise."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hubbub
from hubbub.core.errors import StudyError, UserError
from hubbub.desk.cli.main import main
from hubbub.learning.runs import metric_log
from hubbub.learning.runs.metric_log import may_be_told

RNG = np.random.default_rng(0)
SILOS = {name: (RNG.uniform(-1, 1, (60, 3)), RNG.integers(0, 2, 60)) for name in "abc"}
TEST = (RNG.uniform(-1, 1, (40, 3)), RNG.integers(0, 2, 40))
FIT: dict[str, Any] = {
    "epsilon": 8.0,
    "classes": [0, 1],
    "records": 180,
    "capacity": 60,
    "steps": 4,
    "test": TEST,
}
STUDY = """
study.name = "example"
parties = {silos = 4, colluders = 1}
data = {source = "hubbub.datasets:heart", records = 740}
model = {kind = "logistic", inputs = [26]}
training = {steps = 4, sample_rate = 0.2, evaluate = {every = 2, epsilon = 0.4}}
privacy = {epsilon = 1.0, delta = 1e-5}
"""
# All that may ever leave, of a classifier of two classes with evaluations on held-back records.
TOLD = {
    *("step", "epsilon", "loss", "accuracy", "auc", "brier", "calibration_slope"),
    *("held_back_accuracy", "held_back_accuracy_low", "held_back_accuracy_high"),
    *("held_back_loss", "held_back_records"),
}


def lines(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_exactly_the_published_rows_are_told_each_once(tmp_path: Path) -> None:
    study = hubbub.Study.parse(STUDY)
    result = hubbub.run(study, tmp_path / "run", log=f"jsonl:{tmp_path / 'log'}")
    told = lines(tmp_path / "log")
    assert {key for row in told for key in row} == TOLD
    assert told == [dict(row) for row in result.metrics]
    assert told[-1]["epsilon"] == result.metrics[-1]["epsilon"] <= 1.0


def test_what_is_not_named_stays() -> None:
    """A row that had a training loss in it would not have it told."""
    rows: list[dict[str, float]] = []
    log = metric_log.MetricLog(
        tell=lambda step, row: rows.append({"step": step, **row}),
        keys=may_be_told(hubbub.Study.parse(STUDY)),
    )
    row = {"step": 1, "epsilon": 0.5, "train_loss": 0.3, "records": 61.0, "loss": float("nan")}
    log([row])
    log([row])
    assert rows == [{"step": 1, "epsilon": 0.5}]


def test_fit_tells_its_rows_and_a_resumed_run_only_new_ones(tmp_path: Path) -> None:
    hubbub.fit(SILOS, log=f"jsonl:{tmp_path / 'fit'}", **FIT)
    assert [row["step"] for row in lines(tmp_path / "fit")] == [1, 2, 3, 4]

    def stop(step: int, _row: Any) -> None:
        if step == 2:
            raise KeyboardInterrupt

    study, log = hubbub.Study.parse(STUDY), f"jsonl:{tmp_path / 'log'}"
    with pytest.raises(KeyboardInterrupt):
        hubbub.run(study, tmp_path / "run", progress=stop, log=log)
    hubbub.resume(tmp_path / "run", log=log)
    steps = [row["step"] for row in lines(tmp_path / "log")]
    assert steps == [1, 2, 3, 4]


def test_a_log_that_fails_costs_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was paid for goes on: the log ends, with a warning."""

    def full(_where: str, _study: Any) -> Iterator[Any]:
        def tell(step: int, _row: Any) -> None:
            raise OSError("no space left on device")

        yield tell

    logs = {**metric_log._LOGS, "jsonl": metric_log.contextmanager(full)}
    monkeypatch.setattr(metric_log, "_LOGS", logs)
    with pytest.warns(UserWarning, match="nothing more is logged: no space left"):
        result = hubbub.fit(SILOS, log="jsonl", **FIT)
    assert result.final["step"] == 4


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_a_log_on_a_full_disk_costs_no_run() -> None:
    with pytest.warns(UserWarning, match="nothing more is logged: .*No space left"):
        result = hubbub.fit(SILOS, log="jsonl:/dev/full", **FIT)
    assert result.final["step"] == 4


def test_a_log_that_cannot_be_closed_costs_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_where: str, _study: Any) -> Iterator[Any]:
        yield lambda _step, _row: None
        raise ConnectionError("the server is gone")

    logs = {**metric_log._LOGS, "jsonl": metric_log.contextmanager(gone)}
    monkeypatch.setattr(metric_log, "_LOGS", logs)
    with pytest.warns(UserWarning, match="the log was not closed: the server is gone"):
        result = hubbub.fit(SILOS, log="jsonl", **FIT)
    assert result.final["step"] == 4


@pytest.mark.parametrize("why", [KeyboardInterrupt, ValueError])
def test_a_log_that_fails_beside_another_error_does_not_take_its_place(
    monkeypatch: pytest.MonkeyPatch, why: type[BaseException]
) -> None:
    def gone(_where: str, _study: Any) -> Iterator[Any]:
        try:
            yield lambda _step, _row: None
        finally:
            raise ConnectionError("the server is gone")

    def stopped(_step: int, _row: Any) -> None:
        raise why("what has happened")

    logs = {**metric_log._LOGS, "jsonl": metric_log.contextmanager(gone)}
    monkeypatch.setattr(metric_log, "_LOGS", logs)
    with (
        pytest.warns(UserWarning, match="the log was not closed: the server is gone"),
        pytest.raises(why, match="what has happened"),
    ):
        hubbub.fit(SILOS, log="jsonl", progress=stopped, **FIT)


@pytest.mark.parametrize(
    "where", ["https://ada:S3cret@runs.example", "postgresql:///runs?user=u&password=S3cret&x=1"]
)
def test_no_password_of_a_log_is_in_what_is_said_of_it(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def gone(place: str, _study: Any) -> Iterator[Any]:
        def tell(_step: int, _row: Any) -> None:
            raise ConnectionError(f"API request to {place}/api failed")

        yield tell

    def never(place: str, _study: Any) -> Iterator[Any]:
        raise ConnectionError(f"API request to {place}/api failed")
        yield

    for opened in (gone, never):
        logs = {**metric_log._LOGS, "mlflow": metric_log.contextmanager(opened)}
        monkeypatch.setattr(metric_log, "_LOGS", logs)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                hubbub.fit(SILOS, log=f"mlflow:{where}", **FIT)
            except UserError as error:
                warnings.warn(str(error), stacklevel=1)
        said = [str(one.message) for one in warned if "API request" in str(one.message)]
        assert len(said) == 1
        assert "cret" not in said[0]
        if opened is never:
            assert ("pip install mlflow" in said[0]) is where.startswith("postgresql")
    for log, more in ((f"mlfow:{where}", {}), (f"mlflow:{where}", {"baseline": "alone"})):
        with pytest.raises(StudyError) as refused:
            hubbub.fit(SILOS, log=log, **more, **FIT)
        assert "cret" not in str(refused.value)


@pytest.mark.parametrize("log", ["wandb:x", "tensorboard", "mlflow:", "", ":", "jsonl2:x"])
def test_a_log_that_is_none_is_refused_before_anything_is_charged(log: str) -> None:
    with pytest.raises(StudyError, match="expected tensorboard:DIR"):
        hubbub.fit(SILOS, log=log, **FIT)


def test_a_baseline_whose_rows_may_be_without_noise_has_no_log(tmp_path: Path) -> None:
    for baseline in ("non-private", "alone", "trusted", "local-dp"):
        with pytest.raises(StudyError, match="may be without noise"):
            hubbub.fit(SILOS, log=f"jsonl:{tmp_path / 'log'}", baseline=baseline, **FIT)
    assert not (tmp_path / "log").exists()


def test_a_file_that_cannot_be_written_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected to write to jsonl:"):
        hubbub.fit(SILOS, log=f"jsonl:{tmp_path}", **FIT)


@pytest.mark.parametrize(("kind", "module"), [("tensorboard", "tensorboard"), ("mlflow", "mlflow")])
def test_a_missing_package_is_named_with_its_extra(
    kind: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=rf"for {kind}; pip install '\.\[{kind}\]'"):
        hubbub.fit(SILOS, log=f"{kind}:here", **FIT)


def test_the_command_line_has_it_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "study.toml").write_text(STUDY)
    words = ["run", f"{tmp_path / 'study.toml'}", "--out", f"{tmp_path / 'run'}", "--json"]
    assert main([*words, "--log", "jsonl"]) == 0
    shown = capsys.readouterr()
    assert len(json.loads(shown.out)["final"]) > 2
    rows = [json.loads(line) for line in shown.err.splitlines() if line.startswith("{")]
    assert [row["step"] for row in rows] == [1, 2, 3, 4]


class _Client:
    """MLflow's client, which keeps what it is told."""

    told: list[tuple[Any, ...]]

    def __init__(self, *, tracking_uri: str) -> None:
        type(self).told = [("at", tracking_uri)]

    def get_experiment_by_name(self, _name: str) -> None:
        return None

    def create_experiment(self, name: str) -> str:
        self.told.append(("experiment", name))
        return "1"

    def create_run(self, experiment: str, *, run_name: str) -> Any:
        return SimpleNamespace(info=SimpleNamespace(run_id=run_name))

    def log_param(self, _run: str, key: str, value: Any) -> None:
        self.told.append(("param", key, value))

    def log_metric(self, _run: str, key: str, value: float, *, step: int) -> None:
        self.told.append(("metric", key, value, step))

    def set_terminated(self, _run: str, status: str) -> None:
        sys.stdout.write(f"View run at: {self.told[0][1]}\n")
        self.told.append(("end", status))


def _installed(client: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow is there, with this client."""
    for name in ("mlflow", "mlflow.tracking"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["mlflow.tracking"].MlflowClient = client  # type: ignore[attr-defined]


def test_a_server_that_dies_in_a_run_is_waited_for_once_and_not_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str | None] = []

    class Dying(_Client):
        def log_metric(self, *_: Any, step: int, **__: Any) -> None:
            if step > 1:
                calls.append(os.environ.get("MLFLOW_HTTP_REQUEST_MAX_RETRIES"))
                raise OSError("connection refused")

        def set_terminated(self, _run: str, status: str) -> None:
            calls.append(status)

    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", raising=False)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "3")  # one's own stays
    _installed(Dying, monkeypatch)
    with pytest.warns(UserWarning, match="nothing more is logged"):
        result = hubbub.fit(SILOS, log="mlflow:https://runs.example", **FIT)
    assert len(result.metrics) == 4
    assert calls == ["2"]
    assert "MLFLOW_HTTP_REQUEST_MAX_RETRIES" not in os.environ
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "3"


def test_mlflow_is_told_the_same_and_no_name_of_a_user_or_a_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _installed(_Client, monkeypatch)
    where = "https://ada:S3cret@runs.example"
    result = hubbub.fit(SILOS, log=f"mlflow:{where}", **FIT)
    assert "View run" not in capsys.readouterr().out  # where --json has its one object
    told = _Client.told
    assert told[:2] == [("at", where), ("experiment", "fit")]
    assert {one[1] for one in told if one[0] == "param"} == {"study", "delta"}
    metrics = {(key, step): value for kind, key, value, step in (t for t in told if len(t) == 4)}
    assert metrics == {
        (key, row["step"]): value
        for row in result.metrics
        for key, value in row.items()
        if key != "step"
    }
    assert told[-1] == ("end", "FINISHED")


def test_tensorboard_has_the_rows(tmp_path: Path) -> None:
    """Read back by TensorBoard itself, where it is installed."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = hubbub.fit(SILOS, log=f"tensorboard:{tmp_path / 'board'}", **FIT)
    events = EventAccumulator(str(tmp_path / "board")).Reload()
    assert {*events.Tags()["scalars"]} | {"step"} == {*result.metrics[-1]}
    shown = [(event.step, event.value) for event in events.Scalars("epsilon")]
    assert shown == [(row["step"], pytest.approx(row["epsilon"])) for row in result.metrics]
