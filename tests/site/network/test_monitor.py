"""What a party shows of itself on the loopback and in its logs, and what it never shows."""

from __future__ import annotations

import json
import re
import socket
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from hubbub.core.errors import BudgetError, DataError, HubbubError, ModelError, UserError, loggable
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.desk.cli import network_commands
from hubbub.desk.cli.main import main
from hubbub.site.network import monitor, silo_endpoint
from hubbub.site.network.envelope import Refusal
from hubbub.site.network.event_log import EventLog
from hubbub.site.network.join import Machine, join, relay_of
from hubbub.site.network.monitor import health, monitored
from hubbub.site.network.nats.relay import seed_of
from hubbub.site.network.party_folder import PartyFolder
from network.lines import free_port, wait
from network.test_over_nats import Everybody

parser = pytest.importorskip("prometheus_client.parser", reason="needs the extra net")
COUNT, CELL = 4177, "73193.5"


def get(port: int, path: str) -> tuple[int, str]:
    """The status and the text of a page."""
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as found:
            return found.status, found.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def samples(text: str) -> dict[str, tuple[str, float]]:
    """From each number's name to its kind and its value."""
    families = parser.text_string_to_metric_families(text)
    return {
        one.labels.get("state", one.name): (family.type, one.value)
        for family in families
        for one in family.samples
    }


@pytest.mark.parametrize(
    ("state", "well"),
    [
        ({}, False),
        ({"state": "connecting"}, False),
        ({"state": "waiting", "connected": True}, True),
        ({"state": "training", "connected": True}, True),
        ({"state": "done", "connected": True}, True),
        ({"state": "done", "connected": False}, True),  # the relay ended with its aggregator
        ({"state": "waiting", "connected": False}, False),
        ({"state": "lost", "connected": True, "last_error": "silence"}, False),
    ],
)
def test_health_is_a_line_and_a_state_that_goes_on(state: dict[str, Any], well: bool) -> None:
    found, said = health(state)
    assert found is well
    assert said["state"] == state.get("state", "connecting")
    assert said.get("reason") == (None if well else state.get("last_error") or "not connected yet")


def test_counters_are_counters_and_gauges_gauges() -> None:
    event_log, port = EventLog(party="ann"), free_port()
    event_log.line(True, "")
    event_log.line(False, "nobody listens")
    event_log.line(True, "")
    event_log.add(answers=3, bytes_sent=12, bytes_received=34, refusals=1)
    event_log.state(state="training", step=2, steps=4, epsilon=0.5, study="heart", secret=7)
    with monitored(event_log, port):
        status, text = get(port, "/metrics")
    assert status == 200
    assert samples(text) == {
        "hubbub_attempts_answered_total": ("counter", 3.0),
        "hubbub_bytes_sent_total": ("counter", 12.0),
        "hubbub_bytes_received_total": ("counter", 34.0),
        "hubbub_refusals_total": ("counter", 1.0),
        "hubbub_reconnects_total": ("counter", 1.0),
        "hubbub_connected": ("gauge", 1.0),
        "hubbub_step": ("gauge", 2.0),
        "hubbub_steps": ("gauge", 4.0),
        "hubbub_epsilon": ("gauge", 0.5),
        **dict.fromkeys(("connecting", "waiting", "refusing", "lost", "done"), ("gauge", 0.0)),
        "training": ("gauge", 1.0),
    }
    assert 'hubbub_epsilon{party="ann"}' in text


def test_nothing_is_shown_unless_it_was_asked_for(tmp_path: Path) -> None:
    event_log = EventLog(party="ann", folder=tmp_path)
    before = {*threading.enumerate()}
    with monitored(event_log, None):
        assert {*threading.enumerate()} <= before
    event_log.state(state="waiting")
    assert not (tmp_path / "metrics.prom").exists()


def test_only_this_machine_may_look() -> None:
    port = free_port()
    with monitored(EventLog(party="ann"), port):
        assert get(port, "/healthz")[0] == 503
        assert get(port, "/")[0] == 404
        for other in ("127.0.0.2", "::1"):  # a server on all addresses would be found here
            with pytest.raises(OSError, match=r"refused|assign|supported|unreachable"):
                socket.create_connection((other, port), 60)


