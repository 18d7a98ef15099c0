"""Set-up: every way to cheat it ends in a refusal that names who can be named.

Where `relay` is blamed, it is the network: whoever carried the bytes. Nothing here reaches round 1.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from hubbub.core.protocol.agreement.key_agreement import Agreement
from hubbub.core.protocol.primitives.identity import Roster
from hubbub.core.protocol.primitives.wire import EVERYBODY, Tag, parse
from protocol.parties import (
    SESSION,
    STUDY,
    Relay,
    World,
    fixed_keys,
    flipped,
    refused,
    set_up,
    world,
)

PAIRWISE = world()
NODES = world(nodes=2)
BOTH = pytest.mark.parametrize("w", [PAIRWISE, NODES], ids=["pairwise", "nodes"])
VICTIM, CHEAT = 1, 2


def at(phase: str, change: Callable[[Any], Any], victims: tuple[int, ...] = (VICTIM,)) -> Relay:
    """A relay that changes what some parties receive in one phase."""
    return lambda now, who, frames: change(frames) if now == phase and who in victims else frames


def sender_of(w: World, data: bytes) -> int:
    return parse(data, w.roster, study=STUDY, session=SESSION).sender


def without(w: World, sender: int) -> Callable[[list[bytes]], list[bytes]]:
    return lambda frames: [data for data in frames if sender_of(w, data) != sender]


def instead(w: World, sender: int, frame: bytes) -> Callable[[list[bytes]], list[bytes]]:
    return lambda frames: [*without(w, sender)(frames), frame]


@BOTH
def test_honest_parties_share_what_they_should(w: World) -> None:
    sessions = set_up(w)
    assert len({session.transcript for session in sessions.values()}) == 1
    for index, session in sessions.items():
        assert set(session.secrets) == set(w.layout.neighbours(index, session.seed))
        for other, secret in session.secrets.items():
            assert secret == sessions[other].secrets[index]


@BOTH
def test_no_secret_is_ever_shared_with_the_aggregator(w: World) -> None:
    assert all(0 not in session.secrets for session in set_up(w).values())


# Missing, doubled, misplaced ----------------------------------------------------------------

PHASES = [
    (PAIRWISE, "commits", "COMMIT"),
    (PAIRWISE, "reveals", "REVEAL"),
    (PAIRWISE, "contributions", "CONTRIBUTION"),
    (PAIRWISE, "confirms", "CONFIRM"),
    (PAIRWISE, "checks", "KEY_CHECK"),
    (NODES, "contributions", "CONTRIBUTION"),
    (NODES, "confirms", "CONFIRM"),
    (NODES, "checks", "KEY_CHECK"),
]
EVERY_PHASE = pytest.mark.parametrize(
    ("w", "phase", "tag"), PHASES, ids=[f"{p}-{bool(w.layout.nodes)}" for w, p, _ in PHASES]
)


def peer(w: World) -> int:
    """Somebody with whom the victim shares a secret."""
    return 5 if w.layout.nodes else CHEAT


@EVERY_PHASE
def test_a_missing_message_names_who_is_waited_for(w: World, phase: str, tag: str) -> None:
    name = w.roster.name(peer(w))
    with refused(name, f"expected a {tag}, got none"):
        set_up(w, at(phase, without(w, peer(w))))


@EVERY_PHASE
def test_a_doubled_message_names_the_relay(w: World, phase: str, tag: str) -> None:
    with refused("relay", f"expected one {tag} of .*, got a second"):
        set_up(w, at(phase, lambda frames: [*frames, frames[-1]]))


@EVERY_PHASE
@pytest.mark.parametrize("to_me", [True, False], ids=["to-me", "to-everybody"])
def test_two_different_messages_in_one_phase_name_who_signed_both(
    w: World, phase: str, tag: str, to_me: bool
) -> None:
    receiver = VICTIM if to_me else EVERYBODY
    other = w.forge(peer(w), Tag[tag], bytes(32), receiver=receiver)
    name = w.roster.name(peer(w))
    with refused(name, f"expected one {tag} of {name}, got a second"):
        set_up(w, at(phase, lambda frames: [*frames, other]))


@EVERY_PHASE
def test_a_corrupted_message_is_refused(w: World, phase: str, tag: str) -> None:
    with refused("relay", "false signature"):
        set_up(w, at(phase, lambda frames: [flipped(frames[0], 80), *frames[1:]]))


@EVERY_PHASE
def test_a_message_of_another_phase_is_refused(w: World, phase: str, tag: str) -> None:
    wrong = w.forge(peer(w), Tag.MASKED)
    with refused("relay", f"expected a {tag}, got a MASKED"):
        set_up(w, at(phase, instead(w, peer(w), wrong)))


@EVERY_PHASE
@pytest.mark.parametrize("turn", [{"round": 1}, {"attempt": 1}], ids=["round", "attempt"])
def test_a_message_of_a_round_is_not_one_of_set_up(
    w: World, phase: str, tag: str, turn: dict[str, int]
) -> None:
    wrong = w.forge(peer(w), Tag[tag], bytes(32), **turn)
    with refused("relay", f"expected a {tag}, got a {tag}"):
        set_up(w, at(phase, instead(w, peer(w), wrong)))


@EVERY_PHASE
def test_a_message_for_another_party_is_refused(w: World, phase: str, tag: str) -> None:
    wrong = w.forge(peer(w), Tag[tag], bytes(32), receiver=3)
    with refused("relay", f"expected a {tag}, got one for another party"):
        set_up(w, at(phase, instead(w, peer(w), wrong)))


@EVERY_PHASE
def test_a_message_of_an_earlier_session_is_refused(w: World, phase: str, tag: str) -> None:
    old = w.forge(peer(w), Tag[tag], bytes(32), session=bytes(16))
    with refused("relay", f"expected a {tag} of this session"):
        set_up(w, at(phase, instead(w, peer(w), old)))


@EVERY_PHASE
def test_an_outsiders_message_is_refused(w: World, phase: str, tag: str) -> None:
    meddler = w.forge(0, Tag[tag], bytes(32))  # the aggregator has no part in set-up
    with refused("relay", f"expected a {tag}, got one from aggregator"):
        set_up(w, at(phase, lambda frames: [meddler, *frames]))


def test_a_confirmation_carried_to_who_did_not_wait_for_it_does_not_blame_its_signer() -> None:
    """Silos do not wait for each other with nodes, but their CONFIRM is for everybody."""
    true = NODES.forge(CHEAT, Tag.CONFIRM, bytes(32))
    with refused("relay", "expected a CONFIRM, got one from silo-2"):
        set_up(NODES, at("confirms", lambda frames: [true, *frames]))


def test_a_silos_own_confirmation_that_is_carried_back_is_the_relays_doing() -> None:
    """A silo looks at its own beside the others', where those that a process verified are known."""
    own: list[bytes] = []

    def carried(phase: str, receiver: int, frames: Any) -> Any:
        if phase == "confirms" and receiver != 2:
            own.extend(one for one in frames if sender_of(PAIRWISE, one) == 2)
        return [*frames, own[0]] if (phase, receiver) == ("confirms", 2) else frames

    with refused("relay", "expected one CONFIRM of silo-2, got a second"):
        set_up(PAIRWISE, carried)


