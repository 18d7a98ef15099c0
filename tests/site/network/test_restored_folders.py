"""P3, P29, P30 at random: whoever is killed and set back, no two sums of one record are told.

A quick game or two of each kind, and ten minutes of them (slow). What is drawn has a seed; the laws
hold whatever is drawn.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hubbub.core.errors import HubbubError, IntegrityError
from hubbub.core.ledger.head_statement import Witness
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.planning.mechanism import Mechanism
from hubbub.core.protocol.primitives.wire import Tag
from hubbub.core.verification.replay.checking import verify
from hubbub.core.verification.transcript import frame_records
from hubbub.desk.cli import ledger_commands
from hubbub.desk.cli.main import main
from hubbub.site.network.event_log import EventLog
from hubbub.site.network.kept_frames import KeptFrames
from hubbub.site.network.requests import Requests
from hubbub.site.network.silo_endpoint import SiloEndpoint
from network.consortium import sent_home
from network.relay import HASTY, NAMES, Jumping, Relay, at, gathered, on_parts, opened
from network.restored_folders import CollectionGame, Images, SessionGame, check_fresh, deposits

__all__ = ["deposits"]
MINUTES = 5  # of each kind of game, where there is time
_FIVE = ("ann", "bob", "cyn", "dan", "eve")
_SET_BACK = "every silo that signed has charged what it answered"


def collection_games(
    home: Path, seeds: Iterator[int], monkeypatch: pytest.MonkeyPatch, deposits: Any
) -> Counter[str]:
    """Games, each in a folder of its own; what has happened in all of them."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        deposits.clear()
        with sent_home(), monkeypatch.context() as patch:
            game = CollectionGame(home / f"{seed}", seed)
            game.play(160, patch)
        check_fresh(deposits)
        counts += game.counts
    return counts


def session_games(home: Path, seeds: Iterator[int]) -> Counter[str]:
    """Trainings; who ends without one has been told why."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        with sent_home():
            parties = gathered(
                home / f"{seed}" / "here",
                (0, 3)[seed % 2],
                names=_FIVE,
                parties={"dropouts": 2, "colluders": 0},
                training={"steps": 8, "sample_rate": 0.5},
            )
            spared = "node-2" if seed % 2 else ""
            game = SessionGame(parties, home / f"{seed}", seed, spared)
            clock = Jumping()
            timeouts = replace(HASTY, grace=0.0, waiting=600.0, clock=clock)
            try:
                parties.serve(game.relay, timeouts=timeouts)
                counts["ended"] += 1
                wrong = [one.claim for one in verify(parties.home / "run") if not one.holds]
                assert set(wrong) <= {_SET_BACK}
            except HubbubError:
                counts["given up"] += 1
            assert parties.broken == []
            counts += game.counts + game.images.counts
    return counts


def for_minutes(minutes: float) -> Iterator[int]:
    """Seeds, as long as there is time."""
    end, seed = time.monotonic() + 60 * minutes, 100
    while time.monotonic() < end:
        yield seed
        seed += 1


@pytest.mark.slow
def test_p30_whoever_is_killed_and_set_back_one_set_is_told_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deposits: Any
) -> None:
    counts = collection_games(tmp_path, iter((3, 4)), monkeypatch, deposits)
    assert counts["promises"] > 0
    assert counts["restored"] > 0
    assert counts["killed"] > 0


@pytest.mark.slow
def test_p30_a_node_that_forgets_its_promise_would_be_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deposits: Any
) -> None:
    honest = KeptFrames.keep

    def forgets(self: KeptFrames, name: str, *parts: bytes) -> None:
        if name != "promise":
            honest(self, name, *parts)

    monkeypatch.setattr(KeptFrames, "keep", forgets)
    with pytest.raises(AssertionError, match=r"two promises|totals of two sets"):
        collection_games(tmp_path, iter(range(3, 9)), monkeypatch, deposits)


@pytest.mark.slow
def test_p3_whoever_is_killed_and_set_back_no_mask_and_no_row_serves_twice(tmp_path: Path) -> None:
    counts = session_games(tmp_path, iter((1, 2)))
    assert counts["replayed"] > 0


def _set_back_at(parties: Any, back: Images, late: Images, at: dict[int, str]) -> Any:
    """What happens to ann's folder at steps of a run: "take" and "restore" are of images."""

    def happens(step: int, _row: Any) -> None:
        if at.get(step) == "take":
            back.take("ann")
        elif at.get(step) == "restore":
            late.take("ann")
            back.restore("ann")

    return happens


