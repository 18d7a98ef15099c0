"""Statistics from a notebook: tables in, questions asked, answers out, one budget over all of it.

Queries compose by the basic rule: their epsilons and deltas add up, each with the part of delta
that it has of epsilon. What belongs together is cheaper in one query, whose sums are shared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from hubbub import tabular
from hubbub.errors import BudgetError, StudyError
from hubbub.estimation import Expectation
from hubbub.planning import Plan
from hubbub.queries import expected_answers
from hubbub.queries import plan as plan_study
from hubbub.study import IN_MEMORY, CodedCells, Study
from hubbub.training import array_inputs, prepared_study, run_study, uncounted
from hubbub.training.result import Result

Questions = Sequence[Mapping[str, Any]] | Mapping[str, Mapping[str, Any]]
_NAME = "statistics"
_ROUNDING = 1e-9  # of epsilon, which parts that add up may miss by


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
) -> StatisticsContext:
    """Ask statistics of silos whose tables are in memory, with the whole protocol.

    Nothing is released yet: `query()` says how exact answers will be, and its `release()` asks.
    All numbers but the tables themselves are public. No ledger is kept: to share a budget between
    notebooks, write a study.

    Guarantees:
        1. All releases together are (epsilon, delta)-DP against the aggregator with `colluders`
           silos, each row of a table being one unit.

    Args:
        silos: each silo's table by its name: a data frame, or a mapping of columns to values.
        columns: what is public of each column, by the keys of `data.columns` in a study, such as
            `{"age": {"low": 20, "high": 90}}`.
        epsilon: what all queries together may cost; no unit.
        delta: the chance with which the promise may fail, a probability.
        questions: what `query()` asks without arguments: tables as `[statistics.NAME]` of a study
            has them, by name or in a list.
        colluders: number of silos that may join the adversary.
        relation: of neighbouring data sets, "add-remove" or "substitute".
        records: public number of records in all; None: as many as there are, which then counts as
            public.

    Returns:
        What asks, and knows what is left of epsilon.

    Raises:
        DataError: a table does not fit the columns.
        StudyError: a question is none, or the numbers contradict each other.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> def silo():
    ...     return {"age": rng.uniform(20, 90, 400), "sex": rng.choice(["f", "m"], 400)}
    >>> asked = statistics(
    ...     {"north": silo(), "south": silo(), "east": silo()},
    ...     columns={"age": {"low": 20, "high": 90}, "sex": {"categories": ["f", "m"]}},
    ...     questions=[{"kind": "table"}],
    ...     epsilon=4,
    ... )
    >>> query = asked.query(epsilon=3)
    >>> query.expected["table"].answered, asked.remaining()
    (True, 4.0)
    >>> answer = query.release().statistics["table"]
    >>> mean = next(row.value for row in answer.rows if row.quantity == "mean")
    >>> bool(50 < mean < 60), asked.remaining()
    (True, 1.0)
    """
    array_inputs.refuse_fewer(silos, "table", "hand them over")
    declared = tabular.columns_from(array_inputs.declared(columns))
    cells = {
        who: tabular.coded_cells(tabular.cells_of(table), declared, who)
        for who, table in silos.items()
    }
    known = sum(map(len, cells.values())) if records is None else records
    context = StatisticsContext(
        cells=cells,
        tables={
            "parties": {"names": list(silos), "colluders": colluders},
            "data": {
                "source": IN_MEMORY,
                "records": known,
                "columns": array_inputs.declared(columns),
            },
            "privacy": {"delta": delta, "relation": relation},
        },
        epsilon=float(epsilon),
        questions=questions,
        made_public=() if records is not None else (f"the number of records ({known})",),
    )
    if questions:
        context.query()  # refuses now what would be refused then
    return context


@dataclass(kw_only=True)
class StatisticsContext:
    """What asks silos in memory, and how much of its epsilon is spent; made by `statistics`."""

    cells: Mapping[str, CodedCells] = field(repr=False)
    tables: Mapping[str, Mapping[str, Any]] = field(repr=False)
    epsilon: float
    questions: Questions = field(repr=False)
    spent: float = 0.0
    made_public: tuple[str, ...] = ()

    def remaining(self) -> float:
        """What is left of epsilon."""
        left = self.epsilon - self.spent
        return left if left > _ROUNDING * self.epsilon else 0.0

    def query(
        self, questions: Questions | None = None, *, epsilon: float | None = None
    ) -> ReleasableQuery:
        """A query that may be released; nothing is spent yet.

        Args:
            questions: those of the context if None.
            epsilon: all that is left if None.

        Raises:
            StudyError: a question is none, or nothing is left.
        """
        asked = _named(self.questions if questions is None else questions)
        part = self.remaining() if epsilon is None else float(epsilon)
        if not 0 < part <= self.remaining() * (1 + _ROUNDING):
            raise StudyError(
                f"expected an epsilon above 0 and up to {self.remaining():g}, what is left, got "
                f"{part:g}; ask for less"
            )
        privacy = dict(self.tables["privacy"])
        privacy |= {"epsilon": part, "delta": float(privacy["delta"]) * part / self.epsilon}
        head = {"study": {"name": _NAME}, _NAME: asked}
        study = Study.from_table(array_inputs.plain({**self.tables, **head, "privacy": privacy}))
        return ReleasableQuery(context=self, study=study)

    def charge(self, epsilon: float) -> None:
        """Count a release before it is made.

        Raises:
            BudgetError: less is left.
        """
        if epsilon > self.remaining() * (1 + _ROUNDING):
            raise BudgetError(
                f"expected epsilon {epsilon:g} to be left, {self.remaining():g} is; ask for less"
            )
        self.spent += epsilon


@dataclass(frozen=True, kw_only=True)
class ReleasableQuery:
    """Questions that may be released for a part of a context's epsilon."""

    context: StatisticsContext = field(repr=False)
    study: Study = field(repr=False)

    @cached_property
    def plan(self) -> Plan:
        """What follows from the questions: noise, epsilon for every adversary."""
        return plan_study(self.study)

    @property
    def expected(self) -> dict[str, Expectation]:
        """How exact each answer will be, and whether it will be given, by name."""
        return expected_answers(self.plan)

    def release(self) -> Result:
        """Ask the silos, and spend the query's epsilon.

        Returns:
            The answers, as `statistics`, and what they promise.

        Raises:
            BudgetError: the context has too little left.
            StudyError: an answer would not stand out from the noise; nothing is spent.
        """
        handed = prepared_study.InMemory(cells=self.context.cells)
        prepared = prepared_study.PreparedStudy.of(self.study, self.plan, handed=handed)
        is_first, asked = not self.context.spent, self.study.parties.names
        self.context.charge(self.study.privacy.epsilon)
        if is_first:  # the context counts its own
            uncounted.warn_if_uncounted(asked, None)
        return replace(run_study.run_prepared(prepared, None), made_public=self.context.made_public)


def _named(questions: Questions) -> dict[str, Mapping[str, Any]]:
    """Questions by their names; those of a list are called by their kind."""
    if isinstance(questions, Mapping):
        return dict(questions)
    if not all(isinstance(one, Mapping) for one in questions):
        raise StudyError(
            'expected questions such as {"kind": "table"}, got something else; write tables'
        )
    found: dict[str, Mapping[str, Any]] = {}
    for one in questions:
        kind = str(one.get("kind", "question"))
        more = sum(name.rpartition(" ")[0] == kind or name == kind for name in found)
        found[f"{kind} {more + 1}" if more else kind] = one
    return found
