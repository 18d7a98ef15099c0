"""The validation of a run made again: from the transcript's sums, or from those that were kept.

This file knows a plan and what was kept of sums, and no session.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hubbub.planning import Plan
from hubbub.queries import (
    VALIDATED,
    VALIDATION_SUMS,
    planned_validation,
    validation_of,
    validation_sums_in,
)
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

Sums = NDArray[np.float64]


def validation_findings(folder: Path, plan: Plan, made: Sums | None) -> Iterator[Finding]:
    """Whether the validation of a run says what its sums say.

    Args:
        folder: of the run.
        plan: its plan.
        made: the sums in the transcripts, (made, numbers); None if they could not be made again.
    """
    planned = planned_validation(plan)
    if planned is None or not (folder / VALIDATED).exists():
        return
    claim, kept_in = f"{folder / VALIDATED} says what the sums say", folder / VALIDATION_SUMS
    try:
        kept = validation_sums_in(folder, planned.query.layout.size)
        if made is None:
            yield not_verifiable(f"that {kept_in} follows from the sums: they could not be made")
        elif kept_in.exists() or len(made):
            # An interruption may have lost the last sum that was made.
            few = len(made) - 1 == len(kept)
            same = kept.tobytes() == made[: len(kept)].tobytes() and len(made) - len(kept) in (0, 1)
            told = f"{kept_in} follows from the sums{' that an interruption has left' * few}"
            yield judged(told, "" if same else f"it differs; {RESTORE}")
        why = difference(read_plain(folder / VALIDATED), validation_of(plan, kept))
    except MALFORMED as error:
        yield wrong(claim, f"{error}; {RESTORE}")
        return
    yield judged(claim, f"{why}; {RESTORE}" if why else "")
