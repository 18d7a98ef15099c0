"""How many threads torch uses: more than one is slower for small models on a busy machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

# Below this the threads of one operation wait for each other longer than they work.
_SMALL = 100_000


@contextmanager
def threads_for(parameters: int) -> Iterator[None]:
    """torch's own number of threads inside, or one for a model with few parameters."""
    before = torch.get_num_threads()
    if parameters < _SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
