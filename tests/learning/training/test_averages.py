"""A mean of the models of all steps as the result: what was released, and nothing else."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from safetensors import safe_open

import hubbub
from hubbub.core.errors import IntegrityError
from hubbub.core.planning.query import QueryState
from hubbub.core.planning.study_plan import plan
from hubbub.core.runs import loop
from hubbub.core.study.study import Study
from hubbub.core.verification.replay.checking import verify
from hubbub.core.verification.replay.course import Course
from hubbub.learning.optimizers import Averaged, Optimizer, mean_in
from hubbub.learning.queries.training_query import TrainingQuery

STEPS = 5
GRADIENTS = np.random.default_rng(0).normal(size=(STEPS, 3))


def models_of(stepper: Averaged | Optimizer, start: int = 0, model: object = None) -> list:
    models = [np.zeros(3, np.float32) if model is None else model]
    for gradient in GRADIENTS[start:]:
        models.append(stepper.step(models[-1], gradient))
    return models[1:]


def adam() -> Optimizer:
    return Optimizer("adam", lr=0.1, schedule="linear", steps=STEPS)


@pytest.mark.parametrize(("first", "decay"), [(1, None), (4, None), (1, 0.9), (1, 0.2)])
def test_steps_give_what_they_gave_and_the_state_keeps_the_mean(
    first: int, decay: float | None
) -> None:
    plain, averaged = models_of(adam()), Averaged(adam(), first=first, decay=decay)
    models = models_of(averaged)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(models, plain, strict=True))
    mean = np.zeros(3)
    for number, model in enumerate(plain[first - 1 :]):
        kept = number / (number + 1) if decay is None else min(decay, number / (number + 9))
        mean = kept * mean + (1 - kept) * model
    np.testing.assert_allclose(mean_in(averaged.state(), models[-1]), mean, rtol=1e-6)


@pytest.mark.parametrize(
    ("share", "steps", "models"), [(0.1, 30, 3), (0.07, 100, 7), (0.1, 31, 4), (1.0, 5, 5)]
)
def test_a_share_of_the_steps_that_is_a_whole_number_is_not_rounded_up(
    share: float, steps: int, models: int
) -> None:
    """0.07 * 100 is above 7 in floating-point numbers."""
    average = SimpleNamespace(kind="tail", share=share)
    training: Any = SimpleNamespace(
        optimizer={"name": "sgd", "lr": 0.1}, steps=steps, average=average
    )
    stepper: Any = TrainingQuery.stepper(
        cast(Any, SimpleNamespace(training=training)), cast(Any, None)
    )
    assert stepper._first == 1 + steps - models


def test_a_stopped_average_goes_on_and_refuses_another_state() -> None:
    whole, first = Averaged(adam()), Averaged(adam())
    models_of(whole)
    model = np.zeros(3, np.float32)
    for gradient in GRADIENTS[:2]:
        model = first.step(model, gradient)
    again = Averaged(adam())
    again.load_state({name: np.array(value) for name, value in first.state().items()})
    models_of(again, 2, model)
    assert again.state()["mean"].tobytes() == whole.state()["mean"].tobytes()
    plain = adam()
    plain.step(np.zeros(3, np.float32), GRADIENTS[0])
    with pytest.raises(IntegrityError, match="mean of models"):
        Averaged(adam()).load_state(plain.state())


@pytest.mark.parametrize("lost", [0, 1, 2, 3])
@pytest.mark.parametrize("average", [{"kind": "exponential"}, {"kind": "tail", "share": 0.5}])
def test_the_result_is_the_mean_however_many_attempts_were_lost(
    average: dict[str, Any], lost: int
) -> None:
    """Each costs a step, so that there are fewer; a verifier is led to the same."""
    steps = 4
    table = {"steps": steps, "sample_rate": 1.0, "optimizer": {"name": "adam", "lr": 0.1}}
    study = Study.from_table(
        {
            "study": {"name": "means"},
            "parties": {"silos": 3, "colluders": 1},
            "data": {"source": "python:own:records"},
            "model": {"kind": "logistic", "inputs": [2]},
            "training": {**table, "average": average},
            "privacy": {"epsilon": 1.0, "delta": 1e-5},
        }
    )
    main = plan(study).main
    stepper, course = main.query.stepper(main), Course(main, np.zeros(3, np.float32))
    models = models_of(stepper)[: steps - lost]

    def summation(step: int, parameters: Any, left: int) -> loop.Summed:
        course.reach(step)
        course.step(step, GRADIENTS[step - 1])
        return loop.Summed(gradient=GRADIENTS[step - 1], attempts=1 + lost * (step == 1))

    start = QueryState(parameters=np.zeros(3, np.float32))
    seen: list[QueryState] = []
    state = loop.ask(main, summation, start, divisor=main.mechanism.divisor, keep=seen.append)
    mean, inside = np.zeros(3), models if average["kind"] == "exponential" else models[2:]
    for number, model in enumerate(inside):
        weight = 9 / (number + 9) if average["kind"] == "exponential" else 1 / (number + 1)
        mean += weight * (model - mean)
    np.testing.assert_allclose(state.parameters, mean if inside else models[-1], rtol=1e-6)
    assert course.led is not None
    parts = {one.parameters.tobytes() for one in (state, seen[-1], course.led)}
    assert parts == {state.parameters.tobytes()}


def test_a_run_with_an_average_says_so_in_its_model_and_is_verified(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    silos = {
        name: (generator.uniform(-1, 1, (40, 3)), np.arange(40) % 2) for name in ("a", "b", "c")
    }
    average = {"kind": "tail", "share": 0.5}
    hubbub.fit(silos, epsilon=2, steps=4, classes=[0, 1], average=average, out=tmp_path / "out")
    [path] = (tmp_path / "out").rglob("model.safetensors")
    with safe_open(path, framework="np") as file:
        assert file.metadata()["average"] == "tail"
    assert all(one.holds for one in verify(tmp_path / "out"))
