"""Networks as hospitals have them: proxies of every kind, inspected TLS, balancers, IPv6."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from hubbub.site.network.nats.relay import Relay, client_context
from hubbub.site.network.nats.relay_connection import tried
from hubbub.site.network.nats.transports import Proxy as Address
from network import lines
from network.lines import NAMES, Relayed, asked, come, free_port, relayed, wait
from network.test_proxies import VARIABLES, basic

pytest.importorskip("nats", reason="needs the extra net")
MEMBERS = [name for name in NAMES if name != "aggregator"]
ISSUER = "Sankt Müller Web Gateway"


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy of this machine's."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module", params=["tls", "wss"])
def here(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Relayed]:
    with relayed(tmp_path_factory.mktemp("relay"), request.param) as found:
        yield found


def variable(here: Relayed) -> str:
    return "HTTPS_PROXY" if here.relay.web else "ALL_PROXY"


def carries(here: Relayed, relay: Relay) -> None:
    """All parties but the aggregator are there by this address, and answer."""
    parties = [here.party(name, relay=relay) for name in MEMBERS]
    carrier, _ = here.carrier()
    with carrier:
        come(carrier, *MEMBERS)
        big = bytes(1_000_000)
        assert asked(carrier, dict.fromkeys(MEMBERS, big)) == dict.fromkeys(MEMBERS, big)
    for party in parties:
        party.stop()


# Proxies with CONNECT --------------------------------------------------------------------------


@pytest.mark.slow
def test_both_schemes_go_through_a_proxy_with_a_password(
    here: Relayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = lines.Proxy(here.relay.port, connect=True, wants=basic("svc", "a:b"))
    monkeypatch.setenv(variable(here), f"http://svc:a:b@127.0.0.1:{proxy.port}")
    carries(here, here.relay)
    proxy.close()
    assert set(proxy.asked) == {f"CONNECT 127.0.0.1:{here.relay.port} HTTP/1.1"}


@pytest.mark.slow_cases("wss")
def test_a_line_through_a_proxy_that_is_cut_comes_back(
    here: Relayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = lines.Proxy(here.relay.port, connect=True)
    monkeypatch.setenv(variable(here), f"http://127.0.0.1:{proxy.port}")
    party = here.party("ann")
    wait(lambda: party.said == ["up"])
    proxy.cut()
    wait(lambda: party.said.count("up") == 2)
    party.stop()
    proxy.close()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "cannot be reached: Con"),
        (b"HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm=x\r\n", "wants credentials (407)"),
        (
            b"HTTP/1.1 407 No\r\nProxy-Authenticate: NTLM\r\nProxy-Authenticate: Negotiate\r\n",
            "requires Negotiate or NTLM (407), which hubbub does not support; run cntlm or px",
        ),
        (b"HTTP/1.1 403 No\r\n", "answers 403 to CONNECT 127.0.0.1:"),
    ],
    ids=["down", "basic", "ntlm", "forbids"],
)
def test_what_a_proxy_does_not_do_is_told(
    here: Relayed, monkeypatch: pytest.MonkeyPatch, answer: bytes | None, said: str
) -> None:
    with answering(answer and answer + b"Content-Length: 0\r\n\r\n") as port:
        monkeypatch.setenv(variable(here), f"http://127.0.0.1:{port}")
        [trial] = tried(here.relay, here.keys["ann"])
    assert f"the proxy http://127.0.0.1:{port} {said}" in trial.why


@contextmanager
def answering(answer: bytes | None) -> Iterator[int]:
    """A port that answers this to whatever comes; at which nobody listens, for None."""
    if answer is None:
        yield free_port()
        return
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    with listener.accept()[0] as near:
                        near.recv(4096)
                        near.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def test_what_is_no_proxy_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with relayed(tmp_path) as own, answering(b"SSH-2.0-OpenSSH_9.2\r\n\r\n") as port:
        monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{port}")
        [trial] = tried(own.relay, own.keys["ann"])
    assert "answers CONNECT with no HTTP" in trial.why


def test_which_variable_names_the_proxy_follows_the_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://one:1")
    assert Address.to("tls://hub.example:4222") is None
    monkeypatch.setenv("ALL_PROXY", "http://two:2")
    assert str(Address.to("tls://hub.example:4222")) == "http://two:2"
    assert str(Address.to("wss://hub.example:443")) == "http://one:1"
    monkeypatch.setenv("ALL_PROXY", "socks5://two:2")
    assert Address.to("tls://hub.example:4222") is None
    monkeypatch.setenv("ALL_PROXY", "http://two:2")
    monkeypatch.setenv("NO_PROXY", "hub.example")
    assert Address.to("tls://hub.example:4222") is None


NTLM_HELPER = Path("/usr/lib/squid/ntlm_fake_auth")  # Debian's; it takes every password


@pytest.mark.skipif(
    not (shutil.which("squid") and shutil.which("cntlm") and NTLM_HELPER.exists()),
    reason="needs the programs squid and cntlm",
)
def test_a_proxy_that_wants_ntlm_is_passed_by_cntlm_as_the_page_says(
    here: Relayed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    far, near = free_port(), free_port()
    squid, cntlm = tmp_path / "squid.conf", tmp_path / "cntlm.conf"
    squid.write_text(
        f"http_port 127.0.0.1:{far}\nauth_param ntlm program {NTLM_HELPER}\n"
        "auth_param ntlm children 2\nacl known proxy_auth REQUIRED\nhttp_access allow known\n"
        "http_access deny all\npid_filename none\naccess_log none\ncache_log /dev/null\n"
        "cache deny all\ncoredump_dir /\npinger_enable off\nshutdown_lifetime 0 seconds\n"
    )
    cntlm.write_text(
        f"Username svc\nDomain CLINIC\nPassword x\nAuth NTLM\nProxy 127.0.0.1:{far}\n"
        f"Listen 127.0.0.1:{near}\n"
    )
    cntlm.chmod(0o600)
    with (
        running(["squid", "-N", "-f", str(squid)], far),
        running(["cntlm", "-f", "-c", str(cntlm)], near),
    ):
        monkeypatch.setenv(variable(here), f"http://127.0.0.1:{far}")
        [trial] = tried(here.relay, here.keys["ann"])
        assert f"http://127.0.0.1:{far} wants NTLM (407)" in trial.why
        monkeypatch.setenv(variable(here), f"http://127.0.0.1:{near}")
        carries(here, here.relay)


# TLS that something on the way ends --------------------------------------------------------------


class Authority:
    """A CA of a hospital's own, and the certificates that it makes as TLS is inspected.

    Args:
        folder: of the files.
        strict: whether they have what Python 3.13 wants to see.
    """

    def __init__(self, folder: Path, *, strict: bool = True) -> None:
        self.folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._strict = strict
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, ISSUER)])
        self.path = folder / "ca.pem"
        self.path.write_bytes(self._pem(self._made(self._name, self._key, "", ca=True)))

    def context(self, host: str) -> ssl.SSLContext:
        """A server's that shows a certificate of this CA's."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        shown, private = self.folder / "shown.pem", self.folder / "shown.key"
        shown.write_bytes(self._pem(self._made(name, key, host, ca=False)))
        form = serialization.PrivateFormat.PKCS8
        encoding, none = serialization.Encoding.PEM, serialization.NoEncryption()
        private.write_bytes(key.private_bytes(encoding, form, none))
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(shown, private)
        return made

    def _made(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, host: str, *, ca: bool
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=9))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if host:
            names = x509.SubjectAlternativeName([x509.DNSName(host)])
            made = made.add_extension(names, critical=False)
        for extension in self._identifiers(key, ca) if self._strict else ():
            made = made.add_extension(extension, critical=isinstance(extension, x509.KeyUsage))
        return made.sign(self._key, hashes.SHA256())

    def _identifiers(self, key: ec.EllipticCurvePrivateKey, ca: bool) -> list[x509.ExtensionType]:
        """Whose key it is, by whose key it is signed, and what it may do."""
        own, issuer = (one.public_key() for one in (key, self._key))
        uses = dict.fromkeys(
            (
                *("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
                *("encipher_only", "decipher_only", "crl_sign"),
            ),
            False,
        )
        return [
            x509.SubjectKeyIdentifier.from_public_key(own),
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer),
            x509.KeyUsage(digital_signature=not ca, key_cert_sign=ca, **uses),
        ]

    def _pem(self, certificate: x509.Certificate) -> bytes:
        return certificate.public_bytes(serialization.Encoding.PEM)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@contextmanager
