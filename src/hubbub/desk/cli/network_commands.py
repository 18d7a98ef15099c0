"""`hubbub serve`, `join` and `status`: studies among machines."""

from __future__ import annotations

import argparse
import importlib.util
import json
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubbub.core.errors import UserError, with_extra
from hubbub.core.number_format import at_most
from hubbub.core.planning.study_plan import plan, steps_of
from hubbub.core.study.study import Study
from hubbub.core.verification.evidence.audit_result import read_audit
from hubbub.desk.cli.terminal import (
    AUDIT,
    DEVICE,
    PASSPHRASE,
    Bar,
    add_command,
    answer,
    argument,
    bar,
    emit,
    read_answers,
    say,
    show_answers,
    table,
    unlock,
    warn,
)
from hubbub.site.network.event_log import DONE, EventLog, last_status, sentence
from hubbub.site.network.folder_files import read_roster
from hubbub.site.network.party_folder import HOME, LEDGER, PartyFolder
from hubbub.site.network.waiting import Timeouts

if TYPE_CHECKING:
    from hubbub.site.network.checkup import Checked
    from hubbub.site.network.event_log import Tell

_QUIET_SECONDS = 60.0  # between two lines of the same kind
# Events that say how one thing stands: each is told where the last of them was another.
_SAME_THING = {"unconnected": "connected", "heard": "silent", "left": "silent", "session": "silent"}


def add_commands(commands: Any) -> None:
    """Register the commands."""
    process = (
        argument("--home", "this party's folder", Path, default=HOME),
        argument("--data", "folder of the records; default --home", Path),
        argument(
            "--metrics-port", "show /healthz, /metrics and a page on this port of 127.0.0.1", int
        ),
        argument(
            "--otlp", "send events to the collector that OTEL_EXPORTER_OTLP_ENDPOINT names", bool
        ),
        PASSPHRASE,
    )
    add_command(
        commands,
        "serve",
        "run a study, or several of a folder, as the aggregator",
        _serve,
        argument(
            "study",
            "the study's TOML file, approved here; or a folder of them, which are proposed to the "
            "parties and run several at a time, until Ctrl-C",
            Path,
        ),
        argument(
            "--once", "with a folder: exit once all its studies are done, or cannot begin", bool
        ),
        argument("--relay", "URL of a running relay; default: start one here"),
        AUDIT,
        argument("--deadline", "seconds to wait in each phase; default 60", float),
        argument("--waiting", "seconds to wait for missing parties; default 3600", float),
        argument(
            "--until DATE",
            "keep a study's sum open, so that parties can come one after the other; from this "
            "time on a quorum of silos suffices: 2026-12-24 (its end), or 2026-12-24T18:00, "
            "both UTC",
            _moment,
        ),
        argument(
            "--grace", "seconds to wait for late silos once enough have answered; default 30", float
        ),
        *process,
    )
    add_command(
        commands,
        "join",
        "take part as a silo or a compute node",
        _join,
        argument("--relay", "the relay's URL; default: the roster's"),
        argument(
            "--relay-certificate", "PEM file: the certificate of the leaf relay at --relay", Path
        ),
        argument(
            "--socket PATH",
            "take requests at this socket instead of a relay, as Flower's ClientApp hands them in",
            Path,
        ),
        argument("--roster", "where nothing is approved yet: the roster, kept in --home", Path),
        argument("--ledger", "the data set's ledger; default in --home", Path),
        DEVICE,
        argument("--check", "check whether this party could take part, and exit", bool),
        argument(
            "--once",
            "exit when the aggregator, started with --until, has no more work here for now",
            bool,
        ),
        argument(
            "--patience SECONDS",
            "with --once: how long to wait for a silent aggregator; default 120",
            float,
            default=120.0,
        ),
        *process,
    )
    add_command(
        commands,
        "status",
        "the state of a study, as this party sees it",
        _status,
        argument("home", f"the party's folder; default {HOME}", Path, nargs="?", default=HOME),
        argument(
            "--check", "check whether its process is alive and well; exit code 1 if not", bool
        ),
        argument(
            "--most-age SECONDS",
            "with --check: the oldest acceptable status; one is written every 30 s; default 120",
            float,
            default=120.0,
        ),
    )


def _moment(text: str) -> float:
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
        raise argparse.ArgumentTypeError(f"expected a date in the future, got {text!r}")
    return seconds


