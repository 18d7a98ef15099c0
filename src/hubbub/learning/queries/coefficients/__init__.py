"""Coefficients of the trained model: ratios of odds, rates or hazards, or slopes, with intervals.

`released_model` says what the model's numbers are as effects; what is summed is `model_sums`, for
classes and counts as `newton_steps`, for amounts and times as `own_sums`; `coefficients_query` is
the query and what it says.
"""
