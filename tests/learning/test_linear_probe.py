"""The linear probe: one noisy sum of moments, and least squares on what came out of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import hubbub
from hubbub import Study, plan
from hubbub.core.errors import StudyError
from hubbub.core.tabular.records import Records
from hubbub.core.verification.replay.checking import verify
from hubbub.learning import TrainingTask, build_model, parameters_vector
from hubbub.learning.models import least_squares, normalised
from hubbub.learning.study.model import told_shape
from hubbub.learning.target_types import ProbedClasses

torch.set_num_threads(1)


def records_for(outputs: int, count: int = 300, width: int = 5) -> Records:
    rng = np.random.default_rng(outputs)
    inputs = rng.normal(size=(count, width)).astype(np.float32)
    if outputs == 1:
        return Records(inputs=inputs, targets=(inputs[:, 0] > inputs[:, 1]).astype(np.float32))
    return Records(inputs=inputs, targets=inputs[:, :outputs].argmax(1))


@pytest.mark.slow
@pytest.mark.parametrize("outputs", [1, 3])
def test_one_sum_and_least_squares_are_those_of_numpy(outputs: int) -> None:
    records = records_for(outputs)
    model = build_model("linear-probe", inputs=(5,), outputs=outputs, seed=b"")
    task = TrainingTask(
        model, records, clip=1.0, margin=2.0**-9, method="auto", target_type=ProbedClasses()
    )
    found = task.clipped_sum(parameters_vector(model), np.arange(len(records)))
    vector = torch.from_numpy(-found.astype(np.float32))
    torch.nn.utils.vector_to_parameters(vector, model.parameters())
    rows = normalised(torch.from_numpy(records.inputs)).double().numpy()
    wanted = 2 * records.targets[:, None] - 1 if outputs == 1 else np.eye(outputs)[records.targets]
    solution = np.linalg.pinv(rows, rcond=1e-4) @ wanted.astype(np.float64)
    with torch.no_grad():
        logits = model.eval()(torch.from_numpy(records.inputs)).numpy()
    expected = rows @ solution
    if outputs == 1:
        np.testing.assert_allclose(np.tanh(logits / 2), expected[:, 0].clip(-0.99, 0.99), atol=2e-3)
    else:
        assert (logits.argmax(1) == expected.argmax(1)).mean() > 0.98


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_a_record_is_as_long_as_the_clip_whatever_it_holds(scale: float) -> None:
    records = records_for(3, count=4)
    huge = replace(records, inputs=(records.inputs * np.float32(scale)).astype(np.float32))
    model = build_model("linear-probe", inputs=(5,), outputs=3, seed=b"")
    task = TrainingTask(
        model, huge, clip=1.0, margin=2.0**-9, method="auto", target_type=ProbedClasses()
    )
    found = task.clipped_sum(parameters_vector(model), np.array([2]))
    assert np.linalg.norm(found) <= 1 + 1e-6
    if scale == 1:
        assert np.linalg.norm(found) >= 1 - 1e-5


def test_directions_that_may_be_noise_are_not_believed() -> None:
    """Noise on a sum with three true directions: the others' weights stay below the floor's."""
    rng = np.random.default_rng(0)
    truth = np.diag([1e4, 5e3, 2e3, *np.zeros(37)])
    noise = rng.normal(size=(40, 40))
    first = torch.from_numpy(np.ones((1, 40)))
    found = least_squares(torch.from_numpy(truth + noise), first)[0].numpy()
    edge = 0.2 * np.sqrt(2 * 40) / 0.6  # of noise of deviation 1, as it is scaled back
    assert np.linalg.norm(found[3:]) <= 1.1 * np.linalg.norm(np.ones(37)) / 0.8 / edge
    strong = torch.from_numpy(np.array([[1.0] * 3 + [0.0] * 37]))
    known = least_squares(torch.from_numpy(truth + noise), strong)[0].numpy()
    np.testing.assert_allclose(known[:3], 0.6 / 0.8 / np.array([1e4, 5e3, 2e3]), rtol=0.05)
    exact = least_squares(torch.from_numpy(truth + np.eye(40)), first)[0].numpy()
    np.testing.assert_allclose(exact, 0.6 / 0.8 / (np.diag(truth) + 1), rtol=1e-3)


def study(**changes: dict[str, Any]) -> Study:
    made: dict[str, Any] = {
        "study": {"name": "probe"},
        "parties": {"silos": 4, "colluders": 1},
        "data": {"source": "hubbub.datasets:heart", "records": 735},
        "model": {"kind": "linear-probe"},
        "training": {"steps": 1, "sampling": "full-batch", "optimizer": {"name": "sgd", "lr": 1.0}},
        "privacy": {"epsilon": 1.0, "delta": 1e-5},
    }
    made["parties"]["names"] = ["cleveland", "hungary", "switzerland", "va-long-beach"]
    del made["parties"]["silos"]
    for key, values in changes.items():
        made[key] |= values
    return Study.from_table(made)


@pytest.mark.slow
def test_a_probe_is_run_charged_and_verified_as_any_model(tmp_path) -> None:
    made = plan(study())
    assert made.dimension == 27 * 28
    assert told_shape(made.study, made.dimension) == (26,)
    result = hubbub.run(study(privacy={"epsilon": 8.0}), out=tmp_path / "run")
    assert result.final["auc"] > 0.7  # .875 with a deviation of .016 over 30 rehearsals
    assert all(one.holds for one in verify(tmp_path / "run"))
    again = hubbub.load(tmp_path / "run")
    inputs = np.random.default_rng(0).normal(size=(5, 26)).astype(np.float32)
    np.testing.assert_array_equal(again.predict(inputs), result.predict(inputs))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"training": {"optimizer": {"name": "adam", "lr": 0.1}}}, 'name = "sgd", lr = 1'),
        ({"model": {"hidden": [3]}}, "model.hidden to be absent"),
        ({"model": {"bias": False}}, "model.bias to be absent"),
        ({"model": {"loss": "huber"}}, "model.loss to be absent"),
    ],
)
def test_what_a_probe_does_not_know_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(StudyError, match=says):
        study(**changes)
