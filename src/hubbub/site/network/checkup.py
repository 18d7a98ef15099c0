"""`hubbub join --check`: whether this party could take part, found out without taking part.

Nothing is trained, answered, charged or written, and no lock is taken, so that it may run beside
the process that takes part. What is found says nothing about records but that they can be read.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from cryptography import x509

from hubbub import VERSION
from hubbub.core.disk import open_ordinary, why_of
from hubbub.core.errors import DataError, HubbubError, UserError, with_extra
from hubbub.core.protocol.primitives.identity import Roster
from hubbub.core.protocol.primitives.wire import VERSION as WIRE
from hubbub.core.study import foreign_code, silo_records
from hubbub.core.study.attested_roles import AttestedRole
from hubbub.core.study.study import Study
from hubbub.core.verification.attestation.policy import REPORT_DATA_BYTES
from hubbub.core.verification.attestation.study_attestation import clock, judge
from hubbub.learning.queries.training_query import about_own_code
from hubbub.site.network.join import Machine, check_records, check_role, relay_of
from hubbub.site.network.local_line import is_answered
from hubbub.site.network.nats.relay import TELL_DAYS, Relay, pin_of
from hubbub.site.network.nats.relay_connection import LoginTrial, tried
from hubbub.site.network.party_folder import LEDGER, PartyFolder

_GIB = 1 << 30
_DISK = _GIB // 2  # bytes for ledger, event log and models
_READ_WHOLE = 1 << 24  # bytes of a file that is read in a few seconds
_SKEW = timedelta(days=1)  # as much as `tls.check` allows


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What came of one check: in words; if it is not well, a sentence with what to do."""

    check: str
    found: str
    well: bool = True


def checkup(
    party_folder: PartyFolder,
    machine: Machine,
    *,
    url: str | None = None,
    roster: Roster | None = None,
    door: Path | None = None,
) -> list[Checked]:
    """Look at everything that taking part needs, in some ten seconds at most.

    At a door, a socket, requests are taken in place of a relay's.
    """
    check_role(party_folder)
    ledger = machine.ledger or party_folder.home / LEDGER
    with ThreadPoolExecutor(1) as pool:
        if door is None:
            reached = pool.submit(lambda: list(_relay(party_folder, url, roster, machine)))
        else:
            reached = pool.submit(lambda: [_found("socket", partial(_door, door))])
        own = [
            _found("approval", partial(_approval, party_folder)),
            *_records_and_models(party_folder, machine),
            _found("disk", partial(_disk, party_folder.home, ledger.parent)),
            _found("versions", partial(_versions, party_folder)),
            *_evidence(party_folder),
        ]
        return [*reached.result(), *own]


def _found(check: str, look: Callable[[], str]) -> Checked:
    """What a look finds, or what is wrong."""
    try:
        return Checked(check=check, found=look())
    except HubbubError as error:
        return Checked(check=check, found=str(error), well=False)


def _relay(
    party_folder: PartyFolder, url: str | None, roster: Roster | None, machine: Machine
) -> Iterator[Checked]:
    """What is found of the relay, by one log-in to each of its servers."""
    try:
        relay = relay_of(party_folder, url, roster, machine.certificate)
        trials = tried(relay, party_folder.keys)
    except HubbubError as error:
        yield Checked(check="reachability", found=str(error), well=False)
        return
    for trial in trials:
        yield _found("reachability", partial(_reachability, trial))
        yield _found("certificate", partial(_certificate, relay, trial))
    shown = [trial.certificate for trial in trials if trial.certificate]
    yield _found("clock", partial(_clock, shown))


def _door(path: Path) -> str:
    """Whether requests are taken at a socket, or could be."""
    if path.is_socket() and is_answered(path):
        return f"a process listens at {path}"
    if path.exists() and not path.is_socket():
        raise UserError(f"expected a socket at {path}, found something else; name another --socket")
    if not os.access(path.parent, os.W_OK):
        raise UserError(
            f"expected a folder that can be written for {path}, found none; make it, or name "
            "another --socket"
        )
    return f"nobody listens at {path} yet; join will"


def _reachability(trial: LoginTrial) -> str:
    if trial.why:
        raise UserError(
            f"expected to log in to the relay, got: {trial.why}; ask whoever runs it whether it is "
            "up and has this roster, and whether firewalls let this machine connect to it"
        )
    return f"logged in at {trial.url}"


def _certificate(relay: Relay, trial: LoginTrial) -> str:
    shown = trial.certificate
    if shown is None:
        raise UserError(
            f"expected a trusted certificate of {trial.url}, got none; see the line about "
            "reachability"
        )
    if relay.pin and pin_of(shown) != relay.pin:
        raise UserError(
            f"expected the relay's key {relay.pin.hex()[:16]} of the roster, got "
            f"{pin_of(shown).hex()[:16]}; ask the aggregator which is right before you do anything "
            "else"
        )
    begins, ends = shown.not_valid_before_utc, shown.not_valid_after_utc
    left = (ends - datetime.now(UTC)) / timedelta(days=1)
    if left < TELL_DAYS:
        raise UserError(
            f"expected the relay's certificate to be valid for {TELL_DAYS} days or more, it ends "
            f"on {ends:%F}; have it renewed with hubbub relay, where the relay runs"
        )
    vouched = "the key is the roster's" if relay.pin else "a public CA vouches for it"
    return f"{begins:%F} to {ends:%F}, {left:.0f} days left; {vouched}"


