"""A study's model as one machine makes gradients of it: the module, its first weights, the method.

Silos of one process share it. This file knows no records.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import nn

from hubbub.core.tabular.records import Records
from hubbub.learning.evaluation import scores_of
from hubbub.learning.null_model import Score
from hubbub.learning.parameter_vector import load_parameters
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

    def trained(self, parameters: Parameters) -> nn.Module:
        """The model with these parameters."""
        load_parameters(self.model, parameters)
        return self.model

    def beside_null(self, parameters: Parameters, test: Records) -> dict[str, Score]:
        """Scores on a public test set beside those of a model that knows nothing."""
        return scores_of(
            self.trained(parameters), test, device=self.device, target_type=self.target_type
        )
