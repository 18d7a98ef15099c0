"""The run folder: what a run leaves on disk, and in which order.

    study.toml, plan.json           what was asked for, and what followed from it
    run.json, lock                  where ledgers are, and the sessions; held while a process works
    metrics.jsonl, checkpoints/     a row per evaluation; where the training stood
    transcript/                     what the aggregator sent and used, a file per session
    model.safetensors, *.json       what was trained, and what each ask's files say
    evidence.json, report.html      what was claimed, signed; for people

A session is noted before anything is charged in it, so that after a crash the ledgers can say how
much of the study is spent. Metrics are appended as they come. The other files are written under
another name and then moved into place, so that none is ever half there.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.disk import appending, locked, why_of, write_all, write_text
from hubbub.core.errors import IntegrityError, UserError
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.query import QueryState, SteppedQuery
from hubbub.core.protocol.primitives.identity import Roster
from hubbub.core.protocol.primitives.wire import Tag, set_of
from hubbub.core.protocol.round.draw import Lift
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.runs import checkpoint
from hubbub.core.runs.checkpoint import RunMetadata, read_metadata
from hubbub.core.study.study import Study
from hubbub.core.verification.evidence.audit_result import AUDIT, write_audit
from hubbub.core.verification.evidence.collecting import FILE
from hubbub.core.verification.transcript.frame_records import Header, files, read, read_header
from hubbub.core.verification.transcript.writer import Transcript, recover

REPORT = "report.html"
Sum = NDArray[np.float64]


class RunFolder:
    """The folder of one run, open in one process at a time."""

    def __init__(self, path: Path, notes: RunMetadata, *, full: bool) -> None:
        self.path = path
        self._notes = notes
        self._full = full
        self._apart = notes.baseline is None and not notes.ledgers  # `hubbub serve` goes on with it
        self._rows = 0

    @classmethod
    @contextmanager
    def fresh(
        cls,
        path: Path,
        plan: Plan,
        *,
        baseline: str | None,
        ledgers: Path | None,
        audit: Mapping[str, Any] | None = None,
    ) -> Iterator[RunFolder]:
        """Make the folder of a new run, or UserError, and put study, plan and audit into it."""
        notes = RunMetadata(
            study=plan.study.id.hex(), baseline=baseline, ledgers=str(ledgers or ""), sessions={}
        )
        try:
            notes.ledgers.encode()  # as run.json has them
        except UnicodeEncodeError:
            raise UserError(
                f"expected a path of ledgers in UTF-8, got {notes.ledgers!a}; choose another --out "
                "or --ledgers"
            ) from None
        folder = cls(path, notes, full=plan.study.transcript == "full")
        with folder._disk():
            path.mkdir(parents=True, exist_ok=True)
            refuse_used(path, apart=folder._apart)
        with _locked(path):
            refuse_used(path, apart=folder._apart)  # nor did another process use it meanwhile
            with folder._disk():
                write_text(path / "study.toml", plan.study.as_toml())
                write_text(path / "plan.json", plan.to_json())
                folder.keep_audit(audit)
                folder._write_notes()
            yield folder

    @classmethod
    @contextmanager
    def again(cls, path: Path) -> Iterator[tuple[RunFolder, Study]]:
        """Open the folder of a run that was interrupted.

        Raises:
            UserError, IntegrityError: there is none, it is at work or finished; it was altered.
        """
        if not (path / "run.json").is_file():
            raise UserError(
                f"expected the folder of a run in {path}, found no run.json in it; name "
                "the folder given to --out"
            )
        with _usable(path):
            _refuse_odd(path)
        with _locked(path):
            # The evidence and the page are written last.
            if all((path / name).exists() for name in (FILE, REPORT)):
                raise UserError(
                    f"expected an interrupted run in {path}, it is finished; see {path}/report.html"
                )
            study = Study.load(path / "study.toml")
            notes = read_metadata(path / "run.json")
            if notes.study != study.id.hex():
                raise IntegrityError(
                    f"expected {path / 'study.toml'} to be the study that was started, it was "
                    "altered, or another version of hubbub began the run; restore it, let that "
                    "version finish, or start a new run"
                )
            yield cls(path, notes, full=study.transcript == "full"), study

    @property
    def baseline(self) -> str | None:
        """The baseline that was run, None for hubbub."""
        return self._notes.baseline

    @property
    def ledgers(self) -> Path | None:
        """The folder of the silos' ledgers; None where each silo keeps its own elsewhere."""
        return Path(self._notes.ledgers) if self._notes.ledgers else None

    def begin(self, heads: Mapping[str, bytes]) -> None:
        """Note the heads of the ledgers, once: what they hold after them may be this run's."""
        if not self._notes.heads:
            self._notes = replace(self._notes, heads={k: v.hex() for k, v in heads.items()})
            with self._disk():
                self._write_notes()

    def keep_audit(self, audit: Mapping[str, Any] | None) -> None:
        """Have the run's evidence say what an audit has found, see `read_audit`, or nothing."""
        with self._disk():
            if audit is None:
                (self.path / AUDIT).unlink(missing_ok=True)
            else:
                write_audit(self.path / AUDIT, audit)

    def store(self, query: SteppedQuery, state: QueryState) -> None:
        """Put on disk what a query's sums have given so far."""
        with self._disk():
            query.store(self.path, state)

    def head(self, silo: str) -> bytes | None:
        """What a silo's ledger ended with when the run began; None if it was not noted."""
        noted = self._notes.heads.get(silo)
        return None if noted is None else bytes.fromhex(noted)

    @property
    def sessions(self) -> dict[str, frozenset[bytes]]:
        """The sessions that were opened, by purpose."""
        noted = self._notes.sessions.items()
        return {purpose: frozenset(map(bytes.fromhex, ids)) for purpose, ids in noted}

    def new_transcript(
        self,
        study: bytes,
        session: bytes,
        roster: Roster,
        round_parameters: RoundParameters,
        *,
        purpose: str,
    ) -> Transcript:
        """Begin the transcript of a session, and write down that the session is open."""
        # Before its first frame is: of a session that a crash ends, the run knows.
        noted = dict(self._notes.sessions)
        noted[purpose] = (*noted.get(purpose, ()), session.hex())
        self._notes = replace(self._notes, sessions=noted)
        with self._disk():
            self._write_notes()
        return Transcript(
            self.path,
            study=study,
            session=session,
            roster=roster,
            full=self._full,
            round_parameters=round_parameters,
            purpose=purpose,
        )

    def models_sent(self, purpose: str) -> int:
        """How many attempts for a purpose were begun, answered or not: so many models were sent."""
        mine = self._transcripts(purpose)
        return sum(kept.tag is Tag.MODEL for path in mine for kept in read(path))

    def sums_after(self, state: QueryState, purpose: str, lift: Lift | None) -> dict[int, Sum]:
        """By round, the sums whose vectors are kept and that a state does not have yet.

        A crash may come after a sum and before the step along it. It was paid for, so nobody may
        choose to do without it (docs/evidence.md).
        """
        from hubbub.core.verification.replay.replayed_session import Replay, other_player

        sums: dict[int, Sum] = {}
        for path in self._transcripts(purpose):
            header = read_header(path)
            numbers = header.round_parameters
            if numbers is not None and other_player(path, header, numbers, None) is None:
                replay = Replay(header, numbers, None, lift=lift, after=state.step)
                sums |= replay.play(path).sums
        return sums

    def _transcripts(self, purpose: str) -> list[Path]:
        """Of the sessions that were opened for a purpose."""
        return [path for path in files(self.path) if read_header(path).purpose == purpose]

    def last_checkpoint(self) -> checkpoint.Checkpoint | None:
        """Where the training stood; metrics and transcripts are put back to whole rows."""
        with self._disk():
            for path in files(self.path):
                recover(path)
            newest = checkpoint.newest_checkpoint(self.path / "checkpoints")
            rows = newest.state.rows if newest else ()
            write_text(self.path / "metrics.jsonl", "".join(_line(row) for row in rows))
        self._rows = len(rows)
        return newest

    def keep(self, state: QueryState, heads: Mapping[str, bytes]) -> None:
        """Put the new rows of metrics on disk, and the state with the heads of the ledgers."""
        self.append_rows(state)
        kept = checkpoint.Checkpoint(state=state, heads=heads)
        with self._disk():
            checkpoint.write_checkpoint(self.path / "checkpoints", kept)

    def append_rows(self, state: QueryState) -> None:
        """Add the rows that are new to the metrics."""
        new = state.rows[self._rows :]
        if new:
            with self._disk(), appending(self.path / "metrics.jsonl") as file:
                write_all(file, "".join(_line(row) for row in new).encode())
            self._rows += len(new)

    def _disk(self) -> AbstractContextManager[None]:
        return _usable(self.path, apart=self._apart)

    def _write_notes(self) -> None:
        write_text(self.path / "run.json", self._notes.to_json())


