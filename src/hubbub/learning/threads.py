"""How many threads torch uses: more than one is slower for small models on a busy machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

# Below this the threads of one operation wait for each other longer than they work.
_SMALL = 100_000


@contextmanager
def threads_for(parameters: int) -> Iterator[None]:
    """torch's own number of threads inside, or one for a model with few parameters.

    Args:
        parameters: how many trainable parameters the model has; below 100,000 they are few.

    Returns:
        A context manager, which puts torch's number back.

    >>> with threads_for(27):
    ...     torch.get_num_threads()
    1
    """
    before = torch.get_num_threads()
    if parameters < _SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
