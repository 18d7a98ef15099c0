"""Features brought to mean 0 and standard deviation 1: by which shifts and scales.

They follow from sums that are asked for with noise like everything else (docs/privacy.md P16)
and are public. This file knows arrays of features, and neither sessions nor models.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.disk import json_value, read_bytes
from hubbub.core.errors import IntegrityError
from hubbub.core.tabular.records import Records

Array = NDArray[np.float64]

STANDARDISED = "standardisation.json"  # of a run's folder
_MOST_BYTES = 2**26  # of the file: a shift and a scale of a million features
_LARGEST = np.finfo(np.float32).max
_LEAST_DEVIATION = 1e-3  # of a feature, in units of its bound; smaller ones are noise


@dataclass(frozen=True, kw_only=True)
class Standardisation:
    """What is taken off every feature, and what it is then divided by; both are public.

    Args:
        shift: (features,) float32, each in its feature's own unit.
        scale: (features,) float32 above 0, each in its feature's own unit.
    """

    shift: NDArray[np.float32]
    scale: NDArray[np.float32]

    def of(self, records: Records) -> Records:
        """The records with standardised features, of which none is too large to be a number.

        Who chooses shift and scale must not learn from a refusal that a record has such a feature.
        """
        with np.errstate(over="ignore"):
            scaled = (records.inputs - self.shift) / self.scale
        return records.with_inputs(np.clip(scaled, -_LARGEST, _LARGEST).astype(np.float32))

    def __post_init__(self) -> None:
        for array in (self.shift, self.scale):
            if array.shape != self.shift.shape or not np.isfinite(array).all():
                raise ValueError("expected as many finite shifts as scales")
        if not (self.scale > 0).all():
            raise ValueError("expected scales above 0")

    def is_within(self, bound: float) -> bool:
        """Whether sums of features that are cut off at `bound` can have given it (P16)."""
        most, least = np.float32(bound), np.float32(bound * _LEAST_DEVIATION)
        shifts, scales = np.abs(self.shift), self.scale
        return bool((shifts <= most).all() and (scales >= least).all() and (scales <= most).all())

    def to_json(self) -> str:
        """The shifts and scales as a JSON text; `read` reads it back bit for bit."""
        return json.dumps({"shift": self.shift.tolist(), "scale": self.scale.tolist()})

    @classmethod
    def of_plain(cls, said: Mapping[str, Any]) -> Standardisation:
        """What `to_json` wrote; ValueError, KeyError or TypeError if it is none."""
        try:
            with np.errstate(over="ignore"):  # what is too large is infinite, and so refused
                shift, scale = (np.array(said[key], dtype=np.float32) for key in ("shift", "scale"))
        except OverflowError:  # of whole numbers
            raise ValueError("expected shifts and scales that are numbers of a machine") from None
        return cls(shift=shift, scale=scale)

    @classmethod
    def read(cls, path: Path, features: int) -> Standardisation | None:
        """What was kept of so many features in a file, if there is one."""
        if not path.exists():
            return None
        try:
            standardisation = cls.of_plain(json_value(read_bytes(path, most=_MOST_BYTES)))
            if standardisation.shift.shape != (features,):
                raise ValueError("expected another number of features")
            return standardisation
        except (OSError, ValueError, KeyError, TypeError):
            raise IntegrityError(
                f"expected {path} as this version writes it, found something else; restore it"
            ) from None


def standardisation_from(sums: Array, bound: float) -> Standardisation:
    """Shift and scale from noisy sums; a feature that hardly varies is left as wide as it is."""
    features = (sums.size - 1) // 2
    count = max(float(sums[0]), 1.0)
    mean = np.clip(sums[1 : 1 + features] / count, -1.0, 1.0)
    squares = 0.5 + sums[1 + features :] / count
    spread = np.sqrt(np.clip(squares - mean**2, 0.0, 1.0))
    scale = np.where(spread < _LEAST_DEVIATION, 1.0, spread)
    return Standardisation(
        shift=(bound * mean).astype(np.float32), scale=(bound * scale).astype(np.float32)
    )
