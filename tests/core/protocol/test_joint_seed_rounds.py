"""Joint seeds in rounds: who can steer them, who is named, and what is told before its time.

The parties are state machines over bytes: `Silo`, `Aggregator` and `JointSeed` with fixed keys, and
a relay that is whatever a test delivers. A world has four silos, one of which may be missing, so
two attempts at a round and two links for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from hubbub.core.errors import BudgetError, ProtocolError
from hubbub.core.planning.projections import transform_of
from hubbub.core.protocol.agreement.joint_seed import JointSeed, SeedCheck, _below
from hubbub.core.protocol.agreement.masks import MaskStream
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import HEADER_BYTES, SIGNATURE_BYTES, Tag
from hubbub.core.protocol.round.aggregator import Aggregator
from hubbub.core.protocol.round.batches import batches_of
from hubbub.core.protocol.round.masking import Masking
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.protocol.round.silo import Silo
from hubbub.core.protocol.token_lists.joint_batch import TokenBatches, Tokens
from hubbub.core.protocol.token_lists.token_list import ListContext
from hubbub.core.session.ask import Call
from hubbub.core.session.in_process import Federation, Record, federate
from hubbub.core.session.offer import Layout
from hubbub.core.session.rounds import AbortedError
from hubbub.core.session.token_lists import SiloTokenLists
from protocol.parties import (
    SESSION,
    STUDY,
    World,
    flipped,
    honest,
    refused,
    sessions_of,
    set_up,
    world,
)

NUMBERS, STEPS, QUORUM, SILOS = 8, 9, 3, (1, 2, 3, 4)
NAME = {index: f"silo-{index}" for index in SILOS}
PARAMETERS = np.linspace(-1, 1, NUMBERS, dtype=np.float32)


class Given:
    """A silo whose clipped sum is given."""

    count = capacity = 5

    def clipped_sum(self, parameters: object, chosen: object) -> np.ndarray:
        return np.linspace(0, 1, NUMBERS) / 4


def round_parameters(world_: World, *, batch: int = 0) -> RoundParameters:
    """Projected sums or, with a batch, joint batches from kept lists."""
    return replace(
        world_.round_parameters,
        parameters=NUMBERS,
        dimension=NUMBERS if batch else 4,
        projection="" if batch else "sign",
        most_records=20,
        sigma_grid=8.0,
        grid_step=2.0**-10,
        steps=STEPS,
        batch=batch,
        records=20 if batch else 0,
        fresh_lists=False,
    )


@dataclass(frozen=True, kw_only=True)
class Table:
    """The silos and the aggregator of one session, before its first round."""

    world: World
    round_parameters: RoundParameters
    silos: dict[int, Silo] = field(repr=False)
    seeds: dict[int, JointSeed] = field(repr=False)
    aggregator: Aggregator

    def begin(self, round: int = 1, attempt: int = 0, active: Sequence[int] = SILOS) -> bytes:
        """The aggregator opens an attempt and all active silos accept it."""
        model = self.aggregator.begin(round, attempt, active, PARAMETERS)
        for index in active:
            self.silos[index].accept(model)
        return model

    def links(self, active: Sequence[int] = SILOS) -> list[bytes]:
        return [self.silos[index].reveal() for index in active]

    def learn(self, links: Sequence[bytes], active: Sequence[int] = SILOS) -> None:
        self.aggregator.attempt.learn_seed(links)
        for index in active:
            self.silos[index].learn_seed(links)

    def model(self, round: int, attempt: int, active: Sequence[int] = SILOS) -> bytes:
        """A MODEL as a malicious aggregator may send it to one silo only."""
        payload = b"".join(self.round_parameters.model_parts(active, PARAMETERS))
        return self.world.forge(0, Tag.MODEL, payload, round=round, attempt=attempt)

    def link(self, sender: int, payload: bytes, round: int = 1, attempt: int = 0) -> bytes:
        """A SEED_LINK with a true signature, whatever it reveals."""
        return self.world.forge(sender, Tag.SEED_LINK, payload, round=round, attempt=attempt)


def place(world_: World, numbers: RoundParameters) -> dict[str, Any]:
    attempts = {"steps": numbers.steps, "attempts": numbers.attempts}
    return {"channel": world_.channel(), **attempts}


def drawers(world_: World, numbers: RoundParameters) -> dict[int, JointSeed]:
    """Every silo's chain; the secret is another in every table."""
    return {
        index: JointSeed(keys=world_.keys[index], index=index, **place(world_, numbers))
        for index in world_.roster.silos
    }


