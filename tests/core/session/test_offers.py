"""What a party is offered, or is handed for others, is held against its own plan and place."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.primitives.correlated_noise import UNIT
from hubbub.core.protocol.primitives.wire import Tag
from hubbub.core.session.ask import Absent, AbsentError, check_frames, check_link
from hubbub.core.session.offer import RefusedError, SessionOffer, confirmers_of
from hubbub.core.session.setup import SetUp
from protocol.parties import refused, world

W = world()
MINE = replace(W.round_parameters, sigma_grid=8.0, grid_step=2.0**-10)
BANDS = (UNIT - 2, -1, -1)


def offered(**changed: Any) -> SessionOffer:
    """An offer of these numbers, as it arrives."""
    content = json.loads(SessionOffer.of("training", MINE).payload())
    content["terms"] |= changed
    return SessionOffer.read(json.dumps(content).encode(), "aggregator")


@pytest.mark.parametrize(("nodes", "joint"), [(0, False), (0, True), (2, True), (2, False)])
def test_p4_silos_without_nodes_or_with_a_joint_seed_confirm_to_one_another(
    nodes: int, joint: bool
) -> None:
    """With nodes and batches of their own they need not; a node hears its neighbours alone."""
    made = world(4, nodes, joint=joint)
    for index in range(1, 1 + 4 + nodes):
        found = confirmers_of(made.layout, made.roster, made.round_parameters, index, {1, 2, 3})
        assert {*found} == ({1, 2, 3} if index <= 4 and (joint or not nodes) else set())


def test_an_offer_of_ones_own_numbers_is_taken_to_the_last_digits_of_its_floats() -> None:
    offered().check(MINE)
    offered(sigma_grid=8.0 * (1 + 5e-10)).check(MINE)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sigma_grid", 8.0 * (1 - 1e-7)),
        ("sigma_grid", 8),
        ("grid_step", 2.0**-10 * (1 + 1e-8)),
        ("quorum", MINE.quorum - 1),
        ("steps", float(MINE.steps)),
        ("full_shares", 0),
        ("correlation", [UNIT - 2]),
        ("another", 0),
    ],
)
def test_p3_an_offer_of_other_numbers_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(RefusedError, match=f"expected {name} = ") as error:
        offered(**{name: value}).check(MINE)
    assert error.value.why == "plan"


@pytest.mark.parametrize("value", [[UNIT - 2, -1, -2], [UNIT - 2, -1], [UNIT - 2, -1, -1.0], None])
def test_p25_noise_is_correlated_as_ones_own_plan_says(value: object) -> None:
    mine = replace(MINE, correlation=BANDS)
    offered(correlation=list(BANDS)).check(mine)
    with pytest.raises(RefusedError, match="expected correlation = "):
        offered(correlation=value).check(mine)


@pytest.mark.parametrize("time", [(1, 1), (2, 0), (0, 0)])
def test_a_link_of_another_attempt_is_handed_to_nobody(time: tuple[int, int]) -> None:
    place = {"round": time[0], "attempt": time[1]}
    with refused("relay", "expected a link of this attempt"):
        check_link(W.forge(1, Tag.SEED_LINK, bytes(32), **place), W.channel(), 1, (1, 0))
    check_link(W.forge(1, Tag.SEED_LINK, bytes(32), **place), W.channel(), 1, time)


@pytest.mark.parametrize("changed", [{"receiver": 2}, {"payload": bytes(31)}])
def test_a_link_that_is_none_names_its_silo(changed: dict[str, Any]) -> None:
    link = {"payload": bytes(32), "round": 1} | changed
    with refused("silo-1", "expected a link of 32 bytes to everybody"):
        check_link(W.forge(1, Tag.SEED_LINK, **link), W.channel(), 1, (1, 0))


@pytest.mark.parametrize("receivers", [(), (5,), (5, 5), (5, 6, 6), (5, 7)])
def test_an_answer_has_one_share_for_every_node_of_its_silo(receivers: tuple[int, ...]) -> None:
    shares = [W.forge(1, Tag.SHARE, receiver=one) for one in receivers]
    masked = W.forge(1, Tag.MASKED, receiver=0)
    with refused("relay", "expected one MASKED, got other frames"):
        check_frames([masked, *shares], Tag.MASKED, {5, 6})
    check_frames([masked, *(W.forge(1, Tag.SHARE, receiver=n) for n in (6, 5))], Tag.MASKED, {5, 6})


@pytest.mark.parametrize(
    ("absent", "enough"),
    [((), True), ((1,), True), ((1, 2), False), ((5,), False), ((1, 6), False)],
)
def test_p29_a_session_has_enough_silos_and_all_nodes(
    absent: tuple[int, ...], *, enough: bool
) -> None:
    w = world(nodes=2)
    wanted = SetUp(
        peers=mock.Mock(roster=w.roster),
        keys=w.keys[0],
        study=bytes(32),
        layout=w.layout,
        round_parameters=w.round_parameters,
        offer=offered(),
    )
    gone = dict.fromkeys(absent, Absent(why="silent", said="it is not there"))
    with nullcontext() if enough else pytest.raises(AbsentError) as error:
        wanted.check_enough(gone)
    if error is not None:
        assert error.value.absent.keys() == {w.roster.name(index) for index in absent}


@pytest.mark.parametrize(("at", "fits"), [(2**40 - 1, True), (2**40, False), (-1, False)])
def test_the_time_of_an_offer_is_one_that_clocks_have(at: int, *, fits: bool) -> None:
    content = json.loads(SessionOffer.of("training", MINE).payload()) | {"at": at}
    opening = "expected the opening of a session"
    with nullcontext() if fits else pytest.raises(ProtocolError, match=opening):
        assert SessionOffer.read(json.dumps(content).encode(), "aggregator").at == at
