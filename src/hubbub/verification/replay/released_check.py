"""What a run's sums gave people, made again: from the transcript's sums, or from those it kept.

This file knows a plan and what was kept of sums, and no session.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hubbub.disk import json_value
from hubbub.planning import Plan
from hubbub.queries import SumsQuery, sums_in
from hubbub.verification.evidence import (
    MALFORMED,
    Finding,
    difference,
    judged,
    not_verifiable,
    read_plain,
    read_whole,
    wrong,
)
from hubbub.verification.replay.integrity_check import RESTORE

Kept = NDArray[np.float32]


def released_findings(
    folder: Path, plan: Plan, query: SumsQuery, made: Kept | None, before: Kept | None
) -> Iterator[Finding]:
    """Whether what a query gave people is what its sums say.

    Args:
        folder: of the run.
        plan: its plan.
        query: whose sums they are.
        made: what is kept of the sums in the transcripts; None if they could not be made again.
        before: the same without the last of them, if an interruption may have lost that one.
    """
    if not (folder / query.answered_in).exists():
        return
    sums, claim = folder / query.kept_in, f"{folder / query.answered_in} says what the sums say"
    try:
        kept = sums_in(folder, query.layout, query.kept_in)
        if not query.is_enough(kept):
            yield wrong(claim, f"{sums} has too few for an answer; {RESTORE}")
            return
        follows = _kept_finding(f"{sums} follows from the sums", kept, made, before)
        yield follows.covering("replay.answers")
        for name, text in query.released(plan, kept).files.items():
            why = _difference(folder / name, text)
            claim = f"{folder / name} says what the sums say"
            told = judged(claim, f"{why}; {RESTORE}" if why else "")
            yield told.covering("replay.answers")
    except MALFORMED as error:
        yield wrong(claim, f"{error}; {RESTORE}")


def _difference(path: Path, text: str) -> str:
    """How a file differs from what follows; numbers of JSON by more than last digits."""
    if path.suffix == ".json":
        return difference(read_plain(path), json_value(text))
    return "" if read_whole(path) == text.encode() else "it differs"


def _kept_finding(claim: str, kept: Kept, made: Kept | None, before: Kept | None) -> Finding:
    """Whether what was kept of sums is what they make."""
    if made is None:
        return not_verifiable(f"that {claim}: they could not be made again")
    if kept.tobytes() == made.tobytes():
        return judged(claim, "")
    if before is not None and kept.tobytes() == before.tobytes():
        return judged(f"{claim} that an interruption has left", "")
    return judged(claim, f"it differs; {RESTORE}")
