"""One process works with a party's folder at a time; this file knows no party."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from hubbub.core.disk import PRIVATE, locked, write_text
from hubbub.core.errors import DataError, HubbubError, IntegrityError, StudyError, UserError
from hubbub.core.planning.noise_shares import is_sparse
from hubbub.core.planning.planned_query import capacity_of
from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.core.registered import loaded, registered
from hubbub.core.runs.run_folder import REPORT
from hubbub.core.session.offer import RefusedError
from hubbub.core.study import extract, foreign_code, silo_records
from hubbub.core.study.extract import home_of
from hubbub.core.study.study import Study
from hubbub.core.verification.attestation.policy import ATTESTERS
from hubbub.core.verification.attestation.study_attestation import Attester, machine_evidence
from hubbub.core.verification.evidence.audit_result import write_audit
from hubbub.site.network.folder_files import (
    APPROVED,
    ApprovalFiles,
    SessionNotes,
    Unlock,
    check_roster,
    identity_beside,
    identity_toml,
    keys_of,
    keys_toml,
    read_roster,
    roster_in,
    text_of,
    write_roster,
)
from hubbub.site.network.kept_frames import KEY, open_keys


@contextmanager
def alone(home: Path) -> Iterator[None]:
    """One process works with a folder at a time."""
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(home / "lock"))
        except BlockingIOError:
            raise BusyError(
                f"expected to be the only process that works with {home.resolve()}, another hubbub "
                "does; end that one, or name another --home"
            ) from None
        yield


# What a party has on its own disk: docs/reference/files.md lists it.
#
# Nothing in it ever comes over the network but `witnessed` and `inbox`, on which nothing here
# rests: what is approved is copied from there. A study is believed if its id is approved here, the
# roster if the study names its digest. Both are read again whenever it matters, so that a process
# that runs for months knows what was approved, withdrawn or replaced a second ago; and as bytes,
# since the times of a file are what whoever copies it says.

KEYS, IDENTITY, ROSTER = "keys.toml", "identity.toml", "roster.toml"
HOME = Path("hubbub-home")  # where a party's folder is, unless it is said
AUDITS, MODELS, WITNESSED = "audits", "models", "witnessed"
RELAY, LEDGER, COLLATERAL = "relay", "ledger.sqlite", "collateral"
_ID = re.compile(r"[0-9a-f]{64}")
_T = TypeVar("_T")


class BusyError(UserError):
    """Another process works with a party's folder."""


class ReplacedError(HubbubError):
    """What a process began with was replaced on its disk: a new process is what it takes."""


