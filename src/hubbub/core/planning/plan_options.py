"""What a study's options say of themselves in a plan: a key among its plain values, and rows.

Terminal and page show the rows as they are, so an option that is new is a line here, and neither of
them knows it. Rows follow from plain values alone: a run's plan is read from its folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hubbub.core.planning import (
    mask_degree,
    noise_correlation,
    noise_shares,
    random_projection,
    sampling_comparison,
)
from hubbub.core.planning.plan_rows import PlanRow

Plain = Mapping[str, Any]

PROJECTION = "projection"
JOINT_BATCHES = "without_replacement"
ANNOUNCED = "announced_shares"  # shares follow from the set that is named
MASK_GRAPH = "mask_graph"
QUERIES = "asked"  # rows of what queries say of themselves

_ROWS: dict[str, Callable[[Plain], list[PlanRow]]] = {
    PROJECTION: random_projection.rows,
    JOINT_BATCHES: sampling_comparison.rows,
    noise_correlation.OPTION: noise_correlation.rows,
    ANNOUNCED: noise_shares.rows,
    MASK_GRAPH: mask_degree.rows,
}


def option_rows(plan: Plain) -> list[PlanRow]:
    """Of all options that a plan uses.

    Args:
        plan: as `Plan.to_dict` gives it.
    """
    rows_shown = [row for key, rows in _ROWS.items() if plan.get(key) for row in rows(plan[key])]
    return rows_shown + [PlanRow(**one) for one in plan.get(QUERIES, ())]
