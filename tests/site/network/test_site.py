"""A party's own folder: keys that only it reads, the roster it was given, what it approved."""

from __future__ import annotations

import os
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from hubbub.core.errors import StudyError, UserError
from hubbub.core.planning import noise_shares
from hubbub.core.planning.noise_shares import is_sparse
from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.core.session.ask import Call
from hubbub.core.study.study import Study
from hubbub.site.network import folder_files
from hubbub.site.network.envelope import read_answer
from hubbub.site.network.folder_files import (
    check_roster,
    identities,
    read_identity,
    read_roster,
    roster_of,
    roster_toml,
)
from hubbub.site.network.party_folder import APPROVED, IDENTITY, KEYS, ROSTER, PartyFolder
from hubbub.site.network.waiting import WaitedError
from network.consortium import Consortium
from network.relay import HASTY, Relay, Watched, open_frame, opened, refusal, tiny

NAMES = ("ann", "bob", "cyn")


@pytest.fixture
def sites(tmp_path: Path) -> Consortium:
    """Folders of a consortium that has approved a study."""
    return Consortium.gather(tmp_path, tiny())


def study_of(roster: Roster, **changes: Any) -> Study:
    made = tiny(**changes)
    made["parties"]["roster"] = roster.digest.hex()
    return Study.from_table(made)


# Keys ------------------------------------------------------------------------------------------


def test_keys_are_made_once_and_for_their_owner_alone(tmp_path: Path) -> None:
    made = PartyFolder.made(tmp_path / "ann", "ann", "silo")
    path = tmp_path / "ann" / KEYS
    assert path.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "ann").stat().st_mode & 0o777 == 0o700
    assert PartyFolder.opened(tmp_path / "ann").keys.identity == made.keys.identity
    before = path.read_bytes()
    with pytest.raises(UserError, match=r"expected no keys in .*, found"):
        PartyFolder.made(tmp_path / "ann", "ann", "silo")
    assert path.read_bytes() == before


def test_a_passphrase_closes_keys_at_the_price_of_half_a_second_a_guess(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stated: list[dict[str, Any]] = []

    def cheap(**named: Any) -> Scrypt:
        stated.append(named)
        return Scrypt(**{**named, "n": 2})

    monkeypatch.setattr(folder_files, "Scrypt", cheap)
    keys = Keys.generate("ann", "silo")
    text = folder_files.keys_toml(keys, "open sesame")
    assert "sealed" in text
    assert "signing" not in text
    closed = folder_files.keys_of(text, lambda: "open sesame")
    assert closed.secret_parts() == keys.secret_parts()
    with pytest.raises(UserError, match="expected the passphrase of these keys"):
        folder_files.keys_of(text, lambda: "open")
    with pytest.raises(UserError, match="got none; name --passphrase-fd"):
        folder_files.keys_of(text)
    assert {(one["n"], one["r"], one["p"], one["length"]) for one in stated} == {
        (1 << 17, 8, 1, 32)
    }
    assert [len(one["salt"]) for one in stated] == [16] * 3


def test_what_is_public_holds_nothing_private(tmp_path: Path) -> None:
    made = PartyFolder.made(tmp_path, "ann", "silo")
    secrets = made.keys.secret_parts().values()
    text = (tmp_path / IDENTITY).read_text() + repr(made) + repr(made.keys)
    assert not any(b64encode(one).decode() in text or one.hex() in text for one in secrets)
    assert read_identity(tmp_path / IDENTITY) == made.keys.identity


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o610, 0o660, 0o777])
def test_keys_that_others_may_touch_are_not_used(tmp_path: Path, mode: int) -> None:
    PartyFolder.made(tmp_path, "ann", "silo")
    (tmp_path / KEYS).chmod(mode)
    with pytest.raises(UserError, match=r"readable only by its owner.*chmod 600"):
        PartyFolder.opened(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_keys_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    PartyFolder.made(tmp_path, "ann", "silo")
    (tmp_path / KEYS).chmod(0)
    with pytest.raises(UserError, match="expected a readable file"):
        PartyFolder.opened(tmp_path)


def test_a_folder_without_keys_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"expected keys in .*found none.*hubbub keygen"):
        PartyFolder.opened(tmp_path)


