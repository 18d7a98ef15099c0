"""Which settings suit a study, by the loss of candidates on records that nobody has to protect.

Only what is public is looked at: the study, and a public file if one is named. So a choice costs no
epsilon, and says nothing of any record. Chosen is by loss, never by rank: a model that ranks well
may be wrong by far in every probability (docs/experiments.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import StudyError
from hubbub.core.planning.study_queries import plan
from hubbub.core.study.study import Study
from hubbub.core.tabular.records import Records
from hubbub.learning.queries.training_query import held_back_share
from hubbub.learning.study.training import learning_of
from hubbub.learning.study.usual_training import usual_for
from hubbub.learning.tuning.linear_heads import Array, LinearHead, head_of
from hubbub.learning.tuning.linear_rehearsals import RehearsalLaw, Settings, rehearsed
from hubbub.learning.tuning.made_up_records import made_up_records

DRAWS = 6
_CLIPS, _RATES = (0.4, 0.65, 1.0, 1.5, 2.5), (0.3, 0.55, 1.0, 1.7, 3.0)  # times the rule's
_STEPS = (60, 150, 400)
_MOST, _SCORED = 20_000, 4000  # records of a draw that train, and that score
_WORTH = 0.005  # of what is explained, below which the rule, and its steps, stay
_FEWEST = 100  # public records
_TEST_SHARE = 0.3


@dataclass(frozen=True, kw_only=True)
class RankedCandidate:
    """A candidate, and how well it did.

    Args:
        settings: of the training.
        explained: by draw, the share of the loss of knowing nothing that its model takes away: 1 is
            perfect, 0 is no better, less is worse.
        origin: "study" for what the study has now, "rule" for what the rule says, else empty.
    """

    settings: Settings
    explained: tuple[float, ...]
    origin: str = ""

    @property
    def mean(self) -> float:
        """Over all draws."""
        return float(np.mean(self.explained))

    def doubt(self, other: RankedCandidate) -> float:
        """The standard error of the difference to another, on the same draws."""
        apart = np.subtract(self.explained, other.explained)
        return float(apart.std(ddof=1) / sqrt(len(apart)))

    def to_dict(self) -> dict[str, Any]:
        """The candidate as plain values."""
        told = {"explained": self.mean, "draws": list(self.explained), "origin": self.origin}
        return {**vars(self.settings), **told}


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """All candidates, the best first.

    Args:
        study: that was tuned.
        candidates: by the mean of what they explain.
    """

    study: Study
    candidates: tuple[RankedCandidate, ...]

    @cached_property
    def chosen(self) -> RankedCandidate:
        """The best; the rule's own, unless the best is told apart from it and worth another."""
        best = self.candidates[0]
        rule = next(candidate for candidate in self.candidates if candidate.origin == "rule")
        return best if best.mean - rule.mean > max(_WORTH, best.doubt(rule)) else rule

    @property
    def better(self) -> Study:
        """The study with the chosen settings."""
        return with_settings(self.study, self.chosen.settings)


def tune(
    study: Study,
    public: Records | None = None,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    progress: Callable[[], None] | None = None,
) -> Tuned:
    """Try candidates on made-up records, or on public ones, and choose by loss.

    Guarantees:
        1. No silo's records are read: what is found follows from the study, `public` and `seed`.

    Args:
        study: trains a linear model.
        public: records that nobody has to protect; None: they are made from the study's bounds.
        draws: how often records, batches and noise are drawn, at least 2.
        seed: of all that is drawn.
        progress: called after every draw.

    Raises:
        StudyError: the study's model, or its noise, is none that can be rehearsed here; or there
            are too few public records.

    >>> from importlib import resources
    >>> study = Study.load(resources.files("hubbub.learning.datasets") / "heart.toml")
    >>> found = tune(study, draws=2)
    >>> len(found.candidates), found.chosen.mean >= found.candidates[-1].mean
    (76, True)
    """
    _refuse_others(study)
    if public is not None and len(public) < _FEWEST:
        raise StudyError(
            f"expected at least {_FEWEST} public records to choose by, found {len(public)}; "
            "choose on made-up ones"
        )
    head, candidates = head_of(study), _candidates(study)
    laws = {steps: _law(study, steps) for steps in {one.steps for one, _ in candidates}}
    explained: list[list[float]] = [[] for _ in candidates]
    for draw in range(draws):
        random = np.random.default_rng([seed, draw])
        drawn = _drawn(study, public, random)
        for steps, law in laws.items():
            places = [k for k, (one, _) in enumerate(candidates) if one.steps == steps]
            group = [candidates[k][0] for k in places]
            told = _explained(
                head, drawn, group, law, draw, intercept=learning_of(study)[0].intercept
            )
            for place, value in zip(places, told, strict=True):
                explained[place].append(value)
        if progress is not None:
            progress()
    scored = [
        RankedCandidate(settings=one, explained=tuple(values), origin=origin)
        for (one, origin), values in zip(candidates, explained, strict=True)
    ]
    return Tuned(study=study, candidates=tuple(sorted(scored, key=lambda one: -one.mean)))


