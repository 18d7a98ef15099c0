"""What a run's sums gave people, made again: from the transcript's sums, or from those it kept.

This file knows a plan and what was kept of sums, and no session.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hubbub.core.disk import json_value
from hubbub.core.planning.plan_values import Plan
from hubbub.core.verification.evidence.evidence_file import MALFORMED, read_plain, read_whole
from hubbub.core.verification.evidence.finding import RESTORE, Finding, difference, wrong
from hubbub.core.verification.replay.course import Course
from hubbub.estimation.queries.kept_sums import sums_in
from hubbub.estimation.queries.sums_query import SumsQuery


def released_findings(
    folder: Path, plan: Plan, query: SumsQuery, course: Course
) -> Iterator[Finding]:
    """Whether what a query gave people is what its sums say.

    Args:
        folder: of the run.
        plan: its plan.
        query: whose sums they are.
        course: where the sums in the transcripts lead.
    """
    if not (folder / query.answered_in).exists():
        return
    sums, claim = folder / query.kept_in, f"{folder / query.answered_in} says what the sums say"
    try:
        kept = sums_in(folder, query.layout, query.kept_in)
        if not query.is_enough(kept):
            yield wrong(claim, f"{sums} has too few for an answer; {RESTORE}")
            return
        led, claim_of_sums = course.led, f"{sums} follows from the sums"
        none = led is not None and not led.step and not query.layout.made(kept)  # nor is kept where
        same = led is None or none or kept.tobytes() == led.parameters.tobytes()
        follows = course.judged(claim_of_sums, "" if same else f"it differs; {RESTORE}")
        yield follows.covering("replay.answers")
        if not follows.holds:
            return  # whatever these sums say
        for name, text in query.released(plan, kept).files.items():
            why = _difference(folder / name, text)
            claim = f"{folder / name} says what the sums say"
            told = course.judged(claim, f"{why}; {RESTORE}" if why else "")
            yield told.covering("replay.answers")
    except MALFORMED as error:
        yield wrong(claim, f"{error}; {RESTORE}")


def _difference(path: Path, text: str) -> str:
    """How a file differs from what follows; numbers of JSON by more than last digits."""
    if path.suffix == ".json":
        return difference(read_plain(path), json_value(text))
    return "" if read_whole(path) == text.encode() else "it differs"