@dataclass(kw_only=True)
class _Teller:
    """Tells people what is written down: what repeats itself once a minute, the rest at once."""

    json: bool  # every event, as the event log has it, for machines
    progress: Bar | None = None  # shows the steps, where there is a terminal
    _last: dict[str, tuple[str, float]] = field(default_factory=dict)

    def __call__(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "step" and self.progress is not None:
            self.progress.reach(event["step"], f"epsilon {at_most(event['epsilon'])}")
            if self.progress.shown:
                return
        if self.json:
            emit(event)
            return
        if kind == "stopped" and "study" not in event:  # the process ends with it, and says it
            return
        values = {k: v for k, v in event.items() if k not in ("event", "time", "level", "party")}
        said, now = sentence(kind, values), time.monotonic()
        thing = _SAME_THING.get(kind, kind)
        if thing not in _SAME_THING.values():
            thing += f" of {values.get('study')}"
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
        warn("interrupted; charges already in the ledgers stay; hubbub serve continues the run")
        return 1


def _served(options: argparse.Namespace) -> int:
    _check_engine()
    from hubbub.site.network.aggregator_process import check, host

    began = time.monotonic()
    party_folder = PartyFolder.opened(options.home, unlock(options))
    # What is not stated keeps the default that Timeouts has.
    stated = {name: getattr(options, name) for name in ("deadline", "waiting", "grace")}
    timeouts = Timeouts(**{name: value for name, value in stated.items() if value is not None})
    if options.study.is_dir():
        return _served_folder(options, party_folder, timeouts)
    if options.once:
        raise UserError("expected a folder of studies with --once, got one study; leave --once out")
    study = Study.load(options.study)
    check(party_folder, study, options.data)
    if options.audit is not None:
        party_folder.keep_audit(study.id, read_audit(options.audit, plan(study)))
    if (kept := party_folder.audit(study.id)) and not options.json:
        say(f"the evidence will contain the audit in {kept}")
    with bar(study.name, steps_of(study), quiet=options.json) as progress:
        show = (lambda _: None) if options.json else _Teller(json=False, progress=progress)
        with _logging(options, party_folder, show) as event_log:
            out = host(
                party_folder,
                study,
                event_log,
                url=options.relay,
                data=options.data,
                timeouts=timeouts,
                until=options.until,
            )
    content: dict[str, Any] = {"seconds": time.monotonic() - began}
    if out is None:
        words = "the statistics before the training are collected"
        words = f"{study.name}: {words}; hubbub serve without --until trains"
        answer(options, {"collected": True, **content}, words)
        return 0
    final = json.loads((out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    content = {"out": str(out), "final": final, **content}
    if answers := read_answers(out):
        content["statistics"] = answers
    if not options.json:
        show_answers(answers)
    answer(
        options,
        content,
        f"{study.name}: epsilon {at_most(final['epsilon'])} at delta {study.privacy.delta:g}",
        f"written to {out}; open {out / 'report.html'}, and check it with hubbub verify {out}",
    )
    return 0


def _served_folder(
    options: argparse.Namespace, party_folder: PartyFolder, timeouts: Timeouts
) -> int:
    from hubbub.site.network.aggregator_process import host_all

    if options.until is not None or options.audit is not None:
        raise UserError(
            "expected one study with --until or --audit, got a folder; name the study's file"
        )
    with _logging(options, party_folder, _Teller(json=options.json)) as event_log:
        served = host_all(
            party_folder,
            options.study,
            event_log,
            url=options.relay,
            data=options.data,
            timeouts=timeouts,
            once=options.once,
        )
    studies = [*served.studies.values()]
    content = [
        {"study_id": one.study.id.hex(), "name": one.study.name, "state": one.state, "why": one.why}
        for one in studies
    ]
    lines = [f"{one.study.name}: {one.state}{f': {one.why}' if one.why else ''}" for one in studies]
    lines += [f"{path}: {why}" for path, why in served.unread.items()]
    unread = {str(path): why for path, why in served.unread.items()}
    answer(options, {"studies": content, "unread": unread}, *lines)
    return 0 if not unread and all(one.state == DONE for one in studies) else 1


def _join(options: argparse.Namespace) -> int:
    if options.socket is None:
        _check_engine()
    elif options.relay is not None:
        raise UserError("expected --relay or --socket, got both; leave one out")
    from hubbub.site.network.join import Machine, check, join, relay_of

    party_folder = PartyFolder.opened(options.home, unlock(options))
    machine = Machine(
        data=options.data,
        ledger=options.ledger,
        device=options.device,
        certificate=options.relay_certificate,
    )
    roster = options.roster and read_roster(options.roster)
    if options.check:
        from hubbub.site.network.checkup import checkup  # a process that stays needs none of it

        at = {"url": options.relay, "roster": roster, "door": options.socket}
        return _checked(options, checkup(party_folder, machine, **at))
    if roster:
        party_folder.take_roster(roster)
    approved = check(party_folder, machine)
    relay = options.socket or relay_of(party_folder, options.relay, roster, machine.certificate)
    if not options.json:
        names = ", ".join(approved) or "none yet; hubbub inbox lists what is proposed"
        say(f"{party_folder.name} takes part; approved studies: {names}; stop with Ctrl-C")
    once = options.patience if options.once else None
    with (
        suppress(KeyboardInterrupt),
        _logging(options, party_folder, _Teller(json=options.json)) as event_log,
    ):
        join(party_folder, relay, machine, event_log, url=options.relay, once=once)
    return 0


@contextmanager
def _logging(
    options: argparse.Namespace, party_folder: PartyFolder, show: Tell
) -> Iterator[EventLog]:
    """What happens at a party, told to people and whoever collects events, while it takes part."""
    from hubbub.site.network.monitor import exported, monitored

    collector: AbstractContextManager[Tell] = nullcontext(lambda _: None)
    if options.otlp:
        collector = exported(party_folder.name, warn)
    # A polite request to end is like Ctrl-C: what was started is ended too.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with collector as send:

            def tell(event: dict[str, Any]) -> None:
                show(event)
                send(event)

            event_log = EventLog(party=party_folder.name, folder=options.home, tell=tell)
            page = None
            if options.metrics_port is not None:
                from hubbub.desk.cli.party_page import PartyPage

                silo = party_folder.role == "silo"
                ledger = (options.ledger or options.home / LEDGER) if silo else None
                page = PartyPage(event_log=event_log, folder=party_folder, ledger=ledger).served
            with monitored(event_log, options.metrics_port, page), event_log.beating():
                yield event_log
    finally:
        signal.signal(signal.SIGTERM, before)


def _checked(options: argparse.Namespace, findings: list[Checked]) -> int:
    """Show what a checkup found; 1 if anything is not well."""
    well = all(finding.well for finding in findings)
    if options.json:
        emit({"well": well, "checks": [asdict(finding) for finding in findings]})
        return 0 if well else 1
    rows = [
        (own.check, own.found if own.well else "see below", "yes" if own.well else "no")
        for own in findings
    ]
    table("Whether this party could take part", ("check", "found", "ok?"), rows, texts=3)
    for finding in findings:
        if not finding.well:
            say(f"{finding.check}: {finding.found}")
    return 0 if well else 1


def _status(options: argparse.Namespace) -> int:
    status = last_status(options.home)
    if options.check:  # whether a party that runs somewhere else is well, by what it wrote
        from hubbub.site.network.monitor import health

        well, told = health(status, options.most_age)
        answer(options, {"well": well, **told}, ": ".join(told.values()))
        return 0 if well else 1
    if options.json:
        emit(status)
        return 0
    studies = status.pop("studies", {})
    # How long each call took is for programs.
    told = {key: value for key, value in status.items() if not key.startswith("seconds_")}
    names = {key: _LABELS.get(key, key.replace("_", " ")) for key in told}
    rows = [(names[key], _cell(key, value)) for key, value in told.items()]
    table("State of the study", ("", ""), rows, texts=2)
    if len(studies) > 1:
        keys = ("study", "state", "step", "steps", "epsilon", "last_progress")
        shown = [{"step": one.get("attempts", ""), **one} for one in studies.values()]
        cells = [[_cell(key, one.get(key, "")) for key in keys] for one in shown]
        table("Studies", [key.replace("_", " ") for key in keys], cells, texts=len(keys))
    for one in studies.values():
        if one.get("why"):
            say(f"{one['study']} ({one['state']}): {one['why']}")
    return 0


_LABELS = {  # where the name of a value of the status does not say what it is
    "unconnected": "why not connected",
    "age_seconds": "written, seconds ago",
    "come": "have joined",
    "no_deposit": "why no deposit",
}


def _cell(key: str, value: object) -> str:
    if key in ("last_progress", "since", "open_until") and isinstance(value, int | float) and value:
        return f"{datetime.fromtimestamp(value, UTC):%Y-%m-%d %H:%M:%S} UTC"
    if key in ("absent_since", "twice_at") and isinstance(value, dict):
        value = {name: _cell("since", seconds) for name, seconds in value.items()}
    if isinstance(value, float):
        return at_most(value) if key == "epsilon" else f"{value:.4g}"
    if isinstance(value, dict):
        value = [f"{name}: {part}" for name, part in value.items()]
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "nobody"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _check_engine() -> None:
    if importlib.util.find_spec("nats") is None:
        raise UserError(f"expected the library nats-py to be installed; {with_extra('net')}")
