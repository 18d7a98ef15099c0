"""The aggregator's phase over a line: one message to each party, and their answers.

Messages are numbered by the clock, so that those of an aggregator that was started again are newer
than those before. A party that has said goodbye is not waited for.
"""

from __future__ import annotations

import hashlib
import queue
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.site.network.clock import Clock
from hubbub.site.network.engine import MOST_BYTES, Missing
from hubbub.site.network.nats.address import Relay
from hubbub.site.network.nats.message_delivery import Message
from hubbub.site.network.nats.relay_connection import RelayConnection, Told
from hubbub.site.network.nats.subjects import answers_of, asked_of, seed_of

_LEFT = "it has left"


class Carrier:
    """Carries phases.

    Args:
        relay: where the relay is.
        keys: the aggregator's.
        roster: everybody.
        told: told when the line comes up or goes down.
        clock: by which answers are waited for.

    Attributes:
        largest_answer: from a phase's name to the bytes that an answer in it may have.
        twice: told which party takes part in two processes, on the line's thread.
    """

    def __init__(
        self,
        relay: Relay,
        keys: Keys,
        roster: Roster,
        told: Told,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or Clock()
        ends = {party.name: (answers_of(party), asked_of(party)) for party in roster.parties[1:]}
        self._line = RelayConnection(
            relay,
            seed_of(keys),
            ends,
            replies=True,
            arrived=self._take,
            told=told,
            clock=self._clock,
            twice=self._is_twice,
        )
        self.largest_answer: Callable[[str], int] = lambda _: MOST_BYTES
        self.twice: Callable[[str], None] = lambda _: None
        self._number = time.time_ns()
        self._arrived: queue.SimpleQueue[tuple[str, bytes | Missing]] = queue.SimpleQueue()

    def __enter__(self) -> Carrier:
        self._line.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._line.stop()

    def phase(
        self, name: str, requests: Mapping[str, bytes], deadline: float
    ) -> Iterator[tuple[str, bytes | Missing]]:
        """See `Phase`."""
        self._number += 1
        arrived: queue.SimpleQueue[tuple[str, bytes | Missing]] = queue.SimpleQueue()
        self._arrived = arrived
        end, waiting = self._clock.now() + deadline, set(requests)
        most = self.largest_answer(name)
        digests = {id(blob): hashlib.sha256(blob).digest() for blob in requests.values()}
        for party, blob in requests.items():
            if self._line.present(party) is False:
                arrived.put((party, Missing(why=_LEFT)))
            else:
                self._line.send(party, self._number, blob, digests[id(blob)], most)
        try:
            while waiting:
                try:
                    party, answer = self._clock.take(arrived, end - self._clock.now())
                except queue.Empty:
                    break
                if party in waiting:
                    waiting.discard(party)
                    yield party, answer
            yield from ((one, Missing(why=self._line.missing(one))) for one in sorted(waiting))
        finally:
            for party in requests:
                self._line.settle(party)

    def _is_twice(self, name: str) -> None:
        self.twice(name)

    def _take(self, name: str, message: Message | None) -> None:
        """What comes of a party, on the line's thread."""
        if message is None:
            self._arrived.put((name, Missing(why=_LEFT)))
        elif message.number == self._number:
            self._arrived.put((name, message.data))
