"""Statistics from a notebook: tables in, questions asked, answers out, one budget over all of it.

Queries are composed exactly (docs/privacy.md P22): what counts is the square of a query's noise,
and not its epsilon, so a second query of the same size costs less than the first. What belongs
together is cheaper still in one query, whose sums are shared.
"""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from math import floor, log10
from pathlib import Path
from threading import RLock
from typing import Any

from hubbub.core.disk import PRIVATE, file_name, fresh, locked, read_bytes, why_of, write_all
from hubbub.core.errors import BudgetError, SpentError, StudyError, UserError
from hubbub.core.ledger.privacy_filter import SumsBudget
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.ledger.tally import Tally, attempts_of
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.study_plan import plan as plan_study
from hubbub.core.runs import prepared_study
from hubbub.core.study.source import IN_MEMORY
from hubbub.core.study.study import Study
from hubbub.core.tabular.column import columns_from
from hubbub.core.tabular.table import CodedCells
from hubbub.estimation.data_frame import library_of
from hubbub.estimation.queries.statistics_query import expected_answers
from hubbub.estimation.statistic import Expectation
from hubbub.learning.runs import array_inputs, run_study, uncounted
from hubbub.learning.runs.preparing import InMemory, prepare
from hubbub.learning.runs.result import Result, answered_in

Questions = Sequence[Mapping[str, Any]] | Mapping[str, Mapping[str, Any]]
_NAME = "statistics"
_LETTERS = 16  # of a study's id, in a folder's name
_KEY = 32  # bytes
_one_at_a_time = RLock()
_charged: dict[tuple[str, str], Tally] = {}
_answers: dict[tuple[bytes, frozenset[tuple[str, str]]], Result] = {}


def statistics(
    silos: Mapping[str, Any],
    *,
    columns: Mapping[str, Mapping[str, Any]],
    epsilon: float,
    delta: float = 1e-5,
    questions: Questions = (),
    colluders: int = 1,
    relation: str = "add-remove",
    records: int | None = None,
    patients: str | Mapping[str, Any] | None = None,
    most_per_patient: int | None = None,
    out: str | Path | None = None,
) -> StatisticsContext:
    """Compute statistics across silos whose tables are in memory, with the full protocol.

    Nothing is released yet: `query(epsilon=...)` says how precise its answers will be, and its
    `release()` runs it. All numbers but the tables themselves are public.

    Guarantees:
        1. All releases from these tables together are (epsilon, delta)-DP against the aggregator
           with `colluders` silos, however later queries are chosen, each row of a table being one
           unit, or with `patients` each patient (docs/privacy.md P22). A query of another context
           of these tables counts against the `colluders` that it was asked with.
        2. Running a notebook cell twice costs nothing more: the same tables continue with the same
           ledgers, and an answered query is not asked again. Without
           `out` this lasts as long as the program.
        3. With `out` trainings that are charged there count too, as if all had been fixed
           beforehand (P15).

    Args:
        silos: each silo's table by its name: a data frame, or a mapping of columns to values.
        columns: what is public of each column, by the keys of `data.columns` in a study, such as
            `{"age": {"low": 20, "high": 90}}`.
        epsilon: what all queries together may cost; no unit.
        delta: the probability with which the guarantee may fail.
        questions: what `query()` asks if it is given none: tables as `[statistics.NAME]` of a
            study has them, by name or in a list.
        colluders: number of silos that may collude with the aggregator.
        relation: of neighbouring data sets, "add-remove" or "substitute".
        records: public number of units in all; None: as many as there are, which then counts as
            public.
        patients: whose each row is, so that all rows of one patient of a silo are one unit: the
            name of a column that every table has, or by each silo's name (n,) numbers or texts.
            None: each row is a unit.
        most_per_patient: beside `patients` the public number of rows of one patient that count;
            further ones are left out.
        out: folder of these tables in which each query gets one of its own, beside the silos'
            `ledgers`; None: write nothing.

    Returns:
        An object that runs queries and knows how much epsilon is left.

    Raises:
        DataError: a table does not fit the columns, or a row has no patient.
        StudyError: a question is none, or the numbers contradict each other.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> def silo():
    ...     return {"age": rng.uniform(20, 90, 400), "sex": rng.choice(["f", "m"], 400)}
    >>> context = statistics(
    ...     {"north": silo(), "south": silo(), "east": silo()},
    ...     columns={"age": {"low": 20, "high": 90}, "sex": {"categories": ["f", "m"]}},
    ...     questions=[{"kind": "table"}],
    ...     epsilon=4,
    ... )
    >>> query = context.query(epsilon=3)
    >>> query.expected["table"].answered, context.remaining()
    (True, 4.0)
    >>> answer = query.release().statistics["table"]
    >>> mean = next(row.value for row in answer.rows if row.quantity == "mean")
    >>> bool(50 < mean < 60), round(context.remaining(), 2)
    (True, 2.35)
    """
    array_inputs.refuse_fewer(silos, "table", "hand them over", colluders)
    stated = array_inputs.declared(columns)
    declared = columns_from(stated)
    tables = array_inputs.tables_of(silos, declared, patients, most_per_patient)
    units = sum(map(len, tables.cells.values())) if records is None else records
    context = StatisticsContext(
        cells=tables.cells,
        tables={
            "parties": {"names": list(silos), "colluders": colluders},
            "data": {
                "source": IN_MEMORY,
                "records": units,
                "columns": stated,
                **({} if patients is None else {"patient": tables.patient}),
                **({"most_per_patient": most_per_patient} if most_per_patient else {}),
            },
            "privacy": {"delta": delta, "relation": relation},
        },
        epsilon=float(epsilon),
        questions=questions,
        ledgers=InMemoryLedgers(tables=tables.digests)
        if out is None
        else FolderLedgers(home=Path(out), tables=tables.digests),
        reads_records=records is None,
        library=library_of(next(iter(silos.values()))),
    )
    if questions:
        context.study(questions, context.epsilon)  # refuses now what would be refused then
    return context


