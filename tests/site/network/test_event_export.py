"""Events at a collector: what arrives is what the event log says, and nobody waits for it."""

from __future__ import annotations

import gzip
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from hubbub.desk.cli.main import main
from hubbub.site.network import monitor
from hubbub.site.network.event_log import EventLog
from hubbub.site.network.monitor import exported
from network.lines import free_port, wait

service = pytest.importorskip(
    "opentelemetry.proto.collector.logs.v1.logs_service_pb2", reason="needs the extra otlp"
)


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Collects what is sent to the address in the environment."""
    found: list[Any] = []

    class Collecting(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            found.append(service.ExportLogsServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    monkeypatch.setattr(monitor, "_FEW_SECONDS", 300)  # that an answer may take
    with HTTPServer(("127.0.0.1", 0), Collecting) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        yield found
        server.shutdown()
        thread.join()


def _attributes(holder: Any) -> dict[str, Any]:
    values = {one.key: one.value for one in holder.attributes}
    return {key: getattr(value, value.WhichOneof("value")) for key, value in values.items()}


def test_an_event_arrives_as_the_event_log_has_it(collector, tmp_path):
    with exported("cleveland", lambda _: None) as send:
        event_log = EventLog(party="cleveland", folder=tmp_path, tell=send)
        event_log.note("step", step=3, steps=20, epsilon=0.25, seconds=1.5)
        event_log.warn("missing", whom="hungary", count=1, deadline=60.0, then="it is left out")
    sent = [
        (_attributes(batch.resource), record)
        for request in collector
        for batch in request.resource_logs
        for scope in batch.scope_logs
        for record in scope.log_records
    ]
    (resource, step), (_, missing) = sent
    assert (resource["service.name"], resource["hubbub.party"]) == ("hubbub", "cleveland")
    assert (step.event_name, step.severity_text) == ("hubbub.step", "INFO")
    assert step.body.string_value == "step 3 of 20: epsilon 0.250, 1.50 s"
    assert _attributes(step) == {
        "hubbub.step": 3,
        "hubbub.steps": 20,
        "hubbub.epsilon": 0.25,
        "hubbub.seconds": 1.5,
    }
    assert (missing.severity_text, _attributes(missing)["hubbub.whom"]) == ("WARNING", "hungary")
    written = [json.loads(one) for one in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [one["event"] for one in written] == ["step", "missing"]
    assert step.time_unix_nano == pytest.approx(written[0]["time"] * 1e9, rel=1e-12)


@pytest.mark.slow
def test_a_collector_that_is_away_is_told_once_without_its_password(monkeypatch, tmp_path):
    address = f"http://ada:S3cret@127.0.0.1:{free_port()}"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    monkeypatch.setattr(monitor, "_FEW_SECONDS", 0.2)  # that the end waits for it
    said: list[str] = []
    with exported("cleveland", said.append) as send:
        event_log = EventLog(party="cleveland", folder=tmp_path, tell=send)
        for step in range(600):  # more than a batch, which is sent at once
            event_log.note("step", step=step, steps=600, epsilon=0.25, seconds=1.5)
        wait(lambda: said)
    (words,) = said
    assert "do not reach" in words
    assert "S3cret" not in words


def _party_of_a_roster(tmp_path: Path) -> list[str]:
    """The words with which a silo joins a consortium of one."""
    homes = {name: str(tmp_path / name) for name in ("hub", "cleveland")}
    relay = ("--role", "aggregator", "--relay", "tls://127.0.0.1:4222")
    assert main(["keygen", "hub", "--home", homes["hub"], *relay]) == 0
    assert main(["keygen", "cleveland", "--home", homes["cleveland"]]) == 0
    files = [f"{home}/identity.toml" for home in homes.values()]
    roster = str(tmp_path / "roster.toml")
    assert main(["roster", *files, "--out", roster]) == 0
    return ["join", "--home", homes["cleveland"], "--roster", roster]


@pytest.mark.parametrize("asked", [True, False])
def test_a_party_sends_its_events_where_it_is_told_to(collector, tmp_path, monkeypatch, asked):
    pytest.importorskip("nats", reason="needs the extra net")

    def joined(*parts: Any, **_: Any) -> None:
        parts[3].note("connected")

    monkeypatch.setattr("hubbub.site.network.join.join", joined)
    assert main([*_party_of_a_roster(tmp_path), *(["--otlp"] if asked else [])]) == 0
    assert len(collector) == int(asked)


def test_without_the_library_a_sentence_says_so(monkeypatch, capsys, tmp_path):
    pytest.importorskip("nats", reason="needs the extra net")
    monkeypatch.setitem(sys.modules, "opentelemetry._logs", None)
    assert main([*_party_of_a_roster(tmp_path), "--otlp"]) == 2
    assert ".[otlp]" in capsys.readouterr().err