def ended(context: ssl.SSLContext, port: int) -> Iterator[int]:
    """A port at which TLS ends, and begins anew to a port here whatever that shows."""
    onward = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    onward.check_hostname, onward.verify_mode = False, ssl.CERT_NONE
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def pump(a: ssl.SSLSocket, b: ssl.SSLSocket) -> None:
            with suppress(OSError):
                while data := a.recv(1 << 16):
                    b.sendall(data)
            for one in (a, b):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

        def handle(near: socket.socket) -> None:
            with suppress(OSError), context.wrap_socket(near, server_side=True) as inner:
                far = socket.create_connection(("127.0.0.1", port))
                with onward.wrap_socket(far) as outer:
                    back = threading.Thread(target=pump, args=(outer, inner), daemon=True)
                    back.start()
                    pump(inner, outer)
                    back.join()

        def serve() -> None:
            with suppress(OSError):
                while True:
                    near = listener.accept()[0]
                    threading.Thread(target=handle, args=(near,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("pinned", [True, False], ids=["pinned", "public"])
def test_a_proxy_that_inspects_tls_is_named_by_its_certificates_issuer(
    here: Relayed, authority: Authority, pinned: bool
) -> None:
    scheme = here.relay.urls[0].partition(":")[0]
    with ended(authority.context("localhost"), here.relay.port) as port:
        pin = here.relay.pin if pinned else b""
        relay = Relay.of(f"{scheme}://localhost:{port}", pin)
        [trial] = tried(relay, here.keys["ann"])
    assert f"in a certificate issued by '{ISSUER}'; if a proxy here inspects TLS" in trial.why
    assert trial.certificate is not None, "for join --check"
    assert ("of the roster" in trial.why) is pinned


def test_a_ca_without_key_identifiers_is_told_in_a_sentence_where_python_is_strict(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As it is from Python 3.13 on."""

    def why_not(has_identifiers: bool, flags: int) -> str:
        authority = Authority(tmp_path, strict=has_identifiers)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
        client = client_context(b"")
        client.verify_flags &= ~ssl.VERIFY_X509_STRICT
        client.verify_flags |= flags
        return shaken_hands(client, authority.context("localhost"))

    assert why_not(True, ssl.VERIFY_X509_STRICT) == ""
    assert why_not(False, 0) == ""
    why = why_not(False, ssl.VERIFY_X509_STRICT)
    assert why.startswith("expected a CA and certificates that keep RFC 5280, which Python 3.13")
    assert "anew with key identifiers" in why
    assert "a proxy here" not in why


def shaken_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> str:
    """Why a client does not believe a server that it meets in memory; nothing where it does."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(back, there, server_hostname="localhost"),
        server.wrap_bio(there, back, server_side=True),
    )
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                return str(error.args[1])
    return ""


DEPLOY = Path(__file__).parents[3] / "deploy"


@contextmanager
def running(command: list[str], port: int) -> Iterator[None]:
    """A program that listens on a port."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def listens() -> bool:
        assert process.poll() is None, "it ended"
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 5).close()
            return True
        return False

    try:
        wait(listens)
        yield
    finally:
        process.terminate()
        process.wait(300)


def written(folder: Path, name: str, changes: dict[str, str]) -> str:
    """A file of `deploy/` for this machine."""
    text = (DEPLOY / name).read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (folder / name).write_text(text)
    return str(folder / name)


@pytest.mark.slow
def test_tls_may_end_at_a_balancer_whose_certificate_a_ca_vouches_for(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By WebSocket, with `--relay-certificate public` and the CA in this machine's trust."""
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
    with (
        relayed(tmp_path, "wss") as own,
        ended(authority.context("localhost"), own.relay.port) as port,
    ):
        carries(own, Relay.of(f"wss://localhost:{port}"))


@pytest.mark.skipif(shutil.which("nginx") is None, reason="needs the program nginx")
def test_nginx_may_end_tls_as_the_page_says(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
    authority.context("localhost")
    port = free_port()
    with relayed(tmp_path, "wss") as own:
        changes = {
            "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
            "listen [::]:443 ssl": f"listen [::1]:{port} ssl",
            "hub.example.org;\n": "localhost;\n",
            "/etc/nginx/hub.pem": str(tmp_path / "shown.pem"),
            "/etc/nginx/hub.key": str(tmp_path / "shown.key"),
            "/etc/nginx/relay.pem": str(own.certificate.path),
            "relay.internal:8443": f"127.0.0.1:{own.relay.port}",
            "relay.internal": "localhost",
        }
        path = written(tmp_path, "nginx-relay.conf", changes)
        options = f"daemon off; pid {tmp_path}/nginx.pid; error_log {tmp_path}/nginx.log;"
        with running(["nginx", "-p", str(tmp_path), "-c", path, "-g", options], port):
            carries(own, Relay.of(f"wss://localhost:{port}"))


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="needs the program haproxy")
def test_haproxy_may_hand_tls_on_as_the_page_says(here: Relayed, tmp_path: Path) -> None:
    port = free_port()
    changes = {
        ":::4222 v4v6": f"127.0.0.1:{port}",
        "hub.example.org:4222": f"127.0.0.1:{here.relay.port}",
    }
    path = written(tmp_path, "haproxy-relay.cfg", changes)
    scheme = here.relay.urls[0].partition(":")[0]
    with running(["haproxy", "-db", "-f", path], port):
        carries(here, Relay.of(f"{scheme}://127.0.0.1:{port}", here.relay.pin))


def test_a_port_that_is_handed_on_needs_no_key_of_its_own(here: Relayed) -> None:
    """The one way out of a network: TLS goes through it, and the certificate is the relay's."""
    forward = lines.Proxy(here.relay.port)
    scheme = here.relay.urls[0].partition(":")[0]
    carries(here, Relay.of(f"{scheme}://localhost:{forward.port}", here.relay.pin))
    forward.close()


# IPv6 ------------------------------------------------------------------------------------------


def has_ipv6() -> bool:
    with suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        return True
    return False


@pytest.mark.skipif(not has_ipv6(), reason="this system has no IPv6")
def test_the_relay_is_reached_over_ipv6_as_over_ipv4(here: Relayed) -> None:
    scheme = here.relay.urls[0].partition(":")[0]
    carries(here, Relay.of(f"{scheme}://[::1]:{here.relay.port}", here.relay.pin))


@pytest.mark.skipif(not has_ipv6(), reason="this system has no IPv6")
def test_an_address_of_which_nothing_comes_back_keeps_nobody_from_the_next(
    here: Relayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where IPv6 is announced and filtered: a listener that accepts no more is as silent."""
    with socket.socket(socket.AF_INET6) as silent:
        silent.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        silent.bind(("::1", 0))
        silent.listen(0)
        port = silent.getsockname()[1]
        full = [socket.socket(socket.AF_INET6) for _ in range(3)]
        for one in full:
            one.setblocking(False)
            one.connect_ex(("::1", port))
        real = socket.getaddrinfo

        def resolve(host: str, *rest: object, **named: object) -> object:
            if host != "hub.test":
                return real(host, *rest, **named)  # type: ignore[arg-type]
            kind = (socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
            return [
                (socket.AF_INET6, *kind, ("::1", port, 0, 0)),
                (socket.AF_INET, *kind, ("127.0.0.1", here.relay.port)),
            ]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        scheme = here.relay.urls[0].partition(":")[0]
        relay = replace(here.relay, urls=(f"{scheme}://hub.test:{here.relay.port}",))
        [trial] = tried(relay, here.keys["ann"])
        for one in full:
            one.close()
    assert trial.why == ""
