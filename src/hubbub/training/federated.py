"""Training through the protocol, in one process or among machines: the sums come from sessions.

Besides gradients a run may ask the silos for more, through the same protocol (docs/privacy.md P16):
before the training for the sums that standardise features; in between for evaluations on records
that the silos hold back. Each kind has a session of its own, and rows of its own in the ledgers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

import hubbub.learning as learning
from hubbub.errors import IntegrityError
from hubbub.planning import (
    EVALUATION,
    STANDARDISATION,
    STATISTICS,
    TRAINING,
    PlannedQuery,
    SumLayout,
    layout_of_sums,
    sigma_of_sums,
)
from hubbub.protocol import LocalTask
from hubbub.study import Standardisation, standardisation_from
from hubbub.training import loop, prepared_study, run_folder, run_sessions

Array = NDArray[np.float64]
# The noisy sum of a number's turn, or None if it was spent before and lost.
Ask = Callable[[int, prepared_study.Parameters], Array | None]
# Opens a session for one kind of query, with everybody's task.
Opened = Callable[[PlannedQuery, Sequence[LocalTask]], Ask]


def train_federated(
    prepared: prepared_study.PreparedStudy,
    sessions: run_sessions.RunSessions,
    *,
    start: loop.State | None,
    progress: loop.Progress,
    keep: Callable[[loop.State], None],
    offer: Callable[[Standardisation | None], None] = lambda _: None,
    begin: Callable[[loop.State], loop.State] = lambda state: state,
) -> tuple[prepared_study.PreparedStudy, loop.State]:
    """Train through the protocol: every silo adds its share of the noise, only the sum is seen.

    Args:
        prepared: the study, ready to run.
        sessions: where sums are asked for.
        start: where to go on; the beginning if None.
        progress, keep: see `train`.
        offer: told how features are standardised, before silos are told.
        begin: what more counts as spent before the first step.
    """
    ask = through(sessions)
    prepared = standardise(prepared, ask, sessions.folder)
    prepared = statistics(prepared, ask, sessions.folder)
    offer(prepared.standardisation)
    look = evaluation(prepared, ask)
    sums = sessions.open(
        TRAINING, prepared.plan, prepared.tasks, prepared.numbers, lift=prepared.lift
    )
    state = start or loop.State(parameters=prepared.initial)
    state = begin(replace(state, attempts=max(state.attempts, sessions.charged(TRAINING))))

    def summation(step: int, parameters: prepared_study.Parameters, left: int) -> loop.Summed:
        gradient, made = sums.round(step, parameters, left)
        return loop.Summed(gradient=gradient, attempts=made)

    return prepared, loop.train(
        prepared,
        summation,
        progress,
        divisor=prepared.plan.divisor,
        start=state,
        keep=keep,
        look=look,
    )


def standardised(
    prepared: prepared_study.PreparedStudy, found: Standardisation
) -> prepared_study.PreparedStudy:
    """The study with everybody's features standardised."""
    return replace(
        prepared,
        records=tuple(found.of(one) for one in prepared.records),
        held_back=tuple(found.of(one) for one in prepared.held_back),
        test=found.of(prepared.test) if prepared.test is not None else None,
        standardisation=found,
    )


def standardise(
    prepared: prepared_study.PreparedStudy, opened: Opened, folder: run_folder.RunFolder | None
) -> prepared_study.PreparedStudy:
    """Standardise the features, if the study asks for it, with what was kept or with a new sum."""
    asked, planned = prepared.study.data.standardise, prepared.plan.query(STANDARDISATION)
    if asked is None or planned is None:
        return prepared
    features = planned.query.numbers // 2  # 1 + 2 features are summed
    found = folder.standardisation(features) if folder else None
    if found is None:
        total = opened(planned, prepared.feature_sums)(1, prepared.initial)
        if total is None:
            raise IntegrityError(
                "expected the sums that standardise the features, they were charged and lost in "
                "an interruption; approve the study under another name and run that"
            )
        found = standardisation_from(total, asked.bound)
        if folder is not None:
            folder.keep_standardisation(found)
    return standardised(prepared, found)


