"""Keys that are each in range and yet contradict each other, in one table or across them.

A contradiction is refused, never settled in favour of one of the keys: no setting may silently
change a guarantee. This file knows the settings, not how they were read.
"""

from __future__ import annotations

from hubbub.errors import StudyError
from hubbub.study.attested_roles import Attestation
from hubbub.study.data import Data
from hubbub.study.model import Model
from hubbub.study.parties import Parties
from hubbub.study.privacy import Privacy
from hubbub.study.training import Training


def check_parties(parties: Parties) -> None:
    """Enough silos for the noise, enough compute nodes for the shares."""
    _check_noise_shares(parties)
    if parties.nodes_per_silo > parties.compute_nodes:
        raise StudyError(
            f"expected parties.nodes_per_silo <= compute_nodes = {parties.compute_nodes}, "
            f"got {parties.nodes_per_silo}; lower it or leave it out"
        )
    if parties.shares == "full":
        _check_full_shares(parties)


def check_data(data: Data, parties: Parties, model: Model) -> None:
    """Files that the model can learn, and no fewer records than silos."""
    _check_outputs(data, model)
    if data.records and data.records < parties.silos:
        raise StudyError(
            f"expected data.records >= {parties.silos}, the number of silos, got {data.records}; "
            "fix it"
        )


def check_training(training: Training, data: Data, parties: Parties, privacy: Privacy) -> None:
    """Batches and steps for which the study says all that they need."""
    if training.sampling == "without-replacement":
        _check_joint_batches(data, parties, privacy)
    _check_counts(data, parties, training)
    _check_capacity(data, parties)
    if dict(training.optimizer)["name"] == "sgd" and not data.records:
        raise StudyError(
            'expected data.records with optimizer "sgd", got nothing; the sum is divided by the '
            "expected batch, so state the public number of records, or use adam"
        )


def check_extras(training: Training, data: Data, privacy: Privacy) -> None:
    """Evaluation and standardisation that leave something of epsilon to the training."""
    asked = training.evaluate
    if asked and asked.every > training.steps:
        raise StudyError(
            f"expected training.evaluate.every <= steps = {training.steps}, got {asked.every}; "
            "lower it"
        )
    if asked and training.sampling == "without-replacement":
        raise StudyError(
            'expected no training.evaluate with sampling = "without-replacement", got one; joint '
            "batches are drawn from all records, so none can be held back: use Poisson sampling"
        )
    spent = sum(one.epsilon for one in (asked, data.standardise) if one)
    if spent > 0.9 * privacy.epsilon:
        raise StudyError(
            "expected training.evaluate.epsilon and data.standardise.epsilon together to be at "
            f"most 0.9 of privacy.epsilon = {privacy.epsilon:g}, of which they are a part, got "
            f"{spent:g}; lower them"
        )


def check_attestation(attestation: Attestation | None, parties: Parties) -> None:
    """Nothing is asked of parties that are not there."""
    if attestation and attestation.node and not parties.compute_nodes:
        raise StudyError(
            "expected no [attestation.node] without parties.compute_nodes, got one; remove it or "
            "add compute nodes"
        )


def _check_noise_shares(parties: Parties) -> None:
    """Enough silos must be left to add the noise (docs/privacy.md P3)."""
    spare = 1 if parties.trust == "tee" else 2
    most = parties.silos - spare
    if parties.dropouts > most:
        raise StudyError(
            f"expected parties.dropouts <= silos - {spare} = {most}, "
            f"got {parties.dropouts}; lower it or add silos"
        )
    if parties.colluders > most - parties.dropouts:
        raise StudyError(
            f"expected parties.colluders <= silos - dropouts - {spare} = "
            f"{most - parties.dropouts}, got {parties.colluders}; "
            "lower colluders or dropouts, or add silos"
        )


def _check_full_shares(parties: Parties) -> None:
    """A vector that is split among nodes needs two of them, or it is not split."""
    if parties.compute_nodes < 2:
        raise StudyError(
            'expected compute_nodes >= 2 with parties.shares = "full", '
            f"got {parties.compute_nodes}; add compute nodes or remove shares"
        )
    if parties.nodes_per_silo == 1:
        raise StudyError(
            'expected parties.nodes_per_silo >= 2 with parties.shares = "full", got 1: a silo\'s '
            "only node would see its vector; raise it or leave it out"
        )


def _check_outputs(data: Data, model: Model) -> None:
    """As many outputs as the target in the files has classes, one for two."""
    classes = 2 if data.positive else len(data.classes)
    wanted = classes if classes > 2 else 1
    if data.files and model.outputs != wanted:
        raise StudyError(
            f"expected model.outputs = {wanted} for a target of {classes} classes, "
            f"got {model.outputs}; set it, or fix data.classes"
        )


def _check_joint_batches(data: Data, parties: Parties, privacy: Privacy) -> None:
    """A joint batch of fixed size makes the number of records public, and needs everybody."""
    if parties.dropouts:
        raise StudyError(
            'expected parties.dropouts = 0 with training.sampling = "without-replacement", got '
            f"{parties.dropouts}; a batch over all silos is not of its size without one of them"
        )
    if privacy.relation == "add-remove":
        raise StudyError(
            'expected privacy.relation = "substitute" with training.sampling = '
            '"without-replacement", got "add-remove"; a joint batch of fixed size makes the number '
            "of records public, so adding one cannot be hidden"
        )
    if not data.records:
        raise StudyError(
            'expected data.records with sampling = "without-replacement", got nothing; state the '
            "public number of records, or use Poisson sampling"
        )


def _check_capacity(data: Data, parties: Parties) -> None:
    """One number for all silos, or one for each; no silo counts on more than it may hold."""
    many = len(data.capacity)
    if many > 1 and many != parties.silos:
        raise StudyError(
            f"expected data.capacity to be one number or {parties.silos}, one for each silo, got "
            f"{many}; fix the list"
        )
    each = data.capacity if many > 1 else data.capacity * parties.silos
    if data.counts and any(most < own for most, own in zip(each, data.counts, strict=False)):
        raise StudyError(
            "expected data.capacity to be at least data.counts for every silo, got less; fix one"
        )


def _check_counts(data: Data, parties: Parties, training: Training) -> None:
    """Every silo's number of records, which add up."""
    if not data.counts:
        return
    if training.sampling != "without-replacement":
        raise StudyError(
            'expected no data.counts without training.sampling = "without-replacement", which '
            "alone makes them public, got some; remove them"
        )
    if len(data.counts) != parties.silos or sum(data.counts) != data.records:
        raise StudyError(
            f"expected data.counts to be {parties.silos} numbers that add up to data.records = "
            f"{data.records}, got {len(data.counts)} that add up to {sum(data.counts)}; fix them"
        )
