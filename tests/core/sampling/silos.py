"""Silos that make a list over a network that a test may play: every message passes one function.

A network is a function of (phase, step, sender, receiver, frame) that returns what is delivered, or
None. Silos 1 to 4 have 3, 2, 3 and 1 records.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hubbub.core.protocol.primitives.identity import Roster
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import HEADER_BYTES, SIGNATURE_BYTES, Tag
from hubbub.core.protocol.token_lists.mixer import Mixer
from hubbub.core.protocol.token_lists.onion_layers import Executor, in_this_thread
from hubbub.core.protocol.token_lists.token_list import ListContext, Owned, Publication, parted
from hubbub.core.protocol.token_lists.verdict import PublishedFrames
from protocol.parties import fixed_keys

STUDY = hashlib.sha256(b"a study with tokens").digest()
SESSION = bytes(range(16))
COUNTS = (3, 2, 3, 1)
KEYS = [
    fixed_keys("aggregator", "aggregator"),
    *(fixed_keys(f"silo-{n}", "silo") for n in range(1, 5)),
]
ROSTER = Roster.of(KEYS)
Network = Callable[[str, int, int, int, bytes], bytes | None]


def list_context(number: int = 0) -> ListContext:
    return ListContext(roster=ROSTER, study=STUDY, session=SESSION, number=number)


def mixer(index: int, number: int = 0, **changes: SecureSource) -> Mixer:
    return Mixer(
        keys=KEYS[index],
        index=index,
        list_context=list_context(number),
        counts=COUNTS,
        **changes,
    )


def payload_of(frame: bytes) -> bytes:
    return frame[HEADER_BYTES:-SIGNATURE_BYTES]


def input_of(frame: bytes) -> tuple[bytes, bytes]:
    """The names in a MIX_NAMES of step 0, and the statements of the commits."""
    own, told = parted(payload_of(frame), len(COUNTS))
    return bytes(own), bytes(told)


def signed(sender: int, tag: Tag, step: int, payload: bytes, number: int = 0) -> bytes:
    """A frame with a true signature, whatever it claims."""
    return list_context(number).sealed(KEYS[sender], sender, tag, step, payload)


def honest(phase: str, step: int, sender: int, receiver: int, frame: bytes) -> bytes:
    """The network that delivers what was sent."""
    return frame


@dataclass
class Play:
    """A list in the making; what was delivered to silo `referee` is the evidence."""

    network: Network = honest
    number: int = 0
    labours: Mapping[int, Executor] = field(default_factory=dict)
    mixers: dict[int, Mixer] = field(default_factory=dict)
    referee: int = 4
    step: int = 0
    published: dict[int, Publication] = field(default_factory=dict)
    keys: list[bytes] = field(default_factory=list)
    names: list[list[bytes]] = field(default_factory=list)
    forms: dict[int, list[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.mixers = {i: self.mixers.get(i) or mixer(i, self.number) for i in ROSTER.silos}

    def make(self) -> dict[int, Owned]:
        self.make_until_submitted()
        return self.mix_all()

    def make_until_submitted(self) -> None:
        silos = self.mixers
        keys = {i: one.key() for i, one in silos.items()}
        commits = {
            i: one.commit(self._to(i, "key", keys), self.labours.get(i, in_this_thread))
            for i, one in silos.items()
        }
        self.published = {i: one.submit(self._to(i, "commit", commits)) for i, one in silos.items()}
        self.keys = self._to(self.referee, "key", keys)

    def mix_all(self) -> dict[int, Owned]:
        self._look()
        for turn, one in self.mixers.items():
            forms = {i: each.forms for i, each in self.published.items()}
            self.published = {turn: one.mix(self._to(turn, "forms", forms))}
            self.step = turn
            self._look()
        return {i: one.finish() for i, one in self.mixers.items()}

    def opened(self, complainer: int) -> tuple[bytes, list[bytes]]:
        complaint = self.mixers[complainer].complain()
        return complaint, [one.give_up(complaint) for one in self.mixers.values()]

    def evidence(self) -> PublishedFrames:
        return PublishedFrames(
            list_context=list_context(self.number),
            counts=COUNTS,
            keys=self.keys,
            names=self.names,
            forms=self.forms,
        )

    def _look(self) -> None:
        names = {i: one.names for i, one in self.published.items()}
        forms = {i: one.forms for i, one in self.published.items()}
        self.names.append(self._to(self.referee, "names", names))
        self.forms[self.step] = self._to(self.referee, "forms", forms)
        seen = {i: one.look(self._to(i, "names", names)) for i, one in self.mixers.items()}
        for i, one in self.mixers.items():
            one.agree(self._to(i, "seen", seen))

    def _to(self, receiver: int, phase: str, frames: Mapping[int, bytes]) -> list[bytes]:
        through = (self.network(phase, self.step, i, receiver, f) for i, f in frames.items())
        return [frame for frame in through if frame is not None]


def only(
    phase: str,
    step: int,
    sender: int,
    change: Callable[[bytes], bytes | None],
    to: Sequence[int] = tuple(ROSTER.silos),
) -> Network:
    """The network that changes what one sender says in one step, for some receivers."""

    def network(now: str, at: int, who: int, receiver: int, frame: bytes) -> bytes | None:
        there = (now, at, who) == (phase, step, sender) and receiver in to
        return change(frame) if there else frame

    return network


def pieces(payload: bytes, size: int) -> list[bytes]:
    return [payload[at : at + size] for at in range(0, len(payload), size)]