@dataclass(frozen=True, kw_only=True, repr=False)
class StatisticsContext:
    """What asks silos in memory, and how much of its epsilon is spent; made by `statistics`."""

    cells: Mapping[str, CodedCells]
    tables: Mapping[str, Mapping[str, Any]]
    epsilon: float
    questions: Questions
    ledgers: InMemoryLedgers | FolderLedgers
    reads_records: bool
    library: str = ""

    def __repr__(self) -> str:
        delta = self.tables["privacy"]["delta"]
        return (
            f"statistics of {', '.join(self.cells)}: epsilon {self.epsilon:g} at delta {delta:g} "
            f"over all queries, {self._used}, epsilon {_rounded_down(self.remaining())} for one "
            "more, however it is chosen"
        )

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>"

    @property
    def budget(self) -> SumsBudget:
        """The rule by which queries are let in."""
        return SumsBudget(epsilon=self.epsilon, **self.tables["privacy"])

    @property
    def spent(self) -> float:
        """Epsilon of all that was charged, at the silo that has the most; no unit."""
        promised = dict(self.tables["privacy"])  # delta and relation
        return max(tally.epsilon(**promised) for tally in self.ledgers.tallies())

    @property
    def _used(self) -> str:
        """In words how much is spent and left, as shares of squares, which add up (P22)."""
        left = floor(1000 * min(map(self.budget.share_left, self.ledgers.tallies())))
        return f"{(1000 - left) / 10:g} % spent and {left / 10:g} % left"

    def remaining(self, queries: int = 1) -> float:
        """The most epsilon that each of so many further queries may have.

        Args:
            queries: how many; 4 have about half of what one has, not a quarter.

        Returns:
            Epsilon of each, as if it were the only one; no unit, 0.0 if none is left.

        Raises:
            StudyError: there are fewer than 1, or more than 1000.
        """
        if not 1 <= queries <= 1000:
            raise StudyError(f"expected 1 to 1000 queries, got {queries}; ask at least one")
        return min(self.budget.left(tally, queries) for tally in self.ledgers.tallies())

    def query(self, questions: Questions | None = None, *, epsilon: float) -> ReleasableQuery:
        """A query that may be released; nothing is spent yet.

        Args:
            questions: those of the context if None.
            epsilon: of this query, as if it were the only one; `remaining` says how much may be.

        Raises:
            StudyError: a question is none, or less is left.
        """
        study = self.study(self.questions if questions is None else questions, epsilon)
        query = ReleasableQuery(context=self, study=study)
        if not query.is_charged and epsilon > (left := self.remaining()):
            raise StudyError(
                f"expected an epsilon above 0 and up to {_rounded_down(left)}, which is "
                f"what is left, got {epsilon:g}: {self.remedy(query.plan)}"
            )
        return query

    def remedy(self, plan: Plan) -> str:
        """Why a query has no room, and what total would have let it in."""
        advice = "ask for less, or" if self.remaining() else "nothing more can be asked:"
        words = (
            f"epsilon {self.epsilon:g} is the total for everything asked of these tables, "
            f"statistics and synthetic records together: {self._used} (epsilons do not "
            "simply add up; the squares of what they reveal do)"
        )
        # Larger totals, in steps of a twentieth.
        totals = (float(f"{self.epsilon * (1 + k / 20):.3g}") for k in range(1, 61))
        tallies = self.ledgers.tallies()
        for total in totals:
            wider = replace(self.budget, epsilon=total)
            if all(wider.allows(tally, plan) for tally in tallies):
                break
        else:
            return f"{words}; ask for less, or of other tables"
        return (
            f"{words}; {advice} state a larger total if all sites agree, here {total:g} "
            "(statistics: epsilon, synthesize: total)"
        )

    def study(self, questions: Questions, epsilon: float) -> Study:
        """A query as a study, or StudyError."""
        privacy = {**self.tables["privacy"], "epsilon": epsilon}
        head = {"study": {"name": _NAME}, _NAME: _named(questions)}
        return Study.from_table(array_inputs.plain({**self.tables, **head, "privacy": privacy}))


