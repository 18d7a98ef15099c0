"""What a replay makes of sums and states: nothing that was taken is proven, and nothing dropped."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hubbub.core.errors import ProtocolError
from hubbub.core.verification.evidence.evidence_file import NOT_VERIFIABLE, REDERIVED
from hubbub.core.verification.replay.course import Course, digest_of
from protocol.parties import world

NUMBERS = world(4).round_parameters
BEGIN, SUM = np.zeros(2, np.float32), np.ones(2)


class Adding:
    """Adds a sum over the divisor."""

    def step(self, parameters: Any, gradient: Any, divisor: float) -> Any:
        return (parameters + gradient / divisor).astype(np.float32)

    def state(self) -> dict[str, Any]:
        return {}


def course(begin: Any = BEGIN, *, misfit: str = "", **more: Any) -> Course:
    """Of a query whose sums are added up by halves, and which is asked at a model as it is."""
    query = SimpleNamespace(
        stepper=lambda _: Adding(),
        start=lambda model: model,
        misfit=lambda sent, begin, sums: misfit,
        result=lambda state: state.parameters,
    )
    planned: Any = SimpleNamespace(query=query, mechanism=SimpleNamespace(divisor=2.0))
    return Course(planned, begin, **more)


def test_what_was_computed_from_the_beginning_is_proven_and_is_where_it_has_led() -> None:
    one = course()
    for round in (1, 2):
        one.reach(round)
        one.expect((BEGIN + (round - 1) / 2).astype(np.float32), NUMBERS)
        one.step(round, SUM)
    one.miss(2, 2)
    assert one.is_proven
    assert one.led is not None
    assert (one.led.step, one.led.parameters.tolist()) == (2, [1.0, 1.0])
    assert one.judged("it is so", "").verdict == REDERIVED


def test_a_model_that_is_off_by_a_last_bit_is_no_step_of_the_sums() -> None:
    one = course(np.ones(2, np.float32))
    one.reach(1)
    with pytest.raises(ProtocolError, match="1 of 2 parameters"):
        one.expect(np.array([1.0, 1.0 + 2.0**-23], np.float32), NUMBERS)


@pytest.mark.parametrize("rounds", [(2,), (1, 3)])
def test_a_round_that_was_never_begun_is_missed(rounds: tuple[int, ...]) -> None:
    one = course()
    *before, last = rounds
    for round in before:
        one.reach(round)
    with pytest.raises(ProtocolError, match="nothing was kept"):
        one.reach(last)


def test_a_round_that_has_a_sum_is_not_asked_again_and_one_without_is() -> None:
    one = course()
    one.reach(1)
    one.reach(1)
    one.step(1, SUM)
    with pytest.raises(ProtocolError, match="found round 1 again"):
        one.reach(1)
    lost = course()
    lost.reach(1)
    lost.step(1, None)
    lost.reach(1)


def test_a_run_may_go_back_behind_a_model_that_was_shown_after_a_sum_that_was_lost() -> None:
    """Killed before a step was on disk, and after the MODEL of the next round was sent."""
    one, models = course(), [np.full(2, k, np.float32) for k in range(3)]
    for round in (1, 2):
        one.reach(round)
        one.expect(models[round - 1], NUMBERS)
        if round == 1:
            one.step(round, None)
    one.reach(1)
    one.expect(models[0], NUMBERS)
    one.reach(1)  # and no other model is shown in the attempt after it
    with pytest.raises(ProtocolError, match="did not take that step"):
        one.expect(models[2], NUMBERS)
    one.step(1, None)
    one.reach(2)
    one.expect(models[2], NUMBERS)  # of another sum
    assert one.led is None
    assert not one.is_proven


def test_a_state_that_was_taken_proves_nothing_though_all_sums_follow() -> None:
    one = course(None)
    one.reach(1)
    one.expect(BEGIN, NUMBERS)
    one.step(1, SUM)
    one.miss(1, 1)
    assert one.led is not None
    assert not one.is_proven
    assert "was sent and could not be recomputed" in one.judged("it is so", "").claim


def test_a_state_that_no_sums_lead_to_is_not_taken() -> None:
    with pytest.raises(ProtocolError, match="it carries others"):
        course(None, misfit="it carries others").expect(BEGIN, NUMBERS)


def test_a_sum_that_could_not_be_made_is_lost_whatever_is_taken_after_it() -> None:
    one = course()
    one.reach(1)
    one.step(1, None)
    one.reach(2)
    one.expect(BEGIN, NUMBERS)
    one.step(2, SUM)
    one.reach(3)
    one.expect(np.full(2, 7.0, np.float32), NUMBERS)  # what the lost one left in the optimizer
    one.miss(3, 3)
    assert one.led is None
    assert not one.is_proven
    assert one.judged("it is so", "").verdict == NOT_VERIFIABLE


@pytest.mark.parametrize(("begun", "proven"), [(2, True), (1, False)])
def test_whoever_shows_fewer_attempts_than_were_asked_for_proves_nothing(
    begun: int, proven: bool
) -> None:
    one = course()
    for round in (1, 2):
        one.reach(round)
        one.step(round, SUM)
    one.miss(begun, 2)
    assert one.is_proven == proven
    verdict = REDERIVED if proven else NOT_VERIFIABLE
    assert one.judged("it is so", "").verdict == verdict
    assert one.judged("it is so", "it is not").holds is False


def test_what_begins_at_a_state_that_is_not_proven_is_not_proven_either() -> None:
    assert course().is_proven
    assert not course(proven=False).is_proven


def result(*numbers: float) -> bytes:
    return np.array(numbers, "<f4").tobytes()


@pytest.mark.parametrize(
    ("shown", "says"),
    [
        (result(0.0), "of a model that is asked at"),
        (result(0.0, np.nan), "of a model that is asked at"),
        (result(0.0, np.inf), "of a model that is asked at"),
        (result(0.0, 1.0), "that the training has led to"),
    ],
)
def test_a_result_is_of_the_model_that_the_training_has_led_to(shown: bytes, says: str) -> None:
    course(model=2).begin_at(result(0.0, 0.0))
    with pytest.raises(ProtocolError, match=says):
        course(model=2).begin_at(shown)
    with pytest.raises(ProtocolError, match="of a model that is asked at"):
        course().begin_at(result(0.0, 0.0))


def test_where_the_training_could_not_be_followed_one_result_is_taken_and_no_second() -> None:
    one = course(None, model=2)
    one.begin_at(result(1.0, 2.0))
    one.begin_at(result(1.0, 2.0))
    assert not one.is_proven
    with pytest.raises(ProtocolError, match="shown before"):
        one.begin_at(result(1.0, 2.5))


@pytest.mark.parametrize("short", [False, True])
def test_no_step_is_taken_from_a_model_that_was_shortened_on_its_way(*, short: bool) -> None:
    one = course(None)
    one.reach(1)
    one.expect(BEGIN, replace(NUMBERS, short_models=short))
    one.step(1, SUM)
    assert (one.led is None) is short


def test_what_sums_led_to_is_known_after_every_round_and_at_the_end_is_the_result_too() -> None:
    one = course()
    one._query.result = lambda state: state.parameters * 3
    assert one.states_after(2) == {digest_of(BEGIN), digest_of(BEGIN * 3)}
    for round in (1, 3):
        one.reach(round) if round == 1 else [one.reach(2), one.reach(3)]
        one.step(round, SUM)
    half, whole = (np.full(2, value, np.float32) for value in (0.5, 1.0))
    assert one.states_after(1) == one.states_after(2) == {digest_of(half)}
    assert one.states_after(3) == {digest_of(whole), digest_of(whole * 3)}
    one.reach(4)
    one.step(4, None)
    assert one.states_after(3) == {digest_of(whole)}
    assert one.states_after(4) == set()
    assert course(None).states_after(0) == set()
