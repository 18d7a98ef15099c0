"""A party's connection to the relay, and each other party as it is heard and told over it.

Whoever means well sends next to nothing that nobody can use: a few words when a line is new, pieces
that were sent twice after a gap. So what is of no use is counted, and too much of it not heard.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import random
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from cryptography import x509

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.primitives.identity import Keys
from hubbub.site.network.envelope import MOST_BYTES
from hubbub.site.network.nats.message_delivery import (
    BEAT_SECONDS,
    LARGEST_PACKET,
    WINDOW,
    Message,
    MessageDelivery,
    Packet,
    PacketKind,
)
from hubbub.site.network.nats.relay import (
    CONNECT_SECONDS,
    Relay,
    client_context,
    reason,
    seed_of,
)
from hubbub.site.network.nats.transports import let_go, limit, tcp, watch, web_socket, without_web
from hubbub.site.network.waiting import Clock

UNHEARD_SECONDS = 2.0  # for which who sends too much is not heard
_WASTE, _WASTE_RATE = 512, 100.0  # packets of no use: at a time, and each second


@dataclass(kw_only=True)
class OtherEnd:
    """Another party, over the line."""

    hears: str  # its subject
    says: str  # the subject on which it is told
    link: MessageDelivery
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    unheard: bool = False  # nothing is taken in of it for now
    unknown: bool = False  # the relay has no such key in its roster
    subscription: Any = field(default=None, repr=False)
    told_twice: int = 0
    _allowed: float = _WASTE
    _counted: tuple[int, float] = (0, 0.0)

    def is_flooding(self, now: float) -> bool:
        """Whether more has come of no use than may; what is too much does not count for ever."""
        waste, at = self._counted
        self._counted = (self.link.waste, now)
        allowed = min(_WASTE, self._allowed + _WASTE_RATE * (now - at)) - (self.link.waste - waste)
        self._allowed = max(allowed, -_WASTE_RATE * UNHEARD_SECONDS / 2)
        return self._allowed < 0


# A party's one connection to the relay, outward, made again for as long as the party lives.
#
# It lives on a thread of its own. The client library connects once; what is lost is connected to
# again here, so that there is one rule for it. To each party at the other end there is a
# `MessageDelivery`, which knows what has come of what was sent.
#
# Who sends what nobody can use, faster than by accident, is not heard for a few seconds: the
# server is told so, and others are heard as before.

_PAUSES = (0.05, 2.0)  # seconds between tries: the first, the longest
_STEADY_SECONDS = 2.0  # a line that was up for less is one that failed
_MOST_REASONS = 8
_PING_SECONDS, _MOST_PINGS = 10, 2  # a dead line is noticed in 30 s
_TICK = 1.0
_UNKNOWN_SECONDS = 10.0  # until it is tried again to hear whom the relay did not know
_BYE_SECONDS = 1.0
_PENDING, _PENDING_PACKETS = 2 * WINDOW * LARGEST_PACKET, 1 << 11


# From a party's name, a message of it, or None when it leaves.
Arrived = Callable[[str, Message | None], None]
# Whether the line is up, and what is wrong if not.
Told = Callable[[bool, str], None]


class RelayConnection:
    """A connection to the relay.

    Args:
        seed: the party's transport key, as NATS writes it.
        ends: from the others' names, the subjects on which each is heard and told.
        replies: whether these ends answer, and do not ask.
        told: told when the line comes up, goes down, or cannot be had, on the line's thread.
        twice: told which end takes part in two processes, or says that this party does, once until
            a minute has passed without a sign of it, on the line's thread.
        most: bytes that a message may have which these ends send unasked, as things are.
    """

    def __init__(
        self,
        relay: Relay,
        seed: str,
        ends: Mapping[str, tuple[str, str]],
        *,
        replies: bool,
        arrived: Arrived,
        told: Told,
        clock: Clock | None = None,
        twice: Callable[[str], None] = lambda _: None,
        most: Callable[[], int] = lambda: MOST_BYTES,
    ) -> None:
        self._replies, self._most, self._twice = replies, most, twice
        self._relay, self._seed, self._clock = relay, seed, clock or Clock()
        self._arrived, self._told = arrived, told
        self._ends = {
            name: OtherEnd(hears=hears, says=says, link=MessageDelivery(replies=replies))
            for name, (hears, says) in ends.items()
        }
        self._context = client_context(relay.pin)
        self._loop = self._clock.loop()
        self._stopping = asyncio.Event()
        self._error: BaseException | None = None
        self._client: Any = None  # while the line is up
        self._closing: set[asyncio.Task[None]] = set()
        self._reasons: set[str] = set()  # why there is no line, as was told
        self._unhearing: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, daemon=True, name="line")
        self.why = "not connected yet"  # empty while the line is up

    @property
    def certificate(self) -> bytes:
        """The last one that the relay has shown, DER; none if empty."""
        return self._context.shown

    def start(self) -> None:
        """Begin to connect."""
        self._thread.start()

    def stop(self) -> None:
        """Say goodbye, and end."""
        if self._thread.is_alive():
            self._call(self._stopping.set)
            self._thread.join(3 * _BYE_SECONDS)
        elif not self._loop.is_closed():
            self._loop.close()

    def send(
        self, name: str, number: int, message: bytes, digest: bytes, most: int = MOST_BYTES
    ) -> None:
        """Send a message to somebody, in the place of the one before; `most` is of its answer."""

        def begin() -> None:
            end = self._ends[name]
            end.link.send(number, message, digest, self._clock.now(), most)
            end.wake.set()

        self._call(begin)

    def settle(self, name: str) -> None:
        """Nothing more is wanted of what was sent to somebody."""
        self._call(self._ends[name].link.settle)

    def present(self, name: str) -> bool | None:
        """Whether somebody is there; None if nothing was heard of them yet."""
        return self._ends[name].link.present

    def silence(self, name: str) -> float:
        """Seconds since somebody was last heard of."""
        return self._clock.now() - self._ends[name].link.heard

    def missing(self, name: str) -> str:
        """Why somebody does not answer, as far as can be seen from here."""
        if self.why:
            return f"no connection to the relay ({self.why})"
        if self._ends[name].unknown:
            return (
                "the relay does not know its key, so it has another roster than this party; find "
                "out which is newer, and run hubbub relay with it where the relay runs"
            )
        link = self._ends[name].link
        if link.present is not True:
            return "not connected yet" if link.present is None else "it has left"
        if self._ends[name].unheard:
            return "it sends so many unusable messages that it is ignored for now"
        if link.too_large:
            return f"its answer has {link.too_large:,} bytes, expected {link.most:,} at most"
        if (silence := self.silence(name)) > 2 * BEAT_SECONDS:
            return f"no answer in time; it has been silent for {silence:.0f} s"
        return "no answer in time"

    def _call(self, work: Callable[[], None]) -> None:
        """Have something done on the line's thread, unless it has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(work)

    def _run(self) -> None:
        """The thread."""
        for name in ("nats", "asyncio"):  # what they say of lost lines is for their developers
            logging.getLogger(name).setLevel(logging.CRITICAL)
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._live())

    async def _live(self) -> None:
        """Connect, again and again."""
        # Where there are several servers, parties spread over them.
        pause, turn = _PAUSES[0], random.randrange(len(self._relay.urls))  # noqa: S311 (no secret)
        while not self._stopping.is_set():
            try:
                client, lost = await self._connected(self._relay.urls[turn % len(self._relay.urls)])
            except Exception as error:  # noqa: BLE001 (whatever it was, it is tried again)
                self._down(reason(self._error or error, self._relay))
                turn += 1
            else:
                began = self._clock.now()
                await self._up(client, lost)
                if self._clock.now() - began > _STEADY_SECONDS:
                    pause = _PAUSES[0]
                    continue
            with suppress(TimeoutError):
                wait = pause * random.uniform(0.5, 1.0)  # noqa: S311 (no secret)
                await asyncio.wait_for(self._stopping.wait(), wait)
            pause = min(_PAUSES[1], 2 * pause)
        if self._closing:
            await asyncio.wait(self._closing, timeout=_BYE_SECONDS)
        await asyncio.sleep(0.25 if self._relay.web else 0)  # transports close some turns later

    async def _connected(self, url: str) -> tuple[Any, asyncio.Event]:
        """A client that is logged in; what is wrong is in `_error` or raised."""
        with without_web():
            from nats.aio.client import Client
            from nats.errors import SlowConsumerError
        client, lost, self._error = Client(), asyncio.Event(), None
        connecting = True

        async def failed(error: Exception) -> None:
            if isinstance(error, SlowConsumerError):
                return  # a packet is lost, as others are
            if (words := str(error).lower()).startswith("nats: permissions violation"):
                for end in self._ends.values():
                    end.unknown |= f'subscription to "{end.hears}"'.lower() in words
                return  # the line goes on
            self._error = error
            lost.set()
            if connecting:
                raise error  # else the library tries for ever, and nobody is told

        async def ended() -> None:
            lost.set()

        web = url.startswith("wss:")
        client._transport = await web_socket(url, self._context) if web else tcp(url)  # noqa: SLF001 (there is no option for it)
        try:
            await asyncio.wait_for(
                client.connect(
                    url,
                    error_cb=failed,
                    closed_cb=ended,
                    disconnected_cb=ended,
                    allow_reconnect=False,
                    connect_timeout=int(CONNECT_SECONDS),
                    tls=self._context,
                    tls_hostname=None if web else self._relay.name,
                    tls_handshake_first=True,
                    nkeys_seed_str=self._seed,
                    no_echo=True,
                    pending_size=1,  # what is published has left when it returns
                    ping_interval=_PING_SECONDS,
                    max_outstanding_pings=_MOST_PINGS,
                ),
                1.5 * CONNECT_SECONDS,
            )
            limit(client, LARGEST_PACKET)
            for name in self._ends:
                await self._subscribe(client, name)
            watch(client._transport)  # noqa: SLF001 (it shows its socket to nobody)
        except BaseException:
            self._abandon(client)
            raise
        finally:
            connecting = False
        return client, lost

    async def _up(self, client: Any, lost: asyncio.Event) -> None:
        """While the line is up."""
        for end in self._ends.values():
            end.link.connected()
            end.wake.set()
        self.why, self._client = "", client
        self._reasons.clear()
        self._told(True, "")
        sending = asyncio.Lock()
        pumps = [
            asyncio.create_task(self._pump(client, end, sending)) for end in self._ends.values()
        ]
        for pump in pumps:
            pump.add_done_callback(lambda _: lost.set())
        stopping = asyncio.create_task(self._stopping.wait())
        try_unknown = self._clock.now() + _UNKNOWN_SECONDS
        while client.is_connected and not any(task.done() for task in (*pumps, stopping)):
            now = self._clock.now()
            for end in self._ends.values():
                end.link.pass_time(now)
                end.wake.set()
            if now >= try_unknown:
                try_unknown = now + _UNKNOWN_SECONDS
                await self._hear_unknown(client)
            gone = asyncio.create_task(lost.wait())
            await asyncio.wait((gone, stopping), timeout=_TICK, return_when="FIRST_COMPLETED")
            gone.cancel()
            lost.clear()
        self._client = None
        for pump in pumps:
            pump.cancel()
        if stopping.done():
            with suppress(Exception):
                await asyncio.wait_for(self._goodbye(client), _BYE_SECONDS)
        else:
            stopping.cancel()
            self._down(reason(self._error, self._relay, was_up=True))
        self._abandon(client)

    async def _pump(self, client: Any, end: OtherEnd, sending: asyncio.Lock) -> None:
        """Send what is due, one packet at a time."""
        with suppress(Exception):  # the line is lost, which is seen elsewhere
            while self._client is client:
                await end.wake.wait()
                end.wake.clear()
                # The library swallows a cancellation: whoever is of an old line must take nothing.
                while self._client is client and (packet := end.link.due()) is not None:
                    async with sending:
                        await client.publish(end.says, packet.encoded())

    async def _goodbye(self, client: Any) -> None:
        for end in self._ends.values():
            await client.publish(end.says, Packet(kind=PacketKind.BYE).encoded())
        await client.flush()
        await client.close()

    async def _subscribe(self, client: Any, name: str) -> None:
        """Hear somebody."""
        end = self._ends[name]
        end.subscription = await client.subscribe(
            end.hears,
            cb=partial(self._hear, client, name),
            pending_bytes_limit=_PENDING,
            pending_msgs_limit=_PENDING_PACKETS,
        )
        end.unheard = end.unknown = False

    async def _hear_unknown(self, client: Any) -> None:
        """Try again to hear those whom the relay did not know: it may have another roster now."""
        for name, end in self._ends.items():
            if end.unknown:
                with suppress(Exception):  # the line is lost, which is seen elsewhere
                    await end.subscription.unsubscribe()
                    await self._subscribe(client, name)
                    end.link.connected()
                    end.wake.set()

    async def _unhear(self, client: Any, name: str) -> None:
        """Have the server send nothing more of somebody, for a while."""
        end = self._ends[name]
        with suppress(Exception):  # the line is lost, which is seen elsewhere
            await end.subscription.unsubscribe()
            await asyncio.sleep(UNHEARD_SECONDS)
            if self._client is client:
                await self._subscribe(client, name)
                end.link.connected()
                end.wake.set()

    async def _hear(self, client: Any, name: str, message: Any) -> None:
        """Whatever comes on somebody's subject."""
        end, now = self._ends[name], self._clock.now()
        if end.unheard or self._client not in (client, None):
            return
        if not self._replies:
            end.link.most = self._most()
        was_there, kind, heard = end.link.present, None, None
        try:
            packet = Packet.read(message.data)
        except ProtocolError:  # as if it had been lost
            end.link.waste += 1
        else:
            kind, heard = packet.kind, end.link.hear(packet, now)
        end.wake.set()
        if end.is_flooding(now):
            end.unheard = True
            task = asyncio.create_task(self._unhear(client, name))
            self._unhearing.add(task)
            task.add_done_callback(self._unhearing.discard)
        if end.link.twice != end.told_twice:
            end.told_twice = end.link.twice
            self._twice(name)
        if heard is not None or (kind is PacketKind.BYE and was_there is not False):
            self._arrived(name, heard)

    def _abandon(self, client: Any) -> None:
        """Close a client in its own time."""
        task = asyncio.ensure_future(let_go(client, _BYE_SECONDS))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _down(self, why: str) -> None:
        """Tell why there is no line: each reason once, and a few, until there is one again."""
        self.why = why
        if why not in self._reasons and len(self._reasons) < _MOST_REASONS:
            self._reasons.add(why)
            self._told(False, why)


