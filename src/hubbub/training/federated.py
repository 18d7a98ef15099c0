"""Training through the protocol, in one process or among machines: the sums come from sessions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hubbub.planning import TRAINING
from hubbub.study import Standardisation
from hubbub.training.auxiliary_sums import evaluation, standardise, through
from hubbub.training.loop import Progress, State, Summed, train
from hubbub.training.prepared_study import Parameters, PreparedStudy
from hubbub.training.run_sessions import RunSessions


def train_federated(
    setting: PreparedStudy,
    sessions: RunSessions,
    *,
    start: State | None,
    progress: Progress,
    keep: Callable[[State], None],
    offer: Callable[[Standardisation | None], None] = lambda _: None,
    begin: Callable[[State], State] = lambda state: state,
) -> tuple[PreparedStudy, State]:
    """Train through the protocol: every silo adds its share of the noise, only the sum is seen.

    Args:
        setting: the study, ready to run.
        sessions: where sums are asked for.
        start: where to go on; the beginning if None.
        progress, keep: see `train`.
        offer: told how features are standardised, before silos are told.
        begin: what more counts as spent before the first step.
    """
    ask = through(sessions)
    setting = standardise(setting, ask, sessions.folder)
    offer(setting.standardisation)
    look = evaluation(setting, ask)
    sums = sessions.open(
        TRAINING, setting.plan, setting.tasks, setting.initial.size, lift=setting.lift
    )
    state = start or State(parameters=setting.initial)
    state = begin(replace(state, attempts=max(state.attempts, sessions.charged(TRAINING))))

    def summation(step: int, parameters: Parameters, left: int) -> Summed:
        gradient, made = sums.round(step, parameters, left)
        return Summed(gradient=gradient, attempts=made)

    return setting, train(
        setting,
        summation,
        progress,
        divisor=setting.plan.divisor,
        start=state,
        keep=keep,
        look=look,
    )
