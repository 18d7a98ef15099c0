"""Who carries the bytes can lose and delay them; whatever else it does is refused, and named.

An endpoint is asked directly where one answer says it all, and through a session where it takes
several parties. After every test the laws of `Watched` hold: no answer without a row in the ledger,
no two different answers for one place, no mask key twice.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any
from unittest import mock

import numpy as np
import pytest

from hubbub.core.errors import ProtocolError
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.planning.query import SteppedQuery
from hubbub.core.protocol.agreement.key_agreement import RollCall
from hubbub.core.protocol.primitives.wire import EVERYBODY, VERSION, Tag, unverified
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.session.ask import AbsentError, Call
from hubbub.core.session.offer import RefusedError, SessionOffer, layout_of
from hubbub.core.session.setup import SetUp, _RolledSetUp
from hubbub.core.study.data import Standardise
from hubbub.core.tabular.records import Standardisation
from hubbub.learning.queries.training_query import TRAINING
from hubbub.site.network.envelope import NO_SESSION, answer, read_answer, read_request, request
from hubbub.site.network.event_log import EventLog
from hubbub.site.network.party_folder import ROSTER
from hubbub.site.network.requests import Requests
from hubbub.site.network.silo_endpoint import SiloEndpoint
from hubbub.site.network.waiting import Timeouts, WaitedError
from network.relay import (
    HASTY,
    NAMES,
    Relay,
    Watched,
    at,
    flipped,
    lost,
    on_asked,
    on_parts,
    open_frame,
    opened,
    refusal,
    terms_for,
)

NODES = pytest.mark.parametrize("nodes", [0, 2], ids=["pairwise", "nodes"])
SESSION = bytes(range(16))
ANOTHERS = "from {}, an unusable message: .*got one of something else: what reached it breaks"
NEW = bytes(range(16, 32))


def rounds(parties: Watched) -> int:
    """Rows that the silos' ledgers hold, all together."""
    return sum(len(parties.rows(name)) for name in NAMES)


def said(parties: Watched, words: str) -> bool:
    return any(re.search(words, line) for line in parties.said)


# What opens a session --------------------------------------------------------------------------


def opening(parties: Watched, name: str, frame: bytes) -> list[bytes]:
    return parties.ask(name, Call.OPEN, SESSION, [frame])


@NODES
def test_a_true_opening_is_answered_and_an_old_one_is_not(gather: Any, nodes: int) -> None:
    parties = gather(nodes)
    true = open_frame(parties, SESSION)
    assert unverified(opening(parties, "ann", true)[0]).tag is Tag.READY
    assert refusal(opening(parties, "ann", true)) == ("protocol", "relay")
    assert refusal(opening(parties, "bob", flipped(true))) == ("protocol", "relay")
    assert refusal(parties.ask("bob", Call.OPEN, SESSION, [])) == ("protocol", "relay")
    assert refusal(parties.ask("bob", Call.OPEN, SESSION, [true, true])) == ("protocol", "relay")


def test_p15_an_old_opening_is_refused_by_a_new_process_too(gather: Any) -> None:
    """Nothing was charged in it, so that no row of the ledger tells of it.

    Nobody is blamed: an honest aggregator asks again what a process that was killed never answered.
    """
    parties = gather()
    true = open_frame(parties, SESSION)
    assert unverified(opening(parties, "ann", true)[0]).tag is Tag.READY
    parties.start("ann")
    assert refusal(opening(parties, "ann", true)) == ("no-session", "")