@BOTH
def test_the_order_of_arrival_does_not_matter(w: World) -> None:
    def backwards(phase: str, receiver: int, frames: Any) -> Any:
        return frames if phase == "digests" else frames[::-1]

    sessions = set_up(w, backwards)
    assert len({session.transcript for session in sessions.values()}) == 1


def test_commits_repeated_in_the_place_of_reveals_are_refused() -> None:
    seen: dict[str, list[bytes]] = {}

    def relay(phase: str, receiver: int, frames: Any) -> Any:
        seen[phase] = frames
        return seen["commits"] if phase == "reveals" and receiver == VICTIM else frames

    with refused("relay", "expected a REVEAL, got a COMMIT"):
        set_up(PAIRWISE, relay)


# Replays under the same session -------------------------------------------------------------


def recorded(w: World) -> dict[tuple[str, int], Any]:
    """What every party received in one honest set-up."""
    tape: dict[tuple[str, int], Any] = {}

    def relay(phase: str, receiver: int, frames: Any) -> Any:
        return tape.setdefault((phase, receiver), frames)

    set_up(w, relay)
    return tape


@BOTH
def test_an_old_set_up_played_again_to_one_party_is_refused(w: World) -> None:
    """Even if the session's name was used before: what I sent this time is not in the old one."""
    tape = recorded(w)
    says = "my own commitment back" if w is PAIRWISE else "the digest of what I sent"
    with refused("relay", says):
        set_up(w, lambda phase, who, now: tape[phase, who] if who == VICTIM else now)


