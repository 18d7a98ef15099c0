"""The HTTP proxy on the way to a relay, and the credentials that it may ask for.

The credentials are in a type of their own, which shows them to nobody but the proxy: an address has
none, whoever names it, and what cannot be read as one is quoted in no error. They come with the
proxy's URL in the environment, or from a file that others cannot read.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
import stat
import sys
from asyncio.sslproto import SSLProtocol
from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from hubbub.core.disk import read_text
from hubbub.core.errors import HubbubError, UserError
from hubbub.site.network.nats.relay import RelayContext

VARIABLE = "HUBBUB_PROXY_CREDENTIALS"  # names a file with USER:PASSWORD
_PORTS = {"http": 80, "https": 443}
_MOST_BYTES = 1 << 12
_SCHEMES = ("Negotiate", "NTLM", "Kerberos", "Digest", "Basic")
_CHALLENGE = re.compile(rf"(?:^|,)\s*({'|'.join(_SCHEMES)})\b", re.IGNORECASE)
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::(?P<port>\d{1,5}))?")


class Credentials:
    """A user and a password, not percent-encoded, of which nothing shows but to the proxy."""

    __slots__ = ("_whole",)

    def __init__(self, user: str, password: str) -> None:
        self._whole = f"{user}:{password}"

    def __repr__(self) -> str:
        return "Credentials()"

    def __reduce__(self) -> str:
        raise TypeError("expected credentials to stay in this process, got an order to copy them")

    def headers(self) -> dict[str, str]:
        """What the proxy is sent with CONNECT (RFC 7617)."""
        return {"Proxy-Authorization": f"Basic {b64encode(self._whole.encode()).decode()}"}


@dataclass(frozen=True, kw_only=True)
class Proxy:
    """Where the proxy is; as text, without credentials."""

    scheme: str
    host: str
    port: int
    credentials: Credentials | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"

    @classmethod
    def to(cls, url: str) -> Proxy | None:
        """The environment's proxy for a relay's URL; None where it is reached without one.

        As with curl, HTTPS_PROXY is for HTTPS, which a WebSocket begins as, and ALL_PROXY for all
        else: of that, an HTTP proxy alone is meant here.
        """
        named, proxies = urlsplit(url), getproxies()
        kind = "https" if named.scheme == "wss" else "all"
        text = proxies.get(kind, "")
        if kind == "all" and not text.lower().startswith(("http://", "https://")):
            return None
        if not text or proxy_bypass(f"{named.hostname}:{named.port or 443}"):
            return None
        return cls.of(text, os.environ.get(VARIABLE), f"{kind.upper()}_PROXY")

    @classmethod
    def of(cls, text: str, file: str | None = None, variable: str = "HTTPS_PROXY") -> Proxy:
        """The proxy in a URL, with or without a scheme, and with the credentials of a file if any.

        All before the last @ is credentials, also where it should have been percent-encoded.

        Raises:
            UserError: it is none; nothing of the text is quoted.
        """
        scheme, mark, rest = text.strip().partition("://")
        if not mark or "@" in scheme:  # without a scheme, a password may hold anything
            scheme, rest = "http", text.strip()
        given, _, place = rest.rpartition("@")
        address = _ADDRESS.fullmatch(re.split(r"[/?#]", place)[0])
        scheme = scheme.lower()
        port = int((address and address["port"]) or _PORTS.get(scheme, 0))
        if address is None or scheme not in _PORTS or not 0 < port < 1 << 16:
            raise UserError(
                f"expected {variable} as http://HOST:PORT or http://USER:PASSWORD@HOST:PORT, got "
                "another text, which may hold a password and is not shown; fix it"
            )
        user, _, password = given.partition(":")
        credentials = Credentials(unquote(user), unquote(password)) if given else None
        return cls(
            scheme=scheme,
            host=address["host"],
            port=port,
            credentials=credentials if file is None else _read(Path(file)),
        )

    def connect(self, url: str) -> bytes:
        """What it is asked, to reach a relay's URL (RFC 9110, 9.3.6)."""
        where = urlsplit(url).netloc
        told = self.credentials.headers() if self.credentials else {}
        lines = [f"CONNECT {where} HTTP/1.1", f"Host: {where}"]
        lines += [f"{name}: {value}" for name, value in told.items()]
        return "\r\n".join([*lines, "", ""]).encode()

    def refused(self, status: int, url: str, challenges: Iterable[str] = ()) -> str:
        """What an answer to CONNECT means, in a sentence without a word of the proxy's own."""
        where = urlsplit(url).netloc
        schemes = {one.lower() for line in challenges for one in _CHALLENGE.findall(line)}
        if status == 407 and schemes and "basic" not in schemes:
            wanted = " or ".join(name for name in _SCHEMES if name.lower() in schemes)
            return (
                f"the proxy {self} requires {wanted} (407), which hubbub does not support; run "
                "cntlm or px on this machine, which do, and name that as the proxy"
            )
        if status == 407:
            given = "other credentials than it was given" if self.credentials else "credentials"
            return (
                f"the proxy {self} wants {given} (407); put USER:PASSWORD into a file, and name "
                f"that with {VARIABLE}"
            )
        return f"the proxy {self} answers {status} to CONNECT {where}; have it permitted"


