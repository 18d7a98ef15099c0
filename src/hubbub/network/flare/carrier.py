"""A phase over FLARE's Collab calls: one call to each site, all at once, until the deadline.

Collab hands the same arguments to all members of a group, so each site has a thread of its own. A
site that cannot be reached is not reported before the deadline. Freed memory is handed back now and
then, which the allocator would keep otherwise.
"""

from __future__ import annotations

import ctypes
import queue
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress

from nvflare.collab import collab
from nvflare.collab.api.context import set_call_context

from hubbub.errors import HubbubError
from hubbub.network.engine import Missing, Phase

_TRIM_EVERY = 20  # phases


class JobEndedError(HubbubError):
    """FLARE ends the job: an administrator's wish, or a failure of its own."""


def phase_over_collab() -> Phase:
    """The phase function inside a job's main.

    Raises:
        JobEndedError: from a phase, when the job is being ended.
    """
    context, phases = collab.context, 0

    def phase(
        _name: str, requests: Mapping[str, bytes], deadline: float
    ) -> Iterator[tuple[str, bytes | Missing]]:
        nonlocal phases
        phases += 1
        if phases % _TRIM_EVERY == 0:
            _give_memory_back()
        arrived: queue.SimpleQueue[tuple[str, bytes | Missing]] = queue.SimpleQueue()
        there = {proxy.name: proxy for proxy in collab.clients}
        end = time.monotonic() + deadline

        def ask(party: str, request: bytes) -> None:
            set_call_context(context)
            try:
                left = max(0.01, end - time.monotonic())
                found = there[party](timeout=left).answer(request)
            except Exception as error:  # noqa: BLE001 (whatever the engine says, there is no answer)
                arrived.put((party, Missing(why=f"the engine has none ({type(error).__name__})")))
                return
            seated = type(found) is bytes and found  # nothing comes from a worker that is starting
            arrived.put((party, found if seated else Missing(why="it is still starting")))

        waiting = set(requests)
        for party in requests.keys() - there.keys():
            waiting.discard(party)
            yield party, Missing(why="its site is not part of the job")
        for party in sorted(waiting):
            threading.Thread(target=ask, args=(party, requests[party]), daemon=True).start()
        while waiting:
            try:
                party, found = arrived.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                break
            waiting.discard(party)
            if isinstance(found, Missing):
                _check_going()
            yield party, found
        _check_going()
        yield from ((party, Missing()) for party in sorted(waiting))

    return phase


def _check_going() -> None:
    """Nobody is missing where the job is being ended: it is the engine that ends the calls."""
    if collab.is_aborted:
        raise JobEndedError("expected the job to go on, the engine is ending it")


def _give_memory_back() -> None:
    """Return what was freed to the system, where the C library can."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
