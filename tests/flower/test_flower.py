"""hubbub in Flower itself: its simulation, and a SuperLink with SuperNodes on the loopback.

`make flower` runs these: they need the extra `flower` and minutes, since Flower starts a process
for each message. What a malicious server may do is played in `tests/site/network/test_grid.py`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from flower.superlink import HOSPITALS, Flower, flower, patiently
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.study.study import Study
from hubbub.core.verification.replay.checking import verify

pytestmark = pytest.mark.slow


REFUSALS = (
    "what reached it breaks the protocol",
    "expected an answer to attempt .*, got one to",
    "expected frames of .*, got another's",
)


def rows(parties: Flower, name: str) -> int:
    """The attempts that a silo has paid for."""
    with Ledger(parties.home / "hospitals" / name / "ledger.sqlite") as ledger:
        return sum(1 for _ in ledger.entries())


def check(parties: Flower) -> None:
    """The run is whole, and holds."""
    said = parties.ended()
    assert (parties.run / "evidence.json").exists(), said[-2000:]
    assert all(finding.holds for finding in verify(parties.run))
    assert parties.steps() == parties.study.training.steps


def test_the_example_is_at_most_15_lines_of_the_users_own() -> None:
    lines = (Path(__file__).parents[2] / "examples/flower/hospitals/app.py").read_text()
    assert len(lines.splitlines()) <= 15


def test_four_hospitals_train_in_flowers_simulation(tmp_path: Path) -> None:
    with flower(tmp_path) as parties:
        parties.link("--simulation")
        parties.flwr_run("--federation-config", "num-supernodes=4")
        check(parties)
        assert [rows(parties, name) for name in HOSPITALS] == [3, 3, 3, 3]
        parts = json.loads((parties.run / "evidence.json").read_text())["silos"]
        assert [part["silo"] for part in parts] == [*HOSPITALS]


def test_a_supernode_dies_and_the_round_goes_on(tmp_path: Path) -> None:
    changes = {"parties": {"dropouts": 1}, "training": {"steps": 5, "sample_rate": 0.2}}
    with flower(tmp_path, nodes=1, **changes) as parties:
        parties.link()
        for place in range(len(parties.names)):
            parties.node(place)
        parties.flwr_run()
        patiently(lambda: parties.steps() >= 2, "a step")
        parties.kill("hungary")
        check(parties)
        paid = {name: rows(parties, name) for name in HOSPITALS}
        assert 1 <= paid["hungary"] < 5
        assert all(paid[name] >= 5 for name in HOSPITALS if name != "hungary")
        parts = json.loads((parties.run / "evidence.json").read_text())["silos"]
        assert "hungary" not in [part["silo"] for part in parts]


def test_a_party_is_killed_and_comes_back_in_a_new_session(tmp_path: Path) -> None:
    """Its SuperNode lives, and starts it anew: it has paid for what it had answered."""
    with flower(tmp_path, training={"steps": 4, "sample_rate": 0.2}) as parties:
        parties.link()
        for place in range(len(parties.names)):
            parties.node(place)
        parties.flwr_run()
        patiently(lambda: parties.steps() >= 2, "a step")
        home = str(parties.home / "hospitals" / "cleveland")
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            if process.parent.exists() and home.encode() in process.read_bytes().split(b"\0"):
                os.kill(int(process.parent.name), signal.SIGKILL)
        check(parties)
        assert all(3 <= rows(parties, name) <= 4 for name in HOSPITALS)


def test_a_superlink_that_lies_is_refused_by_name_and_costs_nobody_its_lies(tmp_path: Path) -> None:
    """It changes a request, and a node gets an old one; it answers what is old, and for another."""
    changes = {"parties": {"dropouts": 1}, "training": {"steps": 6, "sample_rate": 0.2}}
    with flower(tmp_path, nodes=1, **changes) as parties:
        text = parties.study.as_toml()
        other = Study.from_table(tomllib.loads(text.replace("in Flower", "another")))
        aggregator = parties.folder("aggregator")
        aggregator.approve(other, aggregator.roster)
        (tmp_path / "hospitals" / "other.toml").write_text(other.as_toml())
        parties.link()
        for place in range(len(parties.names)):
            parties.node(place)
        said = parties.lies("other.toml")
        assert "cleveland refuses: its administrator has not approved this study" in said
        assert [rows(parties, name) for name in HOSPITALS] == [0, 0, 0, 0]
        said = parties.lies("study.toml")
        for words in REFUSALS:
            assert re.search(rf"({'|'.join(HOSPITALS)}).*: relay: .*{words}", said), said[-3000:]
        assert "stopped: expected every party's answer, got none from" in said
        assert parties.steps() >= 1  # a busy machine may cost attempts, too
        # Whoever was sent lies has not answered them, and has paid for nothing.
        (victim, *_) = re.findall(r"from (\S+), an unusable message: relay", said)
        paid = {name: rows(parties, name) for name in HOSPITALS}
        assert paid[victim] < min(n for name, n in paid.items() if name != victim)


def test_flowers_grid_keeps_the_contract_of_a_transport(tmp_path: Path) -> None:
    with flower(tmp_path) as parties:
        (tmp_path / "doors").mkdir()
        parties.link()
        for place in range(len(parties.names)):
            parties.node(place)
        said = parties.lies("transport")
        assert (tmp_path / "doors" / "held").exists(), said[-2000:]


def test_a_client_app_reads_no_torch_and_no_cryptography() -> None:
    """A process is started for each message: what it reads, all wait for."""
    script = (
        "import sys; from hubbub.flower import client_app; client_app('x')\n"
        "assert not {'torch', 'scipy', 'hubbub.core.protocol.primitives.wire'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
