"""The round: silo, compute node and aggregator as state machines over bytes.

They do no I/O, read no clock and draw no global randomness; whoever runs them carries the bytes.
"""

from hubbub.protocol.round.aggregator import Aggregator
from hubbub.protocol.round.attempt_order import Attendance
from hubbub.protocol.round.batch_rows import (
    EMPTY,
    Groups,
    Rows,
    group_rate,
    group_rows,
    injected,
    joint_rows,
    most_rows,
    poisson_batches,
    poisson_rows,
)
from hubbub.protocol.round.compute_node import ComputeNode
from hubbub.protocol.round.masking import Attempt, Masking
from hubbub.protocol.round.projected_sum import (
    LAYERS,
    LocalTask,
    clipped_sum,
    draw_key,
    draw_of,
    projection_of,
)
from hubbub.protocol.round.round_parameters import (
    Parameters,
    RoundParameters,
    decoded,
)
from hubbub.protocol.round.silo import Charge, Silo
