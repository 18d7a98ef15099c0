"""Sums that stay open for weeks, through the real endpoints: folders, ledgers, evidence (P30)."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hubbub import learning
from hubbub.core.errors import BudgetError, IntegrityError, StudyError, UserError
from hubbub.core.ledger.entry import Cap
from hubbub.core.ledger.head_statement import Witness
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.protocol.primitives.wire import Tag, unverified
from hubbub.core.runs.run_folder import answers_in
from hubbub.core.session.ask import Call
from hubbub.core.session.offer import SessionOffer
from hubbub.core.study.study import Study
from hubbub.core.tabular.records import Standardisation
from hubbub.core.verification.evidence.evidence_file import SIGNED
from hubbub.core.verification.replay.checking import verify
from hubbub.core.verification.transcript.frame_records import read, read_header
from hubbub.core.verification.transcript.writer import Transcript
from hubbub.desk.cli.ledger_books import LedgerHistory, trail
from hubbub.site.network import kept_frames
from hubbub.site.network.coordinator import Coordinator
from hubbub.site.network.envelope import Missing, Phase, answer, read_answer
from hubbub.site.network.kept_frames import KeptFrames
from hubbub.site.network.party_folder import PartyFolder
from hubbub.site.network.requests import Requests
from network.collected import (
    ASKED,
    DAY,
    UNTIL,
    Deaths,
    Killed,
    Time,
    asking,
    check_exact,
    collect,
    collected,
    dying,
    from_files,
    hourly,
    noised,
    seated,
    sums,
    weather,
    write_files,
)
from network.consortium import HOSPITALS, Consortium, table
from network.test_collection_endpoints import rows

__all__ = ["noised", "sums"]


def test_a_study_of_one_sum_is_collected_and_its_run_is_verified(
    tmp_path: Path, noised: Any, sums: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "threads_for", None)  # no model, and so no torch
    ask, paid = Requests.ask, dict[Call, set[int]]()

    def seen(self: Requests, call: Call, *asked: Any, **named: Any) -> Any:
        for least in self.least_paid.values():
            paid.setdefault(call, set()).update(least.values())
        return ask(self, call, *asked, **named)

    monkeypatch.setattr(Requests, "ask", seen)
    parties = Consortium.gather(tmp_path, asking())
    result = collect(parties)
    assert result is not None
    # P15: a silo that deposits states that it has paid, and no READY of before goes with it.
    assert paid[Call.COLLECT_DEPOSIT] == {1}
    check_exact(sums, noised)
    assert result.statistics["baseline"].refusal == ""
    found = verify(tmp_path / "run")
    assert [one for one in found if not one.holds] == []
    assert any("every sum, and every step along it, bit for bit" in one.claim for one in found)
    evidence = json.loads((tmp_path / "run" / "evidence.json").read_text())
    assert [one["silo"] for one in evidence["silos"]] == sorted(HOSPITALS)
    assert all(one["attempts"] == 1 and one["closed"] for one in evidence["silos"])
    assert [len(rows(parties, name)) for name in HOSPITALS] == [1, 1, 1, 1]
    ((header, *counts),) = answers_in(tmp_path / "run")
    assert (header.purpose, counts) == ("statistics", [Counter(HOSPITALS)] * 2)


@pytest.mark.slow
def test_with_hashes_of_vectors_the_sum_is_not_verifiable_and_all_else_is(tmp_path: Path) -> None:
    made = asking()
    made["study"]["transcript"] = "hashes"
    parties = Consortium.gather(tmp_path, made)
    collect(parties)
    (transcript,) = (tmp_path / "run" / "transcript").iterdir()
    assert transcript.stat().st_size < 40_000
    found = verify(tmp_path / "run")
    assert [one for one in found if not one.holds] == []
    assert any(one.verdict.startswith("not verifiable") for one in found)


@pytest.mark.slow
def test_below_the_quorum_nothing_opens_and_a_later_date_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noised: Any, sums: Any
) -> None:
    hourly(monkeypatch, 4)
    parties = Consortium.gather(tmp_path, asking())
    clock, limit = Time(), 40 * DAY

    class EnoughError(Exception):
        pass

    def there(party: str) -> bool:
        if clock.wall() > limit:
            raise EnoughError
        return party not in ("cleveland", "hungary")

    with pytest.raises(EnoughError):
        collect(parties, seated(parties, there), clock=clock)
    assert sums == []
    status = json.loads((tmp_path / "aggregator" / "status.json").read_text())
    assert (status["deposits"], status["quorum"]) == (2, 3)
    assert set(status["waiting_for"]) == {"cleveland", "hungary"}
    assert status["phase"] == "deposits"
    reminders = [one for one in parties.said if "waiting for cleveland, hungary" in one]
    assert 12 < len(reminders) < 25, "a few before the date, then one a day"
    limit = 100 * DAY
    back = seated(parties, lambda party: party != "hungary")
    assert collect(parties, back, clock=clock, until=60 * DAY) is not None
    assert [silos for silos, _ in sums] == [[1, 3, 4]], "hungary is number 2"
    check_exact(sums, noised)
    assert clock.wall() >= 60 * DAY, "nobody is left out before the date"


@pytest.mark.parametrize("until", [-DAY, 0.0, 9 * DAY, 10 * DAY])
def test_a_date_that_is_over_before_anybody_was_told_is_refused(
    tmp_path: Path, until: float
) -> None:
    parties, clock = Consortium.gather(tmp_path, asking()), Time()
    clock.slept.append(10 * DAY)
    with pytest.raises(UserError, match="expected --until in the future"):
        collect(parties, clock=clock, until=until)
    assert not (tmp_path / "aggregator" / "collections").exists()


@pytest.mark.slow
def test_a_collection_ends_no_earlier_than_silos_were_told_and_may_go_on_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sums: Any
) -> None:
    hourly(monkeypatch, 4)
    parties, clock = Consortium.gather(tmp_path, asking()), Time()

    def there(party: str) -> bool:
        if clock.wall() > 2 * DAY:
            raise KeyboardInterrupt
        return party != "hungary"

    with pytest.raises(KeyboardInterrupt):
        collect(parties, seated(parties, there), clock=clock)
    with pytest.raises(UserError, match=r"name 1970-01-31 00:00 UTC, as silos were told"):
        collect(parties, clock=clock, until=DAY)
    clock.slept.append(60 * DAY)
    back = seated(parties, lambda party: party != "hungary")
    assert collect(parties, back, clock=clock) is not None
    assert [silos for silos, _ in sums] == [[1, 3, 4]]


def test_p30_an_aggregator_that_cannot_see_its_collect_opens_no_second_collection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sums: Any
) -> None:
    hourly(monkeypatch, 4)
    parties, clock = Consortium.gather(tmp_path, asking()), Time()

    def there(party: str) -> bool:
        if clock.wall() > DAY:
            raise KeyboardInterrupt
        return party != "hungary"

    with pytest.raises(KeyboardInterrupt):
        collect(parties, seated(parties, there), clock=clock)
    (path,) = (tmp_path / "aggregator" / "collections").glob("*/collect")
    path.rename(tmp_path / "aside")
    with pytest.raises(IntegrityError, match="it is gone; put it back"):
        collect(parties, clock=clock)
    (tmp_path / "aside").rename(path)
    deposit = path.with_name("deposit-1")  # of which nodes have said that its seeds open
    deposit.rename(tmp_path / "aside")
    with pytest.raises(IntegrityError, match="restore the folder from a backup"):
        collect(parties, clock=clock)
    (tmp_path / "aside").rename(deposit)
    assert collect(parties, clock=clock) is not None
    assert [silos for silos, _ in sums] == [[1, 2, 3, 4]]


@pytest.mark.slow
def test_sites_up_one_hour_in_twenty_all_killed_twice_open_the_exact_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noised: Any, sums: Any
) -> None:
    """24 silos and 3 nodes, each up 5 % of the time; every process dies at two of its writes."""
    hourly(monkeypatch)
    names = [f"site-{number:02}" for number in range(24)]
    parties = Consortium.gather(tmp_path, from_files(names, 3, dropouts=4))
    write_files(parties)
    draw, clock = random.Random(30), Time()
    chosen = {
        party: set(draw.sample(range(5), 2)) for party in [*names, "node-1", "node-2", "node-3"]
    }
    chosen["aggregator"] = set(draw.sample(range(60), 5))
    with dying(monkeypatch, Deaths(lambda party, side: side in chosen.get(party, ()))) as deaths:
        there = weather(draw, clock, 0.05)
        result = collected(parties, seated(parties, there), clock, until=20 * DAY)
    assert result is not None
    assert {party: deaths.died[party] for party in chosen if deaths.died[party] < 2} == {}
    check_exact(sums, noised)
    assert len(sums[-1][0]) >= 20
    assert [len(rows(parties, name)) <= 1 for name in names] == [True] * 24
    assert [one for one in verify(tmp_path / "run") if not one.holds] == []


@pytest.mark.slow
def test_what_comes_before_a_training_is_collected_and_the_training_goes_on_from_it(
    tmp_path: Path, noised: Any, sums: Any
) -> None:
    made = table(HOSPITALS, 3, privacy={"epsilon": 8.0}, parties={"dropouts": 1})
    made["data"]["standardise"] = {"bound": 5.0, "epsilon": 1.0}
    parties = Consortium.gather(tmp_path, made)
    assert collect(parties) is None, "a training follows"
    check_exact(sums, noised)
    kept = (tmp_path / "run" / "standardisation.json").read_text()
    result = parties.serve()
    assert result.steps == 3
    assert (tmp_path / "run" / "standardisation.json").read_text() == kept
    assert [len(rows(parties, name)) for name in HOSPITALS] == [4] * 4
    found = verify(tmp_path / "run")
    assert [one for one in found if not one.holds] == []
    (told,) = [one for one in found if "standardised as silos were told" in one.claim]
    assert told.verdict == SIGNED


@pytest.mark.slow
def test_who_tells_silos_another_standardisation_than_it_keeps_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = table(HOSPITALS, 3, privacy={"epsilon": 8.0}, parties={"dropouts": 1})
    made["data"]["standardise"] = {"bound": 5.0, "epsilon": 1.0}
    parties = Consortium.gather(tmp_path, made)
    honest = Coordinator.standardise

    def lies(self: Coordinator, found: Standardisation | None) -> None:
        assert found is not None
        honest(self, replace(found, shift=found.shift + np.float32(0.25)))

    with monkeypatch.context() as patch:
        patch.setattr(Coordinator, "standardise", lies)
        parties.serve()
    (wrong,) = [one for one in verify(tmp_path / "run") if not one.holds]
    assert "silos were told others" in wrong.verdict


def test_a_collection_of_other_numbers_than_the_plans_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All parties of it wish it so; its COLLECT says what its silos have signed for."""
    parties = Consortium.gather(tmp_path, asking())

    def cheaper(*given: Any, **named: Any) -> SessionOffer:
        offer = SessionOffer(purpose=given[0], round_parameters=given[1].to_dict())
        return replace(offer, round_parameters={**offer.round_parameters, "sigma_grid": 4.0})

    with monkeypatch.context() as patch:
        patch.setattr(SessionOffer, "of", cheaper)
        patch.setattr(SessionOffer, "check", lambda self, mine: None)
        assert collect(parties) is not None
    (wrong,) = [one for one in verify(tmp_path / "run") if not one.holds]
    assert "sigma_grid" in wrong.verdict


