"""What a plan says: its numbers, and those that follow from them.

Made by `study_plan`. This file calibrates nothing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from math import inf, sqrt
from typing import Any

from hubbub.errors import StudyError
from hubbub.planning import (
    auxiliary_queries,
    exposure,
    mask_degree,
    mechanisms,
    noise_correlation,
    precision,
)
from hubbub.planning.patient_promise import PatientPromise
from hubbub.planning.sampling_comparison import SamplingComparison
from hubbub.privacy import Certificate
from hubbub.protocol import DIGEST_BYTES, LINK_BYTES, OVERHEAD, SHARE_SEAL_BYTES
from hubbub.study import Study


@dataclass(frozen=True, kw_only=True)
class PlannedQuery:
    """What else is asked of the silos, and its plan as if nothing else were (P16).

    Args:
        query: the sums, and how many of them there are.
        plan: of these sums alone; its noise is the one that they get.
    """

    query: auxiliary_queries.AuxiliaryQuery
    plan: Plan

    @property
    def priced(self) -> auxiliary_queries.PricedQuery:
        """What it costs."""
        return auxiliary_queries.PricedQuery(
            query=self.query, noise_multiplier=self.plan.noise_multiplier
        )

    def to_dict(self) -> dict[str, Any]:
        """The query as plain values; its epsilon is part of the study's."""
        return {
            "purpose": self.query.purpose,
            "sums": self.query.study.training.steps,
            "numbers": self.query.numbers,
            "noise_multiplier": self.plan.noise_multiplier,
            "epsilon_alone": self.plan.stated.epsilon,
        }


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What follows from a study: its noise, its grid, and epsilon for every adversary.

    Made by `hubbub.plan`. C is the study's clipping norm, and sigma the standard deviation of
    noise, both in units of the gradient sum; their ratio has no unit.

    Args:
        study: the study that was planned.
        dimension: d, how many trainable parameters the model has; None if that is not known yet.
        noise_multiplier: sigma / C of the noise that the stated adversary cannot subtract; no unit.
        shares: how many silos' shares of noise add up to `noise_multiplier`.
        sharing: how many silos there are in the smallest sum that can be isolated (P4).
        degree: with how many other silos each silo has pairwise masks.
        word_bits: bits of one number on its way to the aggregator: 16, 32 or 64.
        share_sigma_grid: standard deviation of one silo's noise, in grid steps.
        capacity: how many records, all clipped and all in the same direction, a sum holds at once.
        certificate: what finite precision and the mask graph may add to epsilon and delta (P4-P6);
            no unit.
        exposures: one for each adversary, from the readers of the published models to all silos but
            one; their epsilons are at the study's delta and have no unit.
        attack_power: the largest true-positive rate of any membership attack of the stated
            adversary at a false-positive rate of 0.01; a probability.
        projected: how the random projection is charged; None without one.
        joint_batches: joint batches beside Poisson sampling; None unless batches are drawn without
            replacement.
        correlation: how noise is correlated over the steps; None where it is independent.
        queries: what is asked of the silos besides gradients, each with its own noise; their
            epsilons are part of the study's.
        patient: what a patient is promised, where the study says something of patients.
        warnings: sentences that a reader should know before approving the study.

    Source: docs/privacy.md P1-P8, P10, P16, P25.

    >>> from hubbub import Study, plan
    >>> study = Study.parse('''
    ... study.name = "example"
    ... parties = {silos = 4, colluders = 1}
    ... data = {source = "hubbub.datasets:heart", records = 740}
    ... model = {kind = "logistic", inputs = [26]}
    ... training = {steps = 10, sampling = "none"}
    ... privacy = {epsilon = 1.0, delta = 1e-5}
    ... ''')
    >>> made = plan(study)
    >>> made.dimension, made.quorum, made.word_bits, made.upload_bytes_per_step
    (27, 4, 16, 224)
    >>> [(one.adversary, round(one.epsilon, 2)) for one in made.exposures][:2]
    [('outsider (published models)', 0.68), ('aggregator', 0.68)]
    """

    study: Study
    dimension: int | None
    noise_multiplier: float
    shares: int
    sharing: int
    degree: int
    word_bits: int
    share_sigma_grid: float
    capacity: int
    certificate: Certificate
    exposures: tuple[exposure.Exposure, ...]
    attack_power: float
    projected: mechanisms.Projected | None
    joint_batches: SamplingComparison | None
    correlation: noise_correlation.Correlation | None = None
    queries: tuple[PlannedQuery, ...] = ()
    patient: PatientPromise | None = None
    warnings: tuple[str, ...]

    @property
    def numbers(self) -> int | None:
        """How many numbers a silo sends in a step: the model's, or those of its projection.

        None if the model's size is not known yet.
        """
        return self.projected.dimension if self.projected else self.dimension

    @property
    def clip(self) -> float:
        """C, which bounds a record's part in the sum: an L2 norm, in units of the gradient."""
        return self.study.training.clip

    @property
    def record_clip(self) -> float:
        """The L2 norm to which records are clipped, in units of the gradient.

        It is C less the margin for float sums (P14).
        """
        return self.clip * (1 - precision.CLIP_MARGIN)

    @property
    def share_sigma(self) -> float:
        """Standard deviation of each silo's noise, in units of the gradient sum (P3)."""
        return self.noise_multiplier * self.clip / sqrt(self.shares)

    @property
    def total_noise_multiplier(self) -> float:
        """sigma / C of the noise in the revealed sum when every silo takes part; no unit."""
        return self.noise_multiplier * sqrt(self.study.parties.silos / self.shares)

    @property
    def grid_step(self) -> float:
        """Width of a grid step, in units of the gradient sum (P5)."""
        return self.share_sigma / self.share_sigma_grid

    @property
    def quorum(self) -> int:
        """The least number of silos in a round; below it nothing is revealed (P3)."""
        return self.study.parties.silos - self.study.parties.dropouts

    @property
    def divisor(self) -> float:
        """Public number of records by which the noisy sum is divided: the expected batch (P14).

        1 where the study does not say how many records there are, or trains no model.
        """
        if not self.study.trains:
            return 1.0
        training, records = self.study.training, self.study.data.records
        kept = 1 - training.evaluate.holdout if training.evaluate else 1.0
        return training.sample_rate * records * kept if records else 1.0

    @property
    def upload_bytes_per_step(self) -> int | None:
        """Bytes that one silo sends in a step, besides shuffled token lists.

        None if the model's size is not known yet.
        """
        if self.numbers is None:
            return None
        shares = self.nodes_per_silo if self.study.parties.shares == "full" else 0
        training = self.study.training
        joint = training.projection or training.sampling == "without-replacement"
        link = LINK_BYTES + OVERHEAD if joint else 0
        vector = self.numbers * self.word_bits // 8
        answer = DIGEST_BYTES + OVERHEAD + (0 if shares else vector)
        return answer + shares * (vector + SHARE_SEAL_BYTES + OVERHEAD) + link

    @property
    def nodes_per_silo(self) -> int:
        """How many compute nodes each silo shares masks with; 0 with pairwise masks."""
        return self.study.parties.nodes_per_silo or self.study.parties.compute_nodes

    def epsilon(self, adversary: str = "") -> float:
        """Certified epsilon against one adversary; no unit, inf past 50.

        Args:
            adversary: its name in `exposures`; the stated one if empty.

        Returns:
            Epsilon at the study's delta.

        Raises:
            StudyError: no such adversary.
        """
        return self._against(adversary).epsilon

    def epsilon_after(self, steps: int, adversary: str = "") -> float:
        """Certified epsilon of one adversary after the first steps; no unit.

        Args:
            steps: attempts of the training that have been charged, from 1 to the study's steps.
                Sums besides the training's count as far as they are due by then.
            adversary: its name in `exposures`; the stated one if empty.

        Returns:
            Epsilon at the study's delta; inf past 50.

        Raises:
            StudyError: no such adversary.
        """
        against = self._against(adversary)
        if steps == self.study.training.steps:
            return against.epsilon
        return self._epsilon(against, steps, tuple(one.priced for one in self.queries))

    @property
    def epsilon_of_training(self) -> float:
        """Certified epsilon of the training's sums alone, against the stated adversary; no unit."""
        return self._epsilon(self.stated, self.study.training.steps, ())

    def _against(self, adversary: str) -> exposure.Exposure:
        """What one adversary can learn, the stated one if it has no name."""
        name = adversary or exposure.stated_adversary(self.study)
        for one in self.exposures:
            if one.adversary == name:
                return one
        known = ", ".join(one.adversary for one in self.exposures)
        raise StudyError(f"expected one of the adversaries {known}, got {adversary!r}; choose one")

    def _epsilon(
        self,
        against: exposure.Exposure,
        steps: int,
        queries: tuple[auxiliary_queries.PricedQuery, ...],
    ) -> float:
        """Of so many steps and what is asked besides."""
        asked = self.study.privacy
        return exposure.epsilon_against(
            mechanisms.mechanism_of(self.study),
            against.certified(self.certificate),
            asked.delta,
            steps,
            asked.epsilon,
            against.noise_multiplier,
            against.known_records,
            queries=queries,
            left=against.noise_multiplier / self.noise_multiplier,
        )

    def query(self, purpose: str) -> PlannedQuery | None:
        """What else is asked of the silos, by its purpose.

        Args:
            purpose: "evaluation" or "standardisation".

        Returns:
            The query with its plan; None if the study does not ask for it.
        """
        return next((one for one in self.queries if one.query.purpose == purpose), None)

    @cached_property
    def stated(self) -> exposure.Exposure:
        """The adversary against whom the noise is calibrated."""
        return exposure.stated_of(self.study, self.exposures)

    def to_dict(self) -> dict[str, Any]:
        """The plan as numbers, texts, lists and dictionaries; an epsilon past 50 is None."""
        return {
            "study": self.study.name,
            "study_id": self.study.id.hex(),
            "relation": self.study.privacy.relation,
            "silos": self.study.parties.silos,
            "compute_nodes": self.study.parties.compute_nodes,
            "steps": self.study.training.steps,
            "sample_rate": self.study.training.sample_rate,
            "noise_multiplier": self.noise_multiplier,
            "total_noise_multiplier": self.total_noise_multiplier,
            "share_sigma": self.share_sigma,
            "share_sigma_grid": self.share_sigma_grid,
            "grid_step": self.grid_step,
            "word_bits": self.word_bits,
            "capacity": self.capacity,
            "dimension": self.dimension,
            "upload_bytes_per_step": self.upload_bytes_per_step,
            "degree": self.degree,
            "quorum": self.quorum,
            "delta": self.study.privacy.delta,
            "certificate": {
                **asdict(self.certificate),
                "delta": self.certificate.added_delta(self.study.privacy.epsilon),
            },
            "attack_power_at_1_percent": self.attack_power,
            "projection": _projection_to_dict(self.projected),
            "without_replacement": asdict(self.joint_batches) if self.joint_batches else None,
            **self._correlation_to_dict(),
            **self._mask_graph_to_dict(),
            "auxiliary_queries": [one.to_dict() for one in self.queries],
            "epsilon": [
                {**asdict(one), "epsilon": one.epsilon if one.epsilon < inf else None}
                for one in self.exposures
            ],
            "stated_adversary": exposure.stated_adversary(self.study),
            "unit": self.study.data.unit,
            "patient": self.patient.to_dict() if self.patient else None,
            "warnings": list(self.warnings),
            **({} if self.study.trains else {"trains": False}),
        }

    @property
    def window_bytes(self) -> int | None:
        """Bytes of the noise that each silo keeps in memory, in secret; 0 if it is independent.

        None if the model's size is not known yet.
        """
        if self.correlation is None:
            return 0
        return None if self.numbers is None else 8 * self.numbers * (self.correlation.bands - 1)

    def _correlation_to_dict(self) -> dict[str, Any]:
        """How noise is correlated; nothing where it is not, as in runs from before it could be."""
        if self.correlation is None:
            return {}
        return {
            "correlated_noise": {**self.correlation.to_dict(), "window_bytes": self.window_bytes}
        }

    @property
    def borne(self) -> tuple[int, int] | None:
        """How many colluders, besides one that looks on, the mask graph bears (P4).

        Whenever they are corrupted; and, but for 2^-50, if they were before it was drawn. None
        where no silos can take it apart, and in runs made before this was told.
        """
        study, each = self.study, self.degree
        if not mask_degree.is_sparse(study, each) or each != mask_degree.mask_degree(study):
            return None
        return (
            mask_degree.borne_at_any_time(study, each),
            mask_degree.borne_if_drawn_later(study, each),
        )

    def _mask_graph_to_dict(self) -> dict[str, Any]:
        """Whom the mask graph bears; nothing where nobody can take it apart."""
        if self.borne is None:
            return {}
        certain, likely = self.borne
        graph = {"colluders_at_any_time": certain, "colluders_before_it_is_drawn": likely}
        return {"mask_graph": graph}

    def to_json(self) -> str:
        """`to_dict` as a JSON text."""
        return json.dumps(self.to_dict(), indent=2)


def _projection_to_dict(projected: mechanisms.Projected | None) -> dict[str, Any] | None:
    """How the projection is charged, as plain values."""
    return {**asdict(projected), "exact": projected.exact} if projected else None
