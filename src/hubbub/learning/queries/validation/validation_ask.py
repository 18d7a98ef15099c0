"""`[validation]`: how good the trained model is on patients, told with noise after the training.

This file knows keys; what is summed and what follows from it is loaded when it is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from hubbub.core.errors import StudyError
from hubbub.core.settings import (
    Keys,
    Section,
    key_of,
    keys_of,
    number,
    one_of,
    read,
    settings,
    table,
    truth,
    whole,
)
from hubbub.core.study.ask import Ask, Surroundings
from hubbub.core.study.source import IN_MEMORY
from hubbub.core.study.study import Study
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Levels, cuts_from
from hubbub.learning.study.training import learning_of

if TYPE_CHECKING:
    from hubbub.core.planning.plan import Plan
    from hubbub.learning.queries.validation.validation_query import ValidationQuery


_CATEGORIES = "categories"
_MOST_COLUMNS, _MOST_CLASSES = 10, 100
HELD_BACK, TRAINING, AUTO = "held-back", "training", "auto"


@settings
class Validation:
    """Scores of the trained model with intervals, from one noisy sum ([P27](privacy.md#p27))."""

    epsilon: Annotated[
        float, number(0.001, 50, "The most it may spend, a part of the study's epsilon.")
    ]
    records: Annotated[
        str,
        one_of(
            *(AUTO, HELD_BACK, TRAINING),
            says="The records on which the model is scored: those held back from training, or "
            'those that it was trained on; `"auto"` uses the first if there are enough '
            "([how](validation.md#on-which-records)).",
        ),
    ] = AUTO
    holdout: Annotated[
        float, number(0.01, 0.9, "Share of each silo's records that is held back, if any is.")
    ] = 0.2
    bins: Annotated[
        int,
        whole(
            4,
            50,
            "Public bins of predicted amounts and counts, and as many of outcomes; 10 if "
            "left out. Risks always have narrow bins.",
            default="none",
        ),
    ] = 0
    rate: Annotated[
        float,
        number(
            0.0005,
            0.9995,
            "Share of records in the second class, from public knowledge and not from "
            "these records; the plan's standard error follows from it.",
            default="none",
        ),
    ] = 0.0
    by: Annotated[
        tuple[Levels, ...],
        table(
            "Subgroups to score separately, each column by its categories or at "
            'cuts: `{ sex = "categories", age = [60, 75] }`.',
            'table from columns to `"categories"` or to break points',
            default="none",
        ),
    ] = ()
    centres: Annotated[bool, truth("Whether each silo's records are scored separately, too.")] = (
        False
    )
    sums: Annotated[
        int,
        whole(
            1,
            16,
            "The number of sums. Two are as precise as one; if one is lost, the other "
            "remains, with √2 times the noise.",
        ),
    ] = 1

    def to_table(self) -> dict[str, Any]:
        """The table that it is read from, every key written out."""
        grouped = {levels.column.name: list(levels.cuts) or _CATEGORIES for levels in self.by}
        return {
            "epsilon": self.epsilon,
            "records": self.records,
            "holdout": self.holdout,
            **({"bins": self.bins} if self.bins else {}),
            **({"rate": self.rate} if self.rate else {}),
            "by": grouped,
            "centres": self.centres,
            "sums": self.sums,
        }


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
        columns = around.columns if stated.get("by") else {}
        by = {"by": lambda section: _by(section, columns)}
        return {"validation": read(Validation, "validation", stated, **by)}

    def check(self, study: Study) -> None:
        """Records that can be held back, once, and columns that silos can read."""
        asked, (_, training), data = study.validation, learning_of(study), study.data
        if asked.records == HELD_BACK and training.sampling == "without-replacement":
            raise StudyError(
                'expected no validation.records = "held-back" with sampling = '
                '"without-replacement", got it; joint batches are drawn from all records, so none '
                'can be held back: use "training", or Poisson sampling'
            )
        also = training.evaluate
        if also is not None and also.holdout != asked.holdout:
            raise StudyError(
                f"expected validation.holdout = {also.holdout:g}, as training.evaluate.holdout is, "
                f"got {asked.holdout:g}; the same records are held back for both: fix one"
            )
        if asked.by and not data.is_declared and data.source != IN_MEMORY:
            raise StudyError(
                "expected data.columns with validation.by, because silos read its "
                f"columns, got {data.source}; leave validation.by out"
            )

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

    def foreseen(self, plan: Plan) -> dict[str, Any]:
        """On which records the model is scored, and how exactly."""
        from hubbub.learning.queries.validation.validation_query import foreseen_validation

        return foreseen_validation(plan)

    def is_telling(self, study: Study) -> bool:
        """Whether its records are enough for its noise."""
        from hubbub.learning.queries.validation.layout import whose_records

        return whose_records(study).is_telling

    def held_back_share(self, study: Study) -> float:
        """Where the records of the training would not do."""
        from hubbub.learning.queries.validation.layout import whose_records

        return whose_records(study).share

    def usual(self, study: Study) -> dict[str, dict[str, Any]]:
        """The number of bins that tells most."""
        from hubbub.learning.queries.validation.layout import usual_bins

        bins = usual_bins(study)
        return {"validation": {"bins": bins}} if bins else {}


def _by(section: Section, columns: Mapping[str, Column]) -> tuple[Levels, ...]:
    """The classes of each column that scores are told by."""
    stated = section.table("by") if "by" in section else {}
    if len(stated) > _MOST_COLUMNS:
        raise section.refusal("by", f"at most {_MOST_COLUMNS} columns", "take fewer")
    return tuple(_levels(section, name, value, columns) for name, value in stated.items())


def _levels(section: Section, name: str, value: object, columns: Mapping[str, Column]) -> Levels:
    key, column = f"{section.path('by')}.{key_of(name)}", columns.get(name)
    if column is None:
        raise StudyError(
            f"expected a column of data.columns in {section.path('by')}, got {key_of(name)}; "
            "declare it there, with feature = false if the model must not see it"
        )
    if column.categories:
        if value != _CATEGORIES or len(column.categories) > _MOST_CLASSES:
            raise StudyError(
                f'expected {key} to be "{_CATEGORIES}", of at most {_MOST_CLASSES}, got '
                f"{str(value)[:80]}; write that"
            )
        return Levels(column=column)
    return Levels(column=column, cuts=cuts_from(key, value, *column.bounds, _MOST_CLASSES - 1))
