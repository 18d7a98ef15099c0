"""Thousands of schedules of faults: no wrong sum, no mask or noise used twice, no unpaid answer."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from hubbub.core.protocol.agreement.key_agreement import PairSecret, Place
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.round.aggregator import Aggregator
from hubbub.core.protocol.round.attempt_sum import AttemptSum
from hubbub.core.protocol.round.masking import Masking
from hubbub.core.protocol.round.round_parameters import Turn
from protocol.faults import NAMES, UNIT, Operation, Simulation, orderly, session_of
from protocol.parties import World, world

PAIRWISE = world(3, quorum=2)
NODES = world(3, nodes=2, quorum=2)
WORLDS = pytest.mark.parametrize("w", [PAIRWISE, NODES], ids=["pairwise", "nodes"])
SCHEDULES = 1000  # at most, until one finds a broken party
MANY = pytest.mark.parametrize("schedules", [100, pytest.param(1000, marks=pytest.mark.slow)])

FAULTS = [name for name in NAMES if name not in ("deliver", "take")]


def drawn(draw: random.Random) -> list[Operation]:
    """A few rounds as they should be, in random order of arrival, with faults strewn in."""
    names = []
    for _ in range(draw.randint(1, 3)):
        names += ["begin", *["deliver"] * 6, "close", *["deliver"] * 10, "take"]
    for _ in range(draw.randint(1, 8)):
        names.insert(draw.randint(1, len(names)), draw.choice(FAULTS))
    return [(name, draw.getrandbits(12), draw.getrandbits(12)) for name in names]


@MANY
@WORLDS
def test_no_random_schedule_breaks_a_law(w: World, schedules: int) -> None:
    draw, sums, refusals = random.Random(20), 0, 0
    for _ in range(schedules):
        schedule = drawn(draw)
        simulation = Simulation(w=w)
        try:
            simulation.play(schedule)
        except AssertionError as broken:
            pytest.fail(f"{broken}: {schedule}")
        sums, refusals = sums + simulation.sums, refusals + simulation.refusals
    assert sums > schedules / 4  # the schedules are not all too broken to say anything
    assert refusals > schedules


@pytest.mark.quick_cases("15-pairwise", "17-pairwise", "18-pairwise", "21-nodes")
@WORLDS
@pytest.mark.parametrize("seed", range(30))
def test_after_any_faults_an_orderly_round_is_right(w: World, seed: int) -> None:
    schedule = [one for one in drawn(random.Random(seed)) if one[0] != "restart"]
    simulation = Simulation(w=w)
    simulation.play(schedule)
    before = simulation.sums
    orderly(simulation)
    assert simulation.sums == before + 1


ROUND: list[Operation] = [("begin", 0, 0), *([("deliver", 0, 0)] * 3)]

# Schedules worth remembering; a bug that is found is added here as it was.
KNOWN: dict[str, list[Operation]] = {
    "an answer arrives twice": [*ROUND, ("duplicate", 0, 0), *([("deliver", 0, 0)] * 4)],
    "an answer of an abandoned attempt arrives in the next": [
        *ROUND,
        ("begin", 0, 0),
        *([("deliver", 0, 0)] * 3),
        ("close", 0, 0),
    ],
    "a model arrives again after the answer": [*ROUND, ("replay", 0, 1), ("close", 0, 0)],
    "a silo dies between charge and answer": [
        ("crash", 0, 1),
        *ROUND,
        ("restart", 0, 0),
        *ROUND,
        ("close", 0, 0),
    ],
    "a model of the last session arrives in this one": [
        *ROUND,
        ("restart", 0, 0),
        ("replay", 0, 1),
        ("begin", 0, 0),
        ("replay", 0, 1),
    ],
    "the sum is taken before, between and after the answers": [
        ("take", 0, 0),
        *ROUND,
        ("take", 0, 0),
        *([("deliver", 0, 0)] * 3),
        ("close", 0, 0),
        ("take", 0, 0),
        *([("deliver", 0, 0)] * 10),
        ("take", 0, 0),
        ("take", 0, 0),
    ],
    "the nodes are asked twice": [
        *ROUND,
        *([("deliver", 0, 0)] * 3),
        ("close", 0, 0),
        ("close", 0, 0),
        *([("deliver", 0, 0)] * 20),
        ("take", 0, 0),
    ],
}


@WORLDS
@pytest.mark.parametrize("name", KNOWN)
def test_known_schedules(w: World, name: str) -> None:
    Simulation(w=w).play(KNOWN[name])


# The laws can fail: random schedules find what a broken party does. ---------------------------


def forgets(patch: pytest.MonkeyPatch) -> None:
    """Silos, nodes and the aggregator lose the last attempt that they took part in."""

    def advance(self: Turn, round: int, attempt: int, *_: object, **__: object) -> None:
        self.last = (round, attempt)

    never = property(lambda self: None, lambda self, _: None)
    patch.setattr(Turn, "advance", advance)
    patch.setattr(Masking, "_masked", never, raising=False)


def comes_back(patch: pytest.MonkeyPatch) -> None:
    """A silo that crashed goes on in the same session, from its first state."""
    answer = Simulation._answer

    def again(self: Simulation, index: int, model: bytes) -> None:
        answer(self, index, model)
        if index in self.dead:
            self.dead.remove(index)
            fresh = self.w.masking(session_of(self.w, self.number)[index], self.spies[index])
            self.silos[index] = self._silo(fresh, index)

    patch.setattr(Simulation, "_answer", again)


def mask_without_attempt(patch: pytest.MonkeyPatch) -> None:
    """Mask keys that depend neither on the attempt nor on its MODEL."""
    derive = PairSecret.mask_key

    def same(self: PairSecret, transcript: bytes, place: Place) -> bytes:
        return derive(self, transcript, Place(round=place.round, attempt=0, model=bytes(32)))

    patch.setattr(PairSecret, "mask_key", same)


def mask_without_session(patch: pytest.MonkeyPatch) -> None:
    """Mask keys that do not depend on the pair's secret, so that sessions share them."""

    def same(self: PairSecret, _: bytes, place: Place) -> bytes:
        return bytes([self.low, self.high, place.round % 256, place.attempt % 256]) * 4

    patch.setattr(PairSecret, "mask_key", same)


