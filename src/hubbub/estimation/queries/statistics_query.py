"""Statistics: tables, curves, tests and regressions, read off a few sums over all records (P23).

What they will say is known before they are asked, as far as noise goes, and what their sums say
afterwards. Both know the plan's noise, the most that a round may have whoever is missing from it:
there may be a little less, so intervals are never too narrow for it. The answers of a run are in
its folder:

    sums.json           the noisy sums
    statistics.json     the answers, which follow from the sums and the study alone
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from typing import Any, cast

from hubbub.core.errors import StudyError
from hubbub.core.planning.accounts import account_of, epsilon_of, releases
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import Parameters, QueryState, QueryWarnings, Released
from hubbub.core.study.data import Data
from hubbub.core.study.parties import Privacy
from hubbub.core.study.study import Study
from hubbub.estimation.intervals import adjusted
from hubbub.estimation.kinds import AskedStatistics
from hubbub.estimation.queries.statistics_ask import StatisticsAsk
from hubbub.estimation.queries.sum_layout import SumLayout
from hubbub.estimation.queries.sums_query import SumsQuery, promise_of, tables_of
from hubbub.estimation.stacking import Stacked, stack
from hubbub.estimation.statistic import Answer, Expectation, plain_values

STATISTICS = "statistics"
SUMS, ANSWERS = StatisticsAsk.files
_OCTAVES, _HALVINGS = 14, 12  # of noise that are searched, and how finely
# Noise multipliers below which epsilon is beyond 50, and above which it is next to none.
_LEAST_NOISE, _MOST_NOISE = 0.05, 1e5


@dataclass(frozen=True, kw_only=True)
class StatisticLayout(SumLayout):
    """The same of a study's statistics, whose answers are made of the mean of all sums."""

    stacked: Stacked

    def answers(self, kept: Parameters, sigma: float) -> dict[str, Answer]:
        """What the sums that were made say, by the names of the questions."""
        sums, error = self.sums(kept), sigma * self.unit
        if self.stacked.rounds == 1:
            sums, error = sums.mean(axis=0, keepdims=True), error / math.sqrt(len(sums))
        return adjusted(self.stacked.answers(list(sums), error), self.family)

    def expected_of(self, name: str, records: float, sigma: float) -> Expectation:
        """What may be said of a question, before any record is touched."""
        spare = self.rounds / self.stacked.rounds
        return self.stacked.expected_of(name, records, sigma * self.unit / math.sqrt(spare))


@lru_cache(maxsize=16)
def layout_of(asked: AskedStatistics, relation: str) -> StatisticLayout:
    """How statistics are summed."""
    stacked = stack(dict(asked.named), relation)
    length, apart = stacked.sensitivity, stacked.diameter
    return StatisticLayout(
        stacked=stacked,
        unit=length,
        diameter=min(2.0, apart / length),
        rounds=asked.rounds,
        family=asked.holm,
    )


@dataclass(frozen=True)
class StatisticsQuery(SumsQuery):
    """All statistics of a study: one release together.

    Args:
        asked: the questions.
        data, privacy: of the study.
    """

    asked: AskedStatistics
    data: Data
    privacy: Privacy

    purpose = STATISTICS
    kept_in = SUMS
    answered_in = ANSWERS

    @cached_property
    def layout(self) -> StatisticLayout:
        """All questions as one vector."""
        return layout_of(self.asked, self.privacy.relation)

    @property
    def epsilon(self) -> float | None:
        """Its part beside a training; None where nothing else is asked."""
        return self.asked.epsilon or None

    def released(self, plan: Plan, state: QueryState) -> Released:
        """The answers, the whole as JSON, and their tables for spreadsheets."""
        planned = planned_statistics(plan)
        answers = self.layout.answers(state.parameters, planned.total_sigma)
        plain = {name: answer.to_dict() for name, answer in answers.items()}
        text = json.dumps({**promise_of(plan, planned), "statistics": plain}, indent=1)
        copies = tables_of(json.loads(text)["statistics"])
        return Released(answers=answers, files={ANSWERS: text}, copies=copies)

    def check_expected(self, plan: Plan) -> None:
        """See `Query`; it names them, and the least epsilon of each."""
        below = {name: one for name, one in expected_answers(plan).items() if not one.possible}
        if below:
            planned, records = planned_statistics(plan), plan.study.data.records
            least = {name: _least_epsilon(planned, name, records) for name in below}
            said = "; ".join(
                f"{name}: {one.sentence}"
                + (f", it is answered from epsilon {least[name]:g} on" if least[name] else "")
                for name, one in below.items()
            )
            raise StudyError(
                f"expected statistics that stand out from the noise, got {len(below)} that would "
                f"not ({said}); leave them out, raise their weight or epsilon, or ask for fewer"
            )

    def warnings(self, study: Study) -> QueryWarnings:
        """Of sums that cannot be foreseen, or lost."""
        lost = self.asked.rounds == 1 and study.parties.dropouts and not study.parties.compute_nodes
        unforeseen = (
            "data.records is not stated: the precision of the statistics cannot be computed "
            "in advance"
        )
        loses = (
            "dropouts without compute nodes: a silo that drops out of the statistics' only sum "
            "loses it; ask for statistics.sums = 2, which costs no accuracy, or use compute nodes"
        )
        return QueryWarnings(records_unknown=(unforeseen,), sums=(loses,) if lost else ())


