"""Whether the records at hand are what a study counts on: numbers, shapes, targets, classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hubbub.core.errors import DataError
from hubbub.core.planning.exposure import owned_records
from hubbub.core.study import sources
from hubbub.core.study.study import Study
from hubbub.core.tabular.outcome import refuse_other_targets
from hubbub.core.tabular.records import Records
from hubbub.learning.queries.training_query import training_of
from hubbub.learning.study.training import learning_of


def check_records(
    study: Study, silos: Mapping[str, Records], test: Records | None, shape: Sequence[int]
) -> None:
    """Numbers, shapes and targets of the records at hand, by the names of the silos.

    Raises:
        DataError: they do not fit the study.
    """
    _check_counts(study, {name: one.units for name, one in silos.items()})
    there = {**silos, **({} if test is None else {sources.TEST: test})}
    for name, one in there.items():
        _check_shape(name, one, shape)
        refuse_other_targets(study.data.outcome, one.targets, name)
        _check_targets(name, one, study)


def _check_counts(study: Study, counts: Mapping[str, int]) -> None:
    """Joint batches make the numbers of records public, and the plan counts on them (P10)."""
    if not study.shows_counts or len(counts) < study.parties.silos:
        return
    values = list(counts.values())
    stated = study.data.counts or values
    if list(stated) != list(values) or sum(values) != study.data.records:
        raise DataError(
            f"expected {list(study.data.counts) or study.data.records} records, as the study "
            f"states, got {list(values)}, {sum(values)} in all; joint batches make the numbers "
            "public: fix data.records or data.counts"
        )
    together = study.parties.colluders + 1
    most = owned_records(training_of(study).mechanism, study.parties, together)
    if sum(sorted(values)[-together:]) > most > 0:
        raise DataError(
            f"expected no {together} silos to hold more than {most} of the records, as if all held "
            f"equally many, got {list(values)}; state data.counts"
        )


def _check_shape(name: str, records: Records, shape: Sequence[int]) -> None:
    """All parties' records have the shape that the model takes."""
    if tuple(records.inputs.shape[1:]) != tuple(shape):
        raise DataError(
            f"expected records of shape {tuple(shape)} for {name}, "
            f"got {tuple(records.inputs.shape[1:])}; fix the data or model.inputs"
        )


def _check_targets(name: str, records: Records, study: Study) -> None:
    """Targets are what a built-in model is trained for; others would be learnt as nonsense."""
    if name == sources.TEST and not len(records):
        raise DataError("expected records in the public test set, got none; fix it")
    (model, _), targets = learning_of(study), records.targets
    if not model.is_built_in or study.data.outcome is not None:
        return  # only the model itself says what it gives; numbers have been checked
    if model.outputs == 1:
        fits, wanted = bool(np.isin(targets, (0, 1)).all()), "0 and 1"
    else:
        fits = targets.dtype == np.int64 and bool(np.isin(targets, range(model.outputs)).all())
        wanted = f"int64 class numbers below {model.outputs}"
    if not fits:
        raise DataError(
            f"expected targets of {wanted} for {name}, as model.outputs = {model.outputs} says, "
            "found others; fix the data or model.outputs"
        )
