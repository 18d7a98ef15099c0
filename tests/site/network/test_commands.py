"""The commands of a networked study that need no engine: what they write, print and refuse."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import shutil
import signal
import socket
import stat
import time
import tomllib
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import pytest
import tomli_w

from hubbub.core.errors import UserError
from hubbub.core.protocol.primitives.identity import Keys
from hubbub.core.study.study import Study
from hubbub.desk.cli import consortium_commands, network_commands
from hubbub.desk.cli.main import COMMANDS, main
from hubbub.site.network.demo import PartyProcess
from hubbub.site.network.event_log import EventLog, StudyLog
from hubbub.site.network.folder_files import read_roster, roster_of
from hubbub.site.network.party_folder import PartyFolder, alone
from network.consortium import HOSPITALS, table
from network.lines import wait

PARTIES = {"aggregator": "aggregator"} | dict.fromkeys(HOSPITALS, "silo") | {"node-1": "node"}
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(capsys) -> Command:
    """Runs a command: its exit code, what it printed, and its complaint."""

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(one) for one in arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def review(command, monkeypatch) -> Command:
    """An approval by somebody at a terminal, who says yes to what is shown."""
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda _question: "y")
    return lambda *given: command(*(one for one in approval(*given) if one != "--yes"))


@pytest.fixture
def ask(command) -> Callable[..., dict]:
    """The one object that a command prints with --json."""

    def run(*arguments: object) -> dict:
        code, out, err = command(*arguments, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return run


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Everybody's keys, the roster, and a study that names it; nobody has approved it yet."""
    home = tmp_path_factory.mktemp("consortium")
    for name, role in PARTIES.items():
        assert main(["keygen", name, "--role", role, "--home", str(home / name), "--json"]) == 0
    files = [str(home / name / "identity.toml") for name in PARTIES]
    assert main(["roster", *files, "--out", str(home / "roster.toml"), "--json"]) == 0
    return home


@pytest.fixture
def home(made, tmp_path, ask) -> Path:
    """A copy of it for one test."""
    copy = tmp_path / "consortium"
    shutil.copytree(made, copy)
    said = table(HOSPITALS, nodes=1)
    said["parties"]["roster"] = ask("roster", copy / "roster.toml")["digest"]
    (copy / "study.toml").write_text(tomli_w.dumps(said))
    return copy


def approval(home: Path, name: str = "cleveland", *more: object) -> list[object]:
    """The arguments with which a party approves the study."""
    roster = ("--roster", home / "roster.toml")
    return ["approve", home / "study.toml", *roster, "--home", home / name, "--yes", *more]


def refuses(command: Command, *arguments: object, says: str) -> None:
    """Exit code 2, one sentence that says this, and nothing on standard output."""
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("hubbub: ")
    assert err.count("\n") == 1
    assert says in err


# keygen -------------------------------------------------------------------------------------


def test_keygen_makes_a_folder_that_only_its_owner_reads(ask, tmp_path):
    said = ask("keygen", "cleveland", "--home", tmp_path / "home")
    assert said["name"] == "cleveland"
    assert said["role"] == "silo"
    assert stat.S_IMODE((tmp_path / "home" / "keys.toml").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "home").stat().st_mode) == 0o700


def test_what_keygen_shows_and_gives_away_is_not_private(command, tmp_path):
    code, out, _ = command("keygen", "cleveland", "--home", tmp_path)
    assert code == 0
    secrets = tomllib.loads((tmp_path / "keys.toml").read_text())["private"].values()
    given = out + (tmp_path / "identity.toml").read_text()
    assert secrets
    assert not any(secret in given for secret in secrets)


def test_keygen_tells_the_fingerprint_that_the_roster_tells(ask, home):
    own = ask("keygen", "new", "--home", home / "new")["fingerprint"]
    files = [home / name / "identity.toml" for name in (*PARTIES, "new")]
    listed = ask("roster", *files, "--out", home / "more.toml")["parties"]
    assert {"name": "new", "role": "silo", "fingerprint": own} in listed
    assert len({one["fingerprint"] for one in listed}) == len(listed)


def test_keygen_never_writes_over_keys(command, home):
    before = (home / "cleveland" / "keys.toml").read_bytes()
    refuses(command, "keygen", "x", "--home", home / "cleveland", says="choose another --home")
    assert (home / "cleveland" / "keys.toml").read_bytes() == before


def test_keygen_knows_three_roles(command, tmp_path):
    refuses(command, "keygen", "x", "--role", "server", "--home", tmp_path, says="silo")


# roster -------------------------------------------------------------------------------------


def test_a_roster_lists_the_aggregator_then_silos_then_nodes(ask, home):
    files = [home / name / "identity.toml" for name in reversed(PARTIES)]
    said = ask("roster", *files, "--out", home / "other.toml")
    roles = [one["role"] for one in said["parties"]]
    assert roles == ["aggregator", *["silo"] * len(HOSPITALS), "node"]
    assert ask("roster", home / "other.toml") == said


def test_a_roster_for_people_shows_what_goes_into_the_study(command, ask, home):
    digest = ask("roster", home / "roster.toml")["digest"]
    code, out, _ = command("roster", home / "roster.toml")
    assert code == 0
    assert f'roster = "{digest}"' in out
    assert all(name in out for name in PARTIES)


