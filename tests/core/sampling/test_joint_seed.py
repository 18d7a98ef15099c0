"""Joint randomness: one message per attempt, and every way to steer it is named."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubbub.core.errors import ProtocolError, StudyError
from hubbub.core.protocol.agreement import joint_seed
from hubbub.core.protocol.agreement.joint_seed import JointSeed, SeedCheck
from hubbub.core.protocol.primitives.identity import Roster
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import Channel, Frame, Tag
from protocol.parties import flipped, refused
from sampling.silos import KEYS, ROSTER, SESSION, STUDY, payload_of

STEPS, ATTEMPTS = 40, 3
EVERYBODY = tuple(ROSTER.silos)
CHEAT, NAME = 2, "silo-2"


def channel(**changes: Any) -> Channel:
    return Channel(**({"roster": ROSTER, "study": STUDY, "session": SESSION} | changes))


def drawer(index: int, session: bytes = SESSION, steps: int = STEPS) -> JointSeed:
    return JointSeed(
        keys=KEYS[index],
        channel=channel(session=session),
        index=index,
        steps=steps,
        attempts=ATTEMPTS,
        source=SecureSource(hashlib.sha256(bytes([index])).digest()[:16]),
    )


def checker() -> SeedCheck:
    return SeedCheck(channel(), steps=STEPS, attempts=ATTEMPTS)


def ready(indices: Iterable[int] = EVERYBODY) -> dict[int, JointSeed]:
    silos = {index: drawer(index) for index in indices}
    anchors = [one.anchor() for one in silos.values()]
    assert len({one.learn_anchors(anchors) for one in silos.values()}) == 1
    return silos


def forged(sender: int, tag: Tag, payload: bytes, time: tuple[int, int] = (0, 0)) -> bytes:
    """A frame with a true signature, whatever it claims."""
    place = {"round": time[0], "attempt": time[1]}
    frame = Frame(tag=tag, study=STUDY, session=SESSION, sender=sender, payload=payload, **place)
    return frame.sealed(KEYS[sender])


def reveals(
    silos: dict[int, JointSeed], time: tuple[int, int], active: Iterable[int] = EVERYBODY
) -> list[bytes]:
    return [silos[index].reveal(*time) for index in active]


# What it promises -----------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.data())
def test_all_who_take_part_and_the_aggregator_have_one_seed_for_each_attempt(
    data: st.DataObject,
) -> None:
    silos, check = ready(), checker()
    check.learn_anchors([one.anchor() for one in silos.values()])
    times = st.tuples(st.integers(1, STEPS), st.integers(0, ATTEMPTS - 1))
    seeds = []
    for time in sorted(data.draw(st.sets(times, min_size=1, max_size=8))):
        active = data.draw(st.sets(st.sampled_from(EVERYBODY), min_size=1))
        frames = data.draw(st.permutations(reveals(silos, time, sorted(active))))
        found = {silos[index].seed(*time, active, frames) for index in active}
        assert found == {check.seed(*time, active, frames)}
        seeds.append(found.pop())
    assert len(set(seeds)) == len(seeds)
    assert {len(seed) for seed in seeds} == {32}


def test_the_seed_changes_with_the_links_and_with_who_takes_part() -> None:
    silos = ready()
    frames = reveals(silos, (1, 0))
    some = silos[1].seed(1, 0, {1, 2}, frames[:2])
    assert some != silos[1].seed(1, 0, EVERYBODY, frames)


def test_an_attempt_has_one_link_and_it_follows_from_its_time_alone() -> None:
    silos = ready()
    once = silos[1].reveal(2, 1)
    assert silos[1].reveal(2, 1) == once
    with pytest.raises(ProtocolError, match="its time is over"):
        silos[1].reveal(2, 0)
    assert payload_of(once) == payload_of(drawer_at(2, 1))
    assert checker().number(2, 1) == ATTEMPTS + 2


def drawer_at(round: int, attempt: int) -> bytes:
    """The same silo's reveal after it missed all attempts before."""
    return ready()[1].reveal(round, attempt)


