"""A rehearsal: what a run would give, on records that are public or made up.

It has the law of a run in every number that is released, the coins of all silos, the noise of all
shares, the rounding, and none of its protection: no masks, no signatures, no ledger, no folder. It
is for choosing learning rates and clips, at the price of plain DP-SGD.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hubbub.core.study import sources
from hubbub.core.study.study import Study
from hubbub.learning.runs import run_study
from hubbub.learning.runs.baselines import REHEARSAL
from hubbub.learning.runs.preparing import prepare
from hubbub.learning.runs.result import Result


def rehearse(
    study: Study,
    *,
    repeats: int = 1,
    device: str = "auto",
    progress: Callable[[], None] | None = None,
) -> tuple[Result, ...]:
    """Rehearse a study: runs of the same law by somebody who holds all records.

    Guarantees:
        1. Each result has the distribution of what `run` gives where every silo answers, up to what
           a float32 sum rounds.
        2. Nothing is written and nothing is charged, so nothing is promised: whoever chooses
           anything by the outcome of a rehearsal on private records has released it.

    Args:
        study: what to rehearse.
        repeats: how often, each with coins and noise of its own.
        device: where gradients are made: "auto" (a GPU if there is one), "cpu" or "cuda".
        progress: called after every rehearsal.

    Returns:
        One result for each; its epsilon is what a run would spend.

    Raises:
        StudyError: the study cannot be run.
        DataError: a silo's records do not fit it.
        ModelError: the model cannot be trained with a guarantee for every record.
        UserError: there is no such device.

    >>> from dataclasses import replace
    >>> from importlib import resources
    >>> heart = Study.load(resources.files("hubbub.learning.datasets") / "heart.toml")
    >>> study = heart.changed(training=replace(heart.training, steps=2))
    >>> [result.final["step"] for result in rehearse(study, repeats=2)]
    [2, 2]
    """
    Study.expect(study)
    sources.read_anew(study, Path())
    prepared = prepare(study, device=device)
    results = []
    for _ in range(repeats):
        results.append(run_study.run_prepared(prepared, None, baseline=REHEARSAL))
        if progress is not None:
            progress()
    return tuple(results)
