"""Correlated noise among machines (P25): a silo that comes back does so with a new session."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hubbub.core.session.ask import Call
from hubbub.core.verification.replay.checking import verify
from hubbub.site.network.envelope import Missing, read_request
from hubbub.site.network.silo_endpoint import SiloEndpoint
from network.consortium import QUICK, Consortium, table

NAMES = ("cleveland", "hungary", "switzerland")
TRAINING = {
    "steps": 8,
    "noise": "correlated",
    "bands": 2,
    "optimizer": {"name": "sgd", "lr": 0.5},
}


def gathered(home: Path, nodes: int = 0, dropouts: int = 0) -> Consortium:
    changes = {"parties": {"dropouts": dropouts, "colluders": 0}, "training": TRAINING}
    return Consortium.gather(home, table(NAMES, nodes, **changes))


class Losing:
    """A phase in which one silo's process ends as it is asked for a round for the n-th time."""

    def __init__(self, parties: Consortium, number: int, *, starts: bool) -> None:
        self._parties, self._left, self._starts = parties, number, starts
        self.asked: Counter[str] = Counter()

    def __call__(
        self, name: str, asked: Mapping[str, bytes], deadline: float
    ) -> Iterator[tuple[str, Any]]:
        for party, blob in asked.items():
            if read_request(blob)[0] is Call.MODEL:
                self.asked[party] += 1
        if name == "model" and "hungary" in asked:
            self._left -= 1
            if self._left == 0:
                self._parties.stop("hungary")
                if self._starts:
                    self._parties.start("hungary")
        there = {party: blob for party, blob in asked.items() if party in self._parties.seats}
        yield from self._parties.phase(name, there, deadline)
        for party in asked.keys() - there.keys():
            yield party, Missing(why="it is not there")


def rows(parties: Consortium, name: str) -> list[bytes]:
    """The sessions of a silo's charges, in their order."""
    endpoint = parties.seats[name]
    assert isinstance(endpoint, SiloEndpoint)
    return [entry.session for entry in endpoint._ledger.entries()]


def falsehoods(parties: Consortium) -> list[str]:
    return [str(one) for one in verify(parties.home / "run") if not one.holds]


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [0, 2], ids=["pairwise", "nodes"])
def test_p25_a_restarted_silo_begins_a_new_block_for_all(tmp_path: Path, nodes: int) -> None:
    parties = gathered(tmp_path, nodes)
    result = parties.serve(Losing(parties, 4, starts=True))
    assert falsehoods(parties) == []
    for name in NAMES:
        paid = rows(parties, name)
        assert len(set(paid)) == 2
        assert len(paid) <= 4
    # Three sums of the first session, an attempt that failed, and four of the second.
    assert result.final["step"] == 7
    assert result.epsilon <= result.plan.epsilon() * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_p25_silos_that_are_restarted_at_random_pay_for_each_row_once(
    tmp_path: Path, seed: int
) -> None:
    chance, parties = random.Random(seed), gathered(tmp_path, nodes=2 * (seed % 2))
    restarted: list[str] = []

    def phase(name: str, asked: Mapping[str, bytes], deadline: float) -> Iterator[tuple[str, Any]]:
        lost = [one for one in NAMES if one in asked and chance.random() < 0.06]
        if name == "model" and len(restarted) < 3:
            for one in lost:
                parties.stop(one)
                parties.start(one)
                restarted.append(one)
        yield from parties.phase(name, asked, deadline)

    result = parties.serve(phase)
    assert restarted
    assert falsehoods(parties) == []
    for name in NAMES:
        endpoint = parties.seats[name]
        assert isinstance(endpoint, SiloEndpoint)
        paid = [(one.session, one.round, one.attempt) for one in endpoint._ledger.entries()]
        assert len(set(paid)) == len(paid) <= 4
    assert result.epsilon <= result.plan.epsilon() * (1 + 1e-9)


@pytest.mark.slow
def test_p25_whoever_was_missing_is_asked_again_in_the_next_session(tmp_path: Path) -> None:
    """With independent noise it would be in the next round of the same one."""
    parties = gathered(tmp_path, nodes=2, dropouts=1)
    losing = Losing(parties, 3, starts=False)

    def back(step: int, _: Any) -> None:
        if step == 5:
            parties.start("hungary")

    parties.serve(losing, progress=back, timeouts=QUICK)
    assert falsehoods(parties) == []
    assert len(set(rows(parties, "hungary"))) == 2
    assert len(set(rows(parties, "cleveland"))) == 2
    assert losing.asked["hungary"] < losing.asked["cleveland"]


@pytest.mark.slow
def test_p25_a_silo_that_was_only_slow_stays_away_as_well(tmp_path: Path) -> None:
    """It knows the session, and yet its noise would have a gap."""
    parties = gathered(tmp_path, nodes=2, dropouts=1)
    calls: list[int] = []

    def slow(name: str, asked: Mapping[str, bytes], deadline: float) -> Iterator[tuple[str, Any]]:
        if name == "model":
            calls.append(len(asked))
        late = {"hungary"} if name == "model" and len(calls) == 2 else set()
        yield from parties.phase(
            name, {party: blob for party, blob in asked.items() if party not in late}, deadline
        )
        for party in late & asked.keys():
            yield party, Missing(why="late")

    parties.serve(slow)
    assert falsehoods(parties) == []
    assert len(set(rows(parties, "hungary"))) == 2
    assert calls[:2] == [3, 3]


def test_p25_what_is_kept_of_the_noise_is_erased_when_the_study_is_over(tmp_path: Path) -> None:
    parties = gathered(tmp_path)
    parties.serve()
    for name in NAMES:
        endpoint = parties.seats[name]
        assert isinstance(endpoint, SiloEndpoint)
        for state in endpoint._sessions.values():
            noise = state.party.silo._noise._rows  # type: ignore[attr-defined]
            assert not noise._window.any()
            assert noise.last > 8


@pytest.mark.slow_cases("nodes")
@pytest.mark.parametrize("nodes", [0, 2], ids=["pairwise", "nodes"])
def test_p29_a_late_silo_comes_with_the_next_block_and_no_row_pays_for_nothing(
    tmp_path: Path, nodes: int
) -> None:
    parties = gathered(tmp_path, nodes, dropouts=1)
    parties.stop("hungary")

    def back(step: int, _: Any) -> None:
        if step == 1:
            parties.start("hungary")

    result = parties.serve(timeouts=replace(QUICK, grace=0.0), progress=back)
    assert falsehoods(parties) == []
    assert result.final["step"] == 8
    # Two attempts of the first block, six of the second: a new session begins with a whole row.
    assert [len(rows(parties, name)) for name in NAMES] == [4, 3, 4]
    assert len(set(rows(parties, "cleveland"))) == 2
