"""The plan: everything that follows from a study before the first record is touched.

`mechanisms` is the one place that pairs a mechanism with its accounting, and what a privacy auditor
reads first; then `precision` (what finite precision adds; grid and word), `exposure` (who can learn
how much), `joint_batches` (what they cost) and `study_plan` (how all of it becomes the `Plan` of
`plan_values`).
`model_size` knows how large the model is.
"""

from hubbub.planning.auxiliary_queries import (
    EVALUATION,
    STANDARDISATION,
    STATISTICS,
    TRAINING,
    features_of,
)
from hubbub.planning.expected_answers import (
    answers_of,
    check_expected,
    expected_answers,
    plan_of_sums,
    sigma_of_sums,
)
from hubbub.planning.exposure import (
    Exposure,
    epsilon_against,
    noise_left,
    owned_records,
    sharing_silos,
    stated_adversary,
)
from hubbub.planning.mask_degree import earlier_degree, is_sparse
from hubbub.planning.mechanisms import (
    BOUNDED,
    EXACT,
    LONGER,
    UNPROJECTED,
    WITHOUT_REPLACEMENT,
    Mechanism,
    Projected,
    attempts_of_list,
    epsilon_of,
    has_exact_mixture,
    joint_batch,
    least_certified,
    mechanism_of,
    releases,
    releases_of_units,
)
from hubbub.planning.model_size import is_dimension, record_shape, told_shape
from hubbub.planning.noise_correlation import Correlation
from hubbub.planning.plan_values import Plan, PlannedQuery
from hubbub.planning.planned_statistics import SumLayout, kept_numbers, layout_of_sums
from hubbub.planning.precision import SUM_MARGIN, largest_batch
from hubbub.planning.sampling_comparison import as_table
from hubbub.planning.silo_capacity import capacity_of
from hubbub.planning.study_plan import plan, plan_on_graph
