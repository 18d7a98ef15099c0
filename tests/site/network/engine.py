"""An engine without a network: parties that are functions of this process."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from hubbub.site.network.envelope import Missing, Phase

Answers = Callable[[bytes], bytes]


def in_process(seat_of: Callable[[str], Answers | None]) -> Phase:
    """Parties that are functions of this process, each asked on a thread of its own.

    Args:
        seat_of: from a party's name to what answers for it; None while nobody does.
    """

    def phase(
        _name: str, requests: Mapping[str, bytes], deadline: float
    ) -> Iterator[tuple[str, bytes | Missing]]:
        arrived: queue.SimpleQueue[tuple[str, bytes | Missing]] = queue.SimpleQueue()

        def ask(party: str, request: bytes) -> None:
            endpoint = seat_of(party)
            arrived.put((party, endpoint(request) if endpoint else Missing(why="it is not there")))

        for party, request in requests.items():
            threading.Thread(target=ask, args=(party, request), daemon=True).start()
        waiting, end = set(requests), time.monotonic() + deadline
        while waiting:
            try:
                party, found = arrived.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                yield from ((party, Missing()) for party in sorted(waiting))
                return
            waiting.discard(party)
            yield party, found

    return phase
