"""What a reader should know before approving a study, in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from hubbub.core.planning import exposure
from hubbub.core.planning.mechanism import Mechanism
from hubbub.core.planning.patient_promise import PatientPromise
from hubbub.core.planning.query import QueryWarnings
from hubbub.core.planning.sampling_comparison import SamplingComparison, advice
from hubbub.core.study.attested_roles import SOFTWARE
from hubbub.core.study.study import Study


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
        study: the study.
        mechanism: of the query that the study's epsilon is calibrated by, with its noise.
        batches, exposures, patient: of its plan.
        words: what the queries have to say themselves, that one last.
    """
    sentences = _trusting(study, exposures)
    parties, privacy, data = study.parties, study.privacy, study.data
    if parties.colluders == 0:
        sentences.append("colluders = 0: one silo that helps the aggregator weakens the guarantee")
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
        sentences.append(f"epsilon = {privacy.epsilon:g} promises little; aim below 8")
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
        f"data.test = {study.data.test!r} is read in the open and its scores have no noise: it "
        "must be public. A file of patients that was held back is private, and every score of it a "
        "release outside epsilon: put it back into the silos' files and ask for [validation]"
    ]


def _about_capacity(study: Study, mechanism: Mechanism) -> list[str]:
    """What `remove` means where silos' capacities follow from their records (P19)."""
    data = study.data  # joint batches make the numbers of records public
    if data.capacity or mechanism.has_joint_batches or data.is_public:
        return []
    return [
        "data.capacity is not stated: each silo climbs a public ladder to the step that holds its "
        f"{data.unit}s, and the step shows; one {data.unit} more or fewer that makes it another "
        "step is outside the promise (P19). State the most that a silo may hold"
    ]


def _about_tokens(mechanism: Mechanism) -> list[str]:
    """What it means that a list of tokens serves several steps."""
    if (epoch := mechanism.epoch) < 2 or not mechanism.has_joint_batches:
        return []
    return [
        f'tokens = "{mechanism.tokens}": a list that serves several steps shows which '
        "batches a token is in, so sampling hides nothing; every record is charged once in "
        f"each epoch of {epoch} steps, as if it took part in a step without sampling"
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
            f'trust = "tee": epsilon {believed:.4g} against the {ends[0]} believes that the '
            f"silos' machines keep their noise from their owners; without that belief it is {other}"
        )
        if asked is None or asked.silo is None:
            sentences.append(
                'trust = "tee" without [attestation.silo]: it can be planned, and is refused by '
                "run and serve"
            )
    if asked is not None and SOFTWARE in asked.platforms:
        sentences.append(
            'platform = "software": everybody can make such evidence, so it shows nothing; it is '
            "for tests and demonstrations"
        )
    return sentences
