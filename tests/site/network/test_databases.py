"""Silos that run apart ask their own databases once; nothing of that is seen by anybody else."""

# ruff: noqa: S608 (statements for databases of the tests' own)

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hubbub.core.errors import DataError
from hubbub.core.protocol.primitives.wire import EVERYBODY, Frame, Tag
from hubbub.core.session.ask import Call
from hubbub.core.session.offer import RefusedError
from hubbub.core.study import extract, silo_records
from hubbub.core.verification.replay.checking import verify
from hubbub.site.network import checkup, join
from hubbub.site.network.envelope import Refusal, read_answer, request
from hubbub.site.network.party_folder import APPROVED
from hubbub.site.network.silo_endpoint import SiloEndpoint
from network.consortium import Consortium, table

SILOS = ("north", "south", "west")
DOSE, KEY, SECRET = 0.7317529481, "Zebulon-4711", 4711  # cells that nobody may see


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


def gathered(home: Path, changes: Mapping[str, str] | None = None) -> Consortium:
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
        change(home / name, *filter(None, [(changes or {}).get(name, "")]))
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


@pytest.mark.slow
def test_a_table_that_changes_after_a_silo_has_come_changes_nothing(tmp_path: Path) -> None:
    parties = gathered(tmp_path)
    for name in SILOS:
        assert extract.is_kept(parties.study, name, tmp_path / name)
        change(tmp_path / name, "DELETE FROM seen WHERE ill = 1", "ALTER TABLE seen RENAME TO gone")
    result = parties.serve()
    assert result.final["step"] == 3
    assert all(one.holds for one in verify(tmp_path / "run"))
    for name in SILOS:
        seat = parties.seats[name]
        assert isinstance(seat, SiloEndpoint)
        assert seat._prepared(parties.study).counts[0] == 30 + SILOS.index(name)
        assert not extract.is_kept(parties.study, name, tmp_path / name)  # the study is over
        assert KEY.encode() not in told(tmp_path / name)
        assert f"{DOSE:.10f}"[:8].encode() not in told(tmp_path / name)


@pytest.mark.slow
def test_a_withdrawal_removes_what_was_read_wherever_it_is(tmp_path: Path) -> None:
    parties = gathered(tmp_path)
    assert extract.is_kept(parties.study, "north", tmp_path / "north")
    folder, elsewhere = parties.sites["north"], tmp_path / "elsewhere"
    folder.withdraw(parties.study.id)
    assert not extract.is_kept(parties.study, "north", tmp_path / "north")
    lay(elsewhere, "north", 20)
    folder.approve(parties.study, folder.roster, data=elsewhere)
    assert extract.is_kept(parties.study, "north", elsewhere)
    third = tmp_path / "third"
    lay(third, "north", 25)
    folder.read(parties.study, third)  # as `hubbub join --check --data` does
    begun = elsewhere / extract.EXTRACTS / ".making-killed"
    begun.mkdir()
    (begun / "inputs.raw").write_bytes(b"sealed, and never ended")
    folder.withdraw(parties.study.id)
    assert not extract.is_kept(parties.study, "north", elsewhere)
    assert not extract.is_kept(parties.study, "north", third)
    assert not begun.exists()


def test_what_a_killed_withdrawal_has_left_is_read_anew(tmp_path: Path) -> None:
    parties = gathered(tmp_path)
    folder, study = parties.sites["north"], parties.study
    (folder.home / APPROVED / f"{study.id.hex()}.toml").unlink()  # the first thing that it does
    change(folder.home, f"DELETE FROM seen WHERE pid = '{KEY}'")
    folder.approve(study, folder.roster)
    assert folder.read(study).startswith("29 patients")


def test_a_silo_that_a_study_ended_without_keeps_nothing_that_was_read_for_it(
    tmp_path: Path,
) -> None:
    parties = gathered(tmp_path)
    session, keys = bytes(range(16)), parties.aggregator.keys
    place = {"study": parties.study.id, "session": session}
    told = Frame(tag=Tag.CLOSE, **place, sender=0, receiver=EVERYBODY, payload=b"{}").sealed(keys)
    assert extract.is_kept(parties.study, "north", tmp_path / "north")
    sent = parties.seats["north"].answer(request(Call.CLOSE, session, [told]))
    assert read_answer(sent) == []
    assert parties.sites["north"].unfinished() == []
    assert not extract.is_kept(parties.study, "north", tmp_path / "north")
    assert extract.is_kept(parties.study, "south", tmp_path / "south")


