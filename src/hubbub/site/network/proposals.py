"""Studies that the aggregator proposes over the relay, and what each party's people say to them.

A proposal is the text of a study in a frame that the aggregator signs: nobody else can reach the
parties. A party keeps it in its inbox, and nothing is run, read or charged for it: what its people
approve there is the study with that id, by the same review as a file's. An id stands for every
word of the study and for the roster's keys, so a study that changed is another proposal, and one
of another roster is none. What was said of an id stays said: the same proposal, sent again, finds
it declined, withdrawn or approved as it was. An answer is signed too, and bound to one request.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Any
from unicodedata import category

from hubbub.core.disk import json_value, read_text, write_text
from hubbub.core.errors import HubbubError, ProtocolError, UserError, printable
from hubbub.core.protocol.primitives.identity import Roster
from hubbub.core.protocol.primitives.wire import EVERYBODY, Frame, Tag, parse
from hubbub.core.session.ask import Absent, Call
from hubbub.core.study.study import Study
from hubbub.site.network.envelope import LARGEST_PROPOSAL, Phase
from hubbub.site.network.event_log import EventLog
from hubbub.site.network.folder_files import check_roster
from hubbub.site.network.party_folder import PartyFolder
from hubbub.site.network.requests import UNREADABLE, Requests
from hubbub.site.network.waiting import Timeouts

INBOX, OUTBOX = "inbox", "proposed"
MOST_PENDING = 32  # proposals that wait for a party's people; more are not kept
MOST_REASON = 200  # characters
PENDING, APPROVED, DECLINED, WITHDRAWN = "pending", "approved", "declined", "withdrawn"
FULL, UNUSABLE, ABSENT = "full", "unusable", "absent"
_ANSWERS = (PENDING, APPROVED, DECLINED, WITHDRAWN, FULL, UNUSABLE)
_FINAL = (APPROVED, DECLINED, UNUSABLE)
# Seconds between looks; until who has not decided is asked again; and, until a study begins, who
# has.
_LOOK, _EVERY, _ANEW = 1.0, 10.0, 60.0


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How a proposal stands at a party."""

    state: str
    reason: str = ""  # its people's, or its hubbub's; printable

    @property
    def is_lost(self) -> bool:
        """Whether its hubbub could not take it in: it is in nobody's inbox."""
        return self.state in (FULL, UNUSABLE)


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A study in an inbox."""

    id: bytes
    name: str
    toml: str = field(repr=False)  # empty once it was declined
    received: float  # first, in seconds since 1970
    said: tuple[Mapping[str, Any], ...] = ()  # by this party's people, oldest first

    def study(self) -> Study:
        """The study itself."""
        if not self.toml:
            raise UserError(
                f"expected a proposal that was not declined, got {printable(self.name)}; have its "
                "file sent, and hubbub approve that, if it is wanted after all"
            )
        study = Study.parse(self.toml)
        if study.id != self.id:
            raise UserError(
                f"expected the study {self.id.hex()[:16]} as it came, found it altered; remove "
                f"{INBOX}/{self.id.hex()}.json and have it proposed again"
            )
        return study


@dataclass(frozen=True)
class Inbox:
    """The proposals that have come to a party, each in a file of its own."""

    party_folder: PartyFolder

    def proposals(self) -> list[Proposal]:
        """All that have come, oldest first."""
        paths = self._folder.glob("*.json")
        read = [one for path in paths if (one := self._read(path)) is not None]
        return sorted(read, key=lambda one: (one.received, one.id))

    def proposal(self, word: str) -> Proposal:
        """The one that a word names: the first eight or more digits of its id, or its name.

        A name is the aggregator's to choose: one that looks like an id names nothing.
        """
        is_id = len(word) >= 8 and not word.strip("0123456789abcdef")
        proposals = self.proposals()
        named = [p for p in proposals if (p.id.hex().startswith(word) if is_id else p.name == word)]
        if len(named) != 1:
            raise UserError(
                f"expected the id of one proposal in {self._folder}, got {printable(word)!r}, of "
                f"which there are {len(named)}; hubbub inbox lists them"
            )
        return named[0]

    def standing(self, study: bytes) -> Standing | None:
        """How a study stands here; None if it never came and was not approved."""
        return self.stands(study, self._read(self._path(study)))

    def stands(self, study: bytes, proposal: Proposal | None) -> Standing | None:
        """The same of a proposal that was read; None where none came."""
        last = proposal.said[-1] if proposal and proposal.said else {}
        if self.party_folder.has_approved(study):
            return Standing(state=APPROVED)
        if proposal is None:
            return None
        if last.get("state") == APPROVED:
            return Standing(state=WITHDRAWN)
        if not last and self._roster_here not in proposal.toml:
            return Standing(state=UNUSABLE, reason="its roster was replaced here")
        return Standing(state=last.get("state", PENDING), reason=str(last.get("reason", "")))

    def pending(self) -> list[Proposal]:
        """Those of which nobody has said anything yet."""
        waiting = Standing(state=PENDING)
        return [one for one in self.proposals() if self.stands(one.id, one) == waiting]

    def take(self, study: Study) -> bool:
        """Keep a new proposal; False if as many wait as may."""
        if len(self.pending()) >= MOST_PENDING:
            return False
        toml, now = study.as_toml(), time.time()
        self._write(Proposal(id=study.id, name=study.name, toml=toml, received=now))
        return True

    def say(self, study: bytes, state: str, by: Mapping[str, str], reason: str = "") -> None:
        """Write down what this party's people say of a proposal, if that is what it was."""
        proposal = self._read(self._path(study))
        if proposal is None:
            return
        line = {"time": time.time(), "state": state, "reason": reason, "by": dict(by)}
        toml = "" if state == DECLINED else proposal.toml
        self._write(replace(proposal, toml=toml, said=(*proposal.said, line)))

    @property
    def _folder(self) -> Path:
        return self.party_folder.home / INBOX

    @property
    def _roster_here(self) -> str:
        """The digest of the roster that is here; nothing where there is none."""
        with suppress(UserError):
            return self.party_folder.roster.digest.hex()
        return ""

    def _path(self, study: bytes) -> Path:
        return self._folder / f"{study.hex()}.json"

    def _read(self, path: Path) -> Proposal | None:
        """What a file says; None if it is not there."""
        try:
            plain = json_value(read_text(path))
            return Proposal(
                id=bytes.fromhex(path.stem),
                name=str(plain["name"]),
                toml=str(plain["study"]),
                received=float(plain["received"]),
                said=tuple(dict(line) for line in plain["said"]),
            )
        except FileNotFoundError:
            return None
        except (OSError, *UNREADABLE):
            raise UserError(
                f"expected a proposal in {path}, found something else; remove it, and have the "
                "study proposed again"
            ) from None

    def _write(self, proposal: Proposal) -> None:
        self._folder.mkdir(exist_ok=True, mode=0o700)
        content = {"name": proposal.name, "received": proposal.received, "study": proposal.toml}
        text = json.dumps({**content, "said": list(proposal.said)}, indent=1)
        write_text(self._path(proposal.id), text)


