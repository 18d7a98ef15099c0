"""Schedules of faults in rounds with joint seeds: no wrong sum, no second seed, no early link."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.agreement.joint_seed import JointSeed, SeedCheck
from hubbub.core.protocol.agreement.key_agreement import Agreement, PairSecret, Place, sent_digest
from hubbub.core.protocol.primitives.wire import Tag
from hubbub.core.protocol.round.attempt_sum import AttemptSum
from hubbub.core.protocol.round.draw import Draw
from hubbub.core.protocol.round.silo import Silo
from protocol.faults import Operation
from protocol.parties import SESSION, STUDY, World, flipped, refused, set_up, world
from protocol.seeded import NAMES, Seeded, drawers, name_of, orderly, shown_to

PAIRWISE = world(3, quorum=2, joint=True)
NODES = world(3, nodes=2, quorum=2, joint=True)
WORLDS = pytest.mark.parametrize("w", [PAIRWISE, NODES], ids=["pairwise", "nodes"])
SCHEDULES = 400  # at most, until one finds a broken party
MANY = pytest.mark.parametrize("schedules", [50, pytest.param(400, marks=pytest.mark.slow)])
FAULTS = [name for name in NAMES if name not in ("deliver", "take")]


def drawn(draw: random.Random) -> list[Operation]:
    """A few rounds as they should be, in random order of arrival, with faults strewn in."""
    names = []
    for _ in range(draw.randint(1, 3)):
        names += ["begin", *["deliver"] * 15, "close", *["deliver"] * 10, "take"]
    for _ in range(draw.randint(1, 8)):
        names.insert(draw.randint(1, len(names)), draw.choice(FAULTS))
    return [(name, draw.getrandbits(12), draw.getrandbits(12)) for name in names]


@MANY
@WORLDS
def test_no_random_schedule_breaks_a_law(w: World, schedules: int) -> None:
    draw, sums, refusals, seeds = random.Random(20), 0, 0, 0
    for _ in range(schedules):
        schedule = drawn(draw)
        simulation = Seeded(w=w)
        try:
            simulation.play(schedule)
        except AssertionError as broken:
            pytest.fail(f"{broken}: {schedule}")
        sums, refusals = sums + simulation.sums, refusals + simulation.refusals
        seeds += len(simulation.seeds)
    assert sums > schedules / 8  # the schedules are not all too broken to say anything
    assert refusals > schedules
    assert seeds > schedules / 2


@pytest.mark.quick_cases("3-pairwise", "4-pairwise", "4-nodes", "7-pairwise")
@WORLDS
@pytest.mark.parametrize("seed", range(20))
def test_after_any_faults_an_orderly_round_is_right(w: World, seed: int) -> None:
    schedule = [one for one in drawn(random.Random(seed)) if one[0] != "restart"]
    simulation = Seeded(w=w)
    simulation.play(schedule)
    before = simulation.sums
    orderly(simulation)
    assert simulation.sums == before + 1


MODELS: list[Operation] = [("begin", 0, 0), *([("deliver", 0, 0)] * 3)]
LINKS: list[Operation] = [("deliver", 0, 0)] * 9

# Schedules worth remembering; a bug that is found is added here as it was. After the models, nine
# links are in flight: of each silo to the aggregator (0, 3, 6) and to the two others.
KNOWN: dict[str, tuple[list[Operation], int]] = {
    "nothing is wrong": ([*MODELS, *LINKS], 3),
    "a link is lost": ([*MODELS, ("drop", 1, 0), *LINKS], 2),
    "every link of a silo is lost": ([*MODELS, *([("drop", 0, 0)] * 3), *LINKS], 1),
    "a link comes twice": ([*MODELS, ("duplicate", 1, 0), *LINKS, LINKS[0]], 3),
    "a link is damaged": ([*MODELS, ("corrupt", 1, 80 * 8), *LINKS], 2),
    "a silo tells one of the others another link": ([*MODELS, ("lie", 1, 0), *LINKS], 2),
    "a silo tells all another link": (
        [*MODELS, ("lie", 0, 0), ("lie", 1, 0), ("lie", 2, 0), *LINKS],
        1,
    ),
    "links of an abandoned attempt arrive in the next": (
        [*MODELS, ("begin", 0, 0), *([("deliver", 9, 0)] * 3), *LINKS, *LINKS],
        3,
    ),
    "a link of the last session arrives in this one": (
        [*MODELS, *LINKS, ("restart", 0, 0), ("begin", 0, 0), *([("replay", 6, 2)] * 2)],
        3,
    ),
    "a silo dies after its link has left": ([("crash", 0, 2), *MODELS, *LINKS], 2),
    "a silo dies before its link has left": ([("crash", 0, 1), *MODELS, *LINKS], 0),
}


@WORLDS
@pytest.mark.parametrize("name", KNOWN)
def test_known_schedules(w: World, name: str) -> None:
    schedule, answers = KNOWN[name]
    simulation = Seeded(w=w)
    simulation.play(schedule)
    assert len(simulation.answers) == answers


@WORLDS
def test_a_refused_message_does_not_end_a_silos_wait_for_links(w: World) -> None:
    """The page: a refusal changes nothing, and a silo goes on to wait for a right message."""
    simulation = Seeded(w=w)
    simulation.play([*MODELS, ("replay", len(simulation.history), 1)])
    assert simulation.refusals == 1  # the model of the attempt that silo 1 waits in
    simulation.play(LINKS)
    assert len(simulation.answers) == 3


# The laws can fail: random schedules find what a broken party does. ---------------------------


def believes_any_link(patch: pytest.MonkeyPatch) -> None:
    """Links are taken as they come."""
    patch.setattr(SeedCheck, "_verify", lambda *_: None)


def one_link_for_all(patch: pytest.MonkeyPatch) -> None:
    """The number of a link does not depend on the attempt."""
    patch.setattr(SeedCheck, "number", lambda self, round, attempt: 1)


def later_link(patch: pytest.MonkeyPatch) -> None:
    """A silo reveals the next attempt's link too early."""
    reveal = JointSeed.reveal

    def early(self: JointSeed, round: int, attempt: int) -> bytes:
        reveal(self, round, attempt)
        link = self._chain.link(self._check.number(round, attempt) + 1)
        return self._frame(Tag.SEED_LINK, (round, attempt), link)

    patch.setattr(JointSeed, "reveal", early)


