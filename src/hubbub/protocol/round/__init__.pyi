from .additive_shares import (
    Place as Place,
    digest_of_shares as digest_of_shares,
)
from .aggregator import (
    Aggregator as Aggregator,
)
from .attempt_order import (
    PresentThroughout as PresentThroughout,
)
from .batch_rows import (
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
from .silo_batches import GroupBatches as GroupBatches
from .compute_node import (
    ComputeNode as ComputeNode,
)
from .noise_share import (
    open_noise as open_noise,
)
from .masking import (
    Attempt as Attempt,
    Masking as Masking,
)
from .projected_sum import (
    LAYERS as LAYERS,
    LocalTask as LocalTask,
    clipped_sum as clipped_sum,
    draw_key as draw_key,
    draw_of as draw_of,
    projection_of as projection_of,
)
from .revealed_sum import RevealedSum as RevealedSum
from .round_parameters import (
    Parameters as Parameters,
    RoundParameters as RoundParameters,
    decoded as decoded,
)
from .silo import (
    Charge as Charge,
    Silo as Silo,
)
