"""What a party writes down as it goes: one line an event, for machines and for people.

A line is a JSON object with the time, the party, the event and a few plain values. Nothing of it is
secret: callers give counts of bytes, seconds, names and sentences of errors, never values of
records, their statistics, keys or vectors. The last known state is also kept as `status.json`,
replaced all at once, and every half minute while the process lives. A log that has grown large
becomes `events.jsonl.1`, and a new one begins. Others can cause some events as often as they like.
So that these push out no line of another kind, only so many of one kind are written at once, then
one a minute, which says how many were left out. Nor do they hide another party's trouble of the
same kind: a party, and a study, without such a line for an hour gets one, up to a number of them.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from operator import itemgetter
from pathlib import Path
from typing import Any

from hubbub.core.disk import append_line, json_value, read_bytes, why_of, write_text
from hubbub.core.errors import HubbubError, UserError, loggable

LOG, STATUS = "events.jsonl", "status.json"
_LARGEST = 1 << 23  # bytes of a log
_LINES, _SECONDS = 1000, 60.0  # of one kind at once; until one more may be
_HOUR = 60 * _SECONDS  # until one more may be of a party that had none meanwhile
_LONGEST = 4000  # characters of a value: the lines of one kind at once are half a log
_PACED = frozenset(("step", "answered"))  # what nobody else has come faster
_MOST_OVER = 50  # studies that are over, or may be, in the state
BEAT = 30.0  # seconds between two signs of life in the status
# What the state has of parties that are missing: since when, why, and which say so themselves; and
# of those that are there in two processes.
_MISSING = frozenset(("absent_since", "absent_why", "left_out", "parties_refusing", "twice_at"))

Say = Callable[[str], None]
Tell = Callable[[dict[str, Any]], None]
# Where a party stands: no line yet, nobody to answer, at work, cut off, over.
CONNECTING, WAITING, TRAINING, LOST, DONE = "connecting", "waiting", "training", "lost", "done"
# Of one study: it waits to begin; a node has answered, if not for the last time; nobody does now.
QUEUED, ANSWERED, WITHDRAWN = "queued", "answered", "withdrawn"
_OVER = (DONE, ANSWERED, WITHDRAWN)
REFUSING = "refusing"  # shown of a party that waits or is at work, and cannot do its part
# What happened, and what to do, for people.
_SENTENCES = {
    "proposed": "{study} ({id}) is proposed: hubbub inbox shows it; nothing is run, read or "
    "charged before it is approved there",
    "decided": "{whom}: {study} is {how} there{because}",
    "queued": "{study} waits: {why}",
    "session": "{study}: a session for {purpose} is being set up",
    "set-up": "the session is set up; rounds can begin",
    "answered": "attempts answered so far: {attempts}; epsilon of this study {epsilon}",
    "refused": "refused to answer ({why}): {said}",
    "revoked": (
        "{study}: withdrawn here, or its roster was replaced; its session for {purpose} is over"
    ),
    "waiting": "waiting for {parties}",
    "open": "session for {purpose} set up among {parties} parties in {seconds:.1f} s",
    "missing": "{whom} did not answer within {deadline:g} s: {then}",
    "declined": "{whom} refuses: {reason}",
    "attempt": "round {round}: attempt {attempt} was aborted; {then}",
    "list": "list {number} of {records} tokens was mixed: {seconds:.1f} s",
    "complaint": "{whom} complains about the list; it is opened to see who lied",
    "step": "step {step} of {steps}: epsilon {epsilon:.3f}, {seconds:.2f} s",
    "unsigned": "no signed part from {parties}: the evidence lacks what their ledgers hold",
    "closed": "{study} is done; its results are in {model}",
    "resumed": "continuing after step {step}",
    "came": "{whom} has joined: {come} of {silos}",
    "reminder": "{study}: open until {until}; waiting for {missing}; hubbub join --once there",
    "seed": "{whom} cannot open what {silo} sealed for it; {silo} is left out; check both",
    "fixed": "the set is final: {silos} silos; waiting for all nodes: {missing}",
    "charging": "{study}: the ledger charges its sum of {purpose}, or refuses",
    "no-deposit": "{study}: the aggregator has taken no deposit of this folder: {why}",
    "deposited": "{study}: the deposit was made and is kept here; no other will ever be sent",
    "received": "{study}: the aggregator has the deposit; nothing is left to do here",
    "told": "{study}: the total was published, and the key of this sum is erased",
    "connected": "connected to the relay",
    "listening": "requests are taken at {path}",
    "unconnected": "not connected: {why}",
    "relay": "{said}",
    "twice": "two processes take part as {whom}: its folder was copied, or its keys were stolen; "
    "end one of them",
    "moved": "the new roster names another relay; going there",
    "left": "the aggregator has ended; waiting for it to serve again",
    "silent": "the aggregator has been silent for {seconds:.0f} s",
    "heard": "the aggregator answers again",
    "lost": "round {round}: {said}; a new session is set up",
    "version": "{whom}: {said}; install the same version everywhere",
    "unbelieved": (
        "{whom} states that it paid for {count} attempts, which too few others confirm; the "
        "run continues as if it had not"
    ),
    "set-back": (
        "{whom} states that it paid for {count} attempts, but it answered or reported at least "
        "{least}: its folder was set back; it takes no part until the newest copy is there"
    ),
    "older": (
        "the ledger of {whom} has {rows} rows, but it stated {before}, or others: its folder was "
        "set back; it takes no part until the newest copy is there"
    ),
    "new-ledger": (
        "{whom} has a new ledger, which does not count the {rows} rows of the one that it stated "
        "before: if its records are the same, its folder was set back; restore the ledger there"
    ),
    "garbled": "from {whom}, an unusable message: {said}",
    "stopped": "stopped: {said}",
}


def last_status(home: Path) -> dict[str, Any]:
    """Where a party stood last, and how many seconds ago; below 0 where a clock was set back."""
    path = home / STATUS
    try:
        status: dict[str, Any] = json_value(read_bytes(path))
        status["age_seconds"] = time.time() - status.pop("time")
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError):
        raise UserError(
            f"expected a party's folder in which hubbub join or hubbub serve has run, found no "
            f"usable {path}; start it, or check the path (a run's folder has report.html instead)"
        ) from None
    return status


def state_of(status: Mapping[str, Any], study: bytes) -> Mapping[str, Any]:
    """Where one study stands, of a party's status: by its id, since names may be alike."""
    key = study.hex()[:16]
    only = status if status.get("study_id") == key else {}  # of a process that serves one study
    state: Mapping[str, Any] = status.get("studies", {}).get(key, only)
    return state


