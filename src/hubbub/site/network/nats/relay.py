"""Where the relay is, as URLs that all mean TLS; and in words, why it cannot be reached."""

from __future__ import annotations

import binascii
import hashlib
import re
import socket
import ssl
from base64 import b32encode
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID

from hubbub.core.disk import PRIVATE, write_bytes
from hubbub.core.errors import HubbubError, StudyError, UserError, printable
from hubbub.core.protocol.primitives.identity import Identity, Keys

CONNECT_SECONDS = 5.0
_PORTS = {"tls": 4222, "wss": 443}
_MOST_WORDS = 120  # characters
_HOST = re.compile(r"[\w.-]+|[0-9A-Fa-f:.]+(%\w+)?")
_DISPUTED = frozenset("ßς\u200c\u200d")  # IDNA 2003 and 2008 make different names of these
ROUTES = 2000  # above a server's port is where the others of its cluster reach it: 6222 for 4222


@dataclass(frozen=True, kw_only=True)
class Relay:
    """Where the relay is."""

    urls: tuple[str, ...]  # of one server, or of those of a cluster
    # SHA-256 of its public key; a public CA vouches if none.
    pin: bytes = field(default=b"", repr=False)
    name: str | None = None  # in its certificate, where the URL has another

    @classmethod
    def of(cls, text: str, pin: bytes = b"") -> Relay:
        """The relay with these URLs, separated by commas."""
        if "@" in text:  # of the whole text: a password may hold a comma
            raise _no_url("one with credentials; leave them out, a relay wants none")
        return cls(urls=tuple(_url(word.strip()) for word in text.split(",")), pin=pin)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Of all servers."""
        return tuple(urlsplit(url).hostname or "" for url in self.urls)

    @property
    def routes(self) -> tuple[str, ...]:
        """Host and port at which the servers of a cluster meet; none where there is one alone."""
        places = [url.partition("://")[2].rpartition(":") for url in self.urls]
        routes = tuple(f"{host}:{int(port) + ROUTES}" for host, _, port in places)
        return routes if len(routes) > 1 else ()

    @property
    def port(self) -> int:
        """Of the first server."""
        return urlsplit(self.urls[0]).port or 0

    def near(self, pin: bytes) -> Relay:
        """The first server as it is reached on its own machine; with no pin, by its name."""
        url = f"{'wss' if self.web else 'tls'}://127.0.0.1:{self.port}"
        return Relay(urls=(url,), pin=pin, name=None if pin else self.hosts[0])

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
        host, port = parts.hostname or "", parts.port or _PORTS.get(scheme)
        if not _HOST.fullmatch(host):
            raise ValueError("no host")
        # A host's name as certificates and resolvers have it.
        host = host if ":" in host else host.encode("idna").decode()
        if port and scheme in _PORTS and not (parts.query + parts.fragment + parts.path.strip("/")):
            return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
    raise _no_url("another text; fix the URL")


def _no_url(found: str) -> UserError:
    return UserError(f"expected the relay as tls://HOST:PORT or wss://HOST, got {found}")


def reason(error: BaseException | None, relay: Relay, *, was_up: bool = False) -> str:
    """Why there is no line, in a sentence; or no more, if it was up."""
    if isinstance(error, HubbubError):  # of a proxy, or of who answers at the relay's URL
        return str(error)
    where = ", ".join(relay.urls)
    while inner := getattr(error, "certificate_error", None) or getattr(error, "os_error", None):
        error = inner  # a WebSocket's
    words = printable(str(error))[:_MOST_WORDS]  # a relay may say anything
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
        return f"{where} closed the connection"
    if error is None or "EOF" in words or isinstance(error, ConnectionError):
        return f"{where} closed the connection, as it does if it does not know a key"
    return f"{where}: {words or type(error).__name__}"


# How parties are called at the relay: their transport keys as NATS writes them, and subjects.
#
# NATS writes an Ed25519 key as base32 of one byte for its kind, the key, and CRC-16 (XMODEM).

_USER, _SEED = 20 << 3, 18 << 3


def nkey_of(party: Identity) -> str:
    """A party's transport key as text."""
    if not party.transport:
        raise StudyError(
            f"expected a transport key of {party.name} in the roster, got none; have it make its "
            "keys with hubbub keygen"
        )
    return _text(bytes((_USER,)) + party.transport)


