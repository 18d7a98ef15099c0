"""Thousands of schedules of faults: never a wrong sum, a mask used twice or an unpaid answer."""

from __future__ import annotations

import random

import pytest
from protocol.faults import NAMES, Operation, Simulation, orderly
from protocol.parties import World, world

from hubbub.round import Answering, Silo
from hubbub.round.terms import Turn

PAIRWISE = world(3, quorum=2)
NODES = world(3, nodes=2, quorum=2)
WORLDS = pytest.mark.parametrize("w", [PAIRWISE, NODES], ids=["pairwise", "nodes"])
SCHEDULES = 1500

FAULTS = [name for name in NAMES if name not in ("deliver", "take")]


def drawn(draw: random.Random) -> list[Operation]:
    """A few rounds as they should be, in random order of arrival, with faults strewn in."""
    names = []
    for _ in range(draw.randint(1, 3)):
        names += ["begin", *["deliver"] * 6, "close", *["deliver"] * 4, "take"]
    for _ in range(draw.randint(1, 8)):
        names.insert(draw.randint(1, len(names)), draw.choice(FAULTS))
    return [(name, draw.getrandbits(12), draw.getrandbits(12)) for name in names]


@WORLDS
def test_no_random_schedule_breaks_a_law(w: World) -> None:
    draw, sums, refusals = random.Random(20), 0, 0
    for _ in range(SCHEDULES):
        schedule = drawn(draw)
        simulation = Simulation(w=w)
        try:
            simulation.play(schedule)
        except AssertionError as broken:
            pytest.fail(f"{broken}: {schedule}")
        sums, refusals = sums + simulation.sums, refusals + simulation.refusals
    assert sums > SCHEDULES / 4  # the schedules are not all too broken to say anything
    assert refusals > SCHEDULES


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
        *([("deliver", 0, 0)] * 4),
        ("take", 0, 0),
        ("take", 0, 0),
    ],
    "the nodes are asked twice": [
        *ROUND,
        *([("deliver", 0, 0)] * 3),
        ("close", 0, 0),
        ("close", 0, 0),
        *([("deliver", 0, 0)] * 8),
        ("take", 0, 0),
    ],
}


@WORLDS
@pytest.mark.parametrize("name", KNOWN)
def test_known_schedules(w: World, name: str) -> None:
    Simulation(w=w).play(KNOWN[name])


# The laws can fail: broken parties are caught. ------------------------------------------------


def test_a_silo_that_forgets_its_turn_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(self: Turn, round: int, attempt: int, *_: object) -> None:
        self.last = (round, attempt)

    never = property(lambda self: None, lambda self, _: None)
    monkeypatch.setattr(Turn, "take", forget)
    monkeypatch.setattr(Answering, "_masked", never, raising=False)
    with pytest.raises(AssertionError, match="twice|second"):
        Simulation(w=PAIRWISE).play([*ROUND, ("replay", 0, 1)])


def test_an_answer_before_its_charge_is_caught() -> None:
    simulation = Simulation(w=PAIRWISE)
    simulation.begin()
    index, model = simulation.flight[0]
    silo: Silo = simulation.silos[index]
    silo.accept(model)
    with pytest.raises(AssertionError, match="without a charge"):
        simulation._check_answer(silo.contribute())


def test_a_vector_counted_twice_is_caught() -> None:
    simulation = Simulation(w=PAIRWISE)
    simulation.play([*ROUND, *([("deliver", 0, 0)] * 3)])
    simulation.aggregator._total[1] += 1
    with pytest.raises(AssertionError, match="a wrong sum"):
        simulation.take()
