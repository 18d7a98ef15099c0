"""`hubbub ledger` and `hubbub budget` as an administrator types them, also wrongly."""

from __future__ import annotations

import json
from dataclasses import replace
from math import log10
from pathlib import Path

import pytest

from hubbub.core.errors import UserError
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.desk.cli.ledger_commands import event_of
from hubbub.desk.cli.main import main
from ledger.book import (
    DELTA,
    OTHER,
    RELATION,
    ROWS,
    STUDY,
    behind_its_back,
    cap_for,
    entry,
    epsilon_of,
    key_of,
    note_of,
)


@pytest.fixture
def command(capsys, tmp_path, monkeypatch):
    """Runs a command in the ledger's folder; exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(one) for one in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def ask(command):
    """Runs a command with --json; its one object."""

    def run(*arguments: object) -> dict[str, object]:
        code, out, err = command(*arguments, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return run


def refusal(done: tuple[int, str, str], code: int) -> str:
    """The one sentence on stderr."""
    assert (done[0], done[1]) == (code, "")
    assert done[2].count("\n") == 1
    assert done[2].startswith("hubbub: ")
    return done[2]


def test_show_tells_each_study_all_together_and_what_is_left(path, ask):
    with Ledger(path) as ledger:
        ledger.charge(entry(1, study=OTHER))
        ledger.charge(entry(2, study=OTHER, session=b"f" * 16))
        ledger.set_cap(cap_for(9))
    found = ask("ledger", "show", path)
    assert found["entries"] == ROWS + 2
    assert found["studies"] == {STUDY.hex(): ROWS, OTHER.hex(): 2}
    one, two = found["by_study"]
    assert (one["study"], one["steps"], one["sessions"]) == (STUDY.hex(), ROWS, 1)
    assert (two["study"], two["steps"], two["sessions"]) == (OTHER.hex(), 2, 2)
    for said, count in ((one, ROWS), (two, 2), (found, ROWS + 2)):
        assert said["epsilon"] == pytest.approx(epsilon_of(count), rel=2e-3)
    assert found["left"] == pytest.approx(cap_for(9).epsilon - found["epsilon"])


def test_show_counts_as_the_cap_does_unless_told_otherwise(path, ask):
    ask("budget", "set", path, "--epsilon", 20, "--delta", "1e-7", "--relation", "substitute")
    found = ask("ledger", "show", path)
    assert (found["delta"], found["relation"]) == (1e-7, "substitute")
    assert found["left"] == pytest.approx(20 - found["epsilon"], rel=1e-4)
    looser = ask("ledger", "show", path, "--delta", DELTA, "--relation", RELATION)
    assert (looser["delta"], looser["relation"]) == (DELTA, RELATION)
    assert looser["epsilon"] < found["epsilon"]
    assert looser["left"] == found["left"]


def test_show_says_when_nothing_is_left_and_when_nothing_is_capped(path, command):
    assert "no cap is set" in command("ledger", "show", path)[1]
    assert "nothing left" in command("budget", "set", path, "--epsilon", 1, "--delta", DELTA)[1]
    shown = command("ledger", "show", path)[1]
    assert "cap: epsilon 1 at delta 1e-05 (add-remove), nothing left" in shown
    assert STUDY.hex()[:16] in shown


def test_show_says_which_promise_a_cap_is_and_what_both_would_count(path, command, ask):
    wide = ("--epsilon", 20, "--delta", DELTA)
    with Ledger(path) as ledger:
        ledger.set_cap(cap_for(9))
    fixed = command("ledger", "show", path)[1]
    assert "left by the rule for fixed studies (P15); guaranteed if all studies were fixed" in fixed
    assert "guaranteed if" in command("budget", "set", path, *wide, "--fixed-studies")[1]
    adaptive = command("budget", "set", path, *wide)[1]
    assert "by the rule for adaptive studies (P24); guaranteed however later studies" in adaptive
    sampled = {"noise_multiplier": 1.0, "sample_rate": 0.1, "sampling": "poisson"}
    with Ledger(path) as ledger:
        ledger.charge(entry(study=OTHER, **sampled), attempts=1)
    found = ask("ledger", "show", path)
    assert found["cap"]["studies"] == "adaptive"
    assert found["epsilon"] < found["least_cap"] < 1.2 * found["epsilon"]
    assert found["left"] == pytest.approx(20 - found["least_cap"])
    shown = command("ledger", "show", path)[1]
    assert "total spent: epsilon" in shown
    assert f"counted by the cap: epsilon {found['least_cap']:.4g} at delta 1e-05" in shown


def test_the_curve_that_is_exported_holds_what_is_spent_between_its_sides(path, ask):
    curve = ask("ledger", "export", path, "--format", "curve")["curve"]
    assert [round(log10(one["delta"])) for one in curve] == list(range(-1, -13, -1))
    for one in curve:
        assert one["epsilon_lower"] <= one["epsilon_upper"]
        # The certificate of the session comes on top of what the numbers leave open.
        assert one["epsilon_upper"] - one["epsilon_lower"] < 2e-3 * max(1, one["epsilon_upper"])
    (at,) = [one for one in curve if one["delta"] == pytest.approx(DELTA)]
    assert at["epsilon_upper"] == pytest.approx(ask("ledger", "show", path)["epsilon"])
    uppers = [one["epsilon_upper"] for one in curve]
    assert uppers == sorted(uppers)


def test_entries_are_exported_as_events_of_dp_accounting(path, ask):
    found = ask("ledger", "export", path, "--format", "dp-event")
    assert found["class_name"] == "ComposedDpEvent"
    (each,) = found["events"]
    assert (each["class_name"], each["count"]) == ("SelfComposedDpEvent", ROWS)
    assert {each["module_name"], each["event"]["module_name"]} == {"dp_accounting.dp_event"}
    kind = entry(0).kind
    assert each["event"]["class_name"] == "GaussianDpEvent"
    assert each["event"]["noise_multiplier"] == kind.noise_multiplier
    sampled = replace(kind, sampling="poisson", sample_rate=0.1)
    (each,) = event_of({sampled: 4})["events"]
    assert each["event"]["class_name"] == "PoissonSampledDpEvent"
    assert each["event"]["sampling_probability"] == 0.1
    assert each["event"]["event"]["noise_multiplier"] == kind.noise_multiplier


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"projection": "sign", "dimension": 8}, "sign projection"),
        ({"sampling": "without-replacement", "records": 100}, "without replacement"),
    ],
)
def test_what_dp_accounting_cannot_say_is_refused_by_name(more, named):
    kind = replace(entry(0).kind, **more)
    with pytest.raises(UserError, match=named):
        event_of({entry(0).kind: 3, kind: 1})


def test_events_of_two_units_are_no_event_of_dp_accounting():
    of_patients = replace(entry(0).kind, unit="patient", most_per_patient=3)
    with pytest.raises(UserError, match="entries of one unit"):
        event_of({entry(0).kind: 1, of_patients: 1})
    assert event_of({of_patients: 2})["events"]


def test_an_empty_ledger_is_shown(tmp_path, command):
    Ledger(tmp_path / "new.sqlite").close()
    code, out, err = command("ledger", "show", "new.sqlite")
    assert (code, err) == (0, "")
    assert "epsilon 0 at" in out


def test_a_head_is_stated_witnessed_and_verified(path, command, ask):
    statement = ask("ledger", "head", path)
    assert (statement["rows"], statement["head"]) == (ROWS + 1, ask("ledger", "show", path)["head"])
    Path("statement").write_text(json.dumps(statement))
    witnessed = ask("ledger", "witness", "statement", "--key", "bob.key")
    Path("witnessed").write_text(json.dumps(witnessed))
    assert witnessed["statement"] == statement
    found = ask("ledger", "verify", path, "--witness", "witnessed", "statement")
    assert found == {"entries": ROWS, "intact": True, "witnessed": [witnessed, statement]}
    code, out, _ = command("ledger", "verify", path, "--witness", "witnessed")
    assert code == 0
    assert witnessed["witness"] in out


def test_a_ledger_that_was_set_back_fails_and_is_not_witnessed_again(path, command, ask):
    with Ledger(path) as ledger:
        ledger.charge(entry(5))
    Path("late").write_text(json.dumps(ask("ledger", "head", path)))
    ask("ledger", "witness", "late", "--key", "bob.key")
    behind_its_back(path, "DELETE FROM rows WHERE number = 5")
    assert "restore" in refusal(command("ledger", "verify", path), 1)
    note_of(path).unlink()
    assert ask("ledger", "verify", path) == {"entries": ROWS, "intact": True}
    assert "older copy" in refusal(command("ledger", "verify", path, "--witness", "late"), 1)
    Path("back").write_text(json.dumps(ask("ledger", "head", path)))
    assert "set back" in refusal(command("ledger", "witness", "back", "--key", "bob.key"), 1)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["show", "nowhere"], 2, "check the path"),
        (["show", "."], 2, "check the path"),
        (["show", ""], 2, "check the path"),
        (["head", "nowhere"], 2, "check the path"),
        (["show", "photo"], 1, "not a database"),
        (["show", "ledger.sqlite", "--delta", "0"], 2, "delta"),
        (["show", "ledger.sqlite", "--delta", "nan"], 2, "delta"),
        (["show", "ledger.sqlite", "--relation", "some"], 2, "relation"),
        (["verify", "ledger.sqlite", "--head", "zz"], 2, "64 hexadecimal digits"),
        (["verify", "ledger.sqlite", "--witness", "nowhere"], 2, "nowhere"),
        (["verify", "ledger.sqlite", "--witness", "photo"], 1, "photo"),
        (["verify", "ledger.sqlite", "--witness"], 2, "--witness"),
        (["witness", "photo", "--key", "bob.key"], 1, "photo"),
        (["witness", "nowhere", "--key", "bob.key"], 2, "nowhere"),
        (["witness", "photo"], 2, "--key"),
        ([], 2, "ACTION"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(path, command, arguments, code, words):
    Path("photo").write_bytes(bytes(range(256)) * 20)
    before = sorted(Path().iterdir())
    assert words in refusal(command("ledger", *arguments), code)
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize("place", [".", "/", "", "photo/ledger", "/proc/self/ledger"])
def test_a_cap_cannot_be_set_where_no_ledger_can_be(tmp_path, command, place):
    (tmp_path / "photo").write_text("no folder")
    done = command("budget", "set", place, "--new", "--epsilon", 1, "--delta", DELTA)
    assert "expected a usable ledger" in refusal(done, 1)
    assert [one.name for one in Path().iterdir()] == ["photo"]


def test_a_witness_names_a_key(path, command, ask):
    Path("statement").write_text(json.dumps(ask("ledger", "head", path)))
    done = command("ledger", "witness", "statement", "--key", "bob")
    assert "ends with .key" in refusal(done, 2)
    assert not Path("bob").exists()


def test_a_ledgers_key_is_no_witness(path, command, ask):
    Ledger(Path("new")).close()
    Path("statement").write_text(json.dumps(ask("ledger", "head", path)))
    for key in (key_of(path), "new.key"):
        done = command("ledger", "witness", "statement", "--key", key)
        assert "expected a witness at" in refusal(done, 1)
    assert ask("ledger", "verify", "new") == {"entries": 0, "intact": True}


def test_without_the_key_nothing_is_stated_and_nothing_capped(path, command):
    key_of(path).unlink()
    for arguments in (
        ("ledger", "head", path),
        ("budget", "set", path, "--epsilon", 1, "--delta", DELTA),
    ):
        assert "restore the key" in refusal(command(*arguments), 1)
