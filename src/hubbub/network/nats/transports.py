"""What the client library has no option for: proxies, watched sockets, ends, no WebSocket."""

from __future__ import annotations

import asyncio
import socket
import sys
from asyncio.sslproto import SSLProtocol
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from hubbub.errors import HubbubError
from hubbub.network.nats.proxy import Proxy
from hubbub.network.nats.tls import RelayContext

_DEAD_SECONDS = 9  # in which the other end's system acknowledges nothing
_CONTROL_BYTES = 1 << 13  # of a line that is no message
_MOST_FRAME = 1 << 27  # bytes; the server has no more waiting for a party, see its `max_pending`


class RefusedAddressError(HubbubError):
    """A proxy refuses to connect, or what is at a relay's URL is none; nothing they say is told."""


def watch(transport: Any) -> None:
    """Have the system end a connection whose other end is gone, where the system can do that."""
    web: Any = getattr(transport, "_ws", None)
    ours = (web or transport._bare_io_writer).get_extra_info("socket")  # noqa: SLF001
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", _DEAD_SECONDS // 3),
        ("TCP_KEEPINTVL", _DEAD_SECONDS // 3),
        ("TCP_KEEPCNT", 2),
        ("TCP_USER_TIMEOUT", 1000 * _DEAD_SECONDS),
    ):
        if (number := getattr(socket, option, None)) is not None:
            ours.setsockopt(socket.IPPROTO_TCP, number, value)


def limit(client: Any, most: int) -> None:
    """Have the line end where the server sends a message of more than so many bytes.

    The library keeps all of a message that the server announces, however large.
    """
    parser = client._ps  # noqa: SLF001 (there is no option for it)
    parse = parser.parse

    async def parsed(data: bytes = b"") -> None:
        await parse(data)
        if len(parser.buf) > most + _CONTROL_BYTES:
            raise ConnectionError("expected no message that large, got one")

    parser.parse = parsed


async def let_go(client: Any, seconds: float) -> None:
    """Close a client, and what is open of its connection even where that takes it too long.

    The library waits for whatever the other end does: TLS half a minute, a WebSocket ten seconds.
    """
    transport, connection = client._transport, None  # noqa: SLF001 (it shows it to nobody)
    session = getattr(transport, "_client", None)  # a WebSocket's; the library forgets it
    with suppress(AttributeError):  # there is none yet
        if session is None:
            connection = transport._bare_io_writer.transport  # noqa: SLF001
        else:
            connection = transport._ws._response.connection.transport  # noqa: SLF001
    try:
        with suppress(Exception):
            await asyncio.wait_for(client.close(), seconds)
    finally:  # also where the thread ends first
        with suppress(Exception):
            transport.close() if session is None else await session.close()
        if connection is not None:
            _abort(connection)


def _abort(connection: asyncio.Transport) -> None:
    """Close a socket at once."""
    protocol = connection.get_protocol()
    connection.abort()
    # Where TLS began over a connection that was lost already, nobody tells it so.
    if isinstance(protocol, SSLProtocol):
        protocol.connection_lost(None)


@contextmanager
def without_web() -> Iterator[None]:
    """Import the client without its WebSocket, which takes longer than all of the rest."""
    hidden = "aiohttp" not in sys.modules and "nats" not in sys.modules
    if hidden:
        sys.modules["aiohttp"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if hidden:
            del sys.modules["aiohttp"]


async def web_socket(url: str, context: RelayContext) -> Any:
    """A WebSocket to this very address, through the environment's HTTPS proxy if there is one.

    Raises:
        UserError: the environment's proxy cannot be used.
    """
    import aiohttp
    import multidict
    from nats.aio import transport

    transport.aiohttp, transport.multidict = aiohttp, multidict  # see `without_web`
    proxy, watched = Proxy.to(url), aiohttp.TraceConfig()
    watched.on_request_redirect.append(_refuse_redirect)
    made = transport.WebSocketTransport()
    await made._client.close()  # noqa: SLF001 (its session knows no proxies, and no option)
    made._client = aiohttp.ClientSession(trace_configs=[watched])  # noqa: SLF001

    async def connect_tls(*_: Any, **__: Any) -> None:
        """As the library's, but for the proxy; an error of aiohttp may quote what was sent to it.

        What is raised instead is raised when that error is gone: nothing of it is in its context.
        """
        if not made._ws:  # noqa: SLF001
            said = await _connected(aiohttp, made, url, proxy, context)
            if said:
                raise RefusedAddressError(said)

    made.connect_tls = connect_tls  # type: ignore[method-assign]
    return made


async def _connected(
    aiohttp: Any, made: Any, url: str, proxy: Proxy | None, context: RelayContext
) -> str:
    """Connect a WebSocket; what is wrong, if something on the way answers for the relay."""
    options: dict[str, Any] = {"proxy": str(proxy)} if proxy else {}
    if proxy and proxy.credentials:
        options["proxy_headers"] = proxy.credentials.headers()
    try:
        made._ws = await made._client.ws_connect(  # noqa: SLF001
            url, ssl=context, max_msg_size=_MOST_FRAME, **options
        )
    except aiohttp.ClientHttpProxyError as error:
        return proxy.refused(error.status, url) if proxy else ""
    except aiohttp.ClientProxyConnectionError as error:
        why = error.os_error.strerror or type(error.os_error).__name__
        return f"the proxy {proxy} cannot be reached: {why}"
    except aiohttp.ClientResponseError as error:
        return f"{url} answers {error.status}, which is no relay's WebSocket; name the right URL"
    made._using_tls = True  # noqa: SLF001
    return ""


async def _refuse_redirect(*_: Any) -> None:
    raise RefusedAddressError(
        "the relay's URL answers with another address, which is not followed; name the right one"
    )