@pytest.mark.parametrize("length", [1, 2, 1023, 1024, 1025, 2048, 3000])
def test_a_chain_kept_in_part_is_the_whole_chain(length: int) -> None:
    top, place = os.urandom(32), b"place"
    chain, links = joint_seed._Chain(place, length, top), [top]
    for number in range(length, 0, -1):
        links.append(joint_seed._below(place, number, links[-1]))
    links.reverse()
    some = {0, 1, length // 2, length - 1, length, *range(1000, min(length, 1060))}
    assert all(chain.link(number) == links[number] for number in some if number <= length)


@pytest.mark.slow
def test_a_chain_of_a_million_links_is_kept_in_a_thousand() -> None:
    chain = joint_seed._Chain(b"", 10**6, bytes(32))
    assert len(chain._kept) <= 10**6 // 1024 + 2
    below, here = chain.link(999_999), chain.link(10**6)
    assert joint_seed._below(b"", 10**6, here) == below
    assert "secret" in repr(chain)


def test_chains_of_silos_sessions_and_studies_have_nothing_in_common() -> None:
    """The same secret gives another anchor wherever it is used."""
    top = hashlib.sha256(b"one").digest()
    places = [checker().place(1), checker().place(2)]
    places.append(SeedCheck(channel(session=bytes(16)), steps=STEPS).place(1))
    anchors = {joint_seed._Chain(place, 5, top).link(0) for place in places}
    assert len(anchors) == 3


def test_one_bit_of_one_silos_secret_makes_another_seed() -> None:
    """One honest silo suffices: with its link unknown, so is the seed."""
    seeds = set()
    for number in range(50):
        silos = {index: drawer(index) for index in EVERYBODY}
        silos[3] = JointSeed(
            keys=KEYS[3],
            channel=channel(),
            index=3,
            steps=STEPS,
            attempts=ATTEMPTS,
            source=SecureSource(number.to_bytes(16, "big")),
        )
        anchors = [one.anchor() for one in silos.values()]
        for one in silos.values():
            one.learn_anchors(anchors)
        seeds.add(silos[1].seed(1, 0, EVERYBODY, reveals(silos, (1, 0))))
    assert len(seeds) == 50


# Cheats ----------------------------------------------------------------------------------------


def test_a_silo_that_refuses_to_reveal_is_named_and_the_next_attempt_has_other_links() -> None:
    silos = ready()
    frames = reveals(silos, (1, 0))
    with refused(NAME, "has not revealed"):
        silos[1].seed(1, 0, EVERYBODY, [frames[0], *frames[2:]])
    left = [index for index in EVERYBODY if index != CHEAT]
    again = reveals(silos, (1, 1), left)
    assert not {payload_of(one) for one in again} & {payload_of(one) for one in frames}
    assert len({silos[index].seed(1, 1, left, again) for index in left}) == 1


WRONG = {
    "random": lambda silo: os.urandom(32),
    "of an earlier attempt": lambda silo: silo._chain.link(4),
    "of a later attempt": lambda silo: silo._chain.link(6),
    "its anchor": lambda silo: silo._chain.link(0),
}


@pytest.mark.parametrize("link", WRONG.values(), ids=WRONG)
def test_a_link_other_than_that_of_the_attempt_names_its_silo(link: object) -> None:
    silos = ready()
    wrong = forged(CHEAT, Tag.SEED_LINK, link(silos[CHEAT]), (2, 1))  # type: ignore[operator]
    frames = reveals(silos, (2, 1), (1, 3, 4))
    for one in (silos[1], anchored(silos)):
        with refused(NAME, "link number 5 that it has committed to"):
            one.seed(2, 1, EVERYBODY, [*frames, wrong])


def anchored(silos: dict[int, JointSeed]) -> SeedCheck:
    check = checker()
    check.learn_anchors([one.anchor() for one in silos.values()])
    return check


def test_a_wrong_link_is_forgotten_and_the_right_one_still_taken() -> None:
    silos = ready()
    frames = reveals(silos, (2, 1))
    wrong = forged(CHEAT, Tag.SEED_LINK, bytes(32), (2, 1))
    with refused(NAME, "committed to"):
        silos[1].seed(2, 1, EVERYBODY, [frames[0], wrong, *frames[2:]])
    assert silos[1].seed(2, 1, EVERYBODY, frames) == silos[3].seed(2, 1, EVERYBODY, frames)


def test_another_silos_link_is_no_link_of_the_one_that_copies_it() -> None:
    silos = ready()
    frames = reveals(silos, (1, 0))
    copied = forged(CHEAT, Tag.SEED_LINK, payload_of(frames[0]), (1, 0))
    with refused(NAME, "committed to"):
        silos[3].seed(1, 0, EVERYBODY, [frames[0], copied, *frames[2:]])


def test_whoever_copies_an_anchor_cannot_reveal_below_it() -> None:
    silos = {index: drawer(index) for index in EVERYBODY}
    anchors = [one.anchor() for one in silos.values()]
    anchors[CHEAT - 1] = forged(CHEAT, Tag.SEED_ANCHOR, payload_of(anchors[0]))
    for index in (1, 3, 4):
        silos[index].learn_anchors(anchors)
    frames = reveals(silos, (1, 0), (1, 3, 4))
    copied = forged(CHEAT, Tag.SEED_LINK, payload_of(frames[0]), (1, 0))
    with refused(NAME, "committed to"):
        silos[3].seed(1, 0, EVERYBODY, [*frames, copied])


def test_two_anchors_shown_to_two_silos_give_two_digests() -> None:
    silos = {index: drawer(index) for index in EVERYBODY}
    anchors = [one.anchor() for one in silos.values()]
    other = forged(CHEAT, Tag.SEED_ANCHOR, os.urandom(32))
    mine = silos[1].learn_anchors(anchors)
    assert mine == silos[3].learn_anchors(anchors[::-1])
    assert mine != silos[4].learn_anchors([anchors[0], other, *anchors[2:]])


def test_who_has_planned_other_attempts_has_another_digest_of_the_same_anchors() -> None:
    anchors = [drawer(index).anchor() for index in EVERYBODY]
    digests = {
        SeedCheck(channel(), steps=steps, attempts=attempts).learn_anchors(anchors)
        for steps, attempts in [(STEPS, ATTEMPTS), (STEPS, ATTEMPTS + 1), (STEPS + 1, ATTEMPTS)]
    }
    assert len(digests) == 3


def test_anchors_must_be_there_once_and_true() -> None:
    silos = {index: drawer(index) for index in EVERYBODY}
    anchors = [one.anchor() for one in silos.values()]
    other = forged(CHEAT, Tag.SEED_ANCHOR, os.urandom(32))
    cases = [
        (NAME, "expected a SEED_ANCHOR, got none", [anchors[0], *anchors[2:]]),
        (NAME, "got a second", [*anchors, other]),
        ("relay", "got a second", [*anchors, anchors[1]]),
        ("relay", "false signature", [flipped(anchors[1], 80), anchors[0], *anchors[2:]]),
        (NAME, "of 32 bytes", [anchors[0], forged(2, Tag.SEED_ANCHOR, b"x"), *anchors[2:]]),
        ("relay", "expected a SEED_ANCHOR of", [*anchors, forged(2, Tag.COMMIT, bytes(32))]),
        ("relay", "my own anchor", anchors[1:]),
    ]
    for culprit, says, frames in cases:
        with refused(culprit, says):
            silos[1].learn_anchors(frames)
    silos[1].learn_anchors(anchors)
    with pytest.raises(ProtocolError, match="anchors once"):
        silos[1].learn_anchors(anchors)


def test_links_of_another_time_session_or_silo_name_the_relay() -> None:
    silos = ready()
    early = reveals(silos, (1, 0))
    frames = reveals(silos, (1, 1))
    other = drawer(CHEAT, session=bytes(16))
    assert other.anchor() != silos[CHEAT].anchor()
    cases = [
        ("expected a SEED_LINK of attempt 1.1", [*frames[:1], early[1], *frames[2:]]),
        ("of this session", [*frames[:1], other.anchor(), *frames[2:]]),
        ("false signature", [*frames[:1], flipped(frames[1], 80), *frames[2:]]),
        ("got a second", [*frames, frames[1]]),
    ]
    for says, given_frames in cases:
        with refused("relay", says):
            silos[1].seed(1, 1, EVERYBODY, given_frames)
    with refused("relay", "from an active silo"):
        silos[1].seed(1, 1, {1, 3, 4}, frames)
    with refused(NAME, "got a second"):
        silos[1].seed(1, 1, EVERYBODY, [*frames, forged(CHEAT, Tag.SEED_LINK, bytes(32), (1, 1))])


# The caller's own faults ---------------------------------------------------------------------


def test_nobody_reveals_before_all_have_committed() -> None:
    with pytest.raises(ProtocolError, match="anchors of all"):
        drawer(1).reveal(1, 0)
    with pytest.raises(ProtocolError, match="anchors first"):
        checker().seed(1, 0, EVERYBODY, [])


def test_a_silo_trusts_no_seed_without_its_own_link() -> None:
    silos = ready()
    frames = reveals(silos, (1, 0))
    with pytest.raises(ProtocolError, match="my own link"):
        silos[1].seed(1, 0, {2, 3, 4}, frames[1:])
    silos[1].reveal(1, 1)
    with pytest.raises(ProtocolError, match="my own link"):
        silos[1].seed(1, 0, EVERYBODY, frames)


@pytest.mark.parametrize("time", [(0, 0), (STEPS + 1, 0), (1, ATTEMPTS), (1, -1)])
def test_times_that_nobody_committed_to_are_refused(time: tuple[int, int]) -> None:
    with pytest.raises(ProtocolError, match="nobody has committed"):
        ready()[1].reveal(*time)


@pytest.mark.parametrize(("steps", "attempts"), [(0, 1), (1, 0), (2**24, 2)])
def test_sessions_of_impossible_length_are_refused(steps: int, attempts: int) -> None:
    with pytest.raises(StudyError, match="divide the study"):
        SeedCheck(channel(), steps=steps, attempts=attempts)


@pytest.mark.parametrize("place", [{"study": bytes(31)}, {"session": bytes(15)}])
def test_a_place_has_its_lengths(place: dict[str, bytes]) -> None:
    with pytest.raises(StudyError, match="study id of 32 bytes"):
        channel(**place)


@pytest.mark.parametrize("active", [set(), {0, 1}, {1, 9}])
def test_a_set_of_silos_must_be_of_the_roster(active: set[int]) -> None:
    with pytest.raises(StudyError, match="active silos"):
        anchored(ready()).seed(1, 0, active, [])


def test_time_goes_forward_for_who_checks_too() -> None:
    silos = ready()
    check = anchored(silos)
    late = reveals(ready(), (3, 0))
    check.seed(3, 0, EVERYBODY, late)
    assert check.seed(3, 0, EVERYBODY, late)
    # And nobody is blamed for what all know by now.
    for past in ((1, 0), (2, 0), (2, ATTEMPTS - 1)):
        with pytest.raises(ProtocolError, match="its time is over"):
            check.seed(*past, EVERYBODY, reveals(ready(), past))


def test_skipping_many_attempts_takes_no_longer_than_the_chain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hashed, below = [], joint_seed._below
    silos = ready()
    check = anchored(silos)
    times = [(1, 0), (STEPS // 2, 1), (STEPS, ATTEMPTS - 1)]
    frames = {time: reveals(silos, time) for time in times}
    monkeypatch.setattr(joint_seed, "_below", lambda *args: hashed.append(args[1]) or below(*args))
    for time in times:
        check.seed(*time, EVERYBODY, frames[time])
    assert len(hashed) == len(EVERYBODY) * STEPS * ATTEMPTS


def test_a_roster_without_the_sender_takes_nothing() -> None:
    small = SeedCheck(channel(roster=Roster(parties=ROSTER.parties[:3])), steps=STEPS)
    with refused("relay", "a sender of the roster"):
        small.learn_anchors([drawer(4).anchor()])
