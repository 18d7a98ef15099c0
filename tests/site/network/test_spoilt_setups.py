"""One silo that lies in every set-up: the run goes on without it, and nobody else is blamed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.agreement.key_agreement import Roll
from hubbub.core.protocol.agreement.set_up_check import SetUpCheck
from hubbub.core.protocol.primitives.wire import Channel, Frame, Tag, unverified
from hubbub.core.session.ask import Call
from hubbub.site.network.envelope import Refusal, answer, read_answer, read_request
from hubbub.site.network.waiting import WaitedError
from network.relay import Relay, Watched, at, at_once, flipped, on_asked
from network.test_late_silos import FIVE, rolls, wrongs

LIAR, INDEX = "cyn", 3
ONE = {"dropouts": 1, "colluders": 1}
JOINT = {"projection": 3, "projection_kind": "layers"}
Frames = list[bytes]
Lie = Callable[[Watched, Frames], Frames]


def signed(parties: Watched, frame: bytes, **changes: Any) -> bytes:
    """The same frame with other words, truly signed by the liar."""
    true = unverified(frame)
    return replace(Frame(**{n: getattr(true, n) for n in FIELDS}), **changes).sealed(
        parties.sites[LIAR].keys
    )


FIELDS = ("tag", "study", "session", "round", "attempt", "sender", "receiver", "payload")


def other_words(parties: Watched, frames: Frames) -> Frames:
    payload = bytes(unverified(frames[0]).payload)
    return [signed(parties, frames[0], payload=flipped(payload)), *frames[1:]]


def false_signature(_parties: Watched, frames: Frames) -> Frames:
    return [*frames[:-1], flipped(frames[-1])]


def one_byte_less(parties: Watched, frames: Frames) -> Frames:
    payload = bytes(unverified(frames[0]).payload)[:-1]
    return [signed(parties, frames[0], payload=payload), *frames[1:]]


def twice_for_one(parties: Watched, frames: Frames) -> Frames:
    """For one party none, for another two, so that the first seems to have sent one too many."""
    return [signed(parties, frames[0], receiver=unverified(frames[1]).receiver), *frames[1:]]


def for_one_alone(parties: Watched, frames: Frames) -> Frames:
    return [signed(parties, frames[0], receiver=1), *frames[1:]]


LIES: Mapping[str, tuple[int, str, Lie, str]] = {
    "a commitment without a signature": (0, "commit", false_signature, "relay"),
    "a short commitment": (0, "commit", one_byte_less, LIAR),
    "a commitment for one party": (0, "commit", for_one_alone, "relay"),
    "another share": (0, "reveal", other_words, LIAR),
    "a share without a signature": (0, "reveal", false_signature, "relay"),
    "a secret without a signature": (0, "contribute", false_signature, "relay"),
    "a short secret": (0, "contribute", one_byte_less, LIAR),
    "two secrets for one": (0, "contribute", twice_for_one, "relay"),
    "another transcript": (0, "confirm", other_words, "relay"),
    "a confirmation without a signature": (
        0, "confirm", lambda p, f: [flipped(f[0]), *f[1:]], "relay"
    ),
    "a proof without a signature": (0, "confirm", false_signature, "relay"),
    "nodes, a secret without a signature": (2, "contribute", false_signature, "relay"),
    "nodes, another transcript": (2, "confirm", other_words, "relay"),
}  # fmt: skip


def lying(parties: Watched, call: str, lie: Lie) -> Relay:
    """Everybody, of whom one lies."""

    def tells(name: str, party: str, blob: Any) -> Any:
        if (name, party) != (call, LIAR) or not isinstance(blob, bytes):
            return blob
        return answer(lie(parties, read_answer(blob)))

    return Relay(parties.phase, tells=tells)


def blamed(parties: Watched) -> set[str]:
    """Who was ever waited for."""
    told = [line for line in parties.said if "waiting for" in line]
    return {name for name in FIVE for line in told if f"{name} (" in line}


@pytest.mark.slow
@pytest.mark.parametrize("what", LIES)
def test_a_run_goes_on_without_who_spoils_every_set_up(gather: Any, what: str) -> None:
    nodes, call, lie, _ = LIES[what]
    parties = gather(nodes, names=FIVE, parties=ONE)
    relay = lying(parties, call, lie)
    assert parties.serve(relay, timeouts=at_once()).final["step"] == 4
    assert rolls(parties) == [set(FIVE) - {LIAR}]
    assert len(relay.told(call, "ann")) == 2  # one set-up was lost
    assert blamed(parties) == {LIAR}
    assert wrongs(parties) == []


@pytest.mark.slow
@pytest.mark.parametrize("what", LIES)
def test_where_it_cannot_be_spared_the_run_ends_with_its_name(gather: Any, what: str) -> None:
    nodes, call, lie, culprit = LIES[what]
    parties = gather(nodes, names=FIVE, parties={**ONE, "dropouts": 0})
    with pytest.raises(ProtocolError, match=f"{LIAR}: ") as refused:
        parties.serve(lying(parties, call, lie), timeouts=at_once())
    assert refused.value.culprit == culprit
    assert blamed(parties) <= {LIAR}


@pytest.mark.slow
def test_an_anchor_without_a_signature_costs_no_set_up(gather: Any) -> None:
    parties = gather(2, names=FIVE, parties=ONE, training={"steps": 4, **JOINT})
    relay = lying(parties, "open", false_signature)
    assert parties.serve(relay, timeouts=at_once()).final["step"] == 4
    assert all(silos == set(FIVE) - {LIAR} for silos in rolls(parties))
    assert len(relay.told("contribute", "ann")) == len(rolls(parties))


def spoilt_for(receiver: int, tag: Tag) -> Lie:
    """One party is told what only it can see to be wrong."""

    def lie(parties: Watched, frames: Frames) -> Frames:
        told = [unverified(one) for one in frames]
        return [
            signed(parties, frame, payload=flipped(bytes(one.payload)))
            if (one.tag, one.receiver) == (tag, receiver)
            else frame
            for one, frame in zip(told, frames, strict=True)
        ]

    return lie


@pytest.mark.slow
@pytest.mark.parametrize("victim", [1, 5])
@pytest.mark.parametrize(
    ("call", "tag"), [("contribute", Tag.CONTRIBUTION), ("confirm", Tag.KEY_CHECK)]
)
def test_who_spoils_what_one_other_sees_does_not_end_the_run(
    gather: Any, call: str, tag: Tag, victim: int
) -> None:
    """One of the two has lied, and nobody knows which: one is left out, then the other."""
    parties = gather(names=FIVE, parties=ONE)
    relay = lying(parties, call, spoilt_for(victim, tag))
    assert parties.serve(relay, timeouts=at_once()).final["step"] == 4
    assert blamed(parties) <= {FIVE[victim - 1], LIAR}
    assert wrongs(parties) == []


@pytest.mark.slow
def test_whom_all_complain_of_is_left_out_alone(gather: Any) -> None:
    """Each sees a proof of its own fail; more complain than can lie."""
    parties = gather(names=FIVE, parties=ONE)

    def all_wrong(parties: Watched, frames: Frames) -> Frames:
        for receiver in (1, 2, 4, 5):
            frames = spoilt_for(receiver, Tag.KEY_CHECK)(parties, frames)
        return frames

    parties.serve(lying(parties, "confirm", all_wrong), timeouts=at_once())
    assert rolls(parties) == [set(FIVE) - {LIAR}]


@pytest.mark.slow
@pytest.mark.parametrize("call", ["commit", "reveal", "contribute", "confirm", "finish"])
@pytest.mark.parametrize("whom", ["ann", "eve", "relay"])
def test_who_complains_of_others_every_time_does_not_end_the_run(
    gather: Any, call: str, whom: str
) -> None:
    parties = gather(names=FIVE, parties=ONE)
    relay = Relay(parties.phase)

    def tells(name: str, party: str, blob: Any) -> Any:
        if (name, party) != (call, LIAR) or not isinstance(blob, bytes):
            return blob
        refusal = Refusal(why="protocol", said="it was another", culprit=whom)
        return parties.seats[LIAR]._refusal(relay.asked(call, LIAR)[-1], refusal)

    relay.tells = tells
    assert parties.serve(relay, timeouts=at_once()).final["step"] == 4
    assert wrongs(parties) == []


@pytest.mark.slow
def test_two_who_take_turns_do_not_end_a_run_that_both_can_be_spared_in(gather: Any) -> None:
    """Each complains of another honest one while the first sits out."""
    six = (*FIVE, "fay")
    parties = gather(names=six, parties={"dropouts": 2, "colluders": 2})
    relay, tried = Relay(parties.phase), [0]

    def tells(name: str, party: str, blob: Any) -> Any:
        if name != "commit":
            return blob
        tried[0] += party == "fay"
        liars = {"ann": "cyn", "bob": "dan"}
        asked = read_request(relay.tape[-1][2])[1]
        both = {
            one[1] for one in relay.tape if one[0] == "commit" and asked == read_request(one[2])[1]
        }
        if party not in liars or (party == "bob" and "ann" in both):
            return blob
        refusal = Refusal(why="protocol", said="it was another", culprit=liars[party])
        return parties.seats[party]._refusal(relay.tape[-1][2], refusal)

    relay.tells = tells
    assert parties.serve(relay, timeouts=at_once()).final["step"] == 4
    assert rolls(parties)[0] == set(six) - {"ann", "bob"}


# Who carries ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [0, 2])
def test_who_is_shown_other_digests_is_left_out_and_not_blamed(gather: Any, nodes: int) -> None:
    """It has signed what it saw. Nobody can tell it from a liar, and nobody does."""
    parties = gather(nodes, names=FIVE, parties=ONE)

    def other(parts: list[bytes]) -> list[bytes]:
        return [flipped(parts[0], -1), *parts[1:]]  # the last party's, as this one is told it

    relay = Relay(parties.phase, asks=at("confirm", on_asked(other), "ann"))
    assert parties.serve(relay, timeouts=at_once()).final["step"] == 4
    assert rolls(parties) == [set(FIVE) - {"ann"}]
    assert blamed(parties) == {"ann"}
    assert any("it, or whoever carries its messages" in line for line in parties.said)


@pytest.mark.slow
def test_all_but_one_are_shown_other_digests_and_that_one_is_not_blamed(gather: Any) -> None:
    """Few are not wrong for being few: the aggregator knows what it has sent."""
    parties = gather(names=FIVE, parties=ONE)

    def other(parts: list[bytes]) -> list[bytes]:
        changed = bytearray(parts[0])
        changed[INDEX * 32] ^= 1
        return [bytes(changed), *parts[1:]]

    others = set(FIVE) - {LIAR}
    relay = Relay(parties.phase, asks=at("confirm", on_asked(other), *others))
    with pytest.raises((ProtocolError, WaitedError)) as refused:
        parties.serve(relay, timeouts=at_once())
    assert getattr(refused.value, "culprit", "relay") == "relay"
    assert blamed(parties) == others


@pytest.mark.slow
def test_a_second_commitment_that_a_relay_shows_to_one_silo_blames_none_but_way_and_signer(
    gather: Any,
) -> None:
    """The liar signs two, and its relay hands the second to one honest silo: that one signs another
    transcript than the rest, and is left out, as who can be kept from others always can."""
    parties = gather(names=FIVE, parties=ONE)

    def asks(name: str, party: str, blob: bytes) -> bytes:
        if (name, party) != ("reveal", "ann"):
            return blob
        return on_asked(
            lambda parts: [
                other_words(parties, [one])[0] if unverified(one).sender == INDEX else one
                for one in parts
            ]
        )(blob)

    relay = Relay(parties.phase, asks=asks)
    parties.serve(relay, timeouts=at_once())
    assert wrongs(parties) == []
    assert not any(line.startswith("ann:") for line in parties.said)


# The check itself -------------------------------------------------------------------------------


@pytest.mark.slow
def test_nothing_is_wrong_in_an_honest_set_up(gather: Any) -> None:
    parties = gather(names=FIVE, parties=ONE)
    relay = Relay(parties.phase)
    parties.serve(relay, timeouts=at_once())
    heard = {
        call: {
            index: read_answer(relay.told(call.name.lower(), name)[0])
            for index, name in enumerate(FIVE, start=1)
        }
        for call in (Call.COMMIT, Call.REVEAL, Call.CONTRIBUTE)
    }
    first = unverified(heard[Call.COMMIT][1][0])
    check = SetUpCheck(
        channel=Channel(roster=parties.aggregator.roster, study=first.study, session=first.session),
        roll=Roll(silos=frozenset(range(1, 6)), digest=bytes(32)),
        neighbours_of=lambda index, _: [one for one in range(1, 6) if one != index],
    )
    assert check.faults(*heard.values(), {}, None) == {}
