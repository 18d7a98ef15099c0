"""Proxies on the way to a relay: what they want, and that their credentials show nowhere.

`SECRET` is in every password here: the tests look for it in all that a party says or writes.
"""

from __future__ import annotations

import base64
import gc
import logging
import pickle
import socket
import ssl
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import pytest

from hubbub.core.errors import UserError
from hubbub.desk.cli.main import main
from hubbub.site.network.event_log import EventLog
from hubbub.site.network.monitor import monitored
from hubbub.site.network.nats.relay import Relay, seed_of
from hubbub.site.network.nats.relay_connection import RelayConnection, tried
from hubbub.site.network.nats.transports import VARIABLE, Credentials, Proxy
from network import lines
from network.lines import Relayed, free_port, relayed, wait
from network.test_over_nats import Everybody

pytest.importorskip("aiohttp", reason="needs the extra net")
SECRET = "S3cret"
VARIABLES = ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy")


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy of this machine's."""
    for name in (*VARIABLES, VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relayed]:
    with relayed(tmp_path_factory.mktemp("web"), "wss") as found:
        yield found


def basic(user: str, password: str) -> str:
    return "Proxy-Authorization: Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def is_hidden(*said: object) -> bool:
    """Whether the password is in nothing of it, as it is or as it travels."""
    text = " ".join(map(str, said))
    travels = (base64.b64encode(SECRET.encode() + end).decode()[:6] for end in (b"", b"\n"))
    whole = base64.b64encode(f"svc:{SECRET}".encode()).decode()
    return SECRET not in text and whole[:10] not in text and not any(one in text for one in travels)


# What is an address, and what is not -----------------------------------------------------------

PROXIES = {
    f"http://svc:{SECRET}@proxy:3128": ("http://proxy:3128", f"svc:{SECRET}"),
    f"svc:{SECRET}@proxy:3128": ("http://proxy:3128", f"svc:{SECRET}"),
    f"http://svc:%40{SECRET}@proxy": ("http://proxy:80", f"svc:@{SECRET}"),
    f"http://svc:/?#@{SECRET}@proxy": ("http://proxy:80", f"svc:/?#@{SECRET}"),
    f"http://{SECRET}@proxy:1": ("http://proxy:1", f"{SECRET}:"),
    f"https://svc:{SECRET}@[::1]:8": ("https://[::1]:8", f"svc:{SECRET}"),
    "proxy:3128": ("http://proxy:3128", None),
}


@pytest.mark.parametrize("text", PROXIES)
def test_credentials_are_no_part_of_a_proxys_address(text: str) -> None:
    proxy, (address, told) = Proxy.of(text), PROXIES[text]
    assert str(proxy) == address
    assert is_hidden(proxy, repr(proxy), vars(proxy), proxy.refused(407, "wss://hub:443"))
    header = proxy.credentials.headers()["Proxy-Authorization"] if proxy.credentials else None
    assert header == (f"Basic {base64.b64encode(told.encode()).decode()}" if told else None)


@pytest.mark.parametrize(
    "text",
    [
        f"http://svc:{SECRET}",
        f"socks5://svc:{SECRET}@proxy",
        f"http://svc:{SECRET}@",
        f"http://svc@proxy:{SECRET}",
        f"{SECRET}://proxy",
        f"http://svc:x@proxy {SECRET}",
        f"http://svc:x@proxy:99999{SECRET}",
    ],
)
def test_a_proxy_that_cannot_be_read_is_refused_and_not_quoted(text: str) -> None:
    with pytest.raises(UserError, match="expected HTTPS_PROXY as http://HOST:PORT") as refused:
        Proxy.of(text)
    assert is_hidden("".join(traceback.format_exception(refused.value)))
    assert refused.value.__context__ is None


@pytest.mark.parametrize(
    "text",
    [
        f"wss://svc:{SECRET}@hub",
        f"svc:{SECRET}@hub",
        f"wss://svc:a,{SECRET}@hub",
        f"wss://hub/?token={SECRET}",
        f"wss://hub/{SECRET}",
        f"wss://hub#{SECRET}",
        f"wss://svc:{SECRET}",
        f"{SECRET}://hub",
        f"tls://hub:1,wss://svc:{SECRET}@hub",
    ],
)
def test_a_relay_with_credentials_is_refused_and_not_quoted(text: str) -> None:
    with pytest.raises(UserError, match="expected the relay as tls://HOST:PORT") as refused:
        Relay.of(text)
    assert is_hidden("".join(traceback.format_exception(refused.value)))
    assert refused.value.__context__ is None