REFUSED: dict[str, tuple[Any, str]] = {
    "a training": (lambda: table(HOSPITALS, 3), "one sum of training, got 3"),
    "pairwise masks": (lambda: asking(0), "compute_nodes, got none: masks in pairs"),
    "two sums": (lambda: asking(statistics=ASKED | {"sums": 2}), "one sum of statistics, got 2"),
    "full shares": (
        lambda: with_parties(asking(), shares="full"),
        'parties.shares = "compressed", got "full"',
    ),
    "some nodes": (
        lambda: with_parties(asking(dropouts=0), nodes_per_silo=2, colluders=0),
        "every silo to use all nodes",
    ),
}


def with_parties(made: Any, **more: Any) -> Any:
    made["parties"] |= more
    return made


@pytest.mark.quick_cases("pairwise masks", "full shares", "some nodes")
@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_collected_is_refused_with_the_remedy(tmp_path: Path, case: str) -> None:
    made, says = REFUSED[case]
    parties = Consortium.gather(tmp_path, made())
    with pytest.raises(StudyError, match=says):
        collect(parties)
    assert not (tmp_path / "aggregator" / "collections").exists()


@pytest.mark.slow
@pytest.mark.parametrize("why", ["withdrawn", "budget"])
def test_a_party_that_refuses_is_asked_less_and_less_often(tmp_path: Path, why: str) -> None:
    parties = Consortium.gather(tmp_path, asking())
    if why == "withdrawn":
        parties.sites["hungary"].withdraw(parties.study.id)
    else:  # it says READY each time, and refuses its deposit
        ledger = parties.seats["hungary"]._ledger  # type: ignore[attr-defined]
        ledger.set_cap(Cap(epsilon=0.01, delta=1e-5, relation="add-remove"))
    clock = Time()
    assert collect(parties, clock=clock, until=1200.0) is not None
    refusals = [one for one in parties.said if one.startswith("hungary refuses")]
    assert 4 < len(refusals) < 15, "in twenty minutes, not 240 times"