def having_list(numbers: RoundParameters, index: int) -> TokenBatches:
    batches = TokenBatches(numbers)
    batches.take_list(np.arange(5 * index - 5, 5 * index), 1)
    return batches


def laid(nodes: int = 0, *, batch: int = 0) -> Table:
    w = world(4, nodes, quorum=QUORUM)
    numbers, sessions = round_parameters(w, batch=batch), sessions_of(w)
    seeds = drawers(w, numbers)
    anchors = [one.anchor() for one in seeds.values()]
    check = SeedCheck(**place(w, numbers))
    assert {check.learn_anchors(anchors)} == {s.learn_anchors(anchors) for s in seeds.values()}
    silos = {
        index: Silo(
            round_parameters=numbers,
            task=Given(),
            masking=Masking(
                keys=w.keys[index],
                roster=w.roster,
                round_parameters=numbers,
                session=sessions[index],
                mask_stream=MaskStream(),
            ),
            source=SecureSource(),
            seeds=seeds[index],
            batches=having_list(numbers, index) if batch else None,
            transform=transform_of(numbers),
        )
        for index in SILOS
    }
    aggregator = Aggregator(
        keys=w.keys[0],
        channel=w.channel(),
        round_parameters=numbers,
        seeds=check,
    )
    return Table(world=w, round_parameters=numbers, silos=silos, seeds=seeds, aggregator=aggregator)


def payload_of(frame: bytes) -> bytes:
    return frame[HEADER_BYTES:-SIGNATURE_BYTES]


def everybody_refuses(table: Table, links: Sequence[bytes], culprit: str, says: str) -> None:
    """The aggregator and every silo refuse these links, and nobody answers."""
    with refused(culprit, says):
        table.aggregator.attempt.learn_seed(links)
    for silo in table.silos.values():
        with refused(culprit, says):
            silo.learn_seed(links)
        with pytest.raises(ProtocolError, match="expected a joint seed"):
            silo.contribute()


# A round as it should be ----------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [0, 2])
@pytest.mark.parametrize("batch", [0, 6], ids=["projection", "batches"])
def test_all_who_reveal_in_time_come_to_one_seed_and_answer(nodes: int, batch: int) -> None:
    table, seeds = laid(nodes, batch=batch), []
    for number, attempt in ((1, 0), (1, 1), (2, 0), (9, 1)):
        table.begin(number, attempt)
        links = table.links()
        table.learn(links[::-1])
        assert {silo._seed for silo in table.silos.values()} == {table.aggregator.attempt.seed}
        seeds.append(table.aggregator.attempt.seed)
        for silo in table.silos.values():
            table.aggregator.receive(silo.contribute())
        assert table.aggregator.attempt.arrived == table.aggregator.attempt.active
    assert None not in seeds
    assert len(set(seeds)) == 4


def test_the_seed_is_learnt_once() -> None:
    table = laid()
    table.begin()
    links = table.links()
    table.aggregator.attempt.learn_seed(links)
    with pytest.raises(ProtocolError, match="before the answers, once"):
        table.aggregator.attempt.learn_seed(links)


# Silos that cheat -----------------------------------------------------------------------------


@pytest.mark.parametrize("cheat", SILOS)
def test_a_silo_that_refuses_to_reveal_is_named_and_the_next_attempt_has_links_of_its_own(
    cheat: int,
) -> None:
    table = laid()
    table.begin()
    links = table.links()
    others = [index for index in SILOS if index != cheat]
    kept = [link for index, link in zip(SILOS, links, strict=True) if index != cheat]
    everybody_refuses(table, kept, NAME[cheat], "expected a SEED_LINK, got none")
    table.begin(1, 1, others)
    again = table.links(others)
    assert not {payload_of(one) for one in again} & {payload_of(one) for one in links}
    table.learn(again, others)
    for index in others:
        table.aggregator.receive(table.silos[index].contribute())
    assert table.aggregator.attempt.arrived == table.aggregator.attempt.active


