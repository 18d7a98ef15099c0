"""What the aggregator has heard in a set-up, and from it who has spoilt one that failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hubbub.core.errors import HubbubError, ProtocolError
from hubbub.core.protocol.agreement.roll_call import Roll
from hubbub.core.protocol.agreement.set_up_check import SetUpCheck, payload_of
from hubbub.core.protocol.primitives.identity import Roster
from hubbub.core.protocol.primitives.wire import Tag, receiver_of
from hubbub.core.session import session_offer
from hubbub.core.session.ask import Absent, Call
from hubbub.core.session.layout import Layout

_ACCUSING = ("protocol", "garbled", "evidence-")  # what the reasons begin with that blame others


def broken(
    index: int, frames: Mapping[Tag, bytes], roster: Roster, study: bytes, session: bytes
) -> Absent | None:
    """Why nobody would believe a party's frames of 32 bytes to everybody; None if all will."""
    try:
        for tag, frame in frames.items():
            payload_of(frame, tag, index, roster, study, session)
    except ProtocolError as error:
        return Absent(why="garbled", said=str(error), culprit=error.culprit)
    return None


def by_receiver(frames: Sequence[bytes]) -> dict[int, bytes]:
    """Frames by whom they say they are for; who gets one checks it."""
    return {receiver_of(frame): frame for frame in frames}


def delivered(
    sent: Mapping[int, Mapping[int, bytes]], everybody: Sequence[int]
) -> dict[int, list[bytes]]:
    """From what each party sends to whom, to what each party receives."""
    inbox = {index: list[bytes]() for index in everybody}
    for frames in sent.values():
        for receiver, frame in frames.items():
            inbox.setdefault(receiver, []).append(frame)
    return inbox


@dataclass(kw_only=True)
class SetUpRecord:
    """One set-up, from its ROLL on.

    Args:
        check: knows its place.
        offer: what was offered.
        heard: everybody's answers, by call.
        anchors: digest of the anchors, where there are any.
        evidence: gives what parties put into the transcript of the evidence that they believe;
            None where the study asks for none.
    """

    check: SetUpCheck
    offer: bytes
    heard: dict[Call, Mapping[int, list[bytes]]] = field(default_factory=dict)
    anchors: bytes = b""
    evidence: Callable[[], bytes] | None = None

    @classmethod
    def of(
        cls, layout: Layout, roll: Roll, offer: bytes, roster: Roster, study: bytes, session: bytes
    ) -> SetUpRecord:
        """A set-up with the silos of a ROLL, in which nothing was heard yet."""
        check = SetUpCheck(
            roster=roster,
            study=study,
            session=session,
            roll=roll,
            neighbours_of=lambda index, seed: layout.neighbours(index, seed, present=roll.silos),
        )
        return cls(check=check, offer=offer)

    def explained(self, absent: Mapping[str, Absent]) -> dict[str, Absent]:
        """Who is left out next time: whose own frames are wrong, not those who complain of them.

        Args:
            absent: who gave no answer, or refused, by name.
        """
        if any(absence.error for absence in absent.values()):  # in one process, where it is raised
            return dict(absent)
        commits, reveals, sent, confirmed = (self.heard.get(call, {}) for call in _PHASES)
        faults = self.check.faults(commits, reveals, sent, confirmed, self._context())
        if not faults:
            return {name: self._heeded(one) for name, one in absent.items()}
        found = {
            self.check.roster.name(index): Absent(
                why="garbled", said=str(error), culprit=error.culprit
            )
            for index, error in faults.items()
        }
        others = {n: one for n, one in absent.items() if not one.why.startswith(_ACCUSING)}
        return others | found

    def _heeded(self, one: Absent) -> Absent:
        """A complaint of a silo that has no part in the session is none."""
        roster = self.check.roster
        outside = {roster.name(i) for i in {*roster.silos} - self.check.roll.silos}
        return replace(one, culprit="") if outside & {*one.culprit.split(" and ")} else one

    def _context(self) -> bytes | None:
        """What parties put into the transcript first; None where evidence is not believed here."""
        try:
            seen = self.anchors + (self.evidence() if self.evidence else b"")
        except HubbubError:
            return None
        return session_offer.context_of(self.offer, self.check.roll.digest, seen)


_PHASES = (Call.COMMIT, Call.REVEAL, Call.CONTRIBUTE, Call.CONFIRM)