@pytest.mark.slow
def test_who_refused_and_went_away_is_asked_at_once_when_it_comes_again(tmp_path: Path) -> None:
    """Its people approve the study late, and do not wait ten minutes."""
    parties = Consortium.gather(tmp_path, asking())
    late, clock = parties.sites["hungary"], Time()
    late.withdraw(parties.study.id)

    def there(name: str) -> bool:
        if clock.wall() >= 700.0 and not late.approves(parties.study.id):
            late.approve(parties.study, parties.aggregator.roster)
        return name != "hungary" or not 700.0 <= clock.wall() < 720.0

    assert collect(parties, seated(parties, there), until=1e6, clock=clock) is not None
    assert 720.0 <= clock.wall() < 760.0


class GoesOnError(Exception):
    """The aggregator asks and asks."""


@pytest.mark.slow
def test_p30_an_aggregator_restored_at_every_state_opens_the_same_sum_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sums: Any
) -> None:
    """Once the nodes have told their totals, nothing else is told, whatever it asks."""
    parties = Consortium.gather(tmp_path / "here", asking())
    home, images = parties.home / "aggregator", list[Path]()
    honest = KeptFrames.keep

    def keep(self: KeptFrames, name: str, *given: bytes) -> None:
        honest(self, name, *given)
        if home in self.folder.parents:
            images.append(tmp_path / f"image-{len(images)}")
            shutil.copytree(home, images[-1])

    with monkeypatch.context() as patch:
        patch.setattr(KeptFrames, "keep", keep)
        assert collect(parties) is not None
    ((_, first),) = sums
    assert len(images) >= 15
    opened: list[bool] = []
    for image in images[::2]:
        for folder in (home, parties.home / "run"):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(image, home)
        parties.sites["aggregator"] = PartyFolder.opened(home)
        left, there = [100], seated(parties)

        def phase(*given: Any, left: Any = left, there: Any = there) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise GoesOnError
            return there(*given)

        sums.clear()
        with contextlib.suppress(GoesOnError):
            collect(parties, phase)
        assert all(np.array_equal(total, first) for _, total in sums)
        opened.append(bool(sums))
        assert sums or not any(image.glob("collections/*/set"))
    assert opened[0] is False, "the nodes' keys are gone"
    assert opened[-1] is True


