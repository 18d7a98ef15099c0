"""Runs of a study with canaries in the place of records, and what can be told of them afterwards.

Everything of a step but the model is the study's own: silos sample, clip, add their shares of the
noise, round, mask and sign; the aggregator adds up and decodes. The adversary is the stated one. It
looks at the sums (scores.py), and at the vectors before they are summed (masked_frames.py). It
knows the shares of its own silos, and may do without others', so those send no noise; and it
chooses the model (canaries.py). Nobody has other records: what those are, the adversary of the
definition knows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hubbub.learning as learning
from hubbub import VERSION
from hubbub.assurance.audit.canaries import Canaries
from hubbub.assurance.audit.masked_frames import MaskedFrames
from hubbub.assurance.audit.scores import kinds_of, scores_of
from hubbub.assurance.evidence import (
    SIDES,
    audit_to_dict,
    bounds_of,
    check_auditable,
    check_size,
    choosing_runs,
    epsilon_shown,
)
from hubbub.planning import Plan, plan
from hubbub.privacy import Rates, Rule, Trials, chosen_rule, rates_of, widest_rule
from hubbub.session import federate, layout_of, round_parameters_of
from hubbub.study import Study

Array = NDArray[np.float64]

_ROUGHLY = 0.02  # noise is found, to choose a rule

# Called after every step with how many are done, of all runs together.
Progress = Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What an audit has found.

    Args:
        plan: the plan of the study that was audited.
        confidence: the probability that `lower` is right, under the premises of P18.
        runs: how many trainings were played, a quarter of them to choose a rule.
        canaries: how many there were in each run.
        rates: how often the rule was right and wrong in the others; counts of canaries.
        masked: how many numbers of masked vectors were looked at, and how many of them were small.
        says: the side of their coins that the rule says of canaries; see `side`.
        seconds: of wall-clock time that it took.

    Source: docs/privacy.md P18.

    >>> study = Study.parse('''
    ... study.name = "example"
    ... parties = {silos = 4, colluders = 1}
    ... data = {source = "hubbub.datasets:heart", records = 740}
    ... model = {kind = "logistic", inputs = [26]}
    ... training = {steps = 2, sampling = "none"}
    ... privacy = {epsilon = 1.0, delta = 1e-5}
    ... ''')
    >>> found = audit(study, runs=2, canaries=100, confidence=0.999999)
    >>> found.contradicted, found.to_dict()["adversary"]
    (False, 'aggregator + 1 silo')
    """

    plan: Plan = field(repr=False)
    confidence: float
    runs: int
    canaries: int
    rates: Rates
    masked: tuple[int, int]
    says: bool
    seconds: float

    @cached_property
    def _plain(self) -> dict[str, Any]:
        return audit_to_dict(
            self.plan.study,
            bounds_of(self.plan),
            runs=self.runs,
            canaries=self.canaries,
            confidence=self.confidence,
            says=self.side,
            rates=self.rates,
            masked=self.masked,
            seconds=self.seconds,
            version=VERSION,
        )

    @property
    def lower(self) -> float:
        """Epsilon of the training's sums is at least so large, at the study's delta; no unit."""
        return float(self._plain["epsilon_lower"])

    @property
    def promised(self) -> float:
        """The epsilon that is promised against the stated adversary; no unit."""
        return float(self._plain["epsilon_promised"])

    @property
    def audited(self) -> float:
        """What the training's sums have of `promised`; no unit.

        It is less than that if the study asks for other releases too.
        """
        return float(self._plain["epsilon_audited"])

    @property
    def contradicted(self) -> bool:
        """Whether more was seen than those sums may tell, or vectors without fresh masks."""
        return bool(self._plain["contradicted"])

    @property
    def side(self) -> str:
        """What the rule says of a canary, in words."""
        one, other = SIDES[self.plan.study.privacy.relation]
        return one if self.says else other

    def to_dict(self) -> dict[str, Any]:
        """What was found, as plain values; written to a file, a run can be given it."""
        return dict(self._plain)


