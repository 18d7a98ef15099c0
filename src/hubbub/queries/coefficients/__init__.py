"""Coefficients of the trained model: odds ratios whose intervals know chance and noise.

`released_model` says what the model's numbers are as effects; `newton_steps` is what is summed;
`coefficients_query` is the query and what it says.
"""

from hubbub.queries.coefficients.coefficients_query import (
    COEFFICIENT_SUMS,
    COEFFICIENTS,
    CoefficientsQuery,
)