@pytest.mark.slow
def test_a_transcript_that_was_altered_is_found_out(tmp_path: Path) -> None:
    """Each frame in turn is another's; the chain is made anew over it, as its aggregator could."""
    parties = Consortium.gather(tmp_path, asking())
    collect(parties)
    (path,) = (tmp_path / "run" / "transcript").iterdir()
    header, frames = read_header(path), [kept.frame for kept in read(path)]
    (tmp_path / "run" / "evidence.json").unlink()
    assert all(one.holds for one in verify(tmp_path / "run"))
    numbers = header.round_parameters
    assert numbers is not None
    for place in range(len(frames)):
        changes = {"left out": frames[:place] + frames[place + 1 :]}
        changes["twice"] = [*frames[: place + 1], *frames[place:]]
        if place:
            changes["earlier"] = [frames[place], *frames[:place], *frames[place + 1 :]]
        for change, made in changes.items():
            path.unlink()
            again = Transcript(
                tmp_path / "run",
                study=header.study,
                session=header.session,
                roster=header.roster,
                full=True,
                purpose=header.purpose,
                round_parameters=numbers,
            )
            with again:
                for one in made:
                    again.keep(one)
            found = verify(tmp_path / "run")
            assert not all(one.holds for one in found), f"{change}: {place}"


