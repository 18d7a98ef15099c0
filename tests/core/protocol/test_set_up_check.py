"""Who has spoilt a set-up: found from what each has said, phase by phase, and nobody else."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from hubbub.core.protocol.agreement.key_agreement import SEALED_BYTES, sent_digests
from hubbub.core.protocol.agreement.set_up_check import SetUpCheck
from hubbub.core.protocol.primitives.wire import Tag, receiver_of
from protocol.parties import World, flipped, world

PAIRWISE, SPARSE, NODES = world(), world(6, degree=2), world(nodes=2)
NAMED = {"pairwise": PAIRWISE, "sparse": SPARSE, "nodes": NODES}
WORLDS = pytest.mark.parametrize("w", NAMED.values(), ids=NAMED)
PHASES = [
    pytest.param(w, phase, id=f"{name}-{phase}")
    for name, w in NAMED.items()
    for phase in ("commits", "reveals", "sent", "confirmed")
    if phase in ("sent", "confirmed") or not w.roster.nodes  # which commit to nothing
]
CHEAT, OTHER = 2, 3
CONTEXT = b"what was offered"


class Heard:
    """What everybody has said in a set-up, by phase and sender, as the aggregator keeps it."""

    def __init__(self, w: World) -> None:
        self.commits: dict[int, list[bytes]] = {}
        self.reveals: dict[int, list[bytes]] = {}
        parties = {i: w.agreement(i, context=CONTEXT) for i in (*w.roster.silos, *w.roster.nodes)}
        if not w.roster.nodes:
            self.commits = {i: [party.commit()] for i, party in parties.items()}
            shown = [frames[0] for frames in self.commits.values()]
            self.reveals = {i: [party.reveal(shown)] for i, party in parties.items()}
            for party in parties.values():
                party.learn_seed([frames[0] for frames in self.reveals.values()])
        sent = {i: party.contribute() for i, party in parties.items()}
        digests = sent_digests(sent, len(w.keys))
        self.sent = {i: [*frames.values()] for i, frames in sent.items()}
        self.confirmed = {}
        for i, party in parties.items():
            inbox = [frames[i] for frames in sent.values() if i in frames]
            confirm, checks = party.confirm(inbox, digests)
            self.confirmed[i] = [confirm, *checks.values()]


@cache
def honest(w: World) -> Heard:
    return Heard(w)


def faults(w: World, heard: Heard, context: bytes | None = CONTEXT) -> dict[int, str]:
    """Whom the check names, by whom the frames are from."""
    check = SetUpCheck(
        channel=w.channel(),
        roll=w.rolled()[1],
        neighbours_of=w.layout.neighbours,
    )
    found = check.faults(heard.commits, heard.reveals, heard.sent, heard.confirmed, context)
    return {index: error.culprit for index, error in found.items()}


def changed(
    w: World, phase: str, change: Callable[[list[bytes]], Any], whose: int = CHEAT
) -> Heard:
    heard = copy.deepcopy(honest(w))
    frames = getattr(heard, phase)
    frames[whose] = change(frames[whose])
    return heard


@WORLDS
def test_nobody_is_named_where_all_have_done_their_part(w: World) -> None:
    assert faults(w, honest(w)) == {}


@pytest.mark.parametrize(("w", "phase"), PHASES)
def test_whose_frame_was_altered_is_left_out_and_so_is_whose_is_missing(
    w: World, phase: str
) -> None:
    altered = changed(w, phase, lambda frames: [flipped(frames[0], -1), *frames[1:]])
    assert faults(w, altered) == {CHEAT: "relay"}
    assert faults(w, changed(w, phase, lambda frames: frames[1:])).keys() == {CHEAT}
    assert faults(w, changed(w, phase, lambda frames: [*frames, frames[0]])).keys() == {CHEAT}


def test_who_reveals_another_share_than_it_committed_to_has_lied() -> None:
    w = PAIRWISE
    heard = changed(w, "reveals", lambda _: [w.forge(CHEAT, Tag.REVEAL, bytes(32))])
    assert faults(w, heard) == {CHEAT: w.roster.name(CHEAT)}


def test_the_first_phase_in_which_something_is_wrong_hides_what_follows_from_it() -> None:
    heard = changed(PAIRWISE, "commits", lambda frames: [flipped(frames[0], -1)])
    heard.reveals[OTHER] = [flipped(heard.reveals[OTHER][0], -1)]
    assert faults(PAIRWISE, heard).keys() == {CHEAT}
    two = changed(PAIRWISE, "reveals", lambda frames: [flipped(frames[0], -1)])
    two.reveals[OTHER] = [flipped(two.reveals[OTHER][0], -1)]
    two.sent[1] = []
    assert faults(PAIRWISE, two).keys() == {CHEAT, OTHER}


@WORLDS
def test_a_contribution_twice_for_one_neighbour_is_one_too_few_for_another(w: World) -> None:
    heard = changed(w, "sent", lambda frames: [frames[0], frames[0], *frames[2:]])
    assert faults(w, heard) == {CHEAT: "relay"}


def test_p4_a_contribution_for_who_is_no_neighbour_is_found_though_it_is_signed() -> None:
    w, sent = SPARSE, honest(SPARSE).sent[CHEAT]
    stranger = min({*w.roster.silos} - {CHEAT, *map(receiver_of, sent)})
    forged = w.forge(CHEAT, Tag.CONTRIBUTION, bytes(SEALED_BYTES), receiver=stranger)
    assert faults(w, changed(w, "sent", lambda _: [forged, *sent[1:]])) == {CHEAT: "relay"}
    for_a_neighbour = w.forge(CHEAT, Tag.CONTRIBUTION, bytes(5), receiver=receiver_of(sent[0]))
    assert faults(w, changed(w, "sent", lambda _: [for_a_neighbour, *sent[1:]])) == {
        CHEAT: w.roster.name(CHEAT)
    }


@WORLDS
def test_who_signs_another_transcript_is_named_and_not_who_complains(w: World) -> None:
    heard = changed(
        w, "confirmed", lambda frames: [w.forge(CHEAT, Tag.CONFIRM, bytes(32)), *frames[1:]]
    )
    assert faults(w, heard) == {CHEAT: "relay"}


@WORLDS
def test_a_proof_of_another_party_in_the_place_of_its_own_is_found(w: World) -> None:
    theirs = honest(w).confirmed[OTHER][-1]
    heard = changed(w, "confirmed", lambda frames: [*frames[:-1], theirs])
    assert faults(w, heard).keys() == {CHEAT}


def test_transcripts_are_compared_only_where_what_comes_first_in_them_is_known() -> None:
    w = PAIRWISE
    assert faults(w, honest(w), None) == {}
    others = faults(w, honest(w), b"another offer")
    assert others == dict.fromkeys(w.roster.silos, "relay")