def received(party_folder: PartyFolder, data: bytes, frame: Frame) -> tuple[Standing, Study | None]:
    """Take in what claims to be a proposal; how it stands, and the study if it is news.

    Args:
        frame: what it says of itself, of which nothing is believed yet.

    Raises:
        ProtocolError: it is none, it is not the aggregator's, or its study has another id.
        UserError, StudyError: this party has no roster, or no place in it.
    """
    roster = party_folder.roster
    frame = parse(data, roster, study=frame.study, session=frame.session)
    if (frame.tag, frame.sender, frame.receiver) != (Tag.PROPOSAL, 0, EVERYBODY):
        raise ProtocolError("expected a proposal of the aggregator, got another", culprit="relay")
    inbox = Inbox(party_folder)
    if (standing := inbox.standing(frame.study)) is not None:
        return standing, None
    try:
        study = _study_in(bytes(frame.payload))
        if study.parties.roster != roster.digest.hex():  # it will be asked again
            raise UserError(
                "expected the roster of this study, there is another one; hubbub approve it there "
                "with --new-roster, if that is the newer one"
            )
        check_roster(study, roster)
    except (HubbubError, ValueError, RecursionError) as error:  # of a text that all may know
        return Standing(state=UNUSABLE, reason=printable(str(error))[:MOST_REASON]), None
    if study.id != frame.study:
        raise ProtocolError(
            "expected the study with the id that was signed, got another", culprit=roster.name(0)
        )
    if not inbox.take(study):
        said = f"{MOST_PENDING} proposals wait here; nothing more is kept before some are decided"
        return Standing(state=FULL, reason=said), None
    return Standing(state=PENDING), study


def _study_in(payload: bytes) -> Study:
    """The study in a proposal; ValueError or UserError if its text is none for people to read."""
    if len(payload) > LARGEST_PROPOSAL:
        raise UserError(
            f"expected a study of {LARGEST_PROPOSAL:,} bytes at most, got {len(payload):,}; send "
            "its file, which each party can hubbub approve"
        )
    text = payload.decode()
    if any(category(letter)[0] == "C" and letter not in "\n\r\t" for letter in text):
        raise UserError("expected text that people can read, got control characters; remove them")
    return Study.parse(text)