def with_settings(study: Study, settings: Settings) -> Study:
    """The study, trained so."""
    _, training = learning_of(study)
    evaluate = training.evaluate
    if evaluate is not None:
        every = max(1, round(evaluate.every * settings.steps / training.steps))
        evaluate = replace(evaluate, every=every)
    optimizer = {"beta1": 0.9, "beta2": 0.999, **settings.optimizer}
    changed = replace(
        training,
        steps=settings.steps,
        clip_norm=settings.clip_norm,
        optimizer=tuple(sorted(optimizer.items())),
        evaluate=evaluate,
    )
    return study.changed(training=changed)


def _refuse_others(study: Study) -> None:
    """What is not rehearsed here."""
    model, training = learning_of(study)
    found = ""
    if model.kind != "logistic" or model.extractor:
        found = f'a model of kind "{model.kind}"' + " behind frozen layers" * bool(model.extractor)
    elif training.projection:
        found = "projected sums"
    elif training.noise != "independent":
        found = "correlated noise"
    elif training.sampling == "without-replacement":
        found = "joint batches"
    elif not study.data.records:
        raise StudyError(
            "expected data.records, the public number of records, to know how much noise a run "
            "has, got none; state it"
        )
    if found:
        raise StudyError(
            f"expected a linear model with independent noise and batches of each silo's own, got "
            f"{found}; try settings with hubbub rehearse on public or made-up records"
        )


def _candidates(study: Study) -> list[tuple[Settings, str]]:
    """The rule's settings and others around them, and what the study has now, if it differs."""
    _, training = learning_of(study)
    candidates: list[tuple[Settings, str]] = []
    for steps in _STEPS:
        usual = usual_for(study.changed(training=replace(training, steps=steps)))
        candidates += [
            (
                Settings(
                    clip_norm=_rounded(usual.clip_norm * c), steps=steps, lr=_rounded(usual.lr * r)
                ),
                "rule" if (steps, c, r) == (150, 1.0, 1.0) else "",
            )
            for c in _CLIPS
            for r in _RATES
        ]
    now = dict(training.optimizer)
    if now["name"] == "adam" and now["schedule"] in ("constant", "linear"):
        own = Settings(
            clip_norm=training.clip_norm,
            steps=training.steps,
            lr=float(now["lr"]),
            schedule=str(now["schedule"]),
        )
        candidates += [] if own in [one for one, _ in candidates] else [(own, "study")]
    return candidates


def _law(study: Study, steps: int) -> RehearsalLaw:
    """How much noise a run of so many steps has, by its plan."""
    _, training = learning_of(study)
    settings = Settings(clip_norm=training.clip_norm, steps=steps, lr=0.1)
    planned = plan(with_settings(study, settings), dimension=1)
    return RehearsalLaw(
        noise_multiplier=planned.total_noise_multiplier,
        sample_rate=training.sample_rate,
        divisor=planned.divisor,
    )


@dataclass(frozen=True, kw_only=True)
class _Draw:
    """Records of one draw, and how many there are for each record of a run."""

    inputs: Array
    targets: NDArray[Any]
    test_inputs: Array
    test_targets: NDArray[Any]
    share: float


def _drawn(study: Study, public: Records | None, random: np.random.Generator) -> _Draw:
    """Records that train and records that score."""
    kept = 1.0 - held_back_share(study)
    wanted = max(1, round(study.data.records * kept))
    if public is None:
        count = min(wanted, _MOST)
        inputs, targets = made_up_records(study, count + _SCORED, random)
    else:
        order = random.permutation(len(public))[: _MOST + _SCORED]
        inputs, targets = public.inputs[order], public.targets[order]
        count = len(order) - max(1, round(_TEST_SHARE * len(order)))
    return _Draw(
        inputs=np.asarray(inputs[:count], np.float64),
        targets=targets[:count],
        test_inputs=np.asarray(inputs[count:], np.float64),
        test_targets=targets[count:],
        share=count / wanted,
    )


def _explained(
    head: LinearHead,
    drawn: _Draw,
    group: Sequence[Settings],
    law: RehearsalLaw,
    draw: int,
    *,
    intercept: float,
) -> list[float]:
    """What each candidate of one number of steps explains of one draw.

    Noise and divisor are those of a run whose records are as many as are drawn: what a record's
    part is beside the noise stays what it is in the run.
    """
    law = replace(
        law, noise_multiplier=law.noise_multiplier * drawn.share, divisor=law.divisor * drawn.share
    )
    random = np.random.default_rng([draw, group[0].steps])
    models = rehearsed(head, drawn.inputs, drawn.targets, group, law, random, intercept=intercept)
    null = head.null_loss(drawn.targets, drawn.test_targets)
    lost = models.losses(drawn.test_inputs, drawn.test_targets)
    return [float(max(1.0 - one / null, -1.0)) if np.isfinite(one) else -1.0 for one in lost]


def _rounded(value: float) -> float:
    return float(f"{value:.2g}")
