"""`hubbub keygen`, `roster`, `relay`, `leaf` and `approve`: from nothing to a consortium."""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubbub.core.errors import HubbubError, UserError
from hubbub.core.number_format import at_most, several
from hubbub.core.planning.study_plan import plan
from hubbub.core.protocol.primitives.identity import Roster
from hubbub.core.study import foreign_code
from hubbub.core.study.study import Study
from hubbub.desk.cli.ledger_books import after, standing
from hubbub.desk.cli.main import actor
from hubbub.desk.cli.study_commands import show_plan
from hubbub.desk.cli.terminal import (
    PASSPHRASE,
    STUDY,
    add_command,
    answer,
    argument,
    chosen_passphrase,
    say,
    table,
    unlock,
    warn,
    writing,
)
from hubbub.site.network.event_log import last_status, state_of
from hubbub.site.network.folder_files import (
    check_roster,
    fingerprint,
    read_identity,
    read_roster,
    roster_of,
    write_roster,
)
from hubbub.site.network.party_folder import HOME, IDENTITY, LEDGER, RELAY, ROSTER, PartyFolder

if TYPE_CHECKING:
    from hubbub.core.planning.plan import Plan
    from hubbub.site.network.proposals import Inbox


def add_commands(commands: Any) -> None:
    """Register the commands."""
    roster = argument("roster", "the consortium's roster", Path)
    add_command(
        commands,
        "keygen",
        "make this party's keys",
        _keygen,
        argument("name", "the party's name, as the study calls it"),
        argument(
            "--role",
            "the party's role; default silo",
            choices=("silo", "node", "aggregator"),
            default="silo",
        ),
        argument("--home", f"folder to make; default {HOME}", Path, default=HOME),
        argument("--relay", "an aggregator's: the relay's URL, as the others reach it"),
        argument(
            "--relay-certificate",
            'PEM file whose key the roster will name, or "public" for a certificate of '
            "a public CA; default: one is created",
        ),
        argument("--passphrase", "ask for a passphrase that protects the keys", bool),
        PASSPHRASE,
    )
    add_command(
        commands,
        "roster",
        "make a roster from identities, or show one",
        _roster,
        argument("files", "identity files, or one roster", Path, nargs="+"),
        argument("--out", "file for the roster of these identities", Path),
    )
    add_command(
        commands,
        "relay",
        "write the relay's configuration from a roster; a running relay reads it again",
        _relay,
        roster,
        argument("--relay", "its URL; default: the roster's"),
        argument("--out", f"folder for it; default {HOME / RELAY}", Path, default=HOME / RELAY),
        argument("--leaf-port", "accept leaf relays at this port", int),
    )
    add_command(
        commands,
        "leaf",
        "write the configuration of a leaf relay, for parties whose machines may not "
        "connect outside their network",
        _leaf,
        roster,
        argument("--relay", "the leaf's URL, as these parties see it", required=True),
        argument(
            "--hub",
            "tls://HOST:PORT of the roster's relay, where PORT is its --leaf-port",
            required=True,
        ),
        argument(
            "--home",
            f"folder of a party behind the leaf; may be repeated; default {HOME}",
            Path,
            action="append",
        ),
        argument(
            "--hub-certificate",
            "its certificate, a PEM file; default relay.pem",
            Path,
            default=Path("relay.pem"),
        ),
        argument("--out", "the leaf's folder, readable by its user only", Path, required=True),
        PASSPHRASE,
    )
    add_command(
        commands,
        "approve",
        "approve a study at this party",
        _approve,
        STUDY,
        argument("--roster", "the consortium's roster; default: that in --home", Path),
        argument("--home", "this party's folder", Path, default=HOME),
        argument("--ledger", "the data set's ledger; default in --home", Path),
        argument(
            "--data", "for a silo: the folder of records, as given to join; default --home", Path
        ),
        argument("--yes", "do not ask for confirmation; scripts need this", bool),
        argument("--new-roster", "replace the roster that is there by this one", bool),
        argument("--withdraw", "withdraw an approval instead", bool),
        PASSPHRASE,
    )


