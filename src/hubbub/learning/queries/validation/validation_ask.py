"""`[validation]`: scores of the trained model. What they need is loaded when they are asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hubbub.core.errors import StudyError
from hubbub.core.section import Section
from hubbub.core.settings import Keys, keys_of
from hubbub.core.study.ask import Ask, Surroundings
from hubbub.core.study.data import Data
from hubbub.core.study.import_path import IN_MEMORY
from hubbub.core.study.study import Study
from hubbub.core.tabular.levels import Levels
from hubbub.learning.study.training import Training
from hubbub.learning.study.validation import HELD_BACK, Validation, validation_from

if TYPE_CHECKING:
    from hubbub.learning.queries.validation.validation_query import ValidationQuery


class ValidationAsk(Ask):
    """Scores of the trained model."""

    tables = ("validation",)
    rank = 3
    files = ("validation-sums.json", "validation.json")

    def keys(self) -> dict[str, Keys]:
        """See `Ask`."""
        return {"validation": keys_of(Validation)}

    def read(self, top: Section, around: Surroundings) -> dict[str, Any]:
        """See `Ask`."""
        if not around.trains:
            raise top.refusal("validation", "absent where no model is trained", "remove it")
        stated = top.table("validation")
        return {"validation": validation_from(stated, around.columns if stated.get("by") else {})}

    def check(self, study: Study) -> None:
        """See `Ask`."""
        _check_validation(study.validation, study.training, study.data)

    def subgroups(self, study: Study) -> tuple[Levels, ...]:
        """Those that scores are told by."""
        by: tuple[Levels, ...] = study.validation.by
        return by

    def parts(self, study: Study) -> dict[str, float]:
        """See `Ask`."""
        return {"validation.epsilon": study.validation.epsilon}

    def query(self, study: Study, dimension: int | None = None) -> ValidationQuery:
        """See `Ask`."""
        from hubbub.learning.queries.validation.validation_query import ValidationQuery

        return ValidationQuery(study, dimension)


def _check_validation(validation: Validation, training: Training, data: Data) -> None:
    """Records that can be held back, once, and columns that silos can read."""
    if validation.records == HELD_BACK and training.sampling == "without-replacement":
        raise StudyError(
            'expected no validation.records = "held-back" with sampling = "without-replacement", '
            "got it; joint batches are drawn from all records, so none can be held back: use "
            '"training", or Poisson sampling'
        )
    also = training.evaluate
    if also is not None and also.holdout != validation.holdout:
        raise StudyError(
            f"expected validation.holdout = {also.holdout:g}, as training.evaluate.holdout is, "
            f"got {validation.holdout:g}; the same records are held back for both: fix one"
        )
    if validation.by and not data.is_declared and data.source != IN_MEMORY:
        raise StudyError(
            "expected data.columns with validation.by, whose columns silos read, got "
            f"{data.source}; leave validation.by out"
        )