def noise_repeated(patch: pytest.MonkeyPatch) -> None:
    """A silo whose generator is keyed alike in every session, and draws as if in one attempt."""
    patch.setattr("protocol.faults.SecureSource", lambda: SecureSource(bytes(16)))
    patch.setattr(SecureSource, "branch", lambda self, _: SecureSource(self.bytes(16)))


def no_noise(patch: pytest.MonkeyPatch) -> None:
    """A silo that leaves its noise out."""
    patch.setattr("protocol.faults.SIGMA", 0.0)


def counts_twice(patch: pytest.MonkeyPatch) -> None:
    """An aggregator that adds whatever arrives."""
    patch.setattr(AttemptSum, "_check_once", lambda *_: None)


def keeps_the_total(patch: pytest.MonkeyPatch) -> None:
    """An aggregator that begins an attempt with what is left of the one before."""
    begin = Aggregator.begin

    def carry(self: Aggregator, *arguments: Any) -> bytes:
        before = self._attempt
        model = begin(self, *arguments)
        if before is not None:
            self.attempt.total = before.total
        return model

    patch.setattr(Aggregator, "begin", carry)


def pays_later(patch: pytest.MonkeyPatch) -> None:
    """A runner that writes the charge after the answer has left."""

    def answer(self: Simulation, index: int, model: bytes) -> None:
        charge = self.silos[index].accept(model)
        message = self.silos[index].contribute()
        self._check_answer(message)
        self.charges.add((self._session, index, charge.round, charge.attempt))
        self._send(0, message)

    patch.setattr(Simulation, "_answer", answer)


BROKEN: dict[Callable[[pytest.MonkeyPatch], None], tuple[World, str]] = {
    forgets: (PAIRWISE, r"a mask key used twice|a second answer|charged twice"),
    comes_back: (NODES, r"a mask key used twice|a second answer|charged twice"),
    mask_without_attempt: (NODES, "a mask key used twice"),
    mask_without_session: (PAIRWISE, "a mask key used twice"),
    noise_repeated: (PAIRWISE, "noise used twice"),
    no_noise: (PAIRWISE, "an answer without noise"),
    counts_twice: (PAIRWISE, "a wrong sum"),
    keeps_the_total: (NODES, "a wrong sum"),
    pays_later: (PAIRWISE, "an answer without a charge"),
}


@pytest.mark.quick_cases("pays_later", "mask_without_attempt", "no_noise", "forgets")
@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_random_schedules_find_a_broken_party(
    broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    w, says = BROKEN[broken]
    broken(monkeypatch)
    with pytest.raises(AssertionError, match=says):
        search(w)


def search(w: World) -> None:
    """Random schedules until a law breaks, if one does."""
    draw = random.Random(20)
    for _ in range(SCHEDULES):
        Simulation(w=w).play(drawn(draw))


def test_a_vector_counted_twice_is_caught() -> None:
    simulation = Simulation(w=PAIRWISE)
    simulation.play([*ROUND, *([("deliver", 0, 0)] * 3)])
    simulation.aggregator.attempt.total[1] += UNIT
    with pytest.raises(AssertionError, match="a wrong sum"):
        simulation.take()
