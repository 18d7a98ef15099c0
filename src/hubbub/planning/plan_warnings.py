"""What a reader should know before approving a study, in sentences."""

from __future__ import annotations

from math import inf

from hubbub.planning import exposure, mechanisms, noise_correlation
from hubbub.planning.patient_promise import PatientPromise
from hubbub.planning.sampling_comparison import SamplingComparison, advice
from hubbub.study import IN_MEMORY, SOFTWARE, Study, is_own


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
    found += about_own_code(study)
    if patient:
        stated = exposure.stated_of(study, exposures)
        found.append(patient.warning(stated.epsilon, privacy.delta))
    return tuple(found)


def about_own_code(study: Study) -> list[str]:
    """What rests on the author of a model, and cannot be known before it runs (P14, P19)."""
    model = study.model
    frozen = model.frozen.module if model.frozen else ""
    named = [one for one in (model.kind, frozen, model.loss) if is_own(one) or one == IN_MEMORY]
    if not named:
        return []
    names = " and ".join(named)
    return [
        f"{names}: nothing of a record may be kept for the next; weights, attributes and "
        "generators are seen to, but memory elsewhere (globals, files) would not be found, and "
        "what it shows is outside epsilon: it is yours to rule out",
        f"{names}: whether a record decides how much is computed for it (a loop to its length, a "
        "branch) is not known before the code has run; the time would tell, outside epsilon; a run "
        "warns of what it sees on made-up records, and hubbub join --check does before it",
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