# What a database may be like: by whether it is a fault of the table, or one of a person's cells.
TABLES = {
    "no table": "DROP TABLE seen",
    "no column": "ALTER TABLE seen DROP COLUMN dose",
    "more people than the study states (P19)": "INSERT INTO seen SELECT pid || k, dose, ill FROM "
    "seen, (SELECT 'a' AS k UNION SELECT 'b' UNION SELECT 'c')",
}
CELLS = {
    "a cell that is no number": f"UPDATE seen SET dose = 'x' WHERE pid = '{KEY}'",
    "no target": f"UPDATE seen SET ill = NULL WHERE pid = '{KEY}'",
    "an unknown target": f"UPDATE seen SET ill = {SECRET} WHERE pid = '{KEY}'",
    "nobody's row": f"UPDATE seen SET pid = NULL WHERE pid = '{KEY}'",
    "no records": "DELETE FROM seen",
    "one record": f"DELETE FROM seen WHERE pid <> '{KEY}'",
}


@pytest.mark.parametrize("statement", TABLES.values(), ids=TABLES)
def test_p31_a_silo_whose_query_fails_is_as_one_that_has_approved_nothing(
    tmp_path: Path, statement: str
) -> None:
    parties = gathered(tmp_path)
    site, home = parties.sites["south"], tmp_path / "south"
    site.withdraw(parties.study.id)
    absent = asked(parties)
    change(home, statement)
    with pytest.raises(DataError, match="south") as raised:
        site.approve(parties.study, site.roster)
    assert KEY not in str(raised.value)
    assert asked(parties) == absent
    # approved, and its extract gone or not yet there: the same
    (home / "approved" / f"{parties.study.id.hex()}.toml").write_text(parties.study.as_toml())
    assert not site.approves(parties.study.id)
    assert site.study(parties.study.id) is None
    assert asked(parties) == absent
    with pytest.raises(DataError, match="south"):
        join.check(site, join.Machine())


def test_p19_a_silos_own_people_see_how_near_it_is_to_what_it_may_hold(tmp_path: Path) -> None:
    parties = gathered(tmp_path)
    found = checkup._data(parties.sites["south"], join.Machine())
    assert found == f"readable; {parties.study.name} has 31 patients of at most 39"


def asked(parties: Consortium) -> tuple[str, ...]:
    """What the aggregator hears of the southern silo where a run begins."""
    reading: list[str] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(silo_records, "check_readable", lambda *_: reading.append("read"))
        with pytest.raises(RefusedError) as raised:
            parties.sites["south"].approved_study(parties.study.id)
    assert not reading  # nothing is read while somebody waits
    refused = Refusal.of(raised.value)
    return refused.why, refused.said, refused.culprit, str(refused.own)


@pytest.mark.slow_cases(
    "an unknown target", "no target", "a cell that is no number", "nobody's row", "one record"
)
@pytest.mark.parametrize("statement", CELLS.values(), ids=CELLS)
def test_p31_no_cell_and_no_person_keeps_a_silo_away(tmp_path: Path, statement: str) -> None:
    parties = gathered(tmp_path, {"south": statement})
    join.check(parties.sites["south"], join.Machine())
    result = parties.serve()
    assert result.final["step"] == 3
    assert all(one.holds for one in verify(tmp_path / "run"))


def test_nothing_is_read_anew_while_others_wait(tmp_path: Path) -> None:
    parties = gathered(tmp_path)
    extract.forget(parties.study.id, "south", tmp_path / "south")
    with pytest.raises(DataError, match="found it gone") as raised:
        parties.seats["south"]._prepared(parties.study)  # type: ignore[attr-defined]
    assert Refusal.of(raised.value).why == "failed"


@pytest.mark.slow
def test_p31_all_that_leaves_a_silo_is_as_long_whatever_its_database_holds(tmp_path: Path) -> None:
    """Frames by size and number, and what everybody's log says but for its numbers."""
    changes = {
        "as it is": "SELECT 1",
        "more": "INSERT INTO seen SELECT pid || '-' || dose, dose, 1 FROM seen",
        "one": f"DELETE FROM seen WHERE pid <> '{KEY}'",
    }
    seen = {}
    for name, statement in changes.items():
        parties = gathered(tmp_path / name, {"south": statement})
        phase, sizes = parties.phase, []

        def watched(asked: str, requests: Any, deadline: float, phase=phase, sizes=sizes) -> Any:
            for party, answer in phase(asked, requests, deadline):
                sizes.append((party, asked, len(requests[party]), len(answer)))
                yield party, answer

        result = parties.serve(watched)
        assert result.final["step"] == 3
        lines = (line.replace(str(tmp_path / name), "") for line in parties.said)
        seen[name] = sorted(sizes), sorted(re.sub(r"[0-9a-f]*\d[0-9a-f]*", "0", x) for x in lines)
    assert len(seen["as it is"][0]) > 10
    assert seen["more"] == seen["as it is"]
    assert seen["one"] == seen["as it is"]
