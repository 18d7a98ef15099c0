"""An ask from outside the tree: how many records lie in each quarter of a column's range."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Annotated, Any

import numpy as np

from hubbub.core.planning.plan import Plan
from hubbub.core.planning.query import Parameters, QueryState, Released
from hubbub.core.settings import Keys, Section, keys_of, read, settings, text
from hubbub.core.study.ask import Ask, Surroundings
from hubbub.core.study.data import Data, columns_of
from hubbub.core.study.parties import Privacy
from hubbub.core.study.study import Study
from hubbub.core.tabular.column import Column
from hubbub.estimation.queries.sum_layout import SumLayout
from hubbub.estimation.queries.sums_query import SumsQuery, promise_of
from hubbub.estimation.statistic import Answer, Estimate


@settings
class AskedQuarters:
    """Of which column."""

    column: Annotated[str, text("Whose range is divided.")]


@dataclass(frozen=True)
class Quarters:
    """A record's vector: 1 in the quarter of its value."""

    column: Column
    size: int = 4
    least_rounds: int = 1

    @property
    def start(self) -> Parameters:
        return np.zeros(0, np.float32)

    def sum(self, cells: Mapping[str, Any], _: Parameters, shares: np.ndarray) -> np.ndarray:
        low, high = self.column.bounds
        values = cells[self.column.name]
        there, each = ~np.isnan(values), shares.reshape(-1)
        place = np.clip((values[there] - low) / (high - low) * 4, 0, 3.5).astype(int)
        return np.bincount(place, each[there], 4)

    def update(self, _: Sequence[Any], sigma: float, parameters: Parameters) -> Parameters:
        return parameters


@dataclass(frozen=True)
class QuartersQuery(SumsQuery):
    """One sum of four numbers."""

    column: Column
    data: Data
    privacy: Privacy
    purpose: str = "quarters"
    epsilon: float | None = None
    kept_in: str = "quarter-sums.json"
    answered_in: str = "quarters.json"

    @cached_property
    def layout(self) -> SumLayout:
        return SumLayout(stacked=Quarters(self.column), unit=1.0, diameter=sqrt(2), rounds=1)

    def released(self, plan: Plan, state: QueryState) -> Released:
        planned = plan.planned(self.purpose)
        assert planned is not None
        (counts,), error = self.layout.sums(state.parameters), planned.total_sigma
        rows = [
            Estimate(
                quantity="records",
                level=f"quarter {place}",
                value=count,
                standard_error=error,
                low=count - 1.96 * error,
                high=count + 1.96 * error,
            )
            for place, count in enumerate(counts, 1)
        ]
        answer = Answer(kind="quarters", title="by quarter", confidence=0.95, rows=tuple(rows))
        told = {**promise_of(plan, planned), "statistics": {"quarters": answer.to_dict()}}
        return Released(
            answers={"quarters": answer}, files={self.answered_in: json.dumps(told, indent=1)}
        )


class QuartersAsk(Ask):
    """`[quarters]` of a study."""

    tables = ("quarters",)
    rank = 9
    precedence = 1
    files = ("quarter-sums.json", "quarters.json")
    answers = "quarters.json"

    def keys(self) -> dict[str, Keys]:
        return {"quarters": keys_of(AskedQuarters)}

    def read(self, top: Section, around: Surroundings) -> dict[str, Any]:
        return {"quarters": read(AskedQuarters, "quarters", top.table("quarters"))}

    def written(self, study: Study) -> dict[str, Any]:
        return {"quarters": {"column": study.quarters.column}}

    def query(self, study: Study, dimension: int | None = None) -> QuartersQuery:
        columns = columns_of(study.data)
        return QuartersQuery(columns[study.quarters.column], study.data, study.privacy)

    def cells(self, study: Study) -> Mapping[str, Column]:
        return columns_of(study.data)