def test_a_roster_has_each_party_once(command, home):
    files = [home / name / "identity.toml" for name in (*PARTIES, "cleveland")]
    refuses(command, "roster", *files, "--out", home / "x.toml", says="in the roster once")
    assert not (home / "x.toml").exists()


@pytest.mark.parametrize("text", ["", "party = 3", "not toml", "[[party]]\nname = 'x'\n"])
def test_a_file_that_is_no_identity_is_refused(command, tmp_path, text):
    (tmp_path / "bad.toml").write_text(text)
    refuses(command, "roster", tmp_path / "bad.toml", says="ask for it again")


def test_private_keys_are_not_taken_for_an_identity(command, home):
    refuses(
        command, "roster", home / "cleveland" / "keys.toml", says="expected an identity or a roster"
    )


# approve ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_study_is_approved_by_its_id(ask, home):
    said = ask(*approval(home))
    study = Study.load(home / "study.toml")
    assert said["study_id"] == study.id.hex()
    assert Study.load(Path(said["file"])).id == study.id


def test_nothing_is_approved_without_somebody_who_says_so(command, home):
    asked = approval(home)
    asked.remove("--yes")
    refuses(command, *asked, "--json", says="--yes")
    assert not (home / "cleveland" / "approved").exists()


def test_whoever_approves_is_shown_the_plan(review, home):
    code, out, _ = review(home)
    assert code == 0
    assert "│ the study's" in out
    assert Study.load(home / "study.toml").id.hex() in out


@pytest.mark.slow
def test_whoever_approves_is_told_that_no_capacity_is_stated(review, home):
    """P19: then a record more or fewer may be outside the promise."""
    said = tomllib.loads((home / "study.toml").read_text())
    said["model"] = {"kind": "logistic"}
    said["data"] = {"files": "{name}.csv", "target": "ill", "records": 735}
    said["data"]["columns"] = {"age": {"low": 20, "high": 90}}
    for capacity in ({}, {"capacity": 400}):
        own = said | {"data": said["data"] | capacity}
        (home / "study.toml").write_text(tomli_w.dumps(own))
        code, out, err = review(home)
        assert (code, err) == (0, "")
        assert ("data.capacity is not stated" in " ".join(out.split())) == (not capacity)


def test_an_approval_can_be_taken_back(ask, command, home):
    approved = Path(ask(*approval(home))["file"])
    assert ask(*approval(home, "cleveland", "--withdraw"))["withdrawn"]
    assert not approved.exists()
    code, out, _ = command(*approval(home, "cleveland", "--withdraw", "--json"))
    assert code == 1
    assert json.loads(out)["withdrawn"] is False


def test_a_study_that_does_not_name_the_roster_is_not_approved(command, home):
    text = (home / "study.toml").read_text()
    kept = [line for line in text.splitlines() if not line.startswith("roster")]
    (home / "study.toml").write_text("\n".join(kept))
    refuses(command, *approval(home, "cleveland", "--json"), says="write it into the study")
    code, out, said = command(*approval(home))
    assert (code, out) == (2, ""), "before people read what they cannot approve"
    assert "--new-roster where it is newer" in said


def test_a_party_that_is_not_in_the_roster_does_not_approve(command, home, tmp_path):
    stranger = home / "stranger"
    assert command("keygen", "cleveland", "--home", stranger, "--json")[0] == 0
    refuses(command, *approval(home, "stranger", "--json"), says="compare fingerprints")


def test_keys_that_others_can_read_are_not_used(command, home):
    (home / "cleveland" / "keys.toml").chmod(0o640)
    refuses(command, *approval(home, "cleveland", "--json"), says="chmod 600")


def test_whoever_approves_sees_what_is_approved(review, home):
    code, out, _ = review(home)
    assert code == 0
    flat = " ".join(out.split())
    for shown in ("model.kind", "logistic", "data.target", "training.steps", "cleveland", "node-1"):
        assert shown in flat
    assert "code that runs at this party: only hubbub's own" in flat
    assert "no evaluation on the silos' records" in flat
    assert "no ledger in" in flat
    assert "no cap will be set, not by the study either" in flat
    code, out, _ = review(home, "aggregator")
    assert code == 0
    assert "no ledger" not in out, "it has no records"


def test_whoever_approves_sees_the_cap_that_the_study_sets(command, review, home):
    said = tomllib.loads((home / "study.toml").read_text())
    said["privacy"]["cap"] = 2.0
    (home / "study.toml").write_text(tomli_w.dumps(said))
    flat = " ".join(review(home)[1].split())
    assert "the study's first charge sets the ledger's cap: epsilon 2 at delta 1e-05" in flat
    ledger = home / "cleveland" / "ledger.sqlite"
    assert command("budget", "set", ledger, "--epsilon", 3, "--delta", 1e-5, "--new")[0] == 0
    flat = " ".join(review(home)[1].split())
    assert "the study proposes a cap of epsilon 2" in flat
    assert "the ledger keeps its own" in flat


