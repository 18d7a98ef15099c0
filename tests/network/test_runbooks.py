"""The runbooks, played step by step (docs/howto/runbooks.md)."""

from __future__ import annotations

import threading
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from hubbub.core.errors import UserError
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.study.study import Study
from hubbub.desk.cli import main as command_log
from hubbub.desk.cli.main import main
from hubbub.site.network.event_log import EventLog
from hubbub.site.network.folder_files import read_roster
from hubbub.site.network.join import Machine, join, relay_of
from hubbub.site.network.party_folder import PartyFolder
from network.lines import wait
from network.test_over_nats import Everybody

pytest.importorskip("nats", reason="needs the extra net")
STEPS = 400


def rows(home: Path, study: Study) -> int:
    """What a study has charged at a silo."""
    with Ledger(home / "ledger.sqlite") as ledger:
        return ledger.spent_on(study.id)


def joining(home: Path, leave: threading.Event) -> threading.Thread:
    """A party that takes part until it leaves."""
    folder = PartyFolder.opened(home)
    given = (folder, relay_of(folder, None), Machine(device="cpu"))
    log = EventLog(party=folder.name, folder=home)
    until = {"until": leave.is_set}
    thread = threading.Thread(target=join, args=(*given, log), kwargs=until, daemon=True)
    thread.start()
    return thread


@pytest.mark.slow
def test_a_key_is_rotated_in_the_middle_of_a_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The training starts over, which everybody is told before, and what was spent stays spent."""
    monkeypatch.setattr(command_log, "_SYSTEM", tmp_path / "none")
    everybody = Everybody(tmp_path, training={"steps": STEPS, "sample_rate": 1.0})
    everybody.approve()
    former: Study = everybody.study
    for name in ("bob", "cyn", "node-1"):
        everybody.join(name)
    leave = threading.Event()
    ann = joining(tmp_path / "ann", leave)

    def serve() -> None:
        with suppress(UserError):  # withdrawn while it is served
            everybody.serve()

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    wait(lambda: everybody.status("aggregator").get("step", 0) >= 2)

    # 1. At the party: join ends, and there are other keys.
    leave.set()
    ann.join(20)
    home, old = tmp_path / "ann", tmp_path / "old"
    old.mkdir()
    for file in ("keys.toml", "identity.toml"):
        (home / file).rename(old / file)
    assert main(["keygen", "ann", "--home", str(home)]) == 0
    # 2. The roster, and 3. the study with its digest, approved by everybody.
    names = ["aggregator", "ann", "bob", "cyn", "node-1"]
    roster, path = str(tmp_path / "roster.toml"), str(tmp_path / "study.toml")
    files = [str(tmp_path / name / "identity.toml") for name in names]
    assert main(["roster", *files, "--out", roster]) == 0
    made: dict[str, Any] = tomllib.loads(former.as_toml())
    everybody.roster = read_roster(Path(roster))
    made["parties"]["roster"] = everybody.roster.digest.hex()
    made["training"]["steps"] = 4
    Path(path).write_text(tomli_w.dumps(made))
    for name in names:
        capsys.readouterr()
        given = ["--roster", roster, "--new-roster", "--yes", "--home", str(tmp_path / name)]
        assert main(["approve", path, *given]) == 0
        assert "a training starts over at step 0" in capsys.readouterr().err, name
    server.join(60)
    assert not server.is_alive()
    spent = rows(home, former)
    # 4. The relay is the aggregator's own. 5. The party joins again, the aggregator serves.
    everybody.study = Study.load(path)
    everybody.join("ann")
    out = everybody.serve()
    everybody.end()
    assert (out / "evidence.json").is_file()
    assert rows(home, former) == spent > 0
    assert rows(home, everybody.study) == 4
    former_run = PartyFolder.opened(tmp_path / "aggregator").run(former.id)
    assert former_run.is_dir()
    assert former_run != out
