"""The keys of a table `[statistics.NAME]`: what each may be, for its page, its schema and readers.

`asked_keys` reads them against a study's columns. A kind may name these keys, or others that it
notes itself (`Statistic.notes`) and reads by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hubbub.core.settings import Key, number, numbers, one_of, table, text, texts

MOST_BINS = 1000
SPACINGS = ("equal", "log")
COMMON: Mapping[str, Key] = {
    "weight": number(
        1e-3, 1e3, "How much its errors count beside those of others.", default="`1.0`"
    ),
    "confidence": number(0.5, 0.999, "Of its intervals.", default="`0.95`"),
}
# A column with categories, or a numeric one with its break points.
_CLASSED: dict[str, Any] = {
    "anyOf": [{"type": "string"}, {"type": "object", "minProperties": 1, "maxProperties": 1}]
}


def _classed(says: str) -> Key:
    return Key(
        says=says,
        values="column with categories, or break points such as `{ age = [60, 75] }`",
        schema=_CLASSED,
        default="none",
    )


KEYS: Mapping[str, Key] = {
    "columns": Key(
        says='`"table"`: what is described, all columns if left out. `"crosstab"`: the column '
        "across.",
        values="list of columns, numeric ones also in classes; in a crosstab one",
        schema={"anyOf": [{"type": "array", "items": _CLASSED}, *_CLASSED["anyOf"]]},
        default="none",
    ),
    "by": _classed(
        '`"table"`, `"quantiles"`, `"survival"`, `"incidence"`, `"rates"`: groups side by side. '
        '`"centres"`: the centres; required there.'
    ),
    "column": text(
        '`"histogram"`, `"quantiles"`: whose values; required there.',
        "numeric column",
        default="none",
    ),
    "at": numbers(
        '`"quantiles"`: which ones; the quartiles if left out. `"survival"`, `"incidence"`: '
        "times at which it is told in a row.",
        "rising list of numbers between 0 and 1, or of times",
        default="none",
    ),
    "bins": Key(
        says='`"histogram"`, `"quantiles"`, `"survival"`, `"incidence"`, `"cox"`: so many '
        "intervals of equal width, or cuts at these points.",
        values=f"2 to {MOST_BINS:,}, or a rising list of break points",
        schema={
            "anyOf": [
                {"type": "integer", "minimum": 2, "maximum": MOST_BINS},
                {"type": "array", "items": {"type": "number"}},
            ]
        },
        default="none",
    ),
    "spacing": one_of(
        *SPACINGS,
        says='`"histogram"`, `"quantiles"` without break points: `"log"` for a long tail, bins of '
        "equal ratios; from 0, the first one ends at a thousandth of the upper bound.",
        default="none",
    ),
    "rows": _classed('`"crosstab"`: the column down; required there.'),
    "time": text(
        '`"survival"`, `"incidence"`, `"cox"`, `"rates"`: how long a record was followed; '
        "required there.",
        "numeric column with bounds from 0",
        default="none",
    ),
    "event": text(
        "Whether that ended with the event, the second category; required there. "
        '`"rates"`: or how many events there were in all that time. `"incidence"`: with '
        "which kind of event, all categories but the first.",
        "column with two categories; with three or more; numeric, from 0",
        default="none",
    ),
    "entry": text(
        '`"survival"`, `"incidence"`, `"cox"` on classes: since when a record was observed; all '
        "from the start if left out. Its lower bound is where the grid begins.",
        "numeric column, on the scale of `time`",
        default="none",
    ),
    "horizon": Key(
        says="Until when; to the bound if left out.",
        values="above 0, to the bound of `time`",
        schema={"type": "number", "exclusiveMinimum": 0},
        default="none",
    ),
    "test": one_of(
        *("chi-square", "log-rank", "proportional-hazards", "wilcoxon", "gray"),
        says='`"crosstab"`; `"survival"` with `by`; `"cox"` on classes; `"quantiles"` and '
        '`"incidence"` with `by`.',
        default="none",
    ),
    "strata": _classed(
        '`"survival"`, `"cox"` on classes: within which the test, or the regression, compares.'
    ),
    "outcome": text(
        '`"logistic"`, `"linear"`: what is explained; `"centres"`: what is counted; required '
        "there.",
        'column: two categories, or for `"linear"` numeric',
        default="none",
    ),
    "covariates": table(
        '`"logistic"`, `"linear"`, `"cox"`: by what: a list of break points, `"number"` (ten '
        'sums, but for `"linear"`) or `"categories"` for each column; required there.',
        "table of columns",
        default="none",
    ),
    "per": number(
        0,
        1e9,
        '`"rates"`: the time that rates are per, in the unit of `time`; 100 if left out.',
        above=True,
        default="none",
    ),
    "reference": table(
        '`"logistic"`, `"linear"`, `"cox"`: the class that others are compared with; the first if '
        "left out.",
        'table such as `{ stage = "II" }`',
        default="none",
    ),
    "interactions": Key(
        says='`"logistic"`, `"cox"` on classes: pairs of covariates whose products are in the '
        "model, too, each pair with a test.",
        values='list of pairs such as `[["sex", "stage"]]`',
        schema={"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
        default="none",
    ),
    "trend": texts(
        '`"logistic"`, `"cox"` on classes: covariates whose trend over their classes is told '
        "besides.",
        "list of covariates",
        default="none",
    ),
    "subgroups": text(
        '`"logistic"`, `"cox"` on classes: the covariate whose effect alone is told in each class '
        "of every other one, with tests of interaction.",
        "covariate",
        default="none",
    ),
}
