"""hubbub behind Flower's grid: who dies is left out, and a malicious server is refused by name.

The grid is made up, so that these are quick; `tests/flower` has Flower's own.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hubbub import flower as flower_app
from hubbub.core.errors import HubbubError, ProtocolError, UserError
from hubbub.core.protocol.primitives.wire import EVERYBODY, Tag, unverified
from hubbub.core.session.ask import AbsentError, Call
from hubbub.core.verification.replay.checking import verify
from hubbub.flower import GridPhase, _bytes_in, _packed, client_app, server_app
from hubbub.site.network import local_line
from hubbub.site.network.checkup import checkup
from hubbub.site.network.envelope import Missing, read_answer, request
from hubbub.site.network.event_log import EventLog
from hubbub.site.network.join import Machine, join
from hubbub.site.network.local_line import LocalLine, handed_in, name_in, new_nonce, who
from network.grid import MadeUpGrid, doors, install
from network.lines import wait
from network.relay import (
    NAMES,
    Watched,
    at,
    flipped,
    honest,
    open_frame,
    opened,
    refusal,
)

Served = Callable[..., tuple[Watched, MadeUpGrid]]
SPARED: dict[str, Any] = {"parties": {"colluders": 0, "dropouts": 1}}


@pytest.fixture(autouse=True)
def flower(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)


@pytest.fixture
def behind(gather: Any) -> Iterator[Served]:
    """A watched consortium whose parties are reached through a made-up grid alone."""
    stacks = []

    def new(nodes: int = 0, **changes: Any) -> tuple[Watched, MadeUpGrid]:
        parties = gather(nodes, **changes)
        stacks.append(doors(parties))
        return parties, MadeUpGrid({**stacks[-1].__enter__()})

    yield new
    for stack in stacks:
        stack.__exit__(None, None, None)


def phase_of(parties: Watched, grid: MadeUpGrid) -> GridPhase:
    return GridPhase(grid, parties.aggregator.roster)


def said(parties: Watched, words: str) -> bool:
    return any(words in line for line in parties.said)


# A run -----------------------------------------------------------------------------------------


def test_a_study_is_trained_through_the_grid_and_its_evidence_holds(behind: Served) -> None:
    parties, grid = behind()
    server_app(parties.study, home=parties.aggregator.home)(grid, None)
    run = parties.aggregator.run(parties.study.id)
    assert all(finding.holds for finding in verify(run))
    evidence = json.loads((run / "evidence.json").read_text())
    assert {part["silo"] for part in evidence["silos"]} == set(NAMES)
    assert [len(parties.rows(name)) for name in NAMES] == [4, 4, 4]


def test_a_server_app_that_was_stopped_goes_on_after_its_last_step(behind: Served) -> None:
    parties, grid = behind()

    def stopped(name: str, _party: str, blob: bytes) -> bytes:
        if name == "model" and len(parties.rows("ann")) == 2:
            raise KeyboardInterrupt
        return blob

    grid.asks = stopped
    app = server_app(parties.study, home=parties.aggregator.home)
    with pytest.raises(KeyboardInterrupt):
        app(grid, None)
    grid.asks = honest
    app(grid, None)
    run = parties.aggregator.run(parties.study.id)
    assert all(finding.holds for finding in verify(run))
    rounds = [number for _, number, _ in parties.rows("ann")]
    assert rounds == [1, 2, 2, 3]  # bob was never asked: what ann has paid is spent (P15)


def test_a_round_goes_on_among_those_left_and_who_is_back_joins_it(behind: Served) -> None:
    """Its SuperNode is killed, and comes back under another id: the party itself lives on."""
    parties, grid = behind(2, **SPARED)
    session = opened(parties, phase_of(parties, grid))
    assert session.round(1)[1] == 1
    (node,) = [node for node, path in grid.homes.items() if path.parent.name == "bob"]
    path = grid.homes.pop(node)
    assert session.round(2)[1] == 1
    assert [len(parties.rows(name)) for name in NAMES] == [2, 1, 2]
    assert session.rounds.attendance.named_absent["bob"].said.startswith("no SuperNode of it")
    grid.homes[77] = path
    session.rounds.attendance.ask_absent()
    session.rounds.attendance.ask_absent()
    assert session.round(3)[1] == 1
    assert [len(parties.rows(name)) for name in NAMES] == [3, 2, 3]


@pytest.mark.slow
def test_a_party_that_dies_after_it_has_paid_is_charged_and_left_out(behind: Served) -> None:
    """The row is written before the answer leaves: `Watched` looks at each, this at who is lost."""
    parties, grid = behind(2, **SPARED)
    session = opened(parties, phase_of(parties, grid))
    grid.tells = at("model", lambda _: None, "cyn")
    assert session.round(1)[1] == 1
    assert [len(parties.rows(name)) for name in NAMES] == [1, 1, 1]
    assert "cyn" in session.rounds.attendance.named_absent


@pytest.mark.slow
def test_nodes_that_are_no_partys_are_left_alone(behind: Served, tmp_path: Path) -> None:
    parties, grid = behind()
    grid.homes[5] = tmp_path / "stranger" / "line.sock"
    session = opened(parties, phase_of(parties, grid))
    assert session.round(1)[1] == 1
    assert {name for call, name, _ in grid.tape if call != "who"} == set(NAMES)


# A malicious server ----------------------------------------------------------------------------


@pytest.mark.slow
def test_a_tampered_frame_is_refused_and_the_carrier_is_blamed(behind: Served) -> None:
    parties, grid = behind()
    session = opened(parties, phase_of(parties, grid))
    grid.asks = at("model", flipped, "ann")
    with pytest.raises(AbsentError, match=r"ann: relay: .* what reached it breaks the protocol"):
        session.round(1)
    assert said(parties, "expected a MODEL signed by aggregator, got a false signature")
    assert parties.rows("ann") == []


@pytest.mark.slow
def test_an_old_frame_again_is_refused(behind: Served) -> None:
    parties, grid = behind()
    session = opened(parties, phase_of(parties, grid))
    session.round(1)
    (old,) = [blob for call, name, blob in grid.tape if (call, name) == ("model", "ann")]
    grid.asks = at("model", lambda _: old, "ann")
    with pytest.raises(AbsentError, match=r"ann: relay: .* what reached it breaks the protocol"):
        session.round(2)
    assert len(parties.rows("ann")) == 1


@pytest.mark.parametrize("whose", ["ann", "bob"])
def test_an_answer_of_before_or_of_another_party_is_refused(behind: Served, whose: str) -> None:
    parties, grid = behind()
    session = opened(parties, phase_of(parties, grid))
    told: dict[str, Any] = {}
    grid.tells = lambda call, name, blob: told.setdefault(name, blob) if call == "model" else blob
    session.round(1)
    grid.tells = at("model", lambda _: told[whose], "ann")
    with pytest.raises(AbsentError, match="none from ann: relay: expected"):
        session.round(2)


def test_a_second_model_for_an_attempt_is_refused_and_the_aggregator_is_blamed(
    behind: Served,
) -> None:
    parties, grid = behind()
    session = opened(parties, phase_of(parties, grid))
    session.round(1)
    payload = b"".join(session.round_parameters.model_parts((1, 2, 3), session.initial + 1))
    where = {"session": session.rounds.session, "receiver": EVERYBODY, "round": 1, "attempt": 0}
    second = parties.sealed("aggregator", Tag.MODEL, payload, **where)
    blob = request(Call.MODEL, session.rounds.session, [second])
    assert refusal(asked(parties, grid, "ann", blob)) == ("protocol", "aggregator")
    assert len(parties.rows("ann")) == 1


def test_a_study_of_another_roster_is_refused(behind: Served) -> None:
    """The server has keys of its own, and signs with them what it likes."""
    ours, grid = behind()
    theirs, _ = behind()
    frame = open_frame(theirs, bytes(16))
    blob = request(Call.OPEN, bytes(16), [frame])
    assert refusal(asked(ours, grid, "ann", blob)) == ("not-approved", "")
    own = theirs.sealed(
        "aggregator", Tag.OPEN, b"{}", session=bytes(16), receiver=EVERYBODY, study=ours.study.id
    )
    blob = request(Call.OPEN, bytes(16), [own])
    assert refusal(asked(ours, grid, "ann", blob)) == ("protocol", "relay")


def test_a_node_cannot_take_the_messages_of_another_party(behind: Served) -> None:
    """bob's node says that it is ann's: by its own signature, or by an old one of ann's."""
    parties, grid = behind()
    roster, nonces = parties.aggregator.roster, [new_nonce(), new_nonce()]
    doors_of = {path.parent.name: path for path in grid.homes.values()}
    old = handed_in(doors_of["ann"], who(nonces[0]), 300.0)
    assert name_in(old, roster, nonces[0]) == "ann"
    with pytest.raises(ProtocolError, match="a replay"):
        name_in(old, roster, nonces[1])
    forged = parties.sealed("bob", Tag.READY, session=nonces[0], study=bytes(32), sender=1)
    with pytest.raises(ProtocolError, match="false signature"):
        name_in(forged, roster, nonces[0])