@dataclass(kw_only=True)
class EventLog:
    """Where one party's events go."""

    party: str
    folder: Path | None = None  # nothing is written if None
    say: Say = lambda _: None
    tell: Tell = lambda _: None
    _begun: tuple[float, int] | None = field(default=None, repr=False)
    _state: dict[str, Any] = field(default_factory=dict, repr=False)
    _allowed: dict[str, tuple[float, float]] = field(default_factory=dict, repr=False)
    _left_out: Counter[str] = field(default_factory=Counter, repr=False)  # lines, by kind
    _last: dict[str, dict[tuple[Any, ...], float]] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def note(self, event: str, **values: Any) -> None:
        """Write an ordinary event down."""
        self.write("info", event, _short(values))

    def warn(self, event: str, **values: Any) -> None:
        """Write down an event that somebody should look at; the status has the last one."""
        values = _short(values)
        self.write("warning", event, values)
        self.state(last_error=sentence(event, values))

    def seen_twice(self, name: str) -> None:
        """Two processes take part as a party; the state keeps when that was news."""
        self.warn("twice", whom=name)
        self.state(twice_at={**(self.current("twice_at") or {}), name: time.time()})

    def stopped(self, error: HubbubError) -> None:
        """The process ends with an error."""
        self.warn("stopped", said=loggable(error))
        self.state(state=LOST)

    def line(self, up: bool, why: str) -> None:
        """The line to the relay comes up, goes down, or cannot be had."""
        if up:
            self.note("connected")
            self.add(reconnects=int("reconnects" in self._state))
            self.state(connected=True, unconnected="", last_error="")
        else:
            self.warn("unconnected", why=why)
            self.state(connected=False, unconnected=sentence("unconnected", {"why": why}))

    def state(self, **values: Any) -> None:
        """Change what is known of the present: step, epsilon, bytes, seconds."""
        with self._lock:
            if values.get("state", self._state.get("state")) != self._state.get("state"):
                values["since"] = time.time()
            self._state.update(values)
            if self.folder is None:
                return
            shown = {"party": self.party, "time": time.time(), **self._shown()}
            status = json.dumps(shown, indent=2) + "\n"
            with self._surviving():
                write_text(self.folder / STATUS, status, durable=False)

    def of_study(self, key: str, state: Mapping[str, Any]) -> dict[str, Any]:
        """Take in where one of several studies stands, without writing it yet.

        Returns:
            Who is missing in any of them, and why: no study hides whom another one misses.
        """
        with self._lock:
            studies = dict(self._state.get("studies", {}))
            if state.get("state") in _OVER:  # in the order in which they were, not begun
                studies.pop(key, None)
            studies[key] = dict(state)
            over = [name for name, its in studies.items() if its.get("state") in _OVER]
            for older in over[:-_MOST_OVER]:  # the state is written often
                del studies[older]
            self._state["studies"] = studies
            missed: dict[str, Any] = {}
            for name in _MISSING & state.keys():
                each = [(its["study"], its[name]) for its in studies.values() if name in its]
                names = sorted({who for _, some in each for who in some})
                if name == "absent_why":  # there may be another reason in each
                    missed[name] = {
                        who: "; ".join(f"{study}: {why[who]}" for study, why in each if who in why)
                        for who in names
                    }
                elif name in ("absent_since", "twice_at"):
                    times = [pair for _, since in each for pair in since.items()]
                    missed[name] = dict(sorted(times, key=itemgetter(1)))  # the last of each
                else:
                    missed[name] = names
            return missed

    @contextmanager
    def beating(self, seconds: float = BEAT) -> Iterator[None]:
        """Write the status anew every so often meanwhile: who reads it knows that somebody lives.

        A process that ends says so; one that was killed or frozen leaves an old status.
        """
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(seconds):
                self.state()

        thread = threading.Thread(target=beat, daemon=True, name="beat")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            over = {} if self.current("state") == DONE else {"state": LOST}
            why = sentence("unconnected", {"why": "its process has ended"})
            self.state(connected=False, unconnected=why, **over)

    def progress(self, done: int, steps: int, **values: Any) -> None:
        """Change the state in the middle of training: how far it is, and how long it will take."""
        now = time.monotonic()
        self._begun = self._begun or (now, done)
        since, first = self._begun
        if done > first:
            values["seconds_left"] = (steps - done) * (now - since) / (done - first)
        values |= {"steps": steps, "percent": 100 * done / steps, "last_progress": time.time()}
        self.state(state=TRAINING, **values)

    def absent(self, names: Iterable[str], **values: Any) -> None:
        """Change who is missing now, each with the time since when, and what else is said of it."""
        before, now = self._state.get("absent_since", {}), time.time()
        since = {name: before.get(name, now) for name in sorted(names)}
        values["absent_since"] = since
        if any((self._state.get(key) or type(value)()) != value for key, value in values.items()):
            self.state(**values)

    def current(self, name: str) -> Any:
        """What the state has under a name; None if nothing."""
        return self._state.get(name)

    def known(self) -> dict[str, Any]:
        """All of the state, as it is now."""
        with self._lock:
            return self._shown()

    def _shown(self) -> dict[str, Any]:
        """The state for people: whoever refuses is not at work, though a study goes on."""
        shown = dict(self._state)
        if shown.get("refusing") and shown.get("state") in (WAITING, TRAINING):
            shown["state"] = REFUSING
        return shown

    def add(self, **amounts: float) -> None:
        """Add to what is counted in the state, without writing it yet."""
        with self._lock:
            for name, amount in amounts.items():
                self._state[name] = self._state.get(name, 0) + amount

    def answered(self) -> None:
        """An attempt was answered, now."""
        with self._lock:
            self._state["answers"] = self._state.get("answers", 0) + 1
            self._state["last_progress"] = time.time()

    def write(self, level: str, event: str, values: Mapping[str, Any]) -> None:
        """Write an event of a level down, with its values."""
        line = {"time": time.time(), "level": level, "party": self.party, "event": event, **values}
        with self._lock, self._surviving():
            whom = values.get("whom", values.get("culprit", ""))
            if self._is_flood(event, (values.get("study", ""), whom)):
                self._left_out[event] += 1
                return
            if left_out := self._left_out.pop(event, 0):
                line["left_out"] = left_out
            if self.folder is not None:
                path = self.folder / LOG
                if path.exists() and path.stat().st_size > _LARGEST:
                    path.replace(path.with_name(path.name + ".1"))
                append_line(path, json.dumps(line))
        self.say(sentence(event, values))
        self.tell(line)

    def _is_flood(self, event: str, party: tuple[Any, ...]) -> bool:
        """Whether more events of a kind have come than lines may be written of it, and this party.

        Args:
            party: the study and the party of which the line is.
        """
        now = time.monotonic()
        lines, at = self._allowed.get(event, (_LINES, now))
        lines = min(_LINES, lines + (now - at) / _SECONDS)
        last = self._last.setdefault(event, {})
        if len(last) >= _LINES:  # whoever makes parties up has no more lines, and no memory
            for old in [whom for whom, then in last.items() if now - then >= _HOUR]:
                del last[old]
        first = len(last) < _LINES and now - last.get(party, -inf) >= _HOUR
        flood = lines < 1 and not first and event not in _PACED
        self._allowed[event] = (lines if flood else max(0.0, lines - 1), now)
        if not flood and (first or party in last):
            last[party] = now
        return flood

    @contextmanager
    def _surviving(self) -> Iterator[None]:
        """A full disk costs lines of the event log, and no answer; ledgers are elsewhere."""
        try:
            yield
        except OSError as error:
            self.say(f"expected to write the event log in {self.folder}, got: {why_of(error)}")


