"""A mean of the models of all steps as the result: what was released, and nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

import hubbub
from hubbub.core.errors import IntegrityError
from hubbub.core.verification.replay.checking import verify
from hubbub.learning.optimizers import Averaged, Optimizer

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
def test_the_last_step_gives_the_mean_and_the_others_what_they_gave(
    first: int, decay: float | None
) -> None:
    plain = models_of(adam())
    *before, last = models_of(Averaged(adam(), steps=STEPS, first=first, decay=decay))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(before, plain, strict=False))
    mean = np.zeros(3)
    for number, model in enumerate(plain[first - 1 :]):
        kept = number / (number + 1) if decay is None else min(decay, number / (number + 9))
        mean = kept * mean + (1 - kept) * model
    np.testing.assert_allclose(last, mean, rtol=1e-6)


def test_a_stopped_average_goes_on_and_refuses_another_state() -> None:
    whole = models_of(Averaged(adam(), steps=STEPS))
    first = Averaged(adam(), steps=STEPS)
    model = np.zeros(3, np.float32)
    for gradient in GRADIENTS[:2]:
        model = first.step(model, gradient)
    again = Averaged(adam(), steps=STEPS)
    again.load_state({name: np.array(value) for name, value in first.state().items()})
    assert models_of(again, 2, model)[-1].tobytes() == whole[-1].tobytes()
    plain = adam()
    plain.step(np.zeros(3, np.float32), GRADIENTS[0])
    with pytest.raises(IntegrityError, match="mean of models"):
        Averaged(adam(), steps=STEPS).load_state(plain.state())


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
