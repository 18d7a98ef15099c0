"""With the same keys for everybody's randomness, what runs apart gives what one process gives.

The session in one process is the reference of the sums, `train` that of the steps between them; the
networked run must give the very bits of both. What is drawn from whom, and in which order, is part
of the protocol: a draw more or less on either side would show here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hubbub import learning
from hubbub.core.planning.query import QueryState
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.round.round_parameters import decoded
from hubbub.core.runs.loop import Parameters, Summed, train
from hubbub.core.runs.prepared_study import PreparedStudy
from hubbub.core.session.in_process import Federation, federate
from hubbub.core.session.joint_batches import JointBatches
from hubbub.core.session.offer import layout_of, round_parameters_of
from hubbub.core.session.setup import SetUp
from hubbub.learning.runs.preparing import prepare
from network.relay import HASTY, Watched, opened, tiny

KINDS = pytest.mark.parametrize(
    ("nodes", "changes"),
    [
        (0, {}),
        (2, {}),
        (2, {"parties": {"shares": "full"}}),
        (0, {"training": {"projection": 3, "projection_kind": "layers"}}),
        (0, {"training": {"broadcast_dtype": "bfloat16"}}),
    ],
    ids=["pairwise", "nodes", "full-shares", "projected", "short-models"],
)


def source(index: int) -> SecureSource:
    """A party's randomness: a key that follows from its place."""
    return SecureSource(bytes([index]) * 16)


def apart(home: Path, nodes: int, changes: dict[str, Any]) -> Watched:
    found = Watched.gather(home, tiny(nodes, **changes), source)
    assert isinstance(found, Watched)
    return found


def named(session: bytes) -> Callable[..., None]:
    """Every set-up is of one session."""
    real = SetUp.__init__

    def made(self: SetUp, *given: Any, **more: Any) -> None:
        real(self, *given, **{**more, "session": session})

    return made


def together(
    parties: Watched, prepared: PreparedStudy, joint: JointBatches | None = None
) -> Federation:
    """The same parties in one process."""
    order = [parties.sites[party.name].keys for party in parties.aggregator.roster.parties]
    return federate(
        layout_of(prepared.plan),
        round_parameters_of(prepared.plan.main),
        prepared.tasks,
        study=parties.study.id,
        source=source,
        keys=order,
        joint=joint,
    )


@pytest.mark.slow
@KINDS
def test_the_sums_have_the_same_bits(
    tmp_path: Path, nodes: int, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = apart(tmp_path, nodes, changes)
    prepared = prepare(parties.study)
    reference = together(parties, prepared)
    name = reference.rounds.session  # joint seeds and draws depend on it
    monkeypatch.setattr(SetUp, "__init__", named(name))
    session = opened(parties)
    model = prepared.initial
    for number in (1, 2, 3):
        here, _ = reference.rounds.round(number, model)
        there, _ = session.rounds.round(number, model, 1)
        assert here is not None
        assert there is not None
        assert here.tobytes() == there.tobytes()
        model = (model + number).astype(np.float32)


def trained_together(
    parties: Any, monkeypatch: pytest.MonkeyPatch
) -> tuple[PreparedStudy, QueryState]:
    """The study trained in one process; whoever trains it apart afterwards has its session."""
    prepared = prepare(parties.study)
    reference = together(parties, prepared)
    monkeypatch.setattr(SetUp, "__init__", named(reference.rounds.session))
    round_parameters = round_parameters_of(prepared.plan.main)

    def summation(step: int, parameters: Parameters, _left: int) -> Summed:
        total, made = reference.rounds.round(step, parameters)
        assert total is not None
        return Summed(gradient=decoded(round_parameters, total), attempts=made)

    return prepared, train(
        prepared, summation, lambda *_: None, divisor=prepared.plan.mechanism.divisor
    )


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [0, 2], ids=["pairwise", "nodes"])
def test_the_models_have_the_same_bits(
    tmp_path: Path, nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = apart(tmp_path, nodes, {})
    prepared, here = trained_together(parties, monkeypatch)
    there = parties.serve(timeouts=HASTY)
    assert here.parameters.tobytes() == learning.parameters_vector(there.model).tobytes()
    assert (here.parameters != prepared.initial).all()


@pytest.mark.slow
def test_another_key_gives_other_bits(tmp_path: Path) -> None:
    """The comparison above can fail."""
    parties = apart(tmp_path, 0, {})
    prepared, session = prepare(parties.study), opened(parties)
    first, _ = session.rounds.round(1, prepared.initial, 1)
    parties.draws = lambda index: SecureSource(bytes([index + 1]) * 16)
    for name in list(parties.seats):
        parties.start(name)
    second, _ = opened(parties).rounds.round(1, prepared.initial, 1)
    assert first is not None
    assert second is not None
    assert (first != second).any()
