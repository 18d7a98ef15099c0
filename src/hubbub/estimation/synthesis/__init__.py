"""Synthetic records from noisy sums: what a record sends, what is chosen, the model, intervals.

Nothing in here knows silos, budgets or how a sum is made. All but what a record sends follows from
noisy sums and public numbers (docs/privacy.md P26).
"""