def test_links_of_the_silos_that_are_left_are_never_made_into_a_seed_of_the_same_attempt() -> None:
    """Whoever reveals last would choose between two seeds."""
    table = laid()
    table.begin()
    links = table.links()
    for turn in range(4):
        with refused(NAME[turn + 1], "it has not revealed"):
            table.silos[1 + turn % 2].learn_seed(links[:turn] + links[turn + 1 :])
    with refused("aggregator", "expected a round after 1.0"):
        table.silos[1].accept(table.model(1, 0, (1, 2, 3)))


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ("noise", "that it has committed to"),
        ("flipped", "that it has committed to"),
        ("old", "that it has committed to"),
        ("later", "that it has committed to"),
        ("of another", "that it has committed to"),
        ("short", "of 32 bytes, got 31"),
        ("empty", "of 32 bytes, got 0"),
    ],
)
def test_a_wrong_link_names_its_silo_and_the_right_one_is_still_taken(said: str, says: str) -> None:
    table = laid()
    table.begin(1, 0)
    first = table.links()
    table.learn(first)
    table.begin(2, 0)
    links = table.links()
    right = payload_of(links[1])
    wrong = {
        "noise": bytes(32),
        "flipped": flipped(right, 31),
        "old": payload_of(first[1]),
        "later": table.seeds[2]._chain.link(5),
        "of another": payload_of(links[2]),
        "short": right[:31],
        "empty": b"",
    }[said]
    lie = table.link(2, wrong, round=2)
    everybody_refuses(table, [links[0], lie, *links[2:]], NAME[2], says)
    table.begin(2, 1)
    table.learn(table.links())


def test_two_links_for_one_attempt_name_their_silo() -> None:
    table = laid()
    table.begin()
    links = table.links()
    second = table.link(3, flipped(payload_of(links[2]), 0))
    everybody_refuses(table, [*links, second], NAME[3], "expected one SEED_LINK of silo-3")
    with refused(NAME[3], "expected one SEED_LINK of silo-3"):
        table.aggregator.attempt.learn_seed([second, *links])


def test_two_silos_that_are_told_two_links_of_a_third_cannot_both_believe() -> None:
    table = laid()
    table.begin()
    links = table.links()
    other = [*links[:2], table.link(3, bytes(32)), links[3]]
    table.silos[1].learn_seed(links)
    with refused(NAME[3], "that it has committed to"):
        table.silos[2].learn_seed(other)


def test_a_link_of_a_silo_that_takes_no_part_is_refused() -> None:
    table = laid()
    table.begin(1, 0, (1, 2, 3))
    links = table.links((1, 2, 3))
    uninvited = table.link(4, table.seeds[4]._chain.link(1))
    with refused("relay", "from an active silo"):
        table.silos[1].learn_seed([*links, uninvited])


# A relay that cheats --------------------------------------------------------------------------


def swapped(table: Table, first: list[bytes], links: list[bytes]) -> list[bytes]:
    """Two silos' links in each other's frames."""
    one, two = links[0], links[1]
    cut = slice(HEADER_BYTES, -SIGNATURE_BYTES)
    there = one[:HEADER_BYTES] + two[cut] + one[-SIGNATURE_BYTES:]
    back = two[:HEADER_BYTES] + one[cut] + two[-SIGNATURE_BYTES:]
    return [there, back, *links[2:]]


def doubled(table: Table, first: list[bytes], links: list[bytes]) -> list[bytes]:
    return [*links, links[2]]


def old_frame(table: Table, first: list[bytes], links: list[bytes]) -> list[bytes]:
    """What silo 2 revealed in the first round, in the second."""
    return [links[0], first[1], *links[2:]]


def as_anchor(table: Table, first: list[bytes], links: list[bytes]) -> list[bytes]:
    return [links[0], table.seeds[2].anchor(), *links[2:]]


def for_one_party(table: Table, first: list[bytes], links: list[bytes]) -> list[bytes]:
    addressed = table.world.forge(2, Tag.SEED_LINK, payload_of(links[1]), round=2, receiver=1)
    return [links[0], addressed, *links[2:]]


def other_session(table: Table, first: list[bytes], links: list[bytes]) -> list[bytes]:
    stale = table.world.forge(2, Tag.SEED_LINK, payload_of(links[1]), round=2, session=bytes(16))
    return [links[0], stale, *links[2:]]