def test_huge_or_binary_keys_are_told(tmp_path: Path) -> None:
    path = tmp_path / KEYS
    for content, says in (
        (b"\xff\xfe", "a text file"),
        (bytes((1 << 24) + 1), "a readable file.*more than"),
    ):
        path.write_bytes(content)
        path.chmod(0o600)
        with pytest.raises(UserError, match=f"expected {says}"):
            PartyFolder.opened(tmp_path)


# The roster ------------------------------------------------------------------------------------


def test_a_party_has_a_place_only_with_its_very_keys(sites: Consortium, tmp_path: Path) -> None:
    assert [sites.sites[name].index for name in ("aggregator", *NAMES)] == [0, 1, 2, 3]
    stranger = PartyFolder.made(tmp_path / "other", "ann", "silo")
    (tmp_path / "other" / ROSTER).write_text((tmp_path / "ann" / ROSTER).read_text())
    with pytest.raises(StudyError, match=r"list ann \(silo\) with the keys in .*fingerprints"):
        assert stranger.roster


def test_a_folder_without_a_roster_is_told(tmp_path: Path) -> None:
    party_folder = PartyFolder.made(tmp_path, "ann", "silo")
    with pytest.raises(UserError, match="expected the consortium's roster"):
        assert party_folder.roster


def test_another_role_or_name_in_the_key_file_has_no_place(sites: Consortium) -> None:
    for old, new in (('role = "silo"', 'role = "node"'), ('name = "ann"', 'name = "bob"')):
        path = sites.home / "ann" / KEYS
        text = path.read_text()
        path.write_text(text.replace(old, new))
        with pytest.raises(StudyError, match="expected the roster to list"):
            assert PartyFolder.opened(sites.home / "ann").roster
        path.write_text(text)


def altered(sites: Consortium, change: Any) -> Roster:
    parties = [party_folder.keys.identity for party_folder in sites.sites.values()]
    return roster_of(change(parties))


def test_a_study_has_one_roster(sites: Consortium) -> None:
    true = sites.aggregator.roster
    check_roster(sites.study, true)
    other = replace(true.parties[2], name="bo")
    wrong = Roster(parties=(*true.parties[:2], other, *true.parties[3:]))
    with pytest.raises(StudyError, match=f'roster = "{wrong.digest.hex()}".*got '):
        check_roster(sites.study, wrong)


@pytest.mark.parametrize("digest", ["", "0" * 64])
def test_a_study_without_its_rosters_digest_is_refused(sites: Consortium, digest: str) -> None:
    made = tiny()
    made["parties"]["roster"] = digest
    study = Study.from_table(made)
    with pytest.raises(StudyError, match=f"got {digest[:16] or 'nothing'}; write it into"):
        sites.sites["ann"].approve(study, sites.aggregator.roster)


def test_silos_in_another_order_or_of_other_names_are_refused(sites: Consortium) -> None:
    roster = altered(sites, lambda parties: parties[::-1])
    with pytest.raises(StudyError, match="silos ann, bob, cyn, in this order, got cyn, bob, ann"):
        check_roster(study_of(roster), roster)
    fewer = altered(sites, lambda parties: parties[:-1])
    with pytest.raises(StudyError, match="got ann, bob; sort"):
        check_roster(study_of(fewer), fewer)


