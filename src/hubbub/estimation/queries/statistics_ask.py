"""`[statistics]`: statistics of columns as they are. What they need is loaded when one is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hubbub.core.settings import Keys, Section, keys_of, listed
from hubbub.core.study.ask import Ask, Surroundings
from hubbub.core.study.data import columns_with_target
from hubbub.core.study.study import Study
from hubbub.core.tabular.column import Column, TimeColumn

if TYPE_CHECKING:
    from hubbub.estimation.queries.statistics_query import StatisticsQuery


_TIMES = ("time", "entry")  # what statistics call columns of times


class StatisticsAsk(Ask):
    """Statistics of columns as they are."""

    tables = ("statistics",)
    rank = 1
    precedence = 2
    is_pinned = True
    files = ("sums.json", "statistics.json")
    copies = ("tables/*.csv",)
    answers = "statistics.json"

    def keys(self) -> dict[str, Keys]:
        from hubbub.estimation.kinds import AskedStatistics, statistic_keys

        return {"statistics": keys_of(AskedStatistics), "statistics.NAME": listed(statistic_keys())}

    def schemas(self) -> dict[str, Any]:
        from hubbub.estimation.kinds import statistics_schema

        return {"statistics": statistics_schema()}

    def read(self, top: Section, around: Surroundings) -> dict[str, Any]:
        from hubbub.estimation.kinds import statistics_from

        table, columns = top.table("statistics"), columns_with_target(around.data)
        return {"statistics": statistics_from(table, columns, alone=around.is_main)}

    def canonical(self, study: Study) -> dict[str, Any]:
        return {"statistics": study.statistics.canonical()}

    def parts(self, study: Study) -> dict[str, float]:
        part = study.statistics.epsilon
        return {"statistics.epsilon": part} if part else {}

    def query(self, study: Study, dimension: int | None = None) -> StatisticsQuery:
        from hubbub.estimation.queries.statistics_query import statistics_of

        return statistics_of(study)

    def cells(self, study: Study) -> Mapping[str, Column]:
        columns = columns_with_target(study.data)
        asked = [one for _, one in study.statistics.named]
        times = {getattr(getattr(one, key, None), "name", "") for one in asked for key in _TIMES}
        return columns | {
            name: TimeColumn.of(column) for name, column in columns.items() if name in times
        }