def statistics(
    prepared: prepared_study.PreparedStudy, opened: Opened, folder: run_folder.RunFolder | None
) -> prepared_study.PreparedStudy:
    """The sums of statistics beside the training, kept or made now (docs/privacy.md P23)."""
    planned = prepared.plan.query(STATISTICS)
    if planned is None:
        return prepared
    layout, sigma = layout_of_sums(prepared.study), sigma_of_sums(prepared.plan)
    kept = folder.kept_sums(layout) if folder else layout.start
    if layout.made(kept) < layout.rounds:
        ask = opened(planned, prepared.statistic_tasks)
        for number in range(layout.made(kept) + 1, layout.rounds + 1):
            total = ask(number, kept)
            if total is not None:
                kept = layout.after(kept, total, sigma)
            if folder is not None and total is not None:
                folder.keep_sums(kept)
    check_sums(layout, kept)
    return replace(prepared, kept_sums=kept)


def check_sums(layout: SumLayout, kept: prepared_study.Parameters) -> None:
    """Refuse to go on with fewer sums than answers need.

    Raises:
        IntegrityError: they were charged, and lost in an interruption.
    """
    if not layout.is_enough(kept):
        raise IntegrityError(
            f"expected {layout.stacked.rounds} sums of the statistics, {layout.made(kept)} are "
            "here and the others were charged and lost in an interruption; approve the study under "
            "another name and run that, with statistics.sums = 2 if it may happen again"
        )


def evaluation(prepared: prepared_study.PreparedStudy, opened: Opened) -> loop.Look | None:
    """Evaluations on held-back records, if the study asks for them."""
    planned = prepared.plan.query(EVALUATION)
    if planned is None:
        return None
    every, steps = planned.query.every, prepared.study.training.steps
    ask = opened(planned, prepared.evaluation_tasks)

    def at(step: int, parameters: prepared_study.Parameters) -> loop.Row:
        total = ask(step // every, parameters)
        return {} if total is None else _told(total, learning.goal_of(prepared.study))

    return loop.Look(after=frozenset(range(every, steps + 1, every)), at=at)


def _told(total: Array, goal: learning.Goal) -> loop.Row:
    """Accuracy, or another goal's mean, and mean loss from noisy sums."""
    count = max(float(total[0]), 1.0)
    name, value = goal.told(float(np.clip(total[1] / count, 0.0, 1.0)))
    return {
        name: value,
        "held_back_loss": float(np.clip(total[2] / count, 0.0, 1.0)) * learning.MOST_LOSS,
    }


def through(sessions: run_sessions.RunSessions) -> Opened:
    """Queries through the protocol, by the run's ledgers."""

    def opened(planned: PlannedQuery, tasks: Sequence[LocalTask]) -> Ask:
        purpose = planned.query.purpose
        query = planned.query
        sums = sessions.open(
            purpose, planned.plan, tasks, query.numbers, parameters=query.parameters
        )
        made = sessions.charged(purpose)

        def ask(number: int, parameters: prepared_study.Parameters) -> Array | None:
            nonlocal made
            if made >= number:  # what a crash has charged and lost is not asked for again
                return None
            total, attempts = sums.round(number, parameters, number - made)
            made += attempts
            return total

        return ask

    return opened


def exactly(_planned: PlannedQuery, tasks: Sequence[LocalTask]) -> Ask:
    """Queries without noise or protocol, for the baseline that keeps no privacy."""

    def ask(_number: int, parameters: prepared_study.Parameters) -> Array:
        sums = [task.clipped_sum(parameters, np.arange(task.count)) for task in tasks]
        return np.sum(sums, axis=0)  # type: ignore[no-any-return]

    return ask