def _keygen(options: argparse.Namespace) -> int:
    from hubbub.site.network.nats.server import named_relay

    if options.role != "aggregator" and (options.relay or options.relay_certificate):
        raise UserError("expected --relay only for an aggregator, got another role; leave it out")
    PartyFolder.check_new(options.home, options.name, options.role)
    closed = chosen_passphrase(options)
    folder = options.home / RELAY
    relay, key = named_relay(folder, options.relay, options.relay_certificate)
    party_folder = PartyFolder.made(
        options.home, options.name, options.role, passphrase=closed, relay=relay, relay_key=key
    )
    path, shown = options.home / IDENTITY, fingerprint(party_folder.keys.identity)
    name, role = party_folder.name, party_folder.role
    answer(
        options,
        {"name": name, "role": role, "fingerprint": shown, "identity": str(path)},
        f"{name} ({role}): keys in {options.home}, readable by this user only",
        f"fingerprint {shown}",
        f"give {path} to whoever makes the roster, and read the fingerprint to them by telephone",
    )
    return 0


def _roster(options: argparse.Namespace) -> int:
    if len(options.files) == 1 and options.out is None:
        roster = read_roster(options.files[0])
    else:
        roster = roster_of([read_identity(path) for path in options.files])
    if options.out is not None:
        with writing(options.out):
            write_roster(options.out, roster)
    relay = roster.parties[0].relay
    digest = roster.digest.hex()
    if not options.json:
        _show_roster(roster)
    keys = ("name", "role", "fingerprint")
    parties = [dict(zip(keys, row, strict=True)) for row in _rows(roster)]
    answer(
        options,
        {"digest": digest, "relay": relay, "parties": parties},
        "write this into the study, so that its id is bound to these keys:",
        "    [parties]",
        f'    roster = "{digest}"',
    )
    return 0


def _rows(roster: Roster) -> list[tuple[str, str, str]]:
    return [(party.name, party.role, fingerprint(party)) for party in roster.parties]


def _show_roster(roster: Roster) -> None:
    title = "The roster: compare every fingerprint with its owner by telephone"
    table(title, ("party", "role", "keys"), _rows(roster), texts=3)
    aggregator = roster.parties[0]
    vouched = aggregator.relay_key.hex()[:16] or "of a public CA"
    if aggregator.relay:
        say(f"relay {aggregator.relay}, its certificate's key {vouched}")


def _relay(options: argparse.Namespace) -> int:
    from hubbub.site.network.nats.server import RelayFiles

    roster = read_roster(options.roster)
    files = RelayFiles.written(options.out, roster, options.relay, options.leaf_port)
    result = {
        "configuration": str(files.configuration),
        "certificate": str(files.certificate.path),
        "days_left": files.certificate.days_left,
        "running": files.not_taken is not None,
        "reloaded": files.not_taken == "",
    }
    words = {
        None: f"run it with: nats-server -c {files.configuration}",
        "": "the running relay has loaded it",
    }.get(
        files.not_taken,
        f"the running relay has NOT loaded it, and still knows the old keys: {files.not_taken}; "
        "restart it (systemctl restart hubbub-relay, or hubbub serve), then run this command again",
    )
    answer(
        options,
        result,
        f"{files.configuration}: one account for each party, from public keys only",
        f"certificate valid for {files.certificate.days_left:.0f} days",
        words,
    )
    return 1 if files.not_taken else 0