_FIRST = ("lock", "study.toml", "plan.json", AUDIT)  # what is written before run.json
_BEGUN = {*_FIRST, *(f"{name}.part" for name in (*_FIRST, "run.json"))}


def refuse_used(path: Path, *, apart: bool = False) -> None:
    """Refuse a folder that holds something, of a run in one process or of one apart."""
    again = (
        f"continue it with hubbub run --resume {path}, or name a new folder, for another "
        "run with its own epsilon"
    )
    with _usable(path, apart=apart):
        names = {entry.name for entry in path.iterdir()} if path.is_dir() else set()
        # A process that was killed before run.json had asked nobody for anything.
        if names and not ("lock" in names and names <= _BEGUN):
            raise UserError(
                f"expected an empty or new folder for the run, got {path} with files in it; "
                + ("move them away, and serve again" if apart else again)
            )


def write_study(folder: Path, study: Study) -> None:
    """Put a study into the folder of its run."""
    write_text(folder / "study.toml", study.as_toml())


def write_evidence(folder: Path, text: str) -> None:
    """Put the evidence into a run's folder."""
    write_text(folder / FILE, text)


def _line(row: Mapping[str, float]) -> str:
    return json.dumps(dict(row)) + "\n"


def _refuse_odd(path: Path) -> None:
    """Refuse a folder whose entries lead elsewhere: a run goes on in it, and would write there."""
    entries = list(os.scandir(path))
    entries += [
        inner
        for entry in entries
        if entry.is_dir(follow_symlinks=False)
        for inner in os.scandir(entry)
    ]
    for entry in entries:
        if not (entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)):
            raise IntegrityError(
                f"expected files and folders alone in {path}, found {entry.name}, which is a link "
                "or a pipe or the like; restore it, or start a new run"
            )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the run's lock; the system frees it when the process ends, however it ends."""
    with ExitStack() as stack:
        try:
            with _usable(path):
                stack.enter_context(locked(path / "lock"))
        except BlockingIOError:
            raise UserError(
                f"expected to be alone on the run in {path}, another process works on it; wait "
                "for it, or stop it"
            ) from None
        yield


