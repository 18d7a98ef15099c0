"""Nobody has anybody keep more than the plan says that a message may have.

That nothing larger than its limit is ever sent hangs on all other tests: `Requests` counts a larger
answer as none, and `Watched` holds every request of an aggregator against its call's.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.primitives.wire import EVERYBODY
from hubbub.core.session.ask import Call
from hubbub.core.session.token_lists import TokenListBatches
from hubbub.site.network.envelope import OFFER_LIMIT, Refusal, SizeLimits, request, word_limit
from hubbub.site.network.event_log import EventLog
from hubbub.site.network.join import Machine, _Joined, relay_of
from hubbub.site.network.nats.carrier import Answering
from hubbub.site.network.nats.message_delivery import LARGEST_PACKET
from hubbub.site.network.nats.transports import limit
from hubbub.site.network.party_folder import PartyFolder
from hubbub.site.network.requests import Requests
from hubbub.site.network.waiting import Timeouts, WaitedError
from network.lines import Party, asked, come, missing, relayed, wait
from network.relay import HASTY, opened, terms_for
from network.test_over_nats import Everybody
from protocol.parties import world

pytest.importorskip("nats", reason="needs the extra net")
LARGE = 1 << 23


@pytest.mark.parametrize("nodes", [0, 2], ids=["pairwise", "nodes"])
def test_each_kind_of_call_has_a_largest_answer_from_the_plan(gather: Any, nodes: int) -> None:
    parties = gather(nodes)
    plan, round_parameters = terms_for(parties)
    limits = SizeLimits(
        roster=parties.aggregator.roster,
        round_parameters=round_parameters,
        joint=TokenListBatches(counts=(5, 5, 5), attempts_per_list=1, epoch=1),
    )
    words = word_limit(len(limits.roster.parties))
    for call in Call:
        assert words <= limits.answer(call) < 1 << 21
        assert 0 < limits.request(call) <= OFFER_LIMIT
    assert limits.answer(Call.PING) == words < 8192
    assert (
        round_parameters.masked_bytes
        < limits.answer(Call.MODEL)
        < words + round_parameters.masked_bytes + 1024
    )
    wide = replace(
        limits, round_parameters=replace(round_parameters, dimension=10**6, parameters=10**6)
    )
    more = wide.answer(Call.MODEL) - limits.answer(Call.MODEL)
    assert more == wide.round_parameters.masked_bytes - round_parameters.masked_bytes
    assert wide.answer(Call.PING) == words
    assert plan.dimension == round_parameters.dimension


def test_no_answer_larger_than_its_calls_is_read_whatever_carries_it(gather: Any) -> None:
    parties = gather()

    def phase(name: str, requests: Any, deadline: float) -> Any:
        for party, found in parties.phase(name, requests, deadline):
            yield party, found + bytes(LARGE) if (name, party) == ("ping", "ann") else found

    with pytest.raises(
        WaitedError, match=r"ann: .*expected an answer of 4,\d+ bytes at most, got 8,"
    ):
        opened(parties, phase, replace(HASTY, waiting=0.0))


@pytest.mark.slow
def test_a_session_whose_messages_are_as_large_as_they_may_be_goes_on(gather: Any) -> None:
    parties = gather(2, parties={"shares": "full"})
    session = opened(parties)
    assert session.round(1)[1] == 1
    limits = parties.seats["ann"]._sessions[parties.study.id, "training"].limits
    assert limits.request(Call.SHARES) > limits.round_parameters.masked_bytes * 3


@pytest.mark.slow
def test_nothing_is_kept_of_an_answer_that_is_too_large(tmp_path: Path) -> None:
    with relayed(tmp_path) as here:
        parties = [here.party("ann", lambda _: bytes(LARGE)), here.party("bob")]
        carrier, _ = here.carrier()
        most = {"small": 4096, "large": LARGE}.__getitem__
        with carrier:
            come(carrier, "ann", "bob")
            found, said = dict[str, Any](), "its answer has 8,388,608 bytes, expected 4,096 at most"

            def is_told() -> bool:
                blobs = dict.fromkeys(["ann", "bob"], b"abc")
                found.update(carrier.phase("small", blobs, 1.0, most))
                return missing(found["ann"]) == said and found["bob"] == b"cba"

            wait(is_told)
            assert carrier._line._ends["ann"].link._coming is None
            large = dict(carrier.phase("large", {"ann": b"x"}, 300.0, most))
            assert large == {"ann": bytes(LARGE)}
        for party in parties:
            party.stop()


def test_nothing_is_kept_of_a_request_that_is_too_large(tmp_path: Path) -> None:
    with relayed(tmp_path) as here:
        seen: list[bytes] = []
        answering = Answering(
            here.relay,
            here.keys["ann"],
            lambda request: seen.append(request) or b"",  # type: ignore[func-returns-value]
            lambda *_: None,
            lambda: None,
            most=lambda: 4096,
        )
        party = Party(answering, [], []).start()
        carrier, _ = here.carrier()
        with carrier:
            come(carrier, "ann")
            end = answering._line._ends["aggregator"].link

            def is_refused() -> bool:
                missing(asked(carrier, {"ann": bytes(LARGE)}, 0.5)["ann"])
                return end.too_large == LARGE

            wait(is_refused)
            assert end._coming is None
            assert asked(carrier, {"ann": bytes(4096)}) == {"ann": b""}
        party.stop()
        assert seen == [bytes(4096)]


@pytest.mark.slow
def test_a_sign_of_life_of_megabytes_counts_as_none_where_a_study_is_served(tmp_path: Path) -> None:
    """The whole way: the aggregator's process, its own relay, and a party that means harm."""
    everybody = Everybody(tmp_path)
    everybody.approve()
    party_folder = everybody.sites["ann"]
    relay = relay_of(party_folder, None, everybody.roster)
    answering = Answering(
        relay, party_folder.keys, lambda _: bytes(LARGE), lambda *_: None, lambda: None
    )
    party = Party(answering, [], []).start()
    with pytest.raises(WaitedError, match=r"ann: its answer has 8,388,608 bytes"):
        everybody.serve(waiting=0.0, ping=10.0)
    party.stop()


