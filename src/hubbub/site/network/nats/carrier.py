"""The aggregator's phases over a line: one message to each party at a time, and their answers.

Several studies have phases at once. A party answers one request after the other, so each party has
a queue here: the next phase's request leaves when the one before was answered, or is waited for no
more, and only then its time begins to run. Messages are numbered by the clock, so that those of an
aggregator that was started again are newer than those before. A party that has said goodbye is not
waited for.
"""

from __future__ import annotations

import hashlib
import math
import queue
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from hubbub.core.errors import HubbubError
from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.site.network.envelope import MOST_BYTES, Missing, is_bare
from hubbub.site.network.nats.message_delivery import Message
from hubbub.site.network.nats.relay import Relay, answers_of, asked_of, seed_of
from hubbub.site.network.nats.relay_connection import RelayConnection, Told
from hubbub.site.network.waiting import Clock

_LEFT = "it has left"
_LOOK = 1.0  # seconds between looks whether a request has left its queue
_STOPPED = 5.0  # seconds by which a look is late where this process, or its machine, stood still


class EndedError(HubbubError):
    """The process was told to end: nobody is asked any more."""


@dataclass(kw_only=True, eq=False)
class Asked:
    """What a phase wants of one party."""

    blob: bytes = field(repr=False)
    digest: bytes = field(repr=False)
    most: int  # bytes of its answer
    seconds: float  # that it may take once it is asked
    arrived: queue.SimpleQueue[tuple[str, bytes | Missing]] = field(repr=False)
    number: int = 0
    end: float = math.inf  # it is waited for no more then; never while it is in the queue


class Carrier:
    """Carries phases, of several threads."""

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
            twice=self._see_twice,
        )
        self._twice: list[Callable[[str], None]] = []
        self._number = time.time_ns()
        self._lock = threading.Lock()  # over the queues, and what is sent of them
        self._queues: dict[str, deque[Asked]] = defaultdict(deque)  # the first is being asked
        self._ended = False

    def __enter__(self) -> Carrier:
        self._line.start()
        return self

    def __exit__(self, *_: Any) -> None:
        with self._lock:
            self._ended = True
            for party, waiting in self._queues.items():
                for asked in waiting:
                    asked.arrived.put((party, Missing(why="this process ends", here=True)))
        self._line.stop()

    def phase(
        self,
        name: str,
        requests: Mapping[str, bytes],
        deadline: float,
        largest_answer: Callable[[str], int] = lambda _: MOST_BYTES,
    ) -> Iterator[tuple[str, bytes | Missing]]:
        """See `Phase`; `largest_answer` is from its name to the bytes that an answer may have."""
        if self._ended:
            raise EndedError("expected to go on, this process was told to end; serve again")
        arrived: queue.SimpleQueue[tuple[str, bytes | Missing]] = queue.SimpleQueue()
        most = largest_answer(name)
        digests = {id(blob): hashlib.sha256(blob).digest() for blob in requests.values()}
        waiting = {
            party: Asked(
                blob=blob, digest=digests[id(blob)], most=most, seconds=deadline, arrived=arrived
            )
            for party, blob in requests.items()
        }
        every = dict(waiting)
        for party, asked in waiting.items():
            if self._line.present(party) is False:
                arrived.put((party, Missing(why=_LEFT)))
            else:
                self._queue(party, asked)
        try:
            while waiting:
                began = self._clock.now()
                wait = min(asked.end for asked in waiting.values()) - began
                try:
                    party, answer = self._clock.take(arrived, min(wait, _LOOK))
                except queue.Empty:
                    self._allow_for_pause(waiting, began)
                    now = self._clock.now()
                    for party in sorted(p for p, asked in waiting.items() if asked.end <= now):
                        self._settle(party, waiting.pop(party))
                        here = bool(self._line.why)
                        yield party, Missing(why=self._line.missing(party), here=here)
                else:
                    self._allow_for_pause(waiting, began)
                    if waiting.pop(party, None) is not None:
                        yield party, answer
        finally:
            for party, asked in every.items():
                self._settle(party, asked)

    def _allow_for_pause(self, waiting: Mapping[str, Asked], began: float) -> None:
        """Give parties longer where this process stood still, as nobody could answer meanwhile.

        Args:
            waiting: what parties are asked.
            began: when a look began that was to take `_LOOK` at most.
        """
        took = self._clock.now() - began
        if took > _LOOK + _STOPPED:
            with self._lock:
                for asked in waiting.values():
                    asked.end += took

    def _queue(self, party: str, asked: Asked) -> None:
        """Ask a party once its turn comes."""
        with self._lock:
            self._queues[party].append(asked)
            if len(self._queues[party]) == 1:
                self._send(party)

    def _send(self, party: str) -> None:
        """Ask a party what is first in its queue."""
        asked = self._queues[party][0]
        self._number += 1
        asked.number, asked.end = self._number, self._clock.now() + asked.seconds
        self._line.send(party, asked.number, asked.blob, asked.digest, asked.most)

    def _settle(self, party: str, asked: Asked) -> None:
        """Nothing is wanted any more of what a party was asked, or would have been."""
        with self._lock:
            waiting = self._queues[party]
            is_first = waiting and waiting[0] is asked
            if asked in waiting:
                waiting.remove(asked)
            if not waiting:
                self._line.settle(party)
            elif is_first:
                self._send(party)

    @contextmanager
    def hearing_twice(self, tell: Callable[[str], None]) -> Iterator[None]:
        """Somebody is told meanwhile, on the line's thread, who takes part in two processes."""
        self._twice.append(tell)
        try:
            yield
        finally:
            self._twice.remove(tell)

    def _see_twice(self, name: str) -> None:
        for tell in [*self._twice]:
            tell(name)

    def _take(self, name: str, message: Message | None) -> None:
        """What comes of a party, on the line's thread."""
        with self._lock:
            waiting = self._queues[name]
            if message is None:
                for asked in waiting:
                    asked.arrived.put((name, Missing(why=_LEFT)))
                waiting.clear()
            elif waiting and waiting[0].number == message.number:
                waiting.popleft().arrived.put((name, message.data))
                if waiting:
                    self._send(name)


# A party's loop: requests from its line to its endpoint, one at a time, and answers back.
#
# A request that was answered is answered with the same bytes when it comes again, never anew: they
# are kept while memory allows, by the request's hash. Requests without parts look alike, such as
# that for a sign of life: those are told apart by their numbers too.

_KEPT_BYTES = 1 << 25
_AGGREGATOR = "aggregator"


class KeptAnswers(dict[bytes, bytes]):
    """The newest answers, up to so many bytes; the last one however large."""

    def keep(self, key: bytes, answer: bytes, most: int = _KEPT_BYTES) -> None:
        """Keep an answer, and of older ones what there is room for."""
        self[key] = answer
        while len(self) > 1 and sum(map(len, self.values())) > most:
            del self[next(iter(self))]


class Answering:
    """A party at its line.

    Args:
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