def test_whoever_approves_sees_code_columns_and_what_is_left_of_the_cap(
    command, review, home, tmp_path
):
    said = tomllib.loads((home / "study.toml").read_text())
    said["model"] = {"kind": "python:ours:net", "inputs": [1]}
    said["data"] = {
        "files": "{name}.csv",
        "target": "ill",
        "records": 735,
        "columns": {"age": {"low": 20, "high": 90, "default": 55}},
    }
    said["training"]["evaluate"] = {"every": 1, "epsilon": 0.1}
    (home / "study.toml").write_text(tomli_w.dumps(said))
    ledger = home / "cleveland" / "ledger.sqlite"
    assert command("budget", "set", ledger, "--epsilon", 3, "--delta", 1e-5, "--new")[0] == 0
    code, out, err = review(home)
    flat = " ".join(out.split())
    assert (code, err) == (0, "")
    for shown in (
        "python:ours:net",
        "columns.age.high",
        "training.evaluate.every",
        "cap: epsilon 3",
        "3.00 left",
    ):
        assert shown in flat
    assert "this study spends at most epsilon 1.000" in flat
    assert "counted by the cap after this study: epsilon 1.000 at delta 1e-05 (add-remove)" in flat
    assert "above the cap" not in flat
    assert command("budget", "set", ledger, "--epsilon", 0.5, "--delta", 1e-5)[0] == 0
    _, out, _ = review(home)
    assert "above the cap: the ledger will refuse it" in " ".join(out.split())
    narrow = ("--epsilon", 0.5, "--delta", 1e-5, "--fixed-studies")
    assert command("budget", "set", ledger, *narrow)[0] == 0
    _, out, _ = review(home)
    assert "above the cap: the ledger will refuse its last steps" in " ".join(out.split())


def test_a_new_roster_takes_the_place_of_the_old_one_if_so_said(ask, command, home):
    ask(*approval(home))
    ask("keygen", "hungary", "--home", home / "hungary-2")
    files = [home / name / "identity.toml" for name in PARTIES if name != "hungary"]
    files.insert(2, home / "hungary-2" / "identity.toml")
    said = ask("roster", *files, "--out", home / "roster.toml")
    study = tomllib.loads((home / "study.toml").read_text())
    study["parties"]["roster"] = said["digest"]
    (home / "study.toml").write_text(tomli_w.dumps(study))
    refuses(command, *approval(home, "cleveland", "--json"), says="--new-roster")
    event_log = EventLog(party="cleveland", folder=home / "cleveland")
    event_log.progress(3, 40, study="a consortium", attempts=3)
    (own,) = PartyFolder.opened(home / "cleveland").studies()
    for study_id, attempts in ((own.id, 3), (bytes(32), 7)):  # two of a name
        log = StudyLog.within(event_log, "a consortium", study_id)
        log.progress(attempts, 40, study="a consortium", attempts=attempts)
    code, _, err = command(*approval(home, "cleveland", "--new-roster"))
    assert code == 0
    assert "with this roster a consortium (3 attempts made) will not continue, " in err
    assert "a training starts again at step 0 under its new id" in err
    assert "the ledger and finished results stay, and statistics are computed again" in err
    assert command(*approval(home, "cleveland", "--new-roster"))[::2] == (0, ""), "nothing new"
    folder = PartyFolder.opened(home / "cleveland")
    assert folder.roster.digest.hex() == said["digest"]
    assert [one.parties.roster for one in folder.studies()] == [said["digest"]]


def test_whoever_approves_sees_what_all_that_is_approved_comes_to(command, home):
    ledger, said = home / "cleveland" / "ledger.sqlite", (home / "study.toml").read_text()
    assert command("budget", "set", ledger, "--epsilon", 1.3, "--delta", 1e-5, "--new")[0] == 0
    assert "what comes last waits" not in " ".join(command(*approval(home))[1].split())
    assert "what comes last waits" not in " ".join(command(*approval(home))[1].split()), "itself"
    name = tomllib.loads(said)["study"]["name"]
    (home / "study.toml").write_text(said.replace(name, "another"))
    flat = " ".join(command(*approval(home))[1].split())
    assert "counted by the cap after this study: epsilon 1.000" in flat
    assert f"with what else is approved here ({name}), above the cap" in flat
    narrow = ("--epsilon", 1.3, "--delta", 1e-5, "--fixed-studies")
    assert command("budget", "set", ledger, *narrow)[0] == 0
    assert "above the cap" in " ".join(command(*approval(home))[1].split())


def test_a_study_that_is_over_is_not_lost_with_another_roster(ask, home):
    for name in ("cleveland", "aggregator"):
        ask(*approval(home, name))
    study = Study.load(home / "study.toml")
    former = read_roster(home / "roster.toml")
    other = roster_of([*former.parties[:-1], Keys.generate("node-1", "node").networked().identity])
    silo, aggregator = (PartyFolder.opened(home / name) for name in ("cleveland", "aggregator"))
    assert silo.ended_by(other) == aggregator.ended_by(other) == [study]
    assert silo.ended_by(former) == []
    (silo.home / "models" / study.id.hex()[:16]).mkdir(parents=True)
    aggregator.run(study.id).mkdir(parents=True)
    (aggregator.run(study.id) / "report.html").touch()
    assert silo.ended_by(other) == aggregator.ended_by(other) == []


# Passphrases --------------------------------------------------------------------------------


def handed(words: str) -> int:
    """A descriptor from which a passphrase is read."""
    end, start = os.pipe()
    os.write(start, words.encode() + b"\nmore")
    os.close(start)
    return end


