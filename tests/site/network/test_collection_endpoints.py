"""What endpoints answer in a collection, and what is on their disks: attacks, deaths, images."""

from __future__ import annotations

import errno
import os
import shutil
import tomllib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pytest
import tomli_w

from hubbub.core import disk
from hubbub.core.errors import HubbubError, IntegrityError, UserError
from hubbub.core.ledger.entry import Entry
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.ledger.tally import attempts_of, kind_of
from hubbub.core.protocol.primitives.identity import Keys
from hubbub.core.protocol.primitives.wire import HEADER_BYTES, SIGNATURE_BYTES, Tag, unverified
from hubbub.core.session.ask import Call
from hubbub.core.session.offer import RefusedError, SessionOffer, round_parameters_of
from hubbub.core.study.study import Study
from hubbub.core.verification.replay.checking import verify
from hubbub.desk.cli.main import main
from hubbub.site.collected import party_sides
from hubbub.site.collected.collection_frames import CollectionPlace
from hubbub.site.collected.collection_request import AskedCollection, collect_frame
from hubbub.site.collected.node import CollectionNode
from hubbub.site.collected.party_sides import NodeSide
from hubbub.site.network import aggregator_process, endpoint
from hubbub.site.network.endpoint import NodeEndpoint
from hubbub.site.network.envelope import read_answer, request
from hubbub.site.network.event_log import EventLog
from hubbub.site.network.folder_files import read_roster, roster_of, write_roster
from hubbub.site.network.kept_frames import FOLDER, KeptFrames
from hubbub.site.network.party_folder import PartyFolder
from network.collected import (
    Deaths,
    Killed,
    Time,
    asking,
    check_exact,
    collect,
    collected,
    dying,
    noised,
    seated,
    sums,
)
from network.consortium import HOSPITALS, Consortium, planned
from network.relay import refusal

__all__ = ["noised", "sums"]
NODES = ("node-1", "node-2", "node-3")


def rows(parties: Consortium, name: str) -> list[Any]:
    """The entries of a silo's ledger."""
    ledger: Ledger = parties.seats[name]._ledger  # type: ignore[attr-defined]
    return list(ledger.entries())


class Table:
    """The other side of the table: an aggregator that signs and asks what it likes."""

    def __init__(self, parties: Consortium, name: bytes = b"a collection's id"[:16]) -> None:
        self.parties, self.id = parties, name
        self.plan = planned(parties.study)
        self.numbers = round_parameters_of(self.plan.main)
        roster = parties.aggregator.roster
        self.place = CollectionPlace(roster=roster, study=parties.study.id, session=name)
        self.collect = self.opening()
        self.keys: list[bytes] = []

    def opening(self, until: float = 1e6) -> bytes:
        offer = SessionOffer.of("statistics", self.numbers)
        return collect_frame(self.place, self.parties.aggregator.keys, offer, until)

    def ask(self, name: str, call: Call, *parts: bytes) -> list[bytes]:
        blob = request(call, self.id, parts)
        return read_answer(self.parties.seats[name].answer(blob))

    def opened(self) -> list[bytes]:
        """Everybody's keys."""
        self.keys = [self.ask(node, Call.COLLECT_KEY, self.collect)[0] for node in NODES]
        return [self.collect, *self.keys]

    def deposits(self, *silos: str) -> dict[str, list[bytes]]:
        found = {
            name: self.ask(name, Call.COLLECT_DEPOSIT, self.collect, *self.keys)[1:]
            for name in silos or HOSPITALS
        }
        assert all(len(one) == 3 for one in found.values())
        return found

    def set_of(self, deposits: dict[str, list[bytes]]) -> bytes:
        from hubbub.site.collected.collection_frames import Opening

        opening = Opening.read(self.place, self.collect, self.keys)
        index = {self.place.roster.name(i): i for i in self.place.roster.silos}
        chosen = {index[name]: one[0] for name, one in deposits.items()}
        digests = b"".join(unverified(chosen[i]).digest for i in sorted(chosen))
        payload = opening.q + self.numbers.bitmap(chosen) + digests
        return self.place.frame(Tag.SET, 0, payload).sealed(self.parties.aggregator.keys)


def payload(frame: bytes) -> bytes:
    return frame[HEADER_BYTES:-SIGNATURE_BYTES]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(Consortium.gather(tmp_path, asking()))


# Deaths at every write ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("party", ["cleveland", "node-2", "aggregator"])
def test_p30_killed_at_every_write_it_goes_on_and_the_sum_is_exact(
    tmp_path: Path, party: str, monkeypatch: pytest.MonkeyPatch, noised: Any, sums: Any
) -> None:
    """Once at each side of each write, one run after the other, then at all of them in one run."""
    parties = Consortium.gather(tmp_path, asking())
    with dying(monkeypatch, Deaths(lambda _, __: False)) as counted:
        assert collect(parties) is not None
    sides = counted.sides[party]
    assert sides >= {"cleveland": 10, "node-2": 10, "aggregator": 30}[party]
    step = 1 if party != "aggregator" else 5
    for at in range(0, sides, step):
        with monkeypatch.context() as patch:
            dies_once(tmp_path / f"{at}", patch, party, at, noised, sums)


