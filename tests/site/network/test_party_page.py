"""The page on the health port: what it shows, to whom, and that a stranger's words stay words."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from hubbub.core.ledger.entry import Cap
from hubbub.core.ledger.head_statement import Witness
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.number_format import at_least, at_most
from hubbub.core.session.ask import Absent
from hubbub.desk.cli import party_page
from hubbub.desk.cli.party_page import SHOWN, PartyPage
from hubbub.site.network.event_log import EventLog, StudyLog
from hubbub.site.network.join import Machine, _Joined
from hubbub.site.network.monitor import monitored
from hubbub.site.network.nats.relay import Relay, seed_of
from hubbub.site.network.proposals import Inbox
from hubbub.site.network.requests import Requests
from ledger.book import put
from network.browser import seen
from network.lines import free_port
from network.relay import HASTY, Watched, opened

pytest.importorskip("prometheus_client", reason="needs the extra net")
HOSTILE = "</td><script>ran='it ran'</script><img src=//127.0.0.2/x onerror=ran=1>\u202e"


def page_of(parties: Watched, name: str) -> PartyPage:
    """The page of a party that is well."""
    log = parties.seats[name].event_log if name in parties.seats else EventLog(party=name)
    log.state(state="training", connected=True)
    home = parties.home / name
    ledger = home / "ledger.sqlite" if parties.sites[name].role == "silo" else None
    return PartyPage(event_log=log, folder=parties.sites[name], ledger=ledger)


def words(page: PartyPage) -> str:
    """What somebody reads on it."""
    text = re.sub(r"<style>.*?</style>|<[^>]*>", " ", page.html(), flags=re.DOTALL)
    return " ".join(text.split())


@contextmanager
def shown(page: PartyPage) -> Iterator[str]:
    """Where a page is, meanwhile."""
    port = free_port()
    with monitored(page.event_log, port, page.served):
        yield f"http://127.0.0.1:{port}/"


def get(url: str, **headers: str) -> tuple[int, Any, str]:
    """The status, the headers and the text of what is there."""
    try:
        with urlopen(Request(url, headers=headers), timeout=60) as found:  # noqa: S310 (http)
            return found.status, found.headers, found.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.headers, error.read().decode()


def test_a_silo_reads_its_study_its_ledger_and_that_nothing_is_to_be_done(gather: Any) -> None:
    parties = gather()
    session = opened(parties)
    session.round(1)
    with Ledger(parties.home / "ann" / "ledger.sqlite") as ledger:
        spent = ledger.epsilon(delta=1e-5, relation="add-remove")
        ledger.set_cap(Cap(epsilon=50.0, delta=1e-5, relation="add-remove"))
    page = page_of(parties, "ann")
    log = StudyLog.within(page.event_log, parties.study.name, parties.study.id)
    log.progress(1, 4, study=parties.study.name, attempts=1, epsilon=3.25, secret=7)
    text = words(page)
    assert f"{parties.study.name} training 1 of 4 3.25 of 20 at delta 1e-05" in text
    assert f"Spent in all: epsilon {at_most(spent)} at delta 1e-05 (add-remove)." in text
    assert f"{at_least(50 - spent)} left by the rule" in text
    assert "Nothing: this party takes part without your help." in text
    assert "Absent Nobody." in text


def test_an_aggregator_reads_who_is_absent_since_when_and_whom_to_call(gather: Any) -> None:
    parties = gather(parties={"colluders": 0, "dropouts": 1})
    session = opened(parties)
    log = session.rounds.peers.event_log
    session.rounds.peers.left_out({"bob": Absent(why="silent", said="")})
    since = log.known()["absent_since"]["bob"]
    log.state(absent_since={"bob": since - 600})
    back = "its folder was set back; restore the newest copy of it there"
    session.rounds.peers.left_out(
        {"bob": Absent(why="silent", said=""), "cyn": Absent(why="set-back", said=back)}
    )
    log.state(state="training", connected=True)
    page = PartyPage(event_log=log, folder=parties.sites["aggregator"], ledger=None)
    text = words(page)
    assert "All is well here; others are absent." in text
    assert re.search(r"bob 20\d\d-\d\d-\d\d \d\d:\d\d UTC, 10 min", text)
    assert re.search(rf"cyn 20\d\d-\S+ \S+ UTC, 0 min {back}", text)
    assert "Call bob: hubbub join has to run there." in text
    assert f"Call cyn: {back}." in text, "join runs there"
    session.rounds.peers.left_out({"bob": Absent(why="no-session", said="it was started anew")})
    assert "Wait for bob: it was started anew; it may come into the next session" in words(page)
    assert "Call" not in words(page)
    session.rounds.peers.left_out({})
    assert "Absent Nobody." in words(page)
    assert "All is well." in words(page)


def test_an_aggregator_whose_studies_are_over_calls_nobody_and_checks_them(gather: Any) -> None:
    parties = gather()
    site, log = parties.aggregator, EventLog(party="aggregator")
    log.state(state="waiting", connected=True)
    log.absent(["bob"])
    page = PartyPage(event_log=log, folder=site, ledger=None)
    assert "Call bob: hubbub join has to run there." in words(page)
    run = site.run(parties.study.id)
    run.mkdir(parents=True)
    (run / "report.html").touch()
    text = words(page)
    assert f"Check the run: hubbub verify {run}" in text
    assert "Call bob" not in text


def test_a_silo_whose_aggregator_has_left_reads_that_and_since_when(gather: Any) -> None:
    parties = gather()
    log = EventLog(party="ann")
    joined = _Joined(parties.sites["ann"], Relay.of("tls://hub"), Machine(), log, None)
    joined._endpoint = parties.seats["ann"]
    joined._left()
    page = PartyPage(event_log=log, folder=parties.sites["ann"], ledger=None)
    assert re.search(r"the aggregator 20\d\d-", words(page))
    assert "Wait for the aggregator, or call its people" in words(page)
    joined._answer(b"junk")
    assert "Absent Nobody." in words(page)


def test_who_cannot_take_part_reads_why(gather: Any) -> None:
    page = page_of(gather(), "ann")
    page.event_log.state(refusing="ledger: its ledger cannot be written")
    said = "Something is wrong: cannot take part: ledger: its ledger cannot be written."
    assert said in words(page)
    page.event_log.line(False, "nobody listens")
    page.event_log.state(refusing="")
    assert "Not connected: nobody listens; try hubbub join --check." in words(page)


def test_of_several_studies_each_shows_its_own_steps(gather: Any) -> None:
    parties, others = gather(), gather(study={"name": "theirs"})
    page = page_of(parties, "ann")
    approved = parties.home / "ann" / "approved" / f"{others.study.id.hex()}.toml"
    approved.write_text(others.study.as_toml())
    for study, step, epsilon in ((parties.study, 2, 1.0), (others.study, 3, 2.0)):
        log = StudyLog.within(page.event_log, study.name, study.id)
        log.progress(step, 4, study=study.name, step=step, epsilon=epsilon)
    text = words(page)
    assert f"{parties.study.name} training 2 of 4 1.00 of 20" in text
    assert "theirs not answered: its roster was replaced" in text
    assert "3 of 4 2.00 of 20" in text
    approved.write_text("torn = ")
    assert "theirs" not in words(page)


def test_a_study_of_the_same_name_borrows_no_others_steps(gather: Any) -> None:
    """Names are the aggregator's to choose."""
    parties = gather()
    site = parties.sites["ann"]
    twin = replace(parties.study, privacy=replace(parties.study.privacy, epsilon=10.0), toml="")
    site.approve(twin, site.roster)
    page = page_of(parties, "ann")
    log = StudyLog.within(page.event_log, parties.study.name, parties.study.id)
    log.progress(2, 4, study=parties.study.name, step=2, epsilon=1.0)
    text = words(page)
    assert f"{twin.name} training 2 of 4 1.00 of 20" in text
    assert f"{twin.name} not begun at most 10 at" in text


