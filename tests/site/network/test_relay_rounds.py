"""Rounds and the end of a study under a malicious relay, aggregator or silo.

Either the sum is that of the silos who took part, or there is none and somebody is named; who was
only kept from being heard is left out and nothing worse.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hubbub.core.errors import BudgetError, DataError, IntegrityError, ProtocolError
from hubbub.core.protocol.primitives.wire import EVERYBODY, Tag, unverified
from hubbub.core.runs.federated import Standardisation
from hubbub.core.session.ask import AbsentError, Call
from hubbub.core.session.offer import round_parameters_of
from hubbub.core.verification.replay.checking import verify
from hubbub.learning.queries.beside_training import EVALUATION, STANDARDISATION
from hubbub.learning.queries.training_query import TRAINING
from hubbub.learning.runs.preparing import prepare
from hubbub.site.network.envelope import Missing, answer, read_answer, request
from network.consortium import planned
from network.relay import (
    FEATURES,
    HASTY,
    NAMES,
    RECORDS,
    Jumping,
    Relay,
    Session,
    Watched,
    at,
    flipped,
    lost,
    on_asked,
    on_parts,
    open_frame,
    opened,
    records,
    refusal,
)

NODES = pytest.mark.parametrize("nodes", [0, 2], ids=["pairwise", "nodes"])
ONE_AWAY: dict[str, Any] = {"parties": {"colluders": 0, "dropouts": 1}}
NEW = bytes(range(16, 32))


def said(parties: Watched, words: str) -> bool:
    return any(words in line for line in parties.said)


def model(
    parties: Watched, session: Session, /, round: int = 1, attempt: int = 0, **more: Any
) -> bytes:
    """A MODEL as the aggregator may sign it."""
    silos = more.pop("silos", (1, 2, 3))
    payload = b"".join(
        session.round_parameters.model_parts(silos, more.pop("parameters", session.initial))
    )
    where: dict[str, Any] = {"session": session.rounds.session, "receiver": EVERYBODY}
    said = where | {"round": round, "attempt": attempt} | more
    return parties.sealed("aggregator", Tag.MODEL, payload, **said)


# Models ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_round_before_the_set_up_is_over_is_refused(gather: Any) -> None:
    parties = gather()
    session = opened(parties)
    frame = open_frame(parties, NEW)
    assert unverified(parties.ask("ann", Call.OPEN, NEW, [frame])[0]).tag is Tag.READY
    early = model(parties, session, session=NEW)
    assert refusal(parties.ask("ann", Call.MODEL, NEW, [early])) == ("no-session", "")
    parties.ask("ann", Call.COMMIT, NEW)
    assert refusal(parties.ask("ann", Call.MODEL, NEW, [early])) == ("no-session", "")
    assert parties.rows("ann") == []


@pytest.mark.slow
@NODES
def test_a_new_opening_ends_the_session_before_it(gather: Any, nodes: int) -> None:
    """Also in the middle of a round: what was begun before it is not answered any more."""
    parties = gather(nodes)
    first = opened(parties)
    first.round(1)
    second = opened(parties)
    late = model(parties, first, round=2)
    for name in NAMES:
        found = parties.ask(name, Call.MODEL, first.rounds.session, [late])
        assert refusal(found) == ("no-session", "")
    assert second.round(2)[1] == 1
    with pytest.raises(AbsentError, match="it does not know the session"):
        first.round(2)


@pytest.mark.slow
@NODES
def test_a_model_of_another_session_is_refused_under_either_name(gather: Any, nodes: int) -> None:
    parties = gather(nodes)
    first = opened(parties)
    second = opened(parties)
    old = model(parties, first)
    for named, culprit in ((first, ""), (second, "relay")):
        why = refusal(parties.ask("ann", Call.MODEL, named.rounds.session, [old]))
        assert why == ("no-session" if named is first else "protocol", culprit)
    assert parties.rows("ann") == []


@pytest.mark.slow
@NODES
def test_a_model_is_answered_once(gather: Any, nodes: int) -> None:
    parties = gather(nodes)
    relay = Relay(parties.phase)
    session = opened(parties, relay)
    session.round(1)
    again = relay.asked("model", "ann")[0]
    for _ in range(3):
        assert refusal(read_answer(parties.answers("ann")(again))) == ("protocol", "relay")
    assert len(parties.rows("ann")) == 1


def test_two_models_for_one_attempt_name_the_aggregator(gather: Any) -> None:
    parties = gather(**ONE_AWAY)
    session = opened(parties)
    name = session.rounds.session
    first, second = model(parties, session), model(parties, session, silos=(1, 2))
    assert unverified(parties.ask("ann", Call.MODEL, name, [first])[0]).tag is Tag.MASKED
    found = parties.ask("ann", Call.MODEL, name, [second])
    assert refusal(found) == ("protocol", "aggregator")
    assert len(parties.rows("ann")) == 1


LIES: dict[str, Callable[[Watched, Session], list[bytes]]] = {
    "no frame": lambda p, s: [],
    "two frames": lambda p, s: [model(p, s), model(p, s)],
    "junk": lambda p, s: [b"x" * 200],
    "of a silo": lambda p, s: [
        p.sealed("bob", Tag.MODEL, session=s.rounds.session, round=1, receiver=EVERYBODY)
    ],
    "for another": lambda p, s: [model(p, s, receiver=2)],
    "without me": lambda p, s: [model(p, s, silos=(2, 3))],
    "of too few": lambda p, s: [model(p, s, silos=(1,))],
    "round 0": lambda p, s: [model(p, s, round=0)],
    "after the last round": lambda p, s: [model(p, s, round=5)],
    "not finite": lambda p, s: [model(p, s, parameters=np.full(5, np.nan, dtype=np.float32))],
    "short": lambda p, s: [model(p, s, parameters=np.zeros(4, dtype=np.float32))],
    "altered": lambda p, s: [flipped(model(p, s), 80)],
}


@pytest.mark.slow
@pytest.mark.parametrize("frames", LIES.values(), ids=LIES)
def test_a_false_model_is_neither_answered_nor_paid_for(gather: Any, frames: Any) -> None:
    parties = gather(**ONE_AWAY)
    session = opened(parties)
    found = parties.ask("ann", Call.MODEL, session.rounds.session, frames(parties, session))
    why, culprit = refusal(found)
    assert why == "protocol"
    assert culprit in ("relay", "aggregator", "bob")
    assert parties.rows("ann") == []
    assert session.round(1)[1] == 1


@pytest.mark.slow
def test_no_session_gives_more_attempts_than_the_study_has_steps(gather: Any) -> None:
    """A malicious aggregator repeats round 1, in one session and in another."""
    parties = gather()
    for number in range(2):
        session = opened(parties)
        for attempt in range(6):
            parties.ask(
                "ann", Call.MODEL, session.rounds.session, [model(parties, session, 1, attempt)]
            )
        assert len(parties.rows("ann")) == 4, number
    assert said(parties, "refused to answer (budget)")


# Answers ---------------------------------------------------------------------------------------

SPOILT: dict[str, Callable[[Any], Any]] = {
    "lost": lost,
    "altered": flipped,
    "altered in the vector": lambda blob: flipped(blob, 120),
    "cut": lambda blob: blob[:-1],
    "empty": lambda blob: answer(),
    "no bytes": lambda blob: b"",
    "junk": lambda blob: answer([b"x" * 300]),
    "missing": lambda blob: Missing(),
}


@pytest.mark.slow
@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_a_spoilt_answer_is_not_in_a_sum_of_nodes(gather: Any, spoil: Any) -> None:
    parties = gather(2, **ONE_AWAY)
    session = opened(parties, Relay(parties.phase, tells=at("model", spoil, "bob")))
    total, made = session.round(1)
    assert (total is not None, made) == (True, 1)
    assert set(session.rounds.attendance.absent) == {2}


@pytest.mark.slow
@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_a_spoilt_answer_abandons_a_pairwise_attempt(gather: Any, spoil: Any) -> None:
    parties = gather(**ONE_AWAY)
    session = opened(parties, Relay(parties.phase, tells=at("model", spoil, "bob")))
    total, made = session.round(1, attempts=3)
    assert (total is not None, made) == (True, 2)
    assert set(session.rounds.attendance.absent) == {2}
    assert len(parties.rows("ann")) == 2


@pytest.mark.slow
@NODES
@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_where_nobody_may_be_missing_the_missing_one_is_named(
    gather: Any, nodes: int, spoil: Any
) -> None:
    parties = gather(nodes)
    session = opened(parties, Relay(parties.phase, tells=at("model", spoil, "bob")))
    with pytest.raises(AbsentError, match="got none from bob: ") as gone:
        session.round(1, attempts=4)
    assert list(gone.value.absent) == ["bob"]


@pytest.mark.slow
@NODES
def test_an_answer_to_another_attempt_is_not_added(gather: Any, nodes: int) -> None:
    """The relay keeps bob's first answer and hands it in for all rounds."""
    parties = gather(nodes, **ONE_AWAY)
    kept: list[bytes] = []

    def first(blob: bytes) -> bytes:
        kept.append(blob)
        return kept[0]

    session = opened(parties, Relay(parties.phase, tells=at("model", first, "bob")))
    assert session.round(1)[1] == 1
    assert session.round(2, attempts=2)[0] is not None
    assert said(parties, "expected an answer to attempt 2.0, got one to 1.0 from bob")