# The aggregator's side: what it proposes, and what the parties have answered.
#
# A study in the outbox is carried by whichever process has the line: `hubbub propose` itself, or
# `hubbub serve` where that runs. Who has not decided is asked again; so is who has, until the study
# begins, since people withdraw what they have approved, and approve by hand what they declined.


@dataclass(frozen=True)
class Outbox:
    """The studies that the aggregator proposes, with what each party last said of them."""

    party_folder: PartyFolder

    def put(self, study: Study) -> None:
        """Have a study proposed; UserError if it is not approved here, or too large to send."""
        if self.party_folder.role != "aggregator" or not self.party_folder.approves(study.id):
            raise UserError(
                f"expected {study.name} to be approved in an aggregator's folder, it is not in "
                f"{self.party_folder.home.resolve()}; only the aggregator can propose: run hubbub "
                "approve there first"
            )
        if self._path(study.id, "toml").is_file():
            return
        _study_in(study.as_toml().encode())
        (self.party_folder.home / OUTBOX).mkdir(exist_ok=True, mode=0o700)
        write_text(self._path(study.id, "toml"), study.as_toml())

    def studies(self) -> Iterator[Study]:
        """Those that are approved here, by their names."""
        found = list[Study]()
        for path in sorted((self.party_folder.home / OUTBOX).glob("*.toml")):
            with suppress(HubbubError, OSError, ValueError):
                if self.party_folder.approves(bytes.fromhex(path.stem)):
                    found.append(self.party_folder.parsed(path, Study.parse))
        return iter(sorted(found, key=lambda study: study.name))

    def undecided(self, study: bytes) -> set[str]:
        """Who may still decide on a study."""
        standings = self.standings(study)
        final = {name for name, one in standings.items() if one.state in _FINAL}
        return {party.name for party in self.party_folder.roster.parties[1:]} - final

    def standings(self, study: bytes) -> dict[str, Standing]:
        """What each party has said last; of who has not, nothing."""
        try:
            plain = json_value(read_text(self._path(study, "json")))
            return {str(name): Standing(**one) for name, one in plain.items()}
        except (OSError, *UNREADABLE):  # parties know what they have said
            return {}

    def note(self, study: bytes, name: str, standing: Standing) -> bool:
        """Keep what a party says; whether it is news. That somebody is away is none."""
        standings = self.standings(study)
        before = standings.get(name)
        if before == standing or (before is not None and standing.state == ABSENT):
            return False
        plain = {one: vars(said) for one, said in {**standings, name: standing}.items()}
        write_text(self._path(study, "json"), json.dumps(plain, indent=1, sort_keys=True))
        return True

    def note_untold(self, study: bytes, names: Set[str]) -> None:
        """Keep who has not heard that a study is over."""
        path = self._path(study, "untold")
        if not names:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(exist_ok=True, mode=0o700)
        write_text(path, json.dumps(sorted(names)))

    def untold(self) -> Iterator[tuple[bytes, set[str]]]:
        """Studies that are over, and who of this roster has not heard it."""
        here = {party.name for party in self.party_folder.roster.parties[1:]}
        for path in sorted((self.party_folder.home / OUTBOX).glob("*.untold")):
            with suppress(OSError, *UNREADABLE):  # it costs them a word
                yield bytes.fromhex(path.stem), here & {*json_value(read_text(path))}

    def _path(self, study: bytes, kind: str) -> Path:
        return self.party_folder.home / OUTBOX / f"{study.hex()}.{kind}"


