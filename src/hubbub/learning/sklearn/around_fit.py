"""What happens around an estimator's fit that its own promise does not cover: who does so is told.

A search fits once for each candidate and fold, and each fit is a release of its own. A scaler that
has seen all silos' rows together puts what it learned of them into every record, without noise.
Frames of scikit-learn that are under way, and the numbers themselves, are all that is looked at.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import UncountedWarning, UnnoisedWarning

_CLOSE = 1e-5  # how near 0 and 1 means and deviations are that were made so
_FEWEST = 10  # rows, of which a mean of 0 is no chance


def warn_of_what_is_around(inputs: NDArray[Any], epsilon: float) -> None:
    """Warn of a search that this fit is part of, and of features that all rows together have made.

    Args:
        inputs: (n, features), of all silos.
        epsilon: what this fit may cost.
    """
    frames = list(_under_way())
    if any(_module(frame).startswith("sklearn.model_selection") for frame in frames):
        warnings.warn(
            f"expected one fit, got one of a search or a cross-validation: each of its fits costs "
            f"up to epsilon {epsilon:g}, they add up, and what is chosen by them is chosen by "
            "private rows; choose on public or made-up records (hubbub.rehearse), "
            "then fit once",
            UncountedWarning,
            stacklevel=4,
        )
    learned = [name for frame in frames for name in _learned_before(frame)]
    if learned or _is_standardised(inputs):
        what = ", ".join(dict.fromkeys(learned)) or "what made each mean 0 and each deviation 1"
        warnings.warn(
            f"expected features that each silo makes by public numbers alone, got those of "
            f"{what}, which has seen all silos' rows together: what it learned of them reaches "
            "the model without noise; scale by public bounds (columns of hubbub.fit), or with "
            "noise (data.standardise)",
            UnnoisedWarning,
            stacklevel=4,
        )


def _under_way() -> Iterator[FrameType]:
    """The callers of the fit, the nearest first."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 (its documented way)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _learned_before(frame: FrameType) -> list[str]:
    """Names of a pipeline's earlier steps that learn from rows, where a frame is its fit."""
    pipeline = frame.f_locals.get("self")
    if _module(frame) != "sklearn.pipeline" or frame.f_code.co_name != "fit":
        return []
    steps = [step for _, step in getattr(pipeline, "steps", [])[:-1]]
    return [type(step).__name__ for step in steps if _learns(step)]


def _learns(step: Any) -> bool:
    """Whether a step of a pipeline keeps something of the rows that it was fitted on."""
    if step is None or isinstance(step, str):
        return False
    tags = getattr(step, "__sklearn_tags__", None)
    return tags is None or bool(tags().requires_fit)


def _is_standardised(inputs: NDArray[Any]) -> bool:
    """Whether every feature that differs at all has mean 0 and standard deviation 1."""
    if inputs.ndim != 2 or len(inputs) < _FEWEST or inputs.dtype.kind != "f":
        return False
    spread = inputs.std(axis=0)
    differs = spread > 0
    return bool(
        differs.any()
        and np.all(np.abs(inputs.mean(axis=0)) < _CLOSE)
        and np.all(np.abs(spread[differs] - 1) < _CLOSE)
    )
