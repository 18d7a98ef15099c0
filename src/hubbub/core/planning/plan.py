"""What a plan says: its numbers, and those that follow from them.

Made by `study_plan`. This file calibrates nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from math import inf
from typing import Any

from hubbub.core.errors import StudyError
from hubbub.core.planning import accounts, exposure, noise_shares
from hubbub.core.planning.exposure import PatientPromise
from hubbub.core.planning.mechanism import Mechanism
from hubbub.core.planning.plan_rows import PlanRow
from hubbub.core.planning.planned_query import PlannedQuery, is_stepped
from hubbub.core.planning.query import Query, QueryWarnings, SteppedQuery
from hubbub.core.planning.sampling_comparison import SamplingComparison, advice
from hubbub.core.privacy.certificate import Certificate
from hubbub.core.protocol.primitives.message_sizes import (
    DIGEST_BYTES,
    LINK_BYTES,
    OVERHEAD,
    SHARE_SEAL_BYTES,
)
from hubbub.core.study.attested_roles import SOFTWARE
from hubbub.core.study.study import Study


def option_rows(plan: Mapping[str, Any]) -> list[PlanRow]:
    """What the options that a plan uses say of themselves, for people, who are shown it as it is.

    Args:
        plan: as `Plan.to_dict` gives it, perhaps from a run's folder.
    """
    return [PlanRow(**one) for one in plan["asked"]]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What follows from a study: its noise, its grid, and epsilon for every adversary.

    Made by `hubbub.plan`. C is the clipping norm of the main query, and sigma the standard
    deviation of its noise, both in units of its sum; their ratio has no unit.

    Args:
        study: the study that was planned.
        main: the query that has what the others leave of epsilon: the training, or the statistics
            where no model is trained. What is said of the plan as a whole is said of it.
        beside: what else is asked of the silos, in the order in which it is first asked, each with
            its own noise; their epsilons are part of the study's.
        degree: with how many other silos each silo has pairwise masks.
        certificate: what finite precision and the mask graph may add to epsilon and delta (P4-P6),
            by all queries together; no unit.
        exposures: one for each adversary, from the readers of the published models to all silos but
            one; their epsilons are at the study's delta and have no unit.
        attack_power: the largest true-positive rate of any membership attack of the stated
            adversary at a false-positive rate of 0.01; a probability.
        joint_batches: joint batches beside Poisson sampling; None unless batches are drawn without
            replacement.
        patient: what a patient is promised, where the study says something of patients.
        warnings: sentences that a reader should know before approving the study.

    Source: docs/privacy.md P1-P8, P10, P16, P25.

    >>> from importlib import resources
    >>> from hubbub import Study, plan
    >>> study = Study.load(resources.files("hubbub.learning.datasets") / "heart.toml")
    >>> made = plan(study)
    >>> made.dimension, made.quorum, made.word_bits, made.upload_bytes_per_step
    (27, 4, 16, 224)
    >>> [(one.adversary, round(one.epsilon, 2)) for one in made.exposures][:2]
    [('outsider (published results)', 0.34), ('aggregator', 0.34)]
    """

    study: Study
    main: PlannedQuery[SteppedQuery]
    beside: tuple[PlannedQuery[Query], ...] = ()
    degree: int
    certificate: Certificate
    exposures: tuple[exposure.Exposure, ...]
    attack_power: float
    joint_batches: SamplingComparison | None
    patient: PatientPromise | None = None
    warnings: tuple[str, ...]

    @property
    def queries(self) -> tuple[PlannedQuery[Query], ...]:
        """All that is asked of the silos, the main query last."""
        return (*self.beside, self.main)

    @property
    def stepped(self) -> tuple[PlannedQuery[SteppedQuery], ...]:
        """Those whose sums lead from state to state; others are asked at what these have given."""
        return tuple(query for query in self.queries if is_stepped(query))

    @property
    def mechanism(self) -> Mechanism:
        """Of the main query, with its noise."""
        return self.main.mechanism

    @property
    def dimension(self) -> int | None:
        """d, how many trainable parameters the model has, or numbers a sum of statistics.

        None if that is not known yet.
        """
        return self.main.numbers

    @property
    def noise_multiplier(self) -> float:
        """sigma / C of the noise that the stated adversary cannot subtract; no unit."""
        return self.main.noise_multiplier

    @property
    def total_noise_multiplier(self) -> float:
        """sigma / C of the noise in the revealed sum when every silo takes part; no unit."""
        return self.main.total_noise_multiplier

    @property
    def word_bits(self) -> int:
        """Bits of one number on its way to the aggregator: 16, 32 or 64."""
        return self.main.word_bits

    @property
    def quorum(self) -> int:
        """The least number of silos in a round; below it nothing is revealed (P3)."""
        return self.main.quorum

    @property
    def upload_bytes_per_step(self) -> int | None:
        """Bytes that one silo sends in a step, besides shuffled token lists.

        None if the model's size is not known yet.
        """
        if self.main.numbers_sent is None:
            return None
        shares = self.nodes_per_silo if self.study.parties.shares == "full" else 0
        link = LINK_BYTES + OVERHEAD if self.mechanism.needs_joint_seed else 0
        vector = self.main.numbers_sent * self.word_bits // 8
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
        if steps == self.mechanism.steps:
            return against.epsilon
        return self._epsilon(against, steps, tuple(one.mechanism for one in self.beside))

    @property
    def epsilon_of_training(self) -> float:
        """Certified epsilon of the main query's sums, against the stated adversary; no unit."""
        return self._epsilon(self.stated, self.mechanism.steps, ())

    def _against(self, adversary: str) -> exposure.Exposure:
        """What one adversary can learn, the stated one if it has no name."""
        name = adversary or exposure.stated_adversary(self.study.parties)
        for one in self.exposures:
            if one.adversary == name:
                return one
        known = ", ".join(one.adversary for one in self.exposures)
        raise StudyError(f"expected one of the adversaries {known}, got {adversary!r}; choose one")

    def _epsilon(
        self, against: exposure.Exposure, steps: int, beside: tuple[Mechanism, ...]
    ) -> float:
        """Of so many steps and what is asked besides."""
        asked = self.study.privacy
        # P4: what this adversary may tear apart counts beside what the plan certifies against all.
        return exposure.epsilon_against(
            accounts.account_of(self.mechanism),
            against.certified(self.certificate),
            asked.delta,
            steps,
            asked.epsilon,
            against.noise_multiplier,
            against.known_records,
            beside=beside,
            left=against.noise_multiplier / self.noise_multiplier,
        )

    def planned(self, purpose: str) -> PlannedQuery[Query] | None:
        """One of `queries`, by its purpose.

        Args:
            purpose: such as "training", "evaluation" or "statistics".

        Returns:
            The query with its noise; None if the study does not ask for it.
        """
        return next((query for query in self.queries if query.purpose == purpose), None)

    @cached_property
    def stated(self) -> exposure.Exposure:
        """The adversary against whom the noise is calibrated."""
        return exposure.stated_of(self.study.parties, self.exposures)

    def to_dict(self) -> dict[str, Any]:
        """The plan as numbers, texts, lists and dictionaries; an epsilon past 50 is None."""
        return {
            "study": self.study.name,
            "study_id": self.study.id.hex(),
            "relation": self.study.privacy.relation,
            "silos": self.study.parties.silos,
            "compute_nodes": self.study.parties.compute_nodes,
            "steps": self.mechanism.steps,
            "sample_rate": self.mechanism.sample_rate,
            "noise_multiplier": self.noise_multiplier,
            "total_noise_multiplier": self.total_noise_multiplier,
            "share_sigma": self.main.share_sigma,
            "share_sigma_grid": self.main.share_sigma_grid,
            "grid_step": self.main.grid_step,
            "word_bits": self.word_bits,
            "sum_limit": self.main.sum_limit,
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
            **self._options_to_dict(),
            "auxiliary_queries": [one.to_dict() for one in self.beside],
            "epsilon": [
                {**asdict(one), "epsilon": one.epsilon if one.epsilon < inf else None}
                for one in self.exposures
            ],
            "stated_adversary": exposure.stated_adversary(self.study.parties),
            "unit": self.study.data.unit,
            "patient": self.patient.to_dict() if self.patient else None,
            "warnings": list(self.warnings),
            **({} if self.study.trains else {"trains": False}),
        }

    def _options_to_dict(self) -> dict[str, Any]:
        """What the options that are used state, and their rows for people."""
        main, parties, records = self.main, self.study.parties, self.study.data.records
        projected, noise = accounts.account_of(self.mechanism).projected, self.mechanism.noise
        batches = self.joint_batches
        options: dict[str, Any] = {
            "projection": projected.to_dict() if projected else None,
            "without_replacement": asdict(batches) if batches else None,
            **noise.shown(main.numbers_sent),
        }
        rows = projected.rows() if projected else []
        rows += batches.rows() if batches else []
        rows += noise.rows(main.numbers_sent)
        if main.division.announced:
            options["announced_shares"] = main.division.to_dict(main.share_sigma)
            rows += main.division.rows(main.share_sigma)
        if noise_shares.is_sparse(parties):
            options["mask_graph"] = graph = noise_shares.to_dict(parties)
            rows += noise_shares.mask_graph_rows(graph)
        rows += [row for query in self.queries for row in query.query.plan_rows(query, records)]
        return {**options, "asked": [row._asdict() for row in rows]}

    def to_json(self) -> str:
        """`to_dict` as a JSON text."""
        return json.dumps(self.to_dict(), indent=2)


