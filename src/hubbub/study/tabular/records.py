"""The records of one silo, as arrays: what a training step reads, and nothing that is ever sent.

This file knows numpy and the error tree; it must not know where records come from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import DataError


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Records:
    """The records of one silo, or the public test set. Never printed, never sent.

    A data function of your own returns them (docs/data.md).

    Args:
        inputs: finite numbers, float32, shape (n, features), or (n, ...) for images; the model sees
            them as they are.
        targets: shape (n,): float32 in {0, 1} for two classes, int64 class numbers from 0 for
            several classes, float64 for amounts and counts in their own unit; or float64 of shape
            (n, 2) for times from 0, each with 1 if it ends with the event, else 0.

    Raises:
        DataError: shapes, lengths or types differ from these, or a value is not finite.

    >>> records = Records(
    ...     inputs=np.zeros((3, 2), dtype=np.float32), targets=np.array([0, 1, 2], dtype=np.int64)
    ... )
    >>> records, len(records)
    (<Records of shape (2,), targets int64>, 3)
    """

    inputs: NDArray[Any]
    targets: NDArray[Any]

    def __post_init__(self) -> None:
        """Refuses what a step could not use safely; no message holds a value or a count."""
        for name, array in (("inputs", self.inputs), ("targets", self.targets)):
            if not isinstance(array, np.ndarray):
                raise DataError(
                    f"expected {name} to be a numpy array, found {type(array).__name__}; "
                    "convert it with numpy.asarray"
                )
        self._check_types()
        self._check_shapes()
        self._check_values()

    def __len__(self) -> int:
        """How many records there are: itself private to the silo."""
        return len(self.targets)

    def __repr__(self) -> str:
        """Shows the public shape of one record, neither values nor how many there are."""
        return f"<Records of shape {self.inputs.shape[1:]}, targets {self.targets.dtype}>"

    def _check_types(self) -> None:
        if self.inputs.dtype != np.float32:
            raise DataError(
                f"expected inputs of type float32, found {self.inputs.dtype}; convert them with "
                ".astype(numpy.float32)"
            )
        if self.targets.dtype not in (np.float32, np.int64, np.float64):
            raise DataError(
                "expected targets of type float32 (two classes), int64 (several classes) or "
                f"float64 (amounts, counts, times), found {self.targets.dtype}; convert them with "
                ".astype"
            )

    def _check_shapes(self) -> None:
        pairs = self.targets.dtype == np.float64 and self.targets.shape[1:] == (2,)
        if self.inputs.ndim < 2 or (self.targets.ndim != 1 and not pairs):
            raise DataError(
                "expected inputs of shape (n, features) and targets of shape (n,), or (n, 2) for "
                f"times and events in float64, found {self.inputs.ndim} and {self.targets.ndim} "
                "dimensions; reshape them"
            )
        if len(self.inputs) != len(self.targets):
            raise DataError(
                "expected one target per record, found different lengths of inputs and targets; "
                "check how they were read"
            )

    def _check_values(self) -> None:
        if not all(np.isfinite(array).all() for array in (self.inputs, self.targets)):
            raise DataError(
                "expected finite numbers only, found infinite or undefined ones; clean the records"
            )
        if self.targets.dtype == np.float32 and not np.isin(self.targets, (0, 1)).all():
            raise DataError(
                "expected targets of 0 and 1 in float32, found others; number several classes in "
                "int64, and give amounts and counts in float64"
            )
        if self.targets.dtype == np.int64 and (self.targets < 0).any():
            raise DataError(
                "expected class numbers from 0 upwards, found a negative one; renumber the classes"
            )
        times, events = self.targets[..., :1], self.targets[..., 1:]
        if self.targets.ndim == 2 and ((times < 0).any() or not np.isin(events, (0, 1)).all()):
            raise DataError(
                "expected times from 0 with 1 for an event and 0 for none, found others; correct "
                "the records"
            )