@pytest.mark.slow
@NODES
def test_a_silos_answer_handed_in_as_anothers_is_not_added(gather: Any, nodes: int) -> None:
    parties = gather(nodes, **ONE_AWAY)
    kept: list[bytes] = []

    def both(name: str, asked: Any, deadline: float) -> Iterator[tuple[str, Any]]:
        for party, blob in sorted(parties.phase(name, asked, deadline)):
            if name == "model" and party == "ann":
                kept.append(blob)
            yield party, kept[-1] if name == "model" and party == "bob" else blob

    session = opened(parties, both)
    assert session.round(1, attempts=2)[0] is not None
    assert said(parties, "expected frames of bob, got another's")
    assert set(session.rounds.attendance.absent) == {2}


@pytest.mark.slow
@NODES
def test_answers_that_come_twice_or_of_nobody_change_nothing(gather: Any, nodes: int) -> None:
    parties = gather(nodes)

    def doubled(name: str, asked: Any, deadline: float) -> Iterator[tuple[str, Any]]:
        for party, blob in parties.phase(name, asked, deadline):
            yield from ((party, blob), (party, blob), ("mallory", blob), ("aggregator", blob))

    session = opened(parties, doubled)
    for number in (1, 2):
        assert session.round(number)[1] == 1


@pytest.mark.slow
@NODES
def test_answers_in_any_order_give_the_sum(gather: Any, nodes: int) -> None:
    parties = gather(nodes)

    def backwards(name: str, asked: Any, deadline: float) -> Iterator[tuple[str, Any]]:
        yield from sorted(parties.phase(name, asked, deadline), reverse=True)

    assert opened(parties, backwards).round(1)[1] == 1


