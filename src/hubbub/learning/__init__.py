"""Models, and the clipped sums of their per-record gradients: the only part that imports torch.

Threads of OpenMP that wait for work do so asleep, unless somebody has said otherwise: awake they
take the cores from other silos and parties of the machine. That is read when torch is loaded,
which takes seconds and so waits for the first name of this room that is used.
"""

import os

import lazy_loader

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)

__all__ = [
    "MOST_LOSS",
    "ClippedSum",
    "EvaluationTask",
    "Optimizer",
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
    "stepped",
    "stored_parameters",
    "threads_for",
    "through_frozen",
    "try_out",
]