@pytest.mark.slow
def test_the_word_of_who_it_is_opens_no_session_and_is_no_sign_of_life(behind: Served) -> None:
    """A server may choose the nonce: it is of no study, whatever session it names."""
    parties, grid = behind()
    session = opened(parties, phase_of(parties, grid))
    door = next(path for path in grid.homes.values() if path.parent.name == "ann")
    word = unverified(handed_in(door, who(session.rounds.session), 300.0))
    assert word.study == bytes(32) != parties.study.id


# What goes back to the server ------------------------------------------------------------------


def test_an_error_at_a_party_tells_the_server_nothing(tmp_path: Path) -> None:
    """Flower sends the sentence of an error to the server: there is none to send."""

    def home(_context: Any) -> Path:
        raise ValueError("row 3 of /srv/records: age 93")

    for given in (home, tmp_path / "nobody.sock"):
        reply = client_app(given)(_packed_message(b"anything"), SimpleNamespace())
        assert _bytes_in(reply) == b""


def test_a_missing_node_and_one_that_fails_are_told_apart(behind: Served, tmp_path: Path) -> None:
    parties, grid = behind()
    phase = phase_of(parties, grid)
    assert dict(phase("ping", {}, 300.0)) == {}
    grid.homes = {node: path for node, path in grid.homes.items() if path.parent.name != "bob"}
    grid.tells = at("ping", lambda _: b"", "cyn")
    blobs = dict.fromkeys(NAMES, request(Call.PING, bytes(16)))
    answers = dict(phase("ping", blobs, 300.0))
    assert read_answer(answers["ann"]) == []
    assert "no SuperNode" in answers["bob"].why
    assert "its ClientApp" in answers["cyn"].why
    grid.tells = at("ping", lambda _: None, "cyn")
    assert dict(phase("ping", blobs, 300.0))["cyn"] == Missing()


