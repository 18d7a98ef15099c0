"""A set-up in which evidence is asked for: honest parties pass, and every attack is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from unittest import mock

import pytest
from tests.site.attestation.parties import NOW, Parties, role_of, software, study_of

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.primitives.identity import Keys
from hubbub.core.protocol.primitives.wire import Frame, Tag, sender_of, tag_of, unverified
from hubbub.core.session import party
from hubbub.core.session.ask import AbsentError, Call
from hubbub.core.session.attestation_exchange import AttestedHashes, AttestedSession
from hubbub.core.session.offer import RefusedError
from hubbub.core.verification.attestation.policy import PlatformEvidence

ALL = {role: role_of() for role in ("aggregator", "silo", "node")}
SILOS = {"silo": role_of()}
TOLD = (Call.COMMIT, Call.REVEAL, Call.CONTRIBUTE)  # calls by which silos tell something
TCB = {"silo": role_of(more=",minimum_tcb={svn=2}")}


def refusal(parties: Parties) -> tuple[str, str, str]:
    """Why a set-up ends, who is named, and the sentence; before any silo has told anything."""
    with pytest.raises((RefusedError, ProtocolError, AbsentError)) as caught:
        parties.open_session()
    error = caught.value
    assert not set(TOLD) & set(parties.set_up.peers.asked)
    if isinstance(error, AbsentError):
        (one,) = error.absent.values()
        return one.why, one.culprit, one.said
    return getattr(error, "why", "protocol"), error.culprit, str(error)


@pytest.mark.parametrize("nodes", [0, 2])
def test_honest_parties_set_a_session_up(nodes: int) -> None:
    asked = ALL if nodes else {"aggregator": role_of(), **SILOS}
    parties = Parties(study=study_of(asked, nodes))
    rounds = parties.open_session()
    tags = [tag_of(frame) for frame in rounds.opening]
    assert tags == [Tag.OPEN, Tag.ROLL] + 3 * [Tag.NONCE] + (4 + nodes) * [Tag.EVIDENCE]
    agreed = [party.agreed for party in parties.set_up.peers.parties.values()]
    assert len({one.attested for one in agreed}) == 1
    assert [len(one) for one in agreed[0].attested] == [32, 32, 32]


def test_p29_what_was_shown_as_evidence_enters_every_transcript() -> None:
    """So who was shown other evidence, be it as good, has no mask in common with others."""
    with mock.patch.object(party, "context_of", side_effect=party.context_of) as made:
        parties = Parties(study=study_of(SILOS))
        parties.open_session()
    shown = {one._attestation.context for one in parties.set_up.peers.parties.values()}
    assert [call.args[2] for call in made.call_args_list] == 3 * [*shown]


def test_where_nothing_is_asked_for_nothing_is_shown() -> None:
    rounds = Parties(study=study_of({})).open_session()
    assert [tag_of(frame) for frame in rounds.opening] == [Tag.ROLL]
    assert {Call.ATTEST, Call.EVIDENCE}.isdisjoint(rounds.peers.asked)


@pytest.mark.parametrize("asked", [{}, SILOS], ids=["a ROLL first", "evidence first"])
@pytest.mark.parametrize(("nodes", "call"), [(0, Call.COMMIT), (2, Call.CONTRIBUTE)])
def test_a_party_begins_one_set_up_in_a_session(
    asked: dict[str, str], nodes: int, call: Call
) -> None:
    """With a second one, of the same secrets, a relay could have old models answered again."""
    told: dict[int, list[bytes]] = {}

    def bend(called: Call, to: int, frames: list[bytes]) -> list[bytes]:
        if called is call:
            told[to] = frames
        return frames

    parties = Parties(study=study_of(asked, nodes), bend=bend)
    parties.open_session()
    assert len(told) == 3 + nodes
    second = "one set-up" if asked else "one ROLL"
    for index, frames in told.items():
        with pytest.raises(ProtocolError, match=f"{second} in a session, got a second"):
            parties.set_up.peers.parties[index].take(call, frames)


@pytest.mark.parametrize(
    ("rule", "attester"),
    [
        ("measurement", software(measurement=bytes(48))),
        ("debug", software(debug=True)),
        ("tcb", software(version=1)),
        ("expired", software(since=0, until=NOW - 1)),
        ("expired", software(since=NOW + 1, until=NOW + 9)),
        ("platform", lambda *_: PlatformEvidence(platform="nitro", quote=b"x")),
        ("size", lambda *_: PlatformEvidence(platform="software", quote=b"x")),
    ],
    ids=["build", "debug", "version", "expired", "not yet", "platform", "size"],
)
def test_evidence_that_is_not_enough_is_named_with_its_rule(rule: str, attester: object) -> None:
    good = software(version=2)
    attesters = dict.fromkeys(("ada", "cyd", "aggregator"), good)
    parties = Parties(study=study_of(TCB), attesters={**attesters, "bea": attester})
    why, culprit, said = refusal(parties)
    assert (why, culprit) == (f"evidence-{rule}", "bea")
    assert said.startswith(f"bea: evidence fails the rule “{rule}”")


@pytest.mark.parametrize("role", ["aggregator", "node-1"])
def test_the_aggregator_and_nodes_are_judged_too(role: str) -> None:
    attesters = {role: software(measurement=bytes(48))}
    parties = Parties(study=study_of(ALL, nodes=2), attesters=attesters)
    assert refusal(parties)[:2] == ("evidence-measurement", role)


def remembering(kept: list[PlatformEvidence]) -> Callable[[str, bytes, int], PlatformEvidence]:
    """An attester whose first quote is shown again and again."""

    def attest(platform: str, report_data: bytes, at: int) -> PlatformEvidence:
        kept.append(software()(platform, report_data, at))
        return kept[0]

    return attest


def test_a_quote_of_an_old_session_is_refused() -> None:
    """Replayed by its party, which signs it anew: the nonces and the session are others."""
    attesters, study = {"bea": remembering([])}, study_of(SILOS)
    keys = Parties(study=study).keys
    Parties(study=study, attesters=attesters, keys=keys).open_session()
    parties = Parties(study=study, attesters=attesters, keys=keys)
    assert refusal(parties)[:2] == ("evidence-report-data", "bea")


def test_a_quote_for_old_nonces_of_the_same_session_is_refused() -> None:
    def attest(platform: str, report_data: bytes, at: int) -> PlatformEvidence:
        return software()(platform, parties_at_bea().report_data(2, bytes(32)), at)

    def parties_at_bea() -> AttestedSession:
        return parties.set_up.peers.parties[2]._me.attested

    parties = Parties(study=study_of(SILOS), attesters={"bea": attest})
    assert refusal(parties)[:2] == ("evidence-report-data", "bea")


@pytest.mark.parametrize("field", ["verifying", "sealing"])
def test_a_quote_for_another_key_is_refused(field: str) -> None:
    """Of a party whose machine attests one key, while the roster has another."""
    other = Keys.generate("bea", "silo").identity

    def attest(platform: str, report_data: bytes, at: int) -> PlatformEvidence:
        me = parties.set_up.peers.parties[2]
        swapped = replace(me._me.roster.parties[2], **{field: getattr(other, field)})
        listed = list(me._me.roster.parties)
        listed[2] = swapped
        session = replace(me._me.attested, roster=replace(me._me.roster, parties=tuple(listed)))
        return software()(platform, session.report_data(2, me._attestation._nonces), at)

    parties = Parties(study=study_of(SILOS), attesters={"bea": attest})
    assert refusal(parties)[:2] == ("evidence-report-data", "bea")


def test_a_quote_of_another_party_is_refused() -> None:
    """One attested machine cannot speak for two parties."""
    shown: list[PlatformEvidence] = []
    attesters = {"ada": remembering(shown), "bea": lambda *_: shown[0]}
    parties = Parties(study=study_of(SILOS), attesters=attesters)
    assert refusal(parties)[:2] == ("evidence-report-data", "bea")


def test_report_data_binds_everything() -> None:
    """It differs with the study, the session, the party, each of its keys and the nonces."""
    mine = Parties(study=study_of(SILOS)).set_up
    session = mine.peers.parties[1]._me.attested
    ids = [
        session.report_data(1, bytes(32)),
        session.report_data(2, bytes(32)),
        session.report_data(1, b"\1" * 32),
        replace(session, study=bytes(32)).report_data(1, bytes(32)),
        replace(session, session=bytes(16)).report_data(1, bytes(32)),
    ]
    assert len(set(ids)) == len(ids)
    assert {len(one) for one in ids} == {64}


def test_what_parties_compare_differs_with_all_that_they_were_shown() -> None:
    """Else a relay could show each of them other evidence that holds."""
    session = Parties(study=study_of(SILOS)).set_up.peers.parties[1]._me.attested
    first = AttestedHashes(b"q" * 32, b"c" * 32, b"p" * 32)
    shown = [first, *(first._replace(**{name: b"x" * 32}) for name in first._fields)]
    contexts = []
    with pytest.MonkeyPatch.context() as patch:
        for nonces, hashes in product((bytes(32), b"\1" * 32), shown):
            patch.setattr(AttestedSession, "checked", lambda *_, hashes=hashes: hashes)
            contexts.append(session.context([], nonces, frozenset()))
    assert len(set(contexts)) == len(contexts)


# A relay ---------------------------------------------------------------------------------------


def bent(study, bend, **more) -> Parties:
    return Parties(study=study, bend=bend, **more)


def test_a_relay_that_swaps_evidence_is_named() -> None:
    """Two frames in each other's place are the same set; a frame twice, or none, is not."""

    def bend(call: Call, _to: int, frames: list[bytes]) -> list[bytes]:
        return [frames[0], frames[0], *frames[2:]] if call is Call.EVIDENCE else frames

    assert refusal(bent(study_of(SILOS), bend))[:2] == ("protocol", "relay")