@dataclass(frozen=True, kw_only=True)
class PartyFolder:
    """A party's folder, read and checked."""

    home: Path
    keys: Keys = field(repr=False)
    _read: dict[Path, tuple[str, Any]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @classmethod
    def made(
        cls,
        home: Path,
        name: str,
        role: str,
        *,
        passphrase: str = "",
        relay: str = "",
        relay_key: bytes = b"",
    ) -> PartyFolder:
        """A new folder with fresh keys, closed with a passphrase if there is one."""
        keys, path = Keys.generate(name, role).networked().naming(relay, relay_key), home / KEYS
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with alone(home):
            _check_no_keys(path)
            write_text(home / IDENTITY, identity_toml(keys.identity))
            write_text(path, keys_toml(keys, passphrase), mode=PRIVATE)
        return cls(home=home, keys=keys)

    @staticmethod
    def check_new(home: Path, name: str, role: str) -> None:
        """Whether `made` would make a folder, before anything else is written into it."""
        Keys.generate(name, role)  # refuses a name that no party can have
        _check_no_keys(home / KEYS)

    @classmethod
    def opened(cls, home: Path, unlock: Unlock | None = None) -> PartyFolder:
        """The folder that `made` made; UserError if it is none, or others can read its keys."""
        path = home / KEYS
        if not path.is_file():
            raise UserError(
                f"expected keys in {home}, found none; name the right --home, or make "
                "keys with hubbub keygen"
            )
        if os.name == "posix" and stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise UserError(
                f"expected {path} to be readable only by its owner, it is open to others; "
                f"chmod 600 {path}, and make new keys if anybody else may have read it"
            )
        return cls(home=home, keys=keys_of(text_of(path), unlock))

    @property
    def name(self) -> str:
        """The party's name."""
        return self.keys.identity.name

    @property
    def role(self) -> str:
        """What it does."""
        return self.keys.identity.role

    @property
    def roster(self) -> Roster:
        """Everybody, this party among them with just these keys, as the file says at this moment.

        Raises:
            UserError, StudyError: there is none, or this party is not in it as it is.
        """
        path = self.home / ROSTER
        if not path.is_file():
            raise UserError(
                f"expected the consortium's roster as {path}, found none; put it there with "
                "hubbub approve --roster"
            )
        try:
            roster = self.parsed(path, roster_in)
        except StudyError:
            raise StudyError(
                f"expected the consortium's roster as {path}, found something else; put it there "
                "with hubbub approve --roster and --new-roster"
            ) from None
        self._place_in(roster)
        return roster

    def take_roster(self, roster: Roster) -> None:
        """Put a roster here where there is none, so that proposals can be told from forgeries."""
        self._check_no_other(roster)
        write_roster(self.home / ROSTER, roster)

    def _check_no_other(self, roster: Roster) -> None:
        """This party is in a roster, and no other one is here."""
        self._place_in(roster)
        held = self.home / ROSTER
        if held.is_file() and read_roster(held) != roster:
            raise StudyError(
                f"expected the roster that is already in {held}, got another; a party has "
                "one folder for each consortium: choose another --home, or approve a study with "
                "--new-roster if a party was added, replaced or removed"
            )

    def check_place(self) -> None:
        """Whether a process that has begun with these keys can still speak for this party.

        A roster that is not there, or only half, says nothing yet; nothing is answered meanwhile.

        Raises:
            ReplacedError: there are other keys in the folder; a new process reads them.
            StudyError: the roster does not list this party any more.
        """
        try:
            roster = self.parsed(self.home / ROSTER, roster_in)
            kept = self.parsed(self.home / KEYS, identity_beside)
        except UserError:
            return
        if self.keys.identity not in roster.parties and kept != self.keys.identity:
            raise ReplacedError(
                f"expected the keys in {self.home.resolve()} with which this process began, found "
                "others and a roster without the old ones; start hubbub join again"
            )
        self._place_in(roster)

    def parsed(self, path: Path, parse: Callable[[str], _T]) -> _T:
        """What a file says at this moment; parsed anew only where it says something else."""
        text = text_of(path)
        held = self._read.get(path)
        if held is None or held[0] != text:
            held = self._read[path] = (text, parse(text))
        return held[1]

    @property
    def notes(self) -> SessionNotes:
        """What was opened and drawn here."""
        return SessionNotes(self.home)

    @property
    def index(self) -> int:
        """The party's place in the roster."""
        return self._place_in(self.roster)

    def _place_in(self, roster: Roster) -> int:
        """Where this party stands in a roster, with these keys."""
        if self.keys.identity not in roster.parties:
            raise StudyError(
                f"expected the roster to list {self.name} ({self.role}) with the keys in "
                f"{self.home}, it does not; compare fingerprints with whoever made it"
            )
        return roster.parties.index(self.keys.identity)

    def approve(
        self,
        study: Study,
        roster: Roster,
        *,
        new_roster: bool = False,
        seen: Mapping[str, str] | None = None,
        data: Path | None = None,
    ) -> Path:
        """Take a study and its roster in; from then on the party answers for it.

        A database is asked first, and a file that is there already is read: nothing is approved
        where that fails or there is too much of it, and how long it takes is over before anybody
        can ask (docs/privacy.md P31).

        Args:
            new_roster: it takes the place of the one that is here; studies of that one, whose ids
                stand for its keys, are answered no more.
            seen: the hashes of the study's code that whoever approves it was shown.
            data: the folder that a study's file names are relative to; the home if None.

        Raises:
            StudyError: they do not belong together, or this party has no part in them, or the code
                here is not the one that the study states, or that was shown.
            DataError: a silo's database does not answer, its records do not fit the study, or
                there are more than it states.
        """
        check_roster(study, roster)
        foreign_code.refuse_unstated_code(study)
        hashes = foreign_code.code_hashes(study)
        foreign_code.refuse_other_code(study, hashes)
        foreign_code.refuse_changed_code(hashes, hashes if seen is None else seen)
        if new_roster:
            self._place_in(roster)
        else:
            self._check_no_other(roster)
        approval = self._approval(study.id)
        if not approval.is_there:  # what a withdrawal that was killed has left is of another time
            self._forget(study.id)
        file = silo_records.file_of(study, self.name, data or self.home)
        if study.data.is_extracted or (file is not None and file.is_file()):
            self.read(study, data)
        write_roster(self.home / ROSTER, roster)
        approval.write(study, hashes)
        for name, digest in hashes.items():
            foreign_code.note(name, digest)
        if is_sparse(study.parties):
            self.notes.approve_graphs(study.id)
        return approval.path

    def read(self, study: Study, data: Path | None = None) -> str:
        """Read what a silo reads of a table, once if it is a database, or parts.

        A silo with more units than the study states has read nothing: to others its study is as
        one that nobody has approved (docs/privacy.md P19).

        Returns:
            How near the silo is to the most that it may hold, for its own people; nothing of a
            study that has no table here.

        Raises:
            DataError: it cannot be read, or has more units than the study states.
        """
        if self.role != "silo" or not study.data.is_declared:
            return ""
        folder = data or self.home
        units = silo_records.check_readable(study, self.name, folder)
        try:
            capacity = capacity_of(study, self.name, units)
        except DataError:
            silo_records.forget(study, self.name, folder)
            raise
        if study.data.is_extracted:
            self._approval(study.id).note_read(home_of(folder).resolve())
        return f"{units} {study.data.unit}s of at most {capacity}"

    def _has_read(self, study: Study) -> bool:
        """Whether nothing of a study is left to be read here."""
        once = self.role == "silo" and study.data.is_extracted
        return not once or self._approval(study.id).is_read

    def keep_audit(self, study: bytes, audit: Mapping[str, Any]) -> None:
        """Keep what an audit has found for the evidence of the study's run."""
        path = self._audit(study)
        path.parent.mkdir(exist_ok=True)
        write_audit(path, audit)

    def audit(self, study: bytes) -> Path | None:
        """The file of the study's audit, if one is kept."""
        path = self._audit(study)
        return path if path.is_file() else None

    def withdraw(self, study: bytes) -> bool:
        """Take an approval back, and forget what an audit has found; whether there was one.

        A node erases the keys of the study's collections, which nobody can open from then on
        (docs/privacy.md P30). No other change of a folder does that.

        Raises:
            IntegrityError: a key cannot be erased; the study is approved no more.
        """
        there, left = self._approval(study).is_there, []
        self._forget(study)
        for kept, its_study in open_keys(self.home):
            try:
                if its_study == study:
                    kept.erase(KEY)
                elif its_study is None:
                    left.append(kept.folder)
            except IntegrityError:
                left.append(kept.folder)
        if left:
            raise IntegrityError(
                f"expected to erase the keys of the study's collections, {left[0]} cannot be read "
                "or written; the study is withdrawn: check the disk, and withdraw it again"
            )
        return there

    def _forget(self, study: bytes) -> None:
        """A study is approved no more, and nothing of its approval is left."""
        approval = self._approval(study)
        folders = [*approval.read_in, self.home]
        for name, digest in approval.hashes.items():
            foreign_code.forget(name, str(digest))
        approval.path.unlink(missing_ok=True)  # first: it is approved no more
        self._audit(study).unlink(missing_ok=True)
        foreign_code.unbind(study)
        for folder in folders:
            extract.forget(study, self.name, folder)
        approval.remove()

    def open_collections(self, *, beside: Roster | None = None) -> dict[bytes, str]:
        """The studies, of other rosters than one, with a collection whose key this node has."""
        names: dict[bytes, str] = {}
        for kept, study in open_keys(self.home):
            name, roster = kept.folder.name[:16], ""
            with suppress(UserError):
                approved = Study.parse(text_of(self._approval(study or b"").path))
                name, roster = approved.name, approved.parties.roster
            if study != b"" and (beside is None or roster != beside.digest.hex()):
                names[study or kept.folder.name.encode()] = name
        return names

    def has_approved(self, study: bytes) -> bool:
        """Whether this party's people have approved a study and not withdrawn it."""
        return self._approval(study).is_there

    def approves(self, study: bytes) -> bool:
        """Whether a study is approved here at this moment, and the roster here is the study's."""
        try:
            approved = self.parsed(self._approval(study).path, Study.parse)
            here = approved.id == study and approved.parties.roster == self.roster.digest.hex()
            return here and self._has_read(approved)
        except UserError:  # not there, altered, or torn: nothing is answered by it
            return False

    @property
    def attester(self) -> Attester:
        """What makes this machine's evidence, with the collateral that lies here."""
        kinds = map(loaded, registered(ATTESTERS).values())
        return next((kind(self.home / COLLATERAL) for kind in kinds), machine_evidence)

    def approved_study(self, study_id: bytes) -> tuple[Study, Roster]:
        """A study that is approved here at this moment, and its roster.

        Raises:
            RefusedError: there is none such.
        """
        study = self.study(study_id)
        roster = self.roster if study else None
        if study is None or roster is None or study.parties.roster != roster.digest.hex():
            raise RefusedError(
                "not-approved",
                f"expected an approved study, got {study_id.hex()[:16]}; approve it with hubbub "
                "approve, if it should run",
            )
        return study, roster

    def study(self, study: bytes, *, unread: bool = False) -> Study | None:
        """The study with an id; None if none such is approved with the roster that is here.

        One whose database was not asked yet counts if it may be `unread`.

        Raises:
            StudyError: the file was altered since, or the source of code that the study names.
        """
        approval = self._approval(study)
        if not approval.is_there:
            return None
        approved_study = self._approved_in(approval.path)
        if approved_study.id != study:
            raise StudyError(
                f"expected {approval.path} to be the study that was approved, it was altered; "
                "approve it again, or remove the file"
            )
        other = approved_study.parties.roster != self.roster.digest.hex()
        if other or not (unread or self._has_read(approved_study)):
            return None
        check_roster(approved_study, self.roster)
        here = foreign_code.code_hashes(approved_study)
        foreign_code.refuse_changed_code(here, approval.hashes)
        foreign_code.bind(approved_study, approval.hashes)
        return approved_study

    @property
    def approved(self) -> set[str]:
        """The ids of approved studies, of whichever roster, by their files' names."""
        files = (self.home / APPROVED).glob("*.toml")
        return {path.stem for path in files if _ID.fullmatch(path.stem)}

    def studies(self) -> list[Study]:
        """All approved studies of the roster that is here."""
        ids = sorted(self.approved)
        roster = self.roster.digest.hex() if ids else ""
        paths = [self._approval(bytes.fromhex(hex_id)).path for hex_id in ids]
        studies = [self._approved_in(path) for path in paths]
        current = [one.id for one in studies if one.parties.roster == roster]
        return list(filter(None, (self.study(one, unread=True) for one in current)))

    def _approved_in(self, path: Path) -> Study:
        """The study in a file of an approval; StudyError if there is none."""
        try:
            return self.parsed(path, Study.parse)
        except StudyError as error:
            raise StudyError(
                f"expected {path} to be the study that was approved, got: {error}; if that is no "
                "package or version that this machine lacks, the file was altered: approve it "
                "again, or remove it"
            ) from None

    def open_studies(self) -> list[Study]:
        """Approved studies of the roster that is here which are not over."""
        return [study for study in self.studies() if not self.has_ended(study.id)]

    def all_approved(self) -> list[Study]:
        """All approved studies, of whichever roster; of a file that was torn, nothing."""
        studies = []
        for hex_id in sorted(self.approved):
            with suppress(UserError):
                path = self._approval(bytes.fromhex(hex_id)).path
                studies.append(self.parsed(path, Study.parse))
        return studies

    def ended_by(self, roster: Roster) -> list[Study]:
        """Approved studies of the roster that is here which are not over, and end with another."""
        return [one for one in self.unfinished() if one.parties.roster != roster.digest.hex()]

    def unfinished(self) -> list[Study]:
        """Approved studies of the roster that is here which are not over; of a torn file, nothing.

        Who is away when a study ends is not told: there it is among them.
        """
        here = ""
        with suppress(UserError):
            here = read_roster(self.home / ROSTER).digest.hex()
        studies = [study for study in self.all_approved() if study.parties.roster == here]
        return [study for study in studies if not self.has_ended(study.id)]

    def has_ended(self, study: bytes) -> bool:
        """Whether a study's end is seen here: a silo's model, a run's last file, a note of it."""
        results = self.model(study).is_dir() or (self.run(study) / REPORT).is_file()
        return results or self._approval(study).is_over

    def note_end(self, study: bytes) -> None:
        """Note that an approved study is over of which nothing is kept here."""
        self._approval(study).note_end()

    def model(self, study: bytes) -> Path:
        """Where a silo keeps the model of a study."""
        return self.home / MODELS / study.hex()[:16]

    def witnessed(self, name: str) -> Path:
        """What the aggregator has witnessed of a silo's ledger last, as it was told here."""
        return self.home / WITNESSED / f"{name}.json"

    def run(self, study: bytes) -> Path:
        """Where the aggregator keeps the run of a study."""
        return self.home / "runs" / study.hex()[:16]

    def _approval(self, study: bytes) -> ApprovalFiles:
        return ApprovalFiles(self.home, study)

    def _audit(self, study: bytes) -> Path:
        return self.home / AUDITS / f"{study.hex()}.json"


def _check_no_keys(path: Path) -> None:
    if path.exists():
        raise UserError(
            f"expected no keys in {path.parent}, found {path}; a roster may list them: choose "
            "another --home"
        )
