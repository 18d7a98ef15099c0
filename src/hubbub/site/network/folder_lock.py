"""One process works with a party's folder at a time; this file knows no party."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from hubbub.core.disk import locked
from hubbub.core.errors import UserError

LOCK = "lock"


@contextmanager
def alone(home: Path) -> Iterator[None]:
    """One process works with a folder at a time.

    Raises:
        UserError: another one does.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(home / LOCK))
        except BlockingIOError:
            raise UserError(
                f"expected to be the only process that works with {home.resolve()}, another hubbub "
                "does; end that one, or name another --home"
            ) from None
        yield
