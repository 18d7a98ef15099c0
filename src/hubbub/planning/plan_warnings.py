"""What a reader should know before approving a study, in sentences."""

from __future__ import annotations

from math import inf

from hubbub.planning import exposure, mechanisms, noise_correlation
from hubbub.planning.patient_promise import PatientPromise
from hubbub.planning.sampling_comparison import SamplingComparison, advice
from hubbub.study import SOFTWARE, Study
from hubbub.study.import_path import is_built_in


def warnings_of(
    study: Study,
    dimension: int | None,
    batches: SamplingComparison | None,
    noise: float,
    exposures: tuple[exposure.Exposure, ...],
    patient: PatientPromise | None,
) -> tuple[str, ...]:
    """What a reader should know before approving the study."""
    found = _trusting(study, exposures)
    parties, privacy, data = study.parties, study.privacy, study.data
    if parties.colluders == 0:
        found.append("colluders = 0: one silo that helps the aggregator weakens the guarantee")
    if parties.compute_nodes == 1:
        found.append("compute_nodes = 1: that node and the aggregator together see each silo's sum")
    if data.records and privacy.delta > 1 / data.records:
        found.append(f"delta = {privacy.delta:g} is above 1 / records = {1 / data.records:.2g}")
    if not data.records:
        found.append(
            "data.records is not stated: the sum is not divided by the expected batch"
            if study.trains
            else "data.records is not stated: what the statistics will say cannot be foreseen"
        )
    found += _about_capacity(study)
    asked = study.statistics
    if asked and asked.rounds == 1 and parties.dropouts and not parties.compute_nodes:
        found.append(
            "dropouts without compute nodes: a silo that drops out of the statistics' only sum "
            "loses it; ask for statistics.sums = 2, which costs no accuracy, or use compute nodes"
        )
    if dimension is None:
        found.append(
            "the model's size is not known yet: bytes per step are left open; state model.inputs "
            "where the model is one of hubbub's"
        )
    if privacy.epsilon > 8:
        found.append(f"epsilon = {privacy.epsilon:g} promises little; aim below 8")
    if batches and (said := advice(batches, noise)):
        found.append(said)
    found += noise_correlation.words_about(study)
    found += _about_tokens(study)
    if patient:
        stated = exposure.stated_of(study, exposures)
        found.append(patient.warning(stated.epsilon, privacy.delta))
    return tuple(found)


def _about_capacity(study: Study) -> list[str]:
    """What `remove` means where silos' capacities follow from their records (P19)."""
    data, is_joint = study.data, study.training.sampling == "without-replacement"
    if data.capacity or is_joint or is_built_in(data.source):  # joint batches: they are public
        return []
    return [
        "data.capacity is not stated: each silo climbs a public ladder to the step that holds its "
        f"{data.unit}s, and the step shows; one {data.unit} more or fewer that makes it another "
        "step is outside the promise (P19). State the most that a silo may hold"
    ]


def _about_tokens(study: Study) -> list[str]:
    """What it means that a list of tokens serves several steps."""
    mechanism = mechanisms.mechanism_of(study)
    if (epoch := mechanism.epoch) < 2 or mechanism.sampling != "none":
        return []
    return [
        f'tokens = "{study.training.tokens}": a list that serves several steps shows which '
        "batches a token is in, so sampling hides nothing; every record is charged once in "
        f"each epoch of {epoch} steps, as if it took part in a step without sampling"
    ]


def _trusting(study: Study, exposures: tuple[exposure.Exposure, ...]) -> list[str]:
    """What rests on attested machines, with the epsilon that holds without the belief in them."""
    found, asked = [], study.attestation
    if study.parties.trust == "tee":
        ends = (exposure.stated_adversary(study), exposure.without_belief(study))
        believed, not_believed = (
            next(one.epsilon for one in exposures if one.adversary == name) for name in ends
        )
        other = f"{not_believed:.4g}" if not_believed < inf else "more than 50"
        found.append(
            f'trust = "tee": epsilon {believed:.4g} against the {ends[0]} believes that the '
            f"silos' machines keep their noise from their owners; without that belief it is {other}"
        )
        if asked is None or asked.silo is None:
            found.append(
                'trust = "tee" without [attestation.silo]: it can be planned, and is refused by '
                "run and serve"
            )
    if asked is not None and SOFTWARE in asked.platforms:
        found.append(
            'platform = "software": everybody can make such evidence, so it shows nothing; it is '
            "for tests and demonstrations"
        )
    return found
