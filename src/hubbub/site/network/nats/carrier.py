"""The aggregator's phase over a line: one message to each party, and their answers.

Messages are numbered by the clock, so that those of an aggregator that was started again are newer
than those before. A party that has said goodbye is not waited for.
"""

from __future__ import annotations

import hashlib
import queue
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.site.network.envelope import MOST_BYTES, Missing, is_bare
from hubbub.site.network.nats.message_delivery import Message
from hubbub.site.network.nats.relay import Relay, answers_of, asked_of, seed_of
from hubbub.site.network.nats.relay_connection import RelayConnection, Told
from hubbub.site.network.waiting import Clock

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


# A party's loop: requests from its line to its endpoint, one at a time, and answers back.
#
# A request that was answered is answered with the same bytes when it comes again, never anew: they
# are kept while memory allows, by the request's hash. Requests without parts look alike, such as
# that for a sign of life: those are told apart by their numbers too.

_KEPT_BYTES = 1 << 25
_AGGREGATOR = "aggregator"


class KeptAnswers:
    """The newest answers, up to so many bytes; the last one however large.

    Args:
        most: bytes.
    """

    def __init__(self, most: int = _KEPT_BYTES) -> None:
        self._most = most
        self._kept: OrderedDict[bytes, bytes] = OrderedDict()

    def get(self, key: bytes) -> bytes | None:
        """The answer to a request."""
        return self._kept.get(key)

    def keep(self, key: bytes, answer: bytes) -> None:
        """Keep an answer."""
        self._kept[key] = answer
        while len(self._kept) > 1 and sum(map(len, self._kept.values())) > self._most:
            self._kept.popitem(last=False)


class Answering:
    """A party at its line.

    Args:
        relay: where the relay is.
        keys: the party's.
        answer: from a request to an answer.
        told: told when the line comes up or goes down.
        left: told when the aggregator says goodbye.
        clock: by which its line is tried again.
        twice: told when another process takes part as this party.
        most: bytes that a request may have, as things are; asked on the line's thread.
        repeats: whether an answer to a request may be given again.
    """

    def __init__(
        self,
        relay: Relay,
        keys: Keys,
        answer: Callable[[bytes], bytes],
        told: Told,
        left: Callable[[], None],
        clock: Clock | None = None,
        twice: Callable[[], None] = lambda: None,
        most: Callable[[], int] = lambda: MOST_BYTES,
        repeats: Callable[[bytes], bool] = lambda _: True,
    ) -> None:
        me = keys.identity
        ends = {_AGGREGATOR: (asked_of(me), answers_of(me))}
        self._line = RelayConnection(
            relay,
            seed_of(keys),
            ends,
            replies=False,
            arrived=self._take,
            told=told,
            clock=clock,
            twice=lambda _: twice(),
            most=most,
        )
        self._answer, self._left, self._kept = answer, left, KeptAnswers()
        self._repeats = repeats
        self._requests: queue.Queue[Message] = queue.Queue(maxsize=1)  # the newest

    def __enter__(self) -> Answering:
        self._line.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._line.stop()

    @property
    def silence(self) -> float | None:
        """Seconds since the aggregator was last heard of; None if it is not known to be there."""
        return self._line.silence(_AGGREGATOR) if self._line.present(_AGGREGATOR) else None

    def step(self, seconds: float) -> bool:
        """Answer the newest request, if one comes within so many seconds; whether one came."""
        try:
            request = self._requests.get(timeout=seconds)
        except queue.Empty:
            return False
        key = request.digest
        if is_bare(request.data):
            key += request.number.to_bytes(8, "little")
        answer = self._kept.get(key)
        if answer is None or not self._repeats(request.data):
            answer = self._answer(request.data)
            self._kept.keep(key, answer)
        self._line.send(_AGGREGATOR, request.number, answer, hashlib.sha256(answer).digest())
        return True

    def _take(self, _name: str, message: Message | None) -> None:
        """What comes of the aggregator, on the line's thread."""
        if message is None:
            self._left()
            return
        with suppress(queue.Empty):  # nobody waits for the answer to an older one
            self._requests.get_nowait()
        self._requests.put_nowait(message)