@pytest.mark.slow
def test_keys_with_a_passphrase_are_closed_without_it(ask, command, home, tmp_path, monkeypatch):
    closed = home / "closed"
    ask("keygen", "cleveland", "--home", closed, "--passphrase-fd", handed("open sesame"))
    text = (closed / "keys.toml").read_text()
    assert "sealed" in text
    assert "signing" not in text
    asked = approval(home, "closed", "--json")
    refuses(command, *asked, says="--passphrase-fd")
    refuses(command, *asked, "--passphrase-fd", handed("open"), says="expected the passphrase of")
    says = "compare fingerprints"  # it is open, and its keys are not in the roster
    refuses(command, *asked, "--passphrase-fd", handed("open sesame"), says=says)
    (tmp_path / "hubbub-passphrase").write_text("open sesame\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    refuses(command, *asked, says=says)


def test_a_passphrase_is_asked_for_twice_and_never_shown(command, tmp_path, monkeypatch):
    said = iter(["one", "two", "one", "one"])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("hubbub.desk.cli.terminal.getpass", lambda _: next(said))
    asked = ("keygen", "x", "--home", tmp_path / "x", "--passphrase")
    refuses(command, *asked, says="the same passphrase twice")
    assert not (tmp_path / "x").exists()
    code, out, err = command(*asked)
    assert code == 0
    assert "one" not in (out + err).replace("telephone", "")


def test_who_ends_the_input_has_typed_no_passphrase_and_not_said_yes(
    command, tmp_path, monkeypatch
):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("hubbub.desk.cli.terminal.getpass", Mock(side_effect=EOFError))
    monkeypatch.setattr("builtins.input", Mock(side_effect=EOFError))
    asked = ("keygen", "x", "--home", tmp_path / "x", "--passphrase")
    refuses(command, *asked, says="expected a passphrase to be typed")
    assert not (tmp_path / "x").exists()
    assert not consortium_commands._agreed("Approve it?", Namespace(yes=False, json=False))


@pytest.fixture(scope="module")
def closed(tmp_path_factory) -> Path:
    """A party's folder with a passphrase on its keys."""
    home = tmp_path_factory.mktemp("closed") / "y"
    given = ("--passphrase-fd", str(handed("open sesame")))
    assert main(["keygen", "y", "--home", str(home), *given]) == 0
    return home


@pytest.mark.slow
@pytest.mark.parametrize("content", ["", "\n", " \t\r\n", "\nsecret", "\ufeff\n", "\0"])
@pytest.mark.parametrize("source", ["descriptor", "credential", "prompt"])
def test_a_source_of_a_passphrase_that_is_empty_is_no_wish_for_open_keys(
    command, closed, tmp_path, monkeypatch, content, source
):
    made, opened = ("keygen", "x", "--home", tmp_path / "x"), ("join", "--home", closed)
    given: tuple[object, ...] = ()
    for asked in (made, opened):
        if source == "descriptor":
            given = ("--passphrase-fd", handed(content))
        elif source == "credential":
            (tmp_path / "hubbub-passphrase").write_text(content)
            monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
        else:
            given = ("--passphrase",) if asked is made else ()
            monkeypatch.setattr("sys.stdin.isatty", lambda: True)
            monkeypatch.setattr(
                "hubbub.desk.cli.terminal.getpass", lambda _: content.split("\n")[0]
            )
        refuses(command, *asked, *given, says="found an empty first line")
    assert not (tmp_path / "x").exists()


def test_a_credential_that_is_no_file_is_no_wish_for_open_keys(command, tmp_path, monkeypatch):
    (tmp_path / "hubbub-passphrase").mkdir()
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    refuses(command, "keygen", "x", "--home", tmp_path / "x", says="to be readable, got: Is a dir")
    assert not (tmp_path / "x").exists()


# keygen and relay ---------------------------------------------------------------------------


def test_an_aggregators_identity_names_its_relay(ask, home):
    folder, url = home / "agg", "tls://hub.example.org:4333"
    ask("keygen", "aggregator", "--role", "aggregator", "--home", folder, "--relay", url)
    files = [folder / "identity.toml", *(home / n / "identity.toml" for n in list(PARTIES)[1:])]
    said = ask("roster", *files, "--out", home / "relayed.toml")
    assert said["relay"] == url
    made = ask("relay", home / "relayed.toml", "--out", folder / "relay")
    assert (made["reloaded"], made["days_left"] > 300) == (False, True)
    text = Path(made["configuration"]).read_text()
    assert "port: 4333" in text
    assert text.count("nkey:") == len(PARTIES) + 1  # by which it is seen what a server has
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder / "relay").iterdir()}
    assert modes == {"nats.conf": 0o644, "relay.pem": 0o644, "relay.key": 0o600}


def test_a_relay_with_another_key_than_the_rosters_is_refused(ask, command, home):
    folder, url = home / "agg", "tls://hub.example.org:4333"
    ask("keygen", "aggregator", "--role", "aggregator", "--home", folder, "--relay", url)
    ask("roster", folder / "identity.toml", "--out", home / "relayed.toml")
    (folder / "relay" / "relay.key").unlink()
    asked = ("relay", home / "relayed.toml", "--out", folder / "relay")
    refuses(command, *asked, says="expected the relay's certificate and key")
    assert ask("keygen", "other", "--role", "aggregator", "--home", home / "o", "--relay", url)
    shutil.copytree(home / "o" / "relay", folder / "relay", dirs_exist_ok=True)
    refuses(command, *asked, says="expected the relay's key that the roster names")


