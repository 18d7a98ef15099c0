"""How large a record and the model are, as far as the study and public data say.

A study is planned before anybody has approved it, so nothing that it names is imported or called
here: where only a function of its own knows the shape of a record, nobody does until it is run.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from pathlib import Path

from hubbub.core.disk import json_value, open_ordinary
from hubbub.core.errors import DataError
from hubbub.core.study import sources
from hubbub.core.study.import_path import is_own
from hubbub.core.study.study import Study
from hubbub.core.tabular.column import Column
from hubbub.learning.study.model import Model
from hubbub.learning.study.model_kinds import LORA, features_of, model_kind_of
from hubbub.learning.study.training import learning_of

_MOST_HEADER = 2**24  # bytes that say names and shapes of tensors


def model_dimension(study: Study) -> int | None:
    """Trainable parameters of a built-in model; None if the records' shape is not public yet."""
    model, _ = learning_of(study)
    if model.kind == LORA:
        return _low_rank(model)
    shape = record_shape(study)
    return None if shape is None or not _is_counted(model) else _parameters(study, prod(shape))


def record_shape(study: Study, dimension: int | None = None) -> tuple[int, ...] | None:
    """Shape of one record's features: stated, of the data set's columns, or of its test set.

    Args:
        study: the study.
        dimension: of the model; where the shape follows from it, no data set is opened.

    Returns:
        The shape; None if it is not public yet, or only the study's own code knows it.
    """
    if (told := told_shape(study, dimension)) is not None:
        return told
    if not study.data.options and (columns := sources.encoding(study)[0]):
        return (_width(columns),)
    if not sources.has_test_set(study) or is_own(study.data.source):
        return None
    try:
        return tuple(sources.records(study, sources.TEST).inputs.shape[1:])
    except DataError:
        return None


def told_shape(study: Study, dimension: int | None) -> tuple[int, ...] | None:
    """The shape as the study states it, or for which a built-in model has so many parameters.

    Declared columns state it, too.

    Nothing is opened: who checks a study of somebody else must not read what it names.
    """
    model, _ = learning_of(study)
    stated = _stated_shape(study)
    if stated or dimension is None or not _is_counted(model):
        return stated or None
    features = features_of(model, dimension, _intervals(study))
    return None if features is None else (features,)


def is_dimension(study: Study, dimension: int) -> bool:
    """Whether the study's model may have so many parameters, as far as it can be counted here."""
    if not _is_counted(learning_of(study)[0]):
        return True
    if stated := _stated_shape(study):
        return _parameters(study, prod(stated)) == dimension
    return told_shape(study, dimension) is not None


def _stated_shape(study: Study) -> tuple[int, ...]:
    """Of one record as the model sees it; empty if the study says it nowhere."""
    model, _ = learning_of(study)
    if model.inputs or not study.data.columns:
        return model.inputs
    return (_width(study.data.features),)


def _width(columns: Iterable[Column]) -> int:
    """Features that they become."""
    return sum(column.width for column in columns)


def _is_counted(model: Model) -> bool:
    """Whether the model's parameters follow from how many features a record has."""
    return model_kind_of(model.kind).parameters is not None


def _parameters(study: Study, features: int) -> int:
    """On so many features, of a model whose parameters are counted."""
    model, _ = learning_of(study)
    count = model_kind_of(model.kind).parameters
    assert count is not None, "of a kind that is counted"  # noqa: S101
    return count(model, features, _intervals(study))


def _intervals(study: Study) -> int:
    """Of a time to an event."""
    return len(study.data.outcome.grid) if study.data.outcome else 0


def _low_rank(model: Model) -> int | None:
    """Of adapters and their head, if the frozen weights' file is here and says its shapes."""
    assert model.frozen is not None, "a study of this kind has it"  # noqa: S101
    shapes = _shapes_in(Path(model.frozen.weights))
    ends = tuple(f".{target}.weight" for target in model.target_modules)
    sides = [shape for name, shape in shapes.items() if f".{name}".endswith(ends)]
    if not sides:
        return None
    return model.rank * sum(map(sum, sides)) + (model.frozen.features + 1) * model.outputs


def _shapes_in(path: Path) -> dict[str, list[int]]:
    """Of the matrices in a safetensors file, by its header; none where it cannot be read."""
    try:
        with open_ordinary(path) as file:
            size = int.from_bytes(file.read(8), "little")
            header = json_value(file.read(min(size, _MOST_HEADER)))
        shapes = {k: [*map(int, one["shape"])] for k, one in header.items() if "shape" in one}
        return {name: shape for name, shape in shapes.items() if len(shape) == 2}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
