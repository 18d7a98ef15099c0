"""What a party's event log knows of the present, for programs that watch it: HTTP on 127.0.0.1.

`/metrics` is for Prometheus, `/healthz` says 200 or 503 and why, `/` is a page for people. All read
the state that `status` prints too; nothing in it is secret, or follows from records. Nothing can be
set here, and no other site can have any of it shown or read: a browser that was led here under
another site's name gets nothing.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from socket import SHUT_RDWR
from socketserver import ThreadingMixIn
from typing import Any, cast
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from hubbub import __version__
from hubbub.core.errors import UserError, with_extra
from hubbub.site.network import event_log as states
from hubbub.site.network.event_log import BEAT, CONNECTING, DONE, EventLog, Say, Tell, sentence

_HOST = "127.0.0.1"
_PATIENCE = 5.0  # seconds for a request
_MOST_CONNECTIONS = 32
_ROOM_SECONDS = 0.01  # until who came first is hung up on
_WELL = (states.WAITING, states.TRAINING, DONE)
_STATES = (CONNECTING, *_WELL[:2], states.REFUSING, states.LOST, DONE)
# From the name in the state to that at Prometheus, and what it says. Counters begin with a process.
_COUNTERS = {
    "answers": ("hubbub_attempts_answered", "Attempts that this party has answered."),
    "bytes_sent": ("hubbub_bytes_sent", "Bytes of requests or answers sent."),
    "bytes_received": ("hubbub_bytes_received", "Bytes of requests or answers received."),
    "refusals": ("hubbub_refusals", "Requests refused here, or at the aggregator by others."),
    "reconnects": ("hubbub_reconnects", "How often the connection to the relay was restored."),
}
_GAUGES = {
    "connected": ("hubbub_connected", "Whether there is a connection to the relay."),
    "step": ("hubbub_step", "Steps of the study that are done, at the aggregator."),
    "steps": ("hubbub_steps", "Steps of the study in all."),
    "attempts": ("hubbub_attempts", "Attempts that epsilon covers."),
    "epsilon": ("hubbub_epsilon", "Epsilon of the study spent so far."),
    "refusing": ("hubbub_refusing", "Whether this party cannot do its part; /healthz says why."),
    "left_out": ("hubbub_left_out", "Parties that are missing, at the aggregator."),
    "parties_refusing": (
        "hubbub_parties_refusing",
        "Those of them that report that they cannot take part.",
    ),
    "last_progress": (
        "hubbub_last_progress_timestamp_seconds",
        "When an attempt was last answered; at the aggregator, a step done. Seconds since 1970.",
    ),
}


def health(state: Mapping[str, Any], most_age: float = 4 * BEAT) -> tuple[bool, dict[str, str]]:
    """Whether a party is connected, can take part, and does so or waits; and what is wrong.

    A study that is done needs no line any more: the relay may have ended with its aggregator. Who
    is missing at others, or waits for them, is no matter of this party's health.

    Args:
        state: as the event log has it, or `last_status` of another process.
        most_age: seconds that a status may be old: its process writes it every `BEAT`.
    """
    now = state.get("state", CONNECTING)
    if (age := state.get("age_seconds", 0.0)) > most_age:
        reason = f"wrote its status {age:.0f} s ago: it has ended, hangs, or cannot write"
        return False, {"state": now, "reason": reason}
    if age < -most_age:
        reason = f"wrote its status {-age:.0f} s in the future: a clock was set; correct it"
        return False, {"state": now, "reason": reason}
    if refusing := state.get("refusing"):
        return False, {"state": now, "reason": f"cannot take part: {refusing}"}
    if not (state.get("connected") or now == DONE):
        return False, {"state": now, "reason": state.get("unconnected") or "not connected yet"}
    if now in _WELL:
        return True, {"state": now}
    return False, {"state": now, "reason": state.get("last_error") or "no study is running"}


@dataclass(frozen=True, kw_only=True)
class Page:
    """What people see at `/`."""

    policy: str  # its Content-Security-Policy
    html: Callable[[], str]  # as it is now; on any thread


@contextmanager
def monitored(event_log: EventLog, port: int | None, page: Page | None = None) -> Iterator[None]:
    """Answer on a port of 127.0.0.1 meanwhile, if there is one; UserError if it is taken."""
    if port is None:
        yield
        return
    pages = _pages(event_log, page)
    try:
        server = make_server(_HOST, port, pages, server_class=_Server, handler_class=_Quiet)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or "no such port"
        raise UserError(
            f"expected a free port of {_HOST} for --metrics-port, got {port}: {why}; name another"
        ) from None
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True, name="monitor")
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingMixIn, WSGIServer):
    """Each request has a thread: who holds a connection open keeps nobody else from being heard.

    There are so many at most: the one that was held longest makes room.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._places = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._held: dict[Any, None] = {}  # the oldest first

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin a thread, once there is room for it."""
        while not self._places.acquire(timeout=_ROOM_SECONDS):
            for oldest in list(self._held)[:1]:
                self._held.pop(oldest, None)
                with suppress(OSError):  # it has just ended
                    oldest.shutdown(SHUT_RDWR)
        self._held[request] = None
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # the system has no thread left
            self._leave(request)
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._leave(request)

    def _leave(self, request: Any) -> None:
        self._held.pop(request, None)
        self._places.release()

    def handle_error(self, *_: Any) -> None:
        """Who asked has left, or never said what."""


class _Quiet(WSGIRequestHandler):
    """Requests are in no log."""

    timeout = _PATIENCE

    def log_message(self, *_: Any) -> None:
        pass


@dataclass(frozen=True, eq=False)
class _Collected:
    """The numbers of a state, as the client library wants them."""

    _log: EventLog

    def collect(self) -> Iterable[Any]:
        """One family for each number that is known."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        state, party = self._log.known(), [self._log.party]
        for kind, names in ((CounterMetricFamily, _COUNTERS), (GaugeMetricFamily, _GAUGES)):
            for key, (name, words) in names.items():
                if key in state:
                    family = kind(name, words, labels=["party"])
                    family.add_metric(party, _number(state[key]))
                    yield family
        words = "1 for the state that it is in, 0 for others."
        family = GaugeMetricFamily("hubbub_state", words, labels=["party", "state"])
        for one in _STATES:
            family.add_metric([*party, one], float(one == state.get("state", CONNECTING)))
        yield family