def nkey_of_seed(seed: bytes) -> str:
    """The public half of 32 private bytes, as text."""
    public = Ed25519PrivateKey.from_private_bytes(seed).public_key()
    return _text(bytes((_USER,)) + public.public_bytes_raw())


def text_of_seed(seed: bytes) -> str:
    """32 private bytes as text; it is a secret."""
    return _text(bytes((_SEED | _USER >> 5, (_USER & 31) << 3)) + seed)


def seed_of(keys: Keys) -> str:
    """The private half of a party's transport key."""
    return text_of_seed(keys.secret_parts()["transport"])


def asked_of(party: Identity) -> str:
    """Where a party is asked."""
    return f"hubbub.{nkey_of(party)}.asked"


def answers_of(party: Identity) -> str:
    """Where it answers."""
    return f"hubbub.{nkey_of(party)}.answers"


def _text(whole: bytes) -> str:
    check = binascii.crc_hqx(whole, 0).to_bytes(2, "little")
    return b32encode(whole + check).decode().rstrip("=")


# The relay's certificate: made and renewed where the relay runs, recognised everywhere else.
#
# Where no public CA vouches for it, the roster holds the SHA-256 of its public key. So it can be
# renewed with the same key, and no roster changes. Its dates are checked in either case.

CERTIFICATE, KEY = "relay.pem", "relay.key"
TELL_DAYS = 30  # before it expires, people are told
_DAYS, _RENEW_DAYS = 365, 90
_DER = 2  # of `_ssl`
_MOST_NAME = 80  # characters of an issuer's
# OpenSSL's codes for what RFC 5280 asks of a CA, as to name its key: VERIFY_X509_STRICT, which is
# on from Python 3.13.
_STRICT = range(80, 94)
_NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hubbub relay")])


@dataclass(frozen=True, kw_only=True)
class RelayCertificate:
    """A certificate and its key, as files."""

    path: Path
    key: Path

    @classmethod
    def found(cls, folder: Path) -> RelayCertificate:
        """The certificate in a folder."""
        certificate = cls(path=folder / CERTIFICATE, key=folder / KEY)
        if not certificate.path.is_file() or not certificate.key.is_file():
            raise UserError(
                f"expected the relay's certificate and key as {certificate.path.resolve()} and "
                f"{certificate.key.name} beside it, found none; put them there, or name a relay "
                "that runs with --relay"
            )
        return certificate

    @classmethod
    def made(cls, folder: Path, *hosts: str) -> RelayCertificate:
        """The certificate in a folder, made or renewed if need be; its key stays the same."""
        certificate = cls(path=folder / CERTIFICATE, key=folder / KEY)
        if not certificate.key.is_file():
            private = ec.generate_private_key(ec.SECP256R1()).private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            write_bytes(certificate.key, private, mode=PRIVATE)
        if not certificate.path.is_file() or certificate.days_left < _RENEW_DAYS:
            write_bytes(certificate.path, _signed(certificate.key, hosts))
        return certificate

    @property
    def pin(self) -> bytes:
        """SHA-256 of the public key."""
        return pin_of(self._read)

    @property
    def days_left(self) -> float:
        """Days until it expires."""
        return (self._read.not_valid_after_utc - datetime.now(UTC)) / timedelta(days=1)

    @property
    def ours(self) -> bool:
        """Whether it was made here, and signed with its own key."""
        return self._read.issuer == _NAME

    @property
    def notice(self) -> str:
        """What people should know of its dates; empty if nothing."""
        left = self.days_left
        if left > TELL_DAYS:
            return ""
        ends = f"{self._read.not_valid_after_utc:%Y-%m-%d}"
        return f"the certificate {self.path} " + (
            f"expires in {left:.0f} days, on {ends}; renew it" if left > 0 else f"expired on {ends}"
        )

    @property
    def _read(self) -> x509.Certificate:
        try:
            return x509.load_pem_x509_certificate(self.path.read_bytes())
        except (OSError, ValueError) as error:
            raise UserError(
                f"expected a certificate in {self.path}, got: {error}; check the file"
            ) from None