def test_a_relay_that_holds_evidence_back_is_named() -> None:
    def bend(call: Call, _to: int, frames: list[bytes]) -> list[bytes]:
        return frames[:-1] if call is Call.EVIDENCE else frames

    assert refusal(bent(study_of(SILOS), bend))[:2] == ("protocol", "relay")


def test_a_relay_that_puts_one_partys_evidence_under_anothers_name_is_named() -> None:
    def bend(call: Call, _to: int, frames: list[bytes]) -> list[bytes]:
        if call is not Call.EVIDENCE:
            return frames
        forged = bytearray(frames[1])
        forged[58] = 3  # its sender
        return [frames[0], frames[1], bytes(forged)]

    assert refusal(bent(study_of(SILOS), bend))[:2] == ("protocol", "relay")


def test_a_relay_that_replays_evidence_of_an_old_session_is_named() -> None:
    old: list[bytes] = []

    def keep(call: Call, _to: int, frames: list[bytes]) -> list[bytes]:
        old.extend(frames if call is Call.EVIDENCE else [])
        return frames

    first = bent(study_of(SILOS), keep)
    first.open_session()

    def replay(call: Call, _to: int, frames: list[bytes]) -> list[bytes]:
        return old[: len(frames)] if call is Call.EVIDENCE else frames

    why, culprit, said = refusal(bent(study_of(SILOS), replay, keys=first.keys))
    assert (why, culprit) == ("protocol", "relay")
    assert "a replay" in said


