"""Synthetic records: what a record sends, what follows from sums, and runs of studies."""
