"""Attested parties among machines: honest ones train, every other one is named with its rule."""

from __future__ import annotations

import json
import time
from base64 import b64decode, b64encode
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hubbub.core.errors import ProtocolError
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.protocol.agreement.key_agreement import called
from hubbub.core.protocol.primitives.wire import Channel
from hubbub.core.verification.attestation.policy import PlatformEvidence
from hubbub.core.verification.evidence.silo_parts import _replayed
from hubbub.core.verification.replay.checking import verify
from hubbub.site.attestation.devices import SoftwareAttester, own_code
from hubbub.site.network import checkup, coordinator
from hubbub.site.network.party_folder import PartyFolder
from hubbub.site.network.waiting import Timeouts, WaitedError
from network.consortium import HOSPITALS, Consortium, table
from network.lines import over_nats
from network.relay import Watched

NAMES = HOSPITALS[:3]
AT_ONCE = Timeouts(deadline=300.0, opening=300.0, waiting=0.0, ask_again=0.0, ping=300.0)
ROLE = {"platform": "software", "measurements": [{"code": own_code().hex()}]}


def attested(
    home: Path,
    nodes: int = 0,
    roles: tuple[str, ...] = ("aggregator", "silo"),
    steps: int = 2,
    kind: type[Consortium] = Consortium,
    dropouts: int = 0,
) -> Any:
    """A consortium whose study believes attested silos."""
    trust = {"trust": "tee", "dropouts": dropouts, "colluders": 0 if dropouts else 1}
    made = table(NAMES, nodes, parties=trust, training={"steps": steps})
    made["attestation"] = {role: {**ROLE, "minimum_tcb": {"svn": 1}} for role in roles}
    return kind.gather(home, made)


def showing(**changes: Any) -> Any:
    """An attester that is wrong in something."""
    made = SoftwareAttester(**changes)
    return lambda _platform, data, at: PlatformEvidence(
        platform="software", quote=made.quote(data, at)
    )


def refused(parties: Consortium) -> str:
    """Why a run waits in vain, in the aggregator's words."""
    with pytest.raises(WaitedError) as caught:
        parties.serve(timeouts=AT_ONCE)
    for name in NAMES:  # nothing was charged, so nothing was told
        with Ledger(parties.home / name / "ledger.sqlite") as ledger:
            assert list(ledger.entries()) == []
    return str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [0, 2])
def test_attested_parties_train_and_their_evidence_is_verified_again(
    tmp_path: Path, nodes: int
) -> None:
    roles = ("aggregator", "node", "silo") if nodes else ("aggregator", "silo")
    parties = attested(tmp_path, nodes, roles)
    assert parties.serve().final["step"] == 2
    found = verify(tmp_path / "run")
    assert all(one.holds for one in found)
    assert any("the evidence holds of every aggregator (software)" in one.claim for one in found)
    kept = json.loads((tmp_path / "run" / "evidence.json").read_text())
    assert len(kept["attested"][0]["frames"]) == 2 + 3 + 4 + nodes
    for name in NAMES:
        parties.stop(name)
        with Ledger(tmp_path / name / "ledger.sqlite") as ledger:
            assert [len(one.attested) for one in ledger.entries()] == [3, 3]


@pytest.mark.slow_cases("2")
@pytest.mark.parametrize("nodes", [0, 2])
def test_p29_evidence_is_that_of_the_silos_of_the_session(tmp_path: Path, nodes: int) -> None:
    roles = ("aggregator", "node", "silo") if nodes else ("aggregator", "silo")
    parties = attested(tmp_path, nodes, roles, dropouts=1)
    parties.stop("hungary")
    assert parties.serve(timeouts=replace(AT_ONCE, grace=0.0)).final["step"] == 2
    assert all(one.holds for one in verify(tmp_path / "run"))
    (shown,) = json.loads((tmp_path / "run" / "evidence.json").read_text())["attested"]
    frames = [b64decode(one) for one in shown["frames"]]
    assert len(frames) == 2 + 2 + 3 + nodes
    roster, asked = parties.aggregator.roster, parties.study.attestation
    holds = partial(_replayed, asked=asked, study=parties.study, roster=roster)
    holds(shown)
    forged = {
        "none": [frames[0], *frames[2:]],
        "of all": [frames[0], _rolled(parties, shown, (1, 2, 3)), *frames[2:]],
        "of one": [frames[0], _rolled(parties, shown, (1,)), *frames[2:]],
        "another's nonce": [*frames[:3], frames[2], *frames[4:]],
    }
    for altered in forged.values():
        with pytest.raises(ProtocolError):
            holds(shown | {"frames": [b64encode(one).decode() for one in altered]})


def _rolled(parties: Consortium, shown: Any, silos: tuple[int, ...]) -> bytes:
    """A ROLL that the aggregator signs afterwards."""
    home, session = parties.aggregator, bytes.fromhex(shown["session"])
    channel = Channel(roster=home.roster, study=parties.study.id, session=session)
    return called(home.keys, channel, frozenset(silos))[0]


@pytest.mark.slow
def test_attested_parties_train_over_a_real_relay(tmp_path: Path) -> None:
    pytest.importorskip("nats", reason="needs the extra net")
    parties = attested(tmp_path, kind=Watched)
    with over_nats(tmp_path, parties) as (carrier, _):
        assert parties.serve(carrier.phase).final["step"] == 2
    assert parties.broken == []


