"""What an aggregator writes down of its attempts, and how it counts those of a lost session."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from hubbub.core.errors import UserError
from hubbub.core.protocol.primitives.wire import Tag, unverified
from hubbub.core.protocol.round.draw import draw_of
from hubbub.core.session.ask import AbsentError
from hubbub.core.session.rounds import NoisySums, Rounds
from protocol.parties import world

WORLD = world()
PARAMETERS = np.zeros(0, np.float32)


@pytest.mark.parametrize("joint", [False, True])
def test_p15_a_model_is_written_down_before_anybody_is_asked(
    monkeypatch: pytest.MonkeyPatch, *, joint: bool
) -> None:
    """Else an attempt that silos have paid for could be missing after a crash."""
    done = mock.Mock()
    monkeypatch.setattr(Rounds, "_masked", done.asked)
    monkeypatch.setattr(Rounds, "_links", done.asked)
    numbers = mock.Mock(needs_joint_seed=joint, full_shares=False, nodes=0)
    more: dict[str, Any] = dict.fromkeys(("peers", "attendance", "aggregator"), mock.Mock())
    more |= {"layout": mock.Mock(), "channel": mock.Mock(), "recorder": done.recorder}
    Rounds(round_parameters=numbers, **more).attempt(1, 0, PARAMETERS)
    names = [name for name, *_ in done.mock_calls]
    assert names == ["recorder.keep", "recorder.seal", *["asked"] * (1 + joint)]


@pytest.mark.parametrize("here", [2, 3])
def test_no_attempt_is_begun_by_fewer_than_the_quorum_or_where_approval_was_withdrawn(
    here: int,
) -> None:
    numbers = mock.Mock(quorum=3, silos=4, nodes=0, needs_joint_seed=False)
    attendance = mock.Mock(present={*range(here)}, is_some_node_absent=False, named_absent={})
    attendance.ask_absent.return_value = False
    more: dict[str, Any] = dict.fromkeys(("peers", "aggregator", "layout", "channel"), mock.Mock())
    permit = mock.Mock(side_effect=UserError("withdrawn"))
    rounds = Rounds(round_parameters=numbers, attendance=attendance, permit=permit, **more)
    with pytest.raises(UserError if here == 3 else AbsentError):
        rounds.round(1, PARAMETERS, 5)
    assert (permit.call_count, rounds.attempts_begun) == (here - 2, 0)


@pytest.mark.parametrize(
    ("attempts", "begun", "counted"), [(12, 0, 0), (12, 3, 4), (12, 4, 4), (10, 3, 6)]
)
def test_p9_a_lost_session_is_counted_to_the_end_of_its_epoch(
    attempts: int, begun: int, counted: int
) -> None:
    """A row has paid for it, whether it was used or not; 12 - `attempts` were made before."""
    numbers = mock.Mock(steps=12, grid_step=1.0)
    lost, whole = (mock.Mock(opening=(), round_parameters=numbers) for _ in range(2))
    lost.attempts_begun = begun
    lost.round.side_effect = AbsentError({})
    whole.round.return_value = (np.zeros(2, np.int64), 1)
    sums = NoisySums(
        set_up=mock.Mock(side_effect=[lost, whole]),
        record=mock.Mock(),
        epoch=4,
        lost=mock.Mock(),
    )
    _, made = sums.round(1, PARAMETERS, attempts)
    assert whole.round.call_args.args[-1] == attempts - counted
    assert made == counted + 1


def test_p8_a_sum_comes_back_by_the_matrix_of_the_model_as_silos_read_it() -> None:
    """They draw it by the digest of what arrived, which a shortened model is not before it left."""
    numbers = replace(WORLD.round_parameters, short_models=True, parameters=2)
    opened = mock.Mock(opening=(), round_parameters=numbers)
    opened.round.return_value = (np.zeros(2, np.int64), 1)
    opened.aggregator.attempt.seed = bytes(32)
    lift = mock.Mock(return_value=np.zeros(3))
    sums = NoisySums(
        set_up=mock.Mock(return_value=opened),
        record=mock.Mock(),
        epoch=1,
        lost=mock.Mock(),
        lift=lift,
    )
    model = np.array([1.0, np.pi], np.float32)
    sums.round(1, model, 1)
    frame = unverified(
        WORLD.forge(0, Tag.MODEL, b"".join(numbers.model_parts([1, 2, 3], model)), round=1)
    )
    _, read = numbers.read_model(frame, "aggregator", frozenset(WORLD.roster.silos))
    assert read.tobytes() != model.tobytes()
    assert lift.call_args.args[1] == draw_of(bytes(32), 1, 0, read)
