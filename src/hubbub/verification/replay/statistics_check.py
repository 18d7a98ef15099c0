"""The statistics of a run made again: from the transcript's sums, or from those that were kept.

This file knows a plan and what was kept of sums, and no session.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hubbub.planning import Plan
from hubbub.queries import ANSWERS, SUMS, answers_to_dict, planned_statistics, sums_in
from hubbub.verification.evidence import (
    MALFORMED,
    Finding,
    difference,
    judged,
    not_verifiable,
    read_plain,
    wrong,
)
from hubbub.verification.replay.integrity_check import RESTORE

Kept = NDArray[np.float32]


def statistic_findings(
    folder: Path, plan: Plan, made: Kept | None, before: Kept | None
) -> Iterator[Finding]:
    """Whether the answers of a run are what its sums say.

    Args:
        folder: of the run.
        plan: its plan.
        made: what is kept of the sums in the transcripts; None if they could not be made again.
        before: the same without the last of them, if an interruption may have lost that one.
    """
    if plan.study.statistics is None or not (folder / ANSWERS).exists():
        return
    claim = f"{folder / ANSWERS} says what the sums say"
    try:
        layout = planned_statistics(plan).query.layout
        kept = sums_in(folder, layout)
        if not layout.is_enough(kept):
            yield wrong(claim, f"{folder / SUMS} has too few for an answer; {RESTORE}")
            return
        follows = _kept_finding(f"{folder / SUMS} follows from the sums", kept, made, before)
        yield follows.covering("replay.answers")
        why = difference(read_plain(folder / ANSWERS), answers_to_dict(plan, kept))
    except MALFORMED as error:
        yield wrong(claim, f"{error}; {RESTORE}")
        return
    yield judged(claim, f"{why}; {RESTORE}" if why else "").covering("replay.answers")


def _kept_finding(claim: str, kept: Kept, made: Kept | None, before: Kept | None) -> Finding:
    """Whether what was kept of sums is what they make."""
    if made is None:
        return not_verifiable(f"that {claim}: they could not be made again")
    if kept.tobytes() == made.tobytes():
        return judged(claim, "")
    if before is not None and kept.tobytes() == before.tobytes():
        return judged(f"{claim} that an interruption has left", "")
    return judged(claim, f"it differs; {RESTORE}")
