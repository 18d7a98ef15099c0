"""What is checked of a run before anything is loaded or charged: what was wanted, and its plan."""

from __future__ import annotations

import json
from pathlib import Path

from hubbub.core.disk import json_value, read_bytes
from hubbub.core.errors import IntegrityError, StudyError, UserError
from hubbub.core.planning.plan_values import Plan
from hubbub.core.runs import run_folder
from hubbub.core.study.study import Study
from hubbub.core.verification.evidence.finding import difference
from hubbub.learning.runs import baselines


def check_wanted(
    study: Study,
    out: str | Path | None,
    baseline: str | None,
    audit: str | Path | None = None,
) -> None:
    """Refuse what cannot be run, or leaves nothing that an audit could stand in."""
    if baseline is not None and baseline not in baselines.BASELINES:
        raise StudyError(
            f"expected baseline to be one of {', '.join(baselines.BASELINES)}, "
            f"got {baseline!r}; choose one"
        )
    if study.parties.roster and baseline is None:
        raise StudyError(
            "expected a study without parties.roster in one process, where keys are made for the "
            "run, got one with it; leave it out to try the study, or use hubbub serve and join"
        )
    if baseline is not None and study.training is None:
        raise StudyError(
            f"expected no baseline of a study that only asks for statistics, got {baseline!r}; "
            "leave it out, or see what a run would give with hubbub.rehearse"
        )
    if out is not None:
        run_folder.refuse_used(Path(out))
    if audit is not None and (baseline is not None or out is None):
        raise UserError(
            "expected an audit with a run that leaves evidence, got one with "
            f"{'no folder' if out is None else 'a baseline'}; leave it out"
        )


def check_plan(path: Path, made: Plan) -> None:
    """The plan is still the one by which the run began: noise and account go together."""
    try:
        why = difference(json_value(read_bytes(path)), json.loads(made.to_json()))
    except (OSError, ValueError, RecursionError, OverflowError) as error:
        why = f"it cannot be read ({type(error).__name__})"
    if why:
        raise IntegrityError(
            f"expected {path} to be the plan that follows from the study, {why}; restore it, or "
            "use the version of hubbub that began the run"
        )