@pytest.mark.slow
@pytest.mark.parametrize("dropouts", [0, 1])
def test_p15_a_silo_that_is_set_back_in_the_middle_of_a_run_is_refused_at_once(
    tmp_path: Path, dropouts: int
) -> None:
    """Its ledger is whole by itself: only what it has answered says that rows are missing."""
    parties = gathered(
        tmp_path / "here",
        1,
        parties={"dropouts": dropouts, "colluders": 0},
        training={"steps": 6},
    )
    back, late = (Images(parties, tmp_path / name, random.Random(1)) for name in ("back", "late"))
    happens = _set_back_at(parties, back, late, {2: "take", 4: "restore"})
    timeouts = replace(HASTY, grace=0.0, waiting=600.0, clock=Jumping())
    if dropouts:
        parties.serve(timeouts=timeouts, progress=happens)
    else:
        with pytest.raises(
            IntegrityError, match="but it answered or reported at least 4: its folder was set back"
        ):
            parties.serve(timeouts=timeouts, progress=happens)
    assert len(parties.rows("ann")) == 2
    assert any(
        "ann states that it paid for 2 attempts, but it answered or reported at least 4" in one
        for one in parties.said
    )
    run = parties.home / "run"
    found = json.loads(_command("missing", parties.home / "ann" / "ledger.sqlite", "ann", run))
    assert found["missing"] == {"training": 2}
    assert found["epsilon_with"] > found["epsilon"] > 0
    if not dropouts:
        late.restore("ann")
        parties.serve(timeouts=timeouts)
        assert len(parties.rows("ann")) == 5  # one attempt was begun, and lost, without it
        assert [one.claim for one in verify(run) if not one.holds] == []
        found = json.loads(_command("missing", parties.home / "ann" / "ledger.sqlite", "ann", run))
        assert found["missing"] == {"training": 0}
        assert found["unanswered"] == {"training": 1}
    assert parties.broken == []


def test_p15_a_silo_whose_ledger_has_one_attempt_less_than_it_answered_was_set_back(
    tmp_path: Path,
) -> None:
    parties = gathered(tmp_path / "here")
    requests = Requests(
        parties.aggregator.roster, parties.study.id, parties.phase, EventLog(party="a"), HASTY
    )
    requests.least_paid = {"training": {"ann": 4}, "evaluation": {"ann": 0}}
    for count in (0, 3):
        found = requests._behind("ann", {"attempts": {"training": count}}, {})
        assert found is not None
        assert found.why == "set-back"
    for count in (4, 5):
        assert requests._behind("ann", {"attempts": {"training": count}}, {}) is None
        assert requests.paid["training"]["ann"] == count


@pytest.mark.slow
def test_p15_an_aggregator_that_is_started_again_knows_what_was_answered(tmp_path: Path) -> None:
    parties = gathered(tmp_path / "here", training={"steps": 5})
    back, late = (Images(parties, tmp_path / name, random.Random(1)) for name in ("back", "late"))
    happens = _set_back_at(parties, back, late, {2: "take"})

    def stops(step: int, row: Any) -> None:
        happens(step, row)
        if step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        parties.serve(timeouts=HASTY, progress=stops)
    back.restore("ann")
    (parties.home / "aggregator" / "paid").unlink(missing_ok=True)
    with pytest.raises(
        IntegrityError, match="but it answered or reported at least 4: its folder was set back"
    ):
        parties.serve(timeouts=HASTY)


