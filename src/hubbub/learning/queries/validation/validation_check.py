"""The validation of a run made again: from the transcript's sums, or from those that were kept.

This file knows a plan and what was kept of sums, and no session.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hubbub.core.planning.plan_values import Plan
from hubbub.core.verification.evidence.evidence_file import MALFORMED, read_plain
from hubbub.core.verification.evidence.finding import RESTORE, Finding, difference, wrong
from hubbub.core.verification.replay.course import Course
from hubbub.learning.queries.validation.validation_answers import validation_of
from hubbub.learning.queries.validation.validation_query import (
    VALIDATED,
    VALIDATION_SUMS,
    ValidationQuery,
)
from hubbub.learning.queries.validation.validation_query import sums_in as validation_sums_in


def validation_findings(
    folder: Path, plan: Plan, query: ValidationQuery, course: Course
) -> Iterator[Finding]:
    """Whether the validation of a run says what its sums say.

    Args:
        folder: of the run.
        plan: its plan.
        query: the validation.
        course: of its sums in the transcripts.
    """
    if not (folder / VALIDATED).exists():
        return
    claim, kept_in = f"{folder / VALIDATED} says what the sums say", folder / VALIDATION_SUMS
    try:
        kept = validation_sums_in(folder, query.layout.size)
        same = course.led is None or (kept.tobytes() == query.sums(course.led).tobytes())
        follows = f"{kept_in} follows from the sums, at the model that the last step gave"
        told = course.judged(follows, "" if same else f"it differs; {RESTORE}")
        yield told.covering("replay.answers")
        if not told.holds:
            return  # whatever these sums say
        why = difference(read_plain(folder / VALIDATED), validation_of(plan, kept))
    except MALFORMED as error:
        yield wrong(claim, f"{error}; {RESTORE}")
        return
    yield course.judged(claim, f"{why}; {RESTORE}" if why else "").covering("replay.answers")