def test_who_holds_a_connection_open_keeps_nobody_from_looking() -> None:
    port = free_port()
    with monitored(EventLog(party="ann"), port), ExitStack() as held:
        for _ in range(50):
            held.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert get(port, "/healthz")[0] == 503


@pytest.mark.slow
@pytest.mark.parametrize("said", [b"", b"GET /metrics HTTP/1.1\r\n", b"G"])
def test_however_many_connections_are_held_threads_are_few(said: bytes) -> None:
    port, before = free_port(), threading.active_count()
    with monitored(EventLog(party="ann"), port), ExitStack() as held:
        for _ in range(200):
            one = held.enter_context(socket.create_connection(("127.0.0.1", port)))
            with suppress(OSError):  # hung up on
                one.sendall(said)
            assert threading.active_count() <= before + 1 + monitor._MOST_CONNECTIONS
        assert get(port, "/healthz")[0] == 503
        assert threading.active_count() <= before + 1 + monitor._MOST_CONNECTIONS


def test_a_system_without_threads_left_costs_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    with monitored(EventLog(party="ann"), port):
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", lambda _: (_ for _ in ()).throw(RuntimeError))
            for _ in range(2 * monitor._MOST_CONNECTIONS):
                with socket.create_connection(("127.0.0.1", port)) as asking:
                    asking.settimeout(300)
                    assert asking.recv(1) == b""
        assert get(port, "/healthz")[0] == 503


def test_a_port_that_is_taken_is_told_in_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(UserError, match=f"got {port}: .*in use; name another"),
            monitored(EventLog(party="ann"), port),
        ):
            pass
    with pytest.raises(UserError, match="no such port"), monitored(EventLog(party="ann"), 70_000):
        pass


@pytest.mark.parametrize("command", ["join", "serve"])
def test_a_command_whose_port_is_taken_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    everybody = Everybody(tmp_path)
    everybody.approve()
    (tmp_path / "study.toml").write_text(everybody.study.as_toml())
    given = {
        "join": ["join", "--home", str(tmp_path / "ann")],
        "serve": ["serve", str(tmp_path / "study.toml"), "--home", str(tmp_path / "aggregator")],
    }[command]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main([*given, "--metrics-port", port]) == 2
    assert f"got {port}" in capsys.readouterr().err


def planted(home: Path) -> Everybody:
    """A silo, ann, with a count and a value of records that are seen nowhere else."""
    data = {"source": "", "files": "{name}.csv", "records": 15_000}
    everybody = Everybody(home, data=data, model={"inputs": [2]})
    for name in ("ann", "bob", "cyn"):
        row, count = (f"{CELL},1,1\n", COUNT) if name == "ann" else ("1,0,0\n", 3000)
        (home / name / f"{name}.csv").write_text("a,b,x\n" + row * count)
    everybody.approve()
    return everybody


def numbers(text: str) -> set[str]:
    """All numbers in a text."""
    return set(re.findall(r"\d+(?:\.\d+)?", text))


