"""`hubbub keygen`, `roster`, `approve`, `serve`, `join` and `status`: studies among machines."""

from __future__ import annotations

import argparse
import importlib.util
import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubbub.assurance import read_audit
from hubbub.cli.output import add_command, answer, bar, emit, number, say, table
from hubbub.cli.training_commands import AUDIT_WORDS, show_plan
from hubbub.disk import json_value, read_bytes
from hubbub.errors import UserError
from hubbub.network.key_files import fingerprint, roster_of, roster_toml
from hubbub.network.party_folder import IDENTITY, PartyFolder, read_identity, read_roster
from hubbub.planning import plan
from hubbub.study import Study

if TYPE_CHECKING:
    from hubbub.network.flare.site_settings import Settings

HOME = Path("hubbub-home")


def add_commands(commands: Any) -> None:
    """Register the commands."""
    made = add_command(commands, "keygen", "make this party's keys", _keygen)
    made.add_argument("name", help="the party's name, as the study calls it")
    made.add_argument(
        "--role",
        choices=("silo", "node", "aggregator"),
        default="silo",
        help="what the party does; default silo",
    )
    made.add_argument("--home", type=Path, default=HOME, help=f"folder to make; default {HOME}")
    listed = add_command(commands, "roster", "make a roster of identities, or read one", _roster)
    listed.add_argument("files", type=Path, nargs="+", help="identities, or one roster")
    listed.add_argument("--out", type=Path, help="file for the roster of these identities")
    approved = add_command(commands, "approve", "approve a study at this party", _approve)
    approved.add_argument("study", type=Path, help="the study's TOML file")
    approved.add_argument("--roster", type=Path, help="the consortium's roster")
    approved.add_argument("--home", type=Path, default=HOME, help="this party's folder")
    approved.add_argument("--yes", action="store_true", help="do not ask")
    approved.add_argument("--withdraw", action="store_true", help="take an approval back instead")
    kits = add_command(commands, "provision", "make FLARE's startup kits, with TLS", _provision)
    kits.add_argument("roster", type=Path, help="the consortium's roster")
    kits.add_argument("--host", required=True, help="the server's name, as the sites reach it")
    kits.add_argument("--port", type=int, default=8002, help="of the server; default 8002")
    kits.add_argument("--out", type=Path, required=True, help="new folder for the kits")
    for parser in (_add_serve(commands), _add_join(commands)):
        parser.add_argument("--home", type=Path, default=HOME, help="this party's folder")
        parser.add_argument("--kit", type=Path, required=True, help="this site's startup kit")
        parser.add_argument(
            "--allow-byoc", action="store_true", help="keep a site's rule that jobs may bring code"
        )
    status = add_command(commands, "status", "where a study stands, as this party sees it", _status)
    status.add_argument("home", type=Path, help="the party's folder")


def _add_serve(commands: Any) -> argparse.ArgumentParser:
    parser = add_command(commands, "serve", "run a study as its aggregator", _serve)
    parser.add_argument("study", type=Path, help="the study's TOML file, approved here")
    parser.add_argument("--audit", type=Path, help=AUDIT_WORDS)
    parser.add_argument("--admin", type=Path, help="startup kit of FLARE's administrator")
    parser.add_argument("--job", type=Path, help="write the job here and run nothing")
    parser.add_argument("--running", action="store_true", help="FLARE's server is up already")
    parser.add_argument("--deadline", type=float, help="seconds for a phase; default 60")
    parser.add_argument("--waiting", type=float, help="seconds for who is missing; default 3600")
    return parser


def _add_join(commands: Any) -> argparse.ArgumentParser:
    parser = add_command(commands, "join", "take part as a silo or a compute node", _join)
    parser.add_argument("--data", type=Path, help="folder of the records; default --home")
    parser.add_argument("--ledger", type=Path, help="the data set's ledger; default in --home")
    parser.add_argument("--device", help="auto, cpu or cuda; default auto")
    return parser


