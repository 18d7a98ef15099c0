"""Parties that do not run the same hubbub are told so, and nothing is answered or charged."""

from __future__ import annotations

from pathlib import Path

import pytest

from hubbub.core.errors import IntegrityError
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.protocol.primitives.wire import VERSION
from hubbub.core.session import offer
from hubbub.core.session.ask import Call
from hubbub.core.verification.replay import replayed_session
from hubbub.site.network.envelope import request
from hubbub.site.network.monitor import health
from hubbub.site.network.waiting import Timeouts, WaitedError
from network.consortium import HOSPITALS, Consortium, table
from network.engine import in_process

IMPATIENT = Timeouts(deadline=300.0, opening=300.0, ping=300.0, waiting=0.0, ask_again=0.0)
WIRE = f"expected wire version {VERSION}, got {VERSION + 1}; all parties must run the same version"


@pytest.fixture(scope="module")
def parties(tmp_path_factory) -> Consortium:
    return Consortium.gather(tmp_path_factory.mktemp("versions"), table(HOSPITALS))


def newer(parcel: bytes) -> bytes:
    """An envelope as the next version of the wire would begin."""
    return parcel[:4] + bytes([VERSION + 1]) + parcel[5:]


def charged(parties: Consortium) -> int:
    """Rows that the study has in all ledgers."""
    rows = 0
    for name in HOSPITALS:
        with Ledger(parties.sites[name].home / "ledger.sqlite") as ledger:
            rows += ledger.spent_on(parties.study.id)
    return rows


def test_a_run_waits_for_a_party_of_another_wire_and_says_so(parties):
    def seat_of(name):
        endpoint = parties.seats[name]
        return (
            endpoint.answer
            if name != "hungary"
            else lambda asked: newer(endpoint.answer(newer(asked)))
        )

    with pytest.raises(WaitedError, match=f"none from hungary: {WIRE}"):
        parties.serve(in_process(seat_of), timeouts=IMPATIENT)
    assert charged(parties) == 0


def test_a_party_answers_no_parcel_of_another_wire(parties):
    parties.said.clear()
    answer = parties.seats["hungary"].answer(newer(request(Call.PING, bytes(16))))
    assert b'"why": "version"' in answer
    assert any(WIRE in line for line in parties.said)
    log = parties.seats["hungary"].event_log
    log.state(state="waiting", connected=True)
    assert health(log.known())[1]["reason"].startswith("cannot take part: version: ")
    parties.seats["hungary"].look()
    assert not health(log.known())[0]
    parties.seats["hungary"].answer(request(Call.PING, bytes(16)))
    assert health(log.known())[0]


def test_a_run_of_another_wire_is_gone_on_with_by_the_version_that_began_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nobody is accused: the transcript holds what an older hubbub has sent."""
    parties = Consortium.gather(tmp_path / "versions", table(HOSPITALS))

    def stopped(step: int, _row: object) -> None:
        raise RuntimeError("as a crash does")

    with pytest.raises(RuntimeError, match="as a crash"):
        parties.serve(out=tmp_path / "run", progress=stopped)
    monkeypatch.setattr(replayed_session, "VERSION", VERSION + 1)
    with pytest.raises(IntegrityError, match="go on with the version of hubbub that wrote it") as e:
        parties.serve(out=tmp_path / "run")
    assert "aggregator" not in str(e.value)


def test_a_party_whose_plan_differs_names_the_first_number(parties, monkeypatch):
    told = offer.SessionOffer.payload
    monkeypatch.setattr(
        offer.SessionOffer,
        "payload",
        lambda one: told(one).replace(b'"sigma_grid": ', b'"sigma_grid": 1'),
    )
    parties.said.clear()
    with pytest.raises(WaitedError, match="its own plan of the study has other numbers"):
        parties.serve(timeouts=IMPATIENT)
    assert any("expected sigma_grid = " in line for line in parties.said)
    assert charged(parties) == 0
