"""How the aggregator asks: requests out, answers in, and of each party that does not answer, why.

What a party says no with is signed by it; a refusal that nobody signed counts as silence.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from hubbub import VERSION
from hubbub.core.errors import IntegrityError, ProtocolError
from hubbub.core.ledger.head_statement import HeadStatement, Witness, Witnessed
from hubbub.core.number_format import few
from hubbub.core.protocol.primitives.identity import Roster
from hubbub.core.protocol.primitives.message_sizes import SIGNATURE_BYTES
from hubbub.core.protocol.primitives.wire import (
    EVERYBODY,
    Frame,
    Tag,
    parse,
    sender_of,
    tag_of,
    unverified,
)
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.session.ask import LEFT_OUT, RESTARTED, Absent, Answer, Call, Peers
from hubbub.core.session.joint_batches import JointBatches
from hubbub.core.session.offer import OWN, REASONS
from hubbub.site.network.envelope import (
    MOST_BYTES,
    Missing,
    Phase,
    SizeLimits,
    VersionError,
    read_answer,
    request,
    request_digest,
    word_limit,
)
from hubbub.site.network.event_log import EventLog
from hubbub.site.network.waiting import Timeouts

_MOST_ATTEMPTS = 10**9
_STATED = (Call.OPEN, Call.COLLECT_KEY, Call.COLLECT_DEPOSIT)  # answers that begin with READY
SET_BACK = "set-back"  # why a party is refused whose folder is an older copy
COMES = "; it may come into the next session by itself"  # of whom nobody need call
Heads = Mapping[bytes, HeadStatement]  # by ledger, the last that was witnessed
# What the words of a party, who may mean harm, may raise while they are read.
UNREADABLE = (
    *(ProtocolError, ValueError, TypeError, KeyError, IndexError, AttributeError),
    *(RecursionError, OverflowError),
)


class Requests(Peers):
    """Asks the parties of a roster through an engine.

    Args:
        event_log: counts bytes and seconds.
        quiet: parties are asked of which most are away, which is no event.

    Attributes:
        least_paid: how many attempts silos must have paid for, by purpose and name.
        witness: signs what silos state of their ledgers, unless it contradicts what they stated.
        heads: what it has signed last, by silo.
    """

    def __init__(
        self,
        roster: Roster,
        study: bytes,
        phase: Phase,
        event_log: EventLog,
        timeouts: Timeouts,
        *,
        quiet: bool = False,
    ) -> None:
        super().__init__(roster)
        self._quiet = quiet
        self.event_log, self.timeouts = event_log, timeouts
        self.paid: dict[str, dict[str, int]] = {}  # attempts that silos have paid for, by purpose
        self.least_paid: Mapping[str, Mapping[str, int]] = {}
        self.witness: Witness | None = None
        self.heads: dict[str, Witnessed] = {}
        self.twice: set[str] = set()  # who was seen to take part in two processes
        self._study, self._phase = study, phase
        self._limits: dict[str, SizeLimits] = {}  # of the newest session, by purpose
        self.unopened: set[str] = set()  # who was silent when it was offered a session last
        self._known = {"relay", *(party.name for party in roster.parties)}

    def expect(
        self, purpose: str, round_parameters: RoundParameters, joint: JointBatches | None = None
    ) -> None:
        """Know what a session's answers may have, before anybody is asked in it."""
        self._limits[purpose] = SizeLimits(
            roster=self.roster, round_parameters=round_parameters, joint=joint
        )

    def largest_answer(self, name: str) -> int:
        """Bytes of an answer in a phase of this name: what carries it keeps no larger one.

        A sign of life comes before any session, as what is said of a proposal does, and is as small
        as a refusal.
        """
        call = Call[name.upper()]
        if call in (Call.PING, Call.PROPOSE):
            return word_limit(len(self.roster.parties))
        return max((limit.answer(call) for limit in self._limits.values()), default=MOST_BYTES)

    def ask(
        self,
        call: Call,
        requests: Mapping[int, Sequence[bytes]],
        session: bytes,
        *,
        needs_all: bool = False,
        more_seconds: float = 0.0,
    ) -> Iterator[tuple[int, Answer]]:
        """As `Peers.ask`; all are asked at once, and answer in any order."""
        began, received = time.monotonic(), 0
        deadline = self.timeouts.of(call) + more_seconds
        # As of now: another study may hear of more rows before what is stated here has come.
        heads = self.witness.known if call in _STATED and self.witness else {}
        distinct = {id(parts): parts for parts in requests.values()}
        alike = {key: request(call, session, parts) for key, parts in distinct.items()}
        blobs = {self.roster.name(index): alike[id(parts)] for index, parts in requests.items()}
        waiting = {self.roster.name(index): index for index in requests}
        if call is Call.OPEN and blobs.keys() <= self.unopened:  # it has had time to read records
            deadline = min(deadline, self.timeouts.deadline)
        silent: dict[str, list[str]] = {}  # by why
        try:
            for party, blob in self._phase(call.name.lower(), blobs, deadline):
                index = waiting.pop(party, None)
                if index is None:  # nobody asked; whoever carries the answers made it up
                    continue
                if isinstance(blob, Missing):
                    yield index, self._missed(party, blob, silent)
                    continue
                received += len(blob)
                answer = self._read(index, blob, blobs[party], self.largest_answer(call.name))
                stated = call is Call.OPEN or (index in self.roster.silos and call in _STATED)
                if stated and not isinstance(answer, Absent):
                    # A session is new, a collection is not: there READY names what it answers.
                    to = "" if call is Call.OPEN else request_digest(blobs[party])
                    answer = self._greeted(index, answer, session, to, heads)
                yield index, answer
            for party, index in waiting.items():
                yield index, self._missed(party, Missing(), silent)
        finally:
            for then, names in silent.items():
                if not self._quiet:
                    listed = {"whom": few(names), "count": len(names)}
                    self.warn("missing", **listed, deadline=deadline, then=then)
        if call is Call.OPEN:
            self.unopened = (self.unopened - blobs.keys()).union(*silent.values())
        self.event_log.add(
            bytes_sent=sum(map(len, blobs.values())),
            bytes_received=received,
            phases=1,
            **{f"seconds_{call.name.lower()}": time.monotonic() - began},
        )

    def tell_end(self, frame: bytes, session: bytes, whom: Iterable[int]) -> set[int]:
        """Show parties that have no part to sign the CLOSE of a study; who has heard it.

        Nothing rests on what they say, so they are waited for no longer than for a sign of life.
        """
        parts, unheard = [frame], ("silent", "version", "garbled", "failed")
        brief = self.timeouts.ping - self.timeouts.of(Call.CLOSE)
        asked = dict.fromkeys(sorted(whom), parts)
        answers = self.ask(Call.CLOSE, asked, session, more_seconds=brief)
        return {i for i, one in answers if not (isinstance(one, Absent) and one.why in unheard)}

    def take_head(self, witness: Witness, name: str, stated: HeadStatement) -> None:
        """Sign what a silo states of its ledger; IntegrityError if it contradicts what it stated.

        People are told if that is another ledger than before.
        """
        is_new, last = stated.ledger not in witness.known, witness.last_of(name)
        self.heads[name] = witness.sign(stated, name)
        # Of a ledger with its first row alone nothing was spent.
        if is_new and last and last.rows > 1:
            self.warn("new-ledger", whom=name, rows=last.rows)

    def note(self, event: str, **values: Any) -> None:
        """Write an ordinary event down."""
        self.event_log.note(event, **values)

    def warn(self, event: str, **values: Any) -> None:
        """Write down an event that somebody should look at."""
        self.event_log.warn(event, **values)

    def _missed(self, name: str, missing: Missing, silent: dict[str, list[str]]) -> Absent:
        """A party that did not answer, which is told of once the phase is over.

        Of a line that is down here, its own event has told, and nobody there can help.
        """
        if missing.here:
            return Absent(why="silent", said=missing.why)
        silent.setdefault(missing.why, []).append(name)
        return Absent(why="silent", said=f"{missing.why}; make sure that hubbub join runs there")

    def see_twice(self, name: str) -> None:
        """Hear that two processes take part as a party: what comes of it may be of either."""
        self.twice.add(name)
        self.event_log.seen_twice(name)

    def left_out(self, absent: Mapping[str, Absent]) -> None:
        """Have the state say who is missing, why, and who of them says that it cannot take part."""
        refusing = sorted(name for name, one in absent.items() if one.why in OWN)
        why = {
            name: f"{one.said}{COMES if one.why in (RESTARTED, LEFT_OUT) else ''}"
            for name, one in sorted(absent.items())
        }
        self.event_log.absent(
            absent, absent_why=why, left_out=sorted(absent), parties_refusing=refusing
        )

    def _greeted(
        self, index: int, answer: list[bytes], session: bytes, to: str, heads: Heads
    ) -> Answer:
        """An answer without its READY, in which a party tells of its own installation."""
        name = self.roster.name(index)
        try:
            frame = parse(answer[0], self.roster, study=self._study, session=session)
            if frame.tag is not Tag.READY:
                raise ProtocolError("expected a READY, got another frame", culprit="relay")
            whole = json.loads(bytes(frame.payload))
            if (version := whole.get("version")) != VERSION:  # people should know
                words = f"it runs hubbub {str(version)[:20]!r}, the aggregator {VERSION}"
                self.warn("version", whom=name, said=words)
            if whole.get("to", "") != to:
                raise ProtocolError(
                    "expected the READY to this request, got one to another", culprit="relay"
                )
            is_silo = index in self.roster.silos
            if is_silo and (refused := self._behind(name, whole, heads)) is not None:
                return refused
        except UNREADABLE as error:
            return self.garbled(index, f"its READY cannot be used: {error}", "")
        return answer[1:]

    def _behind(self, name: str, whole: Mapping[str, Any], heads: Heads) -> Absent | None:
        """Take in what a silo says of its ledger; or why not, if that is not the newest (P15)."""
        for purpose, least in self.least_paid.items():
            count = whole.get("attempts", {}).get(purpose, 0)
            if type(count) is not int or not 0 <= count <= _MOST_ATTEMPTS:
                raise ValueError("no count of attempts")
            if count < least[name]:
                self.warn("set-back", whom=name, count=count, least=least[name])
                said = (
                    f"its ledger has {count} paid attempts of this study, but it answered or "
                    f"reported at least {least[name]}: its folder was set back; restore the newest "
                    "copy of it there, or find what is missing with hubbub ledger missing"
                )
                return Absent(why=SET_BACK, said=said)
            self.paid.setdefault(purpose, {})[name] = count
        if self.witness is None or "ledger" not in whole:
            return None
        return self._witnessed(name, whole["ledger"], self.witness, heads)

    def _witnessed(self, name: str, plain: object, witness: Witness, heads: Heads) -> Absent | None:
        """Sign what a silo states of its ledger; or why not, of whichever study rows lack."""
        try:
            stated = HeadStatement.of(plain)
        except IntegrityError as error:
            said = f"its READY cannot be used: {error}"
            self.warn("garbled", whom=name, said=said)  # of a collection nobody else would tell
            return Absent(why="garbled", said=said)
        before = heads.get(stated.ledger)
        if before is None or stated.follows(before):
            try:
                self.take_head(witness, name, stated)
                return None
            except IntegrityError:
                before = witness.known[stated.ledger]
                if before.rows > stated.rows:  # stated to another study while this was asked
                    return None
        with suppress(IntegrityError):  # stated newer rows to another study just now
            known = witness.known[stated.ledger]
            self.heads[name] = witness.sign(known, name)  # its people are shown
        self.warn("older", whom=name, rows=stated.rows, before=before.rows)
        said = (
            f"its ledger has {stated.rows} rows, but it stated {before.rows}, or "
            "others, before: its folder was set back; restore the newest copy of it "
            "there, or follow the runbook if that is lost"
        )
        return Absent(why=SET_BACK, said=said)

    def _read(self, index: int, blob: bytes, asked: bytes, most: int) -> Answer:
        """The parts of an answer of so many bytes at most, or why there are none."""
        name = self.roster.name(index)
        try:
            # An answer, whatever has carried it; ProtocolError where it has more bytes than it may.
            if len(blob) > most:
                raise ProtocolError(
                    f"expected an answer of {most:,} bytes at most, got {len(blob):,}",
                    culprit="relay",
                )
            parts = read_answer(blob)
            refusal = self._refusal(index, parts, asked)
        except VersionError as error:
            self.event_log.warn("version", whom=name, said=str(error))
            return Absent(why="version", said=str(error))
        except ProtocolError as error:
            return self.garbled(index, str(error), error.culprit)
        if refusal is not None:
            self.event_log.add(refusals=1)
            self.event_log.warn("declined", whom=name, reason=refusal.said)
            return refusal
        return parts

    def _from_outside(self, index: int, part: bytes) -> Frame:
        """A refusal of a party that has no roster yet, and does not know its own place."""
        frame, party = unverified(part), self.roster.parties[index]
        if not party.verifies(part[-SIGNATURE_BYTES:], frame.signed):
            raise ProtocolError(
                f"expected a refusal signed by {party.name}, got a false signature", culprit="relay"
            )
        return frame

    def _refusal(self, index: int, parts: Sequence[bytes], asked: bytes) -> Absent | None:
        """The signed refusal of exactly what was asked, if an answer is one."""
        refused = [tag_of(part) for part in parts] == [Tag.REFUSAL]
        senders = {sender_of(part) for part in parts}
        if refused and senders == {EVERYBODY}:
            frame = self._from_outside(index, parts[0])
        elif senders - {index}:
            raise ProtocolError(
                f"expected frames of {self.roster.name(index)}, got another's", culprit="relay"
            )
        elif not refused:
            return None
        else:
            header = unverified(parts[0])
            frame = parse(parts[0], self.roster, study=header.study, session=header.session)
        try:
            payload = json.loads(bytes(frame.payload))
            why, culprit, to = (str(payload[key]) for key in ("why", "culprit", "to"))
            reason = REASONS[why]
            blamed = culprit.split(" and ") if culprit else []
            if len({*blamed}) < len(blamed) or not self._known.issuperset(blamed):
                raise ValueError
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ProtocolError(
                "expected a refusal for a known reason, got another",
                culprit=self.roster.name(index),
            ) from None
        if to != request_digest(asked):
            raise ProtocolError(
                f"expected a refusal of this request, got one of something else: {reason}",
                culprit="relay",
            )
        said = f"{reason}, by {culprit}" if culprit else reason
        return Absent(why=why, said=said, culprit=culprit)
