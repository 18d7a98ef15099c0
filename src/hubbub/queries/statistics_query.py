"""Statistics: tables, curves, tests and regressions, read off a few sums over all records (P23)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hubbub.errors import StudyError
from hubbub.planning.plan_values import Plan
from hubbub.planning.query import Parameters, QueryWarnings, Released
from hubbub.queries.kept_sums import SUMS
from hubbub.queries.statistic_sums import StatisticLayout, layout_of
from hubbub.queries.sums_query import SumsQuery
from hubbub.section import Section
from hubbub.settings import Keys, keys_of, listed
from hubbub.study.ask import Ask, Surroundings
from hubbub.study.asked_statistics import (
    AskedStatistics,
    statistic_keys,
    statistics_from,
    statistics_schema,
)
from hubbub.study.data import Data, columns_of
from hubbub.study.parties import Parties
from hubbub.study.privacy import Privacy
from hubbub.study.study import Study
from hubbub.tabular.column import Column

STATISTICS, ANSWERS = "statistics", "statistics.json"


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
        from hubbub.queries import statistic_answers

        return statistic_answers.released(plan, parameters)

    def warnings(self, parties: Parties) -> QueryWarnings:
        """Of sums that cannot be foreseen, or lost."""
        lost = self.asked.rounds == 1 and parties.dropouts and not parties.compute_nodes
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


class StatisticsAsk(Ask):
    """Statistics of columns as they are."""

    tables = ("statistics",)
    rank = 1
    precedence = 2
    is_pinned = True
    files = (SUMS, ANSWERS)
    answers = ANSWERS

    def keys(self) -> dict[str, Keys]:
        """See `Ask`."""
        return {"statistics": keys_of(AskedStatistics), "statistics.NAME": listed(statistic_keys())}

    def schemas(self) -> dict[str, Any]:
        """See `Ask`."""
        return {"statistics": statistics_schema()}

    def read(self, top: Section, around: Surroundings) -> dict[str, Any]:
        """See `Ask`."""
        table = top.table("statistics")
        return {"statistics": statistics_from(table, around.columns, alone=around.is_main)}

    def written(self, study: Study) -> dict[str, Any]:
        """See `Ask`."""
        return {"statistics": study.statistics.to_table()}

    def canonical(self, study: Study) -> dict[str, Any]:
        """See `Ask`."""
        return {"statistics": study.statistics.canonical()}

    def parts(self, study: Study) -> dict[str, float]:
        """See `Ask`."""
        part = study.statistics.epsilon
        return {"statistics.epsilon": part} if part else {}

    def query(self, study: Study, dimension: int | None = None) -> StatisticsQuery:
        """See `Ask`."""
        return statistics_of(study)

    def cells(self, study: Study) -> Mapping[str, Column]:
        """See `Ask`."""
        return columns_of(study.data)


def statistics_of(study: Study) -> StatisticsQuery:
    """The statistics of a study.

    Raises:
        StudyError: it asks for none.
    """
    if study.statistics is None:
        raise StudyError("expected a study with [statistics], got one without; ask for some")
    return StatisticsQuery(study.statistics, study.data, study.privacy)
