"""Events for the collector of a site's own people, by OpenTelemetry's own exporter.

Where it is, and what it wants to be told, the environment says in OpenTelemetry's own words
(`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_EXPORTER_OTLP_CERTIFICATE`).
What is sent is what the event log says, and no more. A collector that is away costs its lines: it
is asked again in the background for a while, and nobody waits for it but a few seconds at the end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from hubbub import __version__
from hubbub.core.errors import UserError, with_extra
from hubbub.site.network.event_log import Say, Tell, sentence

_FEW_SECONDS = 5
_HEADER = ("time", "level", "party", "event")


@contextmanager
def exported(party: str, say: Say) -> Iterator[Tell]:
    """What sends each event that it is told to the collector of the environment, meanwhile.

    Args:
        party: whose events they are.
        say: told once that they do not arrive.

    Raises:
        UserError: the library is not installed, or the environment says nothing that it knows.
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
    """Says once, in our words, that the library complains.

    Args:
        say: told it.
    """

    def __init__(self, say: Say) -> None:
        super().__init__(logging.WARNING)
        self._say, self._said = say, False

    def emit(self, record: logging.LogRecord) -> None:
        if not self._said:
            self._said = True
            self._say(
                "events do not reach the collector that OTEL_EXPORTER_OTLP_ENDPOINT names; the "
                "event log has them, and it is tried again"
            )