def _keygen(options: argparse.Namespace) -> int:
    site = PartyFolder.made(options.home, options.name, options.role)
    identity = site.keys.identity
    path, shown = options.home / IDENTITY, fingerprint(identity)
    answer(
        options,
        {"name": site.name, "role": site.role, "fingerprint": shown, "identity": str(path)},
        f"{site.name} ({site.role}): keys in {options.home}, for this party alone",
        f"fingerprint {shown}",
        f"give {path} to whoever makes the roster, and read the fingerprint out",
    )
    return 0


def _roster(options: argparse.Namespace) -> int:
    if len(options.files) == 1 and options.out is None:
        roster = read_roster(options.files[0])
    else:
        roster = roster_of([read_identity(path) for path in options.files])
    if options.out is not None:
        options.out.write_text(roster_toml(roster), encoding="utf-8")
    rows = [(one.name, one.role, fingerprint(one)) for one in roster.parties]
    if options.json:
        parties = [dict(zip(("name", "role", "fingerprint"), row, strict=True)) for row in rows]
        emit({"digest": roster.digest.hex(), "parties": parties})
        return 0
    table("The roster: compare every fingerprint with its owner", ("party", "role", "keys"), rows)
    say("write this into the study, so that its id stands for these keys:")
    say("    [parties]")
    say(f'    roster = "{roster.digest.hex()}"')
    return 0


def _approve(options: argparse.Namespace) -> int:
    site, study = PartyFolder.opened(options.home), Study.load(options.study)
    if options.withdraw:
        there = site.withdraw(study.id)
        words = "withdrawn" if there else "it was not approved here"
        answer(options, {"study_id": study.id.hex(), "withdrawn": there}, words)
        return 0 if there else 1
    if options.roster is None:
        raise UserError("expected --roster, the file that all parties compared, got none; name it")
    roster = read_roster(options.roster)
    if not options.json:
        show_plan(plan(study))
    if not options.yes and not _asked(f"May {site.name} take part in {study.name}?", options):
        say("not approved; nothing was changed")
        return 1
    path = site.approve(study, roster)
    named = {"study_id": study.id.hex(), "own_code": study.own_code}
    found = {**named, "approved": True, "file": str(path)}
    answer(options, found, f"approved: {study.name}, id {study.id.hex()}")
    return 0


def _asked(question: str, options: argparse.Namespace) -> bool:
    """Whether the person at the keyboard says yes."""
    if options.json or not sys.stdin.isatty():
        raise UserError("expected somebody to ask, found no terminal; say --yes to approve")
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")


def _provision(options: argparse.Namespace) -> int:
    from hubbub.network.flare.provision import provision

    _check_engine()
    roster = read_roster(options.roster)
    made = provision(options.out, roster, host=options.host, port=options.port)
    if options.json:
        emit({"kits": {name: str(path) for name, path in made.items()}})
        return 0
    title = "Startup kits: each goes to its party, by a way that nobody else reads"
    table(title, ("", ""), [(name, str(path)) for name, path in made.items()])
    return 0


def _serve(options: argparse.Namespace) -> int:
    from hubbub.network.flare.job import write_job

    site, study = PartyFolder.opened(options.home), Study.load(options.study)
    made = plan(study)
    if site.study(study.id) is None:
        raise UserError("expected a study that was approved here, got another; hubbub approve it")
    if options.audit is not None:
        site.keep_audit(study.id, read_audit(options.audit, made))
    if (kept := site.audit(study.id)) and not options.json:
        say(f"the evidence will hold the audit in {kept}")
    if options.job is not None:
        write_job(options.job, study, site.roster, made.quorum)
        answer(options, {"job": str(options.job)}, f"job written to {options.job}")
        return 0
    _check_engine()
    if options.admin is None:
        raise UserError("expected --admin, the startup kit of FLARE's administrator, got none")
    return _supervised(options, site, study, made.quorum)