@pytest.mark.slow
def test_p15_serve_ends_with_what_silos_have_signed_against_what_they_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Set back after the last step, with its process alive: the last word says less."""
    parties = gathered(tmp_path / "here")
    honest = SiloEndpoint._accounted

    def less(self: SiloEndpoint, known: Any) -> int:
        return honest(self, known) - (self.party_folder.name == "ann")

    monkeypatch.setattr(SiloEndpoint, "_accounted", less)
    with pytest.raises(IntegrityError, match="but they signed: ann 3 of 4: their folders were set"):
        parties.serve(timeouts=HASTY)
    assert [one.claim for one in verify(parties.home / "run") if not one.holds] == [_SET_BACK]


def test_p15_a_ledger_that_lost_rows_of_another_study_is_refused_and_silos_keep_what_was_witnessed(
    tmp_path: Path,
) -> None:
    parties = gathered(tmp_path / "here", training={"steps": 2})
    parties.serve(timeouts=HASTY)
    kept = {
        one.name: {path.stem for path in (one.home / "witnessed").iterdir()}
        for one in parties.sites.values()
        if one.role == "silo"
    }
    assert kept == {name: set(NAMES) for name in NAMES}
    ledger = parties.home / "ann" / "ledger.sqlite"
    statements = [parties.home / name / "witnessed" / "ann.json" for name in ("ann", "bob")]
    _command("verify", ledger, "--witness", *statements, code=0)
    # In another study of the same aggregator, which knows nothing of this one's rows.
    requests = Requests(
        parties.aggregator.roster, b"o" * 32, parties.phase, EventLog(party="a"), HASTY
    )
    with Witness(parties.aggregator.home / "witness") as witness:
        whole = parties.seats["ann"].ready(parties.study)["ledger"]
        assert requests._witnessed("ann", whole, witness, witness.known) is None
        with Ledger(tmp_path / "other.sqlite") as fresh:
            assert (
                requests._witnessed("ann", fresh.statement("").to_dict(), witness, witness.known)
                is None
            )
        for harm in ({"rows": 1}, {"head": "00" * 32}, {"signature": "00" * 64}, {"time": 3}):
            found = requests._witnessed("ann", whole | harm, witness, witness.known)
            assert found is not None
            assert found.why == "garbled"
        fewer = _shortened(ledger, tmp_path)
        found = requests._witnessed("ann", fewer, witness, witness.known)
        assert found is not None
        assert found.why == "set-back"


def test_p15_who_states_a_new_ledger_is_told_of_once_after_a_restart_too(tmp_path: Path) -> None:
    """A copy of a folder from before its ledger was made begins another, with nothing spent."""
    parties = gathered(tmp_path / "here", training={"steps": 2})
    told: list[dict[str, Any]] = []
    log = EventLog(party="a", tell=told.append)
    requests = Requests(parties.aggregator.roster, b"o" * 32, parties.phase, log, HASTY)
    with contextlib.ExitStack() as stack:
        paths = [tmp_path / f"{name}.sqlite" for name in ("blank", "old", "bob", "new")]
        blank, old, bob, new = (stack.enter_context(Ledger(path)) for path in paths)
        old.close_study(parties.study.id)
        anns = [("ann", one) for one in (blank, old, new, old, new)]  # of blank nothing is lost
        for name, ledger in (*anns[:2], ("bob", bob), *anns[2:]):
            with Witness(tmp_path / "witness") as witness:
                stated = ledger.statement("").to_dict()
                assert requests._witnessed(name, stated, witness, witness.known) is None
    new_ledgers = [one for one in told if one["event"] == "new-ledger"]
    assert [(one["whom"], one["rows"]) for one in new_ledgers] == [("ann", 2)]


def test_p15_a_new_ledger_that_is_first_stated_at_an_end_is_told_of(tmp_path: Path) -> None:
    parties = gathered(tmp_path / "here", training={"steps": 2})
    session = opened(parties)
    session.round(1)
    requests = session.rounds.peers
    assert isinstance(requests, Requests)
    with Ledger(tmp_path / "old.sqlite") as old, Witness(tmp_path / "witness") as witness:
        old.close_study(parties.study.id)
        witness.sign(old.statement(""), "ann")
        requests.witness = witness
        assert len(session.close([session.rounds.session])) == len(NAMES)
    assert [one for one in parties.said if "ann has a new ledger" in one]


@pytest.mark.parametrize("lost", [False, True], ids=["heard", "lost"])
def test_p15_a_ledger_that_is_set_back_after_its_last_session_is_noticed(
    tmp_path: Path, lost: bool
) -> None:
    """Its end is witnessed with what it signs of the study; whoever has not heard it, goes on."""
    parties = gathered(tmp_path / "here", training={"steps": 2})
    relay = Relay(parties.phase, tells=at("close", on_parts(lambda parts: parts[:1])))
    parties.serve(relay if lost else None, timeouts=HASTY)
    evidence = json.loads((parties.home / "run" / "evidence.json").read_text())
    assert len(evidence["silos"]) == len(NAMES)
    assert not [one for one in parties.said if "unusable" in one]
    fewer = _shortened(parties.home / "ann" / "ledger.sqlite", tmp_path)
    requests = Requests(
        parties.aggregator.roster, b"o" * 32, parties.phase, EventLog(party="a"), HASTY
    )
    with Witness(parties.aggregator.home / "witness") as witness:
        found = requests._witnessed("ann", fewer, witness, witness.known)
    assert lost or (found is not None and found.why == "set-back")
    assert not lost or found is None


def test_p15_what_a_party_says_of_attempts_is_noted_for_it_alone(tmp_path: Path) -> None:
    """A purpose with a line of another silo's in it, a purpose of no study, a node that counts."""
    parties = gathered(tmp_path / "here", 1, training={"steps": 2})
    ann, node, study = parties.seats["ann"], parties.seats["node-1"], parties.study
    forged, honest = f"x\n{study.id.hex()}:training:2:999\n", ann.ready
    more = {forged: 5, "unheard-of": 7}

    def ready(study: Any) -> dict[str, Any]:
        said = honest(study)
        return said | {"attempts": said["attempts"] | more}

    ann.ready = ready  # type: ignore[method-assign]
    node.ready = lambda study: honest(study) | {"attempts": {"training": 3}}  # type: ignore[method-assign]
    parties.serve(timeouts=HASTY)
    noted = parties.aggregator.home / "paid"
    lines = noted.read_text().split() if noted.exists() else []
    assert not [one for one in lines if not one.startswith(f"{study.id.hex()}:training:1:")]
    assert {path.stem for path in (parties.home / "bob" / "witnessed").iterdir()} == {*NAMES}


