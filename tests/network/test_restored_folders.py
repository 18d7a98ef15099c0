"""P3, P29, P30 at random: whoever is killed and set back, no two sums of one record are told.

A quick game or two of each kind, and ten minutes of them (slow). What is drawn has a seed; the laws
hold whatever is drawn.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hubbub.errors import HubbubError
from hubbub.network.collection.kept_frames import KeptFrames
from hubbub.verification.replay.checking import verify
from network.consortium import sent_home
from network.relay import HASTY, Jumping, gathered
from network.restored_folders import CollectionGame, SessionGame, check_fresh, deposits

__all__ = ["deposits"]
MINUTES = 5  # of each kind of game, where there is time
_FIVE = ("ann", "bob", "cyn", "dan", "eve")
_SET_BACK = "every silo that has signed has charged what it answered"


def collection_games(
    home: Path, seeds: Iterator[int], monkeypatch: pytest.MonkeyPatch, deposits: Any
) -> Counter[str]:
    """Games, each in a folder of its own; what has happened in all of them."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        deposits.clear()
        with sent_home(), monkeypatch.context() as patch:
            game = CollectionGame(home / f"{seed}", seed)
            game.play(160, patch)
        check_fresh(deposits)
        counts += game.counts
    return counts


def session_games(home: Path, seeds: Iterator[int]) -> Counter[str]:
    """Trainings; who ends without one has been told why."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        with sent_home():
            parties = gathered(
                home / f"{seed}" / "here",
                (0, 3)[seed % 2],
                names=_FIVE,
                parties={"dropouts": 2, "colluders": 0},
                training={"steps": 8, "sample_rate": 0.5},
            )
            spared = "node-2" if seed % 2 else ""
            game = SessionGame(parties, home / f"{seed}", seed, spared)
            clock = Jumping()
            timeouts = replace(HASTY, grace=0.0, waiting=600.0, clock=clock)
            try:
                parties.serve(game.relay, timeouts=timeouts)
                counts["ended"] += 1
                wrong = [one.claim for one in verify(parties.home / "run") if not one.holds]
                assert set(wrong) <= {_SET_BACK}
            except HubbubError:
                counts["given up"] += 1
            assert parties.broken == []
            counts += game.counts + game.images.counts
    return counts


def for_minutes(minutes: float) -> Iterator[int]:
    """Seeds, as long as there is time."""
    end, seed = time.monotonic() + 60 * minutes, 100
    while time.monotonic() < end:
        yield seed
        seed += 1


def test_p30_whoever_is_killed_and_set_back_one_set_is_told_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deposits: Any
) -> None:
    counts = collection_games(tmp_path, iter((3, 4)), monkeypatch, deposits)
    assert counts["promises"] > 0
    assert counts["restored"] > 0
    assert counts["killed"] > 0


def test_p30_a_node_that_forgets_its_promise_would_be_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deposits: Any
) -> None:
    honest = KeptFrames.keep

    def forgets(self: KeptFrames, name: str, *parts: bytes) -> None:
        if name != "promise":
            honest(self, name, *parts)

    monkeypatch.setattr(KeptFrames, "keep", forgets)
    with pytest.raises(AssertionError, match=r"two promises|totals of two sets"):
        collection_games(tmp_path, iter(range(3, 9)), monkeypatch, deposits)


def test_p3_whoever_is_killed_and_set_back_no_mask_and_no_row_serves_twice(tmp_path: Path) -> None:
    counts = session_games(tmp_path, iter((1, 2)))
    assert counts["replayed"] > 0


@pytest.mark.slow
def test_p30_minutes_of_collections_that_are_killed_and_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deposits: Any
) -> None:
    counts = collection_games(tmp_path, for_minutes(MINUTES), monkeypatch, deposits)
    assert counts["totals"] > 0


@pytest.mark.slow
def test_p29_minutes_of_sessions_that_are_killed_and_set_back(tmp_path: Path) -> None:
    counts = session_games(tmp_path, for_minutes(MINUTES))
    assert counts["ended"] > 0