def statistics_of(study: Study) -> StatisticsQuery:
    """The statistics of a study.

    Raises:
        StudyError: it asks for none.
    """
    if study.statistics is None:
        raise StudyError("expected a study with [statistics], got one without; ask for some")
    return StatisticsQuery(study.statistics, study.data, study.privacy)


def planned_statistics(plan: Plan) -> PlannedQuery[StatisticsQuery]:
    """The statistics among what a plan asks.

    Raises:
        StudyError: it asks for none.
    """
    planned = plan.planned(STATISTICS)
    if planned is None:
        raise StudyError("expected a study with [statistics], got one without; ask for some")
    return cast("PlannedQuery[StatisticsQuery]", planned)


def expected_answers(plan: Plan) -> dict[str, Expectation]:
    """What may be said of each statistic; nothing where the number of records is not public."""
    study = plan.study
    if study.statistics is None or not study.data.records:
        return {}
    planned, records = planned_statistics(plan), study.data.records
    layout, sigma = planned.query.layout, planned.total_sigma
    return {name: layout.expected_of(name, records, sigma) for name in layout.stacked.names}


@dataclass(frozen=True, kw_only=True)
class PlannedAnswer:
    """What is known of an answer before any record is touched.

    Args:
        expected: of it; None where the number of records is not public.
        part: of the statistics' budget, from 0 to 1; all questions' add up to 1.
        least_epsilon: of the statistics, with which it is answered beside the others; None where
            none is known.
    """

    expected: Expectation | None
    part: float
    least_epsilon: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        plain = {"part": self.part, "least_epsilon": self.least_epsilon}
        if self.expected is None:
            return plain
        return asdict(self.expected) | {"errors": plain_values(dict(self.expected.errors))} | plain


def planned_answers(plan: Plan) -> dict[str, PlannedAnswer]:
    """What a plan says of each of its statistics, by name.

    Raises:
        StudyError: it asks for none.
    """
    planned, records = planned_statistics(plan), plan.study.data.records
    layout = planned.query.layout
    parts = dict(zip(layout.stacked.names, layout.stacked.parts, strict=True))
    sigma = planned.total_sigma
    return {
        name: PlannedAnswer(
            expected=layout.expected_of(name, records, sigma) if records else None,
            part=part,
            least_epsilon=_least_epsilon(planned, name, records) if records else None,
        )
        for name, part in parts.items()
    }


def _least_epsilon(planned: PlannedQuery[StatisticsQuery], name: str, records: int) -> float | None:
    """The least epsilon at which a statistic is answered, rounded up; None past 50."""
    layout, sigma = planned.query.layout, planned.total_sigma

    def answered(octaves: float) -> bool:
        return layout.expected_of(name, records, 2.0**octaves * sigma).answered

    low, high = -float(_OCTAVES), float(_OCTAVES)  # the noise is 2 to this, times the plan's
    if not answered(low):
        return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if answered(middle) else (low, middle)
    mechanism = planned.mechanism
    noise = 2.0**low * mechanism.noise_multiplier
    if noise < _LEAST_NOISE:
        return None
    charged = releases(account_of(mechanism), min(noise, _MOST_NOISE), mechanism.steps)
    bound = epsilon_of(charged, mechanism.delta)
    if bound is None:
        return None
    epsilon = bound.upper + planned.certificate.epsilon
    digit = 10.0 ** (math.floor(math.log10(epsilon)) - 1)  # rounded up to two digits
    return float(f"{math.ceil(epsilon / digit) * digit:.2g}")
