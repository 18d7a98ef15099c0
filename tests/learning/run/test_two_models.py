"""An aggregator that shows silos different MODELs in one attempt, and hides it as well as it can.

It signs both, adds every answer to one sum without a look at what it answers, and writes its
transcript and its evidence in order. What it gets does not depend on what the silos sum, and
whoever verifies the run says what it did, also where no vectors were kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.wire import unverified
from hubbub.core.protocol.round.aggregator import Aggregator
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.session.ask import Answer, Call
from hubbub.core.session.in_process import Federation, LocalPeers, federate
from hubbub.core.session.offer import Layout
from hubbub.core.verification.replay.checking import verify
from run.finished import a_study, finished

SILOS, DIMENSION = 4, 2000
KINDS = pytest.mark.parametrize(
    ("nodes", "full"), [(0, False), (2, False), (2, True)], ids=["pairwise", "nodes", "full shares"]
)


class Given:
    """A silo whose sum is a number everywhere, whatever the model is."""

    count = capacity = 1

    def __init__(self, number: float) -> None:
        self._number = number

    def clipped_sum(self, parameters: Any, chosen: Any) -> np.ndarray:
        return np.full(DIMENSION, self._number)


def parties(nodes: int, full: bool) -> Federation:
    """Four silos that sum 1, 10, 100 and 1000, without noise; one may be missing."""
    layout = Layout(names=tuple(f"silo-{number}" for number in range(1, SILOS + 1)), nodes=nodes)
    round_parameters = RoundParameters(
        dimension=DIMENSION,
        parameters=2,
        silos=SILOS,
        quorum=SILOS - 1,
        steps=5,
        word_bits=32,
        grid_step=1.0,
        sigma_grid=0.0,
        sample_rate=1.0,
        nodes=nodes,
        full_shares=full,
    )
    tasks = [Given(10.0**power) for power in range(SILOS)]
    return federate(layout, round_parameters, tasks, study=bytes(32))


@pytest.fixture
def two_faced(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """From now on, silos from this index on are shown another MODEL, and every answer is added."""

    def begins(other: int) -> None:
        signer: list[Aggregator] = []
        begin, ask, read = Aggregator.begin, LocalPeers.ask, RoundParameters.read_answer

        def begun(self: Aggregator, *given: Any) -> bytes:
            signer[:] = [self]
            return begin(self, *given)

        def asks(
            self: LocalPeers, call: Call, requests: Mapping[int, Sequence[bytes]], *a: Any, **b: Any
        ) -> Iterator[tuple[int, Answer]]:
            if call is Call.MODEL:
                requests = {
                    index: [another(signer[0], parts[0])] if index >= other else parts
                    for index, parts in requests.items()
                }
            return ask(self, call, requests, *a, **b)

        def believes(self: RoundParameters, frame: Any, _model: bytes, sender: str) -> Any:
            return read(self, frame, bytes(frame.payload[-32:]), sender)

        monkeypatch.setattr(Aggregator, "begin", begun)
        monkeypatch.setattr(LocalPeers, "ask", asks)
        monkeypatch.setattr(RoundParameters, "read_answer", believes)

    return begins


def another(aggregator: Aggregator, model: bytes) -> bytes:
    """The same attempt with another last parameter, signed by the aggregator."""
    shown = unverified(model)
    payload = bytes(shown.payload)[:-4] + np.float32(0.25).tobytes()
    return replace(shown, payload=payload).sealed(aggregator._keys)


@KINDS
def test_the_attack_is_none_where_all_are_shown_one_model(
    nodes: int, full: bool, two_faced: Callable[[int], None]
) -> None:
    two_faced(SILOS + 1)
    total = parties(nodes, full).sum(1, np.zeros(2, dtype=np.float32))
    assert total.tolist() == [1111] * DIMENSION


@pytest.mark.parametrize("nodes", [0, 2], ids=["pairwise", "nodes"])
@pytest.mark.parametrize("other", [2, 3, 4])
def test_p4_silos_that_saw_different_models_do_not_add_up(
    nodes: int, other: int, two_faced: Callable[[int], None]
) -> None:
    two_faced(other)
    total = parties(nodes, full=False).sum(1, np.zeros(2, dtype=np.float32))
    words = ring.to_residues(total, 32).view(np.uint8)
    counts, expected = np.bincount(words, minlength=256), words.size / 256
    assert ((counts - expected) ** 2 / expected).sum() < 400  # uniform bytes: chance 1e-8


@pytest.mark.parametrize("other", [2, 3])
def test_p4_full_shares_for_different_models_make_no_sum(
    other: int, two_faced: Callable[[int], None]
) -> None:
    two_faced(other)
    with pytest.raises(
        ProtocolError, match="SHARE does not open, by the signed word of node-1 and node-2"
    ):
        parties(2, full=True).sum(1, np.zeros(2, dtype=np.float32))


def test_p4_a_silo_that_alone_saw_another_model_is_left_out_where_the_others_are_enough(
    two_faced: Callable[[int], None],
) -> None:
    two_faced(SILOS)
    found = parties(2, full=True)
    assert found.sum(1, np.zeros(2, dtype=np.float32)).tolist() == [111] * DIMENSION
    assert found.rounds.attendance.named_absent.keys() == {"silo-4"}


@pytest.mark.slow
@pytest.mark.parametrize("transcript", ["full", "hashes"])
@pytest.mark.parametrize("nodes", ["0", "2"])
def test_verify_says_that_silos_were_shown_different_models(
    tmp_path: Path, transcript: str, nodes: str, two_faced: Callable[[int], None]
) -> None:
    changes = (("compute_nodes = 0 ", f"compute_nodes = {nodes} "),)
    study = a_study(steps=1, transcript=transcript, changes=changes)
    two_faced(4)
    finished(study, tmp_path / "run")
    (wrong,) = [one for one in verify(tmp_path / "run") if not one.holds]
    assert "shown another" in wrong.verdict
    assert "round 1" in wrong.verdict


@pytest.mark.slow
@pytest.mark.parametrize("transcript", ["full", "hashes"])
def test_verify_says_that_all_were_shown_one(tmp_path: Path, transcript: str) -> None:
    finished(a_study(steps=1, transcript=transcript), tmp_path / "run")
    found = verify(tmp_path / "run")
    assert [one for one in found if not one.holds] == []
    assert any("each with one MODEL" in one.claim for one in found)
