"""The commands of a networked study that need no engine: what they write, print and refuse."""

from __future__ import annotations

import importlib.util
import json
import shutil
import stat
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import tomli_w

from hubbub.cli import main
from hubbub.network.event_log import EventLog
from hubbub.network.party_folder import PartyFolder
from hubbub.study import Study
from network.consortium import HOSPITALS, table

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


def test_whoever_approves_is_shown_the_plan(command, home):
    code, out, _ = command(*approval(home))
    assert code == 0
    assert "promised" in out
    assert Study.load(home / "study.toml").id.hex() in out


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


def test_a_party_that_is_not_in_the_roster_does_not_approve(command, home, tmp_path):
    stranger = home / "stranger"
    assert command("keygen", "cleveland", "--home", stranger, "--json")[0] == 0
    refuses(command, *approval(home, "stranger", "--json"), says="compare fingerprints")


def test_keys_that_others_can_read_are_not_used(command, home):
    (home / "cleveland" / "keys.toml").chmod(0o640)
    refuses(command, *approval(home, "cleveland", "--json"), says="chmod 600")


# serve, join, provision ---------------------------------------------------------------------


def job(home: Path) -> list[object]:
    """The arguments that write a job; the kit is not looked at."""
    where = ("--home", home / "aggregator", "--kit", home / "no-kit", "--job", home / "job")
    return ["serve", home / "study.toml", *where]


def test_serve_writes_a_job_for_others_to_hand_in(ask, home):
    ask(*approval(home, "aggregator"))
    assert ask(*job(home)) == {"job": str(home / "job")}
    assert json.loads((home / "job" / "meta.json").read_text())["min_clients"] == 5


def test_serve_keeps_an_audit_of_this_study_and_no_other(ask, command, home, tmp_path):
    study, found = Study.load(home / "study.toml"), tmp_path / "audit.json"
    ask(*approval(home, "aggregator"))
    few = ("--runs", "2", "--canaries", "50", "--confidence", "0.99999")
    said = ask("audit", home / "study.toml", *few, "--out", found)
    ask(*job(home), "--audit", found)
    kept = PartyFolder.opened(home / "aggregator").audit(study.id)
    assert json.loads(kept.read_text()) == said == json.loads(found.read_text())
    found.write_text(json.dumps({**said, "study": "00" * 32}))
    refuses(command, *job(home), "--audit", found, says="make it again")
    assert json.loads(kept.read_text()) == said
    ask(*approval(home, "aggregator", "--withdraw"))
    assert PartyFolder.opened(home / "aggregator").audit(study.id) is None


def test_serve_writes_no_job_of_a_study_that_was_not_approved_here(command, home):
    refuses(command, *job(home), says="hubbub approve")
    assert not (home / "job").exists()


def test_a_silos_folder_writes_no_job_by_mistake(command, home):
    asked = [one if one != home / "aggregator" else home / "cleveland" for one in job(home)]
    refuses(command, *asked, says="hubbub approve")


def test_whoever_has_no_keys_is_told_to_make_some(command, home, tmp_path):
    asked = ["approve", home / "study.toml", "--roster", home / "roster.toml", "--home", tmp_path]
    refuses(command, *asked, says="hubbub keygen")


ENGINE = importlib.util.find_spec("nvflare") is not None


@pytest.mark.skipif(ENGINE, reason="says what is missing only where NVIDIA FLARE is not installed")
def test_without_the_engine_its_commands_say_what_to_install(command, home):
    kit = ("--kit", home / "kit")
    refuses(command, "join", "--home", home / "cleveland", *kit, says="hubbub[net]")
    out = ("--host", "localhost", "--out", home / "kits")
    refuses(command, "provision", home / "roster.toml", *out, says="hubbub[net]")
    assert command(*approval(home, "aggregator", "--json"))[0] == 0
    refuses(command, *job(home)[:-2], says="hubbub[net]")
    refuses(command, "demo", "--network", "--out", home / "demo", says="net]")
    assert not (home / "demo").exists()


def test_the_demo_over_the_network_has_no_splits(command, tmp_path):
    refuses(command, "demo", "--network", "--splits", "3", "--out", tmp_path, says="--splits")


def test_the_demo_over_the_network_sets_both_runs_side_by_side(ask, home, monkeypatch):
    """What the engine would bring is made up; the run in one process is not."""

    def apart(out, text, *, nodes, told):
        out.mkdir()
        shutil.copy(home / "study.toml", out / "study.toml")
        told("words for people, which --json has no place for")
        return {"out": str(out / "run"), "final": {"auc": 0.875, "epsilon": 1.0}}

    monkeypatch.setattr("hubbub.network.flare.demo.run_demo", apart)
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


@pytest.mark.parametrize("text", [None, "", "{"])
def test_a_folder_without_a_status_is_refused(command, tmp_path, text):
    if text is not None:
        (tmp_path / "status.json").write_text(text)
    refuses(command, "status", tmp_path, says="status.json")


def test_the_metrics_are_what_prometheus_reads(tmp_path):
    event_log = EventLog(party="cleveland", folder=tmp_path)
    event_log.state(study="heart", attempts=3, epsilon=0.125, ready=True)
    lines = (tmp_path / "metrics.prom").read_text().splitlines()
    assert 'hubbub_attempts{party="cleveland"} 3' in lines
    assert 'hubbub_epsilon{party="cleveland"} 0.125' in lines
    assert not any("study" in line or "ready" in line for line in lines)
    assert not list(tmp_path.glob("*.part"))
