"""The page of one party for its own people: studies, who is absent, what is spent, what to do next.

It is read only. `SHOWN` says which values of the event log's state get here, and why each may;
beside them stand files of the party's folder, whose ledger is written before records are looked at.
So nothing here depends on a record but through noisy sums. What others chose is rendered as text.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hubbub import VERSION
from hubbub.core.disk import json_value, read_text
from hubbub.core.errors import HubbubError, UserError, loggable, printable
from hubbub.core.ledger.head_statement import Witnessed
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.number_format import at_most, few, several
from hubbub.core.study.study import Study
from hubbub.desk.cli.ledger_books import LedgerBooks, LedgerHistory, counted_at, spent_by_study
from hubbub.desk.cli.terminal import finite
from hubbub.desk.report import markup
from hubbub.desk.report.markup import Html, section, table, tag
from hubbub.site.network.event_log import ANSWERED, CONNECTING, TRAINING, EventLog, state_of
from hubbub.site.network.monitor import Page, health
from hubbub.site.network.party_folder import PartyFolder
from hubbub.site.network.proposals import Inbox
from hubbub.site.network.requests import COMES

_OWN = "this party's own: of its process and its line, whatever the records are"
_COUNTED = "public: every party of the study counts it"
SHOWN = {
    "state": _OWN,
    "since": _OWN,
    "connected": _OWN,
    "unconnected": _OWN,
    "refusing": "this party's own: a reason that it tells others, and what its log says of it",
    "last_error": "this party's own: an event, of which the log has no value of a record",
    "absent_why": "public among the parties: what they signed, stated, or left unanswered",
    "absent_since": "public among the parties: who answered shows in every roll",
    "twice_at": "public among the parties: that both processes of one answered",
    "waiting_for": "public among the parties: whose deposit a collection lacks",
    "study": "public: all parties approved it",
    "study_id": "public, as the study is",
    "step": _COUNTED,
    "attempts": _COUNTED,
    "steps": "public: stands in the study",
    "epsilon": "public: follows from the study's plan and the attempts",
    "studies": "the same for each of several studies, and why one waits",
    "unread": "this party's own: files in the folder that it serves",
}
_REFRESH = 30  # seconds
_REST = 20  # times as long as a look into the ledger took, nobody looks again
_DAY = 86400  # seconds that two processes of one party are worth a sentence
_FEW_RUNS = 3  # of which each has a line
_NEAR = 0.05  # of the cap: so little is worth a sentence


@dataclass(kw_only=True)
class PartyPage:
    """The page of a party."""

    event_log: EventLog  # whose state is shown
    folder: PartyFolder  # the party's
    ledger: Path | None  # of a silo's data set; None of a party that holds no records
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _spent: tuple[float, Html, list[str], str] = field(default=(0.0, Html(""), [], ""), repr=False)

    @property
    def served(self) -> Page:
        """What the health port answers with."""
        return Page(policy=markup.policy(), html=self.html)

    def html(self) -> str:
        """The page as it is now; one is made at a time."""
        with self._lock:
            state = {key: value for key, value in self.event_log.known().items() if key in SHOWN}
            studies = sorted(self.folder.all_approved(), key=lambda study: study.name)
            spent, warnings, fault = self._ledger_now()
            reason = health(state)[1].get("reason", "")
            steps = [*self._next(state, [*self._wrong(state, reason, fault)], studies), *warnings]
            now = time.time()
            rows = [self._row(study, state) for study in studies]
            items = (tag("li", _text(words)) for words in steps)
            parts = [
                _top(self.folder, state, reason or fault),
                section("What to do next", tag("ul", *items)),
                _listed("Studies", "Approved here", _STUDIES, rows, "No study is approved here."),
                _listed("Absent", "As seen from here", _ABSENT, [*_absent(state, now)], "Nobody."),
                section("Spent and left at this party", spent),
                tag("p", _ENDING.format(time=_time(now), seconds=_REFRESH), class_="kicker"),
            ]
            return markup.document(f"{self.folder.name} – hubbub", parts, refresh=_REFRESH)

    def _row(self, study: Study, of_party: Mapping[str, Any]) -> tuple[Html, ...]:
        """One study: its name, where it stands, steps, epsilon, the beginning of its id."""
        state = state_of(of_party, study.id)
        where = state.get("state", "not begun")
        if where == ANSWERED:
            where = f"answered until {_time(state['last_progress'])}"
        if self.folder.has_ended(study.id):
            where = "done"
        elif not self.folder.approves(study.id):
            roster = ""
            with suppress(UserError):
                roster = self.folder.roster.digest.hex()
            is_same = study.parties.roster == roster
            why = "records are not read yet" if is_same else "roster was replaced"
            where = f"not answered: its {why}"
        done = state.get("step", state.get("attempts"))
        step = f"{done} of {state['steps']}" if done is not None and "steps" in state else ""
        spent = f"{at_most(state['epsilon'])} of " if "epsilon" in state else "at most "
        epsilon = f"{spent}{study.privacy.epsilon:g} at delta {study.privacy.delta:g}"
        return tuple(map(_text, (study.name, where, step, epsilon, study.id.hex()[:16])))

    def _ledger_now(self) -> tuple[Html, list[str], str]:
        """What the ledger holds, what follows, and what is wrong with it.

        One that takes long is looked at seldom.
        """
        until, shown, warnings, fault = self._spent
        if (began := time.monotonic()) >= until:
            fault = ""
            try:
                shown, warnings = _spent(self.ledger)
                self._check_witnessed()
            except (HubbubError, OSError) as error:
                fault = loggable(error) if isinstance(error, HubbubError) else "it cannot be read"
                shown, warnings = tag("p", fault), []
            now = time.monotonic()
            self._spent = (now + _REST * (now - began), shown, warnings, fault)
        return shown, warnings, fault

    def _check_witnessed(self) -> None:
        """Refuse a ledger that lacks what the aggregator has witnessed of it (P15)."""
        witnessed = None
        with suppress(HubbubError, OSError, ValueError):  # nothing rests on what is torn, or absent
            kept = self.folder.witnessed(self.folder.name)
            witnessed = Witnessed.of(json_value(read_text(kept)))
        if witnessed and self.ledger and self.ledger.is_file():
            with Ledger(self.ledger) as ledger:
                ledger.check_statement(witnessed.statement)

    def _wrong(self, state: Mapping[str, Any], reason: str, fault: str) -> Iterator[str]:
        """What keeps this party from its part."""
        if reason:
            is_here = self.folder.role == "aggregator" or state.get("connected")
            check = "" if is_here else "; try hubbub join --check"
            yield f"{reason[:1].upper()}{reason[1:]}{check}."
        if fault:
            yield f"Check the ledger: {fault}."

    def _next(
        self, state: Mapping[str, Any], wrong: Sequence[str], studies: Sequence[Study]
    ) -> Iterator[str]:
        """What somebody should do; that nothing is to be done, if so."""
        serves = self.folder.role == "aggregator"
        absent, why = state.get("absent_since", {}), state.get("absent_why", {})
        pending = [] if serves else self._pending()
        yield from pending
        if not (studies or pending):
            yield "Read a study, and approve it: hubbub approve STUDY --roster ROSTER."
        yield from wrong
        recent = time.time() - _DAY
        twice = {who: at for who, at in state.get("twice_at", {}).items() if at > recent}
        for who, at in twice.items():
            words = "its folder was copied, or its keys were stolen"
            yield f"Two processes took part as {who} at {_time(at)}; end one, if both run: {words}."
        # What was withdrawn waits for nothing.
        approved = {study.id.hex()[:16] for study in studies}
        states = state.get("studies", {}).items()
        waiting = [each for key, each in states if each.get("why") and (serves or key in approved)]
        yield from (f"{each['study']} ({each['state']}): {each['why']}." for each in waiting)
        yield from (f"Correct {name}: {fault}." for name, fault in state.get("unread", {}).items())
        runs = [self.folder.run(study.id) for study in studies if self.folder.has_ended(study.id)]
        if serves and len(runs) < len(studies) and state.get("connected", True):
            for reason, names in _by_reason(absent, why):
                verb = "Wait for" if reason.endswith(COMES) else "Call"
                yield f"{verb} {few(names)}: {reason}."
        if absent and not serves:
            reason = why.get("the aggregator") or "hubbub serve has to run there"
            yield f"Wait for the aggregator, or call its people: {reason}."
        if serves and runs and state.get("state") != TRAINING:
            few_runs, rest = runs[:_FEW_RUNS], len(runs) - _FEW_RUNS
            yield from (f"Check the run: hubbub verify {run}" for run in few_runs)
            if rest > 0:
                yield f"Check {several(rest, 'other run')} in {runs[0].parent} likewise."
        elif studies and not (
            wrong or absent or pending or waiting or twice or state.get("unread")
        ):
            yield "Nothing: this party takes part without your help."

    def _pending(self) -> list[str]:
        """What this party's people have to decide on."""
        try:
            waiting = Inbox(self.folder).pending()
        except UserError as error:
            return [f"Check the inbox: {error}."]
        return [f"Decide on {study.name}: hubbub inbox {study.id.hex()[:16]}." for study in waiting]


