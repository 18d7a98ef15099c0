"""Coefficients of the trained model: odds ratios, slopes or hazard ratios with intervals.

`released_model` says what the model's numbers are as effects; what is summed is `model_sums`, for
two classes as `newton_steps`, for amounts and times as `own_sums`; `coefficients_query` is the
query and what it says.
"""

from hubbub.queries.coefficients.coefficients_query import (
    COEFFICIENT_SUMS,
    COEFFICIENTS,
    CoefficientsQuery,
)
