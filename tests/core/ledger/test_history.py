"""What a ledger's commands know from the files beside it: names, times, who typed what."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from hubbub.core.ledger.entry import Cap
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.study.study import Study
from hubbub.desk.cli import main as command_log
from hubbub.desk.cli.ledger_books import HEAD, LedgerHistory
from hubbub.desk.cli.main import main
from hubbub.site.network import event_log
from ledger.book import entry, epsilon_of
from network.consortium import HOSPITALS, table

ONE, TWO = b"e" * 16, b"f" * 16
DAY = 86400.0


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Study:
    monkeypatch.setattr(command_log, "_SYSTEM", tmp_path / "none")
    return Study.from_table(table(HOSPITALS))


@pytest.fixture
def home(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A silo's folder after two sessions of a study, each a day after the last command."""
    home, now = tmp_path / "home", [0.0]
    for module in (command_log, event_log):
        monkeypatch.setattr(module.time, "time", lambda: now[0])
    (tmp_path / "study.toml").write_text(study.as_toml())
    ledger = home / "ledger.sqlite"
    assert main(["keygen", "cleveland", "--home", str(home)]) == 0
    main(["approve", str(tmp_path / "study.toml"), "--home", str(home)])  # without a roster
    log = event_log.EventLog(party="cleveland", folder=home)
    with Ledger(ledger) as book:
        book.set_cap(Cap(epsilon=40.0, delta=1e-5, relation="add-remove"))
        for days, session in ((1, ONE), (2, TWO)):
            now[0] = days * DAY
            log.note("session", study=study.name, purpose="training", session=session.hex())
            for number in (1, 2, 3):
                given = {"study": study.id, "session": session, "purpose": "training"}
                book.charge(entry(number, **given))
        book.close_study(study.id)
    now[0] = 3 * DAY
    assert main(["budget", "set", str(ledger), "--epsilon", "9", "--delta", "1e-5"]) == 0
    return home


def trail(home: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    capsys.readouterr()
    assert main(["ledger", "export", str(home / "ledger.sqlite"), "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert tuple(rows[0]) == HEAD
    return rows


def test_commands_and_rows_are_one_trail(home, study, capsys):
    rows = trail(home, capsys)
    assert [(row["time"][:10], row["event"].split(" /")[0], row["exit"]) for row in rows] == [
        ("1970-01-01", "hubbub keygen cleveland --home", "0"),
        ("1970-01-01", "hubbub approve", "2"),
        ("", "row 1: cap for fixed studies: epsilon 40 at delta 1e-05 (add-remove)", ""),
        ("1970-01-02", "rows 2 to 4: 3 charges for training", ""),
        ("1970-01-03", "rows 5 to 7: 3 charges for training", ""),
        ("", "row 8: closed: no further charge for it is possible", ""),
        ("", "row 9: cap for adaptive studies: epsilon 9 at delta 1e-05 (add-remove)", ""),
        ("1970-01-04", "hubbub budget set", "0"),
        ("1970-01-04", "hubbub ledger export", ""),  # it goes on
    ]
    assert {row["party"] for row in rows} == {"cleveland"}
    about = [1, 3, 4, 5]
    assert [n for n, row in enumerate(rows) if row["study"] == study.id.hex()] == about
    assert {rows[number]["name"] for number in about} == {study.name}
    spent = [float(row["epsilon"]) for row in rows]
    assert spent[:3] == [0, 0, 0]
    assert spent[3] == pytest.approx(epsilon_of(3), rel=2e-3)
    assert spent[4:] == [pytest.approx(epsilon_of(6), rel=2e-3)] * 5
    assert all(row["by"] for row in rows if row["event"].startswith("hubbub"))


def test_the_trail_survives_torn_and_strange_lines(home, capsys):
    before = len(trail(home, capsys))
    with (home / command_log.COMMANDS).open("a") as file:
        file.write('{"time": 17\n[]\n7\n{"process": 1, "command": "x", "actor": 3, "time": 5}\n')
        file.write('{"process": 1, "command": ["x"], "actor": {"user": "u"}, "study": {"id": 5}}\n')
    with (home / event_log.LOG).open("a") as file:
        file.write('null\n{"event": "session", "session": "zz", "time": 1}\n{"even')
    assert len(trail(home, capsys)) == before + 1  # its own command


def test_show_names_studies_and_says_when(home, study, capsys):
    capsys.readouterr()
    ledger = str(home / "ledger.sqlite")
    assert main(["ledger", "show", ledger, "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["by_study"]
    assert (shown["name"], shown["approved"]) == (study.name, "")
    assert shown["last_session"] == "1970-01-03T00:00:00+00:00"
    assert main(["ledger", "show", ledger]) == 0
    out = capsys.readouterr().out
    assert f" {study.id.hex()[:8]} " in out, "it has room"
    assert study.name.split()[0] in out
    assert "1970-01-03" in out


def test_an_approval_has_a_name_and_a_time_by_itself(home, study):
    (home / "approved").mkdir()
    (home / command_log.COMMANDS).unlink()
    (home / "approved" / f"{study.id.hex()}.toml").write_text(study.as_toml())
    history = LedgerHistory.beside(home / "ledger.sqlite")
    assert history.names == {study.id: study.name}
    assert history.approved.keys() == {study.id}


def test_a_ledger_beside_runs_has_the_names_of_their_studies(study, tmp_path):
    for folder in ("ledgers", "runs-1"):
        (tmp_path / folder).mkdir()
    (tmp_path / "runs-1" / "study.toml").write_text(study.as_toml())
    history = LedgerHistory.beside(tmp_path / "ledgers" / "north.sqlite")
    assert (history.party, history.names) == ("north", {study.id: study.name})


def test_the_trails_of_several_parties_are_one_file_in_one_order(home, tmp_path, capsys):
    node = tmp_path / "node"
    assert main(["keygen", "node-1", "--role", "node", "--home", str(node)]) == 0
    log = node / command_log.COMMANDS
    made = {**json.loads(log.read_text().splitlines()[-1]), "time": 86_400 * 1.5}
    log.write_text(json.dumps(made) + "\n")
    capsys.readouterr()
    ledger = str(home / "ledger.sqlite")
    typed = ["ledger", "export", ledger, str(node), "--format", "csv"]
    assert main(typed) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    own = [row for row in rows if row["party"] == "cleveland"]
    place = next(n for n, row in enumerate(rows) if row["party"] == "node-1")
    assert len(own) == len(rows) - 1
    assert own[:-1] == trail(home, capsys)[: len(own) - 1], "its own order stays"
    assert rows[place]["time"][:10] == "1970-01-02"
    before = [row["time"] for row in rows[:place] if row["time"]]
    assert max(before) <= rows[place]["time"]
    assert (rows[place]["epsilon"], rows[place]["exit"]) == ("0", "0")
    assert main([*typed, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["heads"].keys() == {"cleveland"}
    assert main(["ledger", "export", ledger, str(node)]) == 2
    assert main(["ledger", "export", ledger, str(tmp_path / "none"), "--format", "csv"]) == 2


def test_a_trail_is_one_object_for_machines(home, capsys):
    capsys.readouterr()
    ledger = str(home / "ledger.sqlite")
    assert main(["ledger", "export", ledger, "--format", "csv", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [tuple(line) for line in found["trail"]] == [HEAD] * len(found["trail"])
