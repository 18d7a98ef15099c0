"""How the aggregator asks: requests out, answers in, and of each party that does not answer, why.

What a party says no with is signed by it; a refusal that nobody signed counts as silence.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hubbub.errors import HubbubError, ProtocolError
from hubbub.network.engine import Missing, Phase
from hubbub.network.envelope import NO_SESSION, Call, VersionError, read_answer, request
from hubbub.network.event_log import EventLog
from hubbub.protocol.identity import Roster
from hubbub.protocol.wire import Tag, parse, unverified
from hubbub.session.session_offer import REASONS


@dataclass(frozen=True, kw_only=True)
class Absent:
    """A party without a usable answer.

    Args:
        why: "silent", "garbled", or one of `REASONS`.
        said: the same for people.
        culprit: whom the party blames, where it says that the protocol was broken.
    """

    why: str
    said: str
    culprit: str = ""


class AbsentError(HubbubError):
    """Parties without whom it cannot go on.

    Args:
        absent: by name.
    """

    def __init__(self, absent: Mapping[str, Absent]) -> None:
        told = "; ".join(f"{name}: {one.said}" for name, one in sorted(absent.items()))
        super().__init__(f"expected every party's answer, got none from {told}")
        self.absent = dict(absent)


Heard = list[bytes] | Absent


class Exchange:
    """Asks the parties of a roster through an engine.

    Args:
        roster: everybody.
        phase: the engine.
        journal: counts bytes and seconds.
    """

    def __init__(self, roster: Roster, phase: Phase, event_log: EventLog) -> None:
        self.roster, self._phase, self.event_log = roster, phase, event_log
        self._known = {"relay", *(party.name for party in roster.parties)}

    def ask(
        self,
        call: Call,
        requests: Mapping[int, Sequence[bytes]],
        deadline: float,
        session: bytes = NO_SESSION,
    ) -> Iterator[tuple[int, Heard]]:
        """Ask parties by roster index; each once, in the order in which they answer.

        Args:
            call: what is asked.
            requests: the frames for each party.
            deadline: seconds.
            session: of which it is asked, 16 bytes.
        """
        began, received = time.monotonic(), 0
        distinct = {id(parts): parts for parts in requests.values()}
        alike = {key: request(call, session, parts) for key, parts in distinct.items()}
        blobs = {self.roster.name(index): alike[id(parts)] for index, parts in requests.items()}
        waiting = {self.roster.name(index): index for index in requests}
        for party, blob in self._phase(call.name.lower(), blobs, deadline):
            index = waiting.pop(party, None)
            if index is None:  # nobody asked; whoever carries the answers made it up
                continue
            received += 0 if isinstance(blob, Missing) else len(blob)
            yield index, self._heard(index, blob, blobs[party], deadline)
        for index in waiting.values():
            yield index, self._heard(index, Missing(), b"", deadline)
        self.event_log.add(
            bytes_sent=sum(map(len, blobs.values())),
            bytes_received=received,
            phases=1,
            **{f"seconds_{call.name.lower()}": time.monotonic() - began},
        )

    def ask_all(
        self,
        call: Call,
        requests: Mapping[int, Sequence[bytes]],
        deadline: float,
        session: bytes = NO_SESSION,
    ) -> dict[int, list[bytes]]:
        """Everybody's answer.

        Raises:
            AbsentError: naming who gave none.
        """
        answers: dict[int, list[bytes]] = {}
        absent: dict[str, Absent] = {}
        for index, heard in self.ask(call, requests, deadline, session):
            if isinstance(heard, Absent):
                absent[self.roster.name(index)] = heard
            else:
                answers[index] = heard
        if absent:
            raise AbsentError(absent)
        return answers

    def _heard(self, index: int, blob: bytes | Missing, asked: bytes, deadline: float) -> Heard:
        """The parts of an answer, or why there are none."""
        name = self.roster.name(index)
        if isinstance(blob, Missing):
            self.event_log.warn("missing", whom=name, deadline=deadline, then=blob.why)
            return Absent(why="silent", said=f"{blob.why}; see that hubbub join runs there")
        try:
            parts = read_answer(blob)
            refusal = self._refusal(index, parts, asked)
        except VersionError as error:
            self.event_log.warn("version", whom=name, said=str(error))
            return Absent(why="version", said=str(error))
        except ProtocolError as error:
            self.event_log.warn("garbled", whom=name, said=str(error))
            return Absent(why="garbled", said=str(error), culprit=error.culprit)
        if refusal is not None:
            self.event_log.warn("declined", whom=name, reason=refusal.said)
            return refusal
        return parts

    def _may_be_blamed(self, names: Sequence[str]) -> bool:
        """Whether these are some of those there are, each once."""
        return len(set(names)) == len(names) and self._known.issuperset(names)

    def _refusal(self, index: int, parts: Sequence[bytes], asked: bytes) -> Absent | None:
        """The signed refusal of exactly what was asked, if an answer is one."""
        told = [unverified(part) for part in parts]
        if any(frame.sender != index for frame in told):
            raise ProtocolError(
                f"expected frames of {self.roster.name(index)}, got another's", culprit="relay"
            )
        if [frame.tag for frame in told] != [Tag.REFUSAL]:
            return None
        frame = parse(parts[0], self.roster, study=told[0].study, session=told[0].session)
        try:
            said = json.loads(bytes(frame.payload))
            why, culprit, to = str(said["why"]), str(said["culprit"]), str(said["to"])
            reason = REASONS[why]
            if culprit and not self._may_be_blamed(culprit.split(" and ")):
                raise ValueError
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ProtocolError(
                "expected a refusal for a known reason, got another",
                culprit=self.roster.name(index),
            ) from None
        if to != hashlib.sha256(asked).hexdigest():
            raise ProtocolError(
                f"expected a refusal of what was asked, got one of something else: {reason}",
                culprit="relay",
            )
        blamed = f", by {culprit}" if culprit else ""
        return Absent(why=why, said=reason + blamed, culprit=culprit)
