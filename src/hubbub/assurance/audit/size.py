"""How large an audit is if nobody says so, and how many canaries a run can have.

A plain sum has a coordinate for every canary, so runs are large and few. Where sums are projected,
canaries are in each other's way: what all others add to a canary's score is kept to a small part of
the noise. Where batches are joint, a run has as many records as canaries, and every silo wraps a
token of each in a layer for every silo.
"""

from __future__ import annotations

from math import ceil

from hubbub.assurance.evidence import MOST_CANARIES
from hubbub.errors import StudyError
from hubbub.planning import Plan, attempts_of_list, joint_batch
from hubbub.study import Study

_PLAIN = (3, 10_000)
_MOST = 3_000  # canaries in a run, where they are fewer
_OTHERS = 0.1  # of the variance of the noise, from other canaries
_TRIALS = 12_000  # that are wanted in all runs
_MOST_STEPS = 3_000  # of all runs
_OPERATIONS = 400_000  # of HPKE, of all runs
_LEAST_RUNS = 4


def size_of(plan: Plan, runs: int | None, canaries: int | None) -> tuple[int, int]:
    """Runs, and canaries in each of them; by the study where nothing is asked for.

    Raises:
        StudyError: joint batches need more canaries.
    """
    study, usual = plan.study, _PLAIN
    if study.training.projection or attempts_of_list(study):
        fewer = max(min(_apart(plan), _wrapped(study) // _LEAST_RUNS, _MOST), _least(study))
        canaries = _fitting(study, fewer if canaries is None else canaries)
        wanted = ceil(_TRIALS / canaries), _MOST_STEPS // study.training.steps
        usual = max(_LEAST_RUNS, min(*wanted, _wrapped(study) // canaries)), canaries
    return usual[0] if runs is None else runs, usual[1] if canaries is None else canaries


def joint_part(study: Study, records: int) -> int:
    """Of so many records, how many are in a joint batch: no larger a part than the study's."""
    whole = study.data.records
    if not attempts_of_list(study):
        return 0
    return records * joint_batch(study.training.sample_rate, whole) // whole


def share_of_others(plan: Plan, canaries: int) -> float:
    """The variance that all canaries together add to the score of one, in units of C^2 (P18)."""
    training = plan.study.training
    if not training.projection:
        return 0.0
    there = 1.0 if plan.study.privacy.relation == "substitute" else 0.5
    return (canaries - 1) * there * training.sample_rate / training.projection


def _apart(plan: Plan) -> int:
    """How many canaries are hardly in each other's way."""
    room = _OTHERS * plan.stated.noise_multiplier**2
    each = share_of_others(plan, 2)
    return MOST_CANARIES if not each else max(1, int(room / each))


def _wrapped(study: Study) -> int:
    """How many tokens can be wrapped and unwrapped in all lists of a training, over all runs."""
    every = attempts_of_list(study)
    lists = ceil(study.training.steps / every) if every else 0
    return _OPERATIONS // (lists * 2 * study.parties.silos) if lists else _TRIALS


def _least(study: Study) -> int:
    """The fewest canaries of whom one is in a joint batch."""
    if not attempts_of_list(study):
        return 1
    return ceil(study.data.records / joint_batch(study.training.sample_rate, study.data.records))


def _fitting(study: Study, canaries: int) -> int:
    """The most canaries up to so many whose joint batch is nearly the study's part of them."""
    part, whole = joint_part(study, canaries), study.data.records
    if not attempts_of_list(study):
        return canaries
    if not part or _least(study) > MOST_CANARIES:
        raise StudyError(
            f"expected at least {_least(study)} canaries, of whom one is in a joint batch, and at "
            f"most {MOST_CANARIES}, got {canaries}; raise --canaries, or audit a larger batch"
        )
    return ceil(part * whole / joint_batch(study.training.sample_rate, whole))
