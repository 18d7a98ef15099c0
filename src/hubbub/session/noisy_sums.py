"""Series of noisy sums, each in a session of its own: every attempt charged, kept, and decoded.

A run's training is a series, and so is whatever else it asks of the silos. This file knows what an
attempt costs, who writes it down and where its messages are kept; it does not know what is summed,
or why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hubbub.assurance.ledger import Entry, Kind, Ledger
from hubbub.assurance.ledger.charging import entry_of, kind_of
from hubbub.assurance.transcript.writer import Transcript
from hubbub.errors import BudgetError
from hubbub.learning.study_model import Lift
from hubbub.planning import Mechanism, Plan, attempts_of_list, mechanism_of
from hubbub.protocol.identity import Keys
from hubbub.protocol.round import Charge, LocalTask, RoundParameters, decoded
from hubbub.protocol.round.projected_sum import draw_of
from hubbub.protocol.round.round_parameters import Parameters
from hubbub.protocol.token_lists.process_pool import cores
from hubbub.session.in_process import Federation, federate, layout_of, round_parameters_of
from hubbub.session.lists_in_process import Notice, lists_of
from hubbub.study import Study
from hubbub.training.run_folder import RunFolder

Array = NDArray[np.float64]
# Coordinates from which a silo's step is long enough to be worth a thread of its own.
_WORTH_THREADS = 20_000


@dataclass(frozen=True, kw_only=True)
class Series:
    """Rounds of one mechanism in one session.

    Args:
        parties: everybody, after a set-up of their own.
        plan: the mechanism's.
        terms: of the rounds.
        ledgers: the silos' by roster index; empty where nothing is written down.
        transcript: where the messages are kept, if anywhere.
        lift: from a projected sum and its draw to the whole one, where sums are projected.
        mechanism: what an attempt costs, or an epoch of attempts (P9).
        most: rows of this kind that the ledgers may hold when the run ends, by roster index.
    """

    parties: Federation
    plan: Plan
    mechanism: Mechanism
    terms: RoundParameters
    ledgers: Mapping[int, Ledger] = field(default_factory=dict, repr=False)
    transcript: Transcript | None = field(default=None, repr=False)
    lift: Lift | None = field(default=None, repr=False)
    most: Mapping[int, int] = field(default_factory=dict, repr=False)
    _attempts: Counter[int] = field(default_factory=Counter, repr=False)

    def round(self, number: int, parameters: Parameters, attempts: int) -> tuple[Array | None, int]:
        """A round's noisy sum, None if every attempt failed, and the attempts made."""
        record = self._record if self.ledgers else None
        total, made = self.parties.round(number, parameters, attempts=attempts, record=record)
        if self.transcript is not None:
            self.transcript.seal()
        if total is None:
            return None, made
        found, seed = decoded(self.terms, total), self.parties.aggregator.seed
        if self.lift is not None and seed is not None:
            sent = self.terms.sent(parameters)
            found = self.lift(found, draw_of(seed, number, made - 1, sent))
        return found, made

    @cached_property
    def kind(self) -> Kind:
        """What an attempt costs, or an epoch of attempts (P9)."""
        return kind_of(self.plan)

    def _record(self, index: int, charge: Charge) -> None:
        """P15: in the ledger before the answer exists.

        Where every record takes part once in an epoch, the row of its first attempt pays for it.
        """
        if self._attempts[index] % self.mechanism.epoch:
            self._attempts[index] += 1
            return
        entry = entry_of(self.plan, self.parties.sessions[index], charge, self.kind)
        try:
            self.ledgers[index].charge(entry, attempts=self.most.get(index))
        except BudgetError as error:
            raise BudgetError(f"{self.plan.study.parties.names[index - 1]}: {error}") from None
        self._attempts[index] += 1


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Where the series of one run take place.

    Args:
        study: the run's.
        parameters: how many the model has.
        ledgers: the silos' by roster index.
        folder: the run's, if it has one.
        stack: closes the transcripts.
        keys: everybody's, in the order of the roster: the same in all of the run's sessions.
        notice: told in a few words what takes long.
    """

    study: Study
    parameters: int
    ledgers: Mapping[int, Ledger] = field(repr=False)
    folder: RunFolder | None
    stack: ExitStack = field(repr=False)
    keys: Sequence[Keys] = field(repr=False)
    notice: Notice = field(default=lambda _: None, repr=False)

    def charged(self, purpose: str) -> int:
        """Rows that the ledgers hold of the run for a purpose."""
        return charged_in(self.ledgers, self.study, self.folder, purpose) if self.folder else 0

    @property
    def epoch(self) -> int:
        """Attempts of the training that one row in a ledger pays for."""
        return mechanism_of(self.study).epoch

    def open(
        self,
        purpose: str,
        plan: Plan,
        tasks: Sequence[LocalTask],
        numbers: int,
        lift: Callable[[RoundParameters], Lift | None] = lambda _: None,
    ) -> Series:
        """Set up a session for sums of so many numbers."""
        terms = round_parameters_of(plan, numbers, parameters=self.parameters)
        threads = cores() if terms.dimension >= _WORTH_THREADS else 1
        parties = federate(
            layout_of(plan),
            terms,
            tasks,
            study=self.study.id,
            threads=threads,
            keys=self.keys,
        )
        transcript = None
        if self.folder is not None:
            session = parties.session.id
            transcript = self.folder.new_transcript(
                self.study.id, session, parties.roster, terms, purpose=purpose
            )
            self.stack.enter_context(transcript)
            parties = replace(parties, keep=transcript.keep)
            for anchor in parties.joint.anchors if parties.joint else ():
                transcript.keep(anchor)
        mechanism = mechanism_of(plan.study)
        if terms.batch:
            counts = [task.count for task in tasks]
            lists = lists_of(parties, counts, attempts_of_list(plan.study), self.notice)
            parties = replace(parties, lists=lists)
        return Series(
            parties=parties,
            plan=plan,
            mechanism=mechanism,
            terms=terms,
            ledgers=self.ledgers,
            transcript=transcript,
            lift=lift(terms),
            most=self._most(kind_of(plan), ceil(terms.steps / mechanism.epoch)),
        )

    def _most(self, kind: Kind, rows: int) -> dict[int, int]:
        """What was there before the run, and so many rows: no copy of it makes more."""
        most = {}
        for index, ledger in self.ledgers.items():
            mine = _since(ledger, self.study, self.folder, index) if self.folder else ()
            before = ledger.spent_on(self.study.id, kind) - sum(one.kind.like(kind) for one in mine)
            most[index] = before + rows
        return most


def opened_ledgers(home: Path | None, study: Study, stack: ExitStack) -> dict[int, Ledger]:
    """Every silo's ledger by roster index; none without a folder for them."""
    if home is None:
        return {}
    return {
        index: stack.enter_context(Ledger(home / f"{name}.sqlite"))
        for index, name in enumerate(study.parties.names, 1)
    }


def charged_in(ledgers: Mapping[int, Ledger], study: Study, folder: RunFolder, purpose: str) -> int:
    """How many attempts some silo has paid for since the run began, but for other purposes.

    Those of sessions that the run does not know count for every purpose: a copy of its folder may
    have made them.
    """
    others = {one for name in folder.purposes - {purpose} for one in folder.sessions(name)}
    made = {
        (entry.session, entry.round, entry.attempt)
        for index, ledger in ledgers.items()
        for entry in _since(ledger, study, folder, index)
        if entry.session not in others
    }
    return len(made)


def _since(ledger: Ledger, study: Study, folder: RunFolder, index: int) -> Iterator[Entry]:
    """A study's entries since a run of it began."""
    head = folder.head(study.parties.names[index - 1])
    return (entry for entry in ledger.entries(after=head) if entry.study == study.id)