_ENDING = (
    "As of {time}; the page reloads every {seconds} s. All of it is public among the parties or "
    "this party's own, and depends on records through noisy sums only."
)
_STUDIES = ("study", "state", "steps", "epsilon", "id")
_ABSENT = ("party", "since", "why")
_SPENT = ("study", "attempts", "sessions", "epsilon alone", "id")


def _top(folder: PartyFolder, state: Mapping[str, Any], reason: str) -> Html:
    """Whose page it is, and whether all is well there."""
    since = f" since {_time(state['since'])}" if "since" in state else ""
    well = "All is well here; others are absent." if state.get("absent_since") else "All is well."
    words = f"Something is wrong: {printable(reason)}." if reason else well
    return tag(
        "header",
        tag("p", f"hubbub {VERSION}, {folder.role}", class_="kicker"),
        tag("h1", _text(folder.name)),
        tag("p", words, class_="lead alarm" if reason else "lead verdict"),
        tag("p", f"State: {state.get('state', CONNECTING)}{since}."),
    )


def _absent(state: Mapping[str, Any], now: float) -> Iterator[tuple[Html, ...]]:
    """A row for each party that is not there: since when, and why."""
    since, why = state.get("absent_since", {}), state.get("absent_why", {})
    for name in sorted({*since, *state.get("waiting_for", [])}):
        seconds = since.get(name)
        when = "not come yet"
        if seconds is not None:
            when = f"{_time(seconds)}, {max(0.0, now - seconds) / 60:.0f} min"
        yield _text(name), _text(when), _text(why.get(name, ""))