def dies_once(
    home: Path, patch: pytest.MonkeyPatch, party: str, at: int, noised: Any, sums: Any
) -> None:
    home.mkdir()
    parties = Consortium.gather(home, asking())
    noised.clear()
    sums.clear()
    with dying(patch, Deaths(lambda who, side: (who, side) == (party, at))) as deaths:
        assert collected(parties, seated(parties), Time()) is not None
    assert deaths.died[party] == 1
    check_exact(sums, noised)
    assert [len(rows(parties, name)) for name in HOSPITALS] == [1] * 4
    assert [one for one in verify(home / "run") if not one.holds] == []
    parties.close()


def test_p30_a_deposit_that_is_on_the_disk_is_the_only_one_that_ever_leaves(table: Table) -> None:
    table.opened()
    first = table.deposits("cleveland")["cleveland"]
    for _ in range(2):
        table.parties.start("cleveland")
        assert table.deposits("cleveland")["cleveland"] == first
    assert len(rows(table.parties, "cleveland")) == 1


def test_p30_no_deposit_is_made_again_where_the_first_is_lost(table: Table) -> None:
    """The silo has noted the collection before it paid, and keeps that beside."""
    table.opened()
    table.deposits("cleveland")
    shutil.rmtree(table.parties.home / "cleveland" / FOLDER)
    table.parties.start("cleveland")
    for _ in range(2):
        said = table.ask("cleveland", Call.COLLECT_DEPOSIT, table.collect, *table.keys)
        assert refusal(said) == ("protocol", "relay")


