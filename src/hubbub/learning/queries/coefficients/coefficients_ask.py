"""`[coefficients]`: effects of the trained linear model. What they need is loaded when asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hubbub.core.section import Section
from hubbub.core.settings import Keys, keys_of
from hubbub.core.study.ask import Ask, Surroundings
from hubbub.core.study.data import columns_with_target
from hubbub.core.study.study import Study
from hubbub.core.tabular.column import Column
from hubbub.learning.study.coefficients import Coefficients, check_coefficients, coefficients_from

if TYPE_CHECKING:
    from hubbub.learning.queries.coefficients.coefficients_query import CoefficientsQuery


class CoefficientsAsk(Ask):
    """Effects of the trained linear model."""

    tables = ("coefficients",)
    rank = 4
    files = ("coefficient-sums.json", "coefficients.json")
    answers = "coefficients.json"

    def keys(self) -> dict[str, Keys]:
        """See `Ask`."""
        return {"coefficients": keys_of(Coefficients)}

    def read(self, top: Section, around: Surroundings) -> dict[str, Any]:
        """See `Ask`."""
        if not around.trains:
            raise top.refusal("coefficients", "absent where no model is trained", "remove it")
        return {"coefficients": coefficients_from(top.table("coefficients"))}

    def check(self, study: Study) -> None:
        """See `Ask`."""
        check_coefficients(study.data, study.model)

    def parts(self, study: Study) -> dict[str, float]:
        """See `Ask`."""
        return {"coefficients.epsilon": study.coefficients.epsilon}

    def query(self, study: Study, dimension: int | None = None) -> CoefficientsQuery:
        """See `Ask`."""
        from hubbub.learning.queries.coefficients.coefficients_query import CoefficientsQuery

        return CoefficientsQuery(study.coefficients, study.data, study.privacy)

    def cells(self, study: Study) -> Mapping[str, Column]:
        """See `Ask`."""
        return columns_with_target(study.data)
