"""Runs of a study with canaries in the place of records, and what can be told of them afterwards.

Everything of a step but the model is the study's own: silos sample, clip, add their shares of the
noise, round, mask and sign; the aggregator adds up and decodes. The adversary is the stated one,
and looks at the sums alone. It knows the shares of its own silos, and may do without others', so
those send no noise; and it chooses the model (canaries.py). Nobody has other records: what those
are, the adversary of the definition knows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

import hubbub.learning as learning
from hubbub import VERSION
from hubbub.assurance.audit.canaries import Canaries, losses
from hubbub.assurance.evidence import SIDES, audit_to_dict, bounds_of, check_auditable, check_size
from hubbub.planning import Plan, plan
from hubbub.privacy import Rates, Trials, chosen_rule, rates_of
from hubbub.session import federate, layout_of, round_parameters_of
from hubbub.study import Study

# Called after every step with how many are done, of all runs together.
Progress = Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What an audit has found.

    Args:
        plan: the plan of the study that was audited.
        confidence: the probability that `lower` is right, under the premises of P18.
        runs: how many trainings were played, half of them to choose a rule.
        canaries: how many there were in each run.
        rates: how often the rule was right and wrong in the other half; counts of canaries.
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
        """Whether more was seen than those sums may tell."""
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
    runs: int = 20,
    canaries: int = 5000,
    confidence: float = 0.95,
    progress: Progress | None = None,
) -> Audit:
    """Look for canaries in the sums that the stated adversary sees of a study's training.

    The canaries are made up: no silo's records are read, and no ledger is touched.

    Guarantees:
        1. If the training's sums are (epsilon, delta)-DP against the stated adversary, and canaries
           are independent in them, `lower` is at most that epsilon but for a chance of
           1 - confidence (docs/privacy.md P18).
        2. Nothing follows from a small `lower`: it is no guarantee. Masks and messages are not
           looked at, only what they add up to.

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
    made, start, delta = plan(study), time.perf_counter(), study.privacy.delta
    steps, show = study.training.steps, progress or (lambda _: None)
    with learning.threads_for(canaries):
        trials = [played(made, canaries, number * steps, show) for number in range(runs)]
    half = runs // 2
    rule = chosen_rule(_joined(trials[:half]), delta, confidence)
    rates = rates_of(rule, _joined(trials[half:]))
    return Audit(
        plan=made,
        confidence=confidence,
        runs=runs,
        canaries=canaries,
        rates=rates,
        says=rule.says,
        seconds=time.perf_counter() - start,
    )


def played(made: Plan, count: int, before: int, progress: Progress) -> Trials:
    """One training with canaries, its sums as the stated adversary sees them.

    Steps that other runs made `before` count in the progress, too.
    """
    study, noise = made.study, made.stated.noise_multiplier
    terms, canaries = round_parameters_of(made, count), Canaries.tossed(made, count)
    parties = federate(
        layout_of(made),
        terms,
        canaries.tasks(made.shares),
        study=study.id,
        # The adversary's own, those that drop out, and those of other sums (P3, P4).
        noiseless=range(made.shares + 1, study.parties.silos + 1),
    )
    scores, model = np.zeros(count), np.zeros(count, dtype=np.float32)
    for step in range(1, study.training.steps + 1):
        seen = parties.noisy_sum(step, model) / made.clip
        scores += losses(seen, noise, terms.sample_rate, exchanged=canaries.exchanged)
        progress(before + step)
    return Trials(scores=scores, coins=canaries.coins)


def _joined(trials: list[Trials]) -> Trials:
    """The trials of several runs."""
    return Trials(
        scores=np.concatenate([one.scores for one in trials]),
        coins=np.concatenate([one.coins for one in trials]),
    )
