"""Runs of a study with canaries in the place of records, as the stated adversary sees them.

Everything of a step but the model is the study's own: silos make their lists, sample, clip,
project, add their shares of the noise, round, mask and sign; the aggregator adds up and decodes.
The adversary is the stated one. It looks at the sums (scores.py), and at what else messages tell
(freshness_checks.py). It knows the shares of its own silos, and may do without others', so those
send no noise; the seeds of the projections, and which places of its list a joint batch has; and it
chooses the model (canaries.py). Nobody has other records: what those are, the adversary of the
definition knows. Where a list serves for several batches, it knows whose places are whose, too, and
where noise is correlated, who is in which group: the account does without these secrets
(docs/privacy.md P9, P25).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import sqrt

import numpy as np
from numpy.typing import NDArray

import hubbub.learning as learning
from hubbub.core.planning.plan_values import Plan
from hubbub.core.privacy.canary_guesses import Trials
from hubbub.core.protocol.round.batch_rows import Groups
from hubbub.core.protocol.round.round_parameters import Parameters, RoundParameters
from hubbub.core.protocol.round.silo import Silo
from hubbub.core.protocol.round.silo_batches import GroupBatches
from hubbub.core.protocol.token_lists.batch_schemes import without_replacement
from hubbub.core.session.ask import AbsentError
from hubbub.core.session.in_process import Federation, federate, raised_by
from hubbub.core.session.layout import layout_of
from hubbub.core.session.noisy_sums import NoisySums
from hubbub.core.session.silo_party import SiloParty
from hubbub.core.verification.evidence.audit_result import Seen
from hubbub.learning.audit.canaries import Canaries
from hubbub.learning.audit.expected_power import share_of_others
from hubbub.learning.audit.freshness_checks import MaskedFrames, Matrices, of_lists
from hubbub.learning.audit.scores import kinds_of, scores_of

Array = NDArray[np.float64]

# Called after every step with how many are done, of all runs together.
Progress = Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class AuditRun:
    """What the stated adversary has of one training: scores of each kind, and counts."""

    trials: tuple[Trials, ...]
    seen: Seen = field(default_factory=Seen)


@dataclass(frozen=True, kw_only=True)
class _View:
    """A training as the adversary has it.

    Args:
        sums: (steps, canaries) in units of C, lifted where they were projected.
        rate: with which chance a canary is in a batch.
        noise: sigma / C of what else is in its part of a sum.
        groups: of the canaries, where they take turns.
    """

    canaries: Canaries
    sums: Array
    rate: float
    noise: float
    groups: NDArray[np.intp] | None = None


def played(made: Plan, count: int, before: int, progress: Progress) -> AuditRun:
    """One training with canaries, as the stated adversary sees it.

    Steps that other runs made `before` count in the progress, too.
    """
    canaries = Canaries.tossed(made, count)
    round_parameters, steps = canaries.round_parameters(), made.mechanism.steps
    frames, matrices = (
        MaskedFrames(round_parameters),
        Matrices(learning.lift_of(round_parameters, canaries.model())),
    )
    everybody = _set_up(made, canaries, round_parameters)
    asked = NoisySums(
        set_up=lambda: everybody.rounds,
        record=lambda _: frames,
        round_parameters=round_parameters,
        epoch=made.mechanism.epoch,
        lost=_lost,
        lift=matrices if round_parameters.projection else None,
    )
    sums, model = np.zeros((steps, count)), np.zeros(canaries.features, dtype=np.float32)
    places = np.zeros((steps, count), dtype=bool)
    for step in range(1, steps + 1):
        sums[step - 1] = _summed(asked, step, model)[:count] / made.clip
        places[step - 1, _drawn_places(round_parameters, asked.rounds.aggregator.seed)] = True
        progress(before + step)
    view = _View(
        canaries=canaries,
        sums=sums,
        rate=round_parameters.batch / count
        if round_parameters.batch
        else round_parameters.sample_rate,
        noise=sqrt(made.stated.noise_multiplier**2 + share_of_others(made, count)),
        groups=canaries.groups(groups) if (groups := _groups(everybody)) else None,
    )
    seen = frames.seen + matrices.seen
    if places.any():
        seen += of_lists(canaries.drawn, places)
    return AuditRun(trials=tuple(_trials(made, view)), seen=seen)


def _set_up(made: Plan, canaries: Canaries, round_parameters: RoundParameters) -> Federation:
    """A session of the study's silos with canaries."""
    study = made.study
    return federate(
        layout_of(made),
        round_parameters,
        canaries.tasks(),
        study=study.id,
        # The adversary's own, those of other sums, and where shares are fixed those that drop
        # out (P3, P4).
        noiseless=range(made.shares + 1, study.parties.silos + 1),
        attempts_per_list=made.mechanism.attempts_per_list,
        epoch=made.mechanism.epoch,
    )


def _groups(everybody: Federation) -> list[Groups]:
    """Of each silo, in the order of the roster."""
    parties = everybody.peers.parties.values()
    silos = [party.silo for party in parties if isinstance(party, SiloParty)]
    drawn = [silo.batches for silo in silos if isinstance(silo, Silo)]
    return [one.groups for one in drawn if isinstance(one, GroupBatches)]


def _lost(_number: int, _in_a_row: int, lost: AbsentError) -> None:
    raise raised_by(lost)


def _summed(asked: NoisySums, step: int, model: Parameters) -> Array:
    """The noisy sum of a step; all parties are in this process, so that there is one."""
    total, _ = asked.round(step, model, 1)
    if total is None:
        raise raised_by(AbsentError(asked.rounds.attendance.named_absent))
    return np.asarray(total)


def _drawn_places(round_parameters: RoundParameters, seed: bytes | None) -> NDArray[np.intp]:
    """Which places a fresh list's joint batch has: everybody knows (P9)."""
    if not (round_parameters.batch and round_parameters.fresh_lists and seed):
        return np.zeros(0, dtype=np.intp)
    return without_replacement(seed, round_parameters.records, round_parameters.batch, 1)


def _trials(made: Plan, view: _View) -> list[Trials]:
    """The scores of every kind."""
    coins, exchanged = view.canaries.coins, view.canaries.exchanged
    if made.mechanism.attempts_per_list > 1:
        own = np.where(view.canaries.drawn, view.sums, 0.0)
        return [Trials(scores=scores_of(own, view.noise, 1.0, exchanged=True), coins=coins)]
    known = [] if view.groups is None else [(1, view.groups)]
    trials = (
        scores_of(
            view.sums,
            view.noise,
            view.rate,
            exchanged=exchanged,
            same=same,
            column=made.mechanism.noise.column,
            groups=groups,
        )
        for same, groups in (*known, *((same, None) for same in kinds_of(len(view.sums))))
    )
    return [Trials(scores=scores, coins=coins) for scores in trials]