def test_other_numbers_of_nodes_are_refused(sites: Consortium) -> None:
    roster = sites.aggregator.roster
    with pytest.raises(StudyError, match="expected 2 compute nodes in the roster, got 0"):
        check_roster(study_of(roster, nodes=2), roster)
    one_node = Roster(parties=(*roster.parties, Keys.generate("node-1", "node").identity))
    with pytest.raises(StudyError, match="expected 0 compute nodes in the roster, got 1"):
        check_roster(study_of(one_node), one_node)


# Approvals -------------------------------------------------------------------------------------


def test_what_is_approved_is_found_by_its_id(sites: Consortium) -> None:
    ann = sites.sites["ann"]
    assert ann.study(sites.study.id) == sites.study
    assert [one.id for one in ann.studies()] == [sites.study.id]
    assert ann.study(bytes(32)) is None
    assert ann.withdraw(sites.study.id)
    assert not ann.withdraw(sites.study.id)
    assert ann.study(sites.study.id) is None
    assert ann.studies() == []


def test_what_a_killed_withdrawal_has_left_is_of_no_later_approval(sites: Consortium) -> None:
    """Else the study reads as over, and is never answered again."""
    ann, study = sites.sites["ann"], sites.study
    ann.note_end(study.id)
    ann.approve(study, ann.roster)  # what was over stays so, as for more mask graphs
    assert ann.unfinished() == []
    (sites.home / "ann" / APPROVED / f"{study.id.hex()}.toml").unlink()  # and was killed
    ann.approve(study, ann.roster)
    assert [one.id for one in ann.unfinished()] == [study.id]


def test_an_approved_study_that_was_altered_is_refused(sites: Consortium) -> None:
    path = sites.home / "ann" / APPROVED / f"{sites.study.id.hex()}.toml"
    text = path.read_text()
    path.write_text(text.replace("sample_rate = 1.0", "sample_rate = 0.5"))
    assert path.read_text() != text
    with pytest.raises(StudyError, match="it was altered; approve it again"):
        sites.sites["ann"].study(sites.study.id)


def test_a_torn_file_of_a_folder_is_named_with_what_to_do(sites: Consortium) -> None:
    """A party has many studies, and `join` refuses to begin with any of them torn."""
    ann, home = sites.sites["ann"], sites.home / "ann"
    path = home / APPROVED / f"{sites.study.id.hex()}.toml"
    text = path.read_text()
    path.write_text("torn = ")
    for read in (lambda: ann.study(sites.study.id), ann.studies):
        with pytest.raises(StudyError, match=r"\.toml to be .* approve it again, or remove"):
            read()
    path.write_text(text + "\n[wards]\nbeds = 3\n")
    with pytest.raises(StudyError, match=r"wards.*install the package that reads it"):
        ann.studies()
    path.write_text("torn = ")
    (home / ROSTER).write_text("torn = ")
    with pytest.raises(StudyError, match=r"roster\.toml, found something else; put it there"):
        _ = ann.roster
    (home / KEYS).write_text("torn = ")
    with pytest.raises(StudyError, match=r"restore keys\.toml from a backup"):
        PartyFolder.opened(home)


def test_a_study_under_anothers_id_is_refused(sites: Consortium) -> None:
    folder = sites.home / "ann" / APPROVED
    (folder / f"{sites.study.id.hex()}.toml").rename(folder / f"{'ab' * 32}.toml")
    with pytest.raises(StudyError, match="it was altered"):
        sites.sites["ann"].study(bytes.fromhex("ab" * 32))
    assert sites.sites["ann"].study(sites.study.id) is None


def test_other_files_among_the_approvals_are_no_studies(sites: Consortium) -> None:
    folder = sites.home / "ann" / APPROVED
    (folder / "notes.toml").write_text("[study]\n")
    assert [one.id for one in sites.sites["ann"].studies()] == [sites.study.id]


def test_a_party_approves_nothing_that_it_has_no_part_in(sites: Consortium, tmp_path: Path) -> None:
    stranger = PartyFolder.made(tmp_path / "eve", "eve", "silo")
    with pytest.raises(StudyError, match="expected the roster to list eve"):
        stranger.approve(sites.study, sites.aggregator.roster)
    assert not (tmp_path / "eve" / ROSTER).exists()


