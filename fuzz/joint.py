"""Joint seeds: silos and who checks are shown anchors and links, changed and signed anew.

An input is a list of moves over one session of three silos. Laws: a refusal is a `ProtocolError`;
whoever takes anchors has the digest of what it was shown; a seed is that of the links it was made
from, each of which hashes down to the anchor that this party took; a time has one seed for each set
of silos; no silo reveals a link above its newest time, or goes back; nobody remembers more than a
link of each silo, and hashes more than its chain is long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar
from unittest.mock import patch

from fuzz.frames import edited
from fuzz.reading import Reader, hold
from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.agreement import joint_seed
from hubbub.core.protocol.agreement.joint_seed import JointSeed, SeedCheck
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import HEADER_BYTES, SIGNATURE_BYTES
from protocol import reference as ref
from protocol.parties import SESSION, STUDY, world

_WORLD = world(3, quorum=2, joint=True)
_ROUNDS, _ATTEMPTS = _WORLD.round_parameters.steps, _WORLD.round_parameters.attempts
_LENGTH = _ROUNDS * _ATTEMPTS
_MOST_MOVES, _CHECKER, _ALL = 30, 0, 7
_ANCHORS, _REVEAL, _SEED = range(3)  # the moves
_NEVER = ((0, 0), (_ROUNDS + 1, 0), (1, _ATTEMPTS), (2**32 - 1, 0), (1, 2**32 - 1))
_Result = TypeVar("_Result")
Time = tuple[int, int]


def _secret(index: int) -> bytes:
    return bytes([index]) * 16


_CHAINS = {
    index: ref.links(STUDY, SESSION, index, SecureSource(_secret(index)).bytes(32), _LENGTH)
    for index in _WORLD.roster.silos
}
_below = vars(joint_seed)["_below"]


def check(data: bytes) -> None:
    """One input."""
    reader, game = Reader(data), Game()
    for _ in range(_MOST_MOVES):
        if not reader.more:
            break
        game.move(reader)


def seeds() -> list[bytes]:
    """An honest session of three attempts, and others with one change of each kind."""
    anchors = b"".join(bytes([_ANCHORS, party, 0]) for party in range(4))
    attempts = b"".join(_attempt(time, bytes(1)) for time in (0, 2, 17))
    changes = [bytes([1, place % 3, 0, 1, edit, 3, 0, 9]) for place, edit in _changes()]
    spoilt = [_attempt(5, change) for change in changes]
    shown = [bytes([_ANCHORS, number % 4]) + change for number, change in enumerate(changes)]
    others = [anchors + one + _attempt(7, bytes(1)) for one in spoilt]
    return [anchors + attempts, *others, *(one + anchors + attempts for one in shown)]


def _changes() -> list[tuple[int, int]]:
    return [(place, edit) for edit in range(14) for place in (edit, edit + 1)]


def _attempt(time: int, change: bytes) -> bytes:
    """All reveal, and all are shown the links."""
    reveals = b"".join(bytes([_REVEAL, party, time]) for party in (1, 2, 3))
    return reveals + b"".join(bytes([_SEED, party, time, _ALL]) + change for party in range(4))


@dataclass(kw_only=True, eq=False)
class Game:
    """One session, and every link that was ever sent in it."""

    anchors: dict[int, dict[int, bytes]] = field(default_factory=dict)  # as a party took them
    sent: dict[Time, list[bytes]] = field(default_factory=dict)
    newest: dict[int, int] = field(default_factory=dict)
    found: dict[tuple[Time, frozenset[int], bytes], bytes] = field(default_factory=dict)
    hashed: int = 0

    def __post_init__(self) -> None:
        self.parties: dict[int, JointSeed | SeedCheck] = {_CHECKER: _WORLD.seed_check()}
        for index in _WORLD.roster.silos:
            self.parties[index] = _WORLD.seeds(index, source=SecureSource(_secret(index)))
        self.true = [_silo(self.parties[index]).anchor() for index in _WORLD.roster.silos]

    def move(self, reader: Reader) -> None:
        """Whatever comes next."""
        reader.one_of((self.learn, self.reveal, self.draw))(reader)

    def learn(self, reader: Reader) -> None:
        """A party is shown anchors."""
        index = reader.number() % 4
        frames = self._shown(reader, self.true)
        digest = self._refusable(lambda: self.parties[index].learn_anchors(frames))
        if digest is None:
            return
        hold(index not in self.anchors, "anchors taken twice")
        taken = self.anchors[index] = _payloads(frames)
        numbers = (STUDY, SESSION, _ROUNDS, _ATTEMPTS)
        hold(digest == ref.anchors_digest(*numbers, taken), "another digest")
        hold(not index or taken[index] == _CHAINS[index][0], "not its own anchor")

    def reveal(self, reader: Reader) -> None:
        """A silo reveals a link; where the time is out of range, it refuses."""
        index, time = 1 + reader.number() % 3, _time(reader.number())
        link = self._refusable(lambda: _silo(self.parties[index]).reveal(*time))
        if link is None:
            return
        number = _number(time)
        hold(index in self.anchors, "a link before the anchors")
        hold(number >= self.newest.get(index, 0), "a link of a time that is over")
        hold(_payload(link) == _CHAINS[index][number], "another link than the attempt's")
        self.newest[index] = number
        self.sent.setdefault(time, []).append(link)

    def draw(self, reader: Reader) -> None:
        """A party makes a seed of what it is shown."""
        index, time = reader.number() % 4, _time(reader.number())
        bits = reader.number()
        active = {silo for silo in (1, 2, 3) if bits >> (silo - 1) & 1} or {1}
        links = [link for link in self.sent.get(time, []) if _sender(link) in active]
        frames = self._shown(reader, list(dict.fromkeys(links)))
        party = self.parties[index]
        seed = self._refusable(lambda: party.seed(*time, active, frames))
        checker = vars(party).get("_check", party)
        hold(len(vars(checker)["_last"]) <= 3, "more than one link of a silo is remembered")
        if seed is None:
            return
        hold(not index or index in active, "a seed without the own link")
        links_of, number, anchors = _payloads(frames), _number(time), self.anchors[index]
        for silo in active:
            hold(_lowered(silo, number, links_of[silo]) == anchors[silo], "an unknown link")
        hold(seed == ref.attempt_seed(STUDY, SESSION, *time, links_of), "another seed")
        key = (time, frozenset(active), b"".join(anchors.values()))
        hold(self.found.setdefault(key, seed) == seed, "two seeds for one attempt")

    def _shown(self, reader: Reader, true: list[bytes]) -> list[bytes]:
        """The frames, of which some are changed, lost, doubled or exchanged."""
        frames = list(true)
        for _ in range(reader.number() % 3):
            place = reader.number() % max(len(frames), 1)
            kind = reader.number() % 4
            if not frames:
                return frames
            if kind <= 1:
                frames[place] = edited(reader, _WORLD, frames[place])
            elif kind == 2:
                del frames[place]
            else:
                frames.append(edited(reader, _WORLD, frames[place]))
        return frames

    def _refusable(self, call: Callable[[], _Result]) -> _Result | None:
        """The result, or None after a refusal; neither takes more hashes than the chains have."""
        self.hashed = 0

        def below(place: bytes, number: int, link: bytes) -> bytes:
            self.hashed += 1
            return _below(place, number, link)

        with patch.object(joint_seed, "_below", below):
            try:
                return call()
            except ProtocolError:
                return None
            finally:
                hold(self.hashed <= 4 * _LENGTH, "more hashing than the chains are long")


def _silo(party: JointSeed | SeedCheck) -> JointSeed:
    assert isinstance(party, JointSeed)  # noqa: S101
    return party


def _time(choice: int) -> Time:
    """A time, mostly one that the session has."""
    if choice >= 250:
        return _NEVER[choice % len(_NEVER)]
    return 1 + choice % _LENGTH // _ATTEMPTS, choice % _ATTEMPTS


def _number(time: Time) -> int:
    return (time[0] - 1) * _ATTEMPTS + time[1] + 1


def _lowered(silo: int, number: int, link: bytes) -> bytes:
    """The anchor below a link, by the second implementation."""
    return ref.links(STUDY, SESSION, silo, link, number)[0]


def _payload(frame: bytes) -> bytes:
    return frame[HEADER_BYTES:-SIGNATURE_BYTES]


def _sender(frame: bytes) -> int:
    return int.from_bytes(frame[58:62], "little")


def _payloads(frames: list[bytes]) -> dict[int, bytes]:
    """By sender, in the order of the roster."""
    return {sender: _payload(frame) for sender, frame in sorted((_sender(f), f) for f in frames)}
