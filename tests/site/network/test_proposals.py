"""A proposal in an inbox: who may make it, what it may hold, and that nothing is done for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from hubbub.core.errors import StudyError, UserError
from hubbub.core.protocol.primitives.wire import EVERYBODY, Tag, unverified
from hubbub.core.session.ask import Call
from hubbub.core.study.study import Study
from hubbub.desk.cli.inbox_commands import _costs
from hubbub.desk.cli.ledger_books import LedgerHistory
from hubbub.desk.cli.main import main
from hubbub.site.network import proposals
from hubbub.site.network.envelope import LARGEST_PROPOSAL, answer, read_answer, request
from hubbub.site.network.event_log import EventLog
from hubbub.site.network.folder_files import roster_of, write_roster
from hubbub.site.network.party_folder import ROSTER, PartyFolder
from hubbub.site.network.proposals import Courier, Inbox, Outbox, Standing, Verdict
from network.consortium import table
from network.relay import HASTY, NAMES, Relay, Watched, at, flipped, open_frame, refusal, tiny

SESSION = bytes(range(16))
BY = {"user": "somebody"}


@pytest.fixture
def parties(tmp_path: Path) -> Watched:
    """Everybody has approved one study."""
    found = Watched.gather(tmp_path / "parties", tiny())
    assert isinstance(found, Watched)
    return found


def another(everybody: Watched, name: str = "another", **changes: Any) -> Study:
    """A study of the same roster, which nobody has approved."""
    return replace(everybody.study, name=name, toml="", **changes)


def verdict_on(study: Study, site: PartyFolder) -> Verdict:
    """What has been said of a study, at the aggregator."""
    return Verdict.of(study, site.roster, Outbox(site).standings(study.id))


def proposal(parties: Watched, text_of: Study, *, by: str = "aggregator", **where: Any) -> bytes:
    """A PROPOSAL that a party signs."""
    content = where.pop("payload", text_of.as_toml().encode())
    said = {"study": text_of.id, "session": SESSION, "receiver": EVERYBODY, **where}
    return parties.sealed(by, Tag.PROPOSAL, content, **said)


def told(parties: Watched, frame: bytes, name: str = "ann") -> tuple[str, str]:
    """What a party says to a proposal."""
    (part,) = parties.ask(name, Call.PROPOSE, SESSION, [frame])
    frame_back = unverified(part)
    assert frame_back.tag is Tag.PROPOSED
    said = json.loads(bytes(frame_back.payload))
    return said["state"], said["reason"]


def inbox(parties: Watched, name: str = "ann") -> Inbox:
    return Inbox(PartyFolder.opened(parties.home / name))


def test_nothing_is_run_read_or_charged_for_a_proposal(parties: Watched) -> None:
    study = another(parties)
    before = {path: path.read_bytes() for path in (parties.home / "ann").rglob("*.sqlite*")}
    assert told(parties, proposal(parties, study)) == ("pending", "")
    assert [one.id for one in inbox(parties).pending()] == [study.id]
    assert parties.rows("ann") == []
    assert before == {path: path.read_bytes() for path in before}
    assert not parties.sites["ann"].has_approved(study.id)
    own, parties.study = parties.study, study
    opened = parties.ask("ann", Call.OPEN, SESSION, [open_frame(parties, SESSION)])
    assert refusal(opened)[0] == "not-approved"
    parties.study = own


@pytest.mark.parametrize(
    "forged",
    [
        lambda own, study: proposal(own, study, by="bob", sender=0),
        lambda own, study: proposal(own, study, by="bob"),
        lambda own, study: proposal(own, study, by="ann"),
        lambda own, study: flipped(proposal(own, study), place=-80),
        lambda own, study: proposal(own, study, receiver=1),
        lambda own, study: own.sealed(
            "aggregator", Tag.OPEN, b"x", study=study.id, session=SESSION, receiver=EVERYBODY
        ),
    ],
    ids=["in another's name", "a silo's", "its own", "altered", "for one", "another frame"],
)
def test_only_what_the_aggregators_roster_key_has_signed_is_a_proposal(
    parties: Watched, forged: Callable[[Watched, Study], bytes]
) -> None:
    frame = forged(parties, another(parties))
    assert refusal(parties.ask("ann", Call.PROPOSE, SESSION, [frame])) == ("protocol", "relay")
    assert inbox(parties).proposals() == []


def test_a_study_under_anothers_id_names_the_aggregator(parties: Watched) -> None:
    """A party approves an id: the text must be that of it, from the first byte on."""
    frame = proposal(parties, another(parties), study=another(parties, "a third").id)
    found = parties.ask("ann", Call.PROPOSE, SESSION, [frame])
    assert refusal(found) == ("protocol", "aggregator")
    assert inbox(parties).proposals() == []


def test_a_study_of_another_roster_is_none(parties: Watched) -> None:
    asked = parties.study.parties
    other = another(parties, parties=replace(asked, roster="ab" * 32))
    state, reason = told(parties, proposal(parties, other))
    assert state == "unusable"
    assert reason.endswith("hubbub approve it there with --new-roster, if that is the newer one")
    assert inbox(parties).proposals() == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"# " + b"x" * LARGEST_PROPOSAL, "bytes at most"),
        ("[study]\n# \x9b2J".encode(), "control characters"),
        ("[study]\n# \u202e".encode(), "control characters"),
        (b'[study]\nname = "\\u001b[2J"\n[data]\ntarget = "\\u001b[2J"', "expected"),
        (b"\xff\xfe", ""),
        (b"x = " + b"[" * 20_000, ""),
        (b"x = 1", ""),
        (b"", ""),
    ],
    ids=[
        "too large",
        "of a terminal",
        "turned around",
        "spelt out",
        "no text",
        "deep",
        "no study",
        "empty",
    ],
)
def test_what_is_no_study_for_people_is_not_kept(
    parties: Watched, content: bytes, said: str
) -> None:
    state, reason = told(parties, proposal(parties, another(parties), payload=content))
    assert state == "unusable"
    assert said in reason
    assert len(reason) <= 200
    assert reason.isprintable()
    assert inbox(parties).proposals() == []


def test_a_proposal_that_comes_again_stays_what_people_have_said(parties: Watched) -> None:
    study = another(parties)
    frame, own = proposal(parties, study), inbox(parties)
    assert told(parties, frame) == told(parties, frame) == ("pending", "")
    received = own.proposals()[0].received
    own.say(study.id, "declined", BY, "not now")
    parties.start("ann")
    assert told(parties, frame) == ("declined", "not now")
    assert told(parties, proposal(parties, study, session=b"y" * 16)) == ("declined", "not now")
    (kept,) = own.proposals()
    assert (kept.received, kept.toml) == (received, "")
    with pytest.raises(UserError, match="that was not declined"):
        kept.study()


def test_what_was_withdrawn_is_not_pending_again(parties: Watched) -> None:
    study, site = another(parties), parties.sites["ann"]
    frame, own = proposal(parties, study), inbox(parties)
    assert told(parties, frame)[0] == "pending"
    site.approve(own.proposal(study.id.hex()[:8]).study(), site.roster)
    own.say(study.id, "approved", BY)
    assert told(parties, frame)[0] == "approved"
    site.withdraw(study.id)
    assert told(parties, frame)[0] == "withdrawn"
    assert own.pending() == []


def test_a_study_that_was_approved_by_hand_is_approved(parties: Watched) -> None:
    assert told(parties, proposal(parties, parties.study)) == ("approved", "")
    assert inbox(parties).proposals() == []


def test_a_proposal_of_a_roster_that_was_replaced_waits_for_nobody(parties: Watched) -> None:
    """Nobody could approve it, and it would fill the inbox."""
    study, own = another(parties), inbox(parties)
    frame = proposal(parties, study)
    assert told(parties, frame) == ("pending", "")
    few = roster_of([one for one in parties.aggregator.roster.parties if one.name != "cyn"])
    write_roster(parties.home / "ann" / ROSTER, few)
    assert own.pending() == []
    assert told(parties, frame) == ("unusable", "its roster was replaced here")
    write_roster(parties.home / "ann" / ROSTER, parties.aggregator.roster)
    assert [one.id for one in own.pending()] == [study.id]


def test_so_many_proposals_wait_at_most(parties: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals, "MOST_PENDING", 2)
    studies = [another(parties, f"study {number}") for number in range(3)]
    states = [told(parties, proposal(parties, study))[0] for study in studies]
    assert states == ["pending", "pending", "full"]
    inbox(parties).say(studies[0].id, "declined", BY, "no")
    assert told(parties, proposal(parties, studies[2]))[0] == "pending"


def test_a_study_altered_in_the_inbox_is_not_approved(parties: Watched) -> None:
    study = another(parties)
    told(parties, proposal(parties, study))
    (path,) = (parties.home / "ann" / "inbox").iterdir()
    content = json.loads(path.read_text())
    content["study"] = another(parties, "a cheaper one").as_toml()
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match="found it altered"):
        inbox(parties).proposal(study.id.hex()).study()
    path.write_text('{"name": 3')
    with pytest.raises(UserError, match="found something else"):
        inbox(parties).proposals()


def test_an_answer_to_a_proposal_is_made_anew_each_time(parties: Watched) -> None:
    """People may have decided between two of them, and a line keeps answers."""
    blob = request(Call.PROPOSE, SESSION, [proposal(parties, another(parties))])
    assert not parties.seats["ann"].repeats(blob)


# The aggregator's side -------------------------------------------------------------------------


def courier(parties: Watched, phase: Any = None) -> Courier:
    log = EventLog(party="aggregator", say=parties.said.append)
    return Courier(
        party_folder=parties.aggregator,
        phase=phase or parties.phase,
        event_log=log,
        timeouts=HASTY,
    )


def proposed(everybody: Watched, **changes: Any) -> Study:
    study, aggregator = another(everybody, **changes), everybody.aggregator
    aggregator.approve(study, aggregator.roster)
    Outbox(aggregator).put(study)
    return study


def test_everybody_is_asked_and_their_people_answer(parties: Watched) -> None:
    study = proposed(parties)
    parties.stop("cyn")
    states = {name: one.state for name, one in courier(parties).carry(study).items()}
    assert states == {"ann": "pending", "bob": "pending", "cyn": "absent"}
    assert verdict_on(study, parties.aggregator).lacking == NAMES
    parties.start("cyn")
    for name in ("ann", "bob"):
        parties.sites[name].approve(study, parties.aggregator.roster)
    courier(parties).carry(study)
    inbox(parties, "cyn").say(study.id, "declined", BY, "no \u2066consent\n")
    said = courier(parties).carry(study)
    assert said["cyn"] == Standing(state="declined", reason="no ?consent?")
    verdict = verdict_on(study, parties.aggregator)
    assert (verdict.lacking, verdict.declined) == ((), ("cyn",))
    assert (verdict.enough, verdict.hopeless) == (False, True)
    assert "cyn: another is declined there: no ?consent?" in parties.said
    assert Outbox(parties.aggregator).undecided(study.id) == set()


def test_with_drop_outs_a_study_spares_who_declines(parties: Watched) -> None:
    few = replace(parties.study.parties, dropouts=1, colluders=0)
    study = proposed(parties, parties=few)
    assert courier(parties).carry(study)["ann"].state == "pending"
    for name in ("ann", "bob"):
        parties.sites[name].approve(study, parties.aggregator.roster)
    inbox(parties, "cyn").say(study.id, "declined", BY, "no")
    courier(parties).carry(study)
    verdict = verdict_on(study, parties.aggregator)
    assert (verdict.enough, verdict.hopeless) == (True, False)


def _replayed(parties: Watched, study: Study) -> Any:
    """A relay that hands on what ann said to the request before."""
    relay = Relay(parties.phase)
    courier(parties, relay).carry(study)
    old = relay.told("propose", "ann")[0]
    return Relay(parties.phase, tells=at("propose", lambda _: old, "ann"))


def _of_another(parties: Watched, _study: Study) -> Any:
    """A relay that hands bob's answer on as ann's."""
    kept: list[bytes] = []

    def bobs(blob: bytes) -> bytes:
        kept.append(blob)
        return blob

    def change(name: str, party: str, blob: Any) -> Any:
        return bobs(blob) if party == "bob" else kept[0] if party == "ann" and kept else blob

    parties.start("ann")

    def phase(name: str, requests: Any, deadline: float) -> Any:
        first = {party: requests[party] for party in ("bob", "cyn")}
        for own in (first, {"ann": requests["ann"]}):
            for party, blob in parties.phase(name, own, deadline):
                yield party, change(name, party, blob)

    return phase


def _made_up(parties: Watched, _study: Study) -> Any:
    """Ann signs a state that is none."""

    def change(blob: bytes) -> bytes:
        (part,) = read_answer(blob)
        said = unverified(part)
        payload = json.dumps({"state": "done", "reason": ""}).encode()
        place = {"study": said.study, "session": said.session}
        return answer([parties.sealed("ann", Tag.PROPOSED, payload, **place)])

    return Relay(parties.phase, tells=at("propose", change, "ann"))


@pytest.mark.parametrize("cheat", [_replayed, _of_another, _made_up])
def test_no_answer_but_a_partys_own_to_this_request_counts(
    parties: Watched, cheat: Callable[[Watched, Study], Any]
) -> None:
    study = proposed(parties)
    phase = cheat(parties, study)
    (parties.aggregator.home / "proposed" / f"{study.id.hex()}.json").unlink(missing_ok=True)
    states = {name: one.state for name, one in courier(parties, phase).carry(study).items()}
    assert states == {"ann": "absent", "bob": "pending", "cyn": "pending"}


def test_only_what_the_aggregators_people_have_approved_is_proposed(parties: Watched) -> None:
    with pytest.raises(UserError, match="to be approved in an aggregator's folder"):
        Outbox(parties.aggregator).put(another(parties))
    with pytest.raises(UserError, match="only the aggregator can propose"):
        Outbox(parties.sites["ann"]).put(parties.study)


def test_a_withdrawn_study_is_proposed_no_more(parties: Watched) -> None:
    study = proposed(parties)
    assert [one.id for one in Outbox(parties.aggregator).studies()] == [study.id]
    parties.aggregator.withdraw(study.id)
    assert list(Outbox(parties.aggregator).studies()) == []


def test_what_people_say_later_is_heard_until_the_study_begins(parties: Watched) -> None:
    study = proposed(parties)
    for name in NAMES:
        parties.sites[name].approve(study, parties.aggregator.roster)
    ended, asked = Event(), list[frozenset[str]]()

    def phase(name: str, requests: Any, deadline: float) -> Any:
        asked.append(frozenset(requests))
        ended.set() if len(asked) == looks else None
        return parties.phase(name, requests, deadline)

    def standing(of: int) -> dict[str, str]:
        nonlocal looks
        looks = len(asked) + of
        ended.clear()
        courier(parties, phase).carry_all(ended)
        return {n: one.state for n, one in Outbox(parties.aggregator).standings(study.id).items()}

    looks = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proposals, "_LOOK", 0.01)
        assert standing(1) == dict.fromkeys(NAMES, "approved")
        parties.sites["bob"].withdraw(study.id)
        inbox(parties, "bob").take(study)
        inbox(parties, "bob").say(study.id, "approved", BY)
        assert standing(1)["bob"] == "withdrawn"
        assert not verdict_on(study, parties.aggregator).enough
        parties.aggregator.run(study.id).mkdir(parents=True)
        parties.sites["bob"].approve(study, parties.aggregator.roster)
        asked.clear()
        assert standing(1)["bob"] == "approved"
    assert asked == [frozenset({"bob"})], "nobody else is asked in the middle of it"
    assert any("bob: another is approved there, and takes part from" in s for s in parties.said)


# The commands ----------------------------------------------------------------------------------


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], parties: Watched) -> Callable[..., Any]:
    """The exit code of `hubbub inbox` at ann, and what it says."""
    parties.stop("ann")  # its ledger, which the command reads, is another process's

    def run(*arguments: object, home: str = "ann") -> tuple[int, str, str]:
        capsys.readouterr()
        where = ("--home", str(parties.home / home))
        code = main(["inbox", *[str(one) for one in arguments], *where])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def come(parties: Watched, *studies: Study) -> None:
    """Proposals arrive at ann, whose process has ended since."""
    parties.start("ann")
    for study in studies:
        assert told(parties, proposal(parties, study))[0] == "pending"
    parties.stop("ann")


def test_the_inbox_says_what_a_study_would_cost_before_it_is_approved(
    parties: Watched, ask: Callable[..., Any]
) -> None:
    made = table(NAMES, parties={"roster": parties.aggregator.roster.digest.hex()})
    study = Study.from_table(made)
    come(parties, study)
    ledger = parties.home / "ann" / "ledger.sqlite"
    budget = ["budget", "set", str(ledger), "--epsilon", "30", "--delta", "1e-5"]
    assert main([*budget, "--json"]) == 0
    code, out, _ = ask("--json")
    (row,) = json.loads(out)["proposals"]
    assert (code, row["study_id"], row["state"]) == (0, study.id.hex(), "pending")
    assert row["promised"] == pytest.approx(1.0, rel=0.01)
    assert len(row["epsilon"]) > 2
    assert (row["spent"], row["cap"], row["left"]) == (0.0, 30.0, 30.0)
    assert row["after"] == pytest.approx(row["promised"])
    code, out, _ = ask(study.id.hex()[:8])
    shown = " ".join(out.split())
    assert code == 0
    assert "Compare every" not in out
    for part in (
        "compare every fingerprint",
        "code that runs",
        "the study's",
        "cap: epsilon 30",
    ):
        assert part in shown
    parties.sites["ann"].approve(study, parties.aggregator.roster)
    assert main([*budget[:4], "1.3", *budget[5:], "--json"]) == 0
    come(parties, replace(study, name="one more", toml=""))
    (row,) = [one for one in json.loads(ask("--json")[1])["proposals"] if one["state"] == "pending"]
    assert row["cap_says"].endswith("of 1.3 with what is approved: would wait")


@pytest.mark.parametrize(
    ("role", "says"), [("silo", "nothing is spent yet"), ("node", "holds no records")]
)
def test_the_inbox_of_a_node_says_that_it_holds_no_records(
    role: str, says: str, tmp_path: Path
) -> None:
    study = Study.from_table(table(NAMES, parties={"roster": "ab" * 32}))
    folder: Any = SimpleNamespace(role=role)
    assert _costs(study, tmp_path / "none.sqlite", folder)["cap_says"] == says


def test_code_of_others_is_not_run_to_list_what_it_would_cost(
    parties: Watched, ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ran(*_: Any) -> None:
        pytest.fail("it was run")

    study = another(parties)
    assert study.own_code == ("python:network.relay:records",)
    monkeypatch.setattr("network.relay.records", ran)
    come(parties, study)
    (row,) = json.loads(ask("--json")[1])["proposals"]
    assert row["promised"] <= study.privacy.epsilon


def test_a_proposal_is_approved_by_its_id_as_a_file_is(
    parties: Watched, ask: Callable[..., Any]
) -> None:
    study = another(parties)
    come(parties, study)
    assert ask(study.id.hex()[:16], "--approve")[0] == 2, "nobody was asked"
    assert not parties.sites["ann"].approves(study.id)
    code, _, err = ask(study.id.hex()[:16], "--approve", "--yes", "--json")
    assert (code, "write all 64 digits" in err) == (2, True), "others may begin alike"
    assert ask(study.name, "--approve", "--yes", "--json")[0] == 2
    assert not parties.sites["ann"].approves(study.id)
    code, out, err = ask(study.id.hex(), "--approve", "--yes", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["study_id"] == study.id.hex()
    assert parties.sites["ann"].approves(study.id)
    (row,) = json.loads(ask("--json")[1])["proposals"]
    assert row["state"] == "approved"
    assert [line["state"] for line in row["said"]] == ["approved"]
    assert row["said"][0]["by"]["user"]
    code, _, err = ask(study.id.hex()[:16], "--decline", "no", "--yes")
    assert (code, "--withdraw takes an approval back" in err) == (2, True)


def test_a_proposal_is_declined_for_a_reason_and_stays_so(
    parties: Watched, ask: Callable[..., Any]
) -> None:
    study = another(parties)
    come(parties, study)
    for reason in ("", " ", "x" * 201, "a\nb", "\x1b[2J"):
        code, _, err = ask(study.name, "--decline", reason, "--yes")
        assert (code, "printable characters" in err) == (2, True)
        assert "\x1b" not in err
    code, out, _ = ask(study.name, "--decline", "no consent", "--yes", "--json")
    assert (code, json.loads(out)["declined"]) == (0, True)
    assert ask(study.id.hex(), "--approve", "--yes")[0] == 2
    assert "no consent" in json.loads(ask("--json")[1])["proposals"][0]["reason"]
    assert ask()[0] == 0
    parties.start("ann")
    assert told(parties, proposal(parties, study)) == ("declined", "no consent")


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (("--approve",), "expected the id of a proposal"),
        (("another", "--approve", "--decline", "no"), "leave one out"),
        (("0123", "--approve"), "hubbub inbox lists them"),
        (("deadbeef", "--approve"), "of which there are 0"),
    ],
)
def test_what_is_not_meant_is_refused(
    parties: Watched, ask: Callable[..., Any], typed: tuple[str, ...], says: str
) -> None:
    come(parties, another(parties))
    code, out, err = ask(*typed, "--yes")
    assert (code, out) == (2, "")
    assert says in err


def test_two_proposals_of_one_name_are_told_apart_by_their_ids(
    parties: Watched, ask: Callable[..., Any]
) -> None:
    data = replace(parties.study.data, target="y")
    first, second = another(parties), another(parties, data=data)
    come(parties, first, second)
    code, _, err = ask("another", "--approve", "--yes")
    assert (code, "of which there are 2" in err) == (2, True)
    assert ask(second.id.hex(), "--approve", "--yes", "--json")[0] == 0
    assert [parties.sites["ann"].approves(one.id) for one in (first, second)] == [False, True]


def test_a_name_that_looks_like_an_id_names_nothing(
    parties: Watched, ask: Callable[..., Any]
) -> None:
    """Else an aggregator might have its own study approved where people typed another's id."""
    awaited = another(parties)
    for digits in (8, 16, 64):
        come(parties, another(parties, awaited.id.hex()[:digits]))
        code, _, err = ask(awaited.id.hex()[:digits], "--approve", "--yes")
        assert (code, "of which there are 0" in err) == (2, True)
    come(parties, awaited)
    assert ask(awaited.id.hex(), "--approve", "--yes", "--json")[0] == 0
    assert parties.sites["ann"].approves(awaited.id)


