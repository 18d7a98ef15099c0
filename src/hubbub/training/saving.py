"""States on their way to disk, on a thread of their own, while the next model is on its way.

A state that is not on disk when the process dies is lost with its step, whose attempt stays charged
(docs/privacy.md P15). So whoever is about to charge the next attempt waits for it first (`wait`),
or, where the parties charge it elsewhere, lets the step be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

from hubbub.training.loop import State
from hubbub.training.run_folder import RunFolder


class Saver:
    """Puts the states of a run on disk, one after the other.

    Args:
        folder: the run's.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder, self._pool = folder, ThreadPoolExecutor(1)
        self._last: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()  # what was begun is finished

    def keep(
        self, state: State, heads: Mapping[str, bytes], then: Callable[[], None] = lambda: None
    ) -> None:
        """Begin to write a state, and then do something more, once this is over for the last."""

        def work() -> None:
            self._folder.keep(state, heads)
            then()

        self.wait()
        self._last = self._pool.submit(work)

    def wait(self) -> None:
        """Until the last state is on disk; its errors are raised here."""
        if self._last is not None:
            self._last.result()
