"""One collection, fed frames in any order, changed and signed anew by whoever they claim to be of.

An input is a list of moves, most of them honest. Laws: a party refuses with a `ProtocolError` and
is then as it was before; a node promises one SET, of the quorum at least, and tells a total once
all nodes have promised it; a sum that opens is that of the vectors of its set.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fuzz.frames import edited
from fuzz.reading import Reader, hold
from hubbub.core.errors import ProtocolError
from hubbub.site.collected.collection_frames import Deposited, Opening
from hubbub.site.collected.collector import Collector
from hubbub.site.collected.node import CollectionNode, NodeState
from protocol.collection_world import Collection, collection, digest

_MOST_MOVES = 30
_LOOK, _FIX, _PROMISE, _TELL, _TAKE, _OPEN = range(6)  # the moves
_KEPT: list[Collection] = []


def check(data: bytes) -> None:
    """One input."""
    reader, game = Reader(data), Game()
    for _ in range(_MOST_MOVES):
        if not reader.more:
            break
        game.move(reader)


def seeds() -> list[bytes]:
    """An honest collection, and those in which frames are changed at each move."""
    honest = bytes([_FIX, 0, 0, _PROMISE, 0, 0, 0, _PROMISE, 1, 0, 0, _TELL, 0, 0, _TELL, 1, 0])
    looks = bytes([_LOOK, 0, 0, 0, _LOOK, 1, 0, 0])
    takes = b"".join(bytes([_TAKE, place, 0]) for place in range(12))
    changed = [
        bytes([move, 0, 1, kind, 1, 3, 0]) + honest
        for move in range(6)
        for kind in (0, 3, 6, 8, 9, 13)
    ]
    return [honest, looks + honest + takes, takes + honest + takes, *changed]


def _world() -> Collection:
    """Keys and deposits, made once: of the same collection all are good."""
    if not _KEPT:
        made = collection(3, 2, quorum=2)
        hold(len(made.node_keys) == len(made.nodes), "a node without a key")
        made.__dict__["sent"] = {silo: made.deposit(silo) for silo in made.silos}
        _KEPT.append(made)
    return _KEPT[0]


@dataclass(eq=False)
class Game:
    """One collection while it is played."""

    c: Collection = field(default_factory=_world)
    states: dict[int, NodeState] = field(init=False)
    fixed: bytes = b""
    promises: dict[int, bytes] = field(default_factory=dict)
    totals: dict[int, bytes] = field(default_factory=dict)
    collector: Collector = field(init=False)

    def __post_init__(self) -> None:
        self.states = dict(self.c.states)
        self.collector = self.c.collector_with_keys()

    @property
    def sent(self) -> dict[int, Deposited]:
        """What the silos have sent."""
        return self.c.__dict__["sent"]  # type: ignore[no-any-return]

    def move(self, reader: Reader) -> None:
        """One move."""
        kind, place = reader.number() % 6, reader.number()
        node = self.c.nodes[place % len(self.c.nodes)]
        moves: dict[int, Callable[[], Any]] = {
            _LOOK: lambda: self._look(reader, node),
            _FIX: lambda: self._fix(reader, place),
            _PROMISE: lambda: self._promise(reader, node),
            _TELL: lambda: self._tell(reader, node),
            _TAKE: lambda: self._take(reader, place),
            _OPEN: lambda: Opening.read(
                self.c.place, self._changed(reader, self.c.collect), self._all(reader)
            ),
        }
        before = dict(self.states)
        try:
            moves[kind]()
        except ProtocolError:
            hold(before == self.states, "a refusal leaves a trace")

    def _changed(self, reader: Reader, frame: bytes) -> bytes:
        return edited(reader, self.c.w, frame)

    def _all(self, reader: Reader) -> list[bytes]:
        return [self._changed(reader, one) for one in self.c.node_keys]

    def _heads(self, reader: Reader) -> list[bytes]:
        return [self._changed(reader, one.deposit) for one in self.sent.values()]

    def _look(self, reader: Reader, node: int) -> None:
        part: CollectionNode = self.c.node(node)
        part.look(self.states[node], self._all(reader), self._heads(reader))

    def _fix(self, reader: Reader, _place: int) -> None:
        self.fixed = self._changed(reader, self.c.set_of(self.sent))

    def _promise(self, reader: Reader, node: int) -> None:
        before = self.states[node]
        fixed = self._changed(reader, self.fixed or self.c.set_of(self.sent))
        after = CollectionNode.promised(
            self.c.node(node), before, self.c.node_keys, fixed, self._heads(reader)
        )
        hold(not before.promise or after is before, "two promises of one collection")
        hold(digest(after.fixed) == after.promise[74:106], "a promise of another set")
        count = int.from_bytes(after.fixed[106:107], "big").bit_count()
        hold(count >= self.c.numbers.quorum, "a promise below the quorum")
        self.states[node], self.promises[node] = after, after.promise

    def _tell(self, reader: Reader, node: int) -> None:
        shown = [self._changed(reader, one) for one in self.promises.values()]
        after = CollectionNode.told(
            self.c.node(node), self.states[node], self.c.node_keys, self._heads(reader), shown
        )
        said = {one[74:106] for one in self.promises.values()}
        hold(len(self.promises) == len(self.c.nodes), "a total before all have promised")
        hold(said == {digest(after.fixed)}, "a total of a set that not all have promised")
        hold(after.secret is None, "a key after its total")
        self.states[node], self.totals[node] = after, after.total

    def _take(self, reader: Reader, place: int) -> None:
        silo = self.c.silos[place % len(self.c.silos)]
        one = self.sent[silo]
        found = Deposited(
            deposit=self._changed(reader, one.deposit), vector=self._changed(reader, one.vector)
        )
        Collector.take_deposit(self.collector, found)
        kept = self.collector.deposits.values()
        hold(found in kept or len(kept) > 0, "taken and not kept")
        if self.fixed and len(self.totals) == len(self.c.nodes):
            self._sum()

    def _sum(self) -> None:
        for one in self.sent.values():
            self.collector.take_deposit(one)
        self.collector.take_set(self.states[self.c.nodes[0]].fixed)
        for one in self.promises.values():
            self.collector.take_promise(one)
        for one in self.totals.values():
            self.collector.take_total(one)
        wanted = [sum(10**silo for silo in self.collector.named)] * self.c.numbers.dimension
        kept = {silo: self.sent[silo] for silo in self.collector.named}
        if all(self.collector.deposits[silo] == one for silo, one in kept.items()):
            hold(self.collector.integers().tolist() == wanted, "another sum than that of its set")
