"""Full shares: what a silo or a node spoils costs its own place in the attempt, and no more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hubbub.core.errors import HubbubError
from hubbub.core.protocol.primitives.wire import Frame, Tag, unverified
from hubbub.core.protocol.round.additive_shares import Sharing
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.session.ask import AbsentError, Call
from hubbub.core.session.in_process import federate
from hubbub.core.session.offer import Layout
from hubbub.site.network.envelope import read_answer
from network.relay import Relay, Session, Watched, at, flipped, on_parts, opened, refusal

FULL: dict[str, Any] = {
    "names": ("ann", "bob", "cyn", "dan"),
    "parties": {"colluders": 0, "dropouts": 1, "shares": "full"},
}
Seal = Callable[[Frame], bytes]


def later(share: Frame, seal: Seal) -> bytes:
    """A SHARE for an attempt that is still to come."""
    return seal(replace(share, round=share.round + 1))


def longer(share: Frame, seal: Seal) -> bytes:
    return seal(replace(share, payload=bytes(share.payload) + b"\0"))


def garbage(share: Frame, seal: Seal) -> bytes:
    """Of the right length, for the right attempt, and truly signed: only the node can tell."""
    return seal(replace(share, payload=bytes(len(share.payload))))


def unsigned(share: Frame, seal: Seal) -> bytes:
    return flipped(seal(replace(share, payload=bytes(share.payload))), -1)


SPOILT = {
    later: "still to come",
    longer: "expected a SHARE of",
    garbage: "signed word of node-1 and node-2",
    unsigned: "a false signature",
}
every_spoilt = pytest.mark.parametrize("spoil", SPOILT, ids=lambda spoil: spoil.__name__)


# In one process ----------------------------------------------------------------------------------


class Given:
    """A silo whose sum is a power of ten everywhere."""

    count = capacity = 1

    def __init__(self, power: int) -> None:
        self._number = 10.0**power

    def clipped_sum(self, parameters: Any, chosen: Any) -> np.ndarray:
        return np.full(5, self._number)


@every_spoilt
def test_a_bad_share_costs_one_attempt_and_one_charge_in_one_process(
    spoil: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, charges = Sharing.shares, Counter[int]()

    def shares(self: Sharing) -> dict[int, bytes]:
        frames = made(self)
        if self._session.index == 2:
            seal = lambda frame: frame.sealed(self._keys)  # noqa: E731
            frames = {n: spoil(unverified(one), seal) for n, one in frames.items()}
        return frames

    monkeypatch.setattr(Sharing, "shares", shares)
    round_parameters = RoundParameters(
        dimension=5,
        parameters=1,
        silos=4,
        quorum=3,
        steps=5,
        word_bits=32,
        grid_step=1.0,
        sigma_grid=0.0,
        sample_rate=1.0,
        nodes=2,
        full_shares=True,
    )
    layout = Layout(names=FULL["names"], nodes=2)
    found = federate(
        layout,
        round_parameters,
        [Given(power) for power in range(4)],
        study=bytes(32),
        record=lambda index, *_: charges.update([index]),
    )
    total, attempts = found.rounds.round(1, np.zeros(1, dtype=np.float32), 3)
    assert total is not None
    assert total.tolist() == [1101] * 5
    assert attempts == 1
    assert charges == dict.fromkeys((1, 2, 3, 4), 1)
    assert found.rounds.attendance.named_absent.keys() == {"bob"}
    assert SPOILT[spoil] in found.rounds.attendance.named_absent["bob"].said


# Among machines ----------------------------------------------------------------------------------


def spoiling(
    parties: Watched, spoil: Any, who: str = "bob", nodes: tuple[int, ...] = (5, 6)
) -> Any:
    """A relay, or rather the silo itself, that spoils what goes to some nodes."""

    def seal(frame: Frame) -> bytes:
        return frame.sealed(parties.sites[who].keys)

    def change(parts: list[bytes]) -> list[bytes]:
        frames = [unverified(one) for one in parts]
        return [
            spoil(frame, seal) if frame.tag is Tag.SHARE and frame.receiver in nodes else part
            for frame, part in zip(frames, parts, strict=True)
        ]

    return Relay(parties.phase, tells=at("model", on_parts(change), who))


def charged_once(parties: Watched, session: Session) -> None:
    """Every silo has paid for one attempt of one session."""
    rows = {name: parties.rows(name) for name in FULL["names"]}
    assert rows == {name: [(session.rounds.session, 1, 0)] for name in FULL["names"]}


@pytest.mark.slow
@every_spoilt
@pytest.mark.parametrize("nodes", [(5, 6), (6,)], ids=["both", "one"])
def test_a_bad_share_costs_one_attempt_and_one_charge_of_each(
    gather: Any, spoil: Any, nodes: tuple[int, ...]
) -> None:
    parties = gather(2, **FULL)
    session = opened(parties, spoiling(parties, spoil, nodes=nodes))
    total, attempts = session.round(1, attempts=3)
    assert total is not None
    assert attempts == 1
    charged_once(parties, session)
    assert session.rounds.attendance.named_absent.keys() == {"bob"}
    said = SPOILT[spoil].replace(
        "node-1 and node-2", "node-2" if nodes == (6,) else "node-1 and node-2"
    )
    assert said in session.rounds.attendance.named_absent["bob"].said
    assert any("bob" in line and said[:12] in line for line in parties.said)


@pytest.mark.slow
@pytest.mark.parametrize("spoil", [later, longer], ids=lambda spoil: spoil.__name__)
def test_what_a_silo_has_signed_is_its_fault(gather: Any, spoil: Any) -> None:
    parties = gather(2, **FULL)
    session = opened(parties, spoiling(parties, spoil))
    session.round(1)
    assert session.rounds.attendance.named_absent["bob"].culprit == "bob"


@pytest.mark.slow
def test_a_silo_that_was_left_out_for_its_share_comes_back(gather: Any) -> None:
    parties = gather(2, **FULL)
    relay = spoiling(parties, garbage)
    session = opened(parties, relay)
    session.round(1)
    relay.tells = lambda _name, _party, blob: blob
    total, attempts = session.round(2)
    assert (total is not None, attempts, session.rounds.attendance.absent) == (True, 1, {})


# A node that lies --------------------------------------------------------------------------------


def lying(parties: Watched, silos: tuple[int, ...], node: str = "node-1") -> Relay:
    """A node that says of good shares that they do not open."""

    def change(parts: list[bytes]) -> list[bytes]:
        held = unverified(parts[0])
        bits = sum(0x80 >> (silo - 1) for silo in silos)
        payload = bytes([bits]) + bytes(held.payload)[1:]
        return [replace(held, payload=payload).sealed(parties.sites[node].keys)]

    return Relay(parties.phase, tells=at("shares", on_parts(change), node))


@pytest.mark.slow
def test_a_node_that_lies_about_a_silo_is_named_with_it(gather: Any) -> None:
    """The round goes on without the silo, as if the aggregator had left it out."""
    parties = gather(2, **FULL)
    session = opened(parties, lying(parties, (2,)))
    total, attempts = session.round(1)
    assert (total is not None, attempts) == (True, 1)
    charged_once(parties, session)
    absent = session.rounds.attendance.named_absent
    assert absent.keys() == {"bob"}
    assert absent["bob"].culprit == "bob and node-1"
    assert "signed word of node-1: one of them lies" in absent["bob"].said


def test_p3_a_node_that_lies_about_many_gets_no_sum_of_fewer_than_the_quorum(gather: Any) -> None:
    parties = gather(2, **FULL)
    relay = lying(parties, (2, 3))
    session = opened(parties, relay)
    with pytest.raises(AbsentError, match=r"bob: .*node-1.*; cyn: .*node-1"):
        session.rounds.round(1, session.initial, 3)
    assert relay.asked("total", "node-2") == []
    charged_once(parties, session)


@pytest.mark.slow
def test_p3_a_node_is_asked_for_the_silos_whose_shares_all_nodes_have(gather: Any) -> None:
    parties = gather(2, **FULL)
    relay = lying(parties, (4,))
    session = opened(parties, relay)
    session.round(1)
    requests = [
        unverified(read_answer(b"hub!\4" + relay.asked("promise", n)[0][22:])[0])
        for n in ("node-1", "node-2")
    ]
    assert {bytes(one.payload)[0] for one in requests} == {0b1110_0000}


@pytest.mark.slow
def test_a_node_that_names_a_silo_of_which_it_has_no_share_is_named_alone(gather: Any) -> None:
    parties = gather(2, **FULL)
    relay = lying(parties, (2,))
    spoilt = spoiling(parties, longer)
    relay.tells, held = (lambda *a: spoilt.tells(*a) if a[0] == "model" else held(*a)), relay.tells
    session = opened(parties, relay)
    with pytest.raises(HubbubError, match="silos that use the node") as found:
        session.round(1)
    assert getattr(found.value, "culprit", "") == "node-1"


@pytest.mark.slow
@pytest.mark.parametrize("silos", [(1, 2, 3, 4), (1, 2, 3)], ids=["all", "fewer"])
@pytest.mark.parametrize("made_up", [False, True], ids=["one MODEL", "made-up MODEL"])
def test_a_node_signs_one_word_about_the_shares_of_an_attempt(
    gather: Any, silos: tuple[int, ...], made_up: bool
) -> None:
    """The aggregator asks again, under a digest or a set of its own making."""
    parties, why = gather(2, **FULL), []
    relay = Relay(parties.phase)

    def again(blob: Any) -> Any:
        model = session.rounds.aggregator.attempt.model
        payload = session.round_parameters.named_payload(silos, bytes(32) if made_up else model)
        where = {"session": session.rounds.session, "round": 1, "receiver": 5}
        asked = parties.sealed("aggregator", Tag.ARRIVED, payload, **where)
        name = session.rounds.session
        why.append(refusal(parties.ask("node-1", Call.SHARES, name, [asked])))
        return blob

    relay.tells = at("shares", again, "node-1")
    session = opened(parties, relay)
    session.round(1)  # and what was refused has changed nothing
    same = silos == (1, 2, 3, 4) and not made_up  # the very frame that it has answered
    assert why == [("protocol", "relay" if same else "aggregator")]


@pytest.mark.slow
def test_a_node_that_says_nothing_of_its_shares_makes_no_sum(gather: Any) -> None:
    parties = gather(2, **FULL)
    session = opened(parties, Relay(parties.phase, tells=at("shares", lambda _: None, "node-1")))
    with pytest.raises(AbsentError, match="node-1"):
        session.rounds.round(1, session.initial, 3)
    charged_once(parties, session)


@pytest.mark.slow
def test_a_relay_that_spoils_a_share_on_its_way_to_a_node_blames_nobody(gather: Any) -> None:
    parties = gather(2, **FULL)
    session = opened(parties, Relay(parties.phase, asks=at("shares", flipped, "node-1")))
    with pytest.raises(AbsentError, match="node-1: relay: expected a refusal"):
        session.rounds.round(1, session.initial, 3)