@pytest.mark.quick_cases("0-pairwise")
@pytest.mark.slow_cases("0-nodes", "41-pairwise", "43-nodes")
@NODES
@pytest.mark.parametrize("size", [0, 41, 43])
def test_a_signed_vector_of_another_length_stops_the_study_by_name(
    gather: Any, nodes: int, size: int
) -> None:
    parties = gather(nodes)
    session = None

    def lie(_blob: Any) -> bytes:
        where = {"session": session.rounds.session, "round": 1}  # type: ignore[union-attr]
        return answer([parties.sealed("bob", Tag.MASKED, bytes(size), **where)])

    session = opened(parties, Relay(parties.phase, tells=at("model", lie, "bob")))
    with pytest.raises(ProtocolError, match=f"a MASKED of 42 bytes, got {size}") as refused:
        session.round(1)
    assert refused.value.culprit == "bob"


@pytest.mark.slow
@NODES
def test_two_models_in_one_attempt_make_no_sum(gather: Any, nodes: int) -> None:
    """Whoever has the aggregator's key shows bob another MODEL; what bob answers says which."""
    parties = gather(nodes)

    def other(parts: list[bytes]) -> list[bytes]:
        shown = unverified(parts[0])
        payload = bytes(shown.payload)[:-4] + np.float32(40.0).tobytes()
        frame = replace(shown, payload=payload, receiver=EVERYBODY)
        return [frame.sealed(parties.aggregator.keys), *parts[1:]]

    session = opened(parties, Relay(parties.phase, asks=at("model", on_asked(other), "bob")))
    with pytest.raises(ProtocolError, match="an answer to this MODEL, got one to another"):
        session.round(1)


@pytest.mark.slow
def test_frames_that_a_silo_adds_to_its_answer_do_not_stop_a_node(gather: Any) -> None:
    """bob, who may be missing, sends the nodes things that they refuse."""
    parties = gather(2, **ONE_AWAY)
    session = None

    def more(parts: list[bytes]) -> list[bytes]:
        where = {"session": session.rounds.session, "round": 1}  # type: ignore[union-attr]
        return [
            *parts,
            *(parties.sealed("bob", Tag.SHARE, b"", receiver=n, **where) for n in (4, 5)),
        ]

    session = opened(parties, Relay(parties.phase, tells=at("model", on_parts(more), "bob")))
    assert session.round(1, attempts=2)[0] is not None
    assert not {4, 5} & set(session.rounds.attendance.absent)


@pytest.mark.slow
@pytest.mark.parametrize("left_out", [1, 2])
def test_a_silo_that_leaves_out_a_nodes_share_is_the_one_that_is_missing(
    gather: Any, left_out: int
) -> None:
    """The node without it could not answer, and would be named for it."""
    parties = gather(2, parties={"colluders": 0, "dropouts": 1, "shares": "full"})

    def less(parts: list[bytes]) -> list[bytes]:
        return [part for place, part in enumerate(parts) if place != left_out]

    session = opened(parties, Relay(parties.phase, tells=at("model", on_parts(less), "bob")))
    assert session.round(1)[0] is not None
    assert list(session.rounds.attendance.absent) == [parties.sites["bob"].index]


# Compute nodes ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_without_a_nodes_total_there_is_no_sum(gather: Any, spoil: Any) -> None:
    parties = gather(2, **ONE_AWAY)
    session = opened(parties, Relay(parties.phase, tells=at("total", spoil, "node-1")))
    with pytest.raises(AbsentError, match="node-1") as gone:
        session.round(1, attempts=3)
    assert list(gone.value.absent) == ["node-1"]
    assert session.rounds.attempts_begun == 1


@pytest.mark.slow
def test_a_nodes_total_handed_in_as_anothers_is_no_total(gather: Any) -> None:
    parties = gather(2)
    kept: list[bytes] = []

    def one_for_both(name: str, asked: Any, deadline: float) -> Iterator[tuple[str, Any]]:
        for party, blob in sorted(parties.phase(name, asked, deadline)):
            kept.append(blob)
            yield party, kept[-2] if name == "total" and party == "node-2" else blob

    session = opened(parties, one_for_both)
    with pytest.raises(AbsentError, match="expected frames of node-2, got another's"):
        session.round(1)


