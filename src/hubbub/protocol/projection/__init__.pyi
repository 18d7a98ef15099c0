from .exact_grid import (
    Array as Array,
    Integers as Integers,
    quantum as quantum,
    to_grid as to_grid,
)
from .matrix import (
    KINDS as KINDS,
    SEED_BYTES as SEED_BYTES,
    Draw as Draw,
    Projection as Projection,
)
from .product import (
    Lift as Lift,
    lift as lift,
    project as project,
)