@pytest.mark.slow
def test_the_evidence_says_who_is_believed_to_run_the_nodes(tmp_path: Path) -> None:
    hosts = ["cleveland", "hungary", "switzerland"]
    parties = Consortium.gather(tmp_path, with_parties(asking(), node_hosts=hosts))
    assert collect(parties) is not None
    evidence = json.loads((tmp_path / "run" / "evidence.json").read_text())
    assert any(one.endswith("cleveland, hungary, switzerland") for one in evidence["trust"])
    assert [one for one in verify(tmp_path / "run") if not one.holds] == []


def test_a_file_that_is_erased_in_the_end_is_read_once(tmp_path, monkeypatch) -> None:
    """What was there and what it held are of one moment."""
    kept, reads = KeptFrames(tmp_path / "home" / "one"), []
    kept.keep("key", b"secret")
    read = kept_frames.read_bytes
    monkeypatch.setattr(
        kept_frames, "read_bytes", lambda path, **most: reads.append(path) or read(path, **most)
    )
    assert kept.erasable("key") == [b"secret"]
    assert len(reads) == 1
    assert kept.erasable("none") is None
    for half_done, whole in ((bytes(40), True), (b"", True), (b"other", False)):
        (kept.folder / "key").write_bytes(half_done)
        if whole:
            assert kept.erasable("key") is None
            continue
        with pytest.raises(IntegrityError, match="was altered"):
            kept.erasable("key")


