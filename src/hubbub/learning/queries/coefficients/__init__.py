"""Coefficients of the trained model: ratios of odds, rates or hazards, or slopes, with intervals.

`coefficients_query` says what the model's numbers are as effects, what is summed, and what the
answers are.
"""