def other_study(table: Table, first: list[bytes], links: list[bytes]) -> list[bytes]:
    stale = table.world.forge(2, Tag.SEED_LINK, payload_of(links[1]), round=2, study=bytes(32))
    return [links[0], stale, *links[2:]]


def cut_short(table: Table, first: list[bytes], links: list[bytes]) -> list[bytes]:
    return [links[0], links[1][:-1], *links[2:]]


RELAYS = {
    swapped: "false signature",
    doubled: "expected one SEED_LINK of silo-3, got a second",
    old_frame: r"of attempt 2\.0 .*, got a SEED_LINK of 1\.0 from silo-2",
    as_anchor: "got a SEED_ANCHOR",
    for_one_party: "expected a SEED_LINK",
    other_session: "a replay",
    other_study: "expected study",
    cut_short: "expected a payload of",
}


@pytest.mark.parametrize(("cheat", "says"), RELAYS.items(), ids=[c.__name__ for c in RELAYS])
def test_a_relay_that_changes_who_said_what_is_named(cheat: Any, says: str) -> None:
    table = laid()
    table.begin(1, 0)
    first = table.links()
    table.learn(first)
    table.begin(2, 0)
    links = table.links()
    everybody_refuses(table, cheat(table, first, links), "relay", says)


def test_a_link_that_is_lost_cannot_be_told_from_one_that_was_refused() -> None:
    """Its silo is named; docs/sampling.md says so. It may show the frame that it sent."""
    table = laid()
    table.begin()
    links = table.links()
    for told in (table.aggregator.attempt, table.silos[1]):
        with refused(NAME[4], "it has not revealed"):
            told.learn_seed(links[:3])
    assert table.silos[4].reveal() == links[3]
    table.learn(links)  # where it arrives late, the attempt goes on


# Anchors --------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def chains() -> dict[int, JointSeed]:
    w = world(4, quorum=QUORUM)
    return drawers(w, round_parameters(w))


def anchors() -> list[bytes]:
    return [one.anchor() for one in chains().values()]


def second_anchor(index: int) -> bytes:
    """Another anchor, truly signed by the same silo."""
    w = world(4, quorum=QUORUM)
    return w.forge(index, Tag.SEED_ANCHOR, bytes([index]) * 32)


def fresh(index: int) -> JointSeed:
    """A silo that has its chain and no anchors yet."""
    w = world(4, quorum=QUORUM)
    return drawers(w, round_parameters(w))[index]


ANCHORS = {
    "lost": (lambda all_: all_[:3], NAME[4], "expected a SEED_ANCHOR, got none"),
    "doubled": (lambda all_: [*all_, all_[1]], "relay", "expected one SEED_ANCHOR of silo-2"),
    "two of one silo": (
        lambda all_: [*all_, second_anchor(2)],
        NAME[2],
        "expected one SEED_ANCHOR of silo-2",
    ),
    "forged": (lambda all_: [*all_[:3], flipped(all_[3], 80)], "relay", "false signature"),
    "of no silo": (
        lambda all_: [*all_[:3], world(4, quorum=QUORUM).forge(0, Tag.SEED_ANCHOR, bytes(32))],
        "relay",
        "from an active silo",
    ),
    "short": (
        lambda all_: [*all_[:3], world(4, quorum=QUORUM).forge(4, Tag.SEED_ANCHOR, bytes(31))],
        NAME[4],
        "of 32 bytes, got 31",
    ),
}


@pytest.mark.parametrize(("cheat", "culprit", "says"), ANCHORS.values(), ids=list(ANCHORS))
def test_anchors_that_are_not_one_of_each_silo_are_refused(
    cheat: Any, culprit: str, says: str
) -> None:
    mine = fresh(1)
    all_ = [mine.anchor(), *anchors()[1:]]
    with refused(culprit, says):
        mine.learn_anchors(cheat(all_))
    with pytest.raises(ProtocolError, match="expected the anchors of all before a reveal"):
        mine.reveal(1, 0)


def test_a_silo_whose_own_anchor_was_exchanged_says_so() -> None:
    mine = fresh(1)
    with refused("relay", "expected my own anchor back"):
        mine.learn_anchors(anchors())


