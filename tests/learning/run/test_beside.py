"""What a run does beside its next step: rows of metrics and states on disk, in order and whole."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from hubbub.core.errors import IntegrityError
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.planning.query import QueryState
from hubbub.core.runs import checkpoint, loop
from hubbub.core.runs.checkpoint import Checkpoint, newest_checkpoint, write_checkpoint
from hubbub.core.runs.loop import Summed, train
from hubbub.core.runs.prepared_study import PreparedStudy
from hubbub.core.runs.run_folder import RunFolder
from hubbub.learning.runs.preparing import prepare
from hubbub.learning.runs.run_study import run
from run.finished import a_study, planned

STEPS = 6
STUDY = a_study(steps=STEPS)


@pytest.fixture(scope="module")
def prepared() -> PreparedStudy:
    return prepare(STUDY, planned(STUDY))


def summed(step: int, parameters: Any, _left: int) -> Summed:
    """A gradient that follows from the step and the model alone."""
    return Summed(gradient=np.cos(np.arange(parameters.size) + step) - parameters)


def trained(
    prepared: PreparedStudy,
    *,
    start: QueryState | None = None,
    stop: int | None = None,
    schedule: loop.EvaluationSchedule | None = None,
) -> list[QueryState]:
    """The states of a training, all of them or up to a step at which it is stopped."""
    kept: list[QueryState] = []

    def progress(step: int, _row: Any) -> None:
        if step == stop:
            raise KeyboardInterrupt

    try:
        end = train(
            prepared,
            summed,
            progress,
            divisor=1.0,
            start=start,
            keep=kept.append,
            schedule=schedule,
        )
    except KeyboardInterrupt:
        return kept
    assert end is kept[-1]
    return kept


@pytest.mark.quick_cases("5", "3", "4")
@pytest.mark.parametrize("stop", range(1, STEPS))
def test_a_run_stopped_after_any_step_goes_on_with_the_same_rows(
    prepared: PreparedStudy, stop: int, tmp_path: Path
) -> None:
    whole, before = trained(prepared)[-1], trained(prepared, stop=stop)[-1]
    assert before.step == before.row_due == stop  # its row is not made yet, and is not forgotten
    assert [row["step"] for row in before.rows] == list(range(1, stop))
    write_checkpoint(tmp_path / "checkpoints", Checkpoint(state=before))
    found = newest_checkpoint(tmp_path / "checkpoints")
    assert found is not None
    # An attempt that was charged and lost is no part of the row that was owed.
    after = trained(prepared, start=replace(found.state, attempts=stop + (stop < STEPS - 1)))[-1]
    assert list(after.rows[:stop]) == list(whole.rows[:stop])
    assert "auc" in whole.rows[0]
    if stop == STEPS - 1:
        assert after.rows == whole.rows
        assert (after.parameters == whole.parameters).all()


def test_every_state_that_is_kept_has_all_rows_before_its_own(prepared: PreparedStudy) -> None:
    for state in trained(prepared):
        rows = [row["step"] for row in state.rows]
        assert rows == list(range(1, state.step + (state.step == STEPS)))
        assert state.row_due == (state.step if state.step < STEPS else 0)


def test_what_a_session_was_asked_for_is_kept_with_its_step(prepared: PreparedStudy) -> None:
    """It is charged: a row of it that is lost could not be asked for again."""
    schedule = loop.EvaluationSchedule(
        after=frozenset({2, 4}), at=lambda step, _: {"held_back_loss": float(step)}
    )
    for state in trained(prepared, schedule=schedule):
        asked = [row["step"] for row in state.rows if "held_back_loss" in row]
        assert asked == [step for step in (2, 4) if step <= state.step]
        assert not (state.row_due and state.step in (2, 4))


def test_a_row_is_made_on_another_thread_with_another_model(
    prepared: PreparedStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, bool]] = []
    real = PreparedStudy.evaluate

    def evaluate(self: PreparedStudy, parameters: Any) -> dict[str, float]:
        seen.append((threading.get_ident(), self.learner.model is prepared.learner.model))
        return real(self, parameters)

    monkeypatch.setattr(PreparedStudy, "evaluate", evaluate)
    trained(prepared)
    here = threading.get_ident()
    assert [one == here for one, _ in seen] == [False] * (STEPS - 1) + [True]
    assert not any(shared for _, shared in seen)


def test_nothing_is_charged_before_the_state_before_it_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a kill could take two steps that are paid for, not one."""
    events: list[tuple[str, int]] = []

    def noted(owner: Any, name: str, number: Callable[..., int]) -> None:
        real = getattr(owner, name)

        def called(*given: Any, **named: Any) -> Any:
            if name == "charge":
                events.append((name, number(*given)))
            found = real(*given, **named)
            if name != "charge":
                threading.Event().wait(0.02)  # the disk takes its time
                events.append((name, number(*given)))
            return found

        monkeypatch.setattr(owner, name, called)

    noted(Ledger, "charge", lambda _, entry: entry.round)
    noted(checkpoint, "write_checkpoint", lambda _, kept: kept.state.step)
    run(STUDY, tmp_path / "run", plan=planned(STUDY))
    for place, (name, number) in enumerate(events):
        if name == "charge" and number > 1:
            assert ("write_checkpoint", number - 1) in events[:place]
    assert events[-1][0] == "write_checkpoint"


def test_a_state_that_the_disk_refuses_ends_the_run_before_the_next_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = RunFolder.keep

    def keep(self: RunFolder, state: QueryState, heads: Any) -> None:
        if state.step == 2:
            raise IntegrityError("expected a disk, got none")
        real(self, state, heads)

    monkeypatch.setattr(RunFolder, "keep", keep)
    with pytest.raises(IntegrityError, match="expected a disk"):
        run(STUDY, tmp_path / "run", ledgers=tmp_path / "ledgers", plan=planned(STUDY))
    for name in STUDY.parties.names:
        with Ledger(tmp_path / "ledgers" / f"{name}.sqlite") as book:
            assert max(entry.round for entry in book.entries()) == 2


def test_a_checkpoint_is_a_safetensors_file_of_what_it_was_given(tmp_path: Path) -> None:
    state = QueryState(
        step=3,
        attempts=4,
        parameters=np.arange(5, dtype=np.float32),
        optimizer={"step": np.array(3), "first": np.linspace(0, 1, 5), "powers": np.ones(2)},
        rows=({"step": 1, "epsilon": 0.5},),
        row_due=4,
    )
    path = write_checkpoint(tmp_path, Checkpoint(state=state, heads={"a": bytes(32)}))
    arrays = load(path.read_bytes())
    assert arrays["parameters"].tolist() == [0, 1, 2, 3, 4]
    assert arrays["optimizer.first"].tolist() == state.optimizer["first"].tolist()
    found = newest_checkpoint(tmp_path)
    assert found is not None
    assert found.heads == {"a": bytes(32)}
    assert (found.state.rows, found.state.row_due, found.state.attempts) == (state.rows, 4, 4)
    for name, value in state.optimizer.items():
        assert found.state.optimizer[name].dtype == value.dtype
        assert found.state.optimizer[name].shape == value.shape
