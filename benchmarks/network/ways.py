"""Ways to the relay on which something can happen: TCP on the loopback, handed on here."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum

_CHUNK = 1 << 16


class Fault(StrEnum):
    """What happens to a way."""

    CUT = "cut"  # connections end, and new ones end at once
    HELD = "held"  # nothing passes; afterwards it goes on where it was
    DEAD = "dead"  # nothing passes; afterwards only connections that are made then live


class Ways:
    """Ways to one port of the loopback, on a thread of their own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._ways: list[Way] = []
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="ways")
        self._thread.start()

    def stop(self) -> None:
        """End all of them."""

        async def ended() -> None:
            for way in self._ways:
                way.close()
            await asyncio.sleep(0.05)  # transports close some turns later
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._loop.stop()

        asyncio.run_coroutine_threadsafe(ended(), self._loop)
        self._thread.join(10.0)
        self._loop.close()

    def to(self, port: int) -> Way:
        """A new way there."""
        way = Way(port, self._loop)
        asyncio.run_coroutine_threadsafe(way.listen(), self._loop).result()
        self._ways.append(way)
        return way


class Way:
    """One way; see `Fault`."""

    def __init__(self, to: int, loop: asyncio.AbstractEventLoop) -> None:
        self._to, self._loop = to, loop
        self._fault: Fault | None = None
        self._free = asyncio.Event()
        self._free.set()
        self._life = 0  # connections of an earlier one are dead
        self._near: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def listen(self) -> None:
        """Begin."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """End, and all connections with it."""
        self._server.close()
        for one in self._near:
            one.transport.abort()

    def happen(self, fault: Fault) -> None:
        """From now on nothing passes."""
        self._call(lambda: self._begun(fault))

    def end(self) -> None:
        """It is as before."""
        self._call(self._ended)

    def _call(self, work: Callable[[], None]) -> None:
        done = threading.Event()
        self._loop.call_soon_threadsafe(lambda: (work(), done.set()))
        done.wait(10.0)

    def _begun(self, fault: Fault) -> None:
        self._fault = fault
        self._free.clear()
        self._life += fault is Fault.DEAD
        if fault is Fault.CUT:
            for one in self._near:
                one.transport.abort()

    def _ended(self) -> None:
        self._fault = None
        self._free.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._fault is Fault.CUT:
            writer.transport.abort()
            return
        self._near.add(writer)
        life = self._life
        with suppress(OSError):
            await self._free.wait()
            back, far = await asyncio.open_connection("127.0.0.1", self._to)
            there = asyncio.create_task(self._hand_on(reader, far, life))
            here = asyncio.create_task(self._hand_on(back, writer, life))
            with suppress(asyncio.CancelledError):
                # Whoever is dead says nothing; that its end has gone is heard all the same.
                await asyncio.wait((there, here), return_when=asyncio.FIRST_COMPLETED)
            for task in (there, here):
                task.cancel()
            far.transport.abort()
        self._near.discard(writer)
        writer.transport.abort()

    async def _hand_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, life: int
    ) -> None:
        """What is read is written, while this connection lives."""
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                await self._free.wait()
                if life == self._life:
                    writer.write(data)
                    await writer.drain()