def test_a_relay_that_swaps_two_anchors_is_named() -> None:
    one, two, *rest = anchors()
    cut = slice(HEADER_BYTES, -SIGNATURE_BYTES)
    there = one[:HEADER_BYTES] + two[cut] + one[-SIGNATURE_BYTES:]
    w = world(4, quorum=QUORUM)
    with refused("relay", "false signature"):
        SeedCheck(**place(w, round_parameters(w))).learn_anchors([there, two, *rest])


@pytest.mark.parametrize("nodes", [0, 2])
def test_two_silos_that_are_shown_two_anchors_do_not_finish_the_set_up(nodes: int) -> None:
    """A silo that signs two anchors, and a relay that gives each half of the others one of them."""
    w = world(4, nodes, quorum=QUORUM)
    shown = {index: anchors() for index in range(1, len(w.keys))}
    shown[2] = [*anchors()[:3], second_anchor(4)]
    context = {}
    for index, frames in shown.items():
        check = SeedCheck(**place(w, round_parameters(w)))
        context[index] = check.learn_anchors(frames)
    assert context[1] != context[2]
    same = {f"p{i}": w.agreement(i, context=context[1]) for i in shown}
    assert set_up(w, honest, **same)[1].transcript
    parties = {f"p{i}": w.agreement(i, context=context[i]) for i in shown}
    with refused("relay", "were shown different things"):
        set_up(w, honest, **parties)


@pytest.mark.parametrize("nodes", [0, 2])
def test_the_runners_bind_the_anchors_into_the_transcript(
    monkeypatch: pytest.MonkeyPatch, nodes: int
) -> None:
    """A silo that saw other anchors than the rest does not finish the set-up of a run."""
    original = JointSeed.learn_anchors

    def elsewhere(self: JointSeed, frames: Sequence[bytes], silos: frozenset[int]) -> bytes:
        digest = original(self, frames, silos)
        return bytes(32) if self._index == 3 else digest

    assert federation(nodes).peers.parties[1].agreed.transcript
    monkeypatch.setattr(JointSeed, "learn_anchors", elsewhere)
    with refused("relay", "were shown different things"):
        federation(nodes)


# Out of turn ----------------------------------------------------------------------------------


def test_p8_no_seed_is_learnt_after_an_answer_that_cannot_have_followed_it() -> None:
    table = laid(nodes=2)
    table.begin()
    links = table.links()
    table.silos[1].learn_seed(links)
    table.aggregator.receive(table.silos[1].contribute())
    with pytest.raises(ProtocolError, match="all links before the answers"):
        table.aggregator.attempt.learn_seed(links)


@pytest.mark.parametrize("batch", [0, 6])
def test_p8_answers_without_the_links_that_draw_for_them_are_no_sum(batch: int) -> None:
    table = laid(batch=batch)
    table.begin()
    fold = table.aggregator.attempt
    model = fold.model
    for index in SILOS:
        vector = bytes(table.round_parameters.masked_bytes)
        table.aggregator.receive(
            table.world.forge(index, Tag.MASKED, vector + model, receiver=0, round=1)
        )
    with pytest.raises(ProtocolError, match="a link of every active silo before the answers"):
        fold.integers()


def test_p9_a_list_is_refused_once_the_seed_of_an_attempt_may_be_known() -> None:
    w, table = world(4, 0, quorum=QUORUM), laid(batch=6)
    assert not table.silos[1].is_open
    table.begin()
    assert table.silos[1].is_open
    lists = lists_of_three(w, _is_fresh=True)
    with pytest.raises(ProtocolError, match="list before a model is accepted"):
        lists.prepare(w.forge(0, Tag.MODEL, b"", round=2), is_open=True)


def test_p10_no_silo_draws_its_part_of_a_joint_batch_alone() -> None:
    numbers = round_parameters(world(4, 0, quorum=QUORUM), batch=6)
    with pytest.raises(ProtocolError, match="what joint batches are drawn from, got nothing"):
        batches_of(numbers, 5, SecureSource())
    assert batches_of(replace(numbers, batch=0), 5, SecureSource()).most <= 5


def lists_of_three(w: World, **changed: Any) -> SiloTokenLists:
    """A silo's list that has served one of three attempts, which one row pays for."""
    here = ListContext(roster=w.roster, study=STUDY, session=SESSION, number=1)
    lists = SiloTokenLists(
        keys=w.keys[1],
        index=1,
        list_context=here,
        counts=(5,) * 4,
        attempts_per_list=3,
        epoch=3,
        batches=TokenBatches(round_parameters(w, batch=6)),
        _left=3,
    )
    lists.use(1)
    return replace(lists, **changed)


