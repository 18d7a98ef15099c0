"""The statistics of a run made again: from the transcript's sums, or from those that were kept.

This file knows a plan and what was kept of sums, and no session.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hubbub.assurance.evidence import (
    ANSWERS,
    MALFORMED,
    SUMS,
    Finding,
    answers_to_dict,
    difference,
    judged,
    not_verifiable,
    read_plain,
    sums_in,
    wrong,
)
from hubbub.assurance.verification.integrity_check import RESTORE
from hubbub.planning import Plan, layout_of_sums, sigma_of_sums

Kept = NDArray[np.float32]


def statistic_findings(
    folder: Path, plan: Plan, sums: Mapping[int, NDArray[np.float64]], last: Kept | None
) -> Iterator[Finding]:
    """Whether the answers of a run are what its sums say.

    Args:
        folder: of the run.
        plan: its plan.
        sums: that were made again of the sessions for statistics beside a training, by number.
        last: what the last step gave where there is no training; None if it was not made again.
    """
    if plan.study.statistics is None or not (folder / ANSWERS).exists():
        return
    claim = f"{folder / ANSWERS} says what the sums say"
    try:
        made = last if not plan.study.trains else _remade(plan, sums)
        if plan.study.trains:
            kept = sums_in(folder, layout_of_sums(plan.study))
            if made is None:
                yield not_verifiable(f"that {folder / SUMS} holds the sums that were made")
            else:
                same = made.tobytes() == kept.tobytes()
                why = "" if same else f"it differs; {RESTORE}"
                yield judged(f"{folder / SUMS} follows from the sums", why)
            made = kept
        if made is None:
            yield not_verifiable(f"that {claim}: the sums could not be made again")
            return
        why = difference(read_plain(folder / ANSWERS), answers_to_dict(plan, made))
    except MALFORMED as error:
        yield wrong(claim, f"{error}; {RESTORE}")
        return
    yield judged(claim, f"{why}; {RESTORE}" if why else "")


def _remade(plan: Plan, sums: Mapping[int, NDArray[np.float64]]) -> Kept | None:
    """What is kept of these sums; None if there are too few."""
    layout, sigma = layout_of_sums(plan.study), sigma_of_sums(plan)
    kept = layout.start
    for number in sorted(sums)[: layout.rounds]:
        kept = layout.after(kept, sums[number], sigma)
    return kept if layout.is_enough(kept) else None
