"""A party's loop: requests from its line to its endpoint, one at a time, and answers back.

A request that was answered is answered with the same bytes when it comes again, never anew: they
are kept while memory allows, by the request's hash. Requests without parts look alike, such as that
for a sign of life: those are told apart by their numbers too.
"""

from __future__ import annotations

import hashlib
import queue
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hubbub.core.protocol.primitives.identity import Keys
from hubbub.site.network.clock import Clock
from hubbub.site.network.engine import MOST_BYTES
from hubbub.site.network.envelope import is_bare
from hubbub.site.network.nats.address import Relay
from hubbub.site.network.nats.message_delivery import Message
from hubbub.site.network.nats.relay_connection import RelayConnection, Told
from hubbub.site.network.nats.subjects import answers_of, asked_of, seed_of

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
