"""What a ledger has spent and what its cap allows, and what the files beside it say of that.

A plan reads the first half, so the second imports what belongs to the network where it needs it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import accumulate, groupby
from math import inf
from pathlib import Path
from typing import Any, Literal, NamedTuple

from hubbub.core.disk import open_ordinary, read_text
from hubbub.core.errors import HubbubError
from hubbub.core.ledger.entry import RECORD, Admission, Cap, Closing, Entry
from hubbub.core.ledger.privacy_filter import PrivacyFilter
from hubbub.core.ledger.privacy_ledger import Content, Ledger
from hubbub.core.ledger.tally import Tally, attempts_of
from hubbub.core.number_format import at_least, at_most, several
from hubbub.core.planning.plan import Plan
from hubbub.core.privacy import arguments
from hubbub.core.runs.spending import left_under
from hubbub.core.study.parties import Privacy
from hubbub.core.study.study import Study
from hubbub.desk.cli.main import COMMANDS
from hubbub.desk.cli.terminal import finite, moment


def counted_at(
    cap: Cap | None, delta: float | None = None, relation: str | None = None
) -> tuple[float, str]:
    """At which delta and relation epsilon is counted: as somebody says, or as the cap does."""
    usual = (cap.delta, cap.relation) if cap else (1e-5, "add-remove")
    return arguments.delta(usual[0] if delta is None else delta), relation or usual[1]


class Outlook(NamedTuple):
    """What a cap says of a study that is planned."""

    counted: float  # what `LedgerBooks.after` says of it alone
    together: float  # and beside what else is approved, where that was asked
    verdict: Literal["no cap", "unknown", "refused", "mixed", "waits", "fits"]


@dataclass(frozen=True, kw_only=True)
class LedgerBooks:
    """What a ledger has spent, and what it allows."""

    tally: Tally
    cap: Cap | None
    filter: PrivacyFilter | None

    @classmethod
    def of(cls, ledger: Ledger | Path) -> LedgerBooks:
        """What stands in a ledger, or in the one in a file."""
        if isinstance(ledger, Path):
            with Ledger(ledger) as opened:
                return cls.of(opened)
        return cls(tally=ledger.tally, cap=ledger.cap, filter=ledger.filter)

    @cached_property  # it takes a second for a dozen studies
    def least_cap(self) -> float | None:
        """The least adaptive cap that would have let all studies in; None without such a cap."""
        # P24 promises a cap that was set beforehand. This number depends on what was chosen, so it
        # says how full the cap is and is no promise of its own.
        return None if self.filter is None else finite(self.filter.epsilon(self.tally))

    @property
    def left(self) -> float | None:
        """By how much epsilon may still grow, counted as the cap counts it."""
        return left_under(self.cap, self.filter, self.tally)

    def after(self, plan: Plan, beside: Sequence[Plan] = ()) -> float:
        """What the cap, or the plan's goal without one, counts once a plan's study is over.

        One that is over already would be run once more.

        Args:
            beside: of other studies, which are run before it.
        """
        if self.filter is not None:
            let_in = self.filter
            for other in beside:
                if counts := let_in.wanted(other.study.id, attempts_of(other)):
                    admission = Admission(study=other.study.id, counts=counts, left=None)
                    let_in = let_in.with_admission(admission)
            attempts = attempts_of(plan)
            rows = let_in.wanted(plan.study.id, attempts) or tuple(sorted(attempts.items()))
            return let_in.epsilon(self.tally, rows)
        goal = self.cap or plan.study.privacy
        tally = reduce(Tally.after, beside, self.tally).after(plan, anew=True)
        return tally.epsilon(delta=goal.delta, relation=goal.relation)

    def outlook(self, plan: Plan, beside: Sequence[Plan] = ()) -> Outlook:
        """Whether the cap has room for a plan's study, and for others that are approved there."""
        counted, cap = self.after(plan), self.cap
        if cap is None:
            return Outlook(counted, counted, "no cap")
        if counted > cap.epsilon:
            unknown = counted == inf and self.mixes([plan])
            return Outlook(counted, counted, "unknown" if unknown else "refused")
        if self.mixes([*beside, plan]):
            return Outlook(counted, counted, "mixed")
        together = self.after(plan, beside) if beside else counted
        return Outlook(counted, together, "waits" if together > cap.epsilon else "fits")

    def mixes(self, plans: Sequence[Plan]) -> bool:
        """Whether of these some may be refused for their unit: patients beside records (P21)."""
        tally = reduce(Tally.after, plans, self.tally)
        both = len({kind.unit for kind, _ in tally.counts()}) > 1
        # Under a cap for studies chosen late, patients come first.
        late = both and self.filter is not None and self.tally.unit == RECORD
        return late or (tally.is_mixed and not self.tally.is_mixed)

    @property
    def law_unused(self) -> dict[str, Any]:
        """Steps of the cap's reference law that nobody used, and the epsilon that they keep."""
        if self.filter is None or self.filter.cap.law is None:
            return {}
        kept = finite(self.filter.kept_back(self.tally))
        return {"law_unused": self.filter.unused, "law_kept_back": kept}

    @property
    def words(self) -> list[str]:
        """The cap, the promise that it is, and what is left of it."""
        if (cap := self.cap) is None:
            return ["no cap is set: any number of studies may be run"]
        rest = f"{at_least(left)} left" if (left := self.left) else "nothing left"
        words = f"cap: epsilon {cap.epsilon:g} at delta {cap.delta:g} ({cap.relation}), {rest}"
        if self.filter is None:
            words += " by the rule for fixed studies (P15)"
            return [f"{words}; guaranteed if all studies were fixed before the first"]
        words += " by the rule for adaptive studies (P24)"
        promise = f"{words}; guaranteed however later studies are chosen"
        if self.least_cap == 0:
            return [promise]
        needed = f"epsilon {at_most(self.least_cap)} at delta {cap.delta:g} ({cap.relation})"
        lines = [f"counted by the cap: {needed}, the least with room for all studies", promise]
        if (law := self.filter.cap.law) is not None:
            lines.insert(
                1,
                f"reserved law: noise {law.noise_multiplier:g}, rate {law.sample_rate:g}; "
                f"{self.filter.unused} of its {law.steps} steps are unused, which "
                f"reserves epsilon {at_most(self.filter.kept_back(self.tally))}",
            )
        return lines