@pytest.mark.slow
def test_p15_who_was_set_back_ends_no_run_that_others_can_go_on_with(tmp_path: Path) -> None:
    """Another silo is late; once it is there, there are enough."""
    parties = gathered(
        tmp_path / "here", 1, parties={"dropouts": 1, "colluders": 0}, training={"steps": 2}
    )
    (parties.aggregator.home / "paid").write_text(f"{parties.study.id.hex()}:training:1:2\n")
    late = [True]

    def lost_once(name: str, party: str, blob: Any) -> Any:
        if late and name == "open" and party == "bob":
            late.clear()
            return None
        return blob

    relay = Relay(parties.phase, tells=lost_once)
    timeouts = replace(HASTY, grace=0.0, waiting=600.0, clock=Jumping())
    assert parties.serve(relay, timeouts=timeouts).scores is not None
    assert not late
    assert any("ann states that it paid for 0" in one for one in parties.said)


def test_p15_a_silo_keeps_the_newest_that_was_witnessed_of_a_ledger(tmp_path: Path) -> None:
    parties = gathered(tmp_path / "here", training={"steps": 2})
    seat = parties.seats["bob"]
    assert isinstance(seat, SiloEndpoint)
    with (
        Ledger(tmp_path / "ann.sqlite") as ledger,
        Witness(tmp_path / "one") as one,
        Witness(tmp_path / "other") as other,
    ):
        older = one.sign(ledger.statement(""))
        ledger.close_study(parties.study.id)
        newer = other.sign(ledger.statement(""))
    file = parties.home / "bob" / "witnessed" / "ann.json"
    for head in (newer, older):
        said = {"ann": head.to_dict(), "../ann": head.to_dict(), "cyn": {"statement": 3}}
        seat._keep_heads(said)
        assert json.loads(file.read_text()) == newer.to_dict()
    file.write_text("{")
    seat._keep_heads(said)
    assert json.loads(file.read_text()) == older.to_dict()
    assert [path.name for path in file.parent.iterdir()] == ["ann.json"]


