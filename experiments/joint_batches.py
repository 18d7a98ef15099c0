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
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

import hubbub
import hubbub.learning as learning
from hubbub.core.errors import ProtocolError
from hubbub.core.kept_pages import cores
from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import Channel
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.protocol.token_lists.joint_batch import TokenBatches, places_of
from hubbub.core.runs.federated import RunSessions, SessionPlan
from hubbub.core.runs.local_backend import LocalBackend
from hubbub.core.runs.loop import Progress, Summed, train
from hubbub.core.runs.prepared_study import Parameters, PreparedStudy
from hubbub.core.session.ask import Call, Peers
from hubbub.core.session.in_process import federate
from hubbub.core.session.offer import layout_of
from hubbub.core.session.rounds import NoisySums, Rounds
from hubbub.learning.runs.preparing import prepare
from hubbub.learning.runs.result import Result


def federated(study: hubbub.Study, progress: Progress) -> Result:
    """Train through the protocol, with a fresh list for every attempt."""
    setting = prepare(study)
    with ExitStack() as stack:
        series = _sums(setting, stack)

        def summation(step: int, parameters: Parameters, left: int) -> Summed:
            gradient, made = series.round(step, parameters, left)
            return Summed(gradient=gradient, attempts=made)

        with learning.threads_for(setting.initial.size):
            state = train(setting, summation, progress, divisor=setting.plan.mechanism.divisor)
    return Result(
        model=setting.trained(state.parameters),
        metrics=state.rows,
        epsilon=setting.plan.epsilon_after(state.attempts),
        plan=setting.plan,
    )


def dealt(counts: Sequence[int], source: SecureSource) -> Mapping[int, NDArray[np.intp]]:
    """A list in a uniformly random order: by roster index, the places of a silo's records.

    Args:
        counts: records of each silo, in the order of the roster.
        source: the dealer's randomness.
    """
    order = source.permutation(sum(counts))
    return dict(enumerate(np.split(order, np.cumsum(counts)[:-1]), 1))


@dataclass
class DealtLists:
    """The newest list as one silo knows it, to whom nobody shows how it was made."""

    batches: TokenBatches
    is_paid: bool = False

    def answer(self, call: Call, parts: Sequence[bytes]) -> list[bytes]:
        """Refuse: nothing is asked of a silo."""
        raise ProtocolError(f"expected no {call.name} where lists are dealt, got one")

    def prepare(self, model: bytes, *, is_open: bool) -> None:
        """Nothing: a list was dealt before the MODEL was made."""

    def use(self, round: int) -> None:
        """Nothing: the next attempt has another list."""


@dataclass
class Dealer:
    """Deals every attempt a list, in the place of `TokenListBatches`."""

    counts: Sequence[int]
    source: SecureSource = field(default_factory=SecureSource, repr=False)
    silos: dict[int, DealtLists] = field(default_factory=dict, repr=False)
    rounds: int = 0

    def at_silo(
        self, keys: Keys, index: int, channel: Channel, round_parameters: RoundParameters
    ) -> DealtLists:
        """For one silo, in one session."""
        self.silos[index] = DealtLists(TokenBatches(round_parameters))
        return self.silos[index]

    def at_aggregator(self, peers: Peers, channel: Channel) -> Dealer:
        """The dealer."""
        return self

    def prepare(self) -> None:
        """Before an attempt: every silo learns its places; without drop-outs it is a new round."""
        self.rounds += 1
        for index, places in dealt(self.counts, self.source).items():
            self.silos[index].batches.take_list(places, self.rounds)

    def places(self, round_parameters: RoundParameters, seed: bytes, step: int) -> NDArray[np.intp]:
        """The places of a step's batch in a list."""
        return places_of(round_parameters, seed, step)

    def asked(self, roster: Roster) -> Sequence[int]:
        """Nothing is asked of a silo."""
        return ()

    def answered(self, roster: Roster) -> Mapping[Call, Sequence[int]]:
        """Nor answered."""
        return {}


class DealtVenue(LocalBackend):
    """Everybody in this process, with dealt lists in the place of mixed ones."""

    def set_up(self, wanted: SessionPlan) -> Rounds:
        """Set a session up."""
        return federate(
            layout_of(wanted.plan),
            wanted.round_parameters,
            wanted.tasks,
            study=self.study.id,
            keys=self.keys,
            threads=cores(),
            purpose=wanted.purpose,
            joint=Dealer([task.count for task in wanted.tasks]),
        ).rounds


def _sums(setting: PreparedStudy, stack: ExitStack) -> NoisySums:
    """Everybody after set-up."""
    keys = layout_of(setting.plan).keys()
    backend = DealtVenue(study=setting.study, keys=keys, ledgers={}, folder=None)
    sessions = RunSessions(backend=backend, plan=setting.plan, folder=None, stack=stack)
    return sessions.open(setting.plan.main, setting.tasks)