@dataclass(frozen=True, kw_only=True)
class PlannedSpending:
    """What a data set has spent, and will have once a plan's study is over."""

    # epsilon of all studies before it, at the study's own delta and relation; None past all bounds
    spent: float | None
    after: float | None  # the same with the study
    words: str  # what its cap says of that


def spending(path: Path, plan: Plan, beside: Sequence[Plan] = ()) -> PlannedSpending:
    """What a ledger holds, beside what a plan will charge, and others that are approved there."""
    books, goal = LedgerBooks.of(path), plan.study.privacy
    both = (books.tally, books.tally.after(plan, anew=True))
    spent, later = (own.epsilon(delta=goal.delta, relation=goal.relation) for own in both)
    counted, together, verdict = books.outlook(plan, beside)
    of_cap = "" if (cap := books.cap) is None else f"of {cap.epsilon:g}"
    words = {
        "no cap": "no cap",
        "unknown": "counts records and patients, which do not add up: will be refused",
        "refused": f"epsilon {at_most(counted)} {of_cap}: will be refused",
        "mixed": "patients beside records: may be refused",
        "waits": f"epsilon {at_most(together)} {of_cap} with what is approved: would wait",
        "fits": f"epsilon {at_most(counted)} {of_cap} ({cap and cap.studies} studies)",
    }[verdict]
    return PlannedSpending(spent=finite(spent), after=finite(later), words=words)


def standing(path: Path, privacy: Privacy) -> list[str]:
    """What a ledger allows: its cap and what is left of it, or the one that a study gives it."""
    cap, words = None, [f"no ledger in {path} yet: nothing has been spent"]
    if path.is_file():
        books = LedgerBooks.of(path)
        cap, words = books.cap, [f"{path}: {books.words[-1]}"]
    if cap is not None and 0 < privacy.cap < cap.epsilon:
        words.append(
            f"the study proposes a cap of epsilon {privacy.cap:g} for all studies together; the "
            "ledger keeps its own: lower it with hubbub budget set if you agree"
        )
    elif cap is None and privacy.cap:
        words.append(
            f"the study's first charge sets the ledger's cap: epsilon {privacy.cap:g} at delta "
            f"{privacy.delta:g} ({privacy.relation}) for all studies of these records together, "
            "however later ones are chosen (P24); hubbub budget set can set another before or after"
        )
    elif cap is None:
        words.append(
            "no cap will be set, not by the study either: set one with hubbub budget set --new"
        )
    return words


