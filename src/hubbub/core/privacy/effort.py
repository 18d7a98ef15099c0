"""How much work an account may take, where somebody else has chosen its numbers.

A study of a few lines may ask for minutes of convolutions. Whoever makes an account for a stranger
sets a limit; the numerics say what they are about to do before they do it. The unit is a point: of
a grid, a window or a mixture, about a microsecond of one core. No clock is looked at, so that the
same account is refused everywhere. Without a limit nothing is counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from hubbub.core.errors import EffortError

_left: ContextVar[list[float] | None] = ContextVar("_left", default=None)


@contextmanager
def limited(points: float | None) -> Iterator[None]:
    """Let all accounts inside take so many points together; None: as many as they need.

    Inside another limit that one stays.
    """
    token = _left.set(_left.get() or (None if points is None else [points]))
    try:
        yield
    finally:
        _left.reset(token)


def spend(points: float) -> None:
    """Say that so many points are about to be worked on.

    Raises:
        EffortError: they are more than are left; nor is anything granted after that.
    """
    left = _left.get()
    if left is None:
        return
    left[0] -= points
    if left[0] < 0:
        raise EffortError(
            "expected an account that is made within the work that was allowed for it, got one "
            "that needs more; allow for more if you trust whoever chose its numbers"
        )
