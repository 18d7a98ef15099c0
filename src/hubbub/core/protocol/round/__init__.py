"""The round: silo, compute node and aggregator as state machines over bytes.

They do no I/O, read no clock and draw no global randomness; whoever runs them carries the bytes.
"""