def _by_reason(names: Iterable[str], why: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """Parties that are missing, those of one reason together."""
    reasons: dict[str, list[str]] = {}
    for name in names:
        reasons.setdefault(why.get(name) or "hubbub join has to run there", []).append(name)
    return [*reasons.items()]


def _spent(ledger: Path | None) -> tuple[Html, list[str]]:
    """What a ledger has spent, by study and in all, what its cap leaves, and what follows."""
    if ledger is None:
        return tag("p", "This party holds no records, and so no ledger."), []
    if not ledger.is_file():
        return tag("p", "There is no ledger yet: nothing is spent."), []
    books = LedgerBooks.of(ledger)
    delta, relation = counted_at(books.cap)
    rows = []
    for study in spent_by_study(books.tally, LedgerHistory.beside(ledger), delta, relation):
        counts = str(study["steps"]), str(study["sessions"]), at_most(study["epsilon"])
        name = study["name"] or "not known here"
        rows.append(tuple(map(_text, (name, *counts, study["study"][:16]))))
    spent = at_most(finite(books.tally.epsilon(delta=delta, relation=relation)))
    words = [f"spent in all: epsilon {spent} at delta {delta:g} ({relation})", *books.words]
    shown = [tag("p", f"{line[:1].upper()}{line[1:]}.") for line in words]
    if rows:
        shown.append(table("What the ledger holds", _SPENT, rows, numeric=(1, 2, 3)))
    warnings = []
    if books.cap is not None and (books.left or 0.0) <= _NEAR * books.cap.epsilon:
        warnings.append(
            "Almost nothing is left under the cap: more studies will be refused, unless your "
            "organisation raises it with hubbub budget set."
        )
    return markup.join(shown, "\n"), warnings


def _listed(
    title: str, caption: str, head: Sequence[str], rows: Sequence[Sequence[Html]], none: str
) -> Html:
    """A section with a table, or what is said where it has no row."""
    return section(title, table(caption, head, rows) if rows else tag("p", none))


def _text(words: str) -> Html:
    """Words that somebody else may have chosen: they turn nothing around them about."""
    return tag("bdi", printable(words))


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