def _clock(shown: list[x509.Certificate]) -> str:
    """A relay tells no time: its certificate's dates are all that this clock is compared with."""
    now = datetime.now(UTC)
    if not shown:
        raise UserError(
            f"expected the relay's certificate to compare this clock with ({now:%F %T} "
            "UTC), got none; see the line about reachability"
        )
    for one in shown:
        begins, ends = one.not_valid_before_utc, one.not_valid_after_utc
        if not begins - _SKEW <= now <= ends:
            raise UserError(
                "expected this clock to be within the relay's certificate, "
                f"{begins:%F} to {ends:%F}, got {now:%F %T} UTC; set the clock, "
                "or have the certificate renewed"
            )
    return f"{now:%F %T} UTC, within the dates of the relay's certificate; the relay states no time"


def _approval(party_folder: PartyFolder) -> str:
    names = [study.name for study in party_folder.studies()]
    if not names:
        raise UserError("expected a study that is approved here, found none; hubbub approve it")
    return ", ".join(names)


def _data(party_folder: PartyFolder, machine: Machine) -> str:
    """Whether each study's records can be had; files of some size are opened, not read."""
    studies = party_folder.open_studies()
    near = []
    for study in studies:
        check_records(party_folder, study, machine)
        if said := _try_records(study, party_folder, machine):
            near.append(f"{study.name} has {said}")
    found = "readable" if studies else "no approved study still needs any"
    return "; ".join([found, *near])


def _try_records(study: Study, party_folder: PartyFolder, machine: Machine) -> str:
    """How near a silo is to the most that a study lets it hold, where that is read here."""
    folder = machine.data or party_folder.home
    path = silo_records.file_of(study, party_folder.name, folder)
    if study.data.is_extracted:  # it was read, and is kept: a join reads no database any more
        return party_folder.read(study, machine.data)
    if path is None:
        if study.data.source in study.own_code:
            foreign_code.keep(study, [study.data.source])
        silo_records.named_object(study.data.source, "data.source")
        return ""
    try:
        open_ordinary(path).close()
    except OSError as error:
        raise DataError(
            f"expected to read {path.resolve()}, got: {why_of(error)}; check who may read it"
        ) from None
    return party_folder.read(study, machine.data) if path.stat().st_size <= _READ_WHOLE else ""


def _records_and_models(party_folder: PartyFolder, machine: Machine) -> Iterator[Checked]:
    """What only a silo needs: its records, and models that are not hubbub's own."""
    if party_folder.role != "silo":
        return
    yield _found("data", partial(_data, party_folder, machine))
    if _version("torch"):
        for study in filter(about_own_code, party_folder.studies()):
            yield _found("model", partial(_model, study))


def _model(study: Study) -> str:
    """What is seen of a model on made-up records."""
    from hubbub.learning import tried_model

    foreign_code.keep(study)  # the bytes that were approved, and no others
    seen = tried_model(study)
    if seen is None:
        return f"{study.name}: not tried; it can be tried if model.inputs is stated"
    work = "with the same work for each"
    if seen.work_varies:
        work = (
            "but does more work for some than for others: the time reveals something about "
            "records, which epsilon does not cover"
        )
    elif seen.method == "loop":
        work = "row by row, with the same work for each; for other records it may do more"
    return f"{study.name}: accepts synthetic records, {work}"


def _evidence(party_folder: PartyFolder) -> Iterator[Checked]:
    """Whether this machine's evidence would be enough, where an approved study asks for some."""
    for study in party_folder.studies():
        if study.attestation and (role := study.attestation.of(party_folder.role)):
            yield _found("evidence", partial(_shown, party_folder, role))


def _shown(party_folder: PartyFolder, role: AttestedRole) -> str:
    """Evidence that is made, verified, and shown to nobody."""
    at, nothing = clock(), bytes(REPORT_DATA_BYTES)
    shown = party_folder.attester(role.platform, nothing, at)
    claims = judge(shown, role, nothing, at)
    return f"{role.platform}, enough until {datetime.fromtimestamp(claims.until, UTC):%F %T} UTC"


def _disk(*folders: Path) -> str:
    free = []
    for folder in folders:
        if not (folder.is_dir() and os.access(folder, os.W_OK)):
            raise UserError(
                f"expected {folder.resolve()} to be a writable folder, it is not; make "
                "it, or check who may write there"
            )
        free.append(shutil.disk_usage(folder).free)
        if free[-1] < _DISK:
            raise UserError(
                f"expected {_DISK / _GIB:g} GiB free where {folder.resolve()} lies, found "
                f"{free[-1] / _GIB:.2f}; make room: if the ledger cannot be written, this "
                "party cannot answer"
            )
    return f"{min(free) / _GIB:.1f} GiB free"


def _versions(party_folder: PartyFolder) -> str:
    torch, nats = _version("torch"), _version("nats-py")
    if party_folder.role == "silo" and torch is None:
        trained = [study.name for study in party_folder.open_studies() if study.trains]
        if trained:
            raise UserError(
                f"expected torch to be installed at a silo of {trained[0]}, which trains a model; "
                + with_extra("learn,net")
            )
    libraries = {"hubbub": VERSION, "wire": str(WIRE), "Python": platform.python_version()}
    libraries |= {"torch": torch or "none", "nats-py": nats or "none"}
    return ", ".join(f"{name} {version}" for name, version in libraries.items())


def _version(library: str) -> str | None:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None