def pays_after_its_link(patch: pytest.MonkeyPatch) -> None:
    """A runner that writes the charge after the link has left."""

    def answer(self: Seeded, index: int, model: bytes) -> None:
        charge = self.silos[index].accept(model)
        self._reveal(index, self.silos[index].reveal())
        self.charges.add((self._session, index, charge.round, charge.attempt))

    patch.setattr(Seeded, "_answer", answer)


def keeps_the_seed(patch: pytest.MonkeyPatch) -> None:
    """A silo that projects by the seed of the first attempt."""
    learn = Silo.learn_seed

    def once(self: Silo, links: list[bytes]) -> None:
        before = getattr(self, "first", None)
        learn(self, links)
        self.first = before or self._seed
        self._seed = self.first

    patch.setattr(Silo, "learn_seed", once)


def matrix_of_the_step(patch: pytest.MonkeyPatch) -> None:
    """A matrix that does not depend on the seed."""
    key = Draw.key_of

    def fixed(self: Draw, *arguments: Any) -> bytes:
        return key(Draw(seed=bytes(32), step=self.step, attempt=self.attempt), *arguments)

    patch.setattr(Draw, "key_of", fixed)


def mask_without_attempt(patch: pytest.MonkeyPatch) -> None:
    """Mask keys that depend neither on the attempt nor on its MODEL."""
    derive = PairSecret.mask_key

    def same(self: PairSecret, transcript: bytes, place: Place) -> bytes:
        return derive(self, transcript, Place(round=place.round, attempt=0, model=bytes(32)))

    patch.setattr(PairSecret, "mask_key", same)


def counts_twice(patch: pytest.MonkeyPatch) -> None:
    """An aggregator that adds whatever arrives."""
    patch.setattr(AttemptSum, "_check_once", lambda *_: None)


BROKEN: dict[Callable[[pytest.MonkeyPatch], None], tuple[World, str]] = {
    believes_any_link: (PAIRWISE, "two seeds for one attempt|a seed of other links"),
    one_link_for_all: (PAIRWISE, "a link revealed again"),
    later_link: (NODES, "a link of a later attempt"),
    pays_after_its_link: (PAIRWISE, "a link without a charge"),
    keeps_the_seed: (PAIRWISE, "two seeds for one attempt|a seed of other links"),
    matrix_of_the_step: (NODES, "another seed's matrix"),
    mask_without_attempt: (NODES, "a mask key used twice"),
    counts_twice: (PAIRWISE, "a wrong sum"),
}


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
        Seeded(w=w).play(drawn(draw))


# Anchors, in the set-up -----------------------------------------------------------------------

CHEAT = 2


def shown(draw: random.Random, anchors: list[bytes], other: bytes, old: list[bytes]) -> list[bytes]:
    """What one party is shown of the anchors, perhaps with a fault."""
    frames, place = list(anchors), draw.randrange(len(anchors))
    fault = draw.choice(["none"] * 6 + ["drop", "double", "damage", "replay", "other", "both"])
    if fault == "drop":
        del frames[place]
    elif fault == "double":
        frames.append(frames[place])
    elif fault == "damage":
        frames[place] = flipped(frames[place], draw.randrange(len(frames[place])))
    elif fault == "replay":
        frames[place] = old[place]
    elif fault in ("other", "both"):
        frames[CHEAT - 1 : CHEAT] = [other] if fault == "other" else [other, frames[CHEAT - 1]]
    draw.shuffle(frames)
    return frames