def test_of_a_process_that_serves_one_study_only_that_one_has_its_steps(gather: Any) -> None:
    parties = gather()
    site, log = parties.aggregator, EventLog(party="aggregator")
    twin = replace(parties.study, privacy=replace(parties.study.privacy, epsilon=10.0), toml="")
    site.approve(twin, site.roster)
    log.state(study=parties.study.name, study_id=parties.study.id.hex()[:16], connected=True)
    log.progress(2, 4, study=parties.study.name, step=2, epsilon=1.0)
    text = words(PartyPage(event_log=log, folder=site, ledger=None))
    assert f"{twin.name} training 2 of 4 1.00 of 20" in text
    assert f"{twin.name} not begun at most 10 at" in text


def test_why_a_study_waits_is_what_is_to_be_done_next(gather: Any) -> None:
    page = page_of(parties := gather(), "ann")
    log = StudyLog.within(page.event_log, parties.study.name, parties.study.id)
    log.state(state="queued", why="raise the cap, or wait")
    page.event_log.state(unread={"torn.toml": "expected a TOML file"})
    text = words(page)
    assert f"{parties.study.name} (queued): raise the cap, or wait." in text
    assert "Correct torn.toml: expected a TOML file." in text
    assert "Nothing: this party" not in text
    log.state(state="training", why="")
    page.event_log.state(unread={})
    assert "Nothing: this party" in words(page)
    log.state(state="queued", why="raise the cap, or wait")
    parties.sites["ann"].withdraw(parties.study.id)
    assert "raise the cap" not in words(page)