def after(path: Path, plan: Plan, beside: Sequence[Plan] = ()) -> str:
    """What the records will have spent in all studies, once that of a plan is over.

    Args:
        beside: of the others that are approved there, and not over.
    """
    books = LedgerBooks.of(path)
    goal = books.cap or plan.study.privacy
    counted, together, verdict = books.outlook(plan, beside)
    by = "total spent" if books.filter is None else "counted by the cap"
    at = f"at delta {goal.delta:g} ({goal.relation})"
    words = f"{by} after this study: epsilon {at_most(counted)} {at}"
    if verdict == "mixed":
        return (
            f"{words}; but patients stand beside records in what is counted or approved here: "
            "the ledger may refuse one; count one of them in a ledger of its own"
        )
    if verdict == "waits":
        names = ", ".join(other.study.name for other in beside)
        return (
            f"{words}; but epsilon {at_most(together)} with what else is approved here "
            f"({names}), above the cap: what comes last waits until the cap is raised"
        )
    if verdict in ("unknown", "refused"):
        refused = "its last steps" if books.filter is None else "it"
        return f"{words}, above the cap: the ledger will refuse {refused}"
    return words


# What lies beside a ledger: names of studies, times, who typed what; and all of it in one order.
#
# A row has neither a name nor a time, and none is ever added to it. Names are in the studies that
# were approved or run here, times of sessions in the event log, commands in `commands.jsonl`. Only
# the rows are signed: whoever can write the folder can write everything else.

# Of a line of something else.
_UNUSABLE = (KeyError, TypeError, ValueError, IndexError, AttributeError)
HEAD = ("time", "party", "event", "exit", "by", "study", "name", "epsilon", "delta", "relation")


@dataclass(frozen=True, kw_only=True)
class LedgerHistory:
    """What the files beside a ledger say."""

    party: str
    names: Mapping[bytes, str]  # of studies, by id
    # when studies were approved, by id; all times are seconds since 1970
    approved: Mapping[bytes, float]
    sessions: Mapping[bytes, float]  # when sessions began, by their ids
    # as the command log has them, oldest first, each with its exit code if it ended
    commands: Sequence[Mapping[str, Any]] = field(repr=False)

    @classmethod
    def beside(cls, ledger: Path) -> LedgerHistory:
        """What lies beside a ledger; of what is missing or torn, nothing."""
        from hubbub.site.network.event_log import LOG
        from hubbub.site.network.folder_files import APPROVED, read_identity
        from hubbub.site.network.party_folder import IDENTITY, MODELS

        home, names, approved = ledger.parent, dict[bytes, str](), dict[bytes, float]()
        # In a party's folder, or beside the runs of one process.
        places = (f"{APPROVED}/*.toml", f"{MODELS}/*/study.toml", "../*/study.toml")
        for path in (path for pattern in places for path in sorted(home.glob(pattern))):
            with suppress(HubbubError, OSError, ValueError):
                study = Study.parse(read_text(path))
                names[study.id] = study.name
                if path.parent.name == APPROVED:
                    approved[study.id] = path.stat().st_mtime
        commands = _commands(home)
        for line in commands:
            with suppress(*_UNUSABLE):
                study_id = bytes.fromhex(line["study"]["id"])
                names.setdefault(study_id, line["study"]["name"])
                command = line["command"]
                typed = command[0] == "approve" or "--approve" in command
                if typed and "--withdraw" not in command and line["exit_code"] == 0:
                    approved[study_id] = line["time"]
        sessions = {}  # when they began, or were charged, as far back as the log goes
        for line in (line for name in (f"{LOG}.1", LOG) for line in _lines(home / name)):
            with suppress(*_UNUSABLE):
                if line["event"] in ("session", "charging"):
                    sessions[bytes.fromhex(line["session"])] = line["time"]
        party = ledger.stem
        with suppress(HubbubError):
            party = read_identity(home / IDENTITY).name
        return cls(
            party=party, names=names, approved=approved, sessions=sessions, commands=commands
        )


def spent_by_study(
    tally: Tally, history: LedgerHistory, delta: float, relation: str
) -> list[dict[str, Any]]:
    """What each study of a ledger is called, when it was at work, and what it alone has spent."""
    studies = []
    for study in tally.studies():
        sessions = tally.session_ids(study)
        known = [history.sessions[session] for session in history.sessions.keys() & sessions]
        alone = tally.epsilon(study=study, delta=delta, relation=relation)
        studies.append(
            {
                "study": study.hex(),
                "name": history.names.get(study, ""),
                "approved": moment(history.approved.get(study)),
                "last_session": moment(max(known, default=None)),
                "steps": tally.attempts(study),
                "sessions": len(sessions),
                "epsilon": finite(alone),
            }
        )
    return studies


