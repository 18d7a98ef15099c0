"""Which records a model is compared with: those held back from its training, or those of it.

Held-back records tell the truth; records of the training may flatter the model, and are more. Which
are taken follows from public numbers alone, and before any noise is calibrated: all parties find
the same. The measure of flattery is an upper end of what was seen (docs/validation.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import log, sqrt

from hubbub.core.study.study import Study
from hubbub.learning.queries.model_size import model_dimension
from hubbub.learning.queries.validation.validation_layout import layout_of
from hubbub.learning.study.validation import AUTO, HELD_BACK, Validation

_GOOD_ENOUGH = 0.03  # standard error of a held-back AUC, c-index or accuracy
_RANKS = 0.17  # of sqrt(parameters / records): what was seen of AUC at most
_NOTHING = 0.1  # standard error of a score, from which on a good model is not told from a bad one


@dataclass(frozen=True, kw_only=True)
class WhoseRecords:
    """Which records are taken, and why.

    Args:
        held_back: whether they are kept from the training.
        share: of each silo's records that is kept from it; 0 if none is.
        score: the telling one, "auc" for example.
        errors: the standard errors to expect of it, on held-back records and on those of the
            training; None where the number of records is not public.
        flatters: by how much the score may be too good on records of the training, about; None
            where the model's size is not public.
    """

    held_back: bool
    share: float
    score: str
    errors: tuple[float, float] | None
    flatters: float | None

    @property
    def error(self) -> float | None:
        """The standard error to expect on the records that are taken; None if it is not known."""
        return None if self.errors is None else self.errors[not self.held_back]

    @property
    def is_telling(self) -> bool:
        """Whether the score will stand out from the noise, as far as is known."""
        return self.error is None or self.error <= _NOTHING


@lru_cache(maxsize=16)
def whose_records(study: Study) -> WhoseRecords:
    """Which records a study's validation is of."""
    asked = study.validation
    assert asked is not None, "a validation is asked for"  # noqa: S101
    layout, records = layout_of(study), study.data.records
    flatters = _flattery(study, records) if records else None
    score, _ = layout.foreseen(1e6, 0.0)
    errors = None
    if records:
        sigma = _rough_noise(study)
        held, whole = (layout.foreseen(share * records, sigma)[1] for share in (asked.holdout, 1.0))
        errors = (held, whole)
    held_back = asked.records == HELD_BACK
    if asked.records == AUTO:
        held_back = _takes_held_back(study, errors, flatters)
    return WhoseRecords(
        held_back=held_back,
        share=asked.holdout if held_back else 0.0,
        score=score,
        errors=errors,
        flatters=flatters,
    )


def _takes_held_back(
    study: Study, errors: tuple[float, float] | None, flatters: float | None
) -> bool:
    """Where they are kept anyway, or are enough, or the others would be further off."""
    training = study.training
    if study.shows_counts:
        return False
    if training is not None and training.evaluate is not None:
        return True
    if errors is None or flatters is None:
        return True
    held, whole = errors
    return held <= _GOOD_ENOUGH or held < sqrt(whole**2 + flatters**2)


def _rough_noise(study: Study) -> float:
    """The noise in a number of the sum, about: the classical Gaussian mechanism's, in shares."""
    asked: Validation = study.validation
    parties, privacy = study.parties, study.privacy
    alone = sqrt(2 * log(1.25 / privacy.delta)) / asked.epsilon
    return alone * sqrt(parties.silos / max(parties.silos - parties.colluders - 1, 1))


def _flattery(study: Study, records: int) -> float | None:
    """By how much the telling score may be too good on records of the training."""
    parameters = model_dimension(study)
    if parameters is None:
        return None
    return min(0.5, _RANKS * sqrt(parameters / records))
