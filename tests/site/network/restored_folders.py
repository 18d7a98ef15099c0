"""Games against parties whose folders are set back: an adversary that kills, restores and replays.

In a collection the adversary is the aggregator: it asks whom it likes for what it likes, with any
frames that it has seen. It kills processes in the middle of their writes, and sets folders of silos
and nodes back to any image that it has taken, but those of one node. In sessions an honest
aggregator trains while the adversary does the same to the others and replays requests to them.
"""

from __future__ import annotations

import contextlib
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.primitives.wire import HEADER_BYTES, SIGNATURE_BYTES, Tag, unverified
from hubbub.core.session.ask import Call
from hubbub.site.collected.collection_frames import Deposit, Opening, read_deposit
from hubbub.site.network.envelope import Missing
from network.collected import Deaths, Killed, asking, dying
from network.consortium import HOSPITALS, Consortium
from network.relay import Relay, Watched
from network.test_collection_endpoints import NODES, Table, rows

HONEST = "node-2"  # whose folder is never set back
_QUORUM = 3


@dataclass
class Images:
    """Copies of parties' folders, as backups are.

    Args:
        parties: whose they are.
        kept: below which the copies are.
        chance: draws which is restored.
    """

    parties: Consortium
    kept: Path
    chance: random.Random
    taken: dict[str, list[Path]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def take(self, name: str) -> None:
        """Copy a folder as it is, in the middle of whatever its process does."""
        mine = self.taken.setdefault(name, [])
        mine.append(self.kept / f"{name}-{len(mine)}")
        shutil.copytree(self.parties.home / name, mine[-1])

    def restore(self, name: str) -> None:
        """Set a folder back to a copy of it, and start its process."""
        if name not in self.taken:
            return
        self.parties.stop(name)
        shutil.rmtree(self.parties.home / name)
        shutil.copytree(self.chance.choice(self.taken[name]), self.parties.home / name)
        if isinstance(self.parties, Watched):
            self.parties.paid.pop(name, None)  # which rows were seen, in a ledger that is gone
        self.parties.start(name)
        self.counts["restored"] += 1


@pytest.fixture
def deposits(
    monkeypatch: pytest.MonkeyPatch,
) -> list[tuple[int, bytes, bytes, Mapping[int, bytes]]]:
    """Of each deposit that is made: silo, Q, the noised sum, and the seeds."""
    found: list[tuple[int, bytes, bytes, Mapping[int, bytes]]] = []
    honest = Deposit.sealed

    def sealed(self: Deposit, residues: Any, seeds: Mapping[int, bytes]) -> Any:
        found.append((self.silo, self.opening.q, residues.tobytes(), seeds))
        return honest(self, residues, seeds)

    monkeypatch.setattr(Deposit, "sealed", sealed)
    return found


@dataclass
class CollectionGame:
    """One collection against everybody but a node.

    Args:
        home: an empty folder.
        seed: of all that the adversary draws.
    """

    home: Path
    seed: int
    table: Table = field(init=False)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        parties = Consortium.gather(self.home / "here", asking())
        self.table, self.images = Table(parties), Images(parties, self.home, self.chance)
        self.collects = [self.table.opening(until) for until in (1e6, 2e6)]
        self.keys: dict[tuple[bytes, str], list[bytes]] = {}  # by COLLECT and node
        self.heads: dict[str, list[bytes]] = {name: [] for name in HOSPITALS}
        self.sets: list[tuple[bytes, list[bytes], list[bytes]]] = []  # SET, DEPOSITs, the opening
        self.promises: dict[bytes, dict[str, bytes]] = {}  # by the SET's digest
        self.totals: dict[str, set[bytes]] = {name: set() for name in NODES}  # payloads
        self.half_done: set[str] = set()  # who died, and has answered nothing since

    def play(self, moves: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """So many moves, at each of which the laws hold."""
        kinds: dict[Callable[[], None], int] = {
            self.image: 4,
            self.restore: 2,
            self.kill: 2,
            self.ask_key: 5,
            self.ask_deposit: 9,
            self.fix: 4,
            self.ask_promise: 12,
            self.ask_total: 10,
        }
        deaths = Deaths(lambda _party, _side: self.chance.random() < 0.05)
        with dying(monkeypatch, deaths):
            for _ in range(moves):
                (move,) = self.chance.choices([*kinds], [*kinds.values()])
                move()
                self.check()
        self.counts += self.images.counts
        self.counts["killed"] += deaths.died.total()

    def check(self) -> None:
        """The totals that were ever told are of one set, each node's the same bytes."""
        told = {payload[-32:] for payloads in self.totals.values() for payload in payloads}
        assert len(told) <= 1, "totals of two sets of one collection"
        assert all(len(one) <= 1 for one in self.totals.values()), "two totals of one node"
        assert all(HONEST in self.promises[digest] for digest in told)
        if HONEST not in self.half_done and (self.kept(HONEST) / "total").exists():
            assert not (self.kept(HONEST) / "key").exists(), "a key after its total"

    def kept(self, name: str) -> Path:
        return self.table.parties.home / name / "collections" / self.table.id.hex()

    def asked(self, name: str, call: Call, *parts: bytes) -> list[bytes]:
        """What a party says; nothing if it refuses, or dies."""
        try:
            said = self.table.ask(name, call, *parts)
        except Killed:
            self.table.parties.start(name)
            self.half_done.add(name)
            return []
        if unverified(said[0]).tag is Tag.REFUSAL:
            return []
        self.half_done.discard(name)
        return said

    def image(self) -> None:
        self.images.take(self.chance.choice([one for one in (*HOSPITALS, *NODES) if one != HONEST]))

    def restore(self) -> None:
        self.images.restore(
            self.chance.choice([one for one in (*HOSPITALS, *NODES) if one != HONEST])
        )

    def kill(self) -> None:
        self.table.parties.start(self.chance.choice([*HOSPITALS, *NODES]))

    def collect(self) -> bytes:
        """Mostly the first COLLECT."""
        return self.collects[self.chance.random() < 0.05]

    def ask_key(self) -> None:
        collect, node = self.collect(), self.chance.choice(NODES)
        seen = self.keys.setdefault((collect, node), [])
        for frame in self.asked(node, Call.COLLECT_KEY, collect):
            seen.extend([frame] if frame not in seen else [])

    def opening(self) -> list[bytes]:
        """A COLLECT and a key of each node, mostly its newest; nothing while one is not known."""
        collect = self.collect()
        known = [self.keys.get((collect, node), []) for node in NODES]
        return [collect, *map(self._mostly_newest, known)] if all(known) else []

    def _mostly_newest(self, seen: list[Any]) -> Any:
        return seen[-1] if self.chance.random() < 0.9 else self.chance.choice(seen)

    def ask_deposit(self) -> None:
        parts, name = self.opening(), self.chance.choice(HOSPITALS)
        if not parts:
            return
        said = self.asked(name, Call.COLLECT_DEPOSIT, *parts)
        if said:
            assert len(rows(self.table.parties, name)) >= 1, "a deposit without a row"
            self.heads[name].extend([said[1]] if said[1] not in self.heads[name] else [])

    def fix(self) -> None:
        """A SET of some deposits for one opening, which the aggregator signs."""
        parts = self.opening()
        if not parts:
            return
        q = Opening.read(self.table.place, parts[0], parts[1:]).q
        fitting = {
            name: [one for one in heads if read_deposit(self.table.place, one).q == q]
            for name, heads in self.heads.items()
        }
        there = [name for name, heads in fitting.items() if heads]
        if len(there) < _QUORUM:
            return
        chosen = self.chance.sample(there, self.chance.randint(_QUORUM, len(there)))
        roster = self.table.place.roster
        heads = {i: fitting[n] for i in roster.silos if (n := roster.name(i)) in chosen}
        picked = {index: self.chance.choice(each) for index, each in heads.items()}
        digests = b"".join(unverified(one).digest for one in picked.values())
        payload = q + self.table.numbers.bitmap(picked) + digests
        frame = self.table.place.frame(Tag.SET, 0, payload)
        self.sets.append(
            (frame.sealed(self.table.parties.aggregator.keys), [*picked.values()], parts)
        )

    def ask_promise(self) -> None:
        if not self.sets:
            return
        fixed, heads, parts = self._mostly_newest(self.sets[:3])
        node = self.chance.choice(NODES)
        for frame in self.asked(node, Call.COLLECT_PROMISE, *parts, fixed, *heads):
            said = self.promises.setdefault(bytes(unverified(frame).payload), {})
            said[node] = frame
            self.counts["promises"] += 1
        mine = [digest for digest, said in self.promises.items() if HONEST in said]
        assert len(mine) <= 1, "two promises of a node that was not set back"

    def ask_total(self) -> None:
        if not self.promises:
            return
        fixed, heads, parts = self._mostly_newest(self.sets[:3])
        said = self.promises.get(unverified(fixed).digest, {})
        others = [one for each in self.promises.values() for one in each.values()]
        shown = [*said.values()] if self.chance.random() < 0.9 else others[: len(NODES)]
        node = self.chance.choice(NODES)
        for frame in self.asked(node, Call.COLLECT_TOTAL, *parts, *heads, *shown):
            self.totals[node].add(frame[HEADER_BYTES:-SIGNATURE_BYTES])
            self.counts["totals"] += 1


def check_fresh(deposits: list[tuple[int, bytes, bytes, Mapping[int, bytes]]]) -> None:
    """No noise and no seed is in two deposits."""
    noised = Counter((silo, residues) for silo, _, residues, _ in deposits)
    seeds = Counter(seed for _, _, _, each in deposits for seed in each.values())
    assert [one for one, times in (noised + seeds).items() if times > 1] == []  # type: ignore[operator]


@dataclass
class SessionGame:
    """A training among machines that are killed, set back, and asked again.

    Args:
        parties: whose answers are watched.
        kept: an empty folder.
        seed: of all that is drawn.
        spared: a party that is never set back.
    """

    parties: Watched
    kept: Path
    seed: int
    spared: str = ""
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.images = Images(self.parties, self.kept, self.chance)
        self.tape: list[tuple[str, bytes]] = []

    def phase(
        self, _name: str, requests: Mapping[str, bytes], _deadline: float
    ) -> Iterator[tuple[str, bytes | Missing]]:
        """Ask everybody, while things happen to some."""
        for party, blob in requests.items():
            self.tape.append((party, blob))
            self.happen(party)
            if self.chance.random() < 0.01:
                yield party, Missing(why="it is away")
            else:
                yield party, self.parties.answers(party)(blob)

    def happen(self, party: str) -> None:
        """Perhaps an image, a death, a restored folder, or an old request."""
        drawn = self.chance.random()
        if drawn < 0.03 and party != self.spared:
            self.images.take(party)
        elif drawn < 0.05:
            self.parties.start(party)
            self.counts["killed"] += 1
        elif drawn < 0.08 and party != self.spared:
            self.images.restore(party)
        elif drawn < 0.2:
            whom, old = self.chance.choice(self.tape)
            whom = whom if self.chance.random() < 0.9 else self.chance.choice([*self.parties.seats])
            with contextlib.suppress(ProtocolError):
                self.parties.answers(whom)(old)
            self.counts["replayed"] += 1

    @property
    def relay(self) -> Relay:
        return Relay(self.phase)
