"""`[coefficients]`: effects of the trained linear model, told with noise at the end.

This file knows keys, and which models have such effects; what is summed and what follows from it is
loaded when it is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from hubbub.core.errors import StudyError
from hubbub.core.settings import Keys, Section, keys_of, number, read, settings, whole
from hubbub.core.study.ask import Ask, Surroundings
from hubbub.core.study.data import Data, columns_with_target
from hubbub.core.study.study import Study
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.target import COUNT
from hubbub.learning.study.model import Model

if TYPE_CHECKING:
    from hubbub.learning.queries.coefficients.coefficients_query import CoefficientsQuery


_MOST_EFFECTS = 60  # whose noise in the information still fits into memory, entry by entry


@settings
class Coefficients:
    """Effects of the trained linear model with intervals ([P32](privacy.md#p32), P36)."""

    epsilon: Annotated[
        float, number(0.001, 50, "The most they may spend, a part of the study's epsilon.")
    ]
    sums: Annotated[
        int,
        whole(
            1,
            16,
            "The number of sums. For classes and counts, 1: at the released model alone; "
            "otherwise at least eight, of which the first guide Newton steps and the "
            "last have most of the epsilon. Times to an event always use ten.",
        ),
    ] = 2

    def to_table(self) -> dict[str, Any]:
        """The table that it is read from, every key written out."""
        return {"epsilon": self.epsilon, "sums": self.sums}


class CoefficientsAsk(Ask):
    """Effects of the trained linear model."""

    tables = ("coefficients",)
    rank = 4
    files = ("coefficient-sums.json", "coefficients.json")
    copies = ("tables/*.csv",)
    answers = "coefficients.json"

    def keys(self) -> dict[str, Keys]:
        """See `Ask`."""
        return {"coefficients": keys_of(Coefficients)}

    def read(self, top: Section, around: Surroundings) -> dict[str, Any]:
        """See `Ask`."""
        if not around.trains:
            raise top.refusal("coefficients", "absent where no model is trained", "remove it")
        return {"coefficients": read(Coefficients, "coefficients", top.table("coefficients"))}

    def check(self, study: Study) -> None:
        """Refuse them of a model or of records that have none."""
        why, instead = _why_not(study.data, study.model)
        if why:
            raise StudyError(f"expected no [coefficients] {why}, got it; {instead}")

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


def _why_not(data: Data, model: Model) -> tuple[str, str]:
    """Why there are none, and what to do; empty where there are."""
    if model.kind != "logistic" or model.extractor:
        return (
            "where the model is not one linear layer on the columns, because then no single number "
            "is the effect of a column",
            "leave it out, and use [validation] to see how good the model is",
        )
    if not data.is_declared or not data.features:
        return (
            "without data.columns, whose public bounds and categories define the effects",
            "declare the columns",
        )
    if data.outcome is not None and (data.outcome.exposure_high or data.outcome.is_log_link):
        return (
            "of a count with data.target.exposure, or of an amount with a log link, for which "
            "there are no sums",
            "leave it out; [statistics] gives rates by group",
        )
    if data.outcome is not None and data.outcome.kind == COUNT and data.outcome.mean is not None:
        return (
            "of a count beside data.target.mean: its sums start at the model, whose intercept does "
            "not contain the mean",
            "leave data.target.mean out, or write model.intercept",
        )
    if data.standardise is not None:
        return (
            "beside data.standardise: effects are per unit of a column already, and are given for "
            "features within public bounds",
            "leave data.standardise out",
        )
    if not model.bias or model.loss:
        return (
            "with model.bias = false or a model.loss of its own: effects are maximum-likelihood "
            "estimates with an intercept",
            "leave these keys out",
        )
    effects = sum(max(len(feature.categories) - 1, 1) for feature in data.features)
    others = max(len(data.classes) - 1, 1)
    effects = others * (effects + 1) - 1  # each of several classes has an intercept of its own
    if effects > _MOST_EFFECTS:
        return (
            f"of more than {_MOST_EFFECTS} effects, of which there are {effects} here, counting "
            "those of each class but the first and its intercept: none would stand out from the "
            "noise",
            "take fewer columns, or leave it out",
        )
    return "", ""
