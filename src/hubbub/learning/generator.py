"""torch's own generator, borrowed: afterwards it is where it was, and meanwhile nobody else's.

It is one for the whole process. Two threads that ask torch for its state at once can wait for each
other for ever (one holds the generator and waits for the interpreter, the other the interpreter),
and weights drawn by two at once would follow from neither seed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_LOCK = threading.RLock()


@contextmanager
def borrowed() -> Iterator[torch.Generator]:
    """The generator of torch's CPU, for as long as the block lasts."""
    generator = torch.default_generator
    with _LOCK:
        before = generator.get_state()
        try:
            yield generator
        finally:
            generator.set_state(before)
