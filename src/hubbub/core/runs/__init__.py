"""A run: sums are asked for step after step, and its folder goes on from where it was stopped."""
