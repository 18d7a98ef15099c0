"""The audit: runs with canaries, a rule that some of them choose, and what the others show."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np

import hubbub.learning as learning
from hubbub import VERSION
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.study_plan import plan
from hubbub.core.privacy.canary_guesses import Rates
from hubbub.core.study.study import Study
from hubbub.core.verification.evidence.audit_result import (
    SIDES,
    Seen,
    audit_to_dict,
    bounds_of,
    choosing_runs,
)
from hubbub.learning.audit import rules
from hubbub.learning.audit.canaries import AuditRun, Progress, played
from hubbub.learning.audit.power import ExpectedPower, size_of
from hubbub.learning.queries.training_query import training_of


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The result of an audit: a lower bound on epsilon, and what it rests on.

    Args:
        plan: the plan of the study that was audited.
        confidence: the probability that `lower` is right, under the premises of P18.
        runs: how many trainings were played, a quarter of them to choose a rule.
        canaries: how many there were in each run.
        rates: how often the rule was right and wrong in the others; counts of canaries.
        seen: counts of what messages must not tell.
        says: the side of their coins that the rule says of canaries; see `side`.
        seconds: of wall-clock time that it took.

    Source: docs/privacy.md P18.

    >>> from dataclasses import replace
    >>> from importlib import resources
    >>> heart = Study.load(resources.files("hubbub.learning.datasets") / "heart.toml")
    >>> study = heart.changed(training=replace(heart.training, steps=2))
    >>> found = audit(study, runs=2, canaries=100, confidence=0.999999)
    >>> found.contradicted, found.to_dict()["adversary"]
    (False, 'aggregator + 1 silo')
    """

    plan: Plan = field(repr=False)
    confidence: float
    runs: int
    canaries: int
    rates: Rates
    seen: Seen
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
            seen=self.seen,
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
        """Whether more was seen than those sums may tell, or what messages must not tell."""
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
    runs: int | None = None,
    canaries: int | None = None,
    confidence: float = 0.95,
    progress: Progress | None = None,
) -> Audit:
    """Attack a study's training with canaries, from the sums that the stated adversary sees.

    The canaries are made up: no silo's records are read, and no ledger is touched.

    Guarantees:
        1. If the training's sums are what the plan accounts for, against the stated adversary, and
           canaries are independent in them, `lower` is at most their epsilon but for a chance of
           1 - confidence (docs/privacy.md P18).
        2. Nothing follows from a small `lower`: it is no guarantee.

    Args:
        study: one that trains a model, without TEEs.
        runs: trainings to play, from 2 to 1,000,000. None: so many that a tenth of what endless
            runs would show is lost, if that takes no longer than some minutes.
        canaries: in each of them, from 1 to 10,000. None: 10,000, or fewer where they would be in
            each other's way, or dear. Where batches are joint it may become a little less.
        confidence: a probability, from 0.5 to 0.999999.
        progress: called after every step with how many are done, of all runs together.

    Returns:
        The lower bound on epsilon, and how it was found.

    Raises:
        StudyError: the study cannot be run or audited, or an argument is out of range.
        DataError: model.inputs is not stated, and the public test set, whose records have the
            shape in question, cannot be read.

    Source: docs/privacy.md P18.

    >>> from dataclasses import replace
    >>> from importlib import resources
    >>> heart = Study.load(resources.files("hubbub.learning.datasets") / "heart.toml")
    >>> study = heart.changed(training=replace(heart.training, steps=2))
    >>> found = audit(study, runs=2, canaries=500, confidence=0.999999)
    >>> found.lower <= found.audited <= found.promised, found.contradicted
    (True, False)
    """
    Study.expect(study)
    planned, start = plan(study), time.perf_counter()
    runs, canaries = size_of(planned, runs, canaries, confidence)
    steps, show = training_of(study).mechanism.steps, progress or (lambda _: None)
    with learning.threads_for(canaries):
        seen = [played(planned, canaries, number * steps, show) for number in range(runs)]
    choosing = choosing_runs(runs)
    foreseen = ExpectedPower(planned, canaries, confidence)
    expected = foreseen.best((runs - choosing) * canaries)
    kind, rule = _chosen(foreseen.choice, expected.rule, seen[:choosing], confidence)
    rates = rules.rates_of(rule, _joined(seen[choosing:], kind))
    return Audit(
        plan=planned,
        confidence=confidence,
        runs=runs,
        canaries=canaries,
        rates=rates,
        seen=sum((one.seen for one in seen), start=Seen()),
        says=rule.says,
        seconds=time.perf_counter() - start,
    )


def _chosen(
    choice: rules.Choice, foreseen: rules.Rule, seen: Sequence[AuditRun], confidence: float
) -> tuple[int, rules.Rule]:
    """The kind of scores, and the rule about them, that show most; other runs must judge them.

    That is the one that is foreseen to be best, if no other surely shows more: of many that were
    tried on few canaries the best is a lucky one.
    """
    candidates = [(choice.value(rules.rates_of(foreseen, _joined(seen, 0))), 0, foreseen)]
    for kind in range(len(seen[0].trials)):
        trials = _joined(seen, kind)
        tried = (
            rules.widest_rule(trials, confidence),
            rules.chosen_rule(trials, choice.delta, confidence),
            rules.surest_rule(trials),
        )
        worths = (choice.value(rules.rates_of(rule, trials), rules.LOOKS) for rule in tried)
        candidates += [(worth, -kind, rule) for worth, rule in zip(worths, tried, strict=True)]
    _, kind, rule = max(candidates, key=itemgetter(0, 1))
    return -kind, rule


def _joined(seen: Sequence[AuditRun], kind: int) -> rules.Trials:
    trials = [one.trials[kind] for one in seen]
    return rules.Trials(
        scores=np.concatenate([trial.scores for trial in trials]),
        coins=np.concatenate([trial.coins for trial in trials]),
    )
