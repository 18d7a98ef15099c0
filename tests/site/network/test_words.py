"""What a silo signs of its ledger, and what its folder remembers before it says anything."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hubbub.core.errors import DataError, StudyError
from hubbub.core.ledger.entry import Entry
from hubbub.core.ledger.tally import kind_of
from hubbub.core.planning.mechanism import IndependentNoise, Mechanism
from hubbub.core.session.ask import Call
from hubbub.core.study import silo_records
from hubbub.core.study.study import Study
from hubbub.site.collected.collection_request import why_not
from hubbub.site.network import folder_files, party_folder
from hubbub.site.network.envelope import Missing
from hubbub.site.network.event_log import EventLog
from hubbub.site.network.folder_files import SessionNotes, check_roster
from hubbub.site.network.requests import Requests
from hubbub.site.network.silo_endpoint import SiloEndpoint
from hubbub.site.network.waiting import Timeouts
from network.collected import asking
from network.consortium import Consortium, planned, table
from protocol.parties import world

STUDY = bytes(range(32))


@pytest.mark.parametrize(
    ("trained", "asked", "counted"), [(3, 1, 3), (3, 2, 4), (0, 2, 4), (0, 0, 0), (5, 2, 5)]
)
def test_p16_sums_that_were_asked_for_early_count_as_the_steps_after_which_they_are_due(
    trained: int, asked: int, counted: int
) -> None:
    """Else whoever asks for all evaluations first would make the study's epsilon smaller."""
    evaluated = {"steps": 6, "evaluate": {"every": 2, "epsilon": 0.2}}
    plan = planned(Study.from_table(table(("ann", "bob", "cyn"), training=evaluated)))
    paid = {"training": trained, "evaluation": asked}
    silo: Any = SimpleNamespace(_paid=lambda study, one: paid[one.purpose])
    prepared: Any = SimpleNamespace(plan=plan)
    assert SiloEndpoint._accounted(silo, prepared) == counted


def test_p15_a_silo_signs_the_sessions_that_it_has_paid_in_and_no_others(tmp_path: Path) -> None:
    parties = Consortium.gather(tmp_path, asking())
    plan, silo = planned(parties.study), parties.seats["cleveland"]
    assert isinstance(silo, SiloEndpoint)
    names = [bytes([number]) * 16 for number in range(3)]
    for name in names[:2]:
        place = {"study": parties.study.id, "session": name, "round": 1, "attempt": 0}
        silo._ledger.charge(Entry(**place, kind=kind_of(plan.main)))
    word = silo._last_word(parties.study, {names[0], names[2]})
    assert (word["sessions"], word["unlisted"]) == ([names[0].hex()], [names[1].hex()])


def test_p15_what_is_noted_is_on_the_disk_before_anything_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = list[int]()
    monkeypatch.setattr(
        folder_files.os, "fsync", lambda file: synced.append(os.fstat(file).st_size)
    )
    notes = SessionNotes(tmp_path)
    assert notes.open_session(bytes(16))
    assert not notes.open_session(bytes(16)), "an old one"
    assert notes.take_result(STUDY, bytes(32))
    assert not notes.take_result(STUDY, bytes(31) + b"x"), "another RESULT"
    sizes = [(tmp_path / name).stat().st_size for name in (folder_files.SESSIONS, "results")]
    assert synced == sizes


def test_a_study_is_of_one_roster_to_the_last_digit() -> None:
    roster = world(3).roster
    names = tuple(roster.name(index) for index in roster.silos)
    made = Study.from_table(table(names))
    digest = roster.digest.hex()
    for digits, fits in ((digest, True), (digest[:-1] + "0123"[digest[-1] == "0"], False)):
        one = replace(made, parties=replace(made.parties, roster=digits))
        if fits:
            check_roster(one, roster)
            continue
        with pytest.raises(StudyError, match="the digest of the roster"):
            check_roster(one, roster)


def test_an_answer_of_nobody_who_was_asked_is_nobodys() -> None:
    """Whoever carries answers can make some up."""
    roster = world(3).roster

    def phase(_: str, asked: Mapping[str, bytes], __: float) -> Iterator[tuple[str, Any]]:
        yield "nobody", Missing()
        for name in asked:
            yield name, Missing()
            yield name, Missing()
        yield roster.name(3), Missing()

    requests = Requests(roster, STUDY, phase, EventLog(party=""), Timeouts())
    heard = requests.ask(Call.PING, {1: (), 2: ()}, bytes(16))
    assert [index for index, _ in heard] == [1, 2]


@pytest.mark.parametrize(
    ("parties", "changed", "says"),
    [
        ({}, {}, ""),
        ({}, {"noise": IndependentNoise(epoch=2)}, "independent noise, whole sums"),
        ({}, {"sampling": "without-replacement", "records": 9}, "independent noise, whole sums"),
        ({}, {"steps": 2}, "one sum of sums, got 2"),
        ({"trust": "tee"}, {}, "a study without attestation"),
        ({"nodes_per_silo": 2}, {}, "every silo to use all nodes"),
        ({"nodes_per_silo": 3}, {}, ""),
        ({"shares": "full"}, {}, 'parties.shares = "compressed"'),
        ({"compute_nodes": 0}, {}, "parties.compute_nodes, got none"),
    ],
)
def test_p30_a_sum_is_collected_where_all_nodes_open_it_alone(
    parties: dict[str, Any], changed: dict[str, Any], says: str
) -> None:
    usual = {"compute_nodes": 3, "nodes_per_silo": 0, "shares": "compressed", "trust": "none"}
    study: Any = SimpleNamespace(
        parties=SimpleNamespace(colluders=1, **(usual | parties)), attestation=None
    )
    one = {"purpose": "sums", "relation": "substitute", "delta": 1e-5, "steps": 1}
    query: Any = SimpleNamespace(
        purpose="sums",
        mechanism=Mechanism(**(one | changed)),
        query=SimpleNamespace(is_asked_last=False),
    )
    found = why_not(study, query)
    assert found.startswith(says)
    assert bool(found) is bool(says)


def test_p19_a_silo_with_too_many_records_keeps_nothing_of_what_it_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = Consortium.gather(tmp_path, asking())
    study: Any = SimpleNamespace(data=SimpleNamespace(is_declared=True, is_extracted=True))
    left = list[Any]()

    def too_many(*_: object) -> int:
        raise DataError("expected at most 5 records of cleveland, got more")

    monkeypatch.setattr(silo_records, "check_readable", lambda *_: 100)
    monkeypatch.setattr(silo_records, "forget", lambda *given: left.append(given))
    monkeypatch.setattr(party_folder, "capacity_of", too_many)
    with pytest.raises(DataError, match="at most 5 records"):
        parties.sites["cleveland"].read(study, tmp_path)
    assert left == [(study, "cleveland", tmp_path)]


def test_a_withdrawal_that_dies_halfway_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = Consortium.gather(tmp_path, asking())
    site = parties.sites["cleveland"]
    assert site.approves(parties.study.id)
    for name in ("forget", "unbind"):
        monkeypatch.setattr(party_folder.foreign_code, name, dies)
    with pytest.raises(OSError, match="power"):
        site.withdraw(parties.study.id)
    assert not site.approves(parties.study.id)


def dies(*_: object) -> None:
    raise OSError("the power is gone")
