"""The plan: everything that follows from mechanisms before the first record is touched.

`accounts` is the one place that pairs a mechanism with its accounting, and what a privacy auditor
reads first; then `precision` (what finite precision adds; grid and word), `exposure` (who can learn
how much), `sampling_comparison` (what joint batches cost) and `plan_of_mechanisms` (how all of it
becomes the `Plan` of `plan_values`). What is asked by a mechanism's sums is a `Query`, whose kinds
are in `hubbub.queries`. `model_size` knows how large a study's model is.
"""

from hubbub.planning.accounts import (
    Account,
    account_of,
    epsilon_of,
    least_certified,
    releases,
    releases_of_units,
)
from hubbub.planning.exposure import (
    Exposure,
    epsilon_against,
    owned_records,
    stated_adversary,
)
from hubbub.planning.mask_degree import is_sparse
from hubbub.planning.mechanism import (
    SUM_MARGIN,
    WITHOUT_REPLACEMENT,
    Mechanism,
    joint_batch,
    mechanism_of_all,
)
from hubbub.planning.model_size import (
    is_dimension,
    model_dimension,
    record_shape,
    told_shape,
)
from hubbub.planning.noise_correlation import Correlation, correlation_for
from hubbub.planning.noise_shares import NoiseShares, may_announce, shares_of
from hubbub.planning.plan_of_mechanisms import plan_alone, plan_of
from hubbub.planning.plan_options import ANNOUNCED, option_rows
from hubbub.planning.plan_rows import PlanRow
from hubbub.planning.plan_values import Plan
from hubbub.planning.plan_warnings import about_own_code
from hubbub.planning.planned_query import PlannedQuery
from hubbub.planning.precision import largest_batch, record_clip
from hubbub.planning.query import (
    Array,
    Parameters,
    Query,
    QueryState,
    QueryWarnings,
    Released,
    Scores,
    SiloData,
    SteppedQuery,
    Stepper,
    Turn,
)
from hubbub.planning.random_projection import Projected, RandomProjection
from hubbub.planning.sampling_comparison import as_table
from hubbub.planning.silo_capacity import capacity_of
from hubbub.planning.step_noise import INDEPENDENT, StepNoise
