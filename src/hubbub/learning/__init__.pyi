from .clipped_sums import (
    ClippedSum as ClippedSum,
    clipped_sum as clipped_sum,
)
from .evaluation import (
    evaluate as evaluate,
    evaluate_records as evaluate_records,
    scores_of as scores_of,
)
from .frozen import (
    through_frozen as through_frozen,
)
from .target_types import (
    MOST_LOSS as MOST_LOSS,
    TargetType as TargetType,
)
from .layer_projection import (
    LayerProjection as LayerProjection,
)
from .study_model import (
    Learner as Learner,
)
from .scoring import (
    accuracy as accuracy,
    auc as auc,
)
from .silo_tasks import (
    CellMarks as CellMarks,
    Marks as Marks,
    Placed as Placed,
    ScoreMarks as ScoreMarks,
)
from .parameters import (
    load_model as load_model,
    refuse_other_model as refuse_other_model,
    save_model as save_model,
    stored_header as stored_header,
    stored_parameters as stored_parameters,
    stored_shape as stored_shape,
)
from .models import (
    build_model as build_model,
    default_loss as default_loss,
)
from .evaluation import (
    Score as Score,
)
from .optimizers import (
    Averaged as Averaged,
    Optimizer as Optimizer,
    stepped as stepped,
)
from .parameters import (
    load_parameters as load_parameters,
    parameters_vector as parameters_vector,
)
from .evaluation import (
    Scorer as Scorer,
    scores as scores,
    write_onnx as write_onnx,
)
from .self_check import (
    TriedMethod as TriedMethod,
    check_classes as check_classes,
    checked_method as checked_method,
    method_and_work as method_and_work,
    method_for as method_for,
    try_out as try_out,
)
from .study_model import (
    goal_of as goal_of,
    lift_of as lift_of,
    model_of as model_of,
    per_view_model as per_view_model,
    tried_model as tried_model,
    with_logits as with_logits,
)
from .silo_tasks import EvaluationTask as EvaluationTask
from .batches import held_back as held_back
from .silo_tasks import TrainingTask as TrainingTask
from .torch_settings import (
    device_of as device_of,
    threads_for as threads_for,
)
from .batches import (
    per_unit_model as per_unit_model,
)
from .views import views_of as views_of