def test_p15_a_row_may_be_missing_for_what_an_aggregator_asked_and_did_not_hear(
    tmp_path: Path,
) -> None:
    """It was killed while silos answered: what one had paid for then is in its ledger alone."""
    parties = gathered(tmp_path / "here", training={"steps": 2})
    parties.serve(timeouts=HASTY)
    ledger, run = parties.home / "ann" / "ledger.sqlite", parties.home / "run"
    (path,) = frame_records.files(run)
    with path.open("rb") as file:
        kept = list(frame_records._records(file, path))
    last = max(at for at, frame in kept if frame and frame.tag is Tag.MASKED and frame.sender == 1)
    with path.open("r+b") as file:
        file.truncate(last)
    whole = json.loads(_command("missing", ledger, "ann", run, code=0))
    assert (whole["missing"], whole["unanswered"]) == ({"training": 0}, {"training": 0})
    _command("missing", ledger, "bob", run, code=2)  # of whom nothing would be missing here
    with Ledger(tmp_path / "emptied.sqlite"):
        pass
    found = json.loads(_command("missing", tmp_path / "emptied.sqlite", "ann", run))
    assert (found["missing"], found["unanswered"]) == ({"training": 1}, {"training": 1})
    assert found["epsilon_with"] == whole["epsilon"] > found["epsilon"] == 0


@pytest.mark.slow
def test_each_session_has_paid_for_an_epoch_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = gathered(tmp_path / "here", training={"steps": 5})

    def stops(step: int, _row: Any) -> None:
        if step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        parties.serve(timeouts=HASTY, progress=stops)
    parties.serve(timeouts=HASTY)
    with Ledger(tmp_path / "emptied.sqlite"):
        pass
    monkeypatch.setattr(Mechanism, "epoch", 3)
    found = _command("missing", tmp_path / "emptied.sqlite", "ann", parties.home / "run")
    assert json.loads(found)["missing"] == {"training": 3}  # of 4 answers and of 1


@pytest.mark.slow
def test_no_row_is_missing_for_a_version_that_plans_other_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = gathered(tmp_path / "here", training={"steps": 2})
    parties.serve(timeouts=HASTY)
    honest = ledger_commands.kind_of

    def later(query: Any) -> Any:
        kind = honest(query)
        return replace(kind, noise_multiplier=0.9 * kind.noise_multiplier)

    monkeypatch.setattr(ledger_commands, "kind_of", later)
    ledger, run = parties.home / "ann" / "ledger.sqlite", parties.home / "run"
    assert json.loads(_command("missing", ledger, "ann", run, code=0))["missing"] == {"training": 0}


def _shortened(ledger: Path, home: Path) -> dict[str, Any]:
    """What an older copy of a ledger states."""
    older = home / "older" / ledger.name
    older.parent.mkdir()
    with contextlib.closing(sqlite3.connect(ledger)) as database:
        database.execute("VACUUM INTO ?", (str(older),))
    shutil.copy2(f"{ledger}.key", f"{older}.key")
    with contextlib.closing(sqlite3.connect(older)) as database, database:
        database.execute("DELETE FROM rows WHERE number = (SELECT MAX(number) FROM rows)")
    with Ledger(older) as found:
        return found.statement("").to_dict()


def _command(*arguments: object, code: int = 1) -> str:
    """What `hubbub ledger` prints with --json."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["ledger", *map(str, arguments), "--json"]) == code
    return out.getvalue()


@pytest.mark.nightly
def test_p30_minutes_of_collections_that_are_killed_and_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deposits: Any
) -> None:
    counts = collection_games(tmp_path, for_minutes(MINUTES), monkeypatch, deposits)
    assert counts["totals"] > 0


@pytest.mark.nightly
def test_p29_minutes_of_sessions_that_are_killed_and_set_back(tmp_path: Path) -> None:
    counts = session_games(tmp_path, for_minutes(MINUTES))
    assert counts["ended"] > 0