@pytest.mark.parametrize(
    ("phase", "culprit", "says"),
    [
        ("contributions", "silo-2", "proof of our common secret"),
        ("confirms", "relay", "shown different things"),
        ("checks", "silo-2", "proof of our common secret"),
    ],
)
def test_one_phase_of_an_old_set_up_is_refused(phase: str, culprit: str, says: str) -> None:
    tape = recorded(PAIRWISE)
    with refused(culprit, says):
        set_up(PAIRWISE, at(phase, lambda _: tape[phase, VICTIM]))


@BOTH
def test_the_same_session_set_up_twice_shares_no_secret_between_the_two(w: World) -> None:
    first, second = set_up(w), set_up(w)
    for index, session in first.items():
        assert session.transcript != second[index].transcript
        for other in set(session.secrets) & set(second[index].secrets):
            assert session.secrets[other]._value != second[index].secrets[other]._value


@pytest.mark.parametrize(
    ("phase", "tag"), [("commits", 1), ("reveals", 2), ("confirms", 4), ("checks", 5)]
)
@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_payload_of_the_wrong_length_names_its_signer(phase: str, tag: int, size: int) -> None:
    wrong = PAIRWISE.forge(CHEAT, Tag(tag), bytes(size))
    with refused("silo-2", f"of 32 bytes, got {size}"):
        set_up(PAIRWISE, at(phase, instead(PAIRWISE, CHEAT, wrong)))


# The joint seed -----------------------------------------------------------------------------


class Liar(Agreement):
    """A silo that reveals something else than it committed to."""

    def reveal(self, commits: Any) -> bytes:
        super().reveal(commits)
        return PAIRWISE.forge(CHEAT, Tag.REVEAL, bytes(32))


def cheat(kind: type[Agreement], w: World = PAIRWISE) -> Agreement:
    """Party 2, altered."""
    honest = w.agreement(CHEAT)
    liar = kind.__new__(kind)
    liar.__dict__.update(honest.__dict__)
    return liar


def test_a_reveal_that_was_not_committed_to_names_the_silo() -> None:
    with refused("silo-2", "expected the seed share that was committed to"):
        set_up(PAIRWISE, p2=cheat(Liar))


def test_my_own_commitment_must_come_back() -> None:
    forged = PAIRWISE.forge(VICTIM, Tag.COMMIT, bytes(32))  # as if my key had been stolen
    with refused("relay", "expected my own commitment back"):
        set_up(PAIRWISE, at("commits", instead(PAIRWISE, VICTIM, forged)))


def test_a_copied_commitment_does_not_open() -> None:
    """A silo that repeats another's commitment and share, to cancel or double it."""
    w, place = PAIRWISE, SESSION + (3).to_bytes(4, "little")
    share = bytes(32)
    copied = hashlib.sha256(b"hubbub commit v1" + place + share).digest()
    commit, reveal = w.forge(CHEAT, Tag.COMMIT, copied), w.forge(CHEAT, Tag.REVEAL, share)
    everybody = tuple(w.roster.silos)

    def relay(phase: str, receiver: int, frames: Any) -> Any:
        swapped = at("commits", instead(w, CHEAT, commit), everybody)(phase, receiver, frames)
        return at("reveals", instead(w, CHEAT, reveal), everybody)(phase, receiver, swapped)

    class Copier(Agreement):
        def reveal(self, commits: Any) -> bytes:
            return reveal

    with refused("silo-2", "expected the seed share that was committed to"):
        set_up(w, relay, p2=cheat(Copier))


def _second_face(w: World, share: bytes) -> tuple[bytes, bytes]:
    """A commitment of the cheat to another share, with its reveal."""
    place = SESSION + CHEAT.to_bytes(4, "little")
    commitment = hashlib.sha256(b"hubbub commit v1" + place + share).digest()
    return w.forge(CHEAT, Tag.COMMIT, commitment), w.forge(CHEAT, Tag.REVEAL, share)


def test_two_faced_commitments_are_caught_before_round_one() -> None:
    """Silo 2 commits to and reveals one share to silo 1, another to the rest."""
    w = PAIRWISE
    commit, reveal = _second_face(w, bytes(32))

    def relay(phase: str, receiver: int, frames: Any) -> Any:
        first = at("commits", instead(w, CHEAT, commit))(phase, receiver, frames)
        return at("reveals", instead(w, CHEAT, reveal))(phase, receiver, first)

    with refused("relay", "the parties were shown different things"):
        set_up(w, relay)


