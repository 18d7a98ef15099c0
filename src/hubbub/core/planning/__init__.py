"""The plan: everything that follows from mechanisms before the first record is touched.

`accounts` is the one place that pairs a mechanism with its accounting, and what a privacy auditor
reads first; then `planned_query` (a query with its noise, grid and word), `exposure` (who can learn
how much), `sampling_comparison` (what joint batches cost) and `study_plan` (how all of it becomes
the `Plan` of `plan`). What is asked by a mechanism's sums is a `Query`, whose kinds are in other
rooms.
"""
