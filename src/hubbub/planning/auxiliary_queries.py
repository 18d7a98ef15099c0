"""What a study asks of the silos besides gradients, each query planned as a study of its own.

An auxiliary query is a sum over records with its own noise: an evaluation, the sums that
standardise features (P16), or statistics beside a training (P23). What it sums, its grid and its
certificate are planned as for any study; its epsilon is part of the main study's, in which all
mechanisms are composed (P2).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt

from hubbub.errors import StudyError
from hubbub.planning import mechanisms, model_size, planned_statistics, precision
from hubbub.privacy import Release
from hubbub.study import NO_MODEL, Privacy, Study, Training, whole_sums

TRAINING, EVALUATION, STANDARDISATION = "training", "evaluation", "standardisation"
STATISTICS = "statistics"
# An evaluated record says that it is there, whether it was right, and its loss between 0 and 1.
EVALUATED_NUMBERS = 3


@dataclass(frozen=True, kw_only=True)
class AuxiliaryQuery:
    """One kind of sum besides the training's.

    Args:
        purpose: EVALUATION, STANDARDISATION or STATISTICS.
        study: that asks for nothing else: as many steps as there are sums, of all records.
        numbers: coordinates of a sum.
        every: steps of the training between two sums; 0 if they are all before the training.
        parameters: how many numbers go down to the silos, where it is not the model.
    """

    purpose: str
    study: Study
    numbers: int
    every: int = 0
    parameters: int | None = None

    def made_by(self, steps: int) -> int:
        """How many sums may have been asked for by the end of so many steps of the training."""
        most = self.study.training.steps
        return min(most, steps // self.every) if self.every else most

    def due_after(self, sums: int) -> int:
        """How many steps of the training have an account in which so many sums are counted."""
        return sums * self.every


@dataclass(frozen=True, kw_only=True)
class PricedQuery:
    """An auxiliary query and its noise.

    Args:
        noise_multiplier: sigma / C that is left against the stated adversary.
    """

    query: AuxiliaryQuery
    noise_multiplier: float

    def release(self, steps: int, left: float, relation: str, many: int = 1) -> Release | None:
        """What an adversary gets of it by the end of so many steps; None if nothing yet.

        Args:
            steps: of the training.
            left: share of the noise's standard deviation that this adversary does not know, in
                units of what the stated one does not (P3).
            relation: of the study.
            many: how many records the unit has (P20).
        """
        count = self.query.made_by(steps)
        if not count:
            return None
        noise = self.noise_multiplier * left
        mechanism = replace(mechanisms.mechanism_of(self.query.study), relation=relation)
        if many > 1:
            return mechanisms.releases_of_units(mechanism, noise, count, many)[0]
        return mechanisms.releases(mechanism, noise, count)[0]


def queries_of(study: Study, dimension: int | None = None) -> list[AuxiliaryQuery]:
    """What a study asks for.

    Args:
        study: the study.
        dimension: of its model, if that is known.

    Raises:
        StudyError: features are to be standardised, and how many there are is not public.
    """
    found = []
    if study.data.standardise is not None:
        asked = study.data.standardise
        numbers = 1 + 2 * features_of(model_size.record_shape(study, dimension))
        # |1|^2 + |x|^2 + |x^2|^2 with every |x_j| at most 1 after division by the bound.
        alone = _alone(study, steps=1, norm=sqrt(numbers), epsilon=asked.epsilon)
        found.append(AuxiliaryQuery(purpose=STANDARDISATION, study=alone, numbers=numbers))
    if study.statistics is not None and study.trains:
        found.append(_statistics(study, study.statistics.epsilon))
    if study.training.evaluate is not None:
        asks = study.training.evaluate
        count = study.training.steps // asks.every
        norm = sqrt(EVALUATED_NUMBERS)
        alone = _alone(study, steps=count, norm=norm, epsilon=asks.epsilon)
        found.append(
            AuxiliaryQuery(
                purpose=EVALUATION,
                study=alone,
                numbers=EVALUATED_NUMBERS,
                every=asks.every,
            )
        )
    return found


def released(
    queries: tuple[PricedQuery, ...], steps: int, left: float, relation: str, many: int = 1
) -> list[Release]:
    """What all queries release to one adversary by the end of so many steps; see `PricedQuery`."""
    found = (query.release(steps, left, relation, many) for query in queries)
    return [one for one in found if one is not None]


def _statistics(study: Study, epsilon: float) -> AuxiliaryQuery:
    """The statistics, as a study that asks for nothing else."""
    layout = planned_statistics.layout_of_sums(study)
    alone = replace(
        study,
        toml="",
        data=replace(study.data, standardise=None),
        model=NO_MODEL,
        training=whole_sums(layout.rounds),
        privacy=replace(study.privacy, epsilon=epsilon),
    )
    return AuxiliaryQuery(
        purpose=STATISTICS,
        study=alone,
        numbers=layout.numbers,
        parameters=layout.start.size,
    )


def features_of(shape: tuple[int, ...] | None) -> int:
    """How many features there are to standardise; images and texts are not.

    Raises:
        StudyError: a record of this shape is no row of features.
    """
    if shape is None or len(shape) != 1:
        raise StudyError(
            "expected records of so many features each with data.standardise, got "
            f"{'an unknown shape' if shape is None else f'the shape {list(shape)}'}; state "
            "model.inputs = [features], or leave data.standardise out"
        )
    return shape[0]


def _alone(study: Study, *, steps: int, norm: float, epsilon: float) -> Study:
    """The study that asks for the query only; its C leaves room for rounding above the norm."""
    return replace(
        study,
        toml="",
        data=replace(study.data, standardise=None),
        statistics=None,
        training=Training(
            steps=steps,
            sampling="none",
            sample_rate=1.0,
            clip=norm / (1 - precision.CLIP_MARGIN),  # P6 (i), up to 4,000,000 records of a silo
            optimizer=study.training.optimizer,
        ),
        privacy=Privacy(
            epsilon=epsilon, delta=study.privacy.delta, relation=study.privacy.relation
        ),
    )