def test_a_reveal_shown_to_one_silo_only_names_the_silo_that_signed_it() -> None:
    _, reveal = _second_face(PAIRWISE, bytes(32))
    with refused("silo-2", "expected the seed share that was committed to"):
        set_up(PAIRWISE, at("reveals", instead(PAIRWISE, CHEAT, reveal)))


def test_no_coalition_that_leaves_one_silo_out_knows_the_seed_before_it_reveals() -> None:
    seeds = {set_up(PAIRWISE)[1].seed for _ in range(4)}
    assert len(seeds) == 4


# The order of the phases --------------------------------------------------------------------

PHASE_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "commit": (),
    "reveal": ([],),
    "learn_seed": ([],),
    "contribute": (),
    "confirm": ([], b""),
    "finish": ([], []),
}


def out_of_turn(party: Agreement, expected: str) -> None:
    """Every phase but the expected one is refused."""
    for name in set(PHASE_ARGUMENTS) - {expected}:
        with refused("", f"expected {expected} next in this set-up, got {name}"):
            getattr(Agreement, name)(party, *PHASE_ARGUMENTS[name])


def hasty(name: str) -> Callable[..., Any]:
    """A phase before which all others are tried."""

    def called(self: Agreement, *received: Any) -> Any:
        out_of_turn(self, name)
        return getattr(Agreement, name)(self, *received)

    return called


Hasty = type("Hasty", (Agreement,), {name: hasty(name) for name in PHASE_ARGUMENTS})


@BOTH
def test_no_phase_can_be_called_early_or_twice(w: World) -> None:
    party = cheat(Hasty, w)
    sessions = set_up(w, p2=party)
    assert sessions[CHEAT].transcript == sessions[VICTIM].transcript
    out_of_turn(party, "no further phase")


def test_without_the_joint_seed_no_mask_graph_is_drawn() -> None:
    party = PAIRWISE.agreement(VICTIM)
    party.commit()
    with refused("", "expected reveal next in this set-up, got contribute"):
        party.contribute()
    assert party.neighbours == ()


def test_a_phase_that_refuses_is_the_last() -> None:
    """Otherwise a refused seed would be followed by a graph without one."""
    parties = [PAIRWISE.agreement(index) for index in PAIRWISE.roster.silos]
    commits = [party.commit() for party in parties]
    reveals = [party.reveal(commits) for party in parties]
    with refused("silo-4", "expected a REVEAL, got none"):
        parties[0].learn_seed(reveals[:-1])
    out_of_turn(parties[0], "no further phase")
    assert parties[0].neighbours == ()


# Rosters ------------------------------------------------------------------------------------


def swapped(w: World, part: str) -> Roster:
    """The roster with one of silo 2's keys exchanged for an attacker's."""
    key = getattr(fixed_keys("attacker", "silo").identity, part)
    parties = list(w.roster.parties)
    parties[CHEAT] = dataclasses.replace(parties[CHEAT], **{part: key})
    return Roster(parties=tuple(parties))


@BOTH
def test_a_roster_with_a_swapped_signing_key_ends_in_false_signatures(w: World) -> None:
    victim = 5 if w.layout.nodes else VICTIM
    changed = w.agreement(victim, roster=swapped(w, "verifying"))
    with refused("relay", "signed by silo-2, got a false signature"):
        set_up(w, **{f"p{victim}": changed})


def test_a_swapped_sealing_key_gives_a_contribution_that_its_owner_cannot_open() -> None:
    changed = PAIRWISE.agreement(VICTIM, roster=swapped(PAIRWISE, "sealing"))
    with refused("silo-1", "expected a contribution sealed to me, got one that does not open"):
        set_up(PAIRWISE, p1=changed)


def test_different_rosters_are_caught_even_where_every_key_in_use_is_the_same() -> None:
    """In node mode silo 1 never uses silo 2's keys; the transcript still tells."""
    changed = NODES.agreement(VICTIM, roster=swapped(NODES, "sealing"))
    with refused("relay", "the parties were shown different things"):
        set_up(NODES, p1=changed)


def test_another_study_has_another_transcript_and_its_frames_are_refused() -> None:
    stranger = PAIRWISE.agreement(CHEAT, study=bytes(32))
    with refused("relay", "expected study"):
        set_up(PAIRWISE, p2=stranger)


# Contributions ------------------------------------------------------------------------------


