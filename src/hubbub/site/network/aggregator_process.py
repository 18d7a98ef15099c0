"""The aggregator's process: its folder, a relay of its own or another's, and the study.

Where no relay is named, one is started here, from public keys and on the port that the roster says;
it is a process of its own, ends with this one, and is started again when it ends alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hubbub.core.errors import HubbubError, UserError, loggable
from hubbub.core.protocol.primitives.identity import Roster
from hubbub.core.study import silo_records
from hubbub.core.study.study import Study
from hubbub.site.network.event_log import CONNECTING, DONE, LOST, WAITING, EventLog
from hubbub.site.network.join import relay_of
from hubbub.site.network.nats.carrier import Carrier
from hubbub.site.network.nats.relay import Relay, RelayCertificate
from hubbub.site.network.nats.server import Server, write_server
from hubbub.site.network.party_folder import RELAY, PartyFolder, alone
from hubbub.site.network.requests import QuietRequests, Requests
from hubbub.site.network.waiting import Timeouts


def host(
    party_folder: PartyFolder,
    study: Study,
    event_log: EventLog,
    *,
    url: str | None = None,
    data: Path | None = None,
    timeouts: Timeouts | None = None,
    until: float | None = None,
) -> Path | None:
    """Run a study as its aggregator, or go on with it.

    Args:
        party_folder: the aggregator's folder.
        study: approved there.
        event_log: where events go.
        url: of a relay that runs; one is started here if None.
        data: the folder that the public test set is in; the home if None.
        timeouts: how long to wait for whom.
        until: collect its single sums, each from parties that come when they like; when enough
            silos are enough, seconds since 1970. None: everybody is needed at once.

    Returns:
        The run's folder; None where sums were collected that a training follows.

    Raises:
        UserError: it cannot begin: another process is at it, the port is taken, a file is missing.
        HubbubError: as for `serve`.
    """
    check(party_folder, study, data)

    def told(up: bool, why: str) -> None:
        event_log.line(up, why)
        event_log.state(state=WAITING if up else LOST)

    with alone(party_folder.home):
        event_log.state(state=CONNECTING)
        relay = relay_of(party_folder, url)
        with _relayed(party_folder, relay, url, event_log) as reached:
            carrier = Carrier(reached, party_folder.keys, party_folder.roster, told)
            kind = Requests if until is None else QuietRequests
            requests = kind(
                party_folder.roster, study.id, carrier.phase, event_log, timeouts or Timeouts()
            )
            carrier.largest_answer, carrier.twice = requests.largest_answer, requests.see_twice
            with carrier:
                return played(party_folder, study, requests, data=data, until=until)


def played(
    party_folder: PartyFolder,
    study: Study,
    requests: Requests,
    *,
    data: Path | None = None,
    until: float | None = None,
) -> Path | None:
    """Run a study to its end, whatever carries the requests; see `host`."""
    from hubbub.site.collected.collection_run import serve_collection
    from hubbub.site.network.aggregator_run import serve
    from hubbub.site.network.coordinator import Coordinator

    event_log, out = requests.event_log, party_folder.run(study.id)
    done = True
    try:
        coordinator = Coordinator(party_folder, study, requests)
        if until is None:
            serve(coordinator, out, data=data)
        else:
            done = serve_collection(coordinator, out, until=until, data=data) is not None
    except HubbubError as error:
        event_log.warn("stopped", said=loggable(error))
        event_log.state(state=LOST)
        raise
    event_log.state(state=DONE if done else WAITING)
    return out if done else None


def check(party_folder: PartyFolder, study: Study, data: Path | None) -> None:
    """Whether a study can be served here.

    Raises:
        UserError, DataError: it cannot.
    """
    if party_folder.role != "aggregator":
        raise UserError(
            f"expected the aggregator's folder, got that of a {party_folder.role}; use join"
        )
    if party_folder.study(study.id) is None:
        raise UserError(
            f"expected a study that was approved in {party_folder.home.resolve()}, got "
            f"{study.name}, which was not; hubbub approve it"
        )
    if study.data.test:
        silo_records.check_file(study, silo_records.TEST, data or party_folder.home)


@contextmanager
def _relayed(
    party_folder: PartyFolder, relay: Relay, url: str | None, event_log: EventLog
) -> Iterator[Relay]:
    """A relay that runs, and how it is reached from here."""
    if url is not None:
        yield relay
        return
    folder = party_folder.home / RELAY
    certificate = RelayFiles.written(folder, party_folder.roster, None).certificate
    if notice := certificate.notice:
        event_log.warn("relay", said=notice)
    server = Server(folder, relay.port, lambda said: event_log.warn("relay", said=said))
    server.start()
    try:
        yield relay.near(relay.pin)
    finally:
        server.stop()


@dataclass(frozen=True, kw_only=True)
class RelayFiles:
    """What a relay reads.

    Args:
        configuration: of the server.
        certificate: with its key.
        not_taken: why a server that runs has not taken it; empty if it has, None if none runs.
    """

    configuration: Path
    certificate: RelayCertificate
    not_taken: str | None

    @classmethod
    def written(
        cls, folder: Path, roster: Roster, url: str | None, leaf_port: int | None = None
    ) -> RelayFiles:
        """Write them into a folder; a certificate is renewed, and its key stays.

        Args:
            folder: of the relay.
            roster: the consortium's.
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
        certificate: a PEM file, or "public".
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
