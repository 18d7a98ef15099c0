"""The round: silo, compute node and aggregator as state machines over bytes.

They do no I/O, read no clock and draw no global randomness; whoever runs them carries the bytes.
"""

from hubbub.protocol.round.aggregator import Aggregator
from hubbub.protocol.round.compute_node import ComputeNode
from hubbub.protocol.round.decoding import decoded
from hubbub.protocol.round.masking import Masking
from hubbub.protocol.round.projected_sum import LocalTask
from hubbub.protocol.round.round_parameters import RoundParameters
from hubbub.protocol.round.silo import Charge, Silo

__all__ = [
    "Aggregator",
    "Charge",
    "ComputeNode",
    "LocalTask",
    "Masking",
    "RoundParameters",
    "Silo",
    "decoded",
]