def test_a_relay_that_replays_nonces_is_named() -> None:
    old: list[bytes] = []

    def keep(call: Call, _to: int, frames: list[bytes]) -> list[bytes]:
        old.extend(frames if call is Call.ATTEST else [])
        return frames

    first = bent(study_of(SILOS), keep)
    first.open_session()

    def replay(call: Call, _to: int, frames: list[bytes]) -> list[bytes]:
        return old[: len(frames)] if call is Call.ATTEST else frames

    assert refusal(bent(study_of(SILOS), replay, keys=first.keys))[:2] == ("protocol", "relay")


def test_an_aggregator_that_shows_silos_different_nonces_gets_no_evidence_believed() -> None:
    """Nonces of a silo that plays along: who was shown others made evidence for others."""
    parties = Parties(study=study_of(SILOS))
    keys, session = parties.keys[3], parties.set_up
    other = Frame(
        tag=Tag.NONCE,
        study=session.study,
        session=session.session,
        sender=3,
        payload=bytes(32),
    ).sealed(keys)

    def bend(call: Call, to: int, frames: list[bytes]) -> list[bytes]:
        return [*frames[:3], other] if call is Call.ATTEST and to == 1 else frames

    parties.bend = bend
    assert refusal(parties)[0] == "evidence-report-data"


