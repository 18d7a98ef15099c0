"""`hubbub join --check`: what it finds, and that it disturbs nobody."""

from __future__ import annotations

import json
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from hubbub.core.errors import DataError, UserError
from hubbub.core.protocol.primitives.wire import VERSION
from hubbub.core.study import silo_records
from hubbub.core.study.study import Study
from hubbub.desk.cli.main import main
from hubbub.site.network import checkup as checkups
from hubbub.site.network.checkup import Checked, checkup
from hubbub.site.network.join import Machine, check, relay_of
from hubbub.site.network.nats import relay, relay_connection
from hubbub.site.network.nats import relay_connection as login_trial
from hubbub.site.network.nats.server import RelayFiles, Server
from hubbub.site.network.party_folder import RELAY, PartyFolder
from network.lines import relayed, wait
from network.test_over_nats import Everybody

pytest.importorskip("nats", reason="needs the extra net")
CHECKS = ["reachability", "certificate", "clock", "approval", "data", "disk", "versions"]
ROWS = "a,b,c,d,x\n" + "0.5,0.25,0.125,1,1\n" * 20


def with_files(home: Path) -> Everybody:
    """A consortium whose silos have files."""
    data = {"source": "", "files": "{name}.csv", "records": 60}
    everybody = Everybody(home, data=data, model={"inputs": [4]})
    for name in ("ann", "bob", "cyn"):
        (home / name / f"{name}.csv").write_text(ROWS)
    return everybody


def started(everybody: Everybody) -> Server:
    """The aggregator's own relay, without a study that runs."""
    party_folder = everybody.sites["aggregator"]
    made = RelayFiles.written(party_folder.home / RELAY, everybody.roster, None)
    server = Server(
        made.configuration.parent, relay_of(party_folder, None, everybody.roster).port, print
    )
    server.start()
    return server


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Everybody]:
    """A consortium that has approved a study, with a relay."""
    everybody = with_files(tmp_path_factory.mktemp("there"))
    everybody.approve()
    server = started(everybody)
    wait(lambda: listens(everybody))
    yield everybody
    server.stop()


def listens(everybody: Everybody) -> bool:
    port = relay_of(everybody.sites["aggregator"], None, everybody.roster).port
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def looked(
    party_folder: PartyFolder, machine: Machine | None = None, **more: Any
) -> dict[str, Checked]:
    found = checkup(party_folder, machine or Machine(), **more)
    return {one.check: one for one in found}


def wrong(found: dict[str, Checked]) -> list[str]:
    return [name for name, one in found.items() if not one.well]


def written(home: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in home.rglob("*") if path.is_file()}