def _leaf(options: argparse.Namespace) -> int:
    from hubbub.site.network.nats.relay import Relay
    from hubbub.site.network.nats.server import LeafFiles

    roster, opened = read_roster(options.roster), unlock(options)
    folders = [PartyFolder.opened(home, opened) for home in options.home or [HOME]]
    for folder in folders:
        if folder.keys.identity not in roster.parties[1:]:
            raise UserError(
                f"expected silos or nodes of {options.roster}, got {folder.name}, which "
                "that roster does not list with these keys; use its own roster"
            )
    here = Relay.of(options.relay)
    hub = Relay.of(options.hub, roster.parties[0].relay_key)
    keys = [folder.keys for folder in folders]
    with writing(options.out):
        files = LeafFiles.written(options.out, keys, here, hub, options.hub_certificate)
    names, certificate = ", ".join(folder.name for folder in folders), str(files.certificate.path)
    answer(
        options,
        {"configuration": str(files.configuration), "certificate": certificate},
        f"{files.configuration}: contains transport keys of {names}; readable by the "
        "server's user only",
        f"run it with: nats-server -c {files.configuration}",
        f"join with: --relay {here.urls[0]} --relay-certificate {certificate}",
    )
    return 0


def _approve(options: argparse.Namespace) -> int:
    party_folder = PartyFolder.opened(options.home, unlock(options))
    study = Study.load(options.study)
    if options.withdraw:
        return _withdraw(options, party_folder, study)
    roster = read_roster(options.roster) if options.roster else party_folder.roster
    return review(options, party_folder, study, roster, new_roster=options.new_roster)


def review(
    options: argparse.Namespace,
    party_folder: PartyFolder,
    study: Study,
    roster: Roster,
    *,
    new_roster: bool = False,
) -> int:
    """Show all that a study means for this party, ask, and approve it: of a file, or proposed.

    Where nobody is asked, a few lines say what was approved, and where the rest can be read.
    """
    from hubbub.site.network.proposals import APPROVED, Inbox

    check_roster(study, roster)
    inbox = Inbox(party_folder)
    hashes = foreign_code.code_hashes(study)
    if not (options.json or options.yes):
        show_study(party_folder, study, roster, options.ledger, hashes)
    if new_roster:
        if left := party_folder.open_collections(beside=roster):
            names = ", ".join(left.values())
            warn(
                "sums of studies with another roster are open and their keys are here: "
                f"{names}; with this roster they will never be answered, and approve "
                "--withdraw erases their keys"
            )
        _warn_of_restarts(party_folder, roster)
    question = f"May {party_folder.name} take part in {study.name}?"
    if not decided(question, options, inbox, study.id):
        say("not approved; nothing was changed")
        return 1
    path = party_folder.approve(
        study, roster, new_roster=new_roster, seen=hashes, data=options.data
    )
    inbox.say(study.id, APPROVED, actor())
    named = {"study_id": study.id.hex(), "own_code": study.own_code, "own_code_sha256": hashes}
    made = plan(study)
    result = {**named, "approved": True, "file": str(path), "warnings": list(made.warnings)}
    lines = [f"approved: {study.name}, id {study.id.hex()}"]
    if options.yes and not options.json:
        lines += _costs(party_folder, made, options.ledger)
        lines += [f"code that runs at this party: {name}, {it}" for name, it in hashes.items()]
        notes = f", with {several(len(made.warnings), 'note')}" if made.warnings else ""
        lines += [
            f"its plan{notes}: hubbub plan {path}",
            f"its parties: hubbub roster {options.home / ROSTER}",
        ]
    answer(options, result, *lines)
    return 0


def _withdraw(options: argparse.Namespace, party_folder: PartyFolder, study: Study) -> int:
    if study.id in party_folder.open_collections():
        warn(
            f"a sum of {study.name} is open, and its key is here: the key will be erased for ever, "
            "nobody can open what was deposited, and what silos have paid stays paid"
        )
        if not _agreed("Withdraw it anyway?", options):
            say("not withdrawn; nothing was changed")
            return 1
    there = party_folder.withdraw(study.id)
    if there:
        from hubbub.site.network.proposals import WITHDRAWN, Inbox

        Inbox(party_folder).say(study.id, WITHDRAWN, actor())
    words = "withdrawn" if there else "it was not approved here"
    answer(options, {"study_id": study.id.hex(), "withdrawn": there}, words)
    return 0 if there else 1