def test_a_request_is_answered_once_and_by_whom_it_is_for(gather: Any) -> None:
    parties = gather(2)
    relay = Relay(parties.phase)
    session = opened(parties, relay)
    session.round(1)
    asked = [relay.asked("promise", node)[0] for node in ("node-1", "node-2")]
    for blob in (*asked, relay.asked("total", "node-1")[0]):
        assert refusal(read_answer(parties.answers("node-1")(blob))) == ("protocol", "relay")


@pytest.mark.slow
@pytest.mark.parametrize("silos", [(1,), (2,), (1, 2)])
def test_an_aggregator_that_asks_a_node_for_fewer_gets_nothing(gather: Any, silos: Any) -> None:
    parties = gather(2)
    session = opened(parties)
    payload = session.round_parameters.named_payload(silos, bytes(32))
    where = {"session": session.rounds.session, "round": 1, "receiver": 4}
    asked = parties.sealed("aggregator", Tag.REQUEST, payload, **where)
    found = parties.ask("node-1", Call.PROMISE, session.rounds.session, [asked])
    assert refusal(found) == ("protocol", "aggregator")


def test_an_aggregator_that_asks_a_node_for_two_sets_gets_one(gather: Any) -> None:
    parties = gather(2, **ONE_AWAY)
    session = opened(parties)
    named = session.round_parameters.named_payload
    where = {"session": session.rounds.session, "round": 1, "receiver": 4}
    found = [
        parties.ask(
            "node-1",
            Call.PROMISE,
            session.rounds.session,
            [parties.sealed("aggregator", Tag.REQUEST, named(silos, bytes(32)), **where)],
        )
        for silos in ((1, 2, 3), (1, 2))
    ]
    assert unverified(found[0][0]).tag is Tag.PROMISE
    assert refusal(found[1]) == ("protocol", "aggregator")


# Joint seeds -----------------------------------------------------------------------------------

JOINT: dict[str, Any] = {
    "training": {"projection": 3, "projection_kind": "layers"},
    "parties": {"colluders": 0, "dropouts": 1},
}


def in_part(change: Callable[[bytes], bytes]) -> Callable[[Any], Any]:
    return on_parts(lambda parts: [change(parts[0]), *parts[1:]])


@pytest.mark.slow
def test_a_garbled_link_leaves_its_silo_out_and_nobody_else(gather: Any) -> None:
    parties = gather(**JOINT)
    relay = Relay(parties.phase, tells=at("model", in_part(flipped), "bob", times=1))
    session = opened(parties, relay)
    total, made = session.rounds.round(1, session.initial, 2)
    assert (total is not None, made) == (True, 2)
    assert set(session.rounds.attendance.absent) == {2}


@pytest.mark.slow
def test_a_silo_is_not_blamed_for_a_link_that_the_relay_exchanged(gather: Any) -> None:
    """Its own anchor in the place of its link: signed by it, and no lie."""
    parties = gather(**JOINT)
    relay = Relay(parties.phase)
    session = opened(parties, relay)
    anchor = read_answer(relay.told("open", "bob")[0])[1]
    relay.tells = at("model", lambda _: answer([anchor]), "bob", times=1)
    total, made = session.rounds.round(1, session.initial, 2)
    assert (total is not None, made) == (True, 2)
    assert set(session.rounds.attendance.absent) == {2}


@pytest.mark.slow
def test_a_link_of_another_round_leaves_its_silo_out_and_nobody_else(gather: Any) -> None:
    """Signed by it, for this session, and out of date: only the relay can have brought it."""
    parties = gather(**JOINT)
    relay = Relay(parties.phase)
    session = opened(parties, relay)
    assert session.rounds.round(1, session.initial, 1)[0] is not None
    old = relay.told("model", "bob")[0]
    relay.tells = at("model", lambda _: old, "bob")
    total, made = session.rounds.round(2, session.initial, 2)
    assert (total is not None, made) == (True, 2)
    assert set(session.rounds.attendance.absent) == {2}


@pytest.mark.slow
def test_a_link_that_was_not_committed_to_names_its_silo(gather: Any) -> None:
    parties = gather(**JOINT)
    session = None

    def lie(_blob: Any) -> bytes:
        where = {"session": session.rounds.session, "round": 1, "receiver": EVERYBODY}  # type: ignore[union-attr]
        return answer([parties.sealed("bob", Tag.SEED_LINK, bytes(32), **where)])

    session = opened(parties, Relay(parties.phase, tells=at("model", lie, "bob")))
    with pytest.raises(ProtocolError, match="that it has committed to") as refused:
        session.rounds.round(1, session.initial, 2)
    assert refused.value.culprit == "bob"


@pytest.mark.slow
def test_anchors_that_differ_between_silos_are_noticed(gather: Any) -> None:
    """She refuses, blames whose anchor is missing, and sits out, since she can be spared."""
    parties = gather(**JOINT)

    def less(parts: list[bytes]) -> list[bytes]:
        return parts[:-1]

    relay = Relay(parties.phase, asks=at("commit", on_asked(less), "ann"))
    session = opened(parties, relay)
    assert session.rounds.attendance.silos == {2, 3}
    assert session.rounds.round(1, session.initial, 1)[1] == 1