def test_p15_a_ledger_set_back_between_collections_pays_nothing_until_the_newest_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its head is taken before it pays, and with its deposit: an older copy has neither."""
    hourly(monkeypatch, 240)
    parties, clock = Consortium.gather(tmp_path, asking()), Time()
    home = tmp_path / "cleveland"

    def keep(name: str) -> None:
        parties.stop("cleveland")
        shutil.copytree(home, tmp_path / name)
        parties.start("cleveland")

    def restore(name: str) -> None:
        parties.stop("cleveland")
        for ledger in home.glob("ledger*"):
            ledger.unlink()
        for ledger in (tmp_path / name).glob("ledger*"):
            shutil.copy(ledger, home / ledger.name)
        parties.start("cleveland")

    def paid() -> int:
        return len(rows(parties, "cleveland"))

    keep("before")
    assert collect(parties, clock=clock) is not None
    assert paid() == 1
    keep("newest")
    restore("before")
    assert paid() == 0

    made = asking()
    made["study"]["name"] = "a second one"
    made["parties"]["roster"] = parties.aggregator.roster.digest.hex()
    parties.study = Study.from_table(made)
    for folder in parties.sites.values():
        folder.approve(parties.study, folder.roster)
    parties.said.clear()
    seats = seated(parties)

    def phase(*given: Any) -> Any:
        if paid() == 0 and any("set back" in line for line in parties.said):
            restore("newest")
        return seats(*given)

    assert collect(parties, phase, clock=clock, until=clock.wall() + UNTIL, out="2") is not None
    said = [line for line in parties.said if "set back" in line]
    assert said
    assert all(
        "the ledger of cleveland has 1 rows, but it stated 3, or others" in one for one in said
    )
    assert paid() == 2, "none was paid on the older copy"
    assert [one for one in verify(tmp_path / "2") if not one.holds] == []


def test_p15_a_head_that_is_no_statement_is_told_and_its_silo_left_out(tmp_path: Path) -> None:
    parties = Consortium.gather(tmp_path, asking())
    liar = parties.seats["cleveland"]
    honest = liar.ready
    liar.ready = lambda study: honest(study) | {"ledger": {"rows": 1}}  # type: ignore[method-assign]
    found = collect(parties, until=1200.0)
    assert found is not None
    told = [one for one in parties.said if "its READY cannot be used: expected a statement" in one]
    assert told
    assert all("cleveland" in one for one in told)
    assert len(rows(parties, "cleveland")) == 0


def _shown(
    parties: Consortium, show: Callable[[str, bytes, bytes], bytes], said: str = "cleveland"
) -> Phase:
    """A relay that shows, of a silo's answer with a READY, another in its place."""
    seats = seated(parties)

    def phase(name: str, requests: Any, deadline: float) -> Any:
        for party, blob in seats(name, requests, deadline):
            parts = read_answer(blob) if party == said and isinstance(blob, bytes) else []
            if parts and unverified(parts[0]).tag is Tag.READY:
                shown = show(name, parts[0], requests[party])
                yield party, answer([shown, *parts[1:]])
            else:
                yield party, blob

    return phase


def test_p15_a_deposit_is_not_taken_with_a_ledgers_head_of_before_it(tmp_path: Path) -> None:
    """A relay shows it again: else a row that was paid stood in no head, and could be lost."""
    parties, before = Consortium.gather(tmp_path, asking()), list[bytes]()

    def show(name: str, ready: bytes, _request: bytes) -> bytes:
        before.append(ready)
        return before[0] if name == "collect_deposit" and len(before) == 2 else ready

    assert collect(parties, _shown(parties, show)) is not None
    assert any("relay: expected the READY to this request" in line for line in parties.said)
    assert not any("set back" in line for line in parties.said), "the silo is honest"
    assert len(before) == 4, "it is asked for its head and its deposit again"
    with Witness(parties.aggregator.home / "witness") as witness:
        assert [stated.rows for stated in witness.known.values()] == [3] * 4


def test_p15_no_relay_has_an_honest_silo_called_set_back(tmp_path: Path) -> None:
    """It replays every READY, asks for one in another call, or delays it while rows are added."""
    parties, seen = Consortium.gather(tmp_path, asking()), list[bytes]()

    def show(name: str, ready: bytes, request: bytes) -> bytes:
        seen.append(ready)
        ledger = parties.seats["cleveland"]._ledger  # type: ignore[attr-defined]
        if len(seen) == 1:  # of the same words, in another call, before it pays
            early = read_answer(parties.seats["cleveland"].answer(request))[0]
            assert json.loads(bytes(unverified(early).payload))["to"] == sha256(request).hexdigest()
            ledger.close_study(bytes(32))  # another study's row, of which its aggregator hears
            with Witness(parties.aggregator.home / "witness") as witness:
                witness.sign(ledger.statement("later"))
        deposits = name == "collect_deposit"
        if deposits and len(seen) < 6:
            other_call = bytes([*request[:5], Call.COLLECT_KEY, *request[6:]])
            early = read_answer(parties.seats["cleveland"].answer(other_call))[0]
            return early if len(seen) % 4 else seen[-3]
        return ready

    assert collect(parties, _shown(parties, show)) is not None
    assert len(seen) > 5
    assert not any("set back" in line for line in parties.said)


