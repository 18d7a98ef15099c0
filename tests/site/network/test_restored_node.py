"""A compute node's machine that was set back, through the real endpoints: no second total (P3)."""

from __future__ import annotations

import copy
import shutil
from typing import Any

import pytest

from hubbub.core.errors import HubbubError
from hubbub.core.protocol.primitives.wire import Tag, unverified
from hubbub.core.session.ask import Call
from hubbub.site.network.endpoint import SessionState
from hubbub.site.network.envelope import read_answer
from network.relay import Relay, Session, Watched, at, opened, refusal
from network.test_failures import ONE_AWAY

NODES = ("node-1", "node-2")
KINDS = pytest.mark.parametrize("shares", ["compressed", "full"])


def image_of(state: SessionState) -> Any:
    """What an image of a node's machine holds of a session."""
    party = state.party
    kept = [party._me, party.agreed, party._permit, *vars(party._me).values()]
    return copy.deepcopy(party, {id(one): one for one in kept})


def state_of(parties: Watched, name: str, session: bytes) -> SessionState:
    return next(one for one in parties.seats[name]._sessions.values() if one.session == session)


def asking(
    parties: Watched, session: Session, node: str, silos: tuple[int, ...], model: bytes
) -> bytes:
    """A REQUEST as a malicious aggregator signs it."""
    index = parties.sites[node].index
    where = {"session": session.rounds.session, "round": 1, "receiver": index}
    payload = session.round_parameters.named_payload(silos, model)
    return parties.sealed("aggregator", Tag.REQUEST, payload, **where)


@pytest.mark.slow_cases("compressed")
@KINDS
def test_p3_a_node_that_is_set_back_after_a_round_tells_no_other_total_of_it(
    gather: Any, shares: str
) -> None:
    parties = gather(2, parties={**ONE_AWAY["parties"], "shares": shares})
    images: list[Any] = []

    def taken(blob: Any) -> Any:
        """The image is made when the silos have answered, and the node has its full shares."""
        images.append(image_of(state_of(parties, "node-1", session.rounds.session)))
        return blob

    relay = Relay(parties.phase, asks=at("promise", taken, "node-1"))
    session = opened(parties, relay)
    session.round(1)
    name = session.rounds.session
    told = unverified(relay_parts(relay, "promise", "node-1")[0])
    model = bytes(told.payload)[-32:]
    state_of(parties, "node-1", name).party = images[0]
    own = parties.ask(
        "node-1", Call.PROMISE, name, [asking(parties, session, "node-1", (1, 2), model)]
    )
    assert unverified(own[0]).tag is Tag.PROMISE, "it has forgotten the first"
    other = parties.ask(
        "node-2", Call.PROMISE, name, [asking(parties, session, "node-2", (1, 2), model)]
    )
    assert refusal(other) == ("protocol", "aggregator")
    before = relay_parts(relay, "promise", "node-2")
    for shown in (own, [*own, *before], [*own, *own], before, []):
        assert refusal(parties.ask("node-1", Call.TOTAL, name, shown))[0] == "protocol"
    assert parties.broken == ["node-1: two different answers for one place"]  # its two promises
    parties.broken.clear()


def relay_parts(relay: Relay, call: str, node: str) -> list[bytes]:
    return read_answer(relay.told(call, node)[0])


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["promise", "total"])
def test_a_node_that_does_not_promise_or_tell_makes_no_sum(gather: Any, phase: str) -> None:
    parties = gather(2, **ONE_AWAY)
    session = opened(parties, Relay(parties.phase, tells=at(phase, lambda _: None, "node-2")))
    with pytest.raises(HubbubError, match="node-2"):
        session.rounds.round(1, session.initial, 2)


@pytest.mark.slow
def test_p3_a_node_set_back_to_before_the_session_cannot_join_it_again(
    gather: Any, tmp_path: Any
) -> None:
    """Its folder is the old one, too: it has no note of the session, and opens it once more."""
    parties = gather(2, **ONE_AWAY)
    folder = parties.sites["node-1"].home
    image = tmp_path / "image"
    shutil.copytree(folder, image)
    relay = Relay(parties.phase)
    session = opened(parties, relay)
    session.round(1)
    parties.stop("node-1")
    shutil.rmtree(folder)
    shutil.copytree(image, folder)
    parties.start("node-1")
    for call in ("open", "contribute", "confirm", "finish"):
        said = parties.answers("node-1")(relay.asked(call, "node-1")[0])
    assert refusal(read_answer(said))[0] == "protocol"