@pytest.mark.slow
def test_no_seed_is_learned_twice_or_without_a_model(gather: Any) -> None:
    parties = gather(**JOINT)
    relay = Relay(parties.phase)
    session = opened(parties, relay)
    name = session.rounds.session
    assert refusal(parties.ask("ann", Call.SEED, name, []))[0] == "protocol"
    session.rounds.round(1, session.initial, 1)
    again = relay.asked("seed", "ann")[0]
    assert refusal(read_answer(parties.answers("ann")(again)))[0] == "protocol"
    assert len(parties.rows("ann")) == 1


@pytest.mark.slow
def test_features_are_those_of_the_session_whatever_is_opened_beside_it(gather: Any) -> None:
    """The relay plays an old opening of another purpose to a silo that has started anew."""
    parties = gather(data={"standardise": {"bound": 2.0, "epsilon": 1.0}}, privacy={"epsilon": 5.0})
    found = Standardisation(
        shift=np.full(4, 0.5, dtype=np.float32), scale=np.full(4, 0.25, dtype=np.float32)
    )
    query = planned(parties.study).planned(STANDARDISATION)
    assert query is not None
    round_parameters = round_parameters_of(query).to_dict()
    old = open_frame(parties, NEW, round_parameters, purpose=STANDARDISATION)

    def asks(name: str, party: str, blob: bytes) -> bytes:
        if name == "finish" and party == "ann":
            assert unverified(parties.ask("ann", Call.OPEN, NEW, [old])[0]).tag is Tag.READY
        return blob

    session = opened(parties, Relay(parties.phase, asks=asks), standardisation=found)
    tasks = {name: parties.party(name, session.rounds.session).silo._task for name in NAMES}
    for name, task in tasks.items():
        assert np.allclose(task._rows._records.inputs, found.of(records(name)).inputs)


# Records that the study does not know of ----------------------------------------------------------


@pytest.mark.parametrize(("stated", "fits"), [(RECORDS, True), (RECORDS - 1, False)])
def test_a_silo_with_more_records_than_the_study_states_takes_no_part(
    gather: Any, stated: int, fits: bool
) -> None:
    """Batches would be larger than their public shape, and where they are is no secret (P19)."""
    parties = gather(data={"records": stated})
    heard = parties.ask("ann", Call.OPEN, NEW, [open_frame(parties, NEW)])
    if fits:
        assert unverified(heard[0]).tag is Tag.READY
    else:
        assert refusal(heard)[0] == "failed"
        assert any("state data.records as large as it is" in line for line in parties.said)
        known = str(parties.seats["ann"].event_log.known()["last_error"])
        assert "fit the study" in known
        assert "data.records" not in known  # what is wrong is for the owner's eyes alone
    with nullcontext() if fits else pytest.raises(DataError, match="records of ann"):
        prepare(parties.study)


# Evaluations that are not due -------------------------------------------------------------------


EVALUATED = {
    "training": {"evaluate": {"every": 2, "epsilon": 1.0}},
    "privacy": {"epsilon": 5.0},
}


@pytest.mark.slow
@pytest.mark.parametrize("trained", [0, 1, 3])
def test_evaluations_before_their_time_are_in_what_a_silo_signs(gather: Any, trained: int) -> None:
    """The account of s steps has the evaluations that are due by then, and no more (P16)."""
    parties = gather(**EVALUATED)
    first = opened(parties, purpose=EVALUATION)
    for number in range(1, 3):
        assert first.rounds.round(number, first.initial, 1)[1] == 1
    training = opened(parties)
    for number in range(1, trained + 1):
        training.round(number)
    parts = training.close([first.rounds.session, training.rounds.session])
    assert [part["attempts"] for part in parts] == [4, 4, 4], "two are due after four steps"
    assert training.plan.epsilon_after(4) > training.plan.epsilon_after(max(trained, 1))


@pytest.mark.slow
def test_evaluations_in_their_time_add_no_attempts(gather: Any) -> None:
    parties = gather(**EVALUATED)
    training = opened(parties)
    for number in range(1, 4):
        training.round(number)
    looked = opened(parties, purpose=EVALUATION)
    looked.rounds.round(1, looked.initial, 1)
    parts = training.close([looked.rounds.session, training.rounds.session])
    assert [part["attempts"] for part in parts] == [3, 3, 3]


# Who is asked again ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("twice", [[], ["bob"]])
def test_a_set_up_that_fails_for_a_copied_home_does_not_blame_the_relay(
    gather: Any, twice: list[str]
) -> None:
    """Either process answers, with secrets of its own: to others it looks like a relay's lie."""
    parties = gather()
    relay = Relay(
        parties.phase, tells=at("confirm", on_parts(lambda parts: [*map(flipped, parts)]))
    )
    with pytest.raises(ProtocolError, match="expected a set-up that every party could") as caught:
        opened(parties, relay, twice=twice)
    assert caught.value.culprit == ("" if twice else "relay")
    assert ("two processes take part as bob" in str(caught.value)) is bool(twice)