def test_a_folder_keeps_to_its_roster(sites: Consortium, tmp_path: Path) -> None:
    ann = sites.sites["ann"]
    others = [PartyFolder.made(tmp_path / f"{n}2", n, "silo").keys.identity for n in ("bob", "cyn")]
    parties = [sites.aggregator.keys.identity, ann.keys.identity, *others]
    roster = roster_of(parties)
    with pytest.raises(StudyError, match="one folder for each consortium"):
        ann.approve(study_of(roster), roster)
    assert read_roster(sites.home / "ann" / ROSTER) == sites.aggregator.roster


@pytest.mark.slow
def test_a_study_that_was_withdrawn_is_not_opened_and_not_gone_on_with(tmp_path: Path) -> None:
    parties = Watched.gather(tmp_path, tiny())
    assert isinstance(parties, Watched)
    session = opened(parties)
    session.round(1)
    assert parties.sites["ann"].withdraw(parties.study.id)
    new = bytes(range(16))
    assert refusal(parties.ask("ann", Call.OPEN, new, [open_frame(parties, new)]))[0] == (
        "not-approved"
    )
    with pytest.raises(Exception, match="ann: "):
        session.round(2)
    assert len(parties.rows("ann")) == 1


def test_a_roster_in_a_file_is_read_back(sites: Consortium, tmp_path: Path) -> None:
    path = tmp_path / "roster.toml"
    path.write_text(roster_toml(sites.aggregator.roster))
    assert read_roster(path) == sites.aggregator.roster
    with pytest.raises(StudyError, match=r"expected one identity in .*, found 4"):
        read_identity(path)
    assert len(identities(path.read_text())) == 4
    with pytest.raises(UserError, match="expected a readable file"):
        read_roster(tmp_path / "none.toml")


# Mask graphs -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_graphs_are_not_drawn_until_one_comes_apart(
    gather: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An aggregator that looks at the graph and begins again is stopped, restarts or not (P4)."""
    monkeypatch.setattr(folder_files, "MOST_GRAPHS", 2)
    monkeypatch.setattr(noise_shares, "_COMPLETE_UP_TO", 16)  # beyond 100 silos it takes long
    names = tuple(f"s{number:02}" for number in range(17))
    parties = gather(names=names)
    assert is_sparse(parties.study.parties)
    opened(parties)
    opened(parties)
    for name in names:
        parties.start(name)
    relay = Relay(parties.phase)
    with pytest.raises(WaitedError):
        opened(parties, relay, replace(HASTY, waiting=0.0))
    for name in names:
        assert [refusal(read_answer(one))[0] for one in relay.told("reveal", name)] == ["failed"]
    assert any("at most 1024 mask graphs" in line for line in parties.said)


def test_two_processes_of_a_party_open_a_session_once(sites: Consortium) -> None:
    """What one has noted the other sees, however long it has been there."""
    first, second = (PartyFolder.opened(sites.home / "ann") for _ in range(2))
    assert second.notes.open_session(bytes(16))
    names = [number.to_bytes(16, "big") for number in range(1, 41)]
    with ThreadPoolExecutor(8) as pool:
        found = list(
            pool.map(lambda one: one[0].notes.open_session(one[1]), product((first, second), names))
        )
    assert sum(found) == len(names)
    assert not first.notes.open_session(bytes(16))


def test_graphs_of_other_studies_and_complete_ones_are_not_counted(
    gather: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_files, "MOST_GRAPHS", 2)
    parties = gather()
    for _ in range(3):
        opened(parties)
    ann = parties.sites["ann"]
    assert [ann.notes.draw_graph(bytes([one]) * 32) for one in (1, 2, 1, 2, 1, 2)] == [True] * 4 + [
        False
    ] * 2
