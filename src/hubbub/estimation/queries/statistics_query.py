"""Statistics: tables, curves, tests and regressions, read off a few sums over all records (P23)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from hubbub.core.errors import StudyError
from hubbub.core.planning.plan_values import Plan
from hubbub.core.planning.query import Parameters, QueryWarnings, Released
from hubbub.core.study.data import Data
from hubbub.core.study.privacy import Privacy
from hubbub.core.study.study import Study
from hubbub.estimation.queries.asked_statistics import AskedStatistics
from hubbub.estimation.queries.statistic_sums import StatisticLayout, layout_of
from hubbub.estimation.queries.statistics_ask import StatisticsAsk
from hubbub.estimation.queries.sums_query import SumsQuery

STATISTICS = "statistics"
SUMS, ANSWERS = StatisticsAsk.files


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

    @cached_property
    def layout(self) -> StatisticLayout:
        """All questions as one vector."""
        return layout_of(self.asked, self.privacy.relation)

    @property
    def purpose(self) -> str:
        """What its sums are for."""
        return STATISTICS

    @property
    def epsilon(self) -> float | None:
        """Its part beside a training; None where nothing else is asked."""
        return self.asked.epsilon or None

    @property
    def kept_in(self) -> str:
        """The file of a run's folder that keeps the sums."""
        return SUMS

    @property
    def answered_in(self) -> str:
        """The file that says what they say."""
        return ANSWERS

    def released(self, plan: Plan, parameters: Parameters) -> Released:
        """The answers, the whole as JSON, and their tables for spreadsheets."""
        from hubbub.estimation.queries import statistic_answers

        return statistic_answers.released(plan, parameters)

    def warnings(self, study: Study) -> QueryWarnings:
        """Of sums that cannot be foreseen, or lost."""
        lost = self.asked.rounds == 1 and study.parties.dropouts and not study.parties.compute_nodes
        return QueryWarnings(
            records_unknown=(
                "data.records is not stated: what the statistics will say cannot be foreseen",
            ),
            sums=(
                "dropouts without compute nodes: a silo that drops out of the statistics' only sum "
                "loses it; ask for statistics.sums = 2, which costs no accuracy, or use compute "
                "nodes",
            )
            if lost
            else (),
        )


def statistics_of(study: Study) -> StatisticsQuery:
    """The statistics of a study.

    Raises:
        StudyError: it asks for none.
    """
    if study.statistics is None:
        raise StudyError("expected a study with [statistics], got one without; ask for some")
    return StatisticsQuery(study.statistics, study.data, study.privacy)