# What a reader should know before approving a study, in sentences.


def warnings_of(
    study: Study,
    mechanism: Mechanism,
    batches: SamplingComparison | None,
    exposures: tuple[exposure.Exposure, ...],
    patient: PatientPromise | None,
    words: Sequence[QueryWarnings],
) -> tuple[str, ...]:
    """What a reader should know before approving the study.

    Args:
        mechanism: of the query that the study's epsilon is calibrated by, with its noise.
        words: what the queries have to say themselves, that one last.
    """
    sentences = _trusting(study, exposures)
    parties, privacy, data = study.parties, study.privacy, study.data
    if parties.colluders == 0:
        sentences.append(
            "colluders = 0: one silo that colludes with the aggregator weakens the guarantee"
        )
    if parties.compute_nodes == 1:
        sentences.append(
            "compute_nodes = 1: that node and the aggregator together see each silo's sum"
        )
    if data.records and privacy.delta > 1 / data.records:
        sentences.append(f"delta = {privacy.delta:g} is above 1 / records = {1 / data.records:.2g}")
    if not data.records:
        sentences += words[-1].records_unknown
    sentences += words[-1].size
    sentences += _about_test_set(study)
    sentences += _about_capacity(study, mechanism)
    sentences += [sentence for word in words for sentence in word.sums]
    if privacy.epsilon > 8:
        sentences.append(f"epsilon = {privacy.epsilon:g} protects little; aim below 8")
    if batches and (said := advice(batches, mechanism.noise_multiplier)):
        sentences.append(said)
    sentences += words[-1].noise
    sentences += _about_tokens(mechanism)
    sentences += words[-1].code
    if patient:
        stated = exposure.stated_of(parties, exposures)
        sentences.append(patient.warning(stated.epsilon, privacy.delta))
    return tuple(sentences)