def _number(value: Any) -> float:
    """A value of the state as a gauge: of names how many, of words whether there are any."""
    if isinstance(value, list):
        return float(len(value))
    return float(value != "" if isinstance(value, str) else value)


def _pages(event_log: EventLog, page: Page | None) -> Callable[..., Iterable[bytes]]:
    """All that is answered here, as WSGI has it."""
    try:
        from prometheus_client import CollectorRegistry, make_wsgi_app
    except ImportError:
        raise UserError(
            "expected the library prometheus-client to be installed for --metrics-port; "
            + with_extra("net")
        ) from None
    registry = CollectorRegistry()
    registry.register(_Collected(event_log))
    metrics = make_wsgi_app(registry)

    def answered(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        try:
            host = urlsplit(f"//{environ.get('HTTP_HOST', _HOST)}").hostname
        except ValueError:  # no host at all
            host = None
        if host not in (_HOST, "localhost"):
            start("421 Misdirected Request", [("Content-Type", "text/plain")])
            return [f"expected {_HOST} or localhost as the host\n".encode()]
        if environ["PATH_INFO"] == "/metrics":
            return cast("Iterable[bytes]", metrics(environ, start))
        if environ["PATH_INFO"] == "/" and page is not None:
            return _shown(page, start)
        if environ["PATH_INFO"] != "/healthz":
            start("404 Not Found", [("Content-Type", "text/plain")])
            return [b"/healthz or /metrics\n"]
        well, state = health(event_log.known())
        status = "200 OK" if well else "503 Service Unavailable"
        start(status, [("Content-Type", "application/json"), ("Cache-Control", "no-store")])
        return [json.dumps(state).encode() + b"\n"]

    return answered


def _shown(page: Page, start: Callable[..., Any]) -> Iterable[bytes]:
    """The page for people."""
    headers = [
        ("Content-Type", "text/html; charset=utf-8"),
        ("Content-Security-Policy", f"{page.policy}; frame-ancestors 'none'"),
        ("X-Content-Type-Options", "nosniff"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
        ("Referrer-Policy", "no-referrer"),
        ("Cache-Control", "no-store"),
    ]
    html = page.html().encode()
    start("200 OK", headers)
    return [html]


# Events for the collector of a site's own people, by OpenTelemetry's own exporter.
#
# Where it is, and what it wants to be told, the environment says in OpenTelemetry's own words
# (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_EXPORTER_OTLP_CERTIFICATE`).
# What is sent is what the event log says, and no more. A collector that is away costs its lines: it
# is asked again in the background for a while, and nobody waits for it but a few seconds at the
# end.

_FEW_SECONDS = 5
_HEADER = ("time", "level", "party", "event")


@contextmanager
def exported(party: str, say: Say) -> Iterator[Tell]:
    """What sends each event that it is told to the collector of the environment, meanwhile.

    That they do not arrive is said once.
    """
    send, end = _sender(party)
    told = _Once(say)
    library = logging.getLogger("opentelemetry")
    library.addHandler(told)
    library.propagate = False  # its own words may quote an address with a password in it
    try:
        yield send
    finally:
        end()
        library.removeHandler(told)
        library.propagate = True


def _sender(party: str) -> tuple[Tell, Callable[[], None]]:
    """What sends an event, and what ends the sending."""
    try:
        from opentelemetry._logs import LogRecord, SeverityNumber
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
        from opentelemetry.sdk.resources import Resource
    except ImportError:
        raise UserError(
            "expected OpenTelemetry's exporter to be installed for --otlp; " + with_extra("otlp")
        ) from None
    named = {"service.name": "hubbub", "service.version": __version__, "hubbub.party": party}
    try:
        provider = LoggerProvider(Resource.create(named), shutdown_on_exit=False)
        exporter = OTLPLogExporter(timeout=_FEW_SECONDS)
    except (ValueError, OSError):
        raise UserError(
            "expected the OTEL_ variables to say where a collector is, got something else; see "
            "OTEL_EXPORTER_OTLP_ENDPOINT"
        ) from None
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    logger = provider.get_logger("hubbub", __version__)
    severity = {"info": SeverityNumber.INFO, "warning": SeverityNumber.WARN}

    def send(event: Mapping[str, Any]) -> None:
        values = {key: value for key, value in event.items() if key not in _HEADER}
        logger.emit(
            LogRecord(
                timestamp=int(event["time"] * 1e9),
                severity_number=severity[event["level"]],
                severity_text=event["level"].upper(),
                body=sentence(event["event"], values),
                attributes={f"hubbub.{key}": _plain(value) for key, value in values.items()},
                event_name=f"hubbub.{event['event']}",
            )
        )

    return send, provider.shutdown


def _plain(value: Any) -> str | bool | int | float:
    """A value as an attribute may have it."""
    return value if isinstance(value, str | bool | int | float) else str(value)


class _Once(logging.Handler):
    """Says once, in our words, that the library complains."""

    def __init__(self, say: Say) -> None:
        super().__init__(logging.WARNING)
        self._say, self._said = say, False

    def emit(self, record: logging.LogRecord) -> None:
        if not self._said:
            self._said = True
            self._say(
                "events do not reach the collector that OTEL_EXPORTER_OTLP_ENDPOINT "
                "names; they are in the event log, and hubbub tries again"
            )