@dataclass(frozen=True, kw_only=True, repr=False)
class ReleasableQuery:
    """Questions that may be released for a part of a context's epsilon."""

    context: StatisticsContext
    study: Study

    def __repr__(self) -> str:
        return (
            f"query of epsilon {self.study.privacy.epsilon:g}, not released yet; "
            "`expected` shows how precise its answers will be, `release()` asks the silos"
        )

    @cached_property
    def plan(self) -> Plan:
        """What follows from the questions: noise, epsilon for every adversary."""
        return plan_study(self.study)

    @property
    def expected(self) -> dict[str, Expectation]:
        """How exact each answer will be, and whether it will be given, by name."""
        return expected_answers(self.plan)

    @property
    def is_charged(self) -> bool:
        """Whether a silo was charged for it before."""
        return any(tally.attempts(self.study.id) for tally in self.context.ledgers.tallies())

    def release(self) -> Result:
        """Ask the silos, and spend the query's epsilon; once, however often it is called.

        Returns:
            The answers, as `statistics`, and what they promise. Where the same was asked of these
            tables before, the answers that were given then.

        Raises:
            BudgetError: the context has too little left.
            SpentError: it was charged before, and stopped before its answers were there; or it was
                answered of other tables, out of the same folder.
            StudyError: an answer would not stand out from the noise; nothing is spent.
            UserError: another program asks out of the same folder, or it cannot be written.
        """
        context, ledgers = self.context, self.context.ledgers
        with ledgers.alone():
            result = ledgers.answer(self.plan)
            if result is None:
                self._check_uncharged()
                handed = InMemory(cells=context.cells)
                prepared = prepare(self.study, self.plan, handed=handed)
                tallies = ledgers.tallies()
                for tally in tallies:
                    tally.check_units(attempts_of(self.plan), "these tables")
                # Or a silo would be carried past the promise.
                if not all(context.budget.allows(tally, self.plan) for tally in tallies):
                    raise BudgetError(
                        f"expected epsilon {self.study.privacy.epsilon:g} to be left, "
                        f"{_rounded_down(context.remaining())} is: {context.remedy(self.plan)}"
                    )
                result = ledgers.release(prepared)
        read_off = (self.study.data.unit_count,) if context.reads_records else ()
        return replace(result.with_library(context.library), made_public=read_off)

    def _check_uncharged(self) -> None:
        """Refuse to make a second release of what was charged as one, and not answered.

        That is after a crash in between, or with other tables of the same name.
        """
        if not self.is_charged:
            return
        tallies = zip(self.context.cells, self.context.ledgers.tallies(), strict=True)
        others = [name for name, tally in tallies if not tally.attempts(self.study.id)]
        if others:
            raise SpentError(
                f"expected the tables used in earlier queries, got others of {', '.join(others)}: "
                "the other silos' would be released a second time; pass the same tables, or ask "
                "with another epsilon, which is another release"
            )
        raise SpentError(
            "expected a query that is new or was answered, got one that was charged and then "
            "interrupted before its answers were ready; ask it with another epsilon, which is "
            "another release"
        )


def _rounded_down(epsilon: float) -> str:
    """Four digits, and no more than is left."""
    if epsilon <= 0:
        return "0"
    unit = 10.0 ** (floor(log10(epsilon)) - 3)
    return f"{floor(epsilon / unit * (1 + 1e-12)) * unit:.4g}"


def _named(questions: Questions) -> dict[str, Mapping[str, Any]]:
    """Questions by their names; those of a list are called by their kind."""
    if isinstance(questions, Mapping):
        return dict(questions)
    if not all(isinstance(question, Mapping) for question in questions):
        raise StudyError(
            'expected questions such as {"kind": "table"}, got something else; write tables'
        )
    named: dict[str, Mapping[str, Any]] = {}
    for question in questions:
        kind = str(question.get("kind", "question"))
        more = sum(name.rpartition(" ")[0] == kind or name == kind for name in named)
        named[f"{kind} {more + 1}" if more else kind] = question
    return named