def test_no_fault_of_anchors_gives_two_honest_silos_two_digests() -> None:
    w, draw, begun, ended = PAIRWISE, random.Random(5), 0, 0
    for number in range(40):
        session = {"session": name_of(number)}
        anchors = [one.anchor() for one in drawers(w, number).values()]
        old = [one.anchor() for one in drawers(w, number + 1).values()]
        other = w.forge(CHEAT, Tag.SEED_ANCHOR, draw.randbytes(32), **session)
        views = {i: shown(draw, anchors, other, old) for i in w.roster.silos}
        views[CHEAT] = anchors
        said = {i: shown_to(w, i, frames, number) for i, frames in views.items()}
        blamed = {one for one in said.values() if isinstance(one, str)}
        assert blamed <= {"relay", *(w.roster.name(i) for i in w.roster.silos)}
        if blamed:
            continue
        begun += 1
        changed = {f"p{i}": w.agreement(i, context=seen, **session) for i, seen in said.items()}
        if len(set(said.values())) == 1:
            set_up(w, **changed)
            continue
        with refused("relay", "shown different things"):
            set_up(w, **changed)
        ended += 1
    assert begun > 5
    assert ended


def test_who_doubles_or_withholds_an_anchor_is_named() -> None:
    w = PAIRWISE
    anchors = [one.anchor() for one in drawers(w, 0).values()]
    other = w.forge(CHEAT, Tag.SEED_ANCHOR, bytes(32), session=name_of(0))
    for index in (0, 1, 3):
        assert shown_to(w, index, [*anchors, other]) == "silo-2"
        assert shown_to(w, index, [*anchors, anchors[1]]) == "relay"
        assert shown_to(w, index, [anchors[0], anchors[2]]) == "silo-2"
        assert len(shown_to(w, index, [anchors[0], other, anchors[2]])) == 32
    assert shown_to(w, CHEAT, [anchors[0], other, anchors[2]]) == "relay"


@WORLDS
def test_a_silo_that_forgot_its_links_cannot_go_back(w: World) -> None:
    """It begins its chain anew, so whatever it reveals is not what it had committed to."""
    simulation = Seeded(w=w)
    simulation.play([*MODELS, *LINKS])
    fresh = w.seeds(1, name_of(0))
    fresh._ready = True
    link = fresh.reveal(2, 0)
    check = w.seed_check(name_of(0))
    check.learn_anchors([one.anchor() for one in simulation.drawn.values()])
    with pytest.raises(ProtocolError) as caught:
        check.seed(2, 0, {1}, [link])
    assert caught.value.culprit == "silo-1"


# What only all silos together can see ----------------------------------------------------------


def second_face(w: World, first: Agreement, context: bytes) -> Agreement:
    """A party that goes on with the same secrets as if it had seen other anchors."""
    second = copy.copy(first)
    start = (b"hubbub transcript v1", STUDY, SESSION, w.roster.digest, context)
    second._shown, second._secrets = [b"".join(start)], {}
    return second


def test_silos_whose_common_nodes_all_lie_still_see_different_anchors() -> None:
    """Silos 1 and 2 share node 5 only, which colludes with silo 3."""
    w = world(3, nodes=3, each=2, quorum=2, joint=True)
    silos, faces = {i: w.seeds(i) for i in (1, 2)}, [w.seeds(3), w.seeds(3)]
    shown = [[silos[1].anchor(), silos[2].anchor(), face.anchor()] for face in faces]
    seen = [silos[1].learn_anchors(shown[0]), silos[2].learn_anchors(shown[1])]
    assert seen[0] != seen[1]
    contexts = {1: seen[0], 4: seen[0], 2: seen[1], 6: seen[1], 3: seen[0], 5: seen[0]}
    confirmers = {index: list(w.roster.silos) for index in w.roster.silos}
    parties = {
        i: w.agreement(i, context=contexts[i], extra_confirmers=confirmers.get(i, ()))
        for i in sorted(contexts)
    }
    sent = {i: party.contribute() for i, party in parties.items()}
    liars = {i: (parties[i], second_face(w, parties[i], seen[1])) for i in (3, 5)}
    digests = bytes(32) + b"".join(sent_digest(frames) for frames in sent.values())
    halves = []
    for half, honest in enumerate(((1, 4), (2, 6))):
        group = {i: parties[i] for i in honest} | {i: liars[i][half] for i in liars}
        halves.append(
            {
                i: one.confirm([frames[i] for frames in sent.values() if i in frames], digests)
                for i, one in group.items()
            }
        )
    for mine, (out, other) in enumerate((halves, halves[::-1]), 1):
        nodes = [out[node][0] for node in parties[mine].neighbours]
        confirms = [other[3 - mine][0], out[3][0], *nodes]
        checks = [out[o][1][mine] for o in parties[mine].neighbours]
        with refused("relay", "shown different things"):
            parties[mine].finish(confirms, checks)