@dataclass(frozen=True, kw_only=True)
class Courier:
    """Carries proposals to the parties, and answers back."""

    party_folder: PartyFolder
    phase: Phase
    event_log: EventLog
    timeouts: Timeouts = field(default_factory=Timeouts)

    def carry(self, study: Study, *, anew: bool = False) -> dict[str, Standing]:
        """Ask everybody who has not decided on a study, once; what all have said by then."""
        roster, outbox = self.party_folder.roster, Outbox(self.party_folder)
        requests = Requests(roster, study.id, self.phase, self.event_log, self.timeouts, quiet=True)
        session = os.urandom(16)  # no answer to an earlier request is one to this
        toml, keys = study.as_toml().encode(), self.party_folder.keys
        proposal = Frame(tag=Tag.PROPOSAL, study=study.id, session=session, sender=0, payload=toml)
        undecided = outbox.undecided(study.id)
        parts = [proposal.sealed(keys)]
        asked = {
            index: parts
            for index in range(1, len(roster.parties))
            if anew or roster.name(index) in undecided
        }
        for index, answer in requests.ask(Call.PROPOSE, asked, session):
            name = roster.name(index)
            standing = self._read(answer, index, study.id, session)
            if outbox.note(study.id, name, standing) and standing.state != ABSENT:
                because = f": {standing.reason}" if standing.reason else ""
                if standing.state == APPROVED and self._has_begun(study):
                    because = ", and takes part from its next session on"
                self.event_log.note(
                    "decided", study=study.name, whom=name, how=standing.state, because=because
                )
        return outbox.standings(study.id)

    def carry_all(self, ended: Event) -> None:
        """Carry what is in the outbox, again and again, until told to end."""
        due, due_anew, due_ends = dict[bytes, float](), dict[bytes, float](), 0.0
        outbox = Outbox(self.party_folder)
        while not ended.wait(_LOOK):
            if due_ends <= time.monotonic():
                with suppress(HubbubError, OSError):  # it is tried again
                    self.tell_ends()
                due_ends = time.monotonic() + _ANEW
            for study in outbox.studies():
                now = time.monotonic()
                anew = due_anew.get(study.id, 0.0) <= now and not self._has_begun(study)
                wanted = due.get(study.id, 0.0) <= now and outbox.undecided(study.id)
                if not (anew or wanted) or self.party_folder.has_ended(study.id):
                    continue
                with suppress(HubbubError, OSError):  # it is tried again
                    self.carry(study, anew=anew)
                due[study.id] = time.monotonic() + _EVERY
                if anew:
                    due_anew[study.id] = time.monotonic() + _ANEW

    def tell_ends(self) -> None:
        """Tell of studies that are over whom their end has found away."""
        outbox, roster = Outbox(self.party_folder), self.party_folder.roster
        away = set[str]()  # is waited for once, of however many studies it has heard nothing
        for study, names in outbox.untold():
            requests = Requests(
                roster, study, self.phase, self.event_log, self.timeouts, quiet=True
            )
            frame = Frame(
                tag=Tag.CLOSE,
                study=study,
                session=os.urandom(16),
                sender=0,
                receiver=EVERYBODY,
                payload=b'{"sessions": []}',
            )
            whom = [i for i, party in enumerate(roster.parties) if i and party.name in names - away]
            told = frame.sealed(self.party_folder.keys)
            heard = requests.tell_end(told, frame.session, whom) if whom else ()
            names -= {*map(roster.name, heard)}
            away |= names
            outbox.note_untold(study, names)

    def _has_begun(self, study: Study) -> bool:
        return self.party_folder.run(study.id).is_dir()

    def _read(
        self, answer: list[bytes] | Absent, index: int, study: bytes, session: bytes
    ) -> Standing:
        """What a party has said."""
        if isinstance(answer, Absent):
            return Standing(state=ABSENT, reason=answer.said)
        roster = self.party_folder.roster
        try:
            frame = parse(answer[0], roster, study=study, session=session)
            plain = json.loads(bytes(frame.payload))
            state, reason = plain["state"], printable(plain["reason"])[:MOST_REASON]
            if frame.tag is not Tag.PROPOSED or frame.sender != index or state not in _ANSWERS:
                raise ValueError("another frame")
        except UNREADABLE:
            return Standing(state=ABSENT, reason="its answer cannot be used; see its log")
        return Standing(state=state, reason=reason)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the parties' answers come to."""

    lacking: tuple[str, ...]  # who has neither approved it nor declined
    declined: tuple[str, ...]
    enough: bool  # it can be run with those who have approved it
    hopeless: bool  # it cannot, whatever the others say

    @classmethod
    def of(cls, study: Study, roster: Roster, standings: Mapping[str, Standing]) -> Verdict:
        """That on a study in the aggregator's outbox: it needs N - D silos, and all nodes."""
        absent, nodes = Standing(state=ABSENT), {roster.name(index) for index in roster.nodes}
        states = {
            party.name: standings.get(party.name, absent).state for party in roster.parties[1:]
        }
        declined = tuple(name for name, state in states.items() if state == DECLINED)
        lacking = tuple(n for n, state in states.items() if state != APPROVED and n not in declined)

        def spared(names: Sequence[str]) -> bool:
            return not nodes & {*names} and len(names) <= study.parties.dropouts

        return cls(
            lacking=lacking,
            declined=declined,
            enough=spared([*lacking, *declined]),
            hopeless=not spared(declined),
        )