def _about_test_set(study: Study) -> list[str]:
    """What it means that a file scores the model in the open."""
    if not study.data.test or not (study.data.files or study.data.is_extracted):
        return []
    return [
        (
            f"data.test = {study.data.test!r} is read openly and its scores have no noise, so it "
            "must be public. A file of held-back patients is private, and every score of it a "
            "release outside epsilon: put it back into the silos' files and use [validation]"
        )
    ]


def _about_capacity(study: Study, mechanism: Mechanism) -> list[str]:
    """What `remove` means where silos' capacities follow from their records (P19)."""
    data = study.data  # joint batches make the numbers of records public
    if data.capacity or mechanism.has_joint_batches or data.is_public:
        return []
    return [
        (
            "data.capacity is not stated: each silo uses the first step of a public ladder "
            f"that holds its {data.unit}s, and others see the step; epsilon does not cover "
            f"one {data.unit} more or fewer that changes the step (P19). State the most that "
            "a silo may hold"
        )
    ]


def _about_tokens(mechanism: Mechanism) -> list[str]:
    """What it means that a list of tokens serves several steps."""
    if (epoch := mechanism.epoch) < 2 or not mechanism.has_joint_batches:
        return []
    return [
        (
            f'tokens = "{mechanism.tokens}": a list that serves several steps shows which '
            "batches a token is in, so sampling hides nothing; every record is charged once "
            f"in each epoch of {epoch} steps, as for a step without sampling"
        )
    ]


def _trusting(study: Study, exposures: tuple[exposure.Exposure, ...]) -> list[str]:
    """What rests on attested machines, with the epsilon that holds without the belief in them."""
    sentences, asked = [], study.attestation
    if study.parties.trust == "tee":
        ends = (exposure.stated_adversary(study.parties), exposure.without_belief(study.parties))
        believed, not_believed = (
            next(one.epsilon for one in exposures if one.adversary == name) for name in ends
        )
        other = f"{not_believed:.4g}" if not_believed < inf else "more than 50"
        sentences.append(
            f'trust = "tee": epsilon {believed:.4g} against the {ends[0]} assumes that '
            "the silos' machines hide their noise from their owners; without this "
            f"assumption it is {other}"
        )
        if study.is_unattested:
            sentences.append(
                'trust = "tee" without [attestation.silo]: it can be planned, but run '
                "and serve refuse it"
            )
    if asked is not None and SOFTWARE in asked.platforms:
        sentences.append(
            'platform = "software": anybody can make such evidence, so it proves '
            "nothing; it is for tests and demonstrations"
        )
    return sentences