@contextmanager
def full_disk(monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[None]:
    """No file of a collection can be written to the end."""

    def refuses(path: Path, *content: Any, **named: Any) -> None:
        if path.name == name:
            raise OSError(28, "No space left on device")
        disk.write_bytes(path, *content, **named)

    with monkeypatch.context() as patch:
        patch.setattr("hubbub.site.network.kept_frames.write_bytes", refuses)
        yield


def test_p30_on_a_full_disk_nothing_leaves_and_it_goes_on_later(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with full_disk(monkeypatch, "key"):
        said = table.ask("node-1", Call.COLLECT_KEY, table.collect)
    assert refusal(said) == ("ledger", "")
    table.opened()
    with full_disk(monkeypatch, "deposit"):
        said = table.ask("cleveland", Call.COLLECT_DEPOSIT, table.collect, *table.keys)
    assert refusal(said) == ("ledger", "")
    assert len(rows(table.parties, "cleveland")) == 1, "charged, and nothing sent"
    deposits = table.deposits()
    assert len(rows(table.parties, "cleveland")) == 1, "made anew under its row"
    fixed, heads = table.set_of(deposits), [one[0] for one in deposits.values()]
    with full_disk(monkeypatch, "promise"):
        said = table.ask("node-1", Call.COLLECT_PROMISE, table.collect, *table.keys, fixed, *heads)
    assert refusal(said) == ("ledger", "")
    promises = [
        table.ask(node, Call.COLLECT_PROMISE, table.collect, *table.keys, fixed, *heads)[0]
        for node in NODES
    ]
    with full_disk(monkeypatch, "total"):
        said = table.ask(
            "node-1", Call.COLLECT_TOTAL, table.collect, *table.keys, *heads, *promises
        )
    assert refusal(said) == ("ledger", "")
    (total,) = table.ask(
        "node-1", Call.COLLECT_TOTAL, table.collect, *table.keys, *heads, *promises
    )
    assert unverified(total).tag is Tag.SET_TOTAL


# Machines that were set back ----------------------------------------------------------------------


def image(table: Table, name: str) -> Path:
    """What a backup of a party's folder holds now."""
    kept = table.parties.home / f"image of {name} {len(list(table.parties.home.iterdir()))}"
    shutil.copytree(table.parties.home / name, kept)
    return kept


def restore(table: Table, name: str, kept: Path) -> None:
    table.parties.stop(name)
    shutil.rmtree(table.parties.home / name)
    shutil.copytree(kept, table.parties.home / name)
    table.parties.start(name)


def test_p30_a_silo_restored_to_before_its_deposit_pays_again_and_one_of_both_counts(
    table: Table,
) -> None:
    table.opened()
    before = image(table, "cleveland")
    first = table.deposits("cleveland")["cleveland"]
    restore(table, "cleveland", before)
    assert rows(table.parties, "cleveland") == []
    second = table.deposits("cleveland")["cleveland"]
    assert second[0] != first[0]
    assert len(rows(table.parties, "cleveland")) == 1
    others = table.deposits("hungary", "switzerland", "va-long-beach")
    sets = [{"cleveland": one, **others} for one in (first, second)]
    promises = []
    for node, those in zip(NODES, (sets[0], sets[1], sets[0]), strict=True):
        heads = [one[0] for one in those.values()]
        parts = (table.collect, *table.keys, table.set_of(those), *heads)
        promises += table.ask(node, Call.COLLECT_PROMISE, *parts)
    for node, those in zip(NODES, (sets[0], sets[1], sets[0]), strict=True):
        heads = [one[0] for one in those.values()]
        parts = (table.collect, *table.keys, *heads, *promises)
        assert refusal(table.ask(node, Call.COLLECT_TOTAL, *parts)) == ("protocol", "relay")


def test_p15_a_deposit_whose_row_was_lost_gets_it_before_it_is_sent_again(table: Table) -> None:
    table.opened()
    home = table.parties.home / "cleveland"
    before = image(table, "cleveland")
    first = table.deposits("cleveland")["cleveland"]
    table.parties.stop("cleveland")
    for path in home.glob("ledger.sqlite*"):
        path.unlink()
    for path in before.glob("ledger.sqlite*"):
        shutil.copy(path, home)
    table.parties.start("cleveland")
    assert rows(table.parties, "cleveland") == []
    assert table.deposits("cleveland")["cleveland"] == first
    assert len(rows(table.parties, "cleveland")) == 1


@pytest.mark.parametrize("state", ["before the key", "after the key", "after the promise"])
def test_p30_a_node_restored_at_every_state_tells_no_second_total(table: Table, state: str) -> None:
    images = {"before the key": image(table, "node-1")}
    table.opened()
    images["after the key"] = image(table, "node-1")
    deposits = table.deposits()
    fewer = {name: one for name, one in deposits.items() if name != "hungary"}
    heads, some = ([one[0] for one in those.values()] for those in (deposits, fewer))
    base = (table.collect, *table.keys)
    whole, second = table.set_of(deposits), table.set_of(fewer)
    promises = [table.ask(n, Call.COLLECT_PROMISE, *base, whole, *heads)[0] for n in NODES]
    images["after the promise"] = image(table, "node-1")
    (total,) = table.ask("node-1", Call.COLLECT_TOTAL, *base, *heads, *promises)
    restore(table, "node-1", images[state])
    again = table.ask("node-1", Call.COLLECT_PROMISE, *base, second, *some)
    if state == "after the key":
        assert unverified(again[0]).tag is Tag.SET_PROMISE, "it has forgotten the first"
        promises = [again[0], *promises[1:]]
        said = table.ask("node-1", Call.COLLECT_TOTAL, *base, *some, *promises)
        assert refusal(said) == ("protocol", "relay"), "the others have promised another set"
        said = table.ask("node-2", Call.COLLECT_PROMISE, *base, second, *some)
        assert refusal(said) == ("protocol", "aggregator")
        return
    assert refusal(again)[0] == "protocol"
    said = table.ask("node-1", Call.COLLECT_TOTAL, *base, *heads, *promises)
    if state == "after the promise":
        assert said == [total], "the same bits"
    else:
        (new,) = table.ask("node-1", Call.COLLECT_KEY, table.collect)
        assert new != table.keys[0]
        said = table.ask("node-1", Call.COLLECT_PROMISE, *base, whole, *heads)
        assert refusal(said) == ("protocol", "node-1"), "set back, says its own log"


def test_p30_the_key_is_overwritten_where_it_stood_and_read_by_nobody_without_the_long_term_key(
    table: Table,
) -> None:
    table.opened()
    folder = table.parties.home / "node-1" / "collections" / table.id.hex()
    (sealed,) = KeptFrames(folder).parts("key") or []
    secret = table.parties.sites["node-1"].keys.open(
        sealed, b"hubbub node key v1" + table.place.study + table.id
    )
    assert len(secret) == 128
    before = (folder / "key").read_bytes()
    assert secret[32:96] not in before
    inode = (folder / "key").stat().st_ino
    link = table.parties.home / "another name of the same file"
    link.hardlink_to(folder / "key")
    deposits = table.deposits()
    heads, base = [one[0] for one in deposits.values()], (table.collect, *table.keys)
    fixed = table.set_of(deposits)
    promises = [table.ask(n, Call.COLLECT_PROMISE, *base, fixed, *heads)[0] for n in NODES]
    table.ask("node-1", Call.COLLECT_TOTAL, *base, *heads, *promises)
    assert not (folder / "key").exists()
    assert link.stat().st_ino == inode
    assert not any(link.read_bytes()), "zeros where it stood"


def test_p30_a_key_is_erased_once_its_study_is_withdrawn(table: Table) -> None:
    table.opened()
    folder = table.parties.home / "node-1" / "collections" / table.id.hex()
    assert KeptFrames(folder).parts("key")
    table.parties.sites["node-1"].withdraw(table.parties.study.id)
    assert KeptFrames(folder).parts("key") is None
    said = table.ask("node-1", Call.COLLECT_KEY, table.collect)
    assert refusal(said) == ("not-approved", "")


@contextmanager
def moved(path: Path) -> Iterator[None]:
    aside = path.parent.with_name(path.name + "-aside")
    path.rename(aside)
    yield
    if path.is_dir():  # what was made in its place meanwhile
        shutil.rmtree(path)
    aside.replace(path)


@contextmanager
def cut(path: Path, length: int = 100) -> Iterator[None]:
    whole = path.read_bytes()
    path.write_bytes(whole[:length])
    yield
    path.write_bytes(whole)


@contextmanager
def without_nodes(path: Path) -> Iterator[None]:
    """Cut off where a party's entry ends: a whole roster, as far as its text tells."""
    whole = path.read_bytes()
    path.write_bytes(b"[[party]]".join(whole.split(b"[[party]]")[:-3]))
    assert len(read_roster(path).nodes) == 0
    yield
    path.write_bytes(whole)


@contextmanager
def failing(path: Path, number: int = errno.EIO) -> Iterator[None]:
    """The system opens nothing of that name."""
    real = os.open

    def opens(name: Any, *given: Any, **named: Any) -> int:
        if Path(name) == path:
            raise OSError(number, os.strerror(number))
        return real(name, *given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", opens)
        yield


STUDY_FILE = "approved/STUDY.toml"
Happens = Callable[[Path], AbstractContextManager[None]]
FAULTS: list[tuple[str, Happens]] = [
    ("roster.toml", moved),
    ("roster.toml", cut),
    ("roster.toml", partial(cut, length=0)),
    ("roster.toml", without_nodes),
    ("roster.toml", failing),
    ("roster.toml", partial(failing, number=errno.EMFILE)),
    ("roster.toml", partial(failing, number=errno.EACCES)),
    (STUDY_FILE, moved),
    (STUDY_FILE, cut),
    (STUDY_FILE, partial(cut, length=0)),
    (STUDY_FILE, partial(failing, number=errno.EMFILE)),
    ("approved", moved),
    ("keys.toml", moved),
    ("keys.toml", cut),
    ("collections", moved),
    ("collections/ID", moved),
    ("collections/ID/opened", moved),
    ("collections/ID/opened", partial(cut, length=30)),
    ("collections/ID/opened", failing),
    ("collections/ID/promise", moved),
    ("collections/ID/key", moved),
    ("collections/ID/key", partial(failing, number=errno.EMFILE)),
    ("sessions", moved),
]


@pytest.mark.parametrize("restarted", [False, True])
def test_p30_what_cannot_be_seen_for_a_moment_erases_no_key_and_forgets_no_promise(
    table: Table, restarted: bool
) -> None:
    table.opened()
    deposits = table.deposits()
    heads, base = [one[0] for one in deposits.values()], (table.collect, *table.keys)
    fixed = table.set_of(deposits)
    fewer = {name: one for name, one in deposits.items() if name != "hungary"}
    other = (*base, table.set_of(fewer), *(one[0] for one in fewer.values()))
    promises = [table.ask(n, Call.COLLECT_PROMISE, *base, fixed, *heads)[0] for n in NODES]
    home, study = table.parties.home / "node-1", table.parties.study.id.hex()
    (home / "sessions").touch()
    key = home / "collections" / table.id.hex() / "key"
    before = key.read_bytes()
    for name, happens in FAULTS:
        if restarted and "promise" not in name and "coll" not in name:  # else it has seen nothing
            table.parties.start("node-1")
        with happens(home / name.replace("STUDY", study).replace("ID", table.id.hex())):
            with suppress(HubbubError):
                table.parties.seats["node-1"].look()
            for call, *parts in (
                (Call.COLLECT_KEY, table.collect),
                (Call.COLLECT_LOOK, *base, *heads),
                (Call.COLLECT_PROMISE, *other),
                (Call.COLLECT_TOTAL, *base, *heads, *promises[1:]),
            ):
                frames = [unverified(one) for one in table.ask("node-1", call, *parts)]
                assert not any(one.tag in (Tag.SET_PROMISE, Tag.SET_TOTAL) for one in frames), name
                said = [one.digest for one in frames if one.tag is Tag.NODE_KEY]
                assert said in ([], [unverified(table.keys[0]).digest]), name
        assert key.read_bytes() == before, name
    (told,) = table.ask("node-1", Call.COLLECT_TOTAL, *base, *heads, *promises)
    assert unverified(told).tag is Tag.SET_TOTAL
    assert not key.exists()


def test_p30_a_key_outlives_a_new_roster_and_is_erased_by_a_withdrawal_alone(
    table: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table.opened()
    home, parties = tmp_path / "node-1", table.parties
    key = home / "collections" / table.id.hex() / "key"
    before, former = key.read_bytes(), parties.sites["node-1"].roster
    new = Keys.generate("hungary", "silo").networked().identity
    roster = roster_of([new if one.name == new.name else one for one in former.parties])
    made = asking()
    made["parties"]["roster"] = roster.digest.hex()
    for name, text in (("new", made), ("old", tomllib.loads(parties.study.as_toml()))):
        (tmp_path / f"{name}.toml").write_text(tomli_w.dumps(text))
    write_roster(tmp_path / "roster.toml", roster)
    here = ["--home", str(home)]
    given = ["--roster", str(tmp_path / "roster.toml"), "--new-roster", "--yes", *here]
    capsys.readouterr()
    assert main(["approve", str(tmp_path / "new.toml"), *given]) == 0
    assert f"their keys are here: {parties.study.name}" in capsys.readouterr().err
    parties.seats["node-1"].look()
    assert refusal(table.ask("node-1", Call.COLLECT_KEY, table.collect))[0] == "not-approved"
    assert key.read_bytes() == before
    withdraw = ["approve", str(tmp_path / "old.toml"), "--withdraw", *here]
    assert main(withdraw) == 2
    assert "will be erased for ever" in capsys.readouterr().err
    assert key.read_bytes() == before
    assert main([*withdraw, "--yes"]) == 0
    assert not key.exists()


def test_p30_a_withdrawal_that_cannot_tell_whose_a_key_is_says_so_and_erases_what_it_can(
    table: Table,
) -> None:
    table.opened()
    site, home = table.parties.sites["node-1"], table.parties.home / "node-1" / "collections"
    other = home / "00ff"
    shutil.copytree(home / table.id.hex(), other)
    for _ in range(2):
        with cut(other / "opened", 30), pytest.raises(IntegrityError, match="withdraw it again"):
            site.withdraw(table.parties.study.id)
    assert not (home / table.id.hex() / "key").exists()
    assert (other / "key").exists()
    site.withdraw(table.parties.study.id)
    assert not (other / "key").exists()


@pytest.mark.parametrize("method", ["erase", "has"])
def test_p30_a_key_that_cannot_be_erased_keeps_no_other_from_it(
    table: Table, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    table.opened()
    site, home = table.parties.sites["node-1"], table.parties.home / "node-1" / "collections"
    first, honest = home / "00ff", getattr(KeptFrames, method)
    shutil.copytree(home / table.id.hex(), first)

    def failing(self: KeptFrames, name: str) -> Any:
        if self.folder == first and method == "erase":
            raise IntegrityError("expected to use it, the disk says: Input/output error; see")
        if self.folder == first:
            raise OSError(errno.EIO, "Input/output error")
        return honest(self, name)

    with monkeypatch.context() as patch:
        patch.setattr(KeptFrames, method, failing)
        with pytest.raises(IntegrityError, match="withdraw it again"):
            site.withdraw(table.parties.study.id)
    assert not (home / table.id.hex() / "key").exists()
    site.withdraw(table.parties.study.id)
    assert not (first / "key").exists()


# Equivocation -------------------------------------------------------------------------------------


@pytest.mark.slow_cases("node-1-promise-cut", "node-1-total-cut", "cleveland-deposit-cut")
@pytest.mark.parametrize("harm", ["zeros", "gone", "cut"])
@pytest.mark.parametrize(
    ("party", "file"),
    [("node-1", "promise"), ("node-1", "total"), ("cleveland", "deposit"), ("cleveland", "opened")],
)
def test_p30_what_was_promised_or_sent_is_not_forgotten_by_who_harms_its_file(
    table: Table, party: str, file: str, harm: str
) -> None:
    """No second promise, total or deposit follows from a file that is not as it was written."""
    table.opened()
    deposits = table.deposits()
    heads, base = [one[0] for one in deposits.values()], (table.collect, *table.keys)
    fixed = table.set_of(deposits)
    promises = [table.ask(n, Call.COLLECT_PROMISE, *base, fixed, *heads)[0] for n in NODES]
    table.ask("node-1", Call.COLLECT_TOTAL, *base, *heads, *promises)
    path = table.parties.home / party / "collections" / table.id.hex() / file
    whole = path.read_bytes()
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes(bytes(len(whole)) if harm == "zeros" else whole[:19])
    fewer = {name: one for name, one in deposits.items() if name != "hungary"}
    some, other = [one[0] for one in fewer.values()], table.set_of(fewer)
    asked = {
        "node-1": (Call.COLLECT_PROMISE, *base, other, *some),
        "cleveland": (Call.COLLECT_DEPOSIT, *base),
    }
    table.parties.start(party)
    table.parties.said.clear()
    said = table.ask(party, *asked[party])
    if harm == "gone" and file in ("total", "deposit"):  # the last file, as on a machine set back
        assert said != promises[:1]
        assert refusal(said)[0] == "protocol" if file == "total" else len(said) == 4
        return
    assert refusal(said) == ("ledger", "")
    assert str(path) in "\n".join(table.parties.said)


def test_p30_a_key_that_was_half_erased_is_gone_and_the_total_is_told_again(table: Table) -> None:
    table.opened()
    deposits = table.deposits()
    heads, base = [one[0] for one in deposits.values()], (table.collect, *table.keys)
    fixed = table.set_of(deposits)
    promises = [table.ask(n, Call.COLLECT_PROMISE, *base, fixed, *heads)[0] for n in NODES]
    path = table.parties.home / "node-1" / "collections" / table.id.hex() / "key"
    key = path.read_bytes()
    total = table.ask("node-1", Call.COLLECT_TOTAL, *base, *heads, *promises)
    for left in (bytes(len(key)), bytes(40) + key[40:]):
        path.write_bytes(left)
        table.parties.start("node-1")
        assert table.ask("node-1", Call.COLLECT_TOTAL, *base, *heads, *promises) == total
        assert not path.exists()
    path.write_bytes(key)  # as where it died between the total and the key
    table.parties.start("node-1")
    assert table.ask("node-1", Call.COLLECT_KEY, table.collect) == [table.keys[0]]
    assert not path.exists()


# Attacks of other kinds -------------------------------------------------------------------------


def test_p30_two_processes_of_one_node_promise_one_set(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have seen that nothing was promised; the second to write finds the other's promise."""
    table.opened()
    deposits = table.deposits()
    fewer = {name: one for name, one in deposits.items() if name != "hungary"}
    base = (table.collect, *table.keys)
    asked = {
        name: (*base, table.set_of(those), *(one[0] for one in those.values()))
        for name, those in (("first", deposits), ("second", fewer))
    }
    folder = PartyFolder.opened(table.parties.home / "node-1")
    second = NodeEndpoint(folder, EventLog(party="node-1"))
    said: list[list[bytes]] = []
    honest = CollectionNode.promised

    def meanwhile(self: CollectionNode, *given: Any) -> Any:
        state = honest(self, *given)
        if not said:
            said.append([])
            blob = request(Call.COLLECT_PROMISE, table.id, asked["second"])
            said[0] = read_answer(second.answer(blob))
        return state

    monkeypatch.setattr(CollectionNode, "promised", meanwhile)
    assert refusal(table.ask("node-1", Call.COLLECT_PROMISE, *asked["first"])) == ("ledger", "")
    assert unverified(said[0][0]).tag is Tag.SET_PROMISE
    again = table.ask("node-1", Call.COLLECT_PROMISE, *asked["second"])
    assert again == said[0]
    second.close()


def test_without_a_package_that_collects_a_call_of_a_collection_is_refused(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where that part of hubbub is not installed; the aggregator refuses --until by itself."""
    for module in (endpoint, aggregator_process):
        monkeypatch.setattr(module, "registered", lambda _: {})
    bare = NodeEndpoint(PartyFolder.opened(table.parties.home / "node-1"), EventLog(party="node-1"))
    blob = request(Call.COLLECT_KEY, table.id, [table.collect])
    said = read_answer(bare.answer(blob))
    assert refusal(said)[0] == "protocol"
    bare.close()
    with pytest.raises(UserError, match=r"collects sums over weeks \(--until\), found none"):
        aggregator_process._run(
            table.parties.aggregator, table.parties.study, Mock(), None, until=1e6
        )


def test_p30_one_id_in_two_studies_serves_the_first_alone(tmp_path: Path) -> None:
    """What is kept under an id is of one study; no key, row or deposit of it serves another."""
    table = Table(Consortium.gather(tmp_path, asking()))
    base = table.opened()
    table.deposits("cleveland")
    made = asking(statistics={"ages": {"kind": "table", "columns": ["age"], "by": "disease"}})
    made["parties"]["roster"] = table.place.roster.digest.hex()
    other = Study.from_table(made)
    for name in ("cleveland", "hungary", "node-1"):
        site = table.parties.sites[name]
        site.approve(other, table.place.roster)
    offer = SessionOffer.of("statistics", round_parameters_of(planned(other).main))
    place = CollectionPlace(roster=table.place.roster, study=other.id, session=table.id)
    collect = collect_frame(place, table.parties.aggregator.keys, offer, 1e6)
    said = table.ask("node-1", Call.COLLECT_KEY, collect)
    assert refusal(said)[0] == "protocol"
    said = table.ask("cleveland", Call.COLLECT_DEPOSIT, collect, *base[1:])
    assert refusal(said)[0] == "protocol"
    assert len(rows(table.parties, "cleveland")) == 1


def test_p30_a_node_that_passes_anothers_key_off_as_its_own_opens_nothing(table: Table) -> None:
    """Its seeds are sealed to the honest node's key, whose part of the context they lack."""
    honest = table.ask("node-1", Call.COLLECT_KEY, table.collect)[0]
    third = table.ask("node-3", Call.COLLECT_KEY, table.collect)[0]
    keys = table.parties.sites["node-2"].keys
    index = table.parties.sites["node-2"].index
    stolen = table.place.frame(Tag.NODE_KEY, index, payload(honest)).sealed(keys)
    table.keys = [honest, stolen, third]
    deposits = table.deposits()
    heads, base = [one[0] for one in deposits.values()], (table.collect, *table.keys)
    looked = table.ask("node-1", Call.COLLECT_LOOK, *base, *heads)
    assert not any(payload(looked[0])[:1]), "its own seeds open at the honest node"
    swapped = []
    for name, head in zip(deposits, heads, strict=True):
        start, size = 64, (len(payload(head)) - 64) // 3
        parts = payload(head)
        own, hers = parts[start : start + size], parts[start + size : start + 2 * size]
        made = parts[:start] + hers + own + parts[start + 2 * size :]
        site = table.parties.sites[name]
        swapped.append(table.place.frame(Tag.DEPOSIT, site.index, made).sealed(site.keys))
    looked = table.ask("node-1", Call.COLLECT_LOOK, *base, *swapped)
    assert payload(looked[0])[:1] == b"\xf0", "hers open nowhere"


def test_p30_a_silo_takes_part_in_one_opening_and_names_who_signed_two(table: Table) -> None:
    table.opened()
    table.deposits("cleveland")
    other = table.opening(until=2e6)
    keys = [
        table.place.frame(
            Tag.NODE_KEY, index, unverified(other).digest + payload(table.keys[place])[32:]
        ).sealed(table.parties.sites[node].keys)
        for place, (node, index) in enumerate(zip(NODES, (5, 6, 7), strict=True))
    ]
    said = table.ask("cleveland", Call.COLLECT_DEPOSIT, other, *keys)
    assert refusal(said) == ("protocol", "aggregator")
    fresh = payload(Table(table.parties, bytes(16)).opened()[2])[32:]
    head = unverified(table.collect).digest
    second = table.place.frame(Tag.NODE_KEY, 6, head + fresh).sealed(
        table.parties.sites["node-2"].keys
    )
    shown = [table.keys[0], second, table.keys[2]]
    said = table.ask("cleveland", Call.COLLECT_DEPOSIT, table.collect, *shown)
    assert refusal(said) == ("protocol", "node-2")
    said = table.ask("node-1", Call.COLLECT_KEY, other)
    assert refusal(said) == ("protocol", "aggregator")
    assert len(rows(table.parties, "cleveland")) == 1


def test_p15_a_second_collection_is_not_paid_for_by_the_same_row(table: Table) -> None:
    table.opened()
    table.deposits("cleveland")
    second = Table(table.parties, bytes(16))
    second.opened()
    said = second.ask("cleveland", Call.COLLECT_DEPOSIT, second.collect, *second.keys)
    assert refusal(said) == ("budget", "")
    assert len(rows(table.parties, "cleveland")) == 1


def test_p15_a_collection_is_charged_for_the_study_as_its_plan_says(table: Table) -> None:
    table.opened()
    with patch.object(Ledger, "charge", autospec=True, side_effect=Ledger.charge) as charged:
        table.deposits("cleveland")
    (entry,), options = charged.call_args.args[1:], charged.call_args.kwargs
    assert (entry.session, entry.round, entry.kind) == (table.id, 0, kind_of(table.plan.main))
    assert options == {
        "attempts": 1,
        "study_attempts": attempts_of(table.plan),
        "study_certificate": table.plan.certificate,
    }


def test_p24_the_cap_of_a_study_and_its_units_are_seen_to_before_a_collections_row(
    table: Table,
) -> None:
    table.opened()
    done, privacy = Mock(), table.parties.study.privacy
    with (
        patch.object(Ledger, "check_units", done.units),
        patch.object(party_sides, "set_caps", done.caps),
        patch.object(Ledger, "charge", done.charge),
    ):
        table.deposits("cleveland")
    assert [name for name, *_ in done.mock_calls] == ["units", "caps", "charge"]
    assert done.units.call_args.args[0].study.id == table.place.study
    assert done.caps.call_args.args[1] == privacy


def test_p15_a_row_of_a_session_pays_for_no_collection_of_its_id(table: Table) -> None:
    table.opened()
    ledger: Ledger = table.parties.seats["cleveland"]._ledger  # type: ignore[attr-defined]
    place = {"study": table.place.study, "session": table.id}
    ledger.charge(Entry(**place, round=1, attempt=0, kind=kind_of(table.plan.main)))
    said = table.ask("cleveland", Call.COLLECT_DEPOSIT, table.collect, *table.keys)
    assert refusal(said) == ("protocol", "relay")
    assert [entry.round for entry in rows(table.parties, "cleveland")] == [1]


def test_no_sum_is_collected_after_the_result_that_a_silo_has_signed(table: Table) -> None:
    table.opened()
    notes = table.parties.sites["cleveland"].notes
    assert notes.take_result(table.place.study, bytes(32))
    said = table.ask("cleveland", Call.COLLECT_DEPOSIT, table.collect, *table.keys)
    assert refusal(said) == ("protocol", "aggregator")
    assert rows(table.parties, "cleveland") == []


WRONG = {
    "a numbers' change": lambda t: t.place.frame(
        Tag.COLLECT, 0, payload(t.collect).replace(b'"quorum": 3', b'"quorum": 1')
    ).sealed(t.parties.aggregator.keys),
    "another purpose": lambda t: t.place.frame(
        Tag.COLLECT, 0, payload(t.collect).replace(b'"statistics"', b'"training"')
    ).sealed(t.parties.aggregator.keys),
    "no date": lambda t: t.place.frame(
        Tag.COLLECT, 0, payload(t.collect).replace(b'"until"', b'"after"')
    ).sealed(t.parties.aggregator.keys),
    "of a silo": lambda t: t.place.frame(Tag.COLLECT, 1, payload(t.collect)).sealed(
        t.parties.sites["cleveland"].keys
    ),
    "an OPEN": lambda t: t.place.frame(Tag.OPEN, 0, payload(t.collect)).sealed(
        t.parties.aggregator.keys
    ),
    "altered": lambda t: t.collect[:-1] + bytes([t.collect[-1] ^ 1]),
}


@pytest.mark.parametrize("case", WRONG)
def test_no_other_collect_is_answered(table: Table, case: str) -> None:
    for name in ("cleveland", "node-1"):
        call = Call.COLLECT_KEY if name == "node-1" else Call.COLLECT_DEPOSIT
        why, _ = refusal(table.ask(name, call, WRONG[case](table)))
        assert why in ("protocol", "plan")
    assert rows(table.parties, "cleveland") == []


@pytest.mark.quick_cases("41", "40", "42")
@pytest.mark.parametrize("call", [one for one in Call if one >= Call.COLLECT_KEY])
def test_no_call_is_answered_by_who_it_is_not_for(table: Table, call: Call) -> None:
    base = table.opened()
    for name in ("cleveland", "node-1"):
        for_silo = call is Call.COLLECT_DEPOSIT
        if call is Call.COLLECT_KEY:
            tag = Tag.NODE_KEY if name == "node-1" else Tag.READY
            assert unverified(table.ask(name, call, table.collect)[0]).tag is tag
            continue
        if for_silo and name == "cleveland":
            continue
        said = table.ask(name, call, *base)
        if call is Call.COLLECT_LOOK and name == "node-1":
            assert unverified(said[0]).tag is Tag.LOOKED
        else:
            assert refusal(said)[0] == "protocol"


def test_no_file_that_a_silo_keeps_holds_a_secret(table: Table, monkeypatch: Any) -> None:
    """Neither its seeds nor its noised sum are in any of its files, in any plain encoding."""
    from hubbub.site.collected.collection_frames import Deposit

    seen: list[bytes] = []
    honest = Deposit.sealed

    def sealed(self: Deposit, residues: Any, seeds: Any) -> Any:
        seen.extend((residues.tobytes(), *seeds.values()))
        return honest(self, residues, seeds)

    monkeypatch.setattr(Deposit, "sealed", sealed)
    table.opened()
    table.deposits("cleveland")
    assert len(seen) == 4
    whole = [
        path.read_bytes()
        for path in (table.parties.home / "cleveland").rglob("*")
        if path.is_file() and path.name != "keys.toml"
    ]
    assert sum(map(len, whole)) > 5000
    for secret in seen:
        for form in (secret[:16], secret[:16].hex().encode()):
            assert not any(form in one for one in whole)


def test_a_killed_process_is_no_error_of_the_endpoint() -> None:
    assert not issubclass(Killed, Exception)


def test_no_part_of_a_sum_leaves_who_has_withdrawn_its_study_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sum takes a while: its approval is looked at once more before the answer is given."""
    monkeypatch.setattr(AskedCollection, "of", Mock())
    monkeypatch.setattr(NodeSide, "kept", Mock())
    monkeypatch.setattr(NodeSide, "answer_to", Mock(return_value=[b"a part"]))
    folder = Mock()
    side = NodeSide(folder, Mock(), Mock(), Mock())
    folder.approves.return_value = True
    assert side.answer(Call.COLLECT_TOTAL, bytes(16), []) == [b"a part"]
    folder.approves.return_value = False
    with pytest.raises(RefusedError, match="still approved"):
        side.answer(Call.COLLECT_TOTAL, bytes(16), [])