# Whether the servers of a relay would take a party, found out by logging in and leaving.
#
# Nothing is subscribed to and nothing published: a process of the same party that takes part is not
# disturbed, and nobody else hears of it.

_SECONDS = 7.0  # with the time to end, ten


@dataclass(frozen=True, kw_only=True)
class LoginTrial:
    """What came of a log-in."""

    url: str
    why: str  # it failed; empty if it did not
    certificate: x509.Certificate | None  # as it was shown, believed or not


def tried(relay: Relay, keys: Keys) -> list[LoginTrial]:
    """Log in to each server with a party's transport key, and leave, within ten seconds."""
    with ThreadPoolExecutor(len(relay.urls)) as pool:
        servers = [replace(relay, urls=(url,)) for url in relay.urls]
        return list(pool.map(partial(logged_in, seed=seed_of(keys)), servers))


def logged_in(relay: Relay, seed: str) -> LoginTrial:
    """Log in to a relay's one server with a key, as NATS writes it, and leave."""
    (url,) = relay.urls
    outcomes: queue.SimpleQueue[str] = queue.SimpleQueue()
    line = RelayConnection(
        relay,
        seed,
        {},
        replies=False,
        arrived=lambda *_: None,
        told=lambda _, why: outcomes.put(why),
    )
    line.start()
    try:
        why = outcomes.get(timeout=_SECONDS)
    except queue.Empty:
        why = f"no answer from {url} within {_SECONDS:g} s"
    finally:
        line.stop()
    certificate = None
    with suppress(ValueError):
        certificate = x509.load_der_x509_certificate(line.certificate)
    return LoginTrial(url=url, why=why, certificate=certificate)