def pin_of(certificate: x509.Certificate) -> bytes:
    """SHA-256 of a certificate's public key."""
    key = certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(key).digest()


def client_context(pin: bytes) -> RelayContext:
    """TLS 1.3 with a server of this key or, if it is empty, one that a public CA vouches for."""
    context = RelayContext(ssl.PROTOCOL_TLS_CLIENT)
    context.pin = pin
    if pin:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # `_Compared` checks instead
    else:
        context.load_default_certs()
        context.verify_flags |= ssl.create_default_context().verify_flags
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def check(certificate: bytes | None, pin: bytes) -> None:
    """Refuse a server's certificate that is not the roster's, or not of today."""
    try:
        read = x509.load_der_x509_certificate(certificate or b"")
    except ValueError:
        raise _refused("expected a certificate of the relay, got other bytes") from None
    if pin_of(read) != pin:
        described = f"{pin_of(read).hex()[:16]}, {_about(read)}"
        raise _refused(f"expected the relay's key {pin.hex()[:16]} of the roster, got {described}")
    now = datetime.now(UTC)
    if not read.not_valid_before_utc - timedelta(days=1) <= now <= read.not_valid_after_utc:
        dates = f"{read.not_valid_before_utc:%F} to {read.not_valid_after_utc:%F}"
        raise _refused(
            f"expected the relay's certificate to be valid today, it is from {dates}; renew it "
            "there with hubbub relay, or set this clock"
        )


def _about(certificate: x509.Certificate) -> str:
    """Who has issued a certificate that is not believed, as it says itself."""
    names = {one.oid: str(one.value) for one in certificate.issuer}
    issuer = names.get(NameOID.COMMON_NAME) or names.get(NameOID.ORGANIZATION_NAME) or "nobody"
    issuer = "".join(filter(str.isprintable, issuer))[:_MOST_NAME]
    return (
        f"in a certificate issued by {issuer!r}; if a proxy here inspects TLS under that name, "
        "have it leave this host alone"
    )


def _refused(why: str) -> ssl.SSLError:
    return ssl.SSLError(ssl.SSL_ERROR_SSL, why)


def _unbelieved(shown: bytes, error: ssl.SSLCertVerificationError) -> str:
    """Why a certificate is not that of a relay for which a public CA vouches."""
    if error.verify_code in _STRICT:
        return (
            "expected a CA and certificates that keep RFC 5280, which Python 3.13 and later insist "
            f"on, got: {error.verify_message}; have whoever runs the CA make its certificate and "
            "the relay's anew with key identifiers and the uses of the key"
        )
    said = "expected the relay's certificate from a CA that this machine trusts, got: "
    said += error.verify_message
    with suppress(ValueError):
        return f"{said}, {_about(x509.load_der_x509_certificate(shown))}"
    return said


class _Compared(ssl.SSLObject):
    """A connection that is used only after its server's key was compared."""

    def do_handshake(self) -> None:
        context = self.context
        assert isinstance(context, RelayContext)  # noqa: S101 (which makes it)
        try:
            super().do_handshake()
        except ssl.SSLCertVerificationError as error:
            # The certificate that was shown and not believed, DER; public from Python 3.13 on.
            sent = self._sslobj.get_unverified_chain() or []  # type: ignore[attr-defined]
            context.shown = bytes(sent[0].public_bytes(_DER)) if sent else b""
            raise _refused(_unbelieved(context.shown, error)) from None
        context.shown = self.getpeercert(binary_form=True) or b""
        if context.pin:
            check(context.shown, context.pin)


class RelayContext(ssl.SSLContext):
    """Makes such connections; `shown` is the last certificate that one of them was shown."""

    sslobject_class = _Compared
    pin: bytes = b""
    shown: bytes = b""


def _signed(key: Path, hosts: Sequence[str]) -> bytes:
    """A certificate of hosts, signed with its own key."""
    private = serialization.load_pem_private_key(key.read_bytes(), None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)  # noqa: S101 (made here)
    now, names = datetime.now(UTC), x509.SubjectAlternativeName([_named(host) for host in hosts])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_NAME)
        .issuer_name(_NAME)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=_DAYS))
        .add_extension(names, critical=False)
    )
    return certificate.sign(private, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _named(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