@pytest.mark.parametrize("round", [3, 4, 2**31])
def test_p9_no_part_of_a_list_is_left_out_or_one_would_come_twice_for_one_row(round: int) -> None:
    w = world(4, 0, quorum=QUORUM)
    lists = lists_of_three(w)
    assert lists.is_paid
    with refused("aggregator", "the next part of the list"):
        lists.prepare(w.forge(0, Tag.MODEL, b"", round=round), is_open=False)
    lists.prepare(w.forge(0, Tag.MODEL, b"", round=2), is_open=False)


def test_p9_a_list_is_used_up_by_its_attempts_and_none_is_made_before() -> None:
    w = world(4, 0, quorum=QUORUM)
    lists = lists_of_three(w)
    with refused("relay", "once the last has served"):
        lists.answer(Call.LIST, [])
    lists.use(2)
    lists.use(3)
    assert not lists.is_paid
    with refused("relay", "expected a shuffled token list before the MODEL"):
        lists.prepare(w.forge(0, Tag.MODEL, b"", round=4), is_open=False)
    assert lists.answer(Call.LIST, [])


def test_p9_a_list_for_one_attempt_serves_no_second_one() -> None:
    fresh = replace(round_parameters(world(4, 0, quorum=QUORUM), batch=6), fresh_lists=True)
    tokens = Tokens(np.arange(5), 1)
    assert tokens.chosen(fresh, bytes(32), 1).size <= 5
    with pytest.raises(ProtocolError, match="make one"):
        tokens.chosen(fresh, bytes(32), 2)


@pytest.mark.parametrize("batch", [0, 6], ids=["projection", "batches"])
def test_a_silo_contributes_nothing_before_it_knows_the_seed(batch: int) -> None:
    table = laid(batch=batch)
    table.begin()
    with pytest.raises(ProtocolError, match=r"joint seed.*got none"):
        table.silos[1].contribute()
    links = [table.silos[index].reveal() for index in (2, 3, 4)]
    with pytest.raises(ProtocolError, match="expected an accepted model"):
        table.silos[1].reveal()
    with pytest.raises(ProtocolError, match=r"joint seed.*got none"):
        table.silos[2].contribute()
    with refused(NAME[1], "it has not revealed"):
        table.silos[3].learn_seed(links)
    with pytest.raises(ProtocolError, match=r"joint seed.*got none"):
        table.silos[3].contribute()


@pytest.mark.parametrize("batch", [0, 6], ids=["projection", "batches"])
def test_the_seed_of_one_attempt_serves_no_other(batch: int) -> None:
    table = laid(batch=batch)
    table.begin(1, 0)
    table.learn(table.links())
    table.begin(1, 1)
    assert table.aggregator.attempt.seed is None
    for silo in table.silos.values():
        with pytest.raises(ProtocolError, match=r"joint seed.*got none"):
            silo.contribute()


def test_a_silo_believes_no_seed_before_it_has_revealed_its_own_link() -> None:
    table = laid()
    table.begin()
    links = table.links((1, 2, 3))
    mine = table.link(4, table.seeds[4]._chain.link(1))
    with pytest.raises(ProtocolError, match=r"my own link.*reveal first"):
        table.silos[4].learn_seed([*links, mine])


@pytest.mark.parametrize("change", ["model", "active"])
def test_a_second_attempt_for_the_same_time_names_the_aggregator(change: str) -> None:
    table = laid()
    table.begin(1, 0)
    revealed = table.silos[1].reveal()
    active = (1, 2, 3) if change == "active" else SILOS
    payload = b"".join(table.round_parameters.model_parts(active, PARAMETERS + (change == "model")))
    second = table.world.forge(0, Tag.MODEL, payload, round=1, attempt=0)
    with refused("aggregator", "a mask is never used twice"):
        table.silos[1].accept(second)
    for out_of_turn in (table.silos[1].reveal, table.silos[1].contribute):
        with pytest.raises(ProtocolError, match="expected an accepted model"):
            out_of_turn()
    assert revealed