def test_what_a_script_approves_is_said_in_a_few_lines(
    parties: Watched, ask: Callable[..., Any]
) -> None:
    """What it costs, the code that runs, and by which commands the rest is read."""
    study, home = another(parties), parties.home / "ann"
    come(parties, study)
    code, out, _ = ask(study.id.hex(), "--approve", "--yes")
    lines = out.splitlines()
    assert (code, len(lines)) == (0, 8), out
    assert lines[0] == f"approved: {study.name}, id {study.id.hex()}"
    assert "this study spends at most epsilon" in out
    assert "code that runs at this party: python:network.relay:records" in out
    file = home / "approved" / f"{study.id.hex()}.toml"
    assert lines[-2].endswith(f": hubbub plan {file}")
    assert lines[-1] == f"its parties: hubbub roster {home / 'roster.toml'}"


def test_whoever_declines_is_told_what_can_overrule_it(
    parties: Watched, ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is declined for good only as it is: its file can be approved, and a study altered."""
    study, asked = another(parties), list[str]()
    come(parties, study)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or "n")
    assert ask(study.name, "--decline", "no")[0] == 1
    (question,) = asked
    assert "only hubbub approve, with its file, can overrule that" in question
    assert "for good" not in question


@pytest.mark.parametrize("decision", [("--approve",), ("--decline", "no")])
def test_two_people_who_decide_at_once_do_not_overrule_each_other(
    parties: Watched,
    ask: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    decision: tuple[str, ...],
) -> None:
    study, site = another(parties), parties.sites["ann"]
    come(parties, study)
    own = inbox(parties)

    def asked(_question: str) -> str:
        """Somebody else decides while the question stands there."""
        if decision[0] == "--approve":
            own.say(study.id, "declined", BY, "not here")
        else:
            site.approve(study, site.roster)
            own.say(study.id, "approved", BY)
        return "y"

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", asked)
    code, _, err = ask(study.name, *decision)
    assert (code, "somebody else has decided on it; nothing was changed" in err) == (2, True)
    assert site.approves(study.id) is (decision[0] != "--approve")
    assert len(own.proposals()[0].said) == 1


def test_the_command_log_says_which_proposal_was_decided_on(
    parties: Watched, ask: Callable[..., Any]
) -> None:
    first, second = another(parties), another(parties, "a third")
    come(parties, first, second)
    assert ask(first.id.hex(), "--approve", "--yes", "--json")[0] == 0
    assert ask("a third", "--decline", "no", "--yes", "--json")[0] == 0
    history = LedgerHistory.beside(parties.home / "ann" / "ledger.sqlite")
    about = [line["study"]["id"] for line in history.commands if "study" in line]
    assert about == [first.id.hex(), second.id.hex()]
    assert history.approved.keys() >= {first.id}
    assert second.id not in history.approved


def test_the_aggregators_inbox_shows_what_it_has_proposed(
    parties: Watched, ask: Callable[..., Any]
) -> None:
    study = proposed(parties)
    parties.start("ann")
    courier(parties).carry(study)
    code, out, _ = ask("--json", home="aggregator")
    (row,) = json.loads(out)["proposed"]
    assert (code, row["name"]) == (0, "another")
    assert {one["state"] for one in row["parties"].values()} == {"pending"}
    assert not row["over"]
    parties.aggregator.note_end(study.id)  # nobody is asked any more
    assert json.loads(ask("--json", home="aggregator")[1])["proposed"][0]["over"]
    assert "(it is over): decisions" in " ".join(ask(home="aggregator")[1].split())
    assert ask(study.id.hex(), "--approve", home="aggregator")[0] == 2


def test_a_party_takes_a_roster_before_it_has_approved_anything(
    parties: Watched, tmp_path: Path
) -> None:
    roster, site = parties.aggregator.roster, parties.sites["ann"]
    (site.home / "roster.toml").unlink()
    PartyFolder.opened(site.home).take_roster(roster)
    assert PartyFolder.opened(site.home).roster == roster
    stranger = PartyFolder.made(tmp_path / "stranger", "dan", "silo")
    with pytest.raises(StudyError, match="compare fingerprints"):
        stranger.take_roster(roster)
    other = replace(roster, parties=(*roster.parties[:-1], stranger.keys.identity))
    with pytest.raises(StudyError):
        site.take_roster(other)