def test_credentials_are_neither_shown_nor_copied() -> None:
    made = Credentials("svc", SECRET)
    assert is_hidden(made, repr(made), f"{made}", [made], {"a": made})
    with pytest.raises(TypeError) as refused:
        pickle.dumps(made)
    assert is_hidden(refused.value)


def test_credentials_come_from_a_file_that_others_cannot_read(tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    path.write_text(f"svc:a:{SECRET}\n")
    path.chmod(0o640)
    proxy = Proxy.of("http://old:one@proxy:1", str(path))
    assert basic("svc", f"a:{SECRET}").endswith(proxy.credentials.headers()["Proxy-Authorization"])
    path.chmod(0o644)
    cases = ((f"svc:{SECRET}", 0o644), (SECRET, 0o600), (f"a:{SECRET}\nb", 0o600), ("", 0o600))
    for content, mode in cases:
        path.write_text(content)
        path.chmod(mode)
        with pytest.raises(UserError, match="file with one line USER:PASSWORD") as refused:
            Proxy.of("http://proxy:1", str(path))
        assert is_hidden("".join(traceback.format_exception(refused.value)))
    with pytest.raises(UserError, match="No such file") as refused:
        Proxy.of("http://proxy:1", f"svc:{SECRET}")  # in the place of a file's name
    assert is_hidden("".join(traceback.format_exception(refused.value)))
    with pytest.raises(UserError, match="not an ordinary file"):
        Proxy.of("http://proxy:1", str(tmp_path))
    with pytest.raises(UserError, match="file with one line USER:PASSWORD"):
        Proxy.of("http://proxy:1", "")  # named, and empty


def test_a_host_that_is_reached_without_a_proxy_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", f"svc:{SECRET}@lower:1")
    monkeypatch.setenv("NO_PROXY", "inside.example,other.example:444")
    assert str(Proxy.to("wss://hub.example:443")) == "http://lower:1"
    assert Proxy.to("wss://inside.example:443") is None
    assert Proxy.to("wss://other.example:444") is None
    assert str(Proxy.to("wss://other.example:443")) == "http://lower:1"


# Real connections ------------------------------------------------------------------------------


def told_by(web: Relayed, home: Path) -> list[str]:
    """All that a party says and writes while it cannot connect: screen, files, `/healthz`."""
    said: list[str] = []
    home.mkdir()
    event_log, port = EventLog(party="ann", folder=home, say=said.append), free_port()
    line = RelayConnection(
        web.relay,
        seed_of(web.keys["ann"]),
        {},
        replies=False,
        arrived=lambda *_: None,
        told=event_log.line,
    )
    with monitored(event_log, port):
        line.start()
        wait(lambda: event_log.current("last_error"))
        try:
            urlopen(f"http://127.0.0.1:{port}/healthz", timeout=60).close()
        except OSError as answered:
            said.append(answered.read().decode())  # type: ignore[attr-defined]
            answered.close()  # type: ignore[attr-defined]
    line.stop()
    said += [chained(line._error)]
    return [*said, *(path.read_text() for path in sorted(home.iterdir()))]


def chained(error: BaseException | None) -> str:
    """An error, all that it came of, and all that they hold, whether it would be shown or not."""
    said = ""
    while error is not None:
        said += f"{error!r} {error} {error.args!r} {vars(error)!r}"
        error = error.__cause__ or error.__context__
    return said


FORMS = ["http://svc:{}@127.0.0.1:{}", "svc:{}@127.0.0.1:{}", "http://{}@127.0.0.1:{}"]


@pytest.mark.quick_cases("HTTPS_PROXY-http://{}@127.0.0.1:{}")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy"])
def test_a_proxys_password_is_in_nothing_that_a_refused_party_says(
    web: Relayed,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    variable: str,
    form: str,
) -> None:
    """Also where the proxy says it back, and where libraries log all that they can."""
    caplog.set_level(logging.DEBUG)
    proxy = lines.Proxy(web.relay.port, connect=True, wants=basic("svc", "another"))
    monkeypatch.setenv(variable, form.format(SECRET, proxy.port))
    said = told_by(web, tmp_path / "home")
    checked = tried(web.relay, web.keys["ann"])
    proxy.close()
    gc.collect()  # what libraries say of what was left open
    assert f"the proxy http://127.0.0.1:{proxy.port} wants other credentials" in said[0]
    assert said[0].removeprefix("not connected: ") == checked[0].why
    assert is_hidden(*said, checked, caplog.text, caplog.records)
    assert len(said) == 5


@pytest.mark.parametrize("state", ["gone", "forbids"])
def test_other_troubles_with_a_proxy_name_it_without_its_password(
    web: Relayed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    with answering(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n") as port:
        where = free_port() if state == "gone" else port
        monkeypatch.setenv("HTTPS_PROXY", f"http://svc:{SECRET}@127.0.0.1:{where}")
        said = told_by(web, tmp_path / "home")
    words = "cannot be reached: Con" if state == "gone" else "answers 403 to CONNECT 127.0.0.1:"
    assert f"the proxy http://127.0.0.1:{where} {words}" in said[0]
    assert is_hidden(*said)


@pytest.mark.parametrize("source", ["variable", "file"])
def test_a_proxy_with_the_right_password_lets_a_party_through(
    web: Relayed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    proxy = lines.Proxy(web.relay.port, connect=True, wants=basic("svc", SECRET))
    path = tmp_path / "credentials"
    path.write_text(f"svc:{SECRET}\n")
    path.chmod(0o600)
    if source == "file":
        monkeypatch.setenv(VARIABLE, str(path))
    given = f"svc:{SECRET}@" if source == "variable" else ""
    monkeypatch.setenv("HTTPS_PROXY", f"http://{given}127.0.0.1:{proxy.port}")
    party = web.party("ann")
    wait(lambda: party.said)
    party.stop()
    proxy.close()
    assert party.said == ["up"]
    assert proxy.asked == [f"CONNECT 127.0.0.1:{web.relay.port} HTTP/1.1"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            f"302 Found\r\nLocation: http://svc:{SECRET}@else.test/",
            "with another address",
        ),
        (f"404 {SECRET}", "answers 404, which is no relay's WebSocket"),
    ],
)
def test_what_else_answers_at_a_relays_url_is_neither_followed_nor_quoted(
    web: Relayed, tmp_path: Path, answer: str, said: str
) -> None:
    """With the relay's own certificate: whoever runs it sends parties nowhere."""
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shown.load_cert_chain(web.certificate.path, web.certificate.key)
    with answering(f"HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n".encode(), shown) as port:
        relay = replace(web.relay, urls=(f"wss://127.0.0.1:{port}",))
        told = told_by(replace(web, relay=relay), tmp_path / "home")
    assert said in told[0]
    assert is_hidden(*told)


@contextmanager
def answering(answer: bytes, context: ssl.SSLContext | None = None) -> Iterator[int]:
    """A port that answers this to whatever comes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    near, _ = listener.accept()
                    near = context.wrap_socket(near, server_side=True) if context else near
                    with near:
                        near.recv(4096)
                        near.sendall(answer)
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.slow
def test_join_check_shows_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    everybody = Everybody(tmp_path)
    everybody.approve("ann")
    monkeypatch.setenv("HTTPS_PROXY", f"http://svc:{SECRET}@127.0.0.1:1/")
    home = str(everybody.sites["ann"].home)
    for options in (["--json"], []):
        assert main(["join", "--check", "--home", home, "--relay", "wss://hub.test", *options]) == 1
        shown = capsys.readouterr()
        assert "the proxy http://127.0.0.1:1 cannot be reached" in " ".join(shown.out.split())
        assert is_hidden(shown.out, shown.err)
    assert main(["join", "--home", home, "--relay", f"wss://svc:{SECRET}@hub"]) == 2
    shown = capsys.readouterr()
    assert "got one with credentials" in " ".join(shown.err.split())
    assert is_hidden(shown.out, shown.err)