@dataclass(kw_only=True)
class StudyLog(EventLog):
    """Where the events of one of a party's studies go: into the party's log, with its name.

    The party's state has those of all its studies under `studies`, by id, and beside them what was
    said last, of whichever study. That a study is over, or stopped, is not said of the party.
    """

    party_log: EventLog
    study: str
    id: bytes

    @classmethod
    def within(cls, party_log: EventLog, study: str, id: bytes) -> StudyLog:  # noqa: A002 (its word)
        """The log of a study in a party's."""
        return cls(party=party_log.party, party_log=party_log, study=study, id=id)

    def state(self, **values: Any) -> None:
        """Change what is known of the present of this study."""
        self._state.update(values)
        missed = self.party_log.of_study(self.id.hex()[:16], {"study": self.study, **self._state})
        own_alone = {"why"} | ({"state"} if values.get("state") != TRAINING else set())
        shared = {k: missed.get(k, v) for k, v in values.items() if k not in own_alone}
        self.party_log.state(**shared)

    def add(self, **amounts: float) -> None:
        """Add to what is counted in the party's state."""
        self.party_log.add(**amounts)

    def answered(self) -> None:
        """An attempt was answered, now."""
        self.party_log.answered()

    def write(self, level: str, event: str, values: Mapping[str, Any]) -> None:
        """Write an event of this study down, in the party's log."""
        self.party_log.write(level, event, {"study": self.study, **values})


def _short(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a line, in which others may have a text as long as they like."""
    return {
        name: f"{value[:_LONGEST]}…" if isinstance(value, str) and len(value) > _LONGEST else value
        for name, value in values.items()
    }


def sentence(event: str, values: Mapping[str, Any]) -> str:
    """An event in one line."""
    pattern = _SENTENCES.get(event)
    if pattern and "study" in values and "{study}" not in pattern:  # one of several
        pattern = "{study}: " + pattern
    with suppress(KeyError, ValueError, TypeError):
        if pattern:
            return pattern.format(**values)
    return f"{event}: " + ", ".join(f"{name} {value}" for name, value in values.items())