@pytest.mark.parametrize("repeated", [False, True])
def test_a_silo_that_is_shown_another_nonce_of_its_own_makes_no_evidence(*, repeated: bool) -> None:
    """As from a copy of its folder, which has its keys; its true one may be said by another."""
    parties = Parties(study=study_of(SILOS))
    session = parties.set_up

    def nonce(sender: int, payload: bytes) -> bytes:
        frame = session.channel.frame(Tag.NONCE, sender, payload)
        return frame.sealed(parties.keys[sender])

    def bend(call: Call, to: int, frames: list[bytes]) -> list[bytes]:
        if call is not Call.ATTEST or to != 1:
            return frames
        mine = next(bytes(unverified(one).payload) for one in frames if is_nonce(one, 1))
        shown = {1: nonce(1, bytes(32)), **({2: nonce(2, mine)} if repeated else {})}
        return [shown[sender_of(one)] if is_nonce(one, *shown) else one for one in frames]

    def is_nonce(frame: bytes, *senders: int) -> bool:
        return tag_of(frame) == Tag.NONCE and sender_of(frame) in senders

    parties.bend = bend
    why, culprit, said = refusal(parties)
    assert (why, culprit) == ("protocol", "relay")
    assert "my own nonce back" in said


def test_a_silo_tells_nothing_before_evidence_was_shown() -> None:
    parties = Parties(study=study_of(SILOS))
    silo = parties.set_up.peers.parties[1]
    silo.take(Call.OPEN, [])()
    for call in TOLD:
        with pytest.raises((ProtocolError, RefusedError)):
            silo.take(call, [])()


def test_evidence_is_taken_once_and_after_the_nonces() -> None:
    seen: dict[Call, list[bytes]] = {}

    def keep(call: Call, _to: int, frames: list[bytes]) -> list[bytes]:
        seen[call] = frames
        return frames

    parties = bent(study_of(SILOS), keep)
    parties.open_session()
    silo = parties.set_up.peers.parties[1]
    for call in (Call.ATTEST, Call.EVIDENCE):
        with pytest.raises(ProtocolError, match=r"once|one ROLL"):
            silo.take(call, seen[call])()


@pytest.mark.parametrize(
    ("index", "calls"),
    [(1, (Call.MODEL, Call.SEED)), (4, (Call.SHARES, Call.PROMISE, Call.TOTAL))],
)
def test_nobody_answers_in_rounds_before_all_have_confirmed(
    index: int, calls: tuple[Call, ...]
) -> None:
    parties, refused = Parties(study=study_of({}, 2)), []

    def bend(called: Call, to: int, frames: list[bytes]) -> list[bytes]:
        if to == index:  # before each call of the set-up
            for call in calls:
                with pytest.raises(RefusedError, match="a session that is set up"):
                    parties.set_up.peers.parties[index].take(call, [b""])
            refused.append(called)
        return frames

    parties.bend = bend
    parties.open_session()
    assert refused == [Call.OPEN, Call.CONTRIBUTE, Call.CONFIRM, Call.FINISH]


def test_where_nothing_is_drawn_together_no_anchor_is_taken() -> None:
    def bend(call: Call, to: int, frames: list[bytes]) -> list[bytes]:
        return [*frames, b"anchor"] if call is Call.COMMIT else frames

    with pytest.raises(ProtocolError, match="expected no anchors in this study") as error:
        Parties(study=study_of({}), bend=bend).open_session()
    assert error.value.culprit == "relay"


def test_a_study_without_evidence_takes_no_call_for_it() -> None:
    silo = Parties(study=study_of({})).set_up.peers.parties[1]
    for call in (Call.ATTEST, Call.EVIDENCE):
        with pytest.raises(ProtocolError, match="in this study"):
            silo.take(call, [])()


@pytest.mark.parametrize("clock", [NOW - 601, NOW + 601])
def test_a_time_of_verification_far_from_a_silos_clock_is_refused(clock: int) -> None:
    parties = Parties(study=study_of(SILOS), clocks={"bea": clock})
    assert refusal(parties)[0] == "evidence-time"


def test_an_expired_certificate_does_not_pass_by_an_old_time() -> None:
    """An aggregator that states the time at which old evidence was good is found by the clocks."""
    late = dict.fromkeys(("ada", "bea", "cyd"), NOW + 10**6)
    attesters = {"bea": software(since=NOW - 9, until=NOW + 9)}
    parties = Parties(study=study_of(SILOS), attesters=attesters, clocks=late)
    assert refusal(parties)[0] == "evidence-time"
