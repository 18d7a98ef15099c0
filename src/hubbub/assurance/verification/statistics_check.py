"""The statistics of a run made again: from the transcript's sums, or from those that were kept.

This file knows a plan and what was kept of sums, and no session.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hubbub.assurance.evidence import (
    MALFORMED,
    Finding,
    difference,
    judged,
    not_verifiable,
    read_plain,
    wrong,
)
from hubbub.assurance.verification.integrity_check import RESTORE
from hubbub.planning import Plan
from hubbub.queries import ANSWERS, SUMS, answers_to_dict, planned_statistics, sums_in

Kept = NDArray[np.float32]


def statistic_findings(folder: Path, plan: Plan, made: Sequence[Kept | None]) -> Iterator[Finding]:
    """Whether the answers of a run are what its sums say.

    Args:
        folder: of the run.
        plan: its plan.
        made: what may be kept of the sums in the transcripts: with the last of them, or, where an
            interruption has lost that one, without; None if they could not be made again.
    """
    if plan.study.statistics is None or not (folder / ANSWERS).exists():
        return
    claim = f"{folder / ANSWERS} says what the sums say"
    layout = planned_statistics(plan).query.layout
    known = [one for one in made if one is not None and layout.is_enough(one)]
    try:
        kept = sums_in(folder, layout)
        if not known:
            yield not_verifiable(f"that {folder / SUMS} holds the sums that were made")
        else:
            same = any(one.tobytes() == kept.tobytes() for one in known)
            why = "" if same else f"it differs; {RESTORE}"
            yield judged(f"{folder / SUMS} follows from the sums", why)
        why = difference(read_plain(folder / ANSWERS), answers_to_dict(plan, kept))
    except MALFORMED as error:
        yield wrong(claim, f"{error}; {RESTORE}")
        return
    yield judged(claim, f"{why}; {RESTORE}" if why else "")