@pytest.mark.slow
def test_a_silo_with_another_build_is_refused_over_a_real_relay(tmp_path: Path) -> None:
    pytest.importorskip("nats", reason="needs the extra net")
    parties = attested(tmp_path, kind=Watched)
    parties.seats["hungary"]._attester = showing(measurement=bytes(48))
    with (
        over_nats(tmp_path, parties) as (carrier, _),
        pytest.raises(WaitedError, match=r"measurement”.*by hungary"),
    ):
        parties.serve(carrier.phase, timeouts=AT_ONCE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        ("measurement", {"measurement": bytes(48)}),
        ("debug", {"debug": True}),
        ("tcb", {"version": 0}),
        ("expired", {"since": 0, "until": 1}),
    ],
)
def test_a_silo_whose_evidence_is_not_enough_is_named_with_its_rule(
    tmp_path: Path, rule: str, changes: dict[str, Any]
) -> None:
    parties = attested(tmp_path)
    parties.seats["hungary"]._attester = showing(**changes)
    said = refused(parties)
    assert f"fails the rule “{rule}”" in said
    assert "by hungary" in said
    assert any("refused" in line and "hungary: evidence fails" in line for line in parties.said)


@pytest.mark.slow
def test_an_aggregator_with_another_build_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties, wrong = attested(tmp_path), showing(measurement=bytes(48))
    monkeypatch.setattr(PartyFolder, "attester", property(lambda _: wrong))
    said = refused(parties)
    assert "fails the rule “measurement”" in said
    assert "by aggregator" in said


def test_a_silo_that_shows_an_old_quote_is_named(tmp_path: Path) -> None:
    """The first session's quote again in the second one: its nonces are old."""
    parties, kept = attested(tmp_path), []

    def attest(platform: str, data: bytes, at: int) -> PlatformEvidence:
        kept.append(showing()(platform, data, at))
        return kept[0]

    parties.seats["hungary"]._attester = attest
    attest("software", bytes(64), int(time.time()))  # made before any nonce was known
    said = refused(parties)
    assert "fails the rule “report-data”" in said
    assert "by hungary" in said


@pytest.mark.slow
def test_a_silo_whose_clock_is_wrong_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an aggregator could have evidence verified at a time when it was still good."""
    parties = attested(tmp_path)
    true = coordinator.StudyAttestation
    monkeypatch.setattr(
        coordinator,
        "StudyAttestation",
        lambda **given: true(**given, now=lambda: int(time.time()) - 10_000),
    )
    assert "fails the rule “time”" in refused(parties)


def relayed(parties: Consortium, change: Any) -> Any:
    """The parties behind a relay that changes answers of one call."""
    honest = parties.phase

    def phase(name: str, requests: Any, deadline: float) -> Any:
        answers = list(honest(name, requests, deadline))
        yield from change(name, answers)

    return phase


def test_a_relay_that_swaps_two_parties_evidence_is_found_out(tmp_path: Path) -> None:
    parties = attested(tmp_path)

    def swap(name: str, answers: list[Any]) -> list[Any]:
        if name != "attest":
            return answers
        (first, one), (second, two), *rest = answers
        return [(first, two), (second, one), *rest]

    with pytest.raises(WaitedError, match="got another's"):
        parties.serve(relayed(parties, swap), timeouts=AT_ONCE)


@pytest.mark.slow
def test_a_relay_that_replays_evidence_is_found_out(tmp_path: Path) -> None:
    parties, kept = attested(tmp_path), []

    def replay(name: str, answers: list[Any]) -> list[Any]:
        if name != "attest":
            return answers
        kept.append(answers)
        return kept[0]

    late = replace(AT_ONCE, waiting=300.0)
    first = relayed(parties, replay)
    parties.serve(first, timeouts=late)  # the first session is honest
    again = Consortium(parties.home, parties.study, parties.sites, seats=parties.seats)
    again.home = tmp_path / "again"
    with pytest.raises(ProtocolError, match="relay: expected a set-up that every party"):
        again.serve(relayed(parties, replay), timeouts=late)


@pytest.mark.slow
def test_a_relay_that_delays_evidence_costs_a_set_up_and_no_more(tmp_path: Path) -> None:
    parties, held = attested(tmp_path), [1]

    def delay(name: str, answers: list[Any]) -> list[Any]:
        return answers[:-1] if name == "attest" and held and held.pop() else answers

    late = replace(AT_ONCE, waiting=300.0)
    assert parties.serve(relayed(parties, delay), timeouts=late).final["step"] == 2


@pytest.mark.slow
def test_a_party_that_restarts_shows_fresh_evidence(tmp_path: Path) -> None:
    """A new session follows, and both of them are in the run's evidence."""
    parties = attested(tmp_path, steps=5)

    def restart(step: int, _row: Any) -> None:
        if step == 1:
            parties.start("hungary")

    parties.serve(progress=restart)
    kept = json.loads((tmp_path / "run" / "evidence.json").read_text())["attested"]
    assert len(kept) == 2
    assert len({frame for one in kept for frame in one["frames"]}) == 2 * 9
    assert all(one.holds for one in verify(tmp_path / "run"))


def test_a_party_can_try_its_evidence_without_taking_part(tmp_path: Path) -> None:
    parties = attested(tmp_path)
    (found,) = checkup._evidence(parties.sites["hungary"])
    assert found.well
    assert found.found.startswith("software, enough until 20")


def test_a_trial_of_evidence_that_would_not_do_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = attested(tmp_path)
    wrong = showing(measurement=bytes(48))
    monkeypatch.setattr(PartyFolder, "attester", property(lambda _: wrong))
    (found,) = checkup._evidence(parties.sites["hungary"])
    assert not found.well
    assert "another build" in found.found