def _warn_of_restarts(party_folder: PartyFolder, roster: Roster) -> None:
    """Say what is lost with another roster, and what is not, before it is there."""
    status: dict[str, Any] = {}
    with suppress(UserError):
        status = last_status(party_folder.home)
    ended = []
    for study in party_folder.ended_by(roster):  # several may have a name: at a silo ids are told
        attempts = state_of(status, study.id).get("attempts")
        ended.append(f"{study.name} ({attempts} attempts made)" if attempts else study.name)
    if ended:
        warn(
            f"with this roster {', '.join(ended)} will not continue, because a study's id "
            "is bound to the keys in its roster; a training starts again at step 0 under "
            "its new id, and what was spent stays spent; the ledger and finished results "
            "stay, and statistics are computed again"
        )


def show_study(
    party_folder: PartyFolder,
    study: Study,
    roster: Roster,
    ledger: Path | None,
    hashes: Mapping[str, str],
) -> None:
    """Everything that is approved: with whom, what is trained on what, and what it costs.

    Args:
        party_folder: whose people are shown it.
        ledger: of its data set; the one in its folder if None.
        hashes: of code that runs here, by name.
    """
    _show_roster(roster)
    said = tomllib.loads(study.as_toml())
    table("The study in full", ("", ""), list(_flat(said)), texts=2)
    if hashes:
        rows = [(name, known_hash or "not found here") for name, known_hash in hashes.items()]
        title = "Code that runs at this party, with the SHA-256 of its source"
        table(title, ("", ""), rows, texts=2)
    else:
        say("code that runs at this party: only hubbub's own")
    training = study.training
    if training is not None and training.evaluate is None and study.validation is None:
        say("no evaluation on the silos' records")
    made = plan(study)
    show_plan(made)
    for words in _costs(party_folder, made, ledger):
        say(words)


def _costs(party_folder: PartyFolder, made: Plan, ledger: Path | None) -> list[str]:
    """What a study spends; at a silo also what its ledger allows, and what it will hold then."""
    costs = f"this study spends at most epsilon {at_most(made.stated.epsilon)}"
    if party_folder.role != "silo":
        return [costs]
    ledger, study = ledger or party_folder.home / LEDGER, made.study
    words = [*standing(ledger, study.privacy), costs]
    if ledger.is_file():
        words.append(after(ledger, made, plans_beside(party_folder, study)))
    return words


def plans_beside(party_folder: PartyFolder, study: Study) -> list[Plan]:
    """Of the other studies that are approved in a party's folder, and not over."""
    plans = []
    for one in party_folder.unfinished():
        if one.id != study.id:
            with suppress(HubbubError):  # it does not run here either
                plans.append(plan(one))
    return plans


def _flat(said: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Every key of a study with its value."""
    for key, value in said.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            for place, part in enumerate(value):
                yield from _flat(part, f"{before}{key}[{place}].")
        else:
            shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            yield f"{before}{key}", shown


def decided(question: str, options: argparse.Namespace, inbox: Inbox, study: bytes) -> bool:
    """Whether the person at the keyboard says yes, and nobody else has decided meanwhile."""
    before = inbox.standing(study)
    if not _agreed(question, options):
        return False
    if inbox.standing(study) != before:
        raise UserError(
            "expected the study to wait for your answer, somebody else has decided on it; nothing "
            "was changed: look at it again"
        )
    return True


def _agreed(question: str, options: argparse.Namespace) -> bool:
    """Whether the person at the keyboard says yes, or has said --yes before."""
    if options.yes:
        return True
    if options.json or not sys.stdin.isatty():
        raise UserError(
            "expected a terminal to ask on, found none; read what is shown and add --yes"
        )
    with suppress(EOFError):  # who ends the input has not said yes
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    return False