def test_a_ready_of_another_silo_is_the_relays_doing(tmp_path: Path) -> None:
    parties, seen = Consortium.gather(tmp_path, asking()), list[str]()

    def show(name: str, ready: bytes, request: bytes) -> bytes:
        seen.append(name)
        others = read_answer(parties.seats["hungary"].answer(request))[0]
        return others if len(seen) == 1 else ready

    assert collect(parties, _shown(parties, show)) is not None
    assert any("expected frames of cleveland, got another's" in line for line in parties.said)
    assert not any("set back" in line for line in parties.said)


def test_who_needs_long_for_its_deposit_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    """The others are asked meanwhile, and it has twice as long each time."""
    parties, clock = Consortium.gather(tmp_path, asking()), Time()
    seats, asked = seated(parties), list[tuple[float, float]]()

    def phase(name: str, requests: Any, deadline: float) -> Any:
        for party, blob in seats(name, requests, deadline):
            if (party, name) == ("hungary", "collect_deposit"):
                asked.append((clock.wall(), deadline))
                clock.sleep(min(deadline, 100.0))
                yield party, blob if deadline > 100 else Missing()
            else:
                yield party, blob

    assert collect(parties, phase, clock=clock) is not None
    assert [seconds for _, seconds in asked] == [30.0, 60.0, 120.0]
    deposits = [line for line in parties.said if "has joined" in line]
    assert deposits[-1] == "hungary has joined: 4 of 4"


def test_a_silo_that_comes_early_or_late_is_told_that_nothing_was_taken(tmp_path: Path) -> None:
    parties, clock = Consortium.gather(tmp_path, asking()), Time()

    def there(name: str) -> bool:
        away = {"node-1": (0, 20, 100, 200), "hungary": (15, 150)}.get(name, ())
        return sum(clock.wall() >= at for at in away) % 2 == 0

    assert collect(parties, seated(parties, there), clock=clock, until=120.0) is not None
    told = [line for line in parties.said if "has taken no deposit of this folder" in line]
    assert told.count(told[0]) == 4, "all came before the node, and each is told once"
    assert told[0].endswith("the nodes' keys come first; join later")
    assert [line for line in told if line != told[0]] == [told[-1]]
    assert told[-1].endswith("the sum is closed")


def test_a_row_whose_silo_died_behind_it_has_its_time_in_the_trail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties, died = Consortium.gather(tmp_path, asking()), []
    home, charge = tmp_path / "cleveland", Ledger.charge
    parties.seats["cleveland"].event_log.folder = home

    def dies(self: Ledger, *given: Any, **named: Any) -> None:
        charge(self, *given, **named)
        if "cleveland" in str(self._path) and not died:
            died.append(1)
            raise Killed

    monkeypatch.setattr(Ledger, "charge", dies)
    assert collect(parties) is not None
    with Ledger(home / "ledger.sqlite") as ledger:
        history = LedgerHistory.beside(home / "ledger.sqlite")
        shown = [*trail([*ledger.contents()], history, delta=1e-5, relation="add-remove")]
    assert all(line["time"] for line in shown if "1 charge for" in line["event"])