def test_a_silo_names_no_relay(command, tmp_path):
    asked = ("keygen", "x", "--home", tmp_path / "x", "--relay", "tls://hub")
    refuses(command, *asked, says="only for an aggregator")


def test_a_relay_may_have_a_name_of_other_letters(ask, tmp_path):
    home = tmp_path / "x"
    ask("keygen", "x", "--role", "aggregator", "--home", home, "--relay", "wss://müller.example")
    assert 'relay = "wss://xn--mller-kva.example:443"' in (home / "identity.toml").read_text()
    assert PartyFolder.opened(home).keys.identity.relay == "wss://xn--mller-kva.example:443"


def test_a_relays_name_that_two_standards_spell_differently_is_told_as_such(command, tmp_path):
    asked = ("keygen", "x", "--role", "aggregator", "--home", tmp_path / "x", "--relay")
    refuses(command, *asked, "wss://straße.example", says="spell differently; write it as xn--")


@pytest.mark.parametrize(
    "wrong",
    [
        ("x", "--relay", "wss://straße.example"),
        ("x", "--relay", "wss://-" + "ü" * 70 + ".example"),
        ("x", "--relay", "http://hub"),
        ("relay", "--relay", "wss://hub"),
        ("x", "--relay", "wss://hub", "--relay-certificate", "no-such-file.pem"),
    ],
)
def test_keys_that_cannot_be_made_leave_no_half_of_a_home(command, tmp_path, wrong):
    asked = ("keygen", *wrong, "--role", "aggregator", "--home", tmp_path / "x")
    refuses(command, *asked, says="expected")
    assert not (tmp_path / "x").exists()
    assert command("keygen", "x", "--role", "aggregator", "--home", tmp_path / "x")[0] == 0


def test_keys_that_are_there_keep_their_relay(command, tmp_path):
    asked = ("keygen", "x", "--role", "aggregator", "--home", tmp_path / "x", "--relay")
    assert command(*asked, "wss://hub.example")[0] == 0
    files = [path for path in (tmp_path / "x").rglob("*") if path.is_file()]
    before = {path: path.read_bytes() for path in files if path.name != COMMANDS}
    refuses(command, *asked, "wss://other.example", says="expected no keys in")
    assert before == {path: path.read_bytes() for path in before}


def test_a_full_disk_leaves_no_half_of_a_key_file(command, tmp_path, monkeypatch):
    def full(file, content):
        file.write(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("hubbub.core.disk.write_all", full)
    with pytest.raises(OSError, match="No space left"):
        PartyFolder.made(tmp_path / "x", "x", "silo")
    assert [path.name for path in (tmp_path / "x").iterdir()] == ["lock"]
    monkeypatch.undo()
    assert command("keygen", "x", "--home", tmp_path / "x")[0] == 0


def test_public_files_are_for_all_and_keys_for_one_whatever_the_umask(command, home, tmp_path):
    before = os.umask(0o077)
    try:
        assert command("keygen", "x", "--home", tmp_path / "x", "--json")[0] == 0
        assert command("roster", home / "roster.toml", "--out", tmp_path / "r.toml")[0] == 2
        files = [home / name / "identity.toml" for name in PARTIES]
        assert command("roster", *files, "--out", tmp_path / "r.toml")[0] == 0
    finally:
        os.umask(before)
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in (
            tmp_path / "r.toml",
            *(tmp_path / "x" / n for n in ("identity.toml", "keys.toml")),
        )
    }
    assert modes == {"r.toml": 0o644, "identity.toml": 0o644, "keys.toml": 0o600}


# serve and join -----------------------------------------------------------------------------


def serving(home: Path) -> list[object]:
    """The arguments of a server that finds nobody at its relay."""
    where = ("--home", home / "aggregator", "--relay", "tls://127.0.0.1:9")
    return ["serve", home / "study.toml", *where]


@pytest.mark.slow
def test_serve_keeps_an_audit_of_this_study_and_no_other(ask, command, home, tmp_path, monkeypatch):
    study, found = Study.load(home / "study.toml"), tmp_path / "audit.json"

    def hosted(*_args, **_options):
        raise UserError("expected a study to run, got a test")

    monkeypatch.setattr("hubbub.site.network.aggregator_process.host", hosted)
    ask(*approval(home, "aggregator"))
    few = ("--runs", "2", "--canaries", "50", "--confidence", "0.99999")
    said = ask("audit", home / "study.toml", *few, "--out", found)
    refuses(command, *serving(home), "--audit", found, "--json", says="got a test")
    kept = PartyFolder.opened(home / "aggregator").audit(study.id)
    assert json.loads(kept.read_text()) == said == json.loads(found.read_text())
    found.write_text(json.dumps({**said, "study": "00" * 32}))
    refuses(command, *serving(home), "--audit", found, says="make it again")
    assert json.loads(kept.read_text()) == said
    ask(*approval(home, "aggregator", "--withdraw"))
    assert PartyFolder.opened(home / "aggregator").audit(study.id) is None


def test_serve_runs_no_study_that_was_not_approved_here(command, home):
    refuses(command, *serving(home), says="hubbub approve")


def test_a_silos_folder_serves_nothing_by_mistake(command, home):
    asked = [one if one != home / "aggregator" else home / "cleveland" for one in serving(home)]
    refuses(command, *asked, says="use join")