def test_the_same_model_a_second_time_names_the_relay_and_tells_nothing_new() -> None:
    table = laid()
    model = table.begin(1, 0)
    table.learn(table.links())
    table.silos[1].contribute()
    with refused("relay", "a mask is never used twice"):
        table.silos[1].accept(model)
    with pytest.raises(ProtocolError, match="expected an accepted model"):
        table.silos[1].reveal()


def test_a_model_of_an_earlier_time_is_refused_though_its_links_are_public() -> None:
    table = laid()
    first = table.begin(1, 0)
    table.begin(2, 0)
    with refused("relay", r"expected a round after 2\.0"):
        table.silos[1].accept(first)
    with refused("relay", r"expected a round after 2\.0"):
        table.silos[2].accept(table.model(1, 1))


# Nothing before its time ----------------------------------------------------------------------


def below(table: Table, index: int, link: bytes, number: int) -> dict[int, bytes]:
    """All links that somebody who has one can work out."""
    known = {number: link}
    for each in range(number, 0, -1):
        known[each - 1] = _below(table.seeds[index]._check.place(index), each, known[each])
    return known


def test_no_link_is_told_before_its_model_is_accepted_nor_any_later_one_after_it() -> None:
    table = laid()
    silo, chain = table.silos[2], table.seeds[2]._chain
    with pytest.raises(ProtocolError, match="expected an accepted model"):
        silo.reveal()
    times = [(1, 0), (1, 1), (2, 0), (5, 1)]
    for number, attempt in times:
        silo.accept(table.model(number, attempt))
        frame = silo.reveal()
        link = 2 * (number - 1) + attempt + 1
        assert payload_of(frame) == chain.link(link)
        assert silo.reveal() == frame  # asked again, no other
        known = below(table, 2, payload_of(frame), link)
        later = {chain.link(each) for each in range(link + 1, 2 * STEPS + 1)}
        assert not later & set(known.values())
        silo.decline()
        with pytest.raises(ProtocolError, match="expected an accepted model"):
            silo.reveal()


def forged_model(table: Table) -> bytes:
    return flipped(table.model(1, 0), HEADER_BYTES + 5)


def others_model(table: Table) -> bytes:
    payload = b"".join(table.round_parameters.model_parts(SILOS, PARAMETERS))
    return table.world.forge(2, Tag.MODEL, payload, round=1)


def too_few(table: Table) -> bytes:
    return table.model(1, 0, (1, 2))


def without_me(table: Table) -> bytes:
    return table.model(1, 0, (2, 3, 4))


def no_round(table: Table) -> bytes:
    return table.model(STEPS + 1, 0)


def not_finite(table: Table) -> bytes:
    payload = b"".join(table.round_parameters.model_parts(SILOS, PARAMETERS * np.float32("nan")))
    return table.world.forge(0, Tag.MODEL, payload, round=1)


MODELS = {
    forged_model: "relay",
    others_model: NAME[2],
    too_few: "aggregator",
    without_me: "relay",
    no_round: "aggregator",
    not_finite: "aggregator",
}


@pytest.mark.parametrize(("model", "culprit"), MODELS.items(), ids=[m.__name__ for m in MODELS])
def test_a_model_that_is_refused_brings_no_link_to_light(model: Any, culprit: str) -> None:
    table = laid()
    with refused(culprit, "expected"):
        table.silos[1].accept(model(table))
    with pytest.raises(ProtocolError, match="expected an accepted model"):
        table.silos[1].reveal()
    table.begin(1, 0)  # and the silo is not stuck
    table.learn(table.links())


def test_a_model_for_an_attempt_that_nobody_has_a_link_for_is_refused_before_it_is_paid() -> None:
    table = laid()
    attempts = table.round_parameters.attempts
    with refused("aggregator", f"expected at most {attempts} attempts at a round"):
        table.silos[1].accept(table.model(1, attempts))
    assert table.silos[1].accept(table.model(1, attempts - 1)).attempt == attempts - 1


def test_an_attempt_that_nobody_has_a_link_for_reveals_nothing() -> None:
    """Two attempts a round are committed to; a third would take the next round's link."""
    table = laid()
    with suppress(ProtocolError):  # refused here already, all the better
        table.silos[1].accept(table.model(1, 2))
    with pytest.raises(ProtocolError):
        table.silos[1].reveal()
    table.silos[1].accept(table.model(2, 0))
    assert payload_of(table.silos[1].reveal()) == table.seeds[1]._chain.link(3)


