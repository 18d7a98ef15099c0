"""Where the relay is, as URLs that all mean TLS; and in words, why it cannot be reached."""

from __future__ import annotations

import re
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from hubbub.core.errors import HubbubError, UserError

CONNECT_SECONDS = 5.0
_PORTS = {"tls": 4222, "wss": 443}
_HOST = re.compile(r"[\w.-]+|[0-9A-Fa-f:.]+(%\w+)?")
_DISPUTED = frozenset("ßς\u200c\u200d")  # IDNA 2003 and 2008 make different names of these
_ROUTES = 2000  # above a server's port is where the others of its cluster reach it: 6222 for 4222


@dataclass(frozen=True, kw_only=True)
class Relay:
    """Where the relay is.

    Args:
        urls: of one server, or of those of a cluster.
        pin: SHA-256 of its public key; none where a public CA vouches for it.
        name: of the server in its certificate, where the URL has another.
    """

    urls: tuple[str, ...]
    pin: bytes = field(default=b"", repr=False)
    name: str | None = None

    @classmethod
    def of(cls, text: str, pin: bytes = b"") -> Relay:
        """The relay with these URLs, separated by commas.

        Raises:
            UserError: they are none.
        """
        if "@" in text:  # of the whole text: a password may hold a comma
            raise _no_url("one with credentials; leave them out, a relay wants none")
        return cls(urls=tuple(_url(word.strip()) for word in text.split(",")), pin=pin)

    @property
    def host(self) -> str:
        """Of the first server."""
        return urlsplit(self.urls[0]).hostname or ""

    @property
    def hosts(self) -> tuple[str, ...]:
        """Of all servers."""
        return tuple(urlsplit(url).hostname or "" for url in self.urls)

    @property
    def routes(self) -> tuple[str, ...]:
        """Host and port at which the servers of a cluster meet; none where there is one alone."""
        named = [urlsplit(url) for url in self.urls] if len(self.urls) > 1 else []
        return tuple(
            f"{one.netloc.rpartition(':')[0]}:{(one.port or 0) + _ROUTES}" for one in named
        )

    @property
    def route_port(self) -> int:
        """Where the first server is reached by the others."""
        return self.port + _ROUTES

    @property
    def port(self) -> int:
        """Of the first server."""
        return urlsplit(self.urls[0]).port or 0

    def near(self, pin: bytes) -> Relay:
        """The first server as it is reached on its own machine; with no pin, by its name."""
        url = f"{'wss' if self.web else 'tls'}://127.0.0.1:{self.port}"
        return Relay(urls=(url,), pin=pin, name=None if pin else self.host)

    @property
    def web(self) -> bool:
        """Whether it is reached by WebSocket."""
        return self.urls[0].startswith("wss:")


def _url(text: str) -> str:
    """A URL with its scheme and its port; always TLS. Nothing of a text that is none is quoted."""
    if _DISPUTED & {*text}:
        raise _no_url("a name that two standards spell differently; write it as xn--…")
    scheme, _, rest = text.rpartition("://")
    scheme = {"": "tls", "nats": "tls"}.get(scheme, scheme)
    with suppress(ValueError):
        parts = urlsplit(f"{scheme}://{rest}")
        host, port = _ascii(parts.hostname or ""), parts.port or _PORTS.get(scheme)
        if port and scheme in _PORTS and not (parts.query + parts.fragment + parts.path.strip("/")):
            return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
    raise _no_url("another text; fix the URL")


def _ascii(host: str) -> str:
    """A host's name as certificates and resolvers have it; ValueError if it can be none."""
    if not _HOST.fullmatch(host):
        raise ValueError("no host")
    return host if ":" in host else host.encode("idna").decode()


def _no_url(found: str) -> UserError:
    return UserError(f"expected the relay as tls://HOST:PORT or wss://HOST, got {found}")


def reason(error: BaseException | None, relay: Relay, *, was_up: bool = False) -> str:
    """Why there is no line, in a sentence; or no more, if it was up."""
    if isinstance(error, HubbubError):  # of a proxy, or of who answers at the relay's URL
        return str(error)
    where = ", ".join(relay.urls)
    while inner := getattr(error, "certificate_error", None) or getattr(error, "os_error", None):
        error = inner  # a WebSocket's
    words = str(error)
    if isinstance(error, ssl.SSLError):
        return getattr(error, "verify_message", "") or error.strerror or words
    if isinstance(error, ConnectionRefusedError):
        return f"nobody listens at {where}"
    if isinstance(error, socket.gaierror):
        return f"no address is known of {where}"
    if isinstance(error, TimeoutError):
        return f"no answer from {where} within {CONNECT_SECONDS:g} s"
    if "uthorization" in words:
        return f"the relay at {where} does not know this party's key: it has another roster"
    if was_up:
        return f"{where} has ended the connection"
    if error is None or "EOF" in words or isinstance(error, ConnectionError):
        return f"{where} has ended the connection, as it does with keys that it does not know"
    return f"{where}: {words or type(error).__name__}"
