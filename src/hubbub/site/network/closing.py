"""The end of a networked study, at the aggregator: everybody gets the model and signs its part.

A silo need not be in the last session of a study: it is told the end in the newest one that it has
finished, of the study's main query if there is one, since what was done to the features was said
there. This file knows no round.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hubbub.core.errors import ProtocolError
from hubbub.core.planning.study_queries import main_of
from hubbub.core.protocol.primitives.identity import Keys
from hubbub.core.protocol.primitives.wire import EVERYBODY, Frame, Tag, parse
from hubbub.core.session.ask import LEFT_OUT, Absent, Answer, Call
from hubbub.core.session.rounds import Rounds
from hubbub.core.study.study import Study
from hubbub.core.verification.evidence.collecting import checked_part
from hubbub.site.network.requests import UNREADABLE, Requests

_PAUSE = 2.0  # seconds; the shortest
_CLOSINGS = 5  # times that a silo is asked for its signed part


@dataclass(kw_only=True)
class StudyClosing:
    """The sessions that silos have finished, and the end of all of them.

    Args:
        requests: asks the parties.
        study: that ends.
        result: the model that what is asked last is asked at, once it is known.
    """

    requests: Requests
    study: Study
    result: bytes = field(default=b"", repr=False)
    _newest: dict[int, tuple[bool, bytes]] = field(default_factory=dict)

    def finished(self, purpose: str, session: bytes, silos: Iterable[int]) -> None:
        """These silos have set up a session."""
        main = purpose == main_of(self.study).mechanism.purpose
        for index in silos:
            if main or not self._newest.get(index, (False,))[0]:
                self._newest[index] = main, session

    def release(self, keys: Keys, rounds: Rounds) -> None:
        """Show the silos of a session the model that it is asked at, which each signs.

        Who does not sign it takes no part: it would refuse the session's MODELs, and others pay.
        """
        parts = [self._frame(keys, rounds.session, Tag.RESULT, self.result)]
        digest, signed = hashlib.sha256(self.result).digest(), list[bytes]()
        absent = rounds.attendance.absent
        asked = dict.fromkeys(rounds.attendance.present, parts)
        for index, received in self.requests.ask(Call.RESULT, asked, rounds.session):
            word = self._word(digest, rounds.session, index, received)
            if isinstance(word, Absent):
                absent[index] = replace(word, why=LEFT_OUT)
            else:
                signed.append(word)
        rounds.opening = [*rounds.opening, *parts, *signed]

    def _word(self, digest: bytes, session: bytes, index: int, received: Answer) -> bytes | Absent:
        """A silo's word for the RESULT with a digest, or why there is none."""
        if isinstance(received, Absent):
            return received
        roster = self.requests.roster
        try:
            (data,) = received
            if self._told(data, session, index, Tag.RESULT_SIGNED) != digest:
                raise ProtocolError(
                    "expected its word for the RESULT that it was shown, got one for another",
                    culprit=roster.name(index),
                )
        except UNREADABLE as error:
            culprit = error.culprit if isinstance(error, ProtocolError) else ""
            return self.requests.garbled(index, str(error), culprit or "relay")
        return data

    def close(
        self, keys: Keys, sessions: Sequence[bytes], parameters: bytes
    ) -> list[dict[str, Any]]:
        """Give everybody the model, and have the silos sign what their ledgers hold.

        A silo that does not answer is asked again, a few times: a run is closed once, and nobody
        can have its part later.

        Args:
            keys: the aggregator's.
            sessions: of the study, of which there is a transcript.
            parameters: the model.

        Returns:
            What the silos say that answered; who did not is in the event log.
        """
        heads = {name: head.to_dict() for name, head in self.requests.heads.items()}
        listed = json.dumps({"sessions": [one.hex() for one in sessions], "heads": heads}).encode()
        parts: dict[int, dict[str, Any]] = {}
        left = dict(self._newest)
        for turn in range(_CLOSINGS):
            if turn and left:
                self.requests.timeouts.clock.sleep(_PAUSE * 2.0 ** (turn - 1))
            for session in sorted({session for _, session in left.values()}):
                told = ((Tag.CLOSE, listed), (Tag.RESULT, parameters))
                frames = [self._frame(keys, session, tag, payload) for tag, payload in told]
                asked = {i: frames for i in sorted(left) if left[i][1] == session}
                for index, received in self.requests.ask(Call.CLOSE, asked, session):
                    if (part := self._part(session, index, received, sessions)) is not None:
                        parts[index] = part
            left = {index: where for index, where in left.items() if index not in parts}
        roster = self.requests.roster
        if silent := [roster.name(index) for index in roster.silos if index not in parts]:
            self.requests.warn("unsigned", parties=", ".join(silent))
        return list(parts.values())

    def _part(
        self, session: bytes, index: int, received: Answer, sessions: Sequence[bytes]
    ) -> dict[str, Any] | None:
        """A silo's signed part, if its answer has one that can be used."""
        if isinstance(received, Absent):
            return None
        roster = self.requests.roster
        try:
            payload = json.loads(self._told(received[0], session, index, Tag.CLOSED))
            silo = roster.parties[index]
            return checked_part(payload, silo, study=self.study.id, sessions=sessions)
        except UNREADABLE as error:
            self.requests.warn("garbled", whom=roster.name(index), said=str(error))
            return None

    def _told(self, data: bytes, session: bytes, index: int, tag: Tag) -> bytes:
        """What a silo itself has said in a frame; ProtocolError if it is another's, or another."""
        frame = parse(data, self.requests.roster, study=self.study.id, session=session)
        if frame.tag is not tag or frame.sender != index:
            raise ProtocolError(f"expected {tag.name}, got another frame", culprit="relay")
        return bytes(frame.payload)

    def _frame(self, keys: Keys, session: bytes, tag: Tag, payload: bytes) -> bytes:
        return Frame(
            tag=tag,
            study=self.study.id,
            session=session,
            sender=0,
            receiver=EVERYBODY,
            payload=payload,
        ).sealed(keys)
