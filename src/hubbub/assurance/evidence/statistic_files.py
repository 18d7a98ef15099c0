"""What a run's folder says of statistics: the noisy sums, and what they say.

    sums.json           the sums so far, where a model is trained, too
    statistics.json     the answers, which follow from the sums and the study alone

Without a model, what is kept of sums is what `model.safetensors` holds.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hubbub.assurance.evidence.evidence_file import MALFORMED, Plain, read_plain
from hubbub.disk import write_text
from hubbub.errors import IntegrityError
from hubbub.planning import Plan, SumLayout, answers_of, plan_of_sums

SUMS, ANSWERS = "sums.json", "statistics.json"
Kept = NDArray[np.float32]


def write_sums(folder: Path, kept: Kept) -> None:
    """Keep what sums have given so far."""
    write_text(folder / SUMS, json.dumps({"kept": kept.tolist()}))


def sums_in(folder: Path, layout: SumLayout) -> Kept:
    """What a folder keeps of sums, see `SumLayout`.

    Raises:
        IntegrityError: the file is not as it was written.
    """
    path = folder / SUMS
    if not path.exists():
        return layout.start
    try:
        said = read_plain(path)
        with np.errstate(over="ignore"):  # what is too large is infinite, and so refused
            kept = np.array(said["kept"], dtype=np.float32)
        if set(said) != {"kept"} or kept.shape != layout.start.shape or not np.isfinite(kept).all():
            raise ValueError("expected other sums")
    except MALFORMED:
        raise IntegrityError(
            f"expected {path} as this version writes it, found something else; restore it"
        ) from None
    return kept


def answers_to_dict(plan: Plan, kept: Kept) -> Plain:
    """What the sums of a plan's statistics say, and under which promise, as plain values."""
    asked = plan.study.privacy
    said = {name: one.to_dict() for name, one in answers_of(plan, kept).items()}
    whole = {
        "study": plan.study.name,
        "study_id": plan.study.id.hex(),
        "epsilon": plan_of_sums(plan).stated.epsilon,
        "delta": asked.delta,
        "relation": asked.relation,
        "adversary": plan.stated.adversary,
        "unit": plan.study.data.unit,
        "statistics": said,
    }
    plain: Plain = json.loads(json.dumps(whole))
    return plain


def write_answers(folder: Path, answers: Plain) -> None:
    """Put the answers into a folder."""
    write_text(folder / ANSWERS, json.dumps(answers, indent=1))
