"""Where the relay is, as URLs that all mean TLS; and in words, why it cannot be reached."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from hubbub.errors import UserError

CONNECT_SECONDS = 5.0
_PORTS = {"tls": 4222, "wss": 443}
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
        return cls(urls=tuple(_url(one.strip()) for one in text.split(",")), pin=pin)

    @property
    def host(self) -> str:
        """Of the first server."""
        return urlsplit(self.urls[0]).hostname or ""

    @property
    def hosts(self) -> tuple[str, ...]:
        """Of all servers."""
        return tuple(urlsplit(one).hostname or "" for one in self.urls)

    @property
    def routes(self) -> tuple[str, ...]:
        """Host and port at which the servers of a cluster meet; none where there is one alone."""
        named = [urlsplit(one) for one in self.urls] if len(self.urls) > 1 else []
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

    @property
    def web(self) -> bool:
        """Whether it is reached by WebSocket."""
        return self.urls[0].startswith("wss:")


def _url(text: str) -> str:
    """A URL with its scheme and its port; always TLS."""
    scheme, _, rest = text.rpartition("://")
    scheme = {"": "tls", "nats": "tls"}.get(scheme, scheme)
    try:
        parts = urlsplit(f"{scheme}://{rest}")
        port = parts.port or _PORTS[scheme]
        if not parts.hostname or parts.username or parts.query or parts.path.strip("/"):
            raise ValueError
    except (ValueError, KeyError):
        raise UserError(
            f"expected the relay as tls://HOST:PORT or wss://HOST, got {text[:200]!r}; fix the URL"
        ) from None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{scheme}://{host}:{port}"


def reason(error: BaseException | None, relay: Relay, *, was_up: bool = False) -> str:
    """Why there is no line, in a sentence; or no more, if it was up."""
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
