"""What the client library has no option for: proxies, watched sockets, no WebSocket."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

_DEAD_SECONDS = 9  # in which the other end's system acknowledges nothing


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


async def proxied(url: str) -> Any:
    """A WebSocket that goes through the environment's HTTPS proxy, if there is one."""
    import aiohttp
    import multidict
    from nats.aio import transport

    transport.aiohttp, transport.multidict = aiohttp, multidict  # see `without_web`
    made = transport.WebSocketTransport()
    direct = proxy_bypass(urlsplit(url).hostname or "")
    if proxy := None if direct else getproxies().get("https"):
        await made._client.close()  # noqa: SLF001 (its session knows no proxies, and no option)
        made._client = aiohttp.ClientSession(proxy=proxy)  # noqa: SLF001
    return made