def _read(path: Path) -> Credentials:
    """The credentials in a file; its name is quoted nowhere, since some write them in its place."""
    try:
        open_to_all = path.stat().st_mode & stat.S_IRWXO
        user, mark, password = read_text(path, most=_MOST_BYTES).rstrip("\n").partition(":")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "no text"
    else:
        if mark and user and not open_to_all and (user + password).isprintable():
            return Credentials(user, password)
        why = "one that others can read; chmod o= it" if open_to_all else "something else in it"
    raise UserError(
        f"expected {VARIABLE} to name a file with one line USER:PASSWORD, for its owner and group "
        f"alone, got: {why}"
    )


# What the client library has no option for: proxies, watched sockets, ends, no WebSocket.

_DEAD_SECONDS = 9  # in which the other end's system acknowledges nothing
_CONTROL_BYTES = 1 << 13  # of a line that is no message
_NEXT_ADDRESS_SECONDS = 0.25
_MOST_FRAME = 1 << 27  # bytes; the server has no more waiting for a party, see its `max_pending`


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


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


def tcp(url: str) -> Any:
    """A transport to this very address, through the environment's proxy for it if there is one.

    Of a name's addresses, the next is tried when one is silent for a moment: where nothing comes
    back over IPv6, IPv4 does.
    """
    from nats.aio.transport import TcpTransport

    proxy, named = Proxy.to(url), urlsplit(url)

    class Reached(TcpTransport):
        async def connect(self, uri: Any, buffer_size: int, connect_timeout: int) -> None:
            async with asyncio.timeout(connect_timeout):
                if proxy is None:
                    host, port = named.hostname or "", named.port or 0
                    streams = await _opened(host, port, limit=buffer_size)
                else:
                    streams = await _through(proxy, url, buffer_size)
            self._bare_io_reader, self._bare_io_writer = streams
            self._io_reader, self._io_writer = streams

        def __bool__(self) -> bool:  # else the library makes another
            return True

    return Reached()  # type: ignore[no-untyped-call]


async def _opened(host: str, port: int, **options: Any) -> Streams:
    return await asyncio.open_connection(
        host, port, happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS, **options
    )


async def _through(proxy: Proxy, url: str, buffer_size: int) -> Streams:
    """A connection on which a proxy has answered that it leads to a relay."""
    tls = ssl.create_default_context() if proxy.scheme == "https" else None
    host = proxy.host.strip("[]")
    try:
        reader, writer = await _opened(host, proxy.port, limit=buffer_size, ssl=tls)
    except OSError as error:
        raise RefusedAddressError(unreachable(proxy, error)) from None
    try:
        writer.write(proxy.connect(url))
        head = await reader.readuntil(b"\r\n\r\n")
        status, challenges = _read_answer(head)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError, ValueError):
        writer.transport.abort()
        said = f"the proxy {proxy} answers CONNECT with no HTTP; name the right one"
        raise RefusedAddressError(said) from None
    if status // 100 != 2:
        writer.transport.abort()
        raise RefusedAddressError(proxy.refused(status, url, challenges))
    return reader, writer


def _read_answer(head: bytes) -> tuple[int, list[str]]:
    """The status of an answer to CONNECT, and what stands in its `Proxy-Authenticate`."""
    first, *lines = head.decode("latin-1").split("\r\n")
    version, status, *_ = first.split(" ", 2)
    if not version.startswith("HTTP/1."):
        raise ValueError("no HTTP")
    named = [line.partition(":") for line in lines]
    return int(status), [rest for name, _, rest in named if name.lower() == "proxy-authenticate"]


def unreachable(proxy: Proxy, error: OSError) -> str:
    """Why a proxy cannot be reached, in a sentence."""
    why = "" if isinstance(error, ssl.SSLError) else error.strerror
    return f"the proxy {proxy} cannot be reached: {why or type(error).__name__}"


async def web_socket(url: str, context: RelayContext) -> Any:
    """A WebSocket to this very address, through the environment's HTTPS proxy if there is one."""
    import aiohttp
    import multidict
    from nats.aio import transport

    transport.aiohttp, transport.multidict = aiohttp, multidict  # see `without_web`
    proxy, watched = Proxy.to(url), aiohttp.TraceConfig()
    watched.on_request_redirect.append(_refuse_redirect)
    line = transport.WebSocketTransport()
    await line._client.close()  # noqa: SLF001 (its session knows no proxies, and no option)
    line._client = aiohttp.ClientSession(trace_configs=[watched])  # noqa: SLF001

    async def connect_tls(*_: Any, **__: Any) -> None:
        """As the library's, but for the proxy; an error of aiohttp may quote what was sent to it.

        What is raised instead is raised when that error is gone: nothing of it is in its context.
        """
        if not line._ws:  # noqa: SLF001
            said = await _connected(aiohttp, line, url, proxy, context)
            if said:
                raise RefusedAddressError(said)

    line.connect_tls = connect_tls  # type: ignore[method-assign]
    return line


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
        told = error.headers.getall("Proxy-Authenticate", []) if error.headers else []
        return proxy.refused(error.status, url, told) if proxy else ""
    except aiohttp.ClientProxyConnectionError as error:
        return unreachable(proxy, error.os_error) if proxy else ""
    except aiohttp.ClientResponseError as error:
        return f"{url} answers {error.status}, which is no relay's WebSocket; name the right URL"
    made._using_tls = True  # noqa: SLF001
    return ""


async def _refuse_redirect(*_: Any) -> None:
    raise RefusedAddressError(
        "the relay's URL answers with another address, which is not followed; name the right one"
    )
