"""Who typed which command at a party, as its folder remembers it."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from hubbub.desk.cli import main as command_log
from hubbub.desk.cli.main import main


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A party's folder, made by its own command; the system's log is no test's."""
    monkeypatch.setattr(command_log, "_SYSTEM", tmp_path / "none")
    assert main(["keygen", "cleveland", "--home", str(tmp_path / "home")]) == 0
    return tmp_path / "home"


def lines(home: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (home / command_log.COMMANDS).read_text().splitlines()]


def test_the_making_of_keys_is_noted_with_who_made_them(home):
    (line,) = lines(home)  # before it there was no folder
    assert line["actor"]["user"] == command_log.actor()["user"] != ""
    assert (line["command"], line["exit_code"]) == (["keygen", "cleveland", "--home", str(home)], 0)
    assert stat.S_IMODE((home / command_log.COMMANDS).stat().st_mode) == 0o600


def test_a_command_is_noted_before_it_runs_and_how_it_ended(home):
    typed = ["approve", "nowhere.toml", "--home", str(home), "--yes"]
    assert main(typed) == 2
    begun, ended = lines(home)[1:]
    assert (begun["command"], "exit_code" in begun) == (typed, False)
    assert (ended["command"], ended["exit_code"]) == (typed, 2)
    assert begun["process"] == ended["process"]


def test_a_command_that_may_name_a_study_and_names_none_is_noted_without_one(home):
    assert main(["run", "--resume", "nowhere", "--out", str(home / "run")]) == 2
    begun, ended = lines(home)[1:]
    assert ("study" in begun, ended["exit_code"]) == (False, 2)


def test_a_line_that_a_full_disk_has_torn_spoils_no_other(home):
    with (home / command_log.COMMANDS).open("a") as file:
        file.write('{"time": 17')
    assert main(["approve", "nowhere.toml", "--home", str(home), "--yes"]) == 2
    written = (home / command_log.COMMANDS).read_text().splitlines()
    assert written.pop(1) == '{"time": 17'
    assert [json.loads(line).get("exit_code") for line in written] == [0, None, 2]


def test_a_cap_is_noted_in_the_folder_whose_ledger_it_is(home):
    ledger = str(home / "ledger.sqlite")
    assert main(["budget", "set", ledger, "--epsilon", "8", "--delta", "1e-5", "--new"]) == 0
    assert lines(home)[-2]["command"][:3] == ["budget", "set", ledger]


def test_whoever_became_another_user_is_named(home, monkeypatch):
    monkeypatch.setenv("SUDO_USER", "ada")
    assert command_log.actor()["sudo_user"] == "ada"


@pytest.mark.slow
@pytest.mark.parametrize(
    "spelt",
    [
        "tls://ada:S3cret@hub.example:4222",
        "tls://ada:pa/S3cret@hub.example",
        "tls://ada:S3cret/@hub.example",
        "tls://ada:S3cret@x@hub.example",
        "ada:S3cret@hub.example",
        "//ada:S3cret@hub.example",
        "tls:/ada:S3cret@hub.example",
        "tls://one.example,ada:S3cret@hub.example",
        "tls://a:S3cret@one.example,tls://b:S3cret@hub.example",
        "tls://ada:pa\nS3cret@hub.example",
        "tls://ada:S3cret%40hub.example",
        "tls://ada:S3cret\uff20hub.example",
        "ada:S3cret\ufe6bhub.example",
        "tls://S3cret@hub.example?x=@",
        "tls://hub.example?password=S3cret@",
    ],
)
@pytest.mark.parametrize("option", ["--relay ", "--relay="])
def test_no_password_of_an_address_is_noted(home, monkeypatch, option, spelt):
    said: list[str] = []
    monkeypatch.setattr(command_log, "_SYSTEM", home)
    monkeypatch.setattr(command_log.syslog, "openlog", lambda *_, **__: None)
    monkeypatch.setattr(command_log.syslog, "syslog", said.append)
    main(["join", "--home", str(home), *f"{option}{spelt}".split(" ")])
    noted = (home / command_log.COMMANDS).read_text() + "".join(said)
    assert noted.count("join") == len(said) * 2 == 4
    assert "cret" not in noted


def test_a_folder_whose_name_is_no_text_stops_no_command(home, monkeypatch):
    noted: list[bytes] = []
    odd = home.rename(home.with_name("h\udcff"))
    monkeypatch.setattr(command_log, "_SYSTEM", odd)
    monkeypatch.setattr(command_log.syslog, "openlog", lambda *_, **__: None)
    monkeypatch.setattr(command_log.syslog, "syslog", lambda words: noted.append(words.encode()))
    assert main(["inbox", "--home", str(odd)]) == 0
    assert [b"h\\udcff: {" in line for line in noted] == [True, True]


@pytest.mark.parametrize(
    ("word", "noted"),
    [
        ("tls://hub.example:4222", "tls://hub.example:4222"),
        ("wss://[2001:db8::1]:443/", "wss://[2001:db8::1]:443/"),
        ("tls://one.example:1,tls://two.example", "tls://one.example:1,tls://two.example"),
        ("--relay=wss://hub.example", "--relay=wss://hub.example"),
        ("tls://ada:S3cret@hub.example:4222", "***@hub.example:4222"),
        ("tls://ada:S3cret", "***"),  # of a password with a space in it, a shell makes two words
        ("postgresql:///db?user=u&password=S3cret", "***"),
        ("/srv/home//study.toml", "/srv/home//study.toml"),
        ("2026-12-24T18:00", "2026-12-24T18:00"),
    ],
)
def test_what_is_no_password_is_noted_as_it_was_typed(word, noted):
    assert command_log._shown(word) == noted


def test_a_look_at_how_a_party_is_is_not_noted(home):
    before = lines(home)
    (home / "status.json").write_text('{"party": "cleveland", "time": 0}')
    main(["status", str(home), "--check"])
    main(["join", "--home", str(home), "--check"])
    assert lines(home) == before


def test_a_full_disk_costs_the_line_and_no_command(home, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(command_log, "append_line", full)
    assert (
        main(
            ["budget", "set", str(home / "l.sqlite"), "--epsilon", "8", "--delta", "1e-5", "--new"]
        )
        == 0
    )
