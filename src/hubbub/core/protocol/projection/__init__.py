"""Random projection of a clipped sum to a few numbers, and back (the paper's Algorithm 3).

Each step has its own public matrix P, d x k, made from a joint seed and never stored. A silo sends
k noisy numbers instead of d (`project`); the aggregator turns their sum into an estimate of the
d-dimensional sum that is right on average (`lift`). What a projection does to the sensitivity is
docs/privacy.md P8; the plan charges it. This layer knows no records, no noise and no keys but the
public ones of its matrices.

Theory of operation. The float vector is first put on a grid so fine that the rounding costs
nothing worth speaking of (`Projection.allowance`); the product with P is then a sum of integers
below 2^53, which float64 adds without any error. So the order of the additions and the
linear-algebra library cannot change a single bit, and the entries of P come from
AES and operations that IEEE 754 rounds in one way only. Every party that makes P makes the same.
"""