def test_the_aggregators_folder_joins_nothing_by_mistake(command, home):
    refuses(command, "join", "--home", home / "aggregator", says="use hubbub serve")


def test_a_second_process_on_one_home_is_refused(ask, command, home):
    ask(*approval(home, "aggregator"))
    ask(*approval(home, "cleveland"))
    with alone(home / "aggregator"), alone(home / "cleveland"):
        refuses(command, *serving(home), says="the only process that works with")
        where = ("--home", home / "cleveland", "--relay", "tls://127.0.0.1:9", "--json")
        refuses(command, "join", *where, says="the only process that works with")


def test_a_port_that_is_taken_is_told(ask, command, home):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        agg = home / "agg"
        url = f"tls://127.0.0.1:{port}"
        ask("keygen", "aggregator", "--role", "aggregator", "--home", agg, "--relay", url)
        files = [agg / "identity.toml", *(home / n / "identity.toml" for n in list(PARTIES)[1:])]
        said = tomllib.loads((home / "study.toml").read_text())
        said["parties"]["roster"] = ask("roster", *files, "--out", home / "roster.toml")["digest"]
        (home / "study.toml").write_text(tomli_w.dumps(said))
        ask(*approval(home, "agg"))
        asked = ("serve", home / "study.toml", "--home", agg)
        refuses(command, *asked, says=f"expected port {port} to be free")


def test_files_that_are_not_there_are_told_with_their_paths_at_once(ask, command, home, tmp_path):
    said = tomllib.loads((home / "study.toml").read_text())
    said["data"] = {"files": "rows-{name}.csv", "test": "rows.csv", "target": "ill", "records": 735}
    said["data"]["columns"] = {"age": {"low": 20, "high": 90, "default": 55}}
    said["model"].pop("inputs", None)
    (home / "study.toml").write_text(tomli_w.dumps(said))
    ask(*approval(home, "aggregator"))
    ask(*approval(home, "cleveland"))
    where = ("--relay", "tls://127.0.0.1:9", "--data", tmp_path)
    path = tmp_path / "rows-cleveland.csv"
    refuses(command, "join", "--home", home / "cleveland", *where, says=str(path))
    refuses(command, *serving(home), says=str(home / "aggregator" / "rows.csv"))
    refuses(command, *serving(home), "--data", tmp_path, says=str(tmp_path / "rows.csv"))


def test_whoever_has_no_keys_is_told_to_make_some(command, home, tmp_path):
    asked = ["approve", home / "study.toml", "--roster", home / "roster.toml", "--home", tmp_path]
    refuses(command, *asked, says="hubbub keygen")


def test_without_the_engine_its_commands_say_what_to_install(command, home, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "nats" else real(name)
    )
    refuses(command, "join", "--home", home / "cleveland", says="'.[net]'")
    refuses(command, *serving(home), says="'.[net]'")
    refuses(command, "demo", "--network", "--out", home / "demo", says="net]")
    assert not (home / "demo").exists()


def test_the_demo_over_the_network_has_no_splits(command, tmp_path):
    refuses(command, "demo", "--network", "--splits", "3", "--out", tmp_path, says="--splits")


def test_a_signal_to_a_process_that_has_just_ended_is_no_error():
    ended = PartyProcess.__new__(PartyProcess)
    ended._process = Mock(exitcode=None, pid=2**22 + 1)  # beyond any pid; its end is not heard of
    ended.send_signal(signal.SIGTERM)


@pytest.mark.slow
def test_the_demo_over_the_network_sets_both_runs_side_by_side(ask, home, monkeypatch):
    """What the engine would bring is made up; the run in one process is not."""

    def apart(out, text, *, nodes, tell, command):
        out.mkdir()
        shutil.copy(home / "study.toml", out / "study.toml")
        tell("words for people, which --json has no place for")
        return {"out": str(out / "run"), "final": {"auc": 0.875, "epsilon": 1.0}}

    monkeypatch.setattr("hubbub.site.network.demo.run_demo", apart)
    said = ask("demo", "--network", "--out", home / "demo")
    assert said["auc"].keys() == {"network", "in-process"}
    assert said["auc"]["network"] == 0.875
    assert 0 < said["auc"]["in-process"] <= 1
    assert said["epsilon"] == pytest.approx(1.0, rel=1e-3)
    assert said["delta"] == 1e-5
    assert said["seconds"] > 0
    assert said["out"] == str(home / "demo")


# status -------------------------------------------------------------------------------------


def test_status_tells_what_the_journal_last_knew(ask, tmp_path):
    event_log = EventLog(party="cleveland", folder=tmp_path)
    event_log.add(answers=3, bytes_sent=12_345)
    event_log.state(study="heart", attempts=3, epsilon=0.125)
    time.sleep(0.01)
    said = ask("status", tmp_path)
    assert 0 < said.pop("age_seconds") < 60
    assert said == {
        "party": "cleveland",
        "study": "heart",
        "answers": 3,
        "attempts": 3,
        "bytes_sent": 12_345,
        "epsilon": 0.125,
    }


def test_status_for_people_has_the_same(command, tmp_path):
    EventLog(party="cleveland", folder=tmp_path).state(bytes_sent=12_345, epsilon=0.125)
    code, out, _ = command("status", tmp_path)
    assert code == 0
    assert all(part in out for part in ("cleveland", "bytes sent", "12,345", "0.125"))


