"""Training through the protocol, in one process or among machines: the sums come from sessions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hubbub.planning import TRAINING
from hubbub.study import Standardisation
from hubbub.training import auxiliary_sums, loop, prepared_study, run_sessions


def train_federated(
    setting: prepared_study.PreparedStudy,
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
        setting: the study, ready to run.
        sessions: where sums are asked for.
        start: where to go on; the beginning if None.
        progress, keep: see `train`.
        offer: told how features are standardised, before silos are told.
        begin: what more counts as spent before the first step.
    """
    ask = auxiliary_sums.through(sessions)
    setting = auxiliary_sums.standardise(setting, ask, sessions.folder)
    setting = auxiliary_sums.statistics(setting, ask, sessions.folder)
    offer(setting.standardisation)
    look = auxiliary_sums.evaluation(setting, ask)
    sums = sessions.open(TRAINING, setting.plan, setting.tasks, setting.numbers, lift=setting.lift)
    state = start or loop.State(parameters=setting.initial)
    state = begin(replace(state, attempts=max(state.attempts, sessions.charged(TRAINING))))

    def summation(step: int, parameters: prepared_study.Parameters, left: int) -> loop.Summed:
        gradient, made = sums.round(step, parameters, left)
        return loop.Summed(gradient=gradient, attempts=made)

    return setting, loop.train(
        setting,
        summation,
        progress,
        divisor=setting.plan.divisor,
        start=state,
        keep=keep,
        look=look,
    )