@pytest.mark.slow
@pytest.mark.parametrize("missed", [1, 4])
def test_a_silo_that_misses_the_close_signs_its_part_later(gather: Any, missed: int) -> None:
    parties = gather()
    clock = Jumping()
    relay = Relay(parties.phase, asks=at("close", lost, "bob", times=missed))
    session = opened(parties, relay, timeouts=replace(HASTY, clock=clock))
    session.round(1)
    parts = session.close([session.rounds.session])
    assert {part["silo"]: part["attempts"] for part in parts} == dict.fromkeys(NAMES, 1)
    assert len(relay.asked("close", "ann")) == 1, "who has signed is not asked again"
    assert len(clock.slept) == missed


@pytest.mark.slow
def test_a_close_whose_answer_was_lost_is_signed_alike_again(gather: Any) -> None:
    parties = gather()
    relay = Relay(parties.phase, tells=at("close", lost, "bob", times=1))
    session = opened(parties, relay)
    session.round(1)
    assert len(session.close([session.rounds.session])) == len(NAMES)
    first, second = relay.told("close", "bob")
    assert json.loads(bytes(unverified(read_answer(first)[0]).payload)) == json.loads(
        bytes(unverified(read_answer(second)[0]).payload)
    )


@pytest.mark.slow
def test_a_run_whose_silo_never_closes_ends_without_its_part_and_says_so(gather: Any) -> None:
    parties = gather()
    clock = Jumping()
    session = opened(
        parties,
        Relay(parties.phase, asks=at("close", lost, "bob")),
        timeouts=replace(HASTY, clock=clock),
    )
    session.round(1)
    parts = session.close([session.rounds.session])
    assert sorted(part["silo"] for part in parts) == ["ann", "cyn"]
    assert any("no signed part from bob" in line for line in parties.said)
    assert len(clock.slept) == 4


@pytest.mark.slow
def test_a_silo_that_was_not_heard_comes_back(gather: Any) -> None:
    parties = gather(**ONE_AWAY)
    relay = Relay(parties.phase, tells=at("model", lost, "bob", times=1))
    session = opened(parties, relay)
    assert session.round(1, attempts=2)[1] == 2
    assert session.round(2)[1] == 1
    assert not session.rounds.attendance.absent


@pytest.mark.slow
def test_a_relay_cannot_say_that_a_silo_is_back(gather: Any) -> None:
    """A made-up READY would put a silo that is not there into the next attempt, for all to pay."""
    parties = gather(**ONE_AWAY)
    relay = Relay(parties.phase, tells=at("model", lost, "bob"))
    session = opened(parties, relay)
    session.round(1, attempts=2)
    parties.stop("bob")
    name = session.rounds.session

    def forged(party: str, blob: Any) -> Any:
        frame = parties.sealed("bob", Tag.READY, b"", session=name)
        return answer([flipped(frame)]) if party == "bob" else blob

    relay.tells = lambda call, party, blob: forged(party, blob) if call == "ping" else blob
    assert session.round(2)[1] == 1
    assert 2 in session.rounds.attendance.absent


# The end ---------------------------------------------------------------------------------------


def closing(parties: Watched, session: Session, **changes: Any) -> list[bytes]:
    """CLOSE and RESULT, as the aggregator may sign them."""
    name = session.rounds.session
    listed = json.dumps({"sessions": [name.hex()]}).encode()
    where = {"session": name, "receiver": EVERYBODY}
    said = {"close": listed, "result": bytes(4 * session.round_parameters.parameters)} | changes
    return [
        parties.sealed("aggregator", Tag.CLOSE, said["close"], **where),
        parties.sealed("aggregator", Tag.RESULT, said["result"], **where),
    ]


def models(parties: Watched, name: str) -> list[Path]:
    return list((parties.home / name).glob("models/*/*"))


@pytest.mark.slow
def test_a_true_end_is_signed_and_the_model_kept(gather: Any) -> None:
    parties = gather()
    session = opened(parties)
    session.round(1)
    found = parties.ask("ann", Call.CLOSE, session.rounds.session, closing(parties, session))
    said = json.loads(bytes(unverified(found[0]).payload))
    assert (said["silo"], said["attempts"]) == ("ann", 1)
    names = {path.name for path in models(parties, "ann")}
    assert names == {"model.safetensors", "study.toml"}