# The door --------------------------------------------------------------------------------------


def test_a_party_joins_at_a_socket_however_deep_and_ends_when_asked_to(
    gather: Any, tmp_path: Path
) -> None:
    parties = gather()
    parties.stop("ann")
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    path, ended = deep / "line.sock", threading.Event()
    log, folder = EventLog(party="ann", say=parties.said.append), parties.sites["ann"]
    given = (folder, path, Machine(), log)
    thread = threading.Thread(target=join, args=given, kwargs={"until": ended.is_set})
    thread.start()
    try:
        nonce = new_nonce()
        word = patiently(lambda: handed_in(path, who(nonce), 300.0))
        assert name_in(word, folder.roster, nonce) == "ann"
        frame = open_frame(parties, bytes(16))
        (ready, *_) = read_answer(handed_in(path, request(Call.OPEN, bytes(16), [frame]), 300.0))
        assert unverified(ready).tag is Tag.READY
        assert path.stat().st_mode & 0o777 == 0o660
        with (
            pytest.raises(UserError, match="another process does"),
            LocalLine(path, folder, bytes, lambda: 1),
        ):
            pass
    finally:
        ended.set()
        thread.join()
    assert not path.exists()


def test_a_visitor_who_stalls_or_says_too_much_is_shown_out(
    gather: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_line, "_STALLED", 0.05)
    parties, path = gather(), tmp_path / "line.sock"
    line = LocalLine(path, parties.sites["ann"], lambda blob: blob, lambda: 4)
    with line, socket.socket(socket.AF_UNIX) as stalled, socket.socket(socket.AF_UNIX) as large:
        stalled.connect(str(path))
        large.connect(str(path))
        large.sendall((5).to_bytes(8, "little") + b"12345")
        assert line.step(1.0)
        assert line.step(1.0)
        assert stalled.recv(1) == b""
        with pytest.raises(ConnectionResetError):
            large.recv(1)
        assert not line.step(0.01)


