"""A list of tokens in the making, in which one silo's post is lost, doubled, changed or forged.

The others are honest and see what was sent; the victim sees what the input makes of it. Laws: every
phase ends or refuses with a `ProtocolError`; after a refusal only a complaint or the own key can
leave; nobody who has finished shows its key; and if all finish they have one list, in which every
token has a place of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from fuzz.frames import edited
from fuzz.reading import Reader, hold
from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.primitives.wire import Tag
from hubbub.core.protocol.token_lists.mixer import Mixer
from hubbub.core.protocol.token_lists.token_list import ListContext, Owned
from protocol.parties import SESSION, STUDY, world

_WORLD = world(3)
_SILOS = tuple(_WORLD.roster.silos)
_COUNTS, _NUMBER = (2, 0, 1), 1
_MOST_CHANGES, _POSTS = 3, 12
_Result = TypeVar("_Result")


class _RefusedError(Exception):
    """The victim has refused: nobody waits for it any more."""


def check(data: bytes) -> None:
    """One input."""
    reader = Reader(data)
    making = Making(reader=reader, victim=reader.one_of(_SILOS))
    with suppress(_RefusedError):
        making.play()


def seeds() -> list[bytes]:
    """Honest lists, and one change of each kind in each of the deliveries."""
    changes = [bytes([1, kind, 0, 1, edit, 7, 9]) for kind in range(6) for edit in range(14)]
    spoilt = [
        bytes([place % 3]) + bytes(place) + change
        for place in range(_POSTS)
        for change in changes[place::_POSTS]
    ]
    return [*(bytes([victim]) for victim in range(3)), *spoilt]


@dataclass(kw_only=True, eq=False)
class Making:
    """One list, the post between the silos, and what the input does to it.

    Args:
        reader: the input.
        victim: whose post is changed.
    """

    reader: Reader
    victim: int
    history: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        place = ListContext(roster=_WORLD.roster, study=STUDY, session=SESSION, number=_NUMBER)
        self.mixers = {
            index: Mixer(keys=_WORLD.keys[index], index=index, list_context=place, counts=_COUNTS)
            for index in _SILOS
        }

    def play(self) -> None:
        """All phases; whoever finishes has the list of all others who finish."""
        keys = self._phase(lambda _, one: one.key())
        commits = self._phase(lambda i, one: one.commit(self._post(i, keys)))
        published = self._phase(lambda i, one: one.submit(self._post(i, commits)))
        self._look({i: each.names for i, each in published.items()})
        forms = {i: each.forms for i, each in published.items()}
        for turn in _SILOS:
            forms = self._turn(turn, forms)
        self._agrees(self._phase(lambda _, one: one.finish()))

    def _turn(self, turn: int, forms: Mapping[int, bytes]) -> dict[int, bytes]:
        """One silo mixes, and all look at it."""
        mixed = self._phase(lambda i, one: one.mix(self._post(i, forms)), (turn,))[turn]
        self._look({turn: mixed.names})
        return {turn: mixed.forms}

    def _look(self, names: Mapping[int, bytes]) -> None:
        """Everybody looks at what was published, and all compare."""
        seen = self._phase(lambda i, one: one.look(self._post(i, names)))
        self._phase(lambda i, one: one.agree(self._post(i, seen)) or True)

    def _phase(
        self, of: Callable[[int, Mixer], _Result], silos: tuple[int, ...] = _SILOS
    ) -> dict[int, _Result]:
        """What every silo makes of a phase; a refusal ends the list."""
        results = {}
        for index in silos:
            try:
                results[index] = of(index, self.mixers[index])
            except ProtocolError:
                self._stays_refused(self.mixers[index])
        if len(results) < len(silos):
            self._open()
        return results

    def _stays_refused(self, one: Mixer) -> None:
        """No phase can be called after one that refused."""
        for phase in (one.key, one.finish, lambda: one.look([]), lambda: one.mix([])):
            try:
                phase()
            except ProtocolError:
                continue
            hold(False, "a phase after a refusal")

    def _open(self) -> None:
        """Somebody complains, perhaps in other words, and all who are asked give up their key."""
        complaint = edited(self.reader, _WORLD, self.mixers[self.victim].complain())
        for one in self.mixers.values():
            with suppress(ProtocolError):
                opened = one.give_up(complaint)
                hold(opened[1] == Tag.MIX_OPENED, "another answer than the key")
        raise _RefusedError

    def _agrees(self, owned: dict[int, Owned]) -> None:
        """One list, with a place of its own for each token."""
        hold(len({one.tokens.digest for one in owned.values()}) == 1, "two lists")
        places = [place for one in owned.values() for place in one.positions.tolist()]
        hold(sorted(places) == list(range(sum(_COUNTS))), "not a place for each token")
        complaint = _WORLD.forge(self.victim, Tag.MIX_COMPLAINT, round=_NUMBER)
        for one in self.mixers.values():
            try:
                one.give_up(complaint)
            except ProtocolError:
                continue
            hold(False, "a key of a list that is finished")

    def _post(self, index: int, frames: Mapping[int, bytes]) -> list[bytes]:
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
        if kind <= 1:
            post[place] = edited(self.reader, _WORLD, post[place])
        elif kind == 2:
            post.append(edited(self.reader, _WORLD, post[place]))
        elif kind == 3:
            post[0], post[place] = post[place], post[0]
        elif kind == 4:
            post[place] = self.reader.one_of(self.history)
        else:
            del post[place]
