"""Silos that run apart ask their own databases once; nothing of that is seen by anybody else."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hubbub.errors import DataError
from hubbub.network import join
from hubbub.network.refusal import Refusal
from hubbub.network.silo_endpoint import SiloEndpoint
from hubbub.study import sources
from hubbub.study.extracts import extract
from hubbub.verification.replay.checking import verify
from network.consortium import Consortium, table

SILOS = ("north", "south", "west")
DOSE, KEY = 0.7317529481, "Zebulon-4711"  # cells that nobody may see


def lay(home: Path, name: str, people: int) -> None:
    """A silo's database and connection."""
    home.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(home / "registry.sqlite")) as opened:
        opened.execute("CREATE TABLE seen (pid TEXT, dose REAL, ill INTEGER)")
        rows = [(f"P{k}", k / people, k % 2) for k in range(people - 1)]
        opened.executemany("INSERT INTO seen VALUES (?, ?, ?)", [*rows, (KEY, DOSE, 1)])
        opened.commit()
    path = home / "sources.toml"
    path.write_text(f'[{name}]\nurl = "sqlite:///registry.sqlite"\n')
    path.chmod(0o600)


def gathered(home: Path) -> Consortium:
    made = table(SILOS)
    made["data"] = {
        "source": "sql",
        "query": "SELECT pid, dose, ill FROM seen WHERE dose >= 0",
        "tables": {"seen": "pid"},
        "target": "ill",
        "patient": "pid",
        "most_per_patient": 1,
        "records": 90,
        "columns": {"dose": {"low": 0, "high": 1}},
    }
    made["model"] = {"kind": "logistic", "inputs": [1]}
    for place, name in enumerate(SILOS):
        lay(home / name, name, 30 + place)
    return Consortium.gather(home, made)


def change(home: Path, *statements: str) -> None:
    with closing(sqlite3.connect(home / "registry.sqlite")) as opened:
        for one in statements:
            opened.execute(one)
        opened.commit()


def told(home: Path) -> bytes:
    """Every file of a party that is for people or for others."""
    kept = {home / "registry.sqlite", home / "sources.toml"}
    paths = [path for path in home.rglob("*") if path.is_file() and path not in kept]
    return b"\n".join(path.read_bytes() for path in paths if extract.EXTRACTS not in path.parts)


def test_a_table_that_changes_after_a_silo_has_come_changes_nothing(tmp_path: Path) -> None:
    parties = gathered(tmp_path)
    for name in SILOS:
        sources.check_readable(parties.study, name, tmp_path / name)  # as `join` does first
        assert extract.is_kept(parties.study, name, tmp_path / name)
        change(tmp_path / name, "DELETE FROM seen WHERE ill = 1", "ALTER TABLE seen RENAME TO gone")
    result = parties.serve()
    assert result.final["step"] == 3
    assert all(one.holds for one in verify(tmp_path / "run"))
    for name in SILOS:
        seat = parties.seats[name]
        assert isinstance(seat, SiloEndpoint)
        assert seat._known(parties.study).plain.counts[0] == 30 + SILOS.index(name)
        assert not extract.is_kept(parties.study, name, tmp_path / name)  # the study is over
        assert KEY.encode() not in told(tmp_path / name)
        assert f"{DOSE:.10f}"[:8].encode() not in told(tmp_path / name)


def test_a_withdrawal_removes_what_was_read(tmp_path: Path) -> None:
    parties = gathered(tmp_path)
    sources.check_readable(parties.study, "north", tmp_path / "north")
    assert extract.is_kept(parties.study, "north", tmp_path / "north")
    parties.sites["north"].withdraw(parties.study.id)
    assert not extract.is_kept(parties.study, "north", tmp_path / "north")


WRONG = {
    "no table": "DROP TABLE seen",
    "a cell that is no number": "UPDATE seen SET dose = pid WHERE ill = 1",
    "no records": "DELETE FROM seen",
}


@pytest.mark.parametrize("statement", WRONG.values(), ids=WRONG)
def test_a_database_that_cannot_be_used_is_refused_before_others_hear_of_the_silo(
    tmp_path: Path, statement: str
) -> None:
    parties = gathered(tmp_path)
    change(tmp_path / "south", statement)
    with pytest.raises(DataError, match="south") as raised:
        join.check(parties.sites["south"], join.Machine())
    assert KEY not in str(raised.value)


def test_what_leaves_a_silo_is_the_same_whatever_is_wrong_with_its_database(tmp_path: Path) -> None:
    said: set[tuple[Any, ...]] = set()
    for place, statement in enumerate(WRONG.values()):
        parties = gathered(tmp_path / str(place))
        change(tmp_path / str(place) / "south", statement)
        with pytest.raises(DataError) as raised:
            parties.seats["south"]._known(parties.study)  # type: ignore[attr-defined]
        refused = Refusal.of(raised.value)
        said.add((refused.why, refused.said, refused.culprit, refused.own))
    assert len(said) == 1
