"""Training with joint batches whose lists of tokens are dealt to the silos instead of mixed.

Joint batches keep their account only if every step has a fresh list (docs/privacy.md P9). Mixing
one takes two HPKE operations per record and silo: 3.2 million for 50,000 records of 32 silos, and a
training of 1250 steps wants 1250 lists. What the mixers promise is a uniformly random order of
which a silo knows its own places and no others (docs/sampling.md). Here one dealer, who would have
to be trusted, hands out exactly that. All that follows a list is the protocol's own: the joint seed
by commitment and reveal, the batch that it draws, clipping, shares of the noise, masks, the sum.

This file knows how such a training is put together; what is trained, and at which epsilon, is said
by the study.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

import hubbub
import hubbub.learning as learning
from hubbub.planning import TRAINING
from hubbub.protocol.randomness import SecureSource
from hubbub.session.in_process import Lists
from hubbub.session.layout import layout_of
from hubbub.session.noisy_sums import Series, Stage
from hubbub.training.loop import Progress, Summed, train
from hubbub.training.prepared_study import Parameters, PreparedStudy
from hubbub.training.result import Result


def federated(study: hubbub.Study, progress: Progress) -> Result:
    """Train through the protocol, with a fresh list for every attempt."""
    setting = PreparedStudy.of(study)
    with ExitStack() as stack:
        series = _series(setting, stack)

        def summation(step: int, parameters: Parameters, left: int) -> Summed:
            gradient, made = series.round(step, parameters, left)
            return Summed(gradient=gradient, attempts=made)

        with learning.threads_for(setting.initial.size):
            state = train(setting, summation, progress, divisor=setting.plan.divisor)
    return Result(
        model=setting.trained(state.parameters),
        metrics=state.rows,
        epsilon=setting.plan.epsilon_after(state.attempts),
        plan=setting.plan,
    )


def dealt(counts: Sequence[int], source: SecureSource) -> Lists:
    """A list for every attempt, in a uniformly random order.

    Args:
        counts: records of each silo, in the order of the roster.
        source: the dealer's randomness.

    Returns:
        From round and attempt to the places of each silo's records, by roster index.
    """

    def lists(_round: int, _attempt: int) -> Mapping[int, NDArray[np.intp]]:
        order = source.permutation(sum(counts))
        return dict(enumerate(np.split(order, np.cumsum(counts)[:-1]), 1))

    return lists


def _series(setting: PreparedStudy, stack: ExitStack) -> Series:
    """Everybody after set-up, with dealt lists in the place of mixed ones."""
    stage = Stage(
        study=setting.study,
        parameters=setting.initial.size,
        ledgers={},
        folder=None,
        stack=stack,
        keys=layout_of(setting.plan).keys(),
    )
    series = stage.open(TRAINING, setting.plan, setting.tasks, setting.initial.size)
    lists = dealt([len(records) for records in setting.records], SecureSource())
    return replace(series, parties=replace(series.parties, lists=lists))