def test_no_repr_or_refusal_shows_a_link() -> None:
    table = laid()
    table.begin()
    shown = repr([table, table.silos, table.seeds[1], table.seeds[1]._chain])
    secret = table.seeds[1]._chain.link(1)
    with pytest.raises(ProtocolError) as caught:
        table.aggregator.attempt.learn_seed([table.link(1, secret)] * 2)
    shown += str(caught.value) + repr(caught.value)
    assert secret.hex() not in shown
    assert repr(secret) not in shown


# All parties in one process -------------------------------------------------------------------


def federation(nodes: int = 0, record: Record | None = None) -> Federation:
    layout = Layout(names=tuple(NAME.values()), nodes=nodes)
    numbers = round_parameters(world(4, nodes, quorum=QUORUM))
    return federate(layout, numbers, [Given() for _ in SILOS], study=STUDY, record=record)


@pytest.mark.parametrize("nodes", [0, 2])
def test_nobody_reveals_before_every_silo_has_paid(
    monkeypatch: pytest.MonkeyPatch, nodes: int
) -> None:
    said: list[tuple[str, int]] = []
    original = JointSeed.reveal

    def reveal(self: JointSeed, round: int, attempt: int) -> bytes:
        said.append(("reveal", self._index))
        return original(self, round, attempt)

    monkeypatch.setattr(JointSeed, "reveal", reveal)
    federation(nodes, lambda index, *_: said.append(("pay", index))).sum(1, PARAMETERS)
    assert said == [(word, index) for word in ("pay", "reveal") for index in SILOS]


@pytest.mark.parametrize("nodes", [0, 2])
def test_a_silo_that_cannot_pay_reveals_nothing_and_is_left_out(
    monkeypatch: pytest.MonkeyPatch, nodes: int
) -> None:
    said: list[tuple[int, int, int]] = []
    original = JointSeed.reveal

    def reveal(self: JointSeed, round: int, attempt: int) -> bytes:
        said.append((self._index, round, attempt))
        return original(self, round, attempt)

    def record(index: int, *_: object) -> None:
        said.append((index, 0, 0))
        if index == 3:
            raise BudgetError("expected less, got more; stop")

    monkeypatch.setattr(JointSeed, "reveal", reveal)
    parties = federation(nodes, record)
    with pytest.raises(AbortedError):
        parties.rounds.attempt(1, 0, PARAMETERS)
    assert said == [(1, 0, 0), (2, 0, 0), (3, 0, 0)]  # nobody after it is asked, none reveals
    with pytest.raises(ProtocolError, match="expected an accepted model"):
        parties.peers.parties[3].silo.contribute()
    said.clear()
    total, made = parties.rounds.round(2, PARAMETERS, attempts=2)
    assert (total is not None, made) == (True, 1)
    assert [one for one in said if one[1]] == [(1, 2, 0), (2, 2, 0), (4, 2, 0)]


@pytest.mark.parametrize("nodes", [0, 2])
def test_a_link_that_was_altered_on_its_way_costs_an_attempt_and_blames_nobody(
    monkeypatch: pytest.MonkeyPatch, nodes: int
) -> None:
    parties, sent = federation(nodes), []
    original, contribute = Silo.reveal, Silo.contribute

    def altered(self: Silo) -> bytes:
        frame = original(self)
        return flipped(frame, 90) if self is parties.peers.parties[2].silo else frame

    def counted(self: Silo) -> bytes:
        sent.append(self)
        return contribute(self)

    monkeypatch.setattr(Silo, "reveal", altered)
    monkeypatch.setattr(Silo, "contribute", counted)
    assert parties.rounds.round(1, PARAMETERS, attempts=1) == (None, 1)
    assert not sent
    assert parties.rounds.attendance.absent[2].culprit == "relay"
    with pytest.raises(ProtocolError):
        parties.rounds.aggregator.attempt.integers()
    total, made = parties.rounds.round(2, PARAMETERS, attempts=2)
    assert (total is not None, made) == (True, 1)
    assert len(sent) == 3


def test_a_chain_is_everybodys_own() -> None:
    one, two = federation(), federation()
    found = [anchor for parties in (one, two) for anchor in parties.rounds.opening[1:]]
    assert len({payload_of(frame) for frame in found}) == 8
