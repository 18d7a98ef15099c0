"""`hubbub serve`, `join` and `status`: studies among machines."""

from __future__ import annotations

import argparse
import importlib.util
import json
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubbub.core.errors import UserError, with_extra
from hubbub.core.planning.study_plan import plan, steps_of
from hubbub.core.study.study import Study
from hubbub.core.verification.evidence.audit_result import read_audit
from hubbub.desk.cli import terminal
from hubbub.desk.cli.terminal import (
    AUDIT_WORDS,
    Bar,
    add_command,
    answer,
    bar,
    emit,
    number,
    read_answers,
    say,
    show_answers,
    table,
    warn,
)
from hubbub.site.network.event_log import EventLog, last_status, sentence
from hubbub.site.network.folder_files import read_roster
from hubbub.site.network.party_folder import HOME, PartyFolder
from hubbub.site.network.waiting import Timeouts

if TYPE_CHECKING:
    from hubbub.site.network.checkup import Checked
    from hubbub.site.network.event_log import Tell

_QUIET_SECONDS = 60.0  # between two lines of the same kind
# Events that say how one thing stands: each is told where the last of them was another.
_SAME_THING = {"unconnected": "connected", "heard": "silent", "left": "silent", "session": "silent"}
_OK = {True: "yes", False: "no"}


def add_commands(commands: Any) -> None:
    """Register the commands."""
    for parser in (_add_serve(commands), _add_join(commands)):
        parser.add_argument("--home", type=Path, default=HOME, help="this party's folder")
        parser.add_argument("--data", type=Path, help="folder of the records; default --home")
        parser.add_argument(
            "--metrics-port", type=int, help="show /healthz and /metrics on this port of 127.0.0.1"
        )
        parser.add_argument(
            "--otlp",
            action="store_true",
            help="send events to the collector that OTEL_EXPORTER_OTLP_ENDPOINT names",
        )
        terminal.add_passphrase_option(parser)
    status = add_command(commands, "status", "where a study stands, as this party sees it", _status)
    status.add_argument("home", type=Path, help="the party's folder")
    status.add_argument(
        "--check", action="store_true", help="say whether its process lives and is well; 1 if not"
    )
    status.add_argument(
        "--most-age",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="how old a status may be for --check; it is written every 30 s; default 120",
    )


def _add_serve(commands: Any) -> argparse.ArgumentParser:
    parser = add_command(commands, "serve", "run a study as its aggregator", _serve)
    parser.add_argument("study", type=Path, help="the study's TOML file, approved here")
    parser.add_argument("--relay", help="URL of a relay that runs; default: start one here")
    parser.add_argument("--audit", type=Path, help=AUDIT_WORDS)
    parser.add_argument("--deadline", type=float, help="seconds for a phase; default 60")
    parser.add_argument("--waiting", type=float, help="seconds for who is missing; default 3600")
    parser.add_argument(
        "--until",
        type=_moment,
        metavar="DATE",
        help="collect a study of single sums from parties that come one after the other; from "
        "then on enough silos are enough: 2026-12-24 (its end), or 2026-12-24T18:00, both UTC",
    )
    parser.add_argument(
        "--grace", type=float, help="seconds for late silos once enough are there; default 30"
    )
    return parser


