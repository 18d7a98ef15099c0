"""A study's model as one machine makes gradients of it: the module, its first weights, the method.

Silos of one process share it. This file knows no records.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import nn

from hubbub.learning.target_types import TargetType
from hubbub.learning.unit_model import UnitModel

Parameters = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Learner:
    """A model that is ready to learn.

    Args:
        model: the module; steps are written into it to evaluate it.
        per_unit_model: the same as the study's units see it: a patient's records at once.
        initial: its first weights.
        target_type: what it is trained for.
        method: how clipped gradients of it are made.
        device: where.
        shape: of one record's features.
    """

    model: nn.Module = field(repr=False)
    per_unit_model: nn.Module | UnitModel = field(repr=False)
    initial: Parameters = field(repr=False)
    target_type: TargetType
    method: str = ""
    device: str = "cpu"
    shape: tuple[int, ...] = ()
