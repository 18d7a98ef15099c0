"""The plan: everything that follows from mechanisms before the first record is touched.

`accounts` is the one place that pairs a mechanism with its accounting, and what a privacy auditor
reads first; then `precision` (what finite precision adds; grid and word), `exposure` (who can learn
how much), `sampling_comparison` (what joint batches cost) and `plan_of_mechanisms` (how all of it
becomes the `Plan` of `plan_values`). What is asked by a mechanism's sums is a `Query`, whose kinds
are in `hubbub.queries`. `model_size` knows how large a study's model is.
"""