def test_after_what_it_has_signed_a_silo_answers_no_more_rounds(gather: Any) -> None:
    """The aggregator would hold its word for one attempt, and the sums of more."""
    parties = gather()
    relay = Relay(parties.phase)
    session = opened(parties, relay)
    session.round(1)
    name, end = session.rounds.session, closing(parties, session)
    before = parties.ask("ann", Call.CLOSE, name, end)
    with pytest.raises(AbsentError, match="ann"):
        session.round(2)
    assert parties.rows("ann") == [(name, 1, 0)]
    assert parties.ask("ann", Call.CLOSE, name, end) == before  # what was lost can be said again


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [0, 2], ids=["pairwise", "nodes"])
@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
@pytest.mark.parametrize("purpose", [TRAINING, EVALUATION])
def test_p15_no_attempt_is_answered_after_a_silo_has_signed_its_last_word(
    gather: Any, nodes: int, restarted: bool, purpose: str
) -> None:
    """The closing is on disk: neither a new session, a restart nor another purpose undoes it."""
    parties = gather(nodes, **EVALUATED)
    session = opened(parties)
    session.round(1)
    before = {name: last_word(parties, session, name) for name in NAMES}
    if restarted:
        for name in NAMES:
            parties.start(name)
    again = opened(parties, purpose=purpose)
    asked = model(parties, again, parameters=again.initial)
    for name in NAMES:
        found = parties.ask(name, Call.MODEL, again.rounds.session, [asked])
        assert refusal(found) == ("protocol", "aggregator")
        assert parties.rows(name) == [(session.rounds.session, 1, 0)]
    with pytest.raises(AbsentError, match="breaks the protocol, by aggregator"):
        again.round(2)
    after = {name: last_word(parties, again, name, session) for name in NAMES}
    assert after == before  # the end can be said again, and nothing else has happened
    assert {one["attempts"] for one in after.values()} == {1}


@pytest.mark.slow_cases("a link was shown")
@pytest.mark.parametrize(
    "changes",
    [JOINT, {"training": {"noise": "correlated", "bands": 2, "sample_rate": 0.5}}],
    ids=["a link was shown", "an epoch was paid for"],
)
def test_p15_what_was_paid_for_and_not_answered_is_not_answered_after_the_end(
    gather: Any, changes: dict[str, Any]
) -> None:
    """The attempt is in the silo's last word; its sum is not made any more."""
    parties = gather(**changes)
    relay = Relay(parties.phase)
    session = opened(parties, relay)
    name, shown = session.rounds.session, dict[str, list[bytes]]()
    if changes is JOINT:
        asked = model(parties, session)
        shown = {one: parties.ask(one, Call.MODEL, name, [asked]) for one in NAMES}
        call, parts = Call.SEED, [frames[0] for frames in shown.values()]
    else:  # the row of the first attempt pays for the second one too
        session.rounds.round(1, session.initial, 1)
        payload = b"".join(session.round_parameters.model_parts((1, 2, 3), session.initial, 2))
        where = {"session": name, "receiver": EVERYBODY, "round": 2}
        call, parts = Call.MODEL, [parties.sealed("aggregator", Tag.MODEL, payload, **where)]
    said = last_word(parties, session, "ann")
    assert said["attempts"] == (1 if changes is JOINT else 2)
    assert refusal(parties.ask("ann", call, name, parts)) == ("no-session", "")
    if changes is JOINT:  # nothing else was wrong with the request
        assert unverified(parties.ask("bob", call, name, parts)[0]).tag is Tag.MASKED
    assert len(parties.rows("ann")) == 1


def last_word(
    parties: Watched, session: Session, name: str, listed: Session | None = None
) -> dict[str, Any]:
    """What a silo signs at the end of a study, in one session and about another."""
    about = (listed or session).rounds.session.hex()
    close = json.dumps({"sessions": [about]}).encode()
    result = bytes(4 * opened_size(parties))
    frames = closing(parties, session, close=close, result=result)
    found = parties.ask(name, Call.CLOSE, session.rounds.session, frames)
    return json.loads(bytes(unverified(found[0]).payload))


def opened_size(parties: Watched) -> int:
    """Numbers of the model of its study."""
    return planned(parties.study).dimension or FEATURES + 1


def test_p15_what_a_silo_signs_names_every_session_that_it_has_paid_for(gather: Any) -> None:
    """Also those that the aggregator would rather not list, as where no evidence was shown."""
    parties = gather()
    first = opened(parties)
    first.round(1)
    second = opened(parties)
    second.round(2)
    said = last_word(parties, second, "ann")
    assert said["sessions"] == [second.rounds.session.hex()]
    assert said["unlisted"] == [first.rounds.session.hex()]
    assert (said["attempts"], said["closed"]) == (2, True)


def test_p15_a_closing_that_the_disk_does_not_take_is_not_signed(
    gather: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = gather()
    session = opened(parties)
    session.round(1)
    ledger = parties.seats["ann"]._ledger

    def full(_study: bytes) -> None:
        raise IntegrityError("expected a disk with room, it is full; make room")

    name, end = session.rounds.session, closing(parties, session)
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "close_study", full)
        assert refusal(parties.ask("ann", Call.CLOSE, name, end)) == ("ledger", "")
    assert last_word(parties, session, "ann")["attempts"] == 1  # once there is room