# Where queries of tables in memory are charged, and their answers kept. One that was answered is
# never asked again: that would be two releases.


@dataclass(frozen=True, kw_only=True)
class InMemoryLedgers:
    """Ledgers that last as long as the program, each of one silo's table by its name and cells.

    So whoever makes the same silos again, as a notebook's cell does that is run twice, finds what
    was charged.
    """

    tables: Mapping[str, str] = field(repr=False)  # a digest of each, by the silo's name

    def alone(self) -> AbstractContextManager[object]:
        """Other threads wait."""
        return _one_at_a_time

    def tallies(self) -> Sequence[Tally]:
        """What was charged at each silo."""
        return [_charged.get(table, Tally()) for table in self.tables.items()]

    def answer(self, plan: Plan) -> Result | None:
        """What a query has given, if it was answered."""
        return _answers.get(self._key(plan.study))

    def release(self, prepared: prepared_study.PreparedStudy) -> Result:
        """Charge a query and ask it."""
        uncounted.warn_if_uncounted(self.tables)
        for table, tally in zip(self.tables.items(), self.tallies(), strict=True):
            _charged[table] = tally.after(prepared.plan)
        result = run_study.run_prepared(prepared, None)
        return _answers.setdefault(self._key(prepared.study), result)

    def _key(self, study: Study) -> tuple[bytes, frozenset[tuple[str, str]]]:
        return study.id, frozenset(self.tables.items())


@dataclass(frozen=True, kw_only=True)
class FolderLedgers:
    """Ledgers in a folder, with a folder beside them for what each query has given.

    A digest, under a key, of the tables that each query was asked of stands beside the ledgers: an
    answer is given again for these alone.
    """

    home: Path  # of both
    tables: Mapping[str, str] = field(repr=False)  # a digest of each, by the silo's name

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Other programs are refused, other threads wait; UserError if another program is first."""
        with _one_at_a_time, ExitStack() as stack:
            try:
                self.home.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(self.home / "lock"))
            except BlockingIOError:
                raise UserError(
                    f"expected to be the only program that asks in {self.home}, another "
                    "one does; wait for it"
                ) from None
            except OSError as error:
                raise UserError(
                    f"expected a folder that can be written, got {self.home}: {why_of(error)}; "
                    "choose another out"
                ) from None
            yield

    def tallies(self) -> Sequence[Tally]:
        """What was charged at each silo."""
        tallies = []
        for path in (self._ledgers / f"{name}.sqlite" for name in self.tables):
            if not path.exists():
                tallies.append(Tally())
                continue
            with Ledger(path) as ledger:
                tallies.append(ledger.tally)
        return tallies

    def answer(self, plan: Plan) -> Result | None:
        """What a query has given, if it was answered; SpentError if it was asked of others."""
        result = answered_in(self._folder(plan.study), plan)
        file = self._digest_file(plan.study)
        if result is None or not file.exists():
            return result
        if not hmac.compare_digest(read_bytes(file, most=_KEY), self._digest(plan.study)):
            raise SpentError(
                f"expected the tables used in earlier queries in {self.home}, got others; "
                "ask with another epsilon, which is another release"
            )
        return result

    def release(self, prepared: prepared_study.PreparedStudy) -> Result:
        """Charge a query and ask it."""
        uncounted.warn_if_uncounted(dict.fromkeys(self.tables, self._ledgers.resolve()))
        digest = self._digest(prepared.study)
        with fresh(self._digest_file(prepared.study), mode=PRIVATE) as file:
            write_all(file, digest)
        folder = self._folder(prepared.study)
        return run_study.run_prepared(prepared, folder, ledgers=self._ledgers)

    @property
    def _ledgers(self) -> Path:
        return self.home / "ledgers"

    def _digest_file(self, study: Study) -> Path:
        """The file with the digest of the tables that a query was asked of."""
        return self._ledgers / f"{study.id.hex()}.tables"

    def _digest(self, study: Study) -> bytes:
        """That digest for these tables: nobody without the key learns of a cell by it."""
        path = self._ledgers / "tables.key"
        key = read_bytes(path, most=_KEY) if path.exists() else b""
        if len(key) < _KEY:  # new, or torn by a crash
            self._ledgers.mkdir(parents=True, exist_ok=True)
            key = os.urandom(_KEY)
            with fresh(path, mode=PRIVATE) as file:
                write_all(file, key)
        query = json.dumps([study.id.hex(), sorted(self.tables.items())]).encode()
        return hmac.digest(key, query, "sha256")

    def _folder(self, study: Study) -> Path:
        return self.home / f"{file_name(study.name)}-{study.id.hex()[:_LETTERS]}"
