"""Views of a record: its part is the mean over them, clipped once, and follows from it alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from hubbub.core.errors import ModelError, StudyError
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.tabular.records import Records
from hubbub.learning import TrainingTask, build_model, parameters_vector, per_unit_model
from hubbub.learning.models import default_loss
from hubbub.learning.study.training import Augment
from hubbub.learning.views import Views, by_function, crop_flip, views_of

torch.set_num_threads(1)
COUNT, SIDE, CLIP, EMPTY = 3, 16, 0.01, -1
ROWS = np.arange(6)


def greedy(record: torch.Tensor) -> torch.Tensor:
    """Draws more, of each generator, the brighter a record is."""
    for _ in range(int(1000 * record.abs().sum()) % 7):
        torch.rand(()), np.random.rand()  # noqa: NPY002 (as a model may)
    return record + torch.rand(()) + np.random.rand()  # noqa: NPY002 (the same)


def shorter(record: torch.Tensor) -> torch.Tensor:
    return record[..., 1:]


KINDS: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "crop-flip": crop_flip,
    "function": partial(by_function, greedy),
}


def images(*, patients: bool = False, seed: int = 0) -> Records:
    generator = np.random.default_rng(seed)
    return Records(
        inputs=generator.normal(size=(6, 1, SIDE, SIDE)).astype(np.float32),
        targets=generator.integers(0, 3, 6),
        patients=np.array([0, 0, 1, 2, 2, 3]) if patients else None,
    )


def task_of(kind: str, records: Records, clip: float = CLIP) -> TrainingTask:
    model = build_model("logistic", inputs=(1, SIDE, SIDE), outputs=3, seed=b"")
    torch.nn.init.constant_(next(model.parameters()), 0.1)
    places = 1 if records.patients is None else 2
    return TrainingTask(
        per_unit_model(model, places * COUNT),
        records,
        clip=clip,
        margin=2.0**-9,
        method="auto",
        views=Views(count=COUNT, make=KINDS[kind]),
    )


def total(task: TrainingTask, rows: np.ndarray) -> np.ndarray:
    """The sum over rows, with the same views whenever it is asked."""
    task._rows._source = SecureSource(b"n" * 32)
    return task.clipped_sum(parameters_vector(task._model), rows)


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("patients", [False, True])
def test_p21_neighbours_differ_by_one_clipped_mean_whatever_the_other_record_is(
    kind: str, *, patients: bool
) -> None:
    records, others = images(patients=patients), set()
    rows = np.arange(records.units)
    for factor in (1.0, -50.0):
        inputs = records.inputs.copy()
        inputs[0] *= factor
        task = task_of(kind, replace(records, inputs=inputs))
        everybody, rest = total(task, rows), total(task, np.append(EMPTY, rows[1:]))
        assert 0 < np.linalg.norm(everybody - rest) <= CLIP
        others.add(rest.tobytes())
        alone = total(task, np.append(rows[:1], np.full(len(rows) - 1, EMPTY)))
        np.testing.assert_allclose(everybody, alone + rest, atol=1e-8)  # the others' views stay
    assert len(others) == 1


@pytest.mark.parametrize("clip", [CLIP, 1e6])
def test_p21_the_part_is_the_mean_over_views_clipped_once(clip: float) -> None:
    records, seen = images(), []

    def noting(rows: torch.Tensor, views: int) -> torch.Tensor:
        seen.append(crop_flip(rows, views))
        return seen[-1]

    KINDS["noting"] = noting
    task = task_of("noting", records, clip)
    seen.clear()  # of the null record
    part = total(task, ROWS[[4]])
    [views] = seen
    model = task._model.rows
    loss = default_loss(3)(model(views[0]), torch.full((COUNT,), int(records.targets[4])))
    gradients = torch.autograd.grad(loss.mean(), list(model.parameters()))
    mean = torch.cat([one.reshape(-1) for one in gradients]).numpy()
    norm = np.linalg.norm(mean)
    assert norm > 10 * CLIP
    np.testing.assert_allclose(part, min(1, clip / norm) * mean, rtol=2e-5, atol=1e-7)


def test_crops_are_of_their_own_image_and_half_of_them_are_mirrored() -> None:
    torch.manual_seed(0)
    ramp = torch.arange(SIDE).float().expand(SIDE, SIDE)
    shown = crop_flip(torch.stack([ramp, 100 + ramp])[:, None], 64)
    assert shown.shape == (2, 64, 1, SIDE, SIDE)
    assert shown[0].max() < SIDE <= 100 <= shown[1].min()
    rising = (shown[:, :, 0, 0, 8] > shown[:, :, 0, 0, 7]).float().mean()
    assert 0.35 < rising < 0.65
    starts = {float(view[0, 0, 4]) for view in shown[0]}
    assert len(starts) > 5  # places differ


def test_what_makes_no_view_is_refused_before_anything_is_trained() -> None:
    with pytest.raises(StudyError, match="channels, height, width"):
        views_of(Augment(views=2), (5,))
    with pytest.raises(ModelError, match="shape, found another"):
        views_of(Augment(views=2, kind=f"python:{__name__}:shorter"), (4,))
    with pytest.raises(ModelError, match="record's shape"):
        by_function(shorter, torch.zeros(2, 4), 2)
    assert views_of(None, (5,)) is None


def test_a_view_that_raises_on_the_null_record_is_refused_where_it_would_leave_all_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def of_pixels(record: torch.Tensor) -> torch.Tensor:
        if record.min() < 0:  # as made-up records are
            raise ValueError("expected pixels")
        return record

    monkeypatch.setitem(KINDS, "pixels", partial(by_function, of_pixels))
    with pytest.raises(ModelError, match="raised ValueError; let training"):
        task_of("pixels", images())


def test_a_view_that_raises_leaves_its_record_out_and_no_other() -> None:
    def raising(record: torch.Tensor) -> torch.Tensor:
        if float(record.sum()) == 0:
            raise ValueError(record)
        return record

    KINDS["raising"] = partial(by_function, raising)
    records = images()
    task = task_of("raising", records)
    without = total(task, np.array([0, 1, EMPTY, 3, 4, 5]))
    records.inputs[2] = 0
    assert total(task_of("raising", records), ROWS).tobytes() == without.tobytes()