def test_a_node_which_hears_of_no_end_shows_when_it_answered_last(gather: Any) -> None:
    page = page_of(parties := gather(), "ann")
    log = StudyLog.within(page.event_log, parties.study.name, parties.study.id)
    log.state(state="answered", last_progress=0.0)
    assert f"{parties.study.name} answered until 1970-01-01 00:00 UTC" in words(page)


def test_two_processes_of_a_party_are_on_its_page_and_on_the_aggregators(gather: Any) -> None:
    """As where a home was copied and both run: for a day nothing else is as urgent."""
    parties = gather()
    own, serves = page_of(parties, "ann"), page_of(parties, "aggregator")
    own.event_log.seen_twice("ann")
    logs = [StudyLog.within(serves.event_log, name, name.encode()) for name in "xy"]
    for log, name in zip(logs, ("ann", "bob"), strict=True):
        log.seen_twice(name)
    assert "Two processes took part as ann at " in words(own)
    assert "Nothing: this party" not in words(own)
    for name in ("ann", "bob"):
        assert f"Two processes took part as {name} at " in words(serves)
    own.event_log.state(twice_at={"ann": 0.0})
    assert "Two processes" not in words(own)


def test_what_is_proposed_is_to_be_decided_on(gather: Any) -> None:
    parties = gather()
    study = replace(parties.study, name=HOSTILE[:30], toml="")
    Inbox(parties.sites["ann"]).take(study)
    page = page_of(parties, "ann")
    html = page.html()
    assert f"hubbub inbox {study.id.hex()[:16]}." in html
    assert "Decide on &lt;/td&gt;" in html
    assert "Nothing: this party" not in words(page)
    (parties.home / "ann" / "inbox" / f"{study.id.hex()}.json").write_text("torn")
    assert "Check the inbox: expected a proposal" in words(page)


def test_what_is_not_listed_as_public_or_ones_own_gets_nowhere_near_the_page(gather: Any) -> None:
    parties = gather()
    page = page_of(parties, "ann")
    page.event_log.state(records=4177, mean=73193.5, seed="s3cret", come=["nobody-else"])
    html, keys = page.html(), parties.sites["ann"].keys
    assert not {"4177", "73193", "s3cret", "nobody-else"} & set(re.findall(r"[\w-]+", html))
    assert seed_of(keys) not in html
    assert not any(part.hex() in html for part in keys.secret_parts().values())
    assert all(re.match(r"public|this party's own|the same", why) for why in SHOWN.values())


def hostile_page(parties: Watched, monkeypatch: pytest.MonkeyPatch) -> PartyPage:
    """A page where everything that somebody else may choose is an attack."""
    page = page_of(parties, "ann")
    study = parties.study
    monkeypatch.setattr(
        party_page.Study,
        "parse",
        lambda _: replace(study, name=HOSTILE),  # past what may be a name
    )
    page.event_log.absent([HOSTILE], parties_refusing=[HOSTILE])
    page.event_log.state(study=HOSTILE, steps=4, step=1, epsilon=1.0)
    page.event_log.state(state="lost", last_error=f"garbled: {HOSTILE}")
    return page