def test_p15_two_copies_of_a_ledger_are_told_though_both_are_asked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another study's aggregator hears of one meanwhile: as many rows have one head only."""
    hourly(monkeypatch)
    parties = Consortium.gather(tmp_path, asking())
    parties.stop("cleveland")
    shutil.copytree(tmp_path / "cleveland", tmp_path / "copy")
    parties.start("cleveland")
    seat, grown = parties.seats["cleveland"], list[bytes]()

    def show(_name: str, ready: bytes, request: bytes) -> bytes:
        if grown:
            return ready
        grown.append(ready)
        seat._ledger.close_study(bytes(32))  # type: ignore[attr-defined]
        with (
            Ledger(tmp_path / "copy" / "ledger.sqlite") as copy,
            Witness(parties.aggregator.home / "witness") as witness,
        ):
            copy.close_study(bytes([1]) * 32)
            witness.sign(copy.statement("meanwhile"))
        return read_answer(seat.answer(request))[0]

    assert collect(parties, _shown(parties, show), until=1200.0) is not None
    assert any("the ledger of cleveland has 2 rows" in line for line in parties.said)
    assert rows(parties, "cleveland") == []


def test_a_silo_of_an_older_hubbub_is_told_by_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hourly(monkeypatch)
    parties = Consortium.gather(tmp_path, asking())
    old: Any = parties.seats["cleveland"]
    honest = old.ready
    old.ready = lambda study: honest(study) | {"version": "0.1.9"}
    old._side._stated = lambda _, asked: old._ready(asked.place.id, asked.study)
    assert collect(parties, until=1200.0) is not None
    assert any("cleveland: it runs hubbub '0.1.9'" in line for line in parties.said)
    assert any("expected the READY to this request, got one to another" in s for s in parties.said)
    assert rows(parties, "cleveland") == []


def test_a_silo_whose_deposit_is_on_no_disk_of_its_own_is_told_that_it_was_set_back(
    tmp_path: Path,
) -> None:
    parties, restored = Consortium.gather(tmp_path, asking()), list[str]()
    seats = seated(parties)

    def phase(name: str, requests: Any, deadline: float) -> Any:
        made = list((tmp_path / "cleveland").glob("collections/*/deposit"))
        if name == "collect_rest" and made and not restored:
            restored.append(name)
            parties.stop("cleveland")
            shutil.rmtree(tmp_path / "cleveland" / "collections")
            parties.start("cleveland")
        yield from seats(name, requests, deadline)

    assert collect(parties, phase) is not None
    told = [line for line in parties.said if "has taken no deposit of this folder" in line]
    assert restored
    assert told[-1].endswith("it has another than this folder, which was set back")


def test_a_sum_that_the_ledger_refuses_is_not_called_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hourly(monkeypatch)
    parties, charge = Consortium.gather(tmp_path, asking()), Ledger.charge

    def refuses(self: Ledger, *given: Any, **named: Any) -> None:
        if "cleveland" in str(self._path):
            raise BudgetError("no room")
        charge(self, *given, **named)

    monkeypatch.setattr(Ledger, "charge", refuses)
    assert collect(parties, until=1200.0) is not None
    assert any("refused to answer (budget): no room" in line for line in parties.said)
    assert not any("is charged" in line for line in parties.said)


def test_a_silo_whose_deposit_came_too_late_is_told_that_the_sum_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has paid, and its answer was lost: no word that it was taken will ever come."""
    hourly(monkeypatch)
    parties = Consortium.gather(tmp_path, asking())
    seats = seated(parties)

    def phase(name: str, requests: Any, deadline: float) -> Any:
        for party, blob in seats(name, requests, deadline):
            lost = (party, name) == ("cleveland", "collect_deposit")
            yield party, Missing() if lost else blob

    assert collect(parties, phase, until=7200.0) is not None
    assert len(rows(parties, "cleveland")) == 1
    told = [line for line in parties.said if "has taken no deposit of this folder" in line]
    assert told[-1].endswith("the sum is closed")
