"""P29: a session of any N - D silos, and what is gained where a check is gone.

Every check is cheated, with true signatures; where it guards privacy, it is also shown what an
aggregator has without it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.core.errors import ProtocolError, StudyError
from hubbub.core.protocol.agreement import masks
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import Tag, unverified
from hubbub.core.protocol.round import round_parameters
from protocol.parties import DIMENSION, World, flipped, honest, refused, set_up, world

PAIRWISE, NODES, JOINT = world(5, quorum=3), world(5, 2, quorum=3), world(5, quorum=3, joint=True)
HERE = (1, 2, 4)  # of five, of whom two may be missing
BOTH = pytest.mark.parametrize("w", [PAIRWISE, NODES], ids=["pairwise", "nodes"])


def summed(w: World, sessions: Any, silos: Collection[int]) -> list[int]:
    """One attempt of these silos, each with a one where only it has one; what is opened."""
    aggregator = w.aggregator()
    model = aggregator.begin(1, 0, silos, np.zeros(2, dtype=np.float32))
    for silo in silos:
        masking = w.masking(sessions[silo])
        unit = np.eye(DIMENSION, dtype=np.int64)[silo - 1]
        aggregator.receive(masking.masked(masking.accept(model), ring.to_residues(unit, 32)))
    if w.layout.nodes:
        w.totals(aggregator, {node: w.node(sessions[node]) for node in w.roster.nodes})
    return aggregator.attempt.integers().tolist()


# A session of some -------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("silos", [(1, 2, 3, 4, 5), (2, 3, 4, 5), (1, 2, 4), (3, 4, 5)])
def test_any_silos_that_are_enough_have_a_session_and_their_sum(
    w: World, silos: tuple[int, ...]
) -> None:
    sessions = set_up(w, silos=silos)
    assert sessions.keys() == {*silos, *w.roster.nodes}
    assert {one.silos for one in sessions.values()} == {frozenset(silos)}
    assert summed(w, sessions, silos) == [int(k in silos) for k in range(1, 6)]


def test_silos_that_drop_out_of_a_session_of_some_may_be_left_out_up_to_the_quorum() -> None:
    w = PAIRWISE
    sessions = set_up(w, silos=(1, 2, 4, 5))
    assert summed(w, sessions, (1, 2, 5)) == [1, 1, 0, 0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("away", [0, 3, 6])
def test_the_graph_is_the_studys_on_those_who_are_there(away: int) -> None:
    w = world(40, quorum=34, degree=8)
    silos = tuple(range(1 + away, 41))
    sessions = set_up(w, silos=silos)
    seed = sessions[40].seed
    for silo, session in sessions.items():
        assert len(session.secrets) == 8
        assert session.secrets.keys() <= set(silos) - {silo}
        assert all(silo in sessions[other].secrets for other in session.secrets)
    assert seed != set_up(w, silos=silos)[40].seed  # drawn anew


def test_a_graph_of_at_least_all_others_is_complete() -> None:
    w = world(20, quorum=8, degree=12)
    sessions = set_up(w, silos=range(1, 10))
    assert {len(one.secrets) for one in sessions.values()} == {8}


def test_a_node_shares_masks_with_those_of_its_silos_that_are_there() -> None:
    w = world(6, 4, quorum=4, each=2)
    sessions = set_up(w, silos=(1, 3, 4, 6))
    for node in w.roster.nodes:
        used = {silo for silo in (1, 3, 4, 6) if node in w.layout.neighbours(silo, b"")}
        assert set(sessions[node].secrets) == used


# P29, of graphs --------------------------------------------------------------------------------


def torn(order: Sequence[int], gone: Collection[int], degree: int) -> bool:
    """Whether those of a circle who are not gone are in more than one part."""
    n = len(order)
    left = {one for one in order if one not in gone}
    seen, todo = set(), [min(left)] if left else []
    while todo:
        one = todo.pop()
        seen.add(one)
        place = order.index(one)
        steps = [s for half in range(1, degree // 2 + 1) for s in (half, -half)]
        near = order if degree >= n - 1 else [order[(place + step) % n] for step in steps]
        todo += [other for other in near if other in left and other not in seen]
    return seen != left


def windows(order: Sequence[int], gone: Collection[int], half: int) -> list[frozenset[int]]:
    """Runs of so many places of a circle, all of whose silos are gone; by their first place."""
    n = len(order)
    runs = (frozenset((start + step) % n for step in range(half)) for start in range(n))
    return [run for run in runs if all(order[place] in gone for place in run)]


@given(st.data())
def test_p29_who_tears_the_graph_of_those_present_apart_tears_two_runs_out_of_the_whole_circle(
    data: st.DataObject,
) -> None:
    """The step of the proof: the absent, put anywhere into the circle, count as drop-outs."""
    n, half = data.draw(st.integers(6, 14)), data.draw(st.integers(1, 3))
    order = data.draw(st.permutations(range(1, n + 1)))
    absent = data.draw(st.sets(st.sampled_from(order), max_size=n - 4))
    here = [one for one in order if one not in absent]
    gone = data.draw(st.sets(st.sampled_from(here)))
    if not torn(here, gone, 2 * half):
        return
    found = windows(order, gone | absent, half)
    assert any(one.isdisjoint(two) for one in found for two in found)


def test_p29_the_step_of_the_proof_does_not_hold_with_a_run_too_few() -> None:
    """The test before can fail: one run alone does not tear a circle apart."""
    order = list(range(1, 11))
    assert not torn(order, {3, 4}, 4)
    assert torn(order, {3, 4, 8, 9}, 4)
    assert not torn(order, {3, 4, 8}, 4)


def test_p29_the_seed_of_a_graph_follows_from_the_roll() -> None:
    """The same shares under another ROLL draw another graph: nobody knows it before the ROLL."""
    w, seeds = world(4, quorum=2), set()
    for silos in ((1, 2, 3), (1, 2, 3, 4)):
        _, roll = w.rolled(silos)
        parties = {
            i: w.agreement(i, roll=roll, source=SecureSource(bytes([i]) * 16)) for i in silos
        }
        commits = [one.commit() for one in parties.values()]
        reveals = [one.reveal(commits) for one in parties.values()]
        parties[1].learn_seed(reveals)
        seeds.add(parties[1]._seed)
    assert len(seeds) == 2


@given(st.binary(min_size=32, max_size=32), st.integers(17, 40))
def test_neighbours_on_a_part_of_the_silos_are_mutual(seed: bytes, silos: int) -> None:
    lists = {one: masks.neighbours_of(one, silos, 6, seed) for one in range(silos)}
    assert all(one in lists[other] for one, found in lists.items() for other in found)


# Who is told what ------------------------------------------------------------------------------


def test_two_different_rolls_are_a_signed_lie() -> None:
    call = PAIRWISE.roll_call(1)
    call.take(PAIRWISE.rolled((1, 2, 4))[0])
    with refused("aggregator", "got a second"):
        call.take(PAIRWISE.rolled((1, 2, 3))[0])
    assert call.roll.silos == {1, 2, 4}


def test_a_roll_that_comes_again_is_the_relays() -> None:
    call, (rolled, _) = PAIRWISE.roll_call(1), PAIRWISE.rolled((1, 2, 4))
    call.take(rolled)
    with refused("relay", "got a second"):
        call.take(rolled)


@given(
    st.sampled_from([Tag.ROLL, Tag.ROLL, Tag.ROLL, Tag.OPEN, Tag.MODEL]),
    st.sampled_from([0, 0, 0, 2]),
    st.integers(0, 1),
    st.binary(min_size=1, max_size=1) | st.binary(max_size=3),
)
def test_any_frame_is_a_roll_or_refused(tag: Tag, sender: int, round: int, bits: bytes) -> None:
    call = PAIRWISE.roll_call(1)
    frame = PAIRWISE.forge(sender, tag, bits, round=round)
    named = {silo for silo in range(1, 6) if len(bits) == 1 and bits[0] >> (8 - silo) & 1}
    good = (
        (tag, sender, round, len(bits)) == (Tag.ROLL, 0, 0, 1)
        and not bits[0] & 7
        and len(named) >= 3
        and 1 in named
    )
    if good:
        assert call.take(frame).silos == named
    else:
        with pytest.raises(ProtocolError):
            call.take(frame)


def test_a_roll_below_the_quorum_is_refused() -> None:
    with refused("aggregator", "at least 3 silos in a session, got 2"):
        PAIRWISE.roll_call(1).take(PAIRWISE.rolled((1, 2))[0])


def test_nobody_takes_part_before_it_was_told_who_does() -> None:
    with refused("relay", "expected a ROLL"):
        _ = PAIRWISE.roll_call(1).roll


@BOTH
def test_silos_that_were_shown_different_rolls_have_no_session(w: World) -> None:
    """The digest is in what all must have seen alike; here a silo has seen one silo more."""
    rolls = {i: w.rolled(HERE if i != 2 else (1, 2, 4, 5))[1] for i in (*HERE, *w.roster.nodes)}
    parties = {f"p{i}": w.agreement(i, roll=roll, context=roll.digest) for i, roll in rolls.items()}
    with pytest.raises(ProtocolError):
        set_up(w, honest, HERE, **parties)


@pytest.mark.parametrize("phase", ["commits", "reveals"])
def test_an_outsiders_share_of_the_seed_is_refused(phase: str) -> None:
    outsider = PAIRWISE.agreement(3)
    frame = outsider.commit() if phase == "commits" else PAIRWISE.forge(3, Tag.REVEAL, bytes(32))

    def relay(name: str, _receiver: int, frames: Any) -> Any:
        return [*frames, frame] if name == phase else frames

    with refused("relay", "got one from silo-3"):
        set_up(PAIRWISE, relay, HERE)


def test_a_share_that_is_withheld_ends_the_set_up_and_the_set_never_shrinks() -> None:
    """Else T silos that withhold shares would choose among 2^T graphs."""

    def relay(name: str, _receiver: int, frames: Any) -> Any:
        return (
            [one for one in frames if unverified(one).sender != 4] if name == "reveals" else frames
        )

    with refused("silo-4", "expected a REVEAL, got none"):
        set_up(PAIRWISE, relay, HERE)


def test_a_smaller_set_after_commit_is_refused() -> None:
    """The relay drops silo 4 from the commitments, too: the ROLL has named it."""

    def relay(name: str, _receiver: int, frames: Any) -> Any:
        return (
            [one for one in frames if unverified(one).sender != 4] if name == "commits" else frames
        )

    with refused("silo-4", "expected a COMMIT, got none"):
        set_up(PAIRWISE, relay, HERE)


@BOTH
def test_a_digest_for_an_absent_silo_is_refused(w: World) -> None:
    def relay(name: str, _receiver: int, frames: Any) -> Any:
        return flipped(frames, 32 * 3) if name == "digests" else frames

    with refused("relay", "no digest for silo-3"):
        set_up(w, relay, HERE)


def test_an_outsiders_confirmation_is_refused() -> None:
    def relay(name: str, _receiver: int, frames: Any) -> Any:
        other = PAIRWISE.forge(3, Tag.CONFIRM, bytes(32))
        return [*frames, other] if name == "confirms" else frames

    with refused("relay", "got one from silo-3"):
        set_up(PAIRWISE, relay, HERE)


def test_anchors_are_those_of_the_session_and_of_nobody_else() -> None:
    drawn = {i: JOINT.seeds(i) for i in JOINT.roster.silos}
    anchors = {i: one.anchor() for i, one in drawn.items()}
    there = [anchors[i] for i in HERE]
    digest = JOINT.seed_check().learn_anchors(there, HERE)
    assert digest == drawn[1].learn_anchors(there, HERE)
    with refused("relay", "from silo-3"):
        JOINT.seed_check().learn_anchors([*there, anchors[3]], HERE)
    with refused("silo-4", "got none"):
        JOINT.seed_check().learn_anchors(there[:2], HERE)
    assert JOINT.seed_check().learn_anchors([*there, anchors[3]], (*HERE, 3)) != digest


def test_a_seed_of_silos_that_are_not_in_the_session_is_none() -> None:
    drawn = {i: JOINT.seeds(i) for i in HERE}
    check = JOINT.seed_check()
    check.learn_anchors([one.anchor() for one in drawn.values()], HERE)
    with pytest.raises(StudyError, match="silos of the session"):
        check.seed(1, 0, (1, 2, 3), [])


# Padding with the absent -------------------------------------------------------------------------


def test_p29_a_model_that_is_padded_with_absent_silos_is_refused() -> None:
    """Three are named, as many as the quorum; two of them are there."""
    sessions = set_up(PAIRWISE, silos=HERE)
    with refused("aggregator", "the silos 3, which did not take part"):
        PAIRWISE.masking(sessions[1]).accept(PAIRWISE.model((1, 2, 3)))


@pytest.mark.parametrize("tag", [Tag.REQUEST, Tag.ARRIVED])
def test_p29_a_node_speaks_of_no_set_that_is_padded_with_absent_silos(tag: Tag) -> None:
    sessions = set_up(NODES, silos=HERE)
    node = NODES.node(sessions[6])
    asked = NODES.request(6, (1, 2, 3), tag=tag)
    with refused("aggregator", "the silos 3, which did not take part"):
        (node.promise if tag is Tag.REQUEST else node.held)(asked)


def test_p29_without_the_check_a_padded_model_opens_the_sum_of_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the check is for: two silos answer, each with the noise share of a set of three."""
    sessions = set_up(PAIRWISE, silos=HERE)
    monkeypatch.setattr(
        round_parameters.RoundParameters, "_enough", lambda _self, chosen, *_: chosen
    )
    model = PAIRWISE.model((1, 2, 3))
    opened = ring.zeros(DIMENSION, 32)
    for silo in (1, 2):
        masking = PAIRWISE.masking(sessions[silo])
        unit = np.eye(DIMENSION, dtype=np.int64)[silo - 1]
        answer = masking.masked(masking.accept(model), ring.to_residues(unit, 32))
        payload = unverified(answer).payload
        opened += ring.from_bytes(payload[:-32], DIMENSION, 32)
    assert ring.to_integers(opened).tolist() == [1, 1, 0, 0, 0]


def test_p29_without_the_check_a_padded_request_opens_one_silos_vector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sessions = set_up(NODES, silos=HERE)
    monkeypatch.setattr(
        round_parameters.RoundParameters, "_enough", lambda _self, chosen, *_: chosen
    )
    node = NODES.node(sessions[6])
    assert NODES.total(node, NODES.request(6, (1, 3, 5)))


def test_with_correlated_noise_an_absent_silo_comes_with_the_next_session_only() -> None:
    w = world(5, quorum=3, correlation=(60_000, -20_000))
    sessions = set_up(w, silos=(1, 2, 4, 5))
    masking = w.masking(sessions[1])
    masking.accept(w.model((1, 2, 4, 5), row=1))
    with refused("aggregator", "the silos 3, which did not take part"):
        masking.accept(w.model((1, 2, 3, 4, 5), round=2, row=2))
    masking.accept(w.model((1, 2, 4), round=2, row=2))
    with refused("aggregator", "stay away until"):
        masking.accept(w.model((1, 2, 4, 5), round=3, row=3))