def audit(
    study: Study,
    *,
    runs: int = 3,
    canaries: int = 10_000,
    confidence: float = 0.95,
    progress: Progress | None = None,
) -> Audit:
    """Look for canaries in the sums that the stated adversary sees of a study's training.

    The canaries are made up: no silo's records are read, and no ledger is touched.

    Guarantees:
        1. If the training's sums are what the plan accounts for, against the stated adversary, and
           canaries are independent in them, `lower` is at most their epsilon but for a chance of
           1 - confidence (docs/privacy.md P18).
        2. Nothing follows from a small `lower`: it is no guarantee.

    Args:
        study: with Poisson sampling or none, and without projection.
        runs: trainings to play, from 2 to 1,000,000.
        canaries: in each of them, from 1 to 10,000.
        confidence: a probability, from 0.5 to 0.999999.
        progress: called after every step with how many are done, of all runs together.

    Returns:
        The lower bound on epsilon, and how it was found.

    Raises:
        StudyError: the study cannot be run or audited, or an argument is out of range.
        DataError: model.inputs is not stated, and the public test set, whose records have the
            shape in question, cannot be read.

    Source: docs/privacy.md P18.

    >>> study = Study.parse('''
    ... study.name = "example"
    ... parties = {silos = 4, colluders = 1}
    ... data = {source = "hubbub.datasets:heart", records = 740}
    ... model = {kind = "logistic", inputs = [26]}
    ... training = {steps = 2, sampling = "none"}
    ... privacy = {epsilon = 1.0, delta = 1e-5}
    ... ''')
    >>> found = audit(study, runs=2, canaries=500, confidence=0.999999)
    >>> found.lower <= found.audited <= found.promised
    True
    """
    Study.expect(study)
    runs, canaries, confidence = check_size(runs, canaries, confidence)
    check_auditable(study)
    made, start = plan(study), time.perf_counter()
    steps, show = study.training.steps, progress or (lambda _: None)
    with learning.threads_for(canaries):
        seen = [played(made, canaries, number * steps, show) for number in range(runs)]
    choosing = choosing_runs(runs)
    kind, rule = _chosen(study, seen[:choosing], confidence)
    rates = rates_of(rule, _joined(seen[choosing:], kind))
    return Audit(
        plan=made,
        confidence=confidence,
        runs=runs,
        canaries=canaries,
        rates=rates,
        masked=(sum(one.numbers for one in seen), sum(one.small for one in seen)),
        says=rule.says,
        seconds=time.perf_counter() - start,
    )


@dataclass(frozen=True, kw_only=True)
class AuditRun:
    """What the stated adversary has of one training: scores of each kind, and counts of masks."""

    trials: tuple[Trials, ...]
    numbers: int = 0
    small: int = 0


def played(made: Plan, count: int, before: int, progress: Progress) -> AuditRun:
    """One training with canaries, as the stated adversary sees it.

    Steps that other runs made `before` count in the progress, too.
    """
    study, steps = made.study, made.study.training.steps
    terms, canaries = round_parameters_of(made, count), Canaries.tossed(made, count)
    parties = federate(
        layout_of(made),
        terms,
        canaries.tasks(made.shares),
        study=study.id,
        # The adversary's own, those that drop out, and those of other sums (P3, P4).
        noiseless=range(made.shares + 1, study.parties.silos + 1),
    )
    frames = parties.rounds.recorder = MaskedFrames(terms)
    sums, model = np.zeros((steps, count)), np.zeros(count, dtype=np.float32)
    for step in range(1, steps + 1):
        sums[step - 1] = parties.noisy_sum(step, model) / made.clip
        progress(before + step)
    return AuditRun(
        trials=tuple(_trials(made, canaries, sums, kind) for kind in kinds_of(steps)),
        numbers=frames.numbers,
        small=frames.small,
    )


def _trials(made: Plan, canaries: Canaries, sums: Array, same: int) -> Trials:
    """The scores of one kind."""
    scores = scores_of(
        sums,
        made.stated.noise_multiplier,
        made.study.training.sample_rate,
        exchanged=canaries.exchanged,
        same=same,
        correlation=made.correlation,
    )
    return Trials(scores=scores, coins=canaries.coins)


def _chosen(study: Study, seen: Sequence[AuditRun], confidence: float) -> tuple[int, Rule]:
    """The kind of scores, and the rule about them, that show most; other runs must judge them."""
    delta, found = study.privacy.delta, []
    for kind in range(len(seen[0].trials)):
        trials = _joined(seen, kind)
        for rule in (
            widest_rule(trials, confidence),
            chosen_rule(trials, delta, confidence),
        ):
            rates = rates_of(rule, trials)
            shown = epsilon_shown(study, rates, confidence, precision=_ROUGHLY)
            found.append((shown, -kind, rule))
    _, kind, rule = max(found, key=itemgetter(0, 1))
    return -kind, rule


def _joined(seen: Sequence[AuditRun], kind: int) -> Trials:
    """The trials of several runs."""
    trials = [one.trials[kind] for one in seen]
    return Trials(
        scores=np.concatenate([one.scores for one in trials]),
        coins=np.concatenate([one.coins for one in trials]),
    )
