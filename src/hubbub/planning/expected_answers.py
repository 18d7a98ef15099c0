"""What the statistics of a plan will say before they are asked, and what their sums say afterwards.

Both know the plan's noise, all silos' shares of it: where silos are missing from a round there is a
little less, so intervals are never too narrow for it.
"""

from __future__ import annotations

from collections.abc import Mapping

from hubbub import estimation
from hubbub.errors import StudyError
from hubbub.planning.auxiliary_queries import STATISTICS
from hubbub.planning.plan_values import Plan
from hubbub.planning.planned_statistics import Parameters, SumLayout, layout_of_sums


def plan_of_sums(plan: Plan) -> Plan:
    """The plan of the sums that the statistics are made of: all of it, or that of a query.

    Raises:
        StudyError: it has none.
    """
    if not plan.study.trains:
        return plan
    query = plan.query(STATISTICS)
    if query is None:
        raise StudyError("expected a study with [statistics], got one without; ask for some")
    return query.plan


def sigma_of_sums(plan: Plan) -> float:
    """Standard deviation of all noise on each number of a sum, in units of C."""
    sums = plan_of_sums(plan)
    return sums.total_noise_multiplier * sums.clip


def expected_answers(plan: Plan) -> dict[str, estimation.Expectation]:
    """What may be said of each statistic; nothing where the number of records is not public."""
    study = plan.study
    if study.statistics is None or not study.data.records:
        return {}
    return layout_of_sums(study).expected(study.data.records, sigma_of_sums(plan))


def check_expected(plan: Plan) -> None:
    """Refuse statistics that would not stand out from the noise, before anything is spent.

    Raises:
        StudyError: naming them.
    """
    below = {name: one for name, one in expected_answers(plan).items() if not one.answered}
    if below:
        said = "; ".join(f"{name}: {one.sentence}" for name, one in below.items())
        raise StudyError(
            f"expected statistics that stand out from the noise, got {len(below)} that would not "
            f"({said}); leave them out, raise their weight or epsilon, or ask for fewer"
        )


def answers_of(plan: Plan, kept: Parameters) -> Mapping[str, estimation.Answer]:
    """What the sums of a plan's statistics say, by name."""
    layout: SumLayout = layout_of_sums(plan.study)
    return layout.answers(kept, sigma_of_sums(plan))
