"""How large a record and the model are, as far as the study and public data say."""

from __future__ import annotations

from itertools import pairwise
from math import prod

from hubbub import sources
from hubbub.errors import DataError
from hubbub.study import Study


def model_dimension(study: Study) -> int | None:
    """Trainable parameters of a built-in model; None if the records' shape is not public yet."""
    model, shape = study.model, record_shape(study)
    if shape is None or model.kind.startswith("python:"):
        return None
    if model.kind == "cnn":
        return None
    widths = (prod(shape), *model.hidden, model.outputs)
    return sum(low * high + (high if model.bias else 0) for low, high in pairwise(widths))


def record_shape(study: Study) -> tuple[int, ...] | None:
    """Shape of one record's features: stated, or that of the public test set."""
    if study.model.inputs:
        return study.model.inputs
    if not sources.has_test_set(study):
        return None
    try:
        return tuple(sources.records(study, sources.TEST).inputs.shape[1:])
    except DataError:
        return None
