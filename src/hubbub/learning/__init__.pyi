from hubbub.learning.clipped_sums import (
    ClippedSum as ClippedSum,
    clipped_sum as clipped_sum,
)
from hubbub.learning.evaluation import (
    evaluate as evaluate,
    evaluate_records as evaluate_records,
    scores_of as scores_of,
)
from hubbub.learning.frozen_features import (
    through_frozen as through_frozen,
)
from hubbub.learning.target_types import (
    MOST_LOSS as MOST_LOSS,
    TargetType as TargetType,
)
from hubbub.learning.layer_projection import (
    LayerProjection as LayerProjection,
)
from hubbub.learning.learner import (
    Learner as Learner,
)
from hubbub.learning.metrics import (
    accuracy as accuracy,
    auc as auc,
)
from hubbub.learning.model_file import (
    load_model as load_model,
    refuse_other_model as refuse_other_model,
    save_model as save_model,
    stored_parameters as stored_parameters,
    stored_shape as stored_shape,
)
from hubbub.learning.models import (
    build_model as build_model,
    default_loss as default_loss,
)
from hubbub.learning.null_model import (
    Score as Score,
)
from hubbub.learning.optimizers import (
    Optimizer as Optimizer,
    stepped as stepped,
)
from hubbub.learning.parameter_vector import (
    load_parameters as load_parameters,
    parameters_vector as parameters_vector,
)
from hubbub.learning.prediction import (
    Scorer as Scorer,
    scores as scores,
    write_onnx as write_onnx,
)
from hubbub.learning.self_check import (
    TriedMethod as TriedMethod,
    check_classes as check_classes,
    checked_method as checked_method,
    method_and_work as method_and_work,
    method_for as method_for,
    try_out as try_out,
)
from hubbub.learning.study_model import (
    goal_of as goal_of,
    lift_of as lift_of,
    model_of as model_of,
    tried_model as tried_model,
)
from hubbub.learning.task import (
    EvaluationTask as EvaluationTask,
    TrainingTask as TrainingTask,
    held_back as held_back,
)
from hubbub.learning.torch_settings import (
    device_of as device_of,
    threads_for as threads_for,
)
from hubbub.learning.unit_model import (
    per_unit_model as per_unit_model,
)
