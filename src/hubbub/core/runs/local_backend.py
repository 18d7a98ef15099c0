"""A run whose parties are all in this process: their sessions, their ledgers, their evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from hubbub.core.errors import BudgetError
from hubbub.core.kept_pages import cores
from hubbub.core.ledger.entry import Entry
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.ledger.tally import Tally, attempts_of, entry_of, kind_of
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.study_plan import main_of
from hubbub.core.protocol.agreement.key_agreement import Session
from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.core.protocol.round.silo import Charge
from hubbub.core.runs import federated, run_folder, spending
from hubbub.core.session.ask import AbsentError
from hubbub.core.session.attestation_exchange import Attests
from hubbub.core.session.in_process import federate, raised_by
from hubbub.core.session.joint_batches import Notice, joint_batches
from hubbub.core.session.offer import layout_of
from hubbub.core.session.rounds import Rounds
from hubbub.core.study.study import Study
from hubbub.core.verification.attestation.study_attestation import (
    Attester,
    StudyAttestation,
    machine_evidence,
)
from hubbub.core.verification.evidence.collecting import collect, part_of
from hubbub.core.verification.transcript.frame_records import files, read_header

# Coordinates from which a silo's step is long enough to be worth a thread of its own.
_WORTH_THREADS = 20_000


@dataclass(frozen=True, kw_only=True)
class LocalBackend:
    """All parties in this process, each with a ledger."""

    study: Study
    keys: Sequence[Keys] = field(repr=False)  # in the roster's order, the same in all sessions
    ledgers: Mapping[int, Ledger] = field(repr=False)  # by roster index; empty if there are none
    folder: run_folder.RunFolder | None
    notice: Notice = field(default=lambda _: None, repr=False)  # told what takes long
    attester: Attester = field(default=machine_evidence, repr=False)
    # Of all that the run will ask silos for, if that is known: a ledger lets it in whole.
    plan: Plan | None = field(default=None, repr=False)
    # Returns when the newest state is on disk, before anything more is charged.
    saved: Callable[[], None] = field(default=lambda: None, repr=False)

    def set_up(self, wanted: federated.SessionPlan) -> Rounds:
        """Set a session up, with everybody in it."""
        planned, asked = wanted.planned, self.study.attestation
        kind = kind_of(planned)
        rows = {kind: planned.mechanism.rows} | (attempts_of(self.plan) if self.plan else {})
        # What was there before the run, and so many rows: no copy of it makes more.
        most = {
            index: {one: before.attempts(self.study.id, one) + n for one, n in rows.items()}
            for index, before in self._before.items()
        }
        certificate = None if self.plan is None else self.plan.certificate

        def record(index: int, session: Session, charge: Charge) -> None:
            # P15: what earlier charges have paid for is on the disk before the next charge is.
            self.saved()
            entry = entry_of(planned, session, charge, kind)
            try:
                self.ledgers[index].charge(
                    entry,
                    attempts=most[index][kind],
                    study_attempts=most[index],
                    study_certificate=certificate,
                )
            except BudgetError as error:
                raise BudgetError(f"{self.study.parties.names[index - 1]}: {error}") from None

        def attests(_: int) -> Attests:  # every party's evidence is of this machine
            assert asked is not None, "evidence is asked for"  # noqa: S101
            return StudyAttestation(asked=asked, attester=self.attester)

        return federate(
            layout_of(wanted.plan),
            wanted.round_parameters,
            wanted.tasks,
            study=self.study.id,
            joint=joint_batches(
                planned.mechanism, [task.count for task in wanted.tasks], self.notice
            ),
            keys=self.keys,
            record=record if self.ledgers else None,
            threads=cores() if wanted.round_parameters.dimension >= _WORTH_THREADS else 1,
            purpose=wanted.purpose,
            attests=None if asked is None else attests,
        ).rounds

    def lost(self, _number: int, _in_a_row: int, lost: AbsentError) -> None:
        """Nobody of this process comes back: what its ledger said is raised."""
        raise raised_by(lost) from None

    def charged(self, purpose: str, _begun: Callable[[], int]) -> int:
        """Attempts that some silo has paid for since the run began, but for other purposes.

        Those of sessions that the run does not know count for every purpose: a copy of its folder
        may have made them.
        """
        if self.folder is None:
            return 0
        charges = {
            (entry.session, entry.round, entry.attempt)
            for index in self.ledgers
            for entry in self._paid(index, purpose)
        }
        main = main_of(self.study).mechanism
        epoch = main.epoch if purpose == main.purpose else 1
        return len(charges) * epoch  # a new shuffled token list is a new epoch

    @property
    def spending(self) -> spending.Spending | None:
        """What the records have spent in all by now; None without ledgers or a folder."""
        if self.folder is None or not self.ledgers:
            return None
        names = self.study.parties.names
        books = {names[index - 1]: ledger for index, ledger in self.ledgers.items()}
        heads = {name: self.folder.head(name) for name in books}
        return spending.spending(books, heads, self.study.privacy)

    @property
    def is_copied(self) -> bool:
        """Whether sessions that the run does not know have paid for attempts since it began."""
        if self.folder is None:
            return False
        known = frozenset().union(*self.folder.sessions.values())
        return any(
            entry.session not in known
            for index, ledger in self.ledgers.items()
            for entry in self._since(ledger, index)
        )

    def evidence(self, plan: Plan, attempts: int) -> str:
        """What the parties say of the run: every silo signs what its ledger holds."""
        assert self.folder is not None, "evidence is of a folder"  # noqa: S101
        return collect(
            self.keys[0],
            self.folder.path,
            plan=plan,
            roster=Roster.of(self.keys),
            parts=[self._part(plan, index, self.folder) for index in self.ledgers],
            attempts=attempts,
        )

    def _part(self, plan: Plan, index: int, folder: run_folder.RunFolder) -> dict[str, Any]:
        """What one silo says of its ledger."""
        ledger, asked = self.ledgers[index], plan.study.privacy
        sent = {read_header(path).session for path in files(folder.path)}
        paid = {entry.session for entry in self._since(ledger, index)}
        rows = len(self._paid(index, plan.main.purpose))
        return part_of(
            self.keys[index],
            study=plan.study.id,
            sessions=sent & paid,
            unlisted=paid - sent,  # of a copy of the folder
            ledger_head=ledger.head,
            ledger_rows=ledger.rows,
            attempts=rows * plan.mechanism.epoch,
            data_set={
                "epsilon": spending.certified(ledger.tally, asked),
                "delta": asked.delta,
                "relation": asked.relation,
            },
        )

    @cached_property
    def _before(self) -> dict[int, Tally]:
        """What each ledger held when the run began; all of it where nobody noted that."""
        if self.folder is None:
            return {index: ledger.tally.copy() for index, ledger in self.ledgers.items()}
        names, head = self.study.parties.names, self.folder.head
        return {
            index: ledger.before(head(names[index - 1])) for index, ledger in self.ledgers.items()
        }

    def _paid(self, index: int, purpose: str) -> list[Entry]:
        """A silo's entries since the run began, but those that are surely for other purposes."""
        assert self.folder is not None, "what is counted began with a folder"  # noqa: S101
        sessions = self.folder.sessions
        others = {one for name, ids in sessions.items() if name != purpose for one in ids}
        since = self._since(self.ledgers[index], index)
        return [entry for entry in since if entry.session not in others]

    def _since(self, ledger: Ledger, index: int) -> Iterator[Entry]:
        """The study's entries since the run began."""
        if self.folder is None:
            return iter(())
        head = self.folder.head(self.study.parties.names[index - 1])
        return (entry for entry in ledger.entries(after=head) if entry.study == self.study.id)


def opened_ledgers(home: Path | None, study: Study, stack: ExitStack) -> dict[int, Ledger]:
    """Every silo's ledger by roster index, for this run alone; none without a folder for them."""
    if home is None:
        return {}
    books = {
        index: stack.enter_context(Ledger(home / f"{name}.sqlite"))
        for index, name in enumerate(study.parties.names, 1)
    }
    for book in books.values():
        stack.enter_context(book.held())
    return books
