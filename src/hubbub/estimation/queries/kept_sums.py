"""The file in which a run's folder keeps the noisy sums of a query."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hubbub.core.disk import json_value, read_bytes, write_text
from hubbub.core.errors import IntegrityError
from hubbub.estimation.queries.statistic_sums import SumLayout

_MOST_BYTES = 2**30  # of the file: a hundred sums of a million numbers
Kept = NDArray[np.float32]


def write_sums(folder: Path, kept: Kept, name: str) -> None:
    """Keep what sums have given so far."""
    write_text(folder / name, json.dumps({"kept": kept.tolist()}))


def sums_in(folder: Path, layout: SumLayout, name: str) -> Kept:
    """What a folder keeps of sums, see `SumLayout`; what stands before the first if there is none.

    Raises:
        IntegrityError: the file is not as it was written.
    """
    path = folder / name
    if not path.exists():
        return layout.start
    try:
        said = json_value(read_bytes(path, most=_MOST_BYTES))
        with np.errstate(over="ignore"):  # what is too large is infinite, and so refused
            kept = np.array(said["kept"], dtype=np.float32)
        if set(said) != {"kept"} or kept.shape != layout.start.shape or not np.isfinite(kept).all():
            raise ValueError("expected other sums")
    except (OSError, ValueError, KeyError, TypeError, RecursionError, OverflowError):
        raise IntegrityError(
            f"expected {path} as this version writes it, found something else; restore it"
        ) from None
    return kept