def _supervised(options: argparse.Namespace, site: PartyFolder, study: Study, quorum: int) -> int:
    """Serve until the study is done."""
    from hubbub.network.flare.outcome import run_folder
    from hubbub.network.flare.parent import Parent
    from hubbub.network.flare.supervisor import Serving, told

    began = time.monotonic()
    settings, kit = _prepared(options, deadline=options.deadline, waiting=options.waiting)
    parent = None if options.running else Parent(kit, options.home / "engine.log")
    out = run_folder(options.home, study.id.hex())
    with bar(study.name, study.training.steps, quiet=options.json) as progress:

        def tell(event: dict[str, Any]) -> None:
            if event["event"] == "step":
                progress.reach(event["step"], f"epsilon {event['epsilon']:.3f}")
            elif not options.json:
                say(told(event))

        serving = Serving(
            study=study,
            roster=site.roster,
            quorum=quorum,
            settings=settings,
            parent=parent,
            admin_kit=options.admin,
            tell=tell,
        )
        try:
            with _terminated():
                serving.run()
        finally:
            if parent is not None:
                parent.stop()
    final = json.loads((out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    answer(
        options,
        {"out": str(out), "final": final, "seconds": time.monotonic() - began},
        f"{study.name}: epsilon {number(final['epsilon'])} at delta {study.privacy.delta:g}",
        f"written to {out}; open {out / 'report.html'}, and check it with hubbub verify {out}",
    )
    return 0


def _prepared(options: argparse.Namespace, **own: Any) -> tuple[Settings, Path]:
    """The settings of a site, and its startup kit made ready with them."""
    from hubbub.network.flare.kit import prepare
    from hubbub.network.flare.site_settings import Settings

    byoc, home = options.allow_byoc, options.home.resolve()
    settings = Settings.changed(options.kit / "local", home, allow_byoc=byoc, **own)
    return settings, prepare(options.kit, settings)


def _join(options: argparse.Namespace) -> int:
    from hubbub.network.flare.parent import Parent
    from hubbub.network.flare.supervisor import keep_joined, told

    _check_engine()
    site = PartyFolder.opened(options.home)
    if site.role == "aggregator":
        raise UserError("expected a silo or a compute node, got the aggregator; use hubbub serve")
    _, kit = _prepared(
        options,
        data=str(options.data.resolve()) if options.data else None,
        ledger=str(options.ledger.resolve()) if options.ledger else None,
        device=options.device,
    )
    if kit.name != site.name:
        raise UserError(
            f"expected the startup kit of {site.name}, got that of {kit.name}; name the right one"
        )
    parent = Parent(kit, options.home / "engine.log")
    if not options.json:
        approved = ", ".join(study.name for study in site.studies()) or "none yet"
        say(f"{site.name} takes part; approved studies: {approved}; end with Ctrl-C")
    try:
        with _terminated():
            keep_joined(
                parent,
                options.home,
                lambda event: emit(event) if options.json else say(told(event)),
                until=lambda: False,
            )
    except KeyboardInterrupt:
        pass
    finally:
        parent.stop()
    return 0


@contextmanager
def _terminated() -> Iterator[None]:
    """A polite request to end is like Ctrl-C: what was started is ended too."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _status(options: argparse.Namespace) -> int:
    path = options.home / "status.json"
    try:
        status: dict[str, Any] = json_value(read_bytes(path))
        status["age_seconds"] = max(0.0, time.time() - status.pop("time"))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError):
        raise UserError(
            f"expected a party's folder that has taken part in a study, found no {path}; check the "
            "path"
        ) from None
    if options.json:
        emit(status)
        return 0
    rows = [(key.replace("_", " "), _cell(value)) for key, value in status.items()]
    table("Where the study stands", ("", ""), rows)
    return 0


def _cell(value: object) -> str:
    if isinstance(value, float):
        return number(value)
    if isinstance(value, dict):
        return ", ".join(f"{key}: {one}" for key, one in value.items())
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _check_engine() -> None:
    if importlib.util.find_spec("nvflare") is None:
        raise UserError("expected NVIDIA FLARE to be installed; pip install 'hubbub[net]'")
