"""A `torch.utils.data.Dataset` in place of arrays: its records are taken one by one."""

from __future__ import annotations

from typing import Any

import numpy as np

from hubbub.core.errors import DataError


def arrays_of(who: str, table: Any) -> Any:
    """Features and targets of a data set; whatever else is handed over stays as it is.

    Args:
        who: the silo, for sentences.
        table: (X, y), or what has a length and gives a pair (x, y) at each place below it.

    Raises:
        DataError: its records are no pairs, or differ in shape.
    """
    if hasattr(table, "dataset") and hasattr(table, "batch_size"):
        raise DataError(
            f"expected the records of {who}, found a {type(table).__name__}, which deals them in "
            "batches: hubbub draws its own, as the privacy account needs; hand over its .dataset"
        )
    if isinstance(table, tuple | list) or not _is_dataset(table):
        return table
    pairs = [table[place] for place in range(len(table))]
    if not pairs or not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        raise DataError(
            f"expected a data set of pairs, features and target, for {who}, found others or none; "
            "let its __getitem__ give (x, y)"
        )
    features = [_array(one) for one, _ in pairs]
    if len({feature.shape for feature in features}) > 1:
        raise DataError(
            f"expected features of one shape from the data set of {who}, found several; resize or "
            "pad them"
        )
    return np.stack(features), np.array([_target(target) for _, target in pairs])


def _is_dataset(table: Any) -> bool:
    """Whether something is a data set: it has places, and is no array, frame or mapping."""
    kind = type(table)
    places = hasattr(kind, "__getitem__") and hasattr(kind, "__len__")
    return places and not any(hasattr(table, name) for name in ("shape", "columns", "keys"))


def _array(value: Any) -> Any:
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)


def _target(value: Any) -> Any:
    target = _array(value)
    return target.item() if target.ndim == 0 else target