def make_room(path: Path) -> None:
    """Make the folder in which a run's folder, and perhaps its ledgers, will be; or UserError."""
    with _usable(path):
        path.parent.mkdir(parents=True, exist_ok=True)


@contextmanager
def _usable(path: Path, *, apart: bool = False) -> Iterator[None]:
    """The disk's errors as ours, of a run in one process or of one whose parties run apart."""
    try:
        yield
    except BlockingIOError:
        raise
    except OSError as error:
        begun = f", or fix the disk and continue with hubbub run --resume {path}"
        other = f"choose another --out{begun if path.is_dir() else ''}"
        raise UserError(
            f"expected a folder that can be written, got {path}: {why_of(error)}; "
            + ("fix the disk and continue with hubbub serve" if apart else other)
        ) from None


def answers_in(folder: Path) -> Iterator[tuple[Header, Counter[str], Counter[str]]]:
    """Of each session of a run its header, and how many attempts each silo has answered in it.

    Each was charged before it was answered (docs/privacy.md P15). The second counts are of all
    attempts that a silo was asked for: of what it did not answer it may have charged any, as where
    the aggregator ended first. No signature is looked at.
    """
    for path in files(folder):
        header = read_header(path)
        roster = header.roster
        answered, asked = Counter[str](), Counter[str]()
        for kept in read(path):
            if kept.tag in (Tag.MASKED, Tag.DEPOSIT):
                answered[roster.name(kept.sender)] += 1
            elif kept.tag is Tag.MODEL and kept.payload is not None:
                bits = kept.payload[: (len(roster.silos) + 7) // 8]
                asked.update(map(roster.name, set_of(bits, len(roster.silos), roster.name(0))))
            elif kept.tag is Tag.COLLECT:
                asked.update(map(roster.name, roster.silos))
        yield header, answered, asked
