from hubbub.protocol.projection.exact_grid import (
    Array as Array,
    Integers as Integers,
    quantum as quantum,
    to_grid as to_grid,
)
from hubbub.protocol.projection.matrix import (
    KINDS as KINDS,
    SEED_BYTES as SEED_BYTES,
    Draw as Draw,
    Projection as Projection,
)
from hubbub.protocol.projection.product import (
    Lift as Lift,
    lift as lift,
    project as project,
)
