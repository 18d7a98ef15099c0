"""The plan: everything that follows from a study before the first record is touched.

`pairing` is the one place that pairs a mechanism with its accounting, and what a privacy auditor
reads first; then `precision` (what finite precision adds; grid and word), `exposure` (who can learn
how much), `batches` (what joint batches cost) and `planning` (how all of it becomes the `Plan`).
`size` knows how large the model is.
"""

from hubbub.plan.asides import EVALUATION, STANDARDISATION, Aside
from hubbub.plan.batches import JointBatches
from hubbub.plan.exposure import (
    Exposure,
    noise_left,
    owned_records,
    sharing_silos,
    stated_adversary,
)
from hubbub.plan.mask_graph import is_sparse
from hubbub.plan.pairing import (
    Mechanism,
    Projected,
    attempts_of_list,
    joint_batch,
    mechanism_of,
    releases,
)
from hubbub.plan.planning import Plan, PlannedAside, plan
from hubbub.plan.precision import SUM_MARGIN, check_batches, largest_batch
from hubbub.plan.size import is_dimension, model_dimension, record_shape, told_shape

__all__ = [
    "EVALUATION",
    "STANDARDISATION",
    "SUM_MARGIN",
    "Aside",
    "Exposure",
    "JointBatches",
    "Mechanism",
    "Plan",
    "PlannedAside",
    "Projected",
    "attempts_of_list",
    "check_batches",
    "is_dimension",
    "is_sparse",
    "joint_batch",
    "largest_batch",
    "mechanism_of",
    "model_dimension",
    "noise_left",
    "owned_records",
    "plan",
    "record_shape",
    "releases",
    "sharing_silos",
    "stated_adversary",
    "told_shape",
]