def test_of_several_studies_a_silo_sees_how_far_each_is(command, tmp_path):
    """A silo counts attempts, where the aggregator counts steps."""
    log = EventLog(party="ann", folder=tmp_path)
    for number in (1, 2):
        state = {"study": f"study {number}", "state": "training"}
        log.of_study(f"{number}", {**state, "attempts": 700 + number, "steps": 900})
    log.state(state="training")
    _, out, _ = command("status", tmp_path)
    assert ("701" in out, "702" in out) == (True, True)


def test_status_tells_a_time_as_a_time(command, tmp_path):
    EventLog(party="cleveland", folder=tmp_path).state(last_progress=1_796_000_000.5)
    _, out, _ = command("status", tmp_path)
    assert "2026-11-30 00:53:20 UTC" in out
    assert "e+09" not in out


def _written_ago(home, seconds, **state):
    """A status that its process wrote so long ago."""
    status = {"party": "cleveland", "time": time.time() - seconds, **state}
    (home / "status.json").write_text(json.dumps(status))


@pytest.mark.parametrize(
    ("age", "state", "code", "said"),
    [
        (60, {"state": "waiting", "connected": True}, 0, "waiting"),
        (130, {"state": "waiting", "connected": True}, 1, "it has ended, hangs"),
        (60, {"state": "lost", "connected": False, "unconnected": "no route"}, 1, "no route"),
        (60, {"state": "training", "connected": True, "refusing": "the cap"}, 1, "the cap"),
    ],
)
def test_a_status_check_knows_how_old_the_status_is(command, tmp_path, age, state, code, said):
    _written_ago(tmp_path, age, **state)
    ended, out, err = command("status", tmp_path, "--check")
    assert (ended, said in out + err) == (code, True)
    assert json.loads(command("status", tmp_path, "--check", "--json")[1])["well"] == (code == 0)


def test_a_status_may_be_as_old_as_is_said(command, tmp_path):
    _written_ago(tmp_path, 130, state="done", connected=True)
    assert command("status", tmp_path, "--check", "--most-age", "200")[0] == 0


def test_a_process_that_lives_writes_its_status_anew(tmp_path):
    event_log = EventLog(party="cleveland", folder=tmp_path)
    event_log.state(state="waiting")
    (tmp_path / "status.json").unlink()
    with event_log.beating(0.01):
        wait((tmp_path / "status.json").is_file)
        assert json.loads((tmp_path / "status.json").read_text())["state"] == "waiting"


@pytest.mark.parametrize(("state", "after"), [("training", "lost"), ("done", "done")])
def test_a_process_that_ends_is_neither_at_work_nor_connected_any_more(
    command, tmp_path, state, after
):
    event_log = EventLog(party="cleveland", folder=tmp_path)
    with suppress(KeyboardInterrupt), event_log.beating():
        event_log.state(state=state, connected=True)
        raise KeyboardInterrupt
    status = json.loads(command("status", tmp_path, "--json")[1])
    assert (status["state"], status["connected"]) == (after, False)
    assert "its process has ended" in status["unconnected"]
    assert command("status", tmp_path, "--check")[0] == (after == "lost")


@pytest.mark.parametrize("text", [None, "", "{"])
def test_a_folder_without_a_status_is_refused(command, tmp_path, text):
    if text is not None:
        (tmp_path / "status.json").write_text(text)
    refuses(command, "status", tmp_path, says="status.json")


def test_a_flood_of_one_event_pushes_no_line_of_another_out_of_the_log(tmp_path, monkeypatch):
    """Others choose how often a party refuses; what it deposited is still there."""
    passed, now = 0.0, time.monotonic()
    monkeypatch.setattr("hubbub.site.network.event_log.time.monotonic", lambda: now + passed)
    log = EventLog(party="ann", folder=tmp_path)
    log.note("deposited", study="s", session="00")
    for number in range(1500):
        log.write("warning", "refused", {"why": "failed", "said": f"{number}" * 200})
        log.note("answered", attempts=number, epsilon=1.0)
    passed = 90.0
    for _ in range(2):
        log.write("warning", "refused", {"why": "failed", "said": "late"})
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert lines[0]["event"] == "deposited"
    assert sum(one["event"] == "refused" for one in lines) == 1001
    assert sum(one["event"] == "answered" for one in lines) == 1500
    assert (lines[-1]["said"], lines[-1]["left_out"]) == ("late", 500)


