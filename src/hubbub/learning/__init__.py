"""Models, and the clipped sums of their per-record gradients: the only part that imports torch.

Threads of OpenMP that wait for work do so asleep, unless somebody has said otherwise: awake they
take the cores from other silos and parties of the machine. That is read when torch is loaded,
which takes seconds and so waits for the first name of this room that is used.
"""

import os

from hubbub import on_first_use

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

<<<<<<< HEAD
__getattr__ = on_first_use(__name__)
=======
from hubbub.learning.clipped_sums import ClippedSum, clipped_sum
from hubbub.learning.evaluation import evaluate, evaluate_records, scores_of
from hubbub.learning.frozen_features import frozen_features, through_frozen
from hubbub.learning.layer_projection import LayerProjection
from hubbub.learning.learner import Learner
from hubbub.learning.metrics import accuracy, auc
from hubbub.learning.model_file import load_model, save_model, stored_parameters
from hubbub.learning.models import build_model, default_loss
from hubbub.learning.null_model import Score
from hubbub.learning.optimizers import Optimizer, stepped
from hubbub.learning.parameter_vector import load_parameters, parameters_vector
from hubbub.learning.self_check import (
    TriedMethod,
    check_classes,
    checked_method,
    method_and_work,
    method_for,
    try_out,
)
from hubbub.learning.study_model import goal_of, lift_of, model_of, tried_model
from hubbub.learning.target_types import MOST_LOSS, TargetType
from hubbub.learning.task import EvaluationTask, TrainingTask, held_back
from hubbub.learning.torch_settings import device_of, threads_for
from hubbub.learning.unit_model import per_unit_model
>>>>>>> first

__all__ = [
    "MOST_LOSS",
    "ClippedSum",
    "EvaluationTask",
    "LayerProjection",
    "Optimizer",
    "Score",
    "TrainingTask",
    "TriedMethod",
    "build_model",
    "check_classes",
    "checked_method",
    "clipped_sum",
    "default_loss",
    "device_of",
    "evaluate",
    "evaluate_records",
    "held_back",
    "load_model",
    "load_parameters",
    "method_and_work",
    "method_for",
    "parameters_vector",
    "save_model",
    "scores_of",
    "stepped",
    "stored_parameters",
    "threads_for",
    "through_frozen",
    "try_out",
]