def test_p15_an_old_opening_is_refused_by_what_the_ledger_says_alone(
    gather: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notes of sessions may be lost: a row that was charged in one tells of it, too."""
    parties = gather()
    true = open_frame(parties, SESSION)
    charged = mock.Mock(study=parties.study.id, session=SESSION)
    monkeypatch.setattr(Ledger, "entries", lambda _: iter([charged]))
    assert refusal(opening(parties, "ann", true)) == ("no-session", "")
    charged.session = b"o" * 16
    assert unverified(opening(parties, "ann", open_frame(parties, b"n" * 16))[0]).tag is Tag.READY


@pytest.mark.parametrize("shift", [5.0, 5.001])
def test_a_standardisation_beyond_the_studys_bound_is_refused(shift: float) -> None:
    """A shift far from all records would make them alike, and with them the work that they are."""
    asked, query = Standardise(bound=5.0, epsilon=1.0), mock.Mock(takes_raw_records=False)
    sent = Standardisation(shift=np.float32([0, shift]), scale=np.float32([1, 1]))
    plain, offer = mock.Mock(), mock.Mock(standardisation=sent)
    plain.study.data.standardise = asked
    plain.silos = [mock.Mock(records=mock.Mock(inputs=np.zeros((3, 2))))]
    with nullcontext() if shift <= asked.bound else pytest.raises(RefusedError, match="shifts and"):
        found = SiloEndpoint._featured(mock.Mock(), plain, query, offer)
        assert found is plain.standardised.return_value


@pytest.mark.parametrize(("dropouts", "paid", "most"), [(1, 9, 3), (1, 0, 3), (0, 2, 2), (0, 9, 3)])
def test_a_fourth_model_carries_three_sums_at_most_and_none_that_a_silo_must_have_paid_for(
    dropouts: int, paid: int, most: int
) -> None:
    query = mock.Mock(spec=SteppedQuery, is_asked_last=False)
    query.misfit.return_value = ""
    state = mock.Mock(result=None)
    state.study.parties.dropouts = dropouts
    me = mock.Mock(_sessions={("study", "statistics"): state})
    me.party_folder.notes.result.return_value, me._paid.return_value = b"", paid
    planned, attempt = mock.Mock(query=query), mock.Mock(round=4)
    SiloEndpoint._check_state(me, ("study", "statistics"), planned, attempt)
    assert query.misfit.call_args.args[-1] == most


def other(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, tuple):
        return [*value, 1]
    return value + "x" if isinstance(value, str) else value * 2 + 1


TERMS = list(RoundParameters.__dataclass_fields__)


@pytest.mark.quick_cases("projection", "batch", "nodes")
@pytest.mark.parametrize("field", TERMS)
def test_terms_that_do_not_follow_from_the_study_here_are_refused(gather: Any, field: str) -> None:
    parties = gather()
    mine = asdict(terms_for(parties)[1])[field]
    for number, told in enumerate((other(mine), None, [mine], float("nan"), str(mine) + " ")):
        frame = open_frame(parties, bytes([number]) * 16, {field: told})
        assert refusal(opening(parties, "ann", frame)) == ("plan", "")
        assert f"expected {field} = " in parties.said[-1]


@pytest.mark.parametrize("told", [{"more": 1}, {"sigma_grid": 15.999}, {"quorum": True}])
def test_terms_with_anything_else_are_refused(gather: Any, told: dict[str, Any]) -> None:
    parties = gather()
    assert refusal(opening(parties, "ann", open_frame(parties, SESSION, told))) == ("plan", "")


def test_another_version_with_other_terms_is_told_apart(gather: Any) -> None:
    parties = gather()
    frame = open_frame(parties, SESSION, {"steps": 9}, version="0.0.1\x1b[2J")
    assert refusal(opening(parties, "ann", frame)) == ("version", "")
    assert "runs hubbub 0.0.1?[2J" in parties.said[-1]


@pytest.mark.slow
@pytest.mark.parametrize("purpose", ["evaluation", "standardisation", "", "training ", 7, None])
def test_a_purpose_that_the_study_does_not_have_is_refused(gather: Any, purpose: Any) -> None:
    parties = gather()
    frame = open_frame(parties, SESSION, purpose=purpose)
    assert refusal(opening(parties, "ann", frame)) == ("plan", "")


BOMBS = {
    "nothing": b"",
    "not json": b"\xff\xfe",
    "a list": b"[]",
    "deep": b"[" * 200_000,
    "deeper": b'{"purpose":' * 100_000,
    "a huge number": b'{"terms": ' + b"9" * 100_000 + b"}",
    "terms are a number": b'{"purpose": "training", "terms": 3, "version": "1"}',
    "nothing of standardisation": b'{"purpose": "training", "terms": {}, "version": "1"}',
}


@pytest.mark.slow_cases(
    "nothing-pairwise",
    "not json-nodes",
    "a list-pairwise",
    "deep-nodes",
    "deeper-pairwise",
    "a huge number-nodes",
    "terms are a number-pairwise",
    "nothing of standardisation-nodes",
)
@NODES
@pytest.mark.parametrize("payload", BOMBS.values(), ids=BOMBS)
def test_an_opening_that_cannot_be_read_names_the_aggregator(
    gather: Any, nodes: int, payload: bytes
) -> None:
    parties = gather(nodes)
    frame = parties.sealed("aggregator", Tag.OPEN, payload, session=SESSION, receiver=EVERYBODY)
    for name in parties.seats:
        assert refusal(opening(parties, name, frame)) == ("protocol", "aggregator")


FOUR = [1.0] * 4
BAD = {
    "nan": {"shift": [float("nan"), *FOUR[1:]], "scale": FOUR},
    "infinite": {"shift": FOUR, "scale": [float("inf"), *FOUR[1:]]},
    "too large for the type": {"shift": FOUR, "scale": [1e300, *FOUR[1:]]},
    "negative": {"shift": FOUR, "scale": [-1.0, *FOUR[1:]]},
    "zero": {"shift": FOUR, "scale": [0.0, *FOUR[1:]]},
    "zero in the type": {"shift": FOUR, "scale": [1e-60, *FOUR[1:]]},
    "one half": {"shift": FOUR},
    "unequal": {"shift": FOUR, "scale": FOUR[1:]},
    "ragged": {"shift": [FOUR, [1.0]], "scale": FOUR},
    "words": {"shift": ["a"] * 4, "scale": FOUR},
    "a list": [FOUR, FOUR],
    "a number": 7,
}
SHAPES = {
    "short": {"shift": FOUR[1:], "scale": FOUR[1:]},
    "long": {"shift": [*FOUR, 1.0], "scale": [*FOUR, 1.0]},
    "a matrix": {"shift": [FOUR], "scale": [FOUR]},
    "a scalar": {"shift": 1.0, "scale": 1.0},
    "none": None,
    "empty": {},
}
STANDARDISED: dict[str, Any] = {
    "data": {"standardise": {"bound": 2.0, "epsilon": 1.0}},
    "privacy": {"epsilon": 5.0},
}


@pytest.mark.parametrize("told", BAD.values(), ids=BAD)
def test_a_standardisation_that_is_none_is_refused(gather: Any, told: Any) -> None:
    parties = gather(**STANDARDISED)
    frame = open_frame(parties, SESSION, standardisation=told)
    assert refusal(opening(parties, "ann", frame)) == ("protocol", "aggregator")


@pytest.mark.parametrize("told", SHAPES.values(), ids=SHAPES)
def test_a_standardisation_of_another_shape_is_refused(gather: Any, told: Any) -> None:
    parties = gather(**STANDARDISED)
    frame = open_frame(parties, SESSION, standardisation=told)
    assert refusal(opening(parties, "ann", frame)) == ("plan", "")


def test_a_standardisation_where_the_study_has_none_is_refused(gather: Any) -> None:
    parties = gather()
    frame = open_frame(parties, SESSION, standardisation={"shift": FOUR, "scale": FOUR})
    assert refusal(opening(parties, "ann", frame)) == ("plan", "")


def test_a_study_that_was_approved_elsewhere_is_refused(gather: Any) -> None:
    ours, theirs = gather(), gather(training={"steps": 3})
    assert refusal(opening(ours, "ann", open_frame(theirs, SESSION))) == ("not-approved", "")


def test_another_study_of_the_same_roster_is_refused(gather: Any) -> None:
    parties = gather()
    foreign = parties.sealed(
        "aggregator", Tag.OPEN, b"{}", session=SESSION, receiver=EVERYBODY, study=bytes(32)
    )
    assert refusal(opening(parties, "ann", foreign)) == ("not-approved", "")


def test_a_study_whose_file_was_altered_is_refused(gather: Any) -> None:
    parties = gather()
    path = parties.home / "ann" / "approved" / f"{parties.study.id.hex()}.toml"
    path.write_text(path.read_text().replace("steps = 4", "steps = 400"))
    frame = open_frame(parties, SESSION)
    assert refusal(opening(parties, "ann", frame)) == ("failed", "")
    assert "it was altered" in parties.said[-1]


def test_a_study_is_not_believed_beside_another_roster(gather: Any) -> None:
    ours, theirs = gather(), gather()
    frame = open_frame(ours, SESSION)
    text = (theirs.home / "ann" / ROSTER).read_text()
    (ours.home / "ann" / ROSTER).write_text(text)
    ours.start("ann")
    assert refusal(opening(ours, "ann", frame)) == ("failed", "")


@pytest.mark.parametrize("sender", ["bob", "node-1"])
def test_nobody_but_the_aggregator_opens_a_session(gather: Any, sender: str) -> None:
    parties = gather(2)
    payload = bytes(unverified(open_frame(parties, SESSION)).payload)
    frame = parties.sealed(sender, Tag.OPEN, payload, session=SESSION, receiver=EVERYBODY)
    assert refusal(opening(parties, "ann", frame)) == ("protocol", "relay")


@pytest.mark.parametrize("tag", [Tag.MODEL, Tag.CLOSE, Tag.READY])
def test_an_opening_has_its_own_tag(gather: Any, tag: Tag) -> None:
    parties = gather()
    payload = bytes(unverified(open_frame(parties, SESSION)).payload)
    frame = parties.sealed("aggregator", tag, payload, session=SESSION, receiver=EVERYBODY)
    assert refusal(opening(parties, "ann", frame)) == ("protocol", "relay")


# Parcels ---------------------------------------------------------------------------------------


def parcels() -> dict[str, bytes]:
    true = request(Call.OPEN, NO_SESSION, [b"part"])
    return {
        "empty": b"",
        "four bytes": b"hub?",
        "another kind": b"hub!" + true[4:],
        "another version": true[:4] + bytes([VERSION + 1]) + true[5:],
        "an unknown call": true[:5] + b"\xff" + true[6:],
        "cut in the session": true[:15],
        "cut in a length": true[:-7],
        "cut in a part": true[:-1],
        "longer": true + b"x",
        "a part of all the memory there is": true[:22] + b"\xff" * 8 + b"part",
        "a million parts": true[:22] + bytes(8 * ((1 << 20) + 1)),
        "megabytes": b"\0" * (1 << 24),
    }


@pytest.mark.quick_cases(
    "an unknown call-pairwise", "empty-pairwise", "empty-nodes", "four bytes-pairwise"
)
@pytest.mark.slow_cases("a million parts-nodes")
@NODES
@pytest.mark.parametrize("blob", parcels().values(), ids=parcels())
def test_a_request_that_is_no_parcel_names_the_relay(gather: Any, nodes: int, blob: bytes) -> None:
    parties = gather(nodes)
    for name in ("ann", "node-1")[: 1 + bool(nodes)]:
        why = (
            ("version", "")
            if blob[:4] == b"hub?" and blob[4:5] == bytes([VERSION + 1])
            else ("protocol", "relay")
        )
        assert refusal(read_answer(parties.answers(name)(blob))) == why


@pytest.mark.slow
@pytest.mark.parametrize("blob", parcels().values(), ids=parcels())
def test_an_answer_that_is_no_parcel_counts_as_none(gather: Any, blob: bytes) -> None:
    parties = gather()
    relay = Relay(parties.phase, tells=at("contribute", lambda _: blob, "bob"))
    with pytest.raises(
        ProtocolError, match=r"bob: .* is being asked again|every party could check"
    ):
        opened(parties, relay)
    assert rounds(parties) == 0


@pytest.mark.slow
@pytest.mark.parametrize("call", list(Call))
@pytest.mark.parametrize("parts", [[], [b""], [b"x" * 300]], ids=["none", "empty", "junk"])
def test_no_call_with_junk_is_answered(gather: Any, call: Call, parts: list[bytes]) -> None:
    parties = gather()
    opening(parties, "ann", open_frame(parties, SESSION))
    if call is Call.PING:
        assert parties.ask("ann", call, SESSION, parts) == []
    else:
        why, culprit = refusal(parties.ask("ann", call, SESSION, parts))
        assert why in ("protocol", "no-session")
        assert culprit in ("relay", "")


def test_a_call_of_a_session_that_was_never_opened_is_refused(gather: Any) -> None:
    parties = gather(2)
    for name in parties.seats:
        for call in Call:
            if call not in (Call.PING, Call.OPEN):
                why, culprit = refusal(parties.ask(name, call, NEW))
                assert (why, culprit) in (("no-session", ""), ("protocol", "relay"))


def test_a_silo_is_no_node_and_a_node_no_silo(gather: Any) -> None:
    parties = gather(2)
    session = opened(parties)
    for name, call in (("ann", Call.TOTAL), ("node-1", Call.MODEL), ("node-1", Call.CLOSE)):
        found = parties.ask(name, call, session.rounds.session)
        assert refusal(found) == ("protocol", "relay")


# The set-up ------------------------------------------------------------------------------------

PHASES = [
    (0, "commit"),
    (0, "reveal"),
    (0, "contribute"),
    (0, "confirm"),
    (0, "finish"),
    (2, "contribute"),
    (2, "confirm"),
    (2, "finish"),
]
JOINT = {"projection": 3, "projection_kind": "layers"}
EVERY_PHASE = pytest.mark.parametrize(("nodes", "call"), PHASES)


@pytest.mark.slow
@EVERY_PHASE
def test_a_corrupted_request_in_set_up_is_refused_and_made_good(
    gather: Any, nodes: int, call: str
) -> None:
    if (nodes, call) in ((0, "commit"), (2, "contribute")):
        pytest.skip("these requests are empty")
    parties = gather(nodes)
    relay = Relay(parties.phase, asks=at(call, flipped, "ann", times=1))
    session = opened(parties, relay)
    assert session.round(1)[1] == 1
    assert said(parties, ANOTHERS.format("ann"))


@pytest.mark.slow
@EVERY_PHASE
def test_a_lost_answer_in_set_up_is_waited_for(gather: Any, nodes: int, call: str) -> None:
    parties = gather(nodes)
    relay = Relay(parties.phase, tells=at(call, lost, "bob", times=1))
    assert opened(parties, relay).round(1)[1] == 1
    assert said(parties, r"waiting for bob \(no answer in time")


STRIPPED: dict[str, tuple[str, Callable[[list[bytes]], list[bytes]], int]] = {
    "a commitment": ("commit", lambda _: [], 0),
    "a seed": ("reveal", lambda _: [], 0),
    "all keys": ("contribute", lambda _: [], 0),
    "all keys to nodes": ("contribute", lambda _: [], 2),
    "one key": ("contribute", lambda parts: parts[1:], 0),
    "the checks": ("confirm", lambda parts: parts[:1], 0),
    "a digest": ("confirm", lambda parts: parts[1:], 0),
    "an anchor": ("open", lambda parts: parts[:1], 2),
    "a word of its own": ("commit", lambda parts: [*parts, *parts], 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", STRIPPED)
def test_a_relay_that_takes_parts_of_an_answer_away_has_nobody_blamed(
    gather: Any, what: str
) -> None:
    call, change, nodes = STRIPPED[what]
    projected = {"projection": 3, "projection_kind": "layers"}  # the kind that is soonest planned
    changes = {"training": {"steps": 4, "sample_rate": 1.0, **projected}}
    parties = gather(nodes, **(changes if call == "open" else {}))
    relay = Relay(parties.phase, tells=at(call, on_parts(change), "ann"))
    with pytest.raises(ProtocolError, match=r"ann: .*expected \d frames, got \d") as stopped:
        opened(parties, relay)
    assert stopped.value.culprit == ""
    assert rounds(parties) == 0


@pytest.mark.slow
@EVERY_PHASE
def test_a_relay_that_corrupts_every_set_up_ends_the_run(
    gather: Any, nodes: int, call: str
) -> None:
    parties = gather(nodes)
    relay = Relay(parties.phase, tells=at(call, on_parts(lambda p: [flipped(x) for x in p]), "bob"))
    if call == "finish":
        return  # its answer is empty: nothing to corrupt
    with pytest.raises(ProtocolError, match="who carries the messages") as refused:
        opened(parties, relay)
    assert refused.value.culprit == "relay"
    assert rounds(parties) == 0


@pytest.mark.slow
@EVERY_PHASE
def test_frames_of_another_silo_are_not_taken_for_ones_own(
    gather: Any, nodes: int, call: str
) -> None:
    """The relay hands in bob's answer as ann's."""
    parties = gather(nodes)
    kept: dict[str, bytes] = {}

    def tells(name: str, party: str, blob: Any) -> Any:
        if name == call and party == "bob":
            kept["bob"] = blob
        return kept.get("bob", blob) if name == call and party == "ann" else blob

    def in_order(name: str, asked: Any, deadline: float) -> Iterator[tuple[str, Any]]:
        yield from sorted(parties.phase(name, asked, deadline), reverse=True)  # bob before ann

    relay = Relay(in_order, tells=tells)
    if call == "finish":
        return  # its answer is empty
    with pytest.raises(ProtocolError) as refused:
        opened(parties, relay)
    assert refused.value.culprit == "relay"
    assert said(parties, "expected frames of ann, got another's")


@pytest.mark.slow
@NODES
def test_an_old_set_up_played_to_a_restarted_silo_is_refused(gather: Any, nodes: int) -> None:
    parties = gather(nodes)
    relay = Relay(parties.phase)
    session = opened(parties, relay).rounds.session
    parties.start("ann")
    calls = ("open", "commit", "reveal", "contribute", "confirm", "finish")
    answers = [parties.answers("ann")(b) for call in calls for b in relay.asked(call, "ann")]
    # Frames of a second life beside those of the first would blame her; and who asks may have lost
    # the answer to a process that was killed, so nobody is blamed.
    assert refusal(read_answer(answers[0])) == ("no-session", "")
    assert all(unverified(read_answer(one)[0]).tag is Tag.REFUSAL for one in answers)
    assert parties.ask("ann", Call.PING, session) == []
    model = parties.sealed("aggregator", Tag.MODEL, session=session, receiver=EVERYBODY, round=1)
    assert refusal(parties.ask("ann", Call.MODEL, session, [model])) == ("no-session", "")
    assert rounds(parties) == 0


@pytest.mark.slow
@NODES
def test_a_set_up_cannot_be_begun_again_in_its_session(gather: Any, nodes: int) -> None:
    """Of a set-up the aggregator signs the ROLL alone, which a relay has: it could play one, and
    then replay every MODEL of the session to silos that would take it for new, and pay again."""
    parties = gather(nodes)
    relay = Relay(parties.phase)
    session = opened(parties, relay)
    session.round(1)
    paid = rounds(parties)
    first = Call.CONTRIBUTE if nodes else Call.COMMIT
    for name in parties.seats:
        found = parties.ask(name, first, session.rounds.session, session.rounds.opening)
        assert refusal(found)[0] in ("protocol", "no-session")
    assert rounds(parties) == paid


@pytest.mark.slow
@NODES
def test_a_relay_alone_cannot_have_a_model_answered_again(gather: Any, nodes: int) -> None:
    """The whole of that attack: only the relay speaks, and nobody pays twice."""
    parties = gather(nodes)
    relay = Relay(parties.phase)
    session = opened(parties, relay)
    session.round(1)
    paid, name = rounds(parties), session.rounds.session
    played = alone(parties, name, session.rounds.opening[0])
    for silo in NAMES:
        parties.answers(silo)(relay.asked("model", silo)[0])
    assert rounds(parties) == paid, f"the relay played {played} phases, and had it answered"


def alone(parties: Watched, session: bytes, roll: bytes) -> int:
    """A set-up in an open session by nobody but the relay; how many phases were answered."""
    plan, round_parameters = terms_for(parties)
    roster, study, event_log = parties.aggregator.roster, parties.study.id, EventLog(party="relay")
    setup = SetUp(
        peers=Requests(roster, study, parties.phase, event_log, Timeouts()),
        keys=parties.aggregator.keys,
        study=study,
        layout=layout_of(plan),
        round_parameters=round_parameters,
        offer=SessionOffer.of(TRAINING, round_parameters),
        session=session,
    )
    before = len(parties.said)
    try:
        call = RollCall(setup.channel, quorum=3)
        _RolledSetUp(setup, call.take(roll), roll)._agree([])
    except AbsentError:
        return 0
    return len(parties.said) - before


@pytest.mark.slow
@NODES
def test_digests_and_frames_moved_between_parcels_are_refused(gather: Any, nodes: int) -> None:
    parties = gather(nodes)

    def swapped(parts: list[bytes]) -> list[bytes]:
        return [parts[0], *parts[2:], parts[1]] if len(parts) > 2 else parts[:1]

    def less(parts: list[bytes]) -> list[bytes]:
        return parts[:-1]

    calm = Relay(parties.phase, asks=at("confirm", on_asked(swapped), "ann", times=1))
    assert opened(parties, calm).round(1)[1] == 1  # their order means nothing
    for call in ("confirm", "finish"):
        relay = Relay(parties.phase, asks=at(call, on_asked(less), "ann", times=1))
        assert opened(parties, relay).round(1)[1] == 1
        assert said(parties, ANOTHERS.format("ann"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nodes", "victim", "training"),
    [(0, "ann", {}), (2, "ann", {}), (2, "node-1", {}), (2, "ann", JOINT), (2, "node-1", JOINT)],
)
def test_a_relay_that_shows_two_parties_different_digests_is_named(
    gather: Any, nodes: int, victim: str, training: dict[str, Any]
) -> None:
    """Not the party whose proofs of common secrets cover what it was shown."""
    parties = gather(nodes, training=training)

    def other_digest(parts: list[bytes]) -> list[bytes]:
        return [flipped(parts[0], -1), *parts[1:]]  # the last party's, as the victim is told it

    relay = Relay(parties.phase, asks=at("confirm", on_asked(other_digest), victim))
    with pytest.raises(ProtocolError) as refused:
        opened(parties, relay)
    assert refused.value.culprit == "relay"


def test_a_relay_that_shows_two_silos_different_openings_is_caught(gather: Any) -> None:
    """Both are signed, and each follows from the study; only the standardisation differs."""
    parties = gather(**STANDARDISED)
    first, second = ({"shift": FOUR, "scale": [scale] * 4} for scale in (1.0, 2.0))

    def asks(name: str, party: str, blob: bytes) -> bytes:
        if name != "open":
            return blob
        told = second if party == "cyn" else first
        session = unverified(read_request(blob)[2][0]).session
        return request(Call.OPEN, NO_SESSION, [open_frame(parties, session, standardisation=told)])

    with pytest.raises(ProtocolError) as refused:
        opened(parties, Relay(parties.phase, asks=asks))
    assert refused.value.culprit == "relay"
    assert said(parties, "the parties were shown different things")


# Refusals --------------------------------------------------------------------------------------


def no(parties: Watched, party: str, why: Any, culprit: Any = "", asked: bytes = b"") -> bytes:
    """A refusal of a request that a party signs."""
    to = hashlib.sha256(asked).hexdigest()
    payload = json.dumps({"why": why, "culprit": culprit, "to": to}).encode()
    where = {"session": NO_SESSION, "study": bytes(32)}
    return answer([parties.sealed(party, Tag.REFUSAL, payload, **where)])


@pytest.mark.slow
def test_a_refusal_that_the_relay_makes_up_counts_as_a_broken_answer(gather: Any) -> None:
    parties = gather()
    frame = no(parties, "bob", "not-approved")
    relay = Relay(parties.phase, tells=at("open", lambda _: flipped(frame), "bob", times=1))
    assert opened(parties, relay).round(1)[1] == 1
    assert not said(parties, "bob refuses")
    assert said(parties, "false signature")


@pytest.mark.slow
def test_another_partys_refusal_is_not_ones_own(gather: Any) -> None:
    parties = gather()
    frame = no(parties, "ann", "not-approved")
    relay = Relay(parties.phase, tells=at("open", lambda _: frame, "bob", times=1))
    assert opened(parties, relay).round(1)[1] == 1
    assert said(parties, "expected frames of bob, got another's")


@pytest.mark.slow
def test_a_refusal_of_another_session_is_not_one_of_this(gather: Any) -> None:
    """Signed once, when it was true; carried here by whoever kept it."""
    parties = gather()
    relay = Relay(parties.phase)
    session = opened(parties, relay)
    old = parties.answers("bob")(request(Call.MODEL, session.rounds.session, [b"junk"]))
    assert refusal(read_answer(old)) == ("protocol", "relay")
    relay.tells = at("contribute", lambda _: old, "bob", times=1)
    opened(parties, relay)
    assert not said(parties, "bob refuses: what reached it breaks the protocol")
    assert said(parties, ANOTHERS.format("bob"))


REFUSED = [
    ("no-reason", ""),
    (None, ""),
    ("protocol", "mallory"),
    ("protocol", "ann and mallory"),
    ("protocol", "ann and ann"),
    ("protocol", " and "),
    ("protocol", ["ann"]),
    ("protocol", "ann\n\x1b[2Jeverything is well"),
    ({}, {}),
]


@pytest.mark.quick_cases("None-")
@pytest.mark.slow_cases("protocol-mallory", "protocol- and ", "protocol-ann and ann", "no-reason-")
@pytest.mark.parametrize(("why", "culprit"), REFUSED)
def test_a_refusal_in_words_of_its_own_names_who_signed_it(
    gather: Any, why: Any, culprit: Any
) -> None:
    parties = gather()
    relay = Relay(
        parties.phase, tells=at("open", lambda _: no(parties, "bob", why, culprit), "bob")
    )
    with pytest.raises(ProtocolError, match="refusal for a known reason") as refused:
        opened(parties, relay)
    assert refused.value.culprit == "bob"
    assert not any("\x1b" in line for line in parties.said)


@pytest.mark.slow
def test_a_refusal_may_blame_two_who_did_it_together(gather: Any) -> None:
    """Which is believed as little as one name is: somebody on the way may have done it."""
    parties = gather()
    relay = Relay(parties.phase)
    both = "ann and cyn"
    relay.tells = at(
        "commit", lambda _: no(parties, "bob", "protocol", both, relay.tape[-1][2]), "bob", times=1
    )
    assert opened(parties, relay).round(1)[1] == 1
    assert said(parties, f"by {both}")


def test_a_silo_cannot_have_another_blamed_by_its_word_alone(gather: Any) -> None:
    """bob says again and again that ann broke the protocol; nobody else saw that."""
    parties = gather()
    relay = Relay(parties.phase)
    relay.tells = at(
        "commit", lambda _: no(parties, "bob", "protocol", "ann", relay.tape[-1][2]), "bob"
    )
    with pytest.raises(ProtocolError, match="bob") as refused:
        opened(parties, relay)
    assert refused.value.culprit != "ann"


@pytest.mark.slow
def test_as_many_as_may_collude_cannot_have_another_blamed(gather: Any) -> None:
    """bob and cyn say again and again that ann broke the protocol; the study counts on two."""
    parties = gather(parties={"names": [*NAMES, "dan"], "colluders": 2})
    relay = Relay(parties.phase)

    def liars(name: str, party: str, blob: Any) -> Any:
        if name != "commit" or party not in ("bob", "cyn"):
            return blob
        return no(parties, party, "protocol", "ann", relay.tape[-1][2])

    relay.tells = liars
    with pytest.raises(ProtocolError, match="bob") as refused:
        opened(parties, relay)
    assert refused.value.culprit != "ann"


# READY -----------------------------------------------------------------------------------------

COUNTS = {
    "negative": {"training": -1},
    "huge": {"training": 10**30},
    "a float": {"training": 1.0},
    "nan": {"training": float("nan")},
    "infinite": {"training": float("inf")},
    "a string": {"training": "3"},
    "true": {"training": True},
    "a list": [["training", 3]],
    "nothing": None,
}


def ready(parties: Watched, payload: bytes, tag: Tag = Tag.READY) -> Any:
    """bob's answer to OPEN, with another payload."""

    def changed(blob: Any) -> bytes:
        session = unverified(read_answer(blob)[0]).session
        return answer([parties.sealed("bob", tag, payload, session=session)])

    return at("open", changed, "bob")


@pytest.mark.quick_cases("huge")
@pytest.mark.slow_cases("a float", "infinite", "nan", "true")
@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
def test_absurd_counts_of_attempts_name_who_signed_them(gather: Any, counts: Any) -> None:
    parties = gather()
    payload = json.dumps({"attempts": counts}).encode()
    with pytest.raises((ProtocolError, WaitedError), match="bob: its READY cannot be used"):
        opened(parties, Relay(parties.phase, tells=ready(parties, payload)))


SMALL_BOMBS = {
    **dict(list(BOMBS.items())[:3]),
    "deep": b"[" * 4_000,
    "deeper": b'{"purpose":' * 380,
    "a huge number": b'{"attempts": ' + b"9" * 4_350 + b"}",
}


@pytest.mark.quick_cases("deep")
@pytest.mark.parametrize("name", ["deep", "deeper", "a huge number"])
def test_a_ready_larger_than_any_is_not_read(gather: Any, name: str) -> None:
    parties = gather()
    with pytest.raises(ProtocolError, match=r"bob: .*expected an answer of 5,\d+ bytes at most"):
        opened(parties, Relay(parties.phase, tells=ready(parties, BOMBS[name])))


@pytest.mark.quick_cases("a list")
@pytest.mark.parametrize("payload", SMALL_BOMBS.values(), ids=SMALL_BOMBS)
def test_a_ready_that_cannot_be_read_names_who_signed_it(gather: Any, payload: bytes) -> None:
    parties = gather()
    with pytest.raises((ProtocolError, WaitedError), match="bob: its READY cannot be used"):
        opened(parties, Relay(parties.phase, tells=ready(parties, payload)))


@pytest.mark.slow
def test_a_ready_has_its_own_tag(gather: Any) -> None:
    parties = gather()
    with pytest.raises((ProtocolError, WaitedError), match="bob: its READY cannot be used"):
        opened(parties, Relay(parties.phase, tells=ready(parties, b"{}", Tag.CLOSED)))


@pytest.mark.slow
@pytest.mark.parametrize("count", [4, 10**6], ids=["all", "more"])
def test_a_silo_that_says_all_is_spent_is_told_of_and_the_study_goes_on(
    gather: Any, count: int
) -> None:
    """What one says alone may be a lie; so it is, of attempts that nobody has asked for."""
    parties = gather()
    payload = json.dumps({"attempts": {"training": count}}).encode()
    result = parties.serve(Relay(parties.phase, tells=ready(parties, payload)), timeouts=HASTY)
    assert result.final["step"] == 4
    assert said(parties, f"bob states that it paid for {count} attempts")  # on disk, too
    assert parties.aggregator.notes.most_paid(parties.study.id, "training", {})[2] == count