def test_a_flood_of_one_party_or_study_hides_no_trouble_of_another(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("hubbub.site.network.event_log.time.monotonic", lambda: now[0])
    log = EventLog(party="aggregator", folder=tmp_path)
    for _ in range(1100):
        log.write("warning", "declined", {"whom": "bob", "reason": "no"})
    for values in ({"whom": "cyn"}, {"whom": "bob", "study": "other"}):
        for _ in range(2):
            log.write("warning", "declined", {"reason": "no", **values})

    def lines() -> list[dict[str, object]]:
        return [*map(json.loads, (tmp_path / "events.jsonl").read_text().splitlines())]

    assert len(lines()) == 1002
    assert lines()[-2]["whom"] == "cyn"
    assert lines()[-2]["left_out"] == 100, "what bob has caused is counted there"
    assert lines()[-1]["study"] == "other"
    now[0] = 30.0
    log.write("warning", "declined", {"whom": "cyn", "reason": "no"})
    assert len(lines()) == 1002, "and then no more of any than others have"
    now[0] = 60.0
    log.write("warning", "declined", {"whom": "cyn", "reason": "no"})
    assert len(lines()) == 1003


def test_made_up_parties_have_no_more_lines_and_are_forgotten(tmp_path, monkeypatch):
    now, log = [0.0], EventLog(party="aggregator", folder=tmp_path)
    monkeypatch.setattr("hubbub.site.network.event_log.time.monotonic", lambda: now[0])
    path = tmp_path / "events.jsonl"
    for turn in range(2):
        for number in range(2500):
            log.write("warning", "declined", {"whom": f"x{number}", "reason": "no"})
        assert len(path.read_text().splitlines()) == 1000 * (1 + turn)
        assert sum(map(len, log._last.values())) == 1000
        now[0] += 3600.0


def test_no_line_is_so_long_that_a_few_push_all_others_out(tmp_path):
    """An aggregator's offer may name its version in millions of letters."""
    event_log = EventLog(party="ann", folder=tmp_path)
    event_log.note("deposited", study="s")
    for _ in range(20):
        event_log.warn("refused", why="plan", said="9" * 1_000_000)
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["event"] == "deposited"
    assert json.loads(lines[-1])["said"] == "9" * 4000 + "…"
    assert (tmp_path / "status.json").stat().st_size < 10_000


def test_a_log_that_has_grown_large_begins_anew(tmp_path, monkeypatch):
    monkeypatch.setattr("hubbub.site.network.event_log._LARGEST", 1000)
    event_log = EventLog(party="cleveland", folder=tmp_path)
    for number in range(30):
        event_log.note("step", step=number, steps=30, epsilon=0.1, seconds=0.1)
    new, old = (tmp_path / name for name in ("events.jsonl", "events.jsonl.1"))
    assert new.stat().st_size < 1200
    assert old.stat().st_size < 1200
    assert json.loads(new.read_text().splitlines()[-1])["step"] == 29
    assert stat.S_IMODE(new.stat().st_mode) == 0o644


def test_a_line_that_a_full_disk_has_torn_spoils_no_other(tmp_path, monkeypatch):
    event_log = EventLog(party="cleveland", folder=tmp_path)
    event_log.note("set-up")
    with (tmp_path / "events.jsonl").open("a") as file:
        file.write('{"time": 17')
    event_log.note("set-up")
    event_log.note("connected")
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    assert lines.pop(1) == '{"time": 17'
    assert [json.loads(line)["event"] for line in lines] == ["set-up", "set-up", "connected"]


def test_the_status_has_how_far_and_how_long_and_what_went_wrong(ask, tmp_path):
    event_log = EventLog(party="cleveland", folder=tmp_path)
    event_log.progress(10, 40, study="heart")
    time.sleep(0.01)
    event_log.progress(20, 40, study="heart")
    event_log.warn("unconnected", why="nobody listens")
    said = ask("status", tmp_path)
    assert (said["state"], said["percent"], said["steps"]) == ("training", 50.0, 40)
    assert said["seconds_left"] > 0
    assert said["last_error"] == "not connected: nobody listens"


def test_what_repeats_itself_is_told_once_a_minute(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("hubbub.desk.cli.network_commands.time.monotonic", lambda: now[0])
    tell = network_commands._Teller(json=False)
    for second in range(0, 180, 2):
        now[0] = float(second)
        step = {"step": second, "steps": 200, "epsilon": 0.1, "seconds": 2.0}
        tell({"event": "step", **step})
        tell({"event": "waiting", "parties": "north"})
    tell({"event": "waiting", "parties": "south"})
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("step") for line in lines) == 3
    assert sum("north" in line for line in lines) == 3
    assert sum("south" in line for line in lines) == 1


def test_the_last_word_on_a_line_is_how_it_is_now(capsys):
    """However often it comes and goes within a minute; the same twice in a row is told once."""
    event_log = EventLog(party="cleveland", tell=network_commands._Teller(json=False))
    for _ in range(3):
        event_log.line(True, "")
        event_log.line(False, "nobody listens")
        event_log.line(False, "nobody listens")
    event_log.line(True, "")
    lines = capsys.readouterr().out.splitlines()
    assert lines == [*["connected to the relay", "not connected: nobody listens"] * 3, lines[0]]


def test_the_last_word_on_the_aggregator_is_how_it_is_now(capsys):
    event_log = EventLog(party="cleveland", tell=network_commands._Teller(json=False))
    for _ in range(2):
        event_log.note("session", study="heart", purpose="training")
        event_log.warn("silent", seconds=21.0)
        event_log.note("heard")
        event_log.note("left")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8
    assert lines[:4] == lines[4:]
    assert lines[2] == "the aggregator answers again"


def test_what_a_process_ends_with_is_said_once_and_why_a_study_stopped_at_all(capsys):
    """The first by the command, whose last line it is."""
    event_log = EventLog(party="cleveland", tell=network_commands._Teller(json=False))
    event_log.stopped(UserError("expected the aggregator, it was silent"))
    StudyLog.within(event_log, "heart", bytes(32)).warn("stopped", said="a cap")
    assert capsys.readouterr().out.splitlines() == ["heart: stopped: a cap"]