def sealed(w: World, secret: bytes, receiver: int, context_receiver: int | None = None) -> bytes:
    """A contribution of the cheat, sealed to `receiver` in the context of perhaps another."""
    place = CHEAT.to_bytes(4, "little") + (context_receiver or receiver).to_bytes(4, "little")
    context = b"hubbub contribution v1" + STUDY + SESSION + place
    return w.roster.parties[receiver].seal(secret, context)


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (b"", "does not open"),
        (bytes(1168), "does not open"),
        (sealed(PAIRWISE, bytes(32), 3), "does not open"),
        (sealed(PAIRWISE, bytes(32), VICTIM, 3), "does not open"),
        (sealed(PAIRWISE, bytes(31), VICTIM), "expected 32 bytes, got 31"),
        (sealed(PAIRWISE, bytes(33), VICTIM), "expected 32 bytes, got 33"),
    ],
    ids=["empty", "zeros", "for-another", "other-context", "short", "long"],
)
def test_a_bad_contribution_names_its_signer(payload: bytes, says: str) -> None:
    wrong = PAIRWISE.forge(CHEAT, Tag.CONTRIBUTION, payload, receiver=VICTIM)
    with refused("silo-2", says):
        set_up(PAIRWISE, at("contributions", instead(PAIRWISE, CHEAT, wrong)))


def test_the_same_sealed_bytes_do_not_open_in_another_session() -> None:
    payload = sealed(PAIRWISE, bytes(32), VICTIM)
    later = PAIRWISE.agreement(VICTIM, session=b"another session!")
    frame = PAIRWISE.forge(CHEAT, Tag.CONTRIBUTION, payload, session=b"another session!")
    parsed = parse(frame, PAIRWISE.roster, study=STUDY, session=b"another session!")
    with refused("silo-2", "does not open"):
        later._open(parsed)


def test_a_second_contribution_from_the_same_silo_is_caught_by_the_key_check() -> None:
    """The cheat sends the victim another secret than it keeps: their masks would not cancel."""
    wrong = PAIRWISE.forge(
        CHEAT, Tag.CONTRIBUTION, sealed(PAIRWISE, bytes(32), VICTIM), receiver=VICTIM
    )
    with refused("silo-2", "expected proof of our common secret, got a wrong one"):
        set_up(PAIRWISE, at("contributions", instead(PAIRWISE, CHEAT, wrong)))


# Transcript ---------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("size", [0, 31, -32, 32])
def test_a_list_of_digests_of_the_wrong_length_is_refused(w: World, size: int) -> None:
    def change(digests: bytes) -> bytes:
        return digests[:size] if size < 32 else digests + bytes(32)

    with refused("relay", "expected the digest of what I sent in the list of all"):
        set_up(w, at("digests", change))


@BOTH
def test_my_own_digest_must_be_in_the_list(w: World) -> None:
    with refused("relay", "expected the digest of what I sent"):
        set_up(w, at("digests", lambda digests: flipped(digests, 32 * VICTIM)))


@BOTH
@pytest.mark.parametrize("slot", [0, 3])
def test_different_lists_of_digests_are_caught(w: World, slot: int) -> None:
    says = "the parties were shown different things" if slot else "no digest for aggregator"
    with refused("relay", says):
        set_up(w, at("digests", lambda digests: flipped(digests, 32 * slot)))


def test_nobody_can_confirm_what_it_has_not_seen() -> None:
    wrong = PAIRWISE.forge(CHEAT, Tag.CONFIRM, bytes(32))
    with refused("relay", "expected silo-2 to have seen the transcript"):
        set_up(PAIRWISE, at("confirms", instead(PAIRWISE, CHEAT, wrong)))


@BOTH
def test_a_wrong_key_check_names_its_signer(w: World) -> None:
    wrong = w.forge(peer(w), Tag.KEY_CHECK, bytes(32))
    with refused(w.roster.name(peer(w)), "expected proof of our common secret"):
        set_up(w, at("checks", instead(w, peer(w), wrong)))


def test_my_own_key_check_proves_nothing_when_it_is_sent_back() -> None:
    """A reflection: the check holds the sender's index."""
    w = PAIRWISE
    seen: dict[int, bytes] = {}

    def relay(phase: str, receiver: int, frames: Any) -> Any:
        if phase != "checks":
            return frames
        for data in frames:
            frame = parse(data, w.roster, study=STUDY, session=SESSION)
            seen[frame.sender] = bytes(frame.payload)
        if receiver != CHEAT:
            return frames
        mine = w.forge(VICTIM, Tag.KEY_CHECK, seen[CHEAT], receiver=CHEAT)
        return instead(w, VICTIM, mine)(frames)

    with refused("silo-1", "expected proof of our common secret"):
        set_up(w, relay)
