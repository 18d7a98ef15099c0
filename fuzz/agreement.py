"""The set-up of a session, in which one party's post is lost, doubled, changed or forged.

The others are honest and see what was sent; the victim sees what the input makes of it. Laws: every
phase ends or refuses with a `ProtocolError`, the honest ones' not before the last; after a refusal
all later ones refuse; and who finishes has the transcript, seed and secrets of all who finish.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from fuzz.frames import edited
from fuzz.reading import Reader, hold
from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.agreement.key_agreement import Agreement, Session, sent_digests
from hubbub.core.protocol.primitives.wire import Tag
from protocol.parties import SESSION, STUDY, World, world

_MOST_CHANGES = 3
_Result = TypeVar("_Result")


class _RefusedError(Exception):
    """The victim has refused: nobody waits for it any more."""


def check(data: bytes) -> None:
    """One input."""
    reader = Reader(data)
    kind = reader.number() % 4
    setup = Setup(w=world(3, kind % 2, quorum=2), reader=reader, away=kind // 2)
    setup.victim = reader.one_of(list(setup.parties))
    with suppress(_RefusedError):
        setup.play()


def seeds() -> list[bytes]:
    """Honest set-ups, and one change of each kind in each of the five deliveries."""
    honest = [bytes([kind, victim]) for kind in range(4) for victim in range(4)]
    changes = [bytes([1, kind, 0, 1, edit, 7, 9]) for kind in range(6) for edit in range(14)]
    return honest + [
        bytes([kind, 1]) + bytes(place) + change
        for kind in range(4)
        for place in range(6)
        for change in changes[place::6]
    ]


@dataclass(kw_only=True, eq=False)
class Setup:
    """One set-up, the post between the parties, and what the input does to it.

    Args:
        w: the world.
        reader: the input.
        away: whether silo 2 is not there.
    """

    w: World
    reader: Reader
    victim: int = 1
    away: int = 0
    history: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        here = [silo for silo in self.w.roster.silos if silo != 2 or not self.away]
        _, roll = self.w.rolled(here)
        self.parties = {
            index: self.w.agreement(index, roll=roll) for index in (*here, *self.w.roster.nodes)
        }

    def play(self) -> None:
        """All phases; whoever finishes has the session of all others who finish."""
        if not self.w.layout.nodes:
            commits = self._phase(lambda _, p: p.commit())
            reveals = self._phase(lambda i, p: p.reveal(self._post(i, commits)))
            self._phase(lambda i, p: p.learn_seed(self._post(i, reveals)) or True)
        sent = self._phase(lambda _, p: p.contribute())
        digests = sent_digests(sent, len(self.w.keys))
        answers = self._phase(
            lambda i, p: p.confirm(self._post(i, _to(i, sent)), self._told(i, digests))
        )
        confirms = {index: confirm for index, (confirm, _) in answers.items()}
        checks = {index: frames for index, (_, frames) in answers.items()}
        sessions = self._answers(  # the honest refuse here, too, if the victim saw something else
            lambda i, p: p.finish(
                self._post(i, self._heard(i, p, confirms)), self._post(i, _to(i, checks))
            )
        )
        self._agrees(sessions)

    def _phase(self, of: Callable[[int, Agreement], _Result]) -> dict[int, _Result]:
        """What every party makes of a phase; the victim may refuse, which ends the set-up."""
        results = self._answers(of)
        hold(self.parties.keys() - results <= {self.victim}, "honest post is refused")
        if self.victim not in results:
            raise _RefusedError
        return results

    def _answers(self, of: Callable[[int, Agreement], _Result]) -> dict[int, _Result]:
        """What every party makes of a phase, without those that refuse."""
        results = {}
        for index, party in self.parties.items():
            try:
                results[index] = of(index, party)
            except ProtocolError:
                self._stays_refused(party)
        return results

    def _stays_refused(self, party: Agreement) -> None:
        """No phase can be called after one that refused."""
        for phase in (party.commit, party.contribute, lambda: party.finish([], [])):
            try:
                phase()
            except ProtocolError:
                continue
            hold(False, "a phase after a refusal")

    def _agrees(self, sessions: dict[int, Session]) -> None:
        """A party that finishes shares transcript, seed and secrets with the others."""
        for session in sessions.values():
            one = sessions[min(sessions)]
            hold(session.transcript == one.transcript, "two transcripts")
            hold(session.seed == one.seed, "two seeds")
            for other, secret in session.secrets.items():
                if other in sessions:
                    hold(sessions[other].secrets[session.index] == secret, "two secrets")

    def _heard(self, index: int, party: Agreement, confirms: dict[int, bytes]) -> dict[int, bytes]:
        """The confirmations that a party waits for."""
        heard = party.neighbours if self.w.layout.nodes else self.parties
        return {other: confirms[other] for other in heard if other != index}

    def _told(self, index: int, digests: bytes) -> bytes:
        """The list of digests, which for the victim may be another."""
        kind = self.reader.number() if index == self.victim else 0
        if kind % 4 == 1:
            return digests[: self.reader.number()]
        if kind % 4 == 2:
            place = self.reader.number() % len(digests)
            return digests[:place] + self.reader.bytes(1) + digests[place + 1 :]
        return digests + self.reader.bytes(32) if kind % 4 == 3 else digests

    def _post(self, index: int, frames: dict[int, bytes]) -> list[bytes]:
        """What arrives of the frames: everything, but for the victim as the input wants it."""
        post = list(frames.values())
        self.history += post
        if index == self.victim:
            for _ in range(self.reader.number() % (_MOST_CHANGES + 1)):
                self._change(post)
        return post

    def _change(self, post: list[bytes]) -> None:
        """One change."""
        kind = self.reader.number() % 6
        if not post:
            return
        place = self.reader.number() % len(post)
        if kind == 0:
            post[place] = edited(self.reader, self.w, post[place])
        elif kind == 1:
            del post[place]
        elif kind == 2:
            post.append(edited(self.reader, self.w, post[place]))
        elif kind == 3:
            post[0], post[place] = post[place], post[0]
        elif kind == 4:
            post.append(self.reader.one_of(self.history))
        else:
            post[place] = self._contribution(self.reader.number())

    def _contribution(self, sender: int) -> bytes:
        """A contribution that opens, whatever is in it."""
        sender %= len(self.w.keys)
        places = sender.to_bytes(4, "little") + self.victim.to_bytes(4, "little")
        context = b"hubbub contribution v1" + STUDY + SESSION + places
        secret = self.reader.bytes(self.reader.number() % 65)
        sealed = self.w.roster.parties[self.victim].seal(secret, context)
        return self.w.forge(sender, Tag.CONTRIBUTION, sealed, receiver=self.victim)


def _to(index: int, sent: dict[int, dict[int, bytes]]) -> dict[int, bytes]:
    """What was sent to one party."""
    return {sender: frames[index] for sender, frames in sent.items() if index in frames}
