"""P29: a party, or the aggregator, dies at each side of each write of a session of some silos.

A silo is away all the time, so every session has a ROLL of the others. Whoever dies is started
again; the training ends, the books are right and nothing was used twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.runs.checkpoint import CheckpointWriter
from hubbub.core.runs.run_folder import RunFolder
from hubbub.core.verification.replay.checking import verify
from hubbub.core.verification.transcript.writer import Transcript
from hubbub.learning.runs.result import Result
from hubbub.site.network.envelope import Missing, Phase
from hubbub.site.network.folder_files import SessionNotes
from network.collected import Deaths, Killed, two_sided
from network.consortium import sent_home
from network.relay import HASTY, Jumping, Watched, gathered

NAMES = ("ann", "bob", "cyn", "dan")
STEPS = 3


@contextmanager
def dying(monkeypatch: pytest.MonkeyPatch, deaths: Deaths) -> Iterator[Deaths]:
    """All that is written of sessions has two sides at which its process may die."""

    def both(kind: type, name: str, party_of: Callable[[Any], str]) -> None:
        monkeypatch.setattr(kind, name, two_sided(deaths, getattr(kind, name), party_of))

    def kept_at_once(
        self: CheckpointWriter, state: Any, heads: Any, then: Any = lambda: None
    ) -> None:
        self._write(state, heads)  # on the thread that dies
        then()

    monkeypatch.setattr(CheckpointWriter, "keep", kept_at_once)
    both(SessionNotes, "_note", lambda notes: notes.home.name)
    both(Ledger, "charge", lambda ledger: ledger._path.parent.name)
    both(Ledger, "close_study", lambda ledger: ledger._path.parent.name)
    for kind, name in ((Transcript, "keep"), (Transcript, "seal"), (RunFolder, "keep")):
        both(kind, name, lambda _: "aggregator")
    yield deaths


def answering(parties: Watched) -> Phase:
    """Those who are there; who dies is started again, and has not answered."""

    def phase(
        _name: str, requests: Mapping[str, bytes], _deadline: float
    ) -> Iterator[tuple[str, bytes | Missing]]:
        for party, blob in requests.items():
            if party not in parties.seats:
                yield party, Missing()
                continue
            try:
                answer: bytes | Missing = parties.answers(party)(blob)
            except Killed:
                parties.start(party)
                answer = Missing(why="it has died")
            yield party, answer

    return phase


def trained(parties: Watched) -> Result:
    """A training, served again whenever its aggregator dies."""
    while True:
        timeouts = replace(HASTY, grace=0.0, clock=Jumping())
        try:
            return parties.serve(answering(parties), timeouts=timeouts)
        except Killed:
            continue


def played(home: Path, nodes: int, patch: pytest.MonkeyPatch, deaths: Deaths) -> None:
    """One training in which somebody dies; silo bob is away."""
    with sent_home():
        parties = gathered(
            home,
            nodes,
            names=NAMES,
            parties={"dropouts": 2, "colluders": 0},
            training={"steps": STEPS, "sample_rate": 0.5},
        )
        parties.stop("bob")
        with dying(patch, deaths):
            result = trained(parties)
        assert parties.broken == []
        made = {name: len(parties.rows(name)) for name in NAMES if name in parties.seats}
        assert max(made.values()) <= STEPS
        assert result.final["step"] >= STEPS - deaths.died.total()
        assert [str(one) for one in verify(home / "run") if not one.holds] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("party", "nodes"),
    [("ann", 0), ("ann", 2), ("node-1", 2), ("aggregator", 0), ("aggregator", 2)],
)
def test_p29_killed_at_every_write_a_training_of_some_ends_with_the_right_books(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, party: str, nodes: int
) -> None:
    with monkeypatch.context() as patch:
        counted = Deaths(lambda _party, _side: False)
        played(tmp_path / "counted", nodes, patch, counted)
    sides = counted.sides[party]
    assert sides >= {"ann": 10, "node-1": 2, "aggregator": 40}[party]
    for at in range(0, sides, 1 if party != "aggregator" else 9):
        with monkeypatch.context() as patch:
            dies = Deaths(lambda who, side, at=at: (who, side) == (party, at))
            played(tmp_path / f"{at}", nodes, patch, dies)
            assert dies.died[party] == 1
