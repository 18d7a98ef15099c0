"""The HTTP proxy on the way to a relay, and the credentials that it may ask for.

The credentials are in a type of their own, which shows them to nobody but the proxy: an address has
none, whoever names it, and what cannot be read as one is quoted in no error. They come with the
proxy's URL in the environment, or from a file that others cannot read.
"""

from __future__ import annotations

import os
import re
import stat
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from hubbub.core.disk import read_text
from hubbub.core.errors import UserError

VARIABLE = "HUBBUB_PROXY_CREDENTIALS"  # names a file with USER:PASSWORD
_PORTS = {"http": 80, "https": 443}
_MOST_BYTES = 1 << 12
_SCHEMES = ("Negotiate", "NTLM", "Kerberos", "Digest", "Basic")
_CHALLENGE = re.compile(rf"(?:^|,)\s*({'|'.join(_SCHEMES)})\b", re.IGNORECASE)
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::(?P<port>\d{1,5}))?")


class Credentials:
    """A user and a password, of which nothing shows but to the proxy.

    Args:
        user, password: as they are, not percent-encoded.
    """

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
    """Where the proxy is; as text, without credentials.

    Args:
        scheme, host, port: of its URL.
        credentials: none if None.
    """

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

        Raises:
            UserError: what the environment says cannot be used.
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
        """What an answer to CONNECT means, in a sentence without a word of the proxy's own.

        Args:
            status: of the answer.
            url: of the relay.
            challenges: what stands in its `Proxy-Authenticate`.
        """
        where = urlsplit(url).netloc
        schemes = {one.lower() for line in challenges for one in _CHALLENGE.findall(line)}
        if status == 407 and schemes and "basic" not in schemes:
            wanted = " or ".join(name for name in _SCHEMES if name.lower() in schemes)
            return (
                f"the proxy {self} wants {wanted} (407), of which hubbub speaks none; run cntlm or "
                "px on this machine, which do, and name that as the proxy"
            )
        if status == 407:
            given = "other credentials than it was given" if self.credentials else "credentials"
            return (
                f"the proxy {self} wants {given} (407); put USER:PASSWORD into a file, and name "
                f"that with {VARIABLE}"
            )
        return f"the proxy {self} answers {status} to CONNECT {where}; have it permit that"


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