def _moment(text: str) -> float:
    """Seconds since 1970 of a date's end, or of a time."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected a date such as 2026-12-24, got {text!r}"
        ) from None
    whole = timedelta(days=1) if "T" not in text and " " not in text else timedelta()
    utc = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    seconds = utc.timestamp() + whole.total_seconds()
    if seconds <= 0:  # of a day that has passed, serve knows more: it may go on with what is open
        raise argparse.ArgumentTypeError(f"expected a date to come, got {text!r}")
    return seconds


def _add_join(commands: Any) -> argparse.ArgumentParser:
    parser = add_command(commands, "join", "take part as a silo or a compute node", _join)
    parser.add_argument("--relay", help="the relay's URL; default: the roster's")
    parser.add_argument(
        "--relay-certificate", type=Path, help="PEM file: what a leaf relay at --relay shows"
    )
    parser.add_argument("--roster", type=Path, help="where nothing is approved yet: the roster")
    parser.add_argument("--ledger", type=Path, help="the data set's ledger; default in --home")
    parser.add_argument(
        "--device", default="auto", help="auto (a GPU if there is one), cpu or cuda; default auto"
    )
    parser.add_argument(
        "--check", action="store_true", help="say whether all is well to take part, and end"
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="end when the aggregator, which serves with --until, has no more to do here for now",
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="with --once: how long the aggregator may be silent; default 120",
    )
    return parser


@dataclass(kw_only=True)
class _Teller:
    """Tells people what is written down: what repeats itself once a minute, the rest at once.

    Args:
        json: every event, as the event log has it, for machines.
        progress: shows the steps, where there is a terminal.
    """

    json: bool
    progress: Bar | None = None
    _last: dict[str, tuple[str, float]] = field(default_factory=dict)

    def __call__(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "step" and self.progress is not None:
            self.progress.reach(event["step"], f"epsilon {event['epsilon']:.3f}")
            if self.progress.shown:
                return
        if self.json:
            emit(event)
            return
        values = {k: v for k, v in event.items() if k not in ("event", "time", "level", "party")}
        said, now = sentence(kind, values), time.monotonic()
        thing = _SAME_THING.get(kind, kind)
        before, then = self._last.get(thing, ("", -_QUIET_SECONDS))
        repeats = said == before or kind in ("step", "answered")
        if repeats and now - then < _QUIET_SECONDS:
            return
        self._last[thing] = (said, now)
        say(said)


def _serve(options: argparse.Namespace) -> int:
    try:
        return _served(options)
    except KeyboardInterrupt:  # the service's units take 1 for an end that was asked for
        warn("interrupted; what ledgers hold has been charged; hubbub serve goes on with the run")
        return 1


def _served(options: argparse.Namespace) -> int:
    """Serve a study to its end."""
    _check_engine()
    from hubbub.site.network.aggregator_process import check, host
    from hubbub.site.network.monitor import monitored

    began = time.monotonic()
    party_folder = PartyFolder.opened(options.home, terminal.unlock(options))
    study = Study.load(options.study)
    check(party_folder, study, options.data)
    if options.audit is not None:
        party_folder.keep_audit(study.id, read_audit(options.audit, plan(study)))
    if (kept := party_folder.audit(study.id)) and not options.json:
        say(f"the evidence will hold the audit in {kept}")
    said = {name: getattr(options, name) for name in ("deadline", "waiting", "grace")}
    timeouts = Timeouts(**{name: value for name, value in said.items() if value is not None})
    with (
        bar(study.name, steps_of(study), quiet=options.json) as progress,
        _terminated(),
        _sending(options, party_folder.name) as send,
    ):
        show = (lambda _: None) if options.json else _Teller(json=False, progress=progress)
        event_log = EventLog(party=party_folder.name, folder=options.home, tell=_both(show, send))
        with monitored(event_log, options.metrics_port), event_log.beating():
            out = host(
                party_folder,
                study,
                event_log,
                url=options.relay,
                data=options.data,
                timeouts=timeouts,
                until=options.until,
            )
    if out is None:
        answer(
            options,
            {"collected": True, "seconds": time.monotonic() - began},
            f"{study.name}: what comes before the training is collected; hubbub serve trains",
        )
        return 0
    final = json.loads((out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    answers = read_answers(out)
    if not options.json:
        show_answers(answers)
    answer(
        options,
        {
            "out": str(out),
            "final": final,
            "seconds": time.monotonic() - began,
            **({"statistics": answers} if answers else {}),
        },
        f"{study.name}: epsilon {number(final['epsilon'])} at delta {study.privacy.delta:g}",
        f"written to {out}; open {out / 'report.html'}, and check it with hubbub verify {out}",
    )
    return 0


def _join(options: argparse.Namespace) -> int:
    _check_engine()
    from hubbub.site.network.checkup import checkup
    from hubbub.site.network.join import Machine, check, join, relay_of
    from hubbub.site.network.monitor import monitored

    party_folder = PartyFolder.opened(options.home, terminal.unlock(options))
    machine = Machine(
        data=options.data,
        ledger=options.ledger,
        device=options.device,
        certificate=options.relay_certificate,
    )
    roster = options.roster and read_roster(options.roster)
    if options.check:
        return _checked(options, checkup(party_folder, machine, url=options.relay, roster=roster))
    approved = check(party_folder, machine)
    relay = relay_of(party_folder, options.relay, roster, machine.certificate)
    if not options.json:
        names = ", ".join(approved) or "none yet, which hubbub approve changes"
        say(f"{party_folder.name} takes part; approved studies: {names}; end with Ctrl-C")
    show = _Teller(json=options.json)
    try:
        with _terminated(), _sending(options, party_folder.name) as send:
            event_log = EventLog(
                party=party_folder.name, folder=options.home, tell=_both(show, send)
            )
            with monitored(event_log, options.metrics_port), event_log.beating():
                join(
                    party_folder,
                    relay,
                    machine,
                    event_log,
                    url=options.relay,
                    once=options.patience if options.once else None,
                )
    except KeyboardInterrupt:
        pass
    return 0


def _sending(options: argparse.Namespace, party: str) -> AbstractContextManager[Tell]:
    """What events are sent with, where they are."""
    if not options.otlp:
        return nullcontext(lambda _: None)
    from hubbub.site.network.monitor import exported

    return exported(party, warn)


def _both(show: Tell, send: Tell) -> Tell:
    """Tell people, and whoever collects events."""

    def tell(event: dict[str, Any]) -> None:
        show(event)
        send(event)

    return tell


def _checked(options: argparse.Namespace, findings: list[Checked]) -> int:
    """Show what a checkup found; 1 if anything is not well."""
    well = all(finding.well for finding in findings)
    if options.json:
        emit({"well": well, "checks": [asdict(finding) for finding in findings]})
        return 0 if well else 1
    rows = [
        (finding.check, finding.found if finding.well else "see below", _OK[finding.well])
        for finding in findings
    ]
    table("Whether this party could take part", ("check", "found", "ok?"), rows, texts=3)
    for finding in findings:
        if not finding.well:
            say(f"{finding.check}: {finding.found}")
    return 0 if well else 1


@contextmanager
def _terminated() -> Iterator[None]:
    """A polite request to end is like Ctrl-C: what was started is ended too."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _status(options: argparse.Namespace) -> int:
    status = last_status(options.home)
    if options.check:
        return _is_well(options, status)
    if options.json:
        emit(status)
        return 0
    rows = [(key.replace("_", " "), _cell(key, value)) for key, value in status.items()]
    table("Where the study stands", ("", ""), rows)
    return 0


def _is_well(options: argparse.Namespace, status: dict[str, Any]) -> int:
    """Whether a party that runs somewhere else is well, by the status that it wrote."""
    from hubbub.site.network.monitor import health

    well, told = health(status, options.most_age)
    if options.json:
        emit({"well": well, **told})
    else:
        say(": ".join(told.values()))
    return 0 if well else 1


def _cell(key: str, value: object) -> str:
    if key == "last_progress" and isinstance(value, int | float) and value:
        return f"{datetime.fromtimestamp(value, UTC):%Y-%m-%d %H:%M:%S} UTC"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "nobody"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {one}" for key, one in value.items())
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _check_engine() -> None:
    if importlib.util.find_spec("nats") is None:
        raise UserError(f"expected the library nats-py to be installed; {with_extra('net')}")