@pytest.mark.slow
def test_a_study_shows_its_health_and_nothing_of_a_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing that is written or shown has a count, a value, a mean or a key in it."""
    everybody, port = planted(tmp_path), free_port()
    party_folder = PartyFolder.opened(tmp_path / "ann")
    lines: list[dict[str, Any]] = []
    tell = network_commands._Teller(json=True)

    def told(event: dict[str, Any]) -> None:
        lines.append(event)
        tell(event)

    event_log = EventLog(party="ann", folder=party_folder.home, tell=told)
    given = (party_folder, relay_of(party_folder, None), Machine(device="cpu"), event_log)
    until = {"until": everybody.over.is_set}
    thread = threading.Thread(target=join, args=given, kwargs=until, daemon=True)
    pages = []
    with monitored(event_log, port):
        thread.start()
        everybody.joined.append(thread)
        wait(lambda: "nobody listens" in get(port, "/healthz")[1])
        for name in ("bob", "cyn", "node-1"):
            everybody.join(name)
        server = threading.Thread(target=everybody.serve, daemon=True)
        server.start()
        wait(lambda: get(port, "/healthz")[0] == 200)
        pages.append(get(port, "/metrics")[1])
        server.join(400)
        pages.append(get(port, "/metrics")[1])
        # The relay ended with the aggregator, and nothing is left to do.
        wait(lambda: 'hubbub_connected{party="ann"} 0.0' in get(port, "/metrics")[1])
        assert get(port, "/healthz")[0] == 200
        pages += [get(port, "/healthz")[1]]
    everybody.end()
    found = samples(pages[1])
    assert found["hubbub_attempts_answered_total"] == ("counter", 4.0)
    assert found["hubbub_steps"] == ("gauge", 4.0)
    assert found["hubbub_bytes_sent_total"][1] > 0
    assert json.loads(pages[2]) == {"state": "done"}

    logged = (party_folder.home / "events.jsonl").read_text()
    assert capsys.readouterr().out == logged  # `join --json` prints the same lines
    assert [json.loads(line) for line in logged.splitlines()] == lines
    text = "".join([logged, (party_folder.home / "status.json").read_text(), *pages])
    assert {"epsilon", "session", "answered", "closed"} <= set(re.findall(r"\w+", text))
    seen = numbers(re.sub(r'"(time|session)": "?[\w.]+|/[\w./-]+', "", text))
    assert not seen & {str(COUNT), CELL, "73193", "4177.0", f"{float(CELL):e}"}
    assert not any(abs(float(one) - COUNT) < 1 or abs(float(one) - 73193.5) < 1 for one in seen)
    assert seed_of(party_folder.keys) not in text
    assert not any(part.hex() in text for part in party_folder.keys.secret_parts().values())


def test_a_refusal_tells_no_cell(tmp_path: Path) -> None:
    everybody = planted(tmp_path)
    path = tmp_path / "ann" / "ann.csv"
    path.write_text(path.read_text() + f"{CELL}x,1,1\n")
    party_folder = PartyFolder.opened(tmp_path / "ann")
    event_log = EventLog(party="ann", folder=party_folder.home)
    endpoint = silo_endpoint.SiloEndpoint(
        party_folder,
        event_log,
        data=party_folder.home,
        ledger=party_folder.home / "ledger.sqlite",
        device="cpu",
    )
    try:
        with pytest.raises(DataError) as raised:
            endpoint._prepared(everybody.study)
        endpoint._refusal(b"", Refusal.of(raised.value))
    finally:
        endpoint.close()
    text = (party_folder.home / "events.jsonl").read_text() + (
        party_folder.home / "status.json"
    ).read_text()
    assert "expected a number in ann.csv" in str(raised.value)
    assert "fit the study" in text
    assert CELL not in text
    assert "ann.csv" not in text


@pytest.mark.parametrize("kind", [DataError, ModelError, type("Own", (DataError,), {})])
def test_no_log_has_what_an_error_says_of_records(kind: type[HubbubError], tmp_path: Path) -> None:
    """Of what is raised while records are read, or a model sees them, its kind is all."""
    raised = kind(f"expected another value than {CELL}")
    EventLog(party="ann", folder=tmp_path).warn("stopped", said=loggable(raised))
    assert CELL not in Refusal.of(kind(CELL)).said
    assert CELL not in (tmp_path / "events.jsonl").read_text()
    assert CELL in Refusal.of(BudgetError(CELL)).said


def test_a_wrong_number_of_records_is_told_without_the_number() -> None:
    class Stated:
        names, counts, parties, data = ("ann",), (40,), None, None

    study: Any = Stated()
    study.parties = study.data = study
    for records in (COUNT, 39):
        with pytest.raises(
            DataError, match=r"expected 40 records of ann.*got another number"
        ) as raised:
            silo_endpoint._check_count(study, "ann", records)
        assert str(records) not in str(raised.value)
    silo_endpoint._check_count(study, "ann", 40)


def test_p15_nobody_else_charges_a_ledger_while_its_silo_takes_part(tmp_path: Path) -> None:
    planted(tmp_path)
    party_folder = PartyFolder.opened(tmp_path / "ann")
    path = party_folder.home / "ledger.sqlite"
    endpoint = silo_endpoint.SiloEndpoint(
        party_folder,
        EventLog(party="ann", folder=party_folder.home),
        data=party_folder.home,
        ledger=path,
        device="cpu",
    )
    with Ledger(path) as other:
        with pytest.raises(UserError, match="another run charges it"):
            other.held().__enter__()
        endpoint.close()
        with other.held():
            assert other.rows == 1  # its first