def test_who_joins_keeps_no_more_than_an_offer_before_there_is_a_session(tmp_path: Path) -> None:
    everybody = Everybody(tmp_path)
    everybody.approve("node-1")
    party_folder = PartyFolder.opened(everybody.home / "node-1")
    relay = relay_of(party_folder, None, everybody.roster)
    joined = _Joined(party_folder, relay, Machine(), EventLog(party="node-1"), None)
    line = joined._line_to(relay)
    assert line._line._most() == OFFER_LIMIT
    line._line.stop()


def test_a_call_before_any_session_is_expected_has_no_less_than_a_word() -> None:
    roster = SimpleNamespace(parties=[SimpleNamespace(name="a")] * 3)
    requests = Requests(roster, bytes(32), None, EventLog(party="a"), Timeouts())  # type: ignore[arg-type]
    assert requests.largest_answer("ping") == word_limit(3)


def test_a_refusal_of_another_request_refuses_nothing() -> None:
    everybody, (one, other) = (
        world(),
        (request(Call.OPEN, bytes(16), [part]) for part in (b"a", b"b")),
    )
    frame = Refusal(why="budget", said="").sealed(one, everybody.keys[1], 1)
    requests = Requests(everybody.roster, bytes(32), None, EventLog(party="a"), Timeouts())  # type: ignore[arg-type]
    refused = requests._refusal(1, [frame], one)
    assert refused is not None
    assert refused.why == "budget"
    with pytest.raises(ProtocolError, match="of something else"):
        requests._refusal(1, [frame], other)


def test_a_refusal_without_a_place_is_signed_by_who_was_asked() -> None:
    """Who joins has no roster yet; of such a refusal nothing but its signature says whose it is."""
    everybody, asked = world(), request(Call.OPEN, bytes(16), [b"a"])
    requests = Requests(everybody.roster, bytes(32), None, EventLog(party="a"), Timeouts())  # type: ignore[arg-type]
    own, anothers = (
        Refusal(why="budget", said="").sealed(asked, everybody.keys[index], EVERYBODY)
        for index in (1, 2)
    )
    refused = requests._refusal(1, [own], asked)
    assert refused is not None
    assert refused.why == "budget"
    with pytest.raises(ProtocolError, match="false signature") as raised:
        requests._refusal(1, [anothers], asked)
    assert raised.value.culprit == "relay"


def test_a_server_that_announces_a_message_larger_than_any_is_left() -> None:
    """The client library would keep whatever comes of it."""
    from nats.aio.client import Client

    async def fed() -> int:
        client, fed = Client(), 0
        limit(client, LARGEST_PACKET)
        await client._ps.parse(b"MSG x 1 99999999999\r\n")
        with suppress(ConnectionError):
            while fed < 1 << 24:
                await client._ps.parse(bytes(1 << 15))
                fed += 1 << 15
        return fed

    assert asyncio.run(fed()) < LARGEST_PACKET + (1 << 16)
