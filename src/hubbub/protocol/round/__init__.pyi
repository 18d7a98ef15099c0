from hubbub.protocol.round.additive_shares import (
    Place as Place,
    digest_of_shares as digest_of_shares,
)
from hubbub.protocol.round.aggregator import (
    Aggregator as Aggregator,
)
from hubbub.protocol.round.attempt_order import (
    Attendance as Attendance,
)
from hubbub.protocol.round.batch_rows import (
    EMPTY as EMPTY,
    Groups as Groups,
    Rows as Rows,
    group_rate as group_rate,
    group_rows as group_rows,
    injected as injected,
    joint_rows as joint_rows,
    most_rows as most_rows,
    poisson_batches as poisson_batches,
    poisson_rows as poisson_rows,
)
from hubbub.protocol.round.compute_node import (
    ComputeNode as ComputeNode,
)
from hubbub.protocol.round.masking import (
    Attempt as Attempt,
    Masking as Masking,
)
from hubbub.protocol.round.projected_sum import (
    LAYERS as LAYERS,
    LocalTask as LocalTask,
    clipped_sum as clipped_sum,
    draw_key as draw_key,
    draw_of as draw_of,
    projection_of as projection_of,
)
from hubbub.protocol.round.round_parameters import (
    Parameters as Parameters,
    RoundParameters as RoundParameters,
    decoded as decoded,
)
from hubbub.protocol.round.silo import (
    Charge as Charge,
    Silo as Silo,
)
