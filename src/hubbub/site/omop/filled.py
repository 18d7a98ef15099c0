"""What a study of a cohort need not say: whose a record is, and columns whose bounds are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hubbub.core.errors import StudyError
from hubbub.core.section import Section
from hubbub.site.omop.omop_keys import EVENT, PERSON, column_table, omop_from

_PARTS = ("column", "time", "event")  # of a target that is a table


def with_columns(stated: Mapping[str, Any]) -> dict[str, Any]:
    """The table `[data]` with the person as the unit, one record each, and all columns declared.

    Raises:
        StudyError: a column's bounds are neither stated nor known, or another unit is stated.
    """
    omop = omop_from(Section("data", stated, tuple(stated)))
    for key, value in (("patient", PERSON), ("most_per_patient", 1)):
        if stated.get(key, value) != value:
            raise StudyError(
                f"expected data.{key} = {value!r} of a cohort, got another; leave it out"
            )
    target = stated.get("target")
    parts = [target.get(key) for key in _PARTS] if isinstance(target, dict) else [target]
    named = {part for part in parts if isinstance(part, str)}
    own = stated.get("columns", {})
    if not isinstance(own, dict):
        return dict(stated)
    wanted = [column for column in omop.columns if column.name not in named]
    columns = {one.name: own.get(one.name) or column_table(one) for one in wanted} | own
    if omop.outcome is not None and EVENT not in named:
        columns.setdefault(EVENT, {"categories": ["0", "1"]})
    return {**stated, "patient": PERSON, "most_per_patient": 1, "columns": columns}
