"""The round: silo, compute node and aggregator as state machines over bytes.

They do no I/O, read no clock and draw no global randomness; whoever runs them carries the bytes.
"""

from hubbub.round.aggregator import Aggregator
from hubbub.round.answering import Answering
from hubbub.round.compute_node import ComputeNode
from hubbub.round.decoding import decoded
from hubbub.round.projected import LocalTask
from hubbub.round.silo import Charge, Silo
from hubbub.round.terms import Terms

__all__ = [
    "Aggregator",
    "Answering",
    "Charge",
    "ComputeNode",
    "LocalTask",
    "Silo",
    "Terms",
    "decoded",
]