def _commands(home: Path) -> list[dict[str, Any]]:
    """The commands of a party, when each began; with the exit code where it has ended."""
    begun: dict[tuple[int, str], dict[str, Any]] = {}
    commands = []
    for line in _lines(home / COMMANDS):
        with suppress(*_UNUSABLE):
            key = line["process"], json.dumps(line["command"])
            if "exit_code" in line and key in begun:
                began = begun.pop(key)
                began |= {name: line[name] for name in ("exit_code", "study") if name in line}
            else:
                commands.append(line)
                begun[key] = line
    return commands


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a log, of whatever size."""
    with suppress(OSError), open_ordinary(path) as file:
        for text in file:
            with suppress(ValueError):
                yield json.loads(text)


class _Event(NamedTuple):
    """A line of the trail: a command, by somebody, or rows, and the epsilon after them."""

    time: float | None
    words: str
    study: bytes = b""
    epsilon: float | None = None
    exit_code: int | str = ""
    by: str = ""


def trail(
    contents: Sequence[Content], history: LedgerHistory, *, delta: float, relation: str
) -> Iterator[dict[str, Any]]:
    """Commands and rows in one order, as an auditor reads them; the keys are `HEAD`.

    Charges of one session that follow each other are one line, whose time is when the session
    began. A row whose time is not known follows the one before it.
    """
    rows = list(_rows(contents, history, delta, relation))
    # A row without a time stands where the one before it does, the first ones at the beginning.
    first = min((event.time for event in rows if event.time is not None), default=0.0)
    _, *places = accumulate((event.time or 0.0 for event in rows), max, initial=first)
    placed = list(zip(places, rows, strict=True))
    for line in history.commands:
        with suppress(*_UNUSABLE):  # of a line that says otherwise who typed what, nothing
            command = _command(line)
            placed.append((command.time or 0.0, command))
    epsilon: float | None = 0.0
    for _, event in sorted(placed, key=lambda pair: pair[0]):
        epsilon = epsilon if event.by else event.epsilon
        name = history.names.get(event.study, "")
        said = (moment(event.time), history.party, event.words, event.exit_code, event.by)
        counted = (event.study.hex(), name, epsilon, delta, relation)
        yield dict(zip(HEAD, said + counted, strict=True))


def _command(line: Mapping[str, Any]) -> _Event:
    actor = line["actor"]
    by, became = actor["user"], actor.get("sudo_user") or actor.get("login")
    return _Event(
        float(line["time"]),
        shlex.join(["hubbub", *line["command"]]),
        bytes.fromhex(line.get("study", {}).get("id", "")),
        exit_code=line.get("exit_code", ""),
        by=f"{became} as {by}" if became and became != by else by,
    )


def _rows(
    contents: Sequence[Content], history: LedgerHistory, delta: float, relation: str
) -> Iterator[_Event]:
    """The rows of a ledger; row 0 says nothing."""
    tally = Tally()

    def alike(row: tuple[int, Content]) -> tuple[object, ...]:
        """Charges of one session for one purpose are one line."""
        number, content = row
        if isinstance(content, Entry):
            return content.study, content.session, content.kind.purpose
        return (number,)

    for _, rows in groupby(enumerate(contents, 1), alike):
        (number, content), *more = rows
        for entry in (content, *(other for _, other in more)):
            if isinstance(entry, Entry):
                tally.add(entry)
        # An admission has no session of its own: it is charged for by the row behind it.
        charged = contents[number] if isinstance(content, Admission) else content
        time = history.sessions.get(charged.session) if isinstance(charged, Entry) else None
        where = f"rows {number} to {number + len(more)}" if more else f"row {number}"
        study = b"" if isinstance(content, Cap) else content.study
        epsilon = finite(tally.epsilon(delta=delta, relation=relation))
        yield _Event(time, f"{where}: {_said(content, 1 + len(more))}", study, epsilon)


def _said(content: Content, rows: int) -> str:
    """What rows that are alike say."""
    if isinstance(content, Cap):
        cap = f"epsilon {content.epsilon:g} at delta {content.delta:g} ({content.relation})"
        return f"cap for {content.studies} studies: {cap}"
    if isinstance(content, Admission):
        return f"admitted by the cap: {several(sum((n for _, n in content.counts)), 'attempt')}"
    if isinstance(content, Closing):
        return "closed: no further charge for it is possible"
    purpose = content.kind.purpose or "a purpose without a name"
    return f"{several(rows, 'charge')} for {purpose}"