def test_names_of_strangers_are_text(gather: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    html = hostile_page(gather(), monkeypatch).html()
    assert html.count("&lt;script&gt;") >= 4
    assert not re.search(r"<(script|img|a|link|iframe|form)\b", html)
    assert "\u202e" not in html


def test_the_page_may_fetch_run_and_send_nothing_and_no_other_site_has_it(gather: Any) -> None:
    with shown(page_of(gather(), "ann")) as url:
        status, headers, html = get(url)
        assert status == 200
        policy = headers["Content-Security-Policy"]
        rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
        assert rules["default-src"] == rules["frame-ancestors"] == rules["form-action"] == "'none'"
        assert rules["style-src"].startswith("'sha256-")
        assert "unsafe" not in policy
        assert headers["Cache-Control"] == "no-store"
        assert '<meta http-equiv="refresh" content="30">' in html
        assert get(url, Host="localhost:9100")[0] == 200
        for other in ("evil.example", "evil.example:9100", "127.0.0.1.evil.example", "[::2]", "["):
            for path in ("", "metrics", "healthz", "else"):
                status, _, said = get(url + path, Host=other)
                assert status == 421
                assert "ann" not in said


def test_a_ledger_that_cannot_be_read_costs_its_section_and_no_more(gather: Any) -> None:
    parties = gather()
    opened(parties).round(1)
    page, path = page_of(parties, "ann"), parties.home / "bob" / "ledger.sqlite"
    put(path, "text", '{"charge": 1}', 1)
    page.ledger = path
    text = words(page)
    assert "Check the ledger: expected" in text
    assert parties.study.name in text


def test_a_large_ledger_is_not_read_at_each_look(
    gather: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, now, looks = page_of(gather(), "ann"), [100.0], []

    def spent(_: Path | None) -> tuple[Any, list[str]]:
        looks.append(now[0])
        now[0] += 2.0
        return party_page.tag("p", "spent"), []

    monkeypatch.setattr(party_page, "_spent", spent)
    monkeypatch.setattr(party_page.time, "monotonic", lambda: now[0])
    for _ in range(5):
        page.html()
    now[0] += 39.0
    page.html()
    now[0] += 2.0
    page.html()
    assert looks == [100.0, 143.0]


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200], ids=["telephone", "desk"])
def test_a_browser_shows_the_page_and_runs_nothing(
    gather: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, width: int, dark: bool
) -> None:
    page = hostile_page(gather(), monkeypatch)
    attack = """
        document.body.insertAdjacentHTML("beforeend", "<img src=/healthz onerror='window.ran=1'>");
        const script = document.createElement("script");
        script.textContent = "window.ran = 2";
        document.body.append(script);
    """
    with shown(page) as url:
        plain = seen(tmp_path / "plain", url, width=width, dark=dark)
        attacked = seen(tmp_path / "attacked", url, width=width, dark=dark, attack=attack)
    assert plain["refused"] == []
    assert plain["ran"] == attacked["ran"] == "nothing"
    assert [one for one in plain["asked"] if not one.endswith("favicon.ico")] == []
    assert not {"script", "img", "a", "form", "iframe"} & {*plain["elements"]}
    assert "What to do next" in plain["text"]
    assert "<script>" in plain["text"]
    assert not plain["wide"]
    assert plain["paper"] == ("rgb(20, 24, 27)" if dark else "rgb(251, 251, 249)")
    said = " ".join(attacked["refused"])
    assert "script" in said
    assert "Content Security Policy" in said


def test_a_ledger_that_lacks_what_was_witnessed_of_it_is_wrong(gather: Any, tmp_path: Path) -> None:
    """Its aggregator refused it and ended the study, which says so; another's says nothing."""
    parties = gather(parties={"dropouts": 1, "colluders": 0})
    page, seat, older = page_of(parties, "bob"), parties.seats["bob"], tmp_path / "older"
    seat.close()
    shutil.copytree(parties.home / "bob", older)
    with (
        Ledger(parties.home / "bob" / "ledger.sqlite") as ledger,
        Ledger(older / "ledger.sqlite") as copy,
        Witness(tmp_path / "witness") as witness,
    ):
        ledger.set_cap(Cap(epsilon=50.0, delta=1e-5, relation="add-remove"))
        newest, before = (one.statement("2026-01-01") for one in (ledger, copy))
        log = EventLog(party="aggregator")
        requests = Requests(parties.aggregator.roster, parties.study.id, None, log, HASTY)  # type: ignore[arg-type]
        requests.witness = witness
        witness.sign(newest, "bob")
        refused = requests._witnessed("bob", before.to_dict(), witness, witness.known)
        assert refused is not None
        assert refused.why == "set-back"
    heads = {name: head.to_dict() for name, head in requests.heads.items()}
    seat.told_heads(json.dumps({"sessions": [], "heads": heads}).encode())
    assert "All is well." in words(page)
    page.ledger, page._spent = older / "ledger.sqlite", (0.0, party_page.Html(""), [], "")
    text = words(page)
    assert "All is well" not in text
    assert "Nothing:" not in text
    assert f"to hold the {newest.rows} rows witnessed at 2026-01-01" in text
    (parties.home / "bob" / "witnessed" / "bob.json").write_text("{")
    page._spent = (0.0, party_page.Html(""), [], "")
    assert "All is well." in words(page)


def test_many_studies_stand_in_the_order_of_their_names_and_few_runs_have_a_line(
    gather: Any,
) -> None:
    site, log = (parties := gather()).aggregator, EventLog(party="aggregator")
    log.state(state="waiting", connected=True)
    names = [f"study {number}" for number in range(6)]
    for name in names:
        study = replace(parties.study, name=name, toml="")
        site.approve(study, site.roster)
        site.run(study.id).mkdir(parents=True)
        (site.run(study.id) / "report.html").touch()
    text = words(PartyPage(event_log=log, folder=site, ledger=None))
    places = [text.index(f"{name} done") for name in names]
    assert places == sorted(places)
    assert text.count("Check the run: hubbub verify") == 3
    assert f"Check 3 other runs in {site.home / 'runs'} likewise." in text


def test_an_aggregator_whose_line_is_down_calls_nobody(gather: Any) -> None:
    log = EventLog(party="aggregator")
    log.absent(["bob"])
    log.state(state="training", connected=True)
    page = PartyPage(event_log=log, folder=gather().aggregator, ledger=None)
    assert "Call bob" in words(page)
    log.line(up=False, why="nobody listens")
    assert "Call bob" not in words(page)