def test_all_is_well_and_nothing_is_written(
    there: Everybody, capsys: pytest.CaptureFixture[str]
) -> None:
    before = written(there.home / "ann")
    assert main(["join", "--check", "--home", str(there.home / "ann"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["well"]
    assert [one["check"] for one in said["checks"]] == CHECKS
    assert written(there.home / "ann") == before
    text = json.dumps(said)
    assert "logged in at tls://127.0.0.1" in text
    assert "365 days left" in text or "364 days left" in text
    assert f"wire {VERSION}" in text


def test_a_study_that_is_over_needs_its_records_no_more(tmp_path: Path) -> None:
    everybody = with_files(tmp_path)
    everybody.approve()
    (tmp_path / "ann" / "ann.csv").unlink()
    ann = everybody.sites["ann"]
    with pytest.raises(DataError, match=r"ann\.csv"):
        check(ann, Machine())
    ann.model(everybody.study.id).mkdir(parents=True)
    assert check(ann, Machine()) == [everybody.study.name]
    assert looked(ann, door=tmp_path / "ann.sock")["data"].well


def test_a_node_has_no_records_to_look_at(there: Everybody) -> None:
    found = looked(there.sites["node-1"])
    assert wrong(found) == []
    assert "data" not in found


def test_people_see_a_table_and_a_sentence_for_what_is_wrong(
    there: Everybody, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    home = str(there.home / "ann")
    assert main(["join", "--check", "--home", home]) == 0
    assert "ok?" in capsys.readouterr().out
    assert main(["join", "--check", "--home", home, "--data", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    told = [line for line in lines if line.startswith("data: expected the records of ann")]
    assert len(told) == 1
    assert str(tmp_path / "ann.csv") in told[0]


def test_the_aggregator_does_not_join(there: Everybody) -> None:
    assert main(["join", "--check", "--home", str(there.home / "aggregator")]) == 2


@pytest.mark.slow
def test_checks_beside_a_party_that_takes_part_disturb_nothing(tmp_path: Path) -> None:
    """Its line stays up, its study comes to its end, and each attempt is charged once."""
    everybody = Everybody(tmp_path, training={"steps": 30})
    everybody.approve()
    for name in list(everybody.sites)[1:]:
        everybody.join(name)
    over, found = threading.Event(), []
    party_folder = PartyFolder.opened(tmp_path / "ann")

    def look() -> None:
        wait(lambda: everybody.status("ann").get("state") == "training")
        while not over.is_set() or not found:
            found.append(wrong(looked(party_folder)))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    out = everybody.serve()
    assert everybody.status("ann")["attempts"] == 30
    over.set()
    thread.join(400)
    everybody.end()
    assert (out / "evidence.json").is_file()
    assert found
    assert found[0] == []
    assert everybody.status("ann")["reconnects"] == 0
    assert not any("did not answer" in one or "refused" in one for one in everybody.said)


def test_a_relay_that_is_not_there(tmp_path: Path) -> None:
    everybody = with_files(tmp_path)
    everybody.approve()
    found = looked(everybody.sites["ann"])
    assert wrong(found) == ["reachability", "certificate", "clock"]
    assert "nobody listens" in found["reachability"].found


def test_a_relay_that_says_nothing(there: Everybody, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_trial, "_SECONDS", 0.2)
    monkeypatch.setattr(relay_connection, "_BYE_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"tls://127.0.0.1:{silent.getsockname()[1]}"
        found = looked(there.sites["ann"], url=url)
    assert "no answer from" in found["reachability"].found


def test_of_a_cluster_each_server_is_tried(there: Everybody) -> None:
    good = relay_of(there.sites["ann"], None).urls[0]
    found = checkup(there.sites["ann"], Machine(), url=f"{good},tls://127.0.0.1:1")
    assert [one.well for one in found if one.check == "reachability"] == [True, False]


def test_a_relay_behind_a_websocket(tmp_path: Path) -> None:
    with relayed(tmp_path, "wss") as here:
        found = login_trial.tried(here.relay, here.keys["ann"])
    assert [one.why for one in found] == [""]
    assert found[0].certificate is not None
    assert relay.pin_of(found[0].certificate) == here.relay.pin


def test_a_key_that_is_like_the_rosters_in_all_but_its_last_byte_is_another(
    tmp_path: Path,
) -> None:
    made = relay.RelayCertificate.made(tmp_path, "localhost")
    shown = x509.load_pem_x509_certificate(made.path.read_bytes()).public_bytes(Encoding.DER)
    relay.check(shown, made.pin)
    with pytest.raises(ssl.SSLError, match="expected the relay's key"):
        relay.check(shown, made.pin[:-1] + bytes([made.pin[-1] ^ 1]))


def test_a_party_that_the_relay_does_not_know(there: Everybody, tmp_path: Path) -> None:
    other = with_files(tmp_path)
    other.approve()
    url = relay_of(there.sites["ann"], None).urls[0]
    found = looked(other.sites["ann"], url=url)
    assert "expected the relay's key" in found["certificate"].found
    roster = there.roster
    found = looked(other.sites["ann"], url=url, roster=roster)
    assert "does not know this party's key" in found["reachability"].found
    assert found["certificate"].well
    assert found["clock"].well


def test_an_approval_is_missing(there: Everybody, tmp_path: Path) -> None:
    other = with_files(tmp_path)
    found = looked(other.sites["ann"])
    assert wrong(found) == ["reachability", "approval"]
    assert "put it there with hubbub approve --roster" in found["reachability"].found
    assert "hubbub approve it" in found["approval"].found
    found = looked(other.sites["ann"], roster=other.roster)
    assert "nobody listens" in found["reachability"].found


def shifted(days: int) -> type[datetime]:
    class Shifted(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(UTC) + timedelta(days=days)

    return Shifted


@pytest.mark.parametrize(
    ("days", "bad"),
    [(340, ["certificate"]), (400, ["certificate", "clock"]), (-3, ["clock"])],
    ids=["soon to expire", "a clock ahead", "a clock behind"],
)
def test_the_certificates_dates_and_this_clock(
    there: Everybody, monkeypatch: pytest.MonkeyPatch, days: int, bad: list[str]
) -> None:
    monkeypatch.setattr(checkups, "datetime", shifted(days))
    found = looked(there.sites["ann"])
    assert wrong(found) == bad
    assert "hubbub relay" in found["certificate"].found or days < 0
    assert "set the clock" in found["clock"].found or days == 340


def test_the_dates_of_a_certificate_that_was_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everybody = with_files(tmp_path)
    monkeypatch.setattr(relay, "datetime", shifted(-400))
    (tmp_path / "aggregator" / RELAY / relay.CERTIFICATE).unlink()
    relay.RelayCertificate.made(tmp_path / "aggregator" / RELAY, "127.0.0.1")
    everybody.approve()
    server = started(everybody)
    monkeypatch.undo()
    try:
        wait(lambda: listens(everybody))
        found = looked(everybody.sites["ann"])
    finally:
        server.stop()
    assert wrong(found) == ["reachability", "certificate", "clock"]
    assert "to be valid today" in found["reachability"].found
    assert "have it renewed with hubbub relay" in found["certificate"].found


def test_records_that_cannot_be_read_and_nothing_of_a_cell(
    there: Everybody, tmp_path: Path
) -> None:
    (tmp_path / "ann.csv").write_text(ROWS + "8675309x,0,0,0,1\n")
    found = looked(there.sites["ann"], Machine(data=tmp_path))
    assert wrong(found) == ["data"]
    assert "expected a number in ann.csv" in found["data"].found
    assert "8675309" not in found["data"].found


def nothing_free(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(checkups, "_DISK", 1 << 60)


def no_torch(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(checkups, "_version", lambda name: None if name == "torch" else "1")


@pytest.mark.parametrize(
    ("spoil", "bad", "says"),
    [
        (nothing_free, "disk", "make room"),
        (no_torch, "versions", "pip install '.[learn,net]'"),
    ],
)
def test_a_machine_that_lacks_something(
    there: Everybody,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    spoil: Callable[..., None],
    bad: str,
    says: str,
) -> None:
    spoil(monkeypatch, tmp_path)
    found = looked(there.sites["ann"])
    assert wrong(found) == [bad]
    assert says in found[bad].found


def test_a_silo_needs_torch_where_a_model_is_trained_alone(
    there: Everybody, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    no_torch(monkeypatch, tmp_path)
    with pytest.raises(UserError, match="which trains a model; pip install"):
        checkups._versions(there.sites["ann"])
    monkeypatch.setattr(PartyFolder, "open_studies", lambda _: [])
    assert "torch none" in checkups._versions(there.sites["ann"])


def test_of_studies_that_ask_the_same_of_a_file_one_has_it_read_before_any_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for sixty; for what is asked otherwise again, and what has changed is seen."""
    everybody = with_files(tmp_path)
    everybody.approve()
    ann, study, read = everybody.sites["ann"], everybody.study, list[str]()
    fewer = replace(study, name="fewer", toml="", data=replace(study.data, capacity=(25,)))
    for one in (*(replace(study, name=f"{i}", toml="") for i in range(3)), fewer):
        ann.approve(one, everybody.roster)
    real = silo_records.check_readable

    def watched(one: Study, party: str, folder: Path) -> int:
        read.append(one.name)
        return real(one, party, folder)

    monkeypatch.setattr(silo_records, "check_readable", watched)
    assert len(check(ann, Machine())) == 5
    assert len(read) == 2
    assert "fewer" in read
    (ann.home / "ann.csv").write_text("torn")
    with pytest.raises(DataError, match=r"ann\.csv"):
        check(ann, Machine())


def test_a_ledger_in_a_folder_that_is_not_there(there: Everybody, tmp_path: Path) -> None:
    found = looked(there.sites["ann"], Machine(ledger=tmp_path / "no" / "ledger.sqlite"))
    assert wrong(found) == ["disk"]
    assert str(tmp_path / "no") in found["disk"].found


def test_a_silo_whose_file_is_refused_is_not_there_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is wrong is said here, before any line is opened, and without the cell."""
    everybody = with_files(tmp_path)
    everybody.approve()
    party_folder = everybody.sites["ann"]
    (party_folder.home / "ann.csv").write_text(ROWS + "0.5,0.25,0.125,1,s3cr3t\n")

    def opened(*_: object) -> None:
        raise AssertionError("a line was opened")

    monkeypatch.setattr("hubbub.site.network.join.Answering", opened)
    assert main(["join", "--home", str(party_folder.home)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert re.search(r"row 21 after the header.*hubbub check", said.err)
    assert "s3cr3t" not in said.err
