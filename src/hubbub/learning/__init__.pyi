from .batches import held_back as held_back, per_unit_model as per_unit_model
from .clipped_sums import ClippedSum as ClippedSum, clipped_sum as clipped_sum
from .evaluation import (
    Score as Score,
    Scorer as Scorer,
    evaluate as evaluate,
    evaluate_records as evaluate_records,
    scores as scores,
    scores_of as scores_of,
    write_onnx as write_onnx,
)
from .frozen import through_frozen as through_frozen
from .models import build_model as build_model, default_loss as default_loss
from .optimizers import (
    Averaged as Averaged,
    Optimizer as Optimizer,
    mean_in as mean_in,
    stepped as stepped,
)
from .parameters import (
    load_model as load_model,
    load_parameters as load_parameters,
    parameters_vector as parameters_vector,
    refuse_other_model as refuse_other_model,
    save_model as save_model,
    stored_header as stored_header,
    stored_parameters as stored_parameters,
    stored_shape as stored_shape,
)
from .scoring import accuracy as accuracy, auc as auc
from .self_check import (
    TriedMethod as TriedMethod,
    check_classes as check_classes,
    checked_method as checked_method,
    method_and_work as method_and_work,
    method_for as method_for,
    try_out as try_out,
)
from .silo_tasks import (
    CellMarks as CellMarks,
    EvaluationTask as EvaluationTask,
    ScoreMarks as ScoreMarks,
    TrainingTask as TrainingTask,
)
from .study_model import (
    Learner as Learner,
    goal_of as goal_of,
    layers_of as layers_of,
    lift_of as lift_of,
    model_of as model_of,
    per_view_model as per_view_model,
    tried_model as tried_model,
    with_logits as with_logits,
)
from .target_types import MOST_LOSS as MOST_LOSS, TargetType as TargetType
from .torch_settings import device_of as device_of, threads_for as threads_for
from .views import views_of as views_of