@pytest.mark.slow
def test_p15_a_run_whose_aggregator_died_after_the_end_is_served_to_the_same_end(
    gather: Any,
) -> None:
    """Evidence and report were not written yet: silos sign the same again, and charge nothing."""
    parties = gather()
    run = parties.home / "run"
    first = parties.serve(timeouts=HASTY)
    told = json.loads((run / "evidence.json").read_text())
    for name in ("evidence.json", "report.html", "model.safetensors"):
        (run / name).unlink()
    parties.start("ann")
    again = parties.serve(timeouts=HASTY)
    after = json.loads((run / "evidence.json").read_text())
    assert again.final == first.final
    assert after["silos"] == told["silos"]
    assert [one["attempts"] for one in after["silos"]] == [4, 4, 4]
    found = verify(run)
    assert all(one.holds for one in found)
    assert any("no silo has charged more" in one.claim for one in found)


def test_p15_a_study_that_is_served_again_elsewhere_is_refused_before_it_begins(
    gather: Any,
) -> None:
    parties = gather()
    parties.serve(timeouts=HASTY)
    with pytest.raises(BudgetError, match="approve the study under another name"):
        parties.serve(timeouts=HASTY, out=parties.home / "again")
    assert [len(parties.rows(name)) for name in NAMES] == [4, 4, 4]


ENDS: dict[str, Callable[[list[bytes], Watched, Session], list[bytes]]] = {
    "nothing": lambda f, p, s: [],
    "without RESULT": lambda f, p, s: f[:1],
    "without CLOSE": lambda f, p, s: f[1:],
    "the other way round": lambda f, p, s: f[::-1],
    "twice CLOSE": lambda f, p, s: [f[0], f[0]],
    "altered": lambda f, p, s: [f[0], flipped(f[1], 80)],
    "a model too short": lambda f, p, s: closing(p, s, result=bytes(16)),
    "a model too long": lambda f, p, s: closing(p, s, result=bytes(24)),
    "a model of no numbers": lambda f, p, s: closing(p, s, result=b"\xff" * 20),
    "sessions of no kind": lambda f, p, s: closing(p, s, close=b"{}"),
    "sessions not hexadecimal": lambda f, p, s: closing(p, s, close=b'{"sessions": ["xx"]}'),
    "a JSON bomb": lambda f, p, s: closing(p, s, close=b"[" * 200_000),
    "of a silo": lambda f, p, s: [
        p.sealed("bob", Tag.CLOSE, b"{}", session=s.rounds.session, receiver=EVERYBODY),
        f[1],
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_false_end_leaves_no_model_and_no_words(gather: Any, end: Any) -> None:
    parties = gather()
    session = opened(parties)
    session.round(1)
    frames = end(closing(parties, session), parties, session)
    found = parties.ask("ann", Call.CLOSE, session.rounds.session, frames)
    why, culprit = refusal(found)
    assert why == "protocol"
    assert culprit in ("relay", "aggregator")
    assert models(parties, "ann") == []
    assert session.round(2)[1] == 1


@pytest.mark.slow
def test_no_end_before_the_session_is_set_up(gather: Any) -> None:
    parties = gather()
    session = opened(parties)
    parties.start("ann")
    name = session.rounds.session
    frames = closing(parties, session)
    assert refusal(parties.ask("ann", Call.CLOSE, name, frames)) == ("no-session", "")
    parties.ask("ann", Call.OPEN, name, [open_frame(parties, name)])
    assert refusal(parties.ask("ann", Call.CLOSE, name, frames))[0] in ("no-session", "protocol")
    assert models(parties, "ann") == []


PARTS = {
    "nothing": b"{}",
    "not json": b"\xff",
    "a list": b"[]",
    "a number": b"7",
    "deep": b"[" * 200_000,
    "deep in a table": b'{"silo": ' + b"[" * 900 + b"]" * 900 + b"}",
    "of the wrong kinds": b'{"silo": 5, "attempts": "x", "sessions": 3, "ledger": []}',
    "nan": b'{"silo": "bob", "attempts": NaN}',
    "of another": b'{"silo": "ann", "attempts": 4, "signature": "00"}',
}


@pytest.mark.slow
@pytest.mark.parametrize("payload", PARTS.values(), ids=PARTS)
def test_what_a_silo_says_in_the_end_cannot_stop_the_evidence(gather: Any, payload: bytes) -> None:
    parties = gather(training={"steps": 1})

    def lie(blob: Any) -> bytes:
        said = read_answer(blob)
        if not said:  # the end is told once more
            return blob
        session = unverified(said[0]).session
        return answer([parties.sealed("bob", Tag.CLOSED, payload, session=session)])

    relay = Relay(parties.phase, tells=at("close", lie, "bob"))
    result = parties.serve(relay, timeouts=HASTY)
    told = json.loads((parties.home / "run" / "evidence.json").read_text())
    assert [one["silo"] for one in told["silos"]] == ["ann", "cyn"]
    assert result.final["step"] == 1


@pytest.mark.slow
def test_requests_are_made_of_calls_and_frames_alone(gather: Any) -> None:
    """What the relay sees of a request: the call, the session, and frames that it could forge."""
    parties = gather()
    relay = Relay(parties.phase)
    session = opened(parties, relay)
    session.round(1)
    for name, _, asked, told in relay.tape:
        call = Call[name.upper()]
        assert asked[:6] == request(call, bytes(16))[:6]
        for part in read_answer(told) if isinstance(told, bytes) else []:
            assert unverified(part).sender > 0