def test_a_byte_now_and_then_holds_nobody_up(
    gather: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seconds are counted for all that a visitor brings, not from byte to byte."""
    now = [0.0]
    monkeypatch.setattr(local_line.time, "monotonic", lambda: now[0])

    class Trickling:
        """A visitor of whom a byte comes in each four seconds."""

        taken = 0

        def gettimeout(self) -> float:
            return 10.0

        def settimeout(self, seconds: float) -> None:
            self.seconds = seconds

        def recv(self, _most: int) -> bytes:
            now[0] += 4.0
            self.taken += 1
            return b"\x07"

    trickling: Any = Trickling()
    with pytest.raises(OSError, match="takes too long"):
        local_line._received(trickling)
    assert trickling.taken == 3


def test_nobody_comes_in_before_the_sockets_mode_is_set(
    gather: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties, path, modes, chmod = gather(), tmp_path / "line.sock", [], Path.chmod

    def knocked(at: Path, mode: int) -> None:
        with socket.socket(socket.AF_UNIX) as early, pytest.raises(ConnectionRefusedError):
            early.connect(str(path))
        modes.append(mode)
        chmod(at, mode)

    monkeypatch.setattr(Path, "chmod", knocked)
    with LocalLine(path, parties.sites["ann"], bytes, lambda: 4):
        assert modes == [0o660]
        assert path.stat().st_mode & 0o777 == 0o660


def test_a_second_start_that_comes_too_late_finds_the_first(
    behind: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two of Flower's processes that start a party at once, hubbub lets one of them."""
    _, grid = behind()
    path = next(path for path in grid.homes.values() if path.parent.name == "ann")
    ended = SimpleNamespace(poll=lambda: 2)
    monkeypatch.setattr(flower_app.subprocess, "Popen", lambda *_, **__: ended)
    flower_app._start(path.parent, path)
    (tmp_path / "alone").mkdir()
    with pytest.raises(HubbubError, match=r"expected the party in .* to start, it did not"):
        flower_app._start(tmp_path / "alone", tmp_path / "alone" / "line.sock")


def test_a_checkup_looks_at_the_door_where_it_has_no_relay(behind: Served, tmp_path: Path) -> None:
    parties, grid = behind()
    path = next(path for path in grid.homes.values() if path.parent.name == "ann")
    file = tmp_path / "file"
    file.touch()
    for door, well, words in (
        (path, True, "a process listens at"),
        (tmp_path / "new.sock", True, "nobody listens at .* yet"),
        (file, False, "found something else"),
        (tmp_path / "nowhere" / "new.sock", False, "found none; make it"),
    ):
        first, *others = checkup(parties.sites["ann"], Machine(), door=door)
        assert (first.check, first.well) == ("socket", well)
        assert re.search(words, first.found)
        assert "reachability" not in {one.check for one in others}


def test_a_socket_that_a_killed_process_left_is_taken_over(gather: Any, tmp_path: Path) -> None:
    parties, path = gather(), tmp_path / "line.sock"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    with LocalLine(path, parties.sites["ann"], bytes, lambda: 4):
        assert path.is_socket()


def _packed_message(blob: bytes) -> Any:
    """A message of the server's."""
    from flwr.app import Message

    return Message(_packed(blob), dst_node_id=7, ttl=5.0)


def asked(parties: Watched, grid: MadeUpGrid, party: str, blob: bytes) -> list[bytes]:
    """What a party says to bytes that the server makes up."""
    ((_, answer),) = phase_of(parties, grid)("ping", {party: blob}, 300.0)
    return read_answer(answer)


def patiently(answered: Callable[[], bytes]) -> bytes:
    """What is answered once somebody listens."""
    found: list[bytes] = []

    def is_answered() -> bool:
        with suppress(OSError):
            found.append(answered())
        return bool(found)

    wait(is_answered)
    return found[0]
